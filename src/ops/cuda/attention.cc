// chairlift::Attention, for requests that run alone and models whose tokens are not packed. (Packed
// tokens use ragged_attention.cu, which is the fast one.)
#include "ops/cuda/attention.cuh"

#include <algorithm>

#include "base/status.h"
#include "ops/attention/attention_heads.h"
#include "ops/cuda/kernels.h"

namespace chairlift::cuda {
namespace {

StatusOr<std::unique_ptr<Kernel>> CompileAttention(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (context.attributes.Has("steps")) return Unimplemented("quantized scores");
  if (context.has_input(3) && context.inputs[3].dtype != dtype) {
    return Unimplemented("a mask of {} beside {}", DTypeName(context.inputs[3].dtype),
                         DTypeName(dtype));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const AttentionShapes shapes, AttentionShapesOf(context));
  const AttentionHead& head = shapes.head;
  if (head.value_size > kMaxAttentionColumns) {
    return Unimplemented("{} columns of values", head.value_size);
  }
  AttentionCall call = {};
  call.batch = shapes.batch;
  call.heads = shapes.heads;
  call.sharing = shapes.sharing;
  call.queries = head.queries;
  call.keys = head.keys;
  call.head_size = head.head_size;
  call.value_size = head.value_size;
  int64_t* const strides[] = {call.q, call.k, call.v, call.y};
  for (size_t i = 0; i < 4; ++i) {
    std::copy(shapes.strides[i].begin(), shapes.strides[i].end(), strides[i]);
  }
  std::copy(shapes.mask.begin(), shapes.mask.end(), call.mask);
  call.mask[2] = head.mask_row;
  call.mask[3] = head.mask_column;
  call.mask_first = shapes.first;
  call.first_seen = head.first_seen;
  call.last_seen = head.last_seen;
  call.scale = head.scale;
  call.softcap = head.softcap;
  call.zeros_for_none = head.zeros_for_none;
  return MakeKernel([call, dtype](const KernelArgs& args) {
    LaunchAttention(dtype, call, args.inputs[0], args.inputs[1], args.inputs[2],
                    args.inputs.size() > 3 ? args.inputs[3] : nullptr, args.outputs[0],
                    StreamOf(args).handle());
    return Launched("attention");
  });
}

}  // namespace

std::span<const KernelEntry> AttentionKernels() {
  static const KernelEntry kKernels[] = {{"chairlift", "Attention", CompileAttention}};
  return kKernels;
}

}  // namespace chairlift::cuda
