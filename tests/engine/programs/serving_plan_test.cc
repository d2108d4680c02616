// How a model is served where its settings say nothing, and which settings are refused.
#include "engine/programs/serving_plan.h"

#include <gmock/gmock.h>

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PlanServingTest, AModelThatBatchesGetsAWindow) {
  const StatusOr<ServingPlan> plan = PlanServing({}, {true, "rows keep apart"}, 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->batches);
  EXPECT_EQ(plan->config.policy, "window");
  EXPECT_EQ(plan->config.max_batch_size, 32);
  EXPECT_EQ(plan->scheduling.max_batch_size, 32);
  EXPECT_EQ(plan->diagnosis, "rows keep apart; window policy, up to 32 rows");
}

TEST(PlanServingTest, AModelThatDoesNotIsServedOneByOne) {
  const StatusOr<ServingPlan> plan = PlanServing({}, {false, "it mixes rows"}, 1);
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->batches);
  EXPECT_EQ(plan->config.policy, "none");
  EXPECT_EQ(plan->diagnosis, "it mixes rows; requests run one by one");
}

TEST(PlanServingTest, BatchingIsRefusedWhereItIsNotProved) {
  const auto refusal = [](const ModelConfig& config) {
    return std::string(PlanServing(config, {false, "it mixes rows"}, 1).status().message());
  };
  EXPECT_THAT(refusal({.policy = "window"}), HasSubstr("it mixes rows; policy 'none' can"));
  EXPECT_THAT(refusal({.max_batch_size = 8}), HasSubstr("cannot share a batch: it mixes rows"));
}

TEST(PlanServingTest, WhatThePolicyWouldIgnoreIsRefusedWithWhoWouldNot) {
  const auto refusal = [](const auto& plan) { return std::string(plan.status().message()); };
  EXPECT_THAT(refusal(PlanServing({.max_batch_tokens = 9}, {true, ""}, 1)),
              HasSubstr("max_batch_tokens is 9, but policy 'window' does not use it; 'packed' or "
                        "'continuous' does"));
  EXPECT_THAT(
      refusal(PlanTokenServing({.queue_delay_us = 7}, {}, 1)),
      HasSubstr("policy 'packed' does not use it; 'window' or 'length_dp' or 'staged' does"));
  EXPECT_THAT(refusal(PlanTokenServing({.latency_objective_us = 7}, {}, 1)),
              HasSubstr("latency_objective_us is 7"));
  EXPECT_THAT(refusal(PlanPaddedServing({.policy = "naive", .latency_objective_us = 7}, "", 1)),
              HasSubstr("'length_dp' or 'staged' does"));
  EXPECT_THAT(refusal(PlanCellServing({.queue_delay_us = 7}, "", {}, {})), HasSubstr("'cellular'"));
  EXPECT_THAT(refusal(PlanServing({.buffer_pairs = 3}, {true, ""}, 1)),
              HasSubstr("buffer_pairs is 3, but policy 'window' does not use it; 'staged' does"));
  EXPECT_THAT(refusal(PlanCellServing({.preferred_batch_sizes = {2, 4}}, "", {}, {})),
              HasSubstr("preferred_batch_sizes is [2, 4], but policy 'cellular' does not use it; "
                        "'window' does"));
  EXPECT_THAT(refusal(PlanTokenServing({.time_slice_us = 0}, {}, 1)),
              HasSubstr("time_slice_us is 0, but policy 'packed' does not use it"));
  EXPECT_THAT(refusal(PlanServing({.padding_mask = "mask"}, {true, ""}, 1)),
              HasSubstr("padding_mask is 'mask', but policy 'window' does not use it"));
  EXPECT_THAT(refusal(PlanServing({.prefix_caching = false}, {true, ""}, 1)),
              HasSubstr("prefix_caching is false, but policy 'window' does not use it"));
  EXPECT_TRUE(PlanGenerationServing({.prefix_caching = false}, "", 9).ok());
  EXPECT_THAT(refusal(PlanGenerationServing({.policy = "static"}, "", 9)),
              HasSubstr("are served with 'continuous'"));
  EXPECT_TRUE(PlanPaddedServing({.queue_delay_us = 7, .latency_objective_us = 7}, "", 1).ok());
  EXPECT_THAT(refusal(PlanServing({.policy = "none", .queue_delay_us = 7}, {true, ""}, 1)),
              HasSubstr("queue_delay_us is 7, but policy 'none' does not use it"));
  EXPECT_TRUE(PlanServing({.queue_delay_us = 7}, {false, "no"}, 1).ok());
}

TEST(PlanServingTest, StagesAreForStagedOrCellular) {
  const std::vector<std::string> names = {"stage1", "stage2"};
  const auto staged = PlanStagedServing({.latency_objective_us = 7, .buffer_pairs = 3}, names,
                                        {{}, {}}, nullptr, 1);
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_EQ(staged->config.policy, "staged");
  EXPECT_EQ(staged->scheduling.max_batch_size, 32);
  EXPECT_EQ(staged->scheduling.buffer_pairs, 3);
  EXPECT_EQ(staged->diagnosis, "cut into 2 stages; staged policy, up to 32 rows");
  const auto cellular =
      PlanStagedServing({.policy = "cellular"}, names, {{.max_batch_size = 4}, {}}, nullptr, 1);
  ASSERT_TRUE(cellular.ok()) << cellular.status();
  EXPECT_THAT(cellular->diagnosis, HasSubstr("stage1: 4, stage2: 32"));
  EXPECT_TRUE(MayServe("cellular", GraphForm::kStages));
  EXPECT_FALSE(MayServe("window", GraphForm::kStages));
  EXPECT_FALSE(MayServe("staged", GraphForm::kCells));
}

TEST(PlanServingTest, TheDiagnosisSaysWhetherPaddingIsProved) {
  const auto proved = PlanPaddedServing({}, "", 1);
  ASSERT_TRUE(proved.ok()) << proved.status();
  EXPECT_THAT(proved->diagnosis, HasSubstr("proved to change nothing"));
  const auto trusted = PlanPaddedServing({.padding_mask = "mask"}, "it sorts", 1);
  ASSERT_TRUE(trusted.ok()) << trusted.status();
  EXPECT_THAT(trusted->diagnosis, HasSubstr("'mask' hides it (padding_mask): tried on a few "
                                            "requests, not proved: it sorts"));
}

TEST(PlanServingTest, CellsHaveSizesOfTheirOwn) {
  std::vector<CellTypeOptions> types(2);
  types[0].max_batch_size = 8;
  auto plan = PlanCellServing({}, "cut", {"step", "head"}, types);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->diagnosis, HasSubstr("step: 8, head: 64"));
  EXPECT_EQ(plan->scheduling.cell_types[0].max_batch_size, 8);
  plan = PlanCellServing({.policy = "bucketed", .max_batch_size = 16}, "cut", {"a", "b"}, types);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->diagnosis, "cut (a, b); bucketed policy, up to 16 requests together");
}

TEST(PlanServingTest, TasksHaveStepsButForThoseOfIdeal) {
  const std::vector<CellTypeOptions> types(1);
  EXPECT_EQ(PlanCellServing({}, "", {"a"}, types)->scheduling.time_slice,
            PolicyOptions().time_slice);
  EXPECT_EQ(PlanCellServing({.time_slice_us = 0}, "", {"a"}, types)->scheduling.time_slice,
            Duration(0));
  EXPECT_EQ(PlanCellServing({.time_slice_us = 7}, "", {"a"}, types)->scheduling.time_slice,
            std::chrono::microseconds(7));
  for (const char* policy : {"bucketed", "graph_merge"}) {
    const auto plan = PlanCellServing({.policy = policy, .time_slice_us = 7}, "", {"a"}, types);
    EXPECT_EQ(plan->scheduling.time_slice, std::chrono::microseconds(7)) << policy;
  }
  const auto refused =
      PlanCellServing({.policy = "ideal", .time_slice_us = 7}, "", {"a"}, types).status();
  EXPECT_THAT(Message(refused), HasSubstr("time_slice_us is 7, but policy 'ideal'"));
}

TEST(PlanServingTest, BatchingCanBeTurnedOff) {
  EXPECT_FALSE(PlanServing({.policy = "none"}, {true, ""}, 1)->batches);
  EXPECT_FALSE(PlanServing({.max_batch_size = 1}, {true, ""}, 1)->batches);
}

}  // namespace
}  // namespace chairlift
