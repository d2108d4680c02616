// Attention whose scores and weights are rounded to steps of 8 bits in between, as quantised models
// write it: QuantizeLinear and DequantizeLinear behind its products and its softmax.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_STEPS_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_STEPS_H_

#include <array>
#include <optional>

#include "ops/attention/attention_kernel.h"
#include "ops/operator.h"

namespace chairlift {

// x becomes (q − zero) · scale, with q = round(x / scale) + zero from `low` to `high`.
struct QuantizedStep {
  float scale = 0;  // 0: x stays
  float zero = 0, low = 0, high = 0;

  float operator()(float x) const;
};

struct AttentionSteps {
  enum Place { kProducts, kScaled, kMasked, kWeights };
  std::array<QuantizedStep, 4> at;
};

// Attribute `steps`: scale, zero, low and high for each place, 16 floats. Nothing if it is absent.
StatusOr<std::optional<AttentionSteps>> AttentionStepsOf(const Attributes& attributes);

// Attend() with head.steps. `scores`: [keys].
void AttendInSteps(const AttentionHead& head, int64_t first, int64_t last, float* scores);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_STEPS_H_
