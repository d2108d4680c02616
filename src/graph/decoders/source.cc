#include "graph/decoders/source.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "graph/decoders/without_past.h"
#include "graph/passes/rewrite.h"

namespace chairlift::decoders {
namespace {

struct EncoderPorts {
  ValueId tokens = kNoValue, features = kNoValue, mask = kNoValue, hidden = kNoValue;
};

StatusOr<EncoderPorts> FindEncoderPorts(const Graph& graph) {
  EncoderPorts ports;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.values[static_cast<size_t>(id)];
    if (value.name == "input_features" && value.dtype == DType::kFloat && value.shape.has_rank() &&
        value.shape.rank() == 3) {
      ports.features = id;
      continue;
    }
    const bool tokens = value.name == "input_ids" && value.dtype == DType::kInt64;
    const bool mask = value.name == "attention_mask" &&
                      (value.dtype == DType::kInt64 || value.dtype == DType::kInt32);
    if ((!tokens && !mask) || !value.shape.has_rank() || value.shape.rank() != 2) {
      return Unimplemented(
          "the encoder's input '{}' ({} {}) is not known; an encoder's are 'input_ids' (int64) and "
          "'attention_mask', [batch, source], or 'input_features' (float32), [batch, rows, frames]",
          value.name, DTypeName(value.dtype), value.shape.ToString());
    }
    (tokens ? ports.tokens : ports.mask) = id;
  }
  if ((ports.tokens == kNoValue) == (ports.features == kNoValue) ||
      (ports.features != kNoValue && ports.mask != kNoValue)) {
    return Unimplemented(
        "the encoder has not just 'input_ids', with or without a mask, or 'input_features'");
  }
  for (const ValueId id : graph.outputs) {
    const Value& value = graph.values[static_cast<size_t>(id)];
    if (value.name == "last_hidden_state" && value.dtype == DType::kFloat) ports.hidden = id;
  }
  if (ports.hidden == kNoValue) {
    return Unimplemented("the encoder has no float32 output 'last_hidden_state'");
  }
  return ports;
}

// The encoder's graph followed by `keys`. Inputs: the tokens, then the mask if there is one.
StatusOr<Graph> Joined(const Graph& encoder, const EncoderPorts& ports, const Graph& keys) {
  Graph graph = encoder;
  graph.inputs = {ports.features != kNoValue ? ports.features : ports.tokens};
  if (ports.mask != kNoValue) graph.inputs.push_back(ports.mask);
  std::vector<ValueId> place(keys.values.size(), kNoValue);
  for (size_t i = 0; i < keys.values.size(); ++i) {
    if (static_cast<ValueId>(i) == keys.inputs[0]) {
      place[i] = ports.hidden;
      continue;
    }
    Value value = keys.values[i];
    if (!value.is_constant()) {
      value.shape = SymbolicShape();
      value.elements.reset();
    }
    place[i] = graph.AddValue(std::move(value));
  }
  const auto to = [&](ValueId id) {
    return id == kNoValue ? kNoValue : place[static_cast<size_t>(id)];
  };
  for (Node node : keys.nodes) {
    for (ValueId& id : node.inputs) id = to(id);
    for (ValueId& id : node.outputs) id = to(id);
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs.clear();
  for (const ValueId id : keys.outputs) graph.outputs.push_back(to(id));
  CHAIRLIFT_RETURN_IF_ERROR(Verify(graph));
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph));
  return graph;
}

Status Pack(const Graph& joined, SourceModel& model) {
  DecoderPorts ports;
  ports.tokens = 0;
  if (joined.inputs.size() > 1) ports.mask = 1;
  CHAIRLIFT_ASSIGN_OR_RETURN(CausalModel plain, WithoutMasks(joined, ports));
  CHAIRLIFT_ASSIGN_OR_RETURN(RaggedModel ragged, MakeRagged(plain.graph));
  const auto& tokens = ragged.output_is_tokens;
  if (std::find(tokens.begin(), tokens.end(), false) != tokens.end() || ragged.min_length > 1) {
    return Unimplemented("its keys and values are not one row a token");
  }
  model.packed = true;
  model.graph = std::move(ragged.graph);
  model.inputs = std::move(ragged.inputs);
  model.max_length = ragged.max_length;
  if (plain.max_length > 0 && (model.max_length == 0 || plain.max_length < model.max_length)) {
    model.max_length = plain.max_length;
  }
  return absl::OkStatus();
}

// Limit of a source's numbers, and of an encoder's positions: hours of sound.
constexpr int64_t kMostFeatures = int64_t{1} << 26;
constexpr int64_t kMostPlaces = int64_t{1} << 20;

// Finds the number of rows and frames that it reads. If the file leaves them open: the channels of
// a convolution, and two frames per position, as in Whisper.
StatusOr<SourceFeatures> FindFeatures(const Graph& encoder, const EncoderPorts& ports) {
  const SymbolicShape& shape = encoder.values[static_cast<size_t>(ports.features)].shape;
  const SymbolicShape& hidden = encoder.values[static_cast<size_t>(ports.hidden)].shape;
  SourceFeatures features;
  if (shape[1].known()) features.rows = shape[1].value();
  if (shape[2].known()) features.frames = shape[2].value();
  for (const Node& node : encoder.nodes) {
    if (features.rows > 0 || !Is(node, "Conv") || node.inputs[0] != ports.features) continue;
    const Tensor* weights = ConstantInput(encoder, node, 1);
    const bool whole = node.attributes.Int("group", 1) == 1;
    if (weights != nullptr && weights->shape().rank() == 3 && whole) {
      features.rows = weights->shape()[1];
    }
  }
  if (features.frames == 0 && hidden.has_rank() && hidden.rank() == 3 && hidden[1].known()) {
    int64_t frames = 0;
    if (!__builtin_mul_overflow(hidden[1].value(), int64_t{2}, &frames)) features.frames = frames;
  }
  if (features.rows < 1 || features.rows > kMostFeatures || features.frames < 1 ||
      features.frames > kMostFeatures / features.rows) {
    return Unimplemented(
        "'input_features' {} must have a known number of rows and frames, at most {} together",
        shape.ToString(), kMostFeatures);
  }
  return features;
}

// With features of that size, one source at a time.
StatusOr<SourceModel> JoinFeatures(Graph encoder, const EncoderPorts& ports, const Graph& keys) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SourceFeatures features, FindFeatures(encoder, ports));
  for (Value& value : encoder.values) {
    if (value.is_constant()) continue;
    value.shape = SymbolicShape();
    value.elements.reset();
  }
  encoder.values[static_cast<size_t>(ports.features)].shape =
      SymbolicShape({Dim(1), Dim(features.rows), Dim(features.frames)});
  SourceModel model;
  CHAIRLIFT_ASSIGN_OR_RETURN(model.graph, Joined(encoder, ports, keys));
  const SymbolicShape& given =
      model.graph.values[static_cast<size_t>(model.graph.outputs[0])].shape;
  if (!given.has_rank() || given.rank() != 4 || !given[1].known() || given[1].value() < 1 ||
      given[1].value() > kMostPlaces) {
    return Unimplemented(
        "of how many places the encoder's keys are is not known, or they are more than {} ({})",
        kMostPlaces, given.ToString());
  }
  features.length = given[1].value();
  for (const ValueId id : model.graph.outputs) {
    const SymbolicShape& shape = model.graph.values[static_cast<size_t>(id)].shape;
    if (shape.has_rank() && shape.rank() == 4 && shape[1].Same(given[1])) continue;
    return Unimplemented("the encoder's keys and values are of different places");
  }
  model.features = features;
  model.max_length = features.length;
  model.not_packed = "it reads features";
  return model;
}

}  // namespace

StatusOr<SourceModel> JoinSource(const Graph& encoder, const Graph& keys) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const EncoderPorts ports, FindEncoderPorts(encoder));
  if (ports.features != kNoValue) return JoinFeatures(encoder, ports, keys);
  CHAIRLIFT_ASSIGN_OR_RETURN(Graph joined, Joined(encoder, ports, keys));
  SourceModel model;
  if (ports.mask != kNoValue) model.mask = encoder.values[static_cast<size_t>(ports.mask)].dtype;
  if (const Status packed = Pack(joined, model); !packed.ok()) {
    model.not_packed = Message(packed);
    model.graph = std::move(joined);
  }
  return model;
}

}  // namespace chairlift::decoders
