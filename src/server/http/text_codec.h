// Text requests and answers in the formats of OpenAI's and text-embeddings-inference's clients
// (docs/guides/embeddings.md):
//
//   POST /v1/embeddings  {"model": "minilm", "input": ["a text", …], "encoding_format": "base64"}
//   POST /embed          {"inputs": ["a text", …], "normalize": true, "truncate": false}
//   POST /rerank         {"query": "…", "texts": ["…", …], "raw_scores": false}
//   POST /v1/rerank      {"model": "…", "query": "…", "documents": ["…", …], "top_n": 3}
//
// Their other requests are read in classify_codec.h, tokenize_codec.h and vectors_codec.h.
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

// Requests to models with text inputs, except those of completion_codec.h.
bool InfersTexts(Endpoint endpoint);
// The above, completions, and queries about such models.
bool IsOfTexts(Endpoint endpoint);

// The suffixes of the names of text models: the model's name, and one of these.
inline constexpr std::string_view kEmbed = "/embed";
inline constexpr std::string_view kRerank = "/rerank";
inline constexpr std::string_view kClassify = "/predict";
inline constexpr std::string_view kComplete = "/complete";
// The name of the tokenizer that such models share.
inline constexpr std::string_view kTokenizer = "/tokenizer";
// The models that currently have such a text model, by their names for clients.
std::vector<std::string> TextModels(std::string_view suffix, const protocol::Service& service);
// The text model for the model `*name`. If that is empty: the only one that exists; sets `*name`.
// `outputs`: what such models output, for errors. kNotFound if there is none.
StatusOr<std::string> FindTextModel(std::string_view suffix, std::string_view outputs,
                                    const protocol::Service& service, std::string* name);

// The format of an answer.
struct TextFormat {
  std::string model;  // as in the request, or the only one
  bool base64 = false;
  bool normalize = false;  // the answer's vectors are not normalised yet
  int64_t dimensions = 0;  // the first ones of a vector; 0: all
  bool raw_scores = false;
  int64_t top = -1;                      // −1: all
  std::vector<std::string> texts;        // to be returned
  std::vector<std::string> labels = {};  // of the classes
  bool single = false;                   // for a single text that is not in a list
};

struct DecodedTexts {
  Endpoint endpoint = Endpoint::kNone;  // determines the form of the answer
  InferRequest request;                 // including its model
  TextFormat format;
};

// Keeps its buffers between requests; not thread-safe.
class TextDecoder {
 public:
  explicit TextDecoder(const ServerLimits& limits);
  ~TextDecoder();

  // `body` has kBodyPadding readable bytes past its end. kNotFound if there is no such model, or
  // none for this; every other error is kInvalidArgument and has the field's name.
  StatusOr<DecodedTexts> Decode(Endpoint endpoint, std::string_view body,
                                const protocol::Service& service);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The number of numbers in the answer's JSON.
int64_t TextElements(const InferResponse& response, const TextFormat& format);

// Appends the answer's JSON. kInternal if the model's outputs are not as expected.
Status EncodeTexts(Endpoint endpoint, const InferResponse& response, const TextFormat& format,
                   std::string* json);

// An error in the format of that endpoint's clients; `status` is HTTP's, and may be changed to
// theirs.
std::string TextError(Endpoint endpoint, int* status, std::string_view message);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TEXT_CODEC_H_
