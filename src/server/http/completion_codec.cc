#include "server/http/completion_codec.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_array.h"
#include "server/http/json_value.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"
#include "server/http/text_codec.h"
#include "server/http/token_logprobs.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// Inputs of the model that are not fields of the request's.
constexpr std::string_view kNotFields[] = {"text_input", "options", "exclude_input_in_output",
                                           "stream"};

// What the tokenizer's `options` say of a text.
enum PromptKind : int64_t { kOfText = 0, kOfTokens = 1, kOfMessages = 2 };

// OpenAI's fields that would change the answer. Null is as if absent.
Status CheckNotBuilt(std::string_view key, dom::element value, int64_t answers) {
  bool flag = false;
  std::string_view text;
  int64_t number = 0;
  dom::object object;
  if (key == "echo" && (value.get_bool().get(flag) != 0 || flag)) {
    return InvalidArgument("\"echo\" is {}; only false is possible", Excerpt(value));
  }
  if (key == "suffix" && (value.get_string().get(text) != 0 || !text.empty())) {
    return InvalidArgument("\"suffix\" is not supported: leave it out");
  }
  if (key == "best_of" && (!ConvertInteger(value, &number) || number != answers)) {
    return InvalidArgument("\"best_of\" is {}; it must be as \"n\", {}", Excerpt(value), answers);
  }
  if (key == "num_return_sequences") {
    return InvalidArgument("\"num_return_sequences\" is called \"n\" where texts are answered");
  }
  if (key == "logit_bias" && (value.get_object().get(object) != 0 || object.size() > 0)) {
    return InvalidArgument(
        "\"logit_bias\" is not supported; \"suppress_tokens\" has a list of tokens that are never "
        "generated");
  }
  return absl::OkStatus();
}

// Of the request's prompt: a text, or its tokens, as the tokenizer's `options` say.
struct Prompt {
  std::string bytes;
  PromptKind kind = kOfText;
};

StatusOr<Prompt> ReadPrompt(dom::element value) {
  dom::array array;
  std::string_view text;
  // A list of one prompt stands for it.
  if (value.get_array().get(array) == 0 && array.size() == 1 && !(*array.begin()).is_number()) {
    value = *array.begin();
  } else if (value.is_array() && array.size() > 1 && !(*array.begin()).is_number()) {
    return InvalidArgument("\"prompt\" has {} prompts; a request may have one", array.size());
  }
  if (value.get_string().get(text) == 0) return Prompt{.bytes = std::string(text)};
  if (value.get_array().get(array) != 0 || array.size() == 0) {
    return InvalidArgument("\"prompt\" is {}; it must be a text, or a list of token ids",
                           Excerpt(value));
  }
  Prompt prompt{.bytes = {}, .kind = kOfTokens};
  for (const dom::element element : array) {
    int32_t id = 0;
    if (!ConvertInteger(element, &id) || id < 0) {
      return InvalidArgument(
          "\"prompt\" has {} among its token ids; they are whole numbers of 0 or more",
          Excerpt(element));
    }
    char four[sizeof(id)];
    std::memcpy(four, &id, sizeof(id));
    prompt.bytes.append(four, sizeof(four));
  }
  return prompt;
}

// OpenAI's fields of chats that would change the answer.
Status CheckNotBuiltOfChats(std::string_view key, dom::element value) {
  dom::array list;
  std::string_view text;
  const bool empty = value.get_array().get(list) == 0 && list.size() == 0;
  if ((key == "tools" || key == "functions") && !empty) {
    return InvalidArgument("\"{}\" are not supported: leave them out", key);
  }
  if ((key == "tool_choice" || key == "function_call") &&
      (value.get_string().get(text) != 0 || (text != "none" && text != "auto"))) {
    return InvalidArgument("\"{}\" is {}; there are no tools", key, Excerpt(value));
  }
  if (key == "response_format" && (value["type"].get_string().get(text) != 0 || text != "text")) {
    return InvalidArgument("\"response_format\" is {}; only {{\"type\": \"text\"}} is possible",
                           Excerpt(value));
  }
  if (key == "modalities" && (value.get_array().get(list) != 0 || list.size() != 1 ||
                              list.at(0).get_string().get(text) != 0 || text != "text")) {
    return InvalidArgument("\"modalities\" is {}; only [\"text\"] is possible", Excerpt(value));
  }
  if (key == "audio" || key == "prediction") {
    return InvalidArgument("\"{}\" is not supported: leave it out", key);
  }
  return absl::OkStatus();
}

// The template of the model's files is applied, and the messages are checked, where its tokenizer
// is.
StatusOr<Prompt> ReadMessages(dom::element value) {
  if (!value.is_array()) {
    return InvalidArgument("\"messages\" is {}; it must be a list of messages", Excerpt(value));
  }
  return Prompt{.bytes = simdjson::minify(value), .kind = kOfMessages};
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
  int64_t row = 0;     // of the log-probabilities
  bool first = false;  // piece of a stream
  bool last = false;   // likewise: there is no more text
};

// A chat's message, or what a piece adds to it.
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
      reasons->size() != texts->size() || prompt->size() != 1) {
    return Internal("the model gave no texts");
  }
  Answers answers{TextsOf(*texts), TextsOf(*reasons), prompt->values<int64_t>()[0]};
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
      if (key != "include_usage" || option.is_null()) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(format->usage,
                                 protocol::Boolean(ParameterFrom(option), "include_usage"));
    }
    return absl::OkStatus();
  }

  Status ReadField(std::string_view key, dom::element value, const ModelMetadata& model,
                   size_t json_bytes, InferRequest* request) const {
    const auto spec = std::find_if(model.inputs.begin(), model.inputs.end(),
                                   [&](const TensorSpec& input) { return input.name == key; });
    const bool field =
        std::find(std::begin(kNotFields), std::end(kNotFields), key) == std::end(kNotFields);
    if (spec == model.inputs.end() || !field) return absl::OkStatus();
    int missing = 0;
    StatusOr<Tensor> tensor = ReadValue(value, *spec, model.batches, limits, json_bytes, &missing);
    if (!tensor.ok()) return Annotate(tensor.status(), fmt::format("\"{}\"", key));
    request->inputs.push_back({std::string(key), *std::move(tensor)});
    return absl::OkStatus();
  }

  // Of a chat, "logprobs" is whether, and "top_logprobs" how many.
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
    std::optional<Prompt> prompt;
    int64_t answers = 1;
    bool max_completion_tokens = false;
    for (const auto& [key, value] : root) {
      if (value.is_null()) continue;  // as if it were absent
      if (key == "model") {
        CHAIRLIFT_ASSIGN_OR_RETURN(format.model, Name(value, key, limits));
      } else if (key == prompt_key) {
        CHAIRLIFT_ASSIGN_OR_RETURN(prompt, chat ? ReadMessages(value) : ReadPrompt(value));
      } else if (key == "stream") {
        CHAIRLIFT_ASSIGN_OR_RETURN(format.stream, protocol::Boolean(ParameterFrom(value), key));
      } else if (key == "stream_options") {
        CHAIRLIFT_RETURN_IF_ERROR(ReadStreamOptions(value, &format));
      } else if (key == "max_completion_tokens") {
        max_completion_tokens = true;
      } else if (key == "n") {
        (void)ConvertInteger(value, &answers);  // refused as an input, where it is none
      }
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(request.model, FindTextModel(kComplete, "tokens (docs/decoders.md)",
                                                            service, &format.model));
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model, service.Find(request.model, ""));
    if (!prompt) return InvalidArgument("\"{}\" is missing", prompt_key);
    for (auto [key, value] : root) {
      if (value.is_null()) continue;
      if (chat) {
        CHAIRLIFT_RETURN_IF_ERROR(CheckNotBuiltOfChats(key, value));
        if (key == "logprobs" || key == "top_logprobs") continue;
        // The name that OpenAI's clients have for it now; it goes before the other.
        if (key == "max_tokens" && max_completion_tokens) continue;
        if (key == "max_completion_tokens") key = "max_tokens";
      }
      CHAIRLIFT_RETURN_IF_ERROR(CheckNotBuilt(key, value, answers));
      CHAIRLIFT_RETURN_IF_ERROR(ReadField(key, value, model, body.size(), &request));
    }
    if (chat) CHAIRLIFT_RETURN_IF_ERROR(ReadChatLogprobs(root, &request));
    request.inputs.push_back({"options", Tensor::Of<int64_t>({1, 2}, {0, prompt->kind})});
    request.inputs.push_back({"text_input", TextTensor({1}, {std::move(prompt->bytes)})});
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
  if (text == nullptr || text->size() != 1) return Internal("the model gave no texts");
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
