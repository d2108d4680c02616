// Continuous batching in virtual time: worked examples, then random schedules against what the
// policy promises.
#include "batching/policies/continuous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "batching/virtual_workers.h"

namespace chairlift {
namespace continuous_test {

CellGraph Prompt(int32_t rows, int64_t state = 0) {
  CellGraph graph;
  graph.AddDivisible(0, rows);
  graph.set_state(state);
  return graph;
}

// Microseconds: once, of a token, and of a sequence.
class StepCosts final : public CostModel {
 public:
  StepCosts(int64_t once, int64_t token, int64_t sequence)
      : once_(once), token_(token), sequence_(sequence) {}
  Duration Cost(CellType /*type*/, int32_t rows, int32_t sequences) const override {
    return std::chrono::microseconds(once_ + token_ * rows + sequence_ * sequences);
  }

 private:
  const int64_t once_, token_, sequence_;
};

// What the tests know of a request.
struct Progress {
  int32_t prompt = 0;  // rows left of it
  int32_t nodes = 1;   // so far
};

// What a task of these requests makes of them: those of `ends` end, others have one more node.
std::vector<BatchRequestId> Complete(Scheduler& scheduler, const Task& task, TimePoint now,
                                     std::map<BatchRequestId, Progress>& requests,
                                     const std::set<BatchRequestId>& ends = {}) {
  std::vector<Scheduler::Growth> grown;
  for (const NodeRef& node : task.nodes) {
    Progress& of = requests.at(node.request);
    of.prompt -= node.rows;
    if (ends.contains(node.request)) continue;
    ++of.nodes;
    grown.push_back({.request = node.request,
                     .type = 0,
                     .rows = std::max(of.prompt, 1),
                     .dependencies = {&node.node, 1},
                     .divisible = of.prompt > 0});
  }
  return scheduler.Complete(task.id, now, grown);
}

struct Part {
  BatchRequestId request;
  int32_t node;
  int32_t rows = 0;  // of a prompt
  friend bool operator==(const Part&, const Part&) = default;
  friend void PrintTo(const Part& part, std::ostream* out) {
    *out << part.request << ":" << part.node << " rows " << part.rows;
  }
};
using Parts = std::vector<Part>;

Parts PartsOf(const std::optional<Task>& task) {
  Parts parts;
  if (task) {
    for (const NodeRef& node : task->nodes) parts.push_back({node.request, node.node, node.rows});
  }
  return parts;
}

TEST(ContinuousTest, StepsRideTogetherAndAsMuchOfPromptsAsCostsAllow) {
  const StepCosts costs(100, 10, 5);
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 64, .costs = &costs});
  std::map<BatchRequestId, Progress> requests = {{1, {6}}, {2, {12}}, {3, {9}}};
  scheduler->Arrive(1, Prompt(6), 0, At(0), {});
  auto task = scheduler->Next(0, At(0));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0, 6}}));  // no sequence steps: all that fits
  EXPECT_TRUE(task->by_team);
  EXPECT_EQ(task->rows, 6);
  EXPECT_EQ(task->sequences, 1);
  EXPECT_FALSE(scheduler->Next(1, At(1)));  // one task at a time
  scheduler->Arrive(2, Prompt(12), 0, At(1), {});
  Complete(*scheduler, *task, At(5), requests);
  // A step costs 115, with n more tokens of another sequence 120 + 10 n, up to 172.
  task = scheduler->Next(1, At(5));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 1}, {2, 0, 5}}));
  EXPECT_EQ(task->rows, 6);
  EXPECT_EQ(task->sequences, 2);
  Complete(*scheduler, *task, At(6), requests);
  // With two waiting prompts: up to 230; 125 + 10 n with a third sequence.
  scheduler->Arrive(3, Prompt(9), 0, At(6), {});
  task = scheduler->Next(1, At(6));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 2}, {2, 1, 7}, {3, 0, 3}}));
  EXPECT_EQ(task->sequences, 3);
  Complete(*scheduler, *task, At(7), requests);
  // Two steps cost 130.
  task = scheduler->Next(1, At(7));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 3}, {2, 2}, {3, 1, 6}}));
  Complete(*scheduler, *task, At(8), requests, {3});
  task = scheduler->Next(0, At(8));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 4}, {2, 3}}));
  EXPECT_EQ(Complete(*scheduler, *task, At(9), requests, {1}), std::vector<BatchRequestId>{1});
  task = scheduler->Next(0, At(9));
  EXPECT_EQ(PartsOf(task), (Parts{{2, 4}}));
  EXPECT_EQ(Complete(*scheduler, *task, At(10), requests, {2}), std::vector<BatchRequestId>{2});
  EXPECT_FALSE(scheduler->Next(0, At(10)));
}

TEST(ContinuousTest, PromptsRideInPiecesHoweverLittleCostsAllow) {
  const StepCosts costs(0, 10, 1);  // a token beside a step takes twice as long
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 4, .costs = &costs});
  std::map<BatchRequestId, Progress> requests = {{1, {9}}, {2, {2}}};
  scheduler->Arrive(1, Prompt(9), 0, At(0), {});
  const Parts pieces[] = {{{1, 0, 4}}, {{1, 1, 4}}, {{1, 2, 1}}};
  for (const Parts& piece : pieces) {
    const auto task = scheduler->Next(0, At(0));
    EXPECT_EQ(PartsOf(task), piece);
    Complete(*scheduler, *task, At(1), requests);
  }
  scheduler->Arrive(2, Prompt(2), 0, At(1), {});
  for (int32_t i = 0; i < 2; ++i) {
    const auto task = scheduler->Next(0, At(1));
    EXPECT_EQ(PartsOf(task), (Parts{{1, 3 + i}, {2, i, 1}}));
    Complete(*scheduler, *task, At(2), requests);
  }
}

TEST(ContinuousTest, WhereCostsAreNotKnownPiecesHaveAFixedSize) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 256});
  std::map<BatchRequestId, Progress> requests = {{1, {1}}, {2, {40}}, {3, {40}}};
  scheduler->Arrive(1, Prompt(1), 0, At(0), {});
  Complete(*scheduler, *scheduler->Next(0, At(0)), At(1), requests);
  scheduler->Arrive(2, Prompt(40), 0, At(1), {});
  scheduler->Arrive(3, Prompt(40), 0, At(1), {});
  auto task = scheduler->Next(0, At(1));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 1}, {2, 0, kUnknownPiece}}));
  Complete(*scheduler, *task, At(2), requests);
  task = scheduler->Next(0, At(2));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 2}, {2, 1, 8}, {3, 0, 24}}));
}

TEST(ContinuousTest, WholePromptsAreNotCut) {
  const StepCosts costs(100, 10, 0);
  const auto scheduler = MakePolicy("whole_prompts", {.max_batch_size = 16, .costs = &costs});
  std::map<BatchRequestId, Progress> requests = {{1, {20}}, {2, {15}}, {3, {2}}, {4, {1}}};
  scheduler->Arrive(1, Prompt(20), 0, At(0), {});
  auto task = scheduler->Next(0, At(0));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0, 20}}));  // larger than a task
  Complete(*scheduler, *task, At(1), requests);
  for (const auto& [id, rows] : {std::pair(2, 15), {3, 2}, {4, 1}}) {
    scheduler->Arrive(static_cast<BatchRequestId>(id), Prompt(rows), 0, At(1), {});
  }
  task = scheduler->Next(0, At(1));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 1}, {2, 0, 15}}));
  Complete(*scheduler, *task, At(2), requests);
  task = scheduler->Next(0, At(2));
  EXPECT_EQ(PartsOf(task), (Parts{{1, 2}, {2, 1}, {3, 0, 2}, {4, 0, 1}}));
}

TEST(ContinuousTest, ARequestStartsWhenThereIsRoomForAllThatItMayGrowTo) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 8, .state_capacity = 10});
  std::map<BatchRequestId, Progress> requests = {{1, {1}}, {2, {1}}, {3, {1}}, {4, {1}}};
  scheduler->Arrive(1, Prompt(1, 6), 0, At(0), {});
  scheduler->Arrive(2, Prompt(1, 5), 0, At(0), {});
  scheduler->Arrive(3, Prompt(1, 1), 0, At(0), {});
  auto task = scheduler->Next(0, At(0));
  // The third would fit, but does not pass the second.
  EXPECT_EQ(PartsOf(task), (Parts{{1, 0, 1}}));
  EXPECT_EQ(scheduler->waiting(), 2);
  Complete(*scheduler, *task, At(1), requests, {1});
  task = scheduler->Next(0, At(1));
  EXPECT_EQ(PartsOf(task), (Parts{{2, 0, 1}, {3, 0, 1}}));
  EXPECT_FALSE(scheduler->Cancel(2, At(2)));  // in flight
  scheduler->Arrive(4, Prompt(1, 11), 0, At(2), {});
  EXPECT_EQ(Complete(*scheduler, *task, At(3), requests), std::vector<BatchRequestId>{2});
  task = scheduler->Next(0, At(3));
  EXPECT_EQ(PartsOf(task), (Parts{{3, 1}}));  // the fourth fits alone only
  Complete(*scheduler, *task, At(4), requests, {3});
  task = scheduler->Next(0, At(4));
  EXPECT_EQ(PartsOf(task), (Parts{{4, 0, 1}}));
}

TEST(ContinuousTest, WhatEncodersComputeAndStepsTakeTurns) {
  const auto scheduler = MakePolicy("continuous", {.max_batch_size = 8});
  std::map<BatchRequestId, Progress> nodes;
  const auto arrive = [&](BatchRequestId id, int32_t rows) {
    CellGraph graph;
    graph.Add(1, rows);
    nodes[id] = {};
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
  std::map<BatchRequestId, Progress> nodes;
  for (BatchRequestId id = 1; id <= 3; ++id) {
    nodes[id] = {1};
    scheduler->Arrive(id, Prompt(1), 0, At(0), {});
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
  int32_t node = 0;    // its next, or last, one
  int32_t prompt = 0;  // rows left of it
  int32_t rows = 0;    // of the node
  CellType type = 0;
  bool divisible = false;
  int waited = 0;  // tasks, with a step that was ready
  int steps_left = 0;
  int64_t state = 0;
  uint64_t arrival = 0;
  bool in_flight = false, started = false, leaving = false;
  std::optional<TimePoint> deadline;
  bool steps() const { return node > 0 && !divisible; }
};

TEST(ContinuousTest, RandomSchedules) {
  int expired = 0, cancelled_in_flight = 0, held_back = 0, beside = 0, ended = 0, apart = 0,
      again = 0, cut = 0, several = 0, least = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const int most = pick(1, 24), longest = pick(1, 40);
    const int64_t capacity = seed % 3 == 0 ? 0 : pick(5, 40);
    const StepCosts costs(pick(0, 100), pick(1, 10), pick(0, 5));
    const bool costs_known = seed % 5 > 0;
    // A request begins with one node of another type, which may have to be tried again.
    const bool encoders = seed % 4 == 3;
    bool stepped = false;  // the last task had steps
    int most_known = 0;
    const auto scheduler = MakePolicy("continuous", {.max_batch_size = most,
                                                     .costs = costs_known ? &costs : nullptr,
                                                     .state_capacity = capacity});
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
        fresh.rows = pick(1, longest);
        if (encoders) {
          fresh.type = 1;
          fresh.prompt = pick(1, 4);
          graph.Add(1, fresh.rows);
        } else {
          fresh.prompt = fresh.rows;
          fresh.divisible = true;
          graph.AddDivisible(0, fresh.rows);
        }
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
        std::set<BatchRequestId> leaves;
        for (const NodeRef& node : running->nodes) {
          Known& of = known.at(node.request);
          of.in_flight = false;
          if (of.deadline && *of.deadline <= now) of.leaving = true;
          if (of.type == 1 && pick(0, 4) == 0) {
            ++again;  // the same once more
          } else if (of.type == 1) {
            of.type = 0;
          } else if (of.divisible && pick(0, 9) == 0) {
            ++again;
          } else if (of.divisible) {
            of.prompt -= node.rows;
            if (of.prompt > 0 && pick(0, 9) == 0) --of.prompt;  // known already
          } else {
            of.prompt = 0;
          }
          if (of.type == 0 && of.prompt == 0 && of.steps_left-- == 0) {
            leaves.insert(node.request);
            continue;
          }
          ++of.node;
          if (of.type == 0) {
            of.divisible = of.prompt > 1 || (of.prompt == 1 && !encoders);
            of.rows = of.divisible ? of.prompt : 1;
          }
          grown.push_back({.request = node.request,
                           .type = of.type,
                           .rows = of.rows,
                           .dependencies = {&node.node, 1},
                           .divisible = of.divisible});
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
        if (!running) {
          ASSERT_TRUE(known.empty()) << "nothing is given out";
          continue;
        }
        ASSERT_FALSE(running->nodes.empty());
        int64_t held = 0, started = 0;
        std::set<BatchRequestId> ready;
        for (const auto& [id, of] : known) {
          if (of.started) held += of.state;
          started += of.started ? 1 : 0;
          if (of.started && of.steps()) ready.insert(id);
        }
        int32_t rows = 0, sequences = 0, step_rows = 0, steps = 0, pieces = 0, piece_rows = 0;
        uint64_t latest = 0;
        bool whole = true;  // the last piece is all of its node
        for (const NodeRef& node : running->nodes) {
          Known& of = known.at(node.request);
          ASSERT_EQ(node.node, of.node);
          ASSERT_EQ(node.rows > 0, of.divisible);
          ASSERT_LE(node.rows, of.rows);
          ASSERT_FALSE(of.in_flight);
          ASSERT_EQ(of.type, running->type) << "one type in a task";
          const int32_t taken = of.divisible ? node.rows : of.rows;
          if (of.steps()) {
            ASSERT_EQ(pieces, 0) << "steps first";
            ++steps;
            step_rows += taken;
          } else {
            ASSERT_GT(of.arrival, latest) << "prompts in order of arrival";
            ASSERT_TRUE(whole) << "the one before has more";
            latest = of.arrival;
            whole = taken == of.rows;
            ++pieces;
            piece_rows += taken;
          }
          of.waited = 0;
          rows += taken;
          sequences += of.steps() ? taken : 1;
          of.in_flight = true;
          if (!of.started) held += of.state;
          started += of.started ? 0 : 1;
          of.started = true;
          ready.erase(node.request);
        }
        ASSERT_EQ(rows, running->rows);
        ASSERT_EQ(sequences, running->sequences);
        ASSERT_TRUE(step_rows <= most || steps == 1);
        if (encoders) {
          // In turns, and in order where several types wait.
          ASSERT_TRUE(steps > 0 || ready.empty() || stepped) << "not its turn";
          for (const BatchRequestId id : ready) {
            ASSERT_LE(++known.at(id).waited, 3 * most_known + 3);
          }
          apart += steps == 0 && !ready.empty() ? 1 : 0;
        } else {
          ASSERT_TRUE(ready.empty() || step_rows == most) << "a step is left behind";
        }
        stepped = steps > 0;
        // The first whose prompt is not computed, of those that have started.
        const auto first = std::find_if(known.begin(), known.end(), [](const auto& one) {
          return one.second.started && !one.second.steps();
        });
        if (!encoders && first != known.end()) {
          ASSERT_TRUE(first->second.in_flight) << "a prompt is left behind";
        }
        const bool waits_more =
            !encoders && (!whole || std::any_of(known.begin(), known.end(), [](const auto& one) {
              return one.second.started && !one.second.steps() && !one.second.in_flight;
            }));
        const auto cost = [&](int32_t n, int32_t of) { return costs.Cost(0, n, of).count(); };
        if (steps > 0 && pieces > 0 && running->type == 0) {
          ++beside;
          several += pieces > 1 ? 1 : 0;
          cut += whole ? 0 : 1;
          // Those that have not started may have a place already, and may not.
          const auto prompts = [&](bool all) {
            return std::count_if(known.begin(), known.end(), [all](const auto& one) {
              return (all || one.second.started) && !one.second.steps();
            });
          };
          const auto most_cost = [&](bool all) {
            const double slowdown = prompts(all) > 1 ? kSlowdownForSeveral : kSlowdown;
            return static_cast<int64_t>(slowdown * static_cast<double>(cost(step_rows, step_rows)));
          };
          const auto fits = [&](int32_t n, int32_t of, bool all) {
            return n <= most &&
                   (costs_known ? cost(n, of) <= most_cost(all) : n - step_rows <= kUnknownPiece);
          };
          ASSERT_TRUE(fits(rows, sequences, true) || piece_rows == 1) << "too much beside steps";
          least += fits(rows, sequences, true) ? 0 : 1;
          if (waits_more) {
            ASSERT_FALSE(fits(rows + 1, sequences + (whole ? 1 : 0), false))
                << "there is room left";
          }
        } else if (steps == 0) {
          ASSERT_TRUE(rows <= most || pieces == 1);
          if (waits_more) {
            ASSERT_EQ(rows, most) << "there is room left";
          }
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
  EXPECT_GT(cut, 100);
  EXPECT_GT(several, 100);
  EXPECT_GT(least, 100);
  EXPECT_GT(apart, 100);
  EXPECT_GT(again, 100);
  EXPECT_GT(ended, 1000);
}

}  // namespace continuous_test
}  // namespace chairlift
