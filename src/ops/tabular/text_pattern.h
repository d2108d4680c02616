// Regular expressions in a part of RE2's syntax, matched in time linear in the text.
#ifndef CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_
#define CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace chairlift {

// Thread-safe.
class TextPattern {
 public:
  // Supported are characters, `.`, classes like [a-z_] and [^,], groups, |, ^, $, the escapes
  // \d \s \w \D \S \W \b \n \t \r \f \v and those of punctuation, and ? * + {n} {n,} {n,m}. \d, \s
  // and \w are ASCII, as in RE2. Unimplemented names a part that is not supported.
  static StatusOr<TextPattern> Parse(std::string_view expression);

  // The first match that starts at `from` or later, and the longest of those: its first byte, and
  // the first byte after it. `text` is UTF-8.
  std::optional<std::pair<size_t, size_t>> Find(std::string_view text, size_t from) const;
  bool MatchesWhole(std::string_view text) const;
  bool matches_empty() const { return MatchesWhole(""); }

 private:
  using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;  // of code points, ends included
  class Parser;

  // An instruction; the next one is that behind it.
  struct Step {
    enum Kind : uint8_t {
      kSet,       // takes a character of the set
      kJump,      // goes on at `to`
      kSplit,     // goes on behind it, and at `to`
      kBoundary,  // between a character of a word and another, or the text's end
      kBegin,     // of the text
      kEnd,
    };
    Kind kind = kSet;
    bool negated = false;
    size_t to = 0;
    Ranges ranges = {};
    bool Takes(uint32_t code) const;
  };

  // Passes the match at step `first`, which takes no character, on to the steps behind it.
  // `states`: by step, the first byte of its match. `open` is empty before and after.
  void Follow(std::string_view text, size_t at, size_t first, std::vector<size_t>& states,
              std::vector<size_t>& open) const;

  std::vector<Step> steps_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_TABULAR_TEXT_PATTERN_H_
