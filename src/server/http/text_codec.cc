#include "server/http/text_codec.h"

#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMostTexts = 2048;  // of a request, as OpenAI's service has it
// Fields of requests that change nothing of the answer; others that are not known are refused.
constexpr std::string_view kWithoutEffect[] = {"user", "metadata", "request_id", "id", "priority"};

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

// The texts of a request on their way: each a text, or token ids, four bytes each.
struct Texts {
  std::vector<std::string> texts;
  std::vector<bool> ids;
};

StatusOr<std::string> IdsOf(dom::array array, std::string_view what) {
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

Status Append(dom::element value, std::string_view what, Texts* to) {
  if (to->texts.size() == kMostTexts) {
    return InvalidArgument("\"{}\" has more than {} texts, which a request may have at most", what,
                           kMostTexts);
  }
  std::string_view text;
  dom::array array;
  if (value.get_string().get(text) == 0) {
    to->texts.emplace_back(text);
    to->ids.push_back(false);
    return absl::OkStatus();
  }
  if (value.get_array().get(array) != 0) {
    return InvalidArgument("\"{}\" has {} in it, which is not a text or a list of token ids", what,
                           Excerpt(value));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(to->texts.emplace_back(), IdsOf(array, what));
  to->ids.push_back(true);
  return absl::OkStatus();
}

// A text, a list of texts, a list of token ids, or a list of such.
Status ReadTexts(dom::element value, std::string_view what, Texts* to) {
  dom::array array;
  if (value.is_string()) return Append(value, what, to);
  if (value.get_array().get(array) != 0) {
    return InvalidArgument("\"{}\" is {}; it must be a text, or a list", what, Excerpt(value));
  }
  if (array.begin() == array.end()) return InvalidArgument("\"{}\" is an empty list", what);
  if ((*array.begin()).is_number()) return Append(value, what, to);
  for (const dom::element element : array) CHAIRLIFT_RETURN_IF_ERROR(Append(element, what, to));
  return absl::OkStatus();
}

// Texts alone; an object's "text" stands for it.
Status ReadDocuments(dom::element value, std::string_view what, Texts* to) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::array array, Array(value, what));
  if (array.begin() == array.end()) return InvalidArgument("\"{}\" is an empty list", what);
  for (dom::element element : array) {
    if (element.is_object()) {
      dom::element text;
      if (element["text"].get(text) == 0) element = text;
    }
    if (!element.is_string()) {
      return InvalidArgument("\"{}\" has {} in it, which is not a text", what, Excerpt(element));
    }
    CHAIRLIFT_RETURN_IF_ERROR(Append(element, what, to));
  }
  return absl::OkStatus();
}

// `count` times the same text, as a tensor of its own memory.
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

const Tensor* FindOutput(const InferResponse& response, std::string_view name, int64_t rows) {
  for (const NamedTensor& output : response.outputs) {
    const Shape& shape = output.tensor.shape();
    if (output.name == name && shape.rank() == 2 && (rows < 0 || shape[0] == rows)) {
      return &output.tensor;
    }
  }
  return nullptr;
}

int64_t TokensOf(const InferResponse& response) {
  const Tensor* const numbers = FindOutput(response, "num_tokens", -1);
  if (numbers == nullptr || numbers->dtype() != DType::kInt64) return 0;
  const std::span<const int64_t> counts = numbers->values<int64_t>();
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

bool IsOfLengthOne(std::span<const float> vector) {
  constexpr double kRounding = 1e-3;
  double square = 0;
  for (const float x : vector) square += double{x} * x;
  return std::abs(square - 1) < kRounding;
}

// To length 1; a vector of zeros stays.
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
    std::array<char, kNumberBytes> number;
    if (i > 0) json->push_back(',');
    json->append(number.data(), WriteJsonNumber(vector[i], number.data()));
  }
  json->push_back(']');
  return absl::OkStatus();
}

Status EncodeVectors(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                     std::string* json) {
  const Tensor* vectors = FindOutput(response, "embedding", -1);
  if (vectors == nullptr) vectors = FindOutput(response, "pooled", -1);
  if (vectors == nullptr || vectors->dtype() != DType::kFloat) {
    return Internal("the model gave no vectors");
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
    // A part of a vector of length 1 has length 1 again.
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
  const int64_t tokens = TokensOf(response);
  fmt::format_to(std::back_inserter(*json),
                 R"(,"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})", tokens, tokens);
  return absl::OkStatus();
}

Status EncodeScores(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                    std::string* json) {
  const Tensor* const logits = FindOutput(response, "logits", -1);
  if (logits == nullptr || logits->dtype() != DType::kFloat || logits->shape()[1] != 1) {
    return Internal("the model gave no score of each pair");
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
    std::array<char, kNumberBytes> number;
    if (i > 0) json->push_back(',');
    fmt::format_to(std::back_inserter(*json), R"({{"index":{},"{}":)", index,
                   tei ? "score" : "relevance_score");
    json->append(number.data(), WriteJsonNumber(score, number.data()));
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
                   TokensOf(response));
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
  if (name->empty()) {
    const std::vector<std::string> names = TextModels(suffix, service);
    if (names.empty()) {
      return service.Explain(
          NotFound("no model for this is served: it takes a model.onnx with a tokenizer.json "
                   "beside it, whose outputs are {}",
                   outputs));
    }
    if (names.size() > 1) {
      return InvalidArgument("\"model\" is missing, and there are several: {}",
                             fmt::join(names, ", "));
    }
    *name = names[0];
  }
  std::string served = *name + std::string(suffix);
  const Status found = service.engine().Metadata(served).status();
  if (found.ok()) return served;
  if (!absl::IsNotFound(found)) return found;
  if (service.engine().Metadata(*name).ok()) {
    return InvalidArgument("model '{}' does not do this: {}", *name, Message(found));
  }
  const std::vector<std::string> names = TextModels(suffix, service);
  return service.Explain(NotFound("the model '{}' does not exist{}{}", *name,
                                  names.empty() ? "" : "; there are: ", fmt::join(names, ", ")));
}

bool IsOfTexts(Endpoint endpoint) {
  return endpoint == Endpoint::kEmbeddings || endpoint == Endpoint::kCompletions ||
         endpoint == Endpoint::kChatCompletions || endpoint == Endpoint::kEmbed ||
         endpoint == Endpoint::kRerank || endpoint == Endpoint::kRerankDocuments ||
         endpoint == Endpoint::kTextModels;
}

struct TextDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  // What a request says, field by field.
  struct Fields {
    Texts texts;
    std::string query;
    bool has_query = false;
    std::optional<bool> normalize;
    bool truncate = false;
    // Which tokens go, as _tokenizer.py takes it: the last, the first, or those that its files say.
    int64_t truncation = 3;
    std::string prompt_name;  // empty: the model's default
    bool return_texts = false;
  };

  StatusOr<std::string_view> ReadWord(dom::element value, std::string_view key) const {
    return Name(value, key, limits);
  }

  Status ReadField(Endpoint endpoint, std::string_view key, dom::element value, Fields* fields,
                   TextFormat* format) const {
    const bool openai = endpoint == Endpoint::kEmbeddings;
    const bool vectors = SuffixOf(endpoint) == kEmbed;
    const bool documents = endpoint == Endpoint::kRerankDocuments;
    const auto flag = [&](bool* to) -> Status {
      CHAIRLIFT_ASSIGN_OR_RETURN(*to, protocol::Boolean(ParameterFrom(value), key));
      return absl::OkStatus();
    };
    if (key == "model") {
      CHAIRLIFT_ASSIGN_OR_RETURN(format->model, ReadWord(value, key));
    } else if (key == (openai ? "input" : "inputs") && vectors) {
      return ReadTexts(value, key, &fields->texts);
    } else if (key == (documents ? "documents" : "texts") && !vectors) {
      return ReadDocuments(value, key, &fields->texts);
    } else if (key == "query" && !vectors) {
      std::string_view query;
      if (value.get_string().get(query) != 0) {
        return InvalidArgument("\"query\" is {}, not a text", Excerpt(value));
      }
      fields->query = query;
      fields->has_query = true;
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
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view name, ReadWord(value, key));
      if (name.empty() || name.find('\0') != std::string_view::npos) {
        return InvalidArgument("\"prompt_name\" is {}, which cannot be the name of a prompt",
                               Excerpt(value));
      }
      fields->prompt_name = name;
    } else if (key == "normalize" && vectors) {
      bool normalize = false;
      CHAIRLIFT_RETURN_IF_ERROR(flag(&normalize));
      fields->normalize = normalize;
    } else if (key == "truncate") {
      return flag(&fields->truncate);
    } else if (key == "truncation_direction") {
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::string_view side, ReadWord(value, key));
      fields->truncation = side == "left" || side == "Left" ? 2 : 1;
      if (fields->truncation == 1 && side != "right" && side != "Right") {
        return InvalidArgument("\"truncation_direction\" is \"{}\"; it must be left or right",
                               side);
      }
    } else if (key == "raw_scores" && !vectors) {
      return flag(&format->raw_scores);
    } else if (key == (documents ? "return_documents" : "return_text") && !vectors) {
      return flag(&fields->return_texts);
    } else if (key == "top_n" && documents) {
      if (!ConvertInteger(value, &format->top) || format->top < 1) {
        return InvalidArgument("\"top_n\" is {}, not a whole number of 1 or more", Excerpt(value));
      }
    } else if (std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), key) ==
               std::end(kWithoutEffect)) {
      constexpr size_t kMostShown = 64;
      return InvalidArgument(
          "{} is not supported here, and might change the answer: leave it out",
          key.size() > kMostShown ? std::string("a field") : fmt::format("\"{}\"", key));
    }
    return absl::OkStatus();
  }

  // Has the texts name their prompt.
  static Status AddPromptName(const std::string& name, Texts* texts) {
    if (std::find(texts->ids.begin(), texts->ids.end(), true) != texts->ids.end()) {
      return InvalidArgument(
          "\"prompt_name\" is given with token ids: a prompt is put before texts only");
    }
    for (std::string& text : texts->texts) text.insert(0, name + '\0');
    return absl::OkStatus();
  }

  Status Decode(Endpoint endpoint, std::string_view body, const protocol::Service& service,
                DecodedTexts* decoded) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root, parser.Parse(body, limits));
    Fields fields;
    TextFormat& format = decoded->format;
    for (const auto& [key, value] : root) {
      if (value.is_null()) continue;  // as if it were absent
      CHAIRLIFT_RETURN_IF_ERROR(ReadField(endpoint, key, value, &fields, &format));
    }
    CHAIRLIFT_RETURN_IF_ERROR(FindModel(endpoint, service, decoded));
    const bool vectors = SuffixOf(endpoint) == kEmbed;
    const size_t count = fields.texts.texts.size();
    if (count == 0) {
      return InvalidArgument("\"{}\" is missing", endpoint == Endpoint::kEmbeddings ? "input"
                                                  : endpoint == Endpoint::kEmbed    ? "inputs"
                                                  : endpoint == Endpoint::kRerank   ? "texts"
                                                                                    : "documents");
    }
    if (!vectors && !fields.has_query) return InvalidArgument("\"query\" is missing");
    if (fields.return_texts) format.texts = fields.texts.texts;

    const auto rows = static_cast<int64_t>(count);
    const bool prompted = !fields.prompt_name.empty();
    if (prompted) CHAIRLIFT_RETURN_IF_ERROR(AddPromptName(fields.prompt_name, &fields.texts));
    Tensor options = Tensor::Allocate(DType::kInt64, Shape{rows, 2});
    for (size_t i = 0; i < count; ++i) {
      options.data<int64_t>()[2 * i] = fields.truncate ? fields.truncation : 0;
      options.data<int64_t>()[2 * i + 1] = prompted ? 3 : fields.texts.ids[i] ? 1 : 0;
    }
    Tensor texts = TextTensor(Shape{rows}, std::move(fields.texts.texts));
    InferRequest& request = decoded->request;
    if (vectors) {
      request.inputs = {{"text", std::move(texts)}, {"options", std::move(options)}};
      // Where it is said: what the pipeline's files say of it does not count.
      request.outputs = {fields.normalize ? "pooled" : "embedding"};
      format.normalize = fields.normalize.value_or(false);
    } else {
      request.inputs = {{"text", Repeated(std::move(fields.query), count)},
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
  const Status read = impl_->Decode(endpoint, body, service, &decoded);
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
  return SuffixOf(endpoint) == kEmbed ? EncodeVectors(endpoint, response, format, json)
                                      : EncodeScores(endpoint, response, format, json);
}

std::string TextError(Endpoint endpoint, int* status, std::string_view message) {
  std::string json;
  if (endpoint == Endpoint::kEmbed || endpoint == Endpoint::kRerank) {
    // As text-embeddings-inference: its kinds, and their codes.
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
                 *status == 404 ? "\"model_not_found\"" : "null");
  return json;
}

std::string ListTextModels(const protocol::Service& service) {
  std::string json = R"({"object":"list","data":[)";
  std::vector<std::string> names = TextModels(kEmbed, service);
  for (const std::string_view suffix : {kRerank, kComplete}) {
    for (std::string& name : TextModels(suffix, service)) names.push_back(std::move(name));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) json.push_back(',');
    json.append("{\"id\":");
    AppendJsonString(names[i], &json);
    json.append(R"(,"object":"model","created":0,"owned_by":"chairlift"})");
  }
  json.append("]}");
  return json;
}

}  // namespace chairlift::http
