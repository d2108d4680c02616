// Shape inference of nodes with sub-graphs: If, Loop, Scan.
#include <fmt/format.h>

#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/bodies.h"
#include "graph/infer.h"

namespace chairlift {
namespace {

// If the state shapes of a loop still change after this many rounds, they are unknown.
constexpr int kRounds = 3;

std::vector<ValueInfo> Infos(const Graph& graph, std::span<const ValueId> ids) {
  std::vector<ValueInfo> out;
  for (const ValueId id : ids)
    out.push_back(id == kNoValue ? ValueInfo{} : graph.values[id].info());
  return out;
}

void AddSymbols(const SymbolicShape& shape, std::set<std::string>& symbols) {
  if (!shape.has_rank()) return;
  for (const Dim& d : shape.dims()) {
    if (d.is_symbol()) symbols.insert(d.symbol());
  }
}

// `shape` as seen outside a body: symbols of the body have no meaning there.
SymbolicShape Outside(const SymbolicShape& shape, const std::set<std::string>& symbols) {
  if (!shape.has_rank()) return {};
  std::vector<Dim> dims;
  for (const Dim& d : shape.dims()) {
    dims.push_back(d.is_symbol() && !symbols.contains(d.symbol()) ? Dim::Unknown() : d);
  }
  return SymbolicShape(std::move(dims));
}

// One sub-graph of a node with the infos of its arguments.
class Body {
 public:
  Body(const Node& node, std::string attribute, std::shared_ptr<const Graph> original,
       std::vector<ValueInfo> captures)
      : node_(node),
        attribute_(std::move(attribute)),
        original_(std::move(original)),
        captures_(std::move(captures)) {
    for (const ValueInfo& info : captures_) AddSymbols(info.shape, symbols_);
  }

  int num_formal_inputs() const { return original_->num_formal_inputs(); }
  int num_outputs() const { return static_cast<int>(original_->outputs.size()); }
  const std::string& attribute() const { return attribute_; }
  // Null if it did not fit.
  std::shared_ptr<const Graph> result() const { return result_; }

  // Infers a fresh copy with these formal inputs; returns its outputs as seen from outside.
  StatusOr<std::vector<ValueInfo>> Infer(const std::vector<ValueInfo>& formals,
                                         InferBudget& budget) {
    budget.nodes_left -= static_cast<int64_t>(original_->values.size() / 8);  // the copy
    auto graph = std::make_shared<Graph>(*original_);
    std::set<std::string> symbols = symbols_;
    for (size_t i = 0; i < graph->inputs.size(); ++i) {
      const ValueInfo& info = i < formals.size() ? formals[i] : captures_[i - formals.size()];
      Value& value = graph->values[graph->inputs[i]];
      const std::string what =
          fmt::format("{}: {}: input '{}'", node_.Describe(), attribute_, value.name);
      value.shape = SymbolicShape();  // the caller's shapes replace the declared ones
      CHAIRLIFT_RETURN_IF_ERROR(StoreInfo(value, info, what));
      AddSymbols(info.shape, symbols);
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        Annotate(InferNodes(*graph, budget), fmt::format("{}: {}", node_.Describe(), attribute_)));
    std::vector<ValueInfo> out = Infos(*graph, graph->outputs);
    for (ValueInfo& info : out) {
      info.shape = Outside(info.shape, symbols);
      info.value = nullptr;
      info.elements.reset();
    }
    result_ = std::move(graph);
    return out;
  }

 private:
  const Node& node_;
  std::string attribute_;
  std::shared_ptr<const Graph> original_;
  std::vector<ValueInfo> captures_;
  std::set<std::string> symbols_;
  std::shared_ptr<const Graph> result_;
};

Status Store(Graph& graph, Node& node, size_t output, DType dtype, const SymbolicShape& shape) {
  if (output >= node.outputs.size() || node.outputs[output] == kNoValue) return absl::OkStatus();
  Value& value = graph.values[node.outputs[output]];
  return StoreInfo(value, {dtype, shape, nullptr, {}},
                   fmt::format("{}: output '{}'", node.Describe(), value.name));
}

Status InferIf(Graph& graph, Node& node, std::vector<Body>& bodies, InferBudget& budget) {
  StatusOr<std::vector<ValueInfo>> out[2];
  for (int b = 0; b < 2; ++b) {
    out[b] = bodies[b].Infer({}, budget);
  }
  for (int b = 0; b < 2; ++b) {
    if (out[b].ok()) continue;
    const bool open =
        budget.open_branches && absl::IsInvalidArgument(out[b].status()) && out[1 - b].ok();
    if (!open) return out[b].status();
    out[b] = out[1 - b];
    for (ValueInfo& info : *out[b]) info.shape = SymbolicShape();
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueInfo& otherwise = (*out[0])[i];
    const ValueInfo& then = (*out[1])[i];
    if (otherwise.dtype != then.dtype) {
      return InvalidArgument("{}: the branches give output {} as {} and as {}", node.Describe(), i,
                             DTypeName(then.dtype), DTypeName(otherwise.dtype));
    }
    CHAIRLIFT_RETURN_IF_ERROR(
        Store(graph, node, i, then.dtype, Generalise(otherwise.shape, then.shape)));
  }
  return absl::OkStatus();
}

// Infers a body that is run repeatedly on formal inputs [first, first + count), fed from its
// outputs [fed, fed + count), until their shapes no longer change. Returns its outputs.
StatusOr<std::vector<ValueInfo>> InferRepeated(const Node& node, Body& body,
                                               std::vector<ValueInfo>& formals, int first, int fed,
                                               int count, InferBudget& budget) {
  for (int round = 1;; ++round) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ValueInfo> out, body.Infer(formals, budget));
    bool changed = false;
    for (int i = 0; i < count; ++i) {
      ValueInfo& state = formals[first + i];
      const ValueInfo& next = out[fed + i];
      if (state.dtype != next.dtype) {
        return InvalidArgument("{}: state {} enters the body as {} and leaves it as {}",
                               node.Describe(), i, DTypeName(state.dtype), DTypeName(next.dtype));
      }
      if (!state.shape.has_rank()) continue;
      SymbolicShape both = Generalise(state.shape, next.shape);
      bool same = both.has_rank();
      for (int axis = 0; same && axis < both.rank(); ++axis) {
        same = both[axis].Same(state.shape[axis]);
      }
      if (same) continue;
      // A dimension that is unknown from the start gets a new symbol inside the body in each round,
      // so it always differs; that alone is not a change.
      bool only_unknown = both.has_rank();
      for (int axis = 0; only_unknown && axis < both.rank(); ++axis) {
        const Dim& d = state.shape[axis];
        only_unknown = both[axis].Same(d) || (!d.known() && !d.is_symbol());
      }
      if (only_unknown) continue;
      changed = true;
      state.shape = round < kRounds ? std::move(both) : SymbolicShape();
    }
    if (!changed) return out;
  }
}

Status InferLoop(Graph& graph, Node& node, std::span<const ValueInfo> inputs, Body& body,
                 InferBudget& budget) {
  const int states = body.num_formal_inputs() - 2;
  const int scans = body.num_outputs() - 1 - states;
  std::vector<ValueInfo> formals = {{DType::kInt64, SymbolicShape::Scalar(), nullptr, {}},
                                    {DType::kBool, SymbolicShape::Scalar(), nullptr, {}}};
  for (int i = 0; i < states; ++i) {
    if (inputs[2 + i].dtype == DType::kUndefined) {
      return InvalidArgument("{}: state {} has no initial value", node.Describe(), i);
    }
    formals.push_back({inputs[2 + i].dtype, inputs[2 + i].shape, nullptr, {}});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::vector<ValueInfo> out,
      InferRepeated(node, body, formals, /*first=*/2, /*fed=*/1, states, budget));
  if (out[0].dtype != DType::kBool) {
    return InvalidArgument("{}: the body's condition is {}, not bool", node.Describe(),
                           DTypeName(out[0].dtype));
  }
  for (int i = 0; i < states; ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(Store(graph, node, i, formals[2 + i].dtype, formals[2 + i].shape));
  }
  for (int i = 0; i < scans; ++i) {
    const ValueInfo& element = out[1 + states + i];
    SymbolicShape shape;
    if (element.shape.has_rank()) {
      std::vector<Dim> dims = element.shape.dims();
      dims.insert(dims.begin(), Dim::Unknown());
      shape = SymbolicShape(std::move(dims));
    }
    CHAIRLIFT_RETURN_IF_ERROR(Store(graph, node, states + i, element.dtype, shape));
  }
  return absl::OkStatus();
}

// Entry i of scan_input_axes or scan_output_axes, in [0, rank).
StatusOr<int> ScanAxis(const Node& node, const char* attribute, int i, int rank) {
  const std::vector<int64_t> axes = node.attributes.Ints(attribute);
  int64_t axis = i < static_cast<int>(axes.size()) ? axes[i] : 0;
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("{}: {}[{}] is {}, outside rank {}", node.Describe(), attribute, i, axis,
                           rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Status InferScan(Graph& graph, Node& node, std::span<const ValueInfo> inputs, Body& body,
                 InferBudget& budget) {
  const int total = static_cast<int>(inputs.size());
  const int states = total - static_cast<int>(node.attributes.Int("num_scan_inputs", 0));
  const int scan_outputs = body.num_outputs() - states;
  Dim length;
  std::vector<ValueInfo> formals;
  for (int i = 0; i < total; ++i) {
    if (inputs[i].dtype == DType::kUndefined) {
      return InvalidArgument("{}: input {} is absent", node.Describe(), i);
    }
    ValueInfo info{inputs[i].dtype, inputs[i].shape, nullptr, {}};
    if (i >= states && info.shape.has_rank()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                                 ScanAxis(node, "scan_input_axes", i - states, info.shape.rank()));
      std::vector<Dim> dims = info.shape.dims();
      length = MergeDims(length, dims[axis]);
      dims.erase(dims.begin() + axis);
      info.shape = SymbolicShape(std::move(dims));
    }
    formals.push_back(std::move(info));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const std::vector<ValueInfo> out,
      InferRepeated(node, body, formals, /*first=*/0, /*fed=*/0, states, budget));
  for (int i = 0; i < states; ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(Store(graph, node, i, formals[i].dtype, formals[i].shape));
  }
  for (int i = 0; i < scan_outputs; ++i) {
    const ValueInfo& element = out[states + i];
    SymbolicShape shape;
    if (element.shape.has_rank()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                                 ScanAxis(node, "scan_output_axes", i, element.shape.rank() + 1));
      std::vector<Dim> dims = element.shape.dims();
      dims.insert(dims.begin() + axis, length);
      shape = SymbolicShape(std::move(dims));
    }
    CHAIRLIFT_RETURN_IF_ERROR(Store(graph, node, states + i, element.dtype, shape));
  }
  return absl::OkStatus();
}

}  // namespace

Status InferControlNode(Graph& graph, Node& node, InferBudget& budget) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckBodies(node));
  std::vector<Body> bodies;
  size_t captures = 0;
  for (const auto& [attribute, body] : Subgraphs(node)) captures += body->num_captures;
  const std::vector<ValueInfo> inputs = Infos(graph, node.inputs);
  const size_t own = inputs.size() - captures;
  size_t next = own;
  for (const auto& [attribute, body] : Subgraphs(node)) {
    bodies.emplace_back(
        node, attribute, body,
        std::vector<ValueInfo>(inputs.begin() + next, inputs.begin() + next + body->num_captures));
    next += body->num_captures;
  }
  const std::span<const ValueInfo> own_inputs(inputs.data(), own);
  const std::string& name = node.def->name;
  if (name == "If") {
    CHAIRLIFT_RETURN_IF_ERROR(InferIf(graph, node, bodies, budget));
  } else if (name == "Loop") {
    CHAIRLIFT_RETURN_IF_ERROR(InferLoop(graph, node, own_inputs, bodies[0], budget));
  } else {
    CHAIRLIFT_RETURN_IF_ERROR(InferScan(graph, node, own_inputs, bodies[0], budget));
  }
  for (const Body& body : bodies) {
    if (body.result() != nullptr) node.attributes.Set(body.attribute(), body.result());
  }
  return absl::OkStatus();
}

}  // namespace chairlift
