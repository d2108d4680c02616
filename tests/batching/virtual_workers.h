// Workers in virtual time for tests of policies: FIFO streams of tasks that end when told.
#ifndef CHAIRLIFT_TESTS_BATCHING_VIRTUAL_WORKERS_H_
#define CHAIRLIFT_TESTS_BATCHING_VIRTUAL_WORKERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "batching/policy.h"

namespace chairlift {

inline TimePoint At(int64_t us) { return TimePoint(std::chrono::microseconds(us)); }

inline std::unique_ptr<Scheduler> MakePolicy(const std::string& name,
                                             const PolicyOptions& options) {
  auto scheduler = MakeScheduler(name, options);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

inline CellGraph Chain(int32_t length, CellType type = 0) {
  CellGraph graph;
  graph.AddChain(type, length);
  return graph;
}

// A complete binary tree with 2^depth leaves: leaves of type 0, inner nodes of type 1.
inline CellGraph CompleteTree(int depth) {
  CellGraph graph;
  std::vector<int32_t> level;
  for (int i = 0; i < 1 << depth; ++i) level.push_back(graph.Add(0));
  while (level.size() > 1) {
    std::vector<int32_t> above;
    for (size_t i = 0; i < level.size(); i += 2) {
      above.push_back(graph.Add(1, 1, {level[i], level[i + 1]}));
    }
    level = above;
  }
  return graph;
}

inline std::vector<BatchRequestId> RequestsOf(const std::optional<Task>& task) {
  std::vector<BatchRequestId> ids;
  if (task) {
    for (const NodeRef& node : task->nodes) ids.push_back(node.request);
  }
  return ids;
}

inline std::vector<int32_t> NodesOf(const std::optional<Task>& task) {
  std::vector<int32_t> nodes;
  if (task) {
    for (const NodeRef& node : task->nodes) nodes.push_back(node.node);
  }
  return nodes;
}

inline std::vector<int32_t> StepsOf(const std::optional<Task>& task) {
  std::vector<int32_t> steps;
  if (task) {
    for (const NodeRef& node : task->nodes) steps.push_back(node.steps);
  }
  return steps;
}

// Runs arrivals through a policy: every task takes `cost(task)`.
class VirtualWorkers {
 public:
  using Cost = std::function<Duration(const Task&)>;

  VirtualWorkers(Scheduler& scheduler, int workers, Cost cost)
      : scheduler_(scheduler), cost_(std::move(cost)), streams_(workers) {}

  void Arrive(TimePoint at, BatchRequestId id, CellGraph graph) {
    arrivals_.emplace(at, std::pair(id, std::move(graph)));
  }

  // Until nothing is left to do.
  void Run() {
    while (true) {
      std::optional<TimePoint> next;
      const auto consider = [&next](TimePoint t) {
        if (!next || t < *next) next = t;
      };
      if (!arrivals_.empty()) consider(arrivals_.begin()->first);
      for (const auto& stream : streams_) {
        if (!stream.empty()) consider(stream.front().end);
      }
      if (!next) return;
      now_ = *next;
      while (!arrivals_.empty() && arrivals_.begin()->first <= now_) {
        const auto& [id, graph] = arrivals_.begin()->second;
        scheduler_.Arrive(id, graph, 0, now_, {});
        arrivals_.erase(arrivals_.begin());
      }
      for (auto& stream : streams_) {
        while (!stream.empty() && stream.front().end <= now_) {
          const TaskId task = stream.front().task.id;
          stream.pop_front();
          for (const BatchRequestId id : scheduler_.Complete(task, now_, {})) left[id] = now_;
        }
      }
      for (size_t w = 0; w < streams_.size(); ++w) Fill(static_cast<WorkerId>(w));
    }
  }

  std::map<BatchRequestId, TimePoint> left;     // when each request left
  std::map<BatchRequestId, TimePoint> started;  // when the task with its first node began
  std::vector<Task> tasks;                      // in the order started

 private:
  struct Running {
    Task task;
    TimePoint end;
  };

  void Fill(WorkerId worker) {
    std::deque<Running>& stream = streams_[worker];
    while (auto task = scheduler_.Next(worker, now_)) {
      const TimePoint begin = stream.empty() ? now_ : stream.back().end;
      for (const NodeRef& node : task->nodes) started.emplace(node.request, begin);
      stream.push_back({*task, begin + cost_(*task)});
      tasks.push_back(*std::move(task));
    }
  }

  Scheduler& scheduler_;
  const Cost cost_;
  std::vector<std::deque<Running>> streams_;
  std::multimap<TimePoint, std::pair<BatchRequestId, CellGraph>> arrivals_;
  TimePoint now_{};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_BATCHING_VIRTUAL_WORKERS_H_
