// The number of stages is tried in virtual time, on what nodes take.
#include "engine/programs/stage_count.h"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <random>

#include "base/status.h"
#include "batching/simulator.h"
#include "engine/programs/cells/cell_costs.h"
#include "engine/programs/serving_plan.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Even stages of a model that takes `ms` a row, at batches of 1 and 8.
StagedModel Even(int stages, double ms) {
  StagedModel model;
  for (int s = 0; s < stages; ++s) {
    ModelStage& stage = model.stages.emplace_back();
    stage.row_costs = {ms * 1e6 / stages, ms * 1e6 / stages};
  }
  return model;
}

StageTrial TrialOf(const char* policy) {
  StageTrial trial;
  trial.sizes = {1, 8};
  trial.policy = policy;
  trial.max_batch_size = 8;
  trial.workers = 1;
  return trial;
}

TEST(StageCountTest, StagesThatCostMoreThanTheyGainAreNotMade) {
  for (const char* policy : {"staged", "cellular"}) {
    SCOPED_TRACE(policy);
    std::string tried;
    const auto model =
        CutByTrying([](int stages) { return Even(stages, 0.02); }, TrialOf(policy), tried);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(model->stages, SizeIs(2));  // a task takes half as long by itself
    EXPECT_THAT(tried, HasSubstr("2: "));
    EXPECT_THAT(tried, HasSubstr("12: "));
  }
}

TEST(StageCountTest, WhatCannotBeCutIsNotTried) {
  std::string tried;
  const auto model = CutByTrying(
      [](int stages) -> StatusOr<StagedModel> {
        if (stages > 3) return InvalidArgument("no places for {}", stages);
        return Even(stages, 10);
      },
      TrialOf("staged"), tried);
  ASSERT_TRUE(model.ok());
  EXPECT_LE(model->stages.size(), 3u);
  const auto many = CutByTrying(
      [](int stages) -> StatusOr<StagedModel> {
        if (stages < 5) return InvalidArgument("a place between would be missed");
        return Even(stages, 10);
      },
      TrialOf("staged"), tried);
  ASSERT_TRUE(many.ok());
  EXPECT_THAT(many->stages, SizeIs(5));
  const auto none =
      CutByTrying([](int) -> StatusOr<StagedModel> { return Unimplemented("no place"); },
                  TrialOf("staged"), tried);
  EXPECT_TRUE(absl::IsUnimplemented(none.status()));
}

// No request waits for long at a low load, and stages alone gain nothing then but cost a little.
TEST(StageCountTest, LatencyIsInTermsOfOneRequestAlone) {
  const StagedModel two = Even(2, 10);
  const double latency = LatencyOfStages(two.stages, TrialOf("staged"));
  EXPECT_GT(latency, 1);
  EXPECT_LT(latency, 20);
}

// VGG-19 on one of two cores: convolutions that take as long for each image in any company, and
// dense layers whose weights are read once for all.
class VggCosts : public CostModel {
 public:
  Duration Cost(CellType stage, int32_t rows, int32_t /*length*/) const override {
    const double ms = stage < kDense ? 6.0 * rows : 5.3 + 0.15 * rows;
    return std::chrono::microseconds(static_cast<int64_t>(1000 * ms));
  }
  static constexpr CellType kDense = 3;
};

// Counts the rows of tasks.
class CountsRows final : public CostModel {
 public:
  Duration Cost(CellType stage, int32_t rows, int32_t length) const override {
    ++tasks[stage];
    rows_of[stage] += rows;
    return costs_.Cost(stage, rows, length);
  }
  double MeanRows(CellType stage) const { return 1.0 * rows_of[stage] / tasks[stage]; }

 private:
  VggCosts costs_;
  mutable std::array<int, 4> tasks{};
  mutable std::array<int, 4> rows_of{};
};

TEST(StageSizesTest, DenseLayersRunTogetherAndConvolutionsApart) {
  constexpr int kStages = 4, kWorkers = 2;
  const VggCosts costs;
  std::vector<CellCosts> timed(kStages);
  for (CellType stage = 0; stage < kStages; ++stage) {
    for (int rows = 1; rows <= 16; rows *= 2) {
      timed[stage].push_back({rows, 0, costs.Cost(stage, rows, 0)});
    }
  }
  std::vector<CellTypeOptions> types;
  ChooseCellSizes(timed, 0, types);
  const auto plan = PlanStagedServing({.policy = "cellular"}, {"conv1", "conv2", "conv3", "dense"},
                                      types, &costs, kWorkers);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Workload load;
  CellGraph& graph = load.graphs.emplace_back();
  for (int32_t stage = 0; stage < kStages; ++stage) {
    stage == 0 ? graph.Add(0) : graph.Add(static_cast<CellType>(stage), 1, {stage - 1});
  }
  // At 95% of what two workers do of images one by one.
  std::mt19937 random(1);
  std::exponential_distribution<double> gap_ms(0.95 * kWorkers / 23.45);
  double at_ms = 0;
  for (int i = 0; i < 2000; ++i) {
    at_ms += gap_ms(random);
    load.arrivals.push_back({std::chrono::microseconds(static_cast<int64_t>(1000 * at_ms)), 0});
  }
  const auto scheduler = MakeScheduler("cellular", plan->scheduling);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const CountsRows counts;
  Simulate(**scheduler, load, counts, kWorkers);
  for (CellType stage = 0; stage < VggCosts::kDense; ++stage) {
    EXPECT_EQ(counts.MeanRows(stage), 1) << stage;
  }
  EXPECT_GT(counts.MeanRows(VggCosts::kDense), 1.5);
}

}  // namespace
}  // namespace chairlift
