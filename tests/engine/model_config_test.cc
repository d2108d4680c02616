// model.yaml: what it may say, and how a model is served where it says nothing.
#include "engine/model_config.h"

#include <gmock/gmock.h>

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::string& yaml) {
  const Status status = ParseModelConfig(yaml).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

TEST(ModelConfigTest, ReadsEverySetting) {
  const StatusOr<ModelConfig> config = ParseModelConfig(R"(
policy: window
max_batch_size: 16
queue_delay_us: 500
preferred_batch_sizes: [4, 8]
max_queue_size: 10
default_timeout_us: 250000
disabled_passes: [fuse_conv_activation]
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->policy, "window");
  EXPECT_EQ(config->max_batch_size, 16);
  EXPECT_EQ(config->queue_delay_us, 500);
  EXPECT_THAT(config->preferred_batch_sizes, ElementsAre(4, 8));
  EXPECT_EQ(config->max_queue_size, 10);
  EXPECT_EQ(config->default_timeout_us, 250000);
  EXPECT_THAT(config->disabled_passes, ElementsAre("fuse_conv_activation"));
}

TEST(ModelConfigTest, AnEmptyFileSetsNothing) {
  EXPECT_TRUE(ParseModelConfig("").ok());
  EXPECT_TRUE(ParseModelConfig("# nothing\n").ok());
}

TEST(ModelConfigTest, UnknownSettingsAreRefusedWithTheKnownOnes) {
  EXPECT_THAT(Refusal("max_batch: 4"),
              AllOf(HasSubstr("no setting 'max_batch'"), HasSubstr("max_batch_size"),
                    HasSubstr("disabled_passes")));
}

TEST(ModelConfigTest, WrongValuesAreRefusedByName) {
  EXPECT_THAT(Refusal("max_batch_size: many"), HasSubstr("'max_batch_size' must be a number"));
  EXPECT_THAT(Refusal("max_batch_size: [1]"), HasSubstr("'max_batch_size' must be a number"));
  EXPECT_THAT(Refusal("max_batch_size: 99999999999"), HasSubstr("'max_batch_size' must be"));
  EXPECT_THAT(Refusal("max_batch_size: -1"), HasSubstr("max_batch_size is -1"));
  EXPECT_THAT(Refusal("preferred_batch_sizes: 4"), HasSubstr("must be a list"));
  EXPECT_THAT(Refusal("queue_delay_us: -5"), HasSubstr("queue_delay_us is -5"));
  EXPECT_THAT(Refusal("max_queue_size: 0"), HasSubstr("max_queue_size is 0"));
  EXPECT_THAT(Refusal("max_embedding_bytes: -1"), HasSubstr("max_embedding_bytes is -1"));
  EXPECT_THAT(Refusal("max_embedding_bytes: many"), HasSubstr("must be bytes"));
  EXPECT_THAT(Refusal("default_timeout_us: -1"), HasSubstr("default_timeout_us is -1"));
  EXPECT_THAT(Refusal("policy: {a: b}"), HasSubstr("'policy' must be the name"));
  EXPECT_THAT(Refusal("policy: windows"), AllOf(HasSubstr("'windows'"), HasSubstr("window, ")));
  EXPECT_THAT(Refusal("max_batch_tokens: -1"), HasSubstr("max_batch_tokens is -1"));
  EXPECT_THAT(Refusal("latency_objective_us: -1"), HasSubstr("latency_objective_us is -1"));
  EXPECT_THAT(Refusal("response_cache_bytes: -1"), HasSubstr("response_cache_bytes is -1"));
}

TEST(ModelConfigTest, WhatIsNoMapOfSettingsIsRefused) {
  EXPECT_THAT(Refusal("- a\n- b"), HasSubstr("must be a map"));
  EXPECT_THAT(Refusal("just words"), HasSubstr("must be a map"));
  EXPECT_THAT(Refusal("a: [b"), HasSubstr("not YAML"));
  EXPECT_THAT(Refusal("policy: none\npolicy: window"), HasSubstr("twice"));
  EXPECT_THAT(Refusal("[a]: b"), HasSubstr("no setting"));
  EXPECT_THAT(Refusal(std::string(2 << 20, ' ')), HasSubstr("bytes"));
}

TEST(PlanServingTest, AModelThatBatchesGetsAWindow) {
  const StatusOr<ServingPlan> plan = PlanServing({}, {true, "rows keep apart"});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->batches);
  EXPECT_EQ(plan->config.policy, "window");
  EXPECT_EQ(plan->config.max_batch_size, 32);
  EXPECT_EQ(plan->scheduling.max_batch_size, 32);
  EXPECT_EQ(plan->diagnosis, "rows keep apart; window policy, up to 32 rows");
}

TEST(PlanServingTest, AModelThatDoesNotIsServedOneByOne) {
  const StatusOr<ServingPlan> plan = PlanServing({}, {false, "it mixes rows"});
  ASSERT_TRUE(plan.ok());
  EXPECT_FALSE(plan->batches);
  EXPECT_EQ(plan->config.policy, "none");
  EXPECT_EQ(plan->diagnosis, "it mixes rows; requests run one by one");
}

TEST(PlanServingTest, BatchingIsRefusedWhereItIsNotProved) {
  const auto refusal = [](const ModelConfig& config) {
    return std::string(PlanServing(config, {false, "it mixes rows"}).status().message());
  };
  EXPECT_THAT(refusal({.policy = "window"}), HasSubstr("it mixes rows; policy 'none' can"));
  EXPECT_THAT(refusal({.max_batch_size = 8}), HasSubstr("cannot share a batch: it mixes rows"));
}

TEST(PlanServingTest, WhatThePolicyWouldIgnoreIsRefusedWithWhoWouldNot) {
  const auto refusal = [](const auto& plan) { return std::string(plan.status().message()); };
  EXPECT_THAT(
      refusal(PlanServing({.max_batch_tokens = 9}, {true, ""})),
      HasSubstr("max_batch_tokens is 9, of which policy 'window' makes no use; 'tokens' does"));
  EXPECT_THAT(refusal(PlanTokenServing({.queue_delay_us = 7}, {}, 1)),
              HasSubstr("policy 'tokens' makes no use; 'window' or 'length_dp' does"));
  EXPECT_THAT(refusal(PlanTokenServing({.latency_objective_us = 7}, {}, 1)),
              HasSubstr("latency_objective_us is 7"));
  EXPECT_THAT(refusal(PlanPaddedServing({.policy = "naive", .latency_objective_us = 7}, "", 1)),
              HasSubstr("'length_dp' does"));
  EXPECT_THAT(refusal(PlanCellServing({.queue_delay_us = 7}, "", {}, {})), HasSubstr("'cellular'"));
  EXPECT_TRUE(PlanPaddedServing({.queue_delay_us = 7, .latency_objective_us = 7}, "", 1).ok());
  EXPECT_TRUE(PlanServing({.policy = "none", .queue_delay_us = 7}, {true, ""}).ok());
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

TEST(PlanServingTest, BatchingCanBeTurnedOff) {
  EXPECT_FALSE(PlanServing({.policy = "none"}, {true, ""})->batches);
  EXPECT_FALSE(PlanServing({.max_batch_size = 1}, {true, ""})->batches);
}

}  // namespace
}  // namespace chairlift
