#include "engine/programs/generating/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

namespace chairlift {
namespace {

constexpr int kDraws = 20000;

std::map<int64_t, int> Drawn(const std::vector<float>& logits, const SamplingOptions& options,
                             const std::vector<int64_t>& without = {}) {
  std::map<int64_t, int> counts;
  for (int place = 0; place < kDraws; ++place) {
    const auto token = NextToken(logits, without, options, place);
    EXPECT_TRUE(token.ok()) << token.status();
    ++counts[token.value_or(-1)];
  }
  return counts;
}

// Frequencies of the tokens `kept` are those of their probabilities, within five standard
// deviations; no other token is drawn.
void ExpectDrawn(const std::vector<float>& logits, const SamplingOptions& options,
                 const std::vector<int64_t>& kept, const std::vector<int64_t>& without = {}) {
  double sum = 0;
  const auto weight = [&](int64_t token) {
    return std::exp(static_cast<double>(logits[static_cast<size_t>(token)]) / options.temperature);
  };
  for (const int64_t token : kept) sum += weight(token);
  int all = 0;
  auto counts = Drawn(logits, options, without);
  for (const int64_t token : kept) {
    const double p = weight(token) / sum;
    EXPECT_NEAR(counts[token], p * kDraws, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << token;
    all += counts[token];
  }
  EXPECT_EQ(all, kDraws);
}

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.5f, 0.0f, 2.0f};

TEST(SamplingTest, WithoutATemperatureItIsTheMostLikely) {
  EXPECT_EQ(*NextToken(kLogits, {}, {}, 0), 1);
  const std::vector<int64_t> without = {1, 5};
  EXPECT_EQ(*NextToken(kLogits, without, {.seed = 5}, 3), 3);
}

TEST(SamplingTest, TokensComeAsOftenAsTheirProbabilitiesSay) {
  ExpectDrawn(kLogits, {.temperature = 1}, {0, 1, 2, 3, 4, 5});
  ExpectDrawn(kLogits, {.temperature = 0.4f, .seed = 9}, {0, 1, 2, 3, 4, 5});
  ExpectDrawn(kLogits, {.temperature = 3, .seed = 10}, {0, 2, 3, 4}, {1, 5});
}

TEST(SamplingTest, OnlyLikelyOnesAreDrawnWhereThatIsAskedFor) {
  ExpectDrawn(kLogits, {.temperature = 1, .top_k = 3}, {1, 3, 5});
  ExpectDrawn(kLogits, {.temperature = 1, .top_k = 1}, {1});  // of equal ones the first
  // Probabilities 0.08, 0.34, 0.02, 0.21, 0.05, 0.34.
  ExpectDrawn(kLogits, {.temperature = 1, .top_p = 0}, {1});
  ExpectDrawn(kLogits, {.temperature = 1, .top_p = 0.3f}, {1});
  ExpectDrawn(kLogits, {.temperature = 1, .top_p = 0.6f}, {1, 5});
  ExpectDrawn(kLogits, {.temperature = 1, .top_p = 0.8f}, {1, 3, 5});
  ExpectDrawn(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.7f}, {1, 5});
  ExpectDrawn(kLogits, {.temperature = 1, .min_p = 0.2f}, {0, 1, 3, 5});
  ExpectDrawn(kLogits, {.temperature = 1, .min_p = 1}, {1, 5});
}

TEST(SamplingTest, ASeedAndAPlaceDecide) {
  std::vector<float> logits(1000);
  std::mt19937 random(3);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 500;
  const SamplingOptions options{.temperature = 1, .seed = 77};
  int equal = 0, other_seed = 0;
  for (int place = 0; place < 100; ++place) {
    const int64_t token = *NextToken(logits, {}, options, place);
    EXPECT_EQ(token, *NextToken(logits, {}, options, place));
    equal += token == *NextToken(logits, {}, options, place + 1) ? 1 : 0;
    other_seed += token == *NextToken(logits, {}, {.temperature = 1, .seed = 78}, place) ? 1 : 0;
  }
  EXPECT_LT(equal, 5);
  EXPECT_LT(other_seed, 5);
}

TEST(SamplingTest, WhatHasNoProbabilityIsNotDrawn) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  ExpectDrawn({kNever, 1, kNever, 0}, {.temperature = 1}, {1, 3});
  EXPECT_EQ(*NextToken(std::vector<float>{0, -kNever}, {}, {.temperature = 1}, 0), 1);
  EXPECT_TRUE(*NextToken(std::vector<float>{kNever, kNever}, {}, {.temperature = 1}, 0) == 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(absl::IsInternal(NextToken(std::vector<float>{0, nan}, {}, {}, 0).status()));
  std::vector<int64_t> all(kLogits.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(NextToken(kLogits, all, {.temperature = 1}, 0).status()));
}

// Sizes around those of the blocks in which rows are searched.
TEST(SamplingTest, OfEqualOnesTheFirstWhereverItIsAndNaNIsSeenAnywhere) {
  const float never = -std::numeric_limits<float>::infinity();
  std::mt19937 random(1);
  for (const size_t size : {1u, 2u, 63u, 64u, 65u, 200u}) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> logits(size);
      for (float& logit : logits) logit = random() % 4 == 0 ? never : float(random() % 5);
      const auto best = std::max_element(logits.begin(), logits.end());
      const auto token = NextToken(logits, {}, {}, 0);
      ASSERT_TRUE(token.ok()) << token.status();
      EXPECT_EQ(*token, best - logits.begin());
      logits[random() % size] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(absl::IsInternal(NextToken(logits, {}, {}, 0).status()));
    }
  }
}

}  // namespace
}  // namespace chairlift
