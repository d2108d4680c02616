// The kernels of bfloat16_gemm.h. A block of rows is rounded and packed for a block of K. Every
// panel of B is then multiplied with 32 rows of it at a time. So the panel stays in the first-level
// cache, and the rows in the second.
#include "ops/linear/bfloat16_gemm.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "device/cpu/isa.h"
#include "ops/linear/tile_ops.h"

namespace chairlift {
namespace {

static_assert(kSumsBlock == kGemmPanel);

int64_t DepthTiles(int64_t k) { return (k + kTileDepth - 1) / kTileDepth; }

void PackTiles(const float* b, int64_t k_stride, int64_t n_stride, int64_t k, int64_t n,
               float scale, BFloat16* packed) {
  for (int64_t panel = 0; panel < GemmPanels(n); ++panel) {
    for (int64_t step = 0; step < DepthTiles(k); ++step) {
      for (int64_t half = 0; half < 2; ++half, packed += kTileElements) {
        const int64_t column = panel * kGemmPanel + half * kTileColumns;
        const int64_t columns = std::clamp<int64_t>(n - column, 0, kTileColumns);
        const int64_t depth = std::min(kTileDepth, k - step * kTileDepth);
        if (columns < kTileColumns || depth < kTileDepth) {
          std::fill_n(packed, kTileElements, BFloat16(0.0f));
        }
        const float* from = b + step * kTileDepth * k_stride + column * n_stride;
        for (int64_t i = 0; i < depth; ++i) {
          for (int64_t c = 0; c < columns; ++c) {
            packed[i / 2 * kTileDepth + 2 * c + i % 2] =
                BFloat16(scale * from[i * k_stride + c * n_stride]);
          }
        }
      }
    }
  }
}

// Rows and steps of K that are packed at a time: 1 MiB, half of a second-level cache.
constexpr int64_t kMostRows = 256, kMostSteps = 64;

BFloat16* TileRows() {
  struct alignas(64) Line {
    BFloat16 elements[kTileDepth];
  };
  static thread_local const auto kRows = std::make_unique<Line[]>(kMostRows * kMostSteps);
  return kRows[0].elements;
}

// A part of A: `steps` steps of K from `step` on.
struct Depth {
  int64_t step;
  int64_t steps;
  bool is_first, is_last;
};

// Tiles of 16 rows, each `steps` tiles long. Places past the last row are not written, because
// their sums are not read.
template <class Tiles>
void PackRowTiles(const BFloat16Rows& x, const Depth& depth, BFloat16* to) {
  const int64_t k0 = depth.step * kTileDepth;
  const int64_t count = std::min(x.k - k0, depth.steps * kTileDepth);
  for (int64_t r = 0; r < x.m; ++r) {
    Tiles::PackRow(x.a + r * x.row_stride + k0 * x.k_stride, x.k_stride, count,
                   to + r / kTileRows * depth.steps * kTileElements + r % kTileRows * kTileDepth);
  }
}

// Applies the epilogue to finished sums, a few rows at a time, between the steps of the next block.
// The processor then computes both at once.
class Finishing {
 public:
  explicit Finishing(const GemmEpilogue& epilogue) : panel_(PanelFinisher(epilogue)) {}
  void Start(const float* sums, float* c, int64_t c_stride, int64_t rows, int64_t columns,
             const GemmEpilogue& epilogue) {
    sums_ = sums;
    c_ = c;
    c_stride_ = c_stride;
    rows_ = rows;
    columns_ = columns;
    epilogue_ = epilogue;
  }
  void Some(int64_t most) {
    const int64_t rows = std::min(most, rows_);
    if (rows == 0) return;
    if (columns_ == kGemmPanel) {
      panel_(sums_, c_, c_stride_, rows, epilogue_);
    } else {
      FinishSums(sums_, kSumsBlock, c_, c_stride_, rows, columns_, epilogue_);
    }
    sums_ += rows * kSumsBlock;
    c_ += rows * c_stride_;
    if (epilogue_.residual != nullptr) epilogue_.residual += rows * epilogue_.residual_stride;
    rows_ -= rows;
  }
  void Rest() { Some(rows_); }
  int64_t rows() const { return rows_; }

 private:
  const FinishPanel panel_;
  const float* sums_ = nullptr;
  float* c_ = nullptr;
  int64_t c_stride_ = 0;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  GemmEpilogue epilogue_;
};

template <bool kTwo, class Tiles>
void Steps(Tiles& tiles, const BFloat16* a, int64_t steps, const BFloat16* b,
           Finishing& finishing) {
  const int64_t share = steps == 0 ? 0 : (finishing.rows() + steps - 1) / steps;
  for (int64_t s = 0; s < steps; ++s) {
    tiles.template Step<kTwo>(a + s * kTileElements, steps * kTileElements,
                              b + s * 2 * kTileElements);
    finishing.Some(share);
  }
}

// Rows [r0, r0 + m) of the product, which are packed at `a`, over this depth.
template <class Tiles>
void MultiplyTiles(const BFloat16Product& product, const BFloat16* a, int64_t r0, int64_t m,
                   const Depth& depth, int64_t all_steps) {
  alignas(64) float sums[2][kSumsBlock * kSumsBlock];
  Tiles tiles;
  // Sums over a part of K are only stored.
  const GemmEpilogue epilogue = depth.is_last ? product.epilogue : GemmEpilogue();
  Finishing finishing(epilogue);
  int turn = 0;
  for (int64_t panel = product.first; panel < product.last; ++panel) {
    const int64_t column = panel * kGemmPanel;
    const int64_t columns = std::min(kGemmPanel, product.n - column);
    const BFloat16* b = static_cast<const BFloat16*>(product.packed) +
                        (panel * all_steps + depth.step) * 2 * kTileElements;
    for (int64_t r = 0; r < m; r += kSumsBlock, turn = 1 - turn) {
      const int64_t rows = std::min(kSumsBlock, m - r);
      float* c = product.c + (r0 + r) * product.c_stride + column;
      float* const mine = sums[turn];
      if (!depth.is_first) {
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(c + i * product.c_stride, columns, mine + i * kSumsBlock);
        }
      }
      tiles.Begin(depth.is_first ? nullptr : mine);
      const BFloat16* from = a + r / kTileRows * depth.steps * kTileElements;
      if (rows > kTileRows) {
        Steps<true>(tiles, from, depth.steps, b, finishing);
        finishing.Rest();
        tiles.template End<true>(mine);
      } else {
        Steps<false>(tiles, from, depth.steps, b, finishing);
        finishing.Rest();
        tiles.template End<false>(mine);
      }
      GemmEpilogue here = epilogue;
      if (here.bias != nullptr) here.bias += column;
      if (here.residual != nullptr) here.residual += (r0 + r) * here.residual_stride + column;
      finishing.Start(mine, c, product.c_stride, rows, columns, here);
    }
  }
  finishing.Rest();
}

template <class Tiles>
void TileGemm(const BFloat16Rows& x, std::span<const BFloat16Product> products) {
  const int64_t steps = DepthTiles(x.k);
  const int64_t row_blocks = (x.m + kMostRows - 1) / kMostRows;
  const int64_t depths = std::max<int64_t>(1, (steps + kMostSteps - 1) / kMostSteps);
  // All blocks but the last have whole groups of 32 rows.
  const int64_t block =
      (x.m + row_blocks * kSumsBlock - 1) / (row_blocks * kSumsBlock) * kSumsBlock;
  for (int64_t r0 = 0; r0 < x.m; r0 += block) {
    BFloat16Rows part = x;
    part.a += r0 * x.row_stride;
    part.m = std::min(block, x.m - r0);
    for (int64_t d = 0; d < depths; ++d) {
      const int64_t step = steps * d / depths;
      const Depth depth{step, steps * (d + 1) / depths - step, d == 0, d + 1 == depths};
      PackRowTiles<Tiles>(part, depth, TileRows());
      for (const BFloat16Product& product : products) {
        MultiplyTiles<Tiles>(product, TileRows(), r0, part.m, depth, steps);
      }
    }
  }
}

// Rows at a time whose rounded copy stays in the second-level cache.
void RoundedGemm(const BFloat16Rows& x, std::span<const BFloat16Product> products) {
  constexpr int64_t kElements = 256 << 10;
  static thread_local std::vector<float> rounded;
  const int64_t block =
      std::clamp<int64_t>(kElements / std::max<int64_t>(x.k, 1), 1, kGemmRowBlock);
  rounded.resize(static_cast<size_t>(std::max(kElements, x.k)));
  for (int64_t r0 = 0; r0 < x.m; r0 += block) {
    const int64_t rows = std::min(block, x.m - r0);
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = x.a + (r0 + r) * x.row_stride;
      for (int64_t k = 0; k < x.k; ++k) {
        rounded[r * x.k + k] = static_cast<float>(BFloat16(from[k * x.k_stride]));
      }
    }
    for (const BFloat16Product& product : products) {
      GemmEpilogue epilogue = product.epilogue;
      if (epilogue.residual != nullptr) epilogue.residual += r0 * epilogue.residual_stride;
      PackedGemm({rounded.data(), x.k, 1, static_cast<const float*>(product.packed),
                  product.c + r0 * product.c_stride, product.c_stride},
                 rows, x.k, product.n, product.first, product.last, epilogue);
    }
  }
}

}  // namespace

BFloat16Kernel MachineBFloat16Kernel() {
  return ActiveCpuIsa() == CpuIsa::kAmx ? BFloat16Kernel::kAmx : BFloat16Kernel::kRounded;
}

const char* BFloat16KernelName(BFloat16Kernel kernel) {
  switch (kernel) {
    case BFloat16Kernel::kAmx:
      return "AMX";
    case BFloat16Kernel::kPortable:
      return "plain code";
    case BFloat16Kernel::kRounded:
      return "rounded, at the speed of float32";
  }
  return "";
}

int64_t BFloat16GemmSize(BFloat16Kernel kernel, int64_t k, int64_t n) {
  if (kernel == BFloat16Kernel::kRounded) return PackedGemmSize(k, n);
  return GemmPanels(n) * DepthTiles(k) * 2 * kTileElements;
}

DType BFloat16GemmType(BFloat16Kernel kernel) {
  return kernel == BFloat16Kernel::kRounded ? DType::kFloat : DType::kBFloat16;
}

void PackBFloat16Weights(BFloat16Kernel kernel, const float* b, int64_t k_stride, int64_t n_stride,
                         int64_t k, int64_t n, float scale, void* packed) {
  if (kernel != BFloat16Kernel::kRounded) {
    PackTiles(b, k_stride, n_stride, k, n, scale, static_cast<BFloat16*>(packed));
    return;
  }
  auto* to = static_cast<float*>(packed);
  PackGemmPanels(b, k_stride, n_stride, k, n, 0, GemmPanels(n), scale, to);
  for (int64_t i = 0; i < PackedGemmSize(k, n); ++i) to[i] = static_cast<float>(BFloat16(to[i]));
}

void BFloat16Gemm(BFloat16Kernel kernel, const BFloat16Rows& rows,
                  std::span<const BFloat16Product> products) {
  if (rows.m == 0) return;
  switch (kernel) {
    case BFloat16Kernel::kAmx: {
#if defined(__x86_64__)
      const TileScope scope;
      TileGemm<AmxTiles>(rows, products);
#endif
      return;
    }
    case BFloat16Kernel::kPortable:
      return TileGemm<PortableTiles>(rows, products);
    case BFloat16Kernel::kRounded:
      return RoundedGemm(rows, products);
  }
}

}  // namespace chairlift
