// Logits lowered for tokens that are there already.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_

#include <cstdint>
#include <span>

#include "engine/programs/generating/seen_tokens.h"

namespace chairlift {

inline constexpr double kMostRepetitionPenalty = 100;

struct Penalties {
  // Of tokens in the prompt or the answer: positive logits are divided by it, others multiplied.
  float repetition = 1.0f;
  // Of tokens in the answer: taken off, and taken off for each time that they are there.
  float presence = 0.0f;
  float frequency = 0.0f;
  // So many tokens in a row are not repeated: one that would do so has −∞. 0: they may be.
  int64_t no_repeat_ngram = 0;

  // Whether they read how often tokens are there.
  bool counted() const { return repetition != 1 || presence != 0 || frequency != 0; }
  bool any() const { return counted() || no_repeat_ngram > 0; }
};

// In this order, which is that of transformers and of OpenAI's formula. Tokens are places in
// `logits`. `counts`: of prompt and answer; may be null where penalties are not counted().
void Penalise(std::span<float> logits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              const Penalties& penalties);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PENALTIES_H_
