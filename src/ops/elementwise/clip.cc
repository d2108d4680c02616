// Clip: clamps elements between two optional scalars. If they cross, the upper one wins.
#include <limits>
#include <utility>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"
#include "ops/elementwise/fused_elementwise.h"
#include "ops/input_values.h"

namespace chairlift {
namespace {

template <typename T>
void ClipBlock(const ElementBlock& b) {
  const T low = *static_cast<const T*>(b.in[1]);
  const T high = *static_cast<const T*>(b.in[2]);
  for (int64_t r = 0; r < b.rows; ++r) {
    const T* x = static_cast<const T*>(b.in[0]) + r * b.row_step[0];
    T* out = static_cast<T*>(b.out) + r * b.cols;
    for (int64_t c = 0; c < b.cols; ++c) {
      const T at_least = x[c] < low ? low : x[c];
      out[c] = at_least > high ? high : at_least;
    }
  }
}

template <typename T>
constexpr T kEnds[] = {std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                   : std::numeric_limits<T>::lowest(),
                       std::is_floating_point_v<T> ? std::numeric_limits<T>::infinity()
                                                   : std::numeric_limits<T>::max()};

StatusOr<std::unique_ptr<Kernel>> CompileFloat(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop,
                             ElementLoop::Make(context.inputs.first(1), context.outputs[0],
                                               FindFloatUnary(FloatUnary::kClip), {}));
  return MakeKernel([loop = std::move(loop)](const KernelArgs& args) {
    ElementParams bounds{kEnds<float>[0], kEnds<float>[1]};
    for (size_t i = 1; i < args.inputs.size(); ++i) {
      if (args.inputs[i] != nullptr) bounds[i - 1] = *static_cast<const float*>(args.inputs[i]);
    }
    loop.Run(args.inputs.first(1), args.outputs[0], args.team, bounds);
    return absl::OkStatus();
  });
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForClip(const CompileContext& context) {
  const TensorDesc scalar{context.inputs[0].dtype, Shape{}};
  const TensorDesc operands[] = {context.inputs[0], scalar, scalar};
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop,
                             ElementLoop::Make(operands, context.outputs[0], ClipBlock<T>, {}));
  return MakeKernel([loop = std::move(loop)](const KernelArgs& args) {
    const void* inputs[] = {args.inputs[0], &kEnds<T>[0], &kEnds<T>[1]};
    for (size_t i = 1; i < args.inputs.size(); ++i) {
      if (args.inputs[i] != nullptr) inputs[i] = args.inputs[i];
    }
    loop.Run(inputs, args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileClip(const CompileContext& context) {
  if (context.inputs[0].dtype == DType::kFloat) return CompileFloat(context);
  return DispatchNumeric(context.inputs[0].dtype,
                         [&]<typename T>() { return CompileForClip<T>(context); });
}

Status InferClip(InferContext& context) {
  for (int i = 1; i < 3; ++i) {
    if (!context.has_input(i)) continue;
    if (context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} has element type {}, not {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
    const SymbolicShape& shape = context.shape(i);
    if (!shape.has_rank()) continue;
    for (const Dim& d : shape.dims()) {
      if (d.known() && d.value() != 1) {
        return InvalidArgument("input {} has shape {}, not that of a scalar", i, shape.ToString());
      }
    }
  }
  context.set_output(0, context.dtype(0), context.shape(0));
  return absl::OkStatus();
}

// If its bounds are constants.
std::optional<FusedStep> ClipStep(const Attributes&, std::span<const ValueInfo> inputs) {
  FusedStep clip{
      .name = "Clip", .operands = {0, -1, -1}, .alpha = kEnds<float>[0], .beta = kEnds<float>[1]};
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].dtype == DType::kUndefined) continue;
    const auto end = inputs[i].value == nullptr ? std::nullopt : ScalarValue(*inputs[i].value);
    if (!end) return std::nullopt;
    (i == 1 ? clip.alpha : clip.beta) = static_cast<float>(*end);
  }
  return clip;
}

}  // namespace

void RegisterClip(OperatorRegistry& registry) {
  registry.Add({.name = "Clip",
                .max_inputs = 3,
                .input_types = {kNumericTypes},
                .infer = InferClip,
                .axes = ElementwiseAxes,
                .compile = CompileClip,
                .step = ClipStep,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
