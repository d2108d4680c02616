// GroupNormalization and InstanceNormalization: normalises each group of channels (or each channel)
// of each item to mean 0 and variance 1, then applies scale and bias by channel.
#include <cmath>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"
#include "ops/reduction/fold_simd.h"

namespace chairlift {
namespace {

Status InferChannels(InferContext& context, int min_rank) {
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, context.dtype(0), shape);
  if (!shape.has_rank()) return absl::OkStatus();
  if (shape.rank() < min_rank) {
    return InvalidArgument("shape {} has fewer than {} dimensions", shape.ToString(), min_rank);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckPerChannel(context, 1, shape[1]));
  return CheckPerChannel(context, 2, shape[1]);
}

Status InferInstance(InferContext& context) { return InferChannels(context, 3); }

Status InferGroup(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferChannels(context, 2));
  const int64_t groups = context.attributes().Int("num_groups", 0);
  if (groups < 1) return InvalidArgument("attribute num_groups is {}", groups);
  const SymbolicShape& shape = context.shape(0);
  if (shape.has_rank() && shape[1].known() && shape[1].value() % groups != 0) {
    return InvalidArgument("{} channels do not make {} groups", shape[1].value(), groups);
  }
  return absl::OkStatus();
}

// [items, groups, channels per group, elements per channel]
struct Groups {
  int64_t items, groups, channels, plane;
};

// Σ (x − from)
double SumFrom(const float* x, int64_t n, float from) {
  return FindFold(FloatFold::kSumFrom).row(x, n, from);
}
double SumFrom(const double* x, int64_t n, double from) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] - from;
  return sum;
}
RowMoments MomentsFrom(const float* x, int64_t n, float from) {
  return FindRowFns().moments(x, n, from);
}
RowMoments MomentsFrom(const double* x, int64_t n, double from) {
  RowMoments moments = {0, 0};
  for (int64_t i = 0; i < n; ++i) {
    const double centred = x[i] - from;
    moments.sum += centred;
    moments.squares += centred * centred;
  }
  return moments;
}

// The mean is `mean` + `rest`: elements may be so large that it lies between two Ts.
template <typename T>
struct Statistics {
  T mean;
  double rest, variance;
};
// Two passes: the second finds the error of the first. The first starts at an element, so that the
// mean of equal elements is exactly their value.
template <typename T>
Statistics<T> StatisticsOf(const T* x, int64_t n) {
  const auto count = static_cast<double>(n);
  const T mean = x[0] + static_cast<T>(SumFrom(x, n, x[0]) / count);
  const RowMoments about = MomentsFrom(x, n, mean);
  const double rest = about.sum / count;
  const double variance = about.squares / count - rest * rest;
  return {mean, rest, variance < 0 ? 0 : variance};
}

template <typename T>
void RunGroup(const Groups& g, int64_t unit, const T* all, const T* scale, const T* bias,
              double epsilon, T* out) {
  const int64_t block = g.channels * g.plane;
  const T* x = all + unit * block;
  T* y = out + unit * block;
  const Statistics<T> s = StatisticsOf(x, block);
  const double inv = 1.0 / std::sqrt(s.variance + epsilon);
  const auto affine = FindRowFns().affine;
  for (int64_t c = 0; c < g.channels; ++c) {
    const int64_t channel = unit % g.groups * g.channels + c;
    const double a = inv * static_cast<double>(scale[channel]);
    const double b = static_cast<double>(bias[channel]) - s.rest * a;
    const int64_t start = c * g.plane;
    if constexpr (std::is_same_v<T, float>) {
      affine(x + start, y + start, g.plane, s.mean, static_cast<float>(a), static_cast<float>(b));
    } else {
      for (int64_t i = 0; i < g.plane; ++i) y[start + i] = (x[start + i] - s.mean) * a + b;
    }
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileGroups(const CompileContext& context, int64_t groups) {
  const Shape& shape = context.inputs[0].shape;
  const Groups g{shape[0], groups, groups == 0 ? 0 : shape[1] / groups,
                 shape.NumElements(2, shape.rank())};
  const double epsilon = context.attributes.Float("epsilon", 1e-5f);
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                         return MakeKernel([g, epsilon](const KernelArgs& args) {
                           const int64_t size = g.items * g.groups * g.channels * g.plane;
                           if (size == 0) return absl::OkStatus();
                           ForRanges(args.team, g.items * g.groups, size, kMinNormalizedToShare,
                                     [&](int64_t first, int64_t last) {
                                       for (int64_t unit = first; unit < last; ++unit) {
                                         RunGroup(g, unit, static_cast<const T*>(args.inputs[0]),
                                                  static_cast<const T*>(args.inputs[1]),
                                                  static_cast<const T*>(args.inputs[2]), epsilon,
                                                  static_cast<T*>(args.outputs[0]));
                                       }
                                     });
                           return absl::OkStatus();
                         });
                       });
}

StatusOr<std::unique_ptr<Kernel>> CompileInstance(const CompileContext& context) {
  return CompileGroups(context, context.inputs[0].shape[1]);
}
StatusOr<std::unique_ptr<Kernel>> CompileGroup(const CompileContext& context) {
  return CompileGroups(context, context.attributes.Int("num_groups", 1));
}

}  // namespace

void RegisterGroupNormalization(OperatorRegistry& registry) {
  registry.Add({.name = "InstanceNormalization",
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kFloatTypes},
                .infer = InferInstance,
                .axes = FirstAxis<0>,
                .compile = CompileInstance});
  registry.Add({.name = "GroupNormalization",
                .min_opset = 18,
                .min_inputs = 3,
                .max_inputs = 3,
                .input_types = {kFloatTypes},
                .infer = InferGroup,
                .axes = FirstAxis<0>,
                .compile = CompileGroup});
}

}  // namespace chairlift
