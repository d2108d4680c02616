#include "graph/cells/cell_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "graph/evaluate.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

using Kind = Piece::Kind;

constexpr int64_t kMaxUniformBytes = int64_t{64} << 20;

}  // namespace

CellBuilder::CellBuilder(const SlicedGraph& model, int cell)
    : model_(model),
      plan_(model.partition.cells[cell]),
      cell_(cell),
      writer_(*graph_, graph_->nodes, "") {}

const SequenceAxes* CellBuilder::Sequence(ValueId id) const {
  const int s = model_.partition.sequence[id];
  return s < 0 ? nullptr : &model_.axes.sequences[s];
}

bool CellBuilder::MadeHere(ValueId root) const {
  const int producer = model_.links.producer(root);
  return producer >= 0 && model_.partition.cell[producer] == cell_;
}

StatusOr<Form> CellBuilder::LocalForm(ValueId id) const {
  std::optional<Form> form = FormOf(model_.graph, model_.axes, Sequence(id), id);
  const std::string& name = model_.graph.values[id].name;
  if (!form) return Unimplemented("how the rows lie in '{}' cannot be followed", name);
  if (plan_.kind == SlicedCell::Kind::kLanes) return *std::move(form);
  for (auto& axis : *form) {
    std::erase_if(axis, [&](const Piece& piece) {
      return piece.kind != Kind::kNumber && piece.kind != carried_;
    });
    for (Piece& piece : axis) {
      if (piece.kind == carried_) piece.kind = Kind::kLanes;
    }
  }
  return *std::move(form);
}

Form CellBuilder::RowsFirst(ValueId root, const Form& form) const {
  Form rows = {{Piece{Kind::kLanes, {}}}};
  if (plan_.kind == SlicedCell::Kind::kLanes && model_.partition.sequence[root] >= 0) {
    rows.push_back({Piece{Kind::kTokens, {}}});
  }
  for (const Dim& dim : RowOf(form)) rows.push_back({Piece{Kind::kNumber, dim}});
  return rows;
}

// --- Contents of the cell ------------------------------------------------------------------------

bool CellBuilder::OnlyTokensEnter() const {
  for (int n : plan_.nodes) {
    for (ValueId id : model_.graph.nodes[n].inputs) {
      if (id != kNoValue && model_.axes.real[id] && model_.partition.sequence[id] < 0) return false;
    }
  }
  return true;
}

// How many transposes move rows to the front or back, if rows are of this kind.
int CellBuilder::TransposesIfCarried(Kind kind) const {
  int count = 0;
  const auto add = [&](ValueId id) {
    const auto form = FormOf(model_.graph, model_.axes, Sequence(id), id);
    if (form && AllKnown(RowOf(*form)) && CountBefore(*form, kind) > 1) ++count;
  };
  for (int n : plan_.nodes) {
    const Node& node = model_.graph.nodes[n];
    for (ValueId id : node.inputs) {
      if (id == kNoValue || !model_.axes.real[id]) continue;
      const ValueId root = model_.partition.root[id];
      if (!MadeHere(root) || root != id) add(id);
    }
    for (ValueId id : node.outputs) {
      if (id != kNoValue) add(id);
    }
  }
  return count;
}

// Views made from the rows of their root. Others are copied, node by node.
bool CellBuilder::IsConverted(ValueId id) const {
  if (model_.partition.sequence[id] >= 0) return true;
  const auto form = FormOf(model_.graph, model_.axes, nullptr, id);
  return form && AllKnown(RowOf(*form));
}

Status CellBuilder::CollectNodes() {
  std::vector<int> open(plan_.nodes.begin(), plan_.nodes.end());
  nodes_.insert(open.begin(), open.end());
  while (!open.empty()) {
    const Node& node = model_.graph.nodes[open.back()];
    open.pop_back();
    for (ValueId id : node.inputs) {
      if (id == kNoValue || model_.graph.values[id].is_constant()) continue;
      const int producer = model_.links.producer(id);
      bool copied = false;
      if (!model_.axes.real[id]) {
        copied = !LocalSizes(id).has_value();
      } else {
        const ValueId root = model_.partition.root[id];
        if (!MadeHere(root)) AddInput(root);
        copied = id != root && !IsConverted(id);
      }
      if (!copied) continue;
      if (producer < 0) return Internal("nothing gives '{}'", model_.graph.values[id].name);
      if (nodes_.insert(producer).second) open.push_back(producer);
    }
  }
  return absl::OkStatus();
}

void CellBuilder::AddInput(ValueId root) {
  if (first_rows_.try_emplace(root, kNoValue).second) inputs_.push_back(root);
}

// --- Values --------------------------------------------------------------------------------------

std::optional<std::vector<LocalSize>> CellBuilder::LocalSizes(ValueId id) const {
  const Value& value = model_.graph.values[id];
  if ((value.dtype != DType::kInt64 && value.dtype != DType::kInt32) || !value.shape.has_rank() ||
      value.shape.rank() > 1) {
    return std::nullopt;
  }
  const bool tokens = plan_.kind == SlicedCell::Kind::kTokens;
  const std::string& lanes_symbol = model_.axes.batch_symbol;
  const std::string steps_symbol = tokens ? model_.axes.sequences[plan_.sequence].symbol : "";
  // `elements` as multiples of the batch, or otherwise of the steps.
  const auto local = [&](const std::optional<analysis::Dims>& elements,
                         bool of_lanes) -> std::optional<std::vector<LocalSize>> {
    if (!elements) return std::nullopt;
    std::vector<LocalSize> sizes;
    for (const analysis::Line& e : *elements) {
      const std::string& other = of_lanes ? steps_symbol : lanes_symbol;
      if (!e.times() || e.has_others({analysis::Size::kBatch, other})) return std::nullopt;
      const int lanes = of_lanes ? e.batch() : e.power(other);
      const int steps = of_lanes ? e.power(other) : e.batch();
      if (!tokens && steps > 0) return std::nullopt;
      const int power = CarriesLanes() ? lanes : steps;
      if (power > 1) return std::nullopt;
      sizes.push_back({*e.times(), power});
    }
    return sizes;
  };
  auto sizes = local(model_.axes.batch[id].elements, true);
  if (!sizes && tokens) {
    sizes = local(model_.axes.sequences[plan_.sequence].states[id].elements, false);
  }
  return sizes;
}

StatusOr<ValueId> CellBuilder::MakeSizes(ValueId id, const std::vector<LocalSize>& sizes) {
  const Value& value = model_.graph.values[id];
  std::vector<ValueId> parts;
  std::vector<int64_t> numbers;
  const auto flush = [&] {
    if (!numbers.empty()) parts.push_back(writer_.Ints(numbers));
    numbers.clear();
  };
  for (const LocalSize& size : sizes) {
    if (size.power == 0) {
      numbers.push_back(size.number);
      continue;
    }
    if (inputs_.empty()) {
      return Unimplemented("'{}' depends on the batch size where no rows are at hand", value.name);
    }
    flush();
    Attributes attributes;
    attributes.Set("start", int64_t{0});
    attributes.Set("end", int64_t{1});
    ValueId rows = writer_.Op("Shape", {first_rows_.at(inputs_[0])}, std::move(attributes));
    if (size.number != 1) rows = writer_.Op("Mul", {rows, writer_.Ints({size.number})});
    parts.push_back(rows);
  }
  flush();
  ValueId made = parts.size() == 1 ? parts[0]
                 : parts.empty()   ? writer_.Ints({})
                                   : writer_.Concat(std::move(parts), 0);
  if (value.dtype == DType::kInt32) {
    Attributes attributes;
    attributes.Set("to", int64_t{6});  // onnx::TensorProto::INT32
    made = writer_.Op("Cast", {made}, std::move(attributes));
  }
  return value.shape.rank() == 0 ? writer_.Squeeze(made, 0) : made;
}

StatusOr<ValueId> CellBuilder::FirstRows(ValueId root) {
  if (const auto it = first_rows_.find(root); it != first_rows_.end()) return it->second;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, LocalForm(root));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId id,
                             ConvertForm(writer_, made_.at(root), form, RowsFirst(root, form)));
  first_rows_[root] = id;
  return id;
}

StatusOr<ValueId> CellBuilder::Get(ValueId id) {
  if (const auto it = made_.find(id); it != made_.end()) return it->second;
  const Value& value = model_.graph.values[id];
  ValueId made = kNoValue;
  if (value.is_constant()) {
    made = writer_.Constant(value.constant);
  } else if (!model_.axes.real[id]) {
    CHAIRLIFT_ASSIGN_OR_RETURN(made, MakeSizes(id, *LocalSizes(id)));
  } else {
    const ValueId root = model_.partition.root[id];
    CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId rows, FirstRows(root));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Form from, LocalForm(root));
    CHAIRLIFT_ASSIGN_OR_RETURN(const Form to, LocalForm(id));
    CHAIRLIFT_ASSIGN_OR_RETURN(made, ConvertForm(writer_, rows, RowsFirst(root, from), to));
  }
  made_[id] = made;
  return made;
}

// --- The whole graph -----------------------------------------------------------------------------

Status CellBuilder::Build() {
  if (plan_.kind == SlicedCell::Kind::kTokens && OnlyTokensEnter() &&
      TransposesIfCarried(Kind::kTokens) < TransposesIfCarried(Kind::kLanes)) {
    carried_ = Kind::kTokens;
  }
  CHAIRLIFT_RETURN_IF_ERROR(CollectNodes());
  for (ValueId root : inputs_) {
    const Value& value = model_.graph.values[root];
    CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, LocalForm(root));
    std::vector<Dim> dims;
    for (const auto& axis : RowsFirst(root, form)) {
      const Piece& piece = axis[0];
      dims.push_back(piece.kind == Kind::kNumber  ? piece.number
                     : piece.kind == Kind::kLanes ? Dim::Symbol("rows")
                                                  : Dim::Symbol(Sequence(root)->symbol));
    }
    const ValueId id = graph_->AddValue(
        {.name = value.name, .dtype = value.dtype, .shape = SymbolicShape(std::move(dims))});
    graph_->inputs.push_back(id);
    first_rows_[root] = id;
  }
  for (int n : nodes_) {
    const Node& node = model_.graph.nodes[n];
    Node copy = node;
    for (ValueId& id : copy.inputs) {
      if (id == kNoValue) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(id, Get(id));
    }
    for (ValueId& id : copy.outputs) {
      if (id == kNoValue) continue;
      const ValueId made = graph_->AddValue({.name = model_.graph.values[id].name});
      made_[id] = made;
      id = made;
    }
    graph_->nodes.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

Status CellBuilder::AddOutput(ValueId root) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId id, FirstRows(root));
  graph_->outputs.push_back(id);
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<Graph>> CellBuilder::Finish() && {
  CHAIRLIFT_RETURN_IF_ERROR(Verify(*graph_));
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(*graph_));
  return std::move(graph_);
}

StatusOr<Tensor> UniformRow(const SlicedGraph& model, ValueId id) {
  const Graph& graph = model.graph;
  // A size for a batch of one.
  const auto size = [&](ValueId v) -> std::optional<Tensor> {
    const Value& value = graph.values[v];
    const auto& elements = model.axes.batch[v].elements;
    if (!elements || !value.shape.has_rank() || value.shape.rank() > 1) return std::nullopt;
    std::vector<int64_t> numbers;
    for (const analysis::Line& e : *elements) {
      if (!e.times() || e.has_others({analysis::Size::kBatch})) return std::nullopt;
      numbers.push_back(*e.times());
    }
    const Shape shape =
        value.shape.rank() == 0 ? Shape{} : Shape{static_cast<int64_t>(numbers.size())};
    if (value.dtype == DType::kInt64) return Tensor::Of<int64_t>(shape, std::span(numbers));
    if (value.dtype != DType::kInt32) return std::nullopt;
    const std::vector<int32_t> narrow(numbers.begin(), numbers.end());
    return Tensor::Of<int32_t>(shape, std::span(narrow));
  };
  std::map<ValueId, Tensor> known;
  std::set<int> nodes;
  std::vector<ValueId> open = {id};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue || known.contains(v)) continue;
    const Value& value = graph.values[v];
    if (value.is_constant()) {
      known[v] = value.constant;
    } else if (auto numbers = size(v)) {
      known[v] = *std::move(numbers);
    } else {
      const int producer = model.links.producer(v);
      if (producer < 0 || model.axes.real[v] || graph.nodes[producer].def->runs_bodies) {
        return Unimplemented("'{}' is not the same for all requests", graph.values[id].name);
      }
      if (!nodes.insert(producer).second) continue;
      const Node& node = graph.nodes[producer];
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }
  WeightCache weights;
  SoloTeam team;
  for (int n : nodes) {
    const Node& node = graph.nodes[n];
    std::vector<Tensor> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? Tensor() : known.at(v));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                               EvaluateNode(node, inputs, weights, team, 0, kMaxUniformBytes));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) known[node.outputs[i]] = outputs[i];
    }
  }
  return known.at(id);
}

}  // namespace chairlift
