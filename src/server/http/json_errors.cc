#include "server/http/json_errors.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/excerpt.h"
#include "base/status.h"

namespace chairlift::http {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

// Only records the position of the first error.
class Locator : public nlohmann::json_sax<nlohmann::json> {
 public:
  size_t bytes_read() const { return bytes_read_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    bytes_read_ = position;
    return false;
  }

 private:
  size_t bytes_read_ = 0;  // up to the wrong one
};

// " at byte 17"; "" if it cannot be found.
std::string ErrorPosition(std::string_view json) {
  const std::string_view begin = json.substr(0, kMostBytes);
  Locator locator;
  if (nlohmann::json::sax_parse(begin.begin(), begin.end(), &locator)) return "";
  const size_t read = locator.bytes_read();
  if (read <= begin.size()) return read == 0 ? "" : fmt::format(" at byte {}", read - 1);
  if (begin.size() < json.size()) return fmt::format(" behind byte {}", begin.size());
  return fmt::format(" at byte {}: it ends too early", begin.size());
}

// A word outside strings, such as NaN, which JSON does not have; empty if there is none.
std::string_view ForeignWord(std::string_view json) {
  const auto is_word = [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      for (++i; i < json.size() && json[i] != '"'; ++i) i += json[i] == '\\' ? 1 : 0;
      continue;
    }
    if (!is_word(json[i])) continue;
    const size_t begin = i;
    while (i + 1 < json.size() && is_word(json[i + 1])) ++i;
    const std::string_view word = json.substr(begin, i + 1 - begin);
    const bool number = absl::ascii_isdigit(word[0]) ||
                        (word.size() > 1 && word[0] == '-' && absl::ascii_isdigit(word[1]));
    // After a point or a sign: the rest of a number.
    const bool rest = begin > 0 && (json[begin - 1] == '.' || json[begin - 1] == '+');
    if (number || rest || word == "true" || word == "false" || word == "null") continue;
    return word;
  }
  return {};
}

bool IsNotFinite(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  return absl::EqualsIgnoreCase({word.data(), word.size()}, "nan") ||
         absl::EqualsIgnoreCase({word.data(), word.size()}, "inf") ||
         absl::EqualsIgnoreCase({word.data(), word.size()}, "infinity");
}

// name=value, as sent by `curl -d`.
bool IsForm(std::string_view body) {
  const std::string_view name = body.substr(0, body.find('='));
  constexpr std::string_view kMarks = "_-.%+[]";
  return !name.empty() && name.size() < body.size() &&
         absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), [&](unsigned char c) {
           return absl::ascii_isalnum(c) || kMarks.find(static_cast<char>(c)) != kMarks.npos;
         });
}

bool IsMultipart(std::string_view body) {
  return body.starts_with("--") &&
         absl::AsciiStrToLower(std::string(body.substr(0, 1024))).find("content-disposition:") !=
             std::string::npos;
}

bool IsBinary(std::string_view body) {
  const std::string_view begin = body.substr(0, 1024);
  // The first byte of an image, for example, cannot begin a character or JSON.
  const auto first = static_cast<unsigned char>(body[0]);
  if (first >= 0x80 && (first < 0xc2 || first > 0xf4)) return true;
  return std::any_of(begin.begin(), begin.end(),
                     [](char c) { return absl::ascii_iscntrl(c) && !absl::ascii_isspace(c); });
}

constexpr const char* kSendBytes =
    "send a JSON object, or the bytes of the model's only input with the header "
    "Inference-Header-Content-Length: 0 (curl --data-binary @FILE)";

}  // namespace

Status NotJson(std::string_view body, std::string_view reason) {
  if (std::all_of(body.begin(), body.end(), [](char c) { return absl::ascii_isspace(c); })) {
    return InvalidArgument("the request has no body, so it is not valid JSON; send a JSON object");
  }
  if (IsMultipart(body)) {
    return InvalidArgument("the request is not valid JSON: it is a multipart form; {}", kSendBytes);
  }
  if (IsForm(body)) {
    return InvalidArgument(
        "the request is not valid JSON: it is a form, name=value; send a JSON object, as "
        "{{\"name\": value}}");
  }
  if (body.starts_with("\x1f\x8b")) {
    return InvalidArgument(
        "the request is not valid JSON: it is compressed; add the header Content-Encoding: gzip");
  }
  if (IsBinary(body)) {
    return InvalidArgument("the request is not valid JSON: it is binary data; {}", kSendBytes);
  }
  if (const std::string_view word = ForeignWord(body); !word.empty()) {
    const ptrdiff_t at = word.data() - body.data();
    if (IsNotFinite(word)) {
      return InvalidArgument(
          "the request is not valid JSON at byte {}: JSON has no {}; a tensor that holds it is "
          "sent as binary data (docs/reference/http.md)",
          at, word);
    }
    return InvalidArgument(
        "the request is not valid JSON at byte {}: '{}' is neither a number nor true, false or "
        "null, and strings stand in double quotes",
        at, Shortened(word, 40));
  }
  if (reason.find("UTF-8") != std::string_view::npos) {
    return InvalidArgument("the request is not valid JSON{}: it is not UTF-8; encode text as UTF-8",
                           ErrorPosition(body));
  }
  // The parser's word for most errors; it says more than is known.
  if (reason.find("improper structure") != std::string_view::npos) {
    reason = "a comma, colon, bracket or brace is missing or too many";
  }
  return InvalidArgument("the request is not valid JSON{}{}{}", ErrorPosition(body),
                         reason.empty() ? "" : ": ", reason);
}

Status GivenTwice(std::string_view field, std::string_view path) {
  if (path.empty()) return InvalidArgument("\"{}\" is given twice", CutText(field, 64));
  return InvalidArgument("\"{}\" is given twice in {}", CutText(field, 64), CutText(path, 256));
}

}  // namespace chairlift::http
