// Products of 8-bit matrices in 32-bit integers, and what becomes of them: int32, or quantised
// again.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_
#define CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_

#include <cstdint>

#include "ops/operator.h"

namespace chairlift {

// An 8-bit matrix: element (r, c) lies at r·row_stride + c·column_stride bytes.
struct ByteMatrix {
  const void* data = nullptr;
  bool is_signed = false;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};
// Zero points along a dimension: entry i at i·stride; none where data is null.
struct ZeroPoints {
  const void* data = nullptr;
  bool is_signed = false;
  int64_t stride = 0;

  int32_t operator[](int64_t i) const {
    if (data == nullptr) return 0;
    return is_signed ? static_cast<const int8_t*>(data)[i * stride]
                     : static_cast<const uint8_t*>(data)[i * stride];
  }
};

// sums[r·n + c] = Σ over k of (a(r, k) − a_zero[r]) · (b(k, c) − b_zero[c]), modulo 2³². `scratch`
// holds IntegerProductScratch(n, k) bytes.
void IntegerProduct(const ByteMatrix& a, const ZeroPoints& a_zero, const ByteMatrix& b,
                    const ZeroPoints& b_zero, int64_t m, int64_t n, int64_t k, int32_t* sums,
                    void* scratch);
int64_t IntegerProductScratch(int64_t n, int64_t k);

// y[i] = saturate(round(sums[i] · factor) + zero_point) in int8 or uint8.
void Requantize(const int32_t* sums, int64_t count, float factor, int32_t zero_point,
                bool is_signed, void* y);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_
