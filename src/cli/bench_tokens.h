// `chairlift bench --prompt-lengths --output-lengths`: loads of requests that generate.
#ifndef CHAIRLIFT_CLI_BENCH_TOKENS_H_
#define CHAIRLIFT_CLI_BENCH_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/load/token_target.h"

namespace CLI {
class App;
}  // namespace CLI

namespace chairlift {

struct TokenBenchOptions {
  // Each is a length, a range such as 1-10, or a file; empty: not a generation benchmark.
  std::string prompt_lengths, output_lengths;
  int clients = 0;  // concurrent requests; 0: requests arrive at the rates
  int beams = 1;    // per request

  bool asked() const { return !prompt_lengths.empty(); }
};

// Adds their flags.
void AddTokenBench(CLI::App& parser, TokenBenchOptions* options);

// Settings common to all loads.
struct LoadLimits {
  std::vector<double> rates;  // requests per second, one load each
  double seconds = 10;
  uint64_t seed = 1;
  double warmup_seconds = 1;
  double timeout_seconds = 60;
  std::string json;
};

// Puts the loads on the target, prints the results and writes them.
Status BenchTokens(TokenTarget& target, const TokenBenchOptions& options, const LoadLimits& limits);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_BENCH_TOKENS_H_
