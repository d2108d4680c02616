// Pooling over windows and over all of a channel.
#include "ops/cuda/pooling.cuh"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "ops/cuda/kernels.h"
#include "ops/pooling/pooling.h"

namespace chairlift::cuda {
namespace {

StatusOr<std::unique_ptr<Kernel>> PoolKernel(const CompileContext& context, Pooling kind,
                                             const PoolGeometry& geometry) {
  PoolCall call = {};
  call.kind = kind;
  call.p = context.attributes.Int("p", 2);
  call.planes = geometry.planes;
  call.column_major = context.attributes.Int("storage_order", 0) != 0;
  std::copy(geometry.in.begin(), geometry.in.end(), call.in);
  std::copy(geometry.out.begin(), geometry.out.end(), call.out);
  std::copy(geometry.dilation.begin(), geometry.dilation.end(), call.dilation);
  Tensor taps =
      Tensor::Allocate(DType::kInt64, Shape{3 * (call.out[0] + call.out[1] + call.out[2])});
  int64_t* to = taps.data<int64_t>();
  for (const std::vector<Taps>& axis : geometry.taps) {
    for (const Taps& t : axis) {
      *to++ = t.first;
      *to++ = t.count;
      *to++ = t.with_padding;
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(taps, UploadNow(context, taps));
  call.taps = static_cast<const int64_t*>(std::as_const(taps).raw());
  return MakeKernel([call, taps, dtype = context.inputs[0].dtype](const KernelArgs& args) {
    auto* const places = args.outputs.size() > 1 ? static_cast<int64_t*>(args.outputs[1]) : nullptr;
    LaunchPool(dtype, call, args.inputs[0], args.outputs[0], places, StreamOf(args).handle());
    return Launched("pooling");
  });
}

std::unique_ptr<Kernel> NothingToDo() {
  return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
}

template <Pooling kKind>
StatusOr<std::unique_ptr<Kernel>> CompilePool(const CompileContext& context) {
  if (context.outputs[0].size() == 0) return NothingToDo();
  const Shape& x = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                             Window::Parse(context.attributes, x.rank() - 2, {}));
  const bool with_padding =
      kKind == Pooling::kAverage && context.attributes.Int("count_include_pad", 0) != 0;
  return PoolKernel(context, with_padding ? Pooling::kAverageWithPadding : kKind,
                    PoolGeometry::Make(window, x[0] * x[1], x, context.outputs[0].shape));
}

// One window that covers everything.
template <Pooling kKind>
StatusOr<std::unique_ptr<Kernel>> CompileGlobal(const CompileContext& context) {
  if (context.outputs[0].size() == 0) return NothingToDo();
  const Shape& x = context.inputs[0].shape;
  const int64_t size = x.NumElements(2, x.rank());
  PoolGeometry geometry;
  geometry.planes = x[0] * x[1];
  geometry.in = {1, 1, size};
  geometry.out = {1, 1, 1};
  geometry.dilation = {1, 1, 1};
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t count = axis == 2 ? size : 1;
    geometry.taps[static_cast<size_t>(axis)] = {{0, count, count}};
  }
  return PoolKernel(context, kKind, geometry);
}

}  // namespace

std::span<const KernelEntry> PoolingKernels() {
  static const KernelEntry kKernels[] = {
      {"", "MaxPool", CompilePool<Pooling::kMax>},
      {"", "AveragePool", CompilePool<Pooling::kAverage>},
      {"", "LpPool", CompilePool<Pooling::kLp>},
      {"", "GlobalMaxPool", CompileGlobal<Pooling::kMax>},
      {"", "GlobalAveragePool", CompileGlobal<Pooling::kAverage>},
      {"", "GlobalLpPool", CompileGlobal<Pooling::kLp>},
  };
  return kKernels;
}

}  // namespace chairlift::cuda
