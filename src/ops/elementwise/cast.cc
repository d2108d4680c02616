// Cast and CastLike: every element type to every other. BitCast: the same bytes as another type.
//
// Floats are rounded towards zero to integers. Values out of range are clamped, and NaN becomes 0
// (the standard leaves both open). Integers wrap. Anything but 0 is true.
#include <algorithm>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/element_type.h"
#include "ops/elementwise/element_loops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/half_simd.h"
#include "ops/hands_on.h"
#include "ops/saturate.h"

namespace chairlift {
namespace {

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <typename In, typename Out>
struct CastOp {
  static Out Apply(In x, const ElementParams& params) {
    if constexpr (std::is_same_v<In, Out>) {
      return x;
    } else if constexpr (kIsHalf<In>) {
      return CastOp<float, Out>::Apply(static_cast<float>(x), params);
    } else if constexpr (kIsHalf<Out>) {
      return Out(static_cast<float>(x));
    } else if constexpr (std::is_same_v<Out, bool>) {
      return x != In{0};
    } else if constexpr (std::is_floating_point_v<In> && std::is_integral_v<Out>) {
      return SaturateCast<Out>(x);
    } else {
      return static_cast<Out>(x);
    }
  }
};

template <typename F>
auto DispatchAny(DType dtype, F&& f) {
  return DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                       uint16_t, uint32_t, uint64_t, bool>(dtype, std::forward<F>(f));
}

// A vector conversion as a block: input and output have the same shape, so rows are contiguous.
template <typename In, typename Out, void (*kConvert)(const In*, Out*, int64_t)>
void ConvertBlock(const ElementBlock& b) {
  for (int64_t r = 0; r < b.rows; ++r) {
    kConvert(static_cast<const In*>(b.in[0]) + r * b.row_step[0],
             static_cast<Out*>(b.out) + r * b.cols, b.cols);
  }
}

StatusOr<ElementFn> FindCast(DType from, DType to) {
  if (from == DType::kFloat16 && to == DType::kFloat) {
    return ConvertBlock<Float16, float, WidenFloat16>;
  }
  if (from == DType::kFloat && to == DType::kFloat16) {
    return ConvertBlock<float, Float16, NarrowFloat16>;
  }
  if (from == DType::kBFloat16 && to == DType::kFloat) {
    return ConvertBlock<BFloat16, float, WidenBFloat16>;
  }
  if (from == DType::kFloat && to == DType::kBFloat16) {
    return ConvertBlock<float, BFloat16, NarrowBFloat16>;
  }
  return DispatchAny(from, [to]<typename In>() {
    return DispatchAny(to, []<typename Out>() {
      return StatusOr<ElementFn>(UnaryBlock<CastOp<In, Out>, In, Out>);
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileCast(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ElementFn fn,
                             FindCast(context.inputs[0].dtype, context.outputs[0].dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ElementLoop loop, ElementLoop::Make(context.inputs.first(1), context.outputs[0], fn, {}));
  return MakeKernel([loop = std::move(loop)](const KernelArgs& args) {
    loop.Run(args.inputs.first(1), args.outputs[0], args.team);
    return absl::OkStatus();
  });
}

Status InferTo(InferContext& context, DType to) {
  CHAIRLIFT_RETURN_IF_ERROR(InferPassedOn(context));
  context.set_output(0, to, context.shape(0));
  auto& elements = context.outputs()[0].elements;
  if (!kIndexTypes.Contains(to)) elements.reset();
  if (elements) elements = ElementsOfType(to, *std::move(elements));
  return absl::OkStatus();
}

Status InferCast(InferContext& context) {
  const int64_t to = context.attributes().Int("to", 0);
  const DType dtype = ElementTypeOfOnnx(to);
  if (dtype == DType::kUndefined) return Unimplemented("attribute to: element type number {}", to);
  return InferTo(context, dtype);
}

Status InferCastLike(InferContext& context) {
  if (!context.has_input(1)) return InvalidArgument("input 1 is missing");
  return InferTo(context, context.dtype(1));
}

Status InferBitCast(InferContext& context) {
  const int64_t to = context.attributes().Int("to", 0);
  const DType dtype = ElementTypeOfOnnx(to);
  if (dtype == DType::kUndefined) return Unimplemented("attribute to: element type number {}", to);
  if (DTypeSize(dtype) != DTypeSize(context.dtype(0))) {
    return InvalidArgument("{} and {} differ in width", DTypeName(context.dtype(0)),
                           DTypeName(dtype));
  }
  context.set_output(0, dtype, context.shape(0));
  return absl::OkStatus();
}

// A bool is 0 or 1 in memory, whatever byte it came from.
StatusOr<std::unique_ptr<Kernel>> CompileBitCast(const CompileContext& context) {
  const bool to_bool = context.outputs[0].dtype == DType::kBool;
  return MakeKernel([bytes = context.inputs[0].byte_size(), to_bool](const KernelArgs& args) {
    const auto* from = static_cast<const uint8_t*>(args.inputs[0]);
    auto* to = static_cast<uint8_t*>(args.outputs[0]);
    std::transform(from, from + bytes, to, [to_bool](uint8_t byte) -> uint8_t {
      return to_bool ? static_cast<uint8_t>(byte != 0) : byte;
    });
    return absl::OkStatus();
  });
}

// Only the type of input 1 is read.
StatusOr<AxisMap> CastLikeAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, AxesWithout(context, {}));
  map.inputs[1].unread = true;
  return map;
}

}  // namespace

void RegisterCast(OperatorRegistry& registry) {
  registry.Add({.name = "Cast",
                .input_types = {kAllTypes},
                .infer = InferCast,
                .axes = ElementwiseAxes,
                .compile = CompileCast,
                .hands_on = AlwaysHandsOn,
                .only_moves = true,
                .in_place = true,
                .layout_agnostic = true,
                .native_half = true});
  registry.Add({.name = "CastLike",
                .min_opset = 15,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kAllTypes},
                .infer = InferCastLike,
                .axes = CastLikeAxes,
                .compile = CompileCast,
                .hands_on = AlwaysHandsOn,
                .in_place = true,
                .native_half = true});
  registry.Add({.name = "BitCast",
                .min_opset = 26,
                .input_types = {kAllTypes},
                .infer = InferBitCast,
                .axes = ElementwiseAxes,
                .compile = CompileBitCast,
                .layout_agnostic = true,
                .native_half = true});
}

}  // namespace chairlift
