#include "engine/programs/generating/penalties.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace chairlift {

void Penalise(std::span<float> logits, std::span<const int64_t> prompt,
              std::span<const int64_t> answer, const Penalties& penalties) {
  const auto at = [&](int64_t token) -> float& { return logits[static_cast<size_t>(token)]; };
  if (penalties.repetition != 1) {
    std::set<int64_t> seen(prompt.begin(), prompt.end());
    seen.insert(answer.begin(), answer.end());
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
  const auto last = all.end() - static_cast<std::ptrdiff_t>(before);
  for (size_t i = 0; i + before < all.size(); ++i) {
    if (std::equal(last, all.end(), all.begin() + static_cast<std::ptrdiff_t>(i))) {
      at(all[i + before]) = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace chairlift
