#include "graph/decoders/normalise_ports.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/passes/rewrite.h"

namespace chairlift::decoders {
namespace {

constexpr std::string_view kPast = "past_", kPresent = "present_";
constexpr std::array<const char*, 2> kParts = {".key", ".value"};

std::optional<std::string> LayerOf(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return std::nullopt;
  name.remove_prefix(prefix.size());
  if (name.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return std::string(name);
}

class PortNormaliser {
 public:
  explicit PortNormaliser(Graph& graph) : graph_(graph) {}

  Status Run() {
    NameGrown();
    WidenTokens();
    SplitPasts();
    CHAIRLIFT_RETURN_IF_ERROR(SplitPresents());
    if (!changed_) return absl::OkStatus();
    SortNodes(graph_);
    TakeApart();
    CHAIRLIFT_RETURN_IF_ERROR(Verify(graph_));
    return InferShapes(graph_);
  }

 private:
  Value& At(ValueId id) { return graph_.values[static_cast<size_t>(id)]; }

  void Emit(const char* op, std::vector<ValueId> inputs, ValueId out, Attributes attributes = {}) {
    graph_.nodes.push_back({fmt::format("ports/{}", out),
                            OperatorRegistry::Builtin().Find("", op),
                            std::move(attributes),
                            std::move(inputs),
                            {out}});
    changed_ = true;
  }
  ValueId NewValue() {
    return graph_.AddValue({.name = fmt::format("ports/{}", graph_.values.size())});
  }
  ValueId Integers(std::vector<int64_t> values, const Shape& shape) {
    return AddConstant(graph_, fmt::format("ports/{}", graph_.values.size()),
                       Tensor::Of<int64_t>(shape, std::span<const int64_t>(values)));
  }

  // Which of a layer's two are keys does not matter: attention says so.
  void NameGrown() {
    const auto grown = GrownPorts(graph_);
    if (grown.empty()) return;
    std::vector<bool> named(graph_.outputs.size(), false);
    for (size_t i = 0; i < grown.size(); ++i) {
      const std::string layer = fmt::format("{}{}", i / 2, kParts[i % 2]);
      At(graph_.inputs[grown[i].first]).name = "past_key_values." + layer;
      At(graph_.outputs[grown[i].second]).name = "present." + layer;
      named[grown[i].second] = true;
    }
    if (std::count(named.begin(), named.end(), false) != 1) return;
    const auto logits = std::find(named.begin(), named.end(), false) - named.begin();
    At(graph_.outputs[static_cast<size_t>(logits)]).name = "logits";
  }

  void WidenTokens() {
    constexpr int64_t kOnnxInt32 = 6;
    for (ValueId& input : graph_.inputs) {
      const Value given = At(input);
      if (given.name != "input_ids" || given.dtype != DType::kInt32) continue;
      const ValueId narrow = std::exchange(
          input,
          graph_.AddValue({.name = given.name, .dtype = DType::kInt64, .shape = given.shape}));
      At(narrow).name = "input_ids/int32";
      At(narrow).elements.reset();
      Emit("Cast", {input}, narrow, Attribute("to", kOnnxInt32));
    }
  }

  // The shape without the first dimension.
  static SymbolicShape PartShape(const SymbolicShape& joined) {
    const std::vector<Dim>& dims = joined.dims();
    return SymbolicShape(std::vector<Dim>(dims.begin() + 1, dims.end()));
  }

  // The past has keys and values in one value; makes them separate inputs.
  void SplitPasts() {
    std::vector<ValueId> inputs;
    for (const ValueId input : graph_.inputs) {
      const Value given = At(input);
      const auto layer = JoinedLayer(given);
      if (!layer) {
        inputs.push_back(input);
        continue;
      }
      std::vector<ValueId> joined;
      for (const char* part : kParts) {
        inputs.push_back(graph_.AddValue({.name = fmt::format("past_key_values.{}{}", *layer, part),
                                          .dtype = given.dtype,
                                          .shape = PartShape(given.shape)}));
        joined.push_back(NewValue());
        Emit("Unsqueeze", {inputs.back(), Integers({0}, {1})}, joined.back());
      }
      Emit("Concat", joined, input, Attribute("axis", int64_t{0}));
      layers_.push_back(*layer);
    }
    graph_.inputs = std::move(inputs);
  }

  Status SplitPresents() {
    std::vector<ValueId> outputs;
    for (const ValueId output : graph_.outputs) {
      const Value given = At(output);
      const auto layer = LayerOf(given.name, kPresent);
      if (!layer || std::find(layers_.begin(), layers_.end(), *layer) == layers_.end()) {
        outputs.push_back(output);
        continue;
      }
      if (!given.shape.has_rank() || given.shape.rank() != 5) {
        return Unimplemented(
            "output '{}' has shape {}; beside an input 'past_{}' it is [2, batch, heads, past + "
            "new, columns]",
            given.name, given.shape.ToString(), *layer);
      }
      for (int64_t i = 0; i < 2; ++i) {
        const ValueId part = NewValue();
        Emit("Gather", {output, Integers({i}, {})}, part);
        names_[outputs.size()] =
            fmt::format("present.{}{}", *layer, kParts[static_cast<size_t>(i)]);
        outputs.push_back(part);
      }
    }
    graph_.outputs = std::move(outputs);
    return absl::OkStatus();
  }

  // Values that select keys or values from the joined past become these inputs.
  void TakeApart() {
    const Links links(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (Is(node, "Gather") && node.attributes.Int("axis", 0) == 0) {
        const auto index = IntegersInput(graph_, node, 1);
        const bool scalar = index && ConstantInput(graph_, node, 1)->shape().rank() == 0;
        if (scalar) Pick(links, node.inputs[0], (*index)[0], node.outputs[0]);
      } else if (Is(node, "Split") && node.attributes.Int("axis", 0) == 0 &&
                 node.outputs.size() == 2) {
        for (int64_t i = 0; i < 2; ++i) {
          const ValueId part = node.outputs[static_cast<size_t>(i)];
          if (part == kNoValue) continue;
          for (const int reader : links.readers(part)) {
            const Node& squeeze = graph_.nodes[static_cast<size_t>(reader)];
            if (!Is(squeeze, "Squeeze") ||
                IntegersInput(graph_, squeeze, 1) != std::vector<int64_t>{0}) {
              continue;
            }
            Pick(links, node.inputs[0], i, squeeze.outputs[0]);
          }
        }
      }
    }
    for (const auto& [i, name] : names_) At(graph_.outputs[i]).name = name;
  }

  // `out` is part `index` of `joined`, which has two parts of one entry each.
  void Pick(const Links& links, ValueId joined, int64_t index, ValueId out) {
    const int n = links.producer(joined);
    if (n < 0) return;
    const Node& concat = graph_.nodes[static_cast<size_t>(n)];
    const auto count = static_cast<int64_t>(concat.inputs.size());
    if (!Is(concat, "Concat") || count != 2 || index < -count || index >= count) return;
    const SymbolicShape& shape = At(joined).shape;
    const int64_t axis = concat.attributes.Int("axis", 0);
    if (axis != 0 && !(shape.has_rank() && axis == -shape.rank())) return;
    std::vector<ValueId> parts;
    for (const ValueId input : concat.inputs) {
      const int own = links.producer(input);
      if (own < 0) return;
      const Node& unsqueeze = graph_.nodes[static_cast<size_t>(own)];
      if (!Is(unsqueeze, "Unsqueeze") ||
          IntegersInput(graph_, unsqueeze, 1) != std::vector<int64_t>{0}) {
        return;
      }
      parts.push_back(unsqueeze.inputs[0]);
    }
    const ValueId part = parts[static_cast<size_t>(index < 0 ? index + count : index)];
    // Output names must be unique.
    const auto& inputs = graph_.inputs;
    const auto& outputs = graph_.outputs;
    const bool taken = std::find(inputs.begin(), inputs.end(), part) != inputs.end() ||
                       std::find(outputs.begin(), outputs.end(), part) != outputs.end();
    if (links.is_output(out) && taken) return;
    ReplaceReads(graph_, out, part);
  }

  Graph& graph_;
  bool changed_ = false;
  std::vector<std::string> layers_;
  std::map<size_t, std::string> names_;  // by output index
};

}  // namespace

std::optional<std::string> JoinedLayer(const Value& value) {
  const bool both = value.shape.has_rank() && value.shape.rank() == 5 && value.shape[0].known() &&
                    value.shape[0].value() == 2;
  return both ? LayerOf(value.name, kPast) : std::nullopt;
}

std::vector<std::pair<size_t, size_t>> GrownPorts(const Graph& graph) {
  std::vector<std::pair<size_t, size_t>> grown;
  const bool tokens = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
    return graph.values[static_cast<size_t>(id)].name == "input_ids";
  });
  if (!tokens) return grown;
  const Links links(graph);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.values[static_cast<size_t>(graph.inputs[i])];
    if (value.name.starts_with("past_key_values.")) return {};
    if (!value.shape.has_rank() || value.shape.rank() != 4 || value.shape[2].known()) continue;
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const int n = links.producer(graph.outputs[o]);
      if (n < 0) continue;
      const Node& node = graph.nodes[static_cast<size_t>(n)];
      const int64_t axis = node.attributes.Int("axis", 0);
      if (!Is(node, "Concat") || node.inputs.size() != 2 || node.inputs[0] != graph.inputs[i] ||
          (axis != 2 && axis != -2)) {
        continue;
      }
      grown.emplace_back(i, o);
      break;
    }
  }
  return grown;
}

Status NormalisePorts(Graph& graph) { return PortNormaliser(graph).Run(); }

}  // namespace chairlift::decoders
