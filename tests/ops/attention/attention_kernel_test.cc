// Attention in blocks against the formula in double.
#include "ops/attention/attention_kernel.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Case {
  int64_t queries, keys, head_size, value_size;
  enum Mask { kNone, kKeys, kFull, kSome } mask = kNone;
  bool transposed_k = false;
  bool zeros_for_none = false;
};

class AttentionTest : public ::testing::Test {
 protected:
  static Tensor Room(size_t bytes) {
    return Tensor::Allocate(DType::kUInt8, {static_cast<int64_t>(bytes)});
  }

  std::vector<float> Floats(int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> out(n);
    for (float& x : out) x = normal(random_);
    return out;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(::testing::Message() << c.queries << " by " << c.keys << ", heads of "
                                      << c.head_size << " and " << c.value_size << ", mask "
                                      << c.mask << (c.transposed_k ? ", K transposed" : ""));
    AttentionHead head{
        .queries = c.queries, .keys = c.keys, .head_size = c.head_size, .value_size = c.value_size};
    head.q_row = c.head_size + 5;
    head.v_row = c.value_size + 3;
    head.out_row = c.value_size + 2;
    head.k_row = c.transposed_k ? 1 : c.head_size + 7;
    head.k_column = c.transposed_k ? c.keys + 1 : 1;
    head.scale = 1.7f / std::sqrt(static_cast<float>(c.head_size));
    head.zeros_for_none = c.zeros_for_none;
    const auto q = Floats(c.queries * head.q_row), v = Floats(c.keys * head.v_row);
    const auto k = Floats((c.keys + 1) * (c.head_size + 7));
    std::vector<float> out(c.queries * head.out_row, 77.0f);
    std::vector<float> mask = Floats(c.queries * c.keys);
    if (c.mask == Case::kSome) {
      // The first query sees nothing; others not the first block.
      for (int64_t i = 0; i < c.queries; ++i) {
        for (int64_t j = 0; j < c.keys; ++j) {
          if (i == 0 || j < std::min<int64_t>(c.keys - 1, 300)) mask[i * c.keys + j] = kNever;
        }
      }
    }
    head.q = q.data();
    head.k = k.data();
    head.v = v.data();
    head.out = out.data();
    if (c.mask != Case::kNone) head.mask = mask.data();
    head.mask_row = c.mask == Case::kKeys ? 0 : c.keys;

    Tensor packed = Room(PackedHeadBytes(c.keys, c.head_size, c.value_size));
    Tensor scratch = Room(AttendScratchBytes(c.head_size));
    PackHead(head, packed.raw());
    const int64_t middle = c.queries / 3;
    Attend(head, middle, c.queries, packed.raw(), scratch.raw());
    Attend(head, 0, middle, packed.raw(), scratch.raw());

    for (int64_t i = 0; i < c.queries; ++i) {
      std::vector<double> weights(c.keys);
      double most = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t j = 0; j < c.keys; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < c.head_size; ++d) {
          dot += static_cast<double>(q[i * head.q_row + d]) * k[j * head.k_row + d * head.k_column];
        }
        weights[j] = dot * head.scale;
        if (head.mask != nullptr) weights[j] += mask[i * head.mask_row + j];
        most = std::max(most, weights[j]);
      }
      for (double& w : weights) sum += w = std::exp(w - most);
      for (int64_t d = 0; d < c.value_size; ++d) {
        double want = 0;
        for (int64_t j = 0; j < c.keys; ++j) want += weights[j] / sum * v[j * head.v_row + d];
        const float got = out[i * head.out_row + d];
        if (std::isinf(most)) {
          EXPECT_TRUE(c.zeros_for_none ? got == 0.0f : std::isnan(got)) << i << " " << got;
        } else {
          ASSERT_NEAR(got, want, 4e-6) << i << ", " << d;
        }
      }
      for (int64_t d = c.value_size; d < head.out_row; ++d) {
        ASSERT_EQ(out[i * head.out_row + d], 77.0f);  // between the rows
      }
    }
  }

  std::mt19937 random_{5};
};

TEST_F(AttentionTest, LengthsAroundTheBlocks) {
  for (const int64_t length : {1, 2, 13, 14, 15, 31, 32, 33, 255, 256, 257, 600}) {
    Check({.queries = length, .keys = length, .head_size = 32, .value_size = 32});
  }
}

TEST_F(AttentionTest, HeadsOfAnySize) {
  for (const int64_t size : {1, 3, 8, 20, 33, 64, 80, 129}) {
    Check({.queries = 17, .keys = 40, .head_size = size, .value_size = size});
    Check({.queries = 5, .keys = 270, .head_size = size, .value_size = 130 - size});
  }
}

TEST_F(AttentionTest, Masks) {
  for (const Case::Mask mask : {Case::kKeys, Case::kFull, Case::kSome}) {
    for (const int64_t keys : {1, 37, 256, 700}) {
      Check({.queries = 20, .keys = keys, .head_size = 16, .value_size = 16, .mask = mask});
    }
  }
}

TEST_F(AttentionTest, AQueryThatSeesNothingCanGetZeros) {
  for (const int64_t keys : {9, 700}) {
    Check({.queries = 4,
           .keys = keys,
           .head_size = 16,
           .value_size = 40,
           .mask = Case::kSome,
           .zeros_for_none = true});
  }
}

TEST_F(AttentionTest, NanOfAnyPayloadIsNanInItsQuery) {
  constexpr int64_t kKeys = 300, kSize = 16;
  const std::vector<float> q = Floats(2 * kSize), k = Floats(kKeys * kSize),
                           v = Floats(kKeys * kSize);
  for (const uint32_t bits :
       {0x7fc00000U, 0x7fffffffU, 0xffffffffU, 0x7f800001U, 0xff8000ffU, 0x7f800000U}) {  // and +∞
    for (const int64_t key : {0, 17, 256, 299}) {
      std::vector<float> mask(2 * kKeys), out(2 * kSize);
      mask[kKeys + key] = std::bit_cast<float>(bits);  // of the second query
      AttentionHead head{.queries = 2, .keys = kKeys, .head_size = kSize, .value_size = kSize};
      head.q = q.data();
      head.q_row = kSize;
      head.k = k.data();
      head.k_row = kSize;
      head.k_column = 1;
      head.v = v.data();
      head.v_row = kSize;
      head.out = out.data();
      head.out_row = kSize;
      head.mask = mask.data();
      head.mask_row = kKeys;
      Tensor packed = Room(PackedHeadBytes(kKeys, kSize, kSize));
      Tensor scratch = Room(AttendScratchBytes(kSize));
      PackHead(head, packed.raw());
      Attend(head, 0, 2, packed.raw(), scratch.raw());
      for (int64_t i = 0; i < 2 * kSize; ++i) {
        EXPECT_EQ(std::isnan(out[i]), i >= kSize) << bits << " at key " << key << ": " << out[i];
      }
      head.zeros_for_none = head.zeros_for_nan = true;
      Attend(head, 0, 2, packed.raw(), scratch.raw());
      for (int64_t i = 0; i < 2 * kSize; ++i) {
        EXPECT_EQ(out[i] == 0, i >= kSize) << bits << " at key " << key << ": " << out[i];
      }
    }
  }
}

TEST_F(AttentionTest, KeysThatLieAcross) {
  for (const int64_t keys : {1, 64, 300}) {
    Check({.queries = 30, .keys = keys, .head_size = 24, .value_size = 24, .transposed_k = true});
  }
}

TEST_F(AttentionTest, RandomCases) {
  std::uniform_int_distribution<int64_t> length(1, 520), size(1, 100), choice(0, 3);
  for (int i = 0; i < 25; ++i) {
    Check({.queries = length(random_),
           .keys = length(random_),
           .head_size = size(random_),
           .value_size = size(random_),
           .mask = static_cast<Case::Mask>(choice(random_)),
           .transposed_k = choice(random_) == 0});
  }
}

// Scores far apart: the largest must not overflow, the others may vanish.
TEST_F(AttentionTest, ScoresFarApart) {
  AttentionHead head{.queries = 1, .keys = 600, .head_size = 1, .value_size = 1};
  head.q_row = head.k_row = head.v_row = head.out_row = 1;
  const std::vector<float> q{1e4f};
  std::vector<float> k(600), v(600), out(1);
  for (int i = 0; i < 600; ++i) k[i] = v[i] = static_cast<float>(i);
  head.q = q.data();
  head.k = k.data();
  head.v = v.data();
  head.out = out.data();
  Tensor packed =
      Tensor::Allocate(DType::kUInt8, {static_cast<int64_t>(PackedHeadBytes(600, 1, 1))});
  Tensor scratch = Tensor::Allocate(DType::kUInt8, {static_cast<int64_t>(AttendScratchBytes(1))});
  PackHead(head, packed.raw());
  Attend(head, 0, 1, packed.raw(), scratch.raw());
  EXPECT_EQ(out[0], 599.0f);
}

}  // namespace
}  // namespace chairlift
