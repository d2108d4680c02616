// Continuous batching where requests hold what they have computed, and the youngest are set back
// for older ones: a worked example, then random schedules against a model of what is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

CellGraph Prompt(int32_t rows, int64_t state, int32_t state_rows) {
  CellGraph graph;
  graph.AddDivisible(0, rows);
  graph.set_state(state);
  graph.set_state_rows(state_rows);
  return graph;
}

// What the tests know of a request, from events alone.
struct Known {
  int32_t left = 0;      // rows of its prompt, or of what is computed again
  int32_t computed = 0;  // rows
  int steps_left = 0;
  int32_t node = 0;
  int64_t most = 0;
  int32_t state_rows = 0;  // 0: it holds all from its start
  bool in_flight = false, leaving = false, started = false;
  int times_set_back = 0;

  int64_t held(int32_t rows) const {
    if (state_rows == 0) return started ? most : 0;
    return rows == 0 ? 0 : std::min<int64_t>(most, (rows + state_rows - 1) / state_rows);
  }
};

using Requests = std::map<BatchRequestId, Known>;  // in order of arrival

// What the task makes of its requests; those whose last step it was end.
std::vector<BatchRequestId> Complete(Scheduler& scheduler, const Task& task, TimePoint now,
                                     Requests& requests) {
  std::vector<Scheduler::Growth> grown;
  for (const NodeRef& node : task.nodes) {
    Known& of = requests.at(node.request);
    of.in_flight = false;
    if (node.set_back) {
      of.left = std::exchange(of.computed, 0) + std::max(of.left, 1);
      ++of.times_set_back;
    } else {
      of.computed += std::max(node.rows, 1);
      of.left -= node.rows;
      if (of.left == 0 && of.steps_left-- == 0) continue;
    }
    ++of.node;
    grown.push_back({.request = node.request,
                     .type = 0,
                     .rows = std::max(of.left, 1),
                     .dependencies = {&node.node, 1},
                     .divisible = of.left > 0});
  }
  return scheduler.Complete(task.id, now, grown);
}

TEST(ContinuousGrowthTest, TheYoungestGivesItsStateToOlderOnesAndIsComputedAgain) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 64, .state_capacity = 5});
  Requests requests;
  for (const BatchRequestId id : {1, 2, 3}) {
    requests[id] = {.left = 8, .steps_left = id == 1 ? 5 : 3};
    scheduler->Arrive(id, Prompt(8, 6, 4), 0, At(0), {});
  }
  const auto next = [&] {
    const auto task = scheduler->Next(0, At(0));
    EXPECT_TRUE(task);
    return *task;
  };
  // A prompt takes 2 units, and one is left for the first to grow: there is none for the third.
  Task task = next();
  EXPECT_EQ(task.nodes, (std::vector<NodeRef>{{1, 0, 1, 8}, {2, 0, 1, 8}}));
  Complete(*scheduler, task, At(1), requests);
  // Each has a ninth row, of a third unit.
  task = next();
  EXPECT_EQ(task.nodes, (std::vector<NodeRef>{{2, 1, 1, 0, true}, {1, 1, 1, 0}}));
  EXPECT_EQ(task.rows, 1);
  EXPECT_EQ(task.sequences, 1);
  Complete(*scheduler, task, At(2), requests);
  for (int32_t step = 2; step <= 5; ++step) {
    task = next();
    EXPECT_EQ(task.nodes, (std::vector<NodeRef>{{1, step, 1, 0}})) << "no room for others";
    const auto left = Complete(*scheduler, task, At(3), requests);
    EXPECT_EQ(left.size(), step == 5 ? 1u : 0u);
  }
  // Its prompt, and the first token of its answer.
  task = next();
  EXPECT_EQ(task.nodes, (std::vector<NodeRef>{{2, 2, 1, 9}}));
  Complete(*scheduler, task, At(4), requests);
  EXPECT_EQ(scheduler->waiting(), 1);
}

TEST(ContinuousGrowthTest, TheOldestWaitsForThoseThatHoldAllAndNobodyStartsMeanwhile) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 64, .state_capacity = 8});
  Requests requests;
  requests[1] = {.left = 4, .steps_left = 20};
  requests[2] = {.left = 2, .steps_left = 6};
  requests[3] = {.left = 1, .steps_left = 1};
  scheduler->Arrive(1, Prompt(4, 6, 1), 0, At(0), {});
  scheduler->Arrive(2, Prompt(2, 3, 0), 0, At(0), {});
  scheduler->Arrive(3, Prompt(1, 1, 0), 0, At(0), {});
  std::map<BatchRequestId, int> rides;
  for (int i = 0; i < 7; ++i) {
    const auto task = scheduler->Next(0, At(0));
    ASSERT_TRUE(task);
    for (const NodeRef& node : task->nodes) ++rides[node.request];
    Complete(*scheduler, *task, At(1), requests);
  }
  EXPECT_EQ(rides[1], 2) << "its second step has no unit";
  EXPECT_EQ(rides[2], 7);
  EXPECT_EQ(rides[3], 0);
  const auto task = scheduler->Next(0, At(2));
  ASSERT_TRUE(task);
  EXPECT_EQ(task->nodes[0].request, 1u);
}

TEST(ContinuousGrowthTest, RandomSchedules) {
  int set_back = 0, in_prompts = 0, several = 0, cancelled = 0, ended = 0, full = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const int64_t capacity = pick(6, 40);
    const int32_t state_rows = pick(1, 5);
    const auto scheduler =
        MakePolicy("continuous", {.max_batch_size = pick(4, 64), .state_capacity = capacity});
    Requests known;
    std::optional<Task> running;
    BatchRequestId next = 1;
    for (int event = 0; event < 1500 || !known.empty(); ++event) {
      ASSERT_LT(event, 40000) << "somebody is forgotten";
      const TimePoint now = At(event);
      const int choice = pick(0, 9);
      if (choice < 3 && event < 1500) {
        Known& fresh = known[next];
        fresh.left = pick(1, 12);
        fresh.steps_left = pick(0, 15);
        const bool grows = seed % 3 == 0 || pick(0, 3) > 0;
        fresh.state_rows = grows ? state_rows : 0;
        const int32_t rows = fresh.left + fresh.steps_left + pick(0, 20);
        fresh.most = grows ? (rows + state_rows - 1) / state_rows : pick(1, 5);
        scheduler->Arrive(next, Prompt(fresh.left, fresh.most, fresh.state_rows), 0, now, {});
        ++next;
      } else if (choice == 3 && !known.empty() && pick(0, 4) == 0) {
        auto at = known.begin();
        std::advance(at, pick(0, static_cast<int>(known.size()) - 1));
        ++cancelled;
        if (scheduler->Cancel(at->first, now)) {
          known.erase(at);
        } else {
          at->second.leaving = true;
        }
      } else if (running) {
        for (const BatchRequestId id : Complete(*scheduler, *running, now, known)) {
          ASSERT_TRUE(known.at(id).leaving || known.at(id).steps_left < 0);
          ended += known.at(id).leaving ? 0 : 1;
          known.erase(id);
        }
        running.reset();
      } else {
        running = scheduler->Next(0, now);
        ASSERT_EQ(running.has_value(), !known.empty());
        if (!running) continue;
        // Requests that held anything before.
        std::set<BatchRequestId> holders;
        for (const auto& [id, of] : known) {
          if (of.state_rows > 0 && of.computed > 0) holders.insert(id);
        }
        std::map<BatchRequestId, int32_t> rows;
        int here = 0;
        for (const auto& [id, of] : known) rows[id] = of.computed;
        for (const NodeRef& node : running->nodes) {
          Known& of = known.at(node.request);
          ASSERT_EQ(node.node, of.node);
          of.in_flight = of.started = true;
          if (!node.set_back) {
            ASSERT_EQ(node.rows > 0, of.left > 0);
            ASSERT_LE(node.rows, of.left);
            rows[node.request] += std::max(node.rows, 1);
            continue;
          }
          ASSERT_EQ(&node, &running->nodes[static_cast<size_t>(here)]) << "first";
          ++here;
          in_prompts += of.left > 0 ? 1 : 0;
          ASSERT_GT(of.computed, 0);
          ASSERT_EQ(*holders.rbegin(), node.request) << "an older one than need be";
          ASSERT_GT(holders.size(), 1u) << "the oldest";
          holders.erase(node.request);
          rows[node.request] = 0;
        }
        set_back += here;
        several += here > 1 ? 1 : 0;
        int64_t held = 0;
        int holding = 0;
        for (const auto& [id, of] : known) {
          const int64_t own = of.held(rows[id]);
          held += own;
          holding += own > 0 ? 1 : 0;
        }
        ASSERT_TRUE(held <= capacity || holding == 1);
        full += held * 10 >= capacity * 9 ? 1 : 0;
        ASSERT_GT(running->rows, 0) << "nothing is computed";
      }
    }
    EXPECT_EQ(scheduler->waiting(), 0);
  }
  EXPECT_GT(set_back, 500);
  EXPECT_GT(in_prompts, 5);
  EXPECT_GT(several, 10);
  EXPECT_GT(cancelled, 200);
  EXPECT_GT(ended, 5000);
  EXPECT_GT(full, 2000);
}

}  // namespace
}  // namespace chairlift
