// The packed policy, case by case and its bound on overtaking.
#include "batching/policies/packed.h"

#include <gmock/gmock.h>

#include <random>

#include "batching/length_costs.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CellGraph Tokens(int32_t tokens, CellType type = 0) {
  CellGraph graph;
  graph.Add(type, tokens);
  return graph;
}

class PackedTest : public ::testing::Test {
 protected:
  void Make(const PolicyOptions& options) { scheduler_ = MakePolicy("packed", options); }
  void Arrive(BatchRequestId id, int32_t tokens, ClientId client = 0, CellType type = 0) {
    scheduler_->Arrive(id, Tokens(tokens, type), client, At(0), {});
  }
  void ArriveInTurn(BatchRequestId id, int32_t tokens, uint64_t turn, ClientId client = 0) {
    CellGraph graph = Tokens(tokens);
    graph.set_turn(turn);
    scheduler_->Arrive(id, graph, client, At(0), {});
  }
  // For the next task of a worker, which runs from then on.
  std::vector<BatchRequestId> Next(WorkerId worker = 0) {
    task_ = scheduler_->Next(worker, At(0));
    if (task_) running_[worker] = task_->id;
    return RequestsOf(task_);
  }
  std::vector<BatchRequestId> End(WorkerId worker = 0) {
    return scheduler_->Complete(running_.at(worker), At(0), {});
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::optional<Task> task_;  // the last one
  std::map<WorkerId, TaskId> running_;
};

TEST_F(PackedTest, ABatchIsTheOldestWhoseTokensFitTheBudget) {
  Make({.max_batch_size = 100});
  for (BatchRequestId id : {1, 2, 3}) Arrive(id, 40);
  EXPECT_EQ(scheduler_->waiting(), 3);
  EXPECT_THAT(Next(), ElementsAre(1, 2));
  EXPECT_EQ(task_->rows, 80);
  EXPECT_EQ(task_->length, 0);
  EXPECT_EQ(scheduler_->waiting(), 1);
  EXPECT_THAT(End(), ElementsAre(1, 2));
  EXPECT_THAT(Next(), ElementsAre(3));
}

TEST_F(PackedTest, AWorkerHasOneTaskAtATime) {
  Make({.max_batch_size = 10});
  for (BatchRequestId id : {1, 2}) Arrive(id, 10);
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_THAT(Next(), IsEmpty());
  Arrive(3, 10);
  EXPECT_THAT(End(), ElementsAre(1));
  EXPECT_THAT(Next(), ElementsAre(2));
}

// A token takes a microsecond alone; by a team, `share` of that.
class FakeTeamCosts : public TeamCosts {
 public:
  explicit FakeTeamCosts(double share) : share_(share) {}
  std::optional<Cost> Of(CellType /*type*/, int32_t rows) const override {
    return Cost{.alone = microseconds(rows),
                .team = std::chrono::duration_cast<Duration>(share_ * microseconds(rows))};
  }

 private:
  double share_;
};

TEST_F(PackedTest, WhereAFewWaitAllWorkersRunOneBatch) {
  const FakeTeamCosts costs(0.6);  // 83% of what each does alone
  Make({.max_batch_size = 100, .workers = 2, .team_costs = &costs});
  Arrive(1, 60);
  Arrive(2, 60);
  EXPECT_THAT(Next(0), ElementsAre(1));
  EXPECT_TRUE(task_->by_team);
  EXPECT_THAT(Next(1), IsEmpty());
  for (BatchRequestId id : {3, 4, 5}) Arrive(id, 60);
  EXPECT_THAT(Next(1), IsEmpty()) << "four wait";
  Arrive(6, 60);
  EXPECT_THAT(Next(1), ElementsAre(2)) << "five did";
  EXPECT_FALSE(task_->by_team);
  EXPECT_THAT(End(0), ElementsAre(1));
  EXPECT_THAT(Next(0), ElementsAre(3)) << "the other has a task of its own";
  EXPECT_FALSE(task_->by_team);
  End(0);
  EXPECT_THAT(Next(0), ElementsAre(4));
  End(0);
  End(1);
  EXPECT_THAT(Next(1), ElementsAre(5));
  EXPECT_TRUE(task_->by_team);
  EXPECT_THAT(Next(0), IsEmpty());
}

TEST_F(PackedTest, ATeamTakesAWholeBatch) {
  const FakeTeamCosts costs(0.6);
  Make({.max_batch_size = 100, .workers = 2, .team_costs = &costs});
  for (BatchRequestId id : {1, 2, 3, 4}) Arrive(id, 25);
  EXPECT_THAT(Next(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(task_->by_team);
}

TEST_F(PackedTest, NobodyWaitsForAMuchLongerTask) {
  const FakeTeamCosts costs(0.6);
  Make({.max_batch_size = 100, .workers = 2, .team_costs = &costs});
  Arrive(1, 100);  // 60 us by both
  EXPECT_THAT(Next(0), ElementsAre(1));
  Arrive(2, 29);  // twice this are 58
  EXPECT_THAT(Next(1), ElementsAre(2));
  End(1);
  Arrive(3, 30);
  EXPECT_THAT(Next(1), IsEmpty());
}

TEST_F(PackedTest, WorkersThatDoWorseTogetherStayAlone) {
  const FakeTeamCosts costs(0.67);  // 74.6%
  Make({.max_batch_size = 100, .workers = 2, .team_costs = &costs});
  Arrive(1, 60);
  EXPECT_THAT(Next(0), ElementsAre(1));
  EXPECT_FALSE(task_->by_team);
  Arrive(2, 60);
  EXPECT_THAT(Next(1), ElementsAre(2));
}

TEST_F(PackedTest, ARequestLargerThanTheBudgetRunsAlone) {
  Make({.max_batch_size = 100});
  Arrive(1, 500);
  Arrive(2, 499);
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_EQ(task_->rows, 500);
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
}

TEST_F(PackedTest, RequestsOfOneTurnWaitBehindOneOfThem) {
  Make({.max_batch_size = 100});
  for (BatchRequestId id : {1, 2, 3, 4, 5}) ArriveInTurn(id, 50, 9);
  Arrive(6, 50);
  EXPECT_EQ(scheduler_->waiting(), 6);
  EXPECT_THAT(Next(), ElementsAre(1, 6));
  End();
  Arrive(7, 50);
  EXPECT_THAT(Next(), ElementsAre(2, 7));
  End();
  EXPECT_THAT(Next(), ElementsAre(3, 4)) << "where nobody else waits, batches are full";
  End();
  EXPECT_THAT(Next(), ElementsAre(5));
  EXPECT_EQ(scheduler_->waiting(), 0);
}

TEST_F(PackedTest, AShortRequestGoesBeforeTheOtherLongOnesOfATurn) {
  Make({.max_batch_size = 100});
  for (BatchRequestId id : {1, 2, 3}) ArriveInTurn(id, 500, 9);
  EXPECT_THAT(Next(), ElementsAre(1));
  for (BatchRequestId id : {4, 5}) Arrive(id, 50);
  End();
  EXPECT_THAT(Next(), ElementsAre(4, 5));
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
}

TEST_F(PackedTest, NodesOfOneRequestTakeTurnsWithOthers) {
  Make({.max_batch_size = 100});
  CellGraph graph;
  for (int i = 0; i < 4; ++i) graph.Add(0, 50);
  scheduler_->Arrive(1, graph, 0, At(0), {});
  Arrive(2, 50);
  EXPECT_THAT(Next(), ElementsAre(1, 1));
  End();
  EXPECT_THAT(Next(), ElementsAre(2, 1));
  End();
  EXPECT_THAT(Next(), ElementsAre(1));
}

TEST_F(PackedTest, ACancelledRequestLeavesItsPlaceToTheNextOfItsTurn) {
  Make({.max_batch_size = 100});
  for (BatchRequestId id : {1, 2, 3, 4}) ArriveInTurn(id, 100, 9);
  EXPECT_TRUE(scheduler_->Cancel(1, At(0)));
  EXPECT_TRUE(scheduler_->Cancel(3, At(0)));
  EXPECT_THAT(Next(), ElementsAre(2));
  End();
  EXPECT_THAT(Next(), ElementsAre(4));
  End();
  EXPECT_THAT(Next(), IsEmpty());
}

TEST_F(PackedTest, AClientsRequestsKeepTheirOrderWhateverTheirTurns) {
  Make({.max_batch_size = 100});
  ArriveInTurn(1, 100, 9);
  ArriveInTurn(2, 100, 9, /*client=*/1);
  ArriveInTurn(3, 10, 9, /*client=*/1);
  EXPECT_THAT(Next(), ElementsAre(1));
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
  End();
  EXPECT_THAT(Next(), ElementsAre(3));
}

TEST_F(PackedTest, ARequestThatDoesNotFitIsPassedAndIsNext) {
  Make({.max_batch_size = 100});
  Arrive(1, 60);
  Arrive(2, 60);
  Arrive(3, 50);
  Arrive(4, 40);
  EXPECT_THAT(Next(), ElementsAre(1, 4));
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
  End();
  EXPECT_THAT(Next(), ElementsAre(3));
}

TEST_F(PackedTest, WhatWaitsIsSharedOutAmongIdleWorkers) {
  Make({.max_batch_size = 100, .workers = 3});
  for (BatchRequestId id = 1; id <= 6; ++id) Arrive(id, 10);
  EXPECT_THAT(Next(2), ElementsAre(1, 2));
  EXPECT_THAT(Next(0), ElementsAre(3, 4));
  EXPECT_THAT(Next(1), ElementsAre(5, 6));
  for (BatchRequestId id = 7; id <= 9; ++id) Arrive(id, 10);
  End(1);
  EXPECT_THAT(Next(1), ElementsAre(7, 8, 9));  // the others are busy
}

TEST_F(PackedTest, SharesOfUnequalRequestsAreAsEvenAsTheyCanBe) {
  Make({.max_batch_size = 100, .workers = 2});
  Arrive(1, 50);
  Arrive(2, 60);
  Arrive(3, 40);
  EXPECT_THAT(Next(0), ElementsAre(1, 3));
  EXPECT_THAT(Next(1), ElementsAre(2));
}

TEST_F(PackedTest, NothingIsSharedOutWherePiecesWouldBeTooSmall) {
  Make({.max_batch_size = 100, .workers = 2, .cell_types = {{.min_batch_size = 32}}});
  for (BatchRequestId id = 1; id <= 6; ++id) Arrive(id, 10);
  EXPECT_THAT(Next(0), ElementsAre(1, 2, 3, 4, 5, 6));
  for (BatchRequestId id = 7; id <= 13; ++id) Arrive(id, 10);
  End(0);
  EXPECT_THAT(Next(0), ElementsAre(7, 8, 9, 10));
  EXPECT_THAT(Next(1), ElementsAre(11, 12, 13));
}

// 16 tokens cost what one does; from 128 on the machine becomes no faster.
TEST_F(PackedTest, TheBudgetAndTheSmallestShareFollowFromTheCosts) {
  LengthCosts costs;
  ASSERT_TRUE(costs
                  .AddType({{1, 0, microseconds(100)},
                            {16, 0, microseconds(105)},
                            {128, 0, microseconds(500)},
                            {4096, 0, microseconds(16000)}})
                  .ok());
  Make({.max_batch_size = 4096, .workers = 2, .costs = &costs});
  for (BatchRequestId id = 1; id <= 5; ++id) Arrive(id, 64);
  EXPECT_THAT(Next(0), ElementsAre(1, 2));
  EXPECT_THAT(Next(1), ElementsAre(3, 4));
  End(0);
  End(1);
  EXPECT_THAT(Next(1), ElementsAre(5));
  End(1);
  for (BatchRequestId id = 6; id <= 8; ++id) Arrive(id, 10);
  EXPECT_THAT(Next(0), ElementsAre(6, 7, 8));
}

TEST_F(PackedTest, ABudgetIsNeverSmallButWhereItIsGiven) {
  LengthCosts costs;  // in proportion
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {64, 0, microseconds(640)}}).ok());
  PolicyOptions options = {.max_batch_size = 4096, .costs = &costs};
  EXPECT_EQ(TokenSizesOf(options, 0),
            (BatchSizes{.min = 1, .max = kLeastBudget, .most = kLeastBudget}));
  options.max_batch_size = 48;
  EXPECT_EQ(TokenSizesOf(options, 0).max, 48);
  options.cell_types = {{.max_batch_size = 9}};
  EXPECT_EQ(TokenSizesOf(options, 0).max, 9);
}

TEST_F(PackedTest, AShortRequestOvertakesALongOneThatHasJustCome) {
  Make({.max_batch_size = 100});
  Arrive(1, 100);
  Arrive(2, 10);
  Arrive(3, 70);
  EXPECT_THAT(Next(), ElementsAre(2, 3));
  End();
  EXPECT_THAT(Next(), ElementsAre(1));
}

TEST_F(PackedTest, ALongRequestIsNotOvertakenByMoreThanItsOwnTokens) {
  std::mt19937 random(1);
  std::geometric_distribution<int> length(0.01);
  Make({.max_batch_size = 1});  // one by one
  std::vector<int32_t> tokens = {0};
  std::vector<BatchRequestId> started;
  int overtakings = 0;
  const auto start = [&] {
    const std::vector<BatchRequestId> batch = Next();
    if (batch.empty()) return;
    started.push_back(batch.at(0));
    End();
  };
  for (BatchRequestId id = 1; id <= 2000; ++id) {
    tokens.push_back(1 + length(random));
    Arrive(id, tokens.back());
    if (random() % 4 != 0) start();
  }
  while (scheduler_->waiting() > 0) start();
  for (size_t i = 0; i < started.size(); ++i) {
    int64_t later = 0;
    for (size_t j = 0; j < i; ++j) {
      if (started[j] < started[i]) continue;
      later += tokens[started[j]];
      EXPECT_LT(tokens[started[j]], tokens[started[i]]);
      ++overtakings;
    }
    ASSERT_LE(later, kTokensPatience * tokens[started[i]]) << "request " << started[i];
  }
  EXPECT_GT(overtakings, 100);
}

TEST_F(PackedTest, AClientsRequestsKeepTheirOrderAndMayShareABatch) {
  Make({.max_batch_size = 100});
  Arrive(1, 90, 7);
  Arrive(2, 10, 7);
  Arrive(3, 20, 7);
  EXPECT_THAT(Next(), ElementsAre(1, 2));
  End();
  Arrive(4, 10);
  EXPECT_THAT(Next(), ElementsAre(4, 3));
}

TEST_F(PackedTest, AClientsRequestDoesNotPassAnEarlierOneThatDoesNotFit) {
  Make({.max_batch_size = 100});
  Arrive(1, 50);
  Arrive(2, 60, 7);
  Arrive(3, 40, 7);
  EXPECT_THAT(Next(), ElementsAre(1));
  End();
  EXPECT_TRUE(scheduler_->Cancel(2, At(0)));
  EXPECT_THAT(Next(), ElementsAre(3));
}

TEST_F(PackedTest, ACancelledRequestDoesNotHoldBackItsClientsNextOne) {
  Make({.max_batch_size = 10});
  Arrive(1, 10, 7);
  Arrive(2, 90, 7);  // as if after 280 tokens
  EXPECT_TRUE(scheduler_->Cancel(2, At(0)));
  Arrive(3, 10, 7);  // after 130
  Arrive(4, 20);     // after 170
  for (const BatchRequestId id : {1, 3, 4}) {
    EXPECT_THAT(Next(), ElementsAre(id));
    End();
  }
}

TEST_F(PackedTest, TypesDoNotMixAndTheEarliestGoesFirst) {
  Make({.max_batch_size = 100});
  Arrive(1, 20, 0, 5);
  Arrive(2, 20, 0, 3);
  Arrive(3, 20, 0, 5);
  EXPECT_THAT(Next(), ElementsAre(1, 3));
  EXPECT_EQ(task_->type, 5u);
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
}

TEST_F(PackedTest, RequestsOfNoTokensCountAsOne) {
  Make({.max_batch_size = 2});
  for (BatchRequestId id : {1, 2, 3}) Arrive(id, 0);
  EXPECT_THAT(Next(), ElementsAre(1, 2));
  EXPECT_EQ(task_->rows, 0);
}

TEST_F(PackedTest, ACancelledRequestLeavesAtOnceUnlessItRuns) {
  Make({.max_batch_size = 10});
  Arrive(1, 10);
  Arrive(2, 10);
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_FALSE(scheduler_->Cancel(1, At(0)));
  EXPECT_TRUE(scheduler_->Cancel(2, At(0)));
  EXPECT_TRUE(scheduler_->Cancel(9, At(0)));
  EXPECT_THAT(End(), ElementsAre(1));
  EXPECT_THAT(Next(), IsEmpty());
}

}  // namespace
}  // namespace chairlift
