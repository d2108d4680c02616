#include "engine/repository/triton/triton_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <limits>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/closest.h"
#include "base/excerpt.h"
#include "base/renamed.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/repository/model_config.h"
#include "engine/repository/triton/model_config.pb.h"
#include "engine/repository/triton/triton_ensemble.h"
#include "engine/repository/triton/triton_fields.h"
#include "engine/repository/triton/triton_tensors.h"
#include "nlohmann/json.hpp"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMaxNesting = 32;
constexpr int kMaxWarmUpCount = 1000;
constexpr int64_t kMaxWarmUpInputs = 65536;  // of all samples, each time that they run
constexpr int64_t kResponseCacheBytes = int64_t{64} << 20;  // if the file only enables it

// The parser's messages, with what would work.
std::string Reworded(const std::string& message) {
  std::smatch part;
  if (std::regex_match(message, part,
                       std::regex("Message type \"([\\w.]+)\" has no field named \"(.*)\"\\."))) {
    const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
    const google::protobuf::Descriptor* const type = pool->FindMessageTypeByName(part.str(1));
    std::vector<std::string> names;
    for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
      names.push_back(type->field(i)->name());
    }
    return fmt::format("there is no field '{}'{}", Shortened(part.str(2), 120),
                       KnownNames(part.str(2), names));
  }
  if (std::regex_match(message, part,
                       std::regex("Unknown enumeration value of \"(.*)\" for field \"(.*)\"\\."))) {
    const bool is_type = part.str(2) == "data_type";
    return fmt::format("'{}' is not a value of '{}'{}", part.str(1), part.str(2),
                       is_type ? "; write types as TYPE_FP32, TYPE_INT64 or TYPE_STRING" : "");
  }
  return message +
         "; write protobuf's text format, as max_batch_size: 8 or input [{ name: \"x\" }]";
}

// What the parser says first.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!error_.ok()) return;
    error_ = InvalidArgument("line {}, column {}: {}", line + 1, column + 1, Reworded(message));
  }
  const Status& error() const { return error_; }

 private:
  Status error_;
};

StatusOr<triton::ModelConfig> ParseText(const std::string& text) {
  if (text.size() > kMaxSettingsBytes) {
    return InvalidArgument("it is longer than {} bytes, the limit", kMaxSettingsBytes);
  }
  triton::ModelConfig config;
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxNesting);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (parser.Parse(&input, &config)) return config;
  return errors.error().ok() ? InvalidArgument("it is not a model configuration") : errors.error();
}

// The schema has lists of entries where JSON has objects; `message` is the schema. Other fields,
// and unknown ones, are unchanged.
void ListEntries(const google::protobuf::Descriptor& message, Json& json) {
  if (!json.is_object()) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const google::protobuf::Descriptor* const type = field.message_type();
    if (type == nullptr) continue;
    for (const std::string& name : {field.name(), field.json_name()}) {
      const auto found = json.find(name);
      if (found == json.end()) continue;
      if (field.is_repeated() && found->is_object() &&
          std::string_view(type->name()).ends_with("Entry")) {
        Json entries = Json::array();
        for (auto& [key, value] : found->items()) {
          entries.push_back({{"key", key}, {"value", std::move(value)}});
        }
        *found = std::move(entries);
      }
      if (found->is_array()) {
        for (Json& element : *found) ListEntries(*type, element);
      } else {
        ListEntries(*type, *found);
      }
      if (field.name() == field.json_name()) break;
    }
  }
}

// Converts protobuf's JSON to Triton's forms: lists of entries become objects, 64-bit numbers
// become numbers.
void ShowAsTriton(const google::protobuf::Descriptor& message, Json& json) {
  for (int i = 0; i < message.field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *message.field(i);
    const auto found = json.find(field.name());
    if (found == json.end()) continue;
    const auto show = [&](Json& value) {
      if (field.message_type() != nullptr) ShowAsTriton(*field.message_type(), value);
      if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT64 ||
          field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
        value = Json::parse(value.get<std::string>());
      }
    };
    if (!field.is_repeated()) {
      show(*found);
      continue;
    }
    for (Json& element : *found) show(element);
    if (field.message_type() == nullptr ||
        !std::string_view(field.message_type()->name()).ends_with("Entry")) {
      continue;
    }
    Json entries = Json::object();
    for (Json& entry : *found) {
      const Json key = entry.value("key", Json(""));
      entries[key.is_string() ? key.get<std::string>() : key.dump()] = entry.value("value", Json());
    }
    *found = std::move(entries);
  }
}

std::string ToJson(const triton::ModelConfig& config) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(config, &text, options).ok()) return "";
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return "";
  ShowAsTriton(*triton::ModelConfig::descriptor(), json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StatusOr<triton::ModelConfig> ParseJson(const std::string& text) {
  if (text.size() > kMaxSettingsBytes) {
    return InvalidArgument("it is longer than {} bytes, the limit", kMaxSettingsBytes);
  }
  bool too_deep = false;
  Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep |= depth > kMaxNesting;
        return depth <= kMaxNesting;
      },
      /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("it is not JSON");
  if (too_deep) return InvalidArgument("it nests deeper than {} levels", kMaxNesting);
  triton::ModelConfig config;
  ListEntries(*triton::ModelConfig::descriptor(), json);
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      json.dump(-1, ' ', false, Json::error_handler_t::replace), &config);
  if (parsed.ok()) return config;
  return InvalidArgument("{}", std::string_view(parsed.message().data(), parsed.message().size()));
}

bool IsEnsemble(const triton::ModelConfig& from) {
  return from.platform() == "ensemble" || from.ensemble_scheduling().step_size() > 0;
}

Status CheckBackend(const triton::ModelConfig& from) {
  const std::string& platform = from.platform();
  const std::string& backend = from.backend();
  if (IsEnsemble(from)) {
    if (from.has_ensemble_scheduling() && (platform.empty() || platform == "ensemble")) {
      return absl::OkStatus();
    }
    return InvalidArgument(
        "its platform is '{}', and it has {}steps in ensemble_scheduling; an ensemble has both",
        platform, from.has_ensemble_scheduling() ? "" : "no ");
  }
  if (!platform.empty() && platform != "onnxruntime_onnx" && platform != "onnx_chairlift") {
    return Unimplemented(
        "its platform is '{}'; only ONNX models (platform 'onnxruntime_onnx') and ensembles are "
        "served",
        platform);
  }
  if (!backend.empty() && backend != "onnxruntime" && backend != "chairlift") {
    return Unimplemented("its backend is '{}'; only ONNX models are served (backend 'onnxruntime')",
                         backend);
  }
  return absl::OkStatus();
}

Status CheckFileName(const std::string& name) {
  if (name.find('/') == std::string::npos && name != "." && name != "..") return absl::OkStatus();
  return InvalidArgument(
      "default_model_filename is '{}'; it must be the name of a file in the version's folder",
      name);
}

int64_t Clamped(uint64_t value) {
  return static_cast<int64_t>(
      std::min(value, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

void SetBatching(const triton::ModelConfig& from, ModelConfig& to, RequestRules& rules) {
  to.max_batch_size = from.max_batch_size();
  const triton::ModelDynamicBatching& batching = from.dynamic_batching();
  to.preferred_batch_sizes.assign(batching.preferred_batch_size().begin(),
                                  batching.preferred_batch_size().end());
  to.queue_delay_us = Clamped(batching.max_queue_delay_microseconds());
  const triton::ModelQueuePolicy& queue = batching.default_queue_policy();
  const bool rejects = queue.timeout_action() == triton::ModelQueuePolicy::REJECT;
  if (rejects) to.default_timeout_us = Clamped(queue.default_timeout_microseconds());
  if (batching.has_default_queue_policy()) {
    rules.timeout = {.rejects = rejects,
                     .own_timeout = queue.allow_timeout_override(),
                     .default_us = to.default_timeout_us};
  }
  if (queue.max_queue_size() > 0) {  // 0: Triton has no bound; here there always is one
    to.max_queue_size = static_cast<int>(std::min<uint32_t>(queue.max_queue_size(), 1 << 30));
  }
}

Status SetSequences(const triton::ModelSequenceBatching& from, ModelConfig& to) {
  for (const triton::ModelSequenceBatching::State& state : from.state()) {
    if (!to.sequence_state.emplace(state.output_name(), state.input_name()).second) {
      return InvalidArgument("sequence_batching: state output '{}' is given twice",
                             state.output_name());
    }
  }
  const triton::ModelSequenceBatching::StrategyOldest& oldest = from.oldest();
  to.preferred_batch_sizes.assign(oldest.preferred_batch_size().begin(),
                                  oldest.preferred_batch_size().end());
  to.queue_delay_us = Clamped(from.has_direct() ? from.direct().max_queue_delay_microseconds()
                                                : oldest.max_queue_delay_microseconds());
  if (from.max_sequence_idle_microseconds() > 0) {
    to.max_sequence_idle_us = Clamped(from.max_sequence_idle_microseconds());
  }
  return absl::OkStatus();
}

VersionPolicy VersionsOf(const triton::ModelVersionPolicy& from) {
  VersionPolicy policy;
  switch (from.policy_choice_case()) {
    case triton::ModelVersionPolicy::kAll:
      policy.kind = VersionPolicy::Kind::kAll;
      break;
    case triton::ModelVersionPolicy::kSpecific:
      policy.kind = VersionPolicy::Kind::kSpecific;
      for (const int64_t version : from.specific().versions()) {
        policy.versions.push_back(std::to_string(version));
      }
      break;
    case triton::ModelVersionPolicy::kLatest:
      policy.count = std::max(1u, from.latest().num_versions());
      break;
    case triton::ModelVersionPolicy::POLICY_CHOICE_NOT_SET:
      break;
  }
  return policy;
}

Status CheckEnsemblePorts(const DeclaredPorts& ports) {
  if (!ports.Rewrites()) return absl::OkStatus();
  return Unimplemented(
      "reshape, allow_ragged_batch, batch_input and batch_output are not supported for an "
      "ensemble; "
      "set them in the configuration of a step's model");
}

// `parameters` may contain settings of a model.yaml, with the same names; others are reported as
// ignored.
Status SetParameters(const triton::ModelConfig& from, ModelConfig& to,
                     std::vector<std::string>& ignored) {
  for (const triton::ModelConfig::ParameterEntry& parameter : from.parameters()) {
    const std::string& value = parameter.value().string_value();
    if (value.empty()) continue;  // as GET /config gives those that are not set
    const std::string name = CurrentSetting(parameter.key(), "config.pbtxt");
    const StatusOr<bool> set = ApplySetting(name, value, to);
    if (!set.ok()) return Annotate(set.status(), "parameters");
    if (!*set) ignored.push_back(fmt::format("parameters '{}'", parameter.key()));
  }
  return absl::OkStatus();
}

// Numbers in [0, 1), or 0 or 1 for types without fractions: valid ids in every vocabulary.
void FillRandom(Tensor& tensor) {
  std::mt19937 random(1);
  (void)DispatchTypes<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                      uint64_t, bool>(tensor.dtype(), [&]<typename T>() -> Status {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const double x = static_cast<double>(random()) / (double{1} + std::mt19937::max());
      tensor.data<T>()[i] = static_cast<T>(std::is_floating_point_v<T> ? x : (x < 0.5 ? 0 : 1));
    }
    return absl::OkStatus();
  });
}

StatusOr<Tensor> WarmUpTensor(const triton::ModelWarmup::Input& from, uint32_t batch_size,
                              const fs::path& folder, int64_t& bytes_left) {
  Shape shape;
  if (batch_size > 0) shape.Append(batch_size);
  for (const int64_t dim : from.dims()) shape.Append(dim);
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor tensor, ZeroTensor(from.data_type(), shape, bytes_left));
  if (from.random_data()) FillRandom(tensor);
  if (from.has_input_data_file()) {
    CHAIRLIFT_RETURN_IF_ERROR(FillFrom(folder / "warmup", from.input_data_file(), tensor));
  }
  return tensor;
}

// `batched`: the model's max_batch_size is positive, so `dims` do not include the batch.
StatusOr<InferRequest> WarmUpRequest(const triton::ModelWarmup& from, bool batched,
                                     const fs::path& folder, int64_t& bytes_left) {
  InferRequest request;
  request.id = from.name();
  for (const triton::ModelWarmup::InputEntry& input : from.inputs()) {
    StatusOr<Tensor> tensor = WarmUpTensor(
        input.value(), batched ? std::max(1u, from.batch_size()) : 0, folder, bytes_left);
    if (!tensor.ok()) {
      return Annotate(tensor.status(),
                      fmt::format("model_warmup '{}', input '{}'", from.name(), input.key()));
    }
    request.inputs.push_back({input.key(), *std::move(tensor)});
  }
  return request;
}

StatusOr<FolderConfig> ReadConfig(const triton::ModelConfig& from, const fs::path& folder) {
  // First, because a model of another backend has fields that are refused.
  CHAIRLIFT_RETURN_IF_ERROR(CheckBackend(from));
  const std::string expected = folder.filename().string();
  if (!from.name().empty() && from.name() != expected) {
    return InvalidArgument("its name is '{}' but its folder's name is '{}'; they must be equal",
                           from.name(), expected);
  }
  FolderConfig read;
  CHAIRLIFT_ASSIGN_OR_RETURN(read.ignored, ApplyFieldRules(from));
  read.config.drop_unused = true;
  SetBatching(from, read.config, read.rules);
  if (from.has_sequence_batching()) {
    CHAIRLIFT_RETURN_IF_ERROR(SetSequences(from.sequence_batching(), read.config));
  }
  if (from.response_cache().enable()) read.config.response_cache_bytes = kResponseCacheBytes;
  CHAIRLIFT_RETURN_IF_ERROR(SetParameters(from, read.config, read.ignored));
  CHAIRLIFT_RETURN_IF_ERROR(CheckConfig(read.config));
  read.versions = VersionsOf(from.version_policy());
  if (!from.default_model_filename().empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckFileName(from.default_model_filename()));
    read.file = from.default_model_filename();
  }
  CHAIRLIFT_RETURN_IF_ERROR(ReadTensors(from, folder, read));
  read.rules.shown = ToJson(from);
  if (IsEnsemble(from)) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckEnsemblePorts(read.ports));
    CHAIRLIFT_ASSIGN_OR_RETURN(read.pipeline, ReadEnsemble(from));
    read.pipeline->ports = read.ports;
    read.pipeline->max_rows = from.max_batch_size();
    read.config.max_batch_size = 0;  // the steps have their own
  }
  int64_t warm_up_bytes = kMaxTensorsBytes;
  int64_t warm_up_inputs = 0;
  for (const triton::ModelWarmup& sample : from.model_warmup()) {
    const auto count = std::clamp<uint32_t>(sample.count(), 1, kMaxWarmUpCount);
    warm_up_inputs += int64_t{count} * std::max(1, sample.inputs_size());
    if (warm_up_inputs > kMaxWarmUpInputs) {
      return InvalidArgument(
          "model_warmup: the samples have more than {} inputs, each counted as often as it runs; "
          "lower `count`",
          kMaxWarmUpInputs);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        const InferRequest request,
        WarmUpRequest(sample, from.max_batch_size() > 0, folder, warm_up_bytes));
    read.warm_up.insert(read.warm_up.end(), count, request);
  }
  return read;
}

}  // namespace

StatusOr<FolderConfig> ParseTritonConfig(const std::string& text, const fs::path& folder) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const triton::ModelConfig from, ParseText(text));
  return ReadConfig(from, folder);
}

StatusOr<FolderConfig> ParseTritonJson(const std::string& json, const fs::path& folder) {
  StatusOr<triton::ModelConfig> from = ParseJson(json);
  if (!from.ok()) return Annotate(from.status(), "config");
  StatusOr<FolderConfig> read = ReadConfig(*from, folder);
  if (!read.ok()) return Annotate(read.status(), "config");
  return read;
}

std::string_view OtherBackend(const fs::path& version) {
  static constexpr std::pair<const char*, std::string_view> kFiles[] = {
      {"model.plan", "TensorRT"},       {"model.pt", "PyTorch"},
      {"model.pt2", "PyTorch"},         {"model.savedmodel", "TensorFlow"},
      {"model.graphdef", "TensorFlow"}, {"model.py", "Python"},
      {"model.xml", "OpenVINO"},        {"model.json", "FIL or vLLM"},
      {"checkpoint.tl", "FIL"},         {"xgboost.json", "FIL"}};
  for (const auto& [file, backend] : kFiles) {
    std::error_code error;
    if (fs::exists(version / file, error)) return backend;
  }
  return {};
}

}  // namespace chairlift
