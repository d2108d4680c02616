// The graph-batching baselines on worked examples, in virtual time.
#include <gmock/gmock.h>

#include "base/status.h"
#include "batching/length_costs.h"
#include "batching/task_cost.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Duration Unit(const Task&) { return microseconds(1); }

// The shape of a schedule: rows asked for and rows of padding of each task.
std::vector<std::pair<int32_t, int32_t>> RowsOf(const std::vector<Task>& tasks) {
  std::vector<std::pair<int32_t, int32_t>> rows;
  rows.reserve(tasks.size());
  for (const Task& task : tasks) rows.emplace_back(task.rows, task.padding_rows);
  return rows;
}

// BatchMaker Fig. 5 (a): the first batch ends at 5, the second at 12.
TEST(GraphBatchTest, NobodyLeavesBeforeTheWholeBatchIsDone) {
  // A bucket that holds all lengths, up to 7, pads the first batch to that.
  for (const auto& [policy, first] : {std::pair("graph_merge", 5), std::pair("bucketed", 7)}) {
    auto s = MakePolicy(policy, {.max_batch_size = 4, .bucket_width = 7});
    VirtualWorkers workers(*s, 1, Unit);
    const int lengths[] = {2, 3, 3, 5, 3, 7, 4, 2};
    for (BatchRequestId id = 1; id <= 8; ++id) {
      workers.Arrive(At(id <= 4 ? 0 : 1), id, Chain(lengths[id - 1]));
    }
    workers.Run();
    for (BatchRequestId id = 1; id <= 4; ++id) EXPECT_EQ(workers.left.at(id), At(first)) << policy;
    for (BatchRequestId id = 5; id <= 8; ++id) {
      EXPECT_EQ(workers.started.at(id), At(first)) << policy;
      EXPECT_EQ(workers.left.at(id), At(first + 7)) << policy;
    }
  }
}

TEST(BucketedTest, WhoHasEndedIsARowOfPadding) {
  auto s = MakePolicy("bucketed", {.max_batch_size = 4, .bucket_width = 4});
  VirtualWorkers workers(*s, 1, Unit);
  workers.Arrive(At(0), 1, Chain(3));
  workers.Arrive(At(0), 2, Chain(1));
  workers.Run();
  EXPECT_THAT(RowsOf(workers.tasks),
              ElementsAre(std::pair(2, 0), std::pair(1, 1), std::pair(1, 1), std::pair(0, 2)));
}

// A step of any rows costs 1 µs, a task 1 µs more.
const CostModel& StepTimes() {
  static const LengthCosts kTimes = [] {
    LengthCosts times;
    EXPECT_TRUE(
        times.AddType({{0, 0, microseconds(1)}, {1, 0, microseconds(2)}, {64, 0, microseconds(2)}})
            .ok());
    return times;
  }();
  return kTimes;
}

// The steps' rows, without and with padding, of each task.
using StepRows = std::vector<std::pair<int32_t, int32_t>>;
std::vector<StepRows> StepsOf(const std::vector<Task>& tasks) {
  std::vector<StepRows> steps;
  steps.reserve(tasks.size());
  for (const Task& task : tasks) {
    StepRows& of_task = steps.emplace_back();
    ForEachStepOf(task,
                  [&](int32_t rows, int32_t padding) { of_task.emplace_back(rows, padding); });
  }
  return steps;
}

// Tasks of up to four steps. What has ended is padding in each of them; the batch's tail is.
TEST(BucketedTest, SeveralStepsInATaskAreEachAsWideAsTheBatch) {
  auto s = MakePolicy("bucketed", {.max_batch_size = 4,
                                   .time_slice = microseconds(3),
                                   .step_costs = &StepTimes(),
                                   .bucket_width = 8});
  VirtualWorkers workers(*s, 1, [](const Task& task) { return TaskCost(StepTimes(), task); });
  workers.Arrive(At(0), 1, Chain(7));
  workers.Arrive(At(0), 2, Chain(2));
  workers.Run();
  EXPECT_THAT(StepsOf(workers.tasks),
              ElementsAre(StepRows{{2, 0}, {2, 0}, {1, 1}, {1, 1}},
                          StepRows{{1, 1}, {1, 1}, {1, 1}}, StepRows{{0, 2}}));
  EXPECT_EQ(workers.left.at(2), At(5 + 4 + 2));
}

TEST(GraphMergeTest, ATaskOfSeveralStepsNarrows) {
  auto s =
      MakePolicy("graph_merge",
                 {.max_batch_size = 4, .time_slice = microseconds(3), .step_costs = &StepTimes()});
  VirtualWorkers workers(*s, 1, [](const Task& task) { return TaskCost(StepTimes(), task); });
  workers.Arrive(At(0), 1, Chain(2));
  workers.Arrive(At(0), 2, Chain(7));
  workers.Run();
  EXPECT_THAT(StepsOf(workers.tasks), ElementsAre(StepRows{{2, 0}, {2, 0}, {1, 0}, {1, 0}},
                                                  StepRows{{1, 0}, {1, 0}, {1, 0}}));
  EXPECT_EQ(workers.left.at(1), At(5 + 4));
}

TEST(BucketedTest, BucketsTakeTurnsAndDoNotMix) {
  auto s = MakePolicy("bucketed", {.max_batch_size = 2, .bucket_width = 2});
  VirtualWorkers workers(*s, 1, Unit);
  const int lengths[] = {1, 2, 2, 3, 4, 5};
  for (BatchRequestId id = 1; id <= 6; ++id) workers.Arrive(At(0), id, Chain(lengths[id - 1]));
  workers.Run();
  EXPECT_EQ(workers.left.at(1), At(2));
  EXPECT_EQ(workers.left.at(2), At(2));
  EXPECT_EQ(workers.left.at(4), At(6));
  EXPECT_EQ(workers.left.at(5), At(6));
  EXPECT_EQ(workers.left.at(6), At(12));
  EXPECT_EQ(workers.left.at(3), At(14));
}

TEST(BucketedTest, AProjectionIsPaddedInRowsAndAHeadIsNot) {
  CellGraph graph;
  graph.Add(0, 3);
  graph.AddChain(1, 3, std::vector<int32_t>{0});
  graph.Add(2, 1, {3});
  auto s = MakePolicy("bucketed", {.max_batch_size = 64, .bucket_width = 4});
  VirtualWorkers workers(*s, 1, Unit);
  workers.Arrive(At(0), 1, graph);
  workers.Arrive(At(0), 2, graph);
  workers.Run();
  EXPECT_THAT(RowsOf(workers.tasks),
              ElementsAre(std::pair(6, 2), std::pair(2, 0), std::pair(2, 0), std::pair(2, 0),
                          std::pair(0, 2), std::pair(2, 0)));
}

TEST(BucketedTest, ADecoderOfABatchGrowsUntilAllHaveEnded) {
  auto s = MakePolicy("bucketed", {.max_batch_size = 4, .bucket_width = 1});
  for (BatchRequestId id = 1; id <= 2; ++id) {
    CellGraph graph;
    graph.Add(0);
    graph.Add(1, 1, {0});
    s->Arrive(id, graph, 0, At(0), {});
  }
  const auto encoder = s->Next(0, At(0));
  const auto decoder = s->Next(0, At(0));
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  EXPECT_THAT(s->Complete(encoder->id, At(1), {}), IsEmpty());
  const std::vector<int32_t> state = {1};
  const Scheduler::Growth growth{.request = 2, .type = 1, .dependencies = state};
  EXPECT_THAT(s->Complete(decoder->id, At(2), {&growth, 1}), IsEmpty());
  const auto second = s->Next(0, At(2));
  EXPECT_THAT(RequestsOf(second), ElementsAre(2));
  EXPECT_EQ(second->padding_rows, 1);
  EXPECT_THAT(s->Complete(second->id, At(3), {}), ElementsAre(1, 2));
}

TEST(GraphMergeTest, TreesAreMergedLevelByLevel) {
  auto s = MakePolicy("graph_merge", {.max_batch_size = 64});
  VirtualWorkers workers(*s, 1, Unit);
  workers.Arrive(At(0), 1, CompleteTree(4));
  workers.Arrive(At(0), 2, CompleteTree(2));
  workers.Run();
  EXPECT_THAT(RowsOf(workers.tasks),
              ElementsAre(std::pair(20, 0), std::pair(10, 0), std::pair(5, 0), std::pair(2, 0),
                          std::pair(1, 0)));
  EXPECT_EQ(workers.left.at(2), At(5));
}

TEST(IdealTest, EachTaskIsOneNodeOfAll) {
  auto s = MakePolicy("ideal", {.max_batch_size = 64});
  VirtualWorkers workers(*s, 1, Unit);
  for (BatchRequestId id = 1; id <= 3; ++id) workers.Arrive(At(0), id, CompleteTree(4));
  workers.Arrive(At(0), 4, CompleteTree(1));
  workers.Run();
  ASSERT_THAT(workers.tasks, SizeIs(34));
  EXPECT_EQ(std::max(workers.left.at(1), workers.left.at(4)), At(34));
}

TEST(GraphBatchTest, ACancelledRequestIsPaddingUntilItsBatchEnds) {
  auto s = MakePolicy("graph_merge", {.max_batch_size = 4});
  s->Arrive(1, Chain(2), 0, At(0), {});
  s->Arrive(2, Chain(2), 0, At(0), {});
  s->Arrive(3, Chain(2), 0, At(0), At(5));
  EXPECT_TRUE(s->Cancel(2, At(0)));
  const auto first = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(first), ElementsAre(1, 3));
  EXPECT_FALSE(s->Cancel(1, At(0)));
  EXPECT_THAT(s->Complete(first->id, At(10), {}), IsEmpty());
  const auto second = s->Next(0, At(10));
  EXPECT_THAT(RequestsOf(second), ElementsAre(3));
  EXPECT_EQ(second->padding_rows, 1);
  EXPECT_THAT(s->TakeExpired(At(10)), IsEmpty());
  EXPECT_THAT(s->Complete(second->id, At(20), {}), ElementsAre(1, 3));
}

TEST(GraphBatchTest, AWorkerTakesNoNewBatchBeforeItsOwnHasEnded) {
  auto s = MakePolicy("graph_merge", {.max_batch_size = 4});
  s->Arrive(1, Chain(1), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  s->Arrive(2, Chain(1), 0, At(1), {});
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  EXPECT_THAT(RequestsOf(s->Next(1, At(1))), ElementsAre(2));
  EXPECT_THAT(s->Complete(first->id, At(2), {}), ElementsAre(1));
}

// A projection, a chain behind it and a head, or a tree.
CellGraph Mixed(int i) {
  if (i % 3 == 0) return CompleteTree(1 + i % 4);
  CellGraph graph;
  const int32_t length = 1 + i * 5 % 13;
  const int32_t projection = graph.Add(2, length);
  int32_t last = graph.Add(0, 1, {projection});
  for (int32_t step = 1; step < length; ++step) last = graph.Add(0, 1, {projection, last});
  graph.Add(3, 1, {last});
  return graph;
}

// The tasks that one worker runs when all come at once.
std::vector<Task> TasksOfAll(const std::string& policy, bool prepare) {
  auto s = MakePolicy(policy, {.max_batch_size = 5, .bucket_width = 4});
  for (int i = 0; i < 40; ++i) {
    const CellGraph graph = Mixed(i);
    std::unique_ptr<PreparedGraph> prepared;
    if (prepare) prepared = s->Prepare(graph);
    EXPECT_EQ(prepared != nullptr, prepare) << policy;
    if (prepared != nullptr) {
      s->ArrivePrepared(i, graph, std::move(prepared), i % 7, At(0), {});
    } else {
      s->Arrive(i, graph, i % 7, At(0), {});
    }
  }
  std::vector<Task> tasks;
  while (auto task = s->Next(0, At(1))) {
    s->Complete(task->id, At(1), {});
    tasks.push_back(*std::move(task));
  }
  EXPECT_EQ(s->waiting(), 0);
  return tasks;
}

TEST(GraphBatchTest, APreparedGraphIsBatchedAsAnyOther) {
  for (const char* policy : {"graph_merge", "bucketed", "ideal"}) {
    const std::vector<Task> plain = TasksOfAll(policy, false);
    const std::vector<Task> prepared = TasksOfAll(policy, true);
    ASSERT_THAT(plain, SizeIs(Gt(40u))) << policy;
    ASSERT_EQ(prepared.size(), plain.size()) << policy;
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(prepared[i].type, plain[i].type) << policy << " task " << i;
      EXPECT_EQ(prepared[i].nodes, plain[i].nodes) << policy << " task " << i;
      EXPECT_EQ(prepared[i].rows, plain[i].rows) << policy << " task " << i;
      EXPECT_EQ(prepared[i].padding_rows, plain[i].padding_rows) << policy << " task " << i;
    }
  }
}

}  // namespace
}  // namespace chairlift
