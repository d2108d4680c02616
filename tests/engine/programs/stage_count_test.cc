// The number of stages is tried in virtual time, on what nodes take.
#include "engine/programs/stage_count.h"

#include <gmock/gmock.h>

#include "base/status.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

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

// Batches gain nothing here: it is the newcomers' wait that stages shorten.
TEST(StageCountTest, StagesThatCostMoreThanTheyGainAreNotMade) {
  for (const char* policy : {"staged", "cellular"}) {
    SCOPED_TRACE(policy);
    std::string tried;
    const auto number = [&](double ms) {
      tried.clear();
      const auto model =
          CutByTrying([ms](int stages) { return Even(stages, ms); }, TrialOf(policy), tried);
      EXPECT_TRUE(model.ok()) << model.status();
      return model->stages.size();
    };
    EXPECT_EQ(number(0.02), 2u);  // a task takes half as long by itself
    EXPECT_THAT(tried, HasSubstr("2: "));
    EXPECT_THAT(tried, HasSubstr("12: "));
    if (policy == std::string("staged")) {
      EXPECT_GT(number(100), 3u);
    }
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
