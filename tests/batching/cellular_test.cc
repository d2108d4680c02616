// The cellular policy on worked examples, in virtual time.
#include "batching/policies/cellular.h"

#include <gmock/gmock.h>

#include "base/status.h"
#include "batching/batch_sizes.h"
#include "batching/length_costs.h"
#include "batching/live_graph.h"
#include "batching/task_cost.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::unique_ptr<Scheduler> Cellular(int max, int run_ahead = 1) {
  return MakePolicy(
      "cellular",
      {.max_batch_size = max, .max_tasks_to_submit = run_ahead, .adaptive_run_ahead = false});
}

// BatchMaker Fig. 5 (b).
TEST(CellularTest, RequestsJoinAndLeaveAtEveryStep) {
  auto s = Cellular(4);
  VirtualWorkers workers(*s, 1, [](const Task&) { return microseconds(1); });
  const int lengths[] = {2, 3, 3, 5, 3, 7, 4, 2};
  for (BatchRequestId id = 1; id <= 8; ++id) {
    workers.Arrive(At(id <= 4 ? 0 : 1), id, Chain(lengths[id - 1]));
  }
  workers.Run();
  EXPECT_THAT(RequestsOf(workers.tasks[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(RequestsOf(workers.tasks[1]), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(RequestsOf(workers.tasks[2]), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(RequestsOf(workers.tasks[3]), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(workers.left.at(1), At(2));
  EXPECT_EQ(workers.started.at(5), At(2));
  EXPECT_EQ(workers.left.at(2), At(3));
  EXPECT_EQ(workers.left.at(3), At(3));
  EXPECT_EQ(workers.started.at(6), At(3));
  EXPECT_EQ(workers.started.at(7), At(3));
  EXPECT_EQ(workers.left.at(4), At(5));
  EXPECT_EQ(workers.left.at(6), At(10));
}

TEST(CellularTest, ATreeIsALeafSubgraphEachAndOneOfInnerNodes) {
  LiveGraph request;
  request.Assign(CompleteTree(4));
  EXPECT_THAT(request.nodes, SizeIs(31));
  EXPECT_THAT(request.subgraphs, SizeIs(17));
  const int32_t inner = request.nodes[16].subgraph;
  for (int node = 16; node < 31; ++node) EXPECT_EQ(request.nodes[node].subgraph, inner);
  // Used again, nothing of the former graph is left.
  request.Assign(Chain(3));
  EXPECT_THAT(request.nodes, SizeIs(1));
  EXPECT_EQ(request.nodes[0].count, 3);
  EXPECT_THAT(request.subgraphs, SizeIs(1));
  EXPECT_EQ(request.unfinished, 1);
}

TEST(CellularTest, SubgraphsThatALaterNodeJoinsAreOne) {
  CellGraph graph;
  for (int i = 0; i < 3; ++i) graph.Add(0);
  graph.Add(1, 1, {0});
  graph.Add(0, 1, {1, 2, 3});
  LiveGraph request;
  request.Assign(graph);
  EXPECT_THAT(request.subgraphs, SizeIs(3));
  EXPECT_EQ(request.nodes[1].subgraph, request.nodes[2].subgraph);
  EXPECT_EQ(request.nodes[1].subgraph, request.nodes[4].subgraph);
}

TEST(CellularTest, InnerNodesOfATreeGoBeforeLeavesAndLevelByLevel) {
  auto s = Cellular(64);
  VirtualWorkers workers(*s, 1, [](const Task&) { return microseconds(1); });
  workers.Arrive(At(0), 1, CompleteTree(4));
  workers.Arrive(At(1), 2, CompleteTree(1));
  workers.Run();
  std::vector<std::pair<CellType, int32_t>> tasks;
  for (const Task& task : workers.tasks) tasks.emplace_back(task.type, task.rows);
  EXPECT_THAT(tasks, ElementsAre(Pair(0, 16), Pair(1, 8), Pair(1, 4), Pair(1, 2), Pair(1, 1),
                                 Pair(0, 2), Pair(1, 1)));
  EXPECT_EQ(workers.left.at(1), At(5));
  EXPECT_EQ(workers.left.at(2), At(7));
}

TEST(CellularTest, AWorkerWithNothingToDoGetsARunOfTasksOfOneType) {
  auto s = Cellular(4, 3);
  s->Arrive(1, Chain(5), 0, At(0), {});
  std::vector<Task> given;
  while (auto task = s->Next(0, At(0))) given.push_back(*task);
  ASSERT_THAT(given, SizeIs(3));
  EXPECT_THAT(NodesOf(given[2]), ElementsAre(2));
  s->Complete(given[0].id, At(1), {});
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  s->Complete(given[1].id, At(2), {});
  s->Complete(given[2].id, At(3), {});
  EXPECT_THAT(NodesOf(s->Next(0, At(3))), ElementsAre(3));
}

TEST(CellularTest, TasksAfterTheFirstHaveTheLeastSize) {
  PolicyOptions options{.max_batch_size = 4, .adaptive_run_ahead = false};
  options.cell_types = {{.min_batch_size = 2}};
  auto s = MakePolicy("cellular", options);
  s->Arrive(1, Chain(3), 0, At(0), {});
  s->Arrive(2, Chain(2), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  const auto second = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(second), ElementsAre(1, 2));
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
  s->Complete(first->id, At(1), {});
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  EXPECT_THAT(s->Complete(second->id, At(2), {}), ElementsAre(2));
  EXPECT_THAT(RequestsOf(s->Next(0, At(2))), ElementsAre(1));
}

TEST(CellularTest, AdaptiveRunAheadIsDeepOnlyWhileNobodyJoins) {
  auto s = MakePolicy("cellular", {.max_batch_size = 4, .max_tasks_to_submit = 2});
  s->Arrive(1, Chain(100), 0, At(0), {});
  int64_t t = 0;
  std::deque<TaskId> running;
  const auto fill = [&] {
    while (auto task = s->Next(0, At(t))) running.push_back(task->id);
    return running.size();
  };
  const auto end = [&] {
    s->Complete(running.front(), At(++t), {});
    running.pop_front();
  };
  EXPECT_EQ(fill(), 1u);
  for (int i = 0; i < 8; ++i) {
    end();
    fill();
  }
  EXPECT_EQ(running.size(), 2u);
  s->Arrive(2, Chain(100), 0, At(t), {});
  end();
  EXPECT_EQ(fill(), 1u);
  end();
  EXPECT_EQ(fill(), 1u);
  EXPECT_EQ(s->waiting(), 0);
  end();
  EXPECT_EQ(fill(), 1u);
}

// The chain's next step follows it in its worker's stream; another worker gets it only once
// nothing of the chain is in flight.
TEST(CellularTest, ASubgraphStaysWithItsWorkerWhileItIsInFlight) {
  auto s = Cellular(4, 2);
  s->Arrive(1, Chain(3), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  EXPECT_EQ(s->Next(1, At(0)), std::nullopt);
  const auto second = s->Next(0, At(0));
  EXPECT_THAT(NodesOf(second), ElementsAre(1));
  s->Complete(first->id, At(1), {});
  EXPECT_EQ(s->Next(1, At(1)), std::nullopt);
  s->Complete(second->id, At(2), {});
  EXPECT_THAT(NodesOf(s->Next(1, At(2))), ElementsAre(2));
}

TEST(CellularTest, NoEmptyTaskWhereAllThatIsReadyBelongsToAnotherWorker) {
  auto s = Cellular(1, 1);
  s->Arrive(1, Chain(2), 0, At(0), {});
  EXPECT_TRUE(s->Next(0, At(0)));
  EXPECT_EQ(s->Next(1, At(0)), std::nullopt);
  // A second type, of lower priority, is what the other worker gets.
  CellGraph other;
  other.Add(1);
  s->Arrive(2, other, 0, At(0), {});
  EXPECT_THAT(RequestsOf(s->Next(1, At(0))), ElementsAre(2));
}

TEST(CellularTest, ASecondLayerStartsWithTheFirstLayersFirstStep) {
  CellGraph graph;
  graph.AddChain(0, 3);
  graph.Add(1, 1, {0});
  graph.Add(1, 1, {1, 3});
  graph.Add(1, 1, {2, 4});
  auto s = Cellular(1, 1);
  VirtualWorkers workers(*s, 2, [](const Task&) { return microseconds(1); });
  workers.Arrive(At(0), 1, graph);
  workers.Run();
  // Layers overlap by all but one step on two workers.
  EXPECT_EQ(workers.left.at(1), At(4));

  // One worker: the second layer's step may follow in the stream of the first's.
  auto stream = MakePolicy("cellular", {.max_batch_size = 1, .max_tasks_to_submit = 1});
  stream->Arrive(1, graph, 0, At(0), {});
  const auto first = stream->Next(0, At(0));
  EXPECT_EQ(stream->Next(1, At(0)), std::nullopt);
  stream->Complete(first->id, At(1), {});
  EXPECT_EQ(stream->Next(0, At(1))->type, 1u);
  EXPECT_EQ(stream->Next(1, At(1))->type, 0u);
}

TEST(CellularTest, ANodeThatReadsFromTwoWorkersWaitsForBoth) {
  CellGraph graph;
  graph.Add(0);
  graph.Add(1);
  graph.Add(2, 1, {0, 1});
  auto s = Cellular(1, 2);
  s->Arrive(1, graph, 0, At(0), {});
  const auto a = s->Next(0, At(0));
  const auto b = s->Next(1, At(0));
  ASSERT_TRUE(a && b);
  s->Complete(a->id, At(1), {});
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  EXPECT_EQ(s->Next(1, At(1)), std::nullopt);
  s->Complete(b->id, At(2), {});
  EXPECT_THAT(NodesOf(s->Next(0, At(2))), ElementsAre(2));
}

TEST(CellularTest, ADecoderGrowsByWhatItComputes) {
  CellGraph graph;
  graph.AddChain(0, 2);
  graph.Add(1, 1, {1});
  auto s = Cellular(4);
  s->Arrive(7, graph, 0, At(0), {});
  for (int i = 0; i < 2; ++i) s->Complete(s->Next(0, At(i))->id, At(i + 1), {});
  const auto decoder = s->Next(0, At(2));
  EXPECT_EQ(decoder->type, 1u);
  const std::vector<int32_t> state = {2};
  const std::vector<int32_t> both = {2, 3};
  const Scheduler::Growth growth[] = {{.request = 7, .type = 2, .dependencies = state},
                                      {.request = 7, .type = 1, .dependencies = both}};
  EXPECT_THAT(s->Complete(decoder->id, At(3), growth), IsEmpty());
  const auto projection = s->Next(0, At(3));
  EXPECT_THAT(NodesOf(projection), ElementsAre(3));
  EXPECT_THAT(s->Complete(projection->id, At(4), {}), IsEmpty());
  const auto last = s->Next(0, At(4));
  EXPECT_THAT(NodesOf(last), ElementsAre(4));
  EXPECT_THAT(s->Complete(last->id, At(5), {}), ElementsAre(7));
}

TEST(CellularTest, RowsBoundATaskAndALargerNodeGoesAlone) {
  auto s = Cellular(4);
  for (BatchRequestId id = 1; id <= 4; ++id) {
    CellGraph graph;
    graph.Add(0, id == 2 ? 9 : id == 4 ? 3 : 2);
    s->Arrive(id, graph, 0, At(0), {});
  }
  std::vector<std::vector<BatchRequestId>> tasks;
  for (int t = 0; t < 4; ++t) {
    const auto task = s->Next(0, At(t));
    tasks.push_back(RequestsOf(task));
    s->Complete(task->id, At(t + 1), {});
  }
  EXPECT_THAT(tasks, ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
}

TEST(CellularTest, AFullBatchOfAnEarlyPhaseGoesBeforeAPartialOneOfALate) {
  PolicyOptions options{.max_batch_size = 2, .max_tasks_to_submit = 1, .adaptive_run_ahead = false};
  auto s = MakePolicy("cellular", options);
  CellGraph two;
  two.Add(0);
  two.Add(1, 1, {0});
  s->Arrive(1, two, 0, At(0), {});
  s->Complete(s->Next(0, At(0))->id, At(1), {});
  s->Arrive(2, two, 0, At(1), {});
  s->Arrive(3, two, 0, At(1), {});
  const auto full = s->Next(0, At(1));
  EXPECT_THAT(RequestsOf(full), ElementsAre(2, 3));
  // A type without a running task before one with; then the later phase.
  EXPECT_EQ(s->Next(1, At(1))->type, 1u);
  s->Complete(full->id, At(2), {});
  EXPECT_EQ(s->Next(0, At(2))->type, 1u);
}

TEST(CellularTest, ATypeIsNotPassedOverForEver) {
  auto s = Cellular(1);
  // Type 1 is of a later phase and there is always a full batch of it.
  CellGraph two;
  two.Add(0);
  two.Add(1, 1, {0});
  s->Arrive(1, two, 0, At(0), {});
  s->Complete(s->Next(0, At(0))->id, At(0), {});
  s->Arrive(2, two, 0, At(0), {});
  CellGraph late;
  late.Add(1);
  int given = 0;
  for (BatchRequestId id = 3;; ++id) {
    s->Arrive(id, late, 0, At(given), {});
    const auto task = s->Next(0, At(given));
    ++given;
    ASSERT_LE(given, kCellularPatience + 2);
    if (task->type == 0) break;
    s->Complete(task->id, At(given), {});
  }
  EXPECT_GT(given, 2);
}

TEST(CellularTest, ACancelledRequestLeavesAtTheNextCell) {
  auto s = Cellular(4, 2);
  s->Arrive(1, Chain(9), 0, At(0), {});
  s->Arrive(2, Chain(9), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  const auto second = s->Next(0, At(0));
  EXPECT_FALSE(s->Cancel(1, At(0)));
  EXPECT_FALSE(s->Cancel(1, At(0)));
  EXPECT_THAT(s->Complete(first->id, At(1), {}), IsEmpty());
  const std::vector<int32_t> state = {8};
  const Scheduler::Growth ignored{.request = 1, .type = 0, .dependencies = state};
  EXPECT_THAT(s->Complete(second->id, At(2), {&ignored, 1}), ElementsAre(1));
  EXPECT_TRUE(s->Cancel(1, At(2)));
  EXPECT_THAT(RequestsOf(s->Next(0, At(2))), ElementsAre(2));
}

TEST(CellularTest, ARequestThatWaitsIsCancelledAtOnce) {
  auto s = Cellular(4);
  s->Arrive(1, Chain(2), 0, At(0), {});
  EXPECT_TRUE(s->Cancel(1, At(0)));
  EXPECT_EQ(s->waiting(), 0);
  EXPECT_EQ(s->Next(0, At(0)), std::nullopt);
}

TEST(CellularTest, DeadlinesHoldInTheMiddleOfARequest) {
  auto s = Cellular(4, 1);
  s->Arrive(1, Chain(9), 0, At(0), At(15));
  s->Arrive(2, Chain(9), 0, At(0), {});
  s->Arrive(3, Chain(1, 5), 0, At(0), At(4));
  EXPECT_EQ(s->WakeAt(At(0)), At(4));
  const auto first = s->Next(0, At(0));
  EXPECT_THAT(s->TakeExpired(At(5)), ElementsAre(3));
  EXPECT_EQ(s->WakeAt(At(5)), At(15));
  s->Complete(first->id, At(10), {});
  const auto second = s->Next(0, At(10));
  EXPECT_THAT(RequestsOf(second), ElementsAre(1, 2));
  // Not before what is in flight has ended.
  EXPECT_THAT(s->TakeExpired(At(16)), IsEmpty());
  EXPECT_EQ(s->WakeAt(At(16)), std::nullopt);
  EXPECT_THAT(s->Complete(second->id, At(20), {}), IsEmpty());
  EXPECT_THAT(s->TakeExpired(At(20)), ElementsAre(1));
  EXPECT_THAT(s->TakeExpired(At(20)), IsEmpty());
  EXPECT_THAT(RequestsOf(s->Next(0, At(20))), ElementsAre(2));
}

TEST(CellularTest, AClientsRequestsStartInOrderAndMayShareATask) {
  auto s = Cellular(2, 1);
  for (BatchRequestId id = 1; id <= 3; ++id) s->Arrive(id, Chain(2), 9, At(0), {});
  s->Arrive(4, Chain(2), 0, At(0), {});
  EXPECT_EQ(s->waiting(), 4);
  const auto first = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(first), ElementsAre(1, 2));
  EXPECT_EQ(s->waiting(), 2);
  EXPECT_THAT(RequestsOf(s->Next(1, At(0))), ElementsAre(3, 4));
  // A later request of another type is held back until the one before it starts.
  s->Arrive(5, Chain(1), 8, At(0), {});
  s->Arrive(6, Chain(1, 1), 8, At(0), {});
  EXPECT_TRUE(s->Cancel(5, At(0)));
  EXPECT_THAT(RequestsOf(s->Next(2, At(0))), ElementsAre(6));
}

TEST(CellularTest, OlderRequestsGoFirstInEveryPhase) {
  auto s = Cellular(1, 1);
  CellGraph graph;
  graph.Add(0);
  graph.Add(1, 1, {0});
  for (BatchRequestId id = 1; id <= 2; ++id) s->Arrive(id, graph, 0, At(0), {});
  const auto first = s->Next(0, At(0));
  const auto second = s->Next(1, At(0));
  s->Complete(second->id, At(1), {});
  s->Complete(first->id, At(2), {});
  EXPECT_THAT(RequestsOf(s->Next(0, At(2))), ElementsAre(1));
}

// Flat to 64 rows, then linear, as a GPU's.
class FlatThenLinear : public CostModel {
 public:
  Duration Cost(CellType type, int32_t rows, int32_t /*length*/) const override {
    return microseconds(type == 0 ? std::max(64, rows) : 10 + rows);
  }
};

// A step of any rows takes 10 µs, and a task 5 more.
class StepsTest : public ::testing::Test {
 protected:
  StepsTest() {
    for (CellType type = 0; type < 3; ++type) {
      EXPECT_TRUE(
          costs_
              .AddType(
                  {{0, 0, microseconds(5)}, {1, 0, microseconds(15)}, {1024, 0, microseconds(15)}})
              .ok());
    }
  }
  std::unique_ptr<Scheduler> Policy(int max, microseconds slice) const {
    return MakePolicy("cellular",
                      {.max_batch_size = max, .time_slice = slice, .step_costs = &costs_});
  }

  LengthCosts costs_;
};

TEST_F(StepsTest, ATaskRunsAsManyStepsAsASliceHasRoomFor) {
  auto s = Policy(4, microseconds(49));
  s->Arrive(1, Chain(12), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  EXPECT_THAT(NodesOf(first), ElementsAre(0));
  EXPECT_THAT(StepsOf(first), ElementsAre(5));
  EXPECT_EQ(first->rows, 1);
  EXPECT_EQ(first->steps(), 5);
  EXPECT_THAT(s->Complete(first->id, At(55), {}), IsEmpty());
  const auto second = s->Next(0, At(55));
  EXPECT_THAT(NodesOf(second), ElementsAre(5));
  EXPECT_THAT(StepsOf(second), ElementsAre(5));
  s->Complete(second->id, At(110), {});
  const auto third = s->Next(0, At(110));
  EXPECT_THAT(NodesOf(third), ElementsAre(10));
  EXPECT_THAT(StepsOf(third), ElementsAre(2));
  EXPECT_THAT(s->Complete(third->id, At(135), {}), ElementsAre(1));
}

TEST_F(StepsTest, AShorterSliceThanAStepIsOneStep) {
  auto s = Policy(4, microseconds(9));
  s->Arrive(1, Chain(12), 0, At(0), {});
  EXPECT_THAT(StepsOf(s->Next(0, At(0))), ElementsAre(1));
}

TEST_F(StepsTest, RowsDropOutOfTheEndAsTheyEnd) {
  auto s = Policy(8, microseconds(200));
  const int lengths[] = {2, 7, 1, 4, 7};
  for (BatchRequestId id = 1; id <= 5; ++id) s->Arrive(id, Chain(lengths[id - 1]), 0, At(0), {});
  const auto task = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(task), ElementsAre(2, 5, 4, 1, 3));
  EXPECT_THAT(StepsOf(task), ElementsAre(7, 7, 4, 2, 1));
  EXPECT_EQ(TaskCost(costs_, *task), microseconds(75));
  EXPECT_THAT(s->Complete(task->id, At(75), {}), UnorderedElementsAre(1, 2, 3, 4, 5));
}

TEST_F(StepsTest, NewcomersJoinWhereTheTaskEnds) {
  auto s = Policy(8, microseconds(29));
  s->Arrive(1, Chain(5), 0, At(0), {});
  const auto first = s->Next(0, At(0));
  EXPECT_THAT(StepsOf(first), ElementsAre(3));
  s->Arrive(2, Chain(5), 0, At(1), {});
  EXPECT_EQ(s->Next(0, At(1)), std::nullopt);
  s->Complete(first->id, At(35), {});
  const auto second = s->Next(0, At(35));
  EXPECT_THAT(RequestsOf(second), ElementsAre(2, 1));
  EXPECT_THAT(StepsOf(second), ElementsAre(3, 2));
}

// Each row of a step costs 10 µs divided by the rows: a step with fewer costs more than those
// before.
TEST_F(StepsTest, WhereOthersWaitForAPlaceFewStayEmpty) {
  for (const int max : {2, 1}) {
    auto s = Policy(max, microseconds(200));
    for (BatchRequestId id = 1; id <= 3; ++id) {
      s->Arrive(id, Chain(id == 1 ? 3 : 9), 0, At(0), {});
    }
    const auto task = s->Next(0, At(0));
    EXPECT_THAT(StepsOf(task), ::testing::Each(3));
    EXPECT_THAT(task->nodes, SizeIs(max));
  }
  auto s = Policy(3, microseconds(200));
  const int lengths[] = {1, 4, 9, 9};
  for (BatchRequestId id = 1; id <= 4; ++id) s->Arrive(id, Chain(lengths[id - 1]), 0, At(0), {});
  EXPECT_THAT(StepsOf(s->Next(0, At(0))), ElementsAre(4, 4, 1));  // 5 µs a row, each time
}

// A request that arrives meanwhile would find no place.
TEST_F(StepsTest, WhereAnotherBatchWaitsATaskMayLastFiveSlices) {
  for (const BatchRequestId waiting : {1, 2}) {
    auto s = Policy(2, microseconds(10));
    for (BatchRequestId id = 1; id <= 2 + waiting; ++id) s->Arrive(id, Chain(20), 0, At(0), {});
    const int32_t steps = waiting == 2 ? 6 : 2;
    EXPECT_THAT(StepsOf(s->Next(0, At(0))), ElementsAre(steps, steps));
  }
}

// Empty places cost nothing there: a row of a narrow step costs what one of a full step does.
TEST_F(StepsTest, ABatchThatNarrowsCostsLess) {
  LengthCosts in_proportion;
  ASSERT_TRUE(
      in_proportion
          .AddType(
              {{0, 0, microseconds(5)}, {1, 0, microseconds(6)}, {1024, 0, microseconds(1029)}})
          .ok());
  auto s = MakePolicy(
      "cellular",
      {.max_batch_size = 4, .time_slice = microseconds(200), .step_costs = &in_proportion});
  const int lengths[] = {2, 4, 9, 9, 9};
  for (BatchRequestId id = 1; id <= 5; ++id) s->Arrive(id, Chain(lengths[id - 1]), 0, At(0), {});
  EXPECT_THAT(StepsOf(s->Next(0, At(0))), ElementsAre(9, 9, 4, 2));
}

// One row is as fast a row as many: twice as many are enough, if their steps fill the time.
TEST_F(StepsTest, ATaskIsDeepBeforeItIsWide) {
  LengthCosts in_proportion;
  ASSERT_TRUE(
      in_proportion
          .AddType(
              {{0, 0, microseconds(5)}, {1, 0, microseconds(15)}, {1024, 0, microseconds(10245)}})
          .ok());
  auto s = MakePolicy(
      "cellular",
      {.max_batch_size = 8, .time_slice = microseconds(20), .step_costs = &in_proportion});
  const auto arrive = [&](BatchRequestId first, std::vector<int> lengths) {
    for (const int length : lengths) s->Arrive(first++, Chain(length), 0, At(0), {});
  };
  arrive(1, {20, 20, 20});  // no other request's: a slice of steps of two rows
  auto task = s->Next(0, At(0));
  EXPECT_THAT(RequestsOf(task), ElementsAre(1, 2));
  EXPECT_THAT(StepsOf(task), ElementsAre(2, 2));
  auto other = s->Next(1, At(0));
  EXPECT_THAT(RequestsOf(other), ElementsAre(3));
  arrive(4, {20, 20});
  s->Complete(other->id, At(35), {});
  other = s->Next(1, At(35));  // as many wait: five slices
  EXPECT_THAT(RequestsOf(other), ElementsAre(3, 4));
  EXPECT_THAT(StepsOf(other), ElementsAre(2, 2));
  s->Complete(other->id, At(80), {});
  s->Complete(task->id, At(80), {});
  task = s->Next(0, At(80));
  EXPECT_THAT(RequestsOf(task), ElementsAre(1, 2));
  EXPECT_THAT(StepsOf(task), ElementsAre(6, 6));
  s->Complete(task->id, At(205), {});
  for (const BatchRequestId id : {1, 2, 3, 4, 5}) s->Cancel(id, At(205));
  arrive(6, {1, 2, 1, 1, 1, 1, 1, 1, 9, 9});  // short ones do not fill it
  EXPECT_THAT(RequestsOf(s->Next(0, At(205))), SizeIs(8));
}

TEST_F(StepsTest, WhatASecondLayerReadsEndsItsSteps) {
  CellGraph graph;
  graph.AddChain(0, 6);
  for (int32_t t = 0; t < 6; ++t) {
    t == 0 ? graph.Add(1, 1, {0}) : graph.Add(1, 1, {t, t + 5}, t + 5);
  }
  auto s = Policy(8, microseconds(39));
  s->Arrive(1, graph, 0, At(0), {});
  auto task = s->Next(0, At(0));
  EXPECT_THAT(NodesOf(task), ElementsAre(0));
  EXPECT_THAT(StepsOf(task), ElementsAre(4));
  s->Complete(task->id, At(45), {});
  task = s->Next(0, At(45));  // the later phase: as far as the first layer has come
  EXPECT_EQ(task->type, 1);
  EXPECT_THAT(NodesOf(task), ElementsAre(6));
  EXPECT_THAT(StepsOf(task), ElementsAre(4));
  s->Complete(task->id, At(90), {});
  task = s->Next(0, At(90));
  EXPECT_EQ(task->type, 0);
  EXPECT_THAT(StepsOf(task), ElementsAre(2));
  s->Complete(task->id, At(115), {});
  task = s->Next(0, At(115));
  EXPECT_THAT(NodesOf(task), ElementsAre(10));
  EXPECT_THAT(StepsOf(task), ElementsAre(2));
  EXPECT_THAT(s->Complete(task->id, At(140), {}), ElementsAre(1));
}

TEST_F(StepsTest, ADecodersStepsAreTasksOfTheirOwn) {
  CellGraph graph;
  graph.AddChain(0, 2);
  graph.Add(1, 1, {1});
  auto s = Policy(8, microseconds(200));
  s->Arrive(1, graph, 0, At(0), {});
  auto task = s->Next(0, At(0));
  EXPECT_THAT(StepsOf(task), ElementsAre(2));
  s->Complete(task->id, At(25), {});
  task = s->Next(0, At(25));
  EXPECT_THAT(StepsOf(task), ElementsAre(1));
  const std::vector<int32_t> said = {2};
  const Scheduler::Growth growth{.request = 1, .type = 1, .rows = 1, .dependencies = said};
  EXPECT_THAT(s->Complete(task->id, At(40), {&growth, 1}), IsEmpty());
  EXPECT_THAT(StepsOf(s->Next(0, At(40))), ElementsAre(1));
}

TEST_F(StepsTest, GrownNodesMayFollowEachOther) {
  auto s = Policy(8, microseconds(200));
  s->Arrive(1, Chain(1, 1), 0, At(0), {});
  auto task = s->Next(0, At(0));
  const std::vector<int32_t> reads[] = {{0}, {1}, {2, 2}};
  std::vector<Scheduler::Growth> grown;
  for (int32_t i = 0; i < 3; ++i) {
    grown.push_back(
        {.request = 1, .type = 0, .dependencies = reads[i], .follows = i == 0 ? -1 : i});
  }
  EXPECT_THAT(s->Complete(task->id, At(15), grown), IsEmpty());
  task = s->Next(0, At(15));
  EXPECT_THAT(NodesOf(task), ElementsAre(1));
  EXPECT_THAT(StepsOf(task), ElementsAre(3));
  EXPECT_THAT(s->Complete(task->id, At(50), {}), ElementsAre(1));
}

TEST_F(StepsTest, ACancelledRequestLeavesWithTheTask) {
  auto s = Policy(8, microseconds(200));
  s->Arrive(1, Chain(30), 0, At(0), {});
  s->Arrive(2, Chain(30), 0, At(0), {});
  const auto task = s->Next(0, At(0));
  EXPECT_THAT(StepsOf(task), ElementsAre(21, 21));
  EXPECT_FALSE(s->Cancel(1, At(10)));
  EXPECT_THAT(s->Complete(task->id, At(215), {}), ElementsAre(1));
  EXPECT_THAT(RequestsOf(s->Next(0, At(215))), ElementsAre(2));
}

TEST_F(StepsTest, PatienceIsCountedInSteps) {
  auto s = MakePolicy("cellular", {.max_batch_size = 2,
                                   .cell_types = {{}, {.priority = 1}},
                                   .time_slice = microseconds(309),
                                   .step_costs = &costs_});
  s->Arrive(1, Chain(300, 1), 0, At(0), {});
  s->Arrive(2, Chain(1, 0), 0, At(0), {});
  int tasks = 0;
  TimePoint now = At(0);
  for (auto task = s->Next(0, now); task->type == 1; task = s->Next(0, now)) {
    now += TaskCost(costs_, *task);
    s->Complete(task->id, now, {});
    ++tasks;
  }
  EXPECT_EQ(tasks, 3);  // of 31 steps
}

TEST(BatchSizesTest, TheSmallestThatIsAsFastAsAnyAndTheLargestThatCostsNoMore) {
  const FlatThenLinear costs;
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 512), (BatchSizes{.min = 64, .max = 64, .most = 64}));
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 48), (BatchSizes{.min = 48, .max = 48, .most = 48}));
  EXPECT_EQ(ChooseBatchSizes(costs, 1, 512), (BatchSizes{.min = 2, .max = 256, .most = 512}));
  EXPECT_EQ(ChooseBatchSizes(costs, 1, 1), (BatchSizes{.min = 1, .max = 1, .most = 1}));
}

TEST(BatchSizesTest, OverheadIsSpreadOverMoreRows) {
  LengthCosts costs;
  ASSERT_TRUE(costs.AddType({{1, 0, microseconds(10)}, {2, 0, microseconds(20)}}).ok());
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 512), (BatchSizes{.min = 1, .max = 1, .most = 1}));
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 512, microseconds(5)),
            (BatchSizes{.min = 1, .max = 16, .most = 32}));
}

// BatchMaker §7: 185 µs up to 64 rows, 784 µs at 512.
TEST(BatchSizesTest, AV100TakesLargeBatches) {
  LengthCosts costs;
  ASSERT_TRUE(
      costs
          .AddType(
              {{1, 0, microseconds(185)}, {64, 0, microseconds(185)}, {512, 0, microseconds(784)}})
          .ok());
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 512), (BatchSizes{.min = 64, .max = 512, .most = 512}));
  EXPECT_EQ(ChooseBatchSizes(costs, 0, 64), (BatchSizes{.min = 64, .max = 64, .most = 64}));
}

TEST(BatchSizesTest, WhereMuchWaitsATaskHasTheMost) {
  auto s = MakePolicy("cellular", {.cell_types = {{.max_batch_size = 4, .most_batch_size = 8}}});
  const auto sizes = [&](BatchRequestId first, int requests) {
    for (int i = 0; i < requests; ++i) s->Arrive(first + i, Chain(1), 0, At(0), {});
    std::vector<int32_t> rows;
    while (auto task = s->Next(0, At(0))) {
      rows.push_back(task->rows);
      s->Complete(task->id, At(0), {});
    }
    return rows;
  };
  EXPECT_THAT(sizes(1, 15), ElementsAre(4, 4, 4, 3));
  EXPECT_THAT(sizes(100, 26), ElementsAre(8, 8, 4, 4, 2));
}

TEST(BatchSizesTest, AFullBatchThatCouldBeLargerWaitsForTwoStepsOfLargeOnes) {
  // Requests of two nodes: type 1 reads type 0, and goes first.
  CellGraph pair;
  pair.Add(0);
  pair.Add(1, 1, {0});
  auto s = MakePolicy("cellular", {.cell_types = {{.max_batch_size = 4, .most_batch_size = 4},
                                                  {.max_batch_size = 4, .most_batch_size = 16}},
                                   .max_tasks_to_submit = 1});
  for (BatchRequestId id = 1; id <= 60; ++id) s->Arrive(id, pair, 0, At(0), {});
  std::vector<std::pair<CellType, int32_t>> tasks;
  while (auto task = s->Next(0, At(0))) {
    tasks.emplace_back(task->type, task->rows);
    s->Complete(task->id, At(0), {});
  }
  ASSERT_GT(tasks.size(), 8);
  tasks.resize(8);
  EXPECT_THAT(tasks, ElementsAre(Pair(0, 4), Pair(0, 4), Pair(0, 4), Pair(1, 12), Pair(0, 4),
                                 Pair(0, 4), Pair(0, 4), Pair(1, 12)));
}

TEST(BatchSizesTest, ThePolicyTakesThemWhereNoneAreGiven) {
  const FlatThenLinear costs;
  auto s = MakePolicy("cellular", {.max_batch_size = 512, .costs = &costs});
  for (BatchRequestId id = 0; id < 100; ++id) s->Arrive(id, Chain(1), 0, At(0), {});
  EXPECT_EQ(s->Next(0, At(0))->rows, 64);
}

}  // namespace
}  // namespace chairlift
