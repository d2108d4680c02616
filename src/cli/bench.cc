// `chairlift bench`: an open-loop load on a model in process or on a server, and its latencies.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/load/generator.h"
#include "cli/load/schedule.h"
#include "cli/load/target.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "engine/programs/serving_plan.h"

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
  std::optional<int64_t> length;
  ModelConfig config;
  EngineOptions engine;
  double warmup_seconds = 1;
  double timeout_seconds = 60;
  std::string json;
  std::string trace;
  bool trace_nodes = false;
};

// The answer to one request; kDeadlineExceeded where there is none in time.
Status Try(LoadTarget& target, size_t prepared, double timeout_seconds) {
  auto answered = std::make_shared<std::promise<Status>>();
  std::future<Status> answer = answered->get_future();
  target.Send(prepared, [answered](Status status) { answered->set_value(std::move(status)); });
  if (answer.wait_for(std::chrono::duration<double>(timeout_seconds)) ==
      std::future_status::ready) {
    return answer.get();
  }
  return DeadlineExceeded("{} did not answer a first request within {:g} s", target.name(),
                          timeout_seconds);
}

// Requests ready to send, one for each length that occurs.
class Requests {
 public:
  Requests(LoadTarget& target, const BenchFlags& flags)
      : target_(target), flags_(flags), shapes_(flags.input_shapes) {}

  // Reads or generates the inputs, and tries a request of `length`.
  Status Begin(int64_t length) {
    if (!flags_.inputs.empty()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(given_, ReadInputs(flags_.inputs));
      CHAIRLIFT_RETURN_IF_ERROR(Add(length));
      return Try(target_, by_length_.at(length), flags_.timeout_seconds);
    }
    CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags_.shapes, &shapes_));
    CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(target_.inputs(), shapes_));
    std::span<const int64_t> others = kLengthsToTry;
    if (length > 0 || flags_.length) others = {};
    if (length > 0) shapes_.length = length;
    const auto attempt = [&](const InputShapes& shapes) -> Status {
      CHAIRLIFT_ASSIGN_OR_RETURN(auto inputs, MakeInputs(target_.inputs(), shapes, random_));
      return Try(target_, target_.Prepare(std::move(inputs)), flags_.timeout_seconds);
    };
    StatusOr<InputShapes> found = FindShapes(target_.inputs(), shapes_, others, attempt);
    if (absl::IsInvalidArgument(found.status())) {
      return InvalidArgument("{}, or values, as --input NAME=FILE.npy", Message(found.status()));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(shapes_, std::move(found));
    return Add(length);
  }

  Status Add(int64_t length) {
    if (by_length_.count(length) != 0) return absl::OkStatus();
    std::vector<NamedTensor> inputs = given_;
    if (inputs.empty()) {
      InputShapes shapes = shapes_;
      if (length > 0) shapes.length = length;
      CHAIRLIFT_ASSIGN_OR_RETURN(inputs, MakeInputs(target_.inputs(), shapes, random_));
    }
    by_length_[length] = target_.Prepare(std::move(inputs));
    return absl::OkStatus();
  }

  size_t operator()(const Arrival& arrival) const { return by_length_.at(arrival.length); }

  // "x float32 [1,16], made up"
  std::string Describe() const {
    std::string text;
    for (const NamedTensor& input : given_) {
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", input.name,
                          DTypeName(input.tensor.dtype()), input.tensor.shape().ToString());
    }
    if (!given_.empty()) return text;
    if (flags_.lengths.empty()) {
      return DescribeInputs(target_.inputs(), shapes_).value_or(std::string()) + ", made up";
    }
    return fmt::format("{}, made up; lengths from {}", DescribeVarying(), flags_.lengths);
  }

 private:
  // "x float32 [1,length]"
  std::string DescribeVarying() const {
    InputShapes one = shapes_, two = shapes_;
    one.length = 1;
    two.length = 2;
    std::string text;
    for (const TensorSpec& spec : target_.inputs()) {
      const auto a = ResolveShape(spec, one);
      const auto b = ResolveShape(spec, two);
      if (!a.ok() || !b.ok()) continue;
      std::vector<std::string> dims;
      dims.reserve(static_cast<size_t>(a->rank()));
      for (int i = 0; i < a->rank(); ++i) {
        dims.push_back((*a)[i] == (*b)[i] ? std::to_string((*a)[i]) : "length");
      }
      text += fmt::format("{}{} {} [{}]", text.empty() ? "" : ", ", spec.name,
                          DTypeName(spec.dtype), fmt::join(dims, ","));
    }
    return text;
  }

  LoadTarget& target_;
  const BenchFlags& flags_;
  InputShapes shapes_;
  std::vector<NamedTensor> given_;
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

// Prints what will be sent.
void Announce(const std::string& target, const std::string& requests, size_t count,
              const BenchFlags& flags) {
  const ScheduleOptions& schedule = flags.schedule;
  std::string arrivals = "Poisson arrivals";
  if (!flags.gaps.empty()) arrivals = "gaps from " + flags.gaps;
  if (schedule.rate > 0) arrivals += fmt::format(" at {}/s", HumanNumber(schedule.rate));
  fmt::print("{}: {} in {:g} s, {}\n  {}\n", target,
             Counted(static_cast<int64_t>(count), "request"), schedule.seconds, arrivals, requests);
  std::fflush(stdout);
}

void Print(const LoadReport& report) {
  if (report.succeeded > 0) {
    Table table({"scheduled/s", "achieved/s", "mean ms", "p50 ms", "p90 ms", "p99 ms", "max ms"});
    table.Add({HumanNumber(report.scheduled_rate), HumanNumber(report.achieved_rate),
               HumanNumber(report.mean_ms), HumanNumber(report.p50_ms), HumanNumber(report.p90_ms),
               HumanNumber(report.p99_ms), HumanNumber(report.max_ms)});
    fmt::print("{}", table.ToString());
  }
  fmt::print("{}\n", report.invalid.empty() ? "VALID" : "INVALID");
  for (const std::string& reason : report.invalid) fmt::print("  {}\n", reason);
}

Status WriteTrace(Engine& engine, const std::string& path) {
  const Trace trace = engine.StopTrace();
  std::ofstream file(path);
  file << trace.json;
  if (!file.flush()) return CannotWrite(path);
  fmt::print("{} tasks in {}: open it in ui.perfetto.dev or chrome://tracing\n", trace.tasks, path);
  if (trace.dropped > 0) {
    fmt::print("  it ends early: {} later tasks did not fit; take fewer --seconds\n",
               trace.dropped);
  }
  return absl::OkStatus();
}

// A model's own configuration, overridden by the command line.
ModelConfig Over(ModelConfig own, const ModelConfig& flags) {
  if (!flags.policy.empty()) {
    own.policy = flags.policy;
    own.max_batch_tokens = 0;  // which the other policy may not support
    own.queue_delay_us = own.latency_objective_us = 0;
    own.step_slice_us.reset();
    own.buffer_pairs = ModelConfig().buffer_pairs;
    if (!MayServe(flags.policy, GraphForm::kStages)) {
      own.stages = 0;
      own.stages_after.clear();
    }
  }
  if (flags.max_batch_size != 0) own.max_batch_size = flags.max_batch_size;
  if (flags.max_batch_tokens != 0) own.max_batch_tokens = flags.max_batch_tokens;
  if (flags.queue_delay_us != 0) own.queue_delay_us = flags.queue_delay_us;
  return own;
}

Status Bench(BenchFlags flags) {
  if (!flags.trace.empty() && !flags.url.empty()) {
    return Usage(InvalidArgument("--trace needs workers in process; leave out --url"));
  }
  if (!flags.url.empty() && flags.model.find('/') != std::string::npos) {
    std::filesystem::path path(flags.model);
    if (!path.has_filename()) path = path.parent_path();  // it ended in a slash
    return Usage(InvalidArgument(
        "with --url, MODEL is the name of a served model: try '{}'",
        path.extension() == ".onnx" ? path.stem().string() : path.filename().string()));
  }
  flags.input_shapes.length = flags.length.value_or(flags.input_shapes.length);
  if (const std::string why = WhyNoPath(flags.model); flags.url.empty() && !why.empty()) {
    return Usage(NotFound("{} (with --url, it would be the name of a served model)", why));
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
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
    flags.config = Over(std::move(model.config), flags.config);
    CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel(model.name, model.path, flags.config));
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeEngineTarget(*engine, model.name));
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(target, MakeHttpTarget(flags.url, flags.model, flags.connections));
  }
  if (!flags.lengths.empty() && !VariesInLength(target->inputs())) {
    return InvalidArgument("--lengths: no input of {} varies in length", target->name());
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.json));
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.trace));
  Requests requests(*target, flags);
  {
    StatusLine line;
    line.Show("trying a request");
    CHAIRLIFT_RETURN_IF_ERROR(requests.Begin(schedule.empty() ? 0 : schedule[0].length));
  }
  for (const Arrival& arrival : schedule) CHAIRLIFT_RETURN_IF_ERROR(requests.Add(arrival.length));
  Announce(target->name(), requests.Describe(), schedule.size(), flags);

  const auto send = [&](const char* what, const std::vector<Arrival>& arrivals) {
    ProgressBar bar(what, static_cast<int64_t>(arrivals.size()));
    return PutLoad(*target, arrivals, requests,
                   {.patience = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::duration<double>(flags.timeout_seconds)),
                    .progress = [&bar](int64_t sent) { bar.Set(sent); }});
  };
  ScheduleOptions warmup = flags.schedule;
  warmup.seconds = flags.warmup_seconds;
  warmup.seed += 1;
  if (const auto first = MakeSchedule(warmup); first.ok()) {
    for (const Arrival& arrival : *first) CHAIRLIFT_RETURN_IF_ERROR(requests.Add(arrival.length));
    send("warming up", *first);
  }
  if (!flags.trace.empty()) engine->StartTrace({.nodes = flags.trace_nodes});
  const std::vector<LoadSample> samples = send("sending", schedule);
  const LoadReport report = Summarize(samples, flags.schedule.seconds);
  Print(report);
  if (!flags.trace.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteTrace(*engine, flags.trace));
  if (!flags.json.empty()) {
    std::ofstream file(flags.json);
    file << ToJson(report, flags, target->name()).dump(1) << "\n";
    if (!file.flush()) return CannotWrite(flags.json);
  }
  if (report.succeeded == 0) {
    return Unavailable("none of {} succeeded", Counted(report.scheduled, "request"));
  }
  return absl::OkStatus();
}

// Refuses flags that would have no effect.
Status CheckPlace(const CLI::App& parser, bool in_process) {
  if (in_process) {
    return parser.count("--connections") == 0
               ? absl::OkStatus()
               : Usage(InvalidArgument(
                     "--connections needs --url: in process there are no connections"));
  }
  for (const char* flag : {"--policy", "--max-batch-size", "--max-batch-tokens", "--queue-delay-us",
                           "--workers", "--allow-plugins"}) {
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
  AddNumber(parser, "--rate", &flags->rate, 0.001, 1e7, "RATE",
            "Requests a second; with --gaps, they are scaled to it, or left as they are")
      ->default_str(fmt::format("{}", flags->schedule.rate));
  AddNumber(parser, "--seconds", &flags->schedule.seconds, 0.01, 86400, "S",
            "Duration of the schedule");
  parser
      .add_option("--gaps", flags->gaps,
                  "File of gaps between requests in ms, instead of Poisson arrivals")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  parser.add_option("--lengths", flags->lengths, "JSON histogram that lengths are drawn from")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  parser.add_option("--seed", flags->schedule.seed, "Seed of arrivals and lengths")
      ->type_name("N")
      ->capture_default_str();
  parser
      .add_option("--input", flags->inputs,
                  "An input's values instead of made-up ones; one for each input")
      ->type_name("NAME=FILE.npy");
  parser.add_option("--shape", flags->shapes, "Shape of a made-up input, as image=1x3x224x224")
      ->type_name("NAME=SHAPE");
  AddNumber(parser, "--batch", &flags->input_shapes.batch, 1, 4096, "N",
            "Rows in a request, where the model leaves them open");
  AddNumber(parser, "--length", &flags->length, 1, 1 << 20, "N",
            "Other open dimensions, without --lengths; default: the first of 16, 32, 64, …\n"
            "that the model takes");
  TakesPolicy(parser.add_option("--policy", flags->config.policy,
                                "Batching policy, in process; default: as served"));
  AddNumber(parser, "--max-batch-size", &flags->config.max_batch_size, 0, 4096, "N",
            "Rows in a batch, in process; 0: default");
  AddNumber(parser, "--max-batch-tokens", &flags->config.max_batch_tokens, 0, 1 << 24, "N",
            "tokens: tokens in a batch, in process; 0: as timed");
  AddNumber(parser, "--queue-delay-us", &flags->config.queue_delay_us, 0, 10'000'000, "US",
            "window, length_dp: wait for more requests, in process");
  AddWorkers(parser, &flags->engine.workers);
  AddNumber(parser, "--warmup-seconds", &flags->warmup_seconds, 0, 600, "S",
            "Load before what is counted");
  AddNumber(parser, "--timeout-seconds", &flags->timeout_seconds, 0.1, 3600, "S",
            "Wait for answers after the last request; those that come later have failed");
  parser.add_option("--json", flags->json, "Also write the figures to this file")
      ->type_name("FILE");
  parser
      .add_option("--trace", flags->trace,
                  "Also write what each worker ran when, as a timeline for ui.perfetto.dev or\n"
                  "chrome://tracing (Chrome's trace event format); in process")
      ->type_name("FILE");
  parser
      .add_flag("--trace-nodes", flags->trace_nodes,
                "With --trace: also each node that a task ran, with its implementation and shapes")
      ->needs("--trace");
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  return [flags, &parser]() -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(CheckPlace(parser, flags->url.empty()));
    return Bench(*flags);
  };
}

}  // namespace chairlift
