// Reads inference requests: JSON by simdjson, binary tensors in place where they can stay.
#include <array>
#include <cstring>
#include <optional>

#include "base/status.h"
#include "server/http/json_array.h"
#include "server/http/oip_codec.h"
#include "server/http/request_json.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// Tensors of fewer bytes are copied out of the body: cheaper than keeping it.
constexpr size_t kBorrowBytes = 4096;
constexpr size_t kBorrowAlignment = 64;

struct WireType {
  DType dtype;
  std::string_view name;
};
constexpr std::array<WireType, 13> kWireTypes = {{
    {DType::kFloat, "FP32"},
    {DType::kDouble, "FP64"},
    {DType::kFloat16, "FP16"},
    {DType::kBFloat16, "BF16"},
    {DType::kInt8, "INT8"},
    {DType::kInt16, "INT16"},
    {DType::kInt32, "INT32"},
    {DType::kInt64, "INT64"},
    {DType::kUInt8, "UINT8"},
    {DType::kUInt16, "UINT16"},
    {DType::kUInt32, "UINT32"},
    {DType::kUInt64, "UINT64"},
    {DType::kBool, "BOOL"},
}};

Status NoSharedMemory(std::string_view key) {
  if (!key.starts_with("shared_memory_")) return absl::OkStatus();
  return InvalidArgument("\"{}\": shared memory is not supported; send the tensor in the body",
                         key);
}

// The fields of one input as they stand in the JSON, in whatever order they came.
struct InputFields {
  std::string_view name;
  bool has_name = false;
  DType dtype = DType::kUndefined;
  std::optional<Shape> shape;
  std::optional<dom::array> data;
  std::optional<uint64_t> binary_data_size;
};

}  // namespace

std::string_view WireName(DType dtype) {
  for (const WireType& type : kWireTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return {};
}

DType FromWireName(std::string_view name) {
  for (const WireType& type : kWireTypes) {
    if (type.name == name) return type.dtype;
  }
  return DType::kUndefined;
}

struct InferDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  StatusOr<Shape> ReadShape(dom::element value) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array dims, Array(value, "shape"));
    Shape shape;
    for (const dom::element dim : dims) {
      if (shape.rank() == limits.max_rank) {
        return InvalidArgument("\"shape\" has more than the {} dimensions allowed",
                               limits.max_rank);
      }
      int64_t size;
      if (!ConvertInteger(dim, &size) || size < 0) {
        return InvalidArgument("dimension {} of \"shape\" is {}, not a whole number of 0 or more",
                               shape.rank(), Excerpt(dim));
      }
      shape.Append(size);
    }
    return shape;
  }

  StatusOr<InputFields> ReadInputFields(dom::element value) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object object, Object(value, "inputs[]"));
    InputFields input;
    for (const auto& [key, field] : object) {
      if (key == "name") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.name, Name(field, key, limits));
        input.has_name = true;
      } else if (key == "datatype") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view type, Name(field, key, limits));
        input.dtype = FromWireName(type);
        if (type == "BYTES") {
          return InvalidArgument("datatype BYTES is not supported: models take numbers only");
        }
        if (input.dtype == DType::kUndefined) {
          return InvalidArgument(
              "datatype '{}' is not one of FP16, BF16, FP32, FP64, INT8 to INT64, UINT8 to UINT64, "
              "BOOL",
              type);
        }
      } else if (key == "shape") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.shape, ReadShape(field));
      } else if (key == "data") {
        CHAIRLIFT_ASSIGN_OR_RETURN(input.data, Array(field, key));
      } else if (key == "parameters") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(field, key));
        for (const auto& [parameter, setting] : parameters) {
          CHAIRLIFT_RETURN_IF_ERROR(NoSharedMemory(parameter));
          if (parameter == "binary_data_size") {
            CHAIRLIFT_ASSIGN_OR_RETURN(input.binary_data_size, Unsigned(setting, parameter));
          }
        }
      }
    }
    return input;
  }

  // Takes the tensor's bytes off the front of `*binary`.
  StatusOr<Tensor> ReadTensor(const InputFields& input, std::string_view* binary, size_t json_bytes,
                              const std::shared_ptr<const void>& owner) const {
    if (input.dtype == DType::kUndefined) return InvalidArgument("\"datatype\" is missing");
    if (!input.shape.has_value()) return InvalidArgument("\"shape\" is missing");
    const Shape& shape = *input.shape;
    const size_t element_bytes = DTypeSize(input.dtype);
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, shape.Checked(element_bytes));
    if (elements > limits.max_tensor_elements) {
      return InvalidArgument("shape {} has {} elements; the limit is {}", shape.ToString(),
                             elements, limits.max_tensor_elements);
    }
    if (!input.binary_data_size.has_value()) {
      if (!input.data.has_value()) {
        return InvalidArgument("neither \"data\" nor the parameter \"binary_data_size\" is given");
      }
      // Every element takes at least a digit and a comma, so the body bounds the allocation.
      if (static_cast<uint64_t>(elements) > json_bytes / 2) return CountMismatch(shape, "fewer");
      Tensor tensor = Tensor::Allocate(input.dtype, shape);
      CHAIRLIFT_RETURN_IF_ERROR(ReadArray(*input.data, &tensor));
      return tensor;
    }

    const uint64_t size = *input.binary_data_size;
    if (input.data.has_value()) {
      return InvalidArgument("both \"data\" and \"binary_data_size\" are given");
    }
    if (size != static_cast<uint64_t>(elements) * element_bytes) {
      return InvalidArgument("\"binary_data_size\" is {} where {} of shape {} takes {} bytes", size,
                             WireName(input.dtype), shape.ToString(),
                             static_cast<uint64_t>(elements) * element_bytes);
    }
    if (size > binary->size()) {
      return InvalidArgument("\"binary_data_size\" is {} but only {} bytes follow in the body",
                             size, binary->size());
    }
    const char* bytes = binary->data();
    binary->remove_prefix(size);
    Tensor tensor;
    if (owner != nullptr && size >= kBorrowBytes &&
        reinterpret_cast<uintptr_t>(bytes) % kBorrowAlignment == 0) {
      tensor = Tensor::Wrap(input.dtype, shape, const_cast<char*>(bytes), owner);
    } else {
      tensor = Tensor::Allocate(input.dtype, shape);
      std::memcpy(tensor.raw(), bytes, size);
    }
    if (input.dtype == DType::kBool) return NormalisedBool(std::move(tensor));
    return tensor;
  }

  // Any byte but 0 and 1 in a C++ bool is undefined behaviour further down.
  static StatusOr<Tensor> NormalisedBool(Tensor tensor) {
    const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (bytes[i] > 1) {
        return InvalidArgument("byte {} of the binary data is {}, where BOOL is 0 or 1", i,
                               int{bytes[i]});
      }
    }
    return tensor;
  }

  Status ReadInputs(dom::element value, std::string_view* binary, size_t json_bytes,
                    const std::shared_ptr<const void>& owner, InferRequest* request) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array inputs, Array(value, "inputs"));
    for (const dom::element element : inputs) {
      const size_t index = request->inputs.size();
      if (index == static_cast<size_t>(limits.max_tensors)) {
        return InvalidArgument("the request has more than the {} inputs allowed",
                               limits.max_tensors);
      }
      StatusOr<InputFields> fields = ReadInputFields(element);
      if (!fields.ok()) return Annotate(fields.status(), fmt::format("input {}", index));
      if (!fields->has_name) return InvalidArgument("input {}: \"name\" is missing", index);
      for (const NamedTensor& earlier : request->inputs) {
        if (earlier.name == fields->name) {
          return InvalidArgument("input '{}' is given twice", fields->name);
        }
      }
      StatusOr<Tensor> tensor = ReadTensor(*fields, binary, json_bytes, owner);
      if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("input '{}'", fields->name));
      request->inputs.push_back({std::string(fields->name), *std::move(tensor)});
    }
    return absl::OkStatus();
  }

  Status ReadOutput(dom::element element, DecodedInfer* decoded) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object object, Object(element, "outputs[]"));
    std::optional<std::string> name;
    std::optional<bool> binary;
    for (const auto& [key, field] : object) {
      if (key == "name") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view text, Name(field, key, limits));
        name = std::string(text);
      } else if (key == "parameters") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(field, key));
        for (const auto& [parameter, setting] : parameters) {
          CHAIRLIFT_RETURN_IF_ERROR(NoSharedMemory(parameter));
          if (parameter == "binary_data") {
            CHAIRLIFT_ASSIGN_OR_RETURN(binary, Boolean(setting, parameter));
          } else if (parameter == "classification") {
            CHAIRLIFT_ASSIGN_OR_RETURN(const uint64_t classes, Unsigned(setting, parameter));
            if (classes > 0) {
              return InvalidArgument("\"classification\" is not supported; ask for the scores");
            }
          }
        }
      }
    }
    if (!name.has_value()) return InvalidArgument("\"name\" is missing");
    for (const std::string& earlier : decoded->request.outputs) {
      if (earlier == *name) return InvalidArgument("'{}' is asked for twice", *name);
    }
    if (binary.has_value()) decoded->format.binary.emplace_back(*name, *binary);
    decoded->request.outputs.push_back(*std::move(name));
    return absl::OkStatus();
  }

  StatusOr<DecodedInfer> Decode(std::string_view body, size_t json_bytes,
                                const std::shared_ptr<const void>& owner) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root,
                               parser.Parse(body.substr(0, json_bytes), limits));
    std::string_view binary = body.substr(json_bytes);
    DecodedInfer decoded;
    std::optional<dom::element> inputs;
    for (const auto& [key, field] : root) {
      if (key == "id") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view id, Name(field, key, limits));
        decoded.request.id = std::string(id);
      } else if (key == "parameters") {
        CHAIRLIFT_RETURN_IF_ERROR(
            ReadParameters(field, &decoded.request, &decoded.format.binary_by_default));
      } else if (key == "inputs") {
        inputs = field;
      } else if (key == "outputs") {
        CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array outputs, Array(field, key));
        for (const dom::element output : outputs) {
          if (decoded.request.outputs.size() == static_cast<size_t>(limits.max_tensors)) {
            return InvalidArgument("the request names more than the {} outputs allowed",
                                   limits.max_tensors);
          }
          const Status status = ReadOutput(output, &decoded);
          if (!status.ok()) {
            return Annotate(status, fmt::format("output {}", decoded.request.outputs.size()));
          }
        }
      }
    }
    if (!inputs.has_value()) return InvalidArgument("\"inputs\" is missing");
    CHAIRLIFT_RETURN_IF_ERROR(ReadInputs(*inputs, &binary, json_bytes, owner, &decoded.request));
    if (!binary.empty()) {
      return InvalidArgument("{} bytes follow the last binary tensor", binary.size());
    }
    return decoded;
  }

  const ServerLimits limits;
  JsonParser parser;
};

InferDecoder::InferDecoder(const ServerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
InferDecoder::~InferDecoder() = default;

StatusOr<DecodedInfer> InferDecoder::Decode(std::string_view body, size_t json_bytes,
                                            const std::shared_ptr<const void>& owner) {
  if (json_bytes > body.size()) {
    return InvalidArgument("Inference-Header-Content-Length is {} where the body has {} bytes",
                           json_bytes, body.size());
  }
  if (json_bytes == 0) return InvalidArgument("the request has no JSON");
  StatusOr<DecodedInfer> decoded = impl_->Decode(body, json_bytes, owner);
  impl_->parser.Trim();
  return decoded;
}

}  // namespace chairlift::http
