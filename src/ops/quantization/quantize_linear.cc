// QuantizeLinear: y = saturate(round(x / scale) + zero_point).
#include <type_traits>

#include "ops/quantization/quantization.h"
#include "ops/quantization/rounding.h"
#include "ops/quantization/scale_map.h"
#include "ops/quantization/scale_ratio.h"

namespace chairlift {
namespace {

constexpr TypeSet kQuantizedTypes{DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16};

// The element type for ONNX's number, if it is one that this can quantise to.
StatusOr<DType> OutputType(const Attributes& attributes, DType zero_point) {
  const int64_t wanted = attributes.Int("output_dtype", 0);
  DType dtype = DType::kUInt8;
  switch (wanted) {
    case 0:
      return zero_point == DType::kUndefined ? DType::kUInt8 : zero_point;
    case 2:
      dtype = DType::kUInt8;
      break;
    case 3:
      dtype = DType::kInt8;
      break;
    case 4:
      dtype = DType::kUInt16;
      break;
    case 5:
      dtype = DType::kInt16;
      break;
    default:
      return Unimplemented("output_dtype {} (8 and 16 bit integers are supported)", wanted);
  }
  if (zero_point != DType::kUndefined && zero_point != dtype) {
    return InvalidArgument("output_dtype is {} where the zero point is {}", DTypeName(dtype),
                           DTypeName(zero_point));
  }
  return dtype;
}

Status InferQuantizeLinear(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckScales(context));
  const int64_t precision = context.attributes().Int("precision", 0);
  if (precision != 0 && precision != 1) {
    return Unimplemented("precision {} (division in float32, 1, is supported)", precision);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const DType dtype,
      OutputType(context.attributes(), context.has_input(2) ? context.dtype(2) : DType()));
  context.set_output(0, dtype, context.shape(0));
  return {};
}

template <typename X, typename Q>
StatusOr<std::unique_ptr<Kernel>> CompileAsQuantizeLinear(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const ScaleMap map,
      ScaleMap::Make(context.attributes, context.inputs[0].shape, context.inputs[1].shape));
  return MakeKernel([map, scales = context.inputs[1].size()](const KernelArgs& args) -> Status {
    const auto* x = static_cast<const X*>(args.inputs[0]);
    const auto* scale = static_cast<const float*>(args.inputs[1]);
    const auto* zero = args.inputs.size() > 2 ? static_cast<const Q*>(args.inputs[2]) : nullptr;
    auto* y = static_cast<Q*>(args.outputs[0]);
    if (AnyUnusual({scale, static_cast<size_t>(scales)})) {
      map.ForRuns(0, map.outer, [&](int64_t first, int64_t count, int64_t s) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = s + i * map.inner_stride;
          y[first + i] = Quantize<Q>(Exactly(static_cast<float>(x[first + i])) / Exactly(scale[at]),
                                     zero == nullptr ? 0 : zero[at]);
        }
      });
      return {};
    }
    map.ForRuns(0, map.outer, [&](int64_t first, int64_t count, int64_t s) {
      if (map.inner_stride == 0) {
        const float divisor = scale[s];
        const int32_t point = zero == nullptr ? 0 : zero[s];
        for (int64_t i = first; i < first + count; ++i) {
          y[i] = Quantize<Q>(static_cast<float>(x[i]) / divisor, point);
        }
      } else {
        for (int64_t i = 0; i < count; ++i) {
          y[first + i] = Quantize<Q>(static_cast<float>(x[first + i]) / scale[s + i],
                                     zero == nullptr ? 0 : zero[s + i]);
        }
      }
    });
    return {};
  });
}

StatusOr<std::unique_ptr<Kernel>> CompileQuantizeLinear(const CompileContext& context) {
  const DType x = context.inputs[0].dtype;
  return DispatchTypes<int8_t, uint8_t, int16_t, uint16_t>(
      context.outputs[0].dtype, [&]<typename Q>() {
        return x == DType::kInt32 ? CompileAsQuantizeLinear<int32_t, Q>(context)
                                  : CompileAsQuantizeLinear<float, Q>(context);
      });
}

}  // namespace

void RegisterQuantizeLinear(OperatorRegistry& registry) {
  OperatorDef def;
  def.name = "QuantizeLinear";
  def.min_opset = 10;
  def.min_inputs = 2;
  def.max_inputs = 3;
  def.input_types = {kHalfTypes | TypeSet{DType::kFloat, DType::kInt32},
                     kHalfTypes | TypeSet{DType::kFloat}, kQuantizedTypes};
  def.infer = InferQuantizeLinear;
  def.axes = ScaledAxes;
  def.compile = CompileQuantizeLinear;
  registry.Add(std::move(def));
}

}  // namespace chairlift
