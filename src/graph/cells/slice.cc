// The steps from a graph to its cells.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "graph/cells/cell_builder.h"
#include "graph/cells/fold_embeddings.h"
#include "graph/cells/layer_rules.h"
#include "graph/cells/lower_loops.h"
#include "graph/cells/lower_recurrent.h"
#include "graph/cells/scan_cells.h"
#include "graph/cells/sliced_model.h"
#include "graph/passes/passes.h"

namespace chairlift {
namespace {

// Whether the node's bodies iterate over time: a branch is not cut into cells.
bool BodiesRecur(const Node& node) {
  const auto recurs = [](const Node& inside) {
    return Is(inside, "LSTM") || Is(inside, "GRU") || Is(inside, "RNN") || Is(inside, "Scan") ||
           Is(inside, "Loop") || BodiesRecur(inside);
  };
  const auto bodies = Subgraphs(node);
  return std::any_of(bodies.begin(), bodies.end(), [&](const auto& body) {
    return std::any_of(body.second->nodes.begin(), body.second->nodes.end(), recurs);
  });
}

// Makes input projections separate nodes and weights constants.
Status PrepareSlice(Graph& graph, const SliceOptions& options, std::vector<std::string>& told) {
  std::vector<std::string> notes;
  CHAIRLIFT_RETURN_IF_ERROR(FoldConstants().run(graph, notes).status());
  CHAIRLIFT_RETURN_IF_ERROR(LowerLoops(graph).status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const int layers, LowerRecurrent(graph));
  const auto loops = [](const Node& node) { return Is(node, "Scan") || Is(node, "Loop"); };
  if (layers == 0 && std::none_of(graph.nodes.begin(), graph.nodes.end(), loops)) {
    const bool inside = std::any_of(graph.nodes.begin(), graph.nodes.end(), BodiesRecur);
    return Unimplemented("the model has no recurrence{}",
                         inside ? " outside the branches of its If nodes" : "");
  }
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph));
  for (const Pass& pass :
       {FoldConstants(), SelectConstantBranches(), FoldConstants(), RemoveDeadNodes()}) {
    CHAIRLIFT_RETURN_IF_ERROR(pass.run(graph, notes).status());
  }
  if (options.max_folded_embedding_bytes > 0) {
    CHAIRLIFT_RETURN_IF_ERROR(
        FoldEmbeddings(graph, options.max_folded_embedding_bytes, told).status());
  }
  CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
  return InferShapes(graph);
}

class Slicer {
 public:
  explicit Slicer(SlicedGraph model) : model_(model), index_(model.graph.values.size(), -1) {}

  StatusOr<SlicedModel> Run() && {
    const Graph& graph = model_.graph;
    const std::vector<CellPlan>& plans = model_.partition.cells;
    out_.lengths.resize(model_.axes.sequences.size());
    for (ValueId id : graph.inputs) AddValue(id);
    std::map<int, CellBuilder> builders;
    std::set<ValueId> read;  // roots that pass between cells or leave the model
    for (int c = 0; c < static_cast<int>(plans.size()); ++c) {
      if (plans[c].kind == SlicedCell::Kind::kRecurrent) {
        for (ValueId id : graph.nodes[plans[c].nodes[0]].inputs) {
          if (id != kNoValue) read.insert(model_.partition.root[id]);
        }
        continue;
      }
      CellBuilder& builder = builders.try_emplace(c, model_, c).first->second;
      CHAIRLIFT_RETURN_IF_ERROR(builder.Build());
      read.insert(builder.inputs().begin(), builder.inputs().end());
    }
    for (ValueId id : graph.outputs) {
      if (!model_.axes.real[id]) {
        return Unimplemented("output '{}' does not depend on what is in the inputs",
                             graph.values[id].name);
      }
      read.insert(model_.partition.root[id]);
    }
    for (int c = 0; c < static_cast<int>(plans.size()); ++c) {
      SlicedCell cell;
      cell.kind = plans[c].kind;
      cell.length = plans[c].sequence;
      if (cell.kind == SlicedCell::Kind::kRecurrent) {
        const Node& layer = graph.nodes[plans[c].nodes[0]];
        CHAIRLIFT_RETURN_IF_ERROR(IsRecurrentLayer(layer) ? MakeStep(layer, read, cell)
                                                          : MakeScan(layer, read, cell));
      } else {
        CellBuilder& builder = builders.at(c);
        for (ValueId id : builder.inputs()) cell.inputs.push_back(index_[id]);
        for (int n : plans[c].nodes) {
          for (ValueId id : graph.nodes[n].outputs) {
            if (id == kNoValue || !read.contains(id)) continue;
            CHAIRLIFT_RETURN_IF_ERROR(builder.AddOutput(id));
            cell.outputs.push_back(AddValue(id));
          }
        }
        CHAIRLIFT_ASSIGN_OR_RETURN(cell.graph, std::move(builder).Finish());
      }
      out_.cells.push_back(std::move(cell));
    }
    for (ValueId id : graph.inputs) out_.inputs.push_back(index_[id]);
    for (ValueId id : graph.outputs) PlaceOutput(id);
    CHAIRLIFT_RETURN_IF_ERROR(FindLengths());
    NameCells();
    return std::move(out_);
  }

 private:
  int AddValue(ValueId id) {
    if (index_[id] >= 0) return index_[id];
    const Value& value = model_.graph.values[id];
    CellValue made;
    made.name = value.name;
    made.dtype = value.dtype;
    made.length = model_.partition.sequence[id];
    Place(id, made.length, made);
    index_[id] = static_cast<int>(out_.values.size());
    out_.values.push_back(std::move(made));
    return index_[id];
  }

  // Where the rows of `id` are in its own tensor.
  template <typename Placed>
  void Place(ValueId id, int length, Placed& placed) const {
    const SequenceAxes* sequence = length < 0 ? nullptr : &model_.axes.sequences[length];
    placed.batch_axis = model_.axes.batch[id].axis;
    if (sequence != nullptr) placed.time_axis = sequence->states[id].axis;
    if (const auto form = FormOf(model_.graph, model_.axes, sequence, id)) {
      placed.row = SymbolicShape(RowOf(*form));
    }
  }

  // `id` is the value or a view of it.
  void PlaceOutput(ValueId id) {
    SlicedOutput output;
    output.name = model_.graph.values[id].name;
    output.value = index_[model_.partition.root[id]];
    Place(id, out_.values[output.value].length, output);
    out_.outputs.push_back(std::move(output));
  }

  // The state that starts as the model's value `initial`, in rows of that shape.
  Status AddState(ValueId initial, ValueId last, int output, const Shape& row,
                  const std::set<ValueId>& read, SlicedCell& cell) {
    CellState state;
    state.input = static_cast<int>(cell.inputs.size());
    state.output = output;
    if (model_.axes.real[initial]) {
      state.initial = index_[model_.partition.root[initial]];
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor one, UniformRow(model_, initial));
      Shape shape = row;
      shape.Insert(0, 1);
      if (one.size() != shape.NumElements()) {
        return Unimplemented("the initial state '{}' cannot be followed",
                             model_.graph.values[initial].name);
      }
      state.constant = one.Reshaped(shape);
    }
    AddState(std::move(state), last, read, cell);
    return absl::OkStatus();
  }
  void AddState(CellState state, ValueId last, const std::set<ValueId>& read, SlicedCell& cell) {
    if (last != kNoValue && read.contains(last)) state.final_value = AddValue(last);
    cell.inputs.push_back(-1);
    cell.states.push_back(std::move(state));
  }

  Status AddLayerState(const Node& layer, int input, int output, DType dtype,
                       const std::set<ValueId>& read, SlicedCell& cell) {
    const Shape row = {layer.attributes.Int("hidden_size", 0)};
    const ValueId last = layer.outputs[output];
    Tensor zeros = Tensor::Allocate(dtype, Shape{1, row[0]});
    std::memset(zeros.raw(), 0, zeros.byte_size());
    if (layer.inputs[input] != kNoValue) {
      CHAIRLIFT_RETURN_IF_ERROR(AddState(layer.inputs[input], last, output - 1, row, read, cell));
      cell.states.back().without_steps = std::move(zeros);
      return absl::OkStatus();
    }
    CellState state;
    state.input = static_cast<int>(cell.inputs.size());
    state.output = output - 1;
    state.constant = std::move(zeros);
    AddState(std::move(state), last, read, cell);
    return absl::OkStatus();
  }

  Status MakeStep(const Node& layer, const std::set<ValueId>& read, SlicedCell& cell) {
    const Graph& model = model_.graph;
    const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "RecurrentStep");
    const Value& xw = model.values[layer.inputs[kLayerXw]];
    const bool lstm = layer.attributes.String("cell", "") == "LSTM";
    const int64_t hidden = layer.attributes.Int("hidden_size", 0);
    cell.name = layer.name;
    cell.reverse = layer.attributes.Int("reverse", 0) != 0;
    cell.graph = std::make_shared<Graph>();
    GraphWriter writer(*cell.graph, cell.graph->nodes, "");
    const auto input = [&](const char* name, const Dim& size) {
      const ValueId id = cell.graph->AddValue(
          {.name = name, .dtype = xw.dtype, .shape = SymbolicShape({Dim::Symbol("rows"), size})});
      cell.graph->inputs.push_back(id);
      return id;
    };
    const auto weight = [&](int i) -> StatusOr<ValueId> {
      if (layer.inputs[i] == kNoValue) return kNoValue;
      const Value& value = model.values[layer.inputs[i]];
      if (!value.is_constant()) {
        return Unimplemented("{}: its weights are computed", layer.Describe());
      }
      return writer.Constant(value.constant);
    };
    std::vector<ValueId> inputs = {input("xw", xw.shape[2]), input("h", Dim(hidden)),
                                   lstm ? input("c", Dim(hidden)) : kNoValue};
    for (int i : {kLayerR, kLayerRb, kLayerPeepholes}) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId id, weight(i));
      inputs.push_back(id);
    }
    while (inputs.back() == kNoValue) inputs.pop_back();
    Attributes attributes = layer.attributes;
    for (const char* name : {"reverse", "layout", "hidden_size"}) attributes.Erase(name);
    cell.graph->outputs = writer.Call(*def, std::move(inputs), lstm ? 2 : 1, std::move(attributes));
    writer.last().name = layer.name;

    cell.inputs = {index_[model_.partition.root[layer.inputs[kLayerXw]]]};
    const ValueId all = layer.outputs[0];
    cell.outputs = {all != kNoValue && read.contains(all) ? AddValue(all) : -1};
    if (lstm) cell.outputs.push_back(-1);
    CHAIRLIFT_RETURN_IF_ERROR(AddLayerState(layer, kLayerH, 1, xw.dtype, read, cell));
    if (lstm) {
      CHAIRLIFT_RETURN_IF_ERROR(AddLayerState(layer, kLayerC, 2, xw.dtype, read, cell));
    }
    if (const ValueId lengths = layer.inputs[kLayerLengths]; lengths != kNoValue) {
      if (!model_.axes.real[lengths]) {
        return Unimplemented("{}: its sequence_lens is computed from sizes", layer.Describe());
      }
      cell.tokens_that_count = index_[model_.partition.root[lengths]];
    }
    CHAIRLIFT_RETURN_IF_ERROR(Verify(*cell.graph));
    return InferShapes(*cell.graph);
  }

  // Adds the cell of what its body projects, and completes the step's cell.
  Status MakeScan(const Node& node, const std::set<ValueId>& read, SlicedCell& cell) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ScanCells cells, CutScan(model_, node));
    const ScanParts scan = *PartsOfScan(model_.graph, node);
    const auto sequence = [&](int i) {
      return index_[model_.partition.root[node.inputs[scan.states + i]]];
    };
    std::vector<int> projected;
    if (cells.projection != nullptr) {
      SlicedCell before;
      before.kind = SlicedCell::Kind::kTokens;
      before.length = cell.length;
      before.graph = std::move(cells.projection);
      for (int i : cells.projection_inputs) before.inputs.push_back(sequence(i));
      for (CellValue& value : cells.projected) {
        value.length = cell.length;
        projected.push_back(static_cast<int>(out_.values.size()));
        out_.values.push_back(std::move(value));
      }
      before.outputs = projected;
      out_.cells.push_back(std::move(before));
    }
    cell.name = node.name;
    cell.reverse = scan.reverse;
    cell.graph = std::move(cells.step);
    for (int i : cells.step_inputs) cell.inputs.push_back(sequence(i));
    cell.inputs.insert(cell.inputs.end(), projected.begin(), projected.end());
    cell.outputs.assign(cell.graph->outputs.size(), -1);
    const auto add_state = [&](ValueId initial, ValueId last, int state) {
      const Value& input = cell.graph->values[cell.graph->inputs[cell.inputs.size()]];
      Shape row;
      for (int i = 1; i < input.shape.rank(); ++i) {
        if (!input.shape[i].known()) {
          return Unimplemented("{}: the size of a state is not known", node.Describe());
        }
        row.Append(input.shape[i].value());
      }
      return AddState(initial, last, cells.state_outputs[state], row, read, cell);
    };
    const auto output = [&](int i) {
      return i < static_cast<int>(node.outputs.size()) ? node.outputs[i] : kNoValue;
    };
    for (int i = 0; i < scan.states; ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(add_state(node.inputs[i], output(i), i));
    }
    for (size_t i = 0; i < cells.captures.size(); ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(
          add_state(node.inputs[cells.captures[i]], kNoValue, scan.states + static_cast<int>(i)));
    }
    for (size_t i = 0; i < cells.token_outputs.size(); ++i) {
      const ValueId id = output(scan.states + static_cast<int>(i));
      if (id == kNoValue || !read.contains(id)) continue;
      int& value = cell.outputs[cells.token_outputs[i]];
      if (value < 0) {
        value = AddValue(id);
      } else {
        // The same value again.
        cell.outputs.push_back(AddValue(id));
        cell.graph->outputs.push_back(cell.graph->outputs[cells.token_outputs[i]]);
      }
    }
    return absl::OkStatus();
  }

  // A length is defined by an input of the model, or else by the first value that has the sequence.
  Status FindLengths() {
    for (size_t l = 0; l < out_.lengths.size(); ++l) {
      SequenceLength& length = out_.lengths[l];
      length.name = model_.axes.sequences[l].symbol;
      length.value = -1;
      const auto consider = [&](int value) {
        if (length.value < 0 && value >= 0 && out_.values[value].length == static_cast<int>(l)) {
          length.value = value;
        }
      };
      for (int value : out_.inputs) consider(value);
      for (const SlicedCell& cell : out_.cells) {
        if (cell.kind != SlicedCell::Kind::kLanes) continue;
        for (int value : cell.outputs) consider(value);
      }
      if (length.value < 0) return Unimplemented("nothing tells the length '{}'", length.name);
    }
    return absl::OkStatus();
  }

  // Named after the layer that the cell feeds, or the output that it computes.
  void NameCells() {
    std::map<std::string, int> taken;
    const auto take = [&taken](SlicedCell& cell) {
      const std::string base = cell.name;
      for (int& count = taken[base]; count++ > 0;) {
        cell.name = fmt::format("{}.{}", base, count);
        if (taken.try_emplace(cell.name, 1).second) break;
      }
    };
    std::map<int, const std::string*> layers;  // by the value that they read
    for (SlicedCell& cell : out_.cells) {
      if (cell.kind != SlicedCell::Kind::kRecurrent) continue;
      take(cell);
      layers.try_emplace(cell.inputs[0], &cell.name);
    }
    std::map<int, const std::string*> outputs;
    for (const SlicedOutput& output : out_.outputs) outputs[output.value] = &output.name;
    for (SlicedCell& cell : out_.cells) {
      if (cell.kind == SlicedCell::Kind::kRecurrent) continue;
      for (int value : cell.outputs) {
        if (!cell.name.empty()) break;
        if (const auto layer = layers.find(value); layer != layers.end()) {
          cell.name = *layer->second + ".input";
        } else if (const auto output = outputs.find(value); output != outputs.end()) {
          cell.name = *output->second + ".head";
        }
      }
      if (cell.name.empty()) {
        cell.name = cell.kind == SlicedCell::Kind::kTokens ? "tokens" : "lanes";
      }
      take(cell);
    }
  }

  const SlicedGraph model_;
  std::vector<int> index_;  // by value of the model
  SlicedModel out_;
};

}  // namespace

StatusOr<SlicedModel> SliceIntoCells(const Graph& graph, const SliceOptions& options) {
  Graph lowered = graph;
  std::vector<std::string> notes;
  CHAIRLIFT_RETURN_IF_ERROR(PrepareSlice(lowered, options, notes));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelAxes axes, FindAxes(lowered));
  const Links links(lowered);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Partition partition, MakePartition(lowered, axes, links));
  CHAIRLIFT_ASSIGN_OR_RETURN(SlicedModel model, Slicer({lowered, links, axes, partition}).Run());
  model.notes = std::move(notes);
  return model;
}

}  // namespace chairlift
