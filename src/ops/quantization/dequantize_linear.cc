// DequantizeLinear: y = (x − zero_point) · scale.
#include <type_traits>

#include "ops/element_type.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/scale_map.h"
#include "ops/quantization/scale_ratio.h"

namespace chairlift {
namespace {

Status InferDequantizeLinear(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckScales(context));
  if (context.has_input(2) && context.dtype(2) != context.dtype(0)) {
    return InvalidArgument("the zero point is {} where x is {}", DTypeName(context.dtype(2)),
                           DTypeName(context.dtype(0)));
  }
  DType dtype = context.dtype(1);
  if (const int64_t wanted = context.attributes().Int("output_dtype", 0); wanted != 0) {
    dtype = ElementTypeOfOnnx(wanted);
    if (dtype != DType::kFloat && !kHalfTypes.Contains(dtype)) {
      return Unimplemented("output_dtype {} (float32, float16 and bfloat16 are supported)", wanted);
    }
  }
  context.set_output(0, dtype, context.shape(0));
  return {};
}

template <typename Q>
StatusOr<std::unique_ptr<Kernel>> CompileAsDequantizeLinear(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const ScaleMap map,
      ScaleMap::Make(context.attributes, context.inputs[0].shape, context.inputs[1].shape));
  return MakeKernel([map, scales = context.inputs[1].size()](const KernelArgs& args) -> Status {
    // Differences of 16-bit values fit in 32 bits; those of 32-bit values do not.
    using Wide = std::conditional_t<sizeof(Q) < 4, int32_t, int64_t>;
    const auto* x = static_cast<const Q*>(args.inputs[0]);
    const auto* scale = static_cast<const float*>(args.inputs[1]);
    const auto* zero = args.inputs.size() > 2 ? static_cast<const Q*>(args.inputs[2]) : nullptr;
    auto* y = static_cast<float*>(args.outputs[0]);
    if (AnyUnusual({scale, static_cast<size_t>(scales)})) {
      map.ForRuns(0, map.outer, [&](int64_t first, int64_t count, int64_t s) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = s + i * map.inner_stride;
          const Wide point = zero == nullptr ? 0 : zero[at];
          y[first + i] = static_cast<float>(
              static_cast<double>(static_cast<Wide>(x[first + i]) - point) * Exactly(scale[at]));
        }
      });
      return {};
    }
    map.ForRuns(0, map.outer, [&](int64_t first, int64_t count, int64_t s) {
      if (map.inner_stride == 0) {
        const float factor = scale[s];
        const Wide point = zero == nullptr ? 0 : zero[s];
        for (int64_t i = first; i < first + count; ++i) {
          y[i] = static_cast<float>(static_cast<Wide>(x[i]) - point) * factor;
        }
      } else {
        for (int64_t i = 0; i < count; ++i) {
          const Wide point = zero == nullptr ? 0 : zero[s + i];
          y[first + i] = static_cast<float>(static_cast<Wide>(x[first + i]) - point) * scale[s + i];
        }
      }
    });
    return {};
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileDequantizeLinear(const CompileContext& context) {
  return DispatchTypes<int8_t, uint8_t, int16_t, uint16_t, int32_t>(
      context.inputs[0].dtype, [&]<typename Q>() { return CompileAsDequantizeLinear<Q>(context); });
}

}  // namespace

void RegisterDequantizeLinear(OperatorRegistry& registry) {
  constexpr TypeSet kTypes{DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16,
                           DType::kInt32};
  OperatorDef def;
  def.name = "DequantizeLinear";
  def.min_opset = 10;
  def.min_inputs = 2;
  def.max_inputs = 3;
  def.input_types = {kTypes, kHalfTypes | TypeSet{DType::kFloat}, kTypes};
  def.infer = InferDequantizeLinear;
  def.axes = ScaledAxes;
  def.compile = CompileDequantizeLinear;
  registry.Add(std::move(def));
}

}  // namespace chairlift
