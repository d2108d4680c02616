#include "graph/widen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/additive_masks.h"
#include "graph/passes/rewrite.h"
#include "ops/element_type.h"
#include "ops/half_simd.h"

namespace chairlift {
namespace {

// In a mask the largest and the lowest float16 mean "no bound" and become the largest and the
// lowest float32. Elsewhere they are ordinary numbers.
Tensor Widened(const Tensor& narrow, bool mask) {
  constexpr float kLargestFloat16 = 65504.0f;
  Tensor wide = Tensor::Allocate(DType::kFloat, narrow.shape());
  auto* const values = wide.data<float>();
  WidenFloat16(narrow.data<Float16>(), values, narrow.size());
  for (int64_t i = 0; mask && i < wide.size(); ++i) {
    if (std::abs(values[i]) == kLargestFloat16) {
      values[i] = std::copysign(std::numeric_limits<float>::max(), values[i]);
    }
  }
  return wide;
}

void WidenValues(Graph& graph);

void WidenAttributes(Node& node, AdditiveMasks& masks) {
  std::vector<std::pair<std::string, AttributeValue>> changed;
  for (const auto& [name, value] : node.attributes.values()) {
    if (const auto* tensor = std::get_if<Tensor>(&value)) {
      if (tensor->dtype() != DType::kFloat16) continue;
      const bool mask = Is(node, "ConstantOfShape") && masks.IsMask(node.outputs[0]);
      changed.emplace_back(name, Widened(*tensor, mask));
    } else if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&value)) {
      Graph wide = **body;
      WidenValues(wide);
      changed.emplace_back(name, std::make_shared<const Graph>(std::move(wide)));
    }
  }
  for (const char* type : {"to", "dtype", "output_dtype"}) {
    if (node.attributes.Int(type, 0) == OnnxOfElementType(DType::kFloat16)) {
      changed.emplace_back(type, OnnxOfElementType(DType::kFloat));
    }
  }
  for (auto& [name, value] : changed) node.attributes.Set(name, std::move(value));
}

void WidenValues(Graph& graph) {
  AdditiveMasks masks(graph);
  std::vector<bool> is_mask(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    is_mask[i] = value.dtype == DType::kFloat16 && value.is_constant() &&
                 masks.IsMask(static_cast<ValueId>(i));
  }
  for (Node& node : graph.nodes) WidenAttributes(node, masks);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    Value& value = graph.values[i];
    if (value.dtype != DType::kFloat16) continue;
    value.dtype = DType::kFloat;
    if (value.is_constant()) value.constant = Widened(value.constant, is_mask[i]);
  }
}

}  // namespace

bool HasFloat16(const Graph& graph) {
  return std::any_of(graph.values.begin(), graph.values.end(),
                     [](const Value& value) { return value.dtype == DType::kFloat16; }) ||
         std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
           const auto bodies = Subgraphs(node);
           return std::any_of(bodies.begin(), bodies.end(),
                              [](const auto& body) { return HasFloat16(*body.second); });
         });
}

Status WidenFloats(Graph& graph) {
  if (!HasFloat16(graph)) return absl::OkStatus();
  WidenValues(graph);
  CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
  return InferShapes(graph);
}

Status WidenInside(Graph& graph) {
  if (!HasFloat16(graph)) return absl::OkStatus();
  const auto narrow = [&](const std::vector<ValueId>& ids) {
    std::vector<bool> is(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) is[i] = graph.values[ids[i]].dtype == DType::kFloat16;
    return is;
  };
  const std::vector<bool> inputs = narrow(graph.inputs), outputs = narrow(graph.outputs);
  WidenValues(graph);
  // A 16-bit value with the name of `id`, and the node that converts one to the other.
  const auto add = [&](ValueId id, const std::string& name, bool widens) {
    graph.values[id].name = name + "/float32";
    const ValueId half =
        graph.AddValue({.name = name, .dtype = DType::kFloat16, .shape = graph.values[id].shape});
    const int64_t to = OnnxOfElementType(widens ? DType::kFloat : DType::kFloat16);
    graph.nodes.insert(widens ? graph.nodes.begin() : graph.nodes.end(),
                       {name + (widens ? "/widened" : "/narrowed"),
                        OperatorRegistry::Builtin().Find("", "Cast"),
                        Attribute("to", to),
                        {widens ? half : id},
                        {widens ? id : half}});
    return half;
  };
  // An output of a graph may be one of its inputs.
  const auto names = [&](const std::vector<ValueId>& ids) {
    std::vector<std::string> of;
    of.reserve(ids.size());
    for (const ValueId id : ids) of.push_back(graph.values[id].name);
    return of;
  };
  const std::vector<std::string> input_names = names(graph.inputs);
  const std::vector<std::string> output_names = names(graph.outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]) graph.outputs[i] = add(graph.outputs[i], output_names[i], false);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) graph.inputs[i] = add(graph.inputs[i], input_names[i], true);
  }
  CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
  return InferShapes(graph);
}

}  // namespace chairlift
