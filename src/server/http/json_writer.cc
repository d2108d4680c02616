// Escaping of JSON strings.
#include "server/http/json_writer.h"

#include <simdjson.h>

namespace chairlift::http {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// Bytes of the non-ASCII character at the start of `text`; 0: it is not UTF-8. `valid`: the whole
// text is known to be UTF-8.
size_t CharacterBytes(std::string_view text, bool valid) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (valid) return bytes;
  return bytes <= text.size() && simdjson::validate_utf8(text.data(), bytes) ? bytes : 0;
}

bool EndsLine(std::string_view character) {
  return character == "\xC2\x85" || character == "\xE2\x80\xA8" || character == "\xE2\x80\xA9";
}

void AppendEscaped(unsigned code, std::string* out) {
  out->append("\\u");
  for (const int shift : {12, 8, 4, 0}) out->push_back(kHex[(code >> shift) & 15]);
}

}  // namespace

void AppendJsonString(std::string_view text, std::string* out) {
  const bool valid = simdjson::validate_utf8(text.data(), text.size());
  out->push_back('"');
  size_t plain = 0;  // start of the run not yet copied
  size_t i = 0;
  const auto end_run = [&](size_t bytes) {
    out->append(text.substr(plain, i - plain));
    plain = i + bytes;
  };
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    size_t bytes = 1;
    if (c == '"' || c == '\\') {
      end_run(1);
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      end_run(1);
      out->append("\\n");
    } else if (c < 0x20) {
      end_run(1);
      AppendEscaped(c, out);
    } else if (c >= 0x80) {
      bytes = CharacterBytes(text.substr(i), valid);
      const std::string_view character = text.substr(i, bytes);
      if (bytes == 0) {
        bytes = 1;
        end_run(1);
        out->push_back('?');
      } else if (EndsLine(character)) {
        end_run(bytes);
        AppendEscaped(bytes == 2 ? 0x85 : character[2] == '\xA8' ? 0x2028 : 0x2029, out);
      }
    }
    i += bytes;
  }
  end_run(0);
  out->push_back('"');
}

std::string ErrorBody(std::string_view message) {
  std::string body = "{\"error\":";
  AppendJsonString(message, &body);
  body.push_back('}');
  return body;
}

}  // namespace chairlift::http
