// The next token, out of logits.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_

#include <cstdint>
#include <span>

#include "chairlift/status.h"

namespace chairlift {

struct SamplingOptions {
  float temperature = 0.0f;  // 0: the most likely token, and nothing below counts
  int64_t top_k = 0;         // of the most likely tokens; 0: of all
  float top_p = 1.0f;  // of the fewest most likely ones that have so much probability together
  float min_p = 0.0f;  // of those with at least so much of the most likely one's probability
  uint64_t seed = 0;
};

// kInvalidArgument.
Status NoTokenMayFollow();

// Token number `place` of an answer: which, follows from logits, options and place alone, whoever
// rides beside the request. None of `without`, which is short. kInternal where a logit is NaN,
// NoTokenMayFollow() where all tokens are left out.
StatusOr<int64_t> NextToken(std::span<const float> logits, std::span<const int64_t> without,
                            const SamplingOptions& options, int64_t place);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_SAMPLING_H_
