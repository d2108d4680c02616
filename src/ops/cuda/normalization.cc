// Softmax and the normalisations on a CUDA device, with the semantics of ops/normalization.
#include "ops/cuda/normalization.cuh"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/broadcast.h"
#include "ops/cuda/kernels.h"

namespace chairlift::cuda {
namespace {

constexpr float kDefaultEpsilon = 1e-5f;

const void* Input(const KernelArgs& args, size_t i) {
  return i < args.inputs.size() ? args.inputs[i] : nullptr;
}
void* Output(const KernelArgs& args, size_t i) {
  return i < args.outputs.size() ? args.outputs[i] : nullptr;
}
DType TypeOf(std::span<const TensorDesc> descs, size_t i) {
  return i < descs.size() ? descs[i].dtype : DType::kUndefined;
}

// Unimplemented for operands other than floats, and for doubles combined with other floats.
Status CheckFloats(const CompileContext& context, std::initializer_list<size_t> inputs) {
  const DType first = context.inputs[*inputs.begin()].dtype;
  for (const size_t i : inputs) {
    if (i >= context.inputs.size() || !context.inputs[i].present()) continue;
    const TensorDesc& desc = context.inputs[i];
    if (!kFloatTypes.Contains(desc.dtype)) return UnsupportedType(desc.dtype);
    if ((desc.dtype == DType::kDouble) != (first == DType::kDouble)) {
      return Unimplemented("input {} is {} beside {}", i, DTypeName(desc.dtype), DTypeName(first));
    }
  }
  return absl::OkStatus();
}

// --- Layer normalisation -------------------------------------------------------------------------

// How a scale or shift is expanded to n elements; nullopt if it has n already.
StatusOr<std::optional<SpreadMap>> SpreadOf(const TensorDesc& given, const Shape& normalised) {
  const int64_t n = normalised.NumElements();
  if (!given.present()) return std::optional<SpreadMap>();
  const int outer = std::max(given.shape.rank() - normalised.rank(), 0);
  for (int i = 0; i < outer; ++i) {
    if (given.shape[i] != 1) return Unimplemented("a scale or bias that differs between rows");
  }
  if (given.size() == n) return std::optional<SpreadMap>();
  const Shape inner(given.shape.dims().subspan(static_cast<size_t>(outer)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const BroadcastLoop loop, MakeBroadcastLoop({&inner, 1}, normalised));
  if (loop.dims.size() > kMaxNormDims) {
    return Unimplemented("a scale or bias that broadcasts in {} dimensions", loop.dims.size());
  }
  SpreadMap map{.n = n, .dims = static_cast<int>(loop.dims.size())};
  std::copy(loop.dims.begin(), loop.dims.end(), map.dim);
  std::copy(loop.strides[0].begin(), loop.strides[0].end(), map.stride);
  return std::optional<SpreadMap>(map);
}

// LayerNormalization, or (not `centred`) RMSNormalization.
StatusOr<std::unique_ptr<Kernel>> CompileRows(const CompileContext& context, bool centred) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0, 1, 2}));
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const Shape normalised(shape.dims().subspan(static_cast<size_t>(axis)));
  NormRows rows;
  rows.rows = shape.NumElements(0, axis);
  rows.n = normalised.NumElements();
  rows.epsilon = context.attributes.Float("epsilon", kDefaultEpsilon);
  rows.centred = centred;
  rows.term[0].values.dtype = context.inputs[0].dtype;
  rows.term[0].strides[0] = 1;
  rows.scale.dtype = context.inputs[1].dtype;
  rows.shift.dtype = TypeOf(context.inputs, 2);
  rows.y_dtype = context.outputs[0].dtype;
  const TensorDesc shift = context.has_input(2) ? context.inputs[2] : TensorDesc{};
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto spread_scale, SpreadOf(context.inputs[1], normalised));
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto spread_shift, SpreadOf(shift, normalised));
  // Bytes of one expanded to n elements, 64-byte aligned.
  const auto bytes = [&](const std::optional<SpreadMap>& map, DType dtype) {
    return map ? (static_cast<size_t>(map->n) * DTypeSize(dtype) + 63) / 64 * 64 : size_t{0};
  };
  const size_t scale_bytes = bytes(spread_scale, rows.scale.dtype);
  const size_t scratch = scale_bytes + bytes(spread_shift, rows.shift.dtype);
  return MakeKernel(
      [=](const KernelArgs& args) {
        const cudaStream_t stream = StreamOf(args).handle();
        NormRows p = rows;
        p.term[0].values.data = args.inputs[0];
        p.scale.data = args.inputs[1];
        p.shift.data = Input(args, 2);
        const auto spread = [&](const std::optional<SpreadMap>& map, NormOperand& operand,
                                size_t at) {
          if (!map || operand.data == nullptr) return;
          void* const room = static_cast<std::byte*>(args.scratch) + at;
          LaunchSpread(*map, DTypeSize(operand.dtype), operand.data, room, stream);
          operand.data = room;
        };
        spread(spread_scale, p.scale, 0);
        spread(spread_shift, p.shift, scale_bytes);
        p.y = args.outputs[0];
        p.mean = static_cast<float*>(Output(args, 1));
        p.inv_std = static_cast<float*>(Output(args, 2));
        LaunchLayerNorm(p, stream);
        return Launched("layer normalisation");
      },
      scratch);
}

StatusOr<std::unique_ptr<Kernel>> CompileLayerNorm(const CompileContext& context) {
  return CompileRows(context, /*centred=*/true);
}
StatusOr<std::unique_ptr<Kernel>> CompileRmsNorm(const CompileContext& context) {
  return CompileRows(context, /*centred=*/false);
}

StatusOr<std::unique_ptr<Kernel>> CompileSkip(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0, 1, 2, 3, 4}));
  const Shape& shape = context.inputs[0].shape;
  NormRows rows;
  rows.rows = shape.NumElements(0, shape.rank() - 1);
  rows.n = shape[shape.rank() - 1];
  for (int i = 1; i < 5; ++i) {
    if (context.has_input(i) &&
        context.inputs[static_cast<size_t>(i)].size() != (i == 1 ? rows.rows * rows.n : rows.n)) {
      return InvalidArgument("input {} has shape {}", i,
                             context.inputs[static_cast<size_t>(i)].shape.ToString());
    }
  }
  rows.epsilon = context.attributes.Float("epsilon", kDefaultEpsilon);
  rows.terms = context.has_input(2) ? 3 : 2;
  for (size_t t = 0; t < static_cast<size_t>(rows.terms); ++t) {
    rows.term[t].values.dtype = context.inputs[t].dtype;
    rows.term[t].strides[0] = t < 2 ? 1 : 0;  // one bias for all rows
  }
  rows.scale.dtype = context.inputs[3].dtype;
  rows.shift.dtype = TypeOf(context.inputs, 4);
  rows.y_dtype = context.outputs[0].dtype;
  rows.sum_dtype = TypeOf(context.outputs, 1);
  return MakeKernel([rows](const KernelArgs& args) {
    NormRows p = rows;
    for (size_t t = 0; t < static_cast<size_t>(p.terms); ++t) {
      p.term[t].values.data = args.inputs[t];
    }
    p.scale.data = args.inputs[3];
    p.shift.data = Input(args, 4);
    p.y = args.outputs[0];
    p.sum = Output(args, 1);
    LaunchLayerNorm(p, StreamOf(args).handle());
    return Launched("SkipLayerNorm");
  });
}

// All dimensions but the last.
Shape WithoutLast(const Shape& shape) {
  return Shape(shape.dims().first(static_cast<size_t>(shape.rank()) - 1));
}

StatusOr<std::unique_ptr<Kernel>> CompileEmbedding(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0, 1, 2, 4, 6}));
  constexpr size_t kFirstTerm = 2;  // followed by its index, and so on
  const Shape& y = context.outputs[0].shape;
  NormRows rows;
  rows.n = y[y.rank() - 1];
  rows.epsilon = context.attributes.Float("epsilon", kDefaultEpsilon);
  rows.terms = 0;
  std::array<size_t, kMaxNormTerms> inputs{};  // of the terms
  std::vector<Shape> leading;
  bool picks = false;
  for (size_t i = kFirstTerm; i < kFirstTerm + 2 * kMaxNormTerms; i += 2) {
    if (!context.has_input(static_cast<int>(i))) continue;
    const TensorDesc& values = context.inputs[i];
    NormTerm& term = rows.term[rows.terms];
    inputs[static_cast<size_t>(rows.terms)] = i;
    ++rows.terms;
    term.values.dtype = values.dtype;
    if (context.has_input(static_cast<int>(i) + 1)) {
      const TensorDesc& index = context.inputs[i + 1];
      term.index_bytes = static_cast<int>(DTypeSize(index.dtype));
      term.bound = values.shape[0];
      leading.push_back(index.shape);
      picks = true;
    } else {
      leading.push_back(WithoutLast(values.shape));
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const BroadcastLoop loop, MakeBroadcastLoop(leading, WithoutLast(y)));
  if (loop.dims.size() > kMaxNormDims || loop.size >= int64_t{1} << 31) {
    return Unimplemented("{} rows in {} dimensions", loop.size, loop.dims.size());
  }
  rows.rows = loop.size;
  rows.dims = static_cast<int>(loop.dims.size());
  std::copy(loop.dims.begin(), loop.dims.end(), rows.dim);
  for (size_t t = 0; t < static_cast<size_t>(rows.terms); ++t) {
    std::copy(loop.strides[t].begin(), loop.strides[t].end(), rows.term[t].strides);
  }
  rows.scale.dtype = context.inputs[0].dtype;
  rows.shift.dtype = TypeOf(context.inputs, 1);
  rows.y_dtype = context.outputs[0].dtype;
  rows.sum_dtype = TypeOf(context.outputs, 1);
  return MakeKernel([rows, inputs, picks](const KernelArgs& args) {
    CudaStream& stream = StreamOf(args);
    NormRows p = rows;
    for (size_t t = 0; t < static_cast<size_t>(p.terms); ++t) {
      p.term[t].values.data = args.inputs[inputs[t]];
      if (p.term[t].index_bytes != 0) p.term[t].index = args.inputs[inputs[t] + 1];
    }
    p.scale.data = args.inputs[0];
    p.shift.data = Input(args, 1);
    p.y = args.outputs[0];
    p.sum = Output(args, 1);
    p.fault = picks ? stream.fault() : nullptr;
    LaunchLayerNorm(p, stream.handle());
    return Launched("EmbeddingLayerNorm");
  });
}

// --- Along an axis -------------------------------------------------------------------------------

template <bool kLog>
StatusOr<std::unique_ptr<Kernel>> CompileSoftmax(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0}));
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const SoftmaxShape around{shape.NumElements(0, axis), shape[axis],
                            shape.NumElements(axis + 1, shape.rank()), kLog};
  return MakeKernel([around, dtype = context.inputs[0].dtype](const KernelArgs& args) {
    LaunchSoftmax(dtype, around, args.inputs[0], args.outputs[0], StreamOf(args).handle());
    return Launched("softmax");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileLpNorm(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0}));
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const LpNormShape around{shape.NumElements(0, axis), shape[axis],
                           shape.NumElements(axis + 1, shape.rank()),
                           context.attributes.Int("p", 2) == 2};
  return MakeKernel([around, dtype = context.inputs[0].dtype](const KernelArgs& args) {
    LaunchLpNorm(dtype, around, args.inputs[0], args.outputs[0], StreamOf(args).handle());
    return Launched("LpNormalization");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileMeanVariance(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0}));
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::vector<int> axes,
      NormalizeAxes(context.attributes.Ints("axes", {0, 2, 3}), shape.rank()));
  if (shape.rank() > kMaxNormDims) return Unimplemented("rank {}", shape.rank());
  MeanVarianceShape plan{.groups = 1, .count = 1};
  for (int a = 0; a < shape.rank(); ++a) {
    const int64_t stride = shape.NumElements(a + 1, shape.rank());
    if (std::find(axes.begin(), axes.end(), a) != axes.end()) {
      plan.reduced_dim[plan.reduced] = shape[a];
      plan.reduced_stride[plan.reduced++] = stride;
      plan.count *= shape[a];
    } else {
      plan.kept_dim[plan.kept] = shape[a];
      plan.kept_stride[plan.kept++] = stride;
      plan.groups *= shape[a];
    }
  }
  return MakeKernel([plan, dtype = context.inputs[0].dtype](const KernelArgs& args) {
    LaunchMeanVariance(dtype, plan, args.inputs[0], args.outputs[0], StreamOf(args).handle());
    return Launched("MeanVarianceNormalization");
  });
}

// --- By channel ----------------------------------------------------------------------------------

StatusOr<std::unique_ptr<Kernel>> CompileBatchNorm(const CompileContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0, 1, 2, 3, 4}));
  const Shape& shape = context.inputs[0].shape;
  const bool has_channels = shape.rank() > 1;
  const BatchNormShape plan{.items = shape[0],
                            .channels = has_channels ? shape[1] : 1,
                            .plane = has_channels ? shape.NumElements(2, shape.rank()) : 1,
                            .epsilon = context.attributes.Float("epsilon", kDefaultEpsilon)};
  std::array<DType, 5> dtypes{};
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (i > 0 && context.inputs[i].size() != plan.channels) {
      return InvalidArgument("input {} has {} elements, not {}", i, context.inputs[i].size(),
                             plan.channels);
    }
    dtypes[i] = context.inputs[i].dtype;
  }
  return MakeKernel(
      [plan, dtypes](const KernelArgs& args) {
        const auto operand = [&](size_t i) { return NormOperand{dtypes[i], args.inputs[i]}; };
        LaunchBatchNorm(dtypes[0], plan, args.inputs[0], operand(1), operand(2), operand(3),
                        operand(4), args.scratch, args.outputs[0], StreamOf(args).handle());
        return Launched("BatchNormalization");
      },
      static_cast<size_t>(3 * plan.channels) * sizeof(double));
}

StatusOr<std::unique_ptr<Kernel>> CompileGroups(const CompileContext& context, int64_t groups) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckFloats(context, {0, 1, 2}));
  const Shape& shape = context.inputs[0].shape;
  const GroupNormShape plan{.items = shape[0],
                            .groups = groups,
                            .channels = groups == 0 ? 0 : shape[1] / groups,
                            .plane = shape.NumElements(2, shape.rank()),
                            .epsilon = context.attributes.Float("epsilon", kDefaultEpsilon)};
  const NormOperand scale{context.inputs[1].dtype}, bias{context.inputs[2].dtype};
  return MakeKernel([plan, scale, bias, dtype = context.inputs[0].dtype](const KernelArgs& args) {
    LaunchGroupNorm(dtype, plan, args.inputs[0], {scale.dtype, args.inputs[1]},
                    {bias.dtype, args.inputs[2]}, args.outputs[0], StreamOf(args).handle());
    return Launched("group normalisation");
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileInstanceNorm(const CompileContext& context) {
  return CompileGroups(context, context.inputs[0].shape[1]);
}
StatusOr<std::unique_ptr<Kernel>> CompileGroupNorm(const CompileContext& context) {
  return CompileGroups(context, context.attributes.Int("num_groups", 1));
}

}  // namespace

std::span<const KernelEntry> NormalizationKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"", "LayerNormalization", CompileLayerNorm},
      {"", "RMSNormalization", CompileRmsNorm},
      {"chairlift", "SkipLayerNorm", CompileSkip},
      {"chairlift", "EmbeddingLayerNorm", CompileEmbedding},
      {"", "Softmax", CompileSoftmax<false>},
      {"", "LogSoftmax", CompileSoftmax<true>},
      {"", "BatchNormalization", CompileBatchNorm},
      {"", "InstanceNormalization", CompileInstanceNorm},
      {"", "GroupNormalization", CompileGroupNorm},
      {"", "LpNormalization", CompileLpNorm},
      {"", "MeanVarianceNormalization", CompileMeanVariance},
  };
  return kEntries;
}

}  // namespace chairlift::cuda
