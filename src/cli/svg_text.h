// Text inside an SVG image.
#ifndef CHAIRLIFT_CLI_SVG_TEXT_H_
#define CHAIRLIFT_CLI_SVG_TEXT_H_

#include <string>

namespace chairlift {

// `text` with the characters that XML reserves written as entities.
inline std::string SvgText(const std::string& text) {
  std::string out;
  for (const char c : text) {
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
