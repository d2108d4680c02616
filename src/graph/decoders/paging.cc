#include "graph/decoders/paging.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace chairlift::decoders {
namespace {

class Pager {
 public:
  explicit Pager(RaggedModel ragged) : ragged_(std::move(ragged)), graph_(ragged_.graph) {}

  StatusOr<DecoderModel> Run() {
    if (!ragged_.marks.empty() || ragged_.output_is_tokens != std::vector<bool>{true}) {
      return Unimplemented("its logits are not one row a token");
    }
    for (size_t i = 0; i < ragged_.inputs.size(); ++i) Name(ragged_.inputs[i].role, i);
    if (tokens_ == kNoValue) return Unimplemented("its logits do not follow from its tokens");
    offsets_ =
        offsets_ == kNoValue ? AddInput("offsets", DType::kInt64, {Sequences("+1")}) : offsets_;
    cached_ = AddInput("cached", DType::kInt64, {Sequences("")});
    blocks_ = AddInput("blocks", DType::kInt64, {Sequences(""), Dim::Symbol("blocks")});
    model_.inputs = {{DecoderRole::kTokens},
                     {DecoderRole::kOffsets},
                     {DecoderRole::kCached},
                     {DecoderRole::kBlocks}};
    std::vector<ValueId> inputs = {tokens_, offsets_, cached_, blocks_};
    if (positions_ != kNoValue) {
      inputs.push_back(positions_);
      model_.inputs.push_back({DecoderRole::kPositions});
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const std::string op = graph_.nodes[n].def->name;
      if (graph_.nodes[n].def->domain == "chairlift" && op == "RaggedAttention") {
        CHAIRLIFT_RETURN_IF_ERROR(PageAttention(n, inputs));
      } else if (op == "RaggedQuantize" && graph_.nodes[n].inputs.size() == 3) {
        // Each sequence is a request of its own.
        graph_.nodes[n].inputs.pop_back();
        model_.whole_prompts = true;
      } else if (op.starts_with("Ragged")) {
        return Unimplemented("{}: it reads other tokens and is not causal attention",
                             graph_.nodes[n].Describe());
      }
    }
    if (model_.layers.empty()) return Unimplemented("it has no attention");
    CHAIRLIFT_RETURN_IF_ERROR(PageSources(inputs));
    CHAIRLIFT_RETURN_IF_ERROR(LastTokensOnly());
    graph_.inputs = std::move(inputs);
    SortNodes(graph_);
    ForgetShapes();
    std::vector<std::string> left;
    CHAIRLIFT_RETURN_IF_ERROR(RemoveDeadNodes().run(graph_, left).status());
    CHAIRLIFT_RETURN_IF_ERROR(Verify(graph_));
    CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph_));
    const SymbolicShape& logits = graph_.values[static_cast<size_t>(graph_.outputs[0])].shape;
    if (!logits.has_rank() || logits.rank() != 2 || !logits[1].known() || logits[1].value() < 1) {
      return Unimplemented("its logits have shape {}, not [batch, new, vocabulary]",
                           logits.ToString());
    }
    model_.vocabulary = logits[1].value();
    model_.max_length = ragged_.max_length;
    model_.graph = std::move(graph_);
    return std::move(model_);
  }

 private:
  static Dim Sequences(const char* more) { return Dim::Symbol(std::string("sequences") + more); }

  void Name(RaggedRole role, size_t i) {
    const ValueId id = graph_.inputs[i];
    if (role == RaggedRole::kTokens) tokens_ = id;
    if (role == RaggedRole::kOffsets) offsets_ = id;
    if (role == RaggedRole::kPositions) positions_ = id;
  }

  ValueId AddInput(const std::string& name, DType dtype, std::vector<Dim> dims) {
    return graph_.AddValue({.name = name, .dtype = dtype, .shape = SymbolicShape(std::move(dims))});
  }

  Status PageAttention(size_t n, std::vector<ValueId>& inputs) {
    Node& node = graph_.nodes[n];
    if (node.attributes.Int("causal", 0) == 0 ||
        (node.inputs.size() > 4 && node.inputs[4] != kNoValue)) {
      return Unimplemented("{}: it is not causal, or has a mask", node.Describe());
    }
    if (node.attributes.Has("steps")) {
      return Unimplemented("{}: its scores are quantized", node.Describe());
    }
    const SymbolicShape& k = graph_.values[static_cast<size_t>(node.inputs[1])].shape;
    const SymbolicShape& v = graph_.values[static_cast<size_t>(node.inputs[2])].shape;
    if (!k.has_rank() || !v.has_rank() || !k[1].known() || !k[2].known() || !v[1].known() ||
        !v[2].known() || !k[1].Same(v[1]) || k[1].value() < 1 || k[2].value() < 1 ||
        v[2].value() < 1) {
      return Unimplemented("{}: heads and columns of its keys are not known ({}, {})",
                           node.Describe(), k.ToString(), v.ToString());
    }
    const DecoderLayer layer{k[1].value(), k[2].value(), v[2].value()};
    const int at = static_cast<int>(model_.layers.size());
    model_.layers.push_back(layer);
    std::vector<ValueId> caches;
    for (const DecoderRole role : {DecoderRole::kKeys, DecoderRole::kValues}) {
      const bool keys = role == DecoderRole::kKeys;
      Dim rows = Dim::Symbol("block_tokens"), columns = Dim(layer.value_size);
      if (keys) {
        columns = Dim::Symbol("block_tokens");
        rows = Dim(layer.key_size);
      }
      caches.push_back(AddInput(fmt::format("{}.{}", keys ? "keys" : "values", at), DType::kFloat,
                                {Dim::Symbol("all_blocks"), Dim(layer.heads), rows, columns}));
      inputs.push_back(caches.back());
      model_.inputs.push_back({role, at});
    }
    Attributes attributes;
    attributes.Set("scale", node.attributes.Float("scale", 1.0f));
    attributes.Set("softcap", node.attributes.Float("softcap", 0.0f));
    node.def = OperatorRegistry::Builtin().Find("chairlift", "PagedAttention");
    node.attributes = std::move(attributes);
    const ValueId bias = node.inputs.size() > 5 ? node.inputs[5] : kNoValue;
    node.inputs = {node.inputs[0], node.inputs[1], node.inputs[2], offsets_,
                   cached_,        blocks_,        caches[0],      caches[1]};
    if (bias != kNoValue) node.inputs.push_back(bias);
    return absl::OkStatus();
  }

  // Attentions over a source: their keys and values are in the blocks of the same layers.
  Status PageSources(std::vector<ValueId>& inputs) {
    const auto caches = [&](size_t layer) {
      std::vector<ValueId> ids;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (model_.inputs[i].layer == static_cast<int>(layer)) ids.push_back(inputs[i]);
      }
      return ids;  // keys, values
    };
    ValueId lengths = kNoValue, blocks = kNoValue;
    size_t layer = 0;
    for (Node& node : graph_.nodes) {
      if (!Is(node, "SourceAttention", "chairlift")) continue;
      const DecoderLayer own{node.attributes.Int("kv_heads", 0), node.attributes.Int("key_size", 0),
                             node.attributes.Int("value_size", 0)};
      if (layer == model_.layers.size() || own != model_.layers[layer]) {
        return Unimplemented(
            "{}: attention number {} over the source has {} heads of {} and {} columns, and that "
            "over earlier tokens has others",
            node.Describe(), layer, own.heads, own.key_size, own.value_size);
      }
      if (lengths == kNoValue) {
        lengths = AddInput("source_lengths", DType::kInt64, {Sequences("")});
        blocks =
            AddInput("source_blocks", DType::kInt64, {Sequences(""), Dim::Symbol("source_blocks")});
      }
      const std::vector<ValueId> own_caches = caches(layer++);
      node.inputs = {node.inputs[0], offsets_, lengths, blocks, own_caches[0], own_caches[1]};
    }
    if (lengths == kNoValue) return absl::OkStatus();
    inputs.insert(inputs.end(), {lengths, blocks});
    model_.inputs.push_back({DecoderRole::kSourceLengths});
    model_.inputs.push_back({DecoderRole::kSourceBlocks});
    return absl::OkStatus();
  }

  ValueId Emit(const std::string& name, const char* op, std::vector<ValueId> inputs,
               Attributes attributes = {}, const char* domain = "") {
    return AddNode(graph_, fmt::format("{}/{}", name, graph_.values.size()), op, std::move(inputs),
                   std::move(attributes), domain);
  }
  ValueId LastOf(ValueId tokens) {
    Attributes last;
    last.Set("index", int64_t{-1});
    return Emit("last", "RaggedToken", {tokens, offsets_}, last, "chairlift");
  }

  // Computes logits only for the last token of each sequence: it is selected before the last
  // product, if everything after that works token by token and is read by nothing else.
  Status LastTokensOnly() {
    const Links links(graph_);
    ValueId at = graph_.outputs[0];
    const std::string name = graph_.values[static_cast<size_t>(at)].name;
    int reader = -1;
    while (true) {
      const int n = links.producer(at);
      if (n < 0) break;
      const Node& node = graph_.nodes[static_cast<size_t>(n)];
      const bool alone = reader < 0 || links.SoleReader(at) == reader;
      if (alone && PickDynamicBefore(links, node)) return absl::OkStatus();
      const bool product =
          (Is(node, "MatMul") || Is(node, "MatMulNBits", "chairlift")) && Constant(node, 1);
      const bool step =
          Is(node, "Identity") || Is(node, "Cast") || (Is(node, "Squeeze") && Constant(node, 1)) ||
          ((Is(node, "Add") || Is(node, "Mul") || Is(node, "Div")) && Constant(node, 1));
      if (!alone || (!product && !step)) break;
      if (product) return PickBefore(n);
      reader = n;
      at = node.inputs[0];
    }
    ValueId out = LastOf(graph_.outputs[0]);
    graph_.values[static_cast<size_t>(out)].name = name;
    graph_.outputs[0] = out;
    return absl::OkStatus();
  }
  bool Constant(const Node& node, int i) const { return ConstantInput(graph_, node, i) != nullptr; }

  // Except those of inputs: fewer rows follow the selection.
  void ForgetShapes() {
    std::vector<bool> input(graph_.values.size(), false);
    for (const ValueId id : graph_.inputs) input[static_cast<size_t>(id)] = true;
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      Value& value = graph_.values[i];
      if (input[i] || value.is_constant()) continue;
      value.shape = SymbolicShape();
      value.elements.reset();
    }
  }

  // For [1, T, hidden].
  Status PickBefore(int product) {
    const auto n = static_cast<size_t>(product);
    const ValueId hidden = graph_.nodes[n].inputs[0];
    const SymbolicShape& shape = graph_.values[static_cast<size_t>(hidden)].shape;
    if (!shape.has_rank() || shape.rank() != 3 || !shape[0].known() || shape[0].value() != 1) {
      return Unimplemented("{}: it reads {}", graph_.nodes[n].Describe(), shape.ToString());
    }
    const ValueId picked = LastRow(hidden);
    graph_.nodes[n].inputs[0] = picked;
    return absl::OkStatus();
  }
  ValueId LastRow(ValueId hidden) {
    const ValueId first = AddConstant(graph_, "last/axis", Tensor::Of<int64_t>({1}, {0}));
    const ValueId rows = LastOf(Emit("last", "Squeeze", {hidden, first}));
    return Emit("last", "Unsqueeze", {rows, first});
  }

  // The node that computes the value, if it is that operator; else −1.
  int MadeBy(const Links& links, ValueId id, const char* op, const char* domain = "") const {
    const int n = links.producer(id);
    return n >= 0 && Is(graph_.nodes[static_cast<size_t>(n)], op, domain) ? n : -1;
  }
  Node& At(int n) { return graph_.nodes[static_cast<size_t>(n)]; }

  // The same for Mul(Cast(MatMulInteger(y, constant, zero point)), scale of y · constant), where y
  // is dynamically quantised: the range still spans all tokens. False if it is something else.
  bool PickDynamicBefore(const Links& links, const Node& scaled) {
    if (!Is(scaled, "Mul")) return false;
    const int cast = MadeBy(links, scaled.inputs[0], "Cast");
    const int factor = MadeBy(links, scaled.inputs[1], "Mul");
    if (cast < 0 || factor < 0 || !Constant(At(factor), 1)) return false;
    const int product = MadeBy(links, At(cast).inputs[0], "MatMulInteger");
    if (product < 0 || !Constant(At(product), 1) || At(product).inputs.size() < 3 ||
        (At(product).inputs.size() > 3 && !Constant(At(product), 3))) {
      return false;
    }
    for (const ValueId id : {At(cast).inputs[0], scaled.inputs[0], scaled.inputs[1]}) {
      if (links.SoleReader(id) < 0) return false;
    }
    // y, its scale and its zero point.
    std::array<ValueId, 3> parts = {At(product).inputs[0], At(factor).inputs[0],
                                    At(product).inputs[2]};
    int quantized = -1;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int batch = MadeBy(links, parts[i], "Unsqueeze");  // [T, ...] as [1, T, ...]
      if (batch < 0) return false;
      const ValueId part = At(batch).inputs[0];
      const int from = MadeBy(links, part, "RaggedQuantize", "chairlift");
      if (from < 0 || At(from).outputs[i] != part || (i > 0 && from != quantized)) return false;
      quantized = from;
    }
    for (ValueId& id : parts) id = LastRow(id);
    At(product).inputs[0] = parts[0];
    At(factor).inputs[0] = parts[1];
    At(product).inputs[2] = parts[2];
    return true;
  }

  RaggedModel ragged_;
  Graph& graph_;
  DecoderModel model_;
  ValueId tokens_ = kNoValue, offsets_ = kNoValue, positions_ = kNoValue;
  ValueId cached_ = kNoValue, blocks_ = kNoValue;
};

}  // namespace

StatusOr<DecoderModel> Page(RaggedModel ragged) { return Pager(std::move(ragged)).Run(); }

}  // namespace chairlift::decoders
