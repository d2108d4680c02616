// Where the rows of lanes and tokens are in a request's tensors and in those of its answer.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_

#include <cstdint>
#include <string>

#include "chairlift/unfold.h"
#include "graph/cells/sliced_model.h"

namespace chairlift {

// `tensor` as [lanes, row…] or, if time_axis ≥ 0, [lanes · tokens, row…]. Copies only if the rows
// are not in that order already.
Tensor ToRows(const Tensor& tensor, int batch_axis, int time_axis);

// Checks that AnswerLayout can place rows of that output. It cannot if their dimensions are around
// both axes, which would need nested pieces. `name` is the output's.
Status CheckDeliverable(const SlicedOutput& output, const std::string& name);

// Likewise of whole sequences, as a cell over lanes leaves them: time must come before their rows.
Status CheckWholeDeliverable(const SlicedOutput& output, const std::string& name);

// The tensor of one output of one request.
class AnswerLayout {
 public:
  AnswerLayout() = default;
  // `row`: the shape of one token's or lane's entry, as the cell outputs it.
  AnswerLayout(const SlicedOutput& output, DType dtype, const Shape& row, int64_t lanes,
               int64_t tokens);

  Tensor Zeros() const;
  // The target of the row of a lane (and token); the caller sets the tensor's number.
  RowTarget Token(int64_t lane, int64_t token) const;
  // The same for a lane's whole sequence, as output by a cell over lanes, or for its single row.
  RowTarget Lane(int64_t lane) const;

 private:
  // Bytes between adjacent entries along an axis.
  int64_t Stride(int axis) const;

  DType dtype_ = DType::kUndefined;
  Shape shape_;
  int batch_axis_ = 0;
  int time_axis_ = -1;  // −1: no time axis
};

// Writes one row to its target in that tensor.
void CopyRow(const Tensor& row, const RowTarget& target, Tensor to_tensor);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_UNFOLDERS_SLICED_LAYOUT_H_
