// What follows one sequence of a request, out of its logits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/programs/generating/generation_limits.h"

namespace chairlift {

// What a log-probability is at the least, so that JSON can carry it (as in vLLM).
inline constexpr float kLeastLogprob = -9999.0f;

struct Choice {
  Status status;
  // One; with beams what BeamSearch::Advance() takes.
  std::vector<Continuation> next = {};
  // The `logprobs` most likely tokens, the most likely first, as the model has them: before any
  // rule or temperature.
  std::vector<std::pair<int64_t, float>> top = {};
};

// Floats of `scratch` that Choose() needs.
int64_t ScratchOf(const GenerationLimits& limits, int64_t vocabulary);

// With beams rules are applied to log-probabilities, without to logits, as in transformers.
// `counts`: as Penalise() takes them.
Choice Choose(const GenerationLimits& limits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              std::span<const float> logits, std::span<float> scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_
