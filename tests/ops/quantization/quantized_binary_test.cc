// chairlift::QLinearAdd, QLinearMul and Requantize against their formulas in long double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::RunOperator;

template <typename Q>
Tensor Spread(const Shape& shape, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DTypeOf<Q>::kValue, shape);
  std::uniform_int_distribution<int> uniform(std::numeric_limits<Q>::lowest(),
                                             std::numeric_limits<Q>::max());
  for (int64_t i = 0; i < t.size(); ++i) t.data<Q>()[i] = static_cast<Q>(uniform(random));
  return t;
}
template <typename Q>
Q Pick(std::mt19937& random) {
  return Spread<Q>({1}, random).template data<Q>()[0];
}
// Usual scales, and (one in three) any at all: masks have 2.7e36.
float PickScale(std::mt19937& random, bool extreme) {
  const auto at = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  if (!extreme || random() % 3 != 0) return static_cast<float>(std::exp2(at(-8, 2)));
  return static_cast<float>(std::exp2(at(-126, 127)));
}

Tensor Compute(const char* name, const std::vector<Tensor>& inputs) {
  auto y = RunOperator({.name = name, .inputs = inputs, .domain = "chairlift"});
  EXPECT_TRUE(y.ok()) << y.status();
  return (*y)[0];
}

// Whether y is `value` rounded and held to Q's range, or, that near a tie, its neighbour.
template <typename Q>
::testing::AssertionResult Rounds(long double value, int y) {
  const auto held = [](long double v) {
    return static_cast<int>(std::min<long double>(
        std::max<long double>(v, std::numeric_limits<Q>::lowest()), std::numeric_limits<Q>::max()));
  };
  const long double slack = 1e-5L * (1 + std::abs(value));
  if (y == held(std::nearbyint(value - slack)) || y == held(std::nearbyint(value + slack))) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << y << " for " << static_cast<double>(value);
}

template <typename Q>
void CheckBinaries(bool extreme) {
  std::mt19937 random(7);
  const std::pair<Shape, Shape> kShapes[] = {
      {{5}, {5}},          {{}, {}},         {{2, 3, 33}, {3, 1}},    {{1}, {40}},
      {{4, 1, 7}, {5, 1}}, {{0, 3}, {1, 3}}, {{3, 70000}, {3, 70000}}};
  for (int round = 0; round < 30; ++round) {
    for (const auto& [a_shape, b_shape] : kShapes) {
      if (round > 0 && a_shape.NumElements() > 1000) continue;
      const Tensor a = Spread<Q>(a_shape, random), b = Spread<Q>(b_shape, random);
      const float as = PickScale(random, extreme), bs = PickScale(random, extreme),
                  ys = PickScale(random, extreme);
      const Q az = Pick<Q>(random), bz = Pick<Q>(random), yz = Pick<Q>(random);
      const std::vector<Tensor> inputs = {a,
                                          Tensor::Scalar(as),
                                          Tensor::Scalar(az),
                                          b,
                                          Tensor::Scalar(bs),
                                          Tensor::Scalar(bz),
                                          Tensor::Scalar(ys),
                                          Tensor::Scalar(yz)};
      for (const bool sum : {true, false}) {
        const Tensor y = Compute(sum ? "QLinearAdd" : "QLinearMul", inputs);
        // Both operands spread to y's shape by numpy's rules.
        const auto at = [&](const Tensor& t, int64_t i) {
          int64_t place = 0, stride = 1;
          for (int d = y.shape().rank() - 1, k = t.shape().rank() - 1; d >= 0; --d, --k) {
            const int64_t index = i % y.shape()[d];
            i /= y.shape()[d];
            if (k < 0) continue;
            if (t.shape()[k] != 1) place += index * stride;
            stride *= t.shape()[k];
          }
          return static_cast<int>(t.data<Q>()[place]);
        };
        for (int64_t i = 0; i < y.size(); ++i) {
          const long double va = at(a, i) - az, vb = at(b, i) - bz;
          const long double real =
              sum ? va * as + vb * bs : va * as * (vb * static_cast<long double>(bs));
          ASSERT_TRUE(Rounds<Q>(real / ys + yz, y.data<Q>()[i]))
              << (sum ? "sum " : "product ") << as << " " << bs << " " << ys;
        }
      }
    }
  }
}

TEST(QuantizedBinaryTest, MatchTheirFormulas) {
  CheckBinaries<int8_t>(false);
  CheckBinaries<uint8_t>(false);
}
TEST(QuantizedBinaryTest, HoldForScalesThatOverflow) {
  CheckBinaries<int8_t>(true);
  CheckBinaries<uint8_t>(true);
}

TEST(QuantizedBinaryTest, ZeroTimesAMaskIsZero) {
  const auto y = Compute("QLinearMul", {Tensor::Of<int8_t>({4}, {0, 1, 0, 1}), Tensor::Scalar(1.0f),
                                        Tensor::Scalar(int8_t{0}), Tensor::Scalar(int8_t{-127}),
                                        Tensor::Scalar(2.6793887e36f), Tensor::Scalar(int8_t{0}),
                                        Tensor::Scalar(1.0f), Tensor::Scalar(int8_t{0})});
  EXPECT_THAT(y.values<int8_t>(), ElementsAre(0, -128, 0, -128));
}

TEST(QuantizedBinaryTest, OppositeMasksCancel) {
  const auto y =
      Compute("QLinearAdd", {Tensor::Of<int8_t>({3}, {127, 127, -128}), Tensor::Scalar(3e38f),
                             Tensor::Scalar(int8_t{0}), Tensor::Of<int8_t>({3}, {-127, 0, 0}),
                             Tensor::Scalar(3e38f), Tensor::Scalar(int8_t{0}),
                             Tensor::Scalar(1e-3f), Tensor::Scalar(int8_t{5})});
  EXPECT_THAT(y.values<int8_t>(), ElementsAre(5, 127, -128));
}

// As ONNX Runtime rounds: after the zero point is added.
TEST(QuantizedBinaryTest, TiesGoToTheEvenResult) {
  const auto with = [](const char* name, uint8_t zero) {
    const Tensor y = Compute(
        name,
        {Tensor::Of<uint8_t>({4}, {1, 3, 5, 7}), Tensor::Scalar(0.5f), Tensor::Scalar(uint8_t{0}),
         Tensor::Scalar(static_cast<uint8_t>(name[7] == 'A' ? 0 : 1)), Tensor::Scalar(1.0f),
         Tensor::Scalar(uint8_t{0}), Tensor::Scalar(1.0f), Tensor::Scalar(zero)});
    return std::vector<int>(y.values<uint8_t>().begin(), y.values<uint8_t>().end());
  };
  for (const char* name : {"QLinearAdd", "QLinearMul"}) {
    EXPECT_THAT(with(name, 0), ElementsAre(0, 2, 2, 4)) << name;
    EXPECT_THAT(with(name, 1), ElementsAre(2, 2, 4, 4)) << name;
  }
}

TEST(QuantizedBinaryTest, DenormalScalesCount) {
  const float tiny = 1e-41f;
  const auto y = Compute(
      "QLinearMul", {Tensor::Of<int8_t>({3}, {0, 3, -1}), Tensor::Scalar(tiny),
                     Tensor::Scalar(int8_t{0}), Tensor::Scalar(int8_t{4}), Tensor::Scalar(1.0f),
                     Tensor::Scalar(int8_t{0}), Tensor::Scalar(tiny), Tensor::Scalar(int8_t{0})});
  EXPECT_THAT(y.values<int8_t>(), ElementsAre(0, 12, -4));
}

TEST(QuantizedBinaryTest, RefuseOperandsThatDoNotFit) {
  const Tensor a = Tensor::Of<int8_t>({3}, {1, 2, 3});
  const Tensor scale = Tensor::Scalar(1.0f), zero = Tensor::Scalar(int8_t{0});
  const auto code = [](std::vector<Tensor> inputs) {
    return RunOperator({.name = "QLinearAdd", .inputs = std::move(inputs), .domain = "chairlift"})
        .status()
        .code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({a, scale, zero, Tensor::Of<int8_t>({2}, {1, 2}), scale, zero, scale, zero}),
            kInvalid);
  EXPECT_EQ(code({a, scale, zero, Tensor::Of<uint8_t>({1}, {1}), scale, zero, scale, zero}),
            kInvalid);
  EXPECT_EQ(code({a, Tensor::Of<float>({3}, {1, 1, 1}), zero, a, scale, zero, scale, zero}),
            kInvalid);
}

TEST(RequantizeTest, MatchesItsFormulaForEachColumn) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    for (const int64_t entries : {0, 1, 7}) {
      Tensor x = Tensor::Allocate(round % 2 == 0 ? DType::kFloat : DType::kInt32, {3, 7});
      for (int64_t i = 0; i < x.size(); ++i) {
        const auto v = static_cast<int32_t>(random() % 100000) - 50000;
        if (x.dtype() == DType::kFloat) {
          x.data<float>()[i] = static_cast<float>(v);
        } else {
          x.data<int32_t>()[i] = v;
        }
      }
      const float from = PickScale(random, true), to = PickScale(random, true);
      const int8_t zero = Pick<int8_t>(random);
      Tensor scales;
      if (entries > 0) scales = Tensor::Allocate(DType::kFloat, {entries});
      for (int64_t i = 0; i < entries; ++i) scales.data<float>()[i] = PickScale(random, true);
      std::vector<Tensor> inputs = {x, Tensor::Scalar(from), Tensor::Scalar(to),
                                    Tensor::Scalar(zero)};
      if (entries > 0) inputs.push_back(scales);
      const Tensor y = Compute("Requantize", inputs);
      for (int64_t i = 0; i < y.size(); ++i) {
        const long double v =
            x.dtype() == DType::kFloat ? x.data<float>()[i] : x.data<int32_t>()[i];
        const long double by = entries == 0 ? 1 : scales.data<float>()[entries == 1 ? 0 : i % 7];
        ASSERT_TRUE(Rounds<int8_t>(v * from * by / to + zero, y.data<int8_t>()[i]));
      }
    }
  }
}

}  // namespace
}  // namespace chairlift
