#include "engine/programs/generating/seen_tokens.h"

#include <algorithm>

namespace chairlift {

SeenTokens::SeenTokens(std::span<const int64_t> prompt) {
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  prompt_ = std::make_shared<const std::vector<int64_t>>(std::move(tokens));
}

void SeenTokens::Add(int64_t token) {
  const auto place =
      std::lower_bound(answer_.begin(), answer_.end(), token,
                       [](const OfAnswer& of, int64_t value) { return of.token < value; });
  if (place != answer_.end() && place->token == token) {
    ++place->count;
    return;
  }
  const bool in_prompt = std::binary_search(prompt_->begin(), prompt_->end(), token);
  answer_.insert(place, {.token = token, .count = 1, .in_prompt = in_prompt});
}

}  // namespace chairlift
