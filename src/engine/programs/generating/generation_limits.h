// Limits of a request's answer: its length, what ends it, forced and forbidden tokens.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/programs/generating/beam_search.h"
#include "engine/programs/generating/penalties.h"
#include "engine/programs/generating/sampling.h"

namespace chairlift {

// Added to the logit of a token before penalties.
struct TokenBias {
  int64_t token = 0;
  float bias = 0;
};

struct GenerationLimits {
  int64_t max_tokens = 1;  // of the answer
  int64_t min_tokens = 0;  // before these, no end token is generated, and no stop sequence counts
  std::vector<int64_t> end_tokens = {};
  // Sequences that also end an answer. None is empty.
  std::vector<std::vector<int64_t>> stop_sequences = {};
  // The first or the last token of the answer, regardless of the logits; −1: not forced.
  int64_t first_token = -1, last_token = -1;
  // The first tokens of the answer, regardless of the logits; none of them ends it.
  std::vector<int64_t> forced = {};
  // Tokens that are never generated, or not as the first token.
  std::vector<int64_t> suppressed = {}, first_suppressed = {};
  // Token sequences that are never completed. None is empty.
  std::vector<std::vector<int64_t>> bad_words = {};
  std::vector<TokenBias> biases = {};
  Penalties penalties = {};
  SamplingOptions sampling = {};
  BeamOptions beams = {};
  // The number of most likely tokens to report besides the selected one; −1: no logprobs.
  int64_t logprobs = -1;
};

// The forced next token after `answer` tokens of the answer and a prompt of `prompt` tokens; −1:
// the logits decide.
int64_t ForcedToken(const GenerationLimits& limits, int64_t prompt, int64_t answer);

// Tokens that may not come next.
std::vector<int64_t> SuppressedTokens(const GenerationLimits& limits,
                                      std::span<const int64_t> prompt,
                                      std::span<const int64_t> answer);

// Tokens that end the answer if they come next.
std::vector<int64_t> EndTokens(const GenerationLimits& limits, std::span<const int64_t> answer);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_LIMITS_H_
