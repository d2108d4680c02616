// DepthToSpace and SpaceToDepth: blocks of pixels to channels and back.
#include <array>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/movement/copy_kernel.h"
#include "ops/movement/movement.h"

namespace chairlift {
namespace {

StatusOr<int64_t> BlockSize(const Attributes& attributes) {
  const int64_t block = attributes.Int("blocksize", 0);
  if (block < 1 || block > 1 << 15) return InvalidArgument("blocksize {} is not possible", block);
  return block;
}

StatusOr<Dim> Divided(const Dim& dim, int64_t by, const char* what) {
  if (dim.known() && dim.value() % by != 0) {
    return InvalidArgument("{} {} is not a multiple of {}", what, dim.value(), by);
  }
  const Dim divisor(by);
  const auto q = Quotient({&dim, 1}, {&divisor, 1});
  return q ? *q : Dim::Unknown();
}

Dim Times(const Dim& dim, int64_t by) {
  const Dim factors[] = {by, dim};
  return Product(factors);
}

Status CheckRank(const SymbolicShape& in) {
  if (in.has_rank() && in.rank() != 4) {
    return InvalidArgument("input must have rank 4, not {}", in.ToString());
  }
  return absl::OkStatus();
}

StatusOr<bool> IsDepthFirst(const Attributes& attributes) {
  const std::string mode = attributes.String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return InvalidArgument("mode '{}' is not DCR or CRD", mode);
  return mode == "DCR";
}

Status InferDepthToSpace(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t block, BlockSize(context.attributes()));
  CHAIRLIFT_RETURN_IF_ERROR(IsDepthFirst(context.attributes()).status());
  const SymbolicShape& in = context.shape(0);
  CHAIRLIFT_RETURN_IF_ERROR(CheckRank(in));
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape::OfRank(4));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim channels, Divided(in[1], block * block, "channel count"));
  return SetOutput(context, 0, context.dtype(0),
                   SymbolicShape(std::vector<Dim>{in[0], std::move(channels), Times(in[2], block),
                                                  Times(in[3], block)}));
}

Status InferSpaceToDepth(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t block, BlockSize(context.attributes()));
  CHAIRLIFT_RETURN_IF_ERROR(IsDepthFirst(context.attributes()).status());
  const SymbolicShape& in = context.shape(0);
  CHAIRLIFT_RETURN_IF_ERROR(CheckRank(in));
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape::OfRank(4));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim height, Divided(in[2], block, "height"));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim width, Divided(in[3], block, "width"));
  return SetOutput(context, 0, context.dtype(0),
                   SymbolicShape(std::vector<Dim>{in[0], Times(in[1], block * block),
                                                  std::move(height), std::move(width)}));
}

// A transpose of six axes: out axis d is axis perm[d] of the input reshaped to `split`.
std::unique_ptr<Kernel> TransposeKernel(const TensorDesc& in, const std::array<int64_t, 6>& split,
                                        const std::array<int, 6>& perm) {
  const auto strides = RowMajorStrides(Shape(std::span<const int64_t>(split)));
  Shape out;
  std::array<int64_t, 6> src;
  for (size_t d = 0; d < 6; ++d) {
    out.Append(split[static_cast<size_t>(perm[d])]);
    src[d] = strides[static_cast<size_t>(perm[d])];
  }
  return CopyKernel({DTypeSize(in.dtype), out.dims(), src, RowMajorStrides(out)});
}

StatusOr<std::unique_ptr<Kernel>> CompileDepthToSpace(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t b, BlockSize(context.attributes));
  const TensorDesc& in = context.inputs[0];
  const int64_t channels = in.shape[1] / (b * b);
  CHAIRLIFT_ASSIGN_OR_RETURN(const bool depth_first, IsDepthFirst(context.attributes));
  if (depth_first) {
    return TransposeKernel(in, {in.shape[0], b, b, channels, in.shape[2], in.shape[3]},
                           {0, 3, 4, 1, 5, 2});
  }
  return TransposeKernel(in, {in.shape[0], channels, b, b, in.shape[2], in.shape[3]},
                         {0, 1, 4, 2, 5, 3});
}

StatusOr<std::unique_ptr<Kernel>> CompileSpaceToDepth(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t b, BlockSize(context.attributes));
  const TensorDesc& in = context.inputs[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const bool depth_first, IsDepthFirst(context.attributes));
  const std::array<int64_t, 6> split = {in.shape[0], in.shape[1],     in.shape[2] / b,
                                        b,           in.shape[3] / b, b};
  return depth_first ? TransposeKernel(in, split, {0, 3, 5, 1, 2, 4})
                     : TransposeKernel(in, split, {0, 1, 3, 5, 2, 4});
}

}  // namespace

OperatorDef DepthToSpaceOperator() {
  return {.name = "DepthToSpace",
          .input_types = {kAllTypes},
          .infer = InferDepthToSpace,
          .axes = FirstAxis<0>,
          .compile = CompileDepthToSpace,
          .only_moves = true,
          .native_half = true};
}

OperatorDef SpaceToDepthOperator() {
  return {.name = "SpaceToDepth",
          .input_types = {kAllTypes},
          .infer = InferSpaceToDepth,
          .axes = FirstAxis<0>,
          .compile = CompileSpaceToDepth,
          .only_moves = true,
          .native_half = true};
}

}  // namespace chairlift
