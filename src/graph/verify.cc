// Checks that a graph is well-formed.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/bodies.h"
#include "graph/ir.h"

namespace chairlift {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  Status Run() {
    if (graph_.num_captures < 0 || graph_.num_formal_inputs() < 0) {
      return Internal("graph '{}' has {} captures but {} inputs", graph_.name, graph_.num_captures,
                      graph_.inputs.size());
    }
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (graph_.values[id].is_constant()) {
        CHAIRLIFT_RETURN_IF_ERROR(VerifyConstant(graph_.values[id]));
        defined_[id] = true;
      }
    }
    for (const ValueId id : graph_.inputs) {
      CHAIRLIFT_RETURN_IF_ERROR(Define(id, "the graph's inputs"));
    }
    for (const Node& node : graph_.nodes) CHAIRLIFT_RETURN_IF_ERROR(VerifyNode(node));
    for (const ValueId id : graph_.outputs) {
      CHAIRLIFT_RETURN_IF_ERROR(Read(id, "the graph's outputs"));
    }
    return absl::OkStatus();
  }

 private:
  static Status VerifyConstant(const Value& value) {
    if (value.dtype != value.constant.dtype()) {
      return Internal("constant '{}' is {} but its value is typed {}", value.name,
                      DTypeName(value.constant.dtype()), DTypeName(value.dtype));
    }
    if (!value.shape.concrete() || !(value.shape.ToShape() == value.constant.shape())) {
      return Internal("constant '{}' has shape {} but its value is shaped {}", value.name,
                      value.constant.shape().ToString(), value.shape.ToString());
    }
    return absl::OkStatus();
  }

  Status CheckId(ValueId id, const std::string& where) const {
    if (id >= 0 && static_cast<size_t>(id) < graph_.values.size()) return absl::OkStatus();
    return Internal("{} name value {}, which does not exist", where, id);
  }

  Status Define(ValueId id, const std::string& where) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckId(id, where));
    if (defined_[id]) {
      return Internal("value '{}' is defined a second time by {}", graph_.values[id].name, where);
    }
    defined_[id] = true;
    return absl::OkStatus();
  }

  Status Read(ValueId id, const std::string& where) const {
    CHAIRLIFT_RETURN_IF_ERROR(CheckId(id, where));
    if (defined_[id]) return absl::OkStatus();
    return Internal("value '{}' is read by {} before it is defined", graph_.values[id].name, where);
  }

  Status VerifyNode(const Node& node) {
    if (node.def == nullptr) return Internal("{} has no operator", node.Describe());
    const OperatorDef& def = *node.def;
    const std::string where = node.Describe();
    for (const ValueId id : node.inputs) {
      if (id != kNoValue) CHAIRLIFT_RETURN_IF_ERROR(Read(id, where));
    }
    int captures = 0;
    for (const auto& [attribute, body] : Subgraphs(node)) {
      if (body == nullptr) return Internal("{}: {} is empty", where, attribute);
      captures += body->num_captures;
      CHAIRLIFT_RETURN_IF_ERROR(
          Annotate(Verifier(*body).Run(), fmt::format("{}: {}", where, attribute)));
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckBodies(node));
    const int inputs = static_cast<int>(node.inputs.size()) - captures;
    const int outputs = static_cast<int>(node.outputs.size());
    if (inputs < def.min_inputs || inputs > def.max_inputs) {
      return InvalidArgument("{} has {} inputs; the operator takes {}", where, inputs,
                             Range(def.min_inputs, def.max_inputs));
    }
    if (outputs < def.min_outputs || outputs > def.max_outputs) {
      return InvalidArgument("{} has {} outputs; the operator gives {}", where, outputs,
                             Range(def.min_outputs, def.max_outputs));
    }
    for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) {
        if (i < def.min_inputs || i >= inputs) {
          return InvalidArgument("{}: input {} is required but absent", where, i);
        }
        continue;
      }
      if (i >= inputs || def.input_types.empty()) continue;
      const DType dtype = graph_.values[id].dtype;
      const TypeSet& types =
          def.input_types[std::min(static_cast<size_t>(i), def.input_types.size() - 1)];
      if (dtype != DType::kUndefined && !types.Contains(dtype)) {
        return InvalidArgument("{}: input {} '{}' is {}, but the operator takes {}", where, i,
                               graph_.values[id].name, DTypeName(dtype), types.ToString());
      }
    }
    for (int i = 0; i < outputs; ++i) {
      if (node.outputs[i] != kNoValue) {
        CHAIRLIFT_RETURN_IF_ERROR(Define(node.outputs[i], where));
      } else if (i < def.min_outputs) {
        return Internal("{}: output {} is absent, but every such node gives it", where, i);
      }
    }
    return absl::OkStatus();
  }

  static std::string Range(int low, int high) {
    if (high >= OperatorDef::kVariadic) return fmt::format("{} or more", low);
    return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
  }

  const Graph& graph_;
  std::vector<bool> defined_;
};

}  // namespace

Status Verify(const Graph& graph) { return Verifier(graph).Run(); }

}  // namespace chairlift
