// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear against their formulas, element by
// element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::OperatorCall;
using testing::RunOperator;

Tensor RandomFloats(const Shape& shape, float low, float high, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::uniform_real_distribution<float> uniform(low, high);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = uniform(random);
  return t;
}
template <typename Q>
Tensor RandomIntegers(const Shape& shape, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DTypeOf<Q>::kValue, shape);
  std::uniform_int_distribution<int64_t> uniform(std::numeric_limits<Q>::lowest(),
                                                 std::numeric_limits<Q>::max());
  for (int64_t i = 0; i < t.size(); ++i) t.data<Q>()[i] = static_cast<Q>(uniform(random));
  return t;
}

template <typename Q>
double Nearest(float x, int64_t zero) {
  const double v = std::nearbyint(static_cast<double>(x)) + static_cast<double>(zero);
  return std::min<double>(std::max<double>(v, std::numeric_limits<Q>::lowest()),
                          std::numeric_limits<Q>::max());
}

// A tensor, and which scale each of its elements has: by axis (−1: all one) and block (0: none).
struct Layout {
  Shape x;
  Shape scale;
  int64_t axis = 0;
  int64_t block = 0;

  int64_t ScaleOf(int64_t element) const {
    if (scale.NumElements() == 1 && block == 0) return 0;
    std::vector<int64_t> index(x.rank());
    for (int i = x.rank(); i-- > 0; element /= x[i]) index[i] = element % x[i];
    const int64_t a = axis < 0 ? axis + x.rank() : axis;
    if (block == 0) return index[a];
    index[a] /= block;
    int64_t at = 0;
    for (int i = 0; i < x.rank(); ++i) at = at * scale[i] + index[i];
    return at;
  }
};
const std::vector<Layout>& Layouts() {
  static const auto* const kLayouts = new std::vector<Layout>{
      {Shape{}, Shape{}, 1},
      {Shape{0}, Shape{}, 1},
      {Shape{1}, Shape{1}, 0},
      {Shape{37}, Shape{}, 1},
      {Shape{5, 7, 3}, Shape{}, 1},
      {Shape{5, 7, 3}, Shape{1}, 1},
      {Shape{5, 7, 3}, Shape{5}, 0},
      {Shape{5, 7, 3}, Shape{7}, 1},
      {Shape{5, 7, 33}, Shape{33}, 2},
      {Shape{5, 7, 33}, Shape{33}, -1},
      {Shape{4, 1, 9}, Shape{9}, -1},
      {Shape{4, 10}, Shape{4, 5}, 1, 2},
      {Shape{4, 11}, Shape{4, 4}, -1, 3},
      {Shape{10, 3}, Shape{4, 3}, 0, 3},
      {Shape{2, 10, 3}, Shape{2, 1, 3}, 1, 10},
      {Shape{1}, Shape{1}, 0, 1},
  };
  return *kLayouts;
}
std::string Describe(const Layout& l) {
  return fmt::format("x {} scale {} axis {} block {}", l.x.ToString(), l.scale.ToString(), l.axis,
                     l.block);
}
void SetLayout(const Layout& l, OperatorCall& call) {
  call.attributes.Set("axis", l.axis);
  if (l.block != 0) call.attributes.Set("block_size", l.block);
}

template <typename Q>
void CheckQuantize(bool has_zero, std::mt19937& random) {
  for (const Layout& l : Layouts()) {
    SCOPED_TRACE(Describe(l));
    // Some values land past the ends of the type.
    const float reach = 0.6f * static_cast<float>(std::numeric_limits<Q>::max());
    const Tensor x = RandomFloats(l.x, -reach, reach, random);
    const Tensor scale = RandomFloats(l.scale, 0.25f, 2.0f, random);
    const Tensor zero = RandomIntegers<Q>(l.scale, random);
    OperatorCall call{.name = "QuantizeLinear", .inputs = {x, scale}};
    SetLayout(l, call);
    if (has_zero) {
      call.inputs.push_back(zero);
    } else {
      const int64_t type = DTypeOf<Q>::kValue == DType::kInt8     ? 3
                           : DTypeOf<Q>::kValue == DType::kUInt16 ? 4
                           : DTypeOf<Q>::kValue == DType::kInt16  ? 5
                                                                  : 2;
      call.attributes.Set("output_dtype", type);
    }
    const auto got = RunOperator(call);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ((*got)[0].dtype(), DTypeOf<Q>::kValue);
    ASSERT_EQ((*got)[0].shape(), l.x);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t s = l.ScaleOf(i);
      const double want =
          Nearest<Q>(x.data<float>()[i] / scale.data<float>()[s], has_zero ? zero.data<Q>()[s] : 0);
      ASSERT_EQ((*got)[0].data<Q>()[i], want) << "element " << i;
    }
  }
}

TEST(QuantizeLinearTest, EveryTypeAndLayoutFollowsTheFormula) {
  std::mt19937 random(31);
  for (bool has_zero : {true, false}) {
    CheckQuantize<int8_t>(has_zero, random);
    CheckQuantize<uint8_t>(has_zero, random);
    CheckQuantize<int16_t>(has_zero, random);
    CheckQuantize<uint16_t>(has_zero, random);
  }
}

TEST(QuantizeLinearTest, TiesGoToEvenAndTheFarAwayToTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto got = RunOperator(
      {.name = "QuantizeLinear",
       .inputs = {Tensor::Of<float>(Shape{13}, {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 1e30f,
                                                -1e30f, inf, -inf, 127.49f, -128.6f, 126.5f}),
                  Tensor::Scalar(1.0f), Tensor::Scalar<int8_t>(0)}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].values<int8_t>(),
              ::testing::ElementsAre(0, 2, 2, 0, -2, -2, 127, -128, 127, -128, 127, -128, 126));
}

TEST(QuantizeLinearTest, IntegersAndHalvesAreTaken) {
  const auto integers =
      RunOperator({.name = "QuantizeLinear",
                   .inputs = {Tensor::Of<int32_t>(Shape{4}, {-9, 3, 5, 1000000000}),
                              Tensor::Scalar(2.0f), Tensor::Scalar<uint8_t>(128)}});
  ASSERT_TRUE(integers.ok()) << integers.status();
  EXPECT_THAT((*integers)[0].values<uint8_t>(), ::testing::ElementsAre(124, 130, 130, 255));
  const auto halves =
      RunOperator({.name = "QuantizeLinear",
                   .inputs = {Tensor::Of<Float16>(Shape{2}, {Float16(1.5f), Float16(-3.0f)}),
                              Tensor::Scalar(Float16(0.5f))}});
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_THAT((*halves)[0].values<uint8_t>(), ::testing::ElementsAre(3, 0));
}

TEST(QuantizeLinearTest, WhatDoesNotFitIsRefused) {
  std::mt19937 random(32);
  const Tensor x = RandomFloats(Shape{4, 6}, -1, 1, random);
  const auto status = [&](Shape scale, Attributes attributes, Tensor zero = Tensor()) {
    OperatorCall call{.name = "QuantizeLinear",
                      .attributes = std::move(attributes),
                      .inputs = {x, RandomFloats(scale, 1, 2, random)}};
    if (zero.present()) call.inputs.push_back(zero);
    return RunOperator(call).status();
  };
  const auto with = [](std::initializer_list<std::pair<const char*, int64_t>> values) {
    Attributes a;
    for (const auto& [name, value] : values) a.Set(name, value);
    return a;
  };
  using absl::StatusCode;
  EXPECT_EQ(status(Shape{4}, with({})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{6}, with({{"axis", 2}})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{6}, with({{"axis", -3}})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{2, 6}, with({{"axis", 0}, {"block_size", 3}})).code(), StatusCode::kOk);
  EXPECT_EQ(status(Shape{3, 6}, with({{"axis", 0}, {"block_size", 3}})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{4, 6}, with({{"block_size", -1}})).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{6}, with({}), Tensor::Of<int8_t>(Shape{2}, {1, 2})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(status(Shape{}, with({{"output_dtype", 22}})).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status(Shape{}, with({{"output_dtype", 2}}), Tensor::Scalar<int8_t>(1)).code(),
            StatusCode::kInvalidArgument);
}

template <typename Q>
void CheckDequantize(bool has_zero, std::mt19937& random) {
  for (const Layout& l : Layouts()) {
    SCOPED_TRACE(Describe(l));
    const Tensor x = RandomIntegers<Q>(l.x, random);
    const Tensor scale = RandomFloats(l.scale, 0.25f, 2.0f, random);
    const Tensor zero = RandomIntegers<Q>(l.scale, random);
    OperatorCall call{.name = "DequantizeLinear", .inputs = {x, scale}};
    SetLayout(l, call);
    if (has_zero) call.inputs.push_back(zero);
    const auto got = RunOperator(call);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ((*got)[0].shape(), l.x);
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t s = l.ScaleOf(i);
      const double want = (static_cast<double>(x.data<Q>()[i]) -
                           static_cast<double>(has_zero ? zero.data<Q>()[s] : 0)) *
                          static_cast<double>(scale.data<float>()[s]);
      ASSERT_NEAR((*got)[0].data<float>()[i], want, std::abs(want) * 1.5e-7) << "element " << i;
    }
  }
}

TEST(DequantizeLinearTest, EveryTypeAndLayoutFollowsTheFormula) {
  std::mt19937 random(33);
  for (bool has_zero : {true, false}) {
    CheckDequantize<int8_t>(has_zero, random);
    CheckDequantize<uint8_t>(has_zero, random);
    CheckDequantize<int16_t>(has_zero, random);
    CheckDequantize<uint16_t>(has_zero, random);
    CheckDequantize<int32_t>(has_zero, random);
  }
}

TEST(DequantizeLinearTest, AnswersInTheTypeOfTheScale) {
  const auto got = RunOperator(
      {.name = "DequantizeLinear",
       .inputs = {Tensor::Of<int8_t>(Shape{2}, {4, -6}), Tensor::Scalar(BFloat16(0.5f))}});
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ((*got)[0].dtype(), DType::kBFloat16);
  EXPECT_EQ(static_cast<float>((*got)[0].data<BFloat16>()[0]), 2);
  EXPECT_EQ(static_cast<float>((*got)[0].data<BFloat16>()[1]), -3);
}

TEST(DynamicQuantizeLinearTest, TheRangeIncludesZero) {
  std::mt19937 random(34);
  for (const auto& [low, high] :
       std::vector<std::pair<float, float>>{{-1, 1}, {2, 5}, {-7, -3}, {-0.001f, 400}, {0, 0}}) {
    for (int64_t n : {0, 1, 7, 8, 9, 1000}) {
      const Tensor x = RandomFloats(Shape{n}, low, high, random);
      const auto got =
          RunOperator({.name = "DynamicQuantizeLinear", .inputs = {x}, .num_outputs = 3});
      ASSERT_TRUE(got.ok()) << got.status();
      float least = 0;
      float most = 0;
      for (float v : x.values<float>()) {
        least = std::min(least, v);
        most = std::max(most, v);
      }
      const float scale = most == least ? 1 : (most - least) / 255;
      const double zero = Nearest<uint8_t>(-least / scale, 0);
      EXPECT_EQ(*(*got)[1].data<float>(), scale);
      EXPECT_EQ(*(*got)[2].data<uint8_t>(), zero);
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ((*got)[0].data<uint8_t>()[i],
                  Nearest<uint8_t>(x.data<float>()[i] / scale, static_cast<int64_t>(zero)));
      }
    }
  }
}

// Workers take denormals for zero, and zero by zero is not a number.
TEST(QuantizationScaleTest, DenormalScalesCount) {
  const float scale = 1e-39f;
  auto y = RunOperator({"QuantizeLinear",
                        {},
                        {Tensor::Of<float>({5}, {0, 2e-39f, -3e-39f, 1, -1}), Tensor::Scalar(scale),
                         Tensor::Scalar(int8_t{1})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].values<int8_t>(), ::testing::ElementsAre(1, 3, -2, 127, -128));
  auto x = RunOperator(
      {"DequantizeLinear",
       {},
       {Tensor::Of<int8_t>({2}, {0, 100}), Tensor::Scalar(scale), Tensor::Scalar(int8_t{0})}});
  ASSERT_TRUE(x.ok()) << x.status();
  EXPECT_EQ((*x)[0].values<float>()[0], 0);
  EXPECT_NEAR((*x)[0].values<float>()[1], 1e-37, 1e-42);
}

TEST(QuantizationScaleTest, ARangeWiderThanAFloatHasAScale) {
  auto y = RunOperator(
      {"DynamicQuantizeLinear", {}, {Tensor::Of<float>({4}, {-3e38f, 0, 3e38f, 1})}, 3});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_NEAR((*y)[1].values<float>()[0] / (6e38 / 255), 1, 1e-6);
  const int zero = (*y)[2].values<uint8_t>()[0];
  EXPECT_THAT((*y)[0].values<uint8_t>(), ::testing::ElementsAre(0, zero, 255, zero));
}

// (sum · 1e30 · 1e30) / 1e30 is no infinity.
TEST(QuantizationScaleTest, ProductsOfLargeScalesAreDivided) {
  const auto scale = [](float v) { return Tensor::Scalar(v); };
  const Tensor zero = Tensor::Scalar(int8_t{0});
  auto product = RunOperator(
      {"QLinearMatMul",
       {},
       {Tensor::Of<int8_t>({1, 2}, {3, 0}), scale(1e30f), zero,
        Tensor::Of<int8_t>({2, 2}, {2, 0, 5, 7}), scale(1e30f), zero, scale(1e38f), zero}});
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_THAT((*product)[0].values<int8_t>(), ::testing::ElementsAre(127, 0));
  auto conv =
      RunOperator({"QLinearConv",
                   {},
                   {Tensor::Of<int8_t>({1, 1, 3}, {3, 0, 1}), scale(1e20f), zero,
                    Tensor::Of<int8_t>({1, 1, 1}, {1}), scale(1e20f), zero, scale(2.5e38f), zero}});
  ASSERT_TRUE(conv.ok()) << conv.status();
  EXPECT_THAT((*conv)[0].values<int8_t>(), ::testing::ElementsAre(120, 0, 40));
}

}  // namespace
}  // namespace chairlift
