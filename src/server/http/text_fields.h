// Text inputs of JSON requests, common to all text routes, and the tensors that text models read
// and write (docs/guides/embeddings.md). Included only by codecs, because simdjson is a heavy
// header.
#ifndef CHAIRLIFT_SERVER_HTTP_TEXT_FIELDS_H_
#define CHAIRLIFT_SERVER_HTTP_TEXT_FIELDS_H_

#include <simdjson.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "chairlift/engine.h"
#include "server/limits.h"

namespace chairlift::http {

inline constexpr size_t kMostTexts = 2048;  // per request, as in OpenAI's API

// The meaning of a tokenizer's input "text": the second column of its "options".
enum class TextKind : int64_t {
  kText = 0,
  kIds = 1,             // token ids, four bytes each
  kMessages = 2,        // messages of a chat, as JSON
  kPrompted = 3,        // the name of a prompt, a zero byte, and a text
  kAlone = 4,           // a text without a second one, for a model that takes pairs
  kDescribed = 5,       // a text whose tokens must be described
  kDescribedPlain = 6,  // the same, without special tokens
  kDecoded = 7,         // token ids to convert to text, without special tokens
  kDecodedAll = 8,      // the same, with special tokens
};

// What to do with a text of more tokens than the model accepts: the first column.
struct Truncation {
  bool truncate = false;
  // Which tokens are removed, in that column: 1 the last, 2 the first, 3 as set by the files.
  int64_t side = 3;

  // Reads "truncate" and "truncation_direction"; false if `key` is another field.
  StatusOr<bool> Read(std::string_view key, simdjson::dom::element value,
                      const ServerLimits& limits);
  int64_t option() const { return truncate ? side : 0; }
};

// The texts of a request. `kinds`: one per text.
struct TextInputs {
  std::vector<std::string> texts;
  std::vector<TextKind> kinds;

  int64_t rows() const { return static_cast<int64_t>(texts.size()); }
};

// Every error below is kInvalidArgument and uses `what` as the field's name.

// A text, a list of texts, a list of token ids, or a list of such lists.
Status ReadTexts(simdjson::dom::element value, std::string_view what, TextInputs* to);
// A list of texts; an object counts as its "text".
Status ReadDocuments(simdjson::dom::element value, std::string_view what, TextInputs* to);
StatusOr<std::string> ReadText(simdjson::dom::element value, std::string_view what);
Status AppendText(simdjson::dom::element value, std::string_view what, TextInputs* to);
// Token ids, four bytes each.
StatusOr<std::string> ReadIds(simdjson::dom::array array, std::string_view what);

// The name of one of the model's prompts.
StatusOr<std::string> ReadPromptName(simdjson::dom::element value, const ServerLimits& limits);
// Adds the prompt name to each text.
Status AddPromptName(const std::string& name, TextInputs* to);

// Calls `read` for every field of a request except those that are null or affect no answer ("user",
// …). `parameters`: fields of an object of that name count as the request's own, as sent by clients
// of text-embeddings-inference. kInvalidArgument if a field is in both.
using FieldReader = absl::FunctionRef<Status(std::string_view key, simdjson::dom::element value)>;
Status ReadFields(const simdjson::dom::object& root, bool parameters, FieldReader read);

// The error for an unknown field of a route. `known`: its fields.
Status UnknownField(std::string_view field, std::span<const std::string_view> known);

// The tensor "options" for these texts.
Tensor TextOptions(const TextInputs& texts, const Truncation& truncation);

// Null if the answer has no output of that name with two dimensions.
const Tensor* FindMatrix(const InferResponse& response, std::string_view name);
// The sum of "num_tokens".
int64_t CountTokens(const InferResponse& response);

// `number` must be finite.
void AppendFloat(float number, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_FIELDS_H_
