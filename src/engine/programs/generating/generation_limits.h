// What a request's answer may be: how long, what ends it, tokens that it must or must not have.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/programs/generating/beam_search.h"
#include "engine/programs/generating/penalties.h"
#include "engine/programs/generating/sampling.h"

namespace chairlift {

// Added to the logit of a token, before penalties.
struct TokenBias {
  int64_t token = 0;
  float bias = 0;
};

struct GenerationLimits {
  int64_t max_tokens = 1;  // of the answer
  int64_t min_tokens = 0;  // before which no end token is generated, and no stop sequence counts
  std::vector<int64_t> end_tokens = {};
  // An answer ends with one of these, too. None is empty.
  std::vector<std::vector<int64_t>> stop_sequences = {};
  // That the first or the last token of the answer is, whatever the logits; −1: none.
  int64_t first_token = -1, last_token = -1;
  // That the answer begins with, whatever the logits; none of them ends it.
  std::vector<int64_t> forced = {};
  // That are never generated, and not as the first token.
  std::vector<int64_t> suppressed = {}, first_suppressed = {};
  // Tokens in a row that are not completed. None is empty.
  std::vector<std::vector<int64_t>> bad_words = {};
  std::vector<TokenBias> biases = {};
  Penalties penalties = {};
  SamplingOptions sampling = {};
  BeamOptions beams = {};
  int64_t logprobs = -1;  // of so many most likely tokens beside the chosen one's; −1: none
};

// The token that follows, whatever the logits, where the answer has `answer` tokens behind a prompt
// of `prompt`; −1: that follows from them.
int64_t ForcedToken(const GenerationLimits& limits, int64_t prompt, int64_t answer);

// Tokens that may not follow.
std::vector<int64_t> SuppressedTokens(const GenerationLimits& limits,
                                      std::span<const int64_t> prompt,
                                      std::span<const int64_t> answer);

// Tokens that end the answer if they follow.
std::vector<int64_t> EndTokens(const GenerationLimits& limits, std::span<const int64_t> answer);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_
