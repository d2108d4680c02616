// `chairlift bench`: an open-loop load on a model in process or on a server, and what came of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/load/generator.h"
#include "cli/load/schedule.h"
#include "cli/load/target.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"

namespace chairlift {
namespace {

struct BenchFlags {
  std::string model;
  std::string url;
  int connections = 64;
  ScheduleOptions schedule;
  std::optional<double> rate;
  std::string gaps;
  std::string lengths;
  std::vector<std::string> shapes;
  std::vector<std::string> inputs;
  InputShapes input_shapes;
  ModelConfig config;
  EngineOptions engine;
  double warmup_seconds = 1;
  std::string json;
  std::string trace;
};

// Requests ready to send, one for each length that occurs.
class Prepared {
 public:
  Prepared(LoadTarget& target, const BenchFlags& flags) : target_(target), flags_(flags) {}

  Status Add(int64_t length) {
    if (by_length_.count(length) != 0) return absl::OkStatus();
    std::vector<NamedTensor> inputs;
    if (!flags_.inputs.empty()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(inputs, ReadInputs(flags_.inputs));
    } else {
      InputShapes shapes = flags_.input_shapes;
      CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags_.shapes, &shapes));
      if (length > 0) shapes.length = length;
      CHAIRLIFT_ASSIGN_OR_RETURN(inputs, MakeInputs(target_.inputs(), shapes, random_));
    }
    by_length_[length] = target_.Prepare(std::move(inputs));
    return absl::OkStatus();
  }
  size_t operator()(const Arrival& arrival) const { return by_length_.at(arrival.length); }

 private:
  LoadTarget& target_;
  const BenchFlags& flags_;
  std::mt19937_64 random_{1};
  std::map<int64_t, size_t> by_length_;
};

nlohmann::json ToJson(const LoadReport& report, const BenchFlags& flags,
                      const std::string& target) {
  return {{"target", target},
          {"seconds", flags.schedule.seconds},
          {"seed", flags.schedule.seed},
          {"arrivals", flags.gaps.empty() ? "poisson" : flags.gaps},
          {"lengths", flags.lengths},
          {"policy", flags.url.empty() ? flags.config.policy : ""},
          {"requests", report.scheduled},
          {"succeeded", report.succeeded},
          {"failures", report.failures},
          {"scheduled_rate", report.scheduled_rate},
          {"achieved_rate", report.achieved_rate},
          {"latency_ms",
           {{"mean", report.mean_ms},
            {"p50", report.p50_ms},
            {"p90", report.p90_ms},
            {"p99", report.p99_ms},
            {"max", report.max_ms}}},
          {"generator_lag_p99_ms", report.generator_lag_p99_ms},
          {"valid", report.invalid.empty()},
          {"invalid", report.invalid}};
}

void Print(const LoadReport& report, const std::string& target) {
  fmt::print("{}: {} requests\n", target, report.scheduled);
  Table table({"scheduled/s", "achieved/s", "mean ms", "p50 ms", "p90 ms", "p99 ms", "max ms"});
  const auto number = [](double x) { return fmt::format("{:.2f}", x); };
  table.Add({fmt::format("{:.1f}", report.scheduled_rate),
             fmt::format("{:.1f}", report.achieved_rate), number(report.mean_ms),
             number(report.p50_ms), number(report.p90_ms), number(report.p99_ms),
             number(report.max_ms)});
  fmt::print("{}{}\n", table.ToString(), report.invalid.empty() ? "VALID" : "INVALID");
  for (const std::string& reason : report.invalid) fmt::print("  {}\n", reason);
}

// As the file is called, or the folder that holds the versions.
std::string NameOf(const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path path = fs::canonical(model, failed);
  const bool folder = fs::is_directory(path, failed);
  if (folder && path.filename().string().find_first_not_of("0123456789") == std::string::npos) {
    path = path.parent_path();  // a version's
  }
  const std::string name = folder ? path.filename() : path.stem();
  return name.empty() || name[0] == '.' ? "model" : name;
}

// Said before the load, not after.
Status CheckWritable(const std::string& file) {
  if (file.empty() || std::ofstream(file, std::ios::app)) return absl::OkStatus();
  return Unavailable("cannot write {}", file);
}

Status WriteTrace(Engine& engine, const std::string& path) {
  const Trace trace = engine.StopTrace();
  std::ofstream file(path);
  file << trace.json;
  if (!file.flush()) return Unavailable("cannot write {}", path);
  fmt::print("{} tasks in {}: open it in ui.perfetto.dev or chrome://tracing\n", trace.tasks, path);
  if (trace.dropped > 0) {
    fmt::print("  it ends early: {} later tasks did not fit; take fewer --seconds\n",
               trace.dropped);
  }
  return absl::OkStatus();
}

// A model's own configuration, under what the command line says of it.
ModelConfig Over(ModelConfig own, const ModelConfig& said) {
  if (!said.policy.empty()) {
    own.policy = said.policy;
    own.max_batch_tokens = 0;  // what the other policy may not know
    own.queue_delay_us = own.latency_objective_us = 0;
  }
  if (said.max_batch_size != 0) own.max_batch_size = said.max_batch_size;
  if (said.max_batch_tokens != 0) own.max_batch_tokens = said.max_batch_tokens;
  if (said.queue_delay_us != 0) own.queue_delay_us = said.queue_delay_us;
  return own;
}

Status Bench(BenchFlags flags) {
  if (!flags.trace.empty() && !flags.url.empty()) {
    return InvalidArgument("--trace shows workers in process; it does not go with --url");
  }
  if (flags.url.empty() && !std::ifstream(flags.model)) {
    return NotFound("{} is not a file; with --url it would be the name of a model", flags.model);
  }
  if (flags.rate.has_value()) flags.schedule.rate = *flags.rate;
  if (!flags.gaps.empty()) {
    flags.schedule.rate = flags.rate.value_or(0);  // 0: as they are
    CHAIRLIFT_ASSIGN_OR_RETURN(flags.schedule.gaps_ms, ReadGaps(flags.gaps));
  }
  LengthHistogram lengths;
  if (!flags.lengths.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(lengths, LengthHistogram::Read(flags.lengths));
    flags.schedule.lengths = &lengths;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Arrival> schedule, MakeSchedule(flags.schedule));

  std::unique_ptr<Engine> engine;
  std::unique_ptr<LoadTarget> target;
  if (flags.url.empty()) {
    flags.engine.on_load = LoadBar();
    CHAIRLIFT_ASSIGN_OR_RETURN(engine, Engine::Create(flags.engine));
    const std::string name = NameOf(flags.model);
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
    flags.config = Over(std::move(model.config), flags.config);
    CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel(name, model.path, flags.config));
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeEngineTarget(*engine, name));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeHttpTarget(flags.url, flags.model, flags.connections));
  }
  InputShapes named;
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &named));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(target->inputs(), named));
  if (!flags.lengths.empty() && !VariesInLength(target->inputs())) {
    return InvalidArgument("--lengths: beside the rows, no input dimension of {} is open",
                           target->name());
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.json));
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.trace));
  Prepared prepared(*target, flags);
  for (const Arrival& arrival : schedule) CHAIRLIFT_RETURN_IF_ERROR(prepared.Add(arrival.length));

  ScheduleOptions warmup = flags.schedule;
  warmup.seconds = flags.warmup_seconds;
  warmup.seed += 1;
  if (const auto first = MakeSchedule(warmup); first.ok()) {
    for (const Arrival& arrival : *first) CHAIRLIFT_RETURN_IF_ERROR(prepared.Add(arrival.length));
    PutLoad(*target, *first, prepared, [](int64_t) {});
  }
  if (!flags.trace.empty()) engine->StartTrace();
  std::vector<LoadSample> samples;
  {
    ProgressBar bar("sending", static_cast<int64_t>(schedule.size()));
    samples = PutLoad(*target, schedule, prepared, [&bar](int64_t sent) { bar.Set(sent); });
  }
  const LoadReport report = Summarize(samples, flags.schedule.seconds);
  Print(report, target->name());
  if (!flags.trace.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteTrace(*engine, flags.trace));
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << ToJson(report, flags, target->name()).dump(1) << "\n";
    if (!file.flush()) return Unavailable("cannot write {}", flags.json);
  }
  return absl::OkStatus();
}

}  // namespace

Command AddBench(CLI::App& parser) {
  auto flags = std::make_shared<BenchFlags>();
  parser.footer(
      "Open loop: requests leave at their scheduled times whether or not earlier ones were "
      "answered, and\n"
      "latency counts from the scheduled time, so waiting is never hidden. INVALID says that the\n"
      "figures are no measure of the model, and why; it is not an error.\n"
      "Examples:\n"
      "  chairlift bench model.onnx --rate 200 --seconds 20\n"
      "  chairlift bench model.onnx --rate 50 --lengths lengths.json --policy window "
      "--queue-delay-us 2000\n"
      "  chairlift bench lstm.onnx --rate 300 --lengths lengths.json --seconds 2 --trace out.json\n"
      "  chairlift bench minilm --url http://127.0.0.1:8000 --rate 100 --json out.json");
  parser
      .add_option("MODEL", flags->model,
                  "ONNX file, or a model's folder; with --url, the name of a served model")
      ->required();
  parser.add_option("--url", flags->url, "Load this server instead, as http://HOST:PORT");
  parser.add_option("--connections", flags->connections, "Connections at most, with --url")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  parser
      .add_option("--rate", flags->rate,
                  "Requests a second; with --gaps, they are scaled to it, or left as they are")
      ->check(CLI::Range(0.001, 1e7))
      ->default_str(fmt::format("{}", flags->schedule.rate));
  parser.add_option("--seconds", flags->schedule.seconds, "Duration of the schedule")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  parser
      .add_option("--gaps", flags->gaps,
                  "File of gaps between requests in ms, instead of Poisson arrivals")
      ->check(CLI::ExistingFile);
  parser.add_option("--lengths", flags->lengths, "JSON histogram that lengths are drawn from")
      ->check(CLI::ExistingFile);
  parser.add_option("--seed", flags->schedule.seed, "Seed of arrivals and lengths")
      ->capture_default_str();
  parser.add_option("--input", flags->inputs,
                    "NAME=FILE.npy, one for each input, instead of made-up values");
  parser.add_option("--shape", flags->shapes, "NAME=1x3x224x224: shape of a made-up input");
  parser
      .add_option("--batch", flags->input_shapes.batch,
                  "Rows in a request, where the model leaves them open")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  parser
      .add_option("--length", flags->input_shapes.length,
                  "Other open dimensions, without --lengths")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  parser.add_option("--policy", flags->config.policy,
                    "Batching policy in process: none, window; of recurrent models cellular, "
                    "bucketed, graph_merge;\nof encoders tokens, length_dp, naive; default: as "
                    "served");
  parser
      .add_option("--max-batch-size", flags->config.max_batch_size,
                  "Rows in a batch, in process; 0: default")
      ->check(CLI::Range(0, 4096));
  parser
      .add_option("--max-batch-tokens", flags->config.max_batch_tokens,
                  "tokens: tokens in a batch, in process; 0: as timed")
      ->check(CLI::Range(0, 1 << 24));
  parser
      .add_option("--queue-delay-us", flags->config.queue_delay_us,
                  "window, length_dp: wait for company, in process")
      ->check(CLI::Range(0, 10'000'000));
  parser
      .add_option("--workers", flags->engine.workers,
                  "Compute threads in process; 0: one for each core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  parser.add_option("--warmup-seconds", flags->warmup_seconds, "Load before what is counted")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  parser.add_option("--json", flags->json, "Also write the figures to this file");
  parser.add_option("--trace", flags->trace,
                    "Also write what each worker ran when, as a timeline for ui.perfetto.dev or\n"
                    "chrome://tracing (Chrome's trace event format); in process");
  return [flags] { return Bench(*flags); };
}

}  // namespace chairlift
