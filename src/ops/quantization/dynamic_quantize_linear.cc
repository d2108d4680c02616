// DynamicQuantizeLinear: quantises x to uint8 over its own range, including zero.
#include <algorithm>

#include "ops/linear/int8_rows.h"
#include "ops/operator.h"
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
  const int64_t n = context.inputs[0].size();
  // Below this many elements, a team is not worth its fork and join.
  constexpr int64_t kElementsAPart = 1 << 16;
  const int parts =
      static_cast<int>(std::clamp<int64_t>(n / kElementsAPart, 1, std::max(context.width, 1)));
  return MakeKernel(
      [n, parts](const KernelArgs& args) -> Status {
        const auto* x = static_cast<const float*>(args.inputs[0]);
        auto* ranges = static_cast<FloatRange*>(args.scratch);
        args.team.For(parts, [&](int part, int) {
          const int64_t begin = n * part / parts;
          ranges[part] = FloatRangeOf(x + begin, n * (part + 1) / parts - begin);
        });
        FloatRange range = ranges[0];
        for (int part = 1; part < parts; ++part) range = UnionOf(range, ranges[part]);
        const ByteScale to = ByteScaleOf(range);
        if (auto* y = static_cast<uint8_t*>(args.outputs[0]); y != nullptr) {
          args.team.For(parts, [&](int part, int) {
            const int64_t begin = n * part / parts;
            QuantizeBytes(x + begin, n * (part + 1) / parts - begin, to, y + begin);
          });
        }
        if (args.outputs.size() > 1 && args.outputs[1] != nullptr) {
          *static_cast<float*>(args.outputs[1]) = to.scale;
        }
        if (args.outputs.size() > 2 && args.outputs[2] != nullptr) {
          *static_cast<uint8_t*>(args.outputs[2]) = to.zero;
        }
        return {};
      },
      static_cast<size_t>(parts) * sizeof(FloatRange));
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
