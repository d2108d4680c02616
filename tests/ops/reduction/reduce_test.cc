// Reductions against sums over index lists in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;
using Doubles = std::vector<double>;

double SumOf(const Doubles& v) {
  double s = 0;
  for (double x : v) s += x;
  return s;
}

struct ReduceCase {
  const char* name;
  std::function<double(const Doubles&)> reference;
  bool extremum = false;
};

const ReduceCase kCases[] = {
    {"ReduceSum", SumOf},
    {"ReduceMean", [](const Doubles& v) { return SumOf(v) / static_cast<double>(v.size()); }},
    {"ReduceMax",
     [](const Doubles& v) {
       double m = -std::numeric_limits<double>::infinity();
       for (double x : v) m = std::max(m, x);
       return m;
     },
     true},
    {"ReduceMin",
     [](const Doubles& v) {
       double m = std::numeric_limits<double>::infinity();
       for (double x : v) m = std::min(m, x);
       return m;
     },
     true},
    {"ReduceProd",
     [](const Doubles& v) {
       double p = 1;
       for (double x : v) p *= x;
       return p;
     }},
    {"ReduceL1",
     [](const Doubles& v) {
       double s = 0;
       for (double x : v) s += std::abs(x);
       return s;
     }},
    {"ReduceL2",
     [](const Doubles& v) {
       double s = 0;
       for (double x : v) s += x * x;
       return std::sqrt(s);
     }},
    {"ReduceLogSum", [](const Doubles& v) { return std::log(SumOf(v)); }},
    {"ReduceLogSumExp",
     [](const Doubles& v) {
       double s = 0;
       for (double x : v) s += std::exp(x);
       return std::log(s);
     }},
    {"ReduceSumSquare",
     [](const Doubles& v) {
       double s = 0;
       for (double x : v) s += x * x;
       return s;
     }},
};

Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes a;
  for (const auto& [name, value] : values) a.Set(name, value);
  return a;
}

// The elements folded into each output, by brute force over indices.
std::vector<Doubles> Groups(const Tensor& x, const std::vector<int64_t>& axes) {
  const Shape& shape = x.shape();
  std::vector<bool> folded(shape.rank(), axes.empty());
  for (int64_t a : axes) folded[a < 0 ? a + shape.rank() : a] = true;
  int64_t outputs = 1;
  for (int i = 0; i < shape.rank(); ++i) outputs *= folded[i] ? 1 : shape[i];
  std::vector<Doubles> groups(outputs);
  const Doubles values = AsDoubles(x);
  for (int64_t e = 0; e < x.size(); ++e) {
    int64_t rest = e, out = 0, scale = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      const int64_t index = rest % shape[i];
      rest /= shape[i];
      if (folded[i]) continue;
      out += index * scale;
      scale *= shape[i];
    }
    groups[out].push_back(values[e]);
  }
  return groups;
}

class ReduceTest : public ::testing::TestWithParam<ReduceCase> {};

TEST_P(ReduceTest, MatchesBruteForceOverAxesTypesAndShapes) {
  const struct {
    Shape shape;
    std::vector<int64_t> axes;
  } cases[] = {
      {{}, {}},
      {{1}, {0}},
      {{7}, {0}},
      {{37}, {}},
      {{5, 67}, {1}},
      {{5, 67}, {0}},
      {{5, 67}, {0, 1}},
      {{3, 4, 19}, {1}},
      {{3, 4, 19}, {-1}},
      {{3, 4, 19}, {0, 2}},
      {{2, 3, 4, 5}, {2, 3}},
      {{2, 3, 4, 5}, {0, 2}},
      {{2, 3, 4, 5}, {1, 3}},
      {{2, 1, 9, 1}, {1, 3}},
      {{3, 0, 2}, {1}},
      {{0, 4}, {1}},
      {{2, 130, 3}, {1}},
      {{2, 3, 150}, {0}},
  };
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                      DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64, DType::kInt8,
                      DType::kUInt8, DType::kInt16, DType::kUInt16}) {
    const bool small = DTypeSize(dtype) <= 2 && kIntegerTypes.Contains(dtype);
    if (small && !GetParam().extremum) continue;
    const bool integer = kIntegerTypes.Contains(dtype);
    for (const auto& [shape, axes] : cases) {
      for (const bool constant_axes : {false, true}) {
        for (const int64_t keep : {0, 1}) {
          // Near 1 so that products stay within range.
          const Tensor x = RandomTensor(dtype, shape, integer ? 1 : 0.9, integer ? 3 : 1.1, 7);
          testing::OperatorCall call{GetParam().name, With({{"keepdims", keep}}), {x}};
          if (!axes.empty()) {
            const Shape count{static_cast<int64_t>(axes.size())};
            call.inputs.push_back(Tensor::Of<int64_t>(count, axes));
            if (constant_axes) call.constants = {1};
          }
          const std::vector<Doubles> groups = Groups(x, axes);
          const bool empty = !groups.empty() && groups[0].empty();
          // What integers give for nothing is tested below.
          if (integer && empty) continue;
          if (integer && std::string(GetParam().name) == "ReduceProd" && groups.size() > 0 &&
              groups[0].size() > 24) {
            continue;
          }
          auto y = RunOperator(call);
          ASSERT_TRUE(y.ok()) << y.status();
          const Tensor& out = (*y)[0];
          ASSERT_EQ(out.dtype(), dtype);
          ASSERT_EQ(out.size(), static_cast<int64_t>(groups.size()));
          ASSERT_EQ(out.shape().rank(), keep != 0 ? shape.rank()
                                        : axes.empty()
                                            ? 0
                                            : shape.rank() - static_cast<int>(axes.size()));
          const Doubles actual = AsDoubles(out);
          for (size_t i = 0; i < groups.size(); ++i) {
            double expected = GetParam().reference(groups[i]);
            if (std::isnan(expected)) {
              EXPECT_TRUE(std::isnan(actual[i]));
              continue;
            }
            if (std::isinf(expected)) {
              EXPECT_EQ(actual[i], expected);
              continue;
            }
            if (integer) expected = std::trunc(expected);
            const double ulp = dtype == DType::kBFloat16  ? 0x1p-8
                               : dtype == DType::kFloat16 ? 0x1p-11
                               : dtype == DType::kFloat   ? 0x1p-22
                               : dtype == DType::kDouble  ? 1e-14
                                                          : 0;
            const double size = static_cast<double>(groups[i].size());
            ASSERT_NEAR(actual[i], expected, 2 * ulp * (std::abs(expected) + 0.01 * size))
                << DTypeName(dtype) << shape.ToString();
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ReduceTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ReduceEdgeTest, NothingToReduce) {
  const Tensor empty = Tensor::Allocate(DType::kInt32, {2, 0});
  const Tensor axes = Tensor::Of<int64_t>({1}, {1});
  const auto of = [&](const char* name) {
    auto y = RunOperator({name, {}, {empty, axes}});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  EXPECT_EQ(of("ReduceSum"), (Doubles{0, 0}));
  EXPECT_EQ(of("ReduceProd"), (Doubles{1, 1}));
  EXPECT_EQ(of("ReduceMean"), (Doubles{0, 0}));
  EXPECT_EQ(of("ReduceMax"), (Doubles{-2147483648.0, -2147483648.0}));
  EXPECT_EQ(of("ReduceMin"), (Doubles{2147483647, 2147483647}));
}

TEST_P(ReduceTest, FoldsEachElementAloneOverNoAxes) {
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16,
                      DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64, DType::kInt8,
                      DType::kUInt8, DType::kInt16, DType::kUInt16}) {
    const bool small = DTypeSize(dtype) <= 2 && kIntegerTypes.Contains(dtype);
    if (small && !GetParam().extremum) continue;
    const bool is_signed = dtype != DType::kUInt32 && dtype != DType::kUInt64 &&
                           dtype != DType::kUInt8 && dtype != DType::kUInt16;
    const bool log = std::string(GetParam().name) == "ReduceLogSum";
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 0, 2}, Shape{2, 130, 3}}) {
      // Axes that are absent, an empty constant, and an empty tensor that is computed.
      for (const int how : {0, 1, 2}) {
        const Tensor x = RandomTensor(dtype, shape, is_signed && !log ? -5 : 1, 5, 17);
        testing::OperatorCall call{
            GetParam().name,
            With({{"noop_with_empty_axes", int64_t{1}}, {"keepdims", int64_t{how % 2}}}),
            {x}};
        if (how > 0) call.inputs.push_back(Tensor::Allocate(DType::kInt64, {0}));
        if (how == 1) call.constants = {1};
        auto y = RunOperator(call);
        ASSERT_TRUE(y.ok()) << y.status();
        ASSERT_EQ((*y)[0].shape(), shape);
        const Doubles values = AsDoubles(x), actual = AsDoubles((*y)[0]);
        for (size_t i = 0; i < values.size(); ++i) {
          double expected = GetParam().reference({values[i]});
          if (kIntegerTypes.Contains(dtype)) expected = std::trunc(expected);
          const double ulp = dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
          ASSERT_NEAR(actual[i], expected, ulp * std::abs(expected) + 0x1p-25) << DTypeName(dtype);
        }
      }
    }
  }
}

TEST(ReduceEdgeTest, OneElementIsFoldedLikeMany) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({5}, {-inf, inf, nan, 0, -3});
  const auto of = [&](const char* name) {
    auto y = RunOperator({name, With({{"noop_with_empty_axes", int64_t{1}}}), {x}});
    EXPECT_TRUE(y.ok()) << y.status();
    return AsDoubles((*y)[0]);
  };
  for (const char* name :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"}) {
    const Doubles y = of(name);
    EXPECT_EQ(y[0], -inf) << name;
    EXPECT_EQ(y[1], inf) << name;
    EXPECT_TRUE(std::isnan(y[2])) << name;
    EXPECT_EQ(y[3], 0) << name;
    EXPECT_EQ(y[4], -3) << name;
  }
  EXPECT_EQ(of("ReduceL1")[0], inf);
  EXPECT_EQ(of("ReduceL2")[4], 3);
  EXPECT_EQ(of("ReduceSumSquare")[4], 9);
  EXPECT_EQ(of("ReduceLogSum")[3], -inf);
}

// Decomposed normalisations subtract such means.
TEST(ReduceEdgeTest, MeansOfLargeValuesAreExactWhereTheyDoNotDiffer) {
  for (const float value : {16777213.0f, 4000001.0f, -40000.1f}) {
    const Tensor x = Tensor::Of<float>({3, 700, 5}, std::vector<float>(3 * 700 * 5, value));
    for (const std::vector<int64_t>& folded :
         {std::vector<int64_t>{2}, {1}, {1, 2}, {0, 2}, {0, 1, 2}}) {
      const Tensor axes = Tensor::Of<int64_t>({static_cast<int64_t>(folded.size())}, folded);
      auto y = RunOperator({"ReduceMean", {}, {x, axes}});
      ASSERT_TRUE(y.ok()) << y.status();
      for (const double mean : AsDoubles((*y)[0])) ASSERT_EQ(mean, value);
    }
  }
  const float inf = std::numeric_limits<float>::infinity();
  auto y = RunOperator(
      {"ReduceMean",
       {},
       {Tensor::Of<float>({2, 2}, {inf, 1, 3e38f, -3e38f}), Tensor::Of<int64_t>({1}, {1})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{inf, 0}));
}

TEST(ReduceEdgeTest, AnExtremumIsNaNWhereAnElementIs) {
  const std::vector<int64_t> axes[] = {{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
  uint32_t seed = 31;
  for (DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBFloat16}) {
    for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 9, 70}, Shape{1, 130, 33}}) {
      for (const std::vector<int64_t>& folded : axes) {
        Tensor x = RandomTensor(dtype, shape, -9, 9, ++seed);
        testing::SprinkleNaN(x, 60, seed);
        const Tensor t = Tensor::Of<int64_t>({static_cast<int64_t>(folded.size())}, folded);
        const std::vector<Doubles> groups = Groups(x, folded);
        for (const bool max : {true, false}) {
          auto y = RunOperator({max ? "ReduceMax" : "ReduceMin", {}, {x, t}});
          ASSERT_TRUE(y.ok()) << y.status();
          const Doubles out = AsDoubles((*y)[0]);
          for (size_t i = 0; i < groups.size(); ++i) {
            const auto nan = [](double v) { return std::isnan(v); };
            if (std::any_of(groups[i].begin(), groups[i].end(), nan)) {
              ASSERT_TRUE(std::isnan(out[i])) << shape.ToString() << " axis " << folded[0];
            } else {
              ASSERT_EQ(out[i], max ? *std::max_element(groups[i].begin(), groups[i].end())
                                    : *std::min_element(groups[i].begin(), groups[i].end()));
            }
          }
        }
      }
    }
  }
}

TEST(ReduceEdgeTest, TruthValuesHaveExtrema) {
  const Tensor x = Tensor::Of<bool>({2, 2}, {true, false, false, false});
  const Tensor axes = Tensor::Of<int64_t>({1}, {1});
  auto max = RunOperator({"ReduceMax", {}, {x, axes}});
  ASSERT_TRUE(max.ok()) << max.status();
  EXPECT_EQ(AsDoubles((*max)[0]), (Doubles{1, 0}));
}

TEST(ReduceEdgeTest, LogSumExpSurvivesLargeAndInfiniteValues) {
  const float inf = std::numeric_limits<float>::infinity();
  for (int64_t axis : {0, 1}) {
    const Tensor rows =
        Tensor::Of<float>(axis == 1 ? Shape{3, 2} : Shape{2, 3},
                          axis == 1 ? std::vector<float>{1e4f, 1e4f, -inf, -inf, inf, 0}
                                    : std::vector<float>{1e4f, -inf, inf, 1e4f, -inf, 0});
    auto y = RunOperator({"ReduceLogSumExp", {}, {rows, Tensor::Of<int64_t>({1}, {axis})}});
    ASSERT_TRUE(y.ok());
    const Doubles out = AsDoubles((*y)[0]);
    EXPECT_NEAR(out[0], 1e4 + std::log(2.0), 1e-2);
    EXPECT_EQ(out[1], -inf);
    EXPECT_EQ(out[2], inf);
  }
}

TEST(ReduceEdgeTest, LongSumsKeepTheirAccuracy) {
  const Tensor x = RandomTensor(DType::kFloat, {1000003}, 0, 1, 3);
  auto y = RunOperator({"ReduceSum", {}, {x}});
  ASSERT_TRUE(y.ok());
  const double expected = SumOf(AsDoubles(x));
  EXPECT_NEAR(AsDoubles((*y)[0])[0], expected, 1e-6 * expected);
}

TEST(ReduceEdgeTest, RefusesWrongAxes) {
  const Tensor x = RandomTensor(DType::kFloat, {3, 5}, -1, 1, 1);
  for (std::vector<int64_t> axes : {std::vector<int64_t>{2}, {-3}, {0, 0}, {0, -2}}) {
    const Tensor t = Tensor::Of<int64_t>({static_cast<int64_t>(axes.size())}, axes);
    EXPECT_EQ(RunOperator({"ReduceSum", {}, {x, t}}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace chairlift
