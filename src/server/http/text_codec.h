// Requests and answers of texts, in the formats that OpenAI's and text-embeddings-inference's
// clients send (docs/guides/embeddings.md):
//
//   POST /v1/embeddings  {"model": "minilm", "input": ["a text", …], "encoding_format": "base64"}
//   POST /embed          {"inputs": ["a text", …], "normalize": true, "truncate": false}
//   POST /rerank         {"query": "…", "texts": ["…", …], "raw_scores": false}
//   POST /v1/rerank      {"model": "…", "query": "…", "documents": ["…", …], "top_n": 3}
//
// Other requests of theirs are read in classify_codec.h, tokenize_codec.h and vectors_codec.h.
#ifndef CHAIRLIFT_SERVER_HTTP_TEXT_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_TEXT_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/engine.h"
#include "server/http/router.h"
#include "server/limits.h"
#include "server/protocol/service.h"

namespace chairlift::http {

// Requests to models that take texts, but those of completion_codec.h.
bool InfersTexts(Endpoint endpoint);
// Those, completions, and what is asked about such models.
bool IsOfTexts(Endpoint endpoint);

// What the models are called that take texts for a model: its name, and one of these.
inline constexpr std::string_view kEmbed = "/embed";
inline constexpr std::string_view kRerank = "/rerank";
inline constexpr std::string_view kClassify = "/predict";
inline constexpr std::string_view kComplete = "/complete";
// Those for which there is one now, as clients name them.
std::vector<std::string> TextModels(std::string_view suffix, const protocol::Service& service);
// The one for the model `*name`; where that is empty, for the only one that has one, which it
// becomes. `outputs`: of such models, in words. kNotFound where there is none.
StatusOr<std::string> FindTextModel(std::string_view suffix, std::string_view outputs,
                                    const protocol::Service& service, std::string* name);

// What the answer to a request is made with.
struct TextFormat {
  std::string model;  // as the request named it, or the one there is
  bool base64 = false;
  bool normalize = false;  // the answer's vectors are not
  int64_t dimensions = 0;  // of a vector, the first; 0: all
  bool raw_scores = false;
  int64_t top = -1;                      // −1: all
  std::vector<std::string> texts;        // to be sent back
  std::vector<std::string> labels = {};  // of the classes
  bool single = false;                   // of one text, that is not in a list
};

struct DecodedTexts {
  Endpoint endpoint = Endpoint::kNone;  // whose form the answer has
  InferRequest request;                 // with its model
  TextFormat format;
};

// Keeps its buffers from one request to the next; not thread-safe.
class TextDecoder {
 public:
  explicit TextDecoder(const ServerLimits& limits);
  ~TextDecoder();

  // `body` has kBodyPadding readable bytes past its end. kNotFound where there is no such model,
  // or none for this; every other error is kInvalidArgument and names the field.
  StatusOr<DecodedTexts> Decode(Endpoint endpoint, std::string_view body,
                                const protocol::Service& service);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Numbers that the answer spells out.
int64_t TextElements(const InferResponse& response, const TextFormat& format);

// Appends the answer's JSON. kInternal where the model's outputs are not what they should be.
Status EncodeTexts(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                   std::string* json);

// An error as clients of that endpoint read it; `status` is HTTP's, and may become theirs.
std::string TextError(Endpoint endpoint, int* status, std::string_view message);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_CODEC_H_
