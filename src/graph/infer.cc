// Runs shape rules over a graph.
#include "graph/infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/evaluate.h"

namespace chairlift {
namespace {

// The product of the known dimensions must fit a tensor: rules multiply them.
Status CheckSize(DType dtype, const SymbolicShape& shape, const std::string& what) {
  if (!shape.has_rank()) return absl::OkStatus();
  if (shape.rank() > kMaxGraphRank) {
    return InvalidArgument("{} has {} dimensions, more than the limit of {}", what, shape.rank(),
                           kMaxGraphRank);
  }
  Shape known;
  for (const Dim& d : shape.dims()) {
    if (d.known()) known.Append(d.value());
  }
  const auto checked = known.Checked(DTypeSize(dtype));
  if (!checked.ok()) return Annotate(checked.status(), what);
  return absl::OkStatus();
}

// The rule's result takes precedence: output shapes declared in files are often stale.
SymbolicShape Merge(const SymbolicShape& computed, const SymbolicShape& stored) {
  if (!computed.has_rank()) return stored;
  if (!stored.has_rank() || stored.rank() != computed.rank()) return computed;
  std::vector<Dim> dims;
  for (int i = 0; i < computed.rank(); ++i) {
    const bool inferred = computed[i].known() || computed[i].is_symbol();
    dims.push_back(inferred ? computed[i] : stored[i]);
  }
  return SymbolicShape(std::move(dims));
}

// A symbol for the unknown dimension `axis` of a value. It is short even if the value's name is
// long.
std::string OwnSymbol(const std::string& name, int axis) {
  constexpr size_t kLong = 64;
  if (name.size() <= kLong) return fmt::format("{}.{}", name, axis);
  return fmt::format("{}~{:x}.{}", name.substr(0, kLong), std::hash<std::string>()(name), axis);
}

// The memory of a copy of `info`.
size_t Bytes(const ValueInfo& info) {
  size_t bytes = sizeof(ValueInfo);
  const auto add = [&](const std::vector<Dim>& dims) {
    for (const Dim& d : dims) bytes += sizeof(Dim) + d.symbol().size();
  };
  if (info.shape.has_rank()) add(info.shape.dims());
  if (info.elements) add(*info.elements);
  return bytes;
}

// Larger values than shapes, paddings and the like are not computed here.
constexpr size_t kMaxComputedBytes = 1024;

// The input's value if it is small and does not vary with the request; else not present.
Tensor SmallValue(const ValueInfo& info) {
  if (info.value != nullptr) {
    return info.value->byte_size() <= kMaxComputedBytes ? *info.value : Tensor();
  }
  if (!info.elements || info.dtype != DType::kInt64 || !info.shape.concrete()) return {};
  const Shape shape = info.shape.ToShape();
  if (shape.rank() > 1 || shape.NumElements() != static_cast<int64_t>(info.elements->size())) {
    return {};
  }
  Tensor t = Tensor::Allocate(info.dtype, shape);
  for (size_t i = 0; i < info.elements->size(); ++i) {
    const Dim& element = (*info.elements)[i];
    if (!element.known()) return {};
    t.data<int64_t>()[i] = element.value();
  }
  return t;
}

// Arithmetic without a shape rule: if all inputs of a node have known values, so have its outputs.
// A node that fails here also fails when it runs.
void ComputeElements(Graph& graph, const Node& node, const std::vector<ValueInfo>& infos,
                     std::map<ValueId, Tensor>& computed) {
  if (!node.def->deterministic || node.inputs.empty()) return;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < infos.size(); ++i) {
    inputs.push_back(node.inputs[i] == kNoValue ? Tensor() : SmallValue(infos[i]));
    if (node.inputs[i] != kNoValue && !inputs.back().present()) return;
  }
  WeightCache weights;
  SoloTeam team;
  auto outputs = EvaluateNode(node, inputs, weights, team, 0, kMaxComputedBytes);
  if (!outputs.ok()) return;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    Value& value = graph.values[node.outputs[i]];
    Tensor& result = (*outputs)[i];
    value.shape = SymbolicShape(result.shape());
    if (!value.elements && value.dtype == DType::kInt64 && result.shape().rank() <= 1) {
      const auto numbers = result.values<int64_t>();
      if (std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n >= 0; })) {
        value.elements.emplace(numbers.begin(), numbers.end());
      }
    }
    computed[node.outputs[i]] = std::move(result);
  }
}

}  // namespace

SymbolicShape Generalise(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return {};
  std::vector<Dim> dims;
  dims.reserve(static_cast<size_t>(a.rank()));
  for (int i = 0; i < a.rank(); ++i) dims.push_back(a[i].Same(b[i]) ? a[i] : Dim::Unknown());
  return SymbolicShape(std::move(dims));
}

Status StoreInfo(Value& value, const ValueInfo& info, const std::string& what) {
  if (info.dtype == DType::kUndefined) return Internal("{}: no element type was inferred", what);
  if (value.dtype != DType::kUndefined && value.dtype != info.dtype) {
    return InvalidArgument("{} is declared {} but is computed as {}", what, DTypeName(value.dtype),
                           DTypeName(info.dtype));
  }
  SymbolicShape shape = Merge(info.shape, value.shape);
  CHAIRLIFT_RETURN_IF_ERROR(CheckSize(info.dtype, shape, what));
  for (int i = 0; shape.has_rank() && i < shape.rank(); ++i) {
    if (!shape[i].known() && !shape[i].is_symbol()) {
      shape[i] = Dim::Symbol(OwnSymbol(value.name, i));
    }
  }
  value.dtype = info.dtype;
  value.shape = std::move(shape);
  value.elements = info.elements;
  if (value.elements && value.elements->size() > kMaxElements) value.elements.reset();
  return absl::OkStatus();
}

Status InferNode(Graph& graph, Node& node, InferBudget& budget) {
  if (--budget.nodes_left < 0) {
    return ResourceExhausted("{}: shape inference takes too long (nested sub-graphs)",
                             node.Describe());
  }
  const OperatorDef& def = *node.def;
  std::vector<ValueInfo> infos;
  infos.reserve(node.inputs.size());
  size_t bytes = 0;
  for (const ValueId id : node.inputs) {
    if (id == kNoValue) {
      infos.emplace_back();
      continue;
    }
    const Value& value = graph.values[id];
    if (value.dtype == DType::kUndefined) {
      return InvalidArgument("{}: the element type of input '{}' is not known", node.Describe(),
                             value.name);
    }
    if (const size_t i = infos.size(); !def.input_types.empty()) {
      const TypeSet& types = def.input_types[std::min(i, def.input_types.size() - 1)];
      if (!types.Contains(value.dtype)) {
        return InvalidArgument("{}: input {} '{}' is {}, but the operator takes {}",
                               node.Describe(), i, value.name, DTypeName(value.dtype),
                               types.ToString());
      }
    }
    infos.push_back(value.info());
    if (infos.back().value == nullptr && budget.computed != nullptr) {
      const auto computed = budget.computed->find(id);
      if (computed != budget.computed->end()) infos.back().value = &computed->second;
    }
    bytes += Bytes(infos.back());
    if (bytes > kMaxInfoBytes) {
      return ResourceExhausted("{} has too many inputs: {}", node.Describe(), node.inputs.size());
    }
  }
  if (node.def->runs_bodies || !Subgraphs(node).empty()) {
    return InferControlNode(graph, node, budget);
  }

  InferContext context(node.attributes, infos, static_cast<int>(node.outputs.size()));
  CHAIRLIFT_RETURN_IF_ERROR(Annotate(def.infer(context), node.Describe()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    Value& value = graph.values[node.outputs[i]];
    CHAIRLIFT_RETURN_IF_ERROR(StoreInfo(
        value, context.outputs()[i], fmt::format("{}: output '{}'", node.Describe(), value.name)));
  }
  if (budget.computed != nullptr) ComputeElements(graph, node, infos, *budget.computed);
  return absl::OkStatus();
}

Status InferNodes(Graph& graph, InferBudget& budget) {
  std::map<ValueId, Tensor> computed;
  std::map<ValueId, Tensor>* const outer = std::exchange(budget.computed, &computed);
  Status status;
  for (Node& node : graph.nodes) {
    status = InferNode(graph, node, budget);
    if (!status.ok()) break;
  }
  budget.computed = outer;
  return status;
}

Status InferShapes(Graph& graph) {
  for (const ValueId id : graph.inputs) {
    Value& value = graph.values[id];
    CHAIRLIFT_RETURN_IF_ERROR(StoreInfo(value, {value.dtype, value.shape, nullptr, value.elements},
                                        fmt::format("graph input '{}'", value.name)));
  }
  InferBudget budget;
  budget.nodes_left += 16 * static_cast<int64_t>(graph.nodes.size());
  return InferNodes(graph, budget);
}

}  // namespace chairlift
