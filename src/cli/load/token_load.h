// Loads of requests that generate, and their times: to the first token, and between tokens.
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

// One per request; times are relative to the start.
struct TokenSample {
  TokenCounts counts;
  std::chrono::nanoseconds scheduled{0}, sent{0}, done{0};
  Status status = {};
  // When each token of the answer arrived.
  std::vector<std::chrono::nanoseconds> tokens = {};
};

struct Quantiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

struct TokenReport {
  LoadReport requests;  // ended requests, and whether the results are valid
  double prompt_tokens_per_s = 0, output_tokens_per_s = 0;
  // From when a request was due to its first token; between tokens of an answer, 0 for those that
  // arrived together.
  Quantiles first_ms, between_ms;
};

// For events between `from` and `to`. Prompts count when their first token arrives.
TokenReport SummarizeTokens(std::span<const TokenSample> samples, std::chrono::nanoseconds from,
                            std::chrono::nanoseconds to);

// Sends requests at the times of `schedule`, whose lengths are those of prompts. Prompts are drawn
// from `seed`.
std::vector<TokenSample> PutTokenLoad(TokenTarget& target, std::span<const Arrival> schedule,
                                      uint64_t seed, const LoadTestOptions& options = {});

struct ClosedTokenLoad {
  int clients = 1;  // concurrent requests
  double seconds = 10;
  uint64_t seed = 1;
  // The size of the next request; called by one thread at a time.
  std::function<TokenCounts()> next;
  LoadTestOptions options = {};
};

// Keeps that many requests running for the given time, or until all clients have failed: no request
// follows one that fails. Requests that have started then run to their end.
std::vector<TokenSample> KeepTokenLoad(TokenTarget& target, const ClosedTokenLoad& load);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TOKEN_LOAD_H_
