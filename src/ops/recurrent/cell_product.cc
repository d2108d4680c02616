#include "ops/recurrent/cell_product.h"

#include <algorithm>
#include <type_traits>

#include "ops/linear/packed_gemm.h"

namespace chairlift {

static_assert(kUnitBlock == kGemmPanel && kNarrowBlock == kHalfPanel);

template <typename T>
void PackCellWeights(const CellWeights& weights, const T* w, T* packed) {
  const int64_t k = weights.k;
  for (int64_t block = 0; block < weights.blocks(); ++block) {
    const int64_t unit = block * kUnitBlock;
    const int64_t units = std::min(kUnitBlock, weights.hidden - unit);
    const int64_t panels = weights.FirstPanel(block + 1) - weights.FirstPanel(block);
    const int64_t gate_stride = weights.GateStride(block);
    const bool by_panel = std::is_same_v<T, float> && gate_stride == kUnitBlock;
    if (!by_panel) std::fill_n(packed, panels * k * kUnitBlock, T(0));
    for (int g = 0; g < weights.num_gates; ++g) {
      const T* from = w + ((weights.first_gate + g) * weights.hidden + unit) * k;
      const int64_t column = g * gate_stride;
      T* to = packed + column / kUnitBlock * k * kUnitBlock + column % kUnitBlock;
      if constexpr (std::is_same_v<T, float>) {
        if (by_panel) PackGemmPanels(from, 1, k, k, units, 0, 1, 1.0f, to);
      }
      for (int64_t j = 0; !by_panel && j < units; ++j) {
        for (int64_t i = 0; i < k; ++i) to[i * kUnitBlock + j] = from[j * k + i];
      }
    }
    packed += panels * k * kUnitBlock;
  }
}
template void PackCellWeights(const CellWeights&, const float*, float*);
template void PackCellWeights(const CellWeights&, const double*, double*);

template <typename T>
void AddCellBias(const CellWeights& weights, const T* bias, T* out) {
  for (int64_t block = 0; block < weights.blocks(); ++block) {
    const int64_t unit = block * kUnitBlock;
    const int64_t units = std::min(kUnitBlock, weights.hidden - unit);
    T* to = out + weights.FirstPanel(block) * kUnitBlock;
    for (int g = 0; g < weights.num_gates; ++g, to += weights.GateStride(block)) {
      const T* from = bias + (weights.first_gate + g) * weights.hidden + unit;
      for (int64_t j = 0; j < units; ++j) to[j] += from[j];
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
  const int64_t columns = weights.columns() - (weights.HalfEnd() ? kHalfPanel : 0);
  PackedGemm({a, a_stride, 1, packed, c, c_stride}, rows, weights.k, columns,
             weights.FirstPanel(first), weights.FirstPanel(last), epilogue);
}

void CellProduct(const CellWeights& weights, int64_t first, int64_t last, int64_t rows,
                 const double* a, int64_t a_stride, const double* packed, const double* bias,
                 double* c, int64_t c_stride) {
  const int64_t k = weights.k;
  for (int64_t panel = weights.FirstPanel(first); panel < weights.FirstPanel(last); ++panel) {
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
