// Compress: the slices along an axis (or the elements of the flattened input) whose condition is
// true.
#include <cstring>
#include <vector>

#include "ops/axes.h"
#include "ops/reduction/reduction.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferCompress(InferContext& context) {
  const SymbolicShape& condition = context.shape(1);
  if (condition.has_rank() && condition.rank() != 1) {
    return InvalidArgument("the condition has shape {}, not one dimension", condition.ToString());
  }
  if (!context.attributes().Has("axis")) {
    context.set_output(0, context.dtype(0), SymbolicShape::OfRank(1));
    return absl::OkStatus();
  }
  SymbolicShape out = context.shape(0);
  if (out.has_rank()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(context.attributes().Int("axis", 0), out.rank()));
    out[axis] = Dim::Unknown();
  }
  context.set_output(0, context.dtype(0), std::move(out));
  return absl::OkStatus();
}

StatusOr<std::vector<Tensor>> EvaluateCompress(const EvaluateContext& context) {
  const Tensor& x = context.inputs[0];
  const Tensor& condition = context.inputs[1];
  int axis = 0;
  Shape shape{x.size()};
  if (context.attributes.Has("axis")) {
    shape = x.shape();
    CHAIRLIFT_ASSIGN_OR_RETURN(axis,
                               NormalizeAxis(context.attributes.Int("axis", 0), shape.rank()));
  }
  if (condition.size() > shape[axis]) {
    return InvalidArgument("the condition has {} elements, more than the {} of axis {}",
                           condition.size(), shape[axis], axis);
  }
  const auto* chosen = static_cast<const uint8_t*>(condition.raw());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < condition.size(); ++i) {
    if (chosen[i] != 0) places.push_back(i);
  }
  Shape out_shape = shape;
  out_shape[axis] = static_cast<int64_t>(places.size());
  Tensor out = Tensor::Allocate(x.dtype(), out_shape);
  const int64_t outer = shape.NumElements(0, axis);
  const size_t slice =
      static_cast<size_t>(shape.NumElements(axis + 1, shape.rank())) * DTypeSize(x.dtype());
  const auto* from = static_cast<const char*>(x.raw());
  auto* to = static_cast<char*>(out.raw());
  for (int64_t o = 0; o < outer && slice > 0; ++o) {
    for (int64_t place : places) {
      std::memcpy(to, from + static_cast<size_t>(o * shape[axis] + place) * slice, slice);
      to += slice;
    }
  }
  return std::vector<Tensor>{std::move(out)};
}

}  // namespace

void RegisterCompress(OperatorRegistry& registry) {
  registry.Add({.name = "Compress",
                .min_opset = 9,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kMovableTypes, kBoolType},
                .infer = InferCompress,
                .evaluate = EvaluateCompress,
                .native_half = true});
}

}  // namespace chairlift
