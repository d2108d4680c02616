// The kernels of packed_gemm.h: register tiles of A rows by panel columns, with K in blocks.
#include <algorithm>
#include <cstring>
#include <memory>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/packed_gemm_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/few_rows_tile-inl.h"
#include "ops/linear/gemm_epilogue-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/packed_gemm.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// K in blocks whose slice of A stays in the second-level cache: this long for kGemmRowBlock rows,
// longer for fewer.
constexpr int64_t kBlockK = 720;
// Padding in floats after each row of a block, so that rows do not share a cache set.
constexpr int64_t kRowPad = 16;
// Weights larger than the second-level cache: worth prefetching.
constexpr int64_t kFarElements = 256 << 10;
constexpr int64_t kPackedFloats = kGemmRowBlock * (kBlockK + kRowPad);

// A block of A with rows kb + kRowPad apart.
void PackRows(const float* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t kb,
              float* to) {
  const int64_t to_stride = kb + kRowPad;
  if (k_stride == 1) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * to_stride, a + r * row_stride, static_cast<size_t>(kb) * sizeof(float));
    }
    return;
  }
  for (int64_t k = 0; k < kb; ++k) {
    for (int64_t r = 0; r < rows; ++r) to[r * to_stride + k] = a[r * row_stride + k * k_stride];
  }
}

// The buffer for packed blocks of A; one per thread, allocated at its first product.
float* PackedRows() {
  static thread_local const auto kRows = std::make_unique<float[]>(kPackedFloats);
  return kRows.get();
}

// At most kFewRows rows; false if there is no buffer to pack A into.
bool FewRows(const GemmOperands& x, int64_t rows, int64_t k, int64_t n, int64_t first, int64_t last,
             const GemmEpilogue& epilogue) {
  if constexpr (kFewRows > 0) {
    const float* a = x.a;
    int64_t a_stride = x.a_row_stride;
    // More than four rows at distances of a multiple of 1 KiB compete for cache lines.
    if (x.a_k_stride != 1 || (rows > 4 && a_stride % 256 == 0)) {
      if (rows * (k + kRowPad) > kPackedFloats) return false;
      PackRows(x.a, x.a_row_stride, x.a_k_stride, rows, k, PackedRows());
      a = PackedRows();
      a_stride = k + kRowPad;
    }
    const int64_t panel_stride = k * kGemmPanel;
    const int64_t at_once = PanelsAtOnce(static_cast<int>(rows));
    const FewRowsTiles& tiles = kFewRowsTiles[rows - 1];
    for (int64_t panel = first; panel < last;) {
      const int64_t column = panel * kGemmPanel;
      const float* b = x.packed + panel * panel_stride;
      // Whole panels side by side, or the rest of the last one.
      const int64_t whole = std::min({at_once, last - panel, (n - column) / kGemmPanel});
      const int64_t columns = whole > 0 ? whole * kGemmPanel : n - column;
      if (whole > 0) {
        tiles[whole - 1](a, a_stride, b, panel_stride, x.c + column, x.c_stride, kGemmPanel, k);
      } else {
        float edge[kFewRows * kGemmPanel];
        tiles[0](a, a_stride, b, panel_stride, edge, kGemmPanel, kGemmPanel, k);
        for (int64_t r = 0; r < rows; ++r) {
          std::memcpy(x.c + r * x.c_stride + column, edge + r * kGemmPanel,
                      static_cast<size_t>(columns) * sizeof(float));
        }
      }
      FinishColumns(x.c, x.c_stride, rows, column, columns, epilogue);
      panel += std::max<int64_t>(whole, 1);
    }
    return true;
  }
  return false;
}

void RowBlock(const GemmOperands& x, int64_t rows, int64_t k, int64_t n, int64_t first,
              int64_t last, const GemmEpilogue& epilogue) {
  // Few rows use one pass over all of K, so that their sums never leave the registers.
  const bool one_pass = rows <= 4 && x.a_k_stride == 1;
  const bool pack = PacksRows(rows, x.a_row_stride, x.a_k_stride);
  const bool finish =
      epilogue.residual != nullptr || epilogue.activation.kind != ActivationKind::kNone;
  const bool far = (last - first) * k * kGemmPanel >= kFarElements;
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  const int64_t block_k = kPackedFloats / rows - kRowPad;
  const int64_t blocks = one_pass ? 1 : std::max<int64_t>(1, (k + block_k - 1) / block_k);
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t k0 = k * block / blocks;
    const int64_t kb = k * (block + 1) / blocks - k0;
    const float* a = x.a + k0 * x.a_k_stride;
    int64_t a_stride = x.a_row_stride;
    if (pack) {
      PackRows(a, x.a_row_stride, x.a_k_stride, rows, kb, PackedRows());
      a = PackedRows();
      a_stride = kb + kRowPad;
    }
    for (int64_t panel = first; panel < last; ++panel) {
      const float* b = x.packed + (panel * k + k0) * kGemmPanel;
      const float* next = far && panel + 1 < last ? b + k * kGemmPanel : nullptr;
      const int64_t column = panel * kGemmPanel;
      const int64_t columns = std::min(kGemmPanel, n - column);
      const bool half = columns <= kHalfPanel;
      const float* bias = epilogue.bias == nullptr || block > 0 ? nullptr : epilogue.bias + column;
      float edge_bias[kGemmPanel] = {};
      if (bias != nullptr && columns < kGemmPanel) {
        std::copy_n(bias, columns, edge_bias);
        bias = edge_bias;
      }
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t r0 = rows * tile / tiles;
        const int64_t r_count = rows * (tile + 1) / tiles - r0;
        float* c = x.c + r0 * x.c_stride + column;
        const auto run = (half ? kHalfPanelTable : kPanelTable)[r_count - 1];
        const Fetch fetch = FetchPanel(next, kb, tile, tiles);
        if (columns == (half ? kHalfPanel : kGemmPanel)) {
          run(a + r0 * a_stride, a_stride, b, c, x.c_stride, kb, block > 0, bias, fetch);
        } else {
          float edge[kMaxRows * kGemmPanel];
          const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
          for (int64_t r = 0; block > 0 && r < r_count; ++r) {
            std::memcpy(edge + r * kGemmPanel, c + r * x.c_stride, bytes);
          }
          run(a + r0 * a_stride, a_stride, b, edge, kGemmPanel, kb, block > 0, bias, fetch);
          for (int64_t r = 0; r < r_count; ++r) {
            std::memcpy(c + r * x.c_stride, edge + r * kGemmPanel, bytes);
          }
        }
        if (finish && block + 1 == blocks) {
          Finish(c, x.c_stride, c, x.c_stride, nullptr,
                 epilogue.residual == nullptr
                     ? nullptr
                     : epilogue.residual + r0 * epilogue.residual_stride + column,
                 epilogue.residual_stride, epilogue.activation, r_count, columns);
        }
      }
    }
  }
}

template <ActivationKind kKind, bool kBias, bool kResidual>
void FinishPanelRows(const float* HWY_RESTRICT sums, float* c, int64_t c_stride, int64_t rows,
                     const GemmEpilogue& epilogue) {
  const V alpha = hn::Set(kD, epilogue.activation.alpha);
  const V beta = hn::Set(kD, epilogue.activation.beta);
  for (int64_t v = 0; v < kGemmPanel; v += kLanes) {
    const V bias = kBias ? hn::LoadU(kD, epilogue.bias + v) : hn::Zero(kD);
    for (int64_t r = 0; r < rows; ++r) {
      V x = hn::LoadU(kD, sums + r * kGemmPanel + v);
      if constexpr (kBias) x = hn::Add(x, bias);
      if constexpr (kResidual) {
        x = hn::Add(x, hn::LoadU(kD, epilogue.residual + r * epilogue.residual_stride + v));
      }
      hn::StoreU(VectorActivate(kD, kKind, alpha, beta, x), kD, c + r * c_stride + v);
    }
  }
}

template <ActivationKind kKind>
FinishPanel PanelFinisherOf(const GemmEpilogue& epilogue) {
  if (epilogue.bias == nullptr) {
    return epilogue.residual == nullptr ? &FinishPanelRows<kKind, false, false>
                                        : &FinishPanelRows<kKind, false, true>;
  }
  return epilogue.residual == nullptr ? &FinishPanelRows<kKind, true, false>
                                      : &FinishPanelRows<kKind, true, true>;
}

void FinishAnyPanelRows(const float* sums, float* c, int64_t c_stride, int64_t rows,
                        const GemmEpilogue& epilogue) {
  Finish(sums, kGemmPanel, c, c_stride, epilogue.bias, epilogue.residual, epilogue.residual_stride,
         epilogue.activation, rows, kGemmPanel);
}

FinishPanel FinisherOf(const GemmEpilogue& epilogue) {
  switch (epilogue.activation.kind) {
    case ActivationKind::kNone:
      return PanelFinisherOf<ActivationKind::kNone>(epilogue);
    case ActivationKind::kRelu:
      return PanelFinisherOf<ActivationKind::kRelu>(epilogue);
    case ActivationKind::kGelu:
      return PanelFinisherOf<ActivationKind::kGelu>(epilogue);
    default:
      return &FinishAnyPanelRows;
  }
}

void Gemm(const GemmOperands& operands, int64_t m, int64_t k, int64_t n, int64_t first,
          int64_t last, const GemmEpilogue& epilogue) {
  if (m == 0 || n == 0) return;
  if (m <= kFewRows && FewRows(operands, m, k, n, first, last, epilogue)) return;
  const int64_t blocks = (m + kGemmRowBlock - 1) / kGemmRowBlock;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t r0 = m * i / blocks;
    GemmOperands x = operands;
    x.a += r0 * x.a_row_stride;
    x.c += r0 * x.c_stride;
    GemmEpilogue e = epilogue;
    if (e.residual != nullptr) e.residual += r0 * e.residual_stride;
    RowBlock(x, m * (i + 1) / blocks - r0, k, n, first, last, e);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Finish);
HWY_EXPORT(FinisherOf);
HWY_EXPORT(FinishColumns);
HWY_EXPORT(Gemm);

void FinishGemm(float* c, int64_t c_stride, int64_t rows, int64_t column, int64_t columns,
                const GemmEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(FinishColumns)(c, c_stride, rows, column, columns, epilogue);
}

FinishPanel PanelFinisher(const GemmEpilogue& epilogue) {
  return HWY_DYNAMIC_DISPATCH(FinisherOf)(epilogue);
}

void FinishSums(const float* sums, int64_t sums_stride, float* c, int64_t c_stride, int64_t rows,
                int64_t columns, const GemmEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(Finish)
  (sums, sums_stride, c, c_stride, epilogue.bias, epilogue.residual, epilogue.residual_stride,
   epilogue.activation, rows, columns);
}

void PackedGemm(const GemmOperands& operands, int64_t m, int64_t k, int64_t n, int64_t first,
                int64_t last, const GemmEpilogue& epilogue) {
  HWY_DYNAMIC_DISPATCH(Gemm)(operands, m, k, n, first, last, epilogue);
}

}  // namespace chairlift
#endif  // HWY_ONCE
