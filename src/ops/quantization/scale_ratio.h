// What integers are multiplied by on their way from one scale to another: x_scale · w_scale /
// y_scale.
#ifndef CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_
#define CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_

#include <span>

namespace chairlift {

// a · b / c, computed in float from left to right, as other engines do: integers then round to the
// same neighbours. Where that leaves the range of normal floats, it is computed in double, and held
// to 1e200: 0 times a ratio is 0, whatever the scales (a mask's lowest value has a scale
// of 2.7e36). Denormal scales count, though workers take denormals for zero. NaN where a scale is.
double WideScaleRatio(float a, float b, float c);
// The same, held to the largest float.
float ScaleRatio(float a, float b, float c);

// x, which a worker's arithmetic may take for zero where it is denormal.
double Exactly(float x);
// Whether some of these scales are zero, denormal, infinite or NaN.
bool AnyUnusual(std::span<const float> scales);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_QUANTIZATION_SCALE_RATIO_H_
