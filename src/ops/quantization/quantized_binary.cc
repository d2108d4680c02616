// chairlift::QLinearAdd and QLinearMul: sums and products of the values that 8-bit integers
// represent.
//
// (a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero) -> y, as in ONNX Runtime's operators of
// these names: a and b broadcast, scales and zero points are scalars, all integers have one type.
//   QLinearAdd: y = (a − a_zero) · (a_scale / y_scale) + (b − b_zero) · (b_scale / y_scale) +
//   y_zero
//   QLinearMul: y = (a − a_zero) · (b − b_zero) · (a_scale · b_scale / y_scale) + y_zero
// Rounded once, ties to even with the zero point added, and clamped to the type's range. Operands
// are not dequantised separately, because they might be infinite even if the result is not.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ops/axis_map.h"
#include "ops/broadcast.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/quantized_sum.h"
#include "ops/quantization/rounding.h"
#include "ops/quantization/scale_ratio.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

// Input numbers.
constexpr int kA = 0, kAScale = 1, kAZero = 2, kB = 3, kBScale = 4, kBZero = 5, kYScale = 6,
              kYZero = 7;

Status InferQuantizedBinary(InferContext& context) {
  for (const int i : {kAZero, kB, kBZero, kYZero}) {
    if (context.dtype(i) != context.dtype(kA)) {
      return InvalidArgument("input {} is {} where input 0 is {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(kA)));
    }
  }
  for (const int i : {kAScale, kAZero, kBScale, kBZero, kYScale, kYZero}) {
    if (context.shape(i).has_rank() && context.shape(i).rank() != 0) {
      return InvalidArgument("input {} has shape {}; a scalar is needed", i,
                             context.shape(i).ToString());
    }
  }
  const SymbolicShape operands[] = {context.shape(kA), context.shape(kB)};
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastShapes(operands));
  context.set_output(0, context.dtype(kA), std::move(shape));
  return absl::OkStatus();
}

// Not ElementwiseAxes itself: scales and zero points are scalars, which passes must not expand.
StatusOr<AxisMap> AxesOfQuantizedBinary(const InferContext& context) {
  return ElementwiseAxes(context);
}

// The parameters of one call.
struct QuantizedSum {
  double a_ratio, b_ratio, zero;
  int32_t a_zero, b_zero;

  // Whether products with ratios are exact, as SumBytes() needs: fused or not, sums then agree.
  bool Exact() const {
    const auto is_float = [](double r) {
      return std::abs(r) <= std::numeric_limits<float>::max() &&
             static_cast<double>(static_cast<float>(r)) == r;
    };
    return is_float(a_ratio) && is_float(b_ratio);
  }

  template <typename Q>
  Q operator()(Q a, Q b) const {
    return Quantize<Q>(static_cast<double>(a - a_zero) * a_ratio +
                           static_cast<double>(b - b_zero) * b_ratio + zero,
                       0);
  }
};
struct QuantizedProduct {
  float ratio, zero;
  int32_t a_zero, b_zero;

  template <typename Q>
  Q operator()(Q a, Q b) const {
    return Quantize<Q>(static_cast<float>((a - a_zero) * (b - b_zero)) * ratio + zero, 0);
  }
};

template <typename Q, typename F>
void RunRow(const F& f, const Q* a, int64_t a_step, const Q* b, int64_t b_step, int64_t count,
            Q* y) {
  // Steps are 0 or 1; loops with both known are vectorised.
  if constexpr (std::is_same_v<F, QuantizedSum>) {
    if (a_step != 0 && b_step != 0 && f.Exact()) {
      SumBytes({f.a_ratio, f.b_ratio, f.zero, f.a_zero, f.b_zero, std::is_same_v<Q, int8_t>}, a, b,
               count, y);
      return;
    }
  }
  if (a_step != 0 && b_step != 0) {
    for (int64_t i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
  } else if (a_step != 0) {
    for (int64_t i = 0; i < count; ++i) y[i] = f(a[i], *b);
  } else if (b_step != 0) {
    for (int64_t i = 0; i < count; ++i) y[i] = f(*a, b[i]);
  } else {
    std::fill_n(y, count, f(*a, *b));
  }
}

template <typename Q, bool kSum>
class QuantizedBinary final : public Kernel {
 public:
  explicit QuantizedBinary(BroadcastLoop loop) : loop_(std::move(loop)) {}

  Status Run(const KernelArgs& args) const override {
    const auto scale = [&](int i) { return *static_cast<const float*>(args.inputs[i]); };
    const auto zero = [&](int i) -> int32_t { return *static_cast<const Q*>(args.inputs[i]); };
    if constexpr (kSum) {
      RunAll(args, QuantizedSum{WideScaleRatio(1.0f, scale(kAScale), scale(kYScale)),
                                WideScaleRatio(1.0f, scale(kBScale), scale(kYScale)),
                                static_cast<double>(zero(kYZero)), zero(kAZero), zero(kBZero)});
    } else {
      RunAll(args, QuantizedProduct{ScaleRatio(scale(kAScale), scale(kBScale), scale(kYScale)),
                                    static_cast<float>(zero(kYZero)), zero(kAZero), zero(kBZero)});
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMinToShare = int64_t{1} << 15;

  template <typename F>
  void RunAll(const KernelArgs& args, const F& f) const {
    if (loop_.size == 0) return;
    const int64_t columns = loop_.dims.back();
    const int64_t rows = loop_.size / columns;
    if (rows == 1) {
      ForRanges(args.team, columns, columns, kMinToShare,
                [&](int64_t first, int64_t last) { RunPart(args, f, 0, first, last - first); });
    } else {
      ForRanges(args.team, rows, loop_.size, kMinToShare, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) RunPart(args, f, row, 0, columns);
      });
    }
  }
  // `count` elements of a row, from column `first` on.
  template <typename F>
  void RunPart(const KernelArgs& args, const F& f, int64_t row, int64_t first,
               int64_t count) const {
    std::array<int64_t, 2> at{};
    int64_t rest = row;
    for (int d = static_cast<int>(loop_.dims.size()) - 2; d >= 0; --d) {
      for (size_t i = 0; i < at.size(); ++i) at[i] += rest % loop_.dims[d] * loop_.strides[i][d];
      rest /= loop_.dims[d];
    }
    const std::array<int64_t, 2> step = {loop_.strides[0].back(), loop_.strides[1].back()};
    RunRow(f, static_cast<const Q*>(args.inputs[kA]) + at[0] + first * step[0], step[0],
           static_cast<const Q*>(args.inputs[kB]) + at[1] + first * step[1], step[1], count,
           static_cast<Q*>(args.outputs[0]) + row * loop_.dims.back() + first);
  }

  const BroadcastLoop loop_;  // over a and b
};

template <bool kSum>
StatusOr<std::unique_ptr<Kernel>> CompileQuantizedBinary(const CompileContext& context) {
  for (const int i : {kAScale, kAZero, kBScale, kBZero, kYScale, kYZero}) {
    if (context.inputs[i].size() != 1) {
      return InvalidArgument("input {} has shape {}; a scalar is needed", i,
                             context.inputs[i].shape.ToString());
    }
  }
  const Shape operands[] = {context.inputs[kA].shape, context.inputs[kB].shape};
  CHAIRLIFT_ASSIGN_OR_RETURN(BroadcastLoop loop,
                             MakeBroadcastLoop(operands, context.outputs[0].shape));
  return DispatchTypes<int8_t, uint8_t>(
      context.inputs[kA].dtype, [&]<typename Q>() -> StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<QuantizedBinary<Q, kSum>>(std::move(loop));
      });
}

template <bool kSum>
void RegisterBinary(OperatorRegistry& registry, const char* name) {
  constexpr TypeSet kBytes{DType::kInt8, DType::kUInt8};
  constexpr TypeSet kScale{DType::kFloat};
  registry.Add({.domain = "chairlift",
                .name = name,
                .min_inputs = 8,
                .max_inputs = 8,
                .input_types = {kBytes, kScale, kBytes, kBytes, kScale, kBytes, kScale, kBytes},
                .infer = InferQuantizedBinary,
                .axes = AxesOfQuantizedBinary,
                .compile = CompileQuantizedBinary<kSum>});
}

}  // namespace

void RegisterQuantizedBinary(OperatorRegistry& registry) {
  RegisterBinary<true>(registry, "QLinearAdd");
  RegisterBinary<false>(registry, "QLinearMul");
}

}  // namespace chairlift
