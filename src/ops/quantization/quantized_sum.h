// Sums of rows of bytes, the loop of chairlift::QLinearAdd.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_QUANTIZED_SUM_H_
#define CHAIRLIFT_OPS_QUANTIZATION_QUANTIZED_SUM_H_

#include <cstdint>

namespace chairlift {

// y = saturate(round((a − a_zero) · a_ratio + (b − b_zero) · b_ratio + zero)), ties to even.
struct ByteSum {
  double a_ratio = 0, b_ratio = 0, zero = 0;
  int32_t a_zero = 0, b_zero = 0;
  bool is_signed = false;
};

void SumBytes(const ByteSum& sum, const void* a, const void* b, int64_t count, void* y);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_QUANTIZED_SUM_H_
