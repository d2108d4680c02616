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
    return Usage(InvalidArgument("{} applies in process; with --url, the server decides", flag));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddBench(CLI::App& parser) {
  auto flags = std::make_shared<BenchFlags>();
  parser.footer(
      "Open loop: requests leave at their scheduled times (Poisson arrivals by "
      "default)\n"
      "whether or not earlier ones were answered, and latency counts from the scheduled time, so "
      "waiting\n"
      "is never hidden. INVALID says that the figures are no measure of the model, and why; it is "
      "an\n"
      "error, exit code 1, only where no request succeeded.\n" +
      PolicyHelp() +
      "Examples:\n"
      "  chairlift bench model.onnx --rate 200 --seconds 20\n"
      "  chairlift bench model.onnx --rate 50 --lengths lengths.json --policy window "
      "--queue-delay-us 2000\n"
      "  chairlift bench lstm.onnx --rate 300 --lengths lengths.json --seconds 2 --trace out.json\n"
      "  chairlift bench model.onnx --policy window --peak --objective-ms 200\n"
      "  chairlift bench gpt2 --prompt-lengths 32-512 --output-lengths 16-128 --clients 16\n"
      "  chairlift bench minilm --url http://127.0.0.1:8000 --rate 100 --json out.json");
  parser
      .add_option("MODEL", flags->model,
                  "ONNX file, or a model's folder; with --url, the name of a served model")
      ->required()
      ->type_name("FILE|DIR|NAME");
  parser.add_option("--url", flags->url, "Load this server instead, as http://HOST:PORT")
      ->type_name("URL");
  AddNumber(parser, "--connections", &flags->connections, 1, 1024, "N",
            "Connections at most, with --url");
  CLI::Option* const rate = parser.add_option(
      "--rate", flags->rates,
      "Requests a second; several are loads one after the other. With --gaps, they are\n"
      "scaled to it, or left as they are");
  TakesNumber(rate, 0.001, 1e7);
  rate->delimiter(',')
      ->default_str(fmt::format("{}", flags->schedule.rate))
      ->type_name("RATE,RATE");
  CLI::Option* const peak = parser.add_flag(
      "--peak", flags->peak, "Find the highest rate whose p99 is within --objective-ms");
  CLI::Option* const tune = parser.add_flag(
      "--tune-delay", flags->tune_delay,
      "With --policy window, length_dp or staged, in process: find the queue delay whose peak is "
      "highest");
  tune->excludes(peak);
  AddNumber(parser, "--objective-ms", &flags->objective_ms, 0.001, 1e6, "MS",
            "With --peak, --tune-delay: what p99 may be");
  AddNumber(parser, "--seconds", &flags->schedule.seconds, 0.01, 86400, "S",
            "Duration of each load");
  AddNumber(parser, "--requests", &flags->requests, 0, 10'000'000, "N",
            "Requests in each load, at least: it is as much longer. 0: 120 with --peak");
  parser
      .add_option("--gaps", flags->gaps,
                  "File of gaps between requests in ms, instead of Poisson arrivals")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  parser
      .add_option(
          "--lengths", flags->lengths,
          "JSON histogram that lengths are drawn from, as {\"histogram\": {\"17\": 41, \"18\": 7}}")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  AddSeed(parser, &flags->schedule.seed, "Seed of arrivals and lengths");
  parser
      .add_option("--input", flags->inputs,
                  "An input's values instead of made-up ones; one for each input")
      ->type_name("NAME=FILE.npy");
  parser.add_flag("--rows-in-turn", flags->rows_in_turn,
                  "Each request has the next row of those inputs, not all of them");
  parser.add_option("--shape", flags->shapes, "Shape of a made-up input, as image=1x3x224x224")
      ->type_name("NAME=SHAPE");
  AddNumber(parser, "--batch", &flags->input_shapes.batch, 1, 4096, "N",
            "Rows in a request, where the model leaves them open");
  AddNumber(parser, "--length", &flags->length, 1, 1 << 20, "N",
            "Other open dimensions, without --lengths; default: the first of 16, 32, 64, …\n"
            "that the model takes");
  CLI::Option* const policy = parser.add_option("--policy", flags->config.policy,
                                                "Batching policy, in process; default: as served");
  TakesPolicy(policy);
  tune->needs(policy);
  AddNumber(parser, "--max-batch-size", &flags->config.max_batch_size, 0, 65536, "N",
            "Rows in a batch, in process; 0: default");
  AddNumber(parser, "--max-batch-tokens", &flags->config.max_batch_tokens, 0, 1 << 24, "N",
            "tokens: tokens in a batch, in process; 0: as timed");
  AddNumber(parser, "--queue-delay-us", &flags->config.queue_delay_us, 0, 10'000'000, "US",
            "window, length_dp, staged: wait for more requests, in process");
  AddWorkers(parser, &flags->engine.workers);
  AddDevice(parser, &flags->engine.device);
  AddNumber(parser, "--warmup-seconds", &flags->warmup_seconds, 0, 600, "S",
            "Load before what is counted");
  AddNumber(parser, "--timeout-seconds", &flags->timeout_seconds, 0.1, 3600, "S",
            "Wait for answers after the last request; those that come later have failed");
  TakesOutput(parser.add_option("--json", flags->json, "Also write the figures to this file"));
  TakesOutput(parser.add_option(
      "--trace", flags->trace,
      "Also write what each worker ran when, as a timeline for ui.perfetto.dev or\n"
      "chrome://tracing (Chrome's trace event format); in process"));
  parser
      .add_flag("--trace-nodes", flags->trace_nodes,
                "With --trace: also each node that a task ran, with its implementation and shapes")
      ->needs("--trace");
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddTokenBench(parser, &flags->tokens);
  return [flags, &parser]() -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(CheckPlace(parser, flags->config.policy, flags->url.empty()));
    return RunBench(*flags);
  };
}

}  // namespace chairlift
