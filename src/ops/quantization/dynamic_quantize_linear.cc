// DynamicQuantizeLinear: quantises x to uint8 over its own range, including zero.
#include <algorithm>
#include <cmath>

#include "ops/operator.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/rounding.h"

namespace chairlift {
namespace {

Status InferDynamicQuantizeLinear(InferContext& context) {
  context.set_output(0, DType::kUInt8, context.shape(0));
  if (context.num_outputs() > 1) context.set_output(1, DType::kFloat, SymbolicShape::Scalar());
  if (context.num_outputs() > 2) context.set_output(2, DType::kUInt8, SymbolicShape::Scalar());
  return {};
}

// Eight running bounds together, so that they are vectorised.
void Range(const float* x, int64_t n, float& low, float& high) {
  constexpr int64_t kLanes = 8;
  float lows[kLanes] = {};
  float highs[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lows[j] = x[i + j] < lows[j] ? x[i + j] : lows[j];
      highs[j] = x[i + j] > highs[j] ? x[i + j] : highs[j];
    }
  }
  low = *std::min_element(lows, lows + kLanes);
  high = *std::max_element(highs, highs + kLanes);
  for (; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileDynamicQuantizeLinear(const CompileContext& context) {
  return MakeKernel([n = context.inputs[0].size()](const KernelArgs& args) -> Status {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    float low = 0;
    float high = 0;
    Range(x, n, low, high);
    // For all zeros any scale is correct; onnxruntime returns 1.
    float scale = high == low ? 1.0f : (high - low) / 255.0f;
    // Bounds whose difference overflows float, for example in masks.
    if (std::isinf(scale)) {
      scale = static_cast<float>((static_cast<double>(high) - static_cast<double>(low)) / 255.0);
    }
    const uint8_t zero = Quantize<uint8_t>(-low / scale, 0);
    if (auto* y = static_cast<uint8_t*>(args.outputs[0]); y != nullptr) {
      for (int64_t i = 0; i < n; ++i) y[i] = Quantize<uint8_t>(x[i] / scale, zero);
    }
    if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
      *static_cast<float*>(args.outputs[1]) = scale;
    }
    if (args.outputs.size() > 2 && args.outputs[2] != nullptr) {
      *static_cast<uint8_t*>(args.outputs[2]) = zero;
    }
    return {};
  });
}

}  // namespace

void RegisterDynamicQuantizeLinear(OperatorRegistry& registry) {
  OperatorDef def;
  def.name = "DynamicQuantizeLinear";
  def.min_opset = 11;
  def.max_outputs = 3;
  def.input_types = {{DType::kFloat}};
  def.infer = InferDynamicQuantizeLinear;
  def.compile = CompileDynamicQuantizeLinear;
  registry.Add(std::move(def));
}

}  // namespace chairlift
