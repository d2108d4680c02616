// ArgMax, TopK, CumSum, Unique, NonZero, Compress, Hardmax and Det.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace select_test {

using testing::AsDoubles;
using testing::RandomTensor;
using testing::RunOperator;
using Doubles = std::vector<double>;

Attributes With(std::initializer_list<std::pair<const char*, AttributeValue>> values) {
  Attributes a;
  for (const auto& [name, value] : values) a.Set(name, value);
  return a;
}

constexpr DType kNumeric[] = {DType::kFloat,  DType::kDouble, DType::kFloat16, DType::kInt8,
                              DType::kInt16,  DType::kInt32,  DType::kInt64,   DType::kUInt8,
                              DType::kUInt16, DType::kUInt32, DType::kUInt64,  DType::kBFloat16};

TEST(ArgReduceTest, FindsFirstOrLastExtremum) {
  for (DType dtype : kNumeric) {
    for (int64_t axis : {0, 1, 2, -1}) {
      for (int64_t last : {0, 1}) {
        for (const bool max : {true, false}) {
          // Few values, so that there are ties.
          Tensor x = RandomTensor(dtype, {3, 8, 5}, 0, 4, 11);
          if (kFloatTypes.Contains(dtype)) testing::SprinkleNaN(x, 12, 11);
          auto y = RunOperator({max ? "ArgMax" : "ArgMin",
                                With({{"axis", axis}, {"select_last_index", last}}),
                                {x}});
          ASSERT_TRUE(y.ok()) << y.status();
          const Doubles v = AsDoubles(x);
          const int a = axis < 0 ? 2 : static_cast<int>(axis);
          const int64_t n = x.shape()[a], inner = x.shape().NumElements(a + 1, 3);
          for (int64_t k = 0; k < x.size() / n; ++k) {
            const int64_t start = k / inner * n * inner + k % inner;
            int64_t best = 0;
            for (int64_t i = 1; i < n; ++i) {
              const double b = v[start + best * inner], c = v[start + i * inner];
              const bool equal = c == b || (std::isnan(c) && std::isnan(b));
              const bool beyond = (max ? c > b : c < b) || (std::isnan(c) && !std::isnan(b));
              if (beyond || (equal && last != 0)) best = i;
            }
            ASSERT_EQ((*y)[0].data<int64_t>()[k], best);
          }
        }
      }
    }
  }
}

TEST(ArgReduceTest, RefusesAnEmptyAxis) {
  auto y = RunOperator({"ArgMax", {}, {Tensor::Allocate(DType::kFloat, {0, 2})}});
  EXPECT_EQ(y.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HardmaxTest, MarksTheFirstMaximum) {
  auto y = RunOperator({"Hardmax", {}, {Tensor::Of<float>({2, 3}, {1, 3, 3, 0, -1, -2})}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{0, 1, 0, 1, 0, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  y = RunOperator({"Hardmax", {}, {Tensor::Of<float>({1, 4}, {1, nan, 3, nan})}});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{0, 1, 0, 0}));
}

TEST(TopKTest, MatchesAFullStableSort) {
  for (DType dtype : kNumeric) {
    for (int64_t largest : {0, 1}) {
      for (int64_t axis : {0, 1, -1}) {
        for (int64_t k : {0, 1, 3, 4}) {
          const Tensor x = RandomTensor(dtype, {4, 6, 5}, 0, 9, 13);
          auto y = RunOperator({"TopK",
                                With({{"axis", axis}, {"largest", largest}}),
                                {x, Tensor::Of<int64_t>({1}, {k})},
                                2});
          ASSERT_TRUE(y.ok()) << y.status();
          const Doubles v = AsDoubles(x), values = AsDoubles((*y)[0]);
          const int a = axis < 0 ? 2 : static_cast<int>(axis);
          const int64_t n = x.shape()[a], inner = x.shape().NumElements(a + 1, 3);
          for (int64_t line = 0; line < x.size() / n; ++line) {
            const int64_t start = line / inner * n * inner + line % inner;
            const int64_t to = line / inner * k * inner + line % inner;
            std::vector<int64_t> order(n);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
              const double vp = v[start + p * inner], vq = v[start + q * inner];
              return largest != 0 ? vp > vq : vp < vq;
            });
            for (int64_t i = 0; i < k; ++i) {
              ASSERT_EQ((*y)[1].data<int64_t>()[to + i * inner], order[i]);
              ASSERT_EQ(values[to + i * inner], v[start + order[i] * inner]);
            }
          }
        }
      }
    }
  }
}

TEST(TopKTest, NanIsLargestAndTooManyAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({5}, {1, nan, 3, nan, 2});
  auto y = RunOperator({"TopK", {}, {x, Tensor::Of<int64_t>({1}, {3})}, 2});
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(AsDoubles((*y)[1]), (Doubles{1, 3, 2}));
  auto many = RunOperator({"TopK", {}, {x, Tensor::Of<int64_t>({1}, {6})}, 2});
  EXPECT_EQ(many.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CumSumTest, SumsAndProductsRunBothWaysAndExclusive) {
  for (const std::string op : {"CumSum", "CumProd"}) {
    const bool sums = op == "CumSum";
    for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64, DType::kUInt32,
                        DType::kUInt64}) {
      for (int64_t axis : {0, 1, -1}) {
        for (int64_t exclusive : {0, 1}) {
          for (int64_t reverse : {0, 1}) {
            const Tensor x = RandomTensor(dtype, {3, 4, 5}, 0, 9, 17);
            auto y = RunOperator({op,
                                  With({{"exclusive", exclusive}, {"reverse", reverse}}),
                                  {x, Tensor::Scalar<int32_t>(static_cast<int32_t>(axis))}});
            ASSERT_TRUE(y.ok()) << y.status();
            const Doubles v = AsDoubles(x), out = AsDoubles((*y)[0]);
            const int a = axis < 0 ? 2 : static_cast<int>(axis);
            const int64_t n = x.shape()[a], inner = x.shape().NumElements(a + 1, 3);
            for (int64_t e = 0; e < x.size(); ++e) {
              const int64_t at = e / inner % n;
              double expected = sums ? 0 : 1;
              for (int64_t i = 0; i < n; ++i) {
                const bool counts = (reverse != 0 ? i > at : i < at) || (i == at && exclusive == 0);
                const double by = v[e + (i - at) * inner];
                if (counts) expected = sums ? expected + by : expected * by;
              }
              ASSERT_NEAR(out[e], expected, 1e-5 + 1e-6 * expected);
            }
          }
        }
      }
    }
  }
}

TEST(UniqueTest, SortedAndInOrderOfAppearance) {
  const Tensor x = Tensor::Of<float>({6}, {2, 1, 1, 3, 4, 3});
  auto sorted = RunOperator({"Unique", {}, {x}, 4});
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  EXPECT_EQ(AsDoubles((*sorted)[0]), (Doubles{1, 2, 3, 4}));
  EXPECT_EQ(AsDoubles((*sorted)[1]), (Doubles{1, 0, 3, 4}));
  EXPECT_EQ(AsDoubles((*sorted)[2]), (Doubles{1, 0, 0, 2, 3, 2}));
  EXPECT_EQ(AsDoubles((*sorted)[3]), (Doubles{2, 1, 2, 1}));
  auto met = RunOperator({"Unique", With({{"sorted", int64_t{0}}}), {x}, 4});
  EXPECT_EQ(AsDoubles((*met)[0]), (Doubles{2, 1, 3, 4}));
  EXPECT_EQ(AsDoubles((*met)[1]), (Doubles{0, 1, 3, 4}));
  EXPECT_EQ(AsDoubles((*met)[2]), (Doubles{0, 1, 1, 2, 3, 2}));
  EXPECT_EQ(AsDoubles((*met)[3]), (Doubles{1, 2, 2, 1}));
}

TEST(UniqueTest, SlicesAlongAnAxis) {
  const Tensor x = Tensor::Of<int32_t>({2, 4}, {1, 0, 1, 2, 5, 6, 5, 7});
  auto y = RunOperator({"Unique", With({{"axis", int64_t{-1}}}), {x}, 4});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(AsDoubles((*y)[0]), (Doubles{0, 1, 2, 6, 5, 7}));
  EXPECT_EQ(AsDoubles((*y)[2]), (Doubles{1, 0, 1, 2}));
}

TEST(NonZeroTest, ListsIndicesInOrder) {
  for (DType dtype : {DType::kFloat, DType::kInt64, DType::kBool, DType::kFloat16}) {
    const Tensor x = RandomTensor(dtype, {2, 3, 4}, 0, 1.9, 19);
    auto y = RunOperator({"NonZero", {}, {x}});
    ASSERT_TRUE(y.ok()) << y.status();
    const Doubles v = AsDoubles(x), out = AsDoubles((*y)[0]);
    const int64_t count = (*y)[0].shape()[1];
    int64_t k = 0;
    for (int64_t i = 0; i < 24; ++i) {
      if (v[i] == 0) continue;
      ASSERT_LT(k, count);
      EXPECT_EQ(out[k] * 12 + out[count + k] * 4 + out[2 * count + k], i);
      ++k;
    }
    EXPECT_EQ(k, count);
  }
  auto scalar = RunOperator({"NonZero", {}, {Tensor::Scalar<float>(3)}});
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ((*scalar)[0].shape(), (Shape{0, 1}));
}

TEST(CompressTest, KeepsChosenSlices) {
  const Tensor x = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor condition = Tensor::Of<bool>({3}, {false, true, true});
  auto rows = RunOperator({"Compress", With({{"axis", int64_t{0}}}), {x, condition}});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(AsDoubles((*rows)[0]), (Doubles{3, 4, 5, 6}));
  auto flat = RunOperator({"Compress", {}, {x, condition}});
  EXPECT_EQ(AsDoubles((*flat)[0]), (Doubles{2, 3}));
  auto cols = RunOperator({"Compress", With({{"axis", int64_t{1}}}), {x, condition}});
  EXPECT_EQ(cols.status().code(), absl::StatusCode::kInvalidArgument);
}

double Laplace(const Doubles& m, int n) {
  if (n == 0) return 1;
  double det = 0;
  for (int c = 0; c < n; ++c) {
    Doubles minor;
    for (int r = 1; r < n; ++r) {
      for (int k = 0; k < n; ++k) {
        if (k != c) minor.push_back(m[r * n + k]);
      }
    }
    det += (c % 2 == 0 ? 1 : -1) * m[c] * Laplace(minor, n - 1);
  }
  return det;
}

TEST(DetTest, MatchesExpansionByMinors) {
  for (int n : {1, 2, 3, 6}) {
    const Tensor x = RandomTensor(DType::kDouble, {3, n, n}, -1, 1, static_cast<uint32_t>(n));
    auto y = RunOperator({"Det", {}, {x}});
    ASSERT_TRUE(y.ok()) << y.status();
    ASSERT_EQ((*y)[0].shape(), (Shape{3}));
    const Doubles v = AsDoubles(x);
    for (int k = 0; k < 3; ++k) {
      const Doubles m(v.begin() + k * n * n, v.begin() + (k + 1) * n * n);
      EXPECT_NEAR(AsDoubles((*y)[0])[k], Laplace(m, n), 1e-12);
    }
  }
  auto singular = RunOperator({"Det", {}, {Tensor::Of<float>({2, 2}, {1, 2, 2, 4})}});
  EXPECT_EQ(AsDoubles((*singular)[0]), (Doubles{0}));
}

}  // namespace select_test
}  // namespace chairlift
