#include "ops/movement/element_rows.h"

#include "ops/axes.h"
#include "ops/movement/strided_copy.h"

namespace chairlift {

Status CheckElementShapes(const SymbolicShape& data, const SymbolicShape& indices, int64_t axis) {
  if (!data.has_rank()) return absl::OkStatus();
  if (data.rank() == 0) return InvalidArgument("data must have rank 1 or more");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int along, NormalizeAxis(axis, data.rank()));
  if (!indices.has_rank()) return absl::OkStatus();
  if (indices.rank() != data.rank()) {
    return InvalidArgument("indices {} and data {} must have one rank", indices.ToString(),
                           data.ToString());
  }
  for (int d = 0; d < data.rank(); ++d) {
    if (d != along && data[d].known() && indices[d].known() &&
        indices[d].value() > data[d].value()) {
      return InvalidArgument("indices {} reach beyond data {} along axis {}", indices.ToString(),
                             data.ToString(), d);
    }
  }
  return absl::OkStatus();
}

ElementRows::ElementRows(const Shape& data, const Shape& indices, int axis) {
  const auto strides = RowMajorStrides(data);
  const int last = data.rank() - 1;
  for (int d = 0; d < last; ++d) {
    sizes_.push_back(indices[d]);
    strides_.push_back(d == axis ? 0 : strides[d]);
    count_ *= indices[d];
  }
  length_ = indices[last];
  step_ = axis == last ? 0 : 1;
  axis_stride_ = strides[axis];
}

}  // namespace chairlift
