// Where the rows of lanes and tokens lie in a request's tensors and in those of its answer.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_

#include <cstdint>
#include <string>

#include "chairlift/unfold.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

// `tensor` as [lanes, row…] or, where time_axis ≥ 0, [lanes · tokens, row…]. Copies only where rows
// do not lie like that already.
Tensor ToRows(const Tensor& tensor, int batch_axis, int time_axis);

// That AnswerLayout can place rows of that output: not where their dimensions lie around
// both axes, which would have to be written in pieces of pieces. `name` is the output's.
Status CheckDeliverable(const SlicedOutput& output, const std::string& name);

// The tensor of one output of one request.
class AnswerLayout {
 public:
  AnswerLayout() = default;
  // `row`: the shape of one token's, or lane's, entry, as the cell leaves it.
  AnswerLayout(const SlicedOutput& output, DType dtype, const Shape& row, int64_t lanes,
               int64_t tokens);

  Tensor Zeros() const;
  // The row of a lane (and token); the tensor's number is left to the caller.
  RowTarget Token(int64_t lane, int64_t token) const;
  // Likewise of a lane's whole sequence, as a cell over lanes leaves it, or of its one row.
  RowTarget Lane(int64_t lane) const;

 private:
  // Bytes between neighbours along an axis.
  int64_t Stride(int axis) const;

  DType dtype_ = DType::kUndefined;
  Shape shape_;
  int batch_axis_ = 0;
  int time_axis_ = -1;  // −1: it has none
};

// Writes one row to where a target says, in that tensor.
void CopyRow(const Tensor& row, const RowTarget& target, Tensor to_tensor);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_
