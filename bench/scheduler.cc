// CPU time of a policy per cell node, including all events in a request's life, at full load in
// virtual time; and how it grows with workers and models. Prints one JSON object: {"rows": [{"row",
// "ns_per_node", "spread_percent"}],
//  "growth": [{"through", "workers", "models", "ns_per_node", "spread_percent"}]}.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batching/length_costs.h"
#include "batching/policy.h"
#include "dispatcher_time.h"

namespace chairlift {
namespace {

using Build = std::function<void(CellGraph&, std::mt19937&)>;

struct Scenario {
  std::string name;
  std::string policy;
  PolicyOptions options;
  int workers;
  int concurrent;  // requests of each model in the system
  Build build;
  int models = 1;
};

void Whole(CellGraph& graph, std::mt19937& random) {
  graph.Add(0, std::uniform_int_distribution<int>(1, 50)(random));
}

void Lstm(CellGraph& graph, std::mt19937& random) {
  graph.AddChain(0, std::uniform_int_distribution<int>(1, 50)(random));
}

// A projection over all steps, two layers, a head.
void StackedLstm(CellGraph& graph, std::mt19937& random) {
  const int length = std::uniform_int_distribution<int>(1, 50)(random);
  const int32_t projection = graph.Add(0, length);
  for (int t = 0; t < length; ++t) {
    const int32_t last = graph.size() - 1;
    t == 0 ? graph.Add(1, 1, {projection}) : graph.Add(1, 1, {projection, last});
  }
  for (int t = 0; t < length; ++t) {
    const int32_t last = graph.size() - 1;
    t == 0 ? graph.Add(2, 1, {1}) : graph.Add(2, 1, {1 + t, last});
  }
  graph.Add(3, 1, {graph.size() - 1});
}

int32_t Subtree(CellGraph& graph, int leaves, std::mt19937& random) {
  if (leaves == 1) return graph.Add(0);
  const int left = std::uniform_int_distribution<int>(1, leaves - 1)(random);
  const int32_t a = Subtree(graph, left, random);
  const int32_t b = Subtree(graph, leaves - left, random);
  return graph.Add(1, 1, {a, b});
}
void Tree(CellGraph& graph, std::mt19937& random) {
  Subtree(graph, std::uniform_int_distribution<int>(2, 36)(random), random);
}

// One scheduler per model. Workers get tasks in turn, each from the first model that has any for
// it, starting after its last model; then each ends one task. A request that leaves is replaced at
// once.
double ThroughSchedulers(const Scenario& scenario, int64_t nodes) {
  struct Model {
    std::unique_ptr<Scheduler> scheduler;
    int present = 0;
  };
  struct Worker {
    std::deque<std::pair<size_t, TaskId>> stream;
    size_t next = 0;  // index of the next model
  };
  std::vector<Model> models(scenario.models);
  for (Model& model : models) {
    auto made = MakeScheduler(scenario.policy, scenario.options);
    if (!made.ok()) std::abort();
    model.scheduler = *std::move(made);
  }
  std::vector<Worker> workers(scenario.workers);
  std::mt19937 random(1);
  std::vector<CellGraph> graphs(256);
  for (CellGraph& graph : graphs) scenario.build(graph, random);
  const TimePoint now{};
  BatchRequestId next_id = 1;
  int64_t ended = 0;
  const auto fill = [&](Model& model) {
    for (; model.present < scenario.concurrent; ++model.present) {
      model.scheduler->Arrive(next_id, graphs[next_id % graphs.size()], 0, now, std::nullopt);
      ++next_id;
    }
  };

  const std::clock_t begin = std::clock();
  for (Model& model : models) fill(model);
  while (ended < nodes) {
    for (WorkerId w = 0; w < scenario.workers; ++w) {
      Worker& worker = workers[w];
      const size_t had = worker.stream.size();
      for (size_t i = 0; i < models.size() && worker.stream.size() == had; ++i) {
        const size_t m = worker.next++ % models.size();
        while (const auto task = models[m].scheduler->Next(w, now)) {
          for (const NodeRef& node : task->nodes) ended += node.steps;
          worker.stream.emplace_back(m, task->id);
        }
      }
    }
    for (Worker& worker : workers) {
      if (worker.stream.empty()) continue;
      const auto [m, task] = worker.stream.front();
      worker.stream.pop_front();
      Model& model = models[m];
      model.present -= static_cast<int>(model.scheduler->Complete(task, now, {}).size());
      fill(model);
    }
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return seconds * 1e9 / static_cast<double>(ended);
}

// Steps of 25 µs, and 10 µs per task: up to nine steps in one task.
const CostModel& StepTimes() {
  static const LengthCosts kTimes = [] {
    constexpr std::chrono::microseconds kTask(10), kStep(25);
    LengthCosts times;
    if (!times.AddType({{0, 0, kTask}, {1, 0, kTask + kStep}, {512, 0, kTask + kStep}}).ok()) {
      std::abort();
    }
    return times;
  }();
  return kTimes;
}

std::vector<Scenario> Scenarios() {
  PolicyOptions steps{.max_batch_size = 64, .step_costs = &StepTimes()};
  const auto options = [](int max, bool adaptive) {
    return PolicyOptions{.max_batch_size = max, .adaptive_run_ahead = adaptive};
  };
  return {
      {"lstm_b16", "cellular", options(16, true), 1, 24, Lstm},
      {"lstm_b64", "cellular", options(64, true), 1, 96, Lstm},
      {"lstm_b64_run_ahead_5", "cellular", options(64, false), 1, 96, Lstm},
      {"lstm_b64_steps", "cellular", steps, 1, 96, Lstm},
      {"lstm_b64_4_workers", "cellular", options(64, true), 4, 400, Lstm},
      {"lstm_b512_10000_waiting", "cellular", options(512, true), 1, 10000, Lstm},
      {"stacked_b64_2_workers", "cellular", options(64, true), 2, 192, StackedLstm},
      {"tree_b64", "cellular", options(64, true), 1, 64, Tree},
      {"tree_b64_2_workers", "cellular", options(64, true), 2, 128, Tree},
      {"whole_window_b32", "window", options(32, true), 1, 64, Whole},
      {"whole_packed_b1024", "packed", options(1024, true), 1, 64, Whole},
  };
}

double ThroughDispatcher(const Scenario& scenario, int64_t nodes) {
  return DispatcherNsPerNode({.policy = scenario.policy.c_str(),
                              .options = scenario.options,
                              .workers = scenario.workers,
                              .models = scenario.models,
                              .concurrent = scenario.concurrent,
                              .build = scenario.build},
                             nodes);
}

// A layer whose growth is measured; each is a line here.
struct Layer {
  const char* name;
  double (*ns_per_node)(const Scenario&, int64_t nodes);
};
constexpr Layer kLayers[] = {{"scheduler", ThroughSchedulers}, {"dispatcher", ThroughDispatcher}};

// Batches are full for any numbers: a constant number of requests per worker and per model.
Scenario Growth(int workers, int models) {
  const int concurrent = 96 * ((workers + models - 1) / models);
  return {"growth", "cellular", {.max_batch_size = 64}, workers, concurrent, Lstm, models};
}

// Median and spread, in JSON.
std::string Measure(const Layer& layer, const Scenario& scenario, int64_t nodes) {
  constexpr int kRounds = 5;
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) times.push_back(layer.ns_per_node(scenario, nodes));
  std::sort(times.begin(), times.end());
  return fmt::format("\"ns_per_node\": {:.1f}, \"spread_percent\": {:.0f}", times[kRounds / 2],
                     100 * (times.back() - times.front()) / times[kRounds / 2]);
}

void Run() {
  std::vector<std::string> rows;
  for (const Scenario& scenario : Scenarios()) {
    rows.push_back(fmt::format("{{\"row\": \"{}\", {}}}", scenario.name,
                               Measure(kLayers[0], scenario, 400'000)));
  }
  std::vector<std::string> growth;
  for (const Layer& layer : kLayers) {
    for (const auto& [workers, models] :
         {std::pair(1, 1), {4, 1}, {16, 1}, {64, 1}, {1, 10}, {1, 100}, {64, 10}, {64, 100}}) {
      growth.push_back(fmt::format("{{\"through\": \"{}\", \"workers\": {}, \"models\": {}, {}}}",
                                   layer.name, workers, models,
                                   Measure(layer, Growth(workers, models), 1'000'000)));
    }
  }
  fmt::print("{{\"rows\": [{}], \"growth\": [{}]}}\n", fmt::join(rows, ", "),
             fmt::join(growth, ", "));
}

}  // namespace
}  // namespace chairlift

int main(int argc, char**) {
  if (argc > 1) {
    fmt::print(stderr, "usage: scheduler_cost, without arguments\n");
    return 2;
  }
  chairlift::Run();
}
