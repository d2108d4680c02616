// Tables as CSV (RFC 4180), with lines that begin with # as comments.
#ifndef CHAIRLIFT_CLI_CSV_H_
#define CHAIRLIFT_CLI_CSV_H_

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace chairlift {

// One line, with its line break. A field is quoted if it needs to be: names from files may have
// commas, quotes and line breaks, and a first one may begin like a comment.
std::string CsvLine(std::span<const std::string> fields);
// One line of comment. Line breaks in the text become spaces.
std::string CsvComment(std::string_view text);

// Replaces the file. No effect if its name is empty.
Status WriteCsv(const std::string& file, const std::string& text);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_CSV_H_
