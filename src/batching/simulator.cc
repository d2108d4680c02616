#include "batching/simulator.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "batching/task_cost.h"

namespace chairlift {
namespace {

class Simulation {
 public:
  Simulation(Scheduler& scheduler, const Workload& workload, const CostModel& costs, int workers,
             int ahead)
      : scheduler_(scheduler),
        workload_(workload),
        costs_(costs),
        ahead_(static_cast<size_t>(ahead)),
        streams_(static_cast<size_t>(workers)) {
    result_.requests.reserve(workload.arrivals.size());
  }

  SimulationResult Run() {
    while (const std::optional<TimePoint> next = NextEvent()) {
      now_ = *next;
      for (std::deque<Running>& stream : streams_) {
        while (!stream.empty() && stream.front().end <= now_) End(stream);
      }
      for (auto at = ArrivalTime(); at && *at <= now_; at = ArrivalTime()) Arrive();
      for (size_t w = 0; w < streams_.size(); ++w) Fill(static_cast<WorkerId>(w));
    }
    result_.end = now_ - TimePoint();
    return std::move(result_);
  }

 private:
  struct Running {
    TaskId task;
    TimePoint end;
    std::vector<NodeRef> nodes;  // if requests generate
  };
  // The rest of the prompt (or of what is recomputed) and of the answer of a request that
  // generates.
  struct Generating {
    int32_t prompt = 0;
    int32_t answer = 0;
    int32_t computed = 0;  // rows since it started or was preempted
    bool answers = false;  // its first token was produced
    Duration last{0};      // time of its last token
  };

  bool AnyLeft() const { return next_arrival_ < workload_.arrivals.size(); }

  // When the next request arrives; nothing: when another leaves.
  std::optional<TimePoint> ArrivalTime() const {
    if (!AnyLeft()) return std::nullopt;
    if (workload_.clients == 0) return TimePoint() + workload_.arrivals[next_arrival_].at;
    if (under_way_ < workload_.clients) return now_;
    return std::nullopt;
  }

  std::optional<TimePoint> NextEvent() const {
    std::optional<TimePoint> next;
    const auto consider = [&next](TimePoint t) {
      if (!next || t < *next) next = t;
    };
    if (const std::optional<TimePoint> arrival = ArrivalTime()) consider(*arrival);
    for (const std::deque<Running>& stream : streams_) {
      if (!stream.empty()) consider(stream.front().end);
    }
    if (const std::optional<TimePoint> wake = scheduler_.WakeAt(now_)) consider(*wake);
    return next;
  }

  void Arrive() {
    const Duration at =
        workload_.clients == 0 ? workload_.arrivals[next_arrival_].at : now_ - TimePoint();
    result_.requests.push_back({.arrived = at, .started = kNotStarted});
    if (generates()) {
      const auto graph = static_cast<size_t>(workload_.arrivals[next_arrival_].graph);
      generating_.push_back(
          {.prompt = workload_.graphs[graph].rows(0), .answer = workload_.answers[graph]});
    }
    scheduler_.Arrive(next_arrival_, GraphOf(next_arrival_), 0, now_, std::nullopt);
    ++next_arrival_;
    ++under_way_;
  }

  // Requests are numbered in order of arrival.
  const CellGraph& GraphOf(BatchRequestId request) const {
    return workload_.graphs[static_cast<size_t>(workload_.arrivals[request].graph)];
  }

  void End(std::deque<Running>& stream) {
    const Running ended = std::move(stream.front());
    stream.pop_front();
    std::vector<Scheduler::Growth> grown;
    for (const NodeRef& node : ended.nodes) Advance(node, grown);
    for (const BatchRequestId id : scheduler_.Complete(ended.task, now_, grown)) {
      result_.requests[id].left = now_ - TimePoint();
      --under_way_;
    }
  }

  // The request's node has run. It must outlive `grown`.
  void Advance(const NodeRef& node, std::vector<Scheduler::Growth>& grown) {
    Generating& of = generating_[node.request];
    const Duration now = now_ - TimePoint();
    if (node.set_back) {
      of.prompt = std::exchange(of.computed, 0) + std::max(of.prompt, 1);
      ++result_.set_back;
    } else {
      of.prompt -= node.rows;
      of.computed += std::max(node.rows, 1);
    }
    if (of.prompt == 0) {
      if (!std::exchange(of.answers, true)) {
        result_.requests[node.request].first_token = now;
      } else {
        result_.tokens.push_back({.at = now, .since = now - of.last});
      }
      of.last = now;
      if (--of.answer == 0) return;
    }
    grown.push_back({.request = node.request,
                     .rows = std::max(of.prompt, 1),
                     .dependencies = {&node.node, 1},
                     .divisible = of.prompt > 0});
  }

  void Fill(WorkerId worker) {
    std::deque<Running>& stream = streams_[static_cast<size_t>(worker)];
    while (stream.size() < ahead_) {
      const std::optional<Task> task = scheduler_.Next(worker, now_);
      if (!task) return;
      const TimePoint begin = stream.empty() ? now_ : stream.back().end;
      const Duration cost = TaskCost(costs_, *task);
      int64_t asked = 0;
      for (const NodeRef& node : task->nodes) {
        Duration& started = result_.requests[node.request].started;
        started = std::min(started, begin - TimePoint());
        const CellGraph& graph = GraphOf(node.request);
        if (task->length > 0) asked += int64_t{graph.rows(node.node)} * graph.length();
        result_.nodes += node.steps;
      }
      ++result_.tasks;
      result_.steps += task->steps();
      if (task->length > 0) {
        const int64_t computed = int64_t{task->rows + task->padding_rows} * task->length;
        result_.rows += asked;
        result_.padding_rows += computed - asked;
      } else {
        ForEachStepOf(*task, [&](int32_t rows, int32_t padding) {
          result_.rows += rows;
          result_.padding_rows += padding;
        });
      }
      result_.busy += cost;
      stream.push_back({task->id, begin + cost, {}});
      if (generates()) stream.back().nodes = std::move(task->nodes);
    }
  }

  bool generates() const { return !workload_.answers.empty(); }

  static constexpr Duration kNotStarted = Duration::max();

  Scheduler& scheduler_;
  const Workload& workload_;
  const CostModel& costs_;
  const size_t ahead_;
  std::vector<std::deque<Running>> streams_;  // by worker
  std::vector<Generating> generating_;        // by request
  size_t next_arrival_ = 0;
  int64_t under_way_ = 0;  // requests
  TimePoint now_{};
  SimulationResult result_;
};

}  // namespace

SimulationResult Simulate(Scheduler& scheduler, const Workload& workload, const CostModel& costs,
                          int workers, int ahead) {
  return Simulation(scheduler, workload, costs, workers, ahead).Run();
}

}  // namespace chairlift
