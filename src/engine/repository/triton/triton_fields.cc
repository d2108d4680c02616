#include "engine/repository/triton/triton_fields.h"

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include <algorithm>

#include "base/status.h"

namespace chairlift {
namespace {

using google::protobuf::FieldDescriptor;
using ProtoMessage = google::protobuf::Message;
using google::protobuf::Reflection;

constexpr FieldUse kHonoured = FieldUse::kHonoured;
constexpr FieldUse kRefused = FieldUse::kRefused;
constexpr FieldUse kIgnored = FieldUse::kIgnored;

constexpr FieldRule kFields[] = {
    {"ModelConfig.name", kHonoured, "must be the folder's name"},
    {"ModelConfig.platform", kHonoured,
     "`onnxruntime_onnx` or `ensemble`; others refuse the model"},
    {"ModelConfig.backend", kHonoured, "`onnxruntime`; others refuse the model"},
    {"ModelConfig.runtime", kRefused,
     "it names a backend's library, and there is one backend; leave it out"},
    {"ModelConfig.version_policy", kHonoured, "the versions that are loaded"},
    {"ModelConfig.max_batch_size", kHonoured,
     "above 0: dimension 0 of every tensor is the batch, of at most this many rows. 0: there is no "
     "batch dimension"},
    {"ModelConfig.input", kHonoured,
     "must be all inputs of the model, or none; those of `state`, `control_input` and "
     "`batch_input` "
     "left out"},
    {"ModelConfig.output", kHonoured,
     "must be outputs of the model; if any is listed, clients get only these"},
    {"ModelConfig.batch_input", kHonoured,
     "computed for each request, as if it were a batch by itself"},
    {"ModelConfig.batch_output", kHonoured, "reshaped as the input of the same request"},
    {"ModelConfig.optimization", kIgnored, "the engine's own passes always run"},
    {"ModelConfig.dynamic_batching", kHonoured, "how requests wait for others"},
    {"ModelConfig.sequence_batching", kHonoured,
     "requests need a `sequence_id`; state is kept between them"},
    {"ModelConfig.ensemble_scheduling", kHonoured, "a pipeline; it needs no version folder"},
    {"ModelConfig.instance_group", kIgnored, "every worker runs every model"},
    {"ModelConfig.default_model_filename", kHonoured, "the file in a version's folder"},
    {"ModelConfig.cc_model_filenames", kRefused,
     "files are not chosen by a GPU's compute capability; name one in default_model_filename"},
    {"ModelConfig.metric_tags", kIgnored, "metrics have the labels of this server"},
    {"ModelConfig.parameters", kHonoured,
     "those with the name of a setting of model.yaml; others are ignored"},
    {"ModelConfig.model_warmup", kHonoured,
     "run before the load returns; a sample that fails refuses the model"},
    {"ModelConfig.model_operations", kRefused,
     "libraries of custom operators are not loaded; export the model without them"},
    {"ModelConfig.model_transaction_policy", kHonoured, "see `decoupled`"},
    {"ModelConfig.model_repository_agents", kRefused,
     "agents are not run, so that a checksum would not be checked; remove them"},
    {"ModelConfig.response_cache", kHonoured, "see `enable`"},
    {"ModelConfig.model_metrics", kIgnored, "metrics have the buckets of this server"},
    {"ParameterEntry.key", kHonoured, "a setting of model.yaml"},
    {"ParameterEntry.value", kHonoured, "its value"},
    {"ModelParameter.string_value", kHonoured, "as model.yaml has it"},

    {"ModelInput.name", kHonoured, "must be an input of the model"},
    {"ModelInput.data_type", kHonoured, "must be the model's"},
    {"ModelInput.format", kIgnored, "it says what dims mean; tensors are taken as they are"},
    {"ModelInput.dims", kHonoured, "must agree with the model; requests must agree with them"},
    {"ModelInput.reshape", kHonoured,
     "see `shape`; at most one open dimension may change its place"},
    {"ModelInput.is_shape_tensor", kRefused, "shape tensors are TensorRT's; leave it out"},
    {"ModelInput.allow_ragged_batch", kHonoured,
     "the model takes all elements as one list; no request is batched with another"},
    {"ModelInput.optional", kRefused,
     "an ONNX model has no value for an input that a request leaves out; have clients send it"},
    {"ModelInput.is_non_linear_format_io", kRefused, "such layouts are TensorRT's; leave it out"},
    {"ModelOutput.name", kHonoured, "must be an output of the model"},
    {"ModelOutput.data_type", kHonoured, "must be the model's"},
    {"ModelOutput.dims", kHonoured,
     "must agree with the model; an answer of other dims is an error"},
    {"ModelOutput.reshape", kHonoured, "see `shape`"},
    {"ModelOutput.label_filename", kHonoured,
     "labels of classes, one a line, for the output parameter `classification`"},
    {"ModelOutput.is_shape_tensor", kRefused, "shape tensors are TensorRT's; leave it out"},
    {"ModelOutput.is_non_linear_format_io", kRefused, "such layouts are TensorRT's; leave it out"},
    {"ModelTensorReshape.shape", kHonoured, "the shape that the model has; clients see `dims`"},

    {"BatchInput.kind", kHonoured, "what is computed"},
    {"BatchInput.target_name", kHonoured, "the inputs that get it"},
    {"BatchInput.data_type", kHonoured, "must be the model's"},
    {"BatchInput.source_input", kHonoured, "the one input that it is computed from"},
    {"BatchOutput.target_name", kHonoured, "the outputs that are reshaped"},
    {"BatchOutput.kind", kHonoured, "there is one"},
    {"BatchOutput.source_input", kHonoured, "the one input whose shape they get"},

    {"ModelVersionPolicy.latest", kHonoured, "the newest versions"},
    {"ModelVersionPolicy.all", kHonoured, "every version"},
    {"ModelVersionPolicy.specific", kHonoured, "the versions that are listed"},
    {"Latest.num_versions", kHonoured, "how many; 1 by default"},
    {"Specific.versions", kHonoured, "numbers of versions"},

    {"ModelDynamicBatching.preferred_batch_size", kHonoured,
     "sizes that a batch need not wait beyond"},
    {"ModelDynamicBatching.max_queue_delay_microseconds", kHonoured,
     "how long a request waits for others"},
    {"ModelDynamicBatching.preserve_ordering", kIgnored,
     "answers keep the order of each connection's requests"},
    {"ModelDynamicBatching.priority_levels", kIgnored,
     "requests run in the order of their arrival"},
    {"ModelDynamicBatching.default_priority_level", kIgnored,
     "requests run in the order of their arrival"},
    {"ModelDynamicBatching.default_queue_policy", kHonoured,
     "timeouts and the length of the queue"},
    {"ModelDynamicBatching.priority_queue_policy", kRefused,
     "requests have no priorities; use default_queue_policy for all of them"},
    {"ModelQueuePolicy.timeout_action", kHonoured,
     "`REJECT`; `DELAY`: late requests are answered all the same"},
    {"ModelQueuePolicy.default_timeout_microseconds", kHonoured,
     "timeout of requests that set none"},
    {"ModelQueuePolicy.allow_timeout_override", kHonoured,
     "where `default_queue_policy` is set: whether requests may bring a timeout, at most the "
     "default"},
    {"ModelQueuePolicy.max_queue_size", kHonoured, "requests that wait; 0: 1024"},

    {"ModelSequenceBatching.max_sequence_idle_microseconds", kHonoured,
     "when a sequence without requests ends; 60 s by default"},
    {"ModelSequenceBatching.control_input", kHonoured,
     "inputs that the server fills from a request's place in its sequence"},
    {"ModelSequenceBatching.direct", kHonoured, "as `oldest`: sequences share batches"},
    {"ModelSequenceBatching.oldest", kHonoured, "sequences share batches"},
    {"ModelSequenceBatching.state", kHonoured, "kept here between requests"},
    {"ModelSequenceBatching.iterative_sequence", kRefused,
     "a request is not run again until it says that it has ended; leave it out"},
    {"StrategyDirect.max_queue_delay_microseconds", kHonoured,
     "how long a request waits for others"},
    {"StrategyDirect.minimum_slot_utilization", kIgnored, "batches have no slots to be filled"},
    {"StrategyOldest.max_candidate_sequences", kIgnored, "all live sequences are candidates"},
    {"StrategyOldest.preferred_batch_size", kHonoured, "sizes that a batch need not wait beyond"},
    {"StrategyOldest.max_queue_delay_microseconds", kHonoured,
     "how long a request waits for others"},
    {"StrategyOldest.preserve_ordering", kIgnored, "requests of a sequence run in their order"},
    {"ControlInput.name", kHonoured, "must be an input of the model, [-1,1]; [1] without a batch"},
    {"ControlInput.control", kHonoured, "one control"},
    {"Control.kind", kHonoured, "`READY` is always true: batches have no empty slots"},
    {"Control.int32_false_true", kHonoured, "the two numbers"},
    {"Control.fp32_false_true", kHonoured, "the two numbers"},
    {"Control.data_type", kHonoured, "of `CORRID`: an integer type of 32 or 64 bits"},
    {"Control.bool_false_true", kHonoured, "the two values"},
    {"State.input_name", kHonoured, "the input that takes the state"},
    {"State.output_name", kHonoured, "the output that leaves it"},
    {"State.data_type", kHonoured, "must be the model's"},
    {"State.dims", kHonoured, "must agree with the model"},
    {"State.initial_state", kHonoured, "what a sequence starts with; zeros by default"},
    {"State.use_same_buffer_for_input_output", kIgnored, "it concerns memory alone"},
    {"State.use_growable_memory", kIgnored, "it concerns memory alone"},

    {"InitialState.data_type", kHonoured, "must be the model's"},
    {"InitialState.dims", kHonoured, "without the batch; they say what `dims` leave open"},
    {"InitialState.zero_data", kHonoured, "zeros"},
    {"InitialState.data_file", kHonoured, "bytes of a file in the folder `initial_state`"},
    {"InitialState.name", kIgnored, "it is a name for people"},

    {"ModelEnsembling.step", kHonoured, "in any order"},
    {"ModelEnsembling.max_inflight_requests", kIgnored,
     "256 requests of a pipeline are under way at a time"},
    {"Step.model_name", kHonoured, "a model of the repository, loaded with the ensemble"},
    {"Step.model_version", kHonoured, "-1: the latest"},
    {"Step.input_map", kHonoured, "must name all inputs of the model"},
    {"Step.output_map", kHonoured, "outputs that it leaves out are not given"},
    {"Step.model_namespace", kRefused, "names of models have no namespaces; leave it out"},
    {"StringEntry.key", kHonoured, "the name in the step's model"},
    {"StringEntry.value", kHonoured, "the name in the ensemble"},

    {"ModelWarmup.name", kHonoured, "how errors call the sample"},
    {"ModelWarmup.batch_size", kHonoured, "rows of the request"},
    {"ModelWarmup.inputs", kHonoured, "its tensors"},
    {"ModelWarmup.count", kHonoured, "how often it runs"},
    {"InputEntry.key", kHonoured, "the input's name"},
    {"InputEntry.value", kHonoured, "its tensor"},
    {"Input.data_type", kHonoured, "its type"},
    {"Input.dims", kHonoured, "without the batch"},
    {"Input.zero_data", kHonoured, "zeros"},
    {"Input.random_data", kHonoured, "floats in [0, 1), integers 0 or 1"},
    {"Input.input_data_file", kHonoured, "bytes of a file in the folder `warmup`"},

    {"ModelTransactionPolicy.decoupled", kRefused,
     "a request has one response; export a model that gives one"},
    {"ModelResponseCache.enable", kHonoured, "64 MiB"},
};

// "ModelConfig.name", "Latest.num_versions"
std::string NameOf(const FieldDescriptor& field) {
  return fmt::format("{}.{}", field.containing_type()->name(), field.name());
}

const FieldRule* RuleOf(const FieldDescriptor& field) {
  const std::string name = NameOf(field);
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const FieldRule& rule) { return rule.field == name; });
  return found == std::end(kFields) ? nullptr : found;
}

std::vector<const FieldDescriptor*> SetFields(const ProtoMessage& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool IsDefault(const ProtoMessage& message);

// For a field that is set and not repeated.
bool IsDefault(const ProtoMessage& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return IsDefault(reflection.GetMessage(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, &field).empty();
    case FieldDescriptor::CPPTYPE_BOOL:
      return !reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnumValue(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.GetFloat(message, &field) == 0;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field) == 0;
  }
  return false;
}

bool IsDefault(const ProtoMessage& message) {
  const std::vector<const FieldDescriptor*> fields = SetFields(message);
  return std::all_of(fields.begin(), fields.end(), [&](const FieldDescriptor* field) {
    return !field->is_repeated() && IsDefault(message, *field);
  });
}

Status Obey(const ProtoMessage& message, const std::string& where,
            std::vector<std::string>& ignored) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : SetFields(message)) {
    const FieldRule* const rule = RuleOf(*field);
    const std::string path = where.empty() ? field->name() : where + "." + field->name();
    if (rule == nullptr) return Internal("there is no rule for the field {}", path);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (rule->use == kHonoured) {
      if (!is_message) continue;
      if (!field->is_repeated()) {
        CHAIRLIFT_RETURN_IF_ERROR(Obey(reflection.GetMessage(message, field), path, ignored));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        CHAIRLIFT_RETURN_IF_ERROR(
            Obey(reflection.GetRepeatedMessage(message, field, i), path, ignored));
      }
      continue;
    }
    if (!field->is_repeated() && IsDefault(message, *field)) continue;
    if (rule->use == kRefused) return Unimplemented("{} is not supported: {}", path, rule->text);
    const std::string named = fmt::format("{} ({})", path, rule->text);
    if (std::find(ignored.begin(), ignored.end(), named) == ignored.end()) ignored.push_back(named);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const FieldRule> FieldRules() { return kFields; }

StatusOr<std::vector<std::string>> ApplyFieldRules(const ProtoMessage& config) {
  std::vector<std::string> ignored;
  CHAIRLIFT_RETURN_IF_ERROR(Obey(config, "", ignored));
  return ignored;
}

std::string FieldTable() {
  std::string table = "| field | | here |\n|---|---|---|\n";
  for (const FieldRule& rule : kFields) {
    static constexpr std::string_view kUses[] = {"honoured", "refused", "ignored"};
    table += fmt::format("| `{}` | {} | {} |\n", rule.field, kUses[static_cast<int>(rule.use)],
                         rule.text);
  }
  return table;
}

}  // namespace chairlift
