#include "server/http/classify_codec.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"
#include "server/http/text_fields.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

constexpr int64_t kMostScores = int64_t{1} << 20;  // per request
constexpr std::string_view kClassifyFields[] = {
    "model", "inputs", "truncate", "truncation_direction", "top_k", "raw_scores"};

// Texts, each with the second one of its pair or an empty one.
struct Sequences {
  TextInputs texts;
  std::vector<std::string> pairs;
};

Status BadInputs(dom::element value) {
  return InvalidArgument(
      "\"inputs\" has {}; it must be a text, a pair [text, text], or a list of [text] and [text, "
      "text]",
      Excerpt(value));
}

// [text] or [text, text].
Status AppendSequence(dom::array array, dom::element shown, Sequences* to) {
  const size_t size = array.size();
  if (size < 1 || size > 2) return BadInputs(shown);
  for (const dom::element element : array) {
    if (!element.is_string()) return BadInputs(shown);
  }
  CHAIRLIFT_RETURN_IF_ERROR(AppendText(array.at(0).value_unsafe(), "inputs", &to->texts));
  if (size == 1) {
    to->texts.kinds.back() = TextKind::kAlone;
    to->pairs.emplace_back();
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(to->pairs.emplace_back(),
                             ReadText(array.at(1).value_unsafe(), "inputs"));
  return absl::OkStatus();
}

Status ReadSequences(dom::element value, Sequences* to, bool* single) {
  dom::array array;
  if (value.is_string()) {
    *single = true;
    CHAIRLIFT_RETURN_IF_ERROR(AppendText(value, "inputs", &to->texts));
    to->texts.kinds.back() = TextKind::kAlone;
    to->pairs.emplace_back();
    return absl::OkStatus();
  }
  if (value.get_array().get(array) != 0) return BadInputs(value);
  if (array.begin() == array.end()) return InvalidArgument("\"inputs\" is an empty list");
  *single = (*array.begin()).is_string();
  if (*single) return AppendSequence(array, value, to);
  for (const dom::element element : array) {
    dom::array sequence;
    if (element.get_array().get(sequence) != 0) return BadInputs(element);
    CHAIRLIFT_RETURN_IF_ERROR(AppendSequence(sequence, element, to));
  }
  return absl::OkStatus();
}

}  // namespace

Status DecodePredict(const dom::object& root, const protocol::Service& service,
                     const ServerLimits& limits, DecodedTexts* decoded) {
  TextFormat& format = decoded->format;
  Sequences sequences;
  Truncation truncation;
  const auto read = [&](std::string_view key, dom::element value) -> Status {
    if (key == "model") {
      CHAIRLIFT_ASSIGN_OR_RETURN(format.model, Name(value, key, limits));
    } else if (key == "inputs") {
      return ReadSequences(value, &sequences, &format.single);
    } else if (key == "raw_scores") {
      CHAIRLIFT_ASSIGN_OR_RETURN(format.raw_scores, protocol::Boolean(ParameterFrom(value), key));
    } else if (key == "top_k") {
      if (!ConvertInteger(value, &format.top) || format.top < 1) {
        return InvalidArgument("\"top_k\" is {}, not a whole number of 1 or more", Excerpt(value));
      }
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool known, truncation.Read(key, value, limits));
      if (!known) return UnknownField(key, kClassifyFields);
    }
    return absl::OkStatus();
  };
  CHAIRLIFT_RETURN_IF_ERROR(ReadFields(root, true, read));
  InferRequest& request = decoded->request;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.model, FindTextModel(kClassify, "\"logits\" [batch, classes]",
                                                          service, &format.model));
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelMetadata model, service.Find(request.model, ""));
  if (sequences.pairs.empty()) return InvalidArgument("\"inputs\" is missing");
  format.labels = std::move(model.labels);
  const auto classes = static_cast<int64_t>(format.labels.size());
  if (sequences.texts.rows() > kMostScores / std::max<int64_t>(classes, 1)) {
    return InvalidArgument(
        "{} texts have {} scores each, and a request may have {} in all: send fewer texts",
        sequences.texts.rows(), classes, kMostScores);
  }
  const Shape rows{sequences.texts.rows()};
  Tensor options = TextOptions(sequences.texts, truncation);
  request.inputs = {{"text", TextTensor(rows, std::move(sequences.texts.texts))},
                    {"pair", TextTensor(rows, std::move(sequences.pairs))},
                    {"options", std::move(options)}};
  request.outputs = {format.raw_scores ? "logits" : "scores"};
  return absl::OkStatus();
}

Status EncodeClasses(const InferResponse& response, const TextFormat& format, std::string* json) {
  const Tensor* const scores = FindMatrix(response, format.raw_scores ? "logits" : "scores");
  const auto classes = static_cast<int64_t>(format.labels.size());
  if (scores == nullptr || scores->dtype() != DType::kFloat || scores->shape()[1] != classes ||
      (format.single && scores->shape()[0] != 1)) {
    return Internal("the model returned no scores of its {} classes", classes);
  }
  std::vector<size_t> order(format.labels.size());
  if (!format.single) json->push_back('[');
  for (int64_t row = 0; row < scores->shape()[0]; ++row) {
    const float* const own = scores->data<float>() + row * classes;
    if (!std::all_of(own, own + classes, [](float score) { return std::isfinite(score); })) {
      return Internal("a score of text {} is NaN or infinite", row);
    }
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [own](size_t a, size_t b) { return own[a] > own[b]; });
    const size_t shown =
        format.top < 0 ? order.size() : std::min(order.size(), static_cast<size_t>(format.top));
    json->append(row > 0 ? ",[" : "[");
    for (size_t i = 0; i < shown; ++i) {
      json->append(i > 0 ? ",{\"score\":" : "{\"score\":");
      AppendFloat(own[order[i]], json);
      json->append(",\"label\":");
      AppendJsonString(format.labels[order[i]], json);
      json->push_back('}');
    }
    json->push_back(']');
  }
  if (!format.single) json->push_back(']');
  return absl::OkStatus();
}

}  // namespace chairlift::http
