// Fuses the elementwise half of an LSTM cell written in plain operators to chairlift::LstmGates:
//
//   i, f, g, o = Split(gates)     in any order
//   c' = Sigmoid(f) · c + Sigmoid(i) · Tanh(g)
//   h = Sigmoid(o) · Tanh(c')
//
// Other readers of the cell's inner values are unchanged.
#include <optional>
#include <string>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// Which quarter each gate is, and the nodes of the rest of the cell.
struct Cell {
  int split = -1;        // node
  int add = -1;          // node that computes c'
  int quarters[4] = {};  // for i, f, g, o
  ValueId c = kNoValue;
};

class LstmGatesMatcher {
 public:
  LstmGatesMatcher(const Graph& graph, const Links& links) : graph_(graph), links_(links) {}

  // The cell whose h the node computes.
  std::optional<Cell> Match(const Node& product) const {
    if (!Is(product, "Mul")) return std::nullopt;
    Cell cell;
    for (int side = 0; side < 2; ++side) {
      // Sigmoid(o) on one side, Tanh(c') on the other.
      const auto c_next = InputOf(product.inputs[1 - side], "Tanh");
      if (!c_next || !Gate(product.inputs[side], "Sigmoid", cell, 3)) continue;
      if (MatchState(*c_next, cell)) return cell;
    }
    return std::nullopt;
  }

 private:
  const Node* Producer(ValueId id) const {
    const int n = links_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes[n];
  }
  // The input of the node of that operator that computes `id`.
  std::optional<ValueId> InputOf(ValueId id, const char* name) const {
    const Node* node = Producer(id);
    if (node == nullptr || !Is(*node, name)) return std::nullopt;
    return node->inputs[0];
  }
  // Whether `id` is that function of a quarter. Uses the cell's split if it is known, else sets it.
  bool Gate(ValueId id, const char* function, Cell& cell, int gate) const {
    const auto quarter = InputOf(id, function);
    if (!quarter) return false;
    const int split = links_.producer(*quarter);
    if (split < 0 || !IsQuarters(graph_.nodes[split])) return false;
    if (gate == 3) {
      cell.split = split;
    } else if (cell.split != split) {
      return false;
    }
    for (int q = 0; q < 4; ++q) {
      if (graph_.nodes[split].outputs[q] == *quarter) cell.quarters[gate] = q;
    }
    return true;
  }
  // Four equal parts along the last axis.
  bool IsQuarters(const Node& node) const {
    if (!Is(node, "Split") || node.outputs.size() != 4) return false;
    const SymbolicShape& in = graph_.values[node.inputs[0]].shape;
    if (!in.has_rank() || in.rank() == 0 || !in[in.rank() - 1].known()) return false;
    const int64_t axis = node.attributes.Int("axis", 0);
    if (axis != -1 && axis != in.rank() - 1) return false;
    for (ValueId part : node.outputs) {
      if (part == kNoValue) return false;
      const SymbolicShape& shape = graph_.values[part].shape;
      if (!shape.has_rank() || !shape[in.rank() - 1].known() ||
          shape[in.rank() - 1].value() * 4 != in[in.rank() - 1].value()) {
        return false;
      }
    }
    return true;
  }
  bool MatchState(ValueId c_next, Cell& cell) const {
    cell.add = links_.producer(c_next);
    const Node* sum = Producer(c_next);
    if (sum == nullptr || !Is(*sum, "Add")) return false;
    for (int side = 0; side < 2; ++side) {
      const Node* kept = Producer(sum->inputs[side]);
      const Node* added = Producer(sum->inputs[1 - side]);
      if (kept != nullptr && added != nullptr && Is(*kept, "Mul") && Is(*added, "Mul") &&
          MatchAdded(*added, cell) && MatchKept(*kept, cell)) {
        return AllDiffer(cell) && Fits(cell);
      }
    }
    return false;
  }
  bool MatchAdded(const Node& product, Cell& cell) const {
    for (int side = 0; side < 2; ++side) {
      if (Gate(product.inputs[side], "Sigmoid", cell, 0) &&
          Gate(product.inputs[1 - side], "Tanh", cell, 2)) {
        return true;
      }
    }
    return false;
  }
  bool MatchKept(const Node& product, Cell& cell) const {
    for (int side = 0; side < 2; ++side) {
      if (Gate(product.inputs[side], "Sigmoid", cell, 1)) {
        cell.c = product.inputs[1 - side];
        return true;
      }
    }
    return false;
  }
  static bool AllDiffer(const Cell& cell) {
    unsigned seen = 0;
    for (int q : cell.quarters) seen |= 1u << q;
    return seen == 0xf;
  }
  // c is as wide as a gate, and equally long if the operator cannot broadcast.
  bool Fits(const Cell& cell) const {
    const SymbolicShape& c = graph_.values[cell.c].shape;
    const SymbolicShape& part = graph_.values[graph_.nodes[cell.split].outputs[0]].shape;
    if (!c.has_rank() || c.rank() != part.rank()) return false;
    return SameShape(c, part) || (c.rank() == 2 && c[1].known() && c[1].value() == part[1].value());
  }

  const Graph& graph_;
  const Links& links_;
};

StatusOr<int> RunFuseLstmGates(Graph& graph, std::vector<std::string>&) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("chairlift", "LstmGates");
  const Links links(graph);
  const LstmGatesMatcher matcher(graph, links);
  std::vector<bool> removed(graph.nodes.size(), false);
  int count = 0;
  for (Node& node : graph.nodes) {
    const std::optional<Cell> cell = matcher.Match(node);
    if (!cell || removed[cell->add]) continue;
    const ValueId gates = graph.nodes[cell->split].inputs[0];
    if (!def->input_types[0].Contains(graph.values[gates].dtype)) continue;
    std::string order = "....";
    for (int gate = 0; gate < 4; ++gate) order[cell->quarters[gate]] = "ifgo"[gate];
    node.def = def;
    node.inputs = {gates, cell->c};
    node.outputs.push_back(graph.nodes[cell->add].outputs[0]);
    node.attributes = {};
    node.attributes.Set("order", order);
    removed[cell->add] = true;
    ++count;
  }
  RemoveNodes(graph, removed);
  SortNodes(graph);
  return count;
}

}  // namespace

Pass FuseLstmGates() {
  return {"fuse_lstm_gates", "compute the gates and states of a written-out LSTM cell in one pass",
          RunFuseLstmGates};
}

}  // namespace chairlift
