// Adds a file's nodes to a graph.
#include "graph/onnx/graph_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/closest.h"

namespace chairlift {
namespace {

// The advice for an operator that is not supported.
std::string InsteadOf(const OnnxNode& node) {
  if (node.domain == "com.microsoft.nchwc") {
    return ": its weights are laid out for the processor that the model was saved on; save it "
           "again "
           "with graph_optimization_level ORT_ENABLE_EXTENDED, or serve the model that ONNX "
           "Runtime "
           "read";
  }
  std::vector<std::string> names;
  for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
    if (def->domain == node.domain) names.push_back(def->name);
  }
  if (const auto meant = Closest(node.op_type, names)) {
    return fmt::format("; did you mean '{}'?", *meant);
  }
  return names.empty() ? "; export the model with standard operators in place of those of this "
                         "domain (docs/guides/exporting.md), or serve it as a Python model "
                         "(docs/guides/python-models.md)"
                       : "; export the model without this operator (docs/guides/exporting.md)";
}

Status Unknown(const OnnxNode& node) {
  return Unimplemented("node '{}': operator {} of domain '{}', opset {}, is not supported{}",
                       node.name, node.op_type, node.domain.empty() ? "ai.onnx" : node.domain,
                       node.opset, InsteadOf(node));
}

}  // namespace

std::string OnnxNode::Describe() const {
  return fmt::format("node '{}' ({}{}{}, opset {})", name, domain, domain.empty() ? "" : ".",
                     op_type, opset);
}

ValueId Rewriter::ConstantInts(std::span<const int64_t> values) {
  return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values));
}

ValueInfo GraphBuilder::info(ValueId id) const {
  return id == kNoValue ? ValueInfo{} : graph_.values[id].info();
}

ValueId GraphBuilder::NewValue() {
  return graph_.AddValue({.name = value_names_.Take(fmt::format("{}/{}", current_, ++made_))});
}

ValueId GraphBuilder::Constant(const Tensor& tensor) {
  const ValueId id = NewValue();
  Value& value = graph_.values[id];
  value.dtype = tensor.dtype();
  value.shape = SymbolicShape(tensor.shape());
  value.constant = tensor;
  budget_.constant_bytes_left -= static_cast<int64_t>(tensor.byte_size());
  return id;
}

StatusOr<ValueId> GraphBuilder::Add(std::string_view op_type, int opset, Attributes attributes,
                                    std::vector<ValueId> inputs) {
  OnnxNode node;
  node.name = fmt::format("{}/{}", current_, op_type);
  node.op_type = op_type;
  node.opset = opset;
  node.attributes = std::move(attributes);
  node.inputs = std::move(inputs);
  const ValueId output = NewValue();
  node.outputs = {output};
  CHAIRLIFT_RETURN_IF_ERROR(AddBefore(std::move(node)));
  return output;
}

Status GraphBuilder::AddBefore(OnnxNode node) {
  CHAIRLIFT_RETURN_IF_ERROR(Normalise(node, *this));
  return Append(std::move(node));
}

Status GraphBuilder::CheckConstants() const {
  if (budget_.constant_bytes_left >= 0) return absl::OkStatus();
  return Unimplemented(
      "the tables of this node and of those before it take more than {} MiB, the limit; a model "
      "with fewer results or nodes needs less",
      InferBudget().constant_bytes_left >> 20);
}

void GraphBuilder::Begin(const OnnxNode& node) {
  current_ = node.name;
  made_ = 0;
  after_.clear();
}

Status GraphBuilder::Emit(OnnxNode node) {
  Begin(node);
  const std::string where = node.Describe();
  // Only rules create operators of this domain.
  if (node.domain == "chairlift") return Unknown(node);
  CHAIRLIFT_RETURN_IF_ERROR(Annotate(Normalise(node, *this), where));
  CHAIRLIFT_RETURN_IF_ERROR(Annotate(CheckConstants(), where));
  CHAIRLIFT_RETURN_IF_ERROR(Append(std::move(node)));
  for (OnnxNode& next : std::exchange(after_, {})) {
    CHAIRLIFT_RETURN_IF_ERROR(Append(std::move(next)));
  }
  return absl::OkStatus();
}

Status GraphBuilder::Append(OnnxNode node) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find(node.domain, node.op_type);
  if (def == nullptr) return Unknown(node);
  if (node.opset < def->min_opset) {
    return Unimplemented("node '{}': domain '{}' has operator {} from opset {} on, not in {}",
                         node.name, node.domain.empty() ? "ai.onnx" : node.domain, node.op_type,
                         def->min_opset, node.opset);
  }
  // Trailing absent inputs and outputs are the same as missing ones, except for a loop, whose body
  // counts them.
  const bool has_body = node.attributes.Has("body");
  while (!has_body && !node.inputs.empty() && node.inputs.back() == kNoValue) {
    node.inputs.pop_back();
  }
  while (!node.outputs.empty() && node.outputs.back() == kNoValue) node.outputs.pop_back();
  const int inputs = static_cast<int>(node.inputs.size());
  const int outputs = static_cast<int>(node.outputs.size());
  if (inputs < def->min_inputs || inputs > def->max_inputs) {
    return InvalidArgument("{} has {} inputs, but the operator takes {}", node.Describe(), inputs,
                           def->max_inputs >= OperatorDef::kVariadic
                               ? fmt::format("{} or more", def->min_inputs)
                           : def->min_inputs == def->max_inputs
                               ? fmt::format("{}", def->min_inputs)
                               : fmt::format("{} to {}", def->min_inputs, def->max_inputs));
  }
  for (int i = 0; i < def->min_inputs; ++i) {
    if (node.inputs[i] == kNoValue) {
      return InvalidArgument("{}: input {} is required but absent", node.Describe(), i);
    }
  }
  if (outputs > def->max_outputs) {
    return InvalidArgument("{} has {} outputs, but the operator gives at most {}", node.Describe(),
                           outputs, def->max_outputs);
  }
  // Kernels write the outputs that every such node has, whether they are read or not.
  node.outputs.resize(std::max(outputs, def->min_outputs), kNoValue);
  for (int i = 0; i < def->min_outputs; ++i) {
    if (node.outputs[i] == kNoValue) node.outputs[i] = NewValue();
  }
  node.inputs.insert(node.inputs.end(), node.captures.begin(), node.captures.end());
  Node made{node.name, def, std::move(node.attributes), std::move(node.inputs),
            std::move(node.outputs)};
  if (is_body_) {
    InferLenient(made);
  } else {
    CHAIRLIFT_RETURN_IF_ERROR(InferNode(graph_, made, budget_));
  }
  graph_.nodes.push_back(std::move(made));
  return absl::OkStatus();
}

// The inputs of a body are sometimes declared loosely or wrongly. What counts is what its node
// passes, and inference over the whole graph reports errors later.
void GraphBuilder::InferLenient(Node& node) {
  for (const ValueId id : node.inputs) {
    if (id != kNoValue && graph_.values[id].dtype == DType::kUndefined) return;
  }
  InferNode(graph_, node, budget_).IgnoreError();
}

}  // namespace chairlift
