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
  // Each a length, two with a dash between, or a file; empty: the model is not asked to generate.
  std::string prompt_lengths, output_lengths;
  int clients = 0;  // requests under way; 0: they arrive at the rates
  int beams = 1;    // of a request

  bool asked() const { return !prompt_lengths.empty(); }
};

// Their flags.
void AddTokenBench(CLI::App& parser, TokenBenchOptions* options);

// What loads of all kinds have.
struct LoadLimits {
  std::vector<double> rates;  // requests a second, a load each
  double seconds = 10;
  uint64_t seed = 1;
  double warmup_seconds = 1;
  double timeout_seconds = 60;
  std::string json;
};

// Puts the loads on the target, prints their figures, and writes them.
Status BenchTokens(TokenTarget& target, const TokenBenchOptions& options, const LoadLimits& limits);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_BENCH_TOKENS_H_
