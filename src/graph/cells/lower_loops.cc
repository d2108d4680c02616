#include "graph/cells/lower_loops.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Inputs of a Loop and of its body before the states.
enum : int { kCount = 0, kCondition = 1, kStates = 2 };

bool IsTrue(const Value& value) {
  return value.is_constant() && value.dtype == DType::kBool && value.constant.size() == 1 &&
         value.constant.data<bool>()[0];
}

// The number of iterations of a loop, if it is a number or a named size.
std::optional<Dim> Count(const Value& value) {
  if (value.is_constant()) {
    if (value.dtype != DType::kInt64 || value.constant.size() != 1) return std::nullopt;
    const int64_t count = value.constant.data<int64_t>()[0];
    return count < 0 ? std::nullopt : std::optional<Dim>(count);
  }
  if (!value.elements || value.elements->size() != 1) return std::nullopt;
  return (*value.elements)[0];
}

class LoopLowering {
 public:
  LoopLowering(const Graph& graph, const Node& loop) : graph_(graph), loop_(loop) {}

  // The Scan; nothing if the loop cannot be one.
  StatusOr<std::optional<Node>> Run() && {
    const auto bodies = Subgraphs(loop_);
    if (bodies.size() != 1 || bodies[0].second == nullptr) return std::nullopt;
    body_ = *bodies[0].second;
    const int formals = body_.num_formal_inputs();
    if (formals < kStates || loop_.inputs.size() != body_.inputs.size() ||
        loop_.inputs[kCount] == kNoValue) {
      return std::nullopt;
    }
    const ValueId condition = loop_.inputs[kCondition];
    if (condition != kNoValue && !IsTrue(graph_.values[condition])) return std::nullopt;
    const std::optional<Dim> count = Count(graph_.values[loop_.inputs[kCount]]);
    if (!count) return std::nullopt;

    // While the loop runs, its condition is true.
    Value& inner = body_.values[body_.inputs[kCondition]];
    inner.constant = Tensor::Scalar<bool>(true);
    inner.shape = SymbolicShape::Scalar();
    std::vector<std::string> notes;
    CHAIRLIFT_RETURN_IF_ERROR(FoldConstants().run(body_, notes).status());
    if (!IsTrue(body_.values[body_.outputs[0]])) return std::nullopt;
    if (!TakeSequences(*count)) return std::nullopt;
    return Scan(formals);
  }

 private:
  // Replaces lookups by iteration number with inputs. False if there are none, or if the number is
  // used for anything else.
  bool TakeSequences(const Dim& count) {
    const ValueId step = body_.inputs[kCount];
    const Links links(body_);
    if (links.is_output(step)) return false;
    std::vector<bool> removed(body_.nodes.size(), false);
    for (int n : links.readers(step)) {
      const Node& node = body_.nodes[n];
      if (!Is(node, "Gather") || node.inputs[1] != step || node.inputs[0] == step) return false;
      const auto capture = std::find(body_.inputs.begin() + body_.num_formal_inputs(),
                                     body_.inputs.end(), node.inputs[0]);
      if (capture == body_.inputs.end()) return false;
      const ValueId outer = loop_.inputs[capture - body_.inputs.begin()];
      const SymbolicShape& shape = graph_.values[outer].shape;
      if (!shape.has_rank()) return false;
      int64_t axis = node.attributes.Int("axis", 0);
      if (axis < 0) axis += shape.rank();
      if (axis < 0 || axis >= shape.rank() || !shape[static_cast<int>(axis)].Same(count)) {
        return false;
      }
      removed[n] = true;
      const auto known = std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& s) {
        return s.outer == outer && s.axis == axis;
      });
      if (known == sequences_.end()) {
        sequences_.push_back({outer, axis, node.outputs[0]});
      } else {
        ReplaceReads(body_, node.outputs[0], known->element);
      }
    }
    RemoveNodes(body_, removed);
    return !sequences_.empty();
  }

  std::optional<Node> Scan(int formals) {
    Node scan;
    scan.name = loop_.name;
    scan.def = OperatorRegistry::Builtin().Find("", "Scan");
    scan.outputs = loop_.outputs;
    std::vector<ValueId> inputs;
    const auto pass = [&](ValueId outer, ValueId inner) {
      scan.inputs.push_back(outer);
      inputs.push_back(inner);
    };
    for (int i = kStates; i < formals; ++i) pass(loop_.inputs[i], body_.inputs[i]);
    std::vector<int64_t> axes;
    for (const Sequence& sequence : sequences_) {
      pass(sequence.outer, sequence.element);
      axes.push_back(sequence.axis);
    }
    const Links links(body_);
    int captures = 0;
    for (size_t i = formals; i < body_.inputs.size(); ++i) {
      if (links.Unused(body_.inputs[i])) continue;
      pass(loop_.inputs[i], body_.inputs[i]);
      ++captures;
    }
    body_.inputs = std::move(inputs);
    body_.num_captures = captures;
    body_.outputs.erase(body_.outputs.begin());
    scan.attributes.Set("num_scan_inputs", static_cast<int64_t>(sequences_.size()));
    scan.attributes.Set("scan_input_axes", std::move(axes));
    scan.attributes.Set("body", std::make_shared<const Graph>(std::move(body_)));
    return scan;
  }

  struct Sequence {
    ValueId outer;
    int64_t axis;
    ValueId element;  // in the body
  };

  const Graph& graph_;
  const Node& loop_;
  Graph body_;
  std::vector<Sequence> sequences_;
};

}  // namespace

StatusOr<int> LowerLoops(Graph& graph) {
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!Is(node, "Loop")) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::optional<Node> scan, LoopLowering(graph, node).Run());
    if (!scan) continue;
    node = *std::move(scan);
    ++count;
  }
  return count;
}

}  // namespace chairlift
