// Lowers the logits of tokens that already occurred.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_

#include <cstdint>
#include <span>

#include "engine/programs/generating/seen_tokens.h"

namespace chairlift {

inline constexpr double kMostRepetitionPenalty = 100;

struct Penalties {
  // For tokens in the prompt or the answer: positive logits are divided by it, others multiplied.
  float repetition = 1.0f;
  // For tokens in the answer: subtracted once, and subtracted for each occurrence.
  float presence = 0.0f;
  float frequency = 0.0f;
  // N-grams of this length are not repeated: a token that would complete a repetition gets −∞. 0:
  // off.
  int64_t no_repeat_ngram = 0;

  // Whether token counts are needed.
  bool counted() const { return repetition != 1 || presence != 0 || frequency != 0; }
  bool any() const { return counted() || no_repeat_ngram > 0; }
};

// Applied in this order, which is that of transformers and of OpenAI's formula. Tokens are indices
// into `logits`. `counts`: over prompt and answer; may be null if the penalties are not counted().
void Penalise(std::span<float> logits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              const Penalties& penalties);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_
