#include "ops/movement/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "ops/movement/transpose_tile.h"

namespace chairlift {
namespace {

struct Bytes16 {
  uint64_t half[2];
};

template <typename T>
T Load(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}
template <typename T>
void Store(char* p, T v) {
  std::memcpy(p, &v, sizeof(T));
}

using Axis = StridedCopy::Axis;

template <typename T>
void CopyStrided(const Axis& outer, const Axis& inner, const char* src, char* dst) {
  for (int64_t i = 0; i < outer.size; ++i) {
    const char* s = src + i * outer.src;
    char* d = dst + i * outer.dst;
    for (int64_t j = 0; j < inner.size; ++j) Store(d + j * inner.dst, Load<T>(s + j * inner.src));
  }
}

template <typename T>
void FillRows(const Axis& outer, const Axis& inner, const char* src, char* dst) {
  constexpr int64_t kPattern = 512 / sizeof(T);
  T pattern[kPattern];
  for (int64_t i = 0; i < outer.size; ++i) {
    std::fill_n(pattern, std::min(kPattern, inner.size), Load<T>(src + i * outer.src));
    char* d = dst + i * outer.dst;
    for (int64_t j = 0; j < inner.size; j += kPattern) {
      std::memcpy(d + j * int64_t{sizeof(T)}, pattern,
                  static_cast<size_t>(std::min(kPattern, inner.size - j)) * sizeof(T));
    }
  }
}

// The source is contiguous along `outer`, the destination along `inner`.
template <typename T>
void TransposeElements(const Axis& outer, const Axis& inner, const char* src, char* dst) {
  constexpr int64_t kBytes = sizeof(T);
  for (int64_t i = 0; i < outer.size; ++i) {
    for (int64_t j = 0; j < inner.size; ++j) {
      Store(dst + i * outer.dst + j * kBytes, Load<T>(src + i * kBytes + j * inner.src));
    }
  }
}

template <typename T>
void TransposeTiles(const Axis& outer, const Axis& inner, const char* src, char* dst) {
  constexpr int64_t kBytes = sizeof(T);
  // One cache line in each direction, so that lines are read and written completely while they are
  // cached.
  constexpr int64_t kBlock = std::max<int64_t>(64 / kBytes, 8);
  for (int64_t i0 = 0; i0 < outer.size; i0 += kBlock) {
    const int64_t rows = std::min(kBlock, outer.size - i0);
    for (int64_t j0 = 0; j0 < inner.size; j0 += kBlock) {
      const int64_t columns = std::min(kBlock, inner.size - j0);
      const char* s = src + i0 * kBytes + j0 * inner.src;
      char* d = dst + i0 * outer.dst + j0 * kBytes;
      int64_t whole_rows = 0;
      int64_t whole_columns = 0;
      if constexpr (kBytes <= 8) {
        constexpr int64_t kTile = 16 / kBytes;
        whole_rows = rows - rows % kTile;
        whole_columns = columns - columns % kTile;
        for (int64_t j = 0; j < whole_columns; j += kTile) {
          for (int64_t i = 0; i < whole_rows; i += kTile) {
            TransposeTile<T>(s + i * kBytes + j * inner.src, inner.src,
                             d + i * outer.dst + j * kBytes, outer.dst);
          }
        }
      }
      if (whole_columns < columns) {
        TransposeElements<T>({whole_rows, 0, outer.dst}, {columns - whole_columns, inner.src, 0},
                             s + whole_columns * inner.src, d + whole_columns * kBytes);
      }
      if (whole_rows < rows) {
        TransposeElements<T>({rows - whole_rows, 0, outer.dst}, {columns, inner.src, 0},
                             s + whole_rows * kBytes, d + whole_rows * outer.dst);
      }
    }
  }
}

bool IsElementSize(int64_t bytes) {
  return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
}

}  // namespace

absl::InlinedVector<int64_t, 6> RowMajorStrides(const Shape& shape) {
  absl::InlinedVector<int64_t, 6> strides(shape.rank());
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

StridedCopy::StridedCopy(size_t element_bytes, std::span<const int64_t> sizes,
                         std::span<const int64_t> src_strides, std::span<const int64_t> dst_strides,
                         int64_t src_offset, int64_t dst_offset) {
  const auto bytes = static_cast<int64_t>(element_bytes);
  unit_bytes_ = bytes;
  total_bytes_ = bytes;
  src_offset_ = src_offset * bytes;
  dst_offset_ = dst_offset * bytes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    total_bytes_ *= sizes[d];
    if (sizes[d] != 1) axes_.push_back({sizes[d], src_strides[d] * bytes, dst_strides[d] * bytes});
  }
  if (total_bytes_ == 0) return;

  // In the order of the destination; axes that are contiguous in both views are merged.
  std::stable_sort(axes_.begin(), axes_.end(),
                   [](const Axis& a, const Axis& b) { return a.dst > b.dst; });
  size_t kept = 0;
  for (size_t d = 1; d < axes_.size(); ++d) {
    Axis& outer = axes_[kept];
    const Axis& inner = axes_[d];
    if (outer.src == inner.src * inner.size && outer.dst == inner.dst * inner.size) {
      outer = {outer.size * inner.size, inner.src, inner.dst};
    } else {
      axes_[++kept] = inner;
    }
  }
  if (!axes_.empty()) axes_.resize(kept + 1);

  // A contiguous innermost run becomes the unit.
  if (!axes_.empty() && axes_.back().src == bytes && axes_.back().dst == bytes) {
    unit_bytes_ = bytes * axes_.back().size;
    axes_.pop_back();
  }
  while (axes_.size() < 2) axes_.insert(axes_.begin(), Axis{1, 0, 0});
  if (!IsElementSize(unit_bytes_)) {
    leaf_ = Leaf::kRuns;
    return;
  }
  const Axis last = axes_.back();
  if (last.dst != unit_bytes_) {
    leaf_ = Leaf::kStrided;
  } else if (last.src == 0) {
    leaf_ = Leaf::kFill;
  } else {
    const auto it = std::find_if(axes_.begin(), axes_.end() - 1,
                                 [&](const Axis& a) { return a.src == unit_bytes_ && a.size > 1; });
    if (it != axes_.end() - 1) {
      leaf_ = Leaf::kTranspose;
      std::rotate(it, it + 1, axes_.end() - 1);
    }
  }
}

void StridedCopy::CopyLeaf(const Axis& outer, const Axis& inner, const char* src, char* dst) const {
  if (leaf_ == Leaf::kRuns) {
    for (int64_t i = 0; i < outer.size; ++i) {
      for (int64_t j = 0; j < inner.size; ++j) {
        std::memcpy(dst + i * outer.dst + j * inner.dst, src + i * outer.src + j * inner.src,
                    static_cast<size_t>(unit_bytes_));
      }
    }
    return;
  }
  const auto copy = [&]<typename T>() {
    switch (leaf_) {
      case Leaf::kFill:
        return FillRows<T>(outer, inner, src, dst);
      case Leaf::kTranspose:
        return TransposeTiles<T>(outer, inner, src, dst);
      default:
        return CopyStrided<T>(outer, inner, src, dst);
    }
  };
  switch (unit_bytes_) {
    case 1:
      return copy.operator()<uint8_t>();
    case 2:
      return copy.operator()<uint16_t>();
    case 4:
      return copy.operator()<uint32_t>();
    case 8:
      return copy.operator()<uint64_t>();
    default:
      return copy.operator()<Bytes16>();
  }
}

void StridedCopy::Walk(size_t depth, std::span<const Axis> axes, const char* src, char* dst) const {
  if (depth + 2 == axes.size()) return CopyLeaf(axes[depth], axes[depth + 1], src, dst);
  const Axis& axis = axes[depth];
  for (int64_t i = 0; i < axis.size; ++i) {
    Walk(depth + 1, axes, src + i * axis.src, dst + i * axis.dst);
  }
}

void StridedCopy::Run(const void* src, void* dst, Team& team) const {
  if (total_bytes_ == 0) return;
  const char* from = static_cast<const char*>(src) + src_offset_;
  char* to = static_cast<char*>(dst) + dst_offset_;
  // One contiguous block is divided by bytes.
  const bool one_run = unit_bytes_ == total_bytes_;
  if (total_bytes_ <= kParallelBytes || team.width() == 1) {
    if (one_run) {
      std::memcpy(to, from, static_cast<size_t>(total_bytes_));
    } else {
      Walk(0, axes_, from, to);
    }
    return;
  }
  const int64_t wanted = std::min<int64_t>(team.width() * 2, total_bytes_ / (kParallelBytes / 4));
  if (one_run) {
    const int64_t chunk = (total_bytes_ / wanted + 63) / 64 * 64;
    const auto parts = static_cast<int>((total_bytes_ + chunk - 1) / chunk);
    team.For(parts, [&](int part, int) {
      const int64_t first = part * chunk;
      std::memcpy(to + first, from + first,
                  static_cast<size_t>(std::min(chunk, total_bytes_ - first)));
    });
    return;
  }
  // The outermost axis that is long enough to divide, else the longest.
  auto split =
      std::find_if(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.size >= wanted; });
  if (split == axes_.end()) {
    split = std::max_element(axes_.begin(), axes_.end(),
                             [](const Axis& a, const Axis& b) { return a.size < b.size; });
  }
  const int64_t parts = std::min(wanted, split->size);
  const size_t which = static_cast<size_t>(split - axes_.begin());
  team.For(static_cast<int>(parts), [&](int part, int) {
    const int64_t first = split->size * part / parts;
    const int64_t last = split->size * (part + 1) / parts;
    absl::InlinedVector<Axis, 8> mine(axes_.begin(), axes_.end());
    mine[which].size = last - first;
    Walk(0, mine, from + first * split->src, to + first * split->dst);
  });
}

}  // namespace chairlift
