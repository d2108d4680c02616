// The vector loops of winograd.h: a vector holds one block of channels of one pixel.
#include <algorithm>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/winograd_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Channels of A together, so that a panel's slice of U stays in the first-level cache.
constexpr int64_t kMaxBlockK = 384;

// out[i · os] = Σ Bᵀ[i][j] in[j · is], with p = 5/8, q = 3/2: even and odd parts of ±p and ±q are
// shared.
HWY_INLINE void InputTransform(const V* HWY_RESTRICT in, int is, V* HWY_RESTRICT out, int os) {
  const V p2q2 = hn::Set(kD, 0.87890625f), p2_q2 = hn::Set(kD, 2.640625f);
  const V x0 = in[0], x1 = in[is], x2 = in[2 * is];
  const V x3 = in[3 * is], x4 = in[4 * is], x5 = in[5 * is];
  out[0] = hn::MulAdd(p2q2, x0, hn::NegMulAdd(p2_q2, x2, x4));
  out[5 * os] = hn::MulAdd(p2q2, x1, hn::NegMulAdd(p2_q2, x3, x5));
  const V even_p = hn::NegMulAdd(hn::Set(kD, 2.25f), x2, x4);
  const V odd_p = hn::MulSub(hn::Set(kD, 0.625f), x3, hn::Mul(hn::Set(kD, 1.40625f), x1));
  out[os] = hn::Add(even_p, odd_p);
  out[2 * os] = hn::Sub(even_p, odd_p);
  const V even_q = hn::NegMulAdd(hn::Set(kD, 0.390625f), x2, x4);
  const V odd_q = hn::MulSub(hn::Set(kD, 1.5f), x3, hn::Mul(hn::Set(kD, 0.5859375f), x1));
  out[3 * os] = hn::Add(even_q, odd_q);
  out[4 * os] = hn::Sub(even_q, odd_q);
}

// out[i · os] = Σ Aᵀ[i][j] in[j · is].
HWY_INLINE void OutputTransform(const V* HWY_RESTRICT in, int is, V* HWY_RESTRICT out, int os) {
  const V m1 = in[is], m2 = in[2 * is], m3 = in[3 * is], m4 = in[4 * is];
  const V sum_p = hn::Add(m1, m2), difference_p = hn::Sub(m1, m2);
  const V sum_q = hn::Add(m3, m4), difference_q = hn::Sub(m3, m4);
  out[0] = hn::Add(in[0], hn::Add(sum_p, sum_q));
  out[os] = hn::MulAdd(hn::Set(kD, 0.625f), difference_p, hn::Mul(hn::Set(kD, 1.5f), difference_q));
  out[2 * os] = hn::MulAdd(hn::Set(kD, 0.390625f), sum_p, hn::Mul(hn::Set(kD, 2.25f), sum_q));
  out[3 * os] = hn::MulAdd(hn::Set(kD, 0.244140625f), difference_p,
                           hn::MulAdd(hn::Set(kD, 3.375f), difference_q, in[5 * is]));
}

// The position of tile t's outputs.
struct TileAt {
  int64_t image, y, x;
};
HWY_INLINE TileAt Locate(const WinogradGeometry& g, int64_t t) {
  const int64_t per_image = g.tiles_y * g.tiles_x;
  const int64_t in_image = t % per_image;
  return {t / per_image, in_image / g.tiles_x * 4, in_image % g.tiles_x * 4};
}

void TransformTiles(const WinogradGeometry& g, const float* HWY_RESTRICT x, int64_t first,
                    int64_t count, int64_t capacity, float* HWY_RESTRICT v) {
  const int64_t stride = g.TileStride();
  for (int64_t i = 0; i < count; ++i) {
    const TileAt at = Locate(g, first + i);
    const int64_t y0 = at.y - g.pad_top, x0 = at.x - g.pad_left;
    const bool inside = y0 >= 0 && x0 >= 0 && y0 + 6 <= g.height && x0 + 6 <= g.width;
    for (int64_t c = 0; c < g.channels; c += kLanes) {
      const float* from = x + (at.image * g.channels + c) * g.height * g.width;
      V d[36], rows[36];
      if (inside) {
        from += (y0 * g.width + x0) * kLanes;
        for (int r = 0; r < 6; ++r) {
          for (int s = 0; s < 6; ++s)
            d[6 * r + s] = hn::LoadU(kD, from + (r * g.width + s) * kLanes);
        }
      } else {
        for (int r = 0; r < 6; ++r) {
          for (int s = 0; s < 6; ++s) {
            const int64_t yy = y0 + r, xx = x0 + s;
            const bool in = yy >= 0 && yy < g.height && xx >= 0 && xx < g.width;
            d[6 * r + s] = in ? hn::LoadU(kD, from + (yy * g.width + xx) * kLanes) : hn::Zero(kD);
          }
        }
      }
      CHAIRLIFT_UNROLL
      for (int s = 0; s < 6; ++s) InputTransform(d + s, 6, rows + s, 6);
      CHAIRLIFT_UNROLL
      for (int r = 0; r < 6; ++r) {
        V points[6];
        InputTransform(rows + 6 * r, 1, points, 1);
        CHAIRLIFT_UNROLL
        for (int s = 0; s < 6; ++s) {
          hn::StoreU(points[s], kD, v + ((6 * r + s) * capacity + i) * stride + c);
        }
      }
    }
  }
}

// Z[ξ] = V[ξ] · U[ξ] for one panel.
HWY_INLINE void MultiplyPanel(const WinogradGeometry& g, const WinogradOperands& o, const float* u,
                              int64_t count) {
  const int64_t stride = g.TileStride();
  const int64_t tiles = (count + kMaxRows - 1) / kMaxRows;
  const int64_t blocks = (g.channels + kMaxBlockK - 1) / kMaxBlockK;
  for (int64_t point = 0; point < kWinogradPoints; ++point) {
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t k0 = g.channels * block / blocks;
      const int64_t kb = g.channels * (block + 1) / blocks - k0;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t r0 = count * tile / tiles;
        const int64_t rows = count * (tile + 1) / tiles - r0;
        kPanelTable[rows - 1](o.v + (point * o.capacity + r0) * stride + k0, stride,
                              u + (point * g.channels + k0) * kGemmPanel,
                              o.z + (point * count + r0) * kGemmPanel, kGemmPanel, kb, block > 0,
                              nullptr, {});
      }
    }
  }
}

void MultiplyTiles(const WinogradGeometry& g, const WinogradOperands& o, int64_t first,
                   int64_t count, int64_t panel_begin, int64_t panel_end) {
  const V alpha = hn::Set(kD, g.activation.alpha);
  const V beta = hn::Set(kD, g.activation.beta);
  const int64_t out_plane = g.out_height * g.out_width;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    MultiplyPanel(g, o, o.u + panel * kWinogradPoints * g.channels * kGemmPanel, count);
    const int64_t channel = panel * kGemmPanel;
    const int64_t channels = std::min(kGemmPanel, g.out_channels - channel);
    for (int64_t i = 0; i < count; ++i) {
      const TileAt at = Locate(g, first + i);
      const int64_t rows = std::min<int64_t>(4, g.out_height - at.y);
      const int64_t columns = std::min<int64_t>(4, g.out_width - at.x);
      for (int64_t c = 0; c < channels; c += kLanes) {
        const float* from = o.z + i * kGemmPanel + c;
        V z[36], half[24];
        CHAIRLIFT_UNROLL
        for (int point = 0; point < 36; ++point) {
          z[point] = hn::LoadU(kD, from + point * count * kGemmPanel);
        }
        CHAIRLIFT_UNROLL
        for (int s = 0; s < 6; ++s) OutputTransform(z + s, 6, half + s, 6);
        const V bias = o.bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, o.bias + channel + c);
        const auto there = LanesBefore(g.filters - channel - c);
        const int64_t base = (at.image * g.out_channels + channel + c) * out_plane;
        for (int64_t r = 0; r < rows; ++r) {
          V out[4];
          OutputTransform(half + 6 * r, 1, out, 1);
          for (int64_t s = 0; s < columns; ++s) {
            const int64_t to = base + ((at.y + r) * g.out_width + at.x + s) * kLanes;
            V value = hn::Add(out[s], bias);
            if (o.residual != nullptr) value = hn::Add(value, hn::LoadU(kD, o.residual + to));
            value = VectorActivate(kD, g.activation.kind, alpha, beta, value);
            hn::StoreU(hn::IfThenElseZero(there, value), kD, o.y + to);
          }
        }
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(TransformTiles);
HWY_EXPORT(MultiplyTiles);

void WinogradTransformInput(const WinogradGeometry& g, const float* x, int64_t first, int64_t count,
                            int64_t capacity, float* v) {
  HWY_DYNAMIC_DISPATCH(TransformTiles)(g, x, first, count, capacity, v);
}

void WinogradMultiply(const WinogradGeometry& g, const WinogradOperands& operands, int64_t first,
                      int64_t count, int64_t panel_begin, int64_t panel_end) {
  HWY_DYNAMIC_DISPATCH(MultiplyTiles)(g, operands, first, count, panel_begin, panel_end);
}

}  // namespace chairlift
#endif  // HWY_ONCE
