// Quantises floats to uint8 over their own range, as DynamicQuantizeLinear does.
#ifndef CHAIRLIFT_OPS_LINEAR_INT8_ROWS_H_
#define CHAIRLIFT_OPS_LINEAR_INT8_ROWS_H_

#include <cstdint>

namespace chairlift {

// The least and largest of 0 and the elements; NaN counts for neither.
struct FloatRange {
  float low = 0;
  float high = 0;
  bool finite = true;  // no element is NaN or infinite
};
FloatRange FloatRangeOf(const float* x, int64_t n);
FloatRange UnionOf(const FloatRange& a, const FloatRange& b);

// Real numbers are scale · (code − zero).
struct ByteScale {
  float scale = 1;
  uint8_t zero = 0;
};
// Uses all 256 codes. Follows onnxruntime: the scale is 1 if all elements are 0.
ByteScale ByteScaleOf(const FloatRange& range);

// y[i] = saturate(round(x[i] / scale) + zero); NaN becomes 0.
void QuantizeBytes(const float* x, int64_t n, const ByteScale& scale, uint8_t* y);
// Like QuantizeBytes(), but faster. It multiplies by 1 / scale, so an element half-way between two
// codes may get either. x must be in the scale's range. y[i] is at i / 64 · y_step + i % 64. The
// rest of the last 64 bytes is set to 0.
void RoundToBytes(const float* x, int64_t n, const ByteScale& scale, int64_t y_step, uint8_t* y);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_INT8_ROWS_H_
