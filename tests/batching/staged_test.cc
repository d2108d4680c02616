// The staged policy in virtual time: the document's worked examples, and random schedules.
#include "batching/policies/staged.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/status.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

// T of the document's examples.
constexpr int64_t kT = 1000;

CellGraph Stages(int32_t stages, int32_t length = 0, int32_t rows = 1, CellType first = 0) {
  CellGraph graph;
  for (int32_t i = 0; i < stages; ++i) {
    i == 0 ? graph.Add(first, rows) : graph.Add(first + static_cast<CellType>(i), rows, {i - 1});
  }
  graph.set_length(length);
  return graph;
}

// 1 T whatever the rows in stage `flat` and those before it, T/4 a row in those after it; where
// there is a length, that many quarters of T instead.
class Costs : public CostModel {
 public:
  explicit Costs(CellType flat) : flat_(flat) {}
  Duration Cost(CellType type, int32_t rows, int32_t length) const override {
    if (length > 0) return microseconds(kT / 4 * length);
    return microseconds(type <= flat_ ? kT : kT / 4 * rows);
  }

 private:
  CellType flat_;
};

std::unique_ptr<Scheduler> Staged(const PolicyOptions& options, const StagedOptions& staged) {
  auto made = MakeStagedScheduler(options, staged);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

struct Query {
  int64_t at;
  int32_t length = 0;
};

// Mean latency in units of T.
double MeanLatency(const PolicyOptions& options, const StagedOptions& staged, const Costs& costs,
                   int workers, const std::vector<Query>& queries) {
  const auto scheduler = Staged(options, staged);
  VirtualWorkers run(*scheduler, workers, [&](const Task& task) {
    return costs.Cost(task.type, task.rows + task.padding_rows, task.length);
  });
  for (size_t i = 0; i < queries.size(); ++i) {
    run.Arrive(At(queries[i].at), i + 1, Stages(4, queries[i].length));
  }
  run.Run();
  EXPECT_EQ(run.left.size(), queries.size());
  double sum = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    sum +=
        std::chrono::duration<double, std::micro>(run.left.at(i + 1) - At(queries[i].at)).count();
  }
  return sum / static_cast<double>(queries.size()) / kT;
}

TEST(StagedTest, CaseIShortQueriesDoNotWaitForALongOne) {
  const Costs costs(3);
  const PolicyOptions options{.max_batch_size = 4, .bucket_width = 2};
  const std::vector<Query> queries = {{0, 2}, {0, 2}, {0, 2}, {0, 4}};
  EXPECT_DOUBLE_EQ(MeanLatency(options, {}, costs, 2, queries), 4);
  EXPECT_DOUBLE_EQ(MeanLatency(options, {.by_length = true}, costs, 2, queries), 2.5);
}

TEST(StagedTest, CaseIIABatchIsSplitWhereOperatorsPreferSmallOnes) {
  const Costs costs(0);
  const PolicyOptions options{.max_batch_size = 4, .costs = &costs};
  const std::vector<Query> queries(4, Query{0});
  EXPECT_DOUBLE_EQ(MeanLatency(options, {}, costs, 1, queries), 4);
  EXPECT_DOUBLE_EQ(MeanLatency(options, {.split = true}, costs, 1, queries), 2.875);
}

// One query waits for 4 T, then three come.
TEST(StagedTest, CaseIIILaterQueriesCatchUpWithAnEarlierOne) {
  const Costs costs(3);
  for (const int pairs : {1, 2}) {
    const StagedOptions staged{.stretch = true, .buffer_pairs = pairs};
    const auto s = Staged({.max_batch_size = 4, .queue_delay = microseconds(4 * kT)}, staged);
    s->Arrive(1, Stages(4), 0, At(0), {});
    EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
    EXPECT_EQ(s->WakeAt(At(0)), At(4 * kT));
    std::optional<Task> task = s->Next(0, At(4 * kT));
    ASSERT_TRUE(task);
    for (BatchRequestId id = 2; id <= 4; ++id) s->Arrive(id, Stages(4), 0, At(5 * kT), {});
    s->Complete(task->id, At(5 * kT), {});
    task = s->Next(0, At(5 * kT));
    EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(2, 3, 4));
    EXPECT_EQ(task->type, 0);
    for (CellType type = 1; type < 4; ++type) {
      EXPECT_THAT(s->Complete(task->id, At((5 + type) * kT), {}), ::testing::IsEmpty());
      task = s->Next(0, At((5 + type) * kT));
      ASSERT_TRUE(task);
      EXPECT_EQ(task->type, type);
      EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(1, 2, 3, 4));
    }
    // All leave at 9 T: (9 + 3 · 4) / 4 = 5.25 T.
    EXPECT_THAT(s->Complete(task->id, At(9 * kT), {}), ::testing::ElementsAre(1, 2, 3, 4));
  }
}

TEST(StagedTest, ABatchThatHasRunForLongIsNotStretched) {
  const auto s =
      Staged({.max_batch_size = 4}, {.stretch = true, .longest_wait = microseconds(kT / 2)});
  s->Arrive(1, Stages(2), 0, At(0), {});
  const std::optional<Task> first = s->Next(0, At(0));
  s->Arrive(2, Stages(2), 0, At(kT), {});
  s->Complete(first->id, At(kT), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(kT))), ::testing::ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(1, At(kT))), ::testing::ElementsAre(2));
}

TEST(StagedTest, OptionsOutOfRangeAreRefused) {
  const auto refusal = [](const StagedOptions& staged) {
    return Message(MakeStagedScheduler({}, staged).status());
  };
  EXPECT_THAT(refusal({.buffer_pairs = 0}), HasSubstr("buffer_pairs is 0"));
  EXPECT_THAT(refusal({.longest_wait = microseconds(-1)}), HasSubstr("longest_wait_us is -1"));
  EXPECT_THAT(refusal({.split = true}), HasSubstr("no costs"));
}

TEST(StagedTest, ByItsNameItStretchesAndWhereCostsAreKnownSplits) {
  const Costs costs(0);
  for (const bool known : {false, true}) {
    auto s = MakeScheduler("staged", {.max_batch_size = 4, .costs = known ? &costs : nullptr});
    ASSERT_TRUE(s.ok()) << s.status();
    // Two that come together; the later stages take twice as long for two.
    (*s)->Arrive(1, Stages(2), 0, At(0), {});
    (*s)->Arrive(2, Stages(2), 0, At(0), {});
    std::optional<Task> task = (*s)->Next(0, At(0));
    EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(1, 2));
    (*s)->Arrive(3, Stages(2), 0, At(kT / 2), {});
    (*s)->Complete(task->id, At(kT), {});
    task = (*s)->Next(0, At(kT));
    if (known) {
      EXPECT_EQ(task->type, 1);
      EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(1));
    } else {
      EXPECT_EQ(task->type, 0);
      EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(3));
      (*s)->Complete(task->id, At(2 * kT), {});
      EXPECT_THAT(RequestsOf((*s)->Next(0, At(2 * kT))), ::testing::ElementsAre(1, 2, 3));
    }
  }
}

// Costs that are not known yet are not taken for nothing.
TEST(StagedTest, WhatIsNotKnownOfHalfABatchDoesNotSplitIt) {
  class OfPairs : public CostModel {
   public:
    Duration Cost(CellType, int32_t rows, int32_t) const override {
      return microseconds(rows == 2 ? kT : 0);
    }
  };
  const OfPairs costs;
  const auto s = Staged({.max_batch_size = 2, .costs = &costs}, {.split = true});
  s->Arrive(1, Stages(2), 0, At(0), {});
  s->Arrive(2, Stages(2), 0, At(0), {});
  const std::optional<Task> task = s->Next(0, At(0));
  s->Complete(task->id, At(kT), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(kT))), ::testing::ElementsAre(1, 2));
}

struct StagedSetup {
  PolicyOptions options;
  StagedOptions staged;
  int workers;
  unsigned seed;
};

class RandomStagedTest : public ::testing::TestWithParam<StagedSetup> {};

// Each node of each request once and in order; clients' requests start in order; nobody is lost.
TEST_P(RandomStagedTest, NoRowIsLostDoubledOrComputedTwice) {
  static const Costs kCosts(1);
  StagedSetup setup = GetParam();
  setup.options.costs = &kCosts;
  const auto s = Staged(setup.options, setup.staged);
  std::mt19937 random(setup.seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  struct Known {
    CellType first = 0;
    int32_t stages = 0;
    int32_t rows = 0;
    int32_t length = 0;
    ClientId client = 0;
    std::optional<TimePoint> deadline = {};
    int32_t given = 0;
    int32_t ended = 0;
    bool leaving = false;
  };
  std::map<BatchRequestId, Known> known;
  std::map<ClientId, BatchRequestId> last_started;
  std::vector<std::optional<std::pair<TimePoint, Task>>> running(setup.workers);
  BatchRequestId next_id = 1;
  TimePoint now{};
  TimePoint next_arrival{};
  int finished = 0;
  int expired = 0;
  int cancelled = 0;
  int merged = 0;
  constexpr int kRequests = 20000;
  while (true) {
    std::optional<TimePoint> next;
    const auto consider = [&](std::optional<TimePoint> t) {
      if (t && (!next || *t < *next)) next = t;
    };
    if (next_id <= kRequests) consider(next_arrival);
    for (const auto& task : running) {
      if (task) consider(task->first);
    }
    const std::optional<TimePoint> wake = s->WakeAt(now);
    ASSERT_TRUE(!wake || *wake > now);
    consider(wake);
    if (!next) break;
    now = *next;
    if (next_id <= kRequests && next_arrival <= now) {
      const BatchRequestId id = next_id++;
      Known& k = known[id];
      const bool other = pick(0, 9) == 0;
      k.first = other ? 10 : 0;
      k.stages = other ? 1 : 4;
      k.rows = pick(0, 9) == 0 ? pick(1, setup.options.max_batch_size + 2) : 1;
      k.length = pick(0, 3) * 4;
      k.client = pick(0, 3) == 0 ? static_cast<ClientId>(pick(1, 3)) : 0;
      if (pick(0, 4) == 0) k.deadline = now + microseconds(pick(0, 30 * kT));
      s->Arrive(id, Stages(k.stages, k.length, k.rows, k.first), k.client, now, k.deadline);
      if (pick(0, 9) == 0) {
        const auto at = known.find(static_cast<BatchRequestId>(
            pick(std::max(1, static_cast<int>(id) - 20), static_cast<int>(id))));
        if (at != known.end() && !at->second.leaving) {
          at->second.leaving = true;
          ++cancelled;
          const bool in_flight = at->second.given > at->second.ended;
          ASSERT_EQ(s->Cancel(at->first, now), !in_flight);
          if (!in_flight) known.erase(at);
        }
      }
      next_arrival += microseconds(pick(0, static_cast<int>(3 * kT)));
    }
    for (auto& task : running) {
      if (!task || task->first > now) continue;
      for (const NodeRef& ref : task->second.nodes) ++known.at(ref.request).ended;
      for (const BatchRequestId id : s->Complete(task->second.id, now, {})) {
        const Known& k = known.at(id);
        ASSERT_EQ(k.given, k.ended);
        ASSERT_TRUE(k.leaving || k.ended == k.stages);
        finished += k.leaving ? 0 : 1;
        known.erase(id);
      }
      task.reset();
    }
    for (const BatchRequestId id : s->TakeExpired(now)) {
      const Known& k = known.at(id);
      ASSERT_TRUE(k.deadline && *k.deadline <= now && k.given == k.ended);
      known.erase(id);
      ++expired;
    }
    for (WorkerId w = 0; w < setup.workers; ++w) {
      if (running[w]) {
        ASSERT_EQ(s->Next(w, now), std::nullopt);
        continue;
      }
      const std::optional<Task> task = s->Next(w, now);
      if (!task) continue;
      ASSERT_FALSE(task->nodes.empty());
      ASSERT_EQ(task->padding_rows, 0);
      std::set<BatchRequestId> seen;
      std::set<int32_t> buckets;
      int32_t rows = 0;
      for (const NodeRef& ref : task->nodes) {
        Known& k = known.at(ref.request);
        ASSERT_TRUE(seen.insert(ref.request).second);
        ASSERT_FALSE(k.leaving);
        ASSERT_EQ(ref.node, k.given) << "computed twice, or out of order";
        ASSERT_EQ(k.given, k.ended);
        ASSERT_EQ(task->type, k.first + static_cast<CellType>(ref.node));
        if (k.given++ == 0 && k.client != 0) {
          ASSERT_GT(ref.request, std::exchange(last_started[k.client], ref.request));
        }
        rows += k.rows;
        buckets.insert((k.length + setup.options.bucket_width - 1) / setup.options.bucket_width);
      }
      ASSERT_EQ(task->rows, rows);
      ASSERT_TRUE(rows <= setup.options.max_batch_size || task->nodes.size() == 1);
      ASSERT_TRUE(!setup.staged.by_length || buckets.size() == 1);
      merged += task->nodes.size() > 1 ? 1 : 0;
      running[w] = {now + microseconds(pick(1, 2 * kT)), *task};
    }
    // Somebody always works while anybody may.
    if (setup.options.queue_delay == Duration(0) && !setup.staged.by_length && !known.empty()) {
      ASSERT_TRUE(std::any_of(running.begin(), running.end(), [](const auto& t) { return t; }));
    }
  }
  EXPECT_TRUE(known.empty()) << known.size() << " requests are lost";
  EXPECT_EQ(s->waiting(), 0);
  EXPECT_GT(finished, kRequests / 4);
  EXPECT_GT(expired, 0);
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(merged, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, RandomStagedTest,
    ::testing::Values(
        StagedSetup{{.max_batch_size = 8}, {.buffer_pairs = 1}, 1, 1},
        StagedSetup{{.max_batch_size = 8}, {.buffer_pairs = 2}, 4, 2},
        StagedSetup{{.max_batch_size = 8}, {.stretch = true, .buffer_pairs = 1}, 2, 3},
        StagedSetup{{.max_batch_size = 8}, {.stretch = true}, 4, 4},
        StagedSetup{{.max_batch_size = 8}, {.split = true}, 1, 5},
        StagedSetup{{.max_batch_size = 8}, {.split = true, .buffer_pairs = 1}, 4, 6},
        StagedSetup{{.max_batch_size = 16}, {.split = true, .stretch = true}, 3, 7},
        StagedSetup{
            {.max_batch_size = 8, .bucket_width = 4}, {.by_length = true, .stretch = true}, 4, 8},
        StagedSetup{{.max_batch_size = 8, .queue_delay = microseconds(2000), .bucket_width = 4},
                    {.by_length = true, .split = true, .stretch = true, .buffer_pairs = 3},
                    2,
                    9}));

}  // namespace
}  // namespace chairlift
