#include "server/http/request_json.h"

#include <algorithm>

#include "base/status.h"
#include "server/http/json_array.h"
#include "server/http/json_errors.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// A parser that has grown beyond this is freed.
constexpr size_t kKeepParserBytes = size_t{1} << 20;
}  // namespace

protocol::Parameter ParameterFrom(dom::element value) {
  switch (value.type()) {
    case dom::element_type::BOOL:
      return value.get_bool().value_unsafe();
    case dom::element_type::INT64:
      return value.get_int64().value_unsafe();
    case dom::element_type::UINT64:
      return value.get_uint64().value_unsafe();
    case dom::element_type::DOUBLE:
      return value.get_double().value_unsafe();
    case dom::element_type::STRING:
      return std::string_view(value.get_string().value_unsafe());
    case dom::element_type::ARRAY:
      return protocol::OtherValue{"an array"};
    case dom::element_type::OBJECT:
      return protocol::OtherValue{"an object"};
    case dom::element_type::NULL_VALUE:
      break;
  }
  return protocol::OtherValue{"null"};
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
                                const protocol::Limits& limits) {
  std::string_view name;
  if (value.get_string().get(name) != 0) {
    return InvalidArgument("\"{}\" is {}, not a string", what, Excerpt(value));
  }
  CHAIRLIFT_RETURN_IF_ERROR(protocol::CheckName(name, what, limits));
  return name;
}

Status SeenFields::Add(std::string_view field) {
  if (std::find(fields_.begin(), fields_.end(), field) != fields_.end()) return GivenTwice(field);
  fields_.push_back(field);
  return absl::OkStatus();
}

Status ReadParameters(dom::element value, InferRequest* request, bool* binary_output) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(value, "parameters"));
  SeenFields seen;
  for (const auto& [key, setting] : parameters) {
    const protocol::Parameter parameter = ParameterFrom(setting);
    if (key == "binary_data_output") {
      CHAIRLIFT_RETURN_IF_ERROR(seen.Add(key));
      CHAIRLIFT_ASSIGN_OR_RETURN(*binary_output, protocol::Boolean(parameter, key));
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool known, protocol::SetParameter(key, parameter, request));
      if (known) CHAIRLIFT_RETURN_IF_ERROR(seen.Add(key));
    }
  }
  return protocol::CheckParameters(*request);
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
  if (error == simdjson::MEMALLOC) return ResourceExhausted("no memory to parse the request");
  if (error != simdjson::SUCCESS) {
    return InvalidArgument("the request is not valid JSON{}: {}", JsonErrorPosition(json),
                           simdjson::error_message(error));
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
