#include "server/http/vectors_codec.h"

#include <cmath>
#include <span>
#include <utility>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/request_json.h"
#include "server/http/text_fields.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

constexpr const char* kTokenVectors = "token_embeddings";
constexpr std::string_view kVectorsFields[] = {"model", "inputs", "prompt_name", "truncate",
                                               "truncation_direction"};
constexpr std::string_view kOfInputs[] = {"source_sentence", "sentences"};

// The source first.
Status ReadSentences(dom::element value, TextInputs* to) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object inputs, Object(value, "inputs"));
  std::optional<dom::element> source, sentences;
  for (const auto& [key, field] : inputs) {
    if (key == "source_sentence") {
      source = field;
    } else if (key == "sentences") {
      sentences = field;
    } else {
      return UnknownField(key, kOfInputs);
    }
  }
  if (!source) return InvalidArgument("\"source_sentence\" is missing in \"inputs\"");
  if (!sentences) return InvalidArgument("\"sentences\" is missing in \"inputs\"");
  CHAIRLIFT_RETURN_IF_ERROR(ReadText(*source, "source_sentence").status());
  CHAIRLIFT_RETURN_IF_ERROR(AppendText(*source, "source_sentence", to));
  return ReadDocuments(*sentences, "sentences", to);
}

Status NotFinite(int64_t text) {
  return InvalidArgument("a vector of text {} has NaN or infinity, which JSON cannot carry", text);
}

// 0 if one of them is all zeros.
double Cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, a_square = 0, b_square = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    a_square += double{a[i]} * a[i];
    b_square += double{b[i]} * b[i];
  }
  const double size = std::sqrt(a_square) * std::sqrt(b_square);
  return size == 0 ? 0 : product / size;
}

}  // namespace

Status DecodeVectors(const dom::object& root, const protocol::Service& service,
                     const ServerLimits& limits, DecodedTexts* decoded) {
  const bool similarity = decoded->endpoint == Endpoint::kSimilarity;
  TextInputs texts;
  Truncation truncation;
  std::string prompt_name;  // empty: the model's default
  const auto read = [&](std::string_view key, dom::element value) -> Status {
    if (key == "model") {
      CHAIRLIFT_ASSIGN_OR_RETURN(decoded->format.model, Name(value, key, limits));
      return absl::OkStatus();
    }
    if (key == "inputs") {
      return similarity ? ReadSentences(value, &texts) : ReadTexts(value, key, &texts);
    }
    if (key == "prompt_name") {
      CHAIRLIFT_ASSIGN_OR_RETURN(prompt_name, ReadPromptName(value, limits));
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const bool known, truncation.Read(key, value, limits));
    return known ? absl::OkStatus() : UnknownField(key, kVectorsFields);
  };
  CHAIRLIFT_RETURN_IF_ERROR(ReadFields(root, true, read));
  InferRequest& request = decoded->request;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.model,
                             FindTextModel(kEmbed, "vectors", service, &decoded->format.model));
  if (texts.texts.empty()) return InvalidArgument("\"inputs\" is missing");
  if (!similarity) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model, service.Find(request.model, ""));
    const bool has = std::any_of(model.outputs.begin(), model.outputs.end(),
                                 [](const TensorSpec& own) { return own.name == kTokenVectors; });
    if (!has) {
      return InvalidArgument(
          "model '{}' gives a vector for each text, and none for each token; /embed has it",
          decoded->format.model);
    }
  }
  if (!prompt_name.empty()) CHAIRLIFT_RETURN_IF_ERROR(AddPromptName(prompt_name, &texts));
  Tensor options = TextOptions(texts, truncation);
  const Shape rows{texts.rows()};
  request.inputs = {{"text", TextTensor(rows, std::move(texts.texts))},
                    {"options", std::move(options)}};
  request.outputs = {similarity ? "pooled" : kTokenVectors, "num_tokens"};
  return absl::OkStatus();
}

Status EncodeSimilarity(const InferResponse& response, std::string* json) {
  const Tensor* const vectors = FindMatrix(response, "pooled");
  if (vectors == nullptr || vectors->dtype() != DType::kFloat || vectors->shape()[0] < 1) {
    return Internal("the model returned no vectors");
  }
  const auto size = static_cast<size_t>(vectors->shape()[1]);
  const std::span<const float> all = vectors->values<float>();
  json->push_back('[');
  for (int64_t row = 1; row < vectors->shape()[0]; ++row) {
    const double cosine =
        Cosine(all.first(size), all.subspan(static_cast<size_t>(row) * size, size));
    if (!std::isfinite(cosine)) return NotFinite(row - 1);
    if (row > 1) json->push_back(',');
    AppendFloat(static_cast<float>(cosine), json);
  }
  json->push_back(']');
  return absl::OkStatus();
}

Status EncodeTokenVectors(const InferResponse& response, std::string* json) {
  const Tensor* const vectors = FindMatrix(response, kTokenVectors);
  const Tensor* const counts = FindMatrix(response, "num_tokens");
  if (vectors == nullptr || vectors->dtype() != DType::kFloat || counts == nullptr ||
      counts->dtype() != DType::kInt64 || CountTokens(response) != vectors->shape()[0]) {
    return Internal("the model returned no vectors of single tokens");
  }
  const auto size = static_cast<size_t>(vectors->shape()[1]);
  const float* next = vectors->data<float>();
  json->push_back('[');
  for (int64_t row = 0; row < counts->shape()[0]; ++row) {
    json->append(row > 0 ? ",[" : "[");
    const int64_t tokens = counts->values<int64_t>()[static_cast<size_t>(row)];
    for (int64_t token = 0; token < tokens; ++token) {
      json->append(token > 0 ? ",[" : "[");
      for (size_t i = 0; i < size; ++i, ++next) {
        if (!std::isfinite(*next)) return NotFinite(row);
        if (i > 0) json->push_back(',');
        AppendFloat(*next, json);
      }
      json->push_back(']');
    }
    json->push_back(']');
  }
  json->push_back(']');
  return absl::OkStatus();
}

}  // namespace chairlift::http
