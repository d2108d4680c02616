#include "server/http/request_json.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "server/http/json_array.h"
#include "server/http/json_errors.h"
#include "server/http/oip_codec.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// Larger parsers are freed. Per byte of the longest body, a parser has eight bytes of tape, four of
// an index, and five thirds for strings.
constexpr size_t kKeepParserBytes = size_t{8} << 20;
constexpr size_t kBytesForEach = 14;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Whether the document may contain the integer -0; false positives are rare. Reads up to
// kBodyPadding bytes past the end.
bool MayHoldMinusZero(std::string_view json) {
  constexpr size_t kBlock = 32;
  static_assert(kBlock + 2 <= kBodyPadding);
  const char* const begin = json.data();
  for (size_t at = 0; at < json.size(); at += kBlock) {
    const char* const block = begin + at;
    unsigned found = 0;
    for (size_t i = 0; i < kBlock; ++i) {  // vectorised by the compiler
      const char next = block[i + 2];
      const bool ends = (next < '.') | (next == ']') | (next == '}');
      found |= static_cast<unsigned>((block[i] == '-') & (block[i + 1] == '0') & ends);
    }
    if (found != 0) return true;
  }
  return false;
}

// Whether the parser would read this integer as 0 or refuse it.
bool NeedsPoint(std::string_view number) {
  constexpr size_t kDigitsThatFit = 18;
  if (number == "-0") return true;
  if (number.size() <= kDigitsThatFit || number.find_first_of(".eE") != number.npos) return false;
  const char* const end = number.data() + number.size();
  uint64_t wide = 0;
  int64_t with_sign = 0;
  return number[0] == '-' ? std::from_chars(number.data(), end, with_sign).ec != std::errc()
                          : std::from_chars(number.data(), end, wide).ec != std::errc();
}

// The document with ".0" after such integers, and kBodyPadding bytes; nothing if it has none.
std::optional<std::string> WithPoints(std::string_view json) {
  const auto in_number = [](char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  };
  std::string pointed;
  size_t copied = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      for (++i; i < json.size() && json[i] != '"'; ++i) i += json[i] == '\\' ? 1 : 0;
    } else if (json[i] == '-' || (json[i] >= '0' && json[i] <= '9')) {
      const size_t begin = i;
      while (i + 1 < json.size() && in_number(json[i + 1])) ++i;
      if (!NeedsPoint(json.substr(begin, i + 1 - begin))) continue;
      pointed.append(json.substr(copied, i + 1 - copied)).append(".0");
      copied = i + 1;
    }
  }
  if (copied == 0) return std::nullopt;
  pointed.append(json.substr(copied));
  pointed.reserve(pointed.size() + kBodyPadding);
  return pointed;
}

// A duplicate field, and the path of its object.
struct Twin {
  std::string field;
  std::string path;
};

std::optional<std::string_view> TwinAmong(absl::InlinedVector<std::string_view, 16>* keys) {
  constexpr size_t kFew = 16;
  if (keys->size() <= kFew) {
    for (auto key = keys->begin(); key != keys->end(); ++key) {
      if (std::find(keys->begin(), key, *key) != key) return *key;
    }
    return std::nullopt;
  }
  std::sort(keys->begin(), keys->end());
  const auto twin = std::adjacent_find(keys->begin(), keys->end());
  return twin == keys->end() ? std::nullopt : std::optional(*twin);
}

// Searches every object, to the depth that the parser allows.
class TwinFinder {
 public:
  // `numbers`: also search arrays that begin with a number.
  explicit TwinFinder(bool numbers) : numbers_(numbers) {}

  size_t objects() const { return objects_; }  // number of objects searched
  std::optional<Twin> Find(dom::element value) {
    dom::array array;
    dom::object object;
    if (value.get_array().get(array) == 0) return InArray(array);
    if (value.get_object().get(object) == 0) return InObject(object);
    return std::nullopt;
  }

 private:
  static std::optional<Twin> Within(Twin twin, std::string step) {
    const bool member = !twin.path.empty() && twin.path.front() != '[';
    twin.path.insert(0, std::move(step) + (member ? "." : ""));
    return twin;
  }

  std::optional<Twin> InArray(dom::array array) {
    if (!numbers_ && array.begin() != array.end() && (*array.begin()).is_number()) return {};
    size_t index = 0;
    for (const dom::element element : array) {
      std::optional<Twin> twin = Find(element);
      if (twin) return Within(*std::move(twin), fmt::format("[{}]", index));
      ++index;
    }
    return std::nullopt;
  }

  std::optional<Twin> InObject(dom::object object) {
    ++objects_;
    absl::InlinedVector<std::string_view, 16> keys;
    for (const auto& [key, field] : object) keys.push_back(key);
    if (const auto twin = TwinAmong(&keys)) return Twin{std::string(*twin), ""};
    for (const auto& [key, field] : object) {
      std::optional<Twin> twin = Find(field);
      if (twin) return Within(*std::move(twin), std::string(key));
    }
    return std::nullopt;
  }

  const bool numbers_;
  size_t objects_ = 0;
};

// Tensors are long: once all opening braces have been seen, they are not searched.
std::optional<Twin> FindTwin(dom::element root, std::string_view json) {
  TwinFinder quick(false);
  std::optional<Twin> twin = quick.Find(root);
  const auto most = static_cast<size_t>(std::count(json.begin(), json.end(), '{'));
  return twin || quick.objects() == most ? twin : TwinFinder(true).Find(root);
}

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

Status ReadParameters(dom::element value, InferRequest* request, bool* binary_output,
                      std::string_view except) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object parameters, Object(value, "parameters"));
  for (const auto& [key, setting] : parameters) {
    if (!except.empty() && key == except) continue;
    const protocol::Parameter parameter = ParameterFrom(setting);
    if (key == "binary_data_output") {
      CHAIRLIFT_ASSIGN_OR_RETURN(*binary_output, protocol::Boolean(parameter, key));
    } else {
      CHAIRLIFT_RETURN_IF_ERROR(protocol::SetParameter(key, parameter, request).status());
    }
  }
  return protocol::CheckParameters(*request);
}

simdjson::error_code JsonParser::Read(std::string_view json, const ServerLimits& limits,
                                      dom::element* root) {
  if (!parser_.has_value() || parser_->capacity() < json.size()) {
    parser_.emplace(std::max(limits.max_json_bytes, json.size()));
    const auto error = parser_->allocate(std::max<size_t>(json.size(), 4096),
                                         static_cast<size_t>(limits.max_json_depth));
    if (error != simdjson::SUCCESS) return simdjson::MEMALLOC;
  }
  return parser_->parse(json.data(), json.size(), false).get(*root);
}

StatusOr<dom::object> JsonParser::Parse(std::string_view json, const ServerLimits& limits) {
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  dom::element root;
  std::optional<std::string> pointed;
  if (MayHoldMinusZero(json)) pointed = WithPoints(json);
  simdjson::error_code error = Read(pointed ? *pointed : json, limits, &root);
  if (error == simdjson::NUMBER_ERROR && !pointed) {
    pointed = WithPoints(json);
    if (pointed) error = Read(*pointed, limits, &root);
  }
  if (error == simdjson::DEPTH_ERROR) {
    return InvalidArgument("the JSON is nested deeper than the {} levels allowed",
                           limits.max_json_depth);
  }
  if (error == simdjson::MEMALLOC) return ResourceExhausted("no memory to parse the request");
  if (error == simdjson::NUMBER_ERROR) {
    return NotJson(json, "a number is malformed, or too large for FP64");
  }
  if (error != simdjson::SUCCESS) return NotJson(json, simdjson::error_message(error));
  dom::object object;
  if (root.get_object().get(object) != 0) {
    return InvalidArgument("the request is {}, not a JSON object; send {{\"name\": value, …}}",
                           Excerpt(root));
  }
  if (const std::optional<Twin> twin = FindTwin(root, json))
    return GivenTwice(twin->field, twin->path);
  return object;
}

void JsonParser::Trim() {
  if (parser_.has_value() && kBytesForEach * parser_->capacity() > kKeepParserBytes)
    parser_.reset();
}

}  // namespace chairlift::http
