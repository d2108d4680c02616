#include "engine/programs/generating/penalties.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

namespace chairlift {

void Penalise(std::span<float> logits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const Penalties& penalties) {
  const auto at = [&](int64_t token) -> float& { return logits[static_cast<size_t>(token)]; };
  if (penalties.repetition != 1) {
    std::vector<int64_t> seen(prompt.begin(), prompt.end());
    seen.insert(seen.end(), answer.begin(), answer.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int64_t token : seen) {
      float& logit = at(token);
      logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    }
  }
  if (penalties.presence != 0 || penalties.frequency != 0) {
    std::map<int64_t, int64_t> counts;
    for (const int64_t token : answer) ++counts[token];
    for (const auto& [token, count] : counts) {
      at(token) -= penalties.presence + penalties.frequency * static_cast<float>(count);
    }
  }
  if (penalties.no_repeat_ngram < 1) return;
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), answer.begin(), answer.end());
  const auto before = static_cast<size_t>(penalties.no_repeat_ngram) - 1;
  if (all.size() <= before) return;
  // Backwards, what the next token follows is in front: each token whose followers equal `before`
  // of the first ones would be repeated. The Z-algorithm finds how many are equal, in linear time.
  std::reverse(all.begin(), all.end());
  std::vector<size_t> same(all.size());  // from i on as from 0 on
  for (size_t i = 1, from = 0, end = 0; i < all.size(); ++i) {
    size_t n = i < end ? std::min(end - i, same[i - from]) : 0;
    while (i + n < all.size() && all[n] == all[i + n]) ++n;
    if (i + n > end) {
      from = i;
      end = i + n;
    }
    same[i] = n;
  }
  for (size_t i = 0; i + before < all.size(); ++i) {
    if (before == 0 || same[i + 1] >= before) at(all[i]) = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace chairlift
