// CPU time that a policy takes for each cell node, all events of a request's life included, at full
// load in virtual time. Prints one JSON object: {"rows": [{"row", "ns_per_node"}]}.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batching/policy.h"

namespace chairlift {
namespace {

using Build = std::function<void(CellGraph&, std::mt19937&)>;

struct Scenario {
  std::string name;
  std::string policy;
  PolicyOptions options;
  int workers;
  int concurrent;  // requests in the system
  Build build;
};

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

// Workers in turn are given tasks and end one each; whoever leaves is replaced at once.
double NanosecondsPerNode(const Scenario& scenario, int64_t nodes) {
  auto made = MakeScheduler(scenario.policy, scenario.options);
  if (!made.ok()) std::abort();
  Scheduler& scheduler = **made;
  std::mt19937 random(1);
  std::vector<CellGraph> graphs(256);
  for (CellGraph& graph : graphs) scenario.build(graph, random);
  std::vector<std::deque<TaskId>> streams(scenario.workers);
  const TimePoint now{};
  BatchRequestId next_id = 1;
  int64_t ended = 0;
  int present = 0;

  const std::clock_t begin = std::clock();
  while (ended < nodes) {
    for (; present < scenario.concurrent; ++present) {
      scheduler.Arrive(next_id, graphs[next_id % graphs.size()], 0, now, std::nullopt);
      ++next_id;
    }
    for (WorkerId w = 0; w < scenario.workers; ++w) {
      while (const auto task = scheduler.Next(w, now)) {
        ended += static_cast<int64_t>(task->nodes.size());
        streams[w].push_back(task->id);
      }
    }
    for (auto& stream : streams) {
      if (stream.empty()) continue;
      present -= static_cast<int>(scheduler.Complete(stream.front(), now, {}).size());
      stream.pop_front();
    }
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return seconds * 1e9 / static_cast<double>(ended);
}

std::vector<Scenario> Scenarios() {
  const auto options = [](int max, bool adaptive) {
    return PolicyOptions{.max_batch_size = max, .adaptive_run_ahead = adaptive};
  };
  return {
      {"lstm_b16", "cellular", options(16, true), 1, 24, Lstm},
      {"lstm_b64", "cellular", options(64, true), 1, 96, Lstm},
      {"lstm_b64_run_ahead_5", "cellular", options(64, false), 1, 96, Lstm},
      {"lstm_b64_4_workers", "cellular", options(64, true), 4, 400, Lstm},
      {"lstm_b512_10000_waiting", "cellular", options(512, true), 1, 10000, Lstm},
      {"stacked_b64_2_workers", "cellular", options(64, true), 2, 192, StackedLstm},
      {"tree_b64", "cellular", options(64, true), 1, 64, Tree},
      {"tree_b64_2_workers", "cellular", options(64, true), 2, 128, Tree},
  };
}

}  // namespace
}  // namespace chairlift

int main() {
  constexpr int kRounds = 5;
  std::string rows;
  for (const chairlift::Scenario& scenario : chairlift::Scenarios()) {
    std::vector<double> times;
    for (int i = 0; i < kRounds; ++i) {
      times.push_back(chairlift::NanosecondsPerNode(scenario, 400'000));
    }
    std::sort(times.begin(), times.end());
    rows +=
        fmt::format("{}{{\"row\": \"{}\", \"ns_per_node\": {:.1f}, \"spread_percent\": {:.0f}}}",
                    rows.empty() ? "" : ", ", scenario.name, times[kRounds / 2],
                    100 * (times.back() - times.front()) / times[kRounds / 2]);
  }
  fmt::print("{{\"rows\": [{}]}}\n", rows);
}
