#include "graph/passes/lower_attention.h"

#include <cmath>
#include <limits>
#include <utility>

#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

using Ints = std::vector<int64_t>;

class AttentionLowering {
 public:
  // `decoder`: nodes may have a past, and their masks a column for each key.
  AttentionLowering(Graph& graph, bool decoder) : graph_(graph), decoder_(decoder) {}

  // Why the node is left unchanged; empty if it can be lowered.
  std::string Problem(const Node& node) const {
    const bool past = HasPast(node);
    if (Has(node.inputs, 6) || (past && !decoder_)) return "it has a cache";
    for (size_t i = past ? 3 : 1; i < node.outputs.size(); ++i) {
      if (Has(node.outputs, i)) return "more than its result is asked for";
    }
    for (const char* window : {"left_window_size", "right_window_size"}) {
      if (node.attributes.Int(window, -1) >= 0) return "it sees a window";
    }
    if (node.attributes.Int("softmax_precision", 1) == 11) return "it computes in float64";
    const int rank = Shape(node, 0).has_rank() ? Shape(node, 0).rank() : 0;
    for (size_t i = 0; i < 3; ++i) {
      const SymbolicShape& shape = Shape(node, i);
      if (graph_.values[node.inputs[i]].dtype != DType::kFloat || !shape.has_rank() ||
          shape.rank() != rank || !shape[rank - 1].known()) {
        return fmt::format("its input {} is {} {}, taken is float32 of known columns", i,
                           DTypeName(graph_.values[node.inputs[i]].dtype), shape.ToString());
      }
    }
    if (past) return CacheProblem(node);
    if (decoder_ || Mask(node) == kNoValue) return {};
    const SymbolicShape& mask = graph_.values[Mask(node)].shape;
    const Dim& keys = Shape(node, 1)[rank - 2];
    if (!mask.has_rank() || mask.rank() == 0 || !mask[mask.rank() - 1].Same(keys)) {
      return fmt::format("its mask {} is not known to have a column for each of {} keys",
                         mask.ToString(), keys.ToString());
    }
    return {};
  }

  static bool HasPast(const Node& node) { return Has(node.inputs, 4); }

  void Lower(Node node) {
    const bool packed = Shape(node, 0).rank() == 3, past = HasPast(node);
    const int64_t heads = node.attributes.Int("q_num_heads", 1);
    const int64_t kv_heads = node.attributes.Int("kv_num_heads", 1);
    Node made;
    made.name = node.name;
    made.def = OperatorRegistry::Builtin().Find("chairlift", "Attention");
    for (size_t i = 0; i < 3; ++i) {
      const ValueId id = node.inputs[i];
      made.inputs.push_back(packed ? Heads(node.name, id, i == 0 ? heads : kv_heads) : id);
    }
    const std::vector<Dim> q = Dims(made.inputs[0]), v = Dims(made.inputs[2]);
    for (size_t i = 1; past && i < 3; ++i) {
      made.inputs[i] = Joined(node, i, packed ? ByHead(node.name, made.inputs[i]) : made.inputs[i]);
    }
    const double columns = static_cast<double>(q[3].value());
    const auto scale = static_cast<float>(columns == 0 ? 1 : 1 / std::sqrt(columns));
    made.attributes.Set("scale", node.attributes.Float("scale", scale));
    made.attributes.Set("softcap", node.attributes.Float("softcap", 0.0f));
    const bool causal = node.attributes.Int("is_causal", 0) != 0;
    made.attributes.Set("causal", int64_t{!causal ? 0 : past ? 2 : 1});
    made.attributes.Set("zeros_for_none", int64_t{1});
    made.attributes.Set("grouped", int64_t{1});
    if (Mask(node) != kNoValue) {
      made.inputs.push_back(Added(node.name, Mask(node)));
      if (decoder_) made.attributes.Set("mask_columns", int64_t{1});
    }
    made.outputs = {node.outputs[0]};
    if (packed) {
      for (const char* axes : {"q_axes", "k_axes", "v_axes", "y_axes"}) {
        const bool joined = past && (axes[0] == 'k' || axes[0] == 'v');
        if (!joined) made.attributes.Set(axes, Ints{0, 2, 1, 3});
      }
      const SymbolicShape y({q[0], q[1], q[2], v[3]});
      made.outputs = {NewValue(node.name + "/heads", y)};
      Emit(node.name + "/join", "Reshape",
           {made.outputs[0], Constant(node.name, {0, 0, heads * v[3].value()})}, node.outputs[0]);
    }
    new_.push_back(std::move(made));
  }

  std::vector<Node> TakeNew() { return std::move(new_); }

 private:
  static bool Has(const std::vector<ValueId>& ids, size_t i) {
    return i < ids.size() && ids[i] != kNoValue;
  }

  std::string CacheProblem(const Node& node) const {
    const int rank = Shape(node, 0).rank();
    if (node.attributes.Int("is_causal", 0) != 0 &&
        !Shape(node, 0)[rank - 2].Same(Shape(node, 1)[rank - 2])) {
      return "it is causal, and not known to have a new key for each query";
    }
    for (const size_t i : {4, 5}) {
      if (!Has(node.inputs, i) || !Shape(node, i).has_rank() || Shape(node, i).rank() != 4) {
        return "its past is not [batch, heads, past, columns]";
      }
    }
    return {};
  }

  const SymbolicShape& Shape(const Node& node, size_t i) const {
    return graph_.values[node.inputs[i]].shape;
  }
  // A copy: adding values moves them.
  std::vector<Dim> Dims(ValueId id) const { return graph_.values[id].shape.dims(); }
  static ValueId Mask(const Node& node) {
    return node.inputs.size() > 3 ? node.inputs[3] : kNoValue;
  }
  ValueId NewValue(const std::string& name, SymbolicShape shape) {
    return graph_.AddValue({.name = name, .dtype = DType::kFloat, .shape = std::move(shape)});
  }
  ValueId Constant(const std::string& name, const Ints& values) {
    return AddIntegers(graph_, name + "/shape", values);
  }
  void Emit(const std::string& name, const char* op, std::vector<ValueId> inputs, ValueId output) {
    new_.push_back(
        {name, OperatorRegistry::Builtin().Find("", op), {}, std::move(inputs), {output}});
  }

  // [batch, rows, heads · columns] as [batch, rows, heads, columns].
  ValueId Heads(const std::string& name, ValueId id, int64_t heads) {
    const std::vector<Dim> from = Dims(id);
    const int64_t columns = from[2].value() / heads;
    const ValueId out =
        NewValue(name + "/split", SymbolicShape({from[0], from[1], Dim(heads), Dim(columns)}));
    Emit(name + "/split", "Reshape", {id, Constant(name, {0, 0, heads, columns})}, out);
    return out;
  }

  // [batch, rows, heads, columns] as [batch, heads, rows, columns].
  ValueId ByHead(const std::string& name, ValueId id) {
    const std::vector<Dim> from = Dims(id);
    const ValueId out =
        NewValue(name + "/by_head", SymbolicShape({from[0], from[2], from[1], from[3]}));
    Emit(name + "/by_head", "Transpose", {id}, out);
    new_.back().attributes.Set("perm", Ints{0, 2, 1, 3});
    return out;
  }
  // Operand i appended to its past, as the node outputs it.
  ValueId Joined(const Node& node, size_t i, ValueId added) {
    const std::vector<Dim> from = Dims(added);
    const std::string name = fmt::format("{}/present{}", node.name, i);
    const ValueId out =
        Has(node.outputs, i)
            ? node.outputs[i]
            : NewValue(name, SymbolicShape({from[0], from[1], Dim::Unknown(), from[3]}));
    Emit(name, "Concat", {node.inputs[i + 3], added}, out);
    new_.back().attributes.Set("axis", int64_t{2});
    return out;
  }

  // A mask as a value to add to scores.
  ValueId Added(const std::string& name, ValueId mask) {
    if (graph_.values[mask].dtype != DType::kBool) return mask;
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    const auto scalar = [&](float value) {
      return AddConstant(graph_, name + "/mask", Tensor::Scalar(value));
    };
    const ValueId out = NewValue(name + "/mask", SymbolicShape(Dims(mask)));
    Emit(name + "/mask", "Where", {mask, scalar(0.0f), scalar(kNone)}, out);
    return out;
  }

  Graph& graph_;
  const bool decoder_;
  std::vector<Node> new_;
};

int LowerAll(Graph& graph, std::vector<std::string>& notes, bool decoder) {
  AttentionLowering lowering(graph, decoder);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!Is(graph.nodes[n], "Attention")) continue;
    if (std::string why = lowering.Problem(graph.nodes[n]); !why.empty()) {
      notes.push_back(graph.nodes[n].Describe() + ": " + why);
      continue;
    }
    lowering.Lower(graph.nodes[n]);
    removed[n] = true;
    ++count;
  }
  if (count == 0) return 0;
  RemoveNodes(graph, removed);
  for (Node& node : lowering.TakeNew()) graph.nodes.push_back(std::move(node));
  SortNodes(graph);
  return count;
}

}  // namespace

int LowerAttention(Graph& graph, std::vector<std::string>& notes) {
  return LowerAll(graph, notes, false);
}

int LowerDecoderAttention(Graph& graph, std::vector<std::string>& notes) {
  return LowerAll(graph, notes, true);
}

}  // namespace chairlift
