// Loads of requests that generate, and their times: to the first token, and from token to token.
#ifndef CHAIRLIFT_CLI_LOAD_TOKEN_LOAD_H_
#define CHAIRLIFT_CLI_LOAD_TOKEN_LOAD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cli/load/generator.h"
#include "cli/load/schedule.h"
#include "cli/load/token_target.h"

namespace chairlift {

struct TokenCounts {
  int64_t prompt = 1, output = 1;
};

// One a request; times after the start.
struct TokenSample {
  TokenCounts counts;
  std::chrono::nanoseconds scheduled{0}, sent{0}, done{0};
  Status status = {};
  // When each token of the answer came.
  std::vector<std::chrono::nanoseconds> tokens = {};
};

struct Quantiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

struct TokenReport {
  LoadReport requests;  // that ended, and whether the figures are valid
  double prompt_tokens_per_s = 0, output_tokens_per_s = 0;
  // From when a request was due to its first token; from each token of an answer to the next, 0 for
  // those that came together.
  Quantiles first_ms, between_ms;
};

// Of what came from `from` to `to`. Prompts count when their first token comes.
TokenReport SummarizeTokens(std::span<const TokenSample> samples, std::chrono::nanoseconds from,
                            std::chrono::nanoseconds to);

// Requests at the times of `schedule`, whose lengths are the prompts'. Prompts are drawn from
// `seed`.
std::vector<TokenSample> PutTokenLoad(TokenTarget& target, std::span<const Arrival> schedule,
                                      uint64_t seed, const LoadTestOptions& options = {});

struct ClosedTokenLoad {
  int clients = 1;  // requests under way
  double seconds = 10;
  uint64_t seed = 1;
  std::function<TokenCounts()> next;  // what the next request has; called by one thread at a time
  LoadTestOptions options = {};
};

// As many requests under way for so long, or until all have failed: one that fails is followed by
// none. Those that have begun then go on to their end.
std::vector<TokenSample> KeepTokenLoad(TokenTarget& target, const ClosedTokenLoad& load);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TOKEN_LOAD_H_
