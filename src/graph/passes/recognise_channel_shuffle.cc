// Reshape to [N, groups, C / groups, …], Transpose of axes 1 and 2, and Reshape back.
#include <optional>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

class ChannelShuffles {
 public:
  explicit ChannelShuffles(Graph& graph) : graph_(graph), links_(graph) {}

  int Run() {
    static const OperatorDef* const kShuffle =
        OperatorRegistry::Builtin().Find("chairlift", "ChannelShuffle");
    int count = 0;
    for (Node& node : graph_.nodes) {
      const auto found = Match(node);
      if (!found) continue;
      node.def = kShuffle;
      node.inputs = {found->x};
      node.attributes = {};
      node.attributes.Set("groups", found->groups);
      ++count;
    }
    return count;
  }

 private:
  struct Shuffle {
    ValueId x;
    int64_t groups;
  };

  // The shuffle whose last node this is.
  std::optional<Shuffle> Match(const Node& node) const {
    if (!Is(node, "Reshape")) return std::nullopt;
    const Node* transpose = Producer(node.inputs[0], "Transpose");
    const Node* split = transpose == nullptr ? nullptr : Producer(transpose->inputs[0], "Reshape");
    if (split == nullptr) return std::nullopt;
    const ValueId x = split->inputs[0];
    const SymbolicShape &whole = shape(x), &parts = shape(split->outputs[0]);
    if (!whole.has_rank() || !parts.has_rank() || whole.rank() < 3 ||
        parts.rank() != whole.rank() + 1 || !SameShape(whole, shape(node.outputs[0])) ||
        !parts[0].Same(whole[0]) || !whole[1].known() || !parts[1].known() || !parts[2].known() ||
        parts[1].value() * parts[2].value() != whole[1].value()) {
      return std::nullopt;
    }
    for (int axis = 2; axis < whole.rank(); ++axis) {
      if (!parts[axis + 1].Same(whole[axis])) return std::nullopt;
    }
    const std::vector<int64_t> order = transpose->attributes.Ints("perm");
    if (static_cast<int>(order.size()) != parts.rank()) return std::nullopt;
    for (int axis = 0; axis < parts.rank(); ++axis) {
      if (order[static_cast<size_t>(axis)] != (axis == 1 || axis == 2 ? 3 - axis : axis)) {
        return std::nullopt;
      }
    }
    return Shuffle{x, parts[1].value()};
  }

  const Node* Producer(ValueId id, std::string_view name) const {
    const int n = links_.producer(id);
    return n >= 0 && Is(graph_.nodes[static_cast<size_t>(n)], name)
               ? &graph_.nodes[static_cast<size_t>(n)]
               : nullptr;
  }
  const SymbolicShape& shape(ValueId id) const {
    return graph_.values[static_cast<size_t>(id)].shape;
  }

  Graph& graph_;
  const Links links_;
};

StatusOr<int> RunRecogniseChannelShuffle(Graph& graph, std::vector<std::string>&) {
  return ChannelShuffles(graph).Run();
}

}  // namespace

Pass RecogniseChannelShuffle() {
  return {"recognise_channel_shuffle", "put ChannelShuffle for its definition written out",
          RunRecogniseChannelShuffle};
}

}  // namespace chairlift
