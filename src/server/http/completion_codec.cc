#include "server/http/completion_codec.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_value.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"
#include "server/http/text_codec.h"
#include "server/http/text_fields.h"
#include "server/http/token_logprobs.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// Inputs of the model that are not fields of the request.
constexpr std::string_view kNotFields[] = {"text_input", "options", "exclude_input_in_output",
                                           "stream", "logit_bias_tokens"};

constexpr size_t kMostPrompts = 1024;
constexpr size_t kMostBiases = 1024;
constexpr size_t kShownKey = 16;  // bytes of a key in an error

// Fields of OpenAI's API, and of similar servers, that affect no answer.
constexpr std::string_view kNeutral[] = {"metadata",
                                         "parallel_tool_calls",
                                         "priority",
                                         "prompt_cache_key",
                                         "request_id",
                                         "prompt_cache_retention",
                                         "safety_identifier",
                                         "service_tier",
                                         "store",
                                         "user"};

// Fields that are read elsewhere instead of as inputs of the model.
constexpr std::string_view kOwn[] = {
    "model",   "stream",     "stream_options", "prompt",
    "best_of", "logit_bias", "suffix",         "num_return_sequences"};
constexpr std::string_view kOwnOfChats[] = {
    "model",        "stream",          "stream_options", "messages",   "best_of",
    "logit_bias",   "suffix",          "logprobs",       "tools",      "num_return_sequences",
    "functions",    "tool_choice",     "function_call",  "modalities", "max_completion_tokens",
    "top_logprobs", "response_format", "audio",          "prediction"};

// Those among them that must be left out, or may only have the value that changes nothing.
constexpr std::string_view kRefused[] = {"suffix",        "best_of",   "num_return_sequences",
                                         "tools",         "functions", "tool_choice",
                                         "function_call", "audio",     "prediction"};

// Fields of other servers that select how an answer is made, with the only supported value.
struct Fixed {
  std::string_view field;
  bool value;
};
constexpr Fixed kFixed[] = {{"skip_special_tokens", true},
                            {"spaces_between_special_tokens", true},
                            {"include_stop_str_in_output", false},
                            {"return_tokens_as_token_ids", false},
                            {"use_beam_search", false},
                            {"continue_final_message", false},
                            {"add_generation_prompt", true}};

bool IsIn(std::span<const std::string_view> fields, std::string_view key) {
  return std::find(fields.begin(), fields.end(), key) != fields.end();
}

// OpenAI's fields that would change the answer. Null counts as absent.
Status CheckNotBuilt(std::string_view key, dom::element value, int64_t answers) {
  std::string_view text;
  int64_t number = 0;
  if (key == "suffix" && (value.get_string().get(text) != 0 || !text.empty())) {
    return InvalidArgument("\"suffix\" is not supported: leave it out");
  }
  if (key == "best_of" && (!ConvertInteger(value, &number) || number != answers)) {
    return InvalidArgument("\"best_of\" is {}; it must equal \"n\", {}", Excerpt(value), answers);
  }
  if (key == "num_return_sequences") {
    return InvalidArgument("\"num_return_sequences\" is not used here; send \"n\"");
  }
  return absl::OkStatus();
}

// Whether it is one of kFixed. An error if it has another value.
StatusOr<bool> IsFixed(std::string_view key, dom::element value) {
  for (const Fixed& fixed : kFixed) {
    if (fixed.field != key) continue;
    bool given = false;
    if (value.get_bool().get(given) == 0 && given == fixed.value) return true;
    return InvalidArgument("\"{}\" is {}; only {} is supported", key, Excerpt(value), fixed.value);
  }
  return false;
}

// {"50256": -100}: values added to the logits of tokens.
Status ReadLogitBias(dom::element value, InferRequest* request) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object biases, Object(value, "logit_bias"));
  std::vector<int64_t> tokens;
  std::vector<float> numbers;
  for (const auto& [key, bias] : biases) {
    if (tokens.size() == kMostBiases) {
      return InvalidArgument("\"logit_bias\" has more than {} tokens, the limit", kMostBiases);
    }
    double number = 0;
    const char* const end = key.data() + key.size();
    const auto read = std::from_chars(key.data(), end, tokens.emplace_back());
    if (read.ec != std::errc() || read.ptr != end || bias.get_double().get(number) != 0) {
      return InvalidArgument(
          "\"logit_bias\" has \"{}\": {}; it must be token ids with numbers from -100 to 100",
          key.size() > kShownKey ? "…" : key, Excerpt(bias));
    }
    numbers.push_back(static_cast<float>(number));
  }
  const Shape shape{static_cast<int64_t>(tokens.size())};
  request->inputs.push_back(
      {"logit_bias_tokens", Tensor::Of<int64_t>(shape, std::span<const int64_t>(tokens))});
  request->inputs.push_back(
      {"logit_bias", Tensor::Of<float>(shape, std::span<const float>(numbers))});
  return absl::OkStatus();
}

Status AppendPrompt(dom::element value, TextInputs* to) {
  std::string_view text;
  if (value.get_string().get(text) == 0) {
    to->texts.emplace_back(text);
    to->kinds.push_back(TextKind::kText);
    return absl::OkStatus();
  }
  dom::array array;
  if (value.get_array().get(array) != 0 || array.begin() == array.end()) {
    return InvalidArgument(
        "\"prompt\" has {}; it must be a text, a list of token ids, or a list of these",
        Excerpt(value));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(to->texts.emplace_back(), ReadIds(array, "prompt"));
  to->kinds.push_back(TextKind::kIds);
  return absl::OkStatus();
}

StatusOr<TextInputs> ReadPrompts(dom::element value) {
  TextInputs prompts;
  dom::array array;
  const bool several = value.get_array().get(array) == 0 && array.begin() != array.end() &&
                       !(*array.begin()).is_number();
  if (!several) {
    CHAIRLIFT_RETURN_IF_ERROR(AppendPrompt(value, &prompts));
    return prompts;
  }
  for (const dom::element element : array) {
    if (prompts.texts.size() == kMostPrompts) {
      return InvalidArgument("\"prompt\" has more than {} prompts, the limit of a request",
                             kMostPrompts);
    }
    CHAIRLIFT_RETURN_IF_ERROR(AppendPrompt(element, &prompts));
  }
  return prompts;
}

// OpenAI's chat fields that would change the answer.
Status CheckNotBuiltOfChats(std::string_view key, dom::element value) {
  dom::array list;
  std::string_view text;
  bool flag = false;
  const bool empty = value.get_array().get(list) == 0 && list.size() == 0;
  if (key == "echo" && (value.get_bool().get(flag) != 0 || flag)) {
    return InvalidArgument("\"echo\" is {}; for chats only false is supported", Excerpt(value));
  }
  if ((key == "tools" || key == "functions") && !empty) {
    return InvalidArgument("\"{}\" are not supported: leave them out", key);
  }
  if ((key == "tool_choice" || key == "function_call") &&
      (value.get_string().get(text) != 0 || (text != "none" && text != "auto"))) {
    return InvalidArgument("\"{}\" is {}; tools are not supported, so leave it out", key,
                           Excerpt(value));
  }
  if (key == "response_format" && (value["type"].get_string().get(text) != 0 || text != "text")) {
    return InvalidArgument("\"response_format\" is {}; only {{\"type\": \"text\"}} is supported",
                           Excerpt(value));
  }
  if (key == "modalities" && (value.get_array().get(list) != 0 || list.size() != 1 ||
                              list.at(0).get_string().get(text) != 0 || text != "text")) {
    return InvalidArgument("\"modalities\" is {}; only [\"text\"] is supported", Excerpt(value));
  }
  if (key == "audio" || key == "prediction") {
    return InvalidArgument("\"{}\" is not supported: leave it out", key);
  }
  return absl::OkStatus();
}

// The tokenizer's process applies the chat template and checks the messages.
StatusOr<TextInputs> ReadMessages(dom::element value) {
  if (!value.is_array()) {
    return InvalidArgument("\"messages\" is {}; it must be a list of messages", Excerpt(value));
  }
  TextInputs prompts;
  prompts.texts.push_back(simdjson::minify(value));
  prompts.kinds.push_back(TextKind::kMessages);
  return prompts;
}

std::string NewId(bool chat) {
  static std::atomic<uint64_t> count{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{:x}-{:x}", chat ? "chatcmpl" : "cmpl",
                     std::chrono::nanoseconds(now).count(), ++count);
}

// {"id":…,"object":…,"created":…,"model":…,"choices":
void AppendHead(const CompletionFormat& format, std::string* json) {
  const char* const object = !format.chat    ? "text_completion"
                             : format.stream ? "chat.completion.chunk"
                                             : "chat.completion";
  fmt::format_to(std::back_inserter(*json), R"({{"id":"{}","object":"{}","created":{},"model":)",
                 format.id, object, format.created);
  AppendJsonString(format.model, json);
  json->append(",\"choices\":");
}

struct Choice {
  int64_t index = 0;
  std::string_view text = {}, reason = {};
  int64_t row = 0;     // row of the log-probabilities
  bool first = false;  // first piece of a stream
  bool last = false;   // last piece of a stream: no more text follows
};

// A chat message, or what a piece adds to it.
void AppendMessage(const Choice& choice, bool stream, std::string* json) {
  json->append(stream ? "\"delta\":{" : "\"message\":{");
  if (choice.first || !stream) json->append("\"role\":\"assistant\"");
  if (!choice.last) {
    json->append(choice.first || !stream ? ",\"content\":" : "\"content\":");
    AppendJsonString(choice.text, json);
  }
  json->push_back('}');
}

void AppendChoice(const CompletionFormat& format, const Choice& choice,
                  const TokenLogprobs& logprobs, std::string* json) {
  const std::string_view reason = choice.reason;
  fmt::format_to(std::back_inserter(*json), R"({{"index":{},)", choice.index);
  if (format.chat) {
    AppendMessage(choice, format.stream, json);
  } else {
    json->append("\"text\":");
    AppendJsonString(choice.text, json);
  }
  json->append(",\"logprobs\":");
  if (format.chat) {
    logprobs.AppendContent(choice.row, json);
  } else {
    logprobs.Append(choice.row, json);
  }
  json->append(",\"finish_reason\":");
  if (reason.empty()) {
    json->append("null");
  } else {
    AppendJsonString(reason, json);
  }
  json->push_back('}');
}

// The outputs of the model, checked.
struct Answers {
  std::span<const std::string_view> texts, reasons;
  int64_t prompt_tokens = 0, tokens = 0;
};

StatusOr<Answers> AnswersOf(const InferResponse& response) {
  const std::span<const NamedTensor> outputs = response.outputs;
  const Tensor* const texts = FindTextOutput(outputs, "text_output", DType::kBytes);
  const Tensor* const reasons = FindTextOutput(outputs, "finish_reason", DType::kBytes);
  const Tensor* const prompt = FindTextOutput(outputs, "num_prompt_tokens", DType::kInt64);
  const Tensor* const tokens = FindTextOutput(outputs, "num_tokens", DType::kInt64);
  if (texts == nullptr || reasons == nullptr || prompt == nullptr || tokens == nullptr ||
      reasons->size() != texts->size() || prompt->size() < 1) {
    return Internal("the model returned no text");
  }
  Answers answers{TextsOf(*texts), TextsOf(*reasons)};
  for (const int64_t count : prompt->values<int64_t>()) answers.prompt_tokens += count;
  for (const int64_t count : tokens->values<int64_t>()) answers.tokens += count;
  return answers;
}

void AppendUsage(const Answers& answers, std::string* json) {
  fmt::format_to(std::back_inserter(*json),
                 R"("usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})",
                 answers.prompt_tokens, answers.tokens, answers.prompt_tokens + answers.tokens);
}

}  // namespace

struct CompletionDecoder::Impl {
  explicit Impl(const ServerLimits& server_limits) : limits(server_limits) {}

  Status ReadStreamOptions(dom::element value, CompletionFormat* format) const {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object options, Object(value, "stream_options"));
    for (const auto& [key, option] : options) {
      // Padding against eavesdroppers, which does not change the text.
      if (option.is_null() || key == "include_obfuscation") continue;
      if (key != "include_usage") {
        static constexpr std::string_view kFields[] = {"include_usage", "include_obfuscation"};
        return Annotate(UnknownField(key, kFields), "\"stream_options\"");
      }
      CHAIRLIFT_ASSIGN_OR_RETURN(format->usage,
                                 protocol::Boolean(ParameterFrom(option), "include_usage"));
    }
    return absl::OkStatus();
  }

  // The names of the model's inputs that are fields of the request.
  static std::vector<std::string_view> InputsOf(const ModelMetadata& model) {
    std::vector<std::string_view> names;
    for (const TensorSpec& input : model.inputs) {
      if (!IsIn(kNotFields, input.name)) names.push_back(input.name);
    }
    return names;
  }

  Status ReadField(std::string_view key, dom::element value, bool chat, const ModelMetadata& model,
                   size_t json_bytes, InferRequest* request) const {
    if (key == "logit_bias") return ReadLogitBias(value, request);
    const std::span<const std::string_view> own =
        chat ? std::span<const std::string_view>(kOwnOfChats) : kOwn;
    if (IsIn(own, key) || IsIn(kNeutral, key)) return absl::OkStatus();
    CHAIRLIFT_ASSIGN_OR_RETURN(const bool fixed, IsFixed(key, value));
    if (fixed) return absl::OkStatus();
    const std::vector<std::string_view> fields = InputsOf(model);
    if (!IsIn(fields, key)) {
      if (key.starts_with("truncat")) {
        return InvalidArgument("\"{}\" is not supported: prompts are not truncated; shorten them",
                               key);
      }
      std::vector<std::string_view> known;
      std::copy_if(own.begin(), own.end(), std::back_inserter(known),
                   [](std::string_view field) { return !IsIn(kRefused, field); });
      known.insert(known.end(), fields.begin(), fields.end());
      return UnknownField(key, known);
    }
    const auto spec = std::find_if(model.inputs.begin(), model.inputs.end(),
                                   [&](const TensorSpec& input) { return input.name == key; });
    int missing = 0;
    StatusOr<Tensor> tensor = ReadValue(value, *spec, model.batches, limits, json_bytes, &missing);
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("\"{}\"", key));
    request->inputs.push_back({std::string(key), *std::move(tensor)});
    return absl::OkStatus();
  }

  // For a chat, "logprobs" is a flag, and "top_logprobs" the number.
  static Status ReadChatLogprobs(const dom::object& root, InferRequest* request) {
    bool wanted = false;
    int32_t likely = 0;
    for (const auto& [key, value] : root) {
      if (value.is_null()) continue;
      if (key == "logprobs") {
        CHAIRLIFT_ASSIGN_OR_RETURN(wanted, protocol::Boolean(ParameterFrom(value), key));
      } else if (key == "top_logprobs" && (!ConvertInteger(value, &likely) || likely < 0)) {
        return InvalidArgument("\"top_logprobs\" is {}; it must be a number from 0 to 20",
                               Excerpt(value));
      }
    }
    if (likely > 0 && !wanted) {
      return InvalidArgument("\"top_logprobs\" is {}; it goes with \"logprobs\": true", likely);
    }
    if (wanted) request->inputs.push_back({"logprobs", Tensor::Of<int32_t>({1}, {likely})});
    return absl::OkStatus();
  }

  Status Decode(std::string_view body, bool chat, const protocol::Service& service,
                DecodedCompletion* decoded) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const dom::object root, parser.Parse(body, limits));
    CompletionFormat& format = decoded->format;
    format.chat = chat;
    const std::string_view prompt_key = chat ? "messages" : "prompt";
    InferRequest& request = decoded->request;
    std::optional<TextInputs> prompts;
    int64_t answers = 1;
    bool max_completion_tokens = false;
    for (const auto& [key, value] : root) {
      if (value.is_null()) continue;  // counts as absent
      if (key == "model") {
        CHAIRLIFT_ASSIGN_OR_RETURN(format.model, Name(value, key, limits));
      } else if (key == prompt_key) {
        CHAIRLIFT_ASSIGN_OR_RETURN(prompts, chat ? ReadMessages(value) : ReadPrompts(value));
      } else if (key == "stream") {
        CHAIRLIFT_ASSIGN_OR_RETURN(format.stream, protocol::Boolean(ParameterFrom(value), key));
      } else if (key == "stream_options") {
        CHAIRLIFT_RETURN_IF_ERROR(ReadStreamOptions(value, &format));
      } else if (key == "max_completion_tokens") {
        max_completion_tokens = true;
      } else if (key == "n") {
        // If it is not an integer, it is refused as an input.
        (void)ConvertInteger(value, &answers);
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        request.model, FindTextModel(kComplete, "tokens (docs/guides/language-models.md)", service,
                                     &format.model));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model, service.Find(request.model, ""));
    if (!prompts) return InvalidArgument("\"{}\" is missing", prompt_key);
    for (auto [key, value] : root) {
      if (value.is_null()) continue;
      if (chat) {
        CHAIRLIFT_RETURN_IF_ERROR(CheckNotBuiltOfChats(key, value));
        if (key == "logprobs" || key == "top_logprobs") continue;
      }
      // The current name in OpenAI's clients; it takes precedence over the other.
      if (key == "max_tokens" && max_completion_tokens) continue;
      if (key == "max_completion_tokens") key = "max_tokens";
      CHAIRLIFT_RETURN_IF_ERROR(CheckNotBuilt(key, value, answers));
      CHAIRLIFT_RETURN_IF_ERROR(ReadField(key, value, chat, model, body.size(), &request));
    }
    if (chat) CHAIRLIFT_RETURN_IF_ERROR(ReadChatLogprobs(root, &request));
    const Shape rows{prompts->rows()};
    request.inputs.push_back({"options", TextOptions(*prompts, {})});
    request.inputs.push_back({"text_input", TextTensor(rows, std::move(prompts->texts))});
    format.id = NewId(chat);
    format.created = std::chrono::duration_cast<std::chrono::seconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    return absl::OkStatus();
  }

  const ServerLimits limits;
  JsonParser parser;
};

CompletionDecoder::CompletionDecoder(const ServerLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
CompletionDecoder::~CompletionDecoder() = default;

StatusOr<DecodedCompletion> CompletionDecoder::Decode(std::string_view body, bool chat,
                                                      const protocol::Service& service) {
  DecodedCompletion decoded;
  const Status read = impl_->Decode(body, chat, service, &decoded);
  impl_->parser.Trim();
  if (!read.ok()) return read;
  return decoded;
}

Status EncodeCompletion(const InferResponse& response, const CompletionFormat& format,
                        std::string* json) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Answers answers, AnswersOf(response));
  CHAIRLIFT_ASSIGN_OR_RETURN(const TokenLogprobs logprobs, TokenLogprobs::Of(response.outputs));
  AppendHead(format, json);
  json->push_back('[');
  for (size_t i = 0; i < answers.texts.size(); ++i) {
    if (i > 0) json->push_back(',');
    const auto index = static_cast<int64_t>(i);
    AppendChoice(
        format,
        {.index = index, .text = answers.texts[i], .reason = answers.reasons[i], .row = index},
        logprobs, json);
  }
  json->append("],");
  AppendUsage(answers, json);
  json->push_back('}');
  return absl::OkStatus();
}

Status EncodeCompletionPart(const CompletionFormat& format, const InferPart& part,
                            std::string* json) {
  const Tensor* const text = FindTextOutput(part.outputs, "text_output", DType::kBytes);
  if (text == nullptr || text->size() != 1) return Internal("the model returned no text");
  CHAIRLIFT_ASSIGN_OR_RETURN(const TokenLogprobs logprobs, TokenLogprobs::Of(part.outputs));
  AppendHead(format, json);
  json->push_back('[');
  AppendChoice(format, {.index = part.row, .text = TextsOf(*text)[0], .first = part.first == 0},
               logprobs, json);
  json->append("]}");
  return absl::OkStatus();
}

Status EncodeCompletionEnd(const InferResponse& response, const CompletionFormat& format,
                           std::string_view separator, std::string* json) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Answers answers, AnswersOf(response));
  for (size_t i = 0; i < answers.reasons.size(); ++i) {
    AppendHead(format, json);
    json->push_back('[');
    AppendChoice(format,
                 {.index = static_cast<int64_t>(i), .reason = answers.reasons[i], .last = true},
                 TokenLogprobs(), json);
    json->append("]}");
    json->append(separator);
  }
  if (format.usage) {
    AppendHead(format, json);
    json->append("[],");
    AppendUsage(answers, json);
    json->push_back('}');
    json->append(separator);
  }
  json->append("[DONE]");
  return absl::OkStatus();
}

}  // namespace chairlift::http
