#include "graph/narrow.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "graph/passes/rewrite.h"
#include "ops/element_type.h"

namespace chairlift {
namespace {

class Narrowing {
 public:
  Narrowing(Graph& graph, DType to)
      : graph_(graph),
        to_(to),
        cast_(OperatorRegistry::Builtin().Find("", "Cast")),
        twins_(graph.values.size(), kNoValue) {}

  Status Run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& node : nodes) {
      if (!Subgraphs(node).empty()) {
        return Unimplemented("{} has sub-graphs, which are not computed in {}", node.Describe(),
                             DTypeName(to_));
      }
      CHAIRLIFT_RETURN_IF_ERROR(Add(std::move(node)));
    }
    for (ValueId& output : graph_.outputs) {
      if (graph_.values[output].dtype == to_) output = As(output, DType::kFloat);
    }
    return absl::OkStatus();
  }

 private:
  // The value as an element of `dtype`, one of the two types: the value itself or its twin.
  ValueId As(ValueId id, DType dtype) {
    if (graph_.values[id].dtype == dtype) return id;
    if (twins_[id] != kNoValue) return twins_[id];
    Value twin = graph_.values[id];
    twin.dtype = dtype;
    if (twin.is_constant()) {
      twin.name += fmt::format(".{}", DTypeName(dtype));
      twin.constant = Converted(twin.constant);
      return AddTwin(id, std::move(twin));
    }
    // An output keeps its name.
    const bool is_output =
        std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
    Value& own = is_output ? graph_.values[id] : twin;
    own.name += fmt::format(".{}", DTypeName(own.dtype));
    const ValueId made = AddTwin(id, std::move(twin));
    graph_.nodes.push_back(
        {graph_.values[made].name, cast_, Attribute("to", OnnxOfElementType(dtype)), {id}, {made}});
    return made;
  }

  ValueId AddTwin(ValueId id, Value twin) {
    const ValueId made = graph_.AddValue(std::move(twin));
    twins_.push_back(id);
    return twins_[id] = made;
  }

  Tensor Converted(const Tensor& wide) const {
    Tensor narrow = Tensor::Allocate(to_, wide.shape());
    const auto convert = [&]<typename T>(float largest) {
      for (int64_t i = 0; i < wide.size(); ++i) {
        const float value = wide.data<float>()[i];
        const bool beyond = std::isfinite(value) && std::abs(value) > largest;
        narrow.data<T>()[i] = T(beyond ? std::copysign(largest, value) : value);
      }
    };
    constexpr float kLargestFloat16 = 65504.0f, kLargestBFloat16 = 3.3895314e38f;
    if (to_ == DType::kFloat16) {
      convert.template operator()<Float16>(kLargestFloat16);
    } else {
      convert.template operator()<BFloat16>(kLargestBFloat16);
    }
    return narrow;
  }

  bool Takes(const Node& node, size_t input) const {
    const std::vector<TypeSet>& types = node.def->input_types;
    return types.empty() || types[std::min(input, types.size() - 1)].Contains(to_);
  }

  // The types of its outputs for these inputs.
  StatusOr<std::vector<ValueInfo>> Infer(const Node& node,
                                         const std::vector<ValueId>& inputs) const {
    std::vector<ValueInfo> infos;
    infos.reserve(inputs.size());
    for (const ValueId id : inputs) {
      infos.push_back(id == kNoValue ? ValueInfo() : graph_.values[id].info());
    }
    InferContext context(node.attributes, infos, static_cast<int>(node.outputs.size()));
    CHAIRLIFT_RETURN_IF_ERROR(node.def->infer(context));
    return context.outputs();
  }

  Status Add(Node node) {
    const std::vector<ValueId> given = node.inputs;
    const bool casts =
        node.def == cast_ && node.attributes.Int("to", 0) == OnnxOfElementType(DType::kFloat);
    if (casts) node.attributes.Set("to", OnnxOfElementType(to_));
    std::vector<ValueId> narrow = given, wide = given;
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] == kNoValue) continue;
      const DType dtype = graph_.values[given[i]].dtype;
      if (dtype != DType::kFloat && dtype != to_) continue;
      narrow[i] = As(given[i], Takes(node, i) ? to_ : DType::kFloat);
    }
    node.inputs = narrow;
    auto outputs = Infer(node, narrow);
    if (!outputs.ok()) {  // its operands must agree, or it supports only float32
      for (size_t i = 0; i < given.size(); ++i) {
        if (given[i] != kNoValue && graph_.values[given[i]].dtype == to_) {
          wide[i] = As(given[i], DType::kFloat);
        }
      }
      node.inputs = wide;
      outputs = Infer(node, wide);
      if (!outputs.ok()) return Annotate(outputs.status(), node.Describe());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) graph_.values[node.outputs[i]].dtype = (*outputs)[i].dtype;
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  Graph& graph_;
  const DType to_;
  const OperatorDef* const cast_;
  std::vector<ValueId> twins_;  // by value: the same value in the other type, once it exists
};

}  // namespace

Status NarrowFloats(Graph& graph, DType to) {
  CHAIRLIFT_RETURN_IF_ERROR(Narrowing(graph, to).Run());
  CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
  return InferShapes(graph);
}

}  // namespace chairlift
