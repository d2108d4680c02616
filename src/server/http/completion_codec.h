// OpenAI's completion requests and answers (docs/guides/language-models.md), for models that
// generate text:
//
//   POST /v1/completions       {"model": "gpt2", "prompt": "Once", "max_tokens": 20,
//                               "stream": true, …}
//   POST /v1/chat/completions  {"model": "llama",
//                               "messages": [{"role": "user", "content": "Hi"}], …}
#ifndef CHAIRLIFT_SERVER_HTTP_COMPLETION_CODEC_H_
#define CHAIRLIFT_SERVER_HTTP_COMPLETION_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "chairlift/engine.h"
#include "server/http/router.h"
#include "server/limits.h"
#include "server/protocol/service.h"

namespace chairlift::http {

inline bool Completes(Endpoint endpoint) {
  return endpoint == Endpoint::kCompletions || endpoint == Endpoint::kChatCompletions;
}

// The format of an answer.
struct CompletionFormat {
  std::string model;  // as in the request, or the only one
  std::string id;
  int64_t created = 0;  // seconds since the epoch
  bool chat = false;
  bool stream = false;
  bool usage = false;  // at the end of a stream
};

struct DecodedCompletion {
  InferRequest request;  // including its model
  CompletionFormat format;
};

// Keeps its buffers between requests; not thread-safe.
class CompletionDecoder {
 public:
  explicit CompletionDecoder(const ServerLimits& limits);
  ~CompletionDecoder();

  // `body` has kBodyPadding readable bytes past its end. kNotFound if there is no such model, or
  // none for this; every other error is kInvalidArgument and has the field's name. `chat`: the
  // request has messages, otherwise a prompt.
  StatusOr<DecodedCompletion> Decode(std::string_view body, bool chat,
                                     const protocol::Service& service);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Each appends JSON. kInternal if the model's outputs are not as expected.
Status EncodeCompletion(const InferResponse& response, const CompletionFormat& format,
                        std::string* json);
// A piece of one choice's text.
Status EncodeCompletionPart(const CompletionFormat& format, const InferPart& part,
                            std::string* json);
// The end of a stream, with `separator`s between: a chunk for each choice that says why it ended,
// the usage if requested, and [DONE].
Status EncodeCompletionEnd(const InferResponse& response, const CompletionFormat& format,
                           std::string_view separator, std::string* json);

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_COMPLETION_CODEC_H_
