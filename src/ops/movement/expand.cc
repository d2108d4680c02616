// Expand: a tensor broadcast with a shape.
#include <algorithm>

#include "ops/axes.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

// The broadcast dimension of `a` and the requested `b`. `exact`: unknown parts of `b` are not
// assumed to fit; used when a kernel is made, which does not check the shape again.
StatusOr<Dim> Broadcast(const Dim& a, const Dim& b, bool exact) {
  if (a.known() && a.value() == 1) return b;
  if (b.known() && b.value() == 1) return a;
  if (a.known() && b.known() && a.value() != b.value()) {
    return InvalidArgument("dimension {} cannot be expanded to {}", a.value(), b.value());
  }
  if (a.Same(b)) return a;
  if (a.known() && (b.is_symbol() || !exact)) return a;
  return b.known() ? b : Dim::Unknown();
}

Status InferExpand(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  const SymbolicShape& shape = context.shape(1);
  if (shape.has_rank() && shape.rank() != 1) {
    return InvalidArgument("shape must have rank 1, not {}", shape.ToString());
  }
  if (const auto known = context.known_elements(1)) {
    if (known->size() > static_cast<size_t>(kMaxRank)) {
      return InvalidArgument("shape of {} dimensions is more than {}", known->size(), kMaxRank);
    }
    for (int64_t d : *known) {
      if (d < 0) return InvalidArgument("shape has the negative dimension {}", d);
    }
  }
  std::vector<Dim> wanted;
  if (auto elements = ShapeElements(context, 1)) {
    wanted = *std::move(elements);
  } else if (shape.has_rank() && shape[0].known() && shape[0].value() <= kMaxRank) {
    wanted.resize(static_cast<size_t>(shape[0].value()));
  } else {
    return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  }
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  const int rank = std::max(in.rank(), static_cast<int>(wanted.size()));
  SymbolicShape out = SymbolicShape::Scalar();
  for (int i = 0; i < rank; ++i) {
    const int a = i - (rank - in.rank());
    const int b = i - (rank - static_cast<int>(wanted.size()));
    CHAIRLIFT_ASSIGN_OR_RETURN(Dim d, Broadcast(a < 0 ? Dim(1) : in[a], b < 0 ? Dim(1) : wanted[b],
                                                /*exact=*/in.concrete()));
    out.Append(std::move(d));
  }
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

StatusOr<std::unique_ptr<Kernel>> CompileExpand(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  const Shape& out = context.outputs[0].shape;
  const auto in_strides = RowMajorStrides(in.shape);
  absl::InlinedVector<int64_t, 6> src(out.rank(), 0);
  const int added = out.rank() - in.shape.rank();
  for (int i = 0; i < in.shape.rank(); ++i) {
    src[added + i] = in.shape[i] == 1 ? 0 : in_strides[i];
  }
  return CopyKernel({DTypeSize(in.dtype), out.dims(), src, RowMajorStrides(out)});
}

// If the shape is known to request no more than the input has. Nothing is known about a shape in a
// request: the output's shape is then inferred from the input's, assuming that they broadcast, and
// the node must check that.
int ExpandHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                  std::span<const ValueInfo>) {
  const InferContext context(attributes, inputs, 0);
  const SymbolicShape& in = context.shape(0);
  const auto wanted = ShapeElements(context, 1);
  if (!in.has_rank() || !wanted || static_cast<int>(wanted->size()) > in.rank()) return -1;
  const int added = in.rank() - static_cast<int>(wanted->size());
  for (int i = added; i < in.rank(); ++i) {
    const Dim& d = (*wanted)[static_cast<size_t>(i - added)];
    if (!(d.known() && d.value() == 1) && !d.Same(in[i])) return -1;
  }
  return 0;
}

}  // namespace

OperatorDef ExpandOperator() {
  return {.name = "Expand",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferExpand,
          .compile = CompileExpand,
          .hands_on = ExpandHandsOn,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
