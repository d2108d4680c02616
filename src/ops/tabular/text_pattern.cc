#include "ops/tabular/text_pattern.h"

#include <re2/re2.h>

namespace chairlift {
namespace {

// The bytes of a compiled expression and the states that RE2 caches for it; larger ones are
// refused.
constexpr int64_t kMostBytes = 1 << 20;
// Bytes of a text times instructions of the expression: some 20 s if RE2 can cache no state.
constexpr size_t kMostWork = size_t{1} << 32;
constexpr size_t kMostExpressionBytes = 1 << 16;

re2::StringPiece Piece(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

StatusOr<TextPattern> TextPattern::Parse(std::string_view expression) {
  if (expression.size() > kMostExpressionBytes) {
    return InvalidArgument("a regular expression has {} bytes; it may have {}", expression.size(),
                           kMostExpressionBytes);
  }
  re2::RE2::Options options;
  options.set_longest_match(true);
  options.set_log_errors(false);
  options.set_never_capture(true);
  options.set_max_mem(kMostBytes);
  auto pattern = std::make_shared<const re2::RE2>(Piece(expression), options);
  if (pattern->error_code() == re2::RE2::ErrorPatternTooLarge) {
    return InvalidArgument(
        "the regular expression '{}' needs more than {} KiB of memory; repeat less, or smaller "
        "classes",
        expression, kMostBytes >> 10);
  }
  if (!pattern->ok()) {
    return InvalidArgument("the regular expression '{}' is not in RE2's syntax: {}", expression,
                           pattern->error());
  }
  return TextPattern(std::move(pattern));
}

Status TextPattern::Admit(std::string_view text) const {
  const auto instructions = static_cast<size_t>(pattern_->ProgramSize());
  const size_t most = kMostWork / instructions;
  if (text.size() <= most) return absl::OkStatus();
  return ResourceExhausted(
      "a text of {} bytes is too long for the regular expression '{}' of {} instructions; it may "
      "have {} bytes",
      text.size(), pattern_->pattern(), instructions, most);
}

std::optional<std::pair<size_t, size_t>> TextPattern::Find(std::string_view text,
                                                           size_t from) const {
  re2::StringPiece match;
  if (!pattern_->Match(Piece(text), from, text.size(), re2::RE2::UNANCHORED, &match, 1)) {
    return std::nullopt;
  }
  const auto first = static_cast<size_t>(match.data() - text.data());
  return std::pair(first, first + match.size());
}

bool TextPattern::MatchesWhole(std::string_view text) const {
  return pattern_->Match(Piece(text), 0, text.size(), re2::RE2::ANCHOR_BOTH, nullptr, 0);
}

}  // namespace chairlift
