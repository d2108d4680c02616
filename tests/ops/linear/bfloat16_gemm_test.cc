// BFloat16Gemm against sums in double, and its kernels against each other.
#include "ops/linear/bfloat16_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/status.h"
#include "device/cpu/isa.h"

namespace chairlift {
namespace bfloat16_gemm_test {

using Floats = std::vector<float>;

std::vector<BFloat16Kernel> Kernels() {
  std::vector<BFloat16Kernel> kernels = {BFloat16Kernel::kPortable, BFloat16Kernel::kRounded};
  if (ActiveCpuIsa() == CpuIsa::kAmx) kernels.push_back(BFloat16Kernel::kAmx);
  return kernels;
}

Floats Random(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  // Never empty, so that there is an address.
  Floats v(static_cast<size_t>(n) + 1);
  for (float& e : v) e = normal(random);
  return v;
}

Tensor Packed(BFloat16Kernel kernel, const Floats& b, int64_t k, int64_t n) {
  Tensor packed =
      Tensor::Allocate(BFloat16GemmType(kernel), Shape{BFloat16GemmSize(kernel, k, n) + 1});
  PackBFloat16Weights(kernel, b.data(), n, 1, k, n, 1.0f, packed.raw());
  return packed;
}

// C [m, n] = A [m, k] · B, in one call.
Floats Times(BFloat16Kernel kernel, const Floats& a, int64_t m, const Tensor& packed, int64_t k,
             int64_t n, const GemmEpilogue& epilogue = {}) {
  Floats c(static_cast<size_t>(m * n) + 1);
  const BFloat16Product product{packed.raw(), n, 0, GemmPanels(n), c.data(), n, epilogue};
  BFloat16Gemm(kernel, {a.data(), k, 1, m, k}, {&product, 1});
  return c;
}

double Rounded(float x) { return static_cast<double>(static_cast<float>(BFloat16(x))); }

struct Case {
  int64_t m, n, k;
  int64_t a_row_stride, a_k_stride;
  ActivationKind activation;
  bool bias, residual;
};

void Check(const Case& p, std::mt19937& random) {
  SCOPED_TRACE(fmt::format("m={} n={} k={} strides {} {} bias {} residual {}", p.m, p.n, p.k,
                           p.a_row_stride, p.a_k_stride, p.bias, p.residual));
  const Floats a = Random(p.m * p.a_row_stride + p.k * p.a_k_stride, random);
  const Floats b = Random(p.k * p.n, random), bias = Random(p.n, random);
  const int64_t c_stride = p.n + 3;
  const Floats residual = Random(p.m * c_stride, random);
  GemmEpilogue epilogue;
  if (p.bias) epilogue.bias = bias.data();
  if (p.residual) {
    epilogue.residual = residual.data();
    epilogue.residual_stride = c_stride;
  }
  epilogue.activation.kind = p.activation;
  constexpr float kUntouched = -12345;
  for (const BFloat16Kernel kernel : Kernels()) {
    SCOPED_TRACE(BFloat16KernelName(kernel));
    const Tensor packed = Packed(kernel, b, p.k, p.n);
    Floats c(static_cast<size_t>(p.m * c_stride) + 1, kUntouched);
    // Two calls, as two workers make; the second also computes another product of the rows.
    const int64_t panels = GemmPanels(p.n), cut = panels / 2;
    Floats again(static_cast<size_t>(p.m * p.n) + 1);
    const BFloat16Product products[] = {
        {packed.raw(), p.n, 0, cut, c.data(), c_stride, epilogue},
        {packed.raw(), p.n, cut, panels, c.data(), c_stride, epilogue},
        {packed.raw(), p.n, 0, panels, again.data(), p.n, {}}};
    const BFloat16Rows rows{a.data(), p.a_row_stride, p.a_k_stride, p.m, p.k};
    BFloat16Gemm(kernel, rows, {products, 1});
    BFloat16Gemm(kernel, rows, {products + 1, 2});
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t j = 0; j < c_stride; ++j) {
        const float got = c[r * c_stride + j];
        if (j >= p.n) {
          ASSERT_EQ(got, kUntouched) << "past the columns of row " << r;
          continue;
        }
        double exact = 0, of_rounded = 0, size = 0;
        for (int64_t i = 0; i < p.k; ++i) {
          const float x = a[r * p.a_row_stride + i * p.a_k_stride], w = b[i * p.n + j];
          exact += static_cast<double>(x) * static_cast<double>(w);
          of_rounded += Rounded(x) * Rounded(w);
          size += std::abs(static_cast<double>(x) * static_cast<double>(w));
        }
        const double sums = std::ldexp(static_cast<double>(p.k) + 4, -23) * (size + 8);
        ASSERT_NEAR(again[r * p.n + j], of_rounded, sums) << r << ", " << j;
        ASSERT_NEAR(again[r * p.n + j], exact, sums + (0x1p-7 + 0x1p-16) * size) << r << ", " << j;
        const double added = of_rounded + (p.bias ? static_cast<double>(bias[j]) : 0) +
                             (p.residual ? static_cast<double>(residual[r * c_stride + j]) : 0);
        // Their slopes are below 1.13.
        ASSERT_NEAR(got, Activate(epilogue.activation, added), 1.2 * sums + 1e-6 * std::abs(added))
            << r << ", " << j;
      }
    }
  }
}

TEST(BFloat16GemmTest, OddSizes) {
  std::mt19937 random(81);
  int turn = 0;
  for (const int64_t m : {1, 2, 15, 16, 17, 31, 32, 33, 50}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 70}) {
      const int64_t k = std::vector<int64_t>{1, 2, 31, 32, 33, 64, 77}[turn % 7];
      Check({m, n, k, k, 1, ActivationKind::kNone, turn % 2 == 0, turn % 3 == 0}, random);
      ++turn;
    }
  }
}

TEST(BFloat16GemmTest, EveryKindOfEpilogue) {
  std::mt19937 random(82);
  for (const ActivationKind kind : {ActivationKind::kNone, ActivationKind::kRelu,
                                    ActivationKind::kGelu, ActivationKind::kTanh}) {
    for (const bool bias : {false, true}) {
      for (const bool residual : {false, true}) {
        Check({37, 75, 40, 40, 1, kind, bias, residual}, random);
      }
    }
  }
}

TEST(BFloat16GemmTest, SeveralBlocksOfRowsAndOfDepth) {
  std::mt19937 random(83);
  Check({300, 33, 70, 75, 1, ActivationKind::kRelu, true, true}, random);
  Check({3, 40, 2081, 2081, 1, ActivationKind::kNone, true, true}, random);
  Check({34, 33, 4200, 4200, 1, ActivationKind::kGelu, true, true}, random);
}

TEST(BFloat16GemmTest, RowsThatLieAwkwardly) {
  std::mt19937 random(84);
  Check({20, 33, 45, 1, 20, ActivationKind::kNone, true, false}, random);  // transposed
  Check({20, 33, 45, 100, 2, ActivationKind::kNone, true, false}, random);
  Check({5, 33, 45, 0, 1, ActivationKind::kNone, true, false}, random);
}

TEST(BFloat16GemmTest, NoColumnsNoRowsNoDepth) {
  std::mt19937 random(85);
  Check({0, 5, 3, 3, 1, ActivationKind::kNone, true, true}, random);
  Check({3, 0, 3, 3, 1, ActivationKind::kNone, true, true}, random);
  for (const int64_t m : {1, 5, 40}) {
    Check({m, 40, 0, 1, 1, ActivationKind::kRelu, true, true}, random);
  }
}

bool SameBits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Any bit pattern that the generator gives, or numbers around a power of two.
Floats Patterns(int64_t n, int kind, std::mt19937& random) {
  Floats v(static_cast<size_t>(n));
  std::normal_distribution<float> normal;
  for (float& x : v) {
    switch (kind) {
      case 0:
        x = std::bit_cast<float>(static_cast<uint32_t>(random()));
        break;
      case 1:
        x = normal(random);
        break;
      case 2:
        x = normal(random) * 0x1p-64f;  // products are denormal
        break;
      case 3:
        x = normal(random) * 0x1p-126f;  // and operands
        break;
      default:
        x = normal(random) * 0x1p63f;  // sums overflow
    }
  }
  return v;
}

TEST(BFloat16GemmTest, AmxComputesTheBitsOfPlainCode) {
  if (ActiveCpuIsa() != CpuIsa::kAmx) GTEST_SKIP() << "needs AMX";
  std::mt19937 random(86);
  for (int round = 0; round < 20; ++round) {
    const int64_t m = 40, n = 45, k = 100 + round;
    const Floats a = Patterns(m * k, round % 5, random), b = Patterns(k * n, round % 5, random);
    const Floats want =
        Times(BFloat16Kernel::kPortable, a, m, Packed(BFloat16Kernel::kPortable, b, k, n), k, n);
    const Floats got =
        Times(BFloat16Kernel::kAmx, a, m, Packed(BFloat16Kernel::kAmx, b, k, n), k, n);
    for (int64_t i = 0; i < m * n; ++i) {
      ASSERT_TRUE(SameBits(got[i], want[i])) << round << ": " << got[i] << ", " << want[i];
    }
  }
}

TEST(BFloat16GemmTest, ARowHasTheSameBitsInAnyBatch) {
  std::mt19937 random(87);
  for (const BFloat16Kernel kernel : Kernels()) {
    if (kernel == BFloat16Kernel::kRounded) continue;  // promises it for tiles only
    SCOPED_TRACE(BFloat16KernelName(kernel));
    const int64_t m = 290, n = 37, k = 2100;
    const Floats a = Random(m * k, random);
    const Tensor packed = Packed(kernel, Random(k * n, random), k, n);
    const Floats all = Times(kernel, a, m, packed, k, n);
    for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1}, {289, 1}, {5, 20}}) {
      const Floats part(a.begin() + first * k, a.begin() + (first + rows) * k);
      const Floats got = Times(kernel, part, rows, packed, k, n);
      for (int64_t i = 0; i < rows * n; ++i) ASSERT_TRUE(SameBits(got[i], all[first * n + i]));
    }
  }
}

TEST(BFloat16GemmTest, NaNInfinityAndZerosStayInTheirRows) {
  std::mt19937 random(88);
  const int64_t m = 35, n = 40, k = 70;
  Floats a = Random(m * k, random);
  const Floats b = Random(k * n, random), bias = Random(n, random);
  a[3 * k + 69] = std::numeric_limits<float>::quiet_NaN();
  a[5 * k] = std::numeric_limits<float>::infinity();
  a[6 * k + 1] = 3.4e38f;  // rounds to infinity
  std::fill_n(a.begin() + 34 * k, k, 0.0f);
  GemmEpilogue epilogue;
  epilogue.bias = bias.data();
  for (const BFloat16Kernel kernel : Kernels()) {
    SCOPED_TRACE(BFloat16KernelName(kernel));
    const Floats c = Times(kernel, a, m, Packed(kernel, b, k, n), k, n, epilogue);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        const float got = c[r * n + j];
        if (r == 3) {
          EXPECT_TRUE(std::isnan(got));
        } else if (r == 5 || r == 6) {
          EXPECT_TRUE(std::isinf(got) && (got > 0) == (b[(r - 5) * n + j] > 0)) << r << ", " << j;
        } else if (r == 34) {
          EXPECT_EQ(got, bias[j]);
        } else {
          EXPECT_TRUE(std::isfinite(got)) << r << ", " << j;
        }
      }
    }
  }
}

}  // namespace bfloat16_gemm_test
}  // namespace chairlift
