// What all SVG images share: their style on light and dark pages, title and text.
#ifndef CHAIRLIFT_CLI_PICTURE_H_
#define CHAIRLIFT_CLI_PICTURE_H_

#include <string>

namespace chairlift {

inline constexpr double kPictureWidth = 800;  // of charts; they are readable at this width
inline constexpr double kPictureTop = 62;     // below the title and the note
inline constexpr double kPictureMargin = 16;

// `text` with the characters that XML reserves written as entities, and Printable(): it has no
// control characters.
std::string SvgText(const std::string& text);

// The beginning of an image: its style (picture_style.inc), background, title and, in a smaller
// font, a note. "</svg>\n" ends it.
std::string PictureHead(double width, double height, const std::string& title,
                        const std::string& note);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_PICTURE_H_
