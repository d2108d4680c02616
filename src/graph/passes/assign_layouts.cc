// Keeps activations between convolutions channel-blocked, the layout that convolutions compute in.
// The graph is reordered only at the borders, by explicit chairlift::Reorder nodes.
//
// Greedy, in topological order. A convolution takes its blocked form whenever it has one. Other
// operators take it if an input is already blocked. An exception are operators that enlarge their
// input (Resize) if nothing needs the result blocked: then the smaller input is reordered.
// Operators without a blocked form read row-major.
#include <map>
#include <optional>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

constexpr size_t kMaxOperands = 32;  // bits in a BlockedForm's masks

class Assigner {
 public:
  explicit Assigner(Graph& graph)
      : graph_(graph), reorder_(OperatorRegistry::Builtin().Find("chairlift", "Reorder")) {}

  int Run() {
    FindWanted();
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (node.def->layout_agnostic) WriteOutRanks(node);
      const BlockedForm form = Choose(node);
      if (form.inputs != 0 || form.outputs != 0) ++count_;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        const bool blocked = i < kMaxOperands && (form.inputs >> i & 1) != 0;
        node.inputs[i] = In(blocked ? Layout::kChannelBlocked : Layout::kRowMajor, node.inputs[i]);
      }
      for (size_t i = 0; i < std::min(kMaxOperands, node.outputs.size()); ++i) {
        if (node.outputs[i] != kNoValue && (form.outputs >> i & 1) != 0) {
          graph_.values[node.outputs[i]].layout = Layout::kChannelBlocked;
        }
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& id : graph_.outputs) id = In(Layout::kRowMajor, id);
    return count_;
  }

 private:
  bool CanBlock(ValueId id) const {
    if (id == kNoValue) return false;
    const Value& v = graph_.values[id];
    return v.dtype == DType::kFloat && v.shape.has_rank() && v.shape.rank() >= 3 &&
           v.shape[1].known() && FillsBlocks(v.shape[1].value());
  }

  bool IsBlocked(ValueId id) const {
    return id != kNoValue && graph_.values[id].layout == Layout::kChannelBlocked;
  }

  // Elementwise operators: operands of full size are blocked; others must vary only along the
  // channels, or not along them.
  std::optional<BlockedForm> ElementwiseForm(const Node& node) const {
    if (node.inputs.size() > kMaxOperands || node.outputs.size() != 1) return std::nullopt;
    const SymbolicShape& out = graph_.values[node.outputs[0]].shape;
    if (!out.has_rank() || out.rank() < 3) return std::nullopt;
    BlockedForm form{.inputs = 0, .outputs = 1};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const SymbolicShape& in = graph_.values[node.inputs[i]].shape;
      if (SameShape(in, out)) {
        form.inputs |= 1u << i;
        continue;
      }
      if (!in.has_rank() || in.rank() > out.rank()) return std::nullopt;
      const auto is_one = [&](int axis) {  // of the output
        const int own = axis - (out.rank() - in.rank());
        return own < 0 || (in[own].known() && in[own].value() == 1);
      };
      bool spatial_ones = true;
      for (int axis = 2; axis < out.rank(); ++axis) spatial_ones = spatial_ones && is_one(axis);
      if (!spatial_ones && !is_one(1)) return std::nullopt;
      // Read in its own layout only if it consists of whole blocks.
      if (!is_one(1) && out[1].known() && out[1].value() % ChannelBlock() != 0) {
        if (in.rank() != out.rank()) return std::nullopt;
        form.inputs |= 1u << i;
      }
    }
    return form;
  }

  std::optional<BlockedForm> FormOf(const Node& node) const {
    if (node.def->layout_agnostic) return ElementwiseForm(node);
    if (node.def->blocked_form == nullptr) return std::nullopt;
    return node.def->blocked_form(node.attributes, InfosOf(graph_, node.inputs),
                                  InfosOf(graph_, node.outputs));
  }

  // Constants that vary along channels and do not consist of whole blocks must be blocked too. For
  // this they get all axes of the output: [C, 1, 1] becomes [1, C, 1, 1].
  void WriteOutRanks(Node& node) {
    if (node.outputs.size() != 1) return;
    const SymbolicShape out = graph_.values[node.outputs[0]].shape;  // constants are added below
    if (!out.has_rank() || out.rank() < 3 || !out[1].known() ||
        out[1].value() % ChannelBlock() == 0 || !FillsBlocks(out[1].value())) {
      return;
    }
    for (ValueId& id : node.inputs) {
      if (id == kNoValue || !graph_.values[id].is_constant()) continue;
      const Value& value = graph_.values[id];
      const Shape& shape = value.constant.shape();
      const int axis = shape.rank() - out.rank() + 1;  // of the channels
      if (axis != 0 || value.dtype != DType::kFloat || shape[0] == 1) continue;
      Shape whole{1};
      for (const int64_t dim : shape) whole.Append(dim);
      id = AddConstant(graph_, value.name + "/whole_rank", value.constant.Reshaped(whole));
    }
  }

  // Finds the values that a convolution reads, directly or through others that may stay blocked.
  void FindWanted() {
    wanted_.assign(graph_.values.size(), false);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      const auto form = FormOf(*node);
      if (!form || !(form->anchor || OutputIsWanted(*node, *form))) continue;
      for (size_t i = 0; i < std::min(kMaxOperands, node->inputs.size()); ++i) {
        if ((form->inputs >> i & 1) != 0 && node->inputs[i] != kNoValue) {
          wanted_[node->inputs[i]] = true;
        }
      }
    }
  }

  bool OutputIsWanted(const Node& node, const BlockedForm& form) const {
    for (size_t i = 0; i < std::min(kMaxOperands, node.outputs.size()); ++i) {
      const ValueId id = node.outputs[i];
      if ((form.outputs >> i & 1) != 0 && id != kNoValue && wanted_[id]) return true;
    }
    return false;
  }

  // Whether the node enlarges its first input although nothing needs the result blocked.
  bool GrowsForNobody(const Node& node, const BlockedForm& form) const {
    if (form.anchor || form.inputs != 1 || form.outputs != 1 || OutputIsWanted(node, form)) {
      return false;
    }
    const SymbolicShape& in = graph_.values[node.inputs[0]].shape;
    const SymbolicShape& out = graph_.values[node.outputs[0]].shape;
    if (!in.has_rank() || !out.has_rank() || in.rank() != out.rank()) return false;
    bool grows = false;
    for (int axis = 0; axis < in.rank(); ++axis) {
      if (in[axis].Same(out[axis])) continue;
      if (!in[axis].known() || !out[axis].known() || in[axis].value() > out[axis].value()) {
        return false;
      }
      grows = true;
    }
    return grows;
  }

  // The blocked form if the node takes it; else all row-major.
  BlockedForm Choose(const Node& node) const {
    const auto form = FormOf(node);
    if (!form || (form->inputs == 0 && form->outputs == 0)) return {};
    bool wanted = form->anchor;
    for (size_t i = 0; i < kMaxOperands; ++i) {
      if ((form->inputs >> i & 1) != 0) {
        if (i >= node.inputs.size() || !CanBlock(node.inputs[i])) return {};
        wanted = wanted || IsBlocked(node.inputs[i]);
      }
      if ((form->outputs >> i & 1) != 0 &&
          (i >= node.outputs.size() || !CanBlock(node.outputs[i]))) {
        return {};
      }
    }
    return wanted && !GrowsForNobody(node, *form) ? *form : BlockedForm{};
  }

  // The value in that layout: itself, or its reordered copy, made once.
  ValueId In(Layout layout, ValueId id) {
    if (graph_.values[id].layout == layout) return id;
    const auto [it, added] = reordered_.emplace(id, kNoValue);
    if (!added) return it->second;
    Value value = graph_.values[id];
    value.name += layout == Layout::kChannelBlocked ? "/blocked" : "/row_major";
    value.layout = layout;
    value.constant = Tensor();
    it->second = AddNode(graph_, value.name, reorder_, {id});
    graph_.values.back() = std::move(value);
    return it->second;
  }

  Graph& graph_;
  const OperatorDef* reorder_;
  std::vector<bool> wanted_;  // by value of the original graph
  std::map<ValueId, ValueId> reordered_;
  int count_ = 0;  // nodes in their blocked form
};

StatusOr<int> RunAssignLayouts(Graph& graph, std::vector<std::string>&) {
  return Assigner(graph).Run();
}

}  // namespace

Pass AssignLayouts() {
  return {"assign_layouts", "keep activations channel-blocked between convolutions",
          RunAssignLayouts};
}

}  // namespace chairlift
