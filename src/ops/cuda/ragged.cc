// The operators over packed sequences on a CUDA device, with the semantics of ops/ragged. Wrong
// offsets fail the stream's next event, because only kernels read them.
#include "ops/cuda/ragged.cuh"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ops/cuda/kernels.h"
#include "ops/cuda/ragged_attention.cuh"

namespace chairlift::cuda {
namespace {

// The offsets in input i of a run.
Sequences SequencesIn(const KernelArgs& args, size_t i, int64_t count, int64_t tokens) {
  return {static_cast<const int64_t*>(args.inputs[i]), count, tokens, StreamOf(args).fault()};
}
int64_t RowElements(const Shape& shape) { return shape.NumElements(1, shape.rank()); }
size_t RowBytes(const TensorDesc& desc) {
  return static_cast<size_t>(RowElements(desc.shape)) * DTypeSize(desc.dtype);
}

StatusOr<std::unique_ptr<Kernel>> CompileAttention(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (!(kHalfTypes | TypeSet{DType::kFloat}).Contains(dtype)) return UnsupportedType(dtype);
  if (context.attributes.Has("steps")) return Unimplemented("quantized scores");
  const Shape& q = context.inputs[0].shape;
  const Shape& k = context.inputs[1].shape;
  const Shape& v = context.inputs[2].shape;
  const Attributes& attributes = context.attributes;
  if (v[1] != k[1]) return InvalidArgument("keys have {} heads, values {}", k[1], v[1]);
  RaggedAttentionArgs plan;
  plan.tokens = q[0];
  plan.sequences = context.inputs[3].shape[0] - 1;
  plan.heads = q[1];
  plan.kv_heads = std::max<int64_t>(k[1], 1);
  plan.columns = q[2];
  plan.values = v[2];
  plan.scale = attributes.Float("scale", 1.0f);
  plan.softcap = attributes.Float("softcap", 0.0f);
  plan.causal = attributes.Int("causal", 0) != 0;
  plan.zeros_for_none = attributes.Int("zeros_for_none", 0) != 0;
  if (plan.heads % plan.kv_heads != 0) {
    return InvalidArgument("the number of key heads, {}, does not divide that of query heads, {}",
                           plan.kv_heads, plan.heads);
  }
  const bool by_key = context.has_input(4), by_distance = context.has_input(5);
  if (by_key && by_distance) return Unimplemented("a bias by key and one by distance at once");
  const size_t biased = by_key ? 4 : by_distance ? 5 : 0;
  if (biased != 0 && context.inputs[biased].dtype != dtype) {
    return Unimplemented("a bias of {} beside {}", DTypeName(context.inputs[biased].dtype),
                         DTypeName(dtype));
  }
  if (by_distance) {
    const Shape& bias = context.inputs[5].shape;
    if (bias.rank() != 2 || bias[0] != plan.heads || bias[1] % 2 == 0) {
      return InvalidArgument("a bias {} is not for distances of {} heads", bias.ToString(),
                             plan.heads);
    }
    plan.points = bias[1];
  }
  if (RaggedAttentionBlocks(plan) >= int64_t{1} << 31) {
    return Unimplemented("{} tokens of {} heads in {} sequences", plan.tokens, plan.heads,
                         plan.sequences);
  }
  CHAIRLIFT_RETURN_IF_ERROR(Checked(PrepareRaggedAttention(dtype, plan.columns, plan.values),
                                    "shared memory of attention"));
  return MakeKernel([plan, dtype, biased](const KernelArgs& args) {
    CudaStream& stream = StreamOf(args);
    RaggedAttentionArgs p = plan;
    p.q = args.inputs[0];
    p.k = args.inputs[1];
    p.v = args.inputs[2];
    p.offsets = static_cast<const int64_t*>(args.inputs[3]);
    p.bias = biased != 0 ? args.inputs[biased] : nullptr;
    p.out = args.outputs[0];
    p.fault = stream.fault();
    LaunchRaggedAttention(dtype, p, stream.handle());
    return Launched("RaggedAttention");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileReduce(const CompileContext& context) {
  constexpr std::array<std::pair<std::string_view, RaggedFold>, 4> kFolds = {
      {{"sum", RaggedFold::kSum},
       {"mean", RaggedFold::kMean},
       {"max", RaggedFold::kMax},
       {"min", RaggedFold::kMin}}};
  const std::string name = context.attributes.String("op", "");
  const auto* const found =
      std::find_if(kFolds.begin(), kFolds.end(), [&](const auto& f) { return f.first == name; });
  if (found == kFolds.end()) return InvalidArgument("there is no op '{}'", name);
  const TensorDesc& x = context.inputs[0];
  if (!(kFloatTypes | TypeSet{DType::kInt32, DType::kInt64}).Contains(x.dtype)) {
    return UnsupportedType(x.dtype);
  }
  return MakeKernel([fold = found->second, dtype = x.dtype, tokens = x.shape[0],
                     columns = RowElements(x.shape),
                     count = context.inputs[1].shape[0] - 1](const KernelArgs& args) {
    LaunchRaggedReduce(dtype, fold, SequencesIn(args, 1, count, tokens), columns, args.inputs[0],
                       args.outputs[0], StreamOf(args).handle());
    return Launched("RaggedReduce");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileToken(const CompileContext& context) {
  // An index out of range is an error, which only the CPU finds.
  if (context.has_input(2)) return Unimplemented("tokens are picked by data");
  const TensorDesc& x = context.inputs[0];
  return MakeKernel([index = context.attributes.Int("index", 0), bytes = RowBytes(x),
                     tokens = x.shape[0],
                     count = context.inputs[1].shape[0] - 1](const KernelArgs& args) {
    LaunchRaggedToken(index, SequencesIn(args, 1, count, tokens), bytes, args.inputs[0],
                      args.outputs[0], StreamOf(args).handle());
    return Launched("RaggedToken");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileSpread(const CompileContext& context) {
  const int64_t count = context.inputs[1].shape[0] - 1;
  if (context.inputs[0].shape[0] != count) {
    return InvalidArgument("there are {} rows for {} sequences", context.inputs[0].shape[0], count);
  }
  return MakeKernel([bytes = RowBytes(context.inputs[0]), tokens = context.inputs[2].shape[0],
                     count](const KernelArgs& args) {
    LaunchRaggedSpread(SequencesIn(args, 1, count, tokens), bytes, args.inputs[0], args.outputs[0],
                       StreamOf(args).handle());
    return Launched("RaggedSpread");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileCumSum(const CompileContext& context) {
  const TensorDesc& x = context.inputs[0];
  if (!(kFloatTypes | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64})
           .Contains(x.dtype)) {
    return UnsupportedType(x.dtype);
  }
  return MakeKernel([dtype = x.dtype, tokens = x.shape[0], columns = RowElements(x.shape),
                     count = context.inputs[1].shape[0] - 1,
                     exclusive = context.attributes.Int("exclusive", 0) != 0,
                     reverse = context.attributes.Int("reverse", 0) != 0](const KernelArgs& args) {
    LaunchRaggedCumSum(dtype, SequencesIn(args, 1, count, tokens), columns, exclusive, reverse,
                       args.inputs[0], args.outputs[0], StreamOf(args).handle());
    return Launched("RaggedCumSum");
  });
}

}  // namespace

std::span<const KernelEntry> RaggedKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"chairlift", "RaggedAttention", CompileAttention},
      {"chairlift", "RaggedReduce", CompileReduce},
      {"chairlift", "RaggedToken", CompileToken},
      {"chairlift", "RaggedSpread", CompileSpread},
      {"chairlift", "RaggedCumSum", CompileCumSum},
  };
  return kEntries;
}

}  // namespace chairlift::cuda
