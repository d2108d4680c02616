// Normalisations against their formulas in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;
using Doubles = std::vector<double>;

Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes a;
  for (const auto& [name, value] : values) a.Set(name, value);
  return a;
}

double Tolerance(DType dtype) {
  return dtype == DType::kBFloat16  ? 0x1p-7
         : dtype == DType::kFloat16 ? 0x1p-10
         : dtype == DType::kFloat   ? 2e-6
                                    : 1e-13;
}
constexpr DType kFloats[] = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16};

void ExpectNear(const Doubles& actual, const Doubles& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
  }
}

TEST(SoftmaxTest, MatchesTheFormulaAlongEveryAxis) {
  for (DType dtype : kFloats) {
    for (const bool log : {false, true}) {
      for (const Shape& shape :
           {Shape{1}, Shape{7}, Shape{3, 0}, Shape{0, 3}, Shape{5, 16}, Shape{2, 33},
            Shape{3, 5, 7}, Shape{2, 65, 70}, Shape{1, 1, 1001}}) {
        for (int64_t axis = -1; axis < shape.rank(); ++axis) {
          const Tensor x = RandomTensor(dtype, shape, -9, 9, 21);
          auto y = RunOperator({log ? "LogSoftmax" : "Softmax", With({{"axis", axis}}), {x}});
          ASSERT_TRUE(y.ok()) << y.status();
          const int a = axis < 0 ? shape.rank() - 1 : static_cast<int>(axis);
          const int64_t n = shape[a], inner = shape.NumElements(a + 1, shape.rank());
          const Doubles v = AsDoubles(x);
          Doubles expected(v.size());
          for (int64_t e = 0; e < x.size(); ++e) {
            const int64_t start = e - e / inner % n * inner;
            double sum = 0;
            for (int64_t i = 0; i < n; ++i) sum += std::exp(v[start + i * inner]);
            expected[e] = log ? v[e] - std::log(sum) : std::exp(v[e]) / sum;
          }
          ExpectNear(AsDoubles((*y)[0]), expected, Tolerance(dtype));
        }
      }
    }
  }
}

TEST(SoftmaxTest, LargeAndMaskedValuesStayFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::Of<float>({1, 4}, {1e30f, 1e30f, -inf, 0});
  auto y = RunOperator({"Softmax", {}, {x}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{0.5, 0.5, 0, 0}));
}

struct LayerNormReference {
  Doubles y, mean, inv_std;
};
LayerNormReference ReferenceLayerNorm(const Doubles& x, int64_t n, const Doubles& scale,
                                      const Doubles& shift, double epsilon) {
  LayerNormReference out;
  for (size_t start = 0; start < x.size(); start += n) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; ++i) mean += x[start + i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      variance += (x[start + i] - mean) * (x[start + i] - mean) / static_cast<double>(n);
    }
    const double inv = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < n; ++i) {
      out.y.push_back((x[start + i] - mean) * inv * scale[i % scale.size()] +
                      (shift.empty() ? 0 : shift[i % shift.size()]));
    }
    out.mean.push_back(mean);
    out.inv_std.push_back(inv);
  }
  return out;
}

TEST(LayerNormalizationTest, GivesResultMeanAndInverseDeviation) {
  for (DType dtype : kFloats) {
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{2, 3, 16}, Shape{2, 3, 50},
                               Shape{0, 5}, Shape{4, 1000}}) {
      for (int64_t axis = -1; axis < shape.rank(); ++axis) {
        const int a = axis < 0 ? shape.rank() - 1 : static_cast<int>(axis);
        const Shape tail(shape.dims().subspan(a));
        const int64_t n = tail.NumElements();
        if (n == 0) continue;
        const Tensor x = RandomTensor(dtype, shape, 2, 5, 31);
        const Tensor scale = RandomTensor(dtype, tail, 0.5, 2, 32);
        const Tensor bias = RandomTensor(dtype, tail, -1, 1, 33);
        for (const bool with_bias : {true, false}) {
          std::vector<Tensor> inputs = {x, scale};
          if (with_bias) inputs.push_back(bias);
          auto y = RunOperator(
              {"LayerNormalization", With({{"axis", axis}, {"epsilon", 0.01f}}), inputs, 3});
          ASSERT_TRUE(y.ok()) << y.status();
          const auto expected = ReferenceLayerNorm(AsDoubles(x), n, AsDoubles(scale),
                                                   with_bias ? AsDoubles(bias) : Doubles{}, 0.01f);
          ExpectNear(AsDoubles((*y)[0]), expected.y, 3 * Tolerance(dtype));
          EXPECT_EQ((*y)[1].dtype(), DType::kFloat);
          ExpectNear(AsDoubles((*y)[1]), expected.mean, 2e-6);
          ExpectNear(AsDoubles((*y)[2]), expected.inv_std, 1e-5);
        }
      }
    }
  }
}

TEST(LayerNormalizationTest, SpreadsSmallScales) {
  const Tensor x = RandomTensor(DType::kFloat, {2, 3, 4}, -1, 1, 5);
  const Tensor scale = Tensor::Of<float>({3, 1}, {1, 2, 3});
  const Tensor bias = Tensor::Scalar<float>(0.5f);
  auto y = RunOperator({"LayerNormalization", With({{"axis", int64_t{1}}}), {x, scale, bias}});
  ASSERT_TRUE(y.ok()) << y.status();
  const Doubles full = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const auto expected = ReferenceLayerNorm(AsDoubles(x), 12, full, {0.5}, 1e-5);
  ExpectNear(AsDoubles((*y)[0]), expected.y, 1e-5);
  auto wrong =
      RunOperator({"LayerNormalization", {}, {x, RandomTensor(DType::kFloat, {3}, -1, 1, 5)}});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
}

// Scale and bias broadcast to the whole of x, whatever is normalised over.
TEST(LayerNormalizationTest, ScaleAndBiasBroadcastToTheInput) {
  const std::vector<Shape> shapes = {{},        {1},       {4},       {1, 1, 4}, {1, 4},
                                     {1, 1, 1}, {3, 1},    {3, 4},    {2, 1, 1}, {2, 1, 4},
                                     {2, 3, 1}, {2, 3, 4}, {1, 3, 4}, {1, 3, 1}};
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    const Tensor x = RandomTensor(dtype, {2, 3, 4}, -1, 1, 5);
    for (const int64_t axis : {0, 1, 2}) {
      const int64_t n = axis == 0 ? 24 : axis == 1 ? 12 : 4;
      const Doubles normal = ReferenceLayerNorm(AsDoubles(x), n, {1}, {}, 1e-5).y;
      for (size_t s = 0; s < shapes.size(); ++s) {
        const Shape& of_bias = shapes[(5 * s + 3) % shapes.size()];
        SCOPED_TRACE(shapes[s].ToString() + " and " + of_bias.ToString());
        const Tensor scale = RandomTensor(dtype, shapes[s], -1, 1, 6);
        const Tensor bias = RandomTensor(dtype, of_bias, -1, 1, 7);
        const auto at = [](const Tensor& t, int64_t i) {
          const int64_t index[] = {i / 12, i / 4 % 3, i % 4};
          int64_t offset = 0;
          for (int k = 0; k < t.shape().rank(); ++k) {
            const int64_t d = t.shape()[k];
            offset = offset * d + (d == 1 ? 0 : index[3 - t.shape().rank() + k]);
          }
          return AsDoubles(t)[static_cast<size_t>(offset)];
        };
        Doubles expected(24);
        for (int64_t i = 0; i < 24; ++i) {
          expected[static_cast<size_t>(i)] =
              normal[static_cast<size_t>(i)] * at(scale, i) + at(bias, i);
        }
        auto y = RunOperator({"LayerNormalization", With({{"axis", axis}}), {x, scale, bias}, 3});
        ASSERT_TRUE(y.ok()) << y.status();
        ExpectNear(AsDoubles((*y)[0]), expected, 1e-5);
        ExpectNear(AsDoubles((*y)[1]), ReferenceLayerNorm(AsDoubles(x), n, {1}, {}, 1e-5).mean,
                   1e-5);
        auto root = RunOperator({"RMSNormalization", With({{"axis", axis}}), {x, scale}});
        ASSERT_TRUE(root.ok()) << root.status();
        EXPECT_EQ((*root)[0].shape(), x.shape());
      }
    }
  }
  const Tensor x = RandomTensor(DType::kFloat, {1, 3, 4}, -1, 1, 5);
  for (const Shape& wrong : {Shape{2, 1, 4}, Shape{1, 1, 3, 4}, Shape{1, 1, 1, 1}}) {
    auto y =
        RunOperator({"LayerNormalization", {}, {x, RandomTensor(DType::kFloat, wrong, -1, 1, 5)}});
    EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SkipLayerNormTest, NormalisesTheSumOfInputResidualAndBias) {
  for (DType dtype : {DType::kFloat, DType::kFloat16}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 16}, Shape{2, 5, 37}, Shape{3, 384}}) {
      for (int mask = 0; mask < 8; ++mask) {
        const bool with_bias = (mask & 1) != 0, with_shift = (mask & 2) != 0;
        const int num_outputs = (mask & 4) != 0 ? 2 : 1;
        const int64_t n = shape[shape.rank() - 1];
        const Tensor x = RandomTensor(dtype, shape, -1, 3, 41);
        const Tensor residual = RandomTensor(dtype, shape, -2, 2, 42);
        const Tensor bias = RandomTensor(dtype, {n}, -1, 1, 43);
        const Tensor scale = RandomTensor(dtype, {n}, 0.5, 2, 44);
        const Tensor shift = RandomTensor(dtype, {n}, -1, 1, 45);
        std::vector<Tensor> inputs = {x, residual, with_bias ? bias : Tensor(), scale};
        if (with_shift) inputs.push_back(shift);
        auto y = RunOperator(
            {"SkipLayerNorm", With({{"epsilon", 0.01f}}), inputs, num_outputs, "chairlift"});
        ASSERT_TRUE(y.ok()) << y.status();
        Doubles sum = AsDoubles(x);
        const Doubles r = AsDoubles(residual), b = AsDoubles(bias);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += r[i] + (with_bias ? b[i % n] : 0);
        const auto expected = ReferenceLayerNorm(sum, n, AsDoubles(scale),
                                                 with_shift ? AsDoubles(shift) : Doubles{}, 0.01f);
        ExpectNear(AsDoubles((*y)[0]), expected.y, 3 * Tolerance(dtype));
        if (num_outputs == 2) ExpectNear(AsDoubles((*y)[1]), sum, Tolerance(dtype));
      }
    }
  }
}

TEST(GroupNormalizationTest, NormalisesGroupsAndInstances) {
  for (DType dtype : kFloats) {
    for (const Shape& shape :
         {Shape{2, 4, 3}, Shape{1, 6, 5, 7}, Shape{3, 2, 1, 1}, Shape{2, 4, 64, 33}}) {
      for (int64_t groups : {int64_t{1}, int64_t{2}, shape[1]}) {
        const bool instance = groups == shape[1];
        const int64_t plane = shape.NumElements(2, shape.rank());
        const int64_t channels = shape[1] / groups;
        const Tensor x = RandomTensor(dtype, shape, 3, 5, 51);
        const Tensor scale = RandomTensor(dtype, {shape[1]}, 0.5, 2, 52);
        const Tensor bias = RandomTensor(dtype, {shape[1]}, -1, 1, 53);
        auto y = RunOperator({instance ? "InstanceNormalization" : "GroupNormalization",
                              With({{"num_groups", groups}, {"epsilon", 0.01f}}),
                              {x, scale, bias}});
        ASSERT_TRUE(y.ok()) << y.status();
        const auto unit = ReferenceLayerNorm(AsDoubles(x), channels * plane, {1}, {}, 0.01f);
        Doubles expected = unit.y;
        const Doubles s = AsDoubles(scale), b = AsDoubles(bias);
        for (size_t e = 0; e < expected.size(); ++e) {
          const int64_t c = static_cast<int64_t>(e) / plane % shape[1];
          expected[e] = expected[e] * s[c] + b[c];
        }
        ExpectNear(AsDoubles((*y)[0]), expected, 4 * Tolerance(dtype));
      }
    }
  }
  auto wrong = RunOperator(
      {"GroupNormalization",
       With({{"num_groups", int64_t{3}}}),
       {RandomTensor(DType::kFloat, {1, 4, 2}, 0, 1, 1), RandomTensor(DType::kFloat, {4}, 0, 1, 1),
        RandomTensor(DType::kFloat, {4}, 0, 1, 1)}});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
}

// Values that are large beside how they differ: pixels, 16-bit sound, time stamps.
Tensor FarFromZero(DType dtype, const Shape& shape, double value, int64_t period) {
  Tensor x = Tensor::Allocate(dtype, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double v = value + static_cast<double>(i % period);
    if (dtype == DType::kDouble) {
      x.data<double>()[i] = v;
    } else {
      x.data<float>()[i] = static_cast<float>(v);
    }
  }
  return x;
}

TEST(NormalizationTest, ValuesMayBeLargeBesideHowTheyDiffer) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    for (const double value : {7.0, 255.0, 40000.0, 4e6, 4000001.0, -4000001.0}) {
      for (const int64_t period : {1, 2, 4}) {
        for (const Shape& shape : {Shape{1, 3, 16, 16}, Shape{2, 2, 5, 7}, Shape{1, 2, 96, 129}}) {
          const int64_t channels = shape[1];
          const int64_t plane = shape.NumElements(2, shape.rank());
          const Tensor x = FarFromZero(dtype, shape, value, period);
          const Doubles wide = AsDoubles(x);
          const auto ones = [&](int64_t n) { return RandomTensor(dtype, {n}, 1, 1, 1); };
          const auto zeros = [&](int64_t n) { return RandomTensor(dtype, {n}, 0, 0, 1); };
          const auto check = [&](const char* name, Attributes attributes,
                                 std::vector<Tensor> inputs, int64_t n) {
            attributes.Set("epsilon", 1e-5f);
            auto y = RunOperator({name, attributes, std::move(inputs)});
            ASSERT_TRUE(y.ok()) << y.status();
            const auto expected = ReferenceLayerNorm(wide, n, {1}, {}, 1e-5f).y;
            const Doubles actual = AsDoubles((*y)[0]);
            for (size_t i = 0; i < actual.size(); ++i) {
              ASSERT_NEAR(actual[i], expected[i], 1e-3)
                  << name << " of " << value << ", " << shape.ToString() << " period " << period;
            }
          };
          check("InstanceNormalization", {}, {x, ones(channels), zeros(channels)}, plane);
          check("GroupNormalization", With({{"num_groups", int64_t{1}}}),
                {x, ones(channels), zeros(channels)}, channels * plane);
          check("LayerNormalization", With({{"axis", int64_t{-1}}}),
                {x, ones(shape[3]), zeros(shape[3])}, shape[3]);
          check("LayerNormalization", With({{"axis", int64_t{2}}}),
                {x, RandomTensor(dtype, {shape[2], shape[3]}, 1, 1, 1)}, plane);
        }
      }
    }
  }
}

TEST(NormalizationTest, EqualElementsAreTheBias) {
  for (const int64_t n : {1, 5, 256, 3001}) {
    const Tensor x = FarFromZero(DType::kFloat, {2, 2, n}, 4000001.0, 1);
    const Tensor scale = RandomTensor(DType::kFloat, {2}, 1, 2, 1);
    const Tensor bias = Tensor::Of<float>({2}, {0.25f, -3.0f});
    auto y = RunOperator({"InstanceNormalization", With({{"epsilon", 1e-12f}}), {x, scale, bias}});
    ASSERT_TRUE(y.ok()) << y.status();
    const Doubles actual = AsDoubles((*y)[0]);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], static_cast<int64_t>(i) / n % 2 == 0 ? 0.25 : -3.0) << n;
    }
  }
}

// The statistics of training mode, or of a file, are far from zero too.
TEST(BatchNormalizationTest, TakesTheMeanOffFirst) {
  const Tensor x = FarFromZero(DType::kFloat, {2, 3, 8}, 4000000.0, 4);
  const auto of = [](float v) { return Tensor::Of<float>({3}, {v, v, v}); };
  auto y = RunOperator({"BatchNormalization",
                        With({{"epsilon", 0.0f}}),
                        {x, of(1.1f), of(0.5f), of(4000001.0f), of(1.0f)}});
  ASSERT_TRUE(y.ok()) << y.status();
  const Doubles actual = AsDoubles((*y)[0]);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], (static_cast<double>(i % 4) - 1) * 1.1 + 0.5, 1e-5);
  }
}

TEST(BatchNormalizationTest, IsAnAffineMapByChannel) {
  for (DType dtype : kFloats) {
    for (const Shape& shape :
         {Shape{5}, Shape{3, 1}, Shape{3, 37}, Shape{2, 5, 7}, Shape{2, 3, 5, 9}, Shape{0, 3, 2}}) {
      const int64_t channels = shape.rank() == 1 ? 1 : shape[1];
      const int64_t plane = shape.rank() == 1 ? shape[0] : shape.NumElements(2, shape.rank());
      std::vector<Tensor> inputs = {RandomTensor(dtype, shape, -1, 3, 61)};
      for (uint32_t i = 0; i < 4; ++i) {
        inputs.push_back(RandomTensor(dtype, {channels}, i == 3 ? 0.5 : -1, 2, 62 + i));
      }
      auto y = RunOperator({"BatchNormalization", With({{"epsilon", 0.01f}}), inputs});
      ASSERT_TRUE(y.ok()) << y.status();
      const Doubles x = AsDoubles(inputs[0]), s = AsDoubles(inputs[1]), b = AsDoubles(inputs[2]),
                    m = AsDoubles(inputs[3]), v = AsDoubles(inputs[4]);
      Doubles expected;
      for (size_t e = 0; e < x.size(); ++e) {
        const int64_t c = static_cast<int64_t>(e) / plane % channels;
        expected.push_back((x[e] - m[c]) / std::sqrt(v[c] + 0.01f) * s[c] + b[c]);
      }
      ExpectNear(AsDoubles((*y)[0]), expected, 4 * Tolerance(dtype));
    }
  }
  auto training = RunOperator({"BatchNormalization", With({{"training_mode", int64_t{1}}}),
                               std::vector<Tensor>(5, RandomTensor(DType::kFloat, {1}, 0, 1, 1))});
  EXPECT_EQ(training.status().code(), absl::StatusCode::kUnimplemented);
}

TEST(BatchNormalizationTest, RunsInItsBlockedForm) {
  for (const int64_t channels : {2 * ChannelBlock(), 24, 9}) {
    testing::OperatorCall call{"BatchNormalization", {}};
    call.inputs.push_back(RandomTensor(DType::kFloat, {2, channels, 3, 5}, -1, 3, 71));
    for (uint32_t i = 0; i < 4; ++i) {
      call.inputs.push_back(RandomTensor(DType::kFloat, {channels}, 0.5, 2, 72 + i));
    }
    const auto plain = RunOperator(call);
    ASSERT_TRUE(plain.ok()) << plain.status();
    call.blocked = {.inputs = 1, .outputs = 1};
    const auto blocked = RunOperator(call);
    ASSERT_TRUE(blocked.ok()) << blocked.status();
    ExpectNear(AsDoubles((*blocked)[0]), AsDoubles((*plain)[0]), 1e-6);
  }
}

TEST(MeanVarianceNormalizationTest, NormalisesOverItsAxes) {
  const Shape shape{2, 3, 4, 5};
  for (DType dtype : kFloats) {
    const Tensor x = RandomTensor(dtype, shape, 1, 4, 81);
    auto y = RunOperator({"MeanVarianceNormalization", {}, {x}});
    ASSERT_TRUE(y.ok()) << y.status();
    const Doubles v = AsDoubles(x), out = AsDoubles((*y)[0]);
    for (int64_t c = 0; c < 3; ++c) {
      double mean = 0, square = 0;
      const auto each = [&](auto f) {
        for (int64_t n = 0; n < 2; ++n) {
          for (int64_t p = 0; p < 20; ++p) f((n * 3 + c) * 20 + p);
        }
      };
      each([&](int64_t e) { mean += v[e] / 40; });
      each([&](int64_t e) { square += (v[e] - mean) * (v[e] - mean) / 40; });
      each([&](int64_t e) {
        EXPECT_NEAR(out[e], (v[e] - mean) / (std::sqrt(square) + 1e-9), 3 * Tolerance(dtype));
      });
    }
  }
}

TEST(LpNormalizationTest, GivesUnitVectorsAndKeepsZero) {
  for (DType dtype : kFloats) {
    for (int64_t p : {1, 2}) {
      for (int64_t axis : {0, 1, -1}) {
        const Shape shape{3, 4, 37};
        const Tensor x = RandomTensor(dtype, shape, -2, 2, 91);
        auto y = RunOperator({"LpNormalization", With({{"p", p}, {"axis", axis}}), {x}});
        ASSERT_TRUE(y.ok()) << y.status();
        const int a = axis < 0 ? 2 : static_cast<int>(axis);
        const int64_t n = shape[a], inner = shape.NumElements(a + 1, 3);
        const Doubles v = AsDoubles(x);
        Doubles expected(v.size());
        for (int64_t e = 0; e < x.size(); ++e) {
          double norm = 0;
          for (int64_t i = 0; i < n; ++i) {
            const double u = v[e + (i - e / inner % n) * inner];
            norm += p == 2 ? u * u : std::abs(u);
          }
          expected[e] = v[e] / (p == 2 ? std::sqrt(norm) : norm);
        }
        ExpectNear(AsDoubles((*y)[0]), expected, Tolerance(dtype));
      }
    }
  }
  auto zero = RunOperator({"LpNormalization", {}, {Tensor::Of<float>({2}, {0, 0})}});
  EXPECT_EQ(AsDoubles((*zero)[0]), (Doubles{0, 0}));
}

TEST(LrnTest, DividesByNeighbouringChannels) {
  for (DType dtype : kFloats) {
    for (int64_t size : {1, 3, 4, 99}) {
      for (float beta : {0.75f, 0.6f}) {
        const Tensor x = RandomTensor(dtype, {2, 5, 3, 101}, -2, 2, 95);
        auto y = RunOperator(
            {"LRN", With({{"size", size}, {"alpha", 0.5f}, {"beta", beta}, {"bias", 2.0f}}), {x}});
        ASSERT_TRUE(y.ok()) << y.status();
        const Doubles v = AsDoubles(x);
        Doubles expected(v.size());
        constexpr int64_t kPlane = 303;
        for (int64_t e = 0; e < x.size(); ++e) {
          const int64_t c = e / kPlane % 5;
          double sum = 0;
          for (int64_t k = std::max<int64_t>(0, c - (size - 1) / 2);
               k <= std::min<int64_t>(4, c + size / 2); ++k) {
            const double u = v[e + (k - c) * kPlane];
            sum += u * u;
          }
          expected[e] = v[e] / std::pow(2 + 0.5 / static_cast<double>(size) * sum, beta);
        }
        ExpectNear(AsDoubles((*y)[0]), expected, Tolerance(dtype));
      }
    }
  }
}

TEST(NormalizationTest, RefusesOperandsOfAnotherType) {
  const Tensor x = RandomTensor(DType::kFloat, {2, 4, 4}, -1, 1, 1);
  const Tensor wide = RandomTensor(DType::kDouble, {4}, 1, 2, 2);
  const Tensor narrow = RandomTensor(DType::kFloat16, {4}, 1, 2, 2);
  for (const auto& [scale, code] :
       {std::pair{wide, absl::StatusCode::kInvalidArgument}, {narrow, absl::StatusCode::kOk}}) {
    const testing::OperatorCall calls[] = {
        {"LayerNormalization", {}, {x, scale}},
        {"SkipLayerNorm", {}, {x, x, Tensor(), scale}, 1, "chairlift"},
        {"InstanceNormalization", {}, {x, scale, scale}},
        {"BatchNormalization", {}, {x, scale, scale, scale, scale}},
    };
    for (const auto& call : calls) EXPECT_EQ(RunOperator(call).status().code(), code) << call.name;
  }
}

// Runs parts from the last, under three worker numbers.
class BackwardsTeam : public Team {
 public:
  int width() const override { return 3; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = parts - 1; p >= 0; --p) body(p, p % 3);
    parts_ += parts;
  }
  int parts_ = 0;
};

TEST(NormalizationTest, LargeInputsAreSharedByTheTeam) {
  const Tensor x = RandomTensor(DType::kFloat, {100, 512}, -1, 1, 99);
  const Tensor cube = RandomTensor(DType::kFloat, {4, 8, 1500}, -1, 1, 98);
  const Tensor row = RandomTensor(DType::kFloat, {512}, -1, 1, 97);
  const Tensor eight = RandomTensor(DType::kFloat, {8}, 0.5, 1, 96);
  const testing::OperatorCall calls[] = {
      {"Softmax", {}, {x}},
      {"Softmax", With({{"axis", int64_t{1}}}), {cube}},
      {"LayerNormalization", {}, {x, row, row}, 3},
      {"SkipLayerNorm", {}, {x, x, row, row, row}, 2, "chairlift"},
      {"InstanceNormalization", {}, {cube, eight, eight}},
      {"BatchNormalization", {}, {cube, eight, eight, eight, eight}},
  };
  for (const testing::OperatorCall& call : calls) {
    BackwardsTeam team;
    auto alone = RunOperator(call);
    auto shared = RunOperator(call, &team);
    ASSERT_TRUE(alone.ok() && shared.ok()) << alone.status();
    EXPECT_GT(team.parts_, 1) << call.name;
    for (size_t i = 0; i < alone->size(); ++i) {
      EXPECT_EQ(AsDoubles((*alone)[i]), AsDoubles((*shared)[i])) << call.name;
    }
  }
}

TEST(RmsNormalizationTest, MatchesTheFormulaFromEveryAxis) {
  for (const DType dtype : kFloats) {
    for (const Shape& shape :
         {Shape{1}, Shape{0, 7}, Shape{3, 33}, Shape{2, 5, 16}, Shape{70, 65}}) {
      for (int64_t axis = -1; axis < shape.rank(); ++axis) {
        const int a = axis < 0 ? shape.rank() - 1 : static_cast<int>(axis);
        const Shape normalised(shape.dims().subspan(static_cast<size_t>(a)));
        const int64_t n = normalised.NumElements();
        const Tensor x = RandomTensor(dtype, shape, -3, 3, 5);
        const Tensor scale = RandomTensor(dtype, normalised, -2, 2, 6);
        const auto y = RunOperator(
            {"RMSNormalization", With({{"axis", axis}, {"epsilon", 0.1f}}), {x, scale}});
        ASSERT_TRUE(y.ok()) << y.status();
        const Doubles v = AsDoubles(x), s = AsDoubles(scale);
        Doubles expected(v.size());
        for (size_t e = 0; e < v.size(); ++e) {
          const size_t row = e / static_cast<size_t>(n) * static_cast<size_t>(n);
          double squares = 0;
          for (int64_t i = 0; i < n; ++i) squares += v[row + i] * v[row + i];
          expected[e] = v[e] / std::sqrt(squares / static_cast<double>(n) + 0.1f) * s[e - row];
        }
        ExpectNear(AsDoubles((*y)[0]), expected, 2 * Tolerance(dtype));
      }
    }
  }
}

TEST(RmsNormalizationTest, TheResultIsOfTheScalesType) {
  const Tensor x = RandomTensor(DType::kFloat16, {2, 8}, -1, 1, 1);
  const Tensor scale = RandomTensor(DType::kFloat, {8}, -1, 1, 2);
  const auto y = RunOperator({"RMSNormalization", {}, {x, scale}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].dtype(), DType::kFloat);
}

}  // namespace
}  // namespace chairlift
