// Tile: out[i] = in[i mod dim], each dimension repeated.
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/hands_on.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferTile(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& repeats = context.shape(1);
  if (repeats.has_rank() && repeats.rank() != 1) {
    return InvalidArgument("repeats must have rank 1, not {}", repeats.ToString());
  }
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  if (repeats.has_rank() && repeats[0].known() && repeats[0].value() != in.rank()) {
    return InvalidArgument("{} repeats for an input of rank {}", repeats[0].value(), in.rank());
  }
  if (const auto known = context.known_elements(1)) {
    for (int64_t r : *known) {
      if (r < 0) return InvalidArgument("repeats has the negative number {}", r);
    }
  }
  SymbolicShape out = SymbolicShape::OfRank(in.rank());
  const auto elements = ShapeElements(context, 1);
  for (int i = 0; elements && i < in.rank(); ++i) {
    const Dim factors[] = {in[i], (*elements)[static_cast<size_t>(i)]};
    if (!factors[1].known() && !factors[1].is_symbol()) continue;
    if (factors[0].known() && factors[1].known() && factors[0].value() != 0 &&
        factors[1].value() > Shape::kMaxTensorBytes / factors[0].value()) {
      return InvalidArgument("dimension {} repeated {} times is too large", factors[0].value(),
                             factors[1].value());
    }
    out[i] = Product(factors);
  }
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

StatusOr<std::unique_ptr<Kernel>> CompileTile(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  const Shape& out = context.outputs[0].shape;
  const auto in_strides = RowMajorStrides(in.shape);
  const auto out_strides = RowMajorStrides(out);
  absl::InlinedVector<int64_t, 12> sizes, src, dst;
  for (int i = 0; i < out.rank(); ++i) {
    const int64_t dim = in.shape[i];
    sizes.push_back(dim == 0 ? 0 : out[i] / dim);
    src.push_back(0);
    dst.push_back(dim * out_strides[i]);
    sizes.push_back(dim);
    src.push_back(in_strides[i]);
    dst.push_back(out_strides[i]);
  }
  return CopyKernel({DTypeSize(in.dtype), sizes, src, dst});
}

// Axes that are repeated once.
StatusOr<AxisMap> AxesOfTile(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  const auto repeats = ShapeElements(context, 1);
  if (!repeats || repeats->size() != static_cast<size_t>(rank)) {
    return Unimplemented("its repeats are not known");
  }
  std::vector<int64_t> repeated;
  for (int i = 0; i < rank; ++i) {
    const Dim& repeat = (*repeats)[static_cast<size_t>(i)];
    if (!repeat.known() || repeat.value() != 1) repeated.push_back(i);
  }
  return AxesWithout(context, repeated);
}

int TileHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
                std::span<const ValueInfo> outputs) {
  return AllEqual(inputs[1], 1) && outputs[0].shape.has_rank() ? 0 : -1;
}

}  // namespace

OperatorDef TileOperator() {
  return {.name = "Tile",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferTile,
          .axes = AxesOfTile,
          .compile = CompileTile,
          .hands_on = TileHandsOn,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
