#include "graph/quantized_masks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Integers and their quantisation parameters.
struct QuantizedOperand {
  ValueId integers = kNoValue;
  Tensor scale;
  Tensor zero;  // absent: 0
  DType dtype = DType::kUndefined;

  // Whether some integer of the type has no finite float value.
  bool Overflows() const {
    const auto furthest = [&]<typename Q>(Q) {
      const int point = zero.present() ? zero.values<Q>()[0] : 0;
      return std::max(point - std::numeric_limits<Q>::lowest(),
                      std::numeric_limits<Q>::max() - point);
    };
    const int most = dtype == DType::kInt8 ? furthest(int8_t{}) : furthest(uint8_t{});
    return !std::isfinite(static_cast<float>(most) * scale.values<float>()[0]);
  }
};

class QuantizedMasks {
 public:
  explicit QuantizedMasks(Graph& graph) : graph_(graph), links_(graph) {}

  int Run() {
    int count = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (Is(graph_.nodes[n], "QuantizeLinear") && Join(n)) ++count;
    }
    return count;
  }

 private:
  bool Join(size_t n) {
    const auto to = OperandOf(graph_.nodes[n]);
    if (!to) return false;
    const int inner = links_.producer(graph_.nodes[n].inputs[0]);
    if (inner < 0 || links_.SoleReader(graph_.nodes[n].inputs[0]) < 0) return false;
    const Node& real = graph_.nodes[static_cast<size_t>(inner)];
    const bool sum = Is(real, "Add");
    if (!sum && !Is(real, "Mul")) return false;
    std::array<QuantizedOperand, 2> operands;
    bool overflows = false;
    for (size_t i = 0; i < 2; ++i) {
      const int producer = links_.producer(real.inputs[i]);
      if (producer < 0) return false;
      const Node& from = graph_.nodes[static_cast<size_t>(producer)];
      const auto operand = Is(from, "DequantizeLinear") ? OperandOf(from) : std::nullopt;
      if (!operand || operand->dtype != to->dtype) return false;
      operands[i] = *operand;
      overflows = overflows || operand->Overflows();
    }
    if (!overflows) return false;
    std::vector<ValueId> inputs;
    for (const QuantizedOperand& operand : {operands[0], operands[1], *to}) {
      if (operand.integers != kNoValue) inputs.push_back(operand.integers);
      inputs.push_back(Scalar(operand.scale));
      inputs.push_back(operand.zero.present() ? Scalar(operand.zero) : Zero(to->dtype));
    }
    Node& node = graph_.nodes[n];
    node.def = OperatorRegistry::Builtin().Find("chairlift", sum ? "QLinearAdd" : "QLinearMul");
    node.inputs = std::move(inputs);
    node.attributes = {};
    return true;
  }

  // The input of a DequantizeLinear, or (without integers) the output of a QuantizeLinear, if it
  // has the required form.
  std::optional<QuantizedOperand> OperandOf(const Node& node) const {
    const bool reads = Is(node, "DequantizeLinear");
    const ValueId integers = reads ? node.inputs[0] : node.outputs[0];
    const ValueId reals = reads ? node.outputs[0] : node.inputs[0];
    const DType dtype = graph_.values[static_cast<size_t>(integers)].dtype;
    const Tensor* const scale = ConstantInput(graph_, node, 1);
    const Tensor* const zero = ConstantInput(graph_, node, 2);
    const bool has_zero = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if ((dtype != DType::kInt8 && dtype != DType::kUInt8) ||
        graph_.values[static_cast<size_t>(reals)].dtype != DType::kFloat || scale == nullptr ||
        scale->dtype() != DType::kFloat || scale->size() != 1 || has_zero != (zero != nullptr) ||
        (has_zero && (zero->size() != 1 || zero->dtype() != dtype))) {
      return std::nullopt;
    }
    return QuantizedOperand{reads ? integers : kNoValue, *scale, has_zero ? *zero : Tensor(),
                            dtype};
  }

  ValueId Scalar(const Tensor& one) {
    return AddConstant(
        graph_, "quantization",
        Tensor::Wrap(one.dtype(), Shape{}, const_cast<void*>(one.raw()), one.owner()));
  }
  ValueId Zero(DType dtype) {
    return AddConstant(
        graph_, "zero_point",
        dtype == DType::kInt8 ? Tensor::Scalar(int8_t{0}) : Tensor::Scalar(uint8_t{0}));
  }

  Graph& graph_;
  const Links links_;
};

}  // namespace

int JoinQuantizedMasks(Graph& graph) {
  int count = QuantizedMasks(graph).Run();
  for (Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      auto copy = std::make_shared<Graph>(*body);
      const int inside = JoinQuantizedMasks(*copy);
      if (inside == 0) continue;
      count += inside;
      node.attributes.Set(name, std::shared_ptr<const Graph>(std::move(copy)));
    }
  }
  return count;
}

}  // namespace chairlift
