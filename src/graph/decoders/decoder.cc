#include "graph/decoders/decoder.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "graph/decoders/normalise_ports.h"
#include "graph/decoders/paging.h"
#include "graph/decoders/source.h"
#include "graph/decoders/without_past.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/ragged/ragged.h"
#include "graph/widen.h"

namespace chairlift {
namespace {

constexpr std::string_view kPastPrefix = "past_key_values.";
constexpr std::string_view kPresentPrefix = "present.";
constexpr std::string_view kSourceName = "encoder_hidden_states";

Status CheckShape(const Value& value, int rank, const std::vector<int>& known, const char* form) {
  const bool fits =
      value.shape.has_rank() && value.shape.rank() == rank &&
      std::all_of(known.begin(), known.end(), [&](int axis) { return value.shape[axis].known(); });
  if (fits) return absl::OkStatus();
  return Unimplemented("'{}' has shape {}; a decoder's is {}", value.name, value.shape.ToString(),
                       form);
}

// A static cache is an input of fixed length, into which new keys and values are written at a
// position.
Status CheckCachesGrow(const Graph& graph) {
  constexpr std::string_view kWriters[] = {"ScatterElements", "ScatterND", "TensorScatter"};
  for (const Node& node : graph.nodes) {
    const bool writes =
        node.def->domain.empty() &&
        std::find(std::begin(kWriters), std::end(kWriters), node.def->name) != std::end(kWriters);
    if (!writes) continue;
    const ValueId into = node.inputs[0];
    const std::string& name = graph.values[static_cast<size_t>(into)].name;
    const bool is_input =
        std::find(graph.inputs.begin(), graph.inputs.end(), into) != graph.inputs.end();
    if (!is_input || !name.starts_with(kPastPrefix)) continue;
    return Unimplemented(
        "{} writes into '{}', a static cache of fixed length; export the model with a cache that "
        "grows (DynamicCache), whose outputs are the past and the new keys",
        node.Describe(), name);
  }
  return absl::OkStatus();
}

// The branch that uses the cache.
StatusOr<Graph> PickCacheBranch(const Graph& graph) {
  Graph picked = graph;
  const auto input = std::find_if(picked.inputs.begin(), picked.inputs.end(), [&](ValueId id) {
    const Value& value = picked.values[static_cast<size_t>(id)];
    return value.name == "use_cache_branch" && value.dtype == DType::kBool;
  });
  if (input == picked.inputs.end()) return picked;
  picked.values[static_cast<size_t>(*input)].constant = Tensor::Of<bool>({1}, {!HasSource(graph)});
  picked.inputs.erase(input);
  std::vector<std::string> names, notes;
  for (const ValueId id : picked.outputs) {
    names.push_back(picked.values[static_cast<size_t>(id)].name);
  }
  for (const Pass& pass : {SelectConstantBranches(), RemoveDeadNodes()}) {
    CHAIRLIFT_RETURN_IF_ERROR(pass.run(picked, notes).status());
  }
  for (size_t i = 0; i < names.size(); ++i) {
    picked.values[static_cast<size_t>(picked.outputs[i])].name = names[i];
  }
  const Links links(picked);
  std::erase_if(picked.inputs, [&](ValueId id) { return links.Unused(id); });
  CHAIRLIFT_RETURN_IF_ERROR(Verify(picked));
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(picked));
  return picked;
}

}  // namespace

bool HasPast(const Graph& graph) {
  return !decoders::GrownPorts(graph).empty() ||
         std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
           const Value& value = graph.values[static_cast<size_t>(id)];
           return value.name.starts_with(kPastPrefix) || decoders::JoinedLayer(value).has_value();
         });
}

bool HasSource(const Graph& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId id) {
    return graph.values[static_cast<size_t>(id)].name == kSourceName;
  });
}

StatusOr<Graph> NormaliseDecoder(const Graph& graph) {
  CHAIRLIFT_ASSIGN_OR_RETURN(Graph picked, PickCacheBranch(graph));
  CHAIRLIFT_RETURN_IF_ERROR(WidenFloats(picked));
  CHAIRLIFT_RETURN_IF_ERROR(decoders::NormalisePorts(picked));
  return picked;
}

StatusOr<DecoderPorts> FindDecoderPorts(const Graph& graph) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckCachesGrow(graph));
  DecoderPorts ports;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.values[static_cast<size_t>(graph.inputs[i])];
    const int at = static_cast<int>(i);
    const bool integer = value.dtype == DType::kInt64 || value.dtype == DType::kInt32;
    if (value.name.starts_with(kPastPrefix)) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 4, {}, "[batch, heads, past, columns]"));
      if (value.dtype != DType::kFloat) {
        return Unimplemented("'{}' is {}; what is supported is float32", value.name,
                             DTypeName(value.dtype));
      }
      ports.caches.push_back({.name = value.name, .input = at});
    } else if (value.name == "input_ids" && value.dtype == DType::kInt64) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 2, {}, "[batch, new]"));
      ports.tokens = at;
    } else if (value.name == "attention_mask" && integer) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 2, {}, "[batch, past + new]"));
      ports.mask = at;
    } else if (value.name == "position_ids" && integer) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 2, {}, "[batch, new]"));
      ports.positions = at;
    } else if (value.name == kSourceName && value.dtype == DType::kFloat) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 3, {2}, "[batch, source, columns]"));
      ports.source = at;
    } else if (value.name == "encoder_attention_mask" && integer) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckShape(value, 2, {}, "[batch, source]"));
      ports.source_mask = at;
    } else {
      return Unimplemented(
          "input '{}' ({}) is not known; a decoder's are 'input_ids', 'attention_mask', "
          "'position_ids' and 'past_key_values.N.key' and '.value', or 'encoder_hidden_states' and "
          "'encoder_attention_mask'",
          value.name, DTypeName(value.dtype));
    }
  }
  if (ports.tokens < 0) return Unimplemented("it has no int64 input 'input_ids'");
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Value& value = graph.values[static_cast<size_t>(graph.outputs[i])];
    const int at = static_cast<int>(i);
    if (value.name == "logits" && value.dtype == DType::kFloat) {
      ports.logits = at;
      continue;
    }
    const auto cache = std::find_if(ports.caches.begin(), ports.caches.end(), [&](const auto& c) {
      return value.name.starts_with(kPresentPrefix) && c.output < 0 &&
             value.name.substr(kPresentPrefix.size()) == c.name.substr(kPastPrefix.size());
    });
    if (cache == ports.caches.end()) {
      if (ports.source >= 0) continue;  // such as keys and values of the source
      return Unimplemented(
          "output '{}' ({}) is not known; a decoder's are 'logits' (float32) and the "
          "'present.N.key' and '.value' of its inputs",
          value.name, DTypeName(value.dtype));
    }
    cache->output = at;
    const SymbolicShape& past =
        graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(cache->input)])].shape;
    // For dimensions that the file leaves open.
    const auto size = [&](int axis) {
      const bool fits = value.shape.has_rank() && value.shape.rank() == 4;
      const Dim dim = past[axis].known() || !fits ? past[axis] : value.shape[axis];
      return dim.known() ? dim.value() : 0;
    };
    cache->heads = size(1);
    cache->columns = size(3);
    if (cache->heads > 0 && cache->columns > 0) continue;
    return Unimplemented("'{}' has shape {}: its heads and columns are not known", cache->name,
                         past.ToString());
  }
  if (ports.logits < 0) return Unimplemented("it has no float32 output 'logits'");
  for (const DecoderPorts::Cache& cache : ports.caches) {
    if (cache.output >= 0) continue;
    return Unimplemented(
        "input '{}' has no output '{}{}'; keys and values of a source are computed from "
        "'encoder_hidden_states', as in decoder_model.onnx",
        cache.name, kPresentPrefix, cache.name.substr(kPastPrefix.size()));
  }
  return ports;
}

StatusOr<DecoderModel> MakeDecoder(const Graph& graph, const Graph* encoder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const DecoderPorts ports, FindDecoderPorts(graph));
  if ((ports.source >= 0) != (encoder != nullptr)) {
    return Unimplemented("it has {}", encoder == nullptr ? "a source, and there is no encoder"
                                                         : "an encoder, and no source");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(decoders::CausalModel causal, decoders::WithoutPast(graph, ports));
  CHAIRLIFT_ASSIGN_OR_RETURN(RaggedModel ragged, MakeRagged(causal.graph));
  CHAIRLIFT_ASSIGN_OR_RETURN(DecoderModel model, decoders::Page(std::move(ragged)));
  if (!ports.caches.empty() && model.layers.size() * 2 != ports.caches.size()) {
    return Unimplemented("it has {} attentions, and {} inputs of keys and values",
                         model.layers.size(), ports.caches.size());
  }
  if (causal.max_length > 0 && (model.max_length == 0 || causal.max_length < model.max_length)) {
    model.max_length = causal.max_length;
  }
  model.notes = {
      fmt::format("keys and values of {} attention{}, each proved to see the tokens up to its own",
                  model.layers.size(), model.layers.size() == 1 ? "" : "s"),
      "nothing else depends on how many tokens came before, but positions"};
  if (encoder != nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(model.source,
                               decoders::JoinSource(*encoder, *std::move(causal.source)));
    const SourceModel& source = *model.source;
    if (source.graph.outputs.size() != 2 * model.layers.size()) {
      return Unimplemented("{} attentions read the source, and {} earlier tokens",
                           source.graph.outputs.size() / 2, model.layers.size());
    }
    model.notes.push_back(
        "nothing but keys and values of attention reads the source, and all of its tokens count");
    model.notes.push_back(source.packed
                              ? "encoder: tokens of sources are packed, nothing is padded"
                              : "encoder: runs on one source at a time: " + source.not_packed);
  }
  if (model.max_length > 0) {
    model.notes.push_back(fmt::format("sequences up to {} tokens", model.max_length));
  }
  model.passes = std::move(causal.passes);
  return model;
}

}  // namespace chairlift
