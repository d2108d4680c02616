// Products of 8-bit matrices in 32-bit integers, and their results as int32 or quantised again.
//
// Both sides are widened to 16 bits with their zero points subtracted. This is exact for any signs
// and any zero points. The instructions that multiply 8-bit pairs either saturate or are not
// available everywhere. B is in panels of 32 columns, with pairs of k together. Element (k, n) is
// at (n / 32) · K · 32 + (k / 2) · 64 + (n % 32) · 2 + k % 2, with K rounded up to even. Rows of A
// are dense. Padding is zero.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_
#define CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_

#include <cstdint>

#include "ops/operator.h"

namespace chairlift {

// An 8-bit matrix: element (r, c) is at r·row_stride + c·column_stride bytes.
struct ByteMatrix {
  const void* data = nullptr;
  bool is_signed = false;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};
// Zero points along a dimension: entry i is at i·stride. All are 0 if data is null.
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

inline constexpr int64_t kIntegerPanel = 32;

// Elements from one widened row of A to the next. Not a multiple of 1 KiB, because rows would
// compete for the same cache lines.
inline int64_t WideRowStride(int64_t k) {
  const int64_t stride = (k + 31) / 32 * 32;
  return stride % 512 == 0 ? stride + 32 : stride;
}
inline int64_t IntegerPanels(int64_t n) { return (n + kIntegerPanel - 1) / kIntegerPanel; }
// Elements of widened B.
inline int64_t WidePanelsSize(int64_t n, int64_t k) {
  return IntegerPanels(n) * kIntegerPanel * ((k + 1) / 2 * 2);
}

// wide [m, WideRowStride(k)] = A [m, k] − zero[row].
void WidenRows(const ByteMatrix& a, const ZeroPoints& zero, int64_t m, int64_t k, int16_t* wide);
// Writes panels [first, last) of B [k, n] − zero[column]. `wide` is always the address of panel 0,
// even if `first` is not 0.
void WidenPanels(const ByteMatrix& b, const ZeroPoints& zero, int64_t n, int64_t k, int64_t first,
                 int64_t last, int16_t* wide);

// sums[r·stride + c] = Σ over k of A(r, k) · B(k, c), modulo 2³², for the columns of panels
// [first, last).
void IntegerProduct(const int16_t* a, const int16_t* b, int64_t m, int64_t n, int64_t k,
                    int64_t first, int64_t last, int32_t* sums, int64_t stride);

// y[i] = saturate(round(sums[i] · factor) + zero_point) in int8 or uint8.
void Requantize(const int32_t* sums, int64_t count, float factor, int32_t zero_point,
                bool is_signed, void* y);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_INTEGER_PRODUCT_H_
