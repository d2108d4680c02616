#include "engine/repository/triton_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "base/regular_file.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/repository/model_config.h"
#include "engine/repository/triton_config.pb.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxNesting = 32;
constexpr int64_t kMaxWarmUpBytes = int64_t{256} << 20;  // of one input
constexpr int kMaxWarmUpCount = 1000;
constexpr int64_t kResponseCacheBytes = int64_t{64} << 20;  // where the file only enables it

// Fields that are ignored for a reason worth giving.
constexpr std::pair<std::string_view, std::string_view> kReasons[] = {
    {"instance_group", "every worker runs every model"},
    {"optimization", "the engine's own passes always run"},
    {"preserve_ordering", "answers keep the order of each connection's requests"},
    {"control_input", "clients mark a sequence's start and end with request parameters"},
};

// What the parser says: the first error, and fields that are not in our schema.
class Findings : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (error_.empty())
      error_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  // Only unknown fields are warned of: `Message type "T" has no field named "f".`
  void AddWarning(int line, google::protobuf::io::ColumnNumber /*column*/,
                  const std::string& message) override {
    if (message.find(triton::Ignored::descriptor()->full_name()) != std::string::npos) return;
    const size_t end = message.rfind('"');
    const size_t begin = end == std::string::npos || end == 0 ? end : message.rfind('"', end - 1);
    Ignore(begin == std::string::npos ? message : message.substr(begin + 1, end - begin - 1),
           fmt::format("line {}", line + 1));
  }
  // Fields of type Ignored, wherever they are.
  void Walk(const google::protobuf::Message& message) {
    std::vector<const google::protobuf::FieldDescriptor*> fields;
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    reflection.ListFields(message, &fields);
    for (const google::protobuf::FieldDescriptor* field : fields) {
      if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (field->message_type() == triton::Ignored::descriptor()) {
        Ignore(field->name(), "");
      } else if (field->is_repeated()) {
        for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
          Walk(reflection.GetRepeatedMessage(message, field, i));
        }
      } else {
        Walk(reflection.GetMessage(message, field));
      }
    }
  }
  const std::string& error() const { return error_; }
  std::vector<std::string>& ignored() { return ignored_; }

 private:
  void Ignore(const std::string& field, const std::string& where) {
    if (std::find(seen_.begin(), seen_.end(), field) != seen_.end()) return;
    seen_.push_back(field);
    const auto* reason = std::find_if(std::begin(kReasons), std::end(kReasons),
                                      [&](const auto& known) { return known.first == field; });
    const std::string why = reason == std::end(kReasons) ? where : std::string(reason->second);
    ignored_.push_back(why.empty() ? field : fmt::format("{} ({})", field, why));
  }

  std::string error_;
  std::vector<std::string> seen_;
  std::vector<std::string> ignored_;
};

// The parser descends into fields that it does not know without a limit of its own.
bool TooDeep(const std::string& text) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      if (c == quote || c == '\n') quote = 0;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '{' || c == '<' || c == '[') {
      if (++depth > kMaxNesting) return true;
    } else if (c == '}' || c == '>' || c == ']') {
      --depth;
    }
  }
  return false;
}

DType TypeOf(triton::DataType type) {
  static constexpr DType kTypes[] = {
      DType::kUndefined, DType::kBool,  DType::kUInt8,  DType::kUInt16, DType::kUInt32,
      DType::kUInt64,    DType::kInt8,  DType::kInt16,  DType::kInt32,  DType::kInt64,
      DType::kFloat16,   DType::kFloat, DType::kDouble, DType::kBytes,  DType::kBFloat16};
  return kTypes[static_cast<int>(type)];
}

Status CheckBackend(const triton::ModelConfig& from) {
  const std::string& platform = from.platform();
  const std::string& backend = from.backend();
  if (!platform.empty() && platform != "onnxruntime_onnx" && platform != "onnx_chairlift") {
    return Unimplemented(
        "its platform is '{}'; only ONNX models are served (platform 'onnxruntime_onnx')",
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

void SetBatching(const triton::ModelConfig& from, ModelConfig& to) {
  to.max_batch_size = from.max_batch_size();
  const triton::DynamicBatching& batching = from.dynamic_batching();
  to.preferred_batch_sizes.assign(batching.preferred_batch_size().begin(),
                                  batching.preferred_batch_size().end());
  to.queue_delay_us = Clamped(batching.max_queue_delay_microseconds());
  const triton::QueuePolicy& queue = batching.default_queue_policy();
  to.default_timeout_us = Clamped(queue.default_timeout_microseconds());
  if (queue.max_queue_size() > 0) {  // 0: as many as there is memory for; ours is always bounded
    to.max_queue_size = static_cast<int>(std::min<uint32_t>(queue.max_queue_size(), 1 << 30));
  }
}

Status SetSequences(const triton::SequenceBatching& from, ModelConfig& to) {
  for (const triton::SequenceBatching::State& state : from.state()) {
    if (!to.sequence_state.emplace(state.output_name(), state.input_name()).second) {
      return InvalidArgument("sequence_batching: state output '{}' is given twice",
                             state.output_name());
    }
  }
  if (from.max_sequence_idle_microseconds() > 0) {
    to.sequence_idle_us = Clamped(from.max_sequence_idle_microseconds());
  }
  return absl::OkStatus();
}

VersionPolicy VersionsOf(const triton::VersionPolicy& from) {
  VersionPolicy policy;
  switch (from.policy_choice_case()) {
    case triton::VersionPolicy::kAll:
      policy.kind = VersionPolicy::Kind::kAll;
      break;
    case triton::VersionPolicy::kSpecific:
      policy.kind = VersionPolicy::Kind::kSpecific;
      for (const int64_t version : from.specific().versions()) {
        policy.versions.push_back(std::to_string(version));
      }
      break;
    case triton::VersionPolicy::kLatest:
      policy.count = std::max(1u, from.latest().num_versions());
      break;
    case triton::VersionPolicy::POLICY_CHOICE_NOT_SET:
      break;
  }
  return policy;
}

// `parameters` may set what a model.yaml may, by the same names; others are reported as ignored.
Status SetParameters(const triton::ModelConfig& from, ModelConfig& to,
                     std::vector<std::string>& ignored) {
  for (const triton::Parameter& parameter : from.parameters()) {
    const StatusOr<bool> set = ApplySetting(parameter.key(), parameter.value().string_value(), to);
    if (!set.ok()) return Annotate(set.status(), "parameters");
    if (!*set) ignored.push_back(fmt::format("parameters '{}'", parameter.key()));
  }
  return absl::OkStatus();
}

std::vector<TensorSpec> SpecsOf(const google::protobuf::RepeatedPtrField<triton::Tensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const triton::Tensor& tensor : tensors) {
    specs.push_back({.name = tensor.name(), .dtype = TypeOf(tensor.data_type())});
  }
  return specs;
}

// Numbers in [0, 1), 0 or 1 where the type has no fractions: valid as ids of any vocabulary.
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

Status FillFrom(const fs::path& folder, const std::string& name, Tensor& tensor) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path file, FileInside(folder / "warmup", name));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string bytes,
                             ReadRegularFile(file, tensor.byte_size() + 1));
  if (bytes.size() != tensor.byte_size()) {
    return InvalidArgument("{} must have the {} bytes of its tensor", file.string(),
                           tensor.byte_size());
  }
  std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

StatusOr<Tensor> WarmUpTensor(const triton::ModelWarmup::Input& from, uint32_t batch_size,
                              const fs::path& folder) {
  const DType type = TypeOf(from.data_type());
  if (type == DType::kUndefined)
    return InvalidArgument("its data_type is not supported; models take numbers only");
  Shape shape;
  if (batch_size > 0) shape.Append(batch_size);
  for (const int64_t dim : from.dims()) shape.Append(dim);
  CHAIRLIFT_RETURN_IF_ERROR(shape.Checked(DTypeSize(type), kMaxWarmUpBytes).status());
  Tensor tensor = Tensor::Allocate(type, shape);
  std::fill_n(static_cast<std::byte*>(tensor.raw()), tensor.byte_size(), std::byte{0});
  if (from.random_data()) FillRandom(tensor);
  if (from.has_input_data_file()) {
    CHAIRLIFT_RETURN_IF_ERROR(FillFrom(folder, from.input_data_file(), tensor));
  }
  return tensor;
}

// `batched`: the model's max_batch_size is above 0, so that `dims` leave the batch out.
StatusOr<InferRequest> WarmUpRequest(const triton::ModelWarmup& from, bool batched,
                                     const fs::path& folder) {
  InferRequest request;
  request.id = from.name();
  for (const triton::ModelWarmup::NamedInput& input : from.inputs()) {
    StatusOr<Tensor> tensor =
        WarmUpTensor(input.value(), batched ? std::max(1u, from.batch_size()) : 0, folder);
    if (!tensor.ok()) {
      return Annotate(tensor.status(),
                      fmt::format("model_warmup '{}', input '{}'", from.name(), input.key()));
    }
    request.inputs.push_back({input.key(), *std::move(tensor)});
  }
  return request;
}

}  // namespace

StatusOr<FolderConfig> ParseTritonConfig(const std::string& text, const fs::path& folder) {
  if (text.size() > kMaxSettingsBytes) {
    return InvalidArgument("it has more than the {} bytes that are read", kMaxSettingsBytes);
  }
  if (TooDeep(text)) return InvalidArgument("it nests deeper than {} levels", kMaxNesting);
  triton::ModelConfig from;
  Findings findings;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&findings);
  parser.AllowUnknownField(true);
  parser.AllowUnknownExtension(true);
  google::protobuf::io::ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&input, &from)) return InvalidArgument("{}", findings.error());
  findings.Walk(from);

  CHAIRLIFT_RETURN_IF_ERROR(CheckBackend(from));
  const std::string expected = folder.filename().string();
  if (!from.name().empty() && from.name() != expected) {
    return InvalidArgument("its name is '{}' but its folder's name is '{}'; they must be equal",
                           from.name(), expected);
  }
  FolderConfig read;
  read.ignored = std::move(findings.ignored());
  read.config.drop_unused = true;
  SetBatching(from, read.config);
  CHAIRLIFT_RETURN_IF_ERROR(SetSequences(from.sequence_batching(), read.config));
  if (from.response_cache().enable()) read.config.response_cache_bytes = kResponseCacheBytes;
  CHAIRLIFT_RETURN_IF_ERROR(SetParameters(from, read.config, read.ignored));
  CHAIRLIFT_RETURN_IF_ERROR(CheckConfig(read.config));
  read.versions = VersionsOf(from.version_policy());
  if (!from.default_model_filename().empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckFileName(from.default_model_filename()));
    read.file = from.default_model_filename();
  }
  read.inputs = SpecsOf(from.input());
  read.outputs = SpecsOf(from.output());
  for (const triton::ModelWarmup& sample : from.model_warmup()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const InferRequest request,
                               WarmUpRequest(sample, from.max_batch_size() > 0, folder));
    const auto count = std::clamp<uint32_t>(sample.count(), 1, kMaxWarmUpCount);
    read.warm_up.insert(read.warm_up.end(), count, request);
  }
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
