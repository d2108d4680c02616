// Fuses scale, mask, softmax and the two products around it to chairlift::Attention, together with
// the transposes of its operands (TurboTransformers §4.1). No matrix of queries by keys is stored.
//
//     softmax(scale · (q · kᵀ) + mask) · v      with q, k, v of rank 4
//
// Scores may be limited before the mask: c · tanh(scores / c), a softcap. The scale may be applied
// before the product, on one or both operands. The mask may be added, or written as
// Where(condition, very negative, scores), or both, in either order. Two masks may be added, for
// example a bias and a mask: their sum is computed first. Where(IsNaN(weights), 0, weights), which
// PyTorch writes for queries that attend to nothing, is kept. ONNX's own Attention becomes the same
// (lower_attention).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "graph/passes/lower_attention.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

using Axes = std::array<int64_t, 4>;
constexpr Axes kInOrder = {0, 1, 2, 3};

// An operand without its transposes: `axes` are the positions of its axes in `id`.
struct Operand {
  ValueId id = kNoValue;
  Axes axes = kInOrder;
  double scale = 1;
};

struct Mask {
  ValueId id = kNoValue;         // added
  ValueId second = kNoValue;     // added after that
  ValueId condition = kNoValue;  // if it is true (or false), the score is `fill`
  ValueId fill = kNoValue;
  bool fill_where_true = false;
  bool fill_last = false;  // applied after anything is added; else before
  double softcap = 0;      // limits scores by a tanh, before all that
};

class AttentionMatcher {
 public:
  AttentionMatcher(Graph& graph, const Links& links, std::vector<std::string>& notes)
      : graph_(graph), links_(links), notes_(notes) {}

  // Replaces the second product, with everything after the softmax `n`; false if it is not an
  // attention.
  bool Fuse(size_t n, const OperatorDef* def) {
    const Node softmax = graph_.nodes[n];
    const Value& scores = graph_.values[softmax.inputs[0]];
    const int64_t axis = softmax.attributes.Int("axis", -1);
    bool zeros_for_none = false;
    const int product = Product(softmax.outputs[0], zeros_for_none);
    const auto left = [&](const std::string& why) {
      notes_.push_back(softmax.Describe() + ": " + why);
      return false;
    };
    if (scores.dtype != DType::kFloat || !scores.shape.has_rank() || scores.shape.rank() != 4 ||
        (axis != -1 && axis != 3)) {
      return product >= 0 &&
             left(fmt::format("it runs along axis {} of {} {}; taken is the last of 4 "
                              "of float32",
                              axis, DTypeName(scores.dtype), scores.shape.ToString()));
    }
    Mask mask;
    double scale = 1;
    const Node* inner = Scores(softmax.inputs[0], static_cast<int>(n), mask, scale);
    if (product < 0) {
      return inner != nullptr && left("not one product with values alone reads its weights");
    }
    if (inner == nullptr)
      return left("what is before it is no product of queries and keys, scaled and masked");
    const Operand q = InRuns(inner->inputs[0]);
    const Operand k = Strip(inner->inputs[1]);
    const Operand v = InRuns(graph_.nodes[product].inputs[1]);
    // The rows of K are columns: it is multiplied transposed.
    const Axes k_axes = {k.axes[0], k.axes[1], k.axes[3], k.axes[2]};
    if (!Rank4(q.id) || !Rank4(k.id) || !Rank4(v.id)) return left("an operand is not of rank 4");
    if (v.scale != 1) return left("the values are scaled");
    const ValueId added = MaskValue(mask, softmax.name);

    Node& fused = graph_.nodes[product];
    ValueId out = fused.outputs[0];
    Axes y_axes = kInOrder;
    const int after = links_.SoleReader(out);
    if (after >= 0 && Is(graph_.nodes[after], "Transpose")) {
      const Axes perm = Permutation(graph_.nodes[after]);
      Axes inverse{};
      for (size_t i = 0; i < 4; ++i)
        inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
      if (inverse[3] == 3) {
        y_axes = inverse;
        out = graph_.nodes[after].outputs[0];
        replaced_.push_back(after);
      }
    }
    Attributes attributes;
    attributes.Set("scale", static_cast<float>(scale * q.scale * k.scale));
    const auto set = [&](const char* name, const Axes& axes) {
      if (axes != kInOrder) {
        attributes.Set(name, std::vector<int64_t>(axes.begin(), axes.end()));
      }
    };
    set("q_axes", q.axes);
    set("k_axes", k_axes);
    set("v_axes", v.axes);
    set("y_axes", y_axes);
    if (zeros_for_none) attributes.Set("zeros_for_none", int64_t{2});
    if (mask.softcap != 0) attributes.Set("softcap", static_cast<float>(mask.softcap));
    fused.def = def;
    fused.attributes = std::move(attributes);
    fused.inputs = {q.id, k.id, v.id};
    if (added != kNoValue) fused.inputs.push_back(added);
    fused.outputs = {out};
    return true;
  }

  // Nodes whose output another node now computes.
  const std::vector<int>& replaced() const { return replaced_; }
  // New nodes to add.
  std::vector<Node> TakeNew() { return std::move(new_); }

 private:
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }
  bool Rank4(ValueId id) const {
    const SymbolicShape& shape = graph_.values[id].shape;
    return shape.has_rank() && shape.rank() == 4;
  }

  // The product of the softmax's weights and the values; -1 if something else reads the weights.
  int Product(ValueId weights, bool& zeros_for_none) const {
    int reader = links_.SoleReader(weights);
    if (reader < 0 && !links_.is_output(weights) && links_.readers(weights).size() == 2) {
      // Where(IsNaN(weights), 0, weights)
      for (int is_nan : links_.readers(weights)) {
        if (!Is(graph_.nodes[is_nan], "IsNaN")) continue;
        const int where = links_.SoleReader(graph_.nodes[is_nan].outputs[0]);
        if (where < 0 || !Is(graph_.nodes[where], "Where")) continue;
        const Node& guard = graph_.nodes[where];
        if (guard.inputs[0] == graph_.nodes[is_nan].outputs[0] && guard.inputs[2] == weights &&
            ScalarInput(graph_, guard, 1) == 0.0) {
          zeros_for_none = true;
          weights = guard.outputs[0];
          reader = links_.SoleReader(weights);
        }
        break;
      }
    }
    if (reader < 0 || !Is(graph_.nodes[reader], "MatMul")) return -1;
    const Node& product = graph_.nodes[reader];
    return product.inputs[0] == weights && product.inputs[1] != weights ? reader : -1;
  }

  // The product of queries and keys whose scaled and masked result node `reader` reads as `id`.
  const Node* Scores(ValueId id, int reader, Mask& mask, double& scale) const {
    const int n = links_.producer(id);
    if (n < 0 || !ReadBy(id, reader)) return nullptr;
    const Node& node = graph_.nodes[n];
    if (Is(node, "MatMul")) return Rank4(id) ? &node : nullptr;
    if (Is(node, "Mul") || Is(node, "Div")) {
      const auto parts = SplitScalar(graph_, node);
      if (!parts || (Is(node, "Div") && parts->other != node.inputs[0])) return nullptr;
      if (const Node* found = Capped(node, *parts, n, mask, scale)) return found;
      const Node* found = Scores(parts->other, n, mask, scale);
      if (found == nullptr || HasMask(mask)) return nullptr;  // a scaled mask
      scale *= Is(node, "Mul") ? parts->scalar : 1 / parts->scalar;
      return found;
    }
    if (Is(node, "Add")) {
      for (size_t i = 0; i < 2; ++i) {
        Mask inside;
        double factor = scale;
        const Node* found = Scores(node.inputs[i], n, inside, factor);
        const ValueId other = node.inputs[1 - i];
        const bool full =
            inside.second != kNoValue || (inside.id != kNoValue && inside.condition != kNoValue);
        if (found == nullptr || full || !Broadcasts(other, id)) continue;
        mask = inside;
        (mask.id == kNoValue ? mask.id : mask.second) = Unexpanded(other);
        scale = factor;
        return found;
      }
      return nullptr;
    }
    if (Is(node, "Where")) {
      for (size_t i = 1; i < 3; ++i) {
        Mask inside;
        double factor = scale;
        const Node* found = Scores(node.inputs[i], n, inside, factor);
        const auto fill = ScalarInput(graph_, node, static_cast<int>(3 - i));
        // So negative that scores beside it no longer differ.
        if (found == nullptr || inside.condition != kNoValue || inside.second != kNoValue ||
            !fill || !(*fill < -1e30) || !Broadcasts(node.inputs[0], id)) {
          continue;
        }
        mask = inside;
        mask.fill_last = inside.id != kNoValue;
        mask.condition = Unexpanded(node.inputs[0]);
        mask.fill = node.inputs[3 - i];
        mask.fill_where_true = i == 2;
        scale = factor;
        return found;
      }
    }
    return nullptr;
  }

  // cap · tanh(scores / cap), by the node that multiplies.
  const Node* Capped(const Node& node, const ScalarAndOther& parts, int n, Mask& mask,
                     double& scale) const {
    const int tanh = links_.producer(parts.other);
    if (!Is(node, "Mul") || !(parts.scalar > 0) || tanh < 0 || !Is(graph_.nodes[tanh], "Tanh") ||
        !ReadBy(parts.other, n)) {
      return nullptr;
    }
    Mask inside;
    double factor = 1;
    const Node* found = Scores(graph_.nodes[tanh].inputs[0], tanh, inside, factor);
    if (found == nullptr || HasMask(inside)) return nullptr;
    scale *= factor * parts.scalar;
    mask.softcap = parts.scalar;
    return found;
  }

  // Whether only this node reads the value (its shape may have other readers).
  bool ReadBy(ValueId id, int reader) const {
    const std::vector<int>& readers = links_.readers(id);
    return !links_.is_output(id) && std::all_of(readers.begin(), readers.end(), [&](int n) {
      return n == reader || graph_.nodes[n].def->gives_sizes;
    });
  }

  // A mask before it was expanded to the scores.
  ValueId Unexpanded(ValueId id) const {
    const Node* node = Producer(id);
    return node != nullptr && Is(*node, "Expand") ? node->inputs[0] : id;
  }

  static bool HasMask(const Mask& mask) {
    return mask.id != kNoValue || mask.condition != kNoValue || mask.softcap != 0;
  }

  // Whether `id` is a float or a condition that does not widen `scores`, as far as shapes are
  // known.
  bool Broadcasts(ValueId id, ValueId scores) const {
    const Value& value = graph_.values[id];
    const SymbolicShape& to = graph_.values[scores].shape;
    if ((value.dtype != DType::kFloat && value.dtype != DType::kBool) || !value.shape.has_rank() ||
        value.shape.rank() > 4) {
      return false;
    }
    for (int i = 0; i < value.shape.rank(); ++i) {
      const Dim& dim = value.shape[i];
      const Dim& wide = to[4 - value.shape.rank() + i];
      if (dim.known() && dim.value() != 1 && (!wide.known() || wide.value() != dim.value())) {
        return false;
      }
    }
    return true;
  }

  // The value to add to the scores; kNoValue: nothing.
  ValueId MaskValue(const Mask& mask, const std::string& name) {
    if (mask.second != kNoValue) return Sum(mask.id, mask.second, name + "/masks");
    if (mask.condition == kNoValue) return mask.id;
    const ValueId shown =
        mask.fill_last ? mask.id
                       : AddConstant(graph_, name + "/zero", Tensor::Of<float>(Shape{}, {0.0f}));
    Value added{.name = name + "/mask", .dtype = DType::kFloat};
    if (!mask.fill_last) added.shape = graph_.values[mask.condition].shape;
    const ValueId where = graph_.AddValue(std::move(added));
    new_.push_back({name + "/mask",
                    OperatorRegistry::Builtin().Find("", "Where"),
                    {},
                    {mask.condition, mask.fill_where_true ? mask.fill : shown,
                     mask.fill_where_true ? shown : mask.fill},
                    {where}});
    if (mask.fill_last || mask.id == kNoValue) return where;
    return Sum(where, mask.id, name + "/masks");
  }

  ValueId Sum(ValueId a, ValueId b, const std::string& name) {
    const ValueId both = graph_.AddValue({.name = name, .dtype = DType::kFloat});
    new_.push_back({name, OperatorRegistry::Builtin().Find("", "Add"), {}, {a, b}, {both}});
    return both;
  }

  static Axes Permutation(const Node& transpose) {
    const std::vector<int64_t> perm = transpose.attributes.Ints("perm", {3, 2, 1, 0});
    Axes axes{};
    std::copy_n(perm.begin(), std::min<size_t>(perm.size(), 4), axes.begin());
    return axes;
  }

  // Removes transposes and scalar factors from an operand. They may have other readers, which keep
  // them.
  Operand Strip(ValueId id) const {
    Operand operand{.id = id};
    while (const Node* node = Producer(operand.id)) {
      if (Is(*node, "Transpose")) {
        const Axes perm = Permutation(*node);
        for (int64_t& axis : operand.axes) axis = perm[static_cast<size_t>(axis)];
        operand.id = node->inputs[0];
      } else if (Is(*node, "Mul") || Is(*node, "Div")) {
        const auto parts = SplitScalar(graph_, *node);
        if (!parts || (Is(*node, "Div") && parts->other != node->inputs[0]) ||
            !Rank4(parts->other)) {
          break;
        }
        operand.scale *= Is(*node, "Mul") ? parts->scalar : 1 / parts->scalar;
        operand.id = parts->other;
      } else if (const ValueId swapped = SwappedThroughRank3(*node); swapped != kNoValue) {
        for (int64_t& axis : operand.axes) axis = axis == 2 ? 3 : axis == 3 ? 2 : axis;
        operand.id = swapped;
      } else {
        break;
      }
    }
    return operand;
  }

  // The same, if its columns are then still runs; else as it is.
  Operand InRuns(ValueId id) const {
    const Operand operand = Strip(id);
    return operand.axes[3] == 3 ? operand : Operand{.id = id};
  }

  // [b, h, l, d] → [b·h, l, d] → [b·h, d, l] → [b, h, d, l], as PyTorch's exporter transposes keys.
  // Returns the input; kNoValue if it is something else.
  ValueId SwappedThroughRank3(const Node& last) const {
    if (!Is(last, "Reshape")) return kNoValue;
    const Node* transpose = Producer(last.inputs[0]);
    if (transpose == nullptr || !Is(*transpose, "Transpose") ||
        transpose->attributes.Ints("perm") != std::vector<int64_t>{0, 2, 1}) {
      return kNoValue;
    }
    const Node* first = Producer(transpose->inputs[0]);
    if (first == nullptr || !Is(*first, "Reshape") || !Rank4(first->inputs[0])) return kNoValue;
    const SymbolicShape& from = graph_.values[first->inputs[0]].shape;
    const SymbolicShape& middle = graph_.values[first->outputs[0]].shape;
    const SymbolicShape& to = graph_.values[last.outputs[0]].shape;
    if (!middle.has_rank() || middle.rank() != 3 || !to.has_rank() || to.rank() != 4) {
      return kNoValue;
    }
    const SymbolicShape rows({from[2], from[3]}), kept({middle[1], middle[2]});
    const SymbolicShape swapped({from[0], from[1], from[3], from[2]});
    return SameShape(rows, kept) && SameShape(swapped, to) ? first->inputs[0] : kNoValue;
  }

  Graph& graph_;
  const Links& links_;
  std::vector<std::string>& notes_;
  std::vector<int> replaced_;
  std::vector<Node> new_;
};

StatusOr<int> RunFuseAttention(Graph& graph, std::vector<std::string>& notes) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "Attention");
  const int lowered = LowerAttention(graph, notes);
  const Links links(graph);
  AttentionMatcher matcher(graph, links, notes);
  int count = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (Is(graph.nodes[n], "Softmax") && matcher.Fuse(n, def)) ++count;
  }
  if (count == 0) return lowered;
  std::vector<bool> removed(graph.nodes.size(), false);
  for (int n : matcher.replaced()) removed[static_cast<size_t>(n)] = true;
  RemoveNodes(graph, removed);
  for (Node& node : matcher.TakeNew()) graph.nodes.push_back(std::move(node));
  SortNodes(graph);
  return lowered + count;
}

}  // namespace

Pass FuseAttention() {
  return {"fuse_attention", "softmax, the products around it and their transposes in one",
          RunFuseAttention};
}

}  // namespace chairlift
