// Reads inference requests: JSON by simdjson, binary tensors in place if possible.
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "absl/utility/utility.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_errors.h"
#include "server/http/oip_codec.h"
#include "server/http/request_json.h"
#include "server/protocol/request.h"
#include "tensor/datatype.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// One input from the JSON, with its fields in any order.
struct InputFields {
  protocol::TensorHead head;
  std::optional<dom::array> data;
  std::optional<uint64_t> binary_data_size;
};

struct OutputFields {
  std::optional<std::string_view> name;
  std::optional<bool> binary;
  std::optional<int> classes;  // replaces the output itself if positive
};

// The shape of one row of `bytes` bytes.
StatusOr<Shape> RawShape(const TensorSpec& spec, bool batches, size_t bytes) {
  std::vector<int64_t> dims = spec.shape;
  if (spec.dtype == DType::kBytes) {  // one string: the body
    for (int64_t& dim : dims) dim = dim < 0 ? 1 : dim;
    if (Shape(dims).NumElements() == 1) return Shape(dims);
    return InvalidArgument("the body is one text, and the model takes shape [{}]",
                           fmt::join(spec.shape, ","));
  }
  if (batches && !dims.empty()) dims.front() = 1;
  const std::string shown = fmt::format("[{}]", fmt::join(dims, ","));
  const auto varies = [](int64_t dim) { return dim < 0; };
  if (std::count_if(dims.begin(), dims.end(), varies) > 1) {
    return InvalidArgument(
        "more than one dimension of its shape {} varies, so the shape does not follow from the "
        "number of bytes; send JSON with the shape",
        shown);
  }
  const auto open = std::find_if(dims.begin(), dims.end(), varies);
  const size_t element_bytes = DTypeSize(spec.dtype);
  if (open != dims.end()) {
    *open = 1;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, Shape(dims).Checked(element_bytes));
    *open = elements == 0 ? 0 : static_cast<int64_t>(bytes / element_bytes) / elements;
  }
  const Shape shape(dims);
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, shape.Checked(element_bytes));
  if (static_cast<size_t>(elements) * element_bytes != bytes) {
    return InvalidArgument("the body has {} bytes, which do not fill {} of shape {}", bytes,
                           DatatypeName(spec.dtype), shown);
  }
  return shape;
}

}  // namespace

struct InferDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  StatusOr<Shape> ReadShape(dom::element value) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array dims, Array(value, "shape"));
    Shape shape;
    for (const dom::element dim : dims) {
      int64_t size;
      if (!ConvertInteger(dim, &size)) return protocol::BadDimension(shape.rank(), Excerpt(dim));
      CHAIRLIFT_RETURN_IF_ERROR(protocol::AppendDimension(size, limits, &shape));
    }
    return shape;
  }

  Status ReadInputParameters(dom::element value, InputFields* input) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(value, "parameters"));
    for (const auto& [key, setting] : parameters) {
      CHAIRLIFT_RETURN_IF_ERROR(protocol::CheckInputParameter(key));
      if (key != "binary_data_size") continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(input->binary_data_size,
                                 protocol::Unsigned(ParameterFrom(setting), key));
    }
    return absl::OkStatus();
  }

  StatusOr<InputFields> ReadInputFields(dom::element value) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object object, Object(value, "inputs[]"));
    InputFields input;
    for (const auto& [key, field] : object) {
      if (key == "name") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.head.name, Name(field, key, limits));
      } else if (key == "datatype") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view type, Name(field, key, limits));
        CHAIRLIFT_ASSIGN_OR_RETURN(input.head.datatype, protocol::ReadDatatype(type));
      } else if (key == "shape") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.head.shape, ReadShape(field));
      } else if (key == "data") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.data, Array(field, key));
      } else if (key == "parameters") {
        CHAIRLIFT_RETURN_IF_ERROR(ReadInputParameters(field, &input));
      }
    }
    return input;
  }

  // Takes the tensor's bytes from the front of `*binary`.
  StatusOr<Tensor> ReadTensor(const InputFields& input, int64_t elements, std::string_view* binary,
                              size_t json_bytes, const std::shared_ptr<const void>& owner) const {
    const Shape& shape = *input.head.shape;
    if (!input.binary_data_size.has_value()) {
      if (!input.data.has_value()) {
        return InvalidArgument("neither \"data\" nor the parameter \"binary_data_size\" is given");
      }
      // Every element takes at least a digit and a comma, so the body bounds the allocation.
      if (static_cast<uint64_t>(elements) > json_bytes / 2)
        return CountMismatch(shape, CountOf(*input.data));
      if (input.head.datatype == DType::kBytes) return ReadTexts(*input.data, shape);
      Tensor tensor = Tensor::Allocate(input.head.datatype, shape);
      CHAIRLIFT_RETURN_IF_ERROR(ReadArray(*input.data, &tensor));
      return tensor;
    }

    const uint64_t size = *input.binary_data_size;
    if (input.data.has_value()) {
      return InvalidArgument("both \"data\" and \"binary_data_size\" are given");
    }
    if (size > binary->size()) {
      return InvalidArgument("\"binary_data_size\" is {} but only {} bytes follow in the body",
                             size, binary->size());
    }
    const std::string_view bytes = binary->substr(0, size);
    binary->remove_prefix(size);
    return protocol::TensorFromBytes(input.head.datatype, shape, bytes, owner);
  }

  Status ReadInputs(dom::element value, std::string_view* binary, size_t json_bytes,
                    const std::shared_ptr<const void>& owner, InferRequest* request) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array inputs, Array(value, "inputs"));
    for (const dom::element element : inputs) {
      StatusOr<InputFields> fields = ReadInputFields(element);
      if (!fields.ok()) {
        return Annotate(fields.status(), fmt::format("input {}", request->inputs.size()));
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements,
                                 protocol::CheckInput(fields->head, *request, limits));
      StatusOr<Tensor> tensor = ReadTensor(*fields, elements, binary, json_bytes, owner);
      const std::string_view name = *fields->head.name;
      if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("input '{}'", name));
      request->inputs.push_back({std::string(name), *std::move(tensor)});
    }
    return absl::OkStatus();
  }

  StatusOr<OutputFields> ReadOutputFields(dom::element element) const {
    if (element.is_string()) {
      return InvalidArgument("it is {}, not an object; write {{\"name\": {}}}", Excerpt(element),
                             Excerpt(element));
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object object, Object(element, "outputs[]"));
    OutputFields output;
    for (const auto& [key, field] : object) {
      if (key == "name") {
        CHAIRLIFT_ASSIGN_OR_RETURN(output.name, Name(field, key, limits));
      } else if (key == "parameters") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(field, key));
        for (const auto& [parameter, setting] : parameters) {
          CHAIRLIFT_RETURN_IF_ERROR(protocol::CheckOutputParameter(parameter));
          if (parameter == "classification") {
            CHAIRLIFT_ASSIGN_OR_RETURN(output.classes, protocol::Classes(ParameterFrom(setting)));
          }
          if (parameter != "binary_data") continue;
          CHAIRLIFT_ASSIGN_OR_RETURN(output.binary,
                                     protocol::Boolean(ParameterFrom(setting), parameter));
        }
      }
    }
    if (!output.name.has_value()) return InvalidArgument("\"name\" is missing");
    return output;
  }

  Status ReadOutputs(dom::element value, DecodedInfer* decoded) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array outputs, Array(value, "outputs"));
    for (const dom::element element : outputs) {
      const StatusOr<OutputFields> output = ReadOutputFields(element);
      if (!output.ok()) {
        return Annotate(output.status(), fmt::format("output {}", decoded->request.outputs.size()));
      }
      CHAIRLIFT_RETURN_IF_ERROR(protocol::AddOutput(*output->name, limits, &decoded->request));
      if (output->classes.value_or(0) > 0) {
        decoded->request.classes.emplace(*output->name, *output->classes);
      }
      if (!output->binary.has_value()) continue;
      decoded->format.binary.emplace_back(*output->name, *output->binary);
    }
    return absl::OkStatus();
  }

  Status Decode(std::string_view body, size_t json_bytes, const std::shared_ptr<const void>& owner,
                DecodedInfer* decoded) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root,
                               parser.Parse(body.substr(0, json_bytes), limits));
    std::string_view binary = body.substr(json_bytes);
    std::optional<dom::element> inputs;
    for (const auto& [key, field] : root) {
      if (key == "id") {
        CHAIRLIFT_ASSIGN_OR_RETURN(decoded->request.id, Name(field, key, limits));
      } else if (key == "parameters") {
        CHAIRLIFT_RETURN_IF_ERROR(
            ReadParameters(field, &decoded->request, &decoded->format.binary_by_default));
      } else if (key == "inputs") {
        inputs = field;
      } else if (key == "outputs") {
        CHAIRLIFT_RETURN_IF_ERROR(ReadOutputs(field, decoded));
      }
    }
    if (!inputs.has_value()) {
      return InvalidArgument(
          "\"inputs\" is missing; send {{\"inputs\": [{{\"name\": …, \"shape\": […], "
          "\"datatype\": …, \"data\": […]}}]}}, or plain JSON as here to …/generate");
    }
    if (inputs->is_object()) {
      return InvalidArgument(
          "\"inputs\" is an object, not an array; send [{{\"name\": …, \"shape\": […], "
          "\"datatype\": …, \"data\": […]}}], or this object itself to …/generate");
    }
    const size_t binary_bytes = binary.size();
    CHAIRLIFT_RETURN_IF_ERROR(ReadInputs(*inputs, &binary, json_bytes, owner, &decoded->request));
    if (!binary.empty()) {
      return InvalidArgument(
          "{} bytes follow the JSON, but \"binary_data_size\" of the inputs is {} in all; leave "
          "the "
          "other {} bytes out, or correct the sizes",
          binary_bytes, binary_bytes - binary.size(), binary.size());
    }
    return absl::OkStatus();
  }

  const ServerLimits limits;
  JsonParser parser;
};

InferDecoder::InferDecoder(const ServerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
InferDecoder::~InferDecoder() = default;

StatusOr<DecodedInfer> InferDecoder::Decode(std::string_view body, size_t json_bytes,
                                            const std::shared_ptr<const void>& owner) {
  if (json_bytes > body.size()) {
    return InvalidArgument(
        "Inference-Header-Content-Length is {}, but the body has {} bytes; it must be the number "
        "of "
        "bytes of the JSON before the binary data",
        json_bytes, body.size());
  }
  if (json_bytes == 0) return NotJson({}, {});
  StatusOr<DecodedInfer> decoded(absl::in_place);
  const Status read = impl_->Decode(body, json_bytes, owner, &*decoded);
  impl_->parser.Trim();
  if (!read.ok()) decoded = read;
  return decoded;
}

StatusOr<DecodedInfer> DecodeRaw(std::string_view body, const ModelMetadata& model,
                                 const ServerLimits& limits,
                                 const std::shared_ptr<const void>& owner) {
  if (model.inputs.size() != 1) {
    return InvalidArgument(
        "a request without JSON (Inference-Header-Content-Length: 0) is the data of the model's "
        "only input, but model '{}' has {} inputs; send JSON that names them",
        model.name, model.inputs.size());
  }
  const TensorSpec& input = model.inputs.front();
  const auto annotated = [&](const Status& status) {
    return Annotate(status, fmt::format("input '{}'", input.name));
  };
  const StatusOr<Shape> shape = RawShape(input, model.has_batch(), body.size());
  if (!shape.ok()) return annotated(shape.status());
  CHAIRLIFT_RETURN_IF_ERROR(
      protocol::CheckInput({input.name, input.dtype, *shape}, InferRequest(), limits).status());
  StatusOr<Tensor> tensor = input.dtype == DType::kBytes
                                ? TextTensor(*shape, {std::string(body)})
                                : protocol::TensorFromBytes(input.dtype, *shape, body, owner);
  if (!tensor.ok()) return annotated(tensor.status());
  DecodedInfer decoded;
  decoded.request.inputs.push_back({input.name, *std::move(tensor)});
  decoded.format.binary_by_default = true;
  return decoded;
}

}  // namespace chairlift::http
