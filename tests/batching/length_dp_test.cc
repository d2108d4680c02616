// The policies for padded batches of varying length, length_dp and naive, case by case.
#include "batching/policies/length_dp.h"

#include <gmock/gmock.h>

#include "batching/simulator.h"
#include "batching/virtual_workers.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CellGraph Sequences(int32_t length, int32_t rows = 1, CellType type = 0) {
  CellGraph graph;
  graph.Add(type, rows);
  graph.set_length(length);
  return graph;
}

// TurboTransformers Fig. 8, in microseconds.
class DocumentCosts : public CostModel {
 public:
  Duration Cost(CellType /*type*/, int32_t rows, int32_t length) const override {
    static const std::map<int32_t, int> kAlone = {
        {17, 2970}, {18, 2970}, {52, 4540}, {63, 4610}, {77, 5530}};
    if (length == 18 && rows == 2) return microseconds(4350);
    if (length == 63 && rows == 2) return microseconds(5360);
    return microseconds(rows * kAlone.at(length));
  }
};

// 100 µs, and 1 µs for each place of the batch.
class AreaCosts : public CostModel {
 public:
  Duration Cost(CellType /*type*/, int32_t rows, int32_t length) const override {
    return microseconds(100 + rows * length);
  }
};

class LengthDpTest : public ::testing::Test {
 protected:
  void Make(const PolicyOptions& options, const std::string& policy = "length_dp") {
    scheduler_ = MakePolicy(policy, options);
  }
  void Arrive(BatchRequestId id, int32_t length, int64_t at_us = 0, ClientId client = 0) {
    scheduler_->Arrive(id, Sequences(length), client, At(at_us), {});
  }
  // The worker's next task, which runs from then on.
  std::vector<BatchRequestId> Next(int64_t at_us = 0, WorkerId worker = 0) {
    task_ = scheduler_->Next(worker, At(at_us));
    if (task_) running_[worker] = task_->id;
    return RequestsOf(task_);
  }
  void End(WorkerId worker = 0) { scheduler_->Complete(running_.at(worker), At(0), {}); }

  AreaCosts area_;
  std::unique_ptr<Scheduler> scheduler_;
  std::optional<Task> task_;  // the last one
  std::map<WorkerId, TaskId> running_;
};

TEST_F(LengthDpTest, TheDocumentsBatchesTheOldestRequestsFirst) {
  const DocumentCosts costs;
  Make({.max_batch_size = 20, .costs = &costs});
  Arrive(1, 77);
  Arrive(2, 18);
  Arrive(3, 63);
  Arrive(4, 17);
  Arrive(5, 52);
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_EQ(task_->length, 77);
  End();
  EXPECT_THAT(Next(), ElementsAre(2, 4));
  EXPECT_EQ(task_->length, 18);
  EXPECT_EQ(task_->rows, 2);
  End();
  EXPECT_THAT(Next(), ElementsAre(3, 5));
  EXPECT_EQ(task_->length, 63);
  EXPECT_EQ(scheduler_->waiting(), 0);
}

TEST_F(LengthDpTest, SeveralWorkersShareAPlan) {
  Make({.max_batch_size = 8, .costs = &area_});
  for (BatchRequestId id : {1, 2, 3}) Arrive(id, 10);
  for (BatchRequestId id : {4, 5, 6}) Arrive(id, 500);
  EXPECT_THAT(Next(0, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(Next(0, 0), IsEmpty());
  EXPECT_THAT(Next(0, 1), ElementsAre(4, 5, 6));
}

TEST_F(LengthDpTest, WhoComesOrLeavesChangesThePlan) {
  Make({.max_batch_size = 8, .costs = &area_});
  Arrive(1, 10);
  for (BatchRequestId id : {2, 3, 4}) Arrive(id, 500);
  EXPECT_THAT(Next(), ElementsAre(1));
  End();
  EXPECT_TRUE(scheduler_->Cancel(3, At(0)));
  Arrive(5, 480);
  EXPECT_THAT(Next(), ElementsAre(2, 4, 5));
}

TEST_F(LengthDpTest, TheOldestIsInTheNextBatchWhoeverComes) {
  Make({.max_batch_size = 4, .costs = &area_});
  Arrive(1, 500);
  for (BatchRequestId id = 2; id < 10; ++id) Arrive(id, 10);
  EXPECT_THAT(Next(), ElementsAre(1));
}

TEST_F(LengthDpTest, RowsCountNotRequests) {
  Make({.max_batch_size = 4, .costs = &area_});
  scheduler_->Arrive(1, Sequences(10, 3), 0, At(0), {});
  scheduler_->Arrive(2, Sequences(10, 2), 0, At(0), {});
  scheduler_->Arrive(3, Sequences(10, 9), 0, At(0), {});
  EXPECT_THAT(Next(), ElementsAre(1));
  EXPECT_EQ(task_->rows, 3);
  End();
  EXPECT_THAT(Next(), ElementsAre(2));
  End();
  EXPECT_THAT(Next(), ElementsAre(3));
  EXPECT_EQ(task_->rows, 9);
}

TEST_F(LengthDpTest, LazyWaitsUpToTheDelay) {
  Make({.max_batch_size = 4, .queue_delay = microseconds(1000), .costs = &area_});
  Arrive(1, 10, 0);
  Arrive(2, 500, 100);
  EXPECT_THAT(Next(999), IsEmpty());
  EXPECT_EQ(scheduler_->WakeAt(At(999)), At(1000));
  EXPECT_THAT(Next(1000), ElementsAre(1));
  End();
  // The second was waiting when the first was due; the third was not.
  Arrive(3, 10, 1001);
  EXPECT_THAT(Next(1001), ElementsAre(2));
  End();
  EXPECT_THAT(Next(1001), IsEmpty());
  EXPECT_EQ(scheduler_->WakeAt(At(1001)), At(2001));
}

TEST_F(LengthDpTest, LazyDoesNotWaitWithAFullBatch) {
  Make({.max_batch_size = 2, .queue_delay = microseconds(1000), .costs = &area_});
  Arrive(1, 10);
  EXPECT_THAT(Next(), IsEmpty());
  Arrive(2, 10, 1);
  EXPECT_THAT(Next(1), ElementsAre(1, 2));
}

// Alone they take 110 µs and 140 µs, together 180 µs.
TEST_F(LengthDpTest, LazyStartsWhenHalfOfTheObjectiveIsAboutToBeSpent) {
  Make({.max_batch_size = 8,
        .queue_delay = microseconds(10000),
        .latency_objective = microseconds(2000),
        .costs = &area_});
  Arrive(1, 10);
  EXPECT_THAT(Next(889), IsEmpty());
  EXPECT_EQ(scheduler_->WakeAt(At(800)), At(890));
  Arrive(2, 40, 800);
  EXPECT_EQ(scheduler_->WakeAt(At(800)), At(820));
  EXPECT_THAT(Next(820), ElementsAre(1, 2));
}

TEST_F(LengthDpTest, AClientsRequestsStartInOrder) {
  Make({.max_batch_size = 8, .costs = &area_});
  Arrive(1, 500, 0, 7);
  Arrive(2, 10, 0, 7);
  Arrive(3, 495, 0, 7);
  Arrive(4, 10);
  EXPECT_THAT(Next(), ElementsAre(1));  // the third may not pass the second
  EXPECT_EQ(task_->length, 500);
  EXPECT_THAT(Next(0, 1), ElementsAre(2, 4));
  EXPECT_THAT(Next(0, 2), ElementsAre(3));
  EXPECT_EQ(task_->length, 495);
}

TEST_F(LengthDpTest, MoreThanOnePlanHoldsAreAllServed) {
  Make({.max_batch_size = 8, .costs = &area_});
  for (BatchRequestId id = 1; id <= 1500; ++id) Arrive(id, 1 + static_cast<int>(id * 37 % 400));
  size_t served = 0;
  for (std::vector<BatchRequestId> batch = Next(); !batch.empty(); batch = Next()) {
    served += batch.size();
    End();
  }
  EXPECT_EQ(served, 1500u);
}

TEST(LengthDpOptionsTest, CostsAreNeeded) {
  EXPECT_THAT(std::string(MakeScheduler("length_dp", {}).status().message()),
              HasSubstr("needs the costs"));
}

TEST_F(LengthDpTest, NaiveTakesAllThatWaitsPaddedToTheLongest) {
  Make({.max_batch_size = 4}, "naive");
  Arrive(1, 10);
  Arrive(2, 500);
  Arrive(3, 20);
  Arrive(4, 1);
  Arrive(5, 2);
  EXPECT_THAT(Next(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(task_->length, 500);
  EXPECT_THAT(Next(0, 1), ElementsAre(5));
  EXPECT_EQ(task_->length, 2);
}

// Five requests at once on one worker; places without a request are padding.
TEST_F(LengthDpTest, TheSimulatorCountsPlacesThatArePadding) {
  const DocumentCosts costs;
  Workload workload;
  for (const int32_t length : {17, 18, 52, 63, 77}) {
    workload.arrivals.push_back({Duration(0), static_cast<int32_t>(workload.graphs.size())});
    workload.graphs.push_back(Sequences(length));
  }
  Make({.max_batch_size = 20, .costs = &costs});
  const SimulationResult planned = Simulate(*scheduler_, workload, costs, 1);
  EXPECT_EQ(planned.end, microseconds(15240));
  EXPECT_EQ(planned.rows, 17 + 18 + 52 + 63 + 77);
  EXPECT_EQ(planned.padding_rows, 1 + 11);
  Make({}, "none");
  const SimulationResult alone = Simulate(*scheduler_, workload, costs, 1);
  EXPECT_EQ(alone.end, microseconds(20620));
  EXPECT_EQ(alone.padding_rows, 0);
  Make({.max_batch_size = 20}, "naive");
  const SimulationResult together = Simulate(*scheduler_, workload, costs, 1);
  EXPECT_EQ(together.end, 5 * microseconds(5530));
  EXPECT_EQ(together.padding_rows, 5 * 77 - planned.rows);
}

}  // namespace
}  // namespace chairlift
