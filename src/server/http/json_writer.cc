// Escaping of JSON strings.
#include "server/http/json_writer.h"

#include <simdjson.h>

namespace chairlift::http {

void AppendJsonString(std::string_view text, std::string* out) {
  const bool utf8 = simdjson::validate_utf8(text.data(), text.size());
  out->push_back('"');
  size_t plain = 0;  // start of the run not yet copied
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && (utf8 || c < 0x80)) continue;
    out->append(text.substr(plain, i - plain));
    plain = i + 1;
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out->append("\\u00");
      out->push_back(kHex[c >> 4]);
      out->push_back(kHex[c & 15]);
    } else {
      out->push_back('?');
    }
  }
  out->append(text.substr(plain));
  out->push_back('"');
}

std::string ErrorBody(std::string_view message) {
  std::string body = "{\"error\":";
  AppendJsonString(message, &body);
  body.push_back('}');
  return body;
}

}  // namespace chairlift::http
