// float16 and bfloat16 arrays to float32 and back, rounding to nearest even; NaN stays NaN.
#ifndef CHAIRLIFT_OPS_HALF_SIMD_H_
#define CHAIRLIFT_OPS_HALF_SIMD_H_

#include <cstdint>

#include "chairlift/tensor.h"

namespace chairlift {

void WidenFloat16(const Float16* from, float* to, int64_t n);
void NarrowFloat16(const float* from, Float16* to, int64_t n);
void WidenBFloat16(const BFloat16* from, float* to, int64_t n);
void NarrowBFloat16(const float* from, BFloat16* to, int64_t n);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_HALF_SIMD_H_
