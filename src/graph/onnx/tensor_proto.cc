// Converts TensorProto and TypeProto to Chairlift's types.
#include "graph/onnx/tensor_proto.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "chairlift/text.h"
#include "graph/infer.h"
#include "graph/onnx/external_data.h"
#include "ops/linear/huge_tensor.h"
#include "ops/quantization/float8.h"

namespace chairlift {
namespace {

// TensorProto.DataType by number; the enum of the protobuf classes may be older than the file.
struct DataTypeRow {
  const char* name;
  DType dtype;
};
constexpr DataTypeRow kDataTypes[] = {{"undefined", DType::kUndefined},
                                      {"float32", DType::kFloat},
                                      {"uint8", DType::kUInt8},
                                      {"int8", DType::kInt8},
                                      {"uint16", DType::kUInt16},
                                      {"int16", DType::kInt16},
                                      {"int32", DType::kInt32},
                                      {"int64", DType::kInt64},
                                      {"string", DType::kBytes},
                                      {"bool", DType::kBool},
                                      {"float16", DType::kFloat16},
                                      {"float64", DType::kDouble},
                                      {"uint32", DType::kUInt32},
                                      {"uint64", DType::kUInt64},
                                      {"complex64", DType::kUndefined},
                                      {"complex128", DType::kUndefined},
                                      {"bfloat16", DType::kBFloat16},
                                      {"float8e4m3fn", DType::kUndefined},
                                      {"float8e4m3fnuz", DType::kUndefined},
                                      {"float8e5m2", DType::kUndefined},
                                      {"float8e5m2fnuz", DType::kUndefined},
                                      {"uint4", DType::kUndefined},
                                      {"int4", DType::kUndefined},
                                      {"float4e2m1", DType::kUndefined},
                                      {"float8e8m0", DType::kUndefined},
                                      {"uint2", DType::kUndefined},
                                      {"int2", DType::kUndefined},
                                      {"float6e2m3", DType::kUndefined},
                                      {"float6e3m2", DType::kUndefined}};

constexpr int kOnnxUInt8 = 2, kOnnxUInt4 = 21, kOnnxInt4 = 22;

StatusOr<int64_t> ParseInt(const std::string& text, const char* what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return InvalidArgument("external data {} '{}' is not a number of bytes", what, text);
  }
  return value;
}

StatusOr<Shape> ShapeOf(const onnx::TensorProto& proto) {
  if (proto.dims_size() > kMaxGraphRank) {
    return InvalidArgument("{} dimensions are more than the limit of {}", proto.dims_size(),
                           kMaxGraphRank);
  }
  return Shape(std::span<const int64_t>(proto.dims().data(), proto.dims().size()));
}

// Large weights go on huge pages, because the first write to pages takes most of the time.
Tensor AllocateWeight(DType dtype, const Shape& shape, int64_t bytes) {
  constexpr int64_t kLarge = int64_t{8} << 20;
  return bytes >= kLarge ? HugeTensor(dtype, shape) : Tensor::Allocate(dtype, shape);
}

StatusOr<Tensor> DecodeExternal(const onnx::TensorProto& proto, DType dtype, const Shape& shape,
                                int64_t bytes, const DataFolder& folder) {
  ExternalDataRange range;
  range.bytes = bytes;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      range.location = entry.value();
    } else if (entry.key() == "offset") {
      CHAIRLIFT_ASSIGN_OR_RETURN(range.offset, ParseInt(entry.value(), "offset"));
    } else if (entry.key() == "length") {
      CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t length, ParseInt(entry.value(), "length"));
      if (length != bytes) {
        return InvalidArgument("external data length is {} bytes, but {} of shape {} takes {}",
                               length, DTypeName(dtype), shape.ToString(), bytes);
      }
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckExternalData(folder, range));
  Tensor tensor = AllocateWeight(dtype, shape, bytes);
  CHAIRLIFT_RETURN_IF_ERROR(ReadExternalData(folder, range, tensor.raw()));
  return tensor;
}

// Copies a typed field with one field entry per tensor element. int32_data holds all of the narrow
// types.
template <typename T, typename Field>
StatusOr<Tensor> FromField(const Field& field, DType dtype, const Shape& shape, int64_t count) {
  if (field.size() != count) {
    return InvalidArgument("{} of shape {} takes {} elements, but the file holds {}",
                           DTypeName(dtype), shape.ToString(), count, field.size());
  }
  Tensor tensor = Tensor::Allocate(dtype, shape);
  T* out = static_cast<T*>(tensor.raw());
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(field.Get(static_cast<int>(i)));
  return tensor;
}

StatusOr<Tensor> FromFields(const onnx::TensorProto& proto, DType dtype, const Shape& shape,
                            int64_t count) {
  switch (dtype) {
    case DType::kFloat:
      return FromField<float>(proto.float_data(), dtype, shape, count);
    case DType::kDouble:
      return FromField<double>(proto.double_data(), dtype, shape, count);
    case DType::kInt64:
      return FromField<int64_t>(proto.int64_data(), dtype, shape, count);
    case DType::kUInt32:
      return FromField<uint32_t>(proto.uint64_data(), dtype, shape, count);
    case DType::kUInt64:
      return FromField<uint64_t>(proto.uint64_data(), dtype, shape, count);
    case DType::kInt32:
      return FromField<int32_t>(proto.int32_data(), dtype, shape, count);
    case DType::kInt16:
      return FromField<int16_t>(proto.int32_data(), dtype, shape, count);
    case DType::kInt8:
      return FromField<int8_t>(proto.int32_data(), dtype, shape, count);
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return FromField<uint16_t>(proto.int32_data(), dtype, shape, count);
    case DType::kUInt8:
      return FromField<uint8_t>(proto.int32_data(), dtype, shape, count);
    case DType::kBool:
      return FromField<bool>(proto.int32_data(), dtype, shape, count);
    case DType::kUndefined:
    case DType::kBytes:
      break;
  }
  return Internal("tensor without an element type");
}

// Strings have one field alone.
StatusOr<Tensor> DecodeTexts(const onnx::TensorProto& proto, const Shape& shape, int64_t count) {
  if (proto.string_data_size() != count) {
    return InvalidArgument("strings of shape {} are {} elements, but the file holds {}",
                           shape.ToString(), count, proto.string_data_size());
  }
  return TextTensor(shape, {proto.string_data().begin(), proto.string_data().end()});
}

// A bool read from a file may be any byte; in memory it must be 0 or 1.
void CanoniseBools(Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  auto* bytes = static_cast<uint8_t*>(tensor.raw());
  for (int64_t i = 0; i < tensor.size(); ++i) bytes[i] = bytes[i] != 0;
}

}  // namespace

StatusOr<DType> DTypeFromOnnx(int data_type) {
  const bool listed = data_type >= 0 && data_type < static_cast<int>(std::size(kDataTypes));
  if (!listed) return InvalidArgument("element type {} is not one that ONNX has", data_type);
  const DataTypeRow& row = kDataTypes[data_type];
  if (row.dtype == DType::kUndefined) {
    return Unimplemented("element type {} is not supported{}", row.name,
                         Float8OfOnnx(data_type)
                             ? " here, only inside a model; cast it to float32"
                             : "; export the model in float32, float16, bfloat16 or an integer "
                               "type");
  }
  return row.dtype;
}

StatusOr<Tensor> DecodeTensor(const onnx::TensorProto& proto, const DataFolder& folder,
                              const std::optional<RawDataInFile>& in_file) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const DType dtype, DTypeFromOnnx(proto.data_type()));
  if (proto.has_segment()) return Unimplemented("tensors in segments are not supported");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(proto));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t count, shape.Checked(DTypeSize(dtype)));
  if (dtype == DType::kBytes) return DecodeTexts(proto, shape, count);
  const int64_t bytes = count * static_cast<int64_t>(DTypeSize(dtype));
  Tensor tensor;
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    CHAIRLIFT_ASSIGN_OR_RETURN(tensor, DecodeExternal(proto, dtype, shape, bytes, folder));
  } else if (in_file.has_value() || proto.has_raw_data()) {
    const std::string& raw = proto.raw_data();
    const int64_t held = in_file.has_value() ? in_file->range.bytes : std::ssize(raw);
    if (held != bytes) {
      return InvalidArgument("{} of shape {} takes {} bytes, but the file holds {}",
                             DTypeName(dtype), shape.ToString(), bytes, held);
    }
    tensor = AllocateWeight(dtype, shape, bytes);
    if (in_file.has_value()) {
      CHAIRLIFT_RETURN_IF_ERROR(in_file->read(in_file->range.offset, bytes, tensor.raw()));
    } else {
      std::memcpy(tensor.raw(), raw.data(), raw.size());
    }
  } else {
    CHAIRLIFT_ASSIGN_OR_RETURN(tensor, FromFields(proto, dtype, shape, count));
  }
  CanoniseBools(tensor);
  return tensor;
}

bool IsFourBits(const onnx::TensorProto& proto) {
  return proto.data_type() == kOnnxUInt4 || proto.data_type() == kOnnxInt4;
}

StatusOr<Tensor> DecodeFourBits(const onnx::TensorProto& proto, const DataFolder& folder,
                                const std::optional<RawDataInFile>& in_file) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(proto));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t count, shape.Checked(1));
  // Two elements per byte, in any of the ways in which bytes can be stored.
  onnx::TensorProto of_bytes = proto;
  of_bytes.set_data_type(kOnnxUInt8);
  of_bytes.clear_dims();
  of_bytes.add_dims((count + 1) / 2);
  const bool is_signed = proto.data_type() == kOnnxInt4;
  const StatusOr<Tensor> bytes = DecodeTensor(of_bytes, folder, in_file);
  if (!bytes.ok()) {
    return Annotate(bytes.status(), fmt::format("{} of shape {}, two to a byte",
                                                is_signed ? "int4" : "uint4", shape.ToString()));
  }
  Tensor tensor = Tensor::Allocate(DType::kInt8, shape);
  for (int64_t i = 0; i < count; ++i) {
    const int code = bytes->data<uint8_t>()[i / 2] >> (i % 2 * 4) & 15;
    tensor.data<int8_t>()[i] = static_cast<int8_t>(is_signed && code > 7 ? code - 16 : code);
  }
  return tensor;
}

StatusOr<ValueInfo> DecodeType(const onnx::TypeProto& proto, DimensionNames& names) {
  switch (proto.value_case()) {
    case onnx::TypeProto::VALUE_NOT_SET:
      return ValueInfo{};
    case onnx::TypeProto::kTensorType:
      break;
    case onnx::TypeProto::kSequenceType:
      return Unimplemented(
          "values of type sequence are not supported as inputs and outputs, only tensors; convert "
          "a "
          "scikit-learn classifier with options={{'zipmap': False}}, or join the elements with "
          "ConcatFromSequence");
    case onnx::TypeProto::kMapType:
      return Unimplemented(
          "values of type map are not supported, only tensors; convert a scikit-learn classifier "
          "with options={{'zipmap': False}}");
    case onnx::TypeProto::kOptionalType:
      return Unimplemented(
          "values of type optional are not supported, only tensors; export the model without them");
    case onnx::TypeProto::kSparseTensorType:
      return Unimplemented(
          "values of type sparse tensor are not supported; export the model with dense tensors");
    default:
      return Unimplemented("values that are not tensors are not supported");
  }
  const onnx::TypeProto::Tensor& tensor = proto.tensor_type();
  ValueInfo info;
  if (tensor.elem_type() == 0) return info;
  CHAIRLIFT_ASSIGN_OR_RETURN(info.dtype, DTypeFromOnnx(tensor.elem_type()));
  if (!tensor.has_shape()) return info;
  if (tensor.shape().dim_size() > kMaxGraphRank) {
    return InvalidArgument("{} dimensions are more than the limit of {}", tensor.shape().dim_size(),
                           kMaxGraphRank);
  }
  std::vector<Dim> dims;
  Shape known;
  for (const auto& dim : tensor.shape().dim()) {
    const std::string& name = dim.dim_param();
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      dims.emplace_back(dim.dim_value());
      known.Append(dim.dim_value());
    } else if (name.empty() || name == "?" || name == "None" || name == "-1") {
      dims.push_back(Dim::Unknown());  // exporters' ways of leaving it open
    } else {
      dims.push_back(Dim::Symbol(names.Symbol(name)));
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(known.Checked(DTypeSize(info.dtype)).status());
  info.shape = SymbolicShape(std::move(dims));
  return info;
}

}  // namespace chairlift
