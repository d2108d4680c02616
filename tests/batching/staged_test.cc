// The staged policy in virtual time: the document's worked examples, and random schedules.
#include "batching/policies/staged.h"

#include <gmock/gmock.h>

#include <array>
#include <ctime>
#include <limits>
#include <random>
#include <set>

#include "base/clock.h"
#include "base/status.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace staged_test {

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

// 1 T whatever the rows in stage `flat` and those before it, T/4 a row in those after it; if there
// is a length, that many quarters of T instead.
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
      Staged({.max_batch_size = 4}, {.stretch = true, .join_window = microseconds(kT / 2)});
  s->Arrive(1, Stages(2), 0, At(0), {});
  const std::optional<Task> first = s->Next(0, At(0));
  s->Arrive(2, Stages(2), 0, At(kT), {});
  s->Complete(first->id, At(kT), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(kT))), ::testing::ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(1, At(kT))), ::testing::ElementsAre(2));
}

// The costs of each stage, in units of T: for the batch, and for each row.
class AffineCosts : public CostModel {
 public:
  AffineCosts(double batch, double row) : batch_(batch), row_(row) {}
  Duration Cost(CellType, int32_t rows, int32_t) const override {
    return microseconds(static_cast<int64_t>((batch_ + row_ * rows) * kT));
  }

 private:
  double batch_, row_;
};

// Some stages take as long for many rows as for one; in the others, rows hold each other up.
class MixedCosts : public CostModel {
 public:
  explicit MixedCosts(std::set<CellType> flat) : flat_(std::move(flat)) {}
  Duration Cost(CellType type, int32_t rows, int32_t) const override {
    return microseconds(flat_.contains(type) ? 2 * kT : kT / 2 * rows + kT / 8 * (rows - 1));
  }

 private:
  std::set<CellType> flat_;
};

TEST(StagedTest, ABatchRunsInPiecesWhereTheseAreSoonerAndMeetsWhereCompanyPays) {
  const MixedCosts costs({2});  // as VGG-19's
  const auto s = MakePolicy("staged", {.max_batch_size = 4, .costs = &costs});
  for (BatchRequestId id = 1; id <= 2; ++id) s->Arrive(id, Stages(3), 0, At(0), {});
  int64_t now = 0;
  const auto run = [&](int64_t took) {
    const std::optional<Task> task = s->Next(0, At(now));
    s->Complete(task->id, At(now += took), {});
    return std::pair(task->type, RequestsOf(task));
  };
  using Ids = std::vector<BatchRequestId>;
  EXPECT_EQ(run(kT / 2), std::pair(CellType{0}, Ids{1}));
  EXPECT_EQ(run(kT / 2), std::pair(CellType{1}, Ids{1}));
  EXPECT_EQ(run(kT / 2), std::pair(CellType{0}, Ids{2}));
  EXPECT_EQ(run(kT / 2), std::pair(CellType{1}, Ids{2}));
  EXPECT_EQ(run(kT / 2), std::pair(CellType{2}, Ids{1, 2}));
}

// How many of four that wait go into the first batch, where others came every `gap` T before.
size_t FirstBatch(const CostModel& costs, double gap) {
  const auto s = MakeScheduler("staged", {.max_batch_size = 8, .costs = &costs});
  EXPECT_TRUE(s.ok()) << s.status();
  int64_t at = 0;
  BatchRequestId id = 0;
  for (; id < 200; ++id) {
    (*s)->Arrive(id, Stages(2), 0, At(at), {});
    for (int stage = 0; stage < 2; ++stage) {
      const std::optional<Task> task = (*s)->Next(0, At(at));
      (*s)->Complete(task->id, At(at), {});
    }
    at += static_cast<int64_t>(gap * kT);
  }
  for (int i = 0; i < 4; ++i) (*s)->Arrive(id++, Stages(2), 0, At(at), {});
  return RequestsOf((*s)->Next(0, At(at))).size();
}

TEST(StagedTest, WhoWaitsRunsOneByOneWhereCompanySavesNothing) {
  EXPECT_EQ(FirstBatch(AffineCosts(0, 1), 100), 1u);
  EXPECT_EQ(FirstBatch(AffineCosts(0, 1), 2), 1u);
  // A few hundredths are no more than how well costs are measured.
  EXPECT_EQ(FirstBatch(AffineCosts(0.05, 1), 4), 1u);
}

TEST(StagedTest, WhoWaitsSharesABatchWhereItTakesNoLonger) {
  EXPECT_EQ(FirstBatch(AffineCosts(1, 0), 100), 4u);
  EXPECT_EQ(FirstBatch(AffineCosts(1, 0), 2), 4u);
}

TEST(StagedTest, WorkIsSavedWhereTheMachineIsBusy) {
  EXPECT_EQ(FirstBatch(AffineCosts(0.3, 0.7), 100), 1u);
  EXPECT_EQ(FirstBatch(AffineCosts(0.3, 0.7), 2), 4u);
}

// One query, of two stages of 1 T each; more as the first stage ends.
TEST(StagedTest, NewcomersJoinWhereTheSumOfLatenciesIsLess) {
  // `before`: T since the query before that one, which has left.
  const auto first_to_run = [](const CostModel& costs, int newcomers, int64_t before = 1000) {
    const auto s = MakePolicy("staged", {.max_batch_size = 8, .costs = &costs});
    int64_t now = 0;
    const auto run = [&] {
      const std::optional<Task> task = s->Next(0, At(now));
      s->Complete(task->id, At(now += kT), {});
    };
    s->Arrive(100, Stages(2), 0, At(0), {});
    run();
    run();
    now = before * kT;
    s->Arrive(101, Stages(2), 0, At(now), {});
    const std::optional<Task> first = s->Next(0, At(now));
    now += kT;
    for (BatchRequestId id = 1; id <= static_cast<BatchRequestId>(newcomers); ++id) {
      s->Arrive(id, Stages(2), 0, At(now), {});
    }
    s->Complete(first->id, At(now), {});
    return s->Next(0, At(now))->type;
  };
  const AffineCosts flat(1, 0.01), in_proportion(0, 1);
  // The first one would wait for T, and one new request be earlier by T.
  EXPECT_EQ(first_to_run(flat, 1), 1u);
  EXPECT_EQ(first_to_run(flat, 2), 0u);
  EXPECT_EQ(first_to_run(in_proportion, 2), 1u);
  // A busy machine saves the T of work, for later requests.
  EXPECT_EQ(first_to_run(flat, 1, /*before=*/3), 0u);
}

TEST(StagedTest, OptionsOutOfRangeAreRefused) {
  const auto refusal = [](const StagedOptions& staged) {
    return Message(MakeStagedScheduler({}, staged).status());
  };
  EXPECT_THAT(refusal({.buffer_pairs = 0}), HasSubstr("buffer_pairs is 0"));
  EXPECT_THAT(refusal({.join_window = microseconds(-1)}), HasSubstr("join_window_us is -1"));
  EXPECT_THAT(refusal({.split = true}), HasSubstr("needs the costs of the stages"));
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

// One query at 0, of two stages of 1 T each; another as the first stage ends. Together they end at
// 3 T, by itself the first one does at 2 T.
TEST(StagedTest, ABatchIsNotStretchedWhereAnEarlierQueryWouldBeLate) {
  const Costs costs(3);
  const auto joined = [&](Duration objective, std::optional<TimePoint> deadline) {
    const auto s = Staged({.max_batch_size = 4, .latency_objective = objective, .costs = &costs},
                          {.stretch = true, .join_window = microseconds(9 * kT)});
    s->Arrive(1, Stages(2), 0, At(0), deadline);
    const std::optional<Task> first = s->Next(0, At(0));
    s->Arrive(2, Stages(2), 0, At(kT), {});
    s->Complete(first->id, At(kT), {});
    return RequestsOf(s->Next(0, At(kT))) == std::vector<BatchRequestId>{2};
  };
  EXPECT_TRUE(joined({}, {}));
  EXPECT_TRUE(joined(microseconds(3 * kT), {}));
  EXPECT_FALSE(joined(microseconds(3 * kT - 1), {}));
  EXPECT_TRUE(joined({}, At(3 * kT)));
  EXPECT_FALSE(joined({}, At(3 * kT - 1)));
  // A request that is late anyway delays no other.
  EXPECT_TRUE(joined(microseconds(2 * kT - 1), {}));
}

// Under the model's lock: tens of milliseconds, where looking at the batch for each that waits
// would take seconds.
TEST(StagedTest, WhetherManyMakeALargeBatchLateIsFoundInOnePass) {
  constexpr int kHalf = 30'000;
  const Costs costs(3);
  const auto s = Staged(
      {.max_batch_size = 2 * kHalf, .latency_objective = microseconds(9 * kT), .costs = &costs},
      {.stretch = true, .join_window = microseconds(9 * kT)});
  BatchRequestId id = 1;
  for (int i = 0; i < kHalf; ++i) s->Arrive(id++, Stages(2), 0, At(0), At(8 * kT));
  const std::optional<Task> first = s->Next(0, At(0));
  ASSERT_EQ(RequestsOf(first).size(), static_cast<size_t>(kHalf));
  for (int i = 0; i < kHalf; ++i) s->Arrive(id++, Stages(2), 0, At(kT), At(8 * kT));
  const std::clock_t start = std::clock();
  s->Complete(first->id, At(kT), {});
  const std::clock_t took = std::clock() - start;
  const std::optional<Task> second = s->Next(0, At(kT));
  ASSERT_EQ(RequestsOf(second).size(), static_cast<size_t>(kHalf));
  EXPECT_EQ(second->type, 0) << "they catch up";
  EXPECT_LT(took, CLOCKS_PER_SEC);
}

// Requests that may leave after stage 0, and skip stages: their graphs begin with that stage alone.
class ExitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    PolicyOptions options{.max_batch_size = 4, .stage_types = {0, 1, 2, 3}};
    for (int stage = 0; stage < 4; ++stage) options.cell_types.push_back({.priority = stage});
    policy_ = MakePolicy(GetParam(), options);
    for (BatchRequestId id = 1; id <= 4; ++id) policy_->Arrive(id, Stages(1), 0, At(0), {});
    first_ = policy_->Next(0, At(0));
    ASSERT_THAT(RequestsOf(first_), ::testing::ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(policy_->Next(1, At(0)), std::nullopt) << "nobody runs ahead of an exit";
  }
  // The stages from `first` on.
  void Grow(BatchRequestId id, CellType first) {
    static constexpr std::array<int32_t, 3> kNodes = {0, 1, 2};
    for (CellType type = first; type < 4; ++type) {
      grown_.push_back({.request = id,
                        .type = type,
                        .rows = 1,
                        .dependencies = std::span(kNodes).subspan(type - first, 1)});
    }
  }

  std::unique_ptr<Scheduler> policy_;
  std::optional<Task> first_;
  std::vector<Scheduler::Growth> grown_;
};

TEST_P(ExitsTest, WhoLeavesEarlyIsAnsweredAtOnceAndTheOthersGoOnWithoutThem) {
  Grow(2, 1);
  Grow(4, 1);
  EXPECT_THAT(policy_->Complete(first_->id, At(kT), grown_), ::testing::ElementsAre(1, 3));
  for (CellType type = 1; type < 4; ++type) {
    const std::optional<Task> task = policy_->Next(0, At(type * kT));
    EXPECT_EQ(task->type, type);
    EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(2, 4));
    EXPECT_EQ(task->rows, 2);
    const auto left = policy_->Complete(task->id, At((type + 1) * kT), {});
    EXPECT_EQ(left.size(), type == 3 ? 2u : 0u);
  }
}

TEST_P(ExitsTest, WhoSkipsStagesEntersTheLaterOneAtOnce) {
  Grow(1, 1);
  Grow(2, 3);
  Grow(3, 1);
  Grow(4, 3);
  EXPECT_THAT(policy_->Complete(first_->id, At(kT), grown_), ::testing::IsEmpty());
  const std::optional<Task> late = policy_->Next(0, At(kT));
  EXPECT_EQ(late->type, 3);
  EXPECT_THAT(RequestsOf(late), ::testing::ElementsAre(2, 4));
  const std::optional<Task> early = policy_->Next(1, At(kT));
  ASSERT_TRUE(early) << "the others are held up";
  EXPECT_EQ(early->type, 1);
  EXPECT_THAT(RequestsOf(early), ::testing::ElementsAre(1, 3));
  EXPECT_THAT(policy_->Complete(late->id, At(2 * kT), {}), ::testing::ElementsAre(2, 4));
  EXPECT_THAT(policy_->Complete(early->id, At(2 * kT), {}), ::testing::IsEmpty());
  EXPECT_EQ(policy_->Next(0, At(2 * kT))->type, 2);
}

TEST_P(ExitsTest, AllMayLeave) {
  EXPECT_THAT(policy_->Complete(first_->id, At(kT), {}), ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(policy_->Next(0, At(kT)), std::nullopt);
  EXPECT_EQ(policy_->waiting(), 0);
  policy_->Arrive(5, Stages(1), 0, At(kT), {});
  EXPECT_THAT(RequestsOf(policy_->Next(0, At(kT))), ::testing::ElementsAre(5));
}

INSTANTIATE_TEST_SUITE_P(Policies, ExitsTest, ::testing::Values("staged", "cellular"));

// The example of chairlift/stage_policy.h.
class PairsPolicy : public StagePolicy {
 public:
  void Schedule(const StageBatch& batch, MetaOperations& operations) override {
    if (batch.stage == 0) {
      if (!operations.Stretch(1)) {
        operations.New(std::min(2, static_cast<int>(batch.rows.size())));
      }
    } else if (batch.stage == 1 && batch.rows.size() == 2) {
      EXPECT_TRUE(operations.Split(std::array{1, 1}));
    }
  }
};

TEST(StagePolicyTest, ConditionsOfAUsersOwnCallTheMetaOperations) {
  PairsPolicy pairs;
  const auto s = Staged({.max_batch_size = 4, .stage_policy = &pairs}, {});
  for (BatchRequestId id = 1; id <= 2; ++id) s->Arrive(id, Stages(3), 0, At(0), {});
  std::optional<Task> task = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(1, 2));  // new
  s->Complete(task->id, At(kT), {});
  task = s->Next(0, At(kT));
  EXPECT_THAT(RequestsOf(task), ::testing::ElementsAre(1));  // split
  s->Complete(task->id, At(2 * kT), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(2 * kT))), ::testing::ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(1, At(2 * kT))), ::testing::ElementsAre(2));
}

TEST(StagePolicyTest, WhatIsNotPossibleDoesNothing) {
  class Asks : public StagePolicy {
   public:
    void Schedule(const StageBatch& batch, MetaOperations& operations) override {
      EXPECT_EQ(batch.stages, 3);
      EXPECT_EQ(operations.max_batch_size(), 4);
      EXPECT_EQ(operations.Cost(3, 1), Duration(0));
      EXPECT_EQ(operations.Cost(-1, 1), Duration(0));
      EXPECT_EQ(operations.Cost(0, 0), Duration(0));
      EXPECT_EQ(operations.Cost(2, 3), microseconds(kT));
      EXPECT_FALSE(operations.New(0));
      EXPECT_FALSE(operations.New(100));
      EXPECT_FALSE(operations.Stretch(0));
      EXPECT_FALSE(operations.Stretch(100));
      EXPECT_FALSE(operations.Split({}));
      EXPECT_FALSE(operations.Split(std::array{1, 2}));
      EXPECT_FALSE(operations.Split(std::array{-1, 2}));
      constexpr int kMost = std::numeric_limits<int>::max();
      EXPECT_FALSE(operations.Split(std::array{kMost, kMost, 3}));  // 1 if it wrapped
      EXPECT_FALSE(operations.New(kMost));
      EXPECT_FALSE(operations.Stretch(-kMost));
      if (batch.stage > 0) {
        EXPECT_FALSE(operations.New(1));
        EXPECT_FALSE(operations.Stretch(1));
        EXPECT_TRUE(operations.Split(std::array{1}));
        EXPECT_FALSE(operations.Split(std::array{1}));
        return;
      }
      EXPECT_EQ(batch.rows[0], 3);
      EXPECT_EQ(operations.latest(), nullptr);
      operations.WakeAfter(Duration::min());
      operations.WakeAfter(Duration::max());
      if (batch.age < microseconds(kT)) return operations.WakeAfter(microseconds(kT) - batch.age);
      made += operations.New(1) ? 1 : 0;  // where the worker may begin, and once
      EXPECT_FALSE(operations.New(1));
    }
    int made = 0;
  } asks;
  const Costs costs(3);
  const auto s = Staged({.max_batch_size = 4, .costs = &costs, .stage_policy = &asks}, {});
  s->Arrive(1, Stages(3, 0, /*rows=*/3), 0, At(0), {});
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(0)), At(kT));
  std::optional<Task> task = s->Next(0, At(kT));
  ASSERT_TRUE(task);
  s->Complete(task->id, At(2 * kT), {});
  EXPECT_EQ(s->Next(0, At(2 * kT))->type, 1);
  EXPECT_EQ(asks.made, 1);
}

// Any operation at any time.
class RandomPolicy : public StagePolicy {
 public:
  explicit RandomPolicy(unsigned seed) : random_(seed) {}
  void Schedule(const StageBatch& batch, MetaOperations& operations) override {
    const int queries = static_cast<int>(batch.rows.size());
    if (batch.stage > 0) {
      std::vector<int> sizes;
      for (int left = queries; left > 0; left -= sizes.back()) sizes.push_back(Pick(1, left));
      if (Pick(0, 2) == 0) operations.Split(sizes);
      return;
    }
    operations.WakeAfter(microseconds(Pick(1, kT)));
    if (Pick(0, 3) == 0) return;
    if (operations.latest() != nullptr && Pick(0, 1) == 0) operations.Stretch(Pick(1, queries));
    operations.New(Pick(1, queries + 1));
    operations.New(1);
  }

 private:
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  std::mt19937 random_;
};

struct StagedSetup {
  PolicyOptions options;
  StagedOptions staged;
  int workers;
  unsigned seed;
  // Requests grow after stages 0 and 2, where they may leave or skip some.
  bool exits = false;
  bool random_policy = false;
  bool cellular = false;         // that policy, which keeps the same promises
  bool packed = false;           // rows are tokens, of each request as many as it has
  std::set<CellType> flat = {};  // stages of MixedCosts; none: other costs
};

class RandomStagedTest : public ::testing::TestWithParam<StagedSetup> {};

// Each node of each request once and in order; clients' requests start in order; no request is
// lost.
TEST_P(RandomStagedTest, NoRowIsLostDoubledOrComputedTwice) {
  static const Costs kCosts(1);
  StagedSetup setup = GetParam();
  const MixedCosts mixed(setup.flat);
  setup.options.costs = setup.flat.empty() ? static_cast<const CostModel*>(&kCosts) : &mixed;
  RandomPolicy policy(setup.seed);
  if (setup.random_policy) setup.options.stage_policy = &policy;
  if (setup.exits) setup.options.stage_types = {0, 1, 2, 3};
  const auto s =
      setup.cellular ? MakePolicy("cellular", setup.options) : Staged(setup.options, setup.staged);
  std::mt19937 random(setup.seed);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  struct Known {
    std::vector<CellType> types = {};  // of its nodes
    bool grows = false;                // at the end of these
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
  int left_early = 0;
  int skipped = 0;
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
      k.grows = setup.exits && !other;
      const int32_t stages = other || k.grows ? 1 : 4;
      for (int32_t i = 0; i < stages; ++i) k.types.push_back(other ? 10 : i);
      const bool many = setup.packed || pick(0, 9) == 0;
      k.rows = many ? pick(1, setup.options.max_batch_size + 2) : 1;
      k.length = pick(0, 3) * 4;
      k.client = pick(0, 3) == 0 ? static_cast<ClientId>(pick(1, 3)) : 0;
      if (pick(0, 4) == 0) k.deadline = now + microseconds(pick(0, 30 * kT));
      s->Arrive(id, Stages(stages, k.length, k.rows, k.types[0]), k.client, now, k.deadline);
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
      std::vector<Scheduler::Growth> grown;
      std::deque<int32_t> nodes;  // that the growth reads from
      for (const NodeRef& ref : task->second.nodes) {
        Known& k = known.at(ref.request);
        ++k.ended;
        if (!k.grows || k.leaving || k.ended < static_cast<int32_t>(k.types.size())) continue;
        // Leaves, or goes on at the next stage or at a later one, up to the next exit.
        const CellType last = k.types.back();
        const auto next = static_cast<CellType>(pick(static_cast<int>(last) + 1, 4));
        k.grows = next <= 2;
        left_early += last < 3 && next == 4 ? 1 : 0;
        skipped += next < 4 && next > last + 1 ? 1 : 0;
        for (CellType type = next; type < (next <= 2 ? 3 : 4); ++type) {
          nodes.push_back(static_cast<int32_t>(k.types.size()) - 1);
          k.types.push_back(type);
          grown.push_back({.request = ref.request,
                           .type = type,
                           .rows = k.rows,
                           .dependencies = std::span(&nodes.back(), 1)});
        }
      }
      for (const BatchRequestId id : s->Complete(task->second.id, now, grown)) {
        const Known& k = known.at(id);
        ASSERT_EQ(k.given, k.ended);
        ASSERT_TRUE(k.leaving || k.ended == static_cast<int32_t>(k.types.size()));
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
        ASSERT_EQ(task->type, k.types.at(static_cast<size_t>(ref.node)));
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
    // Some worker always works while there is work.
    if (setup.options.queue_delay == Duration(0) && !setup.staged.by_length &&
        !setup.random_policy && !known.empty()) {
      ASSERT_TRUE(std::any_of(running.begin(), running.end(), [](const auto& t) { return t; }));
    }
  }
  EXPECT_TRUE(known.empty()) << known.size() << " requests are lost";
  EXPECT_EQ(s->waiting(), 0);
  EXPECT_GT(finished, kRequests / 4);
  EXPECT_GT(expired, 0);
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(merged, 100);
  EXPECT_EQ(left_early > 1000, setup.exits);
  EXPECT_EQ(skipped > 1000, setup.exits);
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
                    9},
        StagedSetup{{.max_batch_size = 8}, {.split = true, .stretch = true}, 1, 10, true},
        StagedSetup{{.max_batch_size = 8}, {.stretch = true, .buffer_pairs = 1}, 4, 11, true},
        StagedSetup{{.max_batch_size = 8}, {}, 3, 12, false, true},
        StagedSetup{{.max_batch_size = 8}, {.buffer_pairs = 1}, 2, 13, true, true},
        StagedSetup{{.max_batch_size = 8, .latency_objective = microseconds(6000)},
                    {.split = true, .stretch = true},
                    3,
                    14,
                    true},
        StagedSetup{{.max_batch_size = 8, .max_tasks_to_submit = 1}, {}, 1, 15, true, false, true},
        StagedSetup{{.max_batch_size = 3, .max_tasks_to_submit = 1}, {}, 1, 16, true, false, true},
        StagedSetup{.options = {.max_batch_size = 64},
                    .staged = {.split = true, .stretch = true},
                    .workers = 2,
                    .seed = 18,
                    .packed = true},
        StagedSetup{.options = {.max_batch_size = 16},
                    .staged = {.split = true, .stretch = true},
                    .workers = 1,
                    .seed = 20,
                    .flat = {2, 3}},
        StagedSetup{.options = {.max_batch_size = 16},
                    .staged = {.split = true, .stretch = true, .buffer_pairs = 1},
                    .workers = 3,
                    .seed = 21,
                    .exits = true,
                    .flat = {3}},
        StagedSetup{.options = {.max_batch_size = 16, .workers = 2},
                    .staged = {.split = true, .stretch = true},
                    .workers = 2,
                    .seed = 22,
                    .flat = {1, 3}},
        StagedSetup{.options = {.max_batch_size = 16, .workers = 4},
                    .staged = {.split = true, .stretch = true, .buffer_pairs = 3},
                    .workers = 4,
                    .seed = 23,
                    .flat = {0, 2}},
        StagedSetup{.options = {.max_batch_size = 64},
                    .staged = {},
                    .workers = 2,
                    .seed = 19,
                    .cellular = true,
                    .packed = true}));

}  // namespace staged_test
}  // namespace chairlift
