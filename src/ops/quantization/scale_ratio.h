// The factor for converting integers from one scale to another: x_scale · w_scale / y_scale.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_
#define CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_

#include <span>

namespace chairlift {

// a · b / c, computed in float from left to right, as in other engines, so that integers round to
// the same neighbours. If that leaves the range of normal floats, it is computed in double and
// limited to 1e200. The ratio is then finite, so 0 times the ratio is 0. This matters for masks,
// whose lowest value can have a scale of 2.7e36. Denormal scales count, although workers flush
// denormals to zero. NaN if a scale is NaN.
double WideScaleRatio(float a, float b, float c);
// The same, limited to the largest float.
float ScaleRatio(float a, float b, float c);

// Converts x to double exactly, even if it is denormal. A worker's arithmetic may treat denormals
// as zero.
double Exactly(float x);
// Whether some of these scales are zero, denormal, infinite or NaN.
bool AnyUnusual(std::span<const float> scales);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_
