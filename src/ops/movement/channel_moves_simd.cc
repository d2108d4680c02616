// The kernel of channel_moves.h, one build per instruction set.
#include <algorithm>
#include <cstring>

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/movement/channel_moves_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/movement/channel_moves.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, BlockPart::kMaxLanes>;
using V = hn::Vec<D>;

// Blocks with as many lanes as a vector, made of kParts parts.
template <size_t kParts>
HWY_INLINE void FromParts(const BlockPart* parts, const float* const* from, int64_t positions,
                          float* HWY_RESTRICT out) {
  const D d;
  const hn::RebindToSigned<D> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  using Index = decltype(hn::IndicesFromVec(d, hn::Zero(di)));
  using Mask = hn::Mask<D>;
  struct Lookup {
    Index index;
    Mask mask;
  };
  const auto lookup = [&](size_t k) {
    return Lookup{hn::IndicesFromVec(d, hn::LoadU(di, parts[k].from.data())),
                  hn::RebindMask(d, hn::Ne(hn::LoadU(di, parts[k].mask.data()), hn::Zero(di)))};
  };
  const Lookup l0 = lookup(0), l1 = lookup(kParts > 1 ? 1 : 0), l2 = lookup(kParts > 2 ? 2 : 0),
               l3 = lookup(kParts > 3 ? 3 : 0);
  for (int64_t p = 0; p < positions * lanes; p += lanes) {
    V v = hn::IfThenElseZero(l0.mask, hn::TableLookupLanes(hn::LoadU(d, from[0] + p), l0.index));
    const auto take = [&](const Lookup& l, size_t k) HWY_ATTR {
      v = hn::IfThenElse(l.mask, hn::TableLookupLanes(hn::LoadU(d, from[k] + p), l.index), v);
    };
    if constexpr (kParts > 1) take(l1, 1);
    if constexpr (kParts > 2) take(l2, 2);
    if constexpr (kParts > 3) take(l3, 3);
    hn::StoreU(v, d, out + p);
  }
}

void OneByOne(const BlockPart& part, const float* from, int64_t positions, int lanes,
              float* HWY_RESTRICT out) {
  for (int64_t p = 0; p < positions; ++p) {
    for (int i = 0; i < lanes; ++i) {
      if (part.mask[i] != 0) out[p * lanes + i] = from[p * lanes + part.from[i]];
    }
  }
}

bool IsWholeBlock(const std::vector<BlockPart>& parts, int lanes) {
  if (parts.size() != 1) return false;
  for (int i = 0; i < lanes; ++i) {
    if (parts[0].mask[i] == 0 || parts[0].from[i] != i) return false;
  }
  return true;
}

void Move(std::span<const std::vector<BlockPart>> blocks, int64_t first, int64_t last,
          std::span<const float* const> inputs, int64_t positions, int lanes, float* output) {
  const int64_t size = positions * lanes;
  const bool by_vectors = static_cast<int>(hn::Lanes(D())) == lanes;
  for (int64_t b = first; b < last; ++b) {
    const std::vector<BlockPart>& parts = blocks[static_cast<size_t>(b)];
    const float* from[BlockPart::kMaxLanes];
    for (size_t k = 0; k < parts.size(); ++k) {
      from[k] = inputs[static_cast<size_t>(parts[k].input)] + parts[k].block * size;
    }
    float* out = output + b * size;
    if (IsWholeBlock(parts, lanes)) {
      std::memcpy(out, from[0], static_cast<size_t>(size) * sizeof(float));
    } else if (by_vectors && parts.size() <= 4) {
      switch (parts.size()) {
        case 1:
          FromParts<1>(parts.data(), from, positions, out);
          break;
        case 2:
          FromParts<2>(parts.data(), from, positions, out);
          break;
        case 3:
          FromParts<3>(parts.data(), from, positions, out);
          break;
        default:
          FromParts<4>(parts.data(), from, positions, out);
      }
    } else {
      std::fill_n(out, size, 0.0f);
      for (size_t k = 0; k < parts.size(); ++k) OneByOne(parts[k], from[k], positions, lanes, out);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(Move);

void MoveChannels(std::span<const std::vector<BlockPart>> blocks, int64_t first, int64_t last,
                  std::span<const float* const> inputs, int64_t positions, int lanes,
                  float* output) {
  HWY_DYNAMIC_DISPATCH(Move)(blocks, first, last, inputs, positions, lanes, output);
}

}  // namespace chairlift
#endif  // HWY_ONCE
