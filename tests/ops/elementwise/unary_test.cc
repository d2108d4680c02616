// Functions of one operand against the C library in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace unary_test {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct UnaryCase {
  const char* name;
  std::function<double(double)> reference;
  double low, high;
  // Allowed: |error| <= absolute + relative * |reference|, for float32.
  double relative = 4 * 0x1p-23;
  double absolute = 1e-37;
  Attributes attributes = {};
  const char* domain = "";
};

Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes a;
  for (const auto& [name, value] : values) a.Set(name, value);
  return a;
}

const std::vector<UnaryCase>& Cases() {
  static const std::vector<UnaryCase> cases = {
      {"Abs", [](double x) { return std::abs(x); }, -9, 9, 0, 0},
      {"Neg", [](double x) { return -x; }, -9, 9, 0, 0},
      {"Sign", [](double x) { return double((x > 0) - (x < 0)); }, -2, 2, 0, 0},
      {"Sqrt", [](double x) { return std::sqrt(x); }, 0, 1e6, 0x1p-23},
      {"Reciprocal", [](double x) { return 1 / x; }, 0.01, 50, 0x1p-23},
      {"Exp", [](double x) { return std::exp(x); }, -87, 88},
      {"Log", [](double x) { return std::log(x); }, 1e-6, 3},
      {"Sin", [](double x) { return std::sin(x); }, -50, 50, 4 * 0x1p-23, 1e-7},
      {"Cos", [](double x) { return std::cos(x); }, -50, 50, 4 * 0x1p-23, 1e-7},
      {"Sin", [](double x) { return std::sin(x); }, -1e6, 1e6, 4 * 0x1p-23, 1e-7},
      {"Tan", [](double x) { return std::tan(x); }, -1.5, 1.5},
      {"Asin", [](double x) { return std::asin(x); }, -1, 1},
      {"Acos", [](double x) { return std::acos(x); }, -1, 1},
      {"Atan", [](double x) { return std::atan(x); }, -9, 9},
      {"Sinh", [](double x) { return std::sinh(x); }, -9, 9},
      {"Cosh", [](double x) { return std::cosh(x); }, -9, 9},
      {"Tanh", [](double x) { return std::tanh(x); }, -12, 12, 5 * 0x1p-23},
      {"Tanh", [](double x) { return std::tanh(x); }, -0.01, 0.01},
      {"Asinh", [](double x) { return std::asinh(x); }, -9, 9},
      {"Acosh", [](double x) { return std::acosh(x); }, 1, 9},
      {"Atanh", [](double x) { return std::atanh(x); }, -0.99, 0.99},
      {"Erf", [](double x) { return std::erf(x); }, -6, 6, 0, 5e-7},
      {"Floor", [](double x) { return std::floor(x); }, -9, 9, 0, 0},
      {"Ceil", [](double x) { return std::ceil(x); }, -9, 9, 0, 0},
      {"Round", [](double x) { return std::nearbyint(x); }, -9, 9, 0, 0},
      {"Relu", [](double x) { return std::max(x, 0.0); }, -9, 9, 0, 0},
      {"Sigmoid", Sigmoid, -80, 80, 5 * 0x1p-23},
      {"HardSigmoid", [](double x) { return std::clamp(0.3 * x + 0.4, 0.0, 1.0); }, -6, 6, 1e-6,
       1e-6, With({{"alpha", 0.3f}, {"beta", 0.4f}})},
      {"HardSwish", [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }, -6, 6, 1e-6,
       1e-6},
      {"LeakyRelu", [](double x) { return x < 0 ? 0.125 * x : x; }, -9, 9, 0x1p-23, 0,
       With({{"alpha", 0.125f}})},
      {"ThresholdedRelu", [](double x) { return x > 1.5 ? x : 0; }, -9, 9, 0, 0,
       With({{"alpha", 1.5f}})},
      {"Elu", [](double x) { return x < 0 ? 2 * std::expm1(x) : x; }, -20, 9, 6 * 0x1p-23, 1e-37,
       With({{"alpha", 2.0f}})},
      {"Selu", [](double x) { return 3 * (x < 0 ? 2 * std::expm1(x) : x); }, -20, 9, 6 * 0x1p-23,
       1e-37, With({{"alpha", 2.0f}, {"gamma", 3.0f}})},
      {"Celu", [](double x) { return x < 0 ? 2 * std::expm1(x / 2) : x; }, -20, 9, 6 * 0x1p-23,
       1e-37, With({{"alpha", 2.0f}})},
      {"Softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
       -50, 50},
      {"Softsign", [](double x) { return x / (1 + std::abs(x)); }, -9, 9},
      {"Mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, -20, 30,
       6 * 0x1p-23},
      {"Gelu", [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }, -6, 6, 5e-7,
       2e-6},
      {"Gelu",
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       },
       -6, 6, 5e-7, 2e-6, With({{"approximate", "tanh"}})},
      {"Silu",
       [](double x) { return x * Sigmoid(x); },
       -50,
       50,
       6 * 0x1p-23,
       1e-37,
       {},
       "chairlift"},
  };
  return cases;
}

class UnaryTest : public ::testing::TestWithParam<UnaryCase> {};

TEST_P(UnaryTest, MatchesReferenceForEverySizeAndFloatType) {
  const UnaryCase& c = GetParam();
  const struct {
    DType dtype;
    double ulp;  // of the storage type
  } types[] = {{DType::kFloat, 0},
               {DType::kDouble, 0},
               {DType::kFloat16, 0x1p-10},
               {DType::kBFloat16, 0x1p-7}};
  for (const auto& [dtype, ulp] : types) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7}, Shape{16}, Shape{33},
                               Shape{3, 0, 2}, Shape{5, 67}, Shape{2, 3, 1023}}) {
      // A float16 holds no more than 65504.
      const double bound = dtype == DType::kFloat16 ? 9 : 1e30;
      const Tensor x =
          RandomTensor(dtype, shape, std::max(c.low, -bound), std::min(c.high, bound),
                       static_cast<uint32_t>(shape.rank() * 100 + shape.NumElements()));
      auto y = RunOperator({c.name, c.attributes, {x}, 1, c.domain});
      ASSERT_TRUE(y.ok()) << y.status();
      ASSERT_EQ((*y)[0].dtype(), dtype);
      ASSERT_EQ((*y)[0].shape(), shape);
      const auto in = AsDoubles(x);
      const auto out = AsDoubles((*y)[0]);
      for (size_t i = 0; i < in.size(); ++i) {
        const double expected = c.reference(in[i]);
        const double subnormal = dtype == DType::kFloat16 ? 0x1p-24 : 0;
        const double allowed = c.absolute + subnormal + (c.relative + ulp) * std::abs(expected);
        ASSERT_NEAR(out[i], expected, allowed)
            << c.name << " of " << in[i] << " as " << DTypeName(dtype);
      }
    }
  }
}

TEST_P(UnaryTest, KeepsNan) {
  const UnaryCase& c = GetParam();
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16}) {
    Tensor x = RandomTensor(dtype, {19}, 0, 1, 1);
    testing::SprinkleNaN(x, 1, 1);
    auto y = RunOperator({c.name, c.attributes, {x}, 1, c.domain});
    ASSERT_TRUE(y.ok()) << y.status();
    for (double v : AsDoubles((*y)[0])) {
      // NaN is not above a threshold.
      const bool kept = std::string(c.name) == "ThresholdedRelu" ? v == 0 : std::isnan(v);
      EXPECT_TRUE(kept) << v << " as " << DTypeName(dtype);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, UnaryTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return std::string(info.param.name) + std::to_string(info.index);
});

TEST(UnaryEdgeTest, InfinitiesAndZeroGoWhereTheyShould) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto of = [](const char* name, float x) {
    auto y = RunOperator({name, {}, {Tensor::Of<float>({1}, {x})}});
    EXPECT_TRUE(y.ok()) << y.status();
    return *(*y)[0].data<float>();
  };
  EXPECT_EQ(of("Exp", inf), inf);
  EXPECT_EQ(of("Exp", -inf), 0.0f);
  EXPECT_EQ(of("Exp", 200.0f), inf);
  EXPECT_EQ(of("Log", 0.0f), -inf);
  EXPECT_EQ(of("Log", inf), inf);
  EXPECT_TRUE(std::isnan(of("Log", -1.0f)));
  EXPECT_EQ(of("Tanh", inf), 1.0f);
  EXPECT_EQ(of("Tanh", -inf), -1.0f);
  EXPECT_EQ(of("Sigmoid", inf), 1.0f);
  EXPECT_EQ(of("Sigmoid", -inf), 0.0f);
  EXPECT_EQ(of("Erf", inf), 1.0f);
  EXPECT_EQ(of("Softplus", inf), inf);
  EXPECT_EQ(of("Softplus", -inf), 0.0f);
  EXPECT_EQ(of("Mish", inf), inf);
  EXPECT_EQ(of("Elu", inf), inf);
  EXPECT_EQ(of("Elu", -inf), -1.0f);
  EXPECT_EQ(of("Round", 2.5f), 2.0f);
  EXPECT_EQ(of("Round", -1.5f), -2.0f);
}

TEST(UnaryEdgeTest, IntegersWrapAtTheirEnds) {
  auto abs = RunOperator({"Abs", {}, {Tensor::Of<int8_t>({3}, {-128, -5, 7})}});
  ASSERT_TRUE(abs.ok());
  EXPECT_EQ(AsDoubles((*abs)[0]), (std::vector<double>{-128, 5, 7}));
  auto neg = RunOperator(
      {"Neg", {}, {Tensor::Of<int64_t>({2}, {std::numeric_limits<int64_t>::min(), 4})}});
  ASSERT_TRUE(neg.ok());
  EXPECT_EQ((*neg)[0].data<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ((*neg)[0].data<int64_t>()[1], -4);
}

}  // namespace unary_test
}  // namespace chairlift
