#include "cli/picture.h"

#include <fmt/format.h>

#include "cli/terminal.h"

namespace chairlift {
namespace {

// bench/chart.py has the same.
constexpr const char* kStyle =
#include "cli/picture_style.inc"
    ;

}  // namespace

std::string SvgText(const std::string& text) {
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

std::string PictureHead(double width, double height, const std::string& title,
                        const std::string& note) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\">\n<title>{3}</title>\n<style>{2}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"title\" x=\"{5}\" y=\"26\">{3}</text>\n"
      "<text class=\"note\" x=\"{5}\" y=\"46\">{4}</text>\n",
      width, height, kStyle, SvgText(title), SvgText(note), kPictureMargin);
}

}  // namespace chairlift
