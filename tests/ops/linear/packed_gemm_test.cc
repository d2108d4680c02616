// PackedGemm against sums in double, over few and many rows, partial panels, strides and epilogues.
#include "ops/linear/packed_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/status.h"

namespace chairlift {
namespace packed_gemm_test {

struct Case {
  int64_t m, n, k;
  int64_t a_row_stride, a_k_stride;
  bool epilogue;
};

std::vector<float> Random(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  // Never nothing, so that there is an address to count from.
  std::vector<float> v(static_cast<size_t>(n) + 1);
  for (float& e : v) e = normal(random);
  return v;
}

void Check(const Case& p, std::mt19937& random) {
  SCOPED_TRACE(fmt::format("m={} n={} k={} strides {} {} epilogue {}", p.m, p.n, p.k,
                           p.a_row_stride, p.a_k_stride, p.epilogue));
  const auto a = Random(p.m * p.a_row_stride + p.k * p.a_k_stride + 1, random);
  const auto b = Random(p.k * p.n, random);
  const auto bias = Random(p.n, random);
  const int64_t c_stride = p.n + 3;
  const auto residual = Random(p.m * c_stride, random);
  std::vector<float> packed(static_cast<size_t>(PackedGemmSize(p.k, p.n)) + 1);
  PackGemmPanels(b.data(), p.n, 1, p.k, p.n, 0, GemmPanels(p.n), 1.0f, packed.data());
  GemmEpilogue epilogue;
  if (p.epilogue) {
    epilogue.bias = bias.data();
    epilogue.residual = residual.data();
    epilogue.residual_stride = c_stride;
    epilogue.activation.kind = ActivationKind::kRelu;
  }
  constexpr float kUntouched = -12345;
  const int64_t panels = GemmPanels(p.n);
  for (int64_t cut : {int64_t{0}, panels / 2, std::max<int64_t>(panels - 1, 0)}) {
    std::vector<float> c(static_cast<size_t>(p.m * c_stride) + 1, kUntouched);
    // Two calls, as two workers make.
    for (const auto& [first, last] : {std::pair{int64_t{0}, cut}, {cut, panels}}) {
      PackedGemm({a.data(), p.a_row_stride, p.a_k_stride, packed.data(), c.data(), c_stride}, p.m,
                 p.k, p.n, first, last, epilogue);
    }
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t j = 0; j < c_stride; ++j) {
        const float got = c[r * c_stride + j];
        if (j >= p.n) {
          ASSERT_EQ(got, kUntouched) << "past the columns of row " << r;
          continue;
        }
        double want = 0;
        double size = 1;
        for (int64_t i = 0; i < p.k; ++i) {
          const double term = static_cast<double>(a[r * p.a_row_stride + i * p.a_k_stride]) *
                              static_cast<double>(b[i * p.n + j]);
          want += term;
          size += std::abs(term);
        }
        if (p.epilogue) {
          const auto extra = static_cast<double>(residual[r * c_stride + j]);
          size += std::abs(static_cast<double>(bias[j])) + std::abs(extra);
          want = std::max(0.0, want + static_cast<double>(bias[j]) + extra);
        }
        // Rounding of a chain of k sums, as errors of either sign add up.
        const double bound = 6e-8 * (4 + std::sqrt(static_cast<double>(p.k))) * size;
        ASSERT_NEAR(got, want, bound) << r << ", " << j << " cut at " << cut;
      }
    }
  }
}

TEST(PackedGemmTest, FewRowsByAnyColumns) {
  std::mt19937 random(71);
  for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
    for (int64_t n : {1, 31, 32, 33, 63, 64, 96, 127, 128, 129, 160, 300}) {
      for (int64_t k : {1, 2, 7, 40}) Check({m, n, k, k, 1, (m + n + k) % 2 == 0}, random);
    }
  }
}

TEST(PackedGemmTest, RowsThatLieAwkwardly) {
  std::mt19937 random(72);
  for (int64_t m : {1, 3, 4, 5, 8, 20}) {
    Check({m, 70, 256, 256, 1, false}, random);  // a multiple of 1 KiB apart
    Check({m, 70, 300, 1024, 1, true}, random);  // likewise
    Check({m, 70, 33, 35, 1, true}, random);     // unaligned
    Check({m, 70, 33, 1, m, true}, random);      // transposed
    Check({m, 70, 1000, 1000, 1, false}, random);
  }
  // More than there is room to pack for at once.
  Check({8, 33, 10240, 10240, 1, true}, random);
}

TEST(PackedGemmTest, SeveralBlocksOfRowsAndOfDepth) {
  std::mt19937 random(74);
  Check({140, 40, 1500, 1503, 1, true}, random);
  Check({141, 40, 800, 1024, 1, true}, random);
  Check({300, 33, 740, 740, 1, false}, random);
}

TEST(PackedGemmTest, NoColumnsNoRowsNoDepth) {
  std::mt19937 random(73);
  Check({0, 5, 3, 3, 1, false}, random);
  Check({3, 0, 3, 3, 1, false}, random);
  for (int64_t m : {1, 5, 30}) Check({m, 40, 0, 1, 1, true}, random);
}

}  // namespace packed_gemm_test
}  // namespace chairlift
