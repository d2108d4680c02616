// chairlift::RaggedAttention against the formula in double, sequence by sequence.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/ragged/packed_sequences.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace ragged_attention_test {

using testing::Offsets;
using testing::OperatorCall;
using testing::Packing;
using testing::Packings;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

struct Case {
  Packing packing;
  int64_t heads = 3, columns = 8, values = 8;
  bool biased = false;
  int64_t reach = 0;  // of a bias by distance; 0: none
  int width = 1;
  int64_t every = 1;  // one query in this many is compared
};

void Check(const Case& c) {
  const int64_t tokens = c.packing.tokens();
  const Tensor q = RandomTensor(DType::kFloat, {tokens, c.heads, c.columns}, -2, 2, 1);
  const Tensor k = RandomTensor(DType::kFloat, {tokens, c.heads, c.columns}, -2, 2, 2);
  const Tensor v = RandomTensor(DType::kFloat, {tokens, c.heads, c.values}, -2, 2, 3);
  const int64_t points = 2 * c.reach + 1;
  const Tensor by_key = RandomTensor(DType::kFloat, {tokens}, -4, 1, 4);
  const Tensor by_distance = RandomTensor(DType::kFloat, {c.heads, points}, -2, 2, 4);
  OperatorCall call{.name = "RaggedAttention",
                    .inputs = {q, k, v, Offsets(c.packing.lengths)},
                    .domain = "chairlift"};
  call.attributes.Set("scale", 0.3f);
  if (c.biased || c.reach > 0) call.inputs.push_back(c.biased ? by_key : Tensor());
  if (c.reach > 0) call.inputs.push_back(by_distance);
  ThreadTeam team(c.width);
  const auto got = RunOperator(call, &team);
  ASSERT_TRUE(got.ok()) << got.status();
  const Tensor& y = (*got)[0];
  ASSERT_EQ(y.shape(), (Shape{tokens, c.heads, c.values}));
  const auto at = [&](const Tensor& t, int64_t token, int64_t h, int64_t i) -> double {
    return t.data<float>()[(token * c.heads + h) * t.shape()[2] + i];
  };
  int64_t begin = 0;
  for (const int64_t length : c.packing.lengths) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = begin; i < begin + length; i += c.every) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = begin; j < begin + length; ++j) {
          double score = 0;
          for (int64_t d = 0; d < c.columns; ++d) score += at(q, i, h, d) * at(k, j, h, d);
          score *= 0.3f;
          if (c.biased) score += by_key.data<float>()[j];
          if (c.reach > 0) score += by_distance.data<float>()[h * points + c.reach + j - i];
          weights.push_back(std::exp(score));
          sum += weights.back();
        }
        for (int64_t d = 0; d < c.values; ++d) {
          double want = 0;
          for (int64_t j = 0; j < length; ++j) {
            want += weights[static_cast<size_t>(j)] / sum * at(v, begin + j, h, d);
          }
          ASSERT_NEAR(at(y, i, h, d), want, 1e-5) << "token " << i << " head " << h;
        }
      }
    }
    begin += length;
  }
  for (int64_t i = begin * c.heads * c.values; i < y.size(); ++i) {
    ASSERT_EQ(y.data<float>()[i], 0) << "behind the last sequence";
  }
}

TEST(RaggedAttentionTest, KeepsToEachSequence) {
  for (const Packing& packing : Packings()) {
    for (const bool biased : {false, true}) Check({.packing = packing, .biased = biased});
  }
  Check({.packing = {{4, 9}, 1}, .heads = 1, .columns = 1, .values = 1});
  Check({.packing = {{30, 9}, 0}, .heads = 2, .columns = 33, .values = 20, .biased = true});
  Check({.packing = {{4, 9}, 1}, .heads = 0});
}

TEST(RaggedAttentionTest, ABiasMayFollowFromDistances) {
  for (const bool biased : {false, true}) {
    Check({.packing = {{4, 0, 9, 1}, 2}, .biased = biased, .reach = 8});
    Check({.packing = {{150, 70, 300}, 1},
           .heads = 2,
           .columns = 16,
           .biased = biased,
           .reach = 299,
           .width = 2});
  }
  const Tensor q = RandomTensor(DType::kFloat, {5, 2, 4}, -2, 2, 1);
  const auto run = [&](const Shape& bias) {
    OperatorCall call{
        .name = "RaggedAttention",
        .inputs = {q, q, q, Offsets({5}), Tensor(), RandomTensor(DType::kFloat, bias, -1, 1, 2)},
        .domain = "chairlift"};
    return RunOperator(call).status();
  };
  EXPECT_TRUE(run({2, 9}).ok());
  EXPECT_FALSE(run({2, 7}).ok());  // for 4 tokens
  EXPECT_FALSE(run({2, 10}).ok());
  EXPECT_FALSE(run({1, 9}).ok());
}

TEST(RaggedAttentionTest, OfThousandsOfTokens) {
  Check({.packing = {{5, 8192, 1}, 2}, .heads = 1, .columns = 4, .values = 4, .every = 509});
  Check({.packing = {{8192}, 0},
         .heads = 1,
         .columns = 4,
         .values = 4,
         .biased = true,
         .width = 2,
         .every = 1021});
}

TEST(RaggedAttentionTest, WorkersShareHeadsAndTheQueriesOfLongSequences) {
  for (const int width : {2, 3}) {
    for (const Packing& packing : Packings()) Check({.packing = packing, .width = width});
    Check({.packing = {{700}, 4}, .heads = 1, .biased = true, .width = width});
    Check({.packing = {{3, 400, 0, 90, 129, 1}, 0}, .heads = 5, .width = width});
  }
}

TEST(RaggedAttentionTest, AQueryThatSeesNothingGetsZerosWhereAskedFor) {
  const Tensor x = RandomTensor(DType::kFloat, {5, 1, 4}, -1, 1, 1);
  const float never = -std::numeric_limits<float>::infinity();
  const Tensor bias = Tensor::Of<float>({5}, {never, never, 0, never, 0});
  OperatorCall call{
      .name = "RaggedAttention", .inputs = {x, x, x, Offsets({2, 3}), bias}, .domain = "chairlift"};
  auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(std::isnan((*got)[0].data<float>()[0]));
  EXPECT_FALSE(std::isnan((*got)[0].data<float>()[8]));
  call.attributes.Set("zeros_for_none", int64_t{1});
  got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  for (int i = 0; i < 8; ++i) EXPECT_EQ((*got)[0].data<float>()[i], 0);
  EXPECT_NE((*got)[0].data<float>()[8], 0);
}

TEST(RaggedAttentionTest, WhatDoesNotFitIsRefused) {
  const Tensor x = RandomTensor(DType::kFloat, {6, 2, 4}, -1, 1, 1);
  const auto run = [&](std::vector<Tensor> inputs) {
    return RunOperator({.name = "RaggedAttention", .inputs = inputs, .domain = "chairlift"})
        .status();
  };
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, -1, 1, 2);
  };
  EXPECT_TRUE(run({x, x, x, Offsets({2, 4})}).ok());
  EXPECT_FALSE(run({x, x, x, Offsets({2, 5})}).ok());
  EXPECT_FALSE(run({x, x, x, Tensor::Of<int64_t>({3}, {0, 4, 3})}).ok());
  EXPECT_FALSE(run({x, x, x, Tensor::Of<int64_t>({2}, {-1, 3})}).ok());
  EXPECT_FALSE(run({x, x, x, Tensor::Of<int64_t>({2}, {1, 3})}).ok());
  EXPECT_FALSE(run({x, x, x, Tensor::Of<int64_t>({0}, {})}).ok());
  EXPECT_FALSE(run({x, floats({6, 2, 3}), x, Offsets({6})}).ok());
  EXPECT_FALSE(run({x, floats({5, 2, 4}), x, Offsets({5})}).ok());
  EXPECT_FALSE(run({x, x, floats({6, 3, 4}), Offsets({6})}).ok());
  EXPECT_FALSE(run({x, x, floats({6, 8}), Offsets({6})}).ok());
  EXPECT_FALSE(run({x, x, x, Offsets({6}), floats({5})}).ok());
  EXPECT_FALSE(run({x, x, x, Offsets({6}), floats({6, 1})}).ok());
}

}  // namespace ragged_attention_test
}  // namespace chairlift
