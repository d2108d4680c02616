// chairlift::Requantize: whole numbers of one scale as 8-bit integers of another.
//
// (x, x_scale, y_scale, zero_point, w_scale?) -> y = saturate(round(x · (x_scale · w_scale /
// y_scale)) + zero_point), ties to even. x is float32 or int32. Scales and the zero point are
// scalars; w_scale may have one entry per index of the last axis. x is not dequantised on the way,
// because its value might be infinite even if y is not.
#include <algorithm>

#include "ops/axis_map.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/rounding.h"
#include "ops/quantization/scale_ratio.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

constexpr int kXScale = 1, kToScale = 2, kToZero = 3, kWScale = 4;

Status InferRequantize(InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  context.set_output(0, context.dtype(kToZero), x);
  for (const int i : {kXScale, kToScale, kToZero}) {
    if (context.shape(i).has_rank() && context.shape(i).rank() != 0) {
      return InvalidArgument("input {} has shape {}; a scalar is needed", i,
                             context.shape(i).ToString());
    }
  }
  if (!context.has_input(kWScale) || !context.shape(kWScale).has_rank()) return absl::OkStatus();
  const SymbolicShape& w = context.shape(kWScale);
  const bool fits =
      w.rank() == 0 || (w.rank() == 1 && x.has_rank() && x.rank() > 0 &&
                        (!w[0].known() || !x[x.rank() - 1].known() || w[0].value() == 1 ||
                         w[0].value() == x[x.rank() - 1].value()));
  if (!fits) {
    return InvalidArgument("the scale of shape {} does not fit the last axis of {}", w.ToString(),
                           x.ToString());
  }
  return absl::OkStatus();
}

StatusOr<AxisMap> AxesOfRequantize(const InferContext& context) { return ElementwiseAxes(context); }

template <typename X, typename Q>
StatusOr<std::unique_ptr<Kernel>> CompileAsRequantize(const CompileContext& context) {
  const Shape& x = context.inputs[0].shape;
  const int64_t entries = context.has_input(kWScale) ? context.inputs[kWScale].size() : 1;
  const int64_t columns = x.rank() == 0 ? 1 : x[x.rank() - 1];
  if (entries != 1 && entries != columns) {
    return InvalidArgument("the scale of shape {} does not fit the last axis of {}",
                           context.inputs[kWScale].shape.ToString(), x.ToString());
  }
  // Rows of elements with one scale, or with one scale each.
  const int64_t row = entries == 1 ? x.NumElements() : columns;
  const int64_t rows = row == 0 ? 0 : x.NumElements() / row;
  return MakeKernel(
      [row, rows, entries](const KernelArgs& args) -> Status {
        const auto scale = [&](int i) { return *static_cast<const float*>(args.inputs[i]); };
        const auto* w = args.inputs.size() > kWScale
                            ? static_cast<const float*>(args.inputs[kWScale])
                            : nullptr;
        auto* ratios = static_cast<float*>(args.scratch);
        for (int64_t i = 0; i < entries; ++i) {
          ratios[i] = ScaleRatio(scale(kXScale), w == nullptr ? 1.0f : w[i], scale(kToScale));
        }
        const int32_t zero = *static_cast<const Q*>(args.inputs[kToZero]);
        const auto* from = static_cast<const X*>(args.inputs[0]);
        auto* to = static_cast<Q*>(args.outputs[0]);
        constexpr int64_t kMinToShare = int64_t{1} << 15;
        if (entries == 1) {
          ForRanges(args.team, rows * row, rows * row, kMinToShare,
                    [&, ratio = ratios[0]](int64_t first, int64_t last) {
                      for (int64_t i = first; i < last; ++i) {
                        to[i] = Quantize<Q>(static_cast<float>(from[i]) * ratio, zero);
                      }
                    });
          return absl::OkStatus();
        }
        ForRanges(args.team, rows, rows * row, kMinToShare, [&](int64_t first, int64_t last) {
          for (int64_t r = first; r < last; ++r) {
            for (int64_t c = 0; c < row; ++c) {
              const int64_t i = r * row + c;
              to[i] = Quantize<Q>(static_cast<float>(from[i]) * ratios[c], zero);
            }
          }
        });
        return absl::OkStatus();
      },
      static_cast<size_t>(entries) * sizeof(float));
}

StatusOr<std::unique_ptr<Kernel>> CompileRequantize(const CompileContext& context) {
  return DispatchTypes<int8_t, uint8_t>(context.outputs[0].dtype, [&]<typename Q>() {
    return context.inputs[0].dtype == DType::kInt32 ? CompileAsRequantize<int32_t, Q>(context)
                                                    : CompileAsRequantize<float, Q>(context);
  });
}

}  // namespace

void RegisterRequantize(OperatorRegistry& registry) {
  constexpr TypeSet kScale{DType::kFloat};
  registry.Add(
      {.domain = "chairlift",
       .name = "Requantize",
       .min_inputs = 4,
       .max_inputs = 5,
       .input_types =
           {{DType::kFloat, DType::kInt32}, kScale, kScale, {DType::kInt8, DType::kUInt8}, kScale},
       .infer = InferRequantize,
       .axes = AxesOfRequantize,
       .compile = CompileRequantize});
}

}  // namespace chairlift
