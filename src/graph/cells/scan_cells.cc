#include "graph/cells/scan_cells.h"

#include <algorithm>
#include <utility>

#include "graph/batch_axis/propagate.h"
#include "graph/cells/layer_rules.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

using batch_axis::State;

class ScanCutter {
 public:
  ScanCutter(const SlicedGraph& model, const Node& node, ScanParts scan)
      : model_(model), node_(node), scan_(std::move(scan)) {}

  StatusOr<ScanCells> Run() && {
    CHAIRLIFT_RETURN_IF_ERROR(PrepareBody());
    std::vector<ValueId> outputs;  // of the step, without duplicates
    const auto index_of = [&outputs](ValueId id) {
      const auto found = std::find(outputs.begin(), outputs.end(), id);
      if (found == outputs.end()) outputs.push_back(id);
      return static_cast<int>(std::find(outputs.begin(), outputs.end(), id) - outputs.begin());
    };
    for (int i = 0; i < scan_.states; ++i) {
      out_.state_outputs.push_back(index_of(body_.outputs[i]));
    }
    for (size_t i = scan_.states; i < body_.outputs.size(); ++i) {
      out_.token_outputs.push_back(index_of(body_.outputs[i]));
    }
    const std::vector<ValueId> projected = FindProjected(outputs);

    std::vector<bool> stops = Mark(projected);
    for (ValueId id : body_.inputs) stops[id] = true;
    const std::vector<bool> read = Needed(outputs, stops).values;
    std::vector<ValueId> inputs;
    for (int i = 0; i < scan_.sequences; ++i) {
      const ValueId id = body_.inputs[scan_.states + i];
      // A step needs at least one input to know when to run.
      if (!read[id] && (i > 0 || !projected.empty())) continue;
      inputs.push_back(id);
      out_.step_inputs.push_back(i);
    }
    inputs.insert(inputs.end(), projected.begin(), projected.end());
    inputs.insert(inputs.end(), body_.inputs.begin(), body_.inputs.begin() + scan_.states);
    for (size_t i = 0; i < captures_.size(); ++i) {
      const ValueId id = body_.inputs[scan_.states + scan_.sequences + i];
      if (!read[id]) continue;
      inputs.push_back(id);
      out_.captures.push_back(captures_[i]);
      out_.state_outputs.push_back(index_of(id));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(out_.step, Extract(inputs, outputs));

    if (projected.empty()) return std::move(out_);
    std::vector<ValueId> sequences;
    const std::vector<bool> needs = Needed(projected, Mark(body_.inputs)).values;
    for (int i = 0; i < scan_.sequences; ++i) {
      const ValueId id = body_.inputs[scan_.states + i];
      if (!needs[id]) continue;
      sequences.push_back(id);
      out_.projection_inputs.push_back(i);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(out_.projection, Extract(sequences, projected));
    for (ValueId id : projected) {
      const Value& value = body_.values[id];
      CellValue made;
      made.name = node_.name + "/" + value.name;
      made.dtype = value.dtype;
      made.row = SymbolicShape(RowDims(id));
      out_.projected.push_back(std::move(made));
    }
    return std::move(out_);
  }

 private:
  // The body with captured constants made its own.
  Status PrepareBody() {
    body_ = *scan_.body;
    const int formals = scan_.states + scan_.sequences;
    std::vector<ValueId> inputs(body_.inputs.begin(), body_.inputs.begin() + formals);
    for (size_t i = formals; i < body_.inputs.size(); ++i) {
      const Value& outer = model_.graph.values[node_.inputs[i]];
      Value& inner = body_.values[body_.inputs[i]];
      if (outer.is_constant()) {
        inner.constant = outer.constant;
        inner.shape = outer.shape;
      } else {
        inputs.push_back(body_.inputs[i]);
        captures_.push_back(static_cast<int>(i));
      }
    }
    body_.inputs = std::move(inputs);
    body_.num_captures = 0;
    std::vector<std::string> notes;
    for (const Pass& pass : {FoldConstants(), RemoveDeadNodes()}) {
      CHAIRLIFT_RETURN_IF_ERROR(pass.run(body_, notes).status());
    }
    CHAIRLIFT_RETURN_IF_ERROR(InferShapes(body_));

    Node caller = node_;
    caller.inputs.resize(formals);
    for (int i : captures_) caller.inputs.push_back(node_.inputs[i]);
    lanes_ = BodyStates(scan_, body_, caller, model_.axes.batch_symbol, model_.axes.batch);
    for (ValueId id : body_.outputs) {
      if (!WholeAxis(lanes_[id], lanes_[id].axis)) {
        return Internal("{}: its body no longer keeps rows apart", node_.Describe());
      }
    }
    return absl::OkStatus();
  }

  std::vector<bool> Mark(std::span<const ValueId> ids) const {
    std::vector<bool> marked(body_.values.size(), false);
    for (ValueId id : ids) marked[id] = true;
    return marked;
  }

  // Values and nodes that depend on `from`; with `contents`, those that depend on its contents and
  // not only on its shape.
  std::vector<bool> Following(std::vector<bool> from, bool contents) const {
    for (const Node& node : body_.nodes) {
      if (contents && node.def->gives_sizes) continue;
      const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                       [&](ValueId id) { return id != kNoValue && from[id]; });
      for (ValueId id : node.outputs) {
        if (id != kNoValue && follows) from[id] = true;
      }
    }
    return from;
  }

  struct Parts {
    std::vector<bool> nodes;
    std::vector<bool> values;
  };
  // The parts needed to compute `outputs`, starting from the values that `stops` marks.
  Parts Needed(std::span<const ValueId> outputs, const std::vector<bool>& stops) const {
    Parts parts{std::vector<bool>(body_.nodes.size(), false), Mark(outputs)};
    for (size_t n = body_.nodes.size(); n-- > 0;) {
      const Node& node = body_.nodes[n];
      parts.nodes[n] = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
        return id != kNoValue && parts.values[id] && !stops[id];
      });
      if (!parts.nodes[n]) continue;
      for (ValueId id : node.inputs) {
        if (id != kNoValue) parts.values[id] = true;
      }
    }
    return parts;
  }

  // The values that depend only on a step's input and that the step reads, if computing them is
  // worth a separate cell.
  std::vector<ValueId> FindProjected(const std::vector<ValueId>& outputs) const {
    std::vector<ValueId> sequences;
    std::vector<ValueId> others;
    for (size_t i = 0; i < body_.inputs.size(); ++i) {
      const int at = static_cast<int>(i) - scan_.states;
      (at >= 0 && at < scan_.sequences ? sequences : others).push_back(body_.inputs[i]);
    }
    const std::vector<bool> real = Following(Mark(sequences), /*contents=*/true);
    const std::vector<bool> later = Following(Mark(others), /*contents=*/false);
    const auto hoisted = [&](const Node& node) {
      return std::any_of(node.outputs.begin(), node.outputs.end(),
                         [&](ValueId id) { return id != kNoValue && real[id] && !later[id]; });
    };
    bool worth = false;
    std::vector<bool> made(body_.values.size(), false);
    for (const Node& node : body_.nodes) {
      if (!hoisted(node)) continue;
      worth |= node.def->multiply_adds != nullptr;
      for (ValueId id : node.outputs) {
        if (id != kNoValue) made[id] = true;
      }
    }
    if (!worth) return {};
    std::vector<bool> crosses(body_.values.size(), false);
    for (ValueId id : outputs) crosses[id] = made[id];
    for (const Node& node : body_.nodes) {
      if (hoisted(node)) continue;
      for (ValueId id : node.inputs) {
        if (id != kNoValue && made[id]) crosses[id] = true;
      }
    }
    std::vector<ValueId> projected;
    for (size_t id = 0; id < crosses.size(); ++id) {
      if (!crosses[id]) continue;
      if (!WholeAxis(lanes_[id], lanes_[id].axis) || !AllKnown(RowDims(static_cast<ValueId>(id)))) {
        return {};
      }
      projected.push_back(static_cast<ValueId>(id));
    }
    return projected;
  }

  // The dimensions of a value of rows, without that of the rows.
  std::vector<Dim> RowDims(ValueId id) const {
    const SymbolicShape& shape = body_.values[id].shape;
    if (!shape.has_rank()) return {Dim::Unknown()};
    std::vector<Dim> dims = shape.dims();
    dims.erase(dims.begin() + lanes_[id].axis);
    return dims;
  }

  // The part of the body between these values, with rows in front.
  StatusOr<std::shared_ptr<Graph>> Extract(const std::vector<ValueId>& inputs,
                                           const std::vector<ValueId>& outputs) const {
    const Parts needed = Needed(outputs, Mark(inputs));
    auto graph = std::make_shared<Graph>();
    graph->values = body_.values;
    GraphWriter writer(*graph, graph->nodes, "");
    for (ValueId id : inputs) {
      const int axis = lanes_[id].axis;
      ValueId entering = id;
      if (axis != 0) {
        std::vector<Dim> dims = RowDims(id);
        dims.insert(dims.begin(), body_.values[id].shape[axis]);
        entering = graph->AddValue({.name = body_.values[id].name,
                                    .dtype = body_.values[id].dtype,
                                    .shape = SymbolicShape(dims)});
        std::vector<int64_t> perm;
        perm.reserve(dims.size());
        for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
          perm.push_back(i == axis ? 0 : i < axis ? i + 1 : i);
        }
        writer.Transpose(entering, perm);
        writer.last().outputs = {id};
      }
      graph->inputs.push_back(entering);
    }
    for (size_t n = 0; n < body_.nodes.size(); ++n) {
      if (needed.nodes[n]) graph->nodes.push_back(body_.nodes[n]);
    }
    for (ValueId id : outputs) {
      const int axis = lanes_[id].axis;
      ValueId leaving = id;
      if (axis != 0) {
        std::vector<int64_t> perm = {axis};
        for (int i = 0; i < body_.values[id].shape.rank(); ++i) {
          if (i != axis) perm.push_back(i);
        }
        leaving = writer.Transpose(id, perm);
      }
      graph->outputs.push_back(leaving);
    }
    std::vector<std::string> notes;
    CHAIRLIFT_RETURN_IF_ERROR(RemoveDeadNodes().run(*graph, notes).status());
    CHAIRLIFT_RETURN_IF_ERROR(Verify(*graph));
    CHAIRLIFT_RETURN_IF_ERROR(InferShapes(*graph));
    return graph;
  }

  const SlicedGraph& model_;
  const Node& node_;
  const ScanParts scan_;
  Graph body_;
  std::vector<int> captures_;  // inputs of the node that the body still captures
  std::vector<State> lanes_;   // by value of the body
  ScanCells out_;
};

}  // namespace

StatusOr<ScanCells> CutScan(const SlicedGraph& model, const Node& node) {
  auto scan = PartsOfScan(model.graph, node);
  if (!scan) return Internal("{} is not a Scan", node.Describe());
  return ScanCutter(model, node, *std::move(scan)).Run();
}

}  // namespace chairlift
