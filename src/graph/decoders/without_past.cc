#include "graph/decoders/without_past.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "graph/decoders/pattern.h"
#include "graph/infer.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/mask_proof.h"
#include "graph/ragged/prepare.h"

namespace chairlift::decoders {
namespace {

class PastRemover {
 public:
  // The graph has been through the preparing passes, and its inputs have the names of sizes.
  PastRemover(Graph& graph, const DecoderPorts& ports)
      : graph_(graph), ports_(ports), reader_(graph), why_(graph.values.size()) {}

  Status Run() {
    StartPatterns(graph_, ports_, reader_);
    for (size_t i = 0; i < ports_.caches.size(); ++i) {
      pasts_[graph_.inputs[static_cast<size_t>(ports_.caches[i].input)]] = i;
    }
    InferBudget budget;
    std::vector<bool> known(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      Node& node = graph_.nodes[n];
      // With what is known of its inputs so far.
      const Status inferred = InferNode(graph_, node, budget);
      if (!inferred.ok()) return Unimplemented("{}: {}", node.Describe(), Message(inferred));
      const Status followed = reader_.Visit(node);
      known[n] = followed.ok() || FollowsPast(node);
      if (followed.ok()) continue;
      for (const ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        why_[static_cast<size_t>(id)] = fmt::format("{}: {}", node.Describe(), Message(followed));
      }
    }
    // More nodes are added behind those that there are.
    const std::vector<bool> needed = Needed(known);
    for (size_t n = 0; n < needed.size(); ++n) {
      const Status kept = needed[n] ? Keep(n) : absl::OkStatus();
      if (!kept.ok()) return Unimplemented("{}: {}", graph_.nodes[n].Describe(), Message(kept));
    }
    return Finish(needed);
  }

  int64_t limit() const { return reader_.limit(); }

 private:
  // Keys or values of all tokens: those of the past, then new ones.
  struct Grown {
    size_t cache = 0;
    ValueId added = kNoValue;
  };

  const Value& InputValue(int i) const {
    return graph_.values[static_cast<size_t>(graph_.inputs[static_cast<size_t>(i)])];
  }

  static Line Position(int axis) { return *Line::Sum(Line::Of(Size::kPast), Line::Index(axis)); }

  // Keys and values of the past, joined by new ones or repeated for several heads.
  bool FollowsPast(const Node& node) {
    if (node.outputs.size() != 1 || node.outputs[0] == kNoValue) return false;
    const bool same = Is(node, "Identity") || (Is(node, "Concat") && node.inputs.size() == 1);
    if (same && pasts_.contains(node.inputs[0])) {
      pasts_[node.outputs[0]] = pasts_.at(node.inputs[0]);
      return true;
    }
    if (const auto grown = GrowsPast(node)) {
      const ValueId out = node.outputs[0];
      grown_[out] = *grown;
      joined_.insert(out);
      graph_.values[static_cast<size_t>(out)].shape[2] = Dim::Symbol(PatternReader::kTotal);
      return true;
    }
    return RepeatsHeads(node);
  }

  // The nodes that logits and new keys and values follow from, but for what is known.
  std::vector<bool> Needed(const std::vector<bool>& known) const {
    const Links links(graph_);
    std::vector<bool> needed(graph_.nodes.size(), false);
    std::vector<ValueId> open = {graph_.outputs[static_cast<size_t>(ports_.logits)]};
    for (const auto& [id, grown] : grown_) open.push_back(grown.added);
    while (!open.empty()) {
      const int n = links.producer(open.back());
      open.pop_back();
      if (n < 0 || known[static_cast<size_t>(n)] || needed[static_cast<size_t>(n)]) continue;
      needed[static_cast<size_t>(n)] = true;
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      // An attention's mask is proved, not computed.
      const bool attention = Is(node, "Attention", "chairlift");
      for (size_t i = 0; i < (attention ? 3 : node.inputs.size()); ++i) {
        open.push_back(node.inputs[i]);
      }
    }
    return needed;
  }

  // A node that computes with tokens.
  Status Keep(size_t n) {
    const Node node = graph_.nodes[n];
    if (Is(node, "Attention", "chairlift")) return KeepAttention(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      CHAIRLIFT_RETURN_IF_ERROR(CheckNotCached(id));
      const bool shape = i == 1 && (Is(node, "Reshape") || Is(node, "Expand"));
      if (!shape) CHAIRLIFT_RETURN_IF_ERROR(CheckNoSizes(id));
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId instead, Canonical(id));
      graph_.nodes[n].inputs[i] = instead;
    }
    return absl::OkStatus();
  }

  Status CheckNotCached(ValueId id) const {
    if (!pasts_.contains(id) && !grown_.contains(id) && !repeated_.contains(id)) {
      return absl::OkStatus();
    }
    return Unimplemented(
        "it reads keys or values of earlier tokens ('{}'), which only attention over "
        "Concat(past, new) along axis 2 is known to do",
        graph_.values[static_cast<size_t>(id)].name);
  }

  // Numbers of sequences and of new tokens may say what shape something has, but not what it is: a
  // call has as many new tokens as it likes.
  Status CheckNoSizes(ValueId id) const {
    const Value& value = graph_.values[static_cast<size_t>(id)];
    const Pattern& pattern = reader_.of(id);
    if (value.is_constant() || !pattern.known() || pattern.is_table()) return absl::OkStatus();
    const auto has_sizes = [](const Line& line) { return line.sizes != Multiples{}; };
    const bool any = std::any_of(pattern.list.begin(), pattern.list.end(), has_sizes) ||
                     (pattern.line.axes.empty() && has_sizes(pattern.line));
    if (!any) return absl::OkStatus();
    return Unimplemented("its input '{}' depends on the number of tokens in a call", value.name);
  }

  // Concat(past, new, axis 2) of one shape; nothing where it is something else.
  std::optional<Grown> GrowsPast(const Node& node) const {
    if (!Is(node, "Concat") || node.inputs.size() != 2) return std::nullopt;
    const auto past = pasts_.find(node.inputs[0]);
    const int64_t axis = node.attributes.Int("axis", 0);
    if (past == pasts_.end() || (axis != 2 && axis != -2)) return std::nullopt;
    const ValueId added = node.inputs[1];
    const SymbolicShape& cache = InputValue(ports_.caches[past->second].input).shape;
    const SymbolicShape& shape = graph_.values[static_cast<size_t>(added)].shape;
    const bool fits =
        shape.has_rank() && shape.rank() == 4 && shape[1].Same(cache[1]) && shape[3].Same(cache[3]);
    if (!fits || !CheckNotCached(added).ok()) return std::nullopt;
    return Grown{past->second, added};
  }

  // Unsqueeze, Expand and Reshape that repeat each head of keys for several of queries: [batch,
  // heads, tokens, columns] as [batch, heads·n, tokens, columns].
  bool RepeatsHeads(const Node& node) {
    if (node.inputs.empty() || node.inputs[0] == kNoValue) return false;
    const ValueId from = node.inputs[0], out = node.outputs[0];
    if (Is(node, "Unsqueeze") && grown_.contains(from)) {
      const auto axes = IntegersInput(graph_, node, 1);
      if (!axes || *axes != std::vector<int64_t>{2}) return false;
      repeated_[out] = {grown_.at(from), 1};
      return true;
    }
    const auto found = repeated_.find(from);
    if (found == repeated_.end()) return false;
    const DecoderPorts::Cache& cache = ports_.caches[found->second.grown.cache];
    const SymbolicShape& shape = InputValue(cache.input).shape;
    const Line heads = Line::Number(shape[1].value()), columns = Line::Number(shape[3].value());
    const auto sizes = ConstantOrKnown(node, 1);
    if (!sizes) return false;
    const auto is = [&](size_t i, const Line& want) {
      return (*sizes)[i] == want || (*sizes)[i] == Line::Number(1);
    };
    if (Is(node, "Expand") && found->second.times == 1 && sizes->size() == 5) {
      const Line& times = (*sizes)[2];
      if (!is(0, Line::Of(Size::kBatch)) || !is(1, heads) || !is(3, Line::Total()) ||
          !is(4, columns) || !times.is_number() || times.number < 1) {
        return false;
      }
      repeated_[out] = {found->second.grown, times.number};
      return true;
    }
    if (!Is(node, "Reshape") || sizes->size() != 4) return false;
    const auto fits = [&](size_t i, const Line& want) {
      return (*sizes)[i] == want || (*sizes)[i] == Line::Number(-1);
    };
    const Line all = Line::Number(heads.number * found->second.times);
    if (!fits(0, Line::Of(Size::kBatch)) || !fits(1, all) || !fits(2, Line::Total()) ||
        !fits(3, columns)) {
      return false;
    }
    grown_[out] = found->second.grown;
    return true;
  }

  std::optional<std::vector<Line>> ConstantOrKnown(const Node& node, size_t i) const {
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return std::nullopt;
    const Value& value = graph_.values[static_cast<size_t>(node.inputs[i])];
    if (value.is_constant()) return Pattern::OfConstant(value.constant).Elements();
    return reader_.of(node.inputs[i]).Elements();
  }

  Status KeepAttention(size_t n) {
    Node& node = graph_.nodes[n];
    const ValueId q = node.inputs[0], k = node.inputs[1], v = node.inputs[2];
    CHAIRLIFT_RETURN_IF_ERROR(CheckNotCached(q));
    if (!grown_.contains(k) || !grown_.contains(v)) {
      return Unimplemented("its keys or values are not those of the past and the new tokens");
    }
    if (node.attributes.Int("causal", 0) != 0 || node.attributes.Float("softcap", 0.0f) != 0.0f) {
      return Unimplemented("what hides later tokens is not its mask, or it has a softcap");
    }
    if (node.inputs.size() < 4 || node.inputs[3] == kNoValue) {
      return Unimplemented("it has no mask: tokens of a prompt would see later ones");
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckCausal(node.inputs[3]));
    node.inputs = {q, grown_.at(k).added, grown_.at(v).added};
    node.attributes.Set("causal", int64_t{1});
    return absl::OkStatus();
  }

  // Whether the mask hides exactly the keys behind each query.
  Status CheckCausal(ValueId mask) const {
    Pattern pattern =
        graph_.values[static_cast<size_t>(mask)].is_constant() ? Pattern() : reader_.of(mask);
    if (!pattern.is_table() || pattern.dtype != DType::kFloat) {
      const std::string& why = why_[static_cast<size_t>(mask)];
      return Unimplemented("its mask cannot be followed{}{}", why.empty() ? "" : ": ", why);
    }
    pattern.Simplify(true);
    const int rank = pattern.rank();
    if (rank < 2 || rank > 4 ||
        pattern.dims[static_cast<size_t>(rank - 2)] != Line::Of(Size::kNew) ||
        pattern.dims[static_cast<size_t>(rank - 1)] != Line::Total()) {
      return Unimplemented("its mask is not one for each new token and each of all tokens");
    }
    // Key ≤ past + query.
    const Line seen = *Line::Sum(Position(rank - 2), Line::Index(rank - 1), -1);
    const Line hidden = *Line::Sum(Line::Number(-1), seen, -1);
    const auto& conditions = pattern.conditions;
    const bool straight = conditions.size() == 1 && conditions[0] == seen;
    if (!straight && !(conditions.size() == 1 && conditions[0] == hidden)) {
      std::vector<std::string> all;
      all.reserve(conditions.size());
      for (const Line& condition : conditions) all.push_back(condition.ToString() + " ≥ 0");
      return Unimplemented("its mask hides by [{}], not where {} ≥ 0 fails", fmt::join(all, ", "),
                           seen.ToString());
    }
    const float* table = pattern.table.data<float>();
    if (table[straight ? 1 : 0] != 0.0f || !(table[straight ? 0 : 1] <= -ragged::kHidingScore)) {
      return Unimplemented("its mask adds {} to what is seen and {} to what is hidden",
                           table[straight ? 1 : 0], table[straight ? 0 : 1]);
    }
    return absl::OkStatus();
  }

  // --- What is known, for nodes that are kept ---------------------------------------------------

  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node node;
    node.name = fmt::format("known/{}", graph_.values.size());
    node.def = OperatorRegistry::Builtin().Find("", op);
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    node.outputs = {graph_.AddValue({.name = node.name})};
    graph_.nodes.push_back(node);
    return graph_.nodes.back().outputs[0];
  }
  ValueId Integers(const std::vector<int64_t>& values) {
    const ValueId id = AddConstant(graph_, fmt::format("known/{}", graph_.values.size()),
                                   Tensor::Of<int64_t>({static_cast<int64_t>(values.size())},
                                                       std::span<const int64_t>(values)));
    return id;
  }
  // [1]: an entry of the shape of input_ids.
  ValueId SizeOfTokens(int axis) {
    Attributes range;
    range.Set("start", int64_t{axis});
    range.Set("end", int64_t{axis} + 1);
    return Emit("Shape", {graph_.inputs[static_cast<size_t>(ports_.tokens)]}, range);
  }

  // The value without a past, where it is known; itself, where it is not.
  StatusOr<ValueId> Canonical(ValueId id) {
    const Value value = graph_.values[static_cast<size_t>(id)];
    if (value.is_constant() || !reader_.of(id).known()) {
      return id;
    }
    if (const auto found = canonical_.find(id); found != canonical_.end()) return found->second;
    StatusOr<ValueId> made = MakeCanonical(value, reader_.of(id));
    if (!made.ok()) {
      return Unimplemented("its input '{}' {}", value.name, Message(made.status()));
    }
    canonical_[id] = *made;
    return made;
  }

  StatusOr<ValueId> MakeCanonical(const Value& value, const Pattern& pattern) {
    if (pattern.is_line() && !pattern.line.axes.empty()) return Positions(value.dtype, pattern);
    if (pattern.is_table() && pattern.conditions.empty()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId shape, Sizes(pattern.dims));
      Attributes filled;
      filled.Set("value", pattern.table);
      return Emit("ConstantOfShape", {shape}, filled);
    }
    const auto elements = pattern.Elements();
    if (!elements) return Unimplemented("depends on places or on how many tokens came before");
    CHAIRLIFT_ASSIGN_OR_RETURN(ValueId sizes, Sizes(*elements));
    if (pattern.rank() == 0) sizes = Emit("Squeeze", {sizes, Integers({0})});
    return AsType(sizes, value.dtype);
  }

  StatusOr<ValueId> AsType(ValueId id, DType dtype) {
    if (dtype == DType::kInt64) return id;
    Attributes to;
    if (dtype != DType::kInt32 && dtype != DType::kFloat) {
      return Unimplemented("is {}", DTypeName(dtype));
    }
    to.Set("to", int64_t{dtype == DType::kInt32 ? 6 : 1});
    return Emit("Cast", {id}, to);
  }

  // A list of numbers, batch sizes and lengths.
  StatusOr<ValueId> Sizes(const std::vector<Line>& elements) {
    std::vector<ValueId> parts;
    for (const Line& element : elements) {
      if (element.is_number()) {
        parts.push_back(Integers({element.number}));
        continue;
      }
      const int axis = element.of(Size::kBatch) != 0 ? 0 : 1;
      const int64_t times = element.sizes[static_cast<size_t>(axis)];
      const auto own =
          Line::Product(Line::Of(axis == 0 ? Size::kBatch : Size::kNew), Line::Number(times));
      if (!own || element != *own) {
        return Unimplemented("depends on how many tokens came before ({})", element.ToString());
      }
      ValueId part = SizeOfTokens(axis);
      if (times != 1) part = Emit("Mul", {part, Integers({times})});
      parts.push_back(part);
    }
    if (parts.size() == 1) return parts[0];
    Attributes axis;
    axis.Set("axis", int64_t{0});
    return Emit("Concat", parts, axis);
  }

  // past + index along an axis as long as the new tokens are: without a past, the index.
  StatusOr<ValueId> Positions(DType dtype, const Pattern& pattern) {
    const int axis = pattern.line.axes.begin()->first;
    bool fits = pattern.line == Position(axis);
    for (int i = 0; i < pattern.rank(); ++i) {
      const Line& dim = pattern.dims[static_cast<size_t>(i)];
      fits &= i == axis ? dim == Line::Of(Size::kNew)
                        : dim == Line::Number(1) || dim == Line::Of(Size::kBatch);
    }
    if (!fits) {
      return Unimplemented("is {} where a token's position is past + its index",
                           pattern.line.ToString());
    }
    const ValueId length = Emit("Squeeze", {SizeOfTokens(1), Integers({0})});
    const auto scalar = [&](int64_t n) { return Emit("Squeeze", {Integers({n}), Integers({0})}); };
    ValueId places = Emit("Range", {scalar(0), length, scalar(1)});
    std::vector<int64_t> others;
    for (int i = 0; i < pattern.rank(); ++i) {
      if (i != axis) others.push_back(i);
    }
    if (!others.empty()) places = Emit("Unsqueeze", {places, Integers(others)});
    return AsType(places, dtype);
  }

  // --- The causal graph -------------------------------------------------------------------------

  Status Finish(const std::vector<bool>& needed) {
    for (const DecoderPorts::Cache& cache : ports_.caches) {
      const ValueId out = graph_.outputs[static_cast<size_t>(cache.output)];
      const auto grown = grown_.find(out);
      if (grown == grown_.end() || !joined_.contains(out) ||
          ports_.caches[grown->second.cache].name != cache.name) {
        return Unimplemented("output '{}' is not Concat('{}', new) along axis 2",
                             graph_.values[static_cast<size_t>(out)].name, cache.name);
      }
    }
    const ValueId logits = graph_.outputs[static_cast<size_t>(ports_.logits)];
    if (reader_.of(logits).known() || grown_.contains(logits)) {
      return Unimplemented("its logits do not follow from its tokens");
    }
    std::vector<bool> removed(graph_.nodes.size(), false);
    for (size_t n = 0; n < needed.size(); ++n) removed[n] = !needed[n];
    RemoveNodes(graph_, removed);
    graph_.inputs = {graph_.inputs[static_cast<size_t>(ports_.tokens)]};
    graph_.outputs = {logits};
    SortNodes(graph_);
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      Value& value = graph_.values[i];
      if (value.is_constant() || static_cast<ValueId>(i) == graph_.inputs[0]) continue;
      value.shape = SymbolicShape();
      value.elements.reset();
    }
    CHAIRLIFT_RETURN_IF_ERROR(Verify(graph_));
    return InferShapes(graph_);
  }

  struct Repeated {
    Grown grown;
    int64_t times = 1;
  };

  Graph& graph_;
  const DecoderPorts& ports_;
  PatternReader reader_;
  std::vector<std::string> why_;     // by value: why it is not known
  std::map<ValueId, size_t> pasts_;  // inputs; the cache
  std::map<ValueId, Grown> grown_;
  std::set<ValueId> joined_;              // those that are Concat(past, new)
  std::map<ValueId, Repeated> repeated_;  // on the way to a grown one
  std::map<ValueId, ValueId> canonical_;
};

}  // namespace

void NameSizes(Graph& graph, const DecoderPorts& ports) {
  const auto name = [&](int input, const std::vector<std::pair<int, const char*>>& dims) {
    if (input < 0) return;
    Value& value = graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(input)])];
    value.elements.reset();
    for (const auto& [axis, symbol] : dims) value.shape[axis] = Dim::Symbol(symbol);
  };
  name(ports.tokens, {{0, PatternReader::kBatch}, {1, PatternReader::kNew}});
  name(ports.positions, {{0, PatternReader::kBatch}, {1, PatternReader::kNew}});
  name(ports.mask, {{0, PatternReader::kBatch}, {1, PatternReader::kTotal}});
  for (const DecoderPorts::Cache& cache : ports.caches) {
    name(cache.input, {{0, PatternReader::kBatch}, {2, PatternReader::kPast}});
  }
}

void StartPatterns(const Graph& graph, const DecoderPorts& ports, PatternReader& reader) {
  const Line batch = Line::Of(Size::kBatch), added = Line::Of(Size::kNew);
  const auto set = [&](int input, std::vector<Line> dims, const Line& line) {
    if (input < 0) return;
    const ValueId id = graph.inputs[static_cast<size_t>(input)];
    const DType dtype = graph.values[static_cast<size_t>(id)].dtype;
    const Pattern pattern = Pattern::OfLine(dtype, std::move(dims), line);
    reader.Set(id, line.is_number() ? *pattern.AsTable() : pattern);
  };
  set(ports.mask, {batch, Line::Total()}, Line::Number(1));
  set(ports.positions, {batch, added}, *Line::Sum(Line::Of(Size::kPast), Line::Index(1)));
}

StatusOr<CausalModel> WithoutPast(const Graph& graph, const DecoderPorts& ports) {
  if (graph.num_captures > 0) return Unimplemented("it is a sub-graph");
  CausalModel model;
  model.graph = graph;
  NameSizes(model.graph, ports);
  CHAIRLIFT_ASSIGN_OR_RETURN(model.passes, ragged::RunPreparingPasses(model.graph));
  PastRemover remover(model.graph, ports);
  CHAIRLIFT_RETURN_IF_ERROR(remover.Run());
  model.max_length = remover.limit();
  return model;
}

}  // namespace chairlift::decoders
