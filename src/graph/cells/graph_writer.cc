#include "graph/cells/graph_writer.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

namespace chairlift {

std::vector<ValueId> GraphWriter::Call(const OperatorDef& def, std::vector<ValueId> inputs,
                                       int num_outputs, Attributes attributes) {
  Node node;
  node.name = fmt::format("{}{}.{}", prefix_, def.name, nodes_.size());
  node.def = &def;
  node.attributes = std::move(attributes);
  node.inputs = std::move(inputs);
  for (int i = 0; i < num_outputs; ++i) {
    node.outputs.push_back(
        graph_.AddValue({.name = i == 0 ? node.name : fmt::format("{}.{}", node.name, i)}));
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().outputs;
}

ValueId GraphWriter::Op(const char* op, std::vector<ValueId> inputs, Attributes attributes) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", op);
  assert(def != nullptr);
  return Call(*def, std::move(inputs), 1, std::move(attributes))[0];
}

ValueId GraphWriter::Constant(Tensor t) {
  Value value;
  value.name = fmt::format("{}constant.{}", prefix_, graph_.values.size());
  value.dtype = t.dtype();
  value.shape = SymbolicShape(t.shape());
  value.constant = std::move(t);
  return graph_.AddValue(std::move(value));
}

ValueId GraphWriter::Ints(const std::vector<int64_t>& values) {
  return Constant(
      Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, std::span(values)));
}

ValueId GraphWriter::Int(int64_t value) { return Constant(Tensor::Scalar<int64_t>(value)); }

ValueId GraphWriter::Transpose(ValueId x, const std::vector<int64_t>& perm) {
  return Op("Transpose", {x}, Attribute("perm", perm));
}

ValueId GraphWriter::Concat(std::vector<ValueId> parts, int64_t axis) {
  return Op("Concat", std::move(parts), Attribute("axis", axis));
}

ValueId GraphWriter::Pick(ValueId x, int64_t index, int64_t axis) {
  return Op("Gather", {x, Int(index)}, Attribute("axis", axis));
}

}  // namespace chairlift
