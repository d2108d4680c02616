#include "server/http/request_json.h"

#include <algorithm>
#include <chrono>

#include "base/status.h"
#include "server/http/json_array.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// A parser that a large document has grown beyond this is given back.
constexpr size_t kKeepParserBytes = size_t{1} << 20;
constexpr size_t kMaxSequenceId = 256;  // bytes

// A number, 0 for no sequence, or a string.
Status ReadSequence(dom::element value, InferRequest* request) {
  uint64_t number;
  std::string_view text;
  if (ConvertInteger(value, &number)) {
    request->sequence = number == 0 ? "" : fmt::format("{}", number);
  } else if (value.get_string().get(text) == 0 && text.size() <= kMaxSequenceId) {
    request->sequence = text;
  } else {
    return InvalidArgument(
        "parameter \"sequence_id\" is {}; it must be a whole number or a string of at most {} "
        "bytes",
        Excerpt(value), kMaxSequenceId);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<uint64_t> Unsigned(dom::element value, std::string_view what) {
  uint64_t number;
  if (!ConvertInteger(value, &number)) {
    return InvalidArgument("\"{}\" is {}, not a whole number of 0 or more", what, Excerpt(value));
  }
  return number;
}

StatusOr<bool> Boolean(dom::element value, std::string_view what) {
  bool flag;
  if (value.get_bool().get(flag) != 0) {
    return InvalidArgument("\"{}\" is {}, not true or false", what, Excerpt(value));
  }
  return flag;
}

StatusOr<dom::array> Array(dom::element value, std::string_view what) {
  dom::array array;
  if (value.get_array().get(array) != 0) {
    return InvalidArgument("\"{}\" is {}, not an array", what, Excerpt(value));
  }
  return array;
}

StatusOr<dom::object> Object(dom::element value, std::string_view what) {
  dom::object object;
  if (value.get_object().get(object) != 0) {
    return InvalidArgument("\"{}\" is {}, not an object", what, Excerpt(value));
  }
  return object;
}

StatusOr<std::string_view> Name(dom::element value, std::string_view what,
                                const ServerLimits& limits) {
  std::string_view name;
  if (value.get_string().get(name) != 0) {
    return InvalidArgument("\"{}\" is {}, not a string", what, Excerpt(value));
  }
  if (name.size() > limits.max_name_bytes) {
    return InvalidArgument("\"{}\" is {} bytes long; the limit is {}", what, name.size(),
                           limits.max_name_bytes);
  }
  return name;
}

Status ReadParameters(dom::element value, InferRequest* request, bool* binary_output) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(value, "parameters"));
  for (const auto& [key, parameter] : parameters) {
    if (key == "binary_data_output") {
      CHAIRLIFT_ASSIGN_OR_RETURN(*binary_output, Boolean(parameter, key));
    } else if (key == "timeout") {
      CHAIRLIFT_ASSIGN_OR_RETURN(const uint64_t timeout_us, Unsigned(parameter, key));
      constexpr uint64_t kLongestUs = uint64_t{1} << 50;  // 35 years
      if (timeout_us > 0) {
        request->timeout =
            std::chrono::microseconds(static_cast<int64_t>(std::min(timeout_us, kLongestUs)));
      }
    } else if (key == "sequence_id") {
      CHAIRLIFT_RETURN_IF_ERROR(ReadSequence(parameter, request));
    } else if (key == "sequence_start") {
      CHAIRLIFT_ASSIGN_OR_RETURN(request->sequence_start, Boolean(parameter, key));
    } else if (key == "sequence_end") {
      CHAIRLIFT_ASSIGN_OR_RETURN(request->sequence_end, Boolean(parameter, key));
    }
  }
  if (request->sequence.empty() && (request->sequence_start || request->sequence_end)) {
    return InvalidArgument("\"sequence_start\" and \"sequence_end\" need a \"sequence_id\"");
  }
  return absl::OkStatus();
}

StatusOr<dom::object> JsonParser::Parse(std::string_view json, const ServerLimits& limits) {
  if (!parser_.has_value() || parser_->capacity() < json.size()) {
    parser_.emplace(limits.max_json_bytes);
    const auto error = parser_->allocate(std::max<size_t>(json.size(), 4096),
                                         static_cast<size_t>(limits.max_json_depth));
    if (error != simdjson::SUCCESS) return ResourceExhausted("no memory to parse the request");
  }
  dom::element root;
  const auto error = parser_->parse(json.data(), json.size(), false).get(root);
  if (error == simdjson::DEPTH_ERROR) {
    return InvalidArgument("the JSON is nested deeper than the {} levels allowed",
                           limits.max_json_depth);
  }
  if (error != simdjson::SUCCESS) {
    return InvalidArgument("the request is not valid JSON: {}", simdjson::error_message(error));
  }
  dom::object object;
  if (root.get_object().get(object) != 0) {
    return InvalidArgument("the request is {}, not a JSON object", Excerpt(root));
  }
  return object;
}

void JsonParser::Trim() {
  if (parser_.has_value() && parser_->capacity() > kKeepParserBytes) parser_.reset();
}

}  // namespace chairlift::http
