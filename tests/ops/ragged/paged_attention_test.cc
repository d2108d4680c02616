// chairlift::PagedAttention against the formula in double, over keys and values in scattered
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
namespace {

using testing::Offsets;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

struct Case {
  std::vector<int64_t> cached = {};
  std::vector<int64_t> added = {};
  int64_t spare = 0;  // tokens of no sequence
  int64_t heads = 4, kv_heads = 2, columns = 8, values = 8;
  int64_t block = 4;
  int width = 1;
  int64_t reach = 0;  // of a bias; 0: there is none
  float softcap = 0;
};

class PagedCheck {
 public:
  explicit PagedCheck(const Case& c) : c_(c) {
    int64_t most = 1;
    for (size_t r = 0; r < c.cached.size(); ++r) {
      most = std::max(most, (c.cached[r] + c.added[r] + c.block - 1) / c.block);
    }
    const auto sequences = static_cast<int64_t>(c.cached.size());
    // One more than there are needed, in any order.
    std::vector<int64_t> order(static_cast<size_t>(most * sequences + 1));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(5));
    order.pop_back();
    blocks_ = Tensor::Of<int64_t>({sequences, most}, std::span<const int64_t>(order));
    const int64_t count = most * sequences + 1;
    keys_ = Fill({count, c.kv_heads, c.columns, c.block});
    values_ = Fill({count, c.kv_heads, c.block, c.values});
    tokens_ = std::accumulate(c.added.begin(), c.added.end(), c.spare);
    q_ = RandomTensor(DType::kFloat, {tokens_, c.heads, c.columns}, -2, 2, 1);
    k_ = RandomTensor(DType::kFloat, {tokens_, c.kv_heads, c.columns}, -2, 2, 2);
    v_ = RandomTensor(DType::kFloat, {tokens_, c.kv_heads, c.values}, -2, 2, 3);
    for (size_t r = 0; r < c.cached.size(); ++r) {
      past_k_.push_back(
          RandomTensor(DType::kFloat, {c.cached[r], c.kv_heads, c.columns}, -2, 2, 10 + r));
      past_v_.push_back(
          RandomTensor(DType::kFloat, {c.cached[r], c.kv_heads, c.values}, -2, 2, 20 + r));
      for (int64_t p = 0; p < c.cached[r]; ++p) {
        for (int64_t h = 0; h < c.kv_heads; ++h) {
          for (int64_t d = 0; d < c.columns; ++d) {
            Key(r, p, h, d) = past_k_[r].data<float>()[(p * c.kv_heads + h) * c.columns + d];
          }
          std::copy_n(&past_v_[r].data<float>()[(p * c.kv_heads + h) * c.values], c.values,
                      &values_.data<float>()[Place(r, p, h) * c.values]);
        }
      }
    }
  }

  void Run() {
    OperatorCall call{.name = "PagedAttention",
                      .inputs = {q_, k_, v_, Offsets(c_.added),
                                 Tensor::Of<int64_t>({static_cast<int64_t>(c_.cached.size())},
                                                     std::span<const int64_t>(c_.cached)),
                                 blocks_, keys_, values_},
                      .domain = "chairlift"};
    call.attributes.Set("scale", 0.3f);
    if (c_.softcap > 0) call.attributes.Set("softcap", c_.softcap);
    if (c_.reach > 0) {
      bias_ = RandomTensor(DType::kFloat, {c_.heads, 2 * c_.reach + 1}, -2, 2, 4);
      call.inputs.push_back(bias_);
    }
    ThreadTeam team(c_.width);
    const auto got = RunOperator(call, &team);
    ASSERT_TRUE(got.ok()) << got.status();
    y_ = (*got)[0];
    ASSERT_EQ(y_.shape(), (Shape{tokens_, c_.heads, c_.values}));
    int64_t token = 0;
    for (size_t r = 0; r < c_.cached.size(); ++r) {
      for (int64_t i = 0; i < c_.added[r]; ++i, ++token) {
        for (int64_t h = 0; h < c_.heads; ++h) CheckQuery(r, token, c_.cached[r] + i, h);
        for (int64_t h = 0; h < c_.kv_heads; ++h) {
          for (int64_t d = 0; d < c_.columns; ++d) {
            ASSERT_EQ(Key(r, c_.cached[r] + i, h, d),
                      k_.data<float>()[(token * c_.kv_heads + h) * c_.columns + d]);
          }
        }
      }
    }
    for (int64_t i = token * c_.heads * c_.values; i < y_.size(); ++i) {
      ASSERT_EQ(y_.data<float>()[i], 0) << "behind the last sequence";
    }
  }

 private:
  // Memory that no kernel may read.
  static Tensor Fill(const Shape& shape) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    std::fill_n(t.data<float>(), t.size(), std::numeric_limits<float>::quiet_NaN());
    return t;
  }
  // In rows of values.
  int64_t Place(size_t r, int64_t place, int64_t head) const {
    const int64_t block =
        blocks_.data<int64_t>()[static_cast<int64_t>(r) * blocks_.shape()[1] + place / c_.block];
    return (block * c_.kv_heads + head) * c_.block + place % c_.block;
  }
  float& Key(size_t r, int64_t place, int64_t head, int64_t d) {
    const int64_t at = Place(r, place, head);
    return keys_.data<float>()[(at / c_.block * c_.columns + d) * c_.block + at % c_.block];
  }
  double At(const Tensor& past, const Tensor& added, size_t r, int64_t place, int64_t head,
            int64_t d) const {
    int64_t token = place;
    const bool old = place < c_.cached[r];
    if (!old) {
      token -= c_.cached[r];
      for (size_t before = 0; before < r; ++before) token += c_.added[before];
    }
    const Tensor& from = old ? past : added;
    return from.data<float>()[(token * c_.kv_heads + head) * from.shape()[2] + d];
  }
  void CheckQuery(size_t r, int64_t token, int64_t place, int64_t h) {
    const int64_t kv = h / (c_.heads / c_.kv_heads);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = 0; j <= place; ++j) {
      double score = 0;
      for (int64_t d = 0; d < c_.columns; ++d) {
        score += q_.data<float>()[(token * c_.heads + h) * c_.columns + d] *
                 At(past_k_[r], k_, r, j, kv, d);
      }
      score *= 0.3f;
      if (c_.softcap > 0) score = c_.softcap * std::tanh(score / c_.softcap);
      if (c_.reach > 0) {
        score += bias_.data<float>()[h * (2 * c_.reach + 1) + c_.reach + j - place];
      }
      weights.push_back(std::exp(score));
      sum += weights.back();
    }
    for (int64_t d = 0; d < c_.values; ++d) {
      double want = 0;
      for (int64_t j = 0; j <= place; ++j) {
        want += weights[static_cast<size_t>(j)] / sum * At(past_v_[r], v_, r, j, kv, d);
      }
      ASSERT_NEAR(y_.data<float>()[(token * c_.heads + h) * c_.values + d], want, 1e-5)
          << "sequence " << r << " place " << place << " head " << h;
    }
  }

  const Case c_;
  int64_t tokens_ = 0;
  Tensor blocks_, keys_, values_, q_, k_, v_, y_, bias_;
  std::vector<Tensor> past_k_, past_v_;
};

TEST(PagedAttentionTest, StepsAndPromptsOfAnyAgeRideTogether) {
  PagedCheck({.cached = {0, 5, 3, 17, 0}, .added = {7, 1, 0, 1, 20}, .spare = 3}).Run();
  PagedCheck({.cached = {4, 8, 7}, .added = {1, 1, 1}}).Run();
  PagedCheck({.cached = {9, 0, 31}, .added = {30, 8, 9}}).Run();
  PagedCheck({.cached = {0}, .added = {0}, .spare = 2}).Run();
}

TEST(PagedAttentionTest, OfOddSizes) {
  PagedCheck({.cached = {6, 1},
              .added = {1, 3},
              .heads = 3,
              .kv_heads = 3,
              .columns = 1,
              .values = 1,
              .block = 1})
      .Run();
  PagedCheck({.cached = {40, 2},
              .added = {1, 11},
              .heads = 6,
              .kv_heads = 1,
              .columns = 33,
              .values = 20,
              .block = 16})
      .Run();
  PagedCheck({.cached = {700},
              .added = {1},
              .heads = 1,
              .kv_heads = 1,
              .columns = 64,
              .values = 64,
              .block = 32})
      .Run();
}

TEST(PagedAttentionTest, WorkersShareSequencesAndHeads) {
  for (const int width : {2, 3}) {
    PagedCheck({.cached = {0, 5, 3, 17}, .added = {70, 1, 9, 1}, .spare = 1, .width = width}).Run();
    PagedCheck({.cached = {90}, .added = {1}, .heads = 8, .kv_heads = 8, .width = width}).Run();
  }
}

TEST(PagedAttentionTest, ABiasMayFollowFromDistances) {
  PagedCheck({.cached = {0, 5, 3, 17, 0}, .added = {7, 1, 0, 1, 20}, .spare = 3, .reach = 19})
      .Run();
  PagedCheck({.cached = {9, 0, 31}, .added = {30, 8, 9}, .width = 2, .reach = 60}).Run();
}

TEST(PagedAttentionTest, ScoresMayBeLimited) {
  PagedCheck({.cached = {0, 5, 3, 17, 0}, .added = {7, 1, 0, 1, 20}, .spare = 3, .softcap = 0.7f})
      .Run();
  PagedCheck({.cached = {9, 0, 31}, .added = {30, 8, 1}, .reach = 60, .softcap = 2.0f}).Run();
}

// A sequence in pieces of those sizes, each beside another sequence; its rows of y.
std::vector<float> InPieces(const Case& c, int64_t length, const std::vector<int64_t>& pieces) {
  const int64_t most = (length + c.block - 1) / c.block;
  std::vector<int64_t> blocks(static_cast<size_t>(2 * most));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(5));
  Tensor keys = RandomTensor(DType::kFloat, {2 * most, c.kv_heads, c.columns, c.block}, -2, 2, 1);
  Tensor values = RandomTensor(DType::kFloat, {2 * most, c.kv_heads, c.block, c.values}, -2, 2, 1);
  const auto rows = [](int64_t count, int64_t heads, int64_t columns, int64_t first,
                       uint32_t seed) {
    const Tensor all = RandomTensor(DType::kFloat, {first + count, heads, columns}, -2, 2, seed);
    Tensor some = Tensor::Allocate(DType::kFloat, {count, heads, columns});
    std::copy_n(all.data<float>() + first * heads * columns, some.size(), some.data<float>());
    return some;
  };
  // The other one's rows, then the piece's.
  const auto joined = [](const Tensor& a, const Tensor& b) {
    Tensor both =
        Tensor::Allocate(DType::kFloat, {a.shape()[0] + b.shape()[0], a.shape()[1], a.shape()[2]});
    std::copy_n(a.data<float>(), a.size(), both.data<float>());
    std::copy_n(b.data<float>(), b.size(), both.data<float>() + a.size());
    return both;
  };
  std::vector<float> y;
  int64_t cached = 0;
  for (const int64_t piece : pieces) {
    const int64_t other = std::min<int64_t>(length, 1 + piece % 5);
    OperatorCall call{.name = "PagedAttention", .domain = "chairlift"};
    call.inputs = {
        joined(rows(other, c.heads, c.columns, 0, 7), rows(piece, c.heads, c.columns, cached, 2)),
        joined(rows(other, c.kv_heads, c.columns, 0, 8),
               rows(piece, c.kv_heads, c.columns, cached, 3)),
        joined(rows(other, c.kv_heads, c.values, 0, 9),
               rows(piece, c.kv_heads, c.values, cached, 4)),
        Offsets({other, piece}),
        Tensor::Of<int64_t>({2}, {0, cached}),
        Tensor::Of<int64_t>({2, most}, std::span<const int64_t>(blocks)),
        keys,
        values};
    if (c.reach > 0) {
      call.inputs.push_back(RandomTensor(DType::kFloat, {c.heads, 2 * c.reach + 1}, -2, 2, 5));
    }
    call.attributes.Set("scale", 0.3f);
    ThreadTeam team(c.width);
    const auto got = RunOperator(call, &team);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return y;
    const auto all = (*got)[0].values<float>();
    y.insert(y.end(), all.end() - piece * c.heads * c.values, all.end());
    cached += piece;
  }
  EXPECT_EQ(cached, length);
  return y;
}

// The same where the pieces are in one call: sequences that continue each other.
std::vector<float> InOneCall(const Case& c, int64_t length, const std::vector<int64_t>& pieces) {
  const int64_t most = (length + c.block - 1) / c.block;
  std::vector<int64_t> own(static_cast<size_t>(most)), blocks, cached;
  std::iota(own.begin(), own.end(), 0);
  std::shuffle(own.begin(), own.end(), std::mt19937(5));
  int64_t before = 0;
  for (const int64_t piece : pieces) {
    blocks.insert(blocks.end(), own.begin(), own.end());
    cached.push_back(before);
    before += piece;
  }
  OperatorCall call{.name = "PagedAttention", .domain = "chairlift"};
  call.inputs = {RandomTensor(DType::kFloat, {length, c.heads, c.columns}, -2, 2, 2),
                 RandomTensor(DType::kFloat, {length, c.kv_heads, c.columns}, -2, 2, 3),
                 RandomTensor(DType::kFloat, {length, c.kv_heads, c.values}, -2, 2, 4),
                 Offsets(pieces),
                 Tensor::Of<int64_t>({std::ssize(cached)}, std::span<const int64_t>(cached)),
                 Tensor::Of<int64_t>({std::ssize(cached), most}, std::span<const int64_t>(blocks)),
                 RandomTensor(DType::kFloat, {most, c.kv_heads, c.columns, c.block}, -2, 2, 1),
                 RandomTensor(DType::kFloat, {most, c.kv_heads, c.block, c.values}, -2, 2, 1)};
  if (c.reach > 0) {
    call.inputs.push_back(RandomTensor(DType::kFloat, {c.heads, 2 * c.reach + 1}, -2, 2, 5));
  }
  call.attributes.Set("scale", 0.3f);
  ThreadTeam team(c.width);
  const auto got = RunOperator(call, &team);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return {};
  const auto all = (*got)[0].values<float>();
  return {all.begin(), all.end()};
}

TEST(PagedAttentionTest, ASequenceMayContinueTheOneBeforeIt) {
  for (const Case& c : {Case{.columns = 64, .values = 64, .block = 16, .width = 3},
                        Case{.columns = 8, .values = 5, .block = 7, .width = 2},
                        Case{.columns = 17, .values = 33, .block = 1, .width = 4},
                        Case{.columns = 32, .values = 32, .block = 16, .reach = 100}}) {
    SCOPED_TRACE(fmt::format("columns {} values {} blocks of {}", c.columns, c.values, c.block));
    const std::vector<float> whole = InOneCall(c, 60, {60});
    EXPECT_EQ(InOneCall(c, 60, std::vector<int64_t>(60, 1)), whole);
    EXPECT_EQ(InOneCall(c, 60, {20, 1, 1, 1, 0, 30, 1, 6}), whole);
  }
}

// So that a token's answer does not depend on the other tokens of its batch, even if a model rounds
// what follows.
TEST(PagedAttentionTest, TheSameToTheLastBitInWhateverPieces) {
  std::mt19937 random(9);
  for (const Case& c : {Case{.columns = 64, .values = 64, .block = 16},
                        Case{.heads = 6, .kv_heads = 6, .columns = 24, .values = 40, .block = 16},
                        Case{.columns = 8, .values = 5, .block = 7, .width = 2},
                        Case{.columns = 32, .values = 32, .block = 16, .reach = 300},
                        Case{.columns = 17, .values = 33, .block = 1}}) {
    SCOPED_TRACE(fmt::format("columns {} values {} blocks of {}", c.columns, c.values, c.block));
    for (const int64_t length : {21, 300}) {
      const std::vector<float> whole = InPieces(c, length, {length});
      EXPECT_EQ(InPieces(c, length, std::vector<int64_t>(static_cast<size_t>(length), 1)), whole);
      for (int trial = 0; trial < 3; ++trial) {
        std::vector<int64_t> pieces;
        for (int64_t left = length; left > 0; left -= pieces.back()) {
          pieces.push_back(std::min<int64_t>(left, 1 + random() % (trial == 0 ? 10 : 40)));
        }
        EXPECT_EQ(InPieces(c, length, pieces), whole);
      }
    }
  }
}

TEST(PagedAttentionTest, WhatDoesNotFitIsRefused) {
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, -1, 1, 2);
  };
  const auto run = [&](int64_t cached, std::vector<int64_t> blocks, const Shape& keys,
                       int64_t kv_heads = 2) {
    const Tensor k = floats({2, kv_heads, 4});
    return RunOperator({.name = "PagedAttention",
                        .inputs = {floats({2, 4, 4}), k, k, Offsets({2}),
                                   Tensor::Of<int64_t>({1}, {cached}),
                                   Tensor::Of<int64_t>({1, 2}, std::span<const int64_t>(blocks)),
                                   floats(keys), floats({5, kv_heads, 3, 4})},
                        .domain = "chairlift"})
        .status();
  };
  EXPECT_TRUE(run(4, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_TRUE(run(1, {4, -1}, {5, 2, 4, 3}).ok());  // the second is not used
  EXPECT_FALSE(run(5, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(-1, {4, 0}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(2, {4, 5}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(2, {4, -1}, {5, 2, 4, 3}).ok());
  EXPECT_FALSE(run(2, {4, 0}, {6, 2, 4, 3}).ok());
  EXPECT_FALSE(run(2, {4, 0}, {5, 2, 5, 3}).ok());
  EXPECT_FALSE(run(2, {4, 0}, {5, 3, 4, 3}, 3).ok());
  const auto biased = [&](const Shape& bias) {
    const Tensor k = floats({2, 2, 4});
    return RunOperator(
               {.name = "PagedAttention",
                .inputs = {floats({2, 4, 4}), k, k, Offsets({2}), Tensor::Of<int64_t>({1}, {2}),
                           Tensor::Of<int64_t>({1, 2}, {4, 0}), floats({5, 2, 4, 3}),
                           floats({5, 2, 3, 4}), floats(bias)},
                .domain = "chairlift"})
        .status();
  };
  EXPECT_TRUE(biased({4, 7}).ok());
  EXPECT_FALSE(biased({4, 5}).ok());  // for 3 tokens
  EXPECT_FALSE(biased({4, 8}).ok());
  EXPECT_FALSE(biased({2, 7}).ok());
}

}  // namespace
}  // namespace chairlift
