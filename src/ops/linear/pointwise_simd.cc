// The kernel of pointwise.h, one build per instruction set.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/pointwise_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/linear/activation-inl.h"
#include "ops/linear/gemm_tile-inl.h"
#include "ops/linear/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

// Vectors of outputs per tile, and the number of pixels that the register file then holds.
constexpr int kMostVectors = kWideFile ? 3 : 2;
constexpr int MostPixels(int vectors) {
  return kWideFile ? (vectors == 3 ? 9 : 14) : (vectors == 2 ? 6 : 10);
}

// Addresses of a tile's operands. Distances are in floats.
struct TileOperands {
  const float* x = nullptr;  // the first pixel
  int64_t pixel = 0;         // to the next
  int64_t channels = 0;
  int64_t block = 0;         // between blocks of channels of a pixel
  int64_t plane = 0;         // to the next block
  const float* w = nullptr;  // of the first vector
  int64_t vector_weights = 0;
  int64_t fetch = 0;  // how far ahead weights are prefetched into the second-level cache; 0: not at
                      // all
  // Inputs of later pixels, prefetched too: some pixels of each block from `next` on.
  const float* next = nullptr;
  int64_t next_pixels = 0, next_pixel = 0, next_plane = 0;
  const float* bias = nullptr;
  const float* residual = nullptr;  // or null
  float* y = nullptr;
  int64_t y_pixel = 0, y_vector = 0;
  int64_t outputs = 0;      // counted from the first vector; padding of the last block stays zero
  float low = 0, high = 0;  // bounds for sums
};

template <int P, int N>
HWY_NOINLINE void PixelTile(const TileOperands& t) {
  V sums[P][N];
  CHAIRLIFT_UNROLL
  for (int v = 0; v < N; ++v) {
    const V bias = hn::LoadU(kD, t.bias + v * kLanes);
    CHAIRLIFT_UNROLL
    for (int p = 0; p < P; ++p) sums[p][v] = bias;
  }
  // Prefetched while the sums are computed.
  for (int v = 0; v < N; ++v) {
    for (int p = 0; p < P; ++p) {
      const int64_t at = p * t.y_pixel + v * t.y_vector;
      if (t.residual != nullptr) __builtin_prefetch(t.residual + at, 0, 3);
      __builtin_prefetch(t.y + at, 1, 3);
    }
  }
  const int64_t pixel = t.pixel;
  const float* HWY_RESTRICT w = t.w;
  const float *x = t.x, *next = t.next;
  for (int64_t left = t.channels; left > 0; left -= t.block, x += t.plane, next += t.next_plane) {
    const int64_t count = std::min(left, t.block);
    for (int64_t p = 0; p < t.next_pixels; ++p) __builtin_prefetch(next + p * t.next_pixel, 0, 2);
    for (int64_t k = 0; k < count; ++k, w += t.block) {
      V weights[N];
      CHAIRLIFT_UNROLL
      for (int v = 0; v < N; ++v) weights[v] = hn::LoadU(kD, w + v * t.vector_weights);
      if (t.fetch != 0) {
        CHAIRLIFT_UNROLL
        for (int v = 0; v < N; ++v) __builtin_prefetch(w + v * t.vector_weights + t.fetch, 0, 2);
      }
      CHAIRLIFT_UNROLL
      for (int p = 0; p < P; ++p) {
        const V factor = hn::Set(kD, x[p * pixel + k]);
        CHAIRLIFT_UNROLL
        for (int v = 0; v < N; ++v) sums[p][v] = hn::MulAdd(factor, weights[v], sums[p][v]);
      }
    }
  }
  const V low = hn::Set(kD, t.low), high = hn::Set(kD, t.high);
  CHAIRLIFT_UNROLL
  for (int v = 0; v < N; ++v) {
    const auto there = LanesBefore(t.outputs - v * kLanes);
    CHAIRLIFT_UNROLL
    for (int p = 0; p < P; ++p) {
      const int64_t at = p * t.y_pixel + v * t.y_vector;
      V sum = sums[p][v];
      if (t.residual != nullptr) sum = hn::Add(sum, hn::LoadU(kD, t.residual + at));
      hn::StoreU(hn::IfThenElseZero(there, AtLeast(AtMost(sum, high), low)), kD, t.y + at);
    }
  }
}

using TileFunction = void (*)(const TileOperands&);
template <int N, int... P>
constexpr std::array<TileFunction, sizeof...(P)> TilesOf(std::integer_sequence<int, P...>) {
  return {PixelTile<P + 1, N>...};
}
template <int N>
constexpr auto kTiles = TilesOf<N>(std::make_integer_sequence<int, MostPixels(N)>());

HWY_INLINE TileFunction TileFor(int64_t pixels, int64_t vectors) {
  const auto at = static_cast<size_t>(pixels - 1);
  if constexpr (kMostVectors == 3) {
    if (vectors == 3) return kTiles<3>[at];
  }
  return vectors == 2 ? kTiles<2>[at] : kTiles<1>[at];
}

// The bounds of activations that only clamp, so that sums need not leave their registers.
struct Clamp {
  float low, high;
};
bool IsClamp(const Activation& f, Clamp& clamp) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  clamp = {-kInfinity, kInfinity};
  if (f.kind == ActivationKind::kRelu) clamp.low = 0;
  if (f.kind == ActivationKind::kClip) clamp = {f.alpha, f.beta};
  return f.kind == ActivationKind::kNone || f.kind == ActivationKind::kRelu ||
         f.kind == ActivationKind::kClip;
}

// `count` ≤ PixelsAtOnce() pixels, each multiplied by the factors of its channels.
void Scale(const Pointwise& s, const float* x, const float* scale, int64_t count, float* scaled) {
  for (int64_t b = 0; b < s.InBlocks(); ++b) {
    for (int64_t lane = 0; lane < s.block; lane += kLanes) {
      const V factor = hn::LoadU(kD, scale + b * s.block + lane);
      const float* from = x + b * s.in_pixels * s.block + lane;
      float* to = scaled + b * s.PixelsAtOnce() * s.block + lane;
      for (int64_t p = 0; p < count; ++p) {
        hn::StoreU(hn::Mul(hn::LoadU(kD, from + p * s.stride * s.block), factor), kD,
                   to + p * s.block);
      }
    }
  }
}

void Pixels(const Pointwise& s, const float* x, const float* w, const float* bias,
            const float* residual, const float* scale, int64_t first, int64_t last,
            int64_t first_block, int64_t last_block, float* y, float* scaled) {
  const V alpha = hn::Set(kD, s.activation.alpha), beta = hn::Set(kD, s.activation.beta);
  Clamp clamp;
  const bool clamps = IsClamp(s.activation, clamp);
  const int64_t at_once = s.PixelsAtOnce();
  TileOperands t;
  t.pixel = scale == nullptr ? s.stride * s.block : s.block;
  t.channels = s.channels;
  t.block = s.block;
  t.plane = (scale == nullptr ? s.in_pixels : at_once) * s.block;
  t.next_pixel = s.stride * s.block;
  t.next_plane = s.in_pixels * s.block;
  t.y_pixel = s.block;
  t.low = clamp.low;
  t.high = clamp.high;
  // A block is one vector or several: adjacent vectors are a block apart, or contiguous.
  const int64_t in_block = s.block / kLanes, plane = s.OutPixels() * s.block;
  const int64_t together = in_block == 1 ? kMostVectors : std::min<int64_t>(in_block, kMostVectors);
  t.y_vector = in_block == 1 ? plane : kLanes;
  t.vector_weights = in_block == 1 ? s.channels * s.block : kLanes;
  const int64_t vectors = (last_block - first_block) * in_block;
  const int64_t groups = (vectors + together - 1) / together;
  for (int64_t at = first; at < last;) {
    const int64_t row = at / s.row_pixels, column = at % s.row_pixels;
    const int64_t end = std::min({last, at + at_once, (row + 1) * s.row_pixels});
    const float* from = x + (row * s.row_stride + column * s.stride) * s.block;
    if (scale != nullptr) {
      Scale(s, from, scale, end - at, scaled);
      from = scaled;
    }
    // While these pixels are computed, the inputs of the next ones are prefetched, some with each
    // tile: the hardware prefetcher does not follow that many blocks.
    const int64_t next_row = end / s.row_pixels, next_column = end % s.row_pixels;
    const int64_t next_count = std::min({last, end + at_once, (next_row + 1) * s.row_pixels}) - end;
    const float* next = x + (next_row * s.row_stride + next_column * s.stride) * s.block;
    int64_t fetched = 0, tiles_done = 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t v0 = vectors * g / groups, v1 = vectors * (g + 1) / groups;
      const int64_t block = first_block + v0 / in_block, lane = v0 % in_block * kLanes;
      t.w = w + block * s.channels * s.block + lane;
      t.bias = bias + block * s.block + lane;
      t.outputs = s.out_channels - block * s.block - lane;
      const int64_t most = MostPixels(static_cast<int>(v1 - v0));
      const int64_t tiles = (end - at + most - 1) / most;
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t p0 = (end - at) * i / tiles, p1 = (end - at) * (i + 1) / tiles;
        const int64_t to = block * plane + (at + p0) * s.block + lane;
        t.x = from + p0 * t.pixel;
        t.residual = residual == nullptr ? nullptr : residual + to;
        t.y = y + to;
        // The first tile of each group prefetches the next group's weights; later tiles find them
        // in the cache.
        t.fetch = i == 0 && at == first ? (v1 - v0) * t.vector_weights : 0;
        const int64_t fetch_to = std::min(next_count, next_count * ++tiles_done / (groups * tiles));
        t.next = next + fetched * t.next_pixel;
        t.next_pixels = std::max<int64_t>(fetch_to - fetched, 0);
        fetched += t.next_pixels;
        TileFor(p1 - p0, v1 - v0)(t);
        if (clamps) continue;
        for (int64_t v = 0; v < v1 - v0; ++v) {
          const auto there = LanesBefore(t.outputs - v * kLanes);
          for (int64_t p = 0; p < p1 - p0; ++p) {
            float* place = t.y + p * t.y_pixel + v * t.y_vector;
            const V sum = VectorActivate(kD, s.activation.kind, alpha, beta, hn::LoadU(kD, place));
            hn::StoreU(hn::IfThenElseZero(there, sum), kD, place);
          }
        }
      }
    }
    at = end;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Pixels);

void PointwisePixels(const Pointwise& shape, const float* x, const float* w, const float* bias,
                     const float* residual, const float* scale, int64_t first, int64_t last,
                     int64_t first_block, int64_t last_block, float* y, float* scaled) {
  HWY_DYNAMIC_DISPATCH(Pixels)
  (shape, x, w, bias, residual, scale, first, last, first_block, last_block, y, scaled);
}

}  // namespace chairlift
#endif  // HWY_ONCE
