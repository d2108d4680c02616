// Selects the next token of a sequence from its logits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/programs/generating/generation_limits.h"

namespace chairlift {

// The smallest reported log-probability, because JSON cannot have −∞ (as in vLLM).
inline constexpr float kLeastLogprob = -9999.0f;

struct Choice {
  Status status;
  // One; with beams, the argument of BeamSearch::Advance().
  std::vector<Continuation> next = {};
  // The `logprobs` most likely tokens, most likely first, as returned by the model: before any rule
  // or temperature.
  std::vector<std::pair<int64_t, float>> top = {};
};

// Number of floats in `scratch` that Choose() needs.
int64_t ScratchOf(const GenerationLimits& limits, int64_t vocabulary);

// With beams, rules are applied to log-probabilities, otherwise to logits, as in transformers.
// `counts`: as in Penalise().
Choice Choose(const GenerationLimits& limits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              std::span<const float> logits, std::span<float> scratch);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_CHOOSING_H_
