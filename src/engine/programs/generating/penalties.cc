#include "engine/programs/generating/penalties.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace chairlift {

void Penalise(std::span<float> logits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const SeenTokens* counts,
              const Penalties& penalties) {
  const auto at = [&](int64_t token) -> float& { return logits[static_cast<size_t>(token)]; };
  if (penalties.repetition != 1) {
    const auto repeated = [&](int64_t token) {
      float& logit = at(token);
      logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    };
    for (const int64_t token : counts->prompt()) repeated(token);
    for (const SeenTokens::OfAnswer& of : counts->answer()) {
      if (!of.in_prompt) repeated(of.token);
    }
  }
  if (penalties.presence != 0 || penalties.frequency != 0) {
    for (const SeenTokens::OfAnswer& of : counts->answer()) {
      at(of.token) -= penalties.presence + penalties.frequency * static_cast<float>(of.count);
    }
  }
  if (penalties.no_repeat_ngram < 1) return;
  const auto before = static_cast<size_t>(penalties.no_repeat_ngram) - 1;
  const size_t size = prompt.size() + answer.size();
  if (size <= before) return;
  // Reversed, the context of the next token is at the front: each token whose followers equal the
  // first `before` ones would be a repetition. The Z-algorithm finds the lengths of equal prefixes
  // in linear time.
  const auto all = [&](size_t i) {
    return i < answer.size() ? answer[answer.size() - 1 - i] : prompt[size - 1 - i];
  };
  std::vector<size_t> same(size);  // length of the common prefix of i and 0
  for (size_t i = 1, from = 0, end = 0; i < size; ++i) {
    size_t n = i < end ? std::min(end - i, same[i - from]) : 0;
    while (i + n < size && all(n) == all(i + n)) ++n;
    if (i + n > end) {
      from = i;
      end = i + n;
    }
    same[i] = n;
  }
  for (size_t i = 0; i + before < size; ++i) {
    if (before == 0 || same[i + 1] >= before) at(all(i)) = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace chairlift
