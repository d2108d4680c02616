// The window policy on worked examples, in virtual time.
#include <gmock/gmock.h>

#include <string>

#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CellGraph Single(CellType type, int32_t rows = 1) {
  CellGraph graph;
  graph.Add(type, rows);
  return graph;
}

std::unique_ptr<Scheduler> Make(int max_batch_size, int64_t delay_us = 0,
                                std::vector<int> preferred = {}) {
  return MakePolicy("window", {.max_batch_size = max_batch_size,
                               .queue_delay = microseconds(delay_us),
                               .preferred_batch_sizes = std::move(preferred)});
}

TEST(WindowTest, NoDelayTakesWhateverWaits) {
  auto s = Make(8);
  for (BatchRequestId id : {1, 2, 3}) s->Arrive(id, Single(0), 0, At(0), {});
  EXPECT_EQ(s->waiting(), 3);
  const std::optional<Task> task = s->Next(4, At(0));
  EXPECT_THAT(RequestsOf(task), ElementsAre(1, 2, 3));
  EXPECT_EQ(task->rows, 3);
  EXPECT_EQ(task->worker, 4);
  EXPECT_EQ(s->waiting(), 0);
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(0)), std::nullopt);
}

TEST(WindowTest, ATaskKeepsToTheSizeAndTheRestGoesNext) {
  auto s = Make(4);
  for (BatchRequestId id = 1; id <= 6; ++id) s->Arrive(id, Single(0), 0, At(0), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(5, 6));
}

TEST(WindowTest, RowsCountNotRequests) {
  auto s = Make(4);
  s->Arrive(1, Single(0, 3), 0, At(0), {});
  s->Arrive(2, Single(0, 2), 0, At(0), {});
  s->Arrive(3, Single(0, 1), 0, At(0), {});
  // 3 would fit beside 1, but would overtake 2.
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(2, 3));
}

TEST(WindowTest, ARequestLargerThanTheLimitGoesAlone) {
  auto s = Make(4);
  s->Arrive(1, Single(0, 9), 0, At(0), {});
  s->Arrive(2, Single(0, 1), 0, At(0), {});
  const std::optional<Task> task = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(task), ElementsAre(1));
  EXPECT_EQ(task->rows, 9);
}

TEST(WindowTest, RequestsOfNoRowsCountAsOneTowardsTheLimit) {
  auto s = Make(2);
  for (BatchRequestId id : {1, 2, 3}) s->Arrive(id, Single(0, 0), 0, At(0), {});
  const std::optional<Task> task = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(task), ElementsAre(1, 2));
  EXPECT_EQ(task->rows, 0);
}

TEST(WindowTest, TheOldestWaitsForCompanyUpToTheDelay) {
  auto s = Make(8, 100);
  s->Arrive(1, Single(0), 0, At(0), {});
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(0)), At(100));
  s->Arrive(2, Single(0), 0, At(60), {});
  EXPECT_EQ(s->Next(0, At(99)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(99)), At(100));
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(1, 2));
}

TEST(WindowTest, AFullBatchDoesNotWait) {
  auto s = Make(2, 100);
  s->Arrive(1, Single(0), 0, At(0), {});
  s->Arrive(2, Single(0), 0, At(1), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(1))), ElementsAre(1, 2));
}

TEST(WindowTest, ABatchThatTheNextWouldOverfillDoesNotWait) {
  auto s = Make(4, 100);
  s->Arrive(1, Single(0, 3), 0, At(0), {});
  s->Arrive(2, Single(0, 2), 0, At(1), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(1))), ElementsAre(1));
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(1)), At(101));
}

TEST(WindowTest, APreferredSizeGoesAtOnceAndTheLargestFirst) {
  auto s = Make(8, 100, {2, 4});
  s->Arrive(1, Single(0), 0, At(0), {});
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  for (BatchRequestId id : {2, 3, 4, 5}) s->Arrive(id, Single(0), 0, At(1), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(1))), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  EXPECT_EQ(s->WakeAt(At(1)), At(101));
  EXPECT_THAT(RequestsOf(s->Next(0, At(101))), ElementsAre(5));
}

TEST(WindowTest, WithoutAPreferredSizeInReachTheDelayDecides) {
  auto s = Make(8, 100, {4});
  for (BatchRequestId id : {1, 2, 3}) s->Arrive(id, Single(0), 0, At(0), {});
  EXPECT_EQ(s->Next(0, At(99)), std::nullopt);
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(1, 2, 3));
}

TEST(WindowTest, TypesDoNotMixAndTheOldestGoesFirst) {
  auto s = Make(8);
  s->Arrive(1, Single(7), 0, At(0), {});
  s->Arrive(2, Single(3), 0, At(1), {});
  s->Arrive(3, Single(7), 0, At(2), {});
  const std::optional<Task> first = s->Next(0, At(2));
  EXPECT_EQ(first->type, 7u);
  EXPECT_THAT(RequestsOf(first), ElementsAre(1, 3));
  EXPECT_THAT(RequestsOf(s->Next(0, At(2))), ElementsAre(2));
}

TEST(WindowTest, AFullTypeMayPassOneThatStillWaitsForCompany) {
  auto s = Make(2, 100);
  s->Arrive(1, Single(0), 0, At(0), {});
  s->Arrive(2, Single(1), 0, At(1), {});
  s->Arrive(3, Single(1), 0, At(2), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(2))), ElementsAre(2, 3));
  EXPECT_EQ(s->WakeAt(At(2)), At(100));
}

TEST(WindowTest, RequestsOfOneClientStartInOrderAcrossTypes) {
  auto s = Make(8, 100);
  s->Arrive(1, Single(0), 5, At(0), {});
  s->Arrive(2, Single(1), 5, At(0), {});
  s->Arrive(3, Single(1), 0, At(10), {});
  // 2 may not start before 1; 3 need not wait for either.
  EXPECT_EQ(s->WakeAt(At(10)), At(100));
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(2, 3));
}

TEST(WindowTest, RequestsOfOneClientMayShareABatch) {
  auto s = Make(8);
  for (BatchRequestId id : {1, 2, 3}) s->Arrive(id, Single(0), 5, At(0), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(1, 2, 3));
}

TEST(WindowTest, CancellingFreesTheClientsNextRequest) {
  auto s = Make(8, 100);
  s->Arrive(1, Single(0), 5, At(0), {});
  s->Arrive(2, Single(1), 5, At(0), {});
  s->Cancel(1, At(1));
  EXPECT_EQ(s->waiting(), 1);
  EXPECT_EQ(s->WakeAt(At(1)), At(100));
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(2));
}

TEST(WindowTest, CancelledRequestsNeverRun) {
  auto s = Make(8);
  for (BatchRequestId id : {1, 2, 3}) s->Arrive(id, Single(0), 0, At(0), {});
  s->Cancel(2, At(0));
  s->Cancel(99, At(0));
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(1, 3));
}

TEST(WindowTest, CancellingWhatRunsLeavesTheTaskToEnd) {
  auto s = Make(8);
  s->Arrive(1, Single(0), 0, At(0), {});
  const std::optional<Task> task = s->Next(0, At(0));
  s->Cancel(1, At(1));
  s->Complete(task->id, At(2), {});
  EXPECT_EQ(s->Next(0, At(2)), std::nullopt);
}

TEST(WindowTest, ExpiredRequestsLeaveAndAreToldOnce) {
  auto s = Make(8, 100);
  s->Arrive(1, Single(0), 0, At(0), At(50));
  s->Arrive(2, Single(0), 0, At(0), {});
  EXPECT_EQ(s->WakeAt(At(0)), At(50));
  EXPECT_THAT(s->TakeExpired(At(49)), IsEmpty());
  EXPECT_THAT(s->TakeExpired(At(50)), ElementsAre(1));
  EXPECT_THAT(s->TakeExpired(At(50)), IsEmpty());
  EXPECT_EQ(s->waiting(), 1);
  EXPECT_THAT(RequestsOf(s->Next(0, At(100))), ElementsAre(2));
}

TEST(WindowTest, NextPassesOverWhatHasExpired) {
  auto s = Make(8);
  s->Arrive(1, Single(0), 0, At(0), At(50));
  EXPECT_EQ(s->Next(0, At(50)), std::nullopt);
  EXPECT_THAT(s->TakeExpired(At(50)), ElementsAre(1));
}

TEST(WindowTest, AStartedRequestDoesNotExpire) {
  auto s = Make(8);
  s->Arrive(1, Single(0), 0, At(0), At(50));
  const std::optional<Task> task = s->Next(0, At(49));
  EXPECT_THAT(s->TakeExpired(At(60)), IsEmpty());
  s->Complete(task->id, At(70), {});
}

TEST(WindowTest, ADueWindowDoesNotHideALaterDeadline) {
  auto s = Make(8, 10);
  s->Arrive(1, Single(0), 0, At(0), At(50));
  // Due since 10, but no worker came; the deadline is the next time of interest.
  EXPECT_EQ(s->WakeAt(At(20)), At(50));
}

TEST(WindowTest, NodesWaitForTheirDependencies) {
  auto s = Make(8);
  CellGraph chain;
  chain.Add(0);
  chain.Add(1, 1, {0});
  s->Arrive(1, chain, 0, At(0), {});
  s->Arrive(2, chain, 0, At(0), {});
  const std::optional<Task> first = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(first), ElementsAre(1, 2));
  EXPECT_EQ(s->Next(1, At(0)), std::nullopt);
  s->Complete(first->id, At(5), {});
  const std::optional<Task> second = s->Next(0, At(5));
  EXPECT_EQ(second->type, 1u);
  EXPECT_THAT(RequestsOf(second), ElementsAre(1, 2));
}

TEST(WindowTest, ARequestGrowsByWhatItsNodesAppend) {
  auto s = Make(8);
  s->Arrive(1, Single(0), 0, At(0), {});
  const std::optional<Task> first = s->Next(0, At(0));
  const std::vector<int32_t> dependencies = {0};
  const Scheduler::Growth growth{.request = 1, .type = 0, .rows = 1, .dependencies = dependencies};
  s->Complete(first->id, At(1), {&growth, 1});
  const std::optional<Task> second = s->Next(0, At(1));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->nodes[0].node, 1);
  s->Complete(second->id, At(2), {});
  EXPECT_EQ(s->Next(0, At(2)), std::nullopt);
}

TEST(WindowTest, APreferredSizeAboveTheLargestIsRefused) {
  const Status status =
      MakeScheduler("window", {.max_batch_size = 4, .preferred_batch_sizes = {2, 5}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("preferred_batch_sizes has 5"));
}

TEST(NoneTest, EveryRequestRunsAloneInOrder) {
  auto s = MakePolicy("none", {.max_batch_size = 8});
  s->Arrive(1, Single(0), 0, At(0), {});
  s->Arrive(2, Single(1, 5), 0, At(0), {});
  s->Arrive(3, Single(0), 0, At(0), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(2));
  EXPECT_THAT(RequestsOf(s->Next(0, At(0))), ElementsAre(3));
}

CellGraph Nodes(int count) {
  CellGraph graph;
  for (int i = 0; i < count; ++i) graph.Add(0, 1);
  return graph;
}

// The next `count` tasks, of one node each.
std::vector<BatchRequestId> NextOnes(Scheduler& scheduler, int count) {
  std::vector<BatchRequestId> ones;
  for (int i = 0; i < count; ++i) {
    const std::optional<Task> task = scheduler.Next(0, At(0));
    if (!task) break;
    ones.push_back(RequestsOf(task).at(0));
  }
  return ones;
}

TEST(WindowTest, ARequestOfManyNodesTakesTurnsWithOthers) {
  auto s = Make(1);
  s->Arrive(1, Nodes(5), 0, At(0), {});
  s->Arrive(2, Nodes(2), 0, At(0), {});
  EXPECT_THAT(NextOnes(*s, 3), ElementsAre(1, 2, 1));
  s->Arrive(3, Single(0), 0, At(0), {});
  EXPECT_THAT(NextOnes(*s, 9), ElementsAre(2, 1, 3, 1, 1));
}

TEST(WindowTest, RequestsWithTheSameTurnTakeTurnsAsOne) {
  auto s = Make(1);
  for (BatchRequestId id : {1, 2, 3, 4}) {
    CellGraph graph = Single(0);
    graph.set_turn(9);
    s->Arrive(id, graph, 0, At(0), {});
  }
  s->Arrive(5, Single(0), 0, At(0), {});
  EXPECT_THAT(NextOnes(*s, 2), ElementsAre(1, 5));
  s->Cancel(2, At(0));
  s->Arrive(6, Single(0), 0, At(0), {});
  EXPECT_THAT(NextOnes(*s, 9), ElementsAre(6, 3, 4));
}

TEST(WindowTest, NewcomersDoNotHoldUpWhatWaits) {
  auto s = Make(1);
  s->Arrive(1, Nodes(50), 0, At(0), {});
  int own = 0;
  for (BatchRequestId id = 2; id < 42; ++id) {
    s->Arrive(id, Single(0), 0, At(0), {});
    own += RequestsOf(s->Next(0, At(0))).at(0) == 1 ? 1 : 0;
  }
  EXPECT_GE(own, 5);
}

}  // namespace
}  // namespace chairlift
