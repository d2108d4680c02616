// Regular expressions of RE2, with bounds on their memory and on the work of a match.
#ifndef CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_
#define CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace re2 {
class RE2;
}  // namespace re2

namespace chairlift {

// Thread-safe. Copies share the compiled expression.
class TextPattern {
 public:
  // InvalidArgument if the expression is not valid RE2 syntax, or needs more memory than one
  // pattern may have.
  static StatusOr<TextPattern> Parse(std::string_view expression);

  // ResourceExhausted if a match in `text` could take too long: RE2 cannot be cancelled. Its time
  // is linear in the text and in the size of the compiled expression.
  Status Admit(std::string_view text) const;

  // Finds the first match that starts at byte `from` or later; if several start there, the longest.
  // Returns the offsets of its first byte and of the first byte after it. `text` is UTF-8.
  std::optional<std::pair<size_t, size_t>> Find(std::string_view text, size_t from) const;
  bool MatchesWhole(std::string_view text) const;
  bool matches_empty() const { return MatchesWhole(""); }

 private:
  explicit TextPattern(std::shared_ptr<const re2::RE2> pattern) : pattern_(std::move(pattern)) {}

  std::shared_ptr<const re2::RE2> pattern_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_
