#include "server/http/text_fields.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/closest.h"
#include "base/status.h"
#include "server/http/json_array.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kShownField = 64;  // bytes of an unknown field in its error

// Fields of other servers' requests that affect no answer.
constexpr std::string_view kChangeNothing[] = {"user",     "metadata",   "options",
                                               "priority", "request_id", "id"};

// Fields of other servers that this one does not have, and their replacements.
struct OtherField {
  std::string_view field, instead;
};
constexpr OtherField kOtherFields[] = {
    {"max_tokens_per_doc", "\"truncate\": true cuts texts to what the model takes"},
    {"max_chunks_per_doc", "\"truncate\": true cuts texts to what the model takes"},
    {"truncate_prompt_tokens", "\"truncate\": true cuts texts to what the model takes"},
    {"rank_fields", "documents are ranked by their \"text\""},
    {"function_to_apply", "\"raw_scores\": true gives scores as the model has them"},
};

Status CheckRoom(const TextInputs& texts, std::string_view what) {
  if (texts.texts.size() < kMostTexts) return absl::OkStatus();
  return InvalidArgument("\"{}\" has more than {} texts, the limit of a request", what, kMostTexts);
}

}  // namespace

StatusOr<bool> Truncation::Read(std::string_view key, dom::element value,
                                const ServerLimits& limits) {
  if (key == "truncate") {
    CHAIRLIFT_ASSIGN_OR_RETURN(truncate, protocol::Boolean(ParameterFrom(value), key));
    return true;
  }
  if (key != "truncation_direction") return false;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view word, Name(value, key, limits));
  const bool left = word == "left" || word == "Left";
  if (!left && word != "right" && word != "Right") {
    return InvalidArgument("\"truncation_direction\" is \"{}\"; it must be left or right", word);
  }
  side = left ? 2 : 1;
  return true;
}

StatusOr<std::string> ReadIds(dom::array array, std::string_view what) {
  std::string bytes;
  for (const dom::element element : array) {
    int32_t id = 0;
    if (!ConvertInteger(element, &id) || id < 0) {
      return InvalidArgument(
          "\"{}\" has {} among its token ids; they are whole numbers of 0 or more", what,
          Excerpt(element));
    }
    std::array<char, sizeof(id)> four;
    std::memcpy(four.data(), &id, sizeof(id));
    bytes.append(four.data(), four.size());
  }
  return bytes;
}

StatusOr<std::string> ReadText(dom::element value, std::string_view what) {
  std::string_view text;
  if (value.get_string().get(text) != 0) {
    return InvalidArgument("\"{}\" is {}, not a text", what, Excerpt(value));
  }
  return std::string(text);
}

Status AppendText(dom::element value, std::string_view what, TextInputs* to) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckRoom(*to, what));
  std::string_view text;
  dom::array array;
  if (value.get_string().get(text) == 0) {
    to->texts.emplace_back(text);
    to->kinds.push_back(TextKind::kText);
    return absl::OkStatus();
  }
  if (value.get_array().get(array) != 0) {
    return InvalidArgument("\"{}\" contains {}, which is not a string or a list of token ids", what,
                           Excerpt(value));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(to->texts.emplace_back(), ReadIds(array, what));
  to->kinds.push_back(TextKind::kIds);
  return absl::OkStatus();
}

Status ReadTexts(dom::element value, std::string_view what, TextInputs* to) {
  dom::array array;
  if (value.is_string()) return AppendText(value, what, to);
  if (value.get_array().get(array) != 0) {
    return InvalidArgument("\"{}\" is {}; it must be a string, or a list of strings", what,
                           Excerpt(value));
  }
  if (array.begin() == array.end()) return InvalidArgument("\"{}\" is an empty list", what);
  if ((*array.begin()).is_number()) return AppendText(value, what, to);
  for (const dom::element element : array) {
    CHAIRLIFT_RETURN_IF_ERROR(AppendText(element, what, to));
  }
  return absl::OkStatus();
}

Status ReadDocuments(dom::element value, std::string_view what, TextInputs* to) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array array, Array(value, what));
  if (array.begin() == array.end()) return InvalidArgument("\"{}\" is an empty list", what);
  for (dom::element element : array) {
    if (element.is_object()) {
      dom::element text;
      if (element["text"].get(text) == 0) element = text;
    }
    if (!element.is_string()) {
      return InvalidArgument("\"{}\" contains {}, which is not a string", what, Excerpt(element));
    }
    CHAIRLIFT_RETURN_IF_ERROR(AppendText(element, what, to));
  }
  return absl::OkStatus();
}

StatusOr<std::string> ReadPromptName(dom::element value, const ServerLimits& limits) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view name, Name(value, "prompt_name", limits));
  if (name.empty() || name.find('\0') != std::string_view::npos) {
    return InvalidArgument("\"prompt_name\" is {}, which cannot be the name of a prompt",
                           Excerpt(value));
  }
  return std::string(name);
}

Status AddPromptName(const std::string& name, TextInputs* to) {
  if (std::find(to->kinds.begin(), to->kinds.end(), TextKind::kIds) != to->kinds.end()) {
    return InvalidArgument(
        "\"prompt_name\" is given with token ids: a prompt can only be put before text");
  }
  for (std::string& text : to->texts) text.insert(0, name + '\0');
  std::fill(to->kinds.begin(), to->kinds.end(), TextKind::kPrompted);
  return absl::OkStatus();
}

Status ReadFields(const dom::object& root, bool parameters, FieldReader read) {
  const auto read_one = [&](std::string_view key, dom::element value) -> Status {
    if (value.is_null()) return absl::OkStatus();  // counts as absent
    const auto* const end = std::end(kChangeNothing);
    if (std::find(std::begin(kChangeNothing), end, key) != end) return absl::OkStatus();
    return read(key, value);
  };
  for (const auto& [key, value] : root) {
    if (!parameters || key != "parameters" || value.is_null()) {
      CHAIRLIFT_RETURN_IF_ERROR(read_one(key, value));
      continue;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object inner, Object(value, key));
    for (const auto& [name, setting] : inner) {
      CHAIRLIFT_RETURN_IF_ERROR(read_one(name, setting));
      dom::element other;
      const bool twice =
          !setting.is_null() && root.at_key(name).get(other) == 0 && !other.is_null();
      if (twice) {
        return InvalidArgument("\"{}\" is given twice: beside \"parameters\" and inside it", name);
      }
    }
  }
  return absl::OkStatus();
}

Status UnknownField(std::string_view field, std::span<const std::string_view> known) {
  for (const OtherField& other : kOtherFields) {
    if (other.field != field) continue;
    return InvalidArgument("\"{}\" is not supported: {}", field, other.instead);
  }
  const std::vector<std::string> names(known.begin(), known.end());
  if (field.size() > kShownField) {
    return InvalidArgument("a field has a name of {} bytes; there are: '{}'", field.size(),
                           fmt::join(names, "', '"));
  }
  return InvalidArgument("there is no field '{}'{}", field, KnownNames(field, names));
}

Tensor TextOptions(const TextInputs& texts, const Truncation& truncation) {
  Tensor options = Tensor::Allocate(DType::kInt64, Shape{texts.rows(), 2});
  auto* to = options.data<int64_t>();
  for (const TextKind kind : texts.kinds) {
    *to++ = truncation.option();
    *to++ = static_cast<int64_t>(kind);
  }
  return options;
}

const Tensor* FindMatrix(const InferResponse& response, std::string_view name) {
  for (const NamedTensor& output : response.outputs) {
    if (output.name == name && output.tensor.shape().rank() == 2) return &output.tensor;
  }
  return nullptr;
}

int64_t CountTokens(const InferResponse& response) {
  const Tensor* const numbers = FindMatrix(response, "num_tokens");
  if (numbers == nullptr || numbers->dtype() != DType::kInt64) return 0;
  const std::span<const int64_t> counts = numbers->values<int64_t>();
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void AppendFloat(float number, std::string* json) {
  std::array<char, kNumberBytes> digits;
  json->append(digits.data(), WriteJsonNumber(number, digits.data()));
}

}  // namespace chairlift::http
