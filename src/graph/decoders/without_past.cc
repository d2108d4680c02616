#include "graph/decoders/without_past.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "graph/analysis/pattern.h"
#include "graph/decoders/attention_masks.h"
#include "graph/decoders/batch_heads.h"
#include "graph/decoders/head_rows.h"
#include "graph/decoders/known_values.h"
#include "graph/infer.h"
#include "graph/passes/lower_attention.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/prepare.h"

namespace chairlift::decoders {
namespace {

class PastRemover {
 public:
  // The graph has been through the preparing passes, and its inputs have named sizes. `causal`: it
  // is a decoder; if false, each token attends to all.
  PastRemover(Graph& graph, const DecoderPorts& ports, bool causal)
      : graph_(graph),
        ports_(ports),
        causal_(causal),
        reader_(graph),
        why_(graph.values.size()),
        sourced_(graph.values.size(), false),
        total_(ports.caches.empty() ? Line::Of(Size::kNew) : Line::Total()),
        position_(ports.caches.empty() ? Line::Index : BehindPast),
        known_(graph, reader_, graph.inputs[static_cast<size_t>(ports.tokens)], Size::kNew,
               position_),
        masks_(graph, reader_, why_, total_, position_) {}

  // Produces the causal graph, and the graph of the source's keys and values.
  Status Run(std::optional<Graph>& source) {
    StartPatterns(graph_, ports_, reader_);
    if (ports_.source >= 0) {
      sourced_[static_cast<size_t>(graph_.inputs[static_cast<size_t>(ports_.source)])] = true;
    }
    for (size_t i = 0; i < ports_.caches.size(); ++i) {
      pasts_[graph_.inputs[static_cast<size_t>(ports_.caches[i].input)]] = i;
    }
    InferBudget budget;
    std::vector<bool> known(graph_.nodes.size(), false);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      Node& node = graph_.nodes[n];
      // With what is known about its inputs so far.
      const Status inferred = InferNode(graph_, node, budget);
      if (!inferred.ok()) return Unimplemented("{}: {}", node.Describe(), Message(inferred));
      const Status followed = reader_.Visit(node);
      // Slopes that are read outside attention are computed.
      const bool slopes = followed.ok() && reader_.of(node.outputs[0]).is_slopes();
      known[n] = followed.ok() ? !slopes : FollowsPast(node);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) reader_.NameDims(id, graph_);
      }
      if (followed.ok()) continue;
      if (!known[n]) FollowSource(n);
      for (const ValueId id : node.outputs) {
        if (id == kNoValue) continue;
        why_[static_cast<size_t>(id)] = fmt::format("{}: {}", node.Describe(), Message(followed));
      }
    }
    if (ports_.source >= 0) {
      CHAIRLIFT_ASSIGN_OR_RETURN(source, SourceGraph(known));
    }
    // More nodes are added after the existing ones.
    std::vector<ValueId> wanted = graph_.outputs;
    if (causal_) wanted = {graph_.outputs[static_cast<size_t>(ports_.logits)]};
    for (const auto& [id, grown] : grown_) wanted.push_back(grown.added);
    const std::vector<bool> needed = Needed(known, std::move(wanted));
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

  static Line BehindPast(int axis) { return *Line::Sum(Line::Of(Size::kPast), Line::Index(axis)); }

  // Keys and values of the past, joined with new ones or repeated for several heads.
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
      graph_.values[static_cast<size_t>(out)].shape[2] = Dim::Symbol(Size::kTotal);
      return true;
    }
    return RepeatsHeads(node);
  }

  bool Sourced(ValueId id) const { return id != kNoValue && sourced_[static_cast<size_t>(id)]; }

  // Nodes that depend only on the source, and attention of tokens over it.
  void FollowSource(size_t n) {
    const Node& node = graph_.nodes[n];
    const bool attention = Is(node, "Attention", "chairlift");
    bool any = false, all = true;
    for (size_t i = 0; i < (attention ? 3 : node.inputs.size()); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      any |= Sourced(id);
      all &= Sourced(id) || graph_.values[static_cast<size_t>(id)].is_constant() ||
             reader_.of(id).known();
    }
    if (attention && !Sourced(node.inputs[0]) && Sourced(node.inputs[1]) &&
        Sourced(node.inputs[2])) {
      crosses_.push_back(n);
    } else if (any && all && !attention) {
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) sourced_[static_cast<size_t>(id)] = true;
      }
    }
  }
  bool Crosses(size_t n) const {
    return std::find(crosses_.begin(), crosses_.end(), n) != crosses_.end();
  }

  // The nodes that `open` depends on, without those that are known.
  std::vector<bool> Needed(const std::vector<bool>& known, std::vector<ValueId> open) const {
    const Links links(graph_);
    std::vector<bool> needed(graph_.nodes.size(), false);
    while (!open.empty()) {
      const int n = links.producer(open.back());
      open.pop_back();
      if (n < 0 || known[static_cast<size_t>(n)] || needed[static_cast<size_t>(n)]) continue;
      needed[static_cast<size_t>(n)] = true;
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      // An attention's mask is proved instead of computed, and its inputs from a source belong to
      // another graph.
      const size_t count = Crosses(static_cast<size_t>(n))      ? 1
                           : Is(node, "Attention", "chairlift") ? 3
                                                                : node.inputs.size();
      open.insert(open.end(), node.inputs.begin(),
                  node.inputs.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return needed;
  }

  // A node that computes with tokens.
  Status Keep(size_t n) {
    const Node node = graph_.nodes[n];
    if (Crosses(n)) return KeepCross(n);
    if (Is(node, "GrowCache", "chairlift")) {
      return Unimplemented(
          "its lengths are not known to be those of the earlier and the new tokens");
    }
    if (Is(node, "Attention", "chairlift")) return KeepAttention(n);
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      CHAIRLIFT_RETURN_IF_ERROR(CheckNotCached(id));
      if (!Sourced(id)) continue;
      return Unimplemented(
          "it reads the source ('{}'), which only keys and values of attention may do",
          graph_.values[static_cast<size_t>(id)].name);
    }
    return TakeKnown(graph_, n, known_);
  }

  // Reads the known values of its inputs instead of these.
  Status TakeKnown(Graph& graph, size_t n, KnownValues& known) const {
    for (size_t i = 0; i < graph.nodes[n].inputs.size(); ++i) {
      const Node& node = graph.nodes[n];
      const ValueId id = node.inputs[i];
      if (id == kNoValue) continue;
      const bool shape = i == 1 && (Is(node, "Reshape") || Is(node, "Expand"));
      if (!shape) CHAIRLIFT_RETURN_IF_ERROR(CheckNoSizes(id));
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId instead, known.Canonical(id));
      graph.nodes[n].inputs[i] = instead;
    }
    return absl::OkStatus();
  }

  Status CheckNotCached(ValueId id) const {
    if (!pasts_.contains(id) && !grown_.contains(id) && !repeated_.contains(id)) {
      return absl::OkStatus();
    }
    return Unimplemented(
        "it reads keys or values of earlier tokens ('{}'), which only attention over Concat(past, "
        "new) along axis 2 may do",
        graph_.values[static_cast<size_t>(id)].name);
  }

  // The number of sequences and of new tokens may determine shapes but not contents, because a call
  // has any number of new tokens.
  Status CheckNoSizes(ValueId id) const {
    const Value& value = graph_.values[static_cast<size_t>(id)];
    const Pattern& pattern = reader_.of(id);
    if (value.is_constant() || !pattern.known() || pattern.is_table()) return absl::OkStatus();
    const auto has_sizes = [](const Line& line) { return line.has_sizes(); };
    const bool any = std::any_of(pattern.list.begin(), pattern.list.end(), has_sizes) ||
                     (pattern.line.axes().empty() && has_sizes(pattern.line));
    if (!any) return absl::OkStatus();
    return Unimplemented("its input '{}' depends on the number of tokens in a call", value.name);
  }

  // Concat(past, new, axis 2) of the same shape, or GrowCache of all of them; nothing if it is
  // something else.
  std::optional<Grown> GrowsPast(const Node& node) const {
    const bool grows = Is(node, "GrowCache", "chairlift");
    if (!grows && (!Is(node, "Concat") || node.inputs.size() != 2)) return std::nullopt;
    const auto past = pasts_.find(node.inputs[0]);
    if (past == pasts_.end()) return std::nullopt;
    const int64_t axis = node.attributes.Int("axis", 0);
    if (!grows && axis != 2 && axis != -2) return std::nullopt;
    if (grows && (!IsEverywhere(node.inputs[2], *Line::Sum(total_, Line::Number(-1))) ||
                  !IsEverywhere(node.inputs[3], total_))) {
      return std::nullopt;
    }
    const ValueId added = node.inputs[1];
    const SymbolicShape& cache = InputValue(ports_.caches[past->second].input).shape;
    const SymbolicShape& shape = graph_.values[static_cast<size_t>(added)].shape;
    const bool fits =
        shape.has_rank() && shape.rank() == 4 && shape[1].Same(cache[1]) && shape[3].Same(cache[3]);
    if (!fits || !CheckNotCached(added).ok()) return std::nullopt;
    return Grown{past->second, added};
  }

  bool IsEverywhere(ValueId id, const Line& line) const {
    const Pattern& pattern = reader_.of(id);
    const auto own = pattern.AsLine();
    if (own) return *own == line;
    return pattern.kind == Pattern::Kind::kList && pattern.list == std::vector<Line>{line};
  }

  // Unsqueeze, Expand and Reshape that repeat each key head for several query heads: [batch, heads,
  // tokens, columns] as [batch, heads·n, tokens, columns].
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
    const auto sizes = reader_.In(node, 1).Elements();
    if (!sizes) return false;
    const auto is = [&](size_t i, const Line& want) {
      return (*sizes)[i] == want || (*sizes)[i] == Line::Number(1);
    };
    if (Is(node, "Expand") && found->second.times == 1 && sizes->size() == 5) {
      const Line& times = (*sizes)[2];
      if (!is(0, Line::Batch()) || !is(1, heads) || !is(3, Line::Total()) || !is(4, columns) ||
          !times.is_number() || times.number < 1) {
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
    if (!fits(0, Line::Batch()) || !fits(1, all) || !fits(2, Line::Total()) || !fits(3, columns)) {
      return false;
    }
    grown_[out] = found->second.grown;
    return true;
  }

  // Checks that the values which attention reads for new tokens are those that later calls get as
  // their past.
  Status CheckPassedOn(const Grown& read) const {
    const DecoderPorts::Cache& cache = ports_.caches[read.cache];
    const ValueId out = graph_.outputs[static_cast<size_t>(cache.output)];
    const auto passed = grown_.find(out);
    // If it is not passed on, or to another cache, an error is returned at the end.
    if (passed == grown_.end() || passed->second.cache != read.cache ||
        passed->second.added == read.added) {
      return absl::OkStatus();
    }
    return Unimplemented(
        "it reads '{}' after '{}', but output '{}' has '{}' there: later tokens would see other "
        "keys or values",
        NameOf(read.added), cache.name, NameOf(out), NameOf(passed->second.added));
  }
  const std::string& NameOf(ValueId id) const {
    return graph_.values[static_cast<size_t>(id)].name;
  }

  Status KeepAttention(size_t n) {
    Node& node = graph_.nodes[n];
    const ValueId q = node.inputs[0], k = node.inputs[1], v = node.inputs[2];
    CHAIRLIFT_RETURN_IF_ERROR(CheckNotCached(q));
    const bool past = !ports_.caches.empty();
    if (past && (!grown_.contains(k) || !grown_.contains(v))) {
      return Unimplemented("its keys or values are not those of the past and the new tokens");
    }
    for (const ValueId id : {k, v}) {
      if (past) CHAIRLIFT_RETURN_IF_ERROR(CheckPassedOn(grown_.at(id)));
    }
    for (const ValueId id : {q, k, v}) {
      if (!Sourced(id) && !reader_.of(id).known()) continue;
      return Unimplemented("it is over tokens and something else ('{}')",
                           graph_.values[static_cast<size_t>(id)].name);
    }
    if (!causal_) return KeepTwoSided(n);
    const int64_t from = node.attributes.Int("causal", 0);
    const bool causal = from != 0;
    if (from == 1 && past) return Unimplemented("its queries do not follow the past");
    const ValueId mask = node.inputs.size() > 3 ? node.inputs[3] : kNoValue;
    if (mask == kNoValue && !causal) {
      return Unimplemented("it has no mask: tokens of a prompt would see later ones");
    }
    std::vector<ValueId> inputs = {q, past ? grown_.at(k).added : k, past ? grown_.at(v).added : v};
    if (mask != kNoValue && reader_.of(mask).is_slopes()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId bias, masks_.SlopesBias(mask, node, causal));
      if (bias != kNoValue) {
        inputs.push_back(bias);
        graph_.nodes[n].attributes.Set("distances", int64_t{1});
      }
    } else if (mask != kNoValue && causal) {
      CHAIRLIFT_RETURN_IF_ERROR(masks_.CheckHidesNothing(mask, total_));
    } else if (mask != kNoValue && reader_.of(mask).is_curve()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const ValueId bias, masks_.BiasOf(mask, node, true));
      inputs.push_back(bias);
      graph_.nodes[n].attributes.Set("distances", int64_t{1});
    } else if (mask != kNoValue) {
      if (Status whole = masks_.CheckCausal(mask); !whole.ok()) {
        // A window hides what is far behind, too.
        const StatusOr<ValueId> window = masks_.BiasOf(mask, node, true);
        if (!window.ok()) return whole;
        inputs.push_back(*window);
        graph_.nodes[n].attributes.Set("distances", int64_t{1});
      }
    }
    graph_.nodes[n].inputs = std::move(inputs);
    graph_.nodes[n].attributes.Set("causal", int64_t{1});
    // Keys that were repeated for several heads are read once each.
    graph_.nodes[n].attributes.Set("grouped", int64_t{1});
    return absl::OkStatus();
  }

  // The columns that an attention's mask must have: nothing if any that broadcast will do.
  static std::optional<Line> Columns(const Node& node, const Line& keys) {
    return node.attributes.Int("mask_columns", 0) != 0 ? std::optional(keys) : std::nullopt;
  }

  // For an encoder: every token attends to all.
  Status KeepTwoSided(size_t n) {
    Node& node = graph_.nodes[n];
    if (node.attributes.Int("causal", 0) != 0) return Unimplemented("it is causal");
    if (node.inputs.size() < 4 || node.inputs[3] == kNoValue) return absl::OkStatus();
    if (!reader_.of(node.inputs[3]).is_curve()) {
      CHAIRLIFT_RETURN_IF_ERROR(masks_.CheckHidesNothing(node.inputs[3], Columns(node, total_)));
      node.inputs.resize(3);
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(node.inputs[3], masks_.BiasOf(node.inputs[3], node, false));
    node.attributes.Set("distances", int64_t{1});
    return absl::OkStatus();
  }

  // Attention over the source, which is different for each request.
  Status KeepCross(size_t n) {
    const Node& node = graph_.nodes[n];
    CHAIRLIFT_RETURN_IF_ERROR(CheckNotCached(node.inputs[0]));
    if (node.attributes.Int("causal", 0) != 0 || node.attributes.Float("softcap", 0.0f) != 0.0f) {
      return Unimplemented("it is causal over the source, or has a softcap");
    }
    if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
      CHAIRLIFT_RETURN_IF_ERROR(
          masks_.CheckHidesNothing(node.inputs[3], Columns(node, Line::Of(Size::kSource))));
    }
    Attributes attributes;
    attributes.Set("scale", node.attributes.Float("scale", 1.0f));
    for (const char* axes : {"q_axes", "y_axes"}) {
      attributes.Set(axes, node.attributes.Ints(axes, {0, 1, 2, 3}));
    }
    // For [batch, length, heads, columns].
    const char* const names[] = {"k_axes", "v_axes"};
    for (size_t i = 0; i < 2; ++i) {
      const ValueId id = node.inputs[i + 1];
      const SymbolicShape& shape = graph_.values[static_cast<size_t>(id)].shape;
      const std::vector<int64_t> axes = node.attributes.Ints(names[i], {0, 1, 2, 3});
      const auto dim = [&](size_t place) { return shape[static_cast<int>(axes[place])]; };
      if (!shape.has_rank() || !dim(1).known() || !dim(3).known()) {
        return Unimplemented("heads and columns of its keys and values are not known ({})",
                             shape.ToString());
      }
      attributes.Set("kv_heads", dim(1).value());
      attributes.Set(i == 0 ? "key_size" : "value_size", dim(3).value());
    }
    Node& kept = graph_.nodes[n];
    kept.inputs = {kept.inputs[0]};
    kept.def = OperatorRegistry::Builtin().Find("chairlift", "SourceAttention");
    kept.attributes = std::move(attributes);
    return absl::OkStatus();
  }

  // The source's keys and values, [batch, length, heads, columns], in order of the attentions.
  StatusOr<Graph> SourceGraph(const std::vector<bool>& known) const {
    Graph graph = graph_;
    const ValueId input = graph_.inputs[static_cast<size_t>(ports_.source)];
    KnownValues values(graph, reader_, input, Size::kSource, Line::Index);
    std::vector<ValueId> read;
    for (const size_t n : crosses_) {
      const std::vector<ValueId>& inputs = graph_.nodes[n].inputs;
      read.insert(read.end(), inputs.begin() + 1, inputs.begin() + 3);
    }
    if (read.empty()) return Unimplemented("no attention reads its encoder_hidden_states");
    const std::vector<bool> needed = Needed(known, read);
    for (size_t n = 0; n < needed.size(); ++n) {
      const Status kept = needed[n] ? TakeKnown(graph, n, values) : absl::OkStatus();
      if (!kept.ok()) return Unimplemented("{}: {}", graph_.nodes[n].Describe(), Message(kept));
    }
    std::vector<bool> removed(graph.nodes.size(), false);
    for (size_t n = 0; n < needed.size(); ++n) removed[n] = !needed[n];
    RemoveNodes(graph, removed);
    graph.inputs = {input};
    graph.outputs.clear();
    for (size_t i = 0; i < read.size(); ++i) {
      const Node& cross = graph_.nodes[crosses_[i / 2]];
      const std::vector<int64_t> axes =
          cross.attributes.Ints(i % 2 == 0 ? "k_axes" : "v_axes", {0, 1, 2, 3});
      const std::vector<int64_t> perm = {axes[0], axes[2], axes[1], axes[3]};
      graph.outputs.push_back(
          AddNode(graph, fmt::format("{}/{}", cross.name, i % 2 == 0 ? "keys" : "values"),
                  "Transpose", {read[i]}, Attribute("perm", perm)));
    }
    CHAIRLIFT_RETURN_IF_ERROR(InferAlone(graph));
    return graph;
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
    std::vector<ValueId> outputs = graph_.outputs;
    if (causal_) outputs = {graph_.outputs[static_cast<size_t>(ports_.logits)]};
    for (const ValueId id : outputs) {
      if (!reader_.of(id).known() && !grown_.contains(id)) continue;
      return Unimplemented("its output '{}' does not follow from its tokens",
                           graph_.values[static_cast<size_t>(id)].name);
    }
    std::vector<bool> removed(graph_.nodes.size(), false);
    for (size_t n = 0; n < needed.size(); ++n) removed[n] = !needed[n];
    RemoveNodes(graph_, removed);
    graph_.inputs = {graph_.inputs[static_cast<size_t>(ports_.tokens)]};
    graph_.outputs = std::move(outputs);
    return InferAlone(graph_);
  }

  // Starting from its input.
  static Status InferAlone(Graph& graph) {
    SortNodes(graph);
    for (size_t i = 0; i < graph.values.size(); ++i) {
      Value& value = graph.values[i];
      if (value.is_constant() || static_cast<ValueId>(i) == graph.inputs[0]) continue;
      value.shape = SymbolicShape();
      value.elements.reset();
    }
    CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
    return InferShapes(graph);
  }

  struct Repeated {
    Grown grown;
    int64_t times = 1;
  };

  Graph& graph_;
  const DecoderPorts& ports_;
  const bool causal_;
  PatternReader reader_;
  std::vector<std::string> why_;     // by value: why it is unknown
  std::map<ValueId, size_t> pasts_;  // inputs, with their cache
  std::map<ValueId, Grown> grown_;
  std::set<ValueId> joined_;              // values that are Concat(past, new)
  std::map<ValueId, Repeated> repeated_;  // values between a past and its repetition
  std::vector<bool> sourced_;             // by value: depends only on the source
  std::vector<size_t> crosses_;           // nodes: attentions of tokens over the source
  const Line total_;                      // tokens including the past
  Line (*const position_)(int axis);
  KnownValues known_;
  AttentionMasks masks_;
};

}  // namespace

void NameSizes(Graph& graph, const DecoderPorts& ports) {
  const auto name = [&](int input, const std::vector<std::pair<int, const char*>>& dims) {
    if (input < 0) return;
    Value& value = graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(input)])];
    value.elements.reset();
    for (const auto& [axis, symbol] : dims) value.shape[axis] = Dim::Symbol(symbol);
  };
  name(ports.tokens, {{0, Size::kBatch}, {1, Size::kNew}});
  name(ports.positions, {{0, Size::kBatch}, {1, Size::kNew}});
  name(ports.mask, {{0, Size::kBatch}, {1, ports.caches.empty() ? Size::kNew : Size::kTotal}});
  name(ports.source, {{0, Size::kBatch}, {1, Size::kSource}});
  name(ports.source_mask, {{0, Size::kBatch}, {1, Size::kSource}});
  for (const DecoderPorts::Cache& cache : ports.caches) {
    name(cache.input, {{0, Size::kBatch}, {2, Size::kPast}});
    SymbolicShape& shape =
        graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(cache.input)])].shape;
    shape[1] = Dim(cache.heads);
    shape[3] = Dim(cache.columns);
  }
}

void StartPatterns(const Graph& graph, const DecoderPorts& ports, PatternReader& reader) {
  const Line batch = Line::Batch(), added = Line::Of(Size::kNew);
  const auto set = [&](int input, std::vector<Line> dims, const Line& line) {
    if (input < 0) return;
    const ValueId id = graph.inputs[static_cast<size_t>(input)];
    const DType dtype = graph.values[static_cast<size_t>(id)].dtype;
    const Pattern pattern = Pattern::OfLine(dtype, std::move(dims), line);
    reader.Set(id, line.is_number() ? *pattern.AsTable() : pattern);
  };
  const bool past = !ports.caches.empty();
  set(ports.mask, {batch, past ? Line::Total() : added}, Line::Number(1));
  set(ports.positions, {batch, added},
      past ? *Line::Sum(Line::Of(Size::kPast), Line::Index(1)) : Line::Index(1));
  set(ports.source_mask, {batch, Line::Of(Size::kSource)}, Line::Number(1));
}

namespace {

// Replaces what exporters write as several operators by one.
StatusOr<std::vector<PassReport>> Recognised(Graph& graph, const DecoderPorts& ports) {
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<PassReport> passes, ragged::RunPreparingPasses(graph));
  if (SplitBatchHeads(graph, ports) == 0) return passes;
  std::vector<std::string> left;
  CHAIRLIFT_RETURN_IF_ERROR(RemoveDeadNodes().run(graph, left).status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<PassReport> more, ragged::RunPreparingPasses(graph));
  for (size_t i = 0; i < passes.size(); ++i) {
    passes[i].rewrites += more[i].rewrites;
    passes[i].time += more[i].time;
    passes[i].notes = more[i].notes;
  }
  return passes;
}

StatusOr<CausalModel> Removed(const Graph& graph, const DecoderPorts& ports, bool causal) {
  CausalModel model;
  model.graph = graph;
  NameSizes(model.graph, ports);
  CHAIRLIFT_ASSIGN_OR_RETURN(model.passes, Recognised(model.graph, ports));
  // Notes about masks are handled below.
  std::vector<std::string> left;
  LowerDecoderAttention(model.graph, left);
  SplitHeadRows(model.graph);
  PastRemover remover(model.graph, ports, causal);
  CHAIRLIFT_RETURN_IF_ERROR(remover.Run(model.source));
  model.max_length = remover.limit();
  return model;
}

}  // namespace

StatusOr<CausalModel> WithoutPast(const Graph& graph, const DecoderPorts& ports) {
  if (graph.num_captures > 0) return Unimplemented("it is a sub-graph");
  return Removed(graph, ports, true);
}

StatusOr<CausalModel> WithoutMasks(const Graph& graph, const DecoderPorts& ports) {
  return Removed(graph, ports, false);
}

}  // namespace chairlift::decoders
