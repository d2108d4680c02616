// chairlift::Random: what it draws, and what that depends on.
#include "ops/generation/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "ops/generation/philox.h"
#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Attrs;
using testing::RunOperator;
using testing::ThreadTeam;
using Doubles = std::vector<double>;

constexpr int64_t kFloat = 1, kFloat16 = 10, kDouble = 11, kBFloat16 = 16;

struct Draw {
  std::string distribution = "uniform";
  int64_t dtype = kFloat;
  int64_t stream = 0;
  float offset = 0, scale = 1;

  Attributes Values() const {
    return Attrs({{"distribution", distribution},
                  {"dtype", dtype},
                  {"stream", stream},
                  {"offset", offset},
                  {"scale", scale}});
  }
  Tensor Like(const Tensor& seeds, const Shape& shape, Team* team = nullptr) const {
    auto drawn = RunOperator({.name = "Random",
                              .attributes = Values(),
                              .inputs = {seeds, Tensor::Allocate(DType::kBool, shape)},
                              .domain = "chairlift"},
                             team);
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    return drawn.ok() ? (*drawn)[0] : Tensor();
  }
  Doubles Of(int64_t seed, const Shape& shape) const {
    return AsDoubles(Like(SeedsOf(seed, true, shape[0]), shape));
  }
};

double Mean(const Doubles& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}
double Variance(const Doubles& x) {
  const double mean = Mean(x);
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size());
}
double Correlation(const Doubles& x, const Doubles& y) {
  const double mean_x = Mean(x), mean_y = Mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - mean_x) * (y[i] - mean_y);
  return sum / static_cast<double>(x.size()) / std::sqrt(Variance(x) * Variance(y));
}
// Kolmogorov and Smirnov's distance between the sample and a distribution, times the root of the
// sample's size: above 1.95 in one of a thousand samples.
double Distance(Doubles x, const std::function<double(double)>& cumulative) {
  std::sort(x.begin(), x.end());
  const auto n = static_cast<double>(x.size());
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double p = cumulative(x[i]);
    most = std::max({most, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  return most * std::sqrt(n);
}
double Uniform(double x) { return std::clamp(x, 0.0, 1.0); }
double Normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double Gumbel(double x) { return std::exp(-std::exp(-x)); }

// The answers that the authors of Random123 publish.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, FollowsItsDistribution) {
  constexpr double kEuler = 0.5772156649, kPi = 3.14159265358979;
  struct Expected {
    const char* distribution;
    double mean, variance;
    double (*cumulative)(double);
  };
  for (const Expected& e :
       {Expected{"uniform", 0.5, 1.0 / 12, Uniform}, Expected{"normal", 0, 1, Normal},
        Expected{"gumbel", kEuler, kPi * kPi / 6, Gumbel}}) {
    for (const int64_t dtype : {kFloat, kDouble}) {
      for (const int64_t seed : {int64_t{0}, int64_t{1}, int64_t{-7}}) {
        const Doubles x =
            Draw{.distribution = e.distribution, .dtype = dtype}.Of(seed, {7, 13, 1101});
        const auto n = static_cast<double>(x.size());
        // Within five standard errors.
        EXPECT_NEAR(Mean(x), e.mean, 5 * std::sqrt(e.variance / n)) << e.distribution;
        EXPECT_NEAR(Variance(x), e.variance, 10 * e.variance / std::sqrt(n)) << e.distribution;
        EXPECT_LT(Distance(x, e.cumulative), 1.95) << e.distribution << " " << seed;
      }
    }
  }
}

TEST(RandomTest, IsShiftedAndScaledInAnyFloatType) {
  const Draw plain{.distribution = "normal"};
  const Doubles x = plain.Of(3, {4, 501});
  for (const int64_t dtype : {kFloat, kFloat16, kDouble, kBFloat16}) {
    Draw draw = plain;
    draw.dtype = dtype;
    draw.offset = 10;
    draw.scale = 0.5;
    const Doubles y = draw.Of(3, {4, 501});
    ASSERT_EQ(y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], 10 + 0.5 * x[i], 0.05);
  }
}

TEST(RandomTest, UniformNumbersAreBelowOne) {
  const Doubles x = Draw{}.Of(5, {1, 100'001});
  EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 1);
}

TEST(RandomTest, SeedsNodesAndRowsDrawApart) {
  const Doubles x = Draw{}.Of(1, {2, 3, 3333});
  const Doubles first(x.begin(), x.begin() + 9999), second(x.begin() + 9999, x.end());
  EXPECT_LT(std::abs(Correlation(first, second)), 0.05);
  EXPECT_LT(std::abs(Correlation(x, Draw{}.Of(2, {2, 3, 3333}))), 0.05);
  EXPECT_LT(std::abs(Correlation(x, Draw{.stream = 1}.Of(1, {2, 3, 3333}))), 0.05);
  const int64_t high = int64_t{1} << 32;  // all of the seed counts
  EXPECT_LT(std::abs(Correlation(x, Draw{}.Of(1 + high, {2, 3, 3333}))), 0.05);
  EXPECT_EQ(x, Draw{}.Of(1, {2, 3, 3333}));
}

// Rows of two requests in one batch, in any order, each as alone.
TEST(RandomTest, ARowDoesNotDependOnTheBatch) {
  for (const Shape& inner :
       {Shape{}, Shape{5}, Shape{3, 1}, Shape{2, 7}, Shape{2, 3, 5}, Shape{2, 2, 3, 4}}) {
    const auto shape = [&](int64_t rows) {
      Shape whole{rows};
      for (const int64_t size : inner) whole.Append(size);
      return whole;
    };
    const Draw draw{.distribution = "normal"};
    const Tensor a = draw.Like(SeedsOf(11, true, 3), shape(3));
    const Tensor b = draw.Like(SeedsOf(12, true, 2), shape(2));
    Tensor seeds = Tensor::Allocate(DType::kInt64, {5, kSeedColumns});
    const Tensor of_a = SeedsOf(11, true, 3), of_b = SeedsOf(12, true, 2);
    const std::vector<std::pair<const Tensor*, int64_t>> rows = {
        {&b, 1}, {&a, 0}, {&a, 2}, {&b, 0}, {&a, 1}};
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor& from = rows[i].first == &a ? of_a : of_b;
      std::copy_n(from.data<int64_t>() + rows[i].second * kSeedColumns, kSeedColumns,
                  seeds.data<int64_t>() + static_cast<int64_t>(i) * kSeedColumns);
    }
    const Tensor together = draw.Like(seeds, shape(5));
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(AsDoubles(together.Rows(static_cast<int64_t>(i), 1)),
                AsDoubles(rows[i].first->Rows(rows[i].second, 1)));
    }
  }
}

TEST(RandomTest, PaddingAndThreadsChangeNothing) {
  const Draw draw{.distribution = "normal"};
  const Tensor seeds = SeedsOf(9, true, 2);
  const Tensor small = draw.Like(seeds, {2, 3, 7}), padded = draw.Like(seeds, {2, 5, 16});
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t j = 0; j < 7; ++j) {
        EXPECT_EQ(small.data<float>()[(row * 3 + i) * 7 + j],
                  padded.data<float>()[(row * 5 + i) * 16 + j]);
      }
    }
  }
  ThreadTeam team(4);
  EXPECT_EQ(AsDoubles(draw.Like(seeds, {2, 123, 457})),
            AsDoubles(draw.Like(seeds, {2, 123, 457}, &team)));
}

// Seeds of another number of rows belong to one request, whose rows are those of the output.
TEST(RandomTest, OneSeedServesAnyShape) {
  const Draw draw;
  EXPECT_EQ(AsDoubles(draw.Like(SeedsOf(4, true, 1), {3, 5})), draw.Of(4, {3, 5}));
  EXPECT_EQ(AsDoubles(draw.Like(SeedsOf(4, true, 2), {3, 5})), draw.Of(4, {3, 5}));
  EXPECT_EQ(draw.Like(SeedsOf(4, true, 0), {3, 5}).size(), 15);
  EXPECT_EQ(draw.Like(SeedsOf(4, true, 1), {}).size(), 1);
  EXPECT_EQ(draw.Like(SeedsOf(4, true, 1), {3, 0}).size(), 0);
  EXPECT_EQ(draw.Like(SeedsOf(4, true, 1), {0, 3}).size(), 0);
}

TEST(RandomTest, TheSeedOfTheNodeCountsUnlessTheRequestHasOne) {
  const auto of = [](float seed, const Tensor& seeds) {
    Attributes attributes = Draw{}.Values();
    attributes.Set("seed", seed);
    attributes.Set("shape", std::vector<int64_t>{2, 6});
    auto drawn = RunOperator(
        {.name = "Random", .attributes = attributes, .inputs = {seeds}, .domain = "chairlift"});
    EXPECT_TRUE(drawn.ok()) << drawn.status();
    return AsDoubles((*drawn)[0]);
  };
  EXPECT_EQ(of(1.5f, SeedsOf(1, false, 2)), of(1.5f, SeedsOf(2, false, 2)));
  EXPECT_NE(of(1.5f, SeedsOf(1, false, 2)), of(1.25f, SeedsOf(1, false, 2)));
  EXPECT_NE(of(1.5f, SeedsOf(1, true, 2)), of(1.5f, SeedsOf(2, true, 2)));
  EXPECT_EQ(of(1.5f, SeedsOf(1, true, 2)), Draw{}.Of(1, {2, 6}));
}

}  // namespace
}  // namespace chairlift
