// Mixtures of experts against a float64 reference, and that tokens do not depend on each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::Attrs;
using ::testing::HasSubstr;
using testing::OperatorCall;
using testing::RunOperator;

// Weights of one layer as they are given, and what they stand for: [experts, rows, columns].
struct Layer {
  Tensor weights, scales, bias, zeros;
  std::vector<double> values, biases;
};

struct ExpertsCase {
  int64_t tokens = 3, hidden = 16, experts = 4, inner = 8, top = 2;
  std::string activation = "silu";
  int64_t fusion = 0;
  bool gated = true, biased = true, normalises = true;
  int64_t bits = 0, block = 0;  // 0: float32; one scale for each row
  bool zero_points = false;
};

Tensor Uniform(std::mt19937& random, const Shape& shape, float range) {
  std::uniform_real_distribution<float> uniform(-range, range);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = uniform(random);
  return t;
}

Layer MakeLayer(std::mt19937& random, const ExpertsCase& c, int64_t rows, int64_t columns) {
  Layer layer;
  const int64_t e = c.experts;
  if (c.biased) {
    layer.bias = Uniform(random, {e, rows}, 0.5f);
    layer.biases.assign(layer.bias.data<float>(), layer.bias.data<float>() + e * rows);
  } else {
    layer.biases.assign(static_cast<size_t>(e * rows), 0.0);
  }
  if (c.bits == 0) {
    layer.weights = Uniform(random, {e, rows, columns}, 0.5f);
    const float* w = layer.weights.data<float>();
    layer.values.assign(w, w + layer.weights.size());
    return layer;
  }
  const int64_t pack = c.bits == 4 ? 2 : 1;
  const int64_t blocks = c.block == 0 ? 1 : columns / c.block;
  const auto codes = [&](const Shape& shape) {
    Tensor t = Tensor::Allocate(DType::kUInt8, shape);
    for (int64_t i = 0; i < t.size(); ++i) t.data<uint8_t>()[i] = static_cast<uint8_t>(random());
    return t;
  };
  layer.weights = codes({e, rows, columns / pack});
  layer.scales =
      Uniform(random, c.block == 0 ? Shape{e, rows} : Shape{e, rows, blocks}, 0.5f / (1 << c.bits));
  const int64_t row_zeros = (blocks + pack - 1) / pack, rows_packed = (rows + pack - 1) / pack;
  if (c.zero_points) {
    layer.zeros = codes(c.block == 0 ? Shape{e, rows_packed} : Shape{e, rows, row_zeros});
  }
  const auto code = [&](const Tensor& t, int64_t line, int64_t width, int64_t i) -> int {
    const uint8_t* bytes = t.data<uint8_t>() + line * width;
    if (pack == 1) return bytes[i];
    return i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
  };
  for (int64_t line = 0; line < e * rows; ++line) {
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t b = c.block == 0 ? 0 : i / c.block;
      int zero = c.bits == 4 ? 8 : 128;
      if (c.zero_points && c.block == 0) {
        zero = code(layer.zeros, line / rows, rows_packed, line % rows);
      } else if (c.zero_points) {
        zero = code(layer.zeros, line, row_zeros, b);
      }
      layer.values.push_back((code(layer.weights, line, columns / pack, i) - zero) *
                             static_cast<double>(layer.scales.data<float>()[line * blocks + b]));
    }
  }
  return layer;
}

struct Experts {
  explicit Experts(const ExpertsCase& c, unsigned seed = 1) : c(c) {
    std::mt19937 random(seed);
    x = Uniform(random, {c.tokens, c.hidden}, 1.0f);
    router = Uniform(random, {c.tokens, c.experts}, 3.0f);
    const int64_t fused = c.fusion == 0 ? 1 : 2;
    first = MakeLayer(random, c, fused * c.inner, c.hidden);
    second = MakeLayer(random, c, c.hidden, c.inner);
    if (c.gated) third = MakeLayer(random, c, c.inner, c.hidden);
  }

  OperatorCall Call(const Tensor& tokens, const Tensor& logits) const {
    return {.name = "MixtureOfExperts",
            .attributes = Attrs({{"k", c.top},
                                 {"normalize_routing_weights", int64_t{c.normalises}},
                                 {"activation_type", c.activation},
                                 {"swiglu_fusion", c.fusion},
                                 {"swiglu_limit", 1.5f},
                                 {"activation_alpha", 1.25f},
                                 {"activation_beta", 0.75f},
                                 {"expert_weight_bits", c.bits == 0 ? int64_t{4} : c.bits},
                                 {"block_size", c.block}}),
            .inputs = {tokens, logits, first.weights, first.scales, first.bias, second.weights,
                       second.scales, second.bias, third.weights, third.scales, third.bias,
                       first.zeros, second.zeros, third.zeros},
            .domain = "chairlift"};
  }

  double Activated(double gate, double value) const {
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    if (c.activation == "swiglu") {
      gate = std::min(gate, 1.5);
      value = std::clamp(value, -1.5, 1.5);
      return gate * sigmoid(1.25 * gate) * (value + 0.75);
    }
    if (c.activation == "relu") gate = std::max(gate, 0.0);
    if (c.activation == "silu") gate *= sigmoid(gate);
    if (c.activation == "gelu") {
      gate *= (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) / 2;
    }
    return c.gated ? gate * value : gate;
  }

  std::vector<double> Expected() const {
    std::vector<double> y(static_cast<size_t>(c.tokens * c.hidden), 0.0);
    const auto dot = [](const Layer& layer, int64_t rows, int64_t e, int64_t row,
                        const std::vector<double>& v) {
      const auto line = static_cast<size_t>(e * rows + row);
      double sum = layer.biases[line];
      for (size_t i = 0; i < v.size(); ++i) sum += layer.values[line * v.size() + i] * v[i];
      return sum;
    };
    for (int64_t t = 0; t < c.tokens; ++t) {
      const float* logits = router.data<float>() + t * c.experts;
      std::vector<std::pair<double, int64_t>> best;
      double all = 0, chosen = 0;
      for (int64_t e = 0; e < c.experts; ++e) all += std::exp(double{logits[e]});
      for (int64_t e = 0; e < c.experts; ++e)
        best.emplace_back(-std::exp(double{logits[e]}) / all, e);
      std::sort(best.begin(), best.end());
      best.resize(static_cast<size_t>(c.top));
      for (const auto& [share, e] : best) chosen -= share;
      const float* row = x.data<float>() + t * c.hidden;
      const std::vector<double> token(row, row + c.hidden);
      for (const auto& [share, e] : best) {
        std::vector<double> inside;
        const int64_t rows = c.fusion == 0 ? c.inner : 2 * c.inner;
        for (int64_t i = 0; i < c.inner; ++i) {
          const int64_t gate = c.fusion == 1 ? 2 * i : i;
          const int64_t value = c.fusion == 1 ? 2 * i + 1 : c.inner + i;
          const double v = c.gated         ? dot(third, c.inner, e, i, token)
                           : c.fusion != 0 ? dot(first, rows, e, value, token)
                                           : 0;
          inside.push_back(Activated(dot(first, rows, e, gate, token), v));
        }
        const double weight = -share / (c.normalises ? chosen : 1);
        for (int64_t i = 0; i < c.hidden; ++i) {
          y[static_cast<size_t>(t * c.hidden + i)] += weight * dot(second, c.hidden, e, i, inside);
        }
      }
    }
    return y;
  }

  void Check(Team* team = nullptr) const {
    const auto y = RunOperator(Call(x, router), team);
    ASSERT_TRUE(y.ok()) << y.status();
    const std::vector<double> wanted = Expected();
    for (size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR((*y)[0].data<float>()[i], wanted[i], 2e-5 * (1 + std::abs(wanted[i]))) << i;
    }
  }

  ExpertsCase c;
  Tensor x, router;
  Layer first, second, third;
};

TEST(MixtureOfExpertsTest, FloatExpertsEqualReference) {
  for (const char* activation : {"identity", "relu", "gelu", "silu"}) {
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(activation);
      Experts({.activation = activation, .gated = gated}).Check();
      Experts({.activation = activation, .gated = gated, .biased = false, .normalises = false})
          .Check();
    }
  }
  Experts({.tokens = 0}).Check();
  Experts({.tokens = 1, .hidden = 1, .experts = 1, .inner = 1, .top = 1}).Check();
  Experts({.tokens = 7, .hidden = 33, .experts = 5, .inner = 19, .top = 5}).Check();
}

TEST(MixtureOfExpertsTest, SwigluInItsThreeLayouts) {
  Experts({.activation = "swiglu", .fusion = 0, .gated = true}).Check();
  Experts({.activation = "swiglu", .fusion = 1, .gated = false}).Check();
  Experts({.activation = "swiglu", .fusion = 2, .gated = false}).Check();
}

TEST(MixtureOfExpertsTest, QuantizedExpertsEqualReference) {
  for (const int64_t bits : {4, 8}) {
    for (const int64_t block : {0, 16}) {
      for (const bool zero_points : {false, true}) {
        SCOPED_TRACE(::testing::PrintToString(bits) + " bits, blocks of " +
                     ::testing::PrintToString(block));
        Experts({.tokens = 5,
                 .hidden = 32,
                 .inner = 48,
                 .activation = "swiglu",
                 .fusion = 1,
                 .gated = false,
                 .bits = bits,
                 .block = block,
                 .zero_points = zero_points})
            .Check();
      }
    }
  }
}

TEST(MixtureOfExpertsTest, ATokensAnswerDoesNotDependOnTheBatch) {
  // More tokens than a chunk has, on several threads.
  const Experts all({.tokens = 1500, .hidden = 24, .inner = 20});
  testing::ThreadTeam team(3);
  const auto together = RunOperator(all.Call(all.x, all.router), &team);
  ASSERT_TRUE(together.ok()) << together.status();
  for (const int64_t t : {0, 1, 700, 1499}) {
    const auto row = [&](const Tensor& from, int64_t columns) {
      Tensor one = Tensor::Allocate(DType::kFloat, {1, columns});
      std::copy_n(from.data<float>() + t * columns, columns, one.data<float>());
      return one;
    };
    const auto alone = RunOperator(all.Call(row(all.x, 24), row(all.router, 4)));
    ASSERT_TRUE(alone.ok()) << alone.status();
    for (int64_t i = 0; i < 24; ++i) {
      EXPECT_EQ((*alone)[0].data<float>()[i], (*together)[0].data<float>()[t * 24 + i]);
    }
  }
}

// Two identical experts: the weights alone differ.
TEST(MixtureOfExpertsTest, SparseMixerWeighsAmongCloseScores) {
  ExpertsCase c{.tokens = 1,
                .hidden = 1,
                .experts = 3,
                .inner = 1,
                .activation = "identity",
                .gated = false,
                .biased = false};
  Experts e(c);
  e.x.data<float>()[0] = 1;
  for (int i = 0; i < 3; ++i) {
    e.first.weights.data<float>()[i] = 1;
    e.second.weights.data<float>()[i] = static_cast<float>(std::pow(10, i));
    e.router.data<float>()[i] = std::vector<float>{2.0f, 1.99f, 1.0f}[static_cast<size_t>(i)];
  }
  OperatorCall call = e.Call(e.x, e.router);
  call.attributes.Set("use_sparse_mixer", int64_t{1});
  const auto y = RunOperator(call);
  ASSERT_TRUE(y.ok()) << y.status();
  // 1.99 is within 2% of 2.0, and 1.0 of neither: the second expert is then alone.
  const double first = 1 / (1 + std::exp(1.99 - 2.0));
  EXPECT_NEAR((*y)[0].data<float>()[0], first + 10, 1e-5);
}

TEST(MixtureOfExpertsTest, ShapesThatDoNotFitAreRefused) {
  const auto refused = [](ExpertsCase c, const auto& change) {
    Experts e(c);
    OperatorCall call = e.Call(e.x, e.router);
    change(call);
    return std::string(RunOperator(call).status().message());
  };
  const auto nothing = [](OperatorCall&) {};
  EXPECT_THAT(refused({.top = 5}, nothing), HasSubstr("from 1 to the 4 experts"));
  EXPECT_THAT(refused({.activation = "mish"}, nothing), HasSubstr("'mish'"));
  EXPECT_THAT(refused({.activation = "swiglu", .fusion = 1, .gated = true}, nothing),
              HasSubstr("swiglu takes its gates"));
  EXPECT_THAT(refused({},
                      [](OperatorCall& call) {
                        call.inputs[4] = Tensor::Allocate(DType::kFloat, {4, 7});
                      }),
              HasSubstr("biases of fc1 are [4,7]; they must be [4,8]"));
  EXPECT_THAT(refused({},
                      [](OperatorCall& call) {
                        call.inputs[8] = Tensor::Allocate(DType::kFloat, {4, 8, 15});
                      }),
              HasSubstr("weights of fc3 are [4,8,15]"));
  EXPECT_THAT(refused({.hidden = 32, .inner = 32, .bits = 4, .block = 16},
                      [](OperatorCall& call) { call.inputs[3] = Tensor(); }),
              HasSubstr("the scales of fc1 are missing"));
  EXPECT_THAT(refused({.bits = 4, .block = 0},
                      [](OperatorCall& call) { call.attributes.Set("block_size", int64_t{5}); }),
              HasSubstr("blocks of 5"));
  EXPECT_THAT(refused({.bits = 4},
                      [](OperatorCall& call) {
                        call.attributes.Set("fc1_expert_weight_bits", int64_t{2});
                      }),
              HasSubstr("weights of fc1 have 2 bits"));
}

}  // namespace
}  // namespace chairlift
