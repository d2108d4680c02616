// Copies elements between two strided views of equal sizes: the common form of transposing,
// slicing, joining, splitting, broadcasting and tiling.
#ifndef CHAIRLIFT_OPS_MOVEMENT_STRIDED_COPY_H_
#define CHAIRLIFT_OPS_MOVEMENT_STRIDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/inlined_vector.h"
#include "chairlift/tensor.h"
#include "device/cpu/team.h"

namespace chairlift {

// Elements from one index to the next along each axis of a row-major tensor.
absl::InlinedVector<int64_t, 6> RowMajorStrides(const Shape& shape);

// dst[dst_offset + Σ i[d]·dst_strides[d]] = src[src_offset + Σ i[d]·src_strides[d]] for every index
// i below `sizes`. Strides and offsets are in elements of `element_bytes` (1, 2, 4 or 8). Source
// strides may be zero or negative; no two indices may write the same place. Immutable. Run() is
// thread-safe and does not allocate for views of rank 8 or less.
class StridedCopy {
 public:
  StridedCopy(size_t element_bytes, std::span<const int64_t> sizes,
              std::span<const int64_t> src_strides, std::span<const int64_t> dst_strides,
              int64_t src_offset = 0, int64_t dst_offset = 0);

  // Copies of more than kParallelBytes are divided among the team.
  void Run(const void* src, void* dst, Team& team) const;

  static constexpr int64_t kParallelBytes = 256 * 1024;

  struct Axis {
    int64_t size;
    int64_t src;  // bytes
    int64_t dst;  // bytes
  };

 private:
  enum class Leaf {
    kRuns,       // rows of contiguous bytes
    kFill,       // rows of one element repeated
    kTranspose,  // columns of the source and rows of the destination are contiguous
    kStrided,
  };

  void Walk(size_t depth, std::span<const Axis> axes, const char* src, char* dst) const;
  void CopyLeaf(const Axis& outer, const Axis& inner, const char* src, char* dst) const;

  // Outermost first. The last two (a unit axis if there are fewer) belong to the leaf. For kRuns,
  // elements are whole runs and only the last axis belongs to the leaf.
  absl::InlinedVector<Axis, 8> axes_;
  Leaf leaf_ = Leaf::kStrided;
  int64_t unit_bytes_ = 1;  // bytes moved together: an element, or a run of them
  int64_t total_bytes_ = 0;
  int64_t src_offset_ = 0;  // bytes
  int64_t dst_offset_ = 0;  // bytes
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_STRIDED_COPY_H_
