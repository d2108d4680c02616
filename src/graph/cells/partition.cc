#include "graph/cells/partition.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace chairlift {
namespace {

// The dependencies of a value: cells of the same kind and depth can be merged.
struct Place {
  int key = kNothing;
  int depth = 0;

  static constexpr int kNothing = -1;
  static constexpr int kSeveral = -2;
  static constexpr int kLanes = 0;  // 1 + sequence for tokens; larger than all sequences for layers

  void Join(const Place& other) {
    if (other.key == kNothing || (key != kNothing && other.depth < depth)) return;
    const bool deeper = key == kNothing || other.depth > depth;
    if (!deeper && other.key != key) {
      key = kSeveral;
    } else {
      *this = other;
    }
  }
};

// Groups of nodes (union-find).
class Sets {
 public:
  explicit Sets(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int Find(int i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(int a, int b) { parent_[Find(b)] = Find(a); }

 private:
  std::vector<int> parent_;
};

// Whether rows of these dimensions certainly have the same number of elements. (A dimension dropped
// by Squeeze need not be known to be 1.)
bool SameSize(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  const auto parts = [](const std::vector<Dim>& dims) {
    std::pair<int64_t, std::vector<std::string>> product{1, {}};
    for (const Dim& dim : dims) {
      if (dim.known()) {
        if (__builtin_mul_overflow(product.first, dim.value(), &product.first)) product.first = -1;
      } else {
        product.second.push_back(dim.symbol());
      }
    }
    std::sort(product.second.begin(), product.second.end());
    return product;
  };
  return parts(a) == parts(b);
}

class Partitioner {
 public:
  Partitioner(const Graph& graph, const ModelAxes& axes, const Links& links)
      : graph_(graph),
        axes_(axes),
        links_(links),
        places_(graph.values.size()),
        node_places_(graph.nodes.size()) {}

  StatusOr<Partition> Run() && {
    out_.cell.assign(graph_.nodes.size(), -1);
    out_.view.assign(graph_.nodes.size(), false);
    out_.root.resize(graph_.values.size());
    std::iota(out_.root.begin(), out_.root.end(), 0);
    out_.sequence.assign(graph_.values.size(), -1);
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      if (axes_.real[id]) out_.sequence[id] = SequenceOf(static_cast<ValueId>(id));
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      CHAIRLIFT_RETURN_IF_ERROR(Put(static_cast<int>(n)));
    }
    MakeCells();
    return std::move(out_);
  }

 private:
  int SequenceOf(ValueId id) const {
    for (size_t s = 0; s < axes_.sequences.size(); ++s) {
      if (axes_.sequences[s].states[id].rows()) return static_cast<int>(s);
    }
    return -1;
  }
  const SequenceAxes* Axes(int sequence) const {
    return sequence < 0 ? nullptr : &axes_.sequences[sequence];
  }
  bool IsReal(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != kNoValue && axes_.real[id]; });
  }

  // Whether it reads only tokens of that sequence and values of lanes. (A value may run along
  // several sequences of equal length; it then counts for the first.)
  bool ReadsAlong(int n, int sequence) const {
    const std::vector<ValueId>& inputs = graph_.nodes[n].inputs;
    return std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
      return id == kNoValue || !axes_.real[id] || out_.sequence[id] < 0 ||
             out_.sequence[id] == sequence;
    });
  }

  // The sequence whose tokens the node processes one by one; −1 if none.
  int TokensOf(int n) const {
    const Node& node = graph_.nodes[n];
    for (ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const int s = out_.sequence[id];
      return s >= 0 && !axes_.sequences[s].mixes[n] && ReadsAlong(n, s) ? s : -1;
    }
    return -1;
  }

  // Whether the elements of each row keep their values and order.
  bool KeepsRows(int n) const {
    const Node& node = graph_.nodes[n];
    const bool transposes = Is(node, "Transpose");
    if (!transposes && !node.def->is_view) return false;
    const ValueId in = node.inputs[0];
    const ValueId out = node.outputs[0];
    const int s = out_.sequence[in];
    if (!axes_.real[in] || s != out_.sequence[out] || (s >= 0 && axes_.sequences[s].mixes[n])) {
      return false;
    }
    const auto from = FormOf(graph_, axes_, Axes(s), in);
    const auto to = FormOf(graph_, axes_, Axes(s), out);
    if (!from || !to) return false;
    if (!SameSize(RowOf(*from), RowOf(*to))) return false;
    if (Is(node, "Reshape") || Is(node, "Flatten")) {
      return AllKnown(RowOf(*from)) && AllKnown(RowOf(*to));
    }
    if (!transposes) return true;
    std::vector<int64_t> perm = node.attributes.Ints("perm");
    if (perm.empty()) {
      for (size_t i = from->size(); i > 0; --i) perm.push_back(static_cast<int64_t>(i) - 1);
    }
    int64_t last = -1;
    for (int64_t axis : perm) {
      if (axis < 0) axis += static_cast<int64_t>(from->size());
      const auto& pieces = (*from)[static_cast<size_t>(axis)];
      const bool moves = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
        return piece.kind == Piece::Kind::kNumber &&
               !(piece.number.known() && piece.number.value() == 1);
      });
      if (!moves) continue;
      if (axis < last) return false;
      last = axis;
    }
    return true;
  }

  // An output of the model has its own dimensions. If some are unknown, they must be the same as
  // the root's.
  bool MayBeView(ValueId view, ValueId root) const {
    if (!links_.is_output(view)) return true;
    const SequenceAxes* sequence = Axes(out_.sequence[root]);
    const std::vector<Dim> from = RowOf(*FormOf(graph_, axes_, sequence, root));
    const std::vector<Dim> to = RowOf(*FormOf(graph_, axes_, sequence, view));
    return SameShape(SymbolicShape(from), SymbolicShape(to)) || (AllKnown(from) && AllKnown(to));
  }

  Place Waits(const Node& node) const {
    Place place;
    for (ValueId id : node.inputs) {
      if (id != kNoValue) place.Join(places_[id]);
    }
    return place;
  }

  Status Put(int n) {
    const Node& node = graph_.nodes[n];
    Place place = Waits(node);
    const auto set = [&](const Place& p) {
      for (ValueId id : node.outputs) {
        if (id != kNoValue) places_[id] = p;
      }
    };
    if (!IsReal(node)) {
      set(place);
      return absl::OkStatus();
    }
    for (ValueId id : node.outputs) {
      if (id != kNoValue && !links_.Unused(id) && !axes_.batch[id].rows()) {
        return Unimplemented("{}: its result is not one by row", node.Describe());
      }
    }
    if (KeepsRows(n) && MayBeView(node.outputs[0], out_.root[node.inputs[0]])) {
      const ValueId root = out_.root[node.inputs[0]];
      out_.view[n] = true;
      out_.root[node.outputs[0]] = root;
      // A cell computes the sizes that it reads by itself.
      place = places_[root];
      set(place);
      return absl::OkStatus();
    }
    int key = Place::kLanes;
    const int sequences = static_cast<int>(axes_.sequences.size());
    if (axes_.layer_sequence[n] >= 0) {
      if (!ReadsAlong(n, axes_.layer_sequence[n])) {
        return Unimplemented("{}: its inputs run along several sequences", node.Describe());
      }
      key = 1 + sequences + n;
    } else if (const int s = TokensOf(n); s >= 0) {
      key = 1 + s;
    }
    if (place.key != Place::kNothing && place.key != key) ++place.depth;
    place.key = key;
    node_places_[n] = place;
    set(place);
    return absl::OkStatus();
  }

  void MakeCells() {
    Sets sets(graph_.nodes.size());
    // Nodes at the same place are grouped if one reads the other or both read the same value.
    std::map<std::tuple<int, int, ValueId>, int> readers;
    const auto meet = [&](int n, ValueId id) {
      const Place& place = node_places_[n];
      const auto [it, added] = readers.try_emplace({place.depth, place.key, id}, n);
      if (!added) sets.Join(it->second, n);
    };
    std::vector<int> members;
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (node_places_[n].key == Place::kNothing) continue;
      members.push_back(n);
      for (const auto* ids : {&graph_.nodes[n].inputs, &graph_.nodes[n].outputs}) {
        for (ValueId id : *ids) {
          if (id != kNoValue && axes_.real[id]) meet(n, out_.root[id]);
        }
      }
    }
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return node_places_[a].depth < node_places_[b].depth; });
    std::map<int, int> cells;
    for (int n : members) {
      const auto [it, added] = cells.try_emplace(sets.Find(n), static_cast<int>(out_.cells.size()));
      if (added) {
        CellPlan& plan = out_.cells.emplace_back();
        const int key = node_places_[n].key;
        const int sequences = static_cast<int>(axes_.sequences.size());
        if (key > sequences) {
          plan.kind = SlicedCell::Kind::kRecurrent;
          plan.sequence = axes_.layer_sequence[n];
        } else if (key > 0) {
          plan.kind = SlicedCell::Kind::kTokens;
          plan.sequence = key - 1;
        }
      }
      out_.cells[it->second].nodes.push_back(n);
      out_.cell[n] = it->second;
    }
  }

  const Graph& graph_;
  const ModelAxes& axes_;
  const Links& links_;
  std::vector<Place> places_;       // by value
  std::vector<Place> node_places_;  // for nodes that belong to a cell
  Partition out_;
};

}  // namespace

StatusOr<Partition> MakePartition(const Graph& graph, const ModelAxes& axes, const Links& links) {
  return Partitioner(graph, axes, links).Run();
}

}  // namespace chairlift
