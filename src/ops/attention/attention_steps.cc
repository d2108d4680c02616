#include "ops/attention/attention_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace chairlift {
namespace {

// Several sums side by side, so that they are vectorised.
float DotOf(const float* a, const float* b, int64_t stride, int64_t n) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  if (stride == 1) {
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
    }
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i * stride];
  for (const float lane : sums) sum += lane;
  return sum;
}

}  // namespace

float QuantizedStep::operator()(float x) const {
  if (scale == 0) return x;
  // As Quantize() in ops/quantization/rounding.h.
  constexpr float kRound = 12582912.0f;
  float steps = x / scale;
  steps = steps > low - zero ? steps : low - zero;
  steps = steps < high - zero ? steps : high - zero;
  return ((steps + kRound) - kRound) * scale;
}

StatusOr<std::optional<AttentionSteps>> AttentionStepsOf(const Attributes& attributes) {
  const std::vector<float> given = attributes.Floats("steps");
  if (given.empty()) return std::nullopt;
  AttentionSteps steps;
  if (given.size() != 4 * steps.at.size()) {
    return InvalidArgument("attribute steps has {} numbers, not {}", given.size(),
                           4 * steps.at.size());
  }
  for (size_t i = 0; i < steps.at.size(); ++i) {
    steps.at[i] = {given[4 * i], given[4 * i + 1], given[4 * i + 2], given[4 * i + 3]};
  }
  return steps;
}

void AttendInSteps(const AttentionHead& head, int64_t first, int64_t last, float* scores) {
  const auto& at = head.steps->at;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t i = first; i < last; ++i) {
    const float* q = head.q + i * head.q_row;
    const int64_t from = std::clamp<int64_t>(i + head.first_seen, 0, head.keys);
    const int64_t to = head.last_seen >= head.keys
                           ? head.keys
                           : std::clamp<int64_t>(i + head.last_seen + 1, 0, head.keys);
    float most = kNone;
    for (int64_t j = from; j < to; ++j) {
      const float* k = head.k + j * head.k_row;
      const float sum = DotOf(q, k, head.k_column, head.head_size);
      float score = at[AttentionSteps::kScaled](at[AttentionSteps::kProducts](sum) * head.scale);
      if (head.softcap != 0) score = head.softcap * std::tanh(score / head.softcap);
      if (head.mask != nullptr) score += head.mask[i * head.mask_row + j * head.mask_column];
      if (head.key_mask != nullptr) score += head.key_mask[j];
      scores[j] = at[AttentionSteps::kMasked](score);
      most = std::max(most, scores[j]);
    }
    float total = 0;
    for (int64_t j = from; j < to; ++j) total += scores[j] = std::exp(scores[j] - most);
    float* out = head.out + i * head.out_row;
    std::fill_n(out, head.value_size, 0.0f);
    if (most == kNone && head.zeros_for_none) continue;
    if (head.zeros_for_nan && !(total > 0)) continue;
    for (int64_t j = from; j < to; ++j) {
      const float weight = at[AttentionSteps::kWeights](scores[j] / total);
      const float* v = head.v + j * head.v_row;
      for (int64_t c = 0; c < head.value_size; ++c) out[c] += weight * v[c];
    }
  }
}

}  // namespace chairlift
