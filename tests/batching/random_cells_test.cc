// Long random schedules of cell graphs on workers that run ahead, in virtual time, against what
// every policy promises: each node once, after what it reads; no request forgotten; no task empty.
#include <gtest/gtest.h>

#include <deque>
#include <list>
#include <map>
#include <random>
#include <set>

#include "batching/length_costs.h"
#include "batching/policies/cellular.h"
#include "batching/policy.h"

namespace chairlift {
namespace random_cells_test {

using std::chrono::microseconds;

struct Setup {
  std::string policy;
  PolicyOptions options;
  int workers;
  double load;  // arrivals per microsecond
  unsigned seed;
  bool clients = true;
  bool steps = false;  // tasks may have several
};

struct KnownNode {
  CellType type;
  int32_t rows;
  std::vector<int32_t> dependencies;
  int32_t follows = -1;
  int32_t follower = -1;
  TaskId task = 0;
  WorkerId worker = -1;  // of the task that it was started in
  bool ended = false;
};

// What the test knows, from events alone, of a request that has not left.
struct Known {
  std::vector<KnownNode> nodes;
  size_t came_with_it = 0;  // the first nodes; the others grew
  ClientId client = 0;
  std::optional<TimePoint> deadline;
  int growths = 0;  // still to come
  int ended = 0;
  int in_flight = 0;
  bool started = false;
  bool leaving = false;  // cancelled
  // Tasks started since a node of it could be: nothing it reads is missing or in flight.
  int64_t free_since = -1;
  int64_t may_wait_for = 0;  // turns of others of its type, from then on
};

constexpr CellType kTypes = 6;

class Schedule {
 public:
  explicit Schedule(const Setup& setup) : setup_(setup), random_(setup.seed) {
    auto made = MakeScheduler(setup.policy, setup.options);
    EXPECT_TRUE(made.ok()) << made.status();
    scheduler_ = *std::move(made);
    EXPECT_EQ(setup.options.step_costs != nullptr, setup.steps);
    streams_.resize(setup.workers);
  }

  void Run(int events) {
    std::exponential_distribution<double> gap(setup_.load);
    TimePoint next_arrival{};
    int done = 0;
    while (!::testing::Test::HasFatalFailure()) {
      std::optional<TimePoint> next;
      const auto consider = [&next](std::optional<TimePoint> t) {
        if (t && (!next || *t < *next)) next = t;
      };
      if (done < events) consider(next_arrival);
      for (const auto& stream : streams_) {
        if (!stream.empty()) consider(stream.front().end);
      }
      const std::optional<TimePoint> wake = scheduler_->WakeAt(now_);
      if (wake) {
        ASSERT_GT(*wake, now_);
      }
      consider(wake);
      if (!next) break;
      now_ = *next;
      for (auto& stream : streams_) {
        while (!stream.empty() && stream.front().end <= now_) {
          End(stream);
          ++done;
        }
      }
      while (done < events && next_arrival <= now_) {
        Chance(0.1) ? CancelSome() : Arrive();
        ++done;
        next_arrival += Duration(1 + static_cast<int64_t>(gap(random_) * 1000));
      }
      TakeExpired();
      for (size_t w = 0; w < streams_.size(); ++w) Fill(static_cast<WorkerId>(w));
      CheckOldest();
    }
    EXPECT_TRUE(known_.empty()) << known_.size() << " requests are lost";
    EXPECT_EQ(scheduler_->waiting(), 0);
    // The schedule did exercise what it is for.
    EXPECT_GT(finished_, events / 20);
    EXPECT_GT(expired_, 0);
    EXPECT_GT(cancelled_in_flight_, 0);
    EXPECT_GT(grown_, 0);
    EXPECT_GT(runs_, 0);
    EXPECT_GT(grown_runs_, 0);
    EXPECT_EQ(several_steps_ > 0, setup_.steps);
    if (OneByOne()) {
      EXPECT_EQ(large_ > 0, LimitOf(0) < setup_.options.max_batch_size);
    }
  }

 private:
  struct Running {
    Task task;
    TimePoint end;
  };

  // Whether requests start one by one: where they start as a batch, its nodes come in any order.
  bool OneByOne() const { return setup_.policy == "cellular"; }
  // Rows of a task where not many wait.
  int LimitOf(CellType type) const {
    const auto& types = setup_.options.cell_types;
    const int own = type < types.size() ? types[type].max_batch_size : 0;
    return own > 0 ? own : setup_.options.max_batch_size;
  }
  bool Chance(double p) { return std::uniform_real_distribution<double>()(random_) < p; }
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  static int32_t AddNode(std::vector<KnownNode>& nodes, KnownNode node) {
    const auto added = static_cast<int32_t>(nodes.size());
    if (node.follows >= 0) nodes[node.follows].follower = added;
    nodes.push_back(std::move(node));
    return added;
  }

  // A projection over all steps, a chain, a second layer, a head; or a random graph.
  void Build(std::vector<KnownNode>& nodes) {
    const auto add = [&](CellType type, int32_t rows, std::vector<int32_t> dependencies,
                         int32_t follows = -1) {
      return AddNode(nodes, {type, rows, std::move(dependencies), follows});
    };
    if (Chance(0.5)) {
      const int length = Pick(1, 12);
      const bool steps_follow = Chance(0.8);
      const bool read_the_step_before_only = Chance(0.7);
      const int32_t projection = add(0, length, {});
      std::vector<int32_t> steps;
      for (int t = 0; t < length; ++t) {
        std::vector<int32_t> read;
        if (t == 0 || !read_the_step_before_only) read.push_back(projection);
        if (t > 0) read.push_back(steps.back());
        steps.push_back(add(1, 1, read, t > 0 && steps_follow ? steps.back() : -1));
      }
      int32_t last = steps.back();
      if (Chance(0.5)) {
        for (int t = 0; t < length; ++t) {
          // Some steps read nothing new: several of the layer below at once.
          const bool reads = t == 0 || Chance(0.5);
          const std::vector<int32_t> read =
              reads ? std::vector<int32_t>{last, steps[t], last} : std::vector<int32_t>{last};
          last = t == 0 ? add(2, 1, {steps[0]}) : add(2, 1, read, steps_follow ? last : -1);
        }
      }
      add(3, 1, {last});
      return;
    }
    const int count = Pick(1, 12);
    for (int i = 0; i < count; ++i) {
      std::vector<int32_t> dependencies;
      for (int d = std::max(0, i - 4); d < i; ++d) {
        if (Chance(0.4)) dependencies.push_back(d);
      }
      const int32_t rows = Chance(0.02) ? setup_.options.max_batch_size + 3 : Pick(0, 2);
      add(static_cast<CellType>(Pick(0, kTypes - 1)), rows, dependencies);
    }
  }

  // The nodes as they are, or some of those that could be runs as such.
  CellGraph GraphOf(const std::vector<KnownNode>& nodes) {
    CellGraph graph;
    const auto end = static_cast<int32_t>(nodes.size());
    for (int32_t first = 0; first < end;) {
      const KnownNode& node = nodes[first];
      int32_t next = first + 1;
      const auto goes_on = [&] {
        return next < end && nodes[next].follows == next - 1 &&
               nodes[next].dependencies == std::vector<int32_t>{next - 1} && Chance(0.9);
      };
      while (goes_on()) ++next;
      graph.Add(node.type, node.rows, node.dependencies, node.follows, next - first);
      runs_ += next - first > 1 ? 1 : 0;
      first = next;
    }
    return graph;
  }

  void Arrive() {
    const BatchRequestId id = next_id_++;
    Known& known = known_[id];
    Build(known.nodes);
    known.came_with_it = known.nodes.size();
    const CellGraph graph = GraphOf(known.nodes);
    known.growths = Chance(0.3) ? Pick(1, 6) : 0;
    known.client = setup_.clients && Chance(0.3) ? Pick(1, 3) : 0;
    if (Chance(0.2)) known.deadline = now_ + microseconds(Pick(0, 2000));
    if (known.client != 0) order_[known.client].push_back(id);
    std::unique_ptr<PreparedGraph> prepared = scheduler_->Prepare(graph);
    if (prepared != nullptr && Chance(0.5)) {
      scheduler_->ArrivePrepared(id, graph, std::move(prepared), known.client, now_,
                                 known.deadline);
    } else {
      scheduler_->Arrive(id, graph, known.client, now_, known.deadline);
    }
  }

  void CancelSome() {
    const BatchRequestId id = next_id_ - std::min<BatchRequestId>(next_id_, Pick(1, 60));
    const auto found = known_.find(id);
    const bool stays = found != known_.end() && found->second.in_flight > 0;
    const bool left = scheduler_->Cancel(id, now_);
    if (stays) {
      ASSERT_FALSE(left);
    }
    if (found == known_.end()) return;
    const bool may_stay = stays || !OneByOne();
    ASSERT_TRUE(left || may_stay);
    found->second.leaving = true;
    Unorder(id, found->second);
    if (!left) {
      ++cancelled_in_flight_;
    } else {
      known_.erase(found);
    }
  }

  void Unorder(BatchRequestId id, const Known& known) {
    if (known.client == 0) return;
    auto& order = order_[known.client];
    order.erase(std::remove(order.begin(), order.end(), id), order.end());
  }

  void TakeExpired() {
    for (const BatchRequestId id : scheduler_->TakeExpired(now_)) {
      const auto found = known_.find(id);
      ASSERT_NE(found, known_.end()) << "request " << id << " had left";
      EXPECT_TRUE(found->second.deadline && *found->second.deadline <= now_);
      EXPECT_EQ(found->second.in_flight, 0);
      EXPECT_FALSE(found->second.leaving);
      Unorder(id, found->second);
      known_.erase(found);
      ++expired_;
    }
    if (!OneByOne()) return;
    for (const auto& [id, known] : known_) {
      if (known.deadline && !known.started) {
        ASSERT_GT(*known.deadline, now_) << "request " << id << " expired untold";
      }
    }
  }

  void Fill(WorkerId worker) {
    std::deque<Running>& stream = streams_[worker];
    while (stream.size() < 8) {
      const std::optional<Task> task = scheduler_->Next(worker, now_);
      if (!task) break;
      Check(*task, worker);
      if (::testing::Test::HasFatalFailure()) return;
      const TimePoint begin = stream.empty() ? now_ : stream.back().end;
      stream.push_back({*task, begin + microseconds(Pick(1, 10) + task->rows / 2)});
      ++tasks_;
    }
  }

  void Check(const Task& task, WorkerId worker) {
    ASSERT_TRUE(!task.nodes.empty() || task.padding_rows > 0) << "an empty task";
    EXPECT_EQ(task.worker, worker);
    int32_t rows = 0;
    int32_t size = 0;
    int32_t steps = task.steps();
    std::map<ClientId, std::set<BatchRequestId>> starting;
    for (const NodeRef& ref : task.nodes) {
      const auto found = known_.find(ref.request);
      ASSERT_NE(found, known_.end()) << "request " << ref.request << " had left";
      Known& known = found->second;
      ASSERT_FALSE(known.leaving);
      ASSERT_LE(ref.steps, steps) << "the batch does not narrow from its end";
      steps = ref.steps;
      ASSERT_GE(steps, 1);
      const KnownNode& node = known.nodes.at(ref.node);
      ASSERT_EQ(node.type, task.type);
      ASSERT_TRUE(steps == 1 || node.rows == 1);
      CheckSteps(known, ref, task);
      if (::testing::Test::HasFatalFailure()) return;
      if (!known.started && known.client != 0) starting[known.client].insert(ref.request);
      known.started = true;
      known.free_since = -1;
      ++known.in_flight;
      rows += node.rows;
      size += std::max(1, node.rows);
    }
    for (const auto& [client, requests] : starting) {
      for (const BatchRequestId id : requests) {
        if (OneByOne()) {
          ASSERT_EQ(order_[client].front(), id) << "client " << client;
        }
        Unorder(id, known_.at(id));
      }
    }
    several_steps_ += task.steps() > 1 ? 1 : 0;
    large_ += task.nodes.size() > 1 && size > LimitOf(task.type) ? 1 : 0;
    EXPECT_EQ(task.rows, rows);
    if (OneByOne()) {
      EXPECT_TRUE(size <= setup_.options.max_batch_size || task.nodes.size() == 1) << size;
    }
  }

  // Marks the nodes of all steps.
  static void CheckSteps(Known& known, const NodeRef& ref, const Task& task) {
    int32_t index = ref.node;
    for (int32_t step = 0; step < ref.steps; ++step) {
      ASSERT_GE(index, 0) << "a step of a node that nothing follows";
      KnownNode& node = known.nodes[index];
      ASSERT_EQ(node.worker, -1) << "a node is given out twice";
      node.worker = task.worker;
      node.task = task.id;
      // What it reads is complete, earlier in this very stream, or the step before.
      for (const int32_t d : node.dependencies) {
        const KnownNode& read = known.nodes[d];
        ASSERT_TRUE(read.ended || read.worker == task.worker);
        ASSERT_TRUE(read.task != task.id || (step > 0 && d == node.follows));
      }
      index = node.follower;
    }
  }

  void End(std::deque<Running>& stream) {
    const Task task = stream.front().task;
    stream.pop_front();
    std::list<std::vector<int32_t>> lists;
    std::vector<Scheduler::Growth> growth;
    for (const NodeRef& ref : task.nodes) {
      Known& known = known_.at(ref.request);
      int32_t last = ref.node;
      for (int32_t step = 0; step < ref.steps; ++step) {
        if (step > 0) last = known.nodes[last].follower;
        known.nodes[last].ended = true;
      }
      --known.in_flight;
      known.ended += ref.steps;
      if (known.growths == 0 || !Chance(0.5)) continue;
      --known.growths;
      ++grown_;
      const int count = Pick(1, 2);
      for (int i = 0; i < count; ++i) {
        // Reads from what has just ended, and sometimes from something that has not.
        lists.push_back({last});
        if (Chance(0.3)) lists.back().push_back(static_cast<int32_t>(known.nodes.size()) - 1);
        const KnownNode& before = known.nodes[last];
        const bool follows = before.rows == 1 && before.follower < 0 && Chance(0.7);
        const auto type = follows ? before.type : static_cast<CellType>(Pick(0, kTypes - 1));
        const int32_t nodes = Chance(0.3) ? Pick(2, 5) : 1;
        growth.push_back({ref.request, type, 1, lists.back(), follows ? last : -1, nodes});
        if (known.leaving) continue;
        int32_t added = AddNode(known.nodes, {type, 1, lists.back(), growth.back().follows});
        for (int32_t n = 1; n < nodes; ++n) {
          added = AddNode(known.nodes, {type, 1, {added}, added});
        }
        grown_runs_ += nodes > 1 ? 1 : 0;
        if (follows) last = added;
      }
    }
    const std::vector<BatchRequestId> left = scheduler_->Complete(task.id, now_, growth);
    for (const BatchRequestId id : left) {
      const auto found = known_.find(id);
      ASSERT_NE(found, known_.end()) << "request " << id << " had left";
      const Known& known = found->second;
      ASSERT_EQ(known.in_flight, 0);
      ASSERT_TRUE(known.leaving || known.ended == static_cast<int>(known.nodes.size()));
      finished_ += known.leaving ? 0 : 1;
      known_.erase(found);
    }
  }

  // No starvation: the oldest request that may run at all is not kept waiting while others do.
  void CheckOldest() {
    if (!OneByOne()) return;
    for (auto& [id, oldest] : known_) {
      Known& known = oldest;
      if (known.leaving) continue;
      if (!known.started && known.client != 0 && order_.at(known.client).front() != id) continue;
      const auto free = [&known](const KnownNode& node) {
        return node.worker < 0 && std::all_of(node.dependencies.begin(), node.dependencies.end(),
                                              [&](int32_t d) { return known.nodes[d].ended; });
      };
      if (known.in_flight > 0 || !std::any_of(known.nodes.begin(), known.nodes.end(), free)) break;
      if (known.free_since < 0) {
        known.free_since = tasks_;
        const auto grown = known.nodes.begin() + static_cast<std::ptrdiff_t>(known.came_with_it);
        // What grew comes after all that was there, whosever it is.
        known.may_wait_for = std::any_of(known.nodes.begin(), grown, free) ? 0 : NodesToCome();
      }
      const int64_t turn = (kCellularPatience + kTypes) * setup_.workers;
      ASSERT_LE(tasks_ - known.free_since, turn * (1 + known.may_wait_for))
          << "request " << id << " starves";
      break;
    }
  }

  // Nodes of all requests that are not started, or are to grow.
  int64_t NodesToCome() const {
    constexpr int kMostOfOneGrowth = 2 * 5;
    int64_t nodes = 0;
    for (const auto& [id, known] : known_) {
      nodes += known.growths * kMostOfOneGrowth;
      nodes += std::count_if(known.nodes.begin(), known.nodes.end(),
                             [](const KnownNode& node) { return node.worker < 0; });
    }
    return nodes;
  }

  const Setup setup_;
  std::mt19937 random_;
  std::unique_ptr<Scheduler> scheduler_;
  TimePoint now_{};
  BatchRequestId next_id_ = 1;
  std::map<BatchRequestId, Known> known_;
  std::map<ClientId, std::deque<BatchRequestId>> order_;  // not started, in order
  std::vector<std::deque<Running>> streams_;
  int64_t tasks_ = 0;
  int finished_ = 0;
  int expired_ = 0;
  int cancelled_in_flight_ = 0;
  int grown_ = 0;
  int runs_ = 0;  // of several nodes
  int grown_runs_ = 0;
  int several_steps_ = 0;  // tasks
  int large_ = 0;          // tasks that many waited for
};

class RandomCellsTest : public ::testing::TestWithParam<Setup> {};

TEST_P(RandomCellsTest, KeepsEveryPromise) { Schedule(GetParam()).Run(100000); }

PolicyOptions Options(int max, int run_ahead, bool adaptive, std::vector<CellTypeOptions> types) {
  return {.max_batch_size = max,
          .cell_types = std::move(types),
          .max_tasks_to_submit = run_ahead,
          .adaptive_run_ahead = adaptive};
}

std::vector<CellTypeOptions> LargeWhereManyWait() {
  return std::vector<CellTypeOptions>(kTypes,
                                      CellTypeOptions{.max_batch_size = 6, .most_batch_size = 8});
}

// A task costs 2 µs, a step of one row 1 µs, of 64 rows `wide`.
template <int wide>
const LengthCosts& CostsOfSteps() {
  static const LengthCosts kCosts = [] {
    LengthCosts costs;
    for (CellType type = 0; type < kTypes; ++type) {
      EXPECT_TRUE(costs
                      .AddType({{0, 0, microseconds(2)},
                                {1, 0, microseconds(3)},
                                {64, 0, microseconds(2 + wide)}})
                      .ok());
    }
    return costs;
  }();
  return kCosts;
}

// Steps cost hardly more for more rows; tasks have up to 7.
PolicyOptions WithSteps(PolicyOptions options) {
  options.time_slice = microseconds(6);
  options.step_costs = &CostsOfSteps<4>();
  return options;
}

// Steps cost as much as they have rows: two rows are enough for a task, where they go on for long.
PolicyOptions DeepBeforeWide(PolicyOptions options) {
  options.time_slice = microseconds(10);
  options.step_costs = &CostsOfSteps<64>();
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Cellular, RandomCellsTest,
    ::testing::Values(
        Setup{"cellular", Options(8, 5, true, {}), 1, 0.03, 1},
        Setup{"cellular", Options(8, 5, false, {}), 1, 0.03, 2},
        Setup{"cellular", Options(8, 5, false, {}), 4, 0.12, 3},
        Setup{"cellular", Options(8, 5, true, {}), 4, 0.12, 4},
        Setup{"cellular", Options(8, 3, true, {{}, {.min_batch_size = 4}}), 3, 0.09, 5},
        Setup{"cellular", Options(64, 5, false, {{}, {.min_batch_size = 8}}), 2, 0.1, 6},
        Setup{"cellular", Options(1, 2, true, {}), 8, 0.05, 7},
        Setup{"cellular", Options(8, 5, true, LargeWhereManyWait()), 2, 0.06, 9},
        Setup{"cellular", Options(8, 5, true, {}), 2, 0.11, 10},  // more than they can do
        Setup{"cellular", Options(4, 5, true, {}), 8, 0.3, 8, false}));

INSTANTIATE_TEST_SUITE_P(
    CellularInSteps, RandomCellsTest,
    ::testing::Values(
        Setup{"cellular", WithSteps(Options(8, 5, true, {})), 1, 0.03, 21, true, true},
        Setup{"cellular", WithSteps(Options(8, 5, false, {})), 4, 0.12, 22, true, true},
        Setup{"cellular", WithSteps(Options(8, 5, true, {})), 4, 0.12, 23, true, true},
        Setup{"cellular", WithSteps(Options(8, 3, true, {{}, {.min_batch_size = 4}})), 3, 0.09, 24,
              true, true},
        Setup{"cellular", WithSteps(Options(64, 5, false, {})), 2, 0.1, 25, true, true},
        Setup{"cellular", WithSteps(Options(1, 2, true, {})), 8, 0.05, 26, true, true},
        Setup{"cellular", WithSteps(Options(8, 5, true, LargeWhereManyWait())), 2, 0.08, 28, true,
              true},
        Setup{"cellular", WithSteps(Options(8, 5, true, LargeWhereManyWait())), 2, 0.13, 29, true,
              true},  // likewise
        Setup{"cellular", WithSteps(Options(4, 1, true, {})), 8, 0.3, 27, false, true},
        Setup{"cellular", DeepBeforeWide(Options(8, 1, true, {})), 2, 0.06, 30, true, true},
        Setup{"cellular", DeepBeforeWide(Options(64, 3, false, {})), 4, 0.1, 31, true, true},
        Setup{"cellular", DeepBeforeWide(Options(8, 5, true, LargeWhereManyWait())), 2, 0.1, 32,
              true, true}));

INSTANTIATE_TEST_SUITE_P(
    GraphBatching, RandomCellsTest,
    ::testing::Values(Setup{"bucketed", Options(16, 5, false, {}), 1, 0.01, 11},
                      Setup{"bucketed", Options(16, 3, false, {}), 4, 0.04, 12},
                      Setup{"graph_merge", Options(16, 5, false, {}), 1, 0.01, 13},
                      Setup{"graph_merge", Options(64, 2, false, {}), 3, 0.05, 14},
                      Setup{"ideal", Options(16, 5, false, {}), 1, 0.003, 15},
                      Setup{"ideal", Options(8, 5, false, {}), 3, 0.01, 16}));

INSTANTIATE_TEST_SUITE_P(
    GraphBatchingInSteps, RandomCellsTest,
    ::testing::Values(
        Setup{"bucketed", WithSteps(Options(16, 5, false, {})), 1, 0.01, 31, true, true},
        Setup{"bucketed", WithSteps(Options(16, 3, false, {})), 4, 0.04, 32, true, true},
        Setup{"graph_merge", WithSteps(Options(16, 5, false, {})), 1, 0.01, 33, true, true},
        Setup{"graph_merge", WithSteps(Options(64, 2, false, {})), 3, 0.05, 34, true, true}));

}  // namespace random_cells_test
}  // namespace chairlift
