// Where, Clip, PRelu, variadic folds, tests of floats, Identity, Dropout and Cast.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace select_test {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;
using Doubles = std::vector<double>;

constexpr DType kEveryType[] = {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,  DType::kInt16,  DType::kInt32,   DType::kInt64,
                                DType::kUInt8, DType::kUInt16, DType::kUInt32,  DType::kUInt64,
                                DType::kBool};

Attributes With(const char* name, AttributeValue value) {
  Attributes a;
  a.Set(name, std::move(value));
  return a;
}

TEST(WhereTest, PicksBroadcastOperandsOfEveryType) {
  const struct {
    Shape condition, x, y;
  } shapes[] = {{{3, 7}, {3, 7}, {3, 7}}, {{3, 7}, {3, 7}, {}},  {{3, 7}, {}, {3, 7}},
                {{3, 7}, {}, {}},         {{3, 1}, {7}, {3, 7}}, {{}, {3, 7}, {3, 7}},
                {{}, {7}, {3, 1}},        {{1}, {3, 1}, {1, 7}}};
  for (DType dtype : kEveryType) {
    for (const auto& [cs, xs, ys] : shapes) {
      const Tensor c = RandomTensor(DType::kBool, cs, 0, 1, 5);
      const Tensor x = RandomTensor(dtype, xs, 0, 100, 6);
      const Tensor y = RandomTensor(dtype, ys, 0, 100, 7);
      auto out = RunOperator({"Where", {}, {c, x, y}});
      ASSERT_TRUE(out.ok()) << out.status();
      ASSERT_EQ((*out)[0].shape(), (Shape{3, 7}));
      const Doubles cv = AsDoubles(c), xv = AsDoubles(x), yv = AsDoubles(y);
      const auto at = [](const Doubles& v, const Shape& s, int i, int j) {
        const int64_t rows = s.rank() == 2 ? s[0] : 1;
        const int64_t cols = s.rank() >= 1 ? s[s.rank() - 1] : 1;
        return v[(rows == 1 ? 0 : i) * cols + (cols == 1 ? 0 : j)];
      };
      const Doubles actual = AsDoubles((*out)[0]);
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 7; ++j) {
          EXPECT_EQ(actual[i * 7 + j], at(cv, cs, i, j) != 0 ? at(xv, xs, i, j) : at(yv, ys, i, j));
        }
      }
    }
  }
}

TEST(ClipTest, HoldsBetweenOptionalBounds) {
  for (DType dtype : kEveryType) {
    if (dtype == DType::kBool) continue;
    const Tensor x = RandomTensor(dtype, {5, 21}, 0, 100, 8);
    const Tensor low = RandomTensor(dtype, {}, 20, 20.5, 9);
    const Tensor high = RandomTensor(dtype, {}, 70, 70.5, 10);
    const double lo = AsDoubles(low)[0], hi = AsDoubles(high)[0];
    const Doubles in = AsDoubles(x);
    const auto check = [&](std::vector<Tensor> inputs, double from, double to) {
      auto y = RunOperator({"Clip", {}, std::move(inputs)});
      ASSERT_TRUE(y.ok()) << y.status();
      const Doubles out = AsDoubles((*y)[0]);
      for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i], std::min(std::max(in[i], from), to));
    };
    check({x, low, high}, lo, hi);
    check({x, low}, lo, 1e9);
    check({x, Tensor(), high}, -1e9, hi);
    check({x}, -1e9, 1e9);
    check({x, high, low}, hi, lo);  // crossed: the upper bound holds
  }
}

TEST(PReluTest, ScalesNegativesByABroadcastSlope) {
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64}) {
    const Tensor x = RandomTensor(dtype, {2, 3, 11}, -20, 20, 11);
    const Tensor slope = RandomTensor(dtype, {3, 1}, 1, 9, 12);
    auto y = RunOperator({"PRelu", {}, {x, slope}});
    ASSERT_TRUE(y.ok()) << y.status();
    const Doubles in = AsDoubles(x), s = AsDoubles(slope), out = AsDoubles((*y)[0]);
    for (size_t i = 0; i < in.size(); ++i) {
      const double expected = in[i] < 0 ? in[i] * s[i / 11 % 3] : in[i];
      EXPECT_NEAR(out[i], expected, std::abs(expected) * 0x1p-24);
    }
  }
  auto grows =
      RunOperator({"PRelu", {}, {Tensor::Of<float>({1}, {1}), Tensor::Of<float>({2}, {1, 2})}});
  EXPECT_EQ(grows.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(VariadicTest, FoldsOneAndManyOperands) {
  const Tensor a = Tensor::Of<float>({2, 2}, {1, -2, 3, 4});
  const Tensor b = Tensor::Of<float>({2}, {0, 5});
  const Tensor c = Tensor::Scalar<float>(2);
  const auto of = [](const char* name, std::vector<Tensor> inputs) {
    auto y = RunOperator({name, {}, std::move(inputs)});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  EXPECT_EQ(of("Max", {a}), (Doubles{1, -2, 3, 4}));
  EXPECT_EQ(of("Max", {a, b, c}), (Doubles{2, 5, 3, 5}));
  EXPECT_EQ(of("Min", {a, b, c}), (Doubles{0, -2, 0, 2}));
  EXPECT_EQ(of("Sum", {a, b, c}), (Doubles{3, 5, 5, 11}));
  EXPECT_EQ(of("Mean", {a, b, c, c}), (Doubles{1.25, 1.75, 1.75, 3.25}));
}

TEST(VariadicTest, NanWinsOnEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : {"Max", "Min"}) {
    auto y = RunOperator(
        {name, {}, {Tensor::Of<float>({2}, {nan, 1}), Tensor::Of<float>({2}, {1, nan})}});
    ASSERT_TRUE(y.ok());
    for (double v : AsDoubles((*y)[0])) EXPECT_TRUE(std::isnan(v));
  }
}

TEST(ShrinkTest, PullsTowardsZero) {
  Attributes a = With("lambd", 1.5f);
  a.Set("bias", 1.0f);
  auto y = RunOperator({"Shrink", a, {Tensor::Of<float>({4}, {-2, -1, 1.5, 4})}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{-1, 0, 0, 3}));
}

TEST(FloatTestsTest, TellNanAndSignedInfinities) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::Of<float>({4}, {nan, inf, -inf, 1});
  const auto of = [&](const char* name, Attributes a) {
    auto y = RunOperator({name, std::move(a), {x}});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  EXPECT_EQ(of("IsNaN", {}), (Doubles{1, 0, 0, 0}));
  EXPECT_EQ(of("IsInf", {}), (Doubles{0, 1, 1, 0}));
  EXPECT_EQ(of("IsInf", With("detect_negative", int64_t{0})), (Doubles{0, 1, 0, 0}));
  EXPECT_EQ(of("IsInf", With("detect_positive", int64_t{0})), (Doubles{0, 0, 1, 0}));
}

TEST(LogicTest, NotInvertsTruthAndBits) {
  auto y = RunOperator({"Not", {}, {RandomTensor(DType::kBool, {9}, 0, 1, 3)}});
  auto z = RunOperator({"Not", {}, {(*y)[0]}});
  EXPECT_EQ(AsDoubles((*z)[0]), AsDoubles(RandomTensor(DType::kBool, {9}, 0, 1, 3)));
  EXPECT_NE(AsDoubles((*y)[0]), AsDoubles((*z)[0]));
  auto bits = RunOperator({"BitwiseNot", {}, {Tensor::Of<int16_t>({2}, {0, -7})}});
  EXPECT_EQ(AsDoubles((*bits)[0]), (Doubles{-1, 6}));
}

TEST(PowTest, ExponentsOfAnotherTypeAndSpecialPowers) {
  const Tensor x = Tensor::Of<float>({3}, {4, 9, 2.25});
  for (double power : {0.5, 2.0, 3.0, -1.5}) {
    auto y = RunOperator({"Pow", {}, {x, Tensor::Scalar<double>(power)}});
    ASSERT_TRUE(y.ok()) << y.status();
    const Doubles in = AsDoubles(x), out = AsDoubles((*y)[0]);
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(out[i], std::pow(in[i], power), 1e-6 * std::pow(in[i], power));
    }
  }
  auto y = RunOperator(
      {"Pow", {}, {Tensor::Of<int32_t>({3}, {2, -1, 0}), Tensor::Of<int64_t>({3}, {10, -3, -2})}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{1024, -1, 0}));
}

TEST(IdentityTest, DropoutHandsOnItsInputAndAFullMask) {
  const Tensor x = RandomTensor(DType::kFloat, {3, 5}, -1, 1, 2);
  auto y = RunOperator({"Dropout", {}, {x}, 2});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(AsDoubles((*y)[0]), AsDoubles(x));
  EXPECT_EQ(AsDoubles((*y)[1]), Doubles(15, 1));
  auto training = RunOperator({"Dropout", {}, {x, Tensor::Scalar(0.5f), Tensor::Scalar(true)}, 1});
  EXPECT_EQ(training.status().code(), absl::StatusCode::kUnimplemented);
  auto same = RunOperator({"Identity", {}, {x}});
  EXPECT_EQ(AsDoubles((*same)[0]), AsDoubles(x));
}

int64_t OnnxNumber(DType dtype) {
  constexpr int64_t kNumbers[] = {0, 1, 11, 10, 16, 3, 5, 6, 7, 2, 4, 12, 13, 9};
  return kNumbers[static_cast<int>(dtype)];
}

TEST(CastTest, SmallNumbersSurviveBetweenAllTypes) {
  for (DType from : kEveryType) {
    for (DType to : kEveryType) {
      Tensor x = RandomTensor(from, {3, 11}, 0, 100, 4);
      auto y = RunOperator({"Cast", With("to", OnnxNumber(to)), {x}});
      ASSERT_TRUE(y.ok()) << y.status();
      ASSERT_EQ((*y)[0].dtype(), to);
      auto like = RunOperator({"CastLike", {}, {x, (*y)[0]}});
      ASSERT_TRUE(like.ok()) << like.status();
      const Doubles in = AsDoubles(x), out = AsDoubles((*y)[0]);
      EXPECT_EQ(AsDoubles((*like)[0]), out);
      for (size_t i = 0; i < in.size(); ++i) {
        const double expected = to == DType::kBool           ? in[i] != 0
                                : kIntegerTypes.Contains(to) ? std::trunc(in[i])
                                                             : in[i];
        const double ulp = to == DType::kBFloat16  ? 0x1p-8
                           : to == DType::kFloat16 ? 0x1p-11
                           : to == DType::kFloat   ? 0x1p-24
                                                   : 0;
        EXPECT_NEAR(out[i], expected, ulp * expected) << DTypeName(from) << " " << DTypeName(to);
      }
    }
  }
}

TEST(CastTest, OutOfRangeFloatsStopAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({6}, {inf, -inf, nan, 3e9f, -3e9f, -1.5f});
  auto y = RunOperator({"Cast", With("to", OnnxNumber(DType::kInt32)), {x}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]),
            (Doubles{2147483647, -2147483648.0, 0, 2147483647, -2147483648.0, -1}));
  auto u = RunOperator({"Cast", With("to", OnnxNumber(DType::kUInt8)), {x}});
  EXPECT_EQ(AsDoubles((*u)[0]), (Doubles{255, 0, 0, 255, 0, 0}));
  auto bad = RunOperator({"Cast", With("to", int64_t{8}), {x}});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace select_test
}  // namespace chairlift
