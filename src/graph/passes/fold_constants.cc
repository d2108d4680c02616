// Replaces nodes whose results are known at load by constants.
#include <algorithm>

#include "graph/evaluate.h"
#include "graph/passes/keep_checks.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// A folded value may be at most this much larger than its inputs. Otherwise a small file could
// cause any memory use.
constexpr int64_t kMaxGrowth = 8;
constexpr int64_t kFreeBytes = 1 << 20;

void SetConstant(Value& value, Tensor t) {
  value.dtype = t.dtype();
  value.shape = SymbolicShape(t.shape());
  value.elements.reset();
  value.constant = std::move(t);
}

// The shape rules know all elements of some values whose inputs are not constant (Shape).
bool KnowsElements(const Value& value) {
  if (!value.elements || !value.shape.concrete() || value.shape.rank() > 1) return false;
  const auto& elements = *value.elements;
  return value.shape.ToShape().NumElements() == static_cast<int64_t>(elements.size()) &&
         std::all_of(elements.begin(), elements.end(), [](const Dim& d) { return d.known(); }) &&
         (value.dtype == DType::kInt64 || value.dtype == DType::kInt32);
}

void SetFromElements(Value& value) {
  const Shape shape = value.shape.ToShape();
  const auto& elements = *value.elements;
  Tensor t = Tensor::Allocate(value.dtype, shape);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (value.dtype == DType::kInt64) {
      t.data<int64_t>()[i] = elements[i].value();
    } else {
      t.data<int32_t>()[i] = static_cast<int32_t>(elements[i].value());
    }
  }
  SetConstant(value, std::move(t));
}

// Finds nodes that become constants although their inputs are not, because the shape rules know
// their elements.
std::vector<Removal> KnownFromShapes(const Graph& graph) {
  std::vector<Removal> known(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    known[n].wanted = node.def->deterministic && !node.def->runs_bodies &&
                      std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
                        return id == kNoValue || KnowsElements(graph.values[id]);
                      });
  }
  KeepChecks(graph, known);
  return known;
}

StatusOr<int> RunFoldConstants(Graph& graph, std::vector<std::string>& notes) {
  std::vector<bool> removed(graph.nodes.size(), false);
  const std::vector<Removal> known_from_shapes = KnownFromShapes(graph);
  WeightCache weights;
  SoloTeam team;
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!node.def->deterministic || node.def->runs_bodies) continue;
    bool constant = true;
    int64_t input_bytes = 0;
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) {
      inputs.push_back(id == kNoValue ? Tensor() : graph.values[id].constant);
      constant = constant && (id == kNoValue || inputs.back().present());
      input_bytes += static_cast<int64_t>(inputs.back().byte_size());
    }
    if (constant) {
      auto outputs =
          EvaluateNode(node, inputs, weights, team, 0, kMaxGrowth * input_bytes + kFreeBytes);
      if (!outputs.ok()) {
        notes.push_back(node.Describe() + " stays: " + Message(outputs.status()));
        continue;
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs[i] != kNoValue) {
          SetConstant(graph.values[node.outputs[i]], std::move((*outputs)[i]));
        }
      }
    } else if (known_from_shapes[n].wanted) {
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) SetFromElements(graph.values[id]);
      }
    } else {
      continue;
    }
    removed[n] = true;
    ++count;
  }
  RemoveNodes(graph, removed);
  return count;
}

}  // namespace

Pass FoldConstants() {
  return {"fold_constants", "compute at load what depends on constants alone", RunFoldConstants};
}

}  // namespace chairlift
