#include "base/closest.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

namespace chairlift {
namespace {

constexpr size_t kMaxSize = 64;

char Folded(char c) {
  if (c == '_') return '-';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Optimal string alignment distance. Neither string is longer than kMaxSize.
size_t Distance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table.
  std::array<size_t, kMaxSize + 1> before{}, last{}, row{};
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool equal = Folded(a[i - 1]) == Folded(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && Folded(a[i - 1]) == Folded(b[j - 2]) &&
          Folded(a[i - 2]) == Folded(b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last[b.size()];
}

// Whether `candidate` is `name` and further words: 'max_batch_size' of 'max_batch'.
bool Continues(std::string_view name, std::string_view candidate) {
  constexpr size_t kFewest = 3;  // characters
  return name.size() >= kFewest && name.size() < candidate.size() &&
         Folded(candidate[name.size()]) == '-' &&
         std::ranges::equal(name, candidate.substr(0, name.size()), {}, Folded, Folded);
}

}  // namespace

std::optional<std::string> Closest(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() > kMaxSize) return std::nullopt;
  const std::string* closest = nullptr;
  size_t most = std::max<size_t>(1, name.size() / 3);  // changes
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(candidate.size(), name.size());
    if (candidate.size() > kMaxSize || longer - std::min(candidate.size(), name.size()) > most) {
      continue;
    }
    const size_t distance = Distance(name, candidate);
    if (distance > most || distance >= longer) continue;
    if (closest != nullptr && distance == most) continue;
    closest = &candidate;
    most = distance;
  }
  if (closest == nullptr) return std::nullopt;
  return *closest;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> candidates) {
  const std::optional<std::string> closest = Closest(name, candidates);
  if (closest) return "; did you mean '" + *closest + "'?";
  const auto longer = std::ranges::find_if(
      candidates, [&](const std::string& candidate) { return Continues(name, candidate); });
  return longer == candidates.end() ? "" : "; did you mean '" + *longer + "'?";
}

std::string KnownNames(std::string_view name, std::span<const std::string> known) {
  constexpr size_t kMostBesideOne = 8, kMost = 24;
  if (known.empty()) return " (it has none)";
  const std::string meant = DidYouMean(name, known);
  if (!meant.empty() && known.size() > kMostBesideOne) return meant;
  const size_t left = known.size() - std::min(known.size(), kMost);
  return fmt::format("{} (there are: '{}'{})", meant,
                     fmt::join(known.first(known.size() - left), "', '"),
                     left == 0 ? "" : fmt::format(" and {} more", left));
}

}  // namespace chairlift
