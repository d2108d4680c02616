#include "ops/recurrent/cell_product.h"

#include <algorithm>
#include <type_traits>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

static_assert(kUnitBlock == kGemmPanel);

template <typename T>
void PackCellWeights(const CellWeights& weights, const T* w, T* packed) {
  const int64_t k = weights.k;
  for (int64_t block = 0; block < weights.blocks(); ++block) {
    const int64_t unit = block * kUnitBlock;
    const int64_t units = std::min(kUnitBlock, weights.hidden - unit);
    for (int g = 0; g < weights.num_gates; ++g, packed += k * kUnitBlock) {
      const T* from = w + ((weights.first_gate + g) * weights.hidden + unit) * k;
      if constexpr (std::is_same_v<T, float>) {
        PackGemmPanels(from, 1, k, k, units, 0, 1, 1.0f, packed);
      } else {
        std::fill_n(packed, k * kUnitBlock, T(0));
        for (int64_t j = 0; j < units; ++j) {
          for (int64_t i = 0; i < k; ++i) packed[i * kUnitBlock + j] = from[j * k + i];
        }
      }
    }
  }
}
template void PackCellWeights(const CellWeights&, const float*, float*);
template void PackCellWeights(const CellWeights&, const double*, double*);

template <typename T>
void AddCellBias(const CellWeights& weights, const T* bias, T* out) {
  for (int64_t block = 0; block < weights.blocks(); ++block) {
    const int64_t unit = block * kUnitBlock;
    const int64_t units = std::min(kUnitBlock, weights.hidden - unit);
    for (int g = 0; g < weights.num_gates; ++g, out += kUnitBlock) {
      const T* from = bias + (weights.first_gate + g) * weights.hidden + unit;
      for (int64_t j = 0; j < units; ++j) out[j] += from[j];
    }
  }
}
template void AddCellBias(const CellWeights&, const float*, float*);
template void AddCellBias(const CellWeights&, const double*, double*);

void CellProduct(const CellWeights& weights, int64_t first, int64_t last, int64_t rows,
                 const float* a, int64_t a_stride, const float* packed, const float* bias, float* c,
                 int64_t c_stride) {
  GemmEpilogue epilogue;
  epilogue.bias = bias;
  PackedGemm({a, a_stride, 1, packed, c, c_stride}, rows, weights.k, weights.columns(),
             first * weights.num_gates, last * weights.num_gates, epilogue);
}

void CellProduct(const CellWeights& weights, int64_t first, int64_t last, int64_t rows,
                 const double* a, int64_t a_stride, const double* packed, const double* bias,
                 double* c, int64_t c_stride) {
  const int64_t k = weights.k;
  for (int64_t panel = first * weights.num_gates; panel < last * weights.num_gates; ++panel) {
    const double* b = packed + panel * k * kUnitBlock;
    for (int64_t row = 0; row < rows; ++row) {
      double sums[kUnitBlock] = {};
      if (bias != nullptr) std::copy_n(bias + panel * kUnitBlock, kUnitBlock, sums);
      for (int64_t i = 0; i < k; ++i) {
        const double factor = a[row * a_stride + i];
        for (int64_t j = 0; j < kUnitBlock; ++j) sums[j] += factor * b[i * kUnitBlock + j];
      }
      std::copy_n(sums, kUnitBlock, c + row * c_stride + panel * kUnitBlock);
    }
  }
}

void CellProduct(int64_t rows, int64_t k, const double* a, int64_t a_stride, const double* packed,
                 int64_t panels, double* c, int64_t c_stride) {
  const CellWeights weights{k, kUnitBlock * panels, 0, 1};
  CellProduct(weights, 0, panels, rows, a, a_stride, packed, nullptr, c, c_stride);
}

}  // namespace chairlift
