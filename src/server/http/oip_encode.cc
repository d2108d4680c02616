// Writes inference responses.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_writer.h"
#include "server/http/oip_codec.h"
#include "server/protocol/request.h"
#include "tensor/datatype.h"
#include "tensor/dispatch_all.h"

namespace chairlift::http {
namespace {

using std::string_view_literals::operator""sv;

// False if JSON cannot represent the value.
template <typename T>
bool WriteValue(T value, char** to) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::string_view word = value ? "true" : "false";
    *to = std::copy(word.begin(), word.end(), *to);
  } else if constexpr (std::is_same_v<T, int8_t> || std::is_same_v<T, uint8_t>) {
    *to = WriteJsonNumber(static_cast<int>(value), *to);  // not a character
  } else if constexpr (std::is_integral_v<T>) {
    *to = WriteJsonNumber(value, *to);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return false;
    *to = WriteJsonNumber(value, *to);
  } else {
    return WriteValue(static_cast<float>(value), to);
  }
  return true;
}

// Appends "1,2,3"; returns the index of the first value that JSON cannot represent, or -1.
template <typename T>
int64_t AppendValues(const Tensor& tensor, std::string* json) {
  constexpr int64_t kBlock = 128;
  std::array<char, kBlock * kNumberBytes> block;
  const T* values = tensor.data<T>();
  for (int64_t first = 0; first < tensor.size(); first += kBlock) {
    char* to = block.data();
    const int64_t end = std::min(first + kBlock, tensor.size());
    for (int64_t i = first; i < end; ++i) {
      if (i > 0) *to++ = ',';
      if (!WriteValue(values[i], &to)) return i;
    }
    json->append(block.data(), static_cast<size_t>(to - block.data()));
  }
  return -1;
}

}  // namespace

int64_t AppendData(const Tensor& tensor, std::string* json) {
  if (tensor.dtype() == DType::kBytes) {
    const std::span<const std::string_view> texts = TextsOf(tensor);
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0) json->push_back(',');
      AppendJsonString(texts[i], json);
    }
    return -1;
  }
  int64_t bad = -1;
  (void)DispatchAll(tensor.dtype(), [&]<typename T>() {
    bad = AppendValues<T>(tensor, json);
    return absl::OkStatus();
  });
  return bad;
}

bool OutputFormat::Binary(std::string_view output) const {
  for (const auto& [name, wanted] : binary) {
    if (name == output) return wanted;
  }
  return binary_by_default;
}

int64_t JsonElements(const InferResponse& response, const OutputFormat& format) {
  int64_t elements = 0;
  for (const NamedTensor& output : response.outputs) {
    if (!format.Binary(output.name)) elements += output.tensor.size();
  }
  return elements;
}

Status EncodeInfer(const InferResponse& response, const OutputFormat& format, std::string* json,
                   std::vector<int>* binary) {
  json->push_back('{');
  if (!response.id.empty()) {
    json->append("\"id\":"sv);
    AppendJsonString(response.id, json);
    json->push_back(',');
  }
  json->append("\"model_name\":"sv);
  AppendJsonString(response.model, json);
  json->append(",\"model_version\":"sv);
  AppendJsonString(response.version, json);
  json->append(",\"outputs\":["sv);
  for (size_t i = 0; i < response.outputs.size(); ++i) {
    const auto& [name, tensor] = response.outputs[i];
    json->append(i == 0 ? "{\"name\":"sv : ",{\"name\":"sv);
    AppendJsonString(name, json);
    json->append(",\"datatype\":\""sv);
    json->append(DatatypeName(tensor.dtype()));
    json->append("\",\"shape\":["sv);
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
      if (axis > 0) json->push_back(',');
      AppendJsonNumber(tensor.shape()[axis], json);
    }
    if (format.Binary(name)) {
      json->append("],\"parameters\":{\"binary_data_size\":"sv);
      AppendJsonNumber(tensor.dtype() == DType::kBytes ? protocol::TextsByteSize(tensor)
                                                       : static_cast<int64_t>(tensor.byte_size()),
                       json);
      json->append("}}"sv);
      binary->push_back(static_cast<int>(i));
      continue;
    }
    json->append("],\"data\":["sv);
    const int64_t bad = AppendData(tensor, json);
    if (bad >= 0) {
      return InvalidArgument(
          "output '{}' is NaN or infinite at element {}, which JSON cannot carry; ask for it with "
          "\"parameters\": {{\"binary_data\": true}}",
          name, bad);
    }
    json->append("]}"sv);
  }
  json->append("]}"sv);
  return absl::OkStatus();
}

}  // namespace chairlift::http
