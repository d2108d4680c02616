#include "engine/programs/generating/choosing.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace chairlift {
namespace {

Choice ChooseOf(const GenerationLimits& limits, const std::vector<float>& logits) {
  const std::vector<int64_t> prompt = {0};
  const auto size = static_cast<int64_t>(logits.size());
  std::vector<float> scratch(static_cast<size_t>(ScratchOf(limits, size)));
  return Choose(limits, prompt, {}, nullptr, logits, scratch);
}

TEST(ChoosingTest, AForcedTokenFollowsWhereAllAreSuppressed) {
  for (const int64_t beams : {1, 2}) {
    GenerationLimits limits{.max_tokens = 3, .first_token = 2, .suppressed = {0, 1, 2, 3}};
    limits.beams.beams = beams;
    const Choice choice = ChooseOf(limits, {1, 2, 3, 4});
    ASSERT_TRUE(choice.status.ok()) << choice.status;
    ASSERT_EQ(choice.next.size(), 1u);
    EXPECT_EQ(choice.next[0].token, 2);
    limits.first_token = -1;
    EXPECT_FALSE(ChooseOf(limits, {1, 2, 3, 4}).next.size() == 1);
  }
}

TEST(ChoosingTest, ABiasIsAddedToLogitsAndNotToLogProbabilities) {
  GenerationLimits limits{.max_tokens = 3, .logprobs = 1};
  const std::vector<float> logits = {1, 2, 3, 4};
  const float plain = ChooseOf(limits, logits).top[0].second;
  limits.biases = {{.token = 0, .bias = 5}, {.token = 3, .bias = -100}};
  const Choice choice = ChooseOf(limits, logits);
  ASSERT_TRUE(choice.status.ok()) << choice.status;
  EXPECT_EQ(choice.next[0].token, 0);
  EXPECT_EQ(choice.top[0].first, 3);
  EXPECT_EQ(choice.top[0].second, plain);
  limits.beams.beams = 2;
  EXPECT_EQ(ChooseOf(limits, logits).next[0].token, 0);
}

TEST(ChoosingTest, TokensThatAnAnswerBeginsWithDoNotEndIt) {
  GenerationLimits limits{.max_tokens = 3, .end_tokens = {2}, .forced = {2}, .logprobs = 0};
  Choice choice = ChooseOf(limits, {4, 3, 2, 1});
  ASSERT_TRUE(choice.status.ok()) << choice.status;
  EXPECT_EQ(choice.next[0].token, 2);
  EXPECT_FALSE(choice.next[0].ends);
  EXPECT_LT(choice.next[0].logprob, -1);
  limits.max_tokens = 1;
  EXPECT_TRUE(ChooseOf(limits, {4, 3, 2, 1}).next[0].ends);
}

TEST(ChoosingTest, LogProbabilitiesOfInfiniteLogitsAreTheLeast) {
  const float infinity = std::numeric_limits<float>::infinity();
  const GenerationLimits limits{.max_tokens = 3, .logprobs = 2};
  for (const auto& logits : {std::vector<float>{1, infinity, 2, -3},
                             std::vector<float>{-infinity, -infinity, 0, -infinity}}) {
    const Choice choice = ChooseOf(limits, logits);
    ASSERT_TRUE(choice.status.ok()) << choice.status;
    ASSERT_EQ(choice.next.size(), 1u);
    EXPECT_GE(choice.next[0].logprob, kLeastLogprob);
    ASSERT_EQ(choice.top.size(), 2u);
    for (const auto& [token, logprob] : choice.top) EXPECT_GE(logprob, kLeastLogprob);
  }
}

}  // namespace
}  // namespace chairlift
