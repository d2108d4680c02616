// Text inputs of requests in JSON, as all routes of texts read them, and the tensors that the
// models of text take and give (docs/guides/embeddings.md). Only codecs include it, for simdjson is
// a heavy header.
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

inline constexpr size_t kMostTexts = 2048;  // of a request, as OpenAI's service has it

// What a tokenizer's input "text" is: the second column of its "options".
enum class TextKind : int64_t {
  kText = 0,
  kIds = 1,             // token ids, four bytes each
  kMessages = 2,        // of a chat: JSON
  kPrompted = 3,        // the name of a prompt, a zero byte, and a text
  kAlone = 4,           // a text without a second one, of a model that takes pairs
  kDescribed = 5,       // a text whose tokens are to be described
  kDescribedPlain = 6,  // likewise, without special tokens
  kDecoded = 7,         // token ids whose text is wanted, without special tokens
  kDecodedAll = 8,      // likewise, with them
};

// What to do with a text of more tokens than the model takes: the first column.
struct Truncation {
  bool truncate = false;
  // Which tokens go, as that column has it: 1 the last, 2 the first, 3 those that the files say.
  int64_t side = 3;

  // Reads "truncate" and "truncation_direction"; false if `key` is another field.
  StatusOr<bool> Read(std::string_view key, simdjson::dom::element value,
                      const ServerLimits& limits);
  int64_t option() const { return truncate ? side : 0; }
};

// The texts of a request. `kinds`: of each.
struct TextInputs {
  std::vector<std::string> texts;
  std::vector<TextKind> kinds;

  int64_t rows() const { return static_cast<int64_t>(texts.size()); }
};

// Every error below is kInvalidArgument and calls the field `what`.

// A text, a list of texts, a list of token ids, or a list of such.
Status ReadTexts(simdjson::dom::element value, std::string_view what, TextInputs* to);
// A list of texts; an object's "text" stands for it.
Status ReadDocuments(simdjson::dom::element value, std::string_view what, TextInputs* to);
StatusOr<std::string> ReadText(simdjson::dom::element value, std::string_view what);
Status AppendText(simdjson::dom::element value, std::string_view what, TextInputs* to);
// Token ids, four bytes each.
StatusOr<std::string> ReadIds(simdjson::dom::array array, std::string_view what);

// The name of a prompt that the model has.
StatusOr<std::string> ReadPromptName(simdjson::dom::element value, const ServerLimits& limits);
// Has each text name its prompt.
Status AddPromptName(const std::string& name, TextInputs* to);

// Calls `read` for every field of a request but those that are null or change no answer ("user",
// …). `parameters`: those inside an object of that name count as the request's own, as clients of
// text-embeddings-inference send them. kInvalidArgument if a field is given in both.
using FieldReader = absl::FunctionRef<Status(std::string_view key, simdjson::dom::element value)>;
Status ReadFields(const simdjson::dom::object& root, bool parameters, FieldReader read);

// The error of a field that a route does not have. `known`: those that it has.
Status UnknownField(std::string_view field, std::span<const std::string_view> known);

// "options" of these texts.
Tensor TextOptions(const TextInputs& texts, const Truncation& truncation);

// Null if the answer has no output of that name and two dimensions.
const Tensor* FindMatrix(const InferResponse& response, std::string_view name);
// The sum of "num_tokens".
int64_t CountTokens(const InferResponse& response);

// `number` is finite.
void AppendFloat(float number, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_FIELDS_H_
