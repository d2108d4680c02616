// Int8Gemm's kernels against plain loops and against each other: the same bits.
#include "ops/linear/int8_gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/status.h"
#include "device/cpu/isa.h"
#include "ops/linear/int8_rows.h"
#include "ops/quantization/rounding.h"

namespace chairlift {
namespace int8_gemm_test {

using Floats = std::vector<float>;
using ByteVector = std::vector<uint8_t>;

std::vector<Int8Kernel> Kernels() {
  std::vector<Int8Kernel> kernels = {Int8Kernel::kPortable, Int8Kernel::kVectors};
  if (MachineInt8Kernel() != Int8Kernel::kVectors) kernels.push_back(Int8Kernel::kVnni);
  if (MachineInt8Kernel() == Int8Kernel::kAmx) kernels.push_back(Int8Kernel::kAmx);
  return kernels;
}

ByteVector RandomBytes(int64_t n, std::mt19937& random) {
  ByteVector v(static_cast<size_t>(n) + 1);
  for (uint8_t& e : v) e = static_cast<uint8_t>(random());
  return v;
}

Floats RandomFloats(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats v(static_cast<size_t>(n) + 1);
  for (float& e : v) e = normal(random);
  return v;
}

int64_t Number(const ByteVector& bytes, int64_t i, bool is_signed) {
  return is_signed ? static_cast<int8_t>(bytes[i]) : bytes[i];
}

ByteVector Packed(int64_t k, int64_t n) {
  return ByteVector(static_cast<size_t>(PackedInt8Bytes(k, n)));
}

enum class Zeros { kNone, kOne, kEach };

struct Case {
  int64_t m, n, k;
  bool a_signed = false, b_signed = true;
  Zeros a_zeros = Zeros::kNone, b_zeros = Zeros::kNone;
  bool by_row = false, by_column = true;  // scales
  bool bias = true, residual = false;
  ActivationKind activation = ActivationKind::kNone;
  bool transposed = false;  // both operands
  bool extreme = false;     // all codes at an end of their range
};

void Check(const Case& p, std::mt19937& random) {
  SCOPED_TRACE(fmt::format("m={} n={} k={} signs {} {} zeros {} {} by row {}", p.m, p.n, p.k,
                           p.a_signed, p.b_signed, static_cast<int>(p.a_zeros),
                           static_cast<int>(p.b_zeros), p.by_row));
  ByteVector a = RandomBytes(p.m * p.k, random), b = RandomBytes(p.k * p.n, random);
  if (p.extreme) {
    std::fill(a.begin(), a.end(), p.a_signed ? 0x80 : 0xff);
    std::fill(b.begin(), b.end(), p.b_signed ? 0x80 : 0xff);
  }
  const ByteVector a_zeros = RandomBytes(p.m, random), b_zeros = RandomBytes(p.n, random);
  Floats a_scales = RandomFloats(p.m, random), b_scales = RandomFloats(p.n, random);
  const Floats bias = RandomFloats(p.n, random);
  const int64_t c_stride = p.n + 5;
  const Floats residual = RandomFloats(p.m * c_stride, random);
  Int8Matrix of_a{a.data(), p.a_signed, p.k, 1}, of_b{b.data(), p.b_signed, p.n, 1};
  if (p.transposed) {
    of_a = {a.data(), p.a_signed, 1, p.m};
    of_b = {b.data(), p.b_signed, 1, p.k};
  }
  const Int8Parameters rows{p.a_zeros == Zeros::kNone ? nullptr : a_zeros.data(),
                            p.a_zeros == Zeros::kEach ? 1 : 0, a_scales.data(), p.by_row ? 1 : 0};
  const Int8Parameters columns{p.b_zeros == Zeros::kNone ? nullptr : b_zeros.data(),
                               p.b_zeros == Zeros::kEach ? 1 : 0, b_scales.data(),
                               p.by_column ? 1 : 0};
  GemmEpilogue epilogue;
  epilogue.activation.kind = p.activation;
  if (p.bias) epilogue.bias = bias.data();
  if (p.residual) {
    epilogue.residual = residual.data();
    epilogue.residual_stride = c_stride;
  }
  const auto zero = [](Zeros zeros, const ByteVector& from, int64_t i, bool is_signed) {
    return zeros == Zeros::kNone ? 0 : Number(from, zeros == Zeros::kEach ? i : 0, is_signed);
  };
  ByteVector packed = Packed(p.k, p.n);
  PackInt8Weights(of_b, columns, p.k, p.n, packed.data());
  constexpr float kUntouched = -12345;
  Floats first;
  for (const Int8Kernel kernel : Kernels()) {
    SCOPED_TRACE(Int8KernelName(kernel));
    Floats c(static_cast<size_t>(p.m * c_stride) + 1, kUntouched);
    // Two products, as of two workers.
    const int64_t panels = GemmPanels(p.n), cut = panels / 2;
    const Int8Product products[] = {
        {packed.data(), p.n, 0, cut, c.data(), c_stride, epilogue},
        {packed.data(), p.n, cut, panels, c.data(), c_stride, epilogue}};
    Int8Gemm(kernel, of_a, rows, p.m, p.k, products);
    if (first.empty()) first = c;
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t j = 0; j < c_stride; ++j) {
        const float got = c[r * c_stride + j];
        if (j >= p.n) {
          ASSERT_EQ(got, kUntouched) << "past the columns of row " << r;
          continue;
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(first[r * c_stride + j]))
            << "differs from the first kernel at " << r << ", " << j;
        int64_t sum = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          sum += (Number(a, r * of_a.row_stride + i * of_a.column_stride, p.a_signed) -
                  zero(p.a_zeros, a_zeros, r, p.a_signed)) *
                 (Number(b, i * of_b.row_stride + j * of_b.column_stride, p.b_signed) -
                  zero(p.b_zeros, b_zeros, j, p.b_signed));
        }
        const auto wrapped = static_cast<double>(static_cast<int32_t>(sum));
        const double scaled = wrapped * static_cast<double>(a_scales[p.by_row ? r : 0]) *
                              static_cast<double>(b_scales[p.by_column ? j : 0]);
        const double added = scaled + (p.bias ? static_cast<double>(bias[j]) : 0) +
                             (p.residual ? static_cast<double>(residual[r * c_stride + j]) : 0);
        ASSERT_NEAR(got, Activate(epilogue.activation, added),
                    0x1p-21 * (std::abs(scaled) + std::abs(added) + 10))
            << r << ", " << j;
      }
    }
  }
}

TEST(Int8GemmTest, OddSizesAndAllSigns) {
  std::mt19937 random(1);
  int turn = 0;
  for (const int64_t m : {1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 32, 33, 50}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 70}) {
      const int64_t k = std::vector<int64_t>{0, 1, 3, 4, 63, 64, 65, 128, 150}[turn % 9];
      Check({.m = m,
             .n = n,
             .k = k,
             .a_signed = turn % 2 == 1,
             .b_signed = turn / 2 % 2 == 1,
             .residual = turn % 3 == 0},
            random);
      ++turn;
    }
  }
}

TEST(Int8GemmTest, EveryKindOfZeroPointAndScale) {
  std::mt19937 random(2);
  for (const Zeros a_zeros : {Zeros::kNone, Zeros::kOne, Zeros::kEach}) {
    for (const Zeros b_zeros : {Zeros::kNone, Zeros::kOne, Zeros::kEach}) {
      for (int signs = 0; signs < 8; ++signs) {
        Check({.m = 19,
               .n = 41,
               .k = 70,
               .a_signed = signs % 2 == 1,
               .b_signed = signs / 2 % 2 == 1,
               .a_zeros = a_zeros,
               .b_zeros = b_zeros,
               .by_row = signs >= 4,
               .by_column = signs % 3 == 0},
              random);
      }
    }
  }
}

TEST(Int8GemmTest, EveryKindOfEpilogue) {
  std::mt19937 random(3);
  for (const ActivationKind kind : {ActivationKind::kNone, ActivationKind::kRelu,
                                    ActivationKind::kGelu, ActivationKind::kTanh}) {
    for (const bool bias : {false, true}) {
      for (const bool residual : {false, true}) {
        // Small sums, so that the activations are not only at their ends.
        Check({.m = 37, .n = 75, .k = 1, .bias = bias, .residual = residual, .activation = kind},
              random);
      }
    }
  }
}

TEST(Int8GemmTest, SeveralBlocksOfRowsAndTransposedOperands) {
  std::mt19937 random(4);
  Check({.m = 300, .n = 33, .k = 70, .a_zeros = Zeros::kEach, .b_zeros = Zeros::kEach}, random);
  Check({.m = 70, .n = 33, .k = 40'000, .b_signed = false, .a_zeros = Zeros::kOne}, random);
  Check({.m = 20, .n = 40, .k = 77, .a_signed = true, .a_zeros = Zeros::kEach, .transposed = true},
        random);
}

TEST(Int8GemmTest, SumsWrapModulo32Bits) {
  std::mt19937 random(5);
  // 140,000 · 128 · 255 and 140,000 · 128 · 128 are above 2^31.
  for (const bool a_signed : {false, true}) {
    for (const bool b_signed : {false, true}) {
      Check({.m = 2,
             .n = 3,
             .k = 140'000,
             .a_signed = a_signed,
             .b_signed = b_signed,
             .a_zeros = Zeros::kOne,
             .b_zeros = Zeros::kOne,
             .extreme = true},
            random);
    }
  }
}

TEST(Int8GemmTest, RoundedRowsDoNotDependOnTheirNeighbours) {
  std::mt19937 random(6);
  constexpr int64_t kRows = 300, kDepth = 130, kColumns = 50;
  const Floats a = RandomFloats(kRows * kDepth, random),
               b = RandomFloats(kDepth * kColumns, random);
  ByteVector packed = Packed(kDepth, kColumns);
  PackRoundedWeights(b.data(), kColumns, 1, kDepth, kColumns, 0.5f, packed.data());
  Floats first;
  for (const Int8Kernel kernel : Kernels()) {
    SCOPED_TRACE(Int8KernelName(kernel));
    Floats all(kRows * kColumns), alone(kColumns);
    const auto product = [&](Floats& c) {
      return Int8Product{packed.data(), kColumns, 0, GemmPanels(kColumns), c.data(), kColumns, {}};
    };
    const Int8Product of_all = product(all), of_one = product(alone);
    RoundedInt8Gemm(kernel, a.data(), kDepth, 1, kRows, kDepth, {&of_all, 1});
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
    for (int64_t r = 0; r < kRows; ++r) {
      RoundedInt8Gemm(kernel, a.data() + r * kDepth, kDepth, 1, 1, kDepth, {&of_one, 1});
      for (int64_t j = 0; j < kColumns; ++j) {
        ASSERT_EQ(alone[j], all[r * kColumns + j]) << r << ", " << j;
        double exact = 0, size = 0;
        for (int64_t i = 0; i < kDepth; ++i) {
          const double x =
              static_cast<double>(a[r * kDepth + i]) * static_cast<double>(b[i * kColumns + j]) / 2;
          exact += x;
          size += std::abs(x);
        }
        ASSERT_NEAR(alone[j], exact, 0.05 * size) << r << ", " << j;
      }
    }
  }
}

TEST(Int8GemmTest, RowsAndColumnsThatAreNotFiniteGiveNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  const Floats a = {1, 2, inf, 1, std::nanf(""), 0, 0, 0};  // [4, 2]
  const Floats b = {1, 2, inf, 3, 4, 0};                    // [2, 3]
  ByteVector packed = Packed(2, 3);
  PackRoundedWeights(b.data(), 3, 1, 2, 3, 1.0f, packed.data());
  for (const Int8Kernel kernel : Kernels()) {
    SCOPED_TRACE(Int8KernelName(kernel));
    Floats c(12);
    const Int8Product product{packed.data(), 3, 0, 1, c.data(), 3, {}};
    RoundedInt8Gemm(kernel, a.data(), 2, 1, 4, 2, {&product, 1});
    EXPECT_NEAR(c[0], 7, 0.1);
    EXPECT_NEAR(c[1], 10, 0.1);
    for (const int64_t i : {2, 3, 4, 5, 6, 7, 8, 11}) EXPECT_TRUE(std::isnan(c[i])) << i;
    EXPECT_EQ(c[9], 0);
    EXPECT_EQ(c[10], 0);
  }
}

TEST(Int8RowsTest, BytesAreThoseOfADivision) {
  std::mt19937 random(7);
  for (const float size : {1e-30f, 1e-3f, 1.0f, 3e4f, 5e37f}) {
    for (const int64_t n : {0, 1, 7, 16, 33, 5000}) {
      Floats x = RandomFloats(n, random);
      for (float& e : x) e *= size;
      // Many that are half-way between two codes.
      for (int64_t i = 0; i < n; i += 3) {
        x[i] = (static_cast<float>(static_cast<int>(random() % 256)) - 127.5f) * (size / 64);
      }
      FloatRange range = FloatRangeOf(x.data(), n);
      float low = 0, high = 0;
      for (int64_t i = 0; i < n; ++i) {
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
      }
      EXPECT_EQ(range.low, low);
      EXPECT_EQ(range.high, high);
      EXPECT_TRUE(range.finite);
      const ByteScale to = ByteScaleOf(range);
      ByteVector y(static_cast<size_t>(n) + 1);
      QuantizeBytes(x.data(), n, to, y.data());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(y[i], Quantize<uint8_t>(x[i] / to.scale, to.zero)) << x[i] << " by " << to.scale;
      }
    }
  }
}

TEST(Int8RowsTest, NaNIsOutsideEveryRange) {
  Floats x(40, 1.0f);
  x[3] = std::nanf("");
  x[39] = -2;
  const FloatRange range = FloatRangeOf(x.data(), 40);
  EXPECT_EQ(range.low, -2);
  EXPECT_EQ(range.high, 1);
  EXPECT_FALSE(range.finite);
  ByteVector y(40);
  QuantizeBytes(x.data(), 40, ByteScaleOf(range), y.data());
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[39], 0);
  EXPECT_EQ(y[0], 255);
}

}  // namespace int8_gemm_test
}  // namespace chairlift
