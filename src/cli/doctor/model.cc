#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include "chairlift/engine.h"
#include "cli/doctor/findings.h"
#include "cli/export_hint.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/terminal.h"

namespace chairlift::doctor {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr auto kMeasured = std::chrono::milliseconds(1000);

double Seconds(SteadyClock::duration time) { return std::chrono::duration<double>(time).count(); }

// The peak memory of the process so far.
double PeakMemory() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

// The median time of a single request, in seconds.
StatusOr<double> TimeAlone(Engine& engine, const InferRequest& request) {
  std::vector<double> times;
  const SteadyClock::time_point end = SteadyClock::now() + kMeasured;
  do {
    const SteadyClock::time_point begin = SteadyClock::now();
    CHAIRLIFT_RETURN_IF_ERROR(engine.Infer(request).status());
    times.push_back(Seconds(SteadyClock::now() - begin));
  } while (SteadyClock::now() < end && times.size() < 1000);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Requests per second with `clients` concurrent requests.
StatusOr<double> Rate(Engine& engine, const InferRequest& request, int clients) {
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  int64_t answered = 0;
  Status failed;
  const SteadyClock::time_point begin = SteadyClock::now();
  std::unique_lock<std::mutex> lock(mutex);
  while (SteadyClock::now() - begin < kMeasured && failed.ok()) {
    if (running == clients) {
      changed.wait(lock);
      continue;
    }
    ++running;
    lock.unlock();
    engine.InferAsync(request, [&](const StatusOr<InferResponse>& response) {
      const std::lock_guard<std::mutex> held(mutex);
      --running;
      ++answered;
      if (!response.ok()) failed = response.status();
      changed.notify_one();
    });
    lock.lock();
  }
  changed.wait(lock, [&] { return running == 0; });
  const double seconds = Seconds(SteadyClock::now() - begin);
  CHAIRLIFT_RETURN_IF_ERROR(failed);
  return static_cast<double>(answered) / seconds;
}

// Input shapes that the model accepts.
StatusOr<InputShapes> ShapesOf(Engine& engine, const ModelMetadata& metadata) {
  return FindShapes(metadata.inputs, {}, kLengthsToTry, [&](const InputShapes& shapes) -> Status {
    std::mt19937_64 random(1);
    InferRequest request{.model = metadata.name};
    CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(metadata.inputs, shapes, random));
    return engine.Infer(std::move(request)).status();
  });
}

std::vector<Finding> Served(const ModelMetadata& metadata) {
  std::vector<Finding> findings;
  for (const ProgramChoice& choice : metadata.programs) {
    if (choice.refused.empty()) {
      findings.push_back({Level::kOk, "kind", choice.kind + ": " + choice.summary});
    } else {
      findings.push_back({Level::kInfo, "not " + choice.kind, choice.refused});
    }
  }
  const bool alone = RunsOneByOne(metadata);
  findings.push_back({alone ? Level::kHint : Level::kOk, "batching", metadata.diagnosis,
                      alone ? ExportHint(metadata) : ""});
  return findings;
}

}  // namespace

std::vector<Finding> OfModel(const ModelPath& path, bool allow_plugins) {
  const double before = PeakMemory();
  const auto refused = [](const Status& status) {
    return std::vector<Finding>{{Level::kProblem, "model", Message(status)}};
  };
  EngineOptions options;
  options.allow_plugins = allow_plugins;
  options.on_load = LoadBar();
  auto engine = Engine::Create(options);
  if (!engine.ok()) return refused(engine.status());
  const SteadyClock::time_point begin = SteadyClock::now();
  const Status loaded = (*engine)->LoadModel(path.name, path.path, path.config, path.version);
  if (!loaded.ok()) return refused(loaded);
  const double load_seconds = Seconds(SteadyClock::now() - begin);
  const auto metadata = (*engine)->Metadata(path.name);
  if (!metadata.ok()) return refused(metadata.status());

  std::vector<Finding> findings = Served(*metadata);
  findings.push_back({Level::kOk, "load", HumanSeconds(load_seconds)});
  const auto measure = [&]() -> Status {
    StatusLine line;
    line.Show("measuring");
    CHAIRLIFT_ASSIGN_OR_RETURN(const InputShapes shapes, ShapesOf(**engine, *metadata));
    std::mt19937_64 random(1);
    InferRequest request{.model = path.name};
    CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(metadata->inputs, shapes, random));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::string inputs, DescribeInputs(metadata->inputs, shapes));
    CHAIRLIFT_ASSIGN_OR_RETURN(const double alone, TimeAlone(**engine, request));
    const int clients = 8 * (*engine)->workers();
    CHAIRLIFT_ASSIGN_OR_RETURN(const double rate, Rate(**engine, request, clients));
    line.Clear();
    findings.push_back({Level::kOk, "request", inputs});
    findings.push_back({Level::kOk, "time", HumanSeconds(alone) + " for one request alone"});
    findings.push_back({Level::kOk, "throughput",
                        fmt::format("{} requests per second, with {} running at a time",
                                    HumanNumber(rate), clients)});
    return absl::OkStatus();
  }();
  if (!measure.ok()) {
    findings.push_back(
        {Level::kHint, "request", Message(measure),
         "set the shapes that the model needs: `chairlift bench MODEL --shape NAME=SHAPE`"});
  }
  findings.push_back(
      {Level::kOk, "memory",
       HumanBytes(PeakMemory() - before) + " for weights, plans and these requests"});
  return findings;
}

}  // namespace chairlift::doctor
