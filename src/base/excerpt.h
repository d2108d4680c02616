// Excerpts of foreign text for messages, never cut within a character.
#ifndef CHAIRLIFT_BASE_EXCERPT_H_
#define CHAIRLIFT_BASE_EXCERPT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace chairlift {

// The first bytes of a UTF-8 text: at most `most`, cut at a character.
inline std::string_view CutText(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  constexpr size_t kMostContinuing = 3;
  size_t end = most;
  while (end > 0 && most - end < kMostContinuing && continues(end)) --end;
  return text.substr(0, continues(end) ? most : end);
}

// The same, with "..." if something is left out.
inline std::string Shortened(std::string_view text, size_t most) {
  std::string cut(CutText(text, most));
  return cut.size() < text.size() ? cut + "..." : cut;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_EXCERPT_H_
