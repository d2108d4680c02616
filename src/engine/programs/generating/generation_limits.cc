#include "engine/programs/generating/generation_limits.h"

#include <algorithm>

namespace chairlift {
namespace {

// If only the start token comes before, as in transformers.
bool ForcesFirst(const GenerationLimits& limits, int64_t prompt) {
  return limits.first_token >= 0 && prompt == 1;
}

// Whether `before` followed by `last` completes `sequence`.
bool Completes(std::span<const int64_t> sequence, std::span<const int64_t> before,
               std::span<const int64_t> last) {
  const size_t needed = sequence.size() - 1;
  if (needed > before.size() + last.size()) return false;
  const size_t of_last = std::min(needed, last.size());
  const size_t of_before = needed - of_last;
  const auto begin = sequence.begin();
  const auto middle = begin + static_cast<std::ptrdiff_t>(of_before);
  return std::equal(begin, middle, before.end() - static_cast<std::ptrdiff_t>(of_before)) &&
         std::equal(middle, sequence.end() - 1, last.end() - static_cast<std::ptrdiff_t>(of_last));
}

}  // namespace

int64_t ForcedToken(const GenerationLimits& limits, int64_t prompt, int64_t answer) {
  if (answer < static_cast<int64_t>(limits.forced.size())) {
    return limits.forced[static_cast<size_t>(answer)];
  }
  if (answer == limits.max_tokens - 1 && limits.last_token >= 0) return limits.last_token;
  return ForcesFirst(limits, prompt) && answer == 0 ? limits.first_token : -1;
}

std::vector<int64_t> SuppressedTokens(const GenerationLimits& limits,
                                      std::span<const int64_t> prompt,
                                      std::span<const int64_t> answer) {
  const auto place = static_cast<int64_t>(answer.size());
  std::vector<int64_t> tokens = limits.suppressed;
  const auto add = [&](const std::vector<int64_t>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  const bool forces_first = ForcesFirst(limits, static_cast<int64_t>(prompt.size()));
  if (place == (forces_first ? 1 : 0)) add(limits.first_suppressed);
  if (place < limits.min_tokens) add(limits.end_tokens);
  for (const std::vector<int64_t>& word : limits.bad_words) {
    if (Completes(word, prompt, answer)) tokens.push_back(word.back());
  }
  return tokens;
}

std::vector<int64_t> EndTokens(const GenerationLimits& limits, std::span<const int64_t> answer) {
  if (answer.size() < limits.forced.size()) return {};
  std::vector<int64_t> tokens = limits.end_tokens;
  if (static_cast<int64_t>(answer.size()) < limits.min_tokens) return tokens;
  for (const std::vector<int64_t>& sequence : limits.stop_sequences) {
    if (Completes(sequence, {}, answer)) tokens.push_back(sequence.back());
  }
  return tokens;
}

}  // namespace chairlift
