// chairlift::SourceAttention against the formula in double, over keys and values in scattered
// blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ops/operator_harness.h"
#include "ops/ragged/packed_sequences.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace source_attention_test {

using testing::Offsets;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

struct Case {
  std::vector<int64_t> sources;  // by sequence: their tokens
  std::vector<int64_t> added;    // and those that look at them
  int64_t spare = 0;             // tokens of no sequence
  int64_t heads = 4, kv_heads = 2, columns = 8, values = 8;
  int64_t block = 4;
  int width = 1;
};

OperatorCall CallOf(std::vector<Tensor> inputs, int64_t kv_heads, int64_t values) {
  OperatorCall call{.name = "SourceAttention", .inputs = std::move(inputs), .domain = "chairlift"};
  call.attributes.Set("scale", 0.3f);
  call.attributes.Set("kv_heads", kv_heads);
  call.attributes.Set("value_size", values);
  return call;
}

void Check(const Case& c) {
  const auto sequences = static_cast<int64_t>(c.sources.size());
  int64_t most = 1;
  for (const int64_t source : c.sources) most = std::max(most, (source + c.block - 1) / c.block);
  // One more than there are needed, in any order.
  std::vector<int64_t> order(static_cast<size_t>(most * sequences + 1));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  order.pop_back();
  const Tensor blocks = Tensor::Of<int64_t>({sequences, most}, std::span<const int64_t>(order));
  const int64_t count = most * sequences + 1;
  const int64_t tokens = std::accumulate(c.added.begin(), c.added.end(), c.spare);
  const Tensor q = RandomTensor(DType::kFloat, {tokens, c.heads, c.columns}, -2, 2, 1);
  Tensor keys = RandomTensor(DType::kFloat, {count, c.kv_heads, c.columns, c.block}, -2, 2, 2);
  Tensor values = RandomTensor(DType::kFloat, {count, c.kv_heads, c.block, c.values}, -2, 2, 3);
  const auto head_at = [&](int64_t r, int64_t place, int64_t head) {
    return blocks.data<int64_t>()[r * most + place / c.block] * c.kv_heads + head;
  };
  const auto key = [&](int64_t r, int64_t place, int64_t head, int64_t d) -> float& {
    return keys
        .data<float>()[(head_at(r, place, head) * c.columns + d) * c.block + place % c.block];
  };
  const auto value = [&](int64_t r, int64_t place, int64_t head) {
    return values.data<float>() + (head_at(r, place, head) * c.block + place % c.block) * c.values;
  };
  for (int64_t r = 0; r < sequences; ++r) {  // memory that no kernel may read
    for (int64_t p = c.sources[static_cast<size_t>(r)]; p < most * c.block; ++p) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t d = 0; d < c.columns; ++d) {
          key(r, p, h, d) = std::numeric_limits<float>::quiet_NaN();
        }
        std::fill_n(value(r, p, h), c.values, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  ThreadTeam team(c.width);
  const auto got =
      RunOperator(CallOf({q, Offsets(c.added),
                          Tensor::Of<int64_t>({sequences}, std::span<const int64_t>(c.sources)),
                          blocks, keys, values},
                         c.kv_heads, c.values),
                  &team);
  ASSERT_TRUE(got.ok()) << got.status();
  const Tensor& y = (*got)[0];
  ASSERT_EQ(y.shape(), (Shape{tokens, c.heads, c.values}));
  int64_t token = 0;
  for (int64_t r = 0; r < sequences; ++r) {
    const int64_t source = c.sources[static_cast<size_t>(r)];
    for (int64_t i = 0; i < c.added[static_cast<size_t>(r)]; ++i, ++token) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < source; ++j) {
          double score = 0;
          for (int64_t d = 0; d < c.columns; ++d) {
            score += static_cast<double>(q.data<float>()[(token * c.heads + h) * c.columns + d]) *
                     key(r, j, kv, d);
          }
          weights.push_back(std::exp(score * 0.3f));
          sum += weights.back();
        }
        for (int64_t d = 0; d < c.values; ++d) {
          double want = 0;
          for (int64_t j = 0; j < source; ++j) {
            want += weights[static_cast<size_t>(j)] / sum * value(r, j, kv)[d];
          }
          ASSERT_NEAR(y.data<float>()[(token * c.heads + h) * c.values + d], want, 1e-5)
              << "sequence " << r << " token " << i << " head " << h;
        }
      }
    }
  }
  for (int64_t i = token * c.heads * c.values; i < y.size(); ++i) {
    ASSERT_EQ(y.data<float>()[i], 0) << "behind the last sequence";
  }
}

TEST(SourceAttentionTest, EachTokenSeesAllOfItsSequencesSource) {
  Check({.sources = {7, 1, 20, 0, 4}, .added = {1, 3, 1, 0, 9}, .spare = 3});
  Check({.sources = {33, 5},
         .added = {1, 2},
         .heads = 6,
         .kv_heads = 1,
         .columns = 33,
         .values = 20,
         .block = 16});
  Check({.sources = {300}, .added = {1}, .heads = 1, .kv_heads = 1, .columns = 1, .values = 1});
  for (const int width : {2, 3}) {
    Check({.sources = {7, 1, 20, 90}, .added = {1, 3, 1, 12}, .spare = 1, .width = width});
  }
}

TEST(SourceAttentionTest, OfAModelThatIsNotPagedItGivesZeros) {
  const Tensor q = RandomTensor(DType::kFloat, {2, 3, 4, 5}, -1, 1, 1);
  OperatorCall call = CallOf({q}, 4, 7);
  call.attributes.Set("q_axes", std::vector<int64_t>{0, 2, 1, 3});
  const auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].shape(), (Shape{2, 4, 3, 7}));
  for (const float value : (*got)[0].values<float>()) ASSERT_EQ(value, 0);
}

TEST(SourceAttentionTest, WhatDoesNotFitIsRefused) {
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, -1, 1, 2);
  };
  const auto run = [&](int64_t length, std::vector<int64_t> blocks, const Shape& keys,
                       int64_t values = 4) {
    return RunOperator(CallOf({floats({2, 4, 4}), Offsets({2}), Tensor::Of<int64_t>({1}, {length}),
                               Tensor::Of<int64_t>({1, 2}, std::span<const int64_t>(blocks)),
                               floats(keys), floats({5, 2, 3, 4})},
                              2, values))
        .status();
  };
  EXPECT_TRUE(run(6, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_TRUE(run(3, {4, -1}, {5, 2, 4, 3}).ok());  // the second is not used
  EXPECT_FALSE(run(7, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(0, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(4, {4, 5}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(4, {4, -1}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(4, {4, 0}, {6, 2, 4, 3}).ok());
  EXPECT_FALSE(run(4, {4, 0}, {5, 2, 5, 3}).ok());
  EXPECT_FALSE(run(4, {4, 0}, {5, 3, 4, 3}).ok());
  EXPECT_FALSE(run(4, {4, 0}, {5, 2, 4, 3}, 5).ok());
}

}  // namespace source_attention_test
}  // namespace chairlift
