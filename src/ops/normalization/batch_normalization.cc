// BatchNormalization at inference: an affine map by channel, from stored statistics.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferBatchNormalization(InferContext& context) {
  if (context.attributes().Int("training_mode", 0) != 0) {
    return Unimplemented("training_mode is on: only inference is supported");
  }
  if (context.num_outputs() > 1) {
    return Unimplemented("running statistics are outputs of training only");
  }
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, context.dtype(0), shape);
  if (!shape.has_rank()) return absl::OkStatus();
  if (shape.rank() == 0) return InvalidArgument("the input is a scalar");
  // An input of one dimension has one channel.
  const Dim channels = shape.rank() == 1 ? Dim(1) : shape[1];
  for (int i = 1; i < 5; ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckPerChannel(context, i, channels));
  }
  return absl::OkStatus();
}

std::optional<BlockedForm> InBlocks(const Attributes&, std::span<const ValueInfo>,
                                    std::span<const ValueInfo>) {
  return BlockedForm{.inputs = 1, .outputs = 1};
}

// [items, channel groups, plane, channels per group]. Row-major tensors have groups of one channel
// if the plane is larger than 1, and otherwise one group; blocked ones have groups of a block.
struct Channels {
  int64_t items, groups, plane, width;
};

Channels SplitChannels(const TensorDesc& x) {
  const int64_t items = x.shape[0];
  const int64_t channels = x.shape.rank() > 1 ? x.shape[1] : 1;
  const int64_t plane = x.shape.rank() > 1 ? x.shape.NumElements(2, x.shape.rank()) : 1;
  if (x.layout == Layout::kChannelBlocked) {
    return {items, ChannelBlocks(channels), plane, ChannelBlock()};
  }
  if (plane == 1) return {1, 1, items, channels};
  return {items, channels, plane, 1};
}

// y = a (x − mean) + b by channel, for the planes of all items and groups [first, last).
template <typename T>
void RunPlanes(const Channels& s, const T* x, T* y, const T* mean, const T* a, const T* b,
               int64_t first, int64_t last) {
  const int64_t size = s.plane * s.width;
  for (int64_t unit = first; unit < last; ++unit) {
    const T* from = x + unit * size;
    T* to = y + unit * size;
    const int64_t channel = unit % s.groups * s.width;
    if constexpr (std::is_same_v<T, float>) {
      static const RowFns kFns = FindRowFns();
      if (s.width == 1) {
        kFns.affine(from, to, s.plane, mean[channel], a[channel], b[channel]);
      } else {
        kFns.affine_columns(from, to, s.plane, s.width, mean + channel, a + channel, b + channel);
      }
    } else {
      for (int64_t i = 0; i < size; ++i) {
        const int64_t c = channel + i % s.width;
        to[i] = a[c] * (from[i] - mean[c]) + b[c];
      }
    }
  }
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForBatchNormalization(const CompileContext& context) {
  const Channels s = SplitChannels(context.inputs[0]);
  const Shape& shape = context.inputs[0].shape;
  const int64_t channels = shape.rank() > 1 ? shape[1] : 1;
  const int64_t stored = s.groups * s.width;
  for (int i = 1; i < 5; ++i) {
    if (context.inputs[i].size() != channels) {
      return InvalidArgument("input {} has {} elements, not {}", i, context.inputs[i].size(),
                             channels);
    }
  }
  const double epsilon = context.attributes.Float("epsilon", 1e-5f);
  const auto run = [s, channels, stored, epsilon](const KernelArgs& args) {
    const auto input = [&](int i) { return static_cast<const T*>(args.inputs[i]); };
    // Padding channels of the last block are zero and stay zero.
    T* a = static_cast<T*>(args.scratch);
    T* b = a + stored;
    T* mean = b + stored;
    std::fill_n(a, 3 * stored, T{0});
    for (int64_t c = 0; c < channels; ++c) {
      a[c] = static_cast<T>(static_cast<double>(input(1)[c]) /
                            std::sqrt(static_cast<double>(input(4)[c]) + epsilon));
    }
    std::copy_n(input(2), channels, b);
    std::copy_n(input(3), channels, mean);
    const int64_t units = s.items * s.groups;
    ForRanges(args.team, units, units * s.plane * s.width, kMinNormalizedToShare,
              [&](int64_t first, int64_t last) {
                RunPlanes(s, input(0), static_cast<T*>(args.outputs[0]), mean, a, b, first, last);
              });
    return absl::OkStatus();
  };
  return MakeKernel(run, static_cast<size_t>(3 * stored) * sizeof(T));
}

StatusOr<std::unique_ptr<Kernel>> CompileBatchNormalization(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() { return CompileForBatchNormalization<T>(context); });
}

StatusOr<AxisMap> AxesOfBatchNormalization(const InferContext& context) {
  if (context.attributes().Int("training_mode", 0) != 0) {
    return Unimplemented("it is in training mode and takes statistics over the batch");
  }
  return FirstAxis<0>(context);
}

}  // namespace

void RegisterBatchNormalization(OperatorRegistry& registry) {
  registry.Add({.name = "BatchNormalization",
                .min_inputs = 5,
                .max_inputs = 5,
                .min_outputs = 1,
                .max_outputs = 5,
                .input_types = {kFloatTypes},
                .infer = InferBatchNormalization,
                .axes = AxesOfBatchNormalization,
                .compile = CompileBatchNormalization,
                .in_place = true,
                .blocked_form = InBlocks});
}

}  // namespace chairlift
