// CenterCropPad: crops dimensions, or pads them with zeros, on both sides to given lengths.
#include <algorithm>
#include <cstring>

#include "ops/axes.h"
#include "ops/movement/movement.h"
#include "ops/movement/strided_copy.h"

namespace chairlift {
namespace {

Status InferCenterCropPad(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             AxesOrAll(context.attributes(), in.rank()));
  if (const auto known = context.known_elements(1)) {
    for (int64_t d : *known) {
      if (d < 0) return InvalidArgument("shape has the negative dimension {}", d);
    }
  }
  std::vector<Dim> out = in.dims();
  for (int a : axes) out[static_cast<size_t>(a)] = Dim::Unknown();
  if (const auto shape = ShapeElements(context, 1)) {
    if (shape->size() != axes.size()) {
      return InvalidArgument("shape of {} for {} axes", shape->size(), axes.size());
    }
    for (size_t i = 0; i < axes.size(); ++i) out[static_cast<size_t>(axes[i])] = (*shape)[i];
  }
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

StatusOr<std::unique_ptr<Kernel>> CompileCenterCropPad(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  const TensorDesc& out = context.outputs[0];
  const auto in_strides = RowMajorStrides(in.shape);
  const auto out_strides = RowMajorStrides(out.shape);
  Shape kept;
  int64_t from = 0;
  int64_t to = 0;
  for (int d = 0; d < in.shape.rank(); ++d) {
    const int64_t have = in.shape[d];
    const int64_t want = out.shape[d];
    kept.Append(std::min(have, want));
    // If the difference is odd, the extra element is removed from, or added to, the end.
    if (have > want) from += (have - want) / 2 * in_strides[d];
    if (want > have) to += (want - have) / 2 * out_strides[d];
  }
  const StridedCopy copy(DTypeSize(in.dtype), kept.dims(), in_strides, out_strides, from, to);
  const size_t bytes = kept == out.shape ? 0 : out.byte_size();
  return MakeKernel([copy, bytes](const KernelArgs& args) {
    if (bytes > 0) std::memset(args.outputs[0], 0, bytes);
    copy.Run(args.inputs[0], args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

}  // namespace

OperatorDef CenterCropPadOperator() {
  return {.name = "CenterCropPad",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kAllTypes, kIndexTypes},
          .infer = InferCenterCropPad,
          .compile = CompileCenterCropPad,
          .native_half = true};
}

}  // namespace chairlift
