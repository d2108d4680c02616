// chairlift::LstmGates against its formula in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::OperatorCall;
using testing::RunOperator;

// Counts the parts it runs.
class CountingTeam final : public Team {
 public:
  int width() const override { return 3; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = parts; p-- > 0;) body(p, p);
    parts_ += parts;
  }
  int parts() const { return parts_; }

 private:
  int parts_ = 0;
};

template <typename T>
Tensor Random(const Shape& shape, double scale, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DTypeOf<T>::kValue, shape);
  std::normal_distribution<double> normal(0, scale);
  for (int64_t i = 0; i < t.size(); ++i) t.data<T>()[i] = static_cast<T>(normal(random));
  return t;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <typename T>
void Check(const Tensor& gates, const Tensor& c, const std::string& order, double bound,
           Team* team = nullptr) {
  SCOPED_TRACE(gates.shape().ToString() + " " + c.shape().ToString() + " " + order);
  OperatorCall call{
      .name = "LstmGates", .inputs = {gates, c}, .num_outputs = 2, .domain = "chairlift"};
  call.attributes.Set("order", order);
  const auto got = RunOperator(call, team);
  ASSERT_TRUE(got.ok()) << got.status();
  const int64_t units = c.shape()[c.shape().rank() - 1];
  const int64_t gate_rows = gates.shape().NumElements(0, gates.shape().rank() - 1);
  const int64_t c_rows = c.shape().NumElements(0, c.shape().rank() - 1);
  const int64_t rows = gate_rows == 1 ? c_rows : gate_rows;
  Shape shape = c.shape();
  if (rows != c_rows) shape[0] = rows;
  ASSERT_EQ((*got)[0].shape(), shape);
  ASSERT_EQ((*got)[1].shape(), shape);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t u = 0; u < units; ++u) {
      const auto gate = [&](char name) {
        const auto quarter = static_cast<int64_t>(order.find(name));
        return static_cast<double>(
            gates.data<T>()[((gate_rows == 1 ? 0 : r) * 4 + quarter) * units + u]);
      };
      const double before = c.data<T>()[(c_rows == 1 ? 0 : r) * units + u];
      const double c_next = Sigmoid(gate('f')) * before + Sigmoid(gate('i')) * std::tanh(gate('g'));
      const double h = Sigmoid(gate('o')) * std::tanh(c_next);
      ASSERT_NEAR((*got)[0].data<T>()[r * units + u], h, bound) << r << ", " << u;
      ASSERT_NEAR((*got)[1].data<T>()[r * units + u], c_next, bound * (1 + std::abs(c_next)))
          << r << ", " << u;
    }
  }
}

TEST(LstmGatesTest, EveryOrderAndWidth) {
  std::mt19937 random(51);
  std::string order = "fgio";
  do {
    for (int64_t units : {1, 15, 16, 17, 40}) {
      Check<float>(Random<float>(Shape{3, 4 * units}, 3, random),
                   Random<float>(Shape{3, units}, 2, random), order, 5e-7);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(LstmGatesTest, AwkwardShapesAndTypes) {
  std::mt19937 random(52);
  for (const Shape& c : {Shape{7}, Shape{0, 5}, Shape{2, 0}, Shape{2, 3, 5}, Shape{1, 1}}) {
    Shape gates = c;
    gates[c.rank() - 1] *= 4;
    Check<float>(Random<float>(gates, 3, random), Random<float>(c, 2, random), "ifgo", 5e-7);
    Check<double>(Random<double>(gates, 3, random), Random<double>(c, 2, random), "iogf", 1e-14);
  }
}

TEST(LstmGatesTest, OneRowServesAll) {
  std::mt19937 random(53);
  Check<float>(Random<float>(Shape{5, 12}, 3, random), Random<float>(Shape{1, 3}, 2, random),
               "ifgo", 5e-7);
  Check<float>(Random<float>(Shape{1, 12}, 3, random), Random<float>(Shape{5, 3}, 2, random),
               "ifgo", 5e-7);
}

TEST(LstmGatesTest, LargeInputsSaturate) {
  const auto got = RunOperator({.name = "LstmGates",
                                .inputs = {Tensor::Of<float>(Shape{1, 4}, {1e30f, -1e30f, -90, 90}),
                                           Tensor::Of<float>(Shape{1, 1}, {5})},
                                .num_outputs = 2,
                                .domain = "chairlift"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FLOAT_EQ(*(*got)[1].data<float>(), -1);
  EXPECT_FLOAT_EQ(*(*got)[0].data<float>(), std::tanh(-1.0f));
}

TEST(LstmGatesTest, NanStaysNanAndInfinityIsALimit) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const uint32_t bits : {0x7fc00000U, 0x7fffffffU, 0x7f800001U, 0xff8000ffU}) {
    for (int gate = 0; gate < 5; ++gate) {
      std::vector<float> gates(4, 0.5f);
      float c = 0.5f;
      (gate == 4 ? c : gates[gate]) = std::bit_cast<float>(bits);
      const auto got = RunOperator(
          {.name = "LstmGates",
           .inputs = {Tensor::Of<float>(Shape{1, 4}, gates), Tensor::Of<float>(Shape{1, 1}, {c})},
           .num_outputs = 2,
           .domain = "chairlift"});
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(std::isnan(*(*got)[0].data<float>())) << gate << " of " << bits;
      EXPECT_EQ(std::isnan(*(*got)[1].data<float>()), gate != 3) << gate;  // not through o
    }
  }
  const auto got = RunOperator({.name = "LstmGates",
                                .inputs = {Tensor::Of<float>(Shape{1, 4}, {inf, -inf, inf, inf}),
                                           Tensor::Of<float>(Shape{1, 1}, {5})},
                                .num_outputs = 2,
                                .domain = "chairlift"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FLOAT_EQ(*(*got)[1].data<float>(), 1);
  EXPECT_FLOAT_EQ(*(*got)[0].data<float>(), std::tanh(1.0f));
}

TEST(LstmGatesTest, ATeamSharesTheUnits) {
  std::mt19937 random(54);
  CountingTeam team;
  Check<float>(Random<float>(Shape{64, 4 * 70}, 3, random), Random<float>(Shape{64, 70}, 2, random),
               "ifgo", 5e-7, &team);
  EXPECT_EQ(team.parts(), 3);
}

TEST(LstmGatesTest, WhatDoesNotFitIsRefused) {
  std::mt19937 random(55);
  const auto code = [&](Shape gates, Shape c, const std::string& order) {
    OperatorCall call{.name = "LstmGates",
                      .inputs = {Random<float>(gates, 1, random), Random<float>(c, 1, random)},
                      .num_outputs = 2,
                      .domain = "chairlift"};
    call.attributes.Set("order", order);
    return RunOperator(call).status().code();
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(Shape{2, 8}, Shape{2, 2}, "ifgo"), absl::StatusCode::kOk);
  EXPECT_EQ(code(Shape{2, 8}, Shape{2, 2}, "ifg"), kBad);
  EXPECT_EQ(code(Shape{2, 8}, Shape{2, 2}, "iifo"), kBad);
  EXPECT_EQ(code(Shape{2, 8}, Shape{2, 3}, "ifgo"), kBad);
  EXPECT_EQ(code(Shape{2, 9}, Shape{2, 2}, "ifgo"), kBad);
  EXPECT_EQ(code(Shape{2, 8}, Shape{3, 2}, "ifgo"), kBad);
  EXPECT_EQ(code(Shape{2, 8}, Shape{2}, "ifgo"), kBad);
  EXPECT_EQ(code(Shape{2, 3, 8}, Shape{1, 3, 2}, "ifgo"), kBad);
  EXPECT_EQ(code(Shape{}, Shape{}, "ifgo"), kBad);
}

}  // namespace
}  // namespace chairlift
