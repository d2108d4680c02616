// Continuous batching in virtual time: worked examples, then random schedules against what the
// policy promises.
#include "batching/policies/continuous.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

CellGraph Prompt(std::initializer_list<int32_t> pieces, int64_t state = 0) {
  CellGraph graph;
  for (const int32_t rows : pieces) graph.Add(0, rows);
  graph.set_state(state);
  return graph;
}

// What a task of these requests makes of them: those of `ends` end, others have one more step.
std::vector<BatchRequestId> Complete(Scheduler& scheduler, const Task& task, TimePoint now,
                                     std::map<BatchRequestId, int32_t>& nodes,
                                     const std::set<BatchRequestId>& ends = {}) {
  std::vector<Scheduler::Growth> grown;
  for (const NodeRef& node : task.nodes) {
    if (node.node + 1 < nodes.at(node.request) || ends.contains(node.request)) continue;
    nodes[node.request] = node.node + 2;
    grown.push_back(
        {.request = node.request, .type = 0, .rows = 1, .dependencies = {&node.node, 1}});
  }
  return scheduler.Complete(task.id, now, grown);
}

std::vector<std::pair<BatchRequestId, int32_t>> PartsOf(const std::optional<Task>& task) {
  std::vector<std::pair<BatchRequestId, int32_t>> parts;
  if (task) {
    for (const NodeRef& node : task->nodes) parts.emplace_back(node.request, node.node);
  }
  return parts;
}

using Parts = std::vector<std::pair<BatchRequestId, int32_t>>;

TEST(ContinuousTest, StepsRideTogetherAndOnePieceOfAPromptBesideThem) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 8});
  std::map<BatchRequestId, int32_t> nodes = {{1, 2}, {2, 3}};
  scheduler->Arrive(1, Prompt({4, 2}), 0, At(0), {});
  auto task = scheduler->Next(0, At(0));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0}, {1, 1}}));  // nobody steps: all pieces that fit
  EXPECT_TRUE(task->by_team);
  EXPECT_EQ(task->rows, 6);
  EXPECT_FALSE(scheduler->Next(1, At(1)));  // one task at a time
  scheduler->Arrive(2, Prompt({4, 4, 1}), 0, At(1), {});
  Complete(*scheduler, *task, At(5), nodes);
  for (const int32_t piece : {0, 1, 2}) {
    task = scheduler->Next(1, At(5));
    EXPECT_EQ(PartsOf(task), (Parts{{1, 2 + piece}, {2, piece}}));
    Complete(*scheduler, *task, At(6), nodes);
  }
  task = scheduler->Next(0, At(6));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 5}, {2, 3}}));
  EXPECT_EQ(Complete(*scheduler, *task, At(7), nodes, {1}), std::vector<BatchRequestId>{1});
  task = scheduler->Next(0, At(7));
  EXPECT_EQ(PartsOf(task), (Parts{{2, 4}}));
  EXPECT_EQ(Complete(*scheduler, *task, At(8), nodes, {2}), std::vector<BatchRequestId>{2});
  EXPECT_FALSE(scheduler->Next(0, At(8)));
}

TEST(ContinuousTest, ARequestStartsWhenThereIsRoomForAllThatItMayGrowTo) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 8, .state_capacity = 10});
  std::map<BatchRequestId, int32_t> nodes = {{1, 1}, {2, 1}, {3, 1}};
  scheduler->Arrive(1, Prompt({1}, 6), 0, At(0), {});
  scheduler->Arrive(2, Prompt({1}, 5), 0, At(0), {});
  scheduler->Arrive(3, Prompt({1}, 1), 0, At(0), {});
  auto task = scheduler->Next(0, At(0));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0}}));  // the third would fit, but does not pass the second
  EXPECT_EQ(scheduler->waiting(), 2);
  Complete(*scheduler, *task, At(1), nodes, {1});
  task = scheduler->Next(0, At(1));
  EXPECT_EQ(PartsOf(task), (Parts{{2, 0}, {3, 0}}));
  EXPECT_FALSE(scheduler->Cancel(2, At(2)));  // in flight
  scheduler->Arrive(4, Prompt({1}, 11), 0, At(2), {});
  nodes[4] = 1;
  EXPECT_EQ(Complete(*scheduler, *task, At(3), nodes), std::vector<BatchRequestId>{2});
  task = scheduler->Next(0, At(3));
  EXPECT_EQ(PartsOf(task), (Parts{{3, 1}}));  // the fourth fits alone only
  Complete(*scheduler, *task, At(4), nodes, {3});
  task = scheduler->Next(0, At(4));
  EXPECT_EQ(PartsOf(task), (Parts{{4, 0}}));
}

TEST(ContinuousTest, WhatEncodersComputeAndStepsTakeTurns) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 8});
  std::map<BatchRequestId, int32_t> nodes;
  const auto arrive = [&](BatchRequestId id, int32_t rows) {
    CellGraph graph;
    graph.Add(1, rows);
    nodes[id] = 1;
    scheduler->Arrive(id, graph, 0, At(0), {});
  };
  arrive(1, 20);
  auto task = scheduler->Next(0, At(0));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0}}));  // larger than a task: alone
  EXPECT_EQ(task->type, 1);
  Complete(*scheduler, *task, At(1), nodes);
  for (const BatchRequestId id : {2, 3, 4}) arrive(id, 4);
  const std::pair<CellType, Parts> turns[] = {{0, {{1, 1}}},
                                              {1, {{2, 0}, {3, 0}}},
                                              {0, {{1, 2}, {2, 1}, {3, 1}}},
                                              {1, {{4, 0}}},
                                              {0, {{1, 3}, {2, 2}, {3, 2}, {4, 1}}},
                                              {0, {{1, 4}, {2, 3}, {3, 3}, {4, 2}}}};
  int at = 1;
  for (const auto& [type, parts] : turns) {
    task = scheduler->Next(0, At(at));
    EXPECT_EQ(PartsOf(task), parts);
    EXPECT_EQ(task->type, type);
    Complete(*scheduler, *task, At(++at), nodes);
  }
}

TEST(ContinuousTest, MoreStepsThanFitTakeTurns) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 2});
  std::map<BatchRequestId, int32_t> nodes;
  for (BatchRequestId id = 1; id <= 3; ++id) {
    nodes[id] = 1;
    scheduler->Arrive(id, Prompt({1}), 0, At(0), {});
  }
  std::map<BatchRequestId, int> rides;
  for (int i = 0; i < 30; ++i) {
    const auto task = scheduler->Next(0, At(i));
    ASSERT_TRUE(task);
    EXPECT_LE(task->rows, 3);
    for (const NodeRef& node : task->nodes) ++rides[node.request];
    Complete(*scheduler, *task, At(i + 1), nodes);
  }
  for (const auto& [id, count] : rides) EXPECT_GE(count, 18) << id;
}

// What the test knows of a request, from events alone.
struct Known {
  std::vector<int32_t> rows;    // by node
  std::vector<CellType> types;  // likewise
  int waited = 0;               // tasks, with a step that was ready
  size_t pieces = 0;
  int steps_left = 0;
  size_t given = 0;
  int64_t state = 0;
  uint64_t arrival = 0;
  bool in_flight = false, started = false, leaving = false;
  std::optional<TimePoint> deadline;
  bool done() const { return given == rows.size(); }
  bool steps() const { return given >= pieces && !done(); }
  void Add(int32_t node_rows, CellType type = 0) {
    rows.push_back(node_rows);
    types.push_back(type);
  }
};

TEST(ContinuousTest, RandomSchedules) {
  int expired = 0, cancelled_in_flight = 0, held_back = 0, beside = 0, ended = 0, apart = 0,
      again = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const int most = pick(1, 12), piece = pick(1, 6);
    const int64_t capacity = seed % 3 == 0 ? 0 : pick(5, 40);
    // A request begins with one node of another type, which may have to be tried again.
    const bool encoders = seed % 4 == 3;
    bool stepped = false;  // the last task had steps
    int most_known = 0;
    const auto scheduler =
        MakePolicy("continuous", {.max_batch_size = most, .state_capacity = capacity});
    std::map<BatchRequestId, Known> known;
    std::optional<Task> running;
    BatchRequestId next = 1;
    TimePoint now = At(0);
    const auto leave = [&](BatchRequestId id) { ASSERT_EQ(known.erase(id), 1u); };
    for (int event = 0; event < 3000 || !known.empty(); ++event) {
      ASSERT_LT(event, 40000) << "somebody is forgotten";
      now += std::chrono::microseconds(1);
      for (const BatchRequestId id : scheduler->TakeExpired(now)) {
        ASSERT_FALSE(known.at(id).in_flight);
        ASSERT_LE(*known.at(id).deadline, now);
        leave(id);
        ++expired;
      }
      const int choice = pick(0, 9);
      if (choice < 3 && event < 3000) {
        Known& fresh = known[next];
        CellGraph graph;
        for (int left = pick(1, 4 * piece); left > 0; left -= piece) {
          fresh.Add(encoders ? left : std::min(left, piece), encoders ? 1 : 0);
          graph.Add(fresh.types.back(), fresh.rows.back());
          if (encoders) break;
        }
        fresh.pieces = fresh.rows.size();
        most_known = std::max(most_known, static_cast<int>(known.size()));
        fresh.steps_left = pick(0, 8);
        fresh.state = pick(1, 12);
        fresh.arrival = next;
        graph.set_state(fresh.state);
        if (pick(0, 5) == 0) fresh.deadline = now + std::chrono::microseconds(pick(1, 60));
        scheduler->Arrive(next, graph, 0, now, fresh.deadline);
        ++next;
      } else if (choice == 3 && !known.empty() && pick(0, 3) == 0) {
        auto at = known.begin();
        std::advance(at, pick(0, static_cast<int>(known.size()) - 1));
        const bool left = scheduler->Cancel(at->first, now);
        ASSERT_EQ(left, !at->second.in_flight);
        if (left) {
          known.erase(at);
        } else {
          at->second.leaving = true;
          ++cancelled_in_flight;
        }
      } else if (running) {
        std::vector<Scheduler::Growth> grown;
        std::map<BatchRequestId, int32_t> last;
        for (const NodeRef& node : running->nodes) {
          known.at(node.request).in_flight = false;
          last[node.request] = node.node;
        }
        std::set<BatchRequestId> leaves;
        for (const auto& [id, node] : last) {
          Known& of = known.at(id);
          if (of.deadline && *of.deadline <= now) of.leaving = true;
          if (of.done() && of.types.back() == 1 && pick(0, 4) == 0) {
            of.Add(of.rows.back(), 1);
            grown.push_back(
                {.request = id, .type = 1, .rows = of.rows.back(), .dependencies = {&node, 1}});
            ++again;
          } else if (of.done() && of.steps_left > 0) {
            --of.steps_left;
            of.Add(1);
            grown.push_back({.request = id, .type = 0, .rows = 1, .dependencies = {&node, 1}});
          } else if (of.done()) {
            leaves.insert(id);
          }
        }
        const auto left = scheduler->Complete(running->id, now, grown);
        running.reset();
        for (const BatchRequestId id : left) {
          ASSERT_TRUE(leaves.contains(id) || known.at(id).leaving);
          leaves.erase(id);
          leave(id);
          ++ended;
        }
        for (const BatchRequestId id : scheduler->TakeExpired(now)) {
          ASSERT_TRUE(known.at(id).deadline && *known.at(id).deadline <= now);
          leaves.erase(id);
          leave(id);
          ++expired;
        }
        ASSERT_TRUE(leaves.empty());
      } else {
        for (const BatchRequestId id : scheduler->TakeExpired(now)) {
          leave(id);
          ++expired;
        }
        running = scheduler->Next(pick(0, 2), now);
        int64_t held = 0, started = 0;
        std::set<BatchRequestId> ready;
        for (const auto& [id, of] : known) {
          if (of.started) held += of.state;
          started += of.started ? 1 : 0;
          if (of.started && of.steps()) ready.insert(id);
        }
        if (!running) {
          ASSERT_TRUE(known.empty()) << "nothing is given out";
          continue;
        }
        ASSERT_FALSE(running->nodes.empty());
        int32_t rows = 0, pieces_of_prompts = 0, steps = 0;
        uint64_t latest = 0;
        for (const NodeRef& node : running->nodes) {
          Known& of = known.at(node.request);
          ASSERT_EQ(static_cast<size_t>(node.node), of.given) << "in order";
          (of.given < of.pieces ? pieces_of_prompts : steps) += 1;
          if (of.given < of.pieces) {
            ASSERT_GE(of.arrival, latest) << "prompts in order of arrival";
            latest = of.arrival;
          }
          ASSERT_EQ(of.types[of.given], running->type) << "one type in a task";
          of.waited = 0;
          rows += of.rows[of.given++];
          of.in_flight = true;
          if (!of.started) held += of.state;
          started += of.started ? 0 : 1;
          of.started = true;
          ready.erase(node.request);
        }
        ASSERT_EQ(rows, running->rows);
        ASSERT_TRUE(steps <= most || steps == 1);
        if (encoders) {
          // In turns, and in order where several types wait.
          ASSERT_TRUE(steps == 0 || pieces_of_prompts == 0 || running->type == 1);
          ASSERT_TRUE(steps > 0 || ready.empty() || stepped) << "not its turn";
          for (const BatchRequestId id : ready) {
            ASSERT_LE(++known.at(id).waited, 2 * most_known + 2);
          }
          apart += steps == 0 && !ready.empty() ? 1 : 0;
        } else {
          ASSERT_TRUE(ready.empty() || steps == most) << "a step is left behind";
        }
        stepped = steps > 0;
        if (steps > 0) {
          ASSERT_LE(pieces_of_prompts, 1);
          beside += pieces_of_prompts;
        } else {
          ASSERT_TRUE(rows <= most || pieces_of_prompts == 1);
        }
        if (capacity > 0) {
          ASSERT_TRUE(held <= capacity || started == 1);
        }
        // Requests start in order of arrival.
        bool waits = false;
        for (const auto& [id, of] : known) {
          ASSERT_FALSE(waits && of.started) << "passed";
          waits |= !of.started;
        }
        held_back += waits ? 1 : 0;
      }
    }
    EXPECT_EQ(scheduler->waiting(), 0);
  }
  EXPECT_GT(expired, 100);
  EXPECT_GT(cancelled_in_flight, 50);
  EXPECT_GT(held_back, 100);
  EXPECT_GT(beside, 100);
  EXPECT_GT(apart, 100);
  EXPECT_GT(again, 100);
  EXPECT_GT(ended, 1000);
}

}  // namespace
}  // namespace chairlift
