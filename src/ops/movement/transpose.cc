// Transpose: out[i[perm[0]], i[perm[1]], ...] = in[i].
#include <fmt/ranges.h>

#include <numeric>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

StatusOr<std::vector<int>> Permutation(const Attributes& attributes, int rank) {
  const auto* perm = attributes.Find<std::vector<int64_t>>("perm");
  if (perm == nullptr) {
    std::vector<int> reversed(rank);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return reversed;
  }
  if (static_cast<int>(perm->size()) != rank) {
    return InvalidArgument("perm names {} axes of a tensor of rank {}", perm->size(), rank);
  }
  std::vector<int> axes;
  std::vector<bool> seen(perm->size());
  for (const int64_t axis : *perm) {
    if (axis < 0 || axis >= rank || seen[static_cast<size_t>(axis)]) {
      return InvalidArgument("perm [{}] does not have each axis from 0 to {} once",
                             fmt::join(*perm, ","), rank - 1);
    }
    seen[static_cast<size_t>(axis)] = true;
    axes.push_back(static_cast<int>(axis));
  }
  return axes;
}

Status InferTranspose(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) {
    const auto* perm = context.attributes().Find<std::vector<int64_t>>("perm");
    if (perm == nullptr) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
    const int rank = static_cast<int>(perm->size());
    // Passes read it wherever they find one.
    CHAIRLIFT_RETURN_IF_ERROR(Permutation(context.attributes(), rank).status());
    return SetOutput(context, 0, context.dtype(0), SymbolicShape::OfRank(rank));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> perm,
                             Permutation(context.attributes(), in.rank()));
  SymbolicShape out = SymbolicShape::Scalar();
  for (int axis : perm) out.Append(in[axis]);
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

StatusOr<std::unique_ptr<Kernel>> CompileTranspose(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  const Shape& out = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> perm,
                             Permutation(context.attributes, in.shape.rank()));
  const auto in_strides = RowMajorStrides(in.shape);
  absl::InlinedVector<int64_t, 6> src;
  for (int axis : perm) src.push_back(in_strides[axis]);
  return CopyKernel({DTypeSize(in.dtype), out.dims(), src, RowMajorStrides(out)});
}

StatusOr<AxisMap> AxesOfTranspose(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, {});
  CHAIRLIFT_ASSIGN_OR_RETURN(map.outputs[0].labels, Permutation(context.attributes(), rank));
  return map;
}

int TransposeHandsOn(const Attributes& attributes, std::span<const ValueInfo> inputs,
                     std::span<const ValueInfo>) {
  const SymbolicShape& shape = inputs[0].shape;
  if (!shape.has_rank()) return -1;
  const std::vector<int64_t> order = attributes.Ints("perm");
  const bool in_order =
      order.empty() ? shape.rank() <= 1 : std::is_sorted(order.begin(), order.end());
  return in_order ? 0 : -1;
}

}  // namespace

OperatorDef TransposeOperator() {
  return {.name = "Transpose",
          .input_types = {kMovableTypes},
          .infer = InferTranspose,
          .axes = AxesOfTranspose,
          .compile = CompileTranspose,
          .hands_on = TransposeHandsOn,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
