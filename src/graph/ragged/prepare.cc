#include "graph/ragged/prepare.h"

#include <set>
#include <string>

#include "graph/passes/passes.h"
#include "graph/ragged/dynamic_scales.h"
#include "graph/ragged/form.h"
#include "graph/ragged/quantized_attention.h"

namespace chairlift::ragged {
namespace {

// The common name of a dimension of several inputs.
class SharedDim {
 public:
  explicit SharedDim(const char* what) : what_(what) {}

  Status Join(const Value& input, const Dim& dim) {
    if (count_++ == 0) {
      first_ = dim;
      name_ = input.name;
      return absl::OkStatus();
    }
    if (dim.Same(first_)) return absl::OkStatus();
    return Unimplemented("inputs '{}' and '{}' are not known to share the {} ({} and {})", name_,
                         input.name, what_, first_.ToString(), dim.ToString());
  }
  int count() const { return count_; }

 private:
  const char* what_;
  int count_ = 0;
  Dim first_;
  std::string name_;
};

Status NameInputs(Graph& graph) {
  if (graph.num_captures > 0) return Unimplemented("it is a sub-graph");
  SharedDim batch("batch"), length("length");
  for (const ValueId id : graph.inputs) {
    Value& input = graph.values[static_cast<size_t>(id)];
    if (!input.shape.has_rank() || input.shape.rank() == 0) {
      return Unimplemented("input '{}' has no batch dimension", input.name);
    }
    if (input.shape[0].known()) {
      return Unimplemented("dimension 0 of input '{}' is fixed to {}", input.name,
                           input.shape[0].value());
    }
    CHAIRLIFT_RETURN_IF_ERROR(batch.Join(input, input.shape[0]));
    input.elements.reset();
    if (input.shape.rank() > 1 && !input.shape[1].known()) {
      if (input.shape[1].Same(input.shape[0])) {
        return Unimplemented("dimensions 0 and 1 of input '{}' are one", input.name);
      }
      CHAIRLIFT_RETURN_IF_ERROR(length.Join(input, input.shape[1]));
      input.shape[1] = Dim::Symbol(kLengthSymbol);
    }
    input.shape[0] = Dim::Symbol(kBatchSymbol);
    for (int axis = 1; axis < input.shape.rank(); ++axis) {
      if (!input.shape[axis].known() && !(axis == 1 && input.shape[1].symbol() == kLengthSymbol)) {
        return Unimplemented("dimension {} of input '{}' varies too", axis, input.name);
      }
    }
  }
  if (length.count() == 0) return Unimplemented("no input is [batch, length, ...]");
  return absl::OkStatus();
}

// Forgets all inferred shapes and infers them from the inputs alone.
Status InferAnew(Graph& graph) {
  std::vector<bool> input(graph.values.size(), false);
  for (const ValueId id : graph.inputs) input[static_cast<size_t>(id)] = true;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    Value& value = graph.values[i];
    if (input[i] || value.is_constant()) continue;
    value.shape = SymbolicShape();
    value.elements.reset();
  }
  return InferShapes(graph);
}

}  // namespace

StatusOr<std::vector<PassReport>> RunPreparingPasses(Graph& graph) {
  CHAIRLIFT_RETURN_IF_ERROR(InferAnew(graph));
  // Otherwise every rule would have to support the operators that later passes fuse.
  const std::set<std::string> kept = {
      RecogniseBlockwise().name,     FoldConstants().name,    ShareConstantsWithBodies().name,
      SelectConstantBranches().name, RemoveIdentities().name, RecogniseGelu().name,
      RecogniseLayerNorm().name,     FuseAttention().name,    RemoveDeadNodes().name};
  std::set<std::string> disabled;
  for (const Pass& pass : AllPasses()) {
    if (!kept.contains(pass.name)) disabled.insert(pass.name);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<PassReport> passes, RunPasses(graph, disabled));
  CHAIRLIFT_RETURN_IF_ERROR(InferAnew(graph));
  return passes;
}

StatusOr<Graph> Prepare(const Graph& graph, std::vector<PassReport>& passes) {
  Graph copy = graph;
  CHAIRLIFT_RETURN_IF_ERROR(NameInputs(copy));
  CHAIRLIFT_ASSIGN_OR_RETURN(passes, RunPreparingPasses(copy));
  CHAIRLIFT_RETURN_IF_ERROR(FuseQuantizedAttention(copy));
  SpreadDynamicScales(copy, "RaggedQuantize");
  return copy;
}

}  // namespace chairlift::ragged
