// Log-probabilities of tokens in the format of OpenAI's completions.
#ifndef CHAIRLIFT_SERVER_HTTP_TOKEN_LOGPROBS_H_
#define CHAIRLIFT_SERVER_HTTP_TOKEN_LOGPROBS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "chairlift/engine.h"

namespace chairlift::http {

// Null if there is none with that name and type.
const Tensor* FindTextOutput(std::span<const NamedTensor> outputs, std::string_view name,
                             DType dtype);

// Reads the outputs `tokens`, `token_logprobs`, `text_offset` [answers, longest], `top_tokens` and
// `top_logprobs` [answers, longest, likely] of a model that generates text. The outputs must
// outlive it.
class TokenLogprobs {
 public:
  TokenLogprobs() = default;  // empty
  // Empty if the request does not want any. kInternal if outputs do not fit each other.
  static StatusOr<TokenLogprobs> Of(std::span<const NamedTensor> outputs);

  // {"tokens":[…],"token_logprobs":[…],"top_logprobs":[{…},…],"text_offset":[…]}, or null.
  void Append(int64_t answer, std::string* json) const;
  // In the format of chats: {"content":[{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]},…]}.
  void AppendContent(int64_t answer, std::string* json) const;

 private:
  size_t Count(int64_t answer) const;  // number of tokens
  size_t At(int64_t answer, size_t token) const {
    return static_cast<size_t>(answer * tokens_->shape()[1]) + token;
  }
  bool has(int64_t answer) const {
    return tokens_ != nullptr && answer >= 0 && answer < tokens_->shape()[0];
  }
  // `append(name, logprob)` for the most likely tokens at a position. If tokens have the same name,
  // only the first, which is the most likely.
  template <typename Each>
  void ForEachLikely(size_t at, std::string* json, Each append) const;

  const Tensor* tokens_ = nullptr;
  const Tensor* logprobs_ = nullptr;
  const Tensor* offsets_ = nullptr;
  const Tensor* top_tokens_ = nullptr;  // null: not requested
  const Tensor* top_logprobs_ = nullptr;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_TOKEN_LOGPROBS_H_
