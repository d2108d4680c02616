#include "graph/decoders/batch_heads.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/analysis/pattern.h"
#include "graph/decoders/without_past.h"
#include "graph/infer.h"
#include "graph/passes/rewrite.h"
#include "ops/axis_map.h"

namespace chairlift::decoders {
namespace {

constexpr int64_t kMostHeads = int64_t{1} << 20;

class BatchHeadSplitter {
 public:
  BatchHeadSplitter(Graph& graph, const DecoderPorts& ports) : graph_(graph), reader_(graph) {
    StartPatterns(graph, ports, reader_);
    for (const DecoderPorts::Cache& cache : ports.caches) {
      presents_.insert(graph.outputs[static_cast<size_t>(cache.output)]);
    }
  }

  int Run() {
    InferBudget budget;
    const size_t count = graph_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      // With what is known about its inputs so far. Errors of inference are reported elsewhere.
      if (!InferNode(graph_, graph_.nodes[n], budget).ok()) return 0;
      const Node node = graph_.nodes[n];
      (void)reader_.Visit(node);
      if (node.outputs.size() == 1 && node.outputs[0] != kNoValue) Follow(node);
      for (const ValueId id : node.outputs) NameSizesOf(id);
    }
    // Nodes not yet read must not see values that are unknown to the reader.
    for (const auto& [out, id] : instead_) ReplaceReads(graph_, out, id);
    SortNodes(graph_);
    return ends_;
  }

 private:
  // The meaning of [batch·heads, n, m].
  struct Split {
    ValueId id = kNoValue;  // [batch, heads, n, m]
    int64_t heads = 0;
    std::optional<Line> rows = {}, columns = {};  // n and m, if known
  };

  // As far as the reader knows them. Also for presents, which hold all tokens if the model is a
  // decoder at all.
  void NameSizesOf(ValueId id) {
    if (id == kNoValue) return;
    SymbolicShape& shape = graph_.values[static_cast<size_t>(id)].shape;
    if (!shape.has_rank()) return;
    if (presents_.contains(id) && shape.rank() == 4) {
      shape[2] = Dim::Symbol(Size::kTotal);
    }
    reader_.NameDims(id, graph_);
  }

  void Follow(const Node& node) {
    if (Is(node, "Shape")) return FollowShape(node);
    std::optional<Split> split;
    if (Is(node, "Reshape")) {
      if (EndsAt(node)) return;
      split = Begin(node);
      if (!split) return SetWanted(node);
    } else {
      split = Carried(node);
    }
    if (!split) return;
    // So that values computed from its shape are known.
    if (split->rows && split->columns) {
      SetShape(node.outputs[0], {Entries(split->heads), *split->rows, *split->columns});
    }
    splits_[node.outputs[0]] = *std::move(split);
  }

  // Computed from [batch, heads, n, m] instead, so that nothing needs the other value any more.
  void FollowShape(const Node& node) {
    const auto found = splits_.find(node.inputs[0]);
    if (found == splits_.end() || !node.attributes.values().empty()) return;
    const auto part = [&](int64_t start, int64_t end) {
      Attributes range;
      range.Set("start", start);
      range.Set("end", end);
      return Emit("Shape", {found->second.id}, range);
    };
    const ValueId first = Emit("Mul", {part(0, 1), Integers({found->second.heads})});
    instead_.emplace_back(node.outputs[0],
                          Emit("Concat", {first, part(2, 4)}, Attribute("axis", int64_t{0})));
  }

  void SetShape(ValueId id, std::vector<Line> dims) {
    if (reader_.of(id).kind != Pattern::Kind::kUnknown) return;
    Pattern shaped;
    shaped.kind = Pattern::Kind::kShaped;
    shaped.dtype = TypeOf(id);
    shaped.dims = std::move(dims);
    reader_.Set(id, std::move(shaped));
  }

  // For a Reshape that gives all of its sizes.
  void SetWanted(const Node& node) {
    auto wanted = Wanted(node);
    const auto open = [](const Line& size) { return size.is_number() && size.number < 1; };
    if (!wanted || std::any_of(wanted->begin(), wanted->end(), open)) return;
    SetShape(node.outputs[0], *std::move(wanted));
  }

  static Line Entries(int64_t heads) { return *Line::Product(Line::Batch(), Line::Number(heads)); }
  DType TypeOf(ValueId id) const { return graph_.values[static_cast<size_t>(id)].dtype; }
  const SymbolicShape& ShapeOf(ValueId id) const {
    return graph_.values[static_cast<size_t>(id)].shape;
  }
  std::optional<Line> SizeOf(ValueId id, int axis) const {
    if (const auto dims = reader_.DimsOf(id)) return (*dims)[static_cast<size_t>(axis)];
    return PatternReader::SizeOf(ShapeOf(id)[axis]);
  }

  // The sizes of a Reshape; nothing if unknown.
  std::optional<std::vector<Line>> Wanted(const Node& node) const {
    const auto wanted = reader_.In(node, 1).Elements();
    // There are no empty values.
    const bool empty = node.attributes.Int("allowzero", 0) != 0 && wanted &&
                       std::find(wanted->begin(), wanted->end(), Line()) != wanted->end();
    return empty ? std::nullopt : wanted;
  }

  // [batch, heads, n, m], or [batch, heads, m] where n is 1, as [batch·heads, n, m].
  std::optional<Split> Begin(const Node& node) {
    const ValueId from = node.inputs[0];
    const SymbolicShape& shape = ShapeOf(from);
    const auto wanted = Wanted(node);
    if (!wanted || wanted->size() != 3 || !shape.has_rank() || shape.rank() < 3 ||
        shape.rank() > 4 || !shape[1].known() || shape[1].value() < 1 ||
        shape[1].value() > kMostHeads || SizeOf(from, 0) != Line::Batch()) {
      return std::nullopt;
    }
    Split split{.heads = shape[1].value()};
    if ((*wanted)[0] != Entries(split.heads)) return std::nullopt;
    if (shape.rank() == 3) {
      if ((*wanted)[1] != Line::Number(1)) return std::nullopt;
      split.rows = Line::Number(1);
      split.columns = SizeOf(from, 2);
      split.id = Emit("Unsqueeze", {from, Integers({2})});
      return split;
    }
    split.rows = SizeOf(from, 2);
    split.columns = SizeOf(from, 3);
    const bool rows = split.rows && (*wanted)[1] == *split.rows;
    const bool columns = split.columns && (*wanted)[2] == *split.columns;
    if (!rows && !columns) return std::nullopt;  // otherwise the other dimension is kept as well
    split.id = from;
    return split;
  }

  // [batch·heads, n, m] as [batch, heads, n, m].
  bool EndsAt(const Node& node) {
    const auto found = splits_.find(node.inputs[0]);
    if (found == splits_.end()) return false;
    const Split& split = found->second;
    const auto wanted = Wanted(node);
    if (!wanted || wanted->size() != 4 || (*wanted)[0] != Line::Batch() ||
        (*wanted)[1] != Line::Number(split.heads)) {
      return false;
    }
    const bool rows = split.rows && (*wanted)[2] == *split.rows;
    const bool columns = split.columns && (*wanted)[3] == *split.columns;
    if (!rows && !columns) return false;
    const ValueId out = node.outputs[0];
    if (std::find(graph_.outputs.begin(), graph_.outputs.end(), out) != graph_.outputs.end()) {
      return false;
    }
    instead_.emplace_back(out, split.id);
    ++ends_;
    if (split.rows && split.columns) {
      SetShape(out, {Line::Batch(), (*wanted)[1], *split.rows, *split.columns});
    }
    return true;
  }

  // Products, swaps of rows and columns, and elementwise operators.
  std::optional<Split> Carried(const Node& node) {
    std::vector<const Split*> splits;
    int64_t heads = 0;
    for (const ValueId id : node.inputs) {
      const auto found = id == kNoValue ? splits_.end() : splits_.find(id);
      splits.push_back(found == splits_.end() ? nullptr : &found->second);
      if (splits.back() == nullptr) continue;
      if (heads != 0 && heads != splits.back()->heads) return std::nullopt;
      heads = splits.back()->heads;
    }
    if (heads == 0) return std::nullopt;
    Split split{.heads = heads};
    Attributes attributes = node.attributes;
    const bool first = splits[0] != nullptr;
    if (Is(node, "Transpose")) {
      if (node.attributes.Ints("perm") != std::vector<int64_t>{0, 2, 1}) return std::nullopt;
      attributes.Set("perm", std::vector<int64_t>{0, 1, 3, 2});
      split.rows = splits[0]->columns;
      split.columns = splits[0]->rows;
    } else if (Is(node, "MatMul")) {
      if (!first || splits[1] == nullptr) return std::nullopt;
      split.rows = splits[0]->rows;
      split.columns = splits[1]->columns;
    } else if (Is(node, "Softmax")) {
      const int64_t axis = node.attributes.Int("axis", -1);
      if (axis != -1 && axis != 2) return std::nullopt;
      attributes.Set("axis", int64_t{-1});
      split.rows = splits[0]->rows;
      split.columns = splits[0]->columns;
    } else if (IsElementwise(*node.def)) {
      if (!SpreadSizes(node, splits, split)) return std::nullopt;
    } else {
      return std::nullopt;
    }
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(splits[i] != nullptr ? splits[i]->id : node.inputs[i]);
    }
    split.id = Emit(node.def, std::move(inputs), std::move(attributes));
    return split;
  }

  // Rows and columns of a broadcast result; false if an operand is neither split nor a single
  // number.
  bool SpreadSizes(const Node& node, const std::vector<const Split*>& splits, Split& split) const {
    const Line one = Line::Number(1);
    const auto wider = [&](const std::optional<Line>& a, const std::optional<Line>& b) {
      return a == one ? b : b == one || a == b ? a : std::nullopt;
    };
    split.rows = split.columns = one;
    for (size_t i = 0; i < splits.size(); ++i) {
      if (splits[i] != nullptr) {
        split.rows = wider(split.rows, splits[i]->rows);
        split.columns = wider(split.columns, splits[i]->columns);
        continue;
      }
      if (node.inputs[i] == kNoValue) continue;
      const Value& other = graph_.values[static_cast<size_t>(node.inputs[i])];
      if (!other.is_constant() || other.constant.size() != 1 || other.constant.shape().rank() > 3) {
        return false;
      }
    }
    return true;
  }

  ValueId Integers(const std::vector<int64_t>& values) {
    return AddIntegers(graph_, fmt::format("split/{}", graph_.values.size()), values);
  }
  ValueId Emit(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return Emit(OperatorRegistry::Builtin().Find("", op), std::move(inputs), std::move(attributes));
  }
  ValueId Emit(const OperatorDef* def, std::vector<ValueId> inputs, Attributes attributes) {
    return AddNode(graph_, fmt::format("split/{}", graph_.values.size()), def, std::move(inputs),
                   std::move(attributes));
  }

  Graph& graph_;
  PatternReader reader_;
  std::set<ValueId> presents_;
  std::map<ValueId, Split> splits_;                   // by [batch·heads, n, m]
  std::vector<std::pair<ValueId, ValueId>> instead_;  // the value that is read, and its replacement
  int ends_ = 0;
};

}  // namespace

int SplitBatchHeads(Graph& graph, const DecoderPorts& ports) {
  Graph split = graph;
  const int count = BatchHeadSplitter(split, ports).Run();
  if (count > 0) graph = std::move(split);
  return count;
}

}  // namespace chairlift::decoders
