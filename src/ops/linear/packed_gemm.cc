// Packs the right-hand side for packed_gemm.h, and tests whether the left-hand side needs packing.
#include "ops/linear/packed_gemm.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/linear/huge_tensor.h"

namespace chairlift {

void PackGemmPanels(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                    int64_t first, int64_t last, float scale, float* packed) {
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * kGemmPanel;
    const int64_t columns = std::min(kGemmPanel, n - column);
    float* to = packed + panel * k * kGemmPanel;
    const float* from = b + column * n_stride;
    if (columns < kGemmPanel) std::fill_n(to, k * kGemmPanel, 0.0f);
    if (n_stride == 1 && columns == kGemmPanel) {
      // The common case, with a size that the compiler knows.
      for (int64_t i = 0; i < k; ++i) {
        const float* row = from + i * k_stride;
        for (int64_t j = 0; j < kGemmPanel; ++j) to[i * kGemmPanel + j] = scale * row[j];
      }
      continue;
    }
    if (n_stride == 1) {
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          to[i * kGemmPanel + j] = scale * from[i * k_stride + j];
        }
      }
      continue;
    }
    // Sixteen steps of K at a time: whole cache lines of a transposed B.
    for (int64_t k0 = 0; k0 < k; k0 += 16) {
      const int64_t k1 = std::min(k, k0 + 16);
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t i = k0; i < k1; ++i) {
          to[i * kGemmPanel + j] = scale * from[i * k_stride + j * n_stride];
        }
      }
    }
  }
}

bool PacksRows(int64_t m, int64_t a_row_stride, int64_t a_k_stride) {
  const bool collide = a_row_stride % 16 == 0 && std::gcd(a_row_stride / 16, int64_t{64}) > 16;
  return a_k_stride != 1 || (m > 4 && collide);
}

Tensor PackGemmWeights(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
                       float scale) {
  Tensor packed = HugeTensor(DType::kFloat, Shape{PackedGemmSize(k, n)});
  PackGemmPanels(b, k_stride, n_stride, k, n, 0, GemmPanels(n), scale, packed.data<float>());
  return packed;
}

}  // namespace chairlift
