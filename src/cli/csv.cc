#include "cli/csv.h"

#include <algorithm>
#include <fstream>

#include "cli/flags.h"

namespace chairlift {

std::string CsvLine(std::span<const std::string> fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string& field = fields[i];
    if (i > 0) line += ',';
    if (field.find_first_of(",\"\r\n#") == std::string::npos) {
      line += field;
      continue;
    }
    line += '"';
    for (const char c : field) line += c == '"' ? "\"\"" : std::string(1, c);
    line += '"';
  }
  return line + '\n';
}

std::string CsvComment(std::string_view text) {
  std::string line = "# " + std::string(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line + '\n';
}

Status WriteCsv(const std::string& file, const std::string& text) {
  if (file.empty()) return absl::OkStatus();
  std::ofstream out(file, std::ios::binary);
  out << text;
  return out.flush() ? absl::OkStatus() : CannotWrite(file);
}

}  // namespace chairlift
