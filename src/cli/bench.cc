// `chairlift bench`: puts open-loop loads on a model in this process or on a server and reports
// latencies; finds the highest load within an objective.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/status.h"
#include "cli/bench_flags.h"
#include "cli/bench_run.h"
#include "cli/bench_tokens.h"
#include "cli/commands.h"
#include "cli/flags.h"

namespace chairlift {
namespace {

// Refuses flags that would have no effect.
Status CheckPlace(const CLI::App& parser, const std::string& policy, bool in_process) {
  if (parser.count("--rate") != 0 &&
      (parser.count("--peak") != 0 || parser.count("--tune-delay") != 0)) {
    return Usage(InvalidArgument("--peak and --tune-delay find the rate; leave out --rate"));
  }
  if (parser.count("--tune-delay") != 0 && policy == "none") {
    return Usage(InvalidArgument(
        "--tune-delay needs a policy that waits: window, length_dp or staged, not none"));
  }
  if (in_process) {
    return parser.count("--connections") == 0
               ? absl::OkStatus()
               : Usage(InvalidArgument(
                     "--connections needs --url: in process there are no connections"));
  }
  for (const char* flag : {"--policy", "--max-batch-size", "--max-batch-tokens", "--queue-delay-us",
                           "--workers", "--allow-plugins", "--tune-delay"}) {
    if (parser.count(flag) == 0) continue;
    return Usage(InvalidArgument(
        "{} has no effect with --url, where the server decides; leave it out", flag));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddBench(CLI::App& parser) {
  auto flags = std::make_shared<BenchFlags>();
  parser.footer(
      R"(The load is open loop: requests are sent at their scheduled times (Poisson arrivals by default),
whether or not earlier ones were answered. Latency counts from the scheduled time, so waiting is
never hidden. A result is marked INVALID, with the reason, if it does not measure the model. The
exit code is 1 only if no request succeeded.

)" + PolicyHelp() +
      R"(
Examples (bench/data has lengths):
  chairlift bench model.onnx --rate 200 --seconds 20
  chairlift bench model.onnx --rate 50 --policy window --queue-delay-us 2000 \
    --length-histogram bench/data/lengths/glue_cola_train_bert.json
  chairlift bench lstm.onnx --rate 300 --trace out.json \
    --length-histogram bench/data/lengths/europarl_v7_fr-en_head_en.json
  chairlift bench model.onnx --policy window --peak --objective-ms 200
  chairlift bench models/llama --prompt-lengths 32-512 --output-lengths 16-128 --concurrency 16
  chairlift bench minilm --url http://127.0.0.1:8000 --rate 100 --json out.json)");
  parser
      .add_option("MODEL", flags->model,
                  "ONNX file or folder of a model; with --url, the name of a served model")
      ->required()
      ->type_name("FILE|DIR|NAME");
  parser
      .add_option(
          "--url", flags->url,
          "Send the load to this server, as http://HOST:PORT, instead of running the model here")
      ->type_name("URL");
  AddNumber(parser, "--connections", &flags->connections, 1, 1024, "N",
            "With --url: maximum number of connections");
  CLI::Option* const rate = parser.add_option(
      "--rate", flags->rates,
      "Requests per second; several rates are run one after the other. Arrivals are\n"
      "drawn at random, so that scheduled/s of a short run differs from it. With\n"
      "--request-intervals, the intervals are scaled to this rate, if it is set");
  TakesNumber(rate, 0.001, 1e7);
  rate->delimiter(',')
      ->default_str(fmt::format("{}", flags->schedule.rate))
      ->type_name("RATE,RATE");
  CLI::Option* const peak =
      parser.add_flag("--peak", flags->peak,
                      "Find the highest rate at which p99 latency stays within --objective-ms");
  CLI::Option* const tune = parser.add_flag(
      "--tune-delay", flags->tune_delay,
      "Find the queue delay that gives the highest peak; needs --policy window, length_dp or\n"
      "staged");
  tune->excludes(peak);
  AddNumber(parser, "--objective-ms", &flags->objective_ms, 0.001, 1e6, "MS",
            "With --peak, --tune-delay: limit of p99 latency");
  AddNumber(parser, "--seconds", &flags->schedule.seconds, 0.01, 86400, "S",
            "Duration of each run");
  AddNumber(parser, "--requests", &flags->requests, 0, 10'000'000, "N",
            "Minimum number of requests in each run, which lasts longer if needed. 0: 120 with\n"
            "--peak, else no minimum");
  parser
      .add_option("--request-intervals", flags->gaps,
                  "File of intervals between requests in ms, instead of Poisson arrivals")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  parser
      .add_option(
          "--length-histogram", flags->lengths,
          "Draw lengths from this JSON histogram, as {\"histogram\": {\"17\": 41, \"18\": 7}}")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  AddSeed(parser, &flags->schedule.seed, "Random seed of arrivals and lengths");
  parser
      .add_option("--input", flags->inputs,
                  "Values of an input instead of random ones; once for each input")
      ->type_name("NAME=FILE.npy");
  parser.add_flag("--rows-in-turn", flags->rows_in_turn,
                  "With --input: each request sends the next row instead of all rows");
  parser
      .add_option("--shape", flags->shapes,
                  "Shape of a random input, as image=1x3x224x224; may be repeated")
      ->type_name("NAME=SHAPE");
  AddNumber(parser, "--batch-size", &flags->input_shapes.batch, 1, 4096, "N",
            "Rows in a request, if the model leaves them open");
  AddNumber(parser, "--length", &flags->length, 1, 1 << 20, "N",
            "Other open dimensions, without --length-histogram. Default: the first of 16, 32, 64,\n"
            "… that the model accepts");
  CLI::Option* const policy = parser.add_option(
      "--policy", flags->config.policy, "Batching policy (not with --url). Default: as served");
  TakesPolicy(policy);
  tune->needs(policy);
  AddNumber(parser, "--max-batch-size", &flags->config.max_batch_size, 0, 65536, "N",
            "Rows in a batch (not with --url); 0: as served");
  AddNumber(parser, "--max-batch-tokens", &flags->config.max_batch_tokens, 0, 1 << 24, "N",
            "packed: tokens in a batch (not with --url); 0: by measured cost");
  AddNumber(parser, "--queue-delay-us", &flags->config.queue_delay_us, 0, 10'000'000, "US",
            "window, length_dp, staged: longest wait for more requests (not with --url)");
  AddWorkers(parser, &flags->engine.workers);
  AddDevice(parser, &flags->engine.device);
  AddPrecision(parser, &flags->engine.precision);
  AddNumber(parser, "--warmup-seconds", &flags->warmup_seconds, 0, 600, "S",
            "Duration of the load before the measurement");
  AddNumber(parser, "--timeout-seconds", &flags->timeout_seconds, 0.1, 3600, "S",
            "Time to wait for answers after the last request; later answers count as failures");
  TakesOutput(parser.add_option("--json", flags->json, "Also write the results to this file"));
  TakesOutput(parser.add_option(
      "--trace", flags->trace,
      "Also write a timeline of the workers for ui.perfetto.dev or chrome://tracing (Chrome's\n"
      "trace event format; not with --url)"));
  parser
      .add_flag("--trace-nodes", flags->trace_nodes,
                "With --trace: also each node, with its implementation and shapes")
      ->needs("--trace");
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddTokenBench(parser, &flags->tokens);
  return [flags, &parser]() -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(CheckPlace(parser, flags->config.policy, flags->url.empty()));
    return RunBench(*flags);
  };
}

}  // namespace chairlift
