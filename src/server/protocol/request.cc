#include "server/protocol/request.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/excerpt.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "tensor/datatype.h"

namespace chairlift::protocol {
namespace {

// Smaller tensors are copied: cheaper than keeping the request body.
constexpr size_t kBorrowBytes = 4096;
constexpr size_t kBorrowAlignment = 64;
constexpr size_t kMaxSequenceId = 256;  // bytes

std::optional<uint64_t> WholeNumber(const Parameter& value) {
  uint64_t number;
  if (const auto* wide = std::get_if<uint64_t>(&value)) return *wide;
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return *whole < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(*whole));
  }
  const auto* real = std::get_if<double>(&value);
  return real != nullptr && ToInteger(*real, &number) ? std::optional(number) : std::nullopt;
}

// A number (0 for no sequence) or text.
Status SetSequence(const Parameter& value, InferRequest* request) {
  const std::optional<uint64_t> number = WholeNumber(value);
  const auto* text = std::get_if<std::string_view>(&value);
  if (number.has_value()) {
    request->sequence = *number == 0 ? "" : fmt::to_string(*number);
  } else if (text != nullptr && text->size() <= kMaxSequenceId) {
    request->sequence = *text;
  } else {
    return InvalidArgument(
        "parameter \"sequence_id\" is {}; it must be a whole number of 0 (no sequence) or more, or "
        "a "
        "string of at most {} bytes",
        Excerpt(value), kMaxSequenceId);
  }
  return absl::OkStatus();
}

// Seeds of 2^63 and more are the negative numbers with the same bits.
StatusOr<int64_t> Seed(const Parameter& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const std::optional<uint64_t> number = WholeNumber(value)) {
    return static_cast<int64_t>(*number);
  }
  int64_t exact;
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && ToInteger(*real, &exact)) return exact;
  return InvalidArgument("parameter \"seed\" is {}, not a whole number", Excerpt(value));
}

Status RefuseSharedMemory(std::string_view name) {
  if (!name.starts_with("shared_memory_")) return absl::OkStatus();
  return InvalidArgument("\"{}\": shared memory is not supported; send the tensor in the request",
                         name);
}

// A C++ bool with a byte other than 0 or 1 is undefined behaviour.
Status CheckBool(const Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.raw());
  const auto* bad = std::find_if(bytes, bytes + tensor.size(), [](auto byte) { return byte > 1; });
  if (bad == bytes + tensor.size()) return absl::OkStatus();
  return InvalidArgument("byte {} of the binary data is {}; BOOL takes 0 or 1", bad - bytes,
                         int{*bad});
}

// Each string preceded by its size, four bytes.
StatusOr<Tensor> TextsFromBytes(const Shape& shape, std::string_view bytes) {
  constexpr size_t kSizeBytes = sizeof(uint32_t);
  const auto count = static_cast<uint64_t>(shape.NumElements());
  if (count > bytes.size() / kSizeBytes) {
    return InvalidArgument("the binary data has {} bytes, too few for the sizes of {} strings",
                           bytes.size(), count);
  }
  std::vector<std::string> texts;
  texts.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t size = 0;
    if (bytes.size() >= kSizeBytes) std::memcpy(&size, bytes.data(), kSizeBytes);
    if (bytes.size() < kSizeBytes || size > bytes.size() - kSizeBytes) {
      return InvalidArgument("the binary data ends within string {} of {}", i, count);
    }
    texts.emplace_back(bytes.substr(kSizeBytes, size));
    bytes.remove_prefix(kSizeBytes + size);
  }
  if (!bytes.empty()) {
    return InvalidArgument("{} bytes of the binary data follow the last of its {} strings",
                           bytes.size(), count);
  }
  return TextTensor(shape, std::move(texts));
}

StatusOr<int64_t> CheckElements(const TensorHead& head, const Limits& limits) {
  if (head.datatype == DType::kUndefined) return InvalidArgument("\"datatype\" is missing");
  if (!head.shape.has_value()) return InvalidArgument("\"shape\" is missing");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t elements, head.shape->Checked(DTypeSize(head.datatype)));
  const int64_t most =
      head.datatype == DType::kBytes ? limits.max_texts : limits.max_tensor_elements;
  if (elements <= most) return elements;
  return InvalidArgument("shape {} has {} elements; the limit is {}", head.shape->ToString(),
                         elements, most);
}

// "; did you mean 'FP32'?" of float32, TYPE_FP32 and the like.
std::string DidYouMeanDatatype(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"FLOAT", "FP32"},   {"FLOAT32", "FP32"}, {"FLOAT64", "FP64"},  {"DOUBLE", "FP64"},
      {"FLOAT16", "FP16"}, {"HALF", "FP16"},    {"BFLOAT16", "BF16"}, {"INT", "INT64"},
      {"LONG", "INT64"},   {"BOOLEAN", "BOOL"}, {"STRING", "BYTES"},  {"STR", "BYTES"},
      {"TEXT", "BYTES"},   {"F32", "FP32"},     {"F16", "FP16"},      {"F64", "FP64"}};
  std::string upper = absl::AsciiStrToUpper(std::string(name.substr(0, 64)));
  if (upper.starts_with("TYPE_")) upper.erase(0, 5);
  for (const auto& [other, meant] : kOthers) {
    if (upper == other) upper = meant;
  }
  if (DatatypeFromName(upper) == DType::kUndefined) return "";
  return fmt::format("; did you mean '{}'?", upper);
}

}  // namespace

std::string Excerpt(const Parameter& value) {
  if (const auto* other = std::get_if<OtherValue>(&value)) return std::string(other->kind);
  const std::string text = std::visit(
      []<typename T>(const T& plain) {
        if constexpr (std::is_same_v<T, std::string_view>) return fmt::format("\"{}\"", plain);
        if constexpr (!std::is_same_v<T, OtherValue>) return fmt::format("{}", plain);
        return std::string();
      },
      value);
  return Shortened(text, 40);
}

bool Same(const Parameter& a, const Parameter& b) {
  if (const std::optional<uint64_t> number = WholeNumber(a)) return number == WholeNumber(b);
  return std::visit(
      []<typename A, typename B>(const A& left, const B& right) {
        if constexpr (std::is_same_v<A, B> && !std::is_same_v<A, OtherValue>) return left == right;
        return false;
      },
      a, b);
}

StatusOr<uint64_t> Unsigned(const Parameter& value, std::string_view what) {
  if (const std::optional<uint64_t> number = WholeNumber(value)) return *number;
  return InvalidArgument("\"{}\" is {}, not a whole number of 0 or more", what, Excerpt(value));
}

StatusOr<bool> Boolean(const Parameter& value, std::string_view what) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return InvalidArgument("\"{}\" is {}, not true or false", what, Excerpt(value));
}

Status CheckName(std::string_view name, std::string_view what, const Limits& limits) {
  if (name.size() <= limits.max_name_bytes) return absl::OkStatus();
  return InvalidArgument("{} is {} bytes long; the limit is {}", what, name.size(),
                         limits.max_name_bytes);
}

StatusOr<bool> SetParameter(std::string_view name, const Parameter& value, InferRequest* request) {
  if (name == "timeout") {
    CHAIRLIFT_ASSIGN_OR_RETURN(const uint64_t timeout_us, Unsigned(value, name));
    constexpr uint64_t kLongestUs = uint64_t{1} << 50;  // 35 years
    if (timeout_us > 0) {
      request->timeout =
          std::chrono::microseconds(static_cast<int64_t>(std::min(timeout_us, kLongestUs)));
    }
  } else if (name == "sequence_id") {
    CHAIRLIFT_RETURN_IF_ERROR(SetSequence(value, request));
  } else if (name == "sequence_start") {
    CHAIRLIFT_ASSIGN_OR_RETURN(request->sequence_start, Boolean(value, name));
  } else if (name == "sequence_end") {
    CHAIRLIFT_ASSIGN_OR_RETURN(request->sequence_end, Boolean(value, name));
  } else if (name == "seed") {
    CHAIRLIFT_ASSIGN_OR_RETURN(request->seed, Seed(value));
  } else {
    return false;
  }
  return true;
}

Status CheckParameters(const InferRequest& request) {
  if (!request.sequence.empty() || !(request.sequence_start || request.sequence_end)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "\"sequence_start\" and \"sequence_end\" need a \"sequence_id\": a whole number above 0, or "
      "a "
      "string that is not empty");
}

Status CheckInputParameter(std::string_view name) { return RefuseSharedMemory(name); }

Status CheckOutputParameter(std::string_view name) { return RefuseSharedMemory(name); }

StatusOr<int> Classes(const Parameter& value) {
  constexpr uint64_t kMost = std::numeric_limits<int>::max();  // there are never as many scores
  CHAIRLIFT_ASSIGN_OR_RETURN(const uint64_t classes, Unsigned(value, "classification"));
  return static_cast<int>(std::min(classes, kMost));
}

StatusOr<DType> ReadDatatype(std::string_view name) {
  const DType datatype = DatatypeFromName(name);
  if (datatype != DType::kUndefined) return datatype;
  return InvalidArgument(
      "datatype '{}' is not one of FP16, BF16, FP32, FP64, INT8 to INT64, UINT8 to UINT64, BOOL, "
      "BYTES{}",
      CutText(name, 64), DidYouMeanDatatype(name));
}

Status AppendDimension(int64_t size, const Limits& limits, Shape* shape) {
  if (shape->rank() == limits.max_rank) {
    return InvalidArgument("\"shape\" has more than the {} dimensions allowed", limits.max_rank);
  }
  if (size < 0) return BadDimension(shape->rank(), fmt::to_string(size));
  shape->Append(size);
  return absl::OkStatus();
}

Status BadDimension(int axis, std::string_view found) {
  return InvalidArgument("dimension {} of \"shape\" is {}, not a whole number of 0 or more", axis,
                         found);
}

StatusOr<int64_t> CheckInput(const TensorHead& head, const InferRequest& request,
                             const Limits& limits) {
  const size_t index = request.inputs.size();
  if (index == static_cast<size_t>(limits.max_tensors)) {
    return InvalidArgument("the request has more than the {} inputs allowed", limits.max_tensors);
  }
  if (!head.name.has_value()) return InvalidArgument("input {}: \"name\" is missing", index);
  for (const NamedTensor& earlier : request.inputs) {
    if (earlier.name == *head.name) return InvalidArgument("input '{}' is given twice", *head.name);
  }
  StatusOr<int64_t> elements = CheckElements(head, limits);
  if (elements.ok()) return elements;
  return Annotate(elements.status(), fmt::format("input '{}'", *head.name));
}

StatusOr<Tensor> TensorFromBytes(DType datatype, const Shape& shape, std::string_view bytes,
                                 const std::shared_ptr<const void>& owner) {
  if (datatype == DType::kBytes) return TextsFromBytes(shape, bytes);
  const auto size = static_cast<uint64_t>(shape.NumElements()) * DTypeSize(datatype);
  if (bytes.size() != size) {
    return InvalidArgument("the binary data has {} bytes; {} of shape {} takes {}", bytes.size(),
                           DatatypeName(datatype), shape.ToString(), size);
  }
  Tensor tensor;
  if (owner != nullptr && bytes.size() >= kBorrowBytes &&
      reinterpret_cast<uintptr_t>(bytes.data()) % kBorrowAlignment == 0) {
    tensor = Tensor::Wrap(datatype, shape, const_cast<char*>(bytes.data()), owner);
  } else {
    tensor = Tensor::Allocate(datatype, shape);
    std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  }
  if (datatype == DType::kBool) CHAIRLIFT_RETURN_IF_ERROR(CheckBool(tensor));
  return tensor;
}

Status AddOutput(std::string_view name, const Limits& limits, InferRequest* request) {
  if (request->outputs.size() == static_cast<size_t>(limits.max_tensors)) {
    return InvalidArgument("the request names more than the {} outputs allowed",
                           limits.max_tensors);
  }
  for (const std::string& earlier : request->outputs) {
    if (earlier == name) return InvalidArgument("output '{}' is given twice", name);
  }
  request->outputs.emplace_back(name);
  return absl::OkStatus();
}

Tensor BytesFromTexts(const Tensor& texts) {
  Tensor bytes = Tensor::Allocate(DType::kUInt8, Shape{TextsByteSize(texts)});
  auto* to = bytes.data<uint8_t>();
  for (const std::string_view text : TextsOf(texts)) {
    const auto size = static_cast<uint32_t>(text.size());
    std::memcpy(to, &size, sizeof(size));
    to = std::copy(text.begin(), text.end(), to + sizeof(size));
  }
  return bytes;
}

int64_t TextsByteSize(const Tensor& texts) {
  int64_t bytes = 0;
  for (const std::string_view text : TextsOf(texts)) {
    bytes += static_cast<int64_t>(sizeof(uint32_t) + text.size());
  }
  return bytes;
}

}  // namespace chairlift::protocol
