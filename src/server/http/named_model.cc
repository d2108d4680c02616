#include "server/http/named_model.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "server/http/text_codec.h"

namespace chairlift::http {
namespace {

constexpr size_t kEndBytes = 4096;
constexpr size_t kLongestName = 1024;
constexpr std::string_view kModelKey = "\"model\"";

size_t SkipBlanks(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// The end of the string that begins with the quote at `at`; text.size() if it has none.
size_t EndOfString(std::string_view text, size_t at) {
  for (++at; at < text.size(); at += 2) {
    at = std::min(text.find_first_of("\"\\", at), text.size());
    if (at < text.size() && text[at] == '"') return at + 1;
  }
  return text.size();
}

// The string after the key that ends at `at`; null if it is another value.
std::string_view StringAfterKey(std::string_view text, size_t at) {
  at = SkipBlanks(text, at);
  if (at >= text.size() || text[at] != ':') return {};
  at = SkipBlanks(text, at + 1);
  if (at >= text.size() || text[at] != '"') return {};
  const size_t end = EndOfString(text, at);
  if (end > text.size() || end < at + 2 || text[end - 1] != '"') return {};
  const std::string_view value = text.substr(at + 1, end - at - 2);
  const bool plain = value.find('\\') == std::string_view::npos;
  return plain && value.size() <= kLongestName ? value : std::string_view();
}

// Whether the brackets in `rest` close what is open by `depth` at the end of it, and not before.
bool EndsOutermost(std::string_view rest, int depth) {
  size_t at = 0;
  while (at < rest.size() && depth > 0) {
    const char c = rest[at];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    at = c == '"' ? EndOfString(rest, at) : at + 1;
  }
  return depth == 0 && SkipBlanks(rest, at) == rest.size();
}

}  // namespace

std::string_view NamedModel(std::string_view body) {
  int depth = 0;
  bool key = false;
  for (size_t at = 0; at < body.size();) {
    at = body.find_first_of("\"{}[],", at);
    if (at == std::string_view::npos) return {};
    const char c = body[at];
    if (c == '"') {
      const size_t end = EndOfString(body, at);
      if (depth == 1 && std::exchange(key, false) && body.substr(at, end - at) == kModelKey) {
        return StringAfterKey(body, end);
      }
      at = end;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth <= 0) return {};
    if (c == '{' || c == ',') key = depth == 1;
    ++at;
  }
  return {};
}

std::string_view NamedModelAtEnds(std::string_view body) {
  const std::string_view first = NamedModel(body.substr(0, kEndBytes));
  if (!first.empty() || body.size() <= kEndBytes) return first;
  const std::string_view tail = body.substr(body.size() - kEndBytes);
  const size_t at = tail.rfind(kModelKey);
  if (at == std::string_view::npos || at == 0 || tail[at - 1] == '\\') return {};
  const std::string_view name = StringAfterKey(tail, at + kModelKey.size());
  if (name.empty()) return {};
  const auto after = static_cast<size_t>(name.data() + name.size() + 1 - tail.data());
  return EndsOutermost(tail.substr(after), 1) ? name : std::string_view();
}

std::string ServedTextModel(Endpoint endpoint, std::string_view model,
                            const protocol::Service& service) {
  std::vector<std::string_view> suffixes;
  switch (endpoint) {
    case Endpoint::kCompletions:
    case Endpoint::kChatCompletions:
      suffixes = {kComplete};
      break;
    case Endpoint::kRerank:
    case Endpoint::kRerankDocuments:
      suffixes = {kRerank};
      break;
    case Endpoint::kPredict:
      suffixes = {kClassify};
      break;
    case Endpoint::kTokenize:
    case Endpoint::kDecode:
      suffixes = {kEmbed, kRerank, kClassify, kComplete};
      break;
    case Endpoint::kByModel:
      suffixes = {kEmbed, kClassify, kRerank};
      break;
    default:
      suffixes = {kEmbed};
  }
  const bool tokenizes = endpoint == Endpoint::kTokenize || endpoint == Endpoint::kDecode;
  for (const std::string_view suffix : suffixes) {
    std::string name(model);
    if (name.empty()) {
      const std::vector<std::string> all = TextModels(suffix, service);
      if (all.size() > 1) return {};
      if (all.empty()) continue;
      name = all[0];
    }
    const std::string served = name + std::string(tokenizes ? kTokenizer : suffix);
    if (service.engine().ModelReady(served, "")) return served;
  }
  return {};
}

}  // namespace chairlift::http
