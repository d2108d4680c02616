// Iterates over the indices of GatherElements and ScatterElements row by row.
#ifndef CHAIRLIFT_OPS_MOVEMENT_ELEMENT_ROWS_H_
#define CHAIRLIFT_OPS_MOVEMENT_ELEMENT_ROWS_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "tensor/symbolic_shape.h"

namespace chairlift {

// Indices have data's rank and are no longer than data along all axes but `axis`.
Status CheckElementShapes(const SymbolicShape& data, const SymbolicShape& indices, int64_t axis);

// The index tensor as rows along its last axis. Element j of row r with index value v refers to
// data[Base(r) + j × step() + v × axis_stride()].
class ElementRows {
 public:
  ElementRows(const Shape& data, const Shape& indices, int axis);

  int64_t count() const { return count_; }
  int64_t length() const { return length_; }
  int64_t step() const { return step_; }
  int64_t axis_stride() const { return axis_stride_; }
  int64_t Base(int64_t row) const {
    int64_t base = 0;
    for (size_t d = sizes_.size(); d-- > 0;) {
      base += row % sizes_[d] * strides_[d];
      row /= sizes_[d];
    }
    return base;
  }

 private:
  absl::InlinedVector<int64_t, 6> sizes_;    // of the index tensor, without its last axis
  absl::InlinedVector<int64_t, 6> strides_;  // of data; 0 for the axis
  int64_t count_ = 1;
  int64_t length_ = 1;
  int64_t step_ = 0;
  int64_t axis_stride_ = 1;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_MOVEMENT_ELEMENT_ROWS_H_
