#include "server/http/generate_codec.h"

#include <algorithm>
#include <optional>

#include "base/closest.h"
#include "base/excerpt.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_value.h"
#include "server/http/json_writer.h"
#include "server/http/oip_codec.h"
#include "server/http/request_json.h"
#include "tensor/datatype.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// The input of a model that generates text: each row is a prompt (docs/guides/embeddings.md).
constexpr std::string_view kPrompts = "text_input";

// Whether dimension 0 of an input counts rows. If the first input has one row, or is prompts,
// another input with any number of entries is a separate list.
bool HasBatch(const TensorSpec& spec, const ModelMetadata& model) {
  if (spec.shape.empty()) return false;
  if (model.max_rows) return model.has_batch();
  if (model.batches || spec.shape[0] >= 0) return true;
  const TensorSpec& first = model.inputs.front();
  if (first.name == kPrompts) return spec.name == kPrompts;
  return first.shape.empty() || first.shape[0] != 1;
}

void AppendHead(const std::string& id, const std::string& model, const std::string& version,
                std::string* json) {
  json->push_back('{');
  if (!id.empty()) {
    json->append("\"id\":");
    AppendJsonString(id, json);
    json->push_back(',');
  }
  json->append("\"model_name\":");
  AppendJsonString(model, json);
  json->append(",\"model_version\":");
  AppendJsonString(version, json);
}

// False if a value cannot be written as JSON.
bool AppendNested(const Tensor& tensor, std::string* json) {
  const Shape& shape = tensor.shape();
  if (shape.rank() == 0) return AppendData(tensor, json) < 0;
  json->push_back('[');
  if (shape.rank() == 1) {
    if (AppendData(tensor, json) >= 0) return false;
  } else {
    const Shape inner(shape.dims().subspan(1));
    for (int64_t i = 0; i < shape[0]; ++i) {
      if (i > 0) json->push_back(',');
      if (!AppendNested(tensor.Rows(i, 1).Reshaped(inner), json)) return false;
    }
  }
  json->push_back(']');
  return true;
}

Status AppendOutput(const std::string& name, const Tensor& tensor, std::string* json) {
  json->push_back(',');
  AppendJsonString(name, json);
  json->push_back(':');
  if (AppendNested(tensor, json)) return absl::OkStatus();
  return InvalidArgument(
      "output '{}' has a value that is NaN or infinite, which JSON cannot carry; ask …/infer for "
      "it as binary data",
      name);
}

Status NoBinaryData() {
  return InvalidArgument(
      "\"binary_data_output\": answers here are JSON; use …/infer for binary data");
}

}  // namespace

struct GenerateDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  StatusOr<DecodedGenerate> Decode(std::string_view body, const ModelMetadata& model) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root, parser.Parse(body, limits));
    DecodedGenerate decoded;
    std::optional<int> omitted;
    for (const auto& [key, field] : root) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool input,
                                 ReadInput(key, field, body.size(), model, &decoded, &omitted));
      if (input) continue;
      CHAIRLIFT_RETURN_IF_ERROR(ReadOther(key, field, body.size(), model, &decoded, &omitted));
    }
    decoded.omitted = omitted.value_or(0);
    CHAIRLIFT_RETURN_IF_ERROR(protocol::CheckParameters(decoded.request));
    return decoded;
  }

  // Whether it is an input of the model.
  StatusOr<bool> ReadInput(std::string_view name, dom::element field, size_t json_bytes,
                           const ModelMetadata& model, DecodedGenerate* decoded,
                           std::optional<int>* omitted) const {
    const auto spec = std::find_if(model.inputs.begin(), model.inputs.end(),
                                   [&](const TensorSpec& input) { return input.name == name; });
    if (spec == model.inputs.end()) return false;
    InferRequest& request = decoded->request;
    for (const NamedTensor& earlier : request.inputs) {
      if (earlier.name == name) return InvalidArgument("input '{}' is given twice", name);
    }
    int missing = 0;
    StatusOr<Tensor> tensor =
        ReadValue(field, *spec, model.has_batch(), limits, json_bytes, &missing);
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("input '{}'", name));
    if (HasBatch(*spec, model)) *omitted = std::min(omitted->value_or(missing), missing);
    request.inputs.push_back({std::string(name), *std::move(tensor)});
    return true;
  }

  Status ReadOther(std::string_view key, dom::element field, size_t json_bytes,
                   const ModelMetadata& model, DecodedGenerate* decoded,
                   std::optional<int>* omitted) const {
    InferRequest* const request = &decoded->request;
    if (key == "id") {
      CHAIRLIFT_ASSIGN_OR_RETURN(request->id, Name(field, key, limits));
      return absl::OkStatus();
    }
    if (key == "parameters") {
      CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(field, key));
      for (const auto& [name, value] : parameters) {
        InferRequest unused;  // the protocol's own parameters come first, except "seed"
        const StatusOr<bool> own = protocol::SetParameter(name, ParameterFrom(value), &unused);
        if ((!own.ok() || *own) && name != "seed") continue;
        CHAIRLIFT_RETURN_IF_ERROR(
            ReadInput(name, value, json_bytes, model, decoded, omitted).status());
      }
      bool binary = false;
      const bool seed_is_an_input =
          std::any_of(model.inputs.begin(), model.inputs.end(),
                      [](const TensorSpec& input) { return input.name == "seed"; });
      CHAIRLIFT_RETURN_IF_ERROR(
          ReadParameters(field, request, &binary, seed_is_an_input ? "seed" : ""));
      return binary ? NoBinaryData() : absl::OkStatus();
    }
    return ReadParameter(key, field, model, request);
  }

  // As in Triton: a field that is not an input is a parameter, which the model may ignore. But a
  // name similar to an input's is treated as a mistake.
  Status ReadParameter(std::string_view key, dom::element field, const ModelMetadata& model,
                       InferRequest* request) const {
    const std::string_view name = CutText(key, limits.max_name_bytes);
    const std::vector<std::string> inputs = NamesOf(model.inputs, &TensorSpec::name);
    if (key == "binary_data_output") {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool binary, protocol::Boolean(ParameterFrom(field), key));
      return binary ? NoBinaryData() : absl::OkStatus();
    }
    if (field.is_array() || field.is_object() || Closest(name, inputs)) {
      return InvalidArgument("the model has no input '{}'{}", name, KnownNames(name, inputs));
    }
    if (field.is_null()) return absl::OkStatus();
    CHAIRLIFT_RETURN_IF_ERROR(protocol::SetParameter(key, ParameterFrom(field), request).status());
    return absl::OkStatus();
  }

  const ServerLimits limits;
  JsonParser parser;
};

GenerateDecoder::GenerateDecoder(const ServerLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
GenerateDecoder::~GenerateDecoder() = default;

StatusOr<DecodedGenerate> GenerateDecoder::Decode(std::string_view body,
                                                  const ModelMetadata& model) {
  StatusOr<DecodedGenerate> decoded = impl_->Decode(body, model);
  impl_->parser.Trim();
  return decoded;
}

OmittedDims OmittedIn(const std::vector<TensorSpec>& outputs, int omitted) {
  OmittedDims dims;
  for (const TensorSpec& output : outputs) {
    int& own = dims[output.name];
    own = std::min(omitted, 1);
    while (0 < own && own < omitted && own < static_cast<int>(output.shape.size()) &&
           output.shape[static_cast<size_t>(own)] == 1) {
      ++own;
    }
  }
  return dims;
}

StatusOr<bool> EncodeGenerated(const InferResponse& response, const std::set<std::string>& streamed,
                               const OmittedDims& omitted, std::string* json) {
  AppendHead(response.id, response.model, response.version, json);
  bool any = false;
  for (const NamedTensor& output : response.outputs) {
    if (streamed.contains(output.name)) continue;
    any = true;
    const Shape& shape = output.tensor.shape();
    const auto own = omitted.find(output.name);
    const int most = own == omitted.end() ? 0 : std::min(own->second, shape.rank());
    int ones = 0;
    while (ones < most && shape[ones] == 1) ++ones;
    CHAIRLIFT_RETURN_IF_ERROR(AppendOutput(
        output.name,
        ones > 0 ? output.tensor.Reshaped(Shape(shape.dims().subspan(static_cast<size_t>(ones))))
                 : output.tensor,
        json));
  }
  json->push_back('}');
  return any;
}

Status EncodeGeneratedPart(const GeneratedHead& head, const InferPart& part, std::string* json) {
  AppendHead(head.id, head.model, head.version, json);
  json->append(",\"parameters\":{\"row\":");
  AppendJsonNumber(part.row, json);
  json->append(",\"first\":");
  AppendJsonNumber(part.first, json);
  json->push_back('}');
  for (const NamedTensor& output : part.outputs) {
    // Pieces of one text.
    const bool text = output.tensor.dtype() == DType::kBytes && output.tensor.shape() == Shape{1};
    CHAIRLIFT_RETURN_IF_ERROR(
        AppendOutput(output.name, text ? output.tensor.Reshaped({}) : output.tensor, json));
  }
  json->push_back('}');
  return absl::OkStatus();
}

}  // namespace chairlift::http
