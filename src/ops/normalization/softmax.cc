// Softmax and LogSoftmax along one axis.
#include <algorithm>
#include <cmath>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferSoftmax(InferContext& context) {
  context.set_output(0, context.dtype(0), context.shape(0));
  if (!context.shape(0).has_rank()) return absl::OkStatus();
  return NormalizeAxis(context.attributes().Int("axis", -1), context.shape(0).rank()).status();
}

// The tensor as [outer, n, inner] around the axis.
struct Around {
  int64_t outer, n, inner;
  int64_t size() const { return outer * n * inner; }
};

template <bool kLog>
void RunDouble(const Around& a, const double* x, double* y, int64_t first, int64_t last) {
  for (int64_t line = first; line < last; ++line) {
    const int64_t start = line / a.inner * a.n * a.inner + line % a.inner;
    double max = x[start];
    for (int64_t i = 1; i < a.n; ++i) max = std::max(max, x[start + i * a.inner]);
    double sum = 0;
    for (int64_t i = 0; i < a.n; ++i) sum += std::exp(x[start + i * a.inner] - max);
    for (int64_t i = 0; i < a.n; ++i) {
      const double centred = x[start + i * a.inner] - max;
      y[start + i * a.inner] = kLog ? centred - std::log(sum) : std::exp(centred) / sum;
    }
  }
}

template <bool kLog>
StatusOr<std::unique_ptr<Kernel>> CompileSoftmax(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const Around a{shape.NumElements(0, axis), shape[axis],
                 shape.NumElements(axis + 1, shape.rank())};
  if (context.inputs[0].dtype == DType::kDouble) {
    return MakeKernel([a](const KernelArgs& args) {
      const auto* x = static_cast<const double*>(args.inputs[0]);
      auto* y = static_cast<double*>(args.outputs[0]);
      if (a.size() == 0) return absl::OkStatus();
      ForRanges(args.team, a.outer * a.inner, a.size(), kMinNormalizedToShare,
                [&](int64_t first, int64_t last) { RunDouble<kLog>(a, x, y, first, last); });
      return absl::OkStatus();
    });
  }
  const RowFns fns = FindRowFns();
  if (a.inner == 1) {
    return MakeKernel([a, run = kLog ? fns.log_softmax : fns.softmax](const KernelArgs& args) {
      const auto* x = static_cast<const float*>(args.inputs[0]);
      auto* y = static_cast<float*>(args.outputs[0]);
      if (a.size() == 0) return absl::OkStatus();
      ForRanges(args.team, a.outer, a.size(), kMinNormalizedToShare,
                [&](int64_t first, int64_t last) {
                  run(x + first * a.n, y + first * a.n, last - first, a.n);
                });
      return absl::OkStatus();
    });
  }
  return MakeKernel(
      [a, run = kLog ? fns.log_softmax_columns : fns.softmax_columns](const KernelArgs& args) {
        const auto* x = static_cast<const float*>(args.inputs[0]);
        auto* y = static_cast<float*>(args.outputs[0]);
        if (a.size() == 0) return absl::OkStatus();
        // A unit is up to kColumns columns of one outer index.
        constexpr int64_t kColumns = 64;
        const int64_t per_outer = (a.inner + kColumns - 1) / kColumns;
        ForRanges(args.team, a.outer * per_outer, a.size(), kMinNormalizedToShare,
                  [&](int64_t first, int64_t last) {
                    for (int64_t unit = first; unit < last; ++unit) {
                      const int64_t start = unit / per_outer * a.n * a.inner;
                      const int64_t column = unit % per_outer * kColumns;
                      run(x + start, y + start, a.n, a.inner, column,
                          std::min(a.inner, column + kColumns));
                    }
                  });
        return absl::OkStatus();
      });
}

}  // namespace

void RegisterSoftmax(OperatorRegistry& registry) {
  registry.Add({.name = "Softmax",
                .input_types = {kFloatTypes},
                .infer = InferSoftmax,
                .axes = AxesButOne<-1>,
                .compile = CompileSoftmax<false>,
                .in_place = true});
  registry.Add({.name = "LogSoftmax",
                .input_types = {kFloatTypes},
                .infer = InferSoftmax,
                .axes = AxesButOne<-1>,
                .compile = CompileSoftmax<true>,
                .in_place = true});
}

}  // namespace chairlift
