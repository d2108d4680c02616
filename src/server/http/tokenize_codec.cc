#include "server/http/tokenize_codec.h"

#include <utility>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_writer.h"
#include "server/http/request_json.h"
#include "server/http/text_fields.h"

namespace chairlift::http {
namespace {

namespace dom = simdjson::dom;

// For a request with a single text: the description of a token takes about fifty times its bytes.
constexpr size_t kMostTextBytes = size_t{1} << 20;
// For all texts of a request with several: they are one batch of the tokenizer.
constexpr size_t kMostBatchBytes = size_t{160} << 10;
constexpr std::string_view kOfTokenize[] = {"model", "inputs", "add_special_tokens"};
constexpr std::string_view kOfDecode[] = {"model", "ids", "skip_special_tokens"};

// The tokenizer of the model `*name` or, if that is empty, of the only one with text inputs.
StatusOr<std::string> FindTokenizer(const protocol::Service& service, std::string* name) {
  std::vector<std::string> names;
  for (const std::string_view suffix : {kEmbed, kRerank, kClassify, kComplete}) {
    for (std::string& one : TextModels(suffix, service)) names.push_back(std::move(one));
  }
  if (name->empty() && names.size() == 1) *name = names[0];
  return FindTextModel(kTokenizer, "vectors, scores or tokens", service, name);
}

}  // namespace

Status DecodeTokenize(const dom::object& root, const protocol::Service& service,
                      const ServerLimits& limits, DecodedTexts* decoded) {
  const bool decodes = decoded->endpoint == Endpoint::kDecode;
  const std::string_view texts_key = decodes ? "ids" : "inputs";
  const std::string_view special_key = decodes ? "skip_special_tokens" : "add_special_tokens";
  TextInputs texts;
  bool special = true;
  const auto read = [&](std::string_view key, dom::element value) -> Status {
    if (key == "model") {
      CHAIRLIFT_ASSIGN_OR_RETURN(decoded->format.model, Name(value, key, limits));
    } else if (key == texts_key) {
      return ReadTexts(value, key, &texts);
    } else if (key == special_key) {
      CHAIRLIFT_ASSIGN_OR_RETURN(special, protocol::Boolean(ParameterFrom(value), key));
    } else {
      return decodes ? UnknownField(key, kOfDecode) : UnknownField(key, kOfTokenize);
    }
    return absl::OkStatus();
  };
  CHAIRLIFT_RETURN_IF_ERROR(ReadFields(root, true, read));
  InferRequest& request = decoded->request;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.model, FindTokenizer(service, &decoded->format.model));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata model, service.Find(request.model, ""));
  if (texts.texts.empty()) return InvalidArgument("\"{}\" is missing", texts_key);
  size_t bytes = 0;
  for (size_t i = 0; i < texts.texts.size(); ++i) {
    bytes += texts.texts[i].size();
    if ((texts.kinds[i] == TextKind::kIds) != decodes) {
      return InvalidArgument("\"{}\" contains {}; it must be {}, or a list of them", texts_key,
                             decodes ? "a text" : "token ids",
                             decodes ? "a list of token ids" : "a text");
    }
    texts.kinds[i] = decodes ? (special ? TextKind::kDecoded : TextKind::kDecodedAll)
                             : (special ? TextKind::kDescribed : TextKind::kDescribedPlain);
  }
  const size_t most = texts.rows() > 1 ? kMostBatchBytes : kMostTextBytes;
  if (bytes > most) {
    return InvalidArgument("\"{}\" has {} bytes in all; a request may have {}: send several",
                           texts_key, bytes, most);
  }
  const Shape rows{texts.rows()};
  Tensor options = TextOptions(texts, {});
  for (const TensorSpec& input : model.inputs) {
    if (input.name != "pair") continue;
    request.inputs.push_back(
        {"pair", TextTensor(rows, std::vector<std::string>(texts.texts.size()))});
  }
  request.inputs.push_back({"text", TextTensor(rows, std::move(texts.texts))});
  request.inputs.push_back({"options", std::move(options)});
  request.outputs = {"said"};
  return absl::OkStatus();
}

Status EncodeTokens(Endpoint endpoint, const InferResponse& response, std::string* json) {
  if (response.outputs.size() != 1 || response.outputs[0].tensor.dtype() != DType::kBytes) {
    return Internal("the tokenizer said nothing of its tokens");
  }
  json->push_back('[');
  bool any = false;
  for (const std::string_view said : TextsOf(response.outputs[0].tensor)) {
    if (std::exchange(any, true)) json->push_back(',');
    if (endpoint == Endpoint::kDecode) {
      AppendJsonString(said, json);
    } else {
      json->append(said);  // already JSON
    }
  }
  json->push_back(']');
  return absl::OkStatus();
}

}  // namespace chairlift::http
