// Squeeze and Unsqueeze: remove and insert dimensions of one.
#include <algorithm>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/hands_on.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

// If the axes are known: otherwise nothing has checked them.
Status PassElements(InferContext& context, bool axes_known) {
  if (!axes_known) return absl::OkStatus();
  const SymbolicShape& out = context.outputs()[0].shape;
  if (out.has_rank() && out.rank() <= 1) {
    if (auto e = ShapeElements(context, 0)) context.set_output_elements(0, *std::move(e));
  }
  return absl::OkStatus();
}

// The number of axes in input 1, or −1 if unknown.
int64_t AxisCount(const InferContext& context) {
  const SymbolicShape& axes = context.shape(1);
  if (!axes.has_rank()) return -1;
  if (axes.rank() == 0) return 1;
  return axes[0].known() ? axes[0].value() : -1;
}

Status CheckAxesRank(const InferContext& context) {
  const SymbolicShape& axes = context.shape(1);
  if (axes.has_rank() && axes.rank() > 1) {
    return InvalidArgument("axes must have rank 1, not {}", axes.ToString());
  }
  return absl::OkStatus();
}

Status InferSqueeze(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  SymbolicShape out;
  const bool has_axes = context.has_input(1);
  if (has_axes) CHAIRLIFT_RETURN_IF_ERROR(CheckAxesRank(context));
  const auto axes = has_axes ? context.known_elements(1) : std::nullopt;
  if (in.has_rank() && axes) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> checked, NormalizeAxes(*axes, in.rank()));
    for (int a : checked) {
      if (in[a].known() && in[a].value() != 1) {
        return InvalidArgument("axis {} of {} is not 1 and cannot be squeezed", a, in.ToString());
      }
    }
    out = SymbolicShape::Scalar();
    for (int i = 0; i < in.rank(); ++i) {
      if (std::find(checked.begin(), checked.end(), i) == checked.end()) out.Append(in[i]);
    }
  } else if (in.has_rank() && !has_axes && in.concrete()) {
    out = SymbolicShape::Scalar();
    for (const Dim& d : in.dims()) {
      if (d.value() != 1) out.Append(d);
    }
  } else if (in.has_rank() && has_axes) {
    if (const int64_t count = AxisCount(context); count >= 0) {
      if (count > in.rank()) {
        return InvalidArgument("{} axes squeezed from rank {}", count, in.rank());
      }
      out = SymbolicShape::OfRank(in.rank() - static_cast<int>(count));
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  return PassElements(context, !has_axes || axes.has_value());
}

Status InferUnsqueeze(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  SymbolicShape out;
  CHAIRLIFT_RETURN_IF_ERROR(CheckAxesRank(context));
  const auto axes = context.known_elements(1);
  if (in.has_rank() && axes) {
    if (axes->size() > static_cast<size_t>(kMaxRank)) {
      return InvalidArgument("{} axes are given; the limit is {}", axes->size(), kMaxRank);
    }
    const int rank = in.rank() + static_cast<int>(axes->size());
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> checked, NormalizeAxes(*axes, rank));
    out = SymbolicShape::Scalar();
    int next = 0;
    for (int i = 0; i < rank; ++i) {
      const bool added = std::find(checked.begin(), checked.end(), i) != checked.end();
      out.Append(added ? Dim(1) : in[next++]);
    }
  } else if (in.has_rank()) {
    if (const int64_t count = AxisCount(context); count >= 0) {
      if (count > kMaxRank)
        return InvalidArgument("{} axes are given; the limit is {}", count, kMaxRank);
      out = SymbolicShape::OfRank(in.rank() + static_cast<int>(count));
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  return PassElements(context, axes.has_value());
}

StatusOr<AxisMap> SqueezeAxes(const InferContext& context) {
  if (!context.has_input(1)) return Unimplemented("it drops dimensions that happen to be 1");
  const auto dropped = context.known_elements(1);
  if (!dropped) return Unimplemented("its axes are not known");
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesWithout(context, *dropped));
  map.does = "drops";
  std::erase(map.outputs[0].labels, AxisMap::kNone);
  return map;
}

StatusOr<AxisMap> UnsqueezeAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  const auto given = context.known_elements(1);
  if (!given) return Unimplemented("its axes are not known");
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<int> added,
                             NormalizeAxes(*given, rank + static_cast<int>(given->size())));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, {});
  map.outputs[0] = map.inputs[0];
  std::sort(added.begin(), added.end());
  std::vector<int>& labels = map.outputs[0].labels;
  for (const int axis : added) labels.insert(labels.begin() + axis, AxisMap::kNone);
  return map;
}

}  // namespace

OperatorDef SqueezeOperator() {
  return {.name = "Squeeze",
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferSqueeze,
          .axes = SqueezeAxes,
          .hands_on = SameShapeHandsOn,
          .is_view = true,
          .native_half = true};
}

OperatorDef UnsqueezeOperator() {
  return {.name = "Unsqueeze",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferUnsqueeze,
          .axes = UnsqueezeAxes,
          .hands_on = SameShapeHandsOn,
          .is_view = true,
          .native_half = true};
}

}  // namespace chairlift
