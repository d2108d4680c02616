// Keeps bytes between quantised convolutions with channels last, the order that their kernels
// compute in: [batch, spatial..., channels]. Bytes are transposed only at the borders.
//
// In topological order: a quantised convolution takes its form with channels last; sums, products,
// MaxPool and Concat of bytes take it if an input has it already. All other operators read the
// original order.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift {
namespace {

// The order of the axes that puts channels last, or that undoes it.
std::vector<int64_t> ChannelPermutation(int rank, bool to_last) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), int64_t{0});
  if (to_last) {
    std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  } else {
    std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  }
  return perm;
}

class LastKeeper {
 public:
  explicit LastKeeper(Graph& graph) : graph_(graph), links_(graph) {}

  int Run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    int count = 0;
    for (Node& node : nodes) {
      if (Convolve(node) || Pool(node) || Combine(node) || Concatenate(node) || Average(node) ||
          Forget(node)) {
        ++count;
        continue;
      }
      for (ValueId& id : node.inputs) id = Original(id);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& id : graph_.outputs) id = Original(id);
    return count;
  }

 private:
  const SymbolicShape& shape(ValueId id) const { return graph_.values[id].shape; }
  int Rank(ValueId id) const { return shape(id).has_rank() ? shape(id).rank() : 0; }
  bool HasLast(ValueId id) const { return last_.contains(id); }

  // Bytes of at least one spatial axis.
  bool MayBeLast(ValueId id) const {
    return id != kNoValue && IsByte(graph_.values[id].dtype) && Rank(id) >= 3;
  }

  // The value with channels last: as computed, or transposed once.
  ValueId Last(ValueId id) {
    const auto [it, added] = last_.emplace(id, kNoValue);
    if (added) {
      it->second = NewLast(id);
      AddTranspose(Original(id), it->second, true);
    }
    return it->second;
  }
  // The value in its original order, which may not exist yet.
  ValueId Original(ValueId id) {
    if (id == kNoValue) return id;
    if (const auto alias = alias_.find(id); alias != alias_.end()) return alias->second;
    if (missing_.erase(id) != 0) AddTranspose(last_.at(id), id, false);
    return id;
  }
  // The new value that will be `id` with channels last.
  ValueId NewLast(ValueId id) {
    Value value{.name = graph_.values[id].name + "/channels_last",
                .dtype = graph_.values[id].dtype,
                .shape = shape(id)};
    const std::vector<int64_t> perm = ChannelPermutation(value.shape.rank(), true);
    for (int i = 0; i < value.shape.rank(); ++i) {
      value.shape[i] = shape(id)[static_cast<int>(perm[static_cast<size_t>(i)])];
    }
    return graph_.AddValue(std::move(value));
  }
  void AddTranspose(ValueId from, ValueId to, bool to_last) {
    graph_.nodes.push_back({graph_.values[to].name + "/transpose",
                            OperatorRegistry::Builtin().Find("", "Transpose"),
                            Attribute("perm", ChannelPermutation(Rank(to), to_last)),
                            {from},
                            {to}});
  }
  // Appends the node as operator `def` of chairlift, which computes its output with channels last.
  void Append(Node node, const OperatorDef* def) {
    const ValueId y = node.outputs[0];
    const ValueId last = NewLast(y);
    last_[y] = last;
    missing_.insert(y);
    node.def = def;
    node.outputs = {last};
    for (ValueId& id : node.inputs) id = Original(id);
    graph_.nodes.push_back(std::move(node));
  }
  static const OperatorDef* Own(const char* name) {
    return OperatorRegistry::Builtin().Find("chairlift", name);
  }

  bool Convolve(Node& node) {
    if (node.def->name != "QLinearConv" || node.attributes.Int("channels_last", 0) != 0 ||
        !MayBeLast(node.inputs[0]) || !MayBeLast(node.outputs[0])) {
      return false;
    }
    node.inputs[0] = Last(node.inputs[0]);
    node.attributes.Set("channels_last", int64_t{1});
    Append(std::move(node), Own("QLinearConv"));
    return true;
  }

  bool Pool(Node& node) {
    if (!Is(node, "MaxPool") || node.outputs.size() != 1 || !HasLast(node.inputs[0]) ||
        !MayBeLast(node.inputs[0]) || !MayBeLast(node.outputs[0])) {
      return false;
    }
    node.inputs[0] = Last(node.inputs[0]);
    Append(std::move(node), Own("ByteMaxPool"));
    return true;
  }

  // Sums and products whose operands have the output's rank or one element.
  bool Combine(Node& node) {
    if (!(Is(node, "QLinearAdd", "chairlift") || Is(node, "QLinearMul", "chairlift")) ||
        !MayBeLast(node.outputs[0])) {
      return false;
    }
    const auto single = [&](ValueId id) {
      return shape(id).concrete() && shape(id).ToShape().NumElements() == 1;
    };
    bool any = false;
    for (const size_t i : {0, 3}) {
      const ValueId id = node.inputs[i];
      any = any || (HasLast(id) && SameShape(shape(id), shape(node.outputs[0])));
      if (!single(id) && Rank(id) != Rank(node.outputs[0])) return false;
    }
    if (!any) return false;
    for (const size_t i : {0, 3}) {
      const ValueId id = node.inputs[i];
      if (Rank(id) == Rank(node.outputs[0])) node.inputs[i] = Last(id);
    }
    const OperatorDef* def = node.def;
    Append(std::move(node), def);
    return true;
  }

  bool Concatenate(Node& node) {
    if (!Is(node, "Concat") || !MayBeLast(node.outputs[0])) return false;
    const int rank = Rank(node.outputs[0]);
    bool any = false;
    for (const ValueId id : node.inputs) {
      if (!MayBeLast(id) || Rank(id) != rank) return false;
      any = any || HasLast(id);
    }
    if (!any) return false;
    int64_t axis = node.attributes.Int("axis", 0);
    if (axis < 0) axis += rank;
    if (axis > 0) axis = axis == 1 ? rank - 1 : axis - 1;
    node.attributes.Set("axis", axis);
    for (ValueId& id : node.inputs) id = Last(id);
    const OperatorDef* def = node.def;
    Append(std::move(node), def);
    return true;
  }

  // The mean of each channel of dequantised bytes: both nodes, with channels last.
  bool Average(Node& node) {
    if (Is(node, "DequantizeLinear") && node.inputs[0] != kNoValue && HasLast(node.inputs[0]) &&
        shape(node.inputs[1]).concrete() && shape(node.inputs[1]).ToShape().NumElements() == 1 &&
        graph_.values[node.outputs[0]].dtype == DType::kFloat && OnlyAveraged(node.outputs[0])) {
      node.inputs[0] = Last(node.inputs[0]);
      const OperatorDef* def = node.def;
      Append(std::move(node), def);
      return true;
    }
    if (!Is(node, "GlobalAveragePool") || !HasLast(node.inputs[0])) return false;
    const int rank = Rank(node.inputs[0]);
    std::vector<int64_t> axes(static_cast<size_t>(rank - 2));
    std::iota(axes.begin(), axes.end(), int64_t{1});
    node.inputs = {Last(node.inputs[0]), AddIntegers(graph_, node.name + "/axes", axes)};
    node.attributes = Attribute("keepdims", int64_t{1});
    Append(std::move(node), OperatorRegistry::Builtin().Find("", "ReduceMean"));
    return true;
  }
  bool OnlyAveraged(ValueId id) const { return !links_.is_output(id) && links_.averaged(id); }

  // A transposition that is there already.
  bool Forget(Node& node) {
    if (!Is(node, "Transpose") || !MayBeLast(node.inputs[0])) return false;
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const std::vector<int64_t> perm = node.attributes.Ints("perm");
    if (perm == ChannelPermutation(Rank(x), true) && HasLast(x)) {
      alias_[y] = last_.at(x);
      return true;
    }
    if (perm == ChannelPermutation(Rank(x), false) && Rank(y) == Rank(x)) {
      last_[y] = Original(x);
      missing_.insert(y);
      return true;
    }
    return false;
  }

  // Which values only GlobalAveragePool reads, in the original graph.
  class Averages {
   public:
    explicit Averages(const Graph& graph) : links_(graph), averaged_(graph.values.size(), false) {
      for (size_t id = 0; id < averaged_.size(); ++id) {
        const auto& readers = links_.readers(static_cast<ValueId>(id));
        averaged_[id] = !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](int n) {
          return Is(graph.nodes[n], "GlobalAveragePool");
        });
      }
    }
    bool is_output(ValueId id) const { return links_.is_output(id); }
    bool averaged(ValueId id) const {
      return static_cast<size_t>(id) < averaged_.size() && averaged_[static_cast<size_t>(id)];
    }

   private:
    const Links links_;
    std::vector<bool> averaged_;
  };

  Graph& graph_;
  const Averages links_;
  std::map<ValueId, ValueId> last_;   // by original value: the same with channels last
  std::set<ValueId> missing_;         // original values that are only there with channels last
  std::map<ValueId, ValueId> alias_;  // values that another one is
};

StatusOr<int> RunKeepChannelsLast(Graph& graph, std::vector<std::string>&) {
  bool any = false;
  for (const Node& node : graph.nodes) any = any || node.def->name == "QLinearConv";
  return any ? LastKeeper(graph).Run() : 0;
}

}  // namespace

Pass KeepChannelsLast() {
  return {"keep_channels_last", "keep bytes between quantised convolutions with channels last",
          RunKeepChannelsLast};
}

}  // namespace chairlift
