// Selects the next token from logits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_

#include <cstdint>
#include <span>

#include "chairlift/status.h"

namespace chairlift {

struct SamplingOptions {
  float temperature = 0.0f;  // 0: the most likely token; the settings below have no effect
  int64_t top_k = 0;         // among this many most likely tokens; 0: all
  float top_p = 1.0f;  // among the fewest most likely tokens whose total probability reaches this
  float min_p = 0.0f;  // among tokens with at least this fraction of the highest probability
  uint64_t seed = 0;
};

// The error if every token is excluded: kInvalidArgument.
Status NoTokenMayFollow();

// Token number `place` of an answer. It depends only on logits, options and place, not on other
// requests in the batch. Never one of `without`, which is short. kInternal if a logit is NaN,
// NoTokenMayFollow() if all tokens are excluded.
StatusOr<int64_t> NextToken(std::span<const float> logits, std::span<const int64_t> without,
                            const SamplingOptions& options, int64_t place);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_
