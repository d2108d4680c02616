// Text inside an SVG image.
#ifndef CHAIRLIFT_CLI_SVG_TEXT_H_
#define CHAIRLIFT_CLI_SVG_TEXT_H_

#include <string>

#include "cli/terminal.h"

namespace chairlift {

// `text` with entities for the characters that XML reserves, after Printable(): it has no control
// characters.
inline std::string SvgText(const std::string& text) {
  std::string out;
  for (const char c : Printable(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_SVG_TEXT_H_
