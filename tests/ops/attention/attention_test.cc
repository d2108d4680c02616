// chairlift::Attention against the formula in double, whatever the order of the axes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::OperatorCall;
using testing::RunOperator;
using testing::ThreadTeam;

using Axes = std::vector<int64_t>;
using Dims = std::array<int64_t, 4>;  // batch, heads, rows, columns

Shape Ordered(const Dims& dims, const Axes& axes) {
  Shape shape{0, 0, 0, 0};
  for (size_t i = 0; i < 4; ++i) shape[static_cast<int>(axes[i])] = dims[i];
  return shape;
}

float At(const Tensor& t, const Axes& axes, const Dims& place) {
  std::array<int64_t, 4> index{};
  for (size_t i = 0; i < 4; ++i) index[static_cast<size_t>(axes[i])] = place[i];
  int64_t at = 0;
  for (int i = 0; i < 4; ++i) at = at * t.shape()[i] + index[static_cast<size_t>(i)];
  return t.data<float>()[at];
}

class AttentionOperatorTest : public ::testing::Test {
 protected:
  Tensor Floats(const Shape& shape) {
    std::normal_distribution<float> normal;
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random_);
    return t;
  }

  struct Case {
    int64_t batch = 2, heads = 3, queries = 9, keys = 9, columns = 8, values = 8;
    Axes q = {0, 1, 2, 3}, k = {0, 1, 2, 3}, v = {0, 1, 2, 3}, y = {0, 1, 2, 3};
    Shape mask = {};
    bool has_mask = false;
    int width = 1;
  };

  void Check(const Case& c) {
    const Tensor q = Floats(Ordered({c.batch, c.heads, c.queries, c.columns}, c.q));
    const Tensor k = Floats(Ordered({c.batch, c.heads, c.keys, c.columns}, c.k));
    const Tensor v = Floats(Ordered({c.batch, c.heads, c.keys, c.values}, c.v));
    OperatorCall call{.name = "Attention", .inputs = {q, k, v}, .domain = "chairlift"};
    call.attributes.Set("q_axes", c.q);
    call.attributes.Set("k_axes", c.k);
    call.attributes.Set("v_axes", c.v);
    call.attributes.Set("y_axes", c.y);
    call.attributes.Set("scale", 0.3f);
    Tensor mask;
    if (c.has_mask) call.inputs.push_back(mask = Floats(c.mask));
    ThreadTeam team(c.width);
    const auto got = RunOperator(call, &team);
    ASSERT_TRUE(got.ok()) << got.status();
    const Tensor& y = (*got)[0];
    ASSERT_EQ(y.shape(), Ordered({c.batch, c.heads, c.queries, c.values}, c.y));
    const auto masked = [&](const Dims& place) -> double {
      if (!c.has_mask) return 0;
      int64_t at = 0;
      for (int i = 0; i < c.mask.rank(); ++i) {
        const auto axis = static_cast<size_t>(4 - c.mask.rank() + i);
        at = at * c.mask[i] + (c.mask[i] == 1 ? 0 : place[axis]);
      }
      return mask.data<float>()[at];
    };
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t i = 0; i < c.queries; ++i) {
          std::vector<double> weights(static_cast<size_t>(c.keys));
          double sum = 0;
          for (int64_t j = 0; j < c.keys; ++j) {
            double dot = 0;
            for (int64_t d = 0; d < c.columns; ++d) {
              dot += static_cast<double>(At(q, c.q, {b, h, i, d})) * At(k, c.k, {b, h, j, d});
            }
            weights[static_cast<size_t>(j)] = std::exp(0.3f * dot + masked({b, h, i, j}));
            sum += weights[static_cast<size_t>(j)];
          }
          for (int64_t d = 0; d < c.values; ++d) {
            double want = 0;
            for (int64_t j = 0; j < c.keys; ++j) {
              want += weights[static_cast<size_t>(j)] / sum * At(v, c.v, {b, h, j, d});
            }
            ASSERT_NEAR(At(y, c.y, {b, h, i, d}), want, 5e-6);
          }
        }
      }
    }
  }

  std::mt19937 random_{3};
};

TEST_F(AttentionOperatorTest, AxesInAnyOrder) {
  Check({});
  const Axes rows_first = {0, 2, 1, 3};
  Check({.q = rows_first, .k = rows_first, .v = rows_first, .y = rows_first});
  Check({.keys = 21, .values = 40, .k = {0, 1, 3, 2}, .y = rows_first});
  Check({.q = {1, 2, 0, 3}, .k = {2, 0, 3, 1}, .v = {2, 1, 0, 3}, .y = {1, 0, 2, 3}});
}

TEST_F(AttentionOperatorTest, MasksThatBroadcast) {
  for (const Shape& mask : {Shape{2, 1, 1, 9}, Shape{9}, Shape{3, 9, 1}, Shape{2, 3, 9, 9},
                            Shape{1, 1, 9, 9}, Shape{1}}) {
    Check({.mask = mask, .has_mask = true});
  }
}

// `t` repeated along the dimensions in which it has one, to shape `to`.
Tensor Spread(const Tensor& t, const Shape& to) {
  Tensor wide = Tensor::Allocate(DType::kFloat, to);
  for (int64_t i = 0; i < wide.size(); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int axis = 3; axis >= 0; --axis) {
      if (t.shape()[axis] != 1) at += rest % to[axis] * step;
      step *= t.shape()[axis];
      rest /= to[axis];
    }
    wide.data<float>()[i] = t.data<float>()[at];
  }
  return wide;
}

// As the products and the sum with the mask do that it stands for.
TEST_F(AttentionOperatorTest, BatchesHeadsAndQueriesBroadcast) {
  const auto run = [](std::vector<Tensor> inputs) {
    const auto got =
        RunOperator({.name = "Attention", .inputs = std::move(inputs), .domain = "chairlift"});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? (*got)[0] : Tensor();
  };
  for (int ones = 0; ones < 512; ++ones) {
    const auto size = [&](int bit, int64_t full) { return (ones >> bit & 1) != 0 ? 1 : full; };
    const Tensor q = Floats({size(0, 2), size(1, 3), size(2, 4), 8});
    const Tensor k = Floats({size(3, 2), size(4, 3), 5, 8});
    const Tensor v = Floats({size(5, 2), size(6, 3), 5, 6});
    const Tensor mask = Floats({size(7, 2), size(8, 3), 4, 5});
    const auto most = [&](int axis) {
      return std::max({q.shape()[axis], k.shape()[axis], v.shape()[axis], mask.shape()[axis]});
    };
    const int64_t b = most(0), h = most(1);
    const Tensor got = run({q, k, v, mask});
    const Tensor want = run({Spread(q, {b, h, 4, 8}), Spread(k, {b, h, 5, 8}),
                             Spread(v, {b, h, 5, 6}), Spread(mask, {b, h, 4, 5})});
    ASSERT_EQ(got.shape(), want.shape()) << ones;
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got.data<float>()[i], want.data<float>()[i]) << ones << " at " << i;
    }
  }
}

TEST_F(AttentionOperatorTest, FewerHeadsOfKeysOnlyIfGrouped) {
  const Tensor q = Floats({2, 4, 3, 8}), kv = Floats({2, 2, 5, 8});
  OperatorCall call{.name = "Attention", .inputs = {q, kv, kv}, .domain = "chairlift"};
  EXPECT_FALSE(RunOperator(call).ok());
  call.attributes.Set("grouped", int64_t{1});
  EXPECT_TRUE(RunOperator(call).ok());
}

TEST_F(AttentionOperatorTest, ManyWorkersShareHeadsAndQueries) {
  for (const int width : {2, 3}) {
    Check({.batch = 1, .heads = 1, .queries = 200, .keys = 170, .width = width});
    Check({.batch = 1, .heads = 5, .queries = 100, .keys = 60, .width = width});
    Check({.batch = 3, .heads = 4, .queries = 40, .keys = 40, .width = width});
  }
}

TEST_F(AttentionOperatorTest, NothingToDo) {
  Check({.batch = 0});
  Check({.queries = 0});
  Check({.keys = 0});
}

TEST_F(AttentionOperatorTest, WhatDoesNotFitIsRefused) {
  const Tensor x = Floats({2, 3, 9, 8});
  const auto refused = [&](std::vector<Tensor> inputs, const char* name, const Axes& axes) {
    OperatorCall call{.name = "Attention", .inputs = std::move(inputs), .domain = "chairlift"};
    if (name != nullptr) call.attributes.Set(name, axes);
    return !RunOperator(call).ok();
  };
  EXPECT_FALSE(refused({x, x, x}, nullptr, {}));
  EXPECT_TRUE(refused({x, x, x}, "q_axes", {0, 1, 2}));
  EXPECT_TRUE(refused({x, x, x}, "k_axes", {0, 1, 2, 2}));
  EXPECT_TRUE(refused({x, x, x}, "v_axes", {0, 1, 2, 7}));
  EXPECT_TRUE(refused({x, x, x}, "q_axes", {0, 1, 3, 2}));  // its columns are no runs
  EXPECT_TRUE(refused({x, Floats({2, 2, 9, 8}), x}, nullptr, {}));
  EXPECT_TRUE(refused({x, Floats({2, 3, 9, 7}), x}, nullptr, {}));
  EXPECT_TRUE(refused({x, x, Floats({2, 3, 8, 8})}, nullptr, {}));
  EXPECT_TRUE(refused({x, x, Floats({3, 9, 8})}, nullptr, {}));
  EXPECT_TRUE(refused({x, x, x, Floats({2, 3, 9, 8})}, nullptr, {}));
  EXPECT_TRUE(refused({x, x, x, Floats({1, 2, 3, 9, 9})}, nullptr, {}));
}

}  // namespace
}  // namespace chairlift
