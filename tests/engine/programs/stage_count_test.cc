// The number of stages is tried in virtual time, on what nodes take.
#include "engine/programs/stage_count.h"

#include <gmock/gmock.h>

#include "base/status.h"

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

// Nobody waits for long at a low load, and stages alone gain nothing then but cost a little.
TEST(StageCountTest, LatencyIsInTermsOfOneRequestAlone) {
  const StagedModel two = Even(2, 10);
  const double latency = LatencyOfStages(two.stages, TrialOf("staged"));
  EXPECT_GT(latency, 1);
  EXPECT_LT(latency, 20);
}

}  // namespace
}  // namespace chairlift
