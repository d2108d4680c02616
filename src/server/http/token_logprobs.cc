#include "server/http/token_logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_writer.h"

namespace chairlift::http {
namespace {

// JSON has no infinity: an excluded token gets the value that OpenAI's API returns.
constexpr float kLeastLogprob = -9999;

// The first token of an echoed prompt has no predecessor and no log-probability.
bool None(float logprob) { return logprob > 0; }

void AppendLogprob(float logprob, std::string* json) {
  if (None(logprob)) {
    json->append("null");
    return;
  }
  std::array<char, kNumberBytes> number;
  const float finite = std::isfinite(logprob) ? logprob : kLeastLogprob;
  json->append(number.data(), WriteJsonNumber(finite, number.data()));
}

}  // namespace

const Tensor* FindTextOutput(std::span<const NamedTensor> outputs, std::string_view name,
                             DType dtype) {
  for (const NamedTensor& output : outputs) {
    if (output.name == name && output.tensor.dtype() == dtype) return &output.tensor;
  }
  return nullptr;
}

StatusOr<TokenLogprobs> TokenLogprobs::Of(std::span<const NamedTensor> outputs) {
  TokenLogprobs own;
  own.tokens_ = FindTextOutput(outputs, "tokens", DType::kBytes);
  if (own.tokens_ == nullptr) return own;
  own.logprobs_ = FindTextOutput(outputs, "token_logprobs", DType::kFloat);
  own.offsets_ = FindTextOutput(outputs, "text_offset", DType::kInt64);
  own.top_tokens_ = FindTextOutput(outputs, "top_tokens", DType::kBytes);
  own.top_logprobs_ = FindTextOutput(outputs, "top_logprobs", DType::kFloat);
  const Shape& shape = own.tokens_->shape();
  const auto fits = [&](const Tensor* tensor) {
    return tensor != nullptr && tensor->shape() == shape;
  };
  const auto fits_top = [&](const Tensor* tensor) {
    return tensor != nullptr && tensor->shape().rank() == 3 && tensor->shape()[0] == shape[0] &&
           tensor->shape()[1] == shape[1] && tensor->shape() == own.top_tokens_->shape();
  };
  const bool none = own.top_tokens_ == nullptr && own.top_logprobs_ == nullptr;
  if (shape.rank() != 2 || !fits(own.logprobs_) || !fits(own.offsets_) ||
      !(none || (fits_top(own.top_tokens_) && fits_top(own.top_logprobs_)))) {
    return Internal("the model returned log-probabilities of other tokens");
  }
  return own;
}

size_t TokenLogprobs::Count(int64_t answer) const {
  const auto offsets =
      offsets_->values<int64_t>().subspan(At(answer, 0), static_cast<size_t>(tokens_->shape()[1]));
  return static_cast<size_t>(std::find(offsets.begin(), offsets.end(), int64_t{-1}) -
                             offsets.begin());
}

template <typename Each>
void TokenLogprobs::ForEachLikely(size_t at, std::string* json, Each append) const {
  const auto likely = static_cast<size_t>(top_tokens_->shape()[2]);
  const auto names = TextsOf(*top_tokens_).subspan(at * likely, likely);
  const auto logprobs = top_logprobs_->values<float>().subspan(at * likely, likely);
  bool any = false;
  for (size_t i = 0; i < likely; ++i) {
    const auto before = names.begin() + static_cast<std::ptrdiff_t>(i);
    if (names[i].empty() || std::find(names.begin(), before, names[i]) != before) continue;
    if (any) json->push_back(',');
    any = true;
    append(names[i], logprobs[i]);
  }
}

void TokenLogprobs::Append(int64_t answer, std::string* json) const {
  if (!has(answer)) {
    json->append("null");
    return;
  }
  const size_t count = Count(answer);
  const auto list = [&](std::string_view key, auto append) {
    json->append(key);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) json->push_back(',');
      append(At(answer, i));
    }
    json->push_back(']');
  };
  list("{\"tokens\":[", [&](size_t at) { AppendJsonString(TextsOf(*tokens_)[at], json); });
  list(",\"token_logprobs\":[",
       [&](size_t at) { AppendLogprob(logprobs_->values<float>()[at], json); });
  if (top_tokens_ == nullptr) {
    json->append(",\"top_logprobs\":null");
  } else {
    list(",\"top_logprobs\":[", [&](size_t at) {
      if (None(logprobs_->values<float>()[at])) {
        json->append("null");
        return;
      }
      json->push_back('{');
      ForEachLikely(at, json, [&](std::string_view name, float logprob) {
        AppendJsonString(name, json);
        json->push_back(':');
        AppendLogprob(logprob, json);
      });
      json->push_back('}');
    });
  }
  list(",\"text_offset\":[",
       [&](size_t at) { AppendJsonNumber(offsets_->values<int64_t>()[at], json); });
  json->push_back('}');
}

void TokenLogprobs::AppendContent(int64_t answer, std::string* json) const {
  if (!has(answer)) {
    json->append("null");
    return;
  }
  const auto append = [&](std::string_view text, float logprob) {
    json->append("{\"token\":");
    AppendJsonString(text, json);
    json->append(",\"logprob\":");
    AppendLogprob(logprob, json);
    json->append(",\"bytes\":[");
    for (size_t i = 0; i < text.size(); ++i) {
      if (i > 0) json->push_back(',');
      AppendJsonNumber(static_cast<int>(static_cast<unsigned char>(text[i])), json);
    }
    json->push_back(']');
  };
  json->append("{\"content\":[");
  const size_t count = Count(answer);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = At(answer, i);
    if (i > 0) json->push_back(',');
    append(TextsOf(*tokens_)[at], logprobs_->values<float>()[at]);
    json->append(",\"top_logprobs\":[");
    if (top_tokens_ != nullptr) {
      ForEachLikely(at, json, [&](std::string_view name, float logprob) {
        append(name, logprob);
        json->push_back('}');
      });
    }
    json->append("]}");
  }
  json->append("]}");
}

}  // namespace chairlift::http
