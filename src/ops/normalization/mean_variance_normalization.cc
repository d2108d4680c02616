// MeanVarianceNormalization: (x − mean) / (standard deviation + 1e-9) over given axes.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/broadcast.h"
#include "ops/normalization/normalization.h"

namespace chairlift {
namespace {

StatusOr<std::vector<int>> AxesOf(const Attributes& attributes, int rank) {
  return NormalizeAxes(attributes.Ints("axes", {0, 2, 3}), rank);
}

Status InferMeanVarianceNormalization(InferContext& context) {
  context.set_output(0, context.dtype(0), context.shape(0));
  if (!context.shape(0).has_rank()) return absl::OkStatus();
  return AxesOf(context.attributes(), context.shape(0).rank()).status();
}

// Calls body(element, statistic) for every element and its statistic.
template <typename F>
void ForEach(const BroadcastLoop& loop, F body) {
  const int rank = static_cast<int>(loop.dims.size());
  const int64_t cols = loop.dims.back();
  const int64_t step = loop.strides[0].back();
  for (int64_t start = 0; start < loop.size; start += cols) {
    int64_t rest = start / cols;
    int64_t statistic = 0;
    for (int axis = rank - 2; axis >= 0; --axis) {
      statistic += rest % loop.dims[axis] * loop.strides[0][axis];
      rest /= loop.dims[axis];
    }
    for (int64_t c = 0; c < cols; ++c) body(start + c, statistic + c * step);
  }
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForMeanVarianceNormalization(
    const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(context.attributes, shape.rank()));
  Shape statistics = shape;
  for (int a : axes) statistics[a] = 1;
  CHAIRLIFT_ASSIGN_OR_RETURN(const BroadcastLoop loop, MakeBroadcastLoop({&statistics, 1}, shape));
  const int64_t groups = statistics.NumElements();
  const double count =
      groups == 0 ? 1 : static_cast<double>(shape.NumElements()) / static_cast<double>(groups);
  const auto run = [loop, groups, count](const KernelArgs& args) {
    const T* x = static_cast<const T*>(args.inputs[0]);
    T* y = static_cast<T*>(args.outputs[0]);
    auto* mean = static_cast<double*>(args.scratch);
    auto* scale = mean + groups;
    std::fill_n(mean, 2 * groups, 0.0);
    ForEach(loop, [&](int64_t i, int64_t g) { mean[g] += static_cast<double>(x[i]); });
    for (int64_t g = 0; g < groups; ++g) mean[g] /= count;
    ForEach(loop, [&](int64_t i, int64_t g) {
      const double centred = static_cast<double>(x[i]) - mean[g];
      scale[g] += centred * centred;
    });
    for (int64_t g = 0; g < groups; ++g) scale[g] = 1.0 / (std::sqrt(scale[g] / count) + 1e-9);
    ForEach(loop, [&](int64_t i, int64_t g) {
      y[i] = static_cast<T>((static_cast<double>(x[i]) - mean[g]) * scale[g]);
    });
    return absl::OkStatus();
  };
  return MakeKernel(run, static_cast<size_t>(2 * groups) * sizeof(double));
}

StatusOr<std::unique_ptr<Kernel>> CompileMeanVarianceNormalization(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype, [&]<typename T>() {
    return CompileForMeanVarianceNormalization<T>(context);
  });
}

StatusOr<AxisMap> AxesOfMeanVarianceNormalization(const InferContext& context) {
  return AxesWithout(context, context.attributes().Ints("axes", {0, 2, 3}));
}

}  // namespace

void RegisterMeanVarianceNormalization(OperatorRegistry& registry) {
  registry.Add({.name = "MeanVarianceNormalization",
                .min_opset = 9,
                .input_types = {kFloatTypes},
                .infer = InferMeanVarianceNormalization,
                .axes = AxesOfMeanVarianceNormalization,
                .compile = CompileMeanVarianceNormalization,
                .in_place = true});
}

}  // namespace chairlift
