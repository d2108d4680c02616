// Reductions, ArgMax and ArgMin.
#include "ops/cuda/reduction.cuh"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/status.h"
#include "ops/axes.h"
#include "ops/cuda/kernels.h"
#include "ops/reduction/reduce_plan.h"

namespace chairlift::cuda {
namespace {

template <Fold kFold>
StatusOr<std::unique_ptr<Kernel>> CompileReduce(const CompileContext& context) {
  const TensorDesc& in = context.inputs[0];
  std::optional<std::span<const int64_t>> given;
  if (context.has_input(1)) {
    const Tensor* const axes = context.constant(1);
    if (axes == nullptr || axes->dtype() != DType::kInt64) {
      return Unimplemented("axes that are not a constant");
    }
    given = axes->values<int64_t>();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             ReduceAxes(context.attributes, given, in.shape.rank()));
  FoldLoops loops = {};
  loops.kept = loops.folded = 1;
  int64_t stride = in.size();
  for (int d = 0; d < in.shape.rank(); ++d) {
    const int64_t size = in.shape[d];
    stride = size == 0 ? 0 : stride / size;
    const bool folds = std::find(axes.begin(), axes.end(), d) != axes.end();
    (folds ? loops.folded : loops.kept) *= size;
    if (size == 1) continue;
    int& count = folds ? loops.num_folded : loops.num_kept;
    int64_t* const dims = folds ? loops.folded_dims : loops.kept_dims;
    int64_t* const strides = folds ? loops.folded_strides : loops.kept_strides;
    if (count > 0 && strides[count - 1] == size * stride) {
      dims[count - 1] *= size;
      strides[count - 1] = stride;
      continue;
    }
    if (count == kMaxFoldDims) return Unimplemented("more than {} dimensions", kMaxFoldDims);
    dims[count] = size;
    strides[count++] = stride;
  }
  const DType dtype = in.dtype;
  constexpr bool kRoots = kFold == Fold::kL2 || kFold == Fold::kLogSum || kFold == Fold::kLogSumExp;
  if (dtype == DType::kBool || (kRoots && !kFloatTypes.Contains(dtype))) {
    return Unimplemented("elements of {}", DTypeName(dtype));
  }
  return MakeKernel([loops, dtype](const KernelArgs& args) {
    LaunchFold(kFold, dtype, loops, args.inputs[0], args.outputs[0], StreamOf(args).handle());
    return Launched("a reduction");
  });
}

template <bool kLargest>
StatusOr<std::unique_ptr<Kernel>> CompileArgReduce(const CompileContext& context) {
  const Shape& in = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", 0), in.rank()));
  const bool last = context.attributes.Int("select_last_index", 0) != 0;
  const int64_t outer = in.NumElements(0, axis), inner = in.NumElements(axis + 1, in.rank());
  const int64_t size = in[axis];
  const DType dtype = context.inputs[0].dtype;
  if (size == 0 || dtype == DType::kBool) return Unimplemented("no elements, or truth values");
  return MakeKernel([=](const KernelArgs& args) {
    LaunchArgFold(kLargest, last, dtype, outer, size, inner, args.inputs[0],
                  static_cast<int64_t*>(args.outputs[0]), StreamOf(args).handle());
    return Launched(kLargest ? "ArgMax" : "ArgMin");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileCumSum(const CompileContext& context) {
  const Shape& in = context.inputs[0].shape;
  const Tensor* const given = context.constant(1);
  if (given == nullptr || given->size() != 1) return Unimplemented("an axis that is not constant");
  const int64_t value =
      given->dtype() == DType::kInt32 ? given->data<int32_t>()[0] : given->data<int64_t>()[0];
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(value, in.rank()));
  const bool exclusive = context.attributes.Int("exclusive", 0) != 0;
  const bool reverse = context.attributes.Int("reverse", 0) != 0;
  const int64_t outer = in.NumElements(0, axis), inner = in.NumElements(axis + 1, in.rank());
  const int64_t size = in[axis];
  const DType dtype = context.inputs[0].dtype;
  return MakeKernel([=](const KernelArgs& args) {
    LaunchCumSum(dtype, exclusive, reverse, outer, size, inner, args.inputs[0], args.outputs[0],
                 StreamOf(args).handle());
    return Launched("CumSum");
  });
}

}  // namespace

std::span<const KernelEntry> ReductionKernels() {
  static const KernelEntry kKernels[] = {
      {"", "ReduceSum", CompileReduce<Fold::kSum>},
      {"", "ReduceMean", CompileReduce<Fold::kMean>},
      {"", "ReduceMax", CompileReduce<Fold::kMax>},
      {"", "ReduceMin", CompileReduce<Fold::kMin>},
      {"", "ReduceProd", CompileReduce<Fold::kProd>},
      {"", "ReduceL1", CompileReduce<Fold::kL1>},
      {"", "ReduceL2", CompileReduce<Fold::kL2>},
      {"", "ReduceSumSquare", CompileReduce<Fold::kSumSquare>},
      {"", "ReduceLogSum", CompileReduce<Fold::kLogSum>},
      {"", "ReduceLogSumExp", CompileReduce<Fold::kLogSumExp>},
      {"", "CumSum", CompileCumSum},
      {"", "ArgMax", CompileArgReduce<true>},
      {"", "ArgMin", CompileArgReduce<false>},
  };
  return kKernels;
}

}  // namespace chairlift::cuda
