// DynamicQuantizeLinear: quantises x to uint8 over its own range, including zero.
#include "ops/operator.h"
#include "ops/quantization/dynamic_range.h"
#include "ops/quantization/quantization.h"

namespace chairlift {
namespace {

Status InferDynamicQuantizeLinear(InferContext& context) {
  context.set_output(0, DType::kUInt8, context.shape(0));
  if (context.num_outputs() > 1) context.set_output(1, DType::kFloat, SymbolicShape::Scalar());
  if (context.num_outputs() > 2) context.set_output(2, DType::kUInt8, SymbolicShape::Scalar());
  return {};
}

StatusOr<std::unique_ptr<Kernel>> CompileDynamicQuantizeLinear(const CompileContext& context) {
  return MakeKernel([n = context.inputs[0].size()](const KernelArgs& args) -> Status {
    const auto* x = static_cast<const float*>(args.inputs[0]);
    DynamicRange range;
    range.Add(x, n);
    const DynamicScale by = range.Scale();
    if (auto* y = static_cast<uint8_t*>(args.outputs[0]); y != nullptr) QuantizeAll(x, n, by, y);
    if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
      *static_cast<float*>(args.outputs[1]) = by.scale;
    }
    if (args.outputs.size() > 2 && args.outputs[2] != nullptr) {
      *static_cast<uint8_t*>(args.outputs[2]) = by.zero;
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
