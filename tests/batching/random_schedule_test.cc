// Long random schedules in virtual time, several workers, against the promises that every policy
// makes (scheduler.h) and those of the window.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>

#include "batching/policy.h"

namespace chairlift {
namespace random_schedule_test {

using std::chrono::microseconds;

struct Setup {
  std::string policy;
  int max_batch_size;
  int64_t queue_delay_us;
  std::vector<int> preferred;
  int workers;
  int types;
  double load;  // arrivals per microsecond
  unsigned seed;
  int events = 20000;
};

struct KnownNode {
  CellType type;
  int32_t rows;
  std::vector<int32_t> dependencies = {};
};

// What the test knows, from events alone, of a request that has not ended or left.
struct Known {
  std::vector<KnownNode> nodes;
  int32_t length = 0;
  std::vector<int> runs;            // how often each node was in a task
  std::vector<bool> ended;          // by node
  std::vector<TimePoint> ready_at;  // by node; of those that are ready
  ClientId client = 0;
  std::optional<TimePoint> deadline;
  bool started = false;
  bool leaving = false;  // cancelled; nodes of it are in flight
  int in_flight = 0;
};

class PaddedCosts : public CostModel {
 public:
  Duration Cost(CellType /*type*/, int32_t rows, int32_t length) const override {
    return microseconds(20 + rows * length / 10);
  }
};

class Simulation {
 public:
  explicit Simulation(const Setup& setup) : setup_(setup), random_(setup.seed) {
    auto made =
        MakeScheduler(setup.policy, {.max_batch_size = setup.max_batch_size,
                                     .queue_delay = microseconds(setup.queue_delay_us),
                                     .preferred_batch_sizes = setup.preferred,
                                     .latency_objective = microseconds(400),
                                     .workers = setup.workers,
                                     .costs = setup.policy == "length_dp" ? &costs_ : nullptr});
    EXPECT_TRUE(made.ok()) << made.status();
    scheduler_ = *std::move(made);
    for (int w = 0; w < setup.workers; ++w) idle_.insert(w);
  }

  void Run() {
    const int events = setup_.events;
    TimePoint next_arrival = now_;
    std::exponential_distribution<double> gap(setup_.load);
    int done = 0;
    while (done < events || !running_.empty() || !known_.empty()) {
      std::optional<TimePoint> next;
      const auto consider = [&next](std::optional<TimePoint> t) {
        if (t && (!next || *t < *next)) next = t;
      };
      if (done < events) consider(next_arrival);
      if (!running_.empty()) consider(running_.begin()->first);
      const std::optional<TimePoint> wake = scheduler_->WakeAt(now_);
      if (wake) {
        ASSERT_GT(*wake, now_);
        consider(wake);
      }
      ASSERT_TRUE(next.has_value()) << "stuck with " << scheduler_->waiting() << " waiting";
      now_ = *next;
      while (!running_.empty() && running_.begin()->first <= now_) EndTask();
      if (done < events && next_arrival <= now_) {
        if (Chance(0.1)) {
          CancelSome();
        } else {
          Arrive();
        }
        ++done;
        next_arrival = now_ + Duration(1 + static_cast<int64_t>(gap(random_) * 1000));
      }
      TakeExpired();
      GiveTasks();
      if (::testing::Test::HasFatalFailure()) return;
    }
    CheckEnd();
  }

 private:
  bool Chance(double p) { return std::uniform_real_distribution<double>()(random_) < p; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void Arrive() {
    const BatchRequestId id = next_id_++;
    Known& known = known_[id];
    CellGraph graph;
    const int nodes = Chance(0.2) ? Pick(2, 4) : 1;
    for (int i = 0; i < nodes; ++i) {
      KnownNode node{.type = static_cast<CellType>(Pick(0, setup_.types - 1)),
                     .rows = Chance(0.02) ? setup_.max_batch_size + 3 : Pick(0, 3)};
      for (int d = 0; d < i; ++d) {
        if (Chance(0.6)) node.dependencies.push_back(d);
      }
      graph.Add(node.type, node.rows, node.dependencies);
      known.nodes.push_back(node);
    }
    known.length = Pick(1, 100);
    graph.set_length(known.length);
    if (Chance(0.3)) graph.set_turn(Pick(1, 3));
    known.runs.assign(nodes, 0);
    known.ended.assign(nodes, false);
    known.ready_at.resize(nodes);
    for (int i = 0; i < nodes; ++i) known.ready_at[i] = now_;
    known.client = Chance(0.4) ? Pick(1, 3) : 0;
    if (Chance(0.3)) known.deadline = now_ + microseconds(Pick(0, 300));
    if (known.client != 0) order_[known.client].push_back(id);
    scheduler_->Arrive(id, graph, known.client, now_, known.deadline);
  }

  void CancelSome() {
    // Recent ones, so that some wait, some run and some have ended.
    const BatchRequestId id = next_id_ - std::min<BatchRequestId>(next_id_, Pick(1, 12));
    const auto known = known_.find(id);
    const bool flies = known != known_.end() && known->second.in_flight > 0;
    EXPECT_EQ(scheduler_->Cancel(id, now_), !flies);
    if (flies) {
      Unorder(id, known->second);
      known->second.leaving = true;
    } else if (known != known_.end()) {
      Leave(id);
    }
  }

  void Leave(BatchRequestId id) {
    Unorder(id, known_.at(id));
    known_.erase(id);
  }
  void Unorder(BatchRequestId id, const Known& known) {
    if (known.client == 0) return;
    auto& order = order_[known.client];
    order.erase(std::remove(order.begin(), order.end(), id), order.end());
  }

  void TakeExpired() {
    for (BatchRequestId id : scheduler_->TakeExpired(now_)) {
      ASSERT_TRUE(known_.contains(id)) << "request " << id << " had left";
      const Known& known = known_.at(id);
      EXPECT_FALSE(known.started);
      EXPECT_TRUE(known.deadline && *known.deadline <= now_);
      Leave(id);
      ++expired_;
    }
    for (const auto& [id, known] : known_) {
      if (!known.started && known.deadline) {
        ASSERT_GT(*known.deadline, now_) << "request " << id << " expired untold";
      }
    }
  }

  void GiveTasks() {
    while (!idle_.empty()) {
      const WorkerId worker = *idle_.begin();
      const std::optional<Task> task = scheduler_->Next(worker, now_);
      if (!task) break;
      idle_.erase(idle_.begin());
      CheckTask(*task);
      running_.emplace(now_ + microseconds(Pick(1, 40)), *task);
      ++tasks_;
    }
    if (!idle_.empty()) CheckNobodyIsHeldTooLong();
  }

  void CheckTask(const Task& task) {
    ASSERT_FALSE(task.nodes.empty());
    int32_t rows = 0;
    int32_t size = 0;
    int32_t length = 0;
    for (const NodeRef& ref : task.nodes) {
      ASSERT_TRUE(known_.contains(ref.request)) << "request " << ref.request << " had left";
      Known& known = known_.at(ref.request);
      const KnownNode& node = known.nodes[ref.node];
      EXPECT_FALSE(known.leaving);
      ++known.in_flight;
      EXPECT_EQ(node.type, task.type);
      EXPECT_EQ(++known.runs[ref.node], 1);
      for (int32_t d : node.dependencies) EXPECT_TRUE(known.ended[d]);
      if (!known.started) {
        EXPECT_TRUE(!known.deadline || *known.deadline > now_);
        if (known.client != 0) {
          EXPECT_EQ(order_[known.client].front(), ref.request) << "client " << known.client;
        }
        Unorder(ref.request, known);
        known.started = true;
      }
      rows += node.rows;
      size += std::max(1, node.rows);
      length = std::max(length, known.length);
    }
    EXPECT_EQ(task.rows, rows);
    EXPECT_EQ(task.length, setup_.policy == "packed" ? 0 : length);
    const int limit = setup_.policy == "none" ? 1 : setup_.max_batch_size;
    EXPECT_TRUE(size <= limit || task.nodes.size() == 1) << size << " rows";
  }

  // With a worker idle and nothing to run, no node that may start has been ready for the delay.
  void CheckNobodyIsHeldTooLong() {
    const Duration delay =
        setup_.policy == "none" ? Duration(0) : Duration(microseconds(setup_.queue_delay_us));
    for (const auto& [id, known] : known_) {
      if (known.leaving) continue;
      if (!known.started && known.client != 0 && order_.at(known.client).front() != id) continue;
      for (size_t i = 0; i < known.nodes.size(); ++i) {
        if (known.runs[i] > 0) continue;
        const auto& deps = known.nodes[i].dependencies;
        const auto& ended = known.ended;
        if (!std::all_of(deps.begin(), deps.end(), [&ended](int32_t d) { return ended[d]; })) {
          continue;
        }
        ASSERT_LT(now_, known.ready_at[i] + delay) << "node " << i << " of request " << id;
      }
    }
  }

  void EndTask() {
    const auto it = running_.begin();
    const Task task = it->second;
    running_.erase(it);
    idle_.insert(task.worker);
    std::list<std::vector<int32_t>> grown;
    std::vector<Scheduler::Growth> growth;
    for (const NodeRef& ref : task.nodes) {
      Known& known = known_.at(ref.request);
      --known.in_flight;
      if (known.leaving) continue;
      known.ended[ref.node] = true;
      for (size_t i = 0; i < known.nodes.size(); ++i) {
        const auto& deps = known.nodes[i].dependencies;
        if (std::find(deps.begin(), deps.end(), ref.node) != deps.end()) known.ready_at[i] = now_;
      }
      if (Chance(0.05)) {
        const KnownNode node{.type = static_cast<CellType>(Pick(0, setup_.types - 1)),
                             .rows = 1,
                             .dependencies = {ref.node}};
        grown.push_back(node.dependencies);
        growth.push_back({ref.request, node.type, node.rows, grown.back()});
        known.nodes.push_back(node);
        known.runs.push_back(0);
        known.ended.push_back(false);
        known.ready_at.push_back(now_);
      }
    }
    const std::vector<BatchRequestId> left = scheduler_->Complete(task.id, now_, growth);
    std::set<BatchRequestId> expected;
    for (const NodeRef& ref : task.nodes) {
      const Known& known = known_.at(ref.request);
      const auto& ended = known.ended;
      const bool finished = std::all_of(ended.begin(), ended.end(), [](bool e) { return e; });
      if (known.in_flight == 0 && (known.leaving || finished)) expected.insert(ref.request);
    }
    EXPECT_EQ(std::set<BatchRequestId>(left.begin(), left.end()), expected);
    EXPECT_EQ(left.size(), expected.size());
    for (BatchRequestId id : expected) known_.erase(id);
    completed_ += static_cast<int>(expected.size());
  }

  void CheckEnd() {
    EXPECT_EQ(scheduler_->waiting(), 0);
    EXPECT_EQ(scheduler_->WakeAt(now_), std::nullopt);
    // The schedule did exercise what it is for.
    EXPECT_GT(completed_, 0);
    EXPECT_GT(expired_, 0);
    EXPECT_GT(tasks_, 0);
  }

  const Setup setup_;
  const PaddedCosts costs_;
  std::mt19937 random_;
  std::unique_ptr<Scheduler> scheduler_;
  TimePoint now_{};
  BatchRequestId next_id_ = 1;
  std::map<BatchRequestId, Known> known_;
  std::map<ClientId, std::vector<BatchRequestId>> order_;  // not started, in order
  std::set<WorkerId> idle_;
  std::multimap<TimePoint, Task> running_;
  int completed_ = 0;
  int expired_ = 0;
  int tasks_ = 0;
};

class RandomScheduleTest : public ::testing::TestWithParam<Setup> {};

TEST_P(RandomScheduleTest, KeepsEveryPromise) { Simulation(GetParam()).Run(); }

INSTANTIATE_TEST_SUITE_P(Schedules, RandomScheduleTest,
                         ::testing::Values(Setup{"none", 1, 0, {}, 3, 2, 0.1, 1},
                                           Setup{"window", 8, 0, {}, 1, 1, 0.3, 2},
                                           Setup{"window", 8, 0, {}, 4, 5, 0.5, 3},
                                           Setup{"window", 8, 50, {}, 2, 3, 0.3, 4},
                                           Setup{"window", 16, 100, {4, 8}, 3, 4, 0.4, 5},
                                           Setup{"window", 4, 20, {2}, 8, 20, 0.4, 6},
                                           Setup{"window", 1, 30, {}, 2, 2, 0.1, 7},
                                           Setup{"packed", 8, 0, {}, 1, 1, 0.3, 8, 40000},
                                           Setup{"packed", 8, 0, {}, 4, 3, 0.8, 9, 40000},
                                           Setup{"packed", 2, 0, {}, 2, 2, 0.1, 10, 40000},
                                           Setup{"naive", 8, 0, {}, 3, 2, 0.5, 11, 40000},
                                           Setup{"length_dp", 8, 0, {}, 1, 1, 0.1, 12, 40000},
                                           Setup{"length_dp", 8, 0, {}, 4, 3, 0.6, 13, 40000},
                                           Setup{"length_dp", 8, 80, {}, 2, 2, 0.3, 14, 40000}));

}  // namespace random_schedule_test
}  // namespace chairlift
