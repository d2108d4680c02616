// The four 8-bit floats: what each code stands for, and how numbers are rounded to them.
#include "ops/quantization/float8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::RunOperator;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct FormatCase {
  Float8 format;
  int64_t number;  // in TensorProto.DataType
  int mantissa, bias;
  float largest, smallest;  // and greater than 0
  bool has_infinity, has_minus_zero;
};
constexpr FormatCase kFormats[] = {
    {Float8::kE4M3FN, 17, 3, 7, 448.0f, 0x1p-9f, false, true},
    {Float8::kE4M3FNUZ, 18, 3, 8, 240.0f, 0x1p-10f, false, false},
    {Float8::kE5M2, 19, 2, 15, 57344.0f, 0x1p-16f, true, true},
    {Float8::kE5M2FNUZ, 20, 2, 16, 57344.0f, 0x1p-17f, false, false},
};

// The finite values from 0 on, by code.
std::vector<double> Magnitudes(const FormatCase& f) {
  std::vector<double> values;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> f.mantissa, fraction = code % (1 << f.mantissa);
    const double part = fraction / std::exp2(f.mantissa);
    const double value =
        exponent == 0 ? part * std::exp2(1 - f.bias) : (1 + part) * std::exp2(exponent - f.bias);
    if (value <= f.largest) values.push_back(value);
  }
  return values;
}

// Searches all values.
double NearestOf(const std::vector<double>& values, double x) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const double now = std::abs(values[i] - x), before = std::abs(values[best] - x);
    if (now < before || (now == before && i % 2 == 0)) best = i;
  }
  return values[best];
}

TEST(Float8Test, CodesStandForTheirValues) {
  for (const FormatCase& f : kFormats) {
    EXPECT_EQ(Float8OfOnnx(f.number), f.format);
    EXPECT_EQ(OnnxOfFloat8(f.format), f.number);
    const std::vector<double> values = Magnitudes(f);
    for (int code = 0; code < 256; ++code) {
      const float value = Float8Value(f.format, static_cast<uint8_t>(code));
      const auto magnitude = static_cast<size_t>(code % 128);
      if (!f.has_minus_zero && code == 128) {
        EXPECT_TRUE(std::isnan(value));
      } else if (magnitude < values.size()) {
        const auto wanted = static_cast<float>(values[magnitude]);
        EXPECT_EQ(value, code < 128 ? wanted : -wanted) << code;
        EXPECT_EQ(std::signbit(value), code >= 128) << code;
      } else if (f.has_infinity && magnitude == values.size()) {
        EXPECT_EQ(value, code < 128 ? kInfinity : -kInfinity);
      } else {
        EXPECT_TRUE(std::isnan(value)) << code;
      }
    }
    EXPECT_EQ(values[1], f.smallest);
    EXPECT_EQ(values.back(), f.largest);
  }
  EXPECT_EQ(Float8OfOnnx(16), std::nullopt);
  EXPECT_EQ(Float8OfOnnx(21), std::nullopt);
}

TEST(Float8Test, RoundsToTheNearestValueAndTiesToEven) {
  std::mt19937_64 random(7);
  for (const FormatCase& f : kFormats) {
    const std::vector<double> values = Magnitudes(f);
    std::vector<double> tried = {f.smallest / 2, f.smallest / 2 * 1.0001, 1e-300, 0.0};
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const double middle = (values[i] + values[i + 1]) / 2;
      for (const double x :
           {values[i], middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e9)}) {
        tried.push_back(x);
      }
    }
    std::uniform_real_distribution<double> exponents(-20, std::log2(f.largest));
    for (int i = 0; i < 1000; ++i) tried.push_back(std::exp2(exponents(random)));
    for (const double x : tried) {
      const double wanted = NearestOf(values, x);
      for (const bool saturate : {true, false}) {
        EXPECT_EQ(RoundToFloat8(f.format, x, saturate), wanted) << x;
        const float negative = RoundToFloat8(f.format, -x, saturate);
        EXPECT_EQ(negative, -wanted) << x;
        EXPECT_EQ(std::signbit(negative), wanted != 0 || f.has_minus_zero) << x;
      }
    }
  }
}

TEST(Float8Test, OverflowSaturatesOrIsInfinityOrNan) {
  for (const FormatCase& f : kFormats) {
    const std::vector<double> values = Magnitudes(f);
    const double step = values.back() - values[values.size() - 2];
    // Up to half a step beyond the largest value is nearest to it. Ties go to the even code.
    const double limit = f.largest + step / 2;
    const bool tie_stays = values.size() % 2 == 1;
    for (const double sign : {1.0, -1.0}) {
      const auto largest = static_cast<float>(sign * f.largest);
      EXPECT_EQ(RoundToFloat8(f.format, sign * std::nextafter(limit, 0.0), false), largest);
      for (const double x : {limit, std::nextafter(limit, 1e9), 2.0 * f.largest + 1, 1e30,
                             std::numeric_limits<double>::infinity()}) {
        EXPECT_EQ(RoundToFloat8(f.format, sign * x, true), largest) << x;
        const float rounded = RoundToFloat8(f.format, sign * x, false);
        if (x == limit && tie_stays) {
          EXPECT_EQ(rounded, largest);
        } else if (f.has_infinity) {
          EXPECT_EQ(rounded, static_cast<float>(sign) * kInfinity) << x;
        } else {
          EXPECT_TRUE(std::isnan(rounded)) << x;
        }
      }
    }
    for (const bool saturate : {true, false}) {
      EXPECT_TRUE(std::isnan(RoundToFloat8(f.format, std::nan(""), saturate)));
    }
  }
}

TEST(Float8Test, TheOperatorRoundsEveryElement) {
  const std::vector<float> given = {0.0f, 1.06f, -449.0f, 1e9f, 3.0f, -0.3f, 17.0f};
  for (const FormatCase& f : kFormats) {
    for (const bool saturate : {true, false}) {
      const auto attributes =
          Attrs({{"format", f.number}, {"saturate", static_cast<int64_t>(saturate)}});
      Tensor wide = Tensor::Allocate(DType::kDouble, {7});
      for (int i = 0; i < 7; ++i) wide.data<double>()[i] = given[static_cast<size_t>(i)];
      for (const Tensor& x : {Tensor::Of<float>({7}, given), wide}) {
        const auto y = RunOperator({.name = "RoundToFloat8",
                                    .attributes = attributes,
                                    .inputs = {x},
                                    .domain = "chairlift"});
        ASSERT_TRUE(y.ok()) << y.status();
        ASSERT_EQ((*y)[0].dtype(), DType::kFloat);
        for (int i = 0; i < 7; ++i) {
          const float wanted = RoundToFloat8(f.format, given[static_cast<size_t>(i)], saturate);
          const float have = (*y)[0].data<float>()[i];
          EXPECT_TRUE(have == wanted || (std::isnan(have) && std::isnan(wanted)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace chairlift
