#include "server/http/text_codec.h"

#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/closest.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/classify_codec.h"
#include "server/http/json_array.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"
#include "server/http/text_fields.h"
#include "server/http/tokenize_codec.h"
#include "server/http/vectors_codec.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

std::string_view SuffixOf(Endpoint endpoint) {
  return endpoint == Endpoint::kEmbeddings || endpoint == Endpoint::kEmbed ? kEmbed : kRerank;
}

Status FindModel(Endpoint endpoint, const protocol::Service& service, DecodedTexts* decoded) {
  const std::string_view suffix = SuffixOf(endpoint);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      decoded->request.model,
      FindTextModel(suffix, suffix == kEmbed ? "vectors" : "a score of each pair", service,
                    &decoded->format.model));
  return absl::OkStatus();
}

// A tensor with the same text `count` times, which it owns.
Tensor Repeated(std::string text, size_t count) {
  struct Owned {
    std::string text;
    std::vector<std::string_view> views;
  };
  auto owned = std::make_shared<Owned>();
  owned->text = std::move(text);
  owned->views.assign(count, owned->text);
  std::string_view* const views = owned->views.data();
  return Tensor::Wrap(DType::kBytes, Shape{static_cast<int64_t>(count)}, views, std::move(owned));
}

bool IsOfLengthOne(std::span<const float> vector) {
  constexpr double kRounding = 1e-3;
  double square = 0;
  for (const float x : vector) square += double{x} * x;
  return std::abs(square - 1) < kRounding;
}

// Normalises to length 1; zero vectors are unchanged.
void ScaleToOne(std::span<float> vector) {
  double square = 0;
  for (const float x : vector) square += double{x} * x;
  if (square <= 0) return;
  const auto scale = static_cast<float>(1 / std::sqrt(square));
  for (float& x : vector) x *= scale;
}

Status AppendVector(std::span<const float> vector, bool base64, std::string* json) {
  if (base64) {
    json->push_back('"');
    json->append(absl::Base64Escape(
        {reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)}));
    json->push_back('"');
    return absl::OkStatus();
  }
  json->push_back('[');
  for (size_t i = 0; i < vector.size(); ++i) {
    if (!std::isfinite(vector[i])) {
      return InvalidArgument(
          "the vector of a text has NaN or infinity, which JSON cannot carry; "
          "\"encoding_format\": \"base64\" can");
    }
    if (i > 0) json->push_back(',');
    AppendFloat(vector[i], json);
  }
  json->push_back(']');
  return absl::OkStatus();
}

Status EncodeVectors(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                     std::string* json) {
  const Tensor* vectors = FindMatrix(response, "embedding");
  if (vectors == nullptr) vectors = FindMatrix(response, "pooled");
  if (vectors == nullptr || vectors->dtype() != DType::kFloat) {
    return Internal("the model returned no vectors");
  }
  const auto whole = static_cast<size_t>(vectors->shape()[1]);
  if (format.dimensions > vectors->shape()[1]) {
    return InvalidArgument("\"dimensions\" is {}, and the model's vectors have {}",
                           format.dimensions, whole);
  }
  const bool openai = endpoint == Endpoint::kEmbeddings;
  json->append(openai ? R"({"object":"list","data":[)" : "[");
  const size_t size = format.dimensions > 0 ? static_cast<size_t>(format.dimensions) : whole;
  std::vector<float> vector;
  for (int64_t row = 0; row < vectors->shape()[0]; ++row) {
    const float* const from = vectors->data<float>() + row * vectors->shape()[1];
    // A part of a vector of length 1 is normalised again.
    const bool normalize = format.normalize || (size < whole && IsOfLengthOne({from, whole}));
    vector.assign(from, from + size);
    if (normalize) ScaleToOne(vector);
    if (row > 0) json->push_back(',');
    if (openai) {
      fmt::format_to(std::back_inserter(*json), R"({{"object":"embedding","index":{},"embedding":)",
                     row);
    }
    CHAIRLIFT_RETURN_IF_ERROR(AppendVector(vector, format.base64, json));
    if (openai) json->push_back('}');
  }
  json->push_back(']');
  if (!openai) return absl::OkStatus();
  json->append(",\"model\":");
  AppendJsonString(format.model, json);
  const int64_t tokens = CountTokens(response);
  fmt::format_to(std::back_inserter(*json),
                 R"(,"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", tokens, tokens);
  return absl::OkStatus();
}

Status EncodeScores(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                    std::string* json) {
  const Tensor* const logits = FindMatrix(response, "logits");
  if (logits == nullptr || logits->dtype() != DType::kFloat || logits->shape()[1] != 1) {
    return Internal("the model must return one score for each pair");
  }
  std::vector<std::pair<float, int64_t>> scores;
  for (const float logit : logits->values<float>()) {
    const float score = format.raw_scores ? logit : 1 / (1 + std::exp(-logit));
    if (!std::isfinite(score))
      return Internal("the score of text {} is NaN or infinite", scores.size());
    scores.emplace_back(score, static_cast<int64_t>(scores.size()));
  }
  std::stable_sort(scores.begin(), scores.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (format.top >= 0 && static_cast<size_t>(format.top) < scores.size()) {
    scores.resize(static_cast<size_t>(format.top));
  }
  const bool tei = endpoint == Endpoint::kRerank;
  if (!tei) {
    json->append("{\"model\":");
    AppendJsonString(format.model, json);
    json->append(",\"results\":");
  }
  json->push_back('[');
  for (size_t i = 0; i < scores.size(); ++i) {
    const auto& [score, index] = scores[i];
    if (i > 0) json->push_back(',');
    fmt::format_to(std::back_inserter(*json), R"({{"index":{},"{}":)", index,
                   tei ? "score" : "relevance_score");
    AppendFloat(score, json);
    if (!format.texts.empty()) {
      json->append(tei ? ",\"text\":" : ",\"document\":{\"text\":");
      AppendJsonString(format.texts[static_cast<size_t>(index)], json);
      if (!tei) json->push_back('}');
    }
    json->push_back('}');
  }
  json->push_back(']');
  if (!tei) {
    fmt::format_to(std::back_inserter(*json), R"(,"usage":{{"total_tokens":{}}}}})",
                   CountTokens(response));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> TextModels(std::string_view suffix, const protocol::Service& service) {
  std::vector<std::string> names;
  for (const ModelIndexEntry& entry : service.engine().Index()) {
    if (entry.state != ModelState::kReady || !entry.name.ends_with(suffix)) continue;
    names.push_back(entry.name.substr(0, entry.name.size() - suffix.size()));
  }
  return names;
}

StatusOr<std::string> FindTextModel(std::string_view suffix, std::string_view outputs,
                                    const protocol::Service& service, std::string* name) {
  // What "no model 'm/embed' is loaded: it gives …" says of `m`: a client does not know the part.
  const auto why = [](const Status& found) {
    constexpr std::string_view kPart = " is loaded: ";
    const std::string message = Message(found);
    const size_t at = message.find(kPart);
    return at == std::string::npos ? message : message.substr(at + kPart.size());
  };
  if (name->empty()) {
    const std::vector<std::string> names = TextModels(suffix, service);
    if (names.empty()) {
      const std::vector<ModelIndexEntry> models = service.Index(/*ready_only=*/true);
      std::string only;
      if (models.size() == 1) {
        const std::string part = models[0].name + std::string(suffix);
        only = fmt::format("; model '{}' does not take this request: {}", models[0].name,
                           why(service.engine().Metadata(part).status()));
      }
      return service.Explain(
          NotFound("no model for this is served: it takes a model.onnx with a tokenizer.json "
                   "beside it, whose outputs are {}{}",
                   outputs, only));
    }
    if (names.size() > 1) {
      return InvalidArgument("\"model\" is missing; name one of: {}", fmt::join(names, ", "));
    }
    *name = names[0];
  }
  std::string served = *name + std::string(suffix);
  const Status found = service.engine().Metadata(served).status();
  if (found.ok()) return served;
  if (!absl::IsNotFound(found)) return found;
  const Status own = service.engine().Metadata(*name).status();
  if (absl::IsUnavailable(own)) return own;
  if (own.ok()) {
    const std::vector<std::string> names = TextModels(suffix, service);
    return InvalidArgument("model '{}' does not take this request: {}{}{}", *name, why(found),
                           names.empty() ? "" : "; models that do: ", fmt::join(names, ", "));
  }
  const std::vector<std::string> names = TextModels(suffix, service);
  return service.Explain(
      NotFound("the model '{}' does not exist{}", *name, KnownNames(*name, names)));
}

bool InfersTexts(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kEmbeddings:
    case Endpoint::kEmbed:
    case Endpoint::kEmbedAll:
    case Endpoint::kEmbedSparse:
    case Endpoint::kSimilarity:
    case Endpoint::kRerank:
    case Endpoint::kRerankDocuments:
    case Endpoint::kPredict:
    case Endpoint::kTokenize:
    case Endpoint::kDecode:
    case Endpoint::kByModel:
      return true;
    default:
      return false;
  }
}

bool IsOfTexts(Endpoint endpoint) {
  return InfersTexts(endpoint) || endpoint == Endpoint::kCompletions ||
         endpoint == Endpoint::kChatCompletions || endpoint == Endpoint::kTextModels ||
         endpoint == Endpoint::kTextModel || endpoint == Endpoint::kTextInfo;
}

struct TextDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  // The fields of a request.
  struct Fields {
    TextInputs texts;
    std::string_view texts_key = {};
    std::optional<std::string> query;
    std::optional<bool> normalize;
    Truncation truncation;
    std::string prompt_name;  // empty: the model's default
    bool return_texts = false;
  };

  StatusOr<std::string_view> ReadWord(dom::element value, std::string_view key) const {
    return Name(value, key, limits);
  }

  // A cross-encoder's documents: "texts" in text-embeddings-inference, "documents" in Cohere's and
  // Jina's APIs, whose answers have another form.
  static Status ReadPassages(std::string_view key, dom::element value, Fields* fields,
                             Endpoint* endpoint) {
    if (!fields->texts_key.empty()) {
      return InvalidArgument("\"texts\" and \"documents\" are both given; leave one out");
    }
    fields->texts_key = key;
    if (key == "documents") *endpoint = Endpoint::kRerankDocuments;
    return ReadDocuments(value, key, &fields->texts);
  }

  Status ReadField(std::string_view key, dom::element value, Fields* fields,
                   DecodedTexts* decoded) const {
    const Endpoint endpoint = decoded->endpoint;
    TextFormat* const format = &decoded->format;
    const bool openai = endpoint == Endpoint::kEmbeddings;
    const bool vectors = SuffixOf(endpoint) == kEmbed;
    const auto flag = [&](bool* to) -> Status {
      CHAIRLIFT_ASSIGN_OR_RETURN(*to, protocol::Boolean(ParameterFrom(value), key));
      return absl::OkStatus();
    };
    if (key == "model") {
      CHAIRLIFT_ASSIGN_OR_RETURN(format->model, ReadWord(value, key));
    } else if (key == (openai ? "input" : "inputs") && vectors) {
      return ReadTexts(value, key, &fields->texts);
    } else if ((key == "documents" || key == "texts") && !vectors) {
      return ReadPassages(key, value, fields, &decoded->endpoint);
    } else if (key == "query" && !vectors) {
      CHAIRLIFT_ASSIGN_OR_RETURN(fields->query, ReadText(value, key));
    } else if (key == "encoding_format" && openai) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view encoding, ReadWord(value, key));
      if (encoding != "float" && encoding != "base64") {
        return InvalidArgument("\"encoding_format\" is \"{}\"; it must be float or base64",
                               encoding);
      }
      format->base64 = encoding == "base64";
    } else if (key == "dimensions" && vectors) {
      if (!ConvertInteger(value, &format->dimensions) || format->dimensions < 1) {
        return InvalidArgument("\"dimensions\" is {}, not a whole number of 1 or more",
                               Excerpt(value));
      }
    } else if (key == "prompt_name" && vectors) {
      CHAIRLIFT_ASSIGN_OR_RETURN(fields->prompt_name, ReadPromptName(value, limits));
    } else if (key == "normalize" && vectors) {
      bool normalize = false;
      CHAIRLIFT_RETURN_IF_ERROR(flag(&normalize));
      fields->normalize = normalize;
    } else if (key == "raw_scores" && !vectors) {
      return flag(&format->raw_scores);
    } else if ((key == "return_documents" || key == "return_text") && !vectors) {
      return flag(&fields->return_texts);
    } else if (key == "top_n" && !vectors) {
      if (!ConvertInteger(value, &format->top) || format->top < 1) {
        return InvalidArgument("\"top_n\" is {}, not a whole number of 1 or more", Excerpt(value));
      }
    } else {
      CHAIRLIFT_ASSIGN_OR_RETURN(const bool known, fields->truncation.Read(key, value, limits));
      if (!known) return UnknownField(key, FieldsOf(endpoint));
    }
    return absl::OkStatus();
  }

  static std::span<const std::string_view> FieldsOf(Endpoint endpoint) {
    static constexpr std::string_view kOfEmbeddings[] = {
        "model",       "input",     "encoding_format", "dimensions",
        "prompt_name", "normalize", "truncate",        "truncation_direction"};
    static constexpr std::string_view kOfEmbed[] = {
        "model",     "inputs",   "dimensions",          "prompt_name",
        "normalize", "truncate", "truncation_direction"};
    static constexpr std::string_view kOfRerank[] = {"model",
                                                     "query",
                                                     "texts",
                                                     "documents",
                                                     "raw_scores",
                                                     "return_text",
                                                     "return_documents",
                                                     "top_n",
                                                     "truncate",
                                                     "truncation_direction"};
    if (endpoint == Endpoint::kEmbeddings) return kOfEmbeddings;
    if (endpoint == Endpoint::kEmbed) return kOfEmbed;
    return kOfRerank;
  }

  // What a request to "/" means: pairs are scored, sentences compared. Otherwise vectors are
  // computed or, if only a classification model exists, texts classified.
  static StatusOr<Endpoint> EndpointOf(const dom::object& root, const protocol::Service& service) {
    std::string model;
    bool vectors = true;
    for (const auto& [key, value] : root) {
      std::string_view name;
      if (key == "query") return Endpoint::kRerank;
      if (key == "inputs" && value.is_object()) return Endpoint::kSimilarity;
      if (key == "model" && value.get_string().get(name) == 0) model = name;
    }
    if (!model.empty()) {
      vectors = !service.engine().Metadata(model + std::string(kClassify)).ok();
    } else {
      vectors = !TextModels(kEmbed, service).empty() || TextModels(kClassify, service).empty();
    }
    return vectors ? Endpoint::kEmbed : Endpoint::kPredict;
  }

  Status Decode(std::string_view body, const protocol::Service& service, DecodedTexts* decoded) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root, parser.Parse(body, limits));
    if (decoded->endpoint == Endpoint::kByModel) {
      CHAIRLIFT_ASSIGN_OR_RETURN(decoded->endpoint, EndpointOf(root, service));
    }
    switch (decoded->endpoint) {
      case Endpoint::kEmbedAll:
      case Endpoint::kSimilarity:
        return DecodeVectors(root, service, limits, decoded);
      case Endpoint::kPredict:
        return DecodePredict(root, service, limits, decoded);
      case Endpoint::kTokenize:
      case Endpoint::kDecode:
        return DecodeTokenize(root, service, limits, decoded);
      case Endpoint::kEmbedSparse:
        return Unimplemented(
            "sparse vectors (SPLADE) are not supported; /embed gives dense ones of a model that "
            "has them");
      default:
        return DecodeTexts(root, service, decoded);
    }
  }

  Status DecodeTexts(const dom::object& root, const protocol::Service& service,
                     DecodedTexts* decoded) const {
    Fields fields;
    TextFormat& format = decoded->format;
    const bool openai = decoded->endpoint == Endpoint::kEmbeddings;
    CHAIRLIFT_RETURN_IF_ERROR(
        ReadFields(root, !openai, [&](std::string_view key, dom::element value) {
          return ReadField(key, value, &fields, decoded);
        }));
    const Endpoint endpoint = decoded->endpoint;
    CHAIRLIFT_RETURN_IF_ERROR(FindModel(endpoint, service, decoded));
    const bool vectors = SuffixOf(endpoint) == kEmbed;
    const size_t count = fields.texts.texts.size();
    if (count == 0) {
      return InvalidArgument("\"{}\" is missing", openai                          ? "input"
                                                  : endpoint == Endpoint::kEmbed  ? "inputs"
                                                  : endpoint == Endpoint::kRerank ? "texts"
                                                                                  : "documents");
    }
    if (!vectors && !fields.query) return InvalidArgument("\"query\" is missing");
    if (fields.return_texts) format.texts = fields.texts.texts;

    if (!fields.prompt_name.empty()) {
      CHAIRLIFT_RETURN_IF_ERROR(AddPromptName(fields.prompt_name, &fields.texts));
    }
    Tensor options = TextOptions(fields.texts, fields.truncation);
    const Shape rows{fields.texts.rows()};
    Tensor texts = TextTensor(rows, std::move(fields.texts.texts));
    InferRequest& request = decoded->request;
    if (vectors) {
      request.inputs = {{"text", std::move(texts)}, {"options", std::move(options)}};
      // If it is set in the request, the pipeline's files do not count.
      request.outputs = {fields.normalize ? "pooled" : "embedding"};
      format.normalize = fields.normalize.value_or(false);
    } else {
      request.inputs = {{"text", Repeated(*std::move(fields.query), count)},
                        {"pair", std::move(texts)},
                        {"options", std::move(options)}};
      request.outputs = {"logits"};
    }
    request.outputs.emplace_back("num_tokens");
    return absl::OkStatus();
  }

  const ServerLimits limits;
  JsonParser parser;
};

TextDecoder::TextDecoder(const ServerLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
TextDecoder::~TextDecoder() = default;

StatusOr<DecodedTexts> TextDecoder::Decode(Endpoint endpoint, std::string_view body,
                                           const protocol::Service& service) {
  DecodedTexts decoded;
  decoded.endpoint = endpoint;
  const Status read = impl_->Decode(body, service, &decoded);
  impl_->parser.Trim();
  if (!read.ok()) return read;
  return decoded;
}

int64_t TextElements(const InferResponse& response, const TextFormat& format) {
  int64_t elements = 0;
  for (const NamedTensor& output : response.outputs) elements += output.tensor.size();
  return format.base64 ? elements / 8 : elements;
}

Status EncodeTexts(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                   std::string* json) {
  switch (endpoint) {
    case Endpoint::kEmbedAll:
      return EncodeTokenVectors(response, json);
    case Endpoint::kSimilarity:
      return EncodeSimilarity(response, json);
    case Endpoint::kPredict:
      return EncodeClasses(response, format, json);
    case Endpoint::kTokenize:
    case Endpoint::kDecode:
      return EncodeTokens(endpoint, response, json);
    default:
      return SuffixOf(endpoint) == kEmbed ? EncodeVectors(endpoint, response, format, json)
                                          : EncodeScores(endpoint, response, format, json);
  }
}

std::string TextError(Endpoint endpoint, int* status, std::string_view message) {
  std::string json;
  const bool tei = InfersTexts(endpoint) && endpoint != Endpoint::kEmbeddings &&
                   endpoint != Endpoint::kRerankDocuments;
  if (tei) {
    // The error kinds and codes of text-embeddings-inference.
    std::string_view kind = "Backend";
    if (*status == 503) {
      kind = "Unhealthy";
    } else if (*status == 429) {
      kind = "Overloaded";
    } else if (*status >= 400 && *status < 500) {
      kind = "Validation";
      if (*status == 400) *status = 422;
    } else {
      *status = 424;
    }
    json = "{\"error\":";
    AppendJsonString(message, &json);
    fmt::format_to(std::back_inserter(json), R"(,"error_type":"{}"}})", kind);
    return json;
  }
  json = "{\"error\":{\"message\":";
  AppendJsonString(message, &json);
  fmt::format_to(std::back_inserter(json), R"(,"type":"{}","param":null,"code":{}}}}})",
                 *status == 429  ? "rate_limit_error"
                 : *status < 500 ? "invalid_request_error"
                                 : "server_error",
                 *status == 404 && endpoint != Endpoint::kNone ? "\"model_not_found\"" : "null");
  return json;
}

}  // namespace chairlift::http
