// ONNX's Attention against its definition in double, and what stands beside it in decoders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace onnx_attention_test {

using testing::AsDoubles;
using ::testing::HasSubstr;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Case {
  int64_t batch = 2, heads = 4, kv_heads = 2, queries = 5, fresh = 5, past = 0;
  int64_t head_size = 8, value_size = 6;
  bool rank3 = false;
  DType mask = DType::kUndefined;
  Shape mask_shape = {};
  std::vector<int64_t> lengths = {};  // nonpad_kv_seqlen
  bool causal = false;
  int64_t left = -1, right = -1;
  float softcap = 0;
  int64_t output_mode = -1;  // no qk_matmul_output
  bool presents = false;
  DType dtype = DType::kFloat;
  double tolerance = 1e-5;
  int width = 1;
};

class OnnxAttentionTest : public ::testing::Test {
 protected:
  // [batch, heads, rows, columns] to [batch, rows, heads·columns].
  static Tensor Joined(const Tensor& t) {
    const Shape& s = t.shape();
    Tensor out = Tensor::Allocate(t.dtype(), {s[0], s[2], s[1] * s[3]});
    const size_t bytes = static_cast<size_t>(s[3]) * DTypeSize(t.dtype());
    const auto* from = static_cast<const std::byte*>(t.raw());
    auto* to = static_cast<std::byte*>(out.raw());
    for (int64_t b = 0; b < s[0]; ++b) {
      for (int64_t h = 0; h < s[1]; ++h) {
        for (int64_t r = 0; r < s[2]; ++r, from += bytes) {
          std::memcpy(to + static_cast<size_t>(((b * s[2] + r) * s[1] + h)) * bytes, from, bytes);
        }
      }
    }
    return out;
  }

  void Check(const Case& c) {
    const auto random = [&](const Shape& shape) {
      return RandomTensor(c.dtype, shape, -2, 2, ++seed_);
    };
    const int64_t total = c.past + c.fresh;
    const Tensor q = random({c.batch, c.heads, c.queries, c.head_size});
    const Tensor k = random({c.batch, c.kv_heads, c.fresh, c.head_size});
    const Tensor v = random({c.batch, c.kv_heads, c.fresh, c.value_size});
    OperatorCall call{.name = "Attention", .inputs = {q, k, v}};
    if (c.rank3) {
      call.inputs = {Joined(q), Joined(k), Joined(v)};
      call.attributes.Set("q_num_heads", c.heads);
      call.attributes.Set("kv_num_heads", c.kv_heads);
    }
    call.inputs.resize(7);
    std::vector<double> mask;
    if (c.mask != DType::kUndefined) {
      call.inputs[3] = RandomTensor(c.mask, c.mask_shape, -2, 2, ++seed_);
      for (const double m : AsDoubles(call.inputs[3])) {
        mask.push_back(c.mask == DType::kBool ? (m != 0 ? 0 : kNone) : m);
      }
    }
    std::vector<double> past_k, past_v;
    if (c.past > 0) {
      call.inputs[4] = random({c.batch, c.kv_heads, c.past, c.head_size});
      call.inputs[5] = random({c.batch, c.kv_heads, c.past, c.value_size});
      past_k = AsDoubles(call.inputs[4]);
      past_v = AsDoubles(call.inputs[5]);
    }
    if (!c.lengths.empty()) {
      call.inputs[6] = Tensor::Of<int64_t>({c.batch}, std::span<const int64_t>(c.lengths));
    }
    call.attributes.Set("is_causal", int64_t{c.causal});
    call.attributes.Set("left_window_size", c.left);
    call.attributes.Set("right_window_size", c.right);
    call.attributes.Set("softcap", c.softcap);
    if (c.presents) call.num_outputs = 3;
    if (c.output_mode >= 0) {
      call.num_outputs = 4;
      call.attributes.Set("qk_matmul_output_mode", c.output_mode);
    }
    ThreadTeam team(c.width);
    const auto got = RunOperator(call, &team);
    ASSERT_TRUE(got.ok()) << got.status();

    const auto dq = AsDoubles(q), dk = AsDoubles(k), dv = AsDoubles(v);
    const auto row_of = [&](const std::vector<double>& past, const std::vector<double>& fresh,
                            int64_t unit, int64_t j, int64_t columns) {
      return j < c.past ? past.data() + (unit * c.past + j) * columns
                        : fresh.data() + (unit * c.fresh + j - c.past) * columns;
    };
    const auto y = AsDoubles((*got)[0]);
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t unit = b * c.kv_heads + h / (c.heads / c.kv_heads);
        for (int64_t i = 0; i < c.queries; ++i) {
          std::vector<double> scores, shown;
          for (int64_t j = 0; j < total; ++j) {
            const double* key = row_of(past_k, dk, unit, j, c.head_size);
            const double* query = dq.data() + ((b * c.heads + h) * c.queries + i) * c.head_size;
            double dot = 0;
            for (int64_t d = 0; d < c.head_size; ++d) dot += query[d] * key[d];
            scores.push_back(dot / std::sqrt(static_cast<double>(c.head_size)));
          }
          const auto show = [&](int64_t mode) {
            if (mode == c.output_mode) shown = scores;
          };
          show(0);
          for (double& s : scores) {
            if (c.softcap > 0) s = c.softcap * std::tanh(s / c.softcap);
          }
          show(1);
          const int64_t offset =
              c.lengths.empty() ? c.past : c.lengths[static_cast<size_t>(b)] - c.queries;
          for (int64_t j = 0; j < total; ++j) {
            double& s = scores[static_cast<size_t>(j)];
            const int64_t p = offset + i;
            const bool hidden = (c.causal && j > p) || (c.left >= 0 && j < p - c.left) ||
                                (c.right >= 0 && j > p + c.right) ||
                                (!c.lengths.empty() && j >= c.lengths[static_cast<size_t>(b)]);
            if (hidden) s = kNone;
            if (c.mask != DType::kUndefined) s += MaskAt(c, mask, {b, h, i, j});
          }
          show(2);
          double most = kNone;  // of no scores at all
          for (const double s : scores) most = std::max(most, s);
          double sum = 0;
          for (double& s : scores) sum += s = most == kNone ? 0 : std::exp(s - most);
          for (double& s : scores) s = sum > 0 ? s / sum : 0;
          show(3);
          for (int64_t d = 0; d < c.value_size; ++d) {
            double want = 0;
            for (int64_t j = 0; j < total; ++j) {
              want += scores[static_cast<size_t>(j)] * row_of(past_v, dv, unit, j, c.value_size)[d];
            }
            const int64_t at = c.rank3 ? ((b * c.queries + i) * c.heads + h) * c.value_size + d
                                       : ((b * c.heads + h) * c.queries + i) * c.value_size + d;
            ASSERT_NEAR(y[static_cast<size_t>(at)], want, c.tolerance) << b << h << i << d;
          }
          if (c.output_mode < 0) continue;
          const auto qk = AsDoubles((*got)[3]);
          for (int64_t j = 0; j < total; ++j) {
            const double want = shown[static_cast<size_t>(j)];
            const double is =
                qk[static_cast<size_t>(((b * c.heads + h) * c.queries + i) * total + j)];
            if (want == is) continue;  // −∞ too
            ASSERT_NEAR(is, want, c.tolerance);
          }
        }
      }
    }
    if (!c.presents) return;
    ASSERT_EQ((*got)[1].shape(), (Shape{c.batch, c.kv_heads, total, c.head_size}));
    const auto keys = AsDoubles((*got)[1]), values = AsDoubles((*got)[2]);
    for (int64_t row = 0; row < c.batch * c.kv_heads * total; ++row) {
      const int64_t unit = row / total, j = row % total;
      for (int64_t d = 0; d < c.head_size; ++d) {
        ASSERT_EQ(keys[static_cast<size_t>(row * c.head_size + d)],
                  row_of(past_k, dk, unit, j, c.head_size)[d]);
      }
      for (int64_t d = 0; d < c.value_size; ++d) {
        ASSERT_EQ(values[static_cast<size_t>(row * c.value_size + d)],
                  row_of(past_v, dv, unit, j, c.value_size)[d]);
      }
    }
  }

  // Keys that it has no column for are hidden.
  static double MaskAt(const Case& c, const std::vector<double>& mask,
                       const std::array<int64_t, 4>& place) {
    const int rank = c.mask_shape.rank();
    if (place[3] >= c.mask_shape[rank - 1]) return kNone;
    int64_t at = 0;
    for (int i = 0; i < rank; ++i) {
      at = at * c.mask_shape[i] +
           (c.mask_shape[i] == 1 ? 0 : place[static_cast<size_t>(4 - rank + i)]);
    }
    return mask[static_cast<size_t>(at)];
  }

  uint32_t seed_ = 0;
};

TEST_F(OnnxAttentionTest, HeadsOfKeysAreShared) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    for (const bool rank3 : {false, true}) Check({.kv_heads = kv_heads, .rank3 = rank3});
  }
}

TEST_F(OnnxAttentionTest, SizesIncludeNothingAndOne) {
  Check({.batch = 0});
  Check({.queries = 0});
  Check({.fresh = 0});
  Check({.batch = 1,
         .heads = 1,
         .kv_heads = 1,
         .queries = 1,
         .fresh = 1,
         .head_size = 1,
         .value_size = 1});
  Check({.queries = 70, .fresh = 300, .width = 3});
}

TEST_F(OnnxAttentionTest, PastKeysComeFirst) {
  for (const bool rank3 : {false, true}) {
    for (const bool presents : {false, true}) {
      Check({.queries = 3,
             .fresh = 3,
             .past = 7,
             .rank3 = rank3,
             .causal = true,
             .presents = presents});
      Check({.rank3 = rank3, .presents = presents});
    }
  }
}

TEST_F(OnnxAttentionTest, AQuerySeesNoLaterKey) {
  Check({.causal = true});
  Check({.queries = 9, .fresh = 4, .causal = true});
  Check({.queries = 300, .fresh = 300, .causal = true, .width = 2});
}

TEST_F(OnnxAttentionTest, WindowsOfKeys) {
  for (const int64_t left : {-1, 0, 3}) {
    for (const int64_t right : {-1, 0, 2}) {
      for (const bool causal : {false, true}) {
        Check({.queries = 11, .fresh = 11, .causal = causal, .left = left, .right = right});
        Check({.batch = 1,
               .queries = 400,
               .fresh = 400,
               .causal = causal,
               .left = left,
               .right = right});
        Check(
            {.queries = 4, .fresh = 4, .past = 6, .causal = causal, .left = left, .right = right});
      }
    }
  }
}

TEST_F(OnnxAttentionTest, CachesThatArePaddedBehind) {
  Check({.queries = 3, .fresh = 9, .lengths = {9, 4}});
  Check({.queries = 3, .fresh = 9, .lengths = {0, 1}, .causal = true});
  Check({.queries = 3, .fresh = 9, .lengths = {5, 9}, .causal = true, .left = 2});
}

TEST_F(OnnxAttentionTest, Masks) {
  for (const DType type : {DType::kBool, DType::kFloat}) {
    for (const Shape& shape :
         {Shape{9}, Shape{5, 9}, Shape{1, 9}, Shape{4, 5, 9}, Shape{2, 1, 1, 9}, Shape{2, 4, 5, 9},
          Shape{1, 1, 5, 9}, Shape{2, 1, 5, 4}, Shape{5, 1}}) {
      for (const bool causal : {false, true}) {
        Check({.fresh = 9, .mask = type, .mask_shape = shape, .causal = causal});
      }
    }
  }
}

TEST_F(OnnxAttentionTest, ScoresAreCapped) {
  Check({.softcap = 0.7f});
  Check({.queries = 40, .fresh = 300, .causal = true, .softcap = 2.0f});
}

TEST_F(OnnxAttentionTest, ScoresAreGivenOut) {
  for (const int64_t mode : {0, 1, 2, 3}) {
    Check({.fresh = 6,
           .past = 2,
           .rank3 = mode % 2 == 0,
           .mask = DType::kBool,
           .mask_shape = {5, 8},
           .causal = true,
           .softcap = 1.5f,
           .output_mode = mode,
           .presents = true});
  }
}

// NaN in a query or in the only key that it sees is NaN in its result, not the zeros of a query
// that sees no key.
TEST_F(OnnxAttentionTest, NanIsNotTheAbsenceOfKeys) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    for (const int64_t keys : {5, 200}) {
      for (const int64_t mode : {-1, 3}) {
        for (const bool in_key : {false, true}) {
          const Shape shape{1, 1, keys, 8};
          Tensor q = RandomTensor(dtype, shape, -2, 2, 1), k = RandomTensor(dtype, shape, -2, 2, 2);
          Tensor& bad = in_key ? k : q;
          const int64_t at = (keys - 1) * 8;
          if (dtype == DType::kFloat) {
            bad.data<float>()[at] = static_cast<float>(nan);
          } else {
            bad.data<double>()[at] = nan;
          }
          OperatorCall call{.name = "Attention",
                            .inputs = {q, k, RandomTensor(dtype, shape, -2, 2, 3)}};
          if (in_key) {  // each query sees the key of its own place
            call.attributes.Set("left_window_size", int64_t{0});
            call.attributes.Set("right_window_size", int64_t{0});
          }
          if (mode >= 0) {
            call.num_outputs = 4;
            call.attributes.Set("qk_matmul_output_mode", mode);
          }
          const auto got = RunOperator(call);
          ASSERT_TRUE(got.ok()) << got.status();
          const auto y = AsDoubles((*got)[0]);
          for (int64_t i = 0; i < keys * 8; ++i) {
            EXPECT_EQ(std::isnan(y[static_cast<size_t>(i)]), i >= at)
                << DTypeName(dtype) << keys << mode << in_key << " at " << i;
          }
        }
      }
    }
  }
}

TEST_F(OnnxAttentionTest, OtherFloats) {
  Check({.mask = DType::kDouble,
         .mask_shape = {5, 5},
         .causal = true,
         .dtype = DType::kDouble,
         .tolerance = 1e-12});
  Check({.past = 3, .presents = true, .dtype = DType::kFloat16, .tolerance = 5e-3});
  Check({.causal = true, .dtype = DType::kBFloat16, .tolerance = 4e-2});
}

TEST_F(OnnxAttentionTest, RandomCases) {
  std::mt19937 random(8);
  const auto pick = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  for (int i = 0; i < 60; ++i) {
    const int64_t kv_heads = 1 + pick(2);
    Case c{.batch = pick(3),
           .heads = kv_heads * (1 + pick(2)),
           .kv_heads = kv_heads,
           .queries = pick(40),
           .fresh = pick(40),
           .past = pick(1) * pick(9),
           .head_size = 1 + pick(33),
           .value_size = 1 + pick(33),
           .rank3 = pick(1) == 0};
    c.causal = pick(1) == 0;
    c.left = pick(2) == 0 ? pick(9) : -1;
    c.softcap = pick(3) == 0 ? 1.0f : 0.0f;
    c.output_mode = pick(3) == 0 ? pick(3) : -1;
    c.presents = pick(1) == 0 || c.output_mode >= 0;
    if (c.past == 0 && pick(1) == 0) {
      for (int64_t b = 0; b < c.batch; ++b) c.lengths.push_back(pick(c.fresh));
    }
    if (pick(1) == 0) {
      c.mask = pick(1) == 0 ? DType::kBool : DType::kFloat;
      c.mask_shape = {c.queries, pick(c.past + c.fresh)};
    }
    Check(c);
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
}

TEST_F(OnnxAttentionTest, RefusesWhatDoesNotFit) {
  const auto refusal = [](OperatorCall call) {
    const auto got = RunOperator(call);
    return got.ok() ? std::string("accepted") : std::string(Message(got.status()));
  };
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, -1, 1, 1);
  };
  const Tensor q = floats({2, 4, 3, 8});
  const Tensor keys = floats({2, 2, 3, 8});
  EXPECT_THAT(refusal({.name = "Attention", .inputs = {q, floats({2, 3, 3, 8}), keys}}),
              HasSubstr("fit"));
  EXPECT_THAT(
      refusal({.name = "Attention", .inputs = {q, floats({2, 3, 3, 8}), floats({2, 3, 3, 8})}}),
      HasSubstr("the number of key heads, 3, does not divide that of query heads, 4"));
  EXPECT_THAT(refusal({.name = "Attention",
                       .inputs = {floats({2, 3, 8}), floats({2, 3, 8}), floats({2, 3, 8})}}),
              HasSubstr("q_num_heads"));
  EXPECT_THAT(refusal({.name = "Attention", .inputs = {q, keys, keys, {}, keys}}),
              HasSubstr("past_key and past_value"));
  EXPECT_THAT(refusal({.name = "Attention", .inputs = {q, keys, keys, floats({7, 3})}}),
              HasSubstr("mask"));
  const Tensor lengths = Tensor::Of<int64_t>({2}, {4, 1});
  EXPECT_THAT(refusal({.name = "Attention", .inputs = {q, keys, keys, {}, {}, {}, lengths}}),
              HasSubstr("nonpad_kv_seqlen has 4 where there are 3 keys"));
}

TEST(RotaryEmbeddingTest, TurnsPairsOfColumns) {
  constexpr int64_t kBatch = 2, kHeads = 3, kLength = 5;
  for (const int64_t size : {2, 8, 10}) {
    for (const int64_t turned : {int64_t{0}, int64_t{2}, size}) {
      for (const bool interleaved : {false, true}) {
        for (const bool rank3 : {false, true}) {
          const int64_t half = (turned == 0 ? size : turned) / 2;
          const Shape shape =
              rank3 ? Shape{kBatch, kLength, kHeads * size} : Shape{kBatch, kHeads, kLength, size};
          const Tensor x = RandomTensor(DType::kFloat, shape, -1, 1, 1);
          const Tensor cos = RandomTensor(DType::kFloat, {kBatch, kLength, half}, -1, 1, 2);
          const Tensor sin = RandomTensor(DType::kFloat, {kBatch, kLength, half}, -1, 1, 3);
          OperatorCall call{.name = "RotaryEmbedding", .inputs = {x, cos, sin}};
          call.attributes.Set("num_heads", kHeads);
          call.attributes.Set("rotary_embedding_dim", turned);
          call.attributes.Set("interleaved", int64_t{interleaved});
          const auto y = RunOperator(call);
          ASSERT_TRUE(y.ok()) << y.status();
          const auto in = AsDoubles(x), out = AsDoubles((*y)[0]), c = AsDoubles(cos),
                     s = AsDoubles(sin);
          for (int64_t b = 0; b < kBatch; ++b) {
            for (int64_t l = 0; l < kLength; ++l) {
              for (int64_t h = 0; h < kHeads; ++h) {
                const auto start = static_cast<size_t>(
                    (rank3 ? (b * kLength + l) * kHeads + h : (b * kHeads + h) * kLength + l) *
                    size);
                for (int64_t i = 0; i < half; ++i) {
                  const auto one = start + static_cast<size_t>(interleaved ? 2 * i : i);
                  const auto two = start + static_cast<size_t>(interleaved ? 2 * i + 1 : i + half);
                  const auto angle = static_cast<size_t>((b * kLength + l) * half + i);
                  ASSERT_NEAR(out[one], c[angle] * in[one] - s[angle] * in[two], 1e-6);
                  ASSERT_NEAR(out[two], s[angle] * in[one] + c[angle] * in[two], 1e-6);
                }
                for (int64_t i = 2 * half; i < size; ++i) {
                  ASSERT_EQ(out[start + static_cast<size_t>(i)],
                            in[start + static_cast<size_t>(i)]);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(RotaryEmbeddingTest, RefusesColumnsThatDoNotPair) {
  const Tensor x = RandomTensor(DType::kFloat, {1, 2, 3, 5}, -1, 1, 1);
  const Tensor table = RandomTensor(DType::kFloat, {1, 3, 2}, -1, 1, 1);
  const auto y = RunOperator({.name = "RotaryEmbedding", .inputs = {x, table, table}});
  EXPECT_THAT(Message(y.status()), HasSubstr("5 columns"));
}

TEST(TensorScatterTest, WritesEachSamplesUpdate) {
  for (const std::string mode : {"linear", "circular"}) {
    for (const int64_t written : {0, 1, 3}) {
      const Tensor cache = RandomTensor(DType::kInt32, {2, 3, 4, 5}, -99, 99, 1);
      const Tensor update = RandomTensor(DType::kInt32, {2, 3, written, 5}, -99, 99, 2);
      const std::vector<int64_t> at = {1, mode == "linear" ? 0 : 3};
      OperatorCall call{.name = "TensorScatter",
                        .inputs = {cache, update, Tensor::Of<int64_t>({2}, std::span(at))}};
      call.attributes.Set("mode", mode);
      const auto got = RunOperator(call);
      ASSERT_TRUE(got.ok()) << got.status();
      auto want = AsDoubles(cache);
      const auto from = AsDoubles(update);
      for (int64_t row = 0; row < 6; ++row) {
        for (int64_t i = 0; i < written; ++i) {
          const int64_t place = (at[static_cast<size_t>(row / 3)] + i) % 4;
          for (int64_t c = 0; c < 5; ++c) {
            want[static_cast<size_t>((row * 4 + place) * 5 + c)] =
                from[static_cast<size_t>((row * written + i) * 5 + c)];
          }
        }
      }
      EXPECT_EQ(AsDoubles((*got)[0]), want);
    }
  }
}

TEST(TensorScatterTest, RefusesToWriteBehindTheEnd) {
  const Tensor cache = RandomTensor(DType::kFloat, {1, 4, 2}, -1, 1, 1);
  const Tensor update = RandomTensor(DType::kFloat, {1, 2, 2}, -1, 1, 1);
  for (const int64_t at : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    const auto got = RunOperator(
        {.name = "TensorScatter", .inputs = {cache, update, Tensor::Of<int64_t>({1}, {at})}});
    EXPECT_THAT(Message(got.status()), HasSubstr("do not fit a cache of 4"));
  }
}

}  // namespace onnx_attention_test
}  // namespace chairlift
