#include "ops/tabular/text_pattern.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "tensor/utf8.h"

namespace chairlift {
namespace {

constexpr size_t kMostSteps = 4096;
constexpr int kDeepestGroup = 32;
constexpr int64_t kMostRepeats = 1000;  // as in RE2
constexpr uint32_t kLastCodePoint = 0x10FFFF;

bool IsWordByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

}  // namespace

bool TextPattern::Step::Takes(uint32_t code) const {
  const bool listed = std::any_of(ranges.begin(), ranges.end(), [code](const auto& range) {
    return range.first <= code && code <= range.second;
  });
  return listed != negated;
}

class TextPattern::Parser {
 public:
  explicit Parser(std::string_view expression) : whole_(expression), rest_(expression) {}

  StatusOr<TextPattern> Run() {
    TextPattern pattern;
    CHAIRLIFT_ASSIGN_OR_RETURN(pattern.steps_, ReadAlternatives(0));
    if (!rest_.empty()) return Unsupported(rest_.substr(0, 1));  // a parenthesis
    return pattern;
  }

 private:
  using Steps = std::vector<Step>;

  Status Unsupported(std::string_view part) const {
    return Unimplemented(
        "the regular expression '{}' has '{}', which is not supported; characters, classes like "
        "[a-z], groups, escapes like \\w and \\b, | ^ $ ? * + and {{n,m}} are",
        whole_, part);
  }

  // Appends `part`, whose jumps are relative to its first step.
  Status Append(Steps& to, const Steps& part) const {
    if (to.size() + part.size() > kMostSteps) {
      return Unimplemented("the regular expression '{}' has more than {} steps", whole_,
                           kMostSteps);
    }
    const size_t base = to.size();
    for (Step step : part) {
      step.to += base;
      to.push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  static Step Go(Step::Kind kind, size_t to) { return {.kind = kind, .to = to}; }

  // Up to a closing parenthesis or the end.
  StatusOr<Steps> ReadAlternatives(int depth) {
    if (depth > kDeepestGroup) return Unsupported("groups nested that deep");
    std::vector<Steps> parts;
    do {
      if (!parts.empty()) rest_.remove_prefix(1);
      CHAIRLIFT_ASSIGN_OR_RETURN(Steps part, ReadSequence(depth));
      parts.push_back(std::move(part));
    } while (rest_.starts_with('|'));
    Steps all = std::move(parts.back());
    for (parts.pop_back(); !parts.empty(); parts.pop_back()) {
      const Steps& part = parts.back();
      Steps both = {Go(Step::kSplit, part.size() + 2)};
      CHAIRLIFT_RETURN_IF_ERROR(Append(both, part));
      both.push_back(Go(Step::kJump, both.size() + 1 + all.size()));
      CHAIRLIFT_RETURN_IF_ERROR(Append(both, all));
      all = std::move(both);
    }
    return all;
  }

  StatusOr<Steps> ReadSequence(int depth) {
    Steps all;
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Steps item, ReadItem(depth));
      CHAIRLIFT_ASSIGN_OR_RETURN(const Steps repeated, Repeated(item));
      CHAIRLIFT_RETURN_IF_ERROR(Append(all, repeated));
    }
    return all;
  }

  StatusOr<Steps> ReadItem(int depth) {
    if (!rest_.starts_with('(')) {
      Step step;
      CHAIRLIFT_RETURN_IF_ERROR(ReadStep(step));
      return Steps{std::move(step)};
    }
    rest_.remove_prefix(1);
    if (rest_.starts_with('?')) {
      if (!rest_.starts_with("?:")) return Unsupported(fmt::format("({}", rest_.substr(0, 2)));
      rest_.remove_prefix(2);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(Steps inside, ReadAlternatives(depth + 1));
    if (rest_.empty()) return InvalidArgument("'{}' has a group without an end", whole_);
    rest_.remove_prefix(1);
    return inside;
  }

  StatusOr<uint32_t> TakeCodePoint() {
    const auto [code, size] = FirstCodePoint(rest_);
    if (size == 0) return InvalidArgument("the regular expression is not UTF-8");
    rest_.remove_prefix(size);
    return code;
  }

  // Reads the set or the character after a backslash.
  Status ReadEscape(Ranges& ranges) {
    if (rest_.empty()) return InvalidArgument("'{}' ends with a backslash", whole_);
    const char c = rest_[0];
    const Ranges digits = {{'0', '9'}}, blanks = {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
    const Ranges words = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const auto add = [&](const Ranges& set, bool complement) {
      if (!complement) {
        ranges.insert(ranges.end(), set.begin(), set.end());
        return;
      }
      uint32_t next = 0;
      for (const auto& [first, last] : set) {
        if (next < first) ranges.emplace_back(next, first - 1);
        next = last + 1;
      }
      ranges.emplace_back(next, kLastCodePoint);
    };
    constexpr std::pair<char, char> kControls[] = {
        {'f', '\f'}, {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'v', '\v'}};
    const auto* const control = std::find_if(std::begin(kControls), std::end(kControls),
                                             [c](const auto& pair) { return pair.first == c; });
    if (c == 'd' || c == 'D') {
      add(digits, c == 'D');
    } else if (c == 's' || c == 'S') {
      add(blanks, c == 'S');
    } else if (c == 'w' || c == 'W') {
      add(words, c == 'W');
    } else if (control != std::end(kControls)) {
      ranges.emplace_back(control->second, control->second);
    } else if (static_cast<unsigned char>(c) < 0x80 && (c == '_' || !IsWordByte(c))) {
      ranges.emplace_back(c, c);
    } else {
      return Unsupported(std::string("\\") + c);
    }
    rest_.remove_prefix(1);
    return absl::OkStatus();
  }

  Status ReadClass(Step& step) {
    step.negated = rest_.starts_with('^');
    if (step.negated) rest_.remove_prefix(1);
    for (bool first = true; first || !rest_.starts_with(']'); first = false) {
      if (rest_.empty()) return InvalidArgument("'{}' has a class without an end", whole_);
      if (rest_.starts_with("[:")) return Unsupported("[:");
      const size_t before = step.ranges.size();
      bool single = true;
      if (rest_[0] == '\\') {
        rest_.remove_prefix(1);
        CHAIRLIFT_RETURN_IF_ERROR(ReadEscape(step.ranges));
        single = step.ranges.size() == before + 1 &&
                 step.ranges.back().first == step.ranges.back().second;
      } else {
        CHAIRLIFT_ASSIGN_OR_RETURN(const uint32_t code, TakeCodePoint());
        step.ranges.emplace_back(code, code);
      }
      if (!single || rest_.size() < 2 || rest_[0] != '-' || rest_[1] == ']') continue;
      rest_.remove_prefix(1);
      uint32_t last = 0;
      if (rest_[0] == '\\') {
        rest_.remove_prefix(1);
        Ranges end;
        CHAIRLIFT_RETURN_IF_ERROR(ReadEscape(end));
        if (end.size() != 1 || end[0].first != end[0].second) return Unsupported("-\\");
        last = end[0].first;
      } else {
        CHAIRLIFT_ASSIGN_OR_RETURN(last, TakeCodePoint());
      }
      if (last < step.ranges.back().first) {
        return InvalidArgument("'{}' has a range that ends before it begins", whole_);
      }
      step.ranges.back().second = last;
    }
    rest_.remove_prefix(1);
    return absl::OkStatus();
  }

  Status ReadStep(Step& step) {
    const char c = rest_[0];
    if (std::string_view("*+?{").find(c) != std::string_view::npos) {
      return Unsupported(std::string_view(&c, 1));
    }
    constexpr std::pair<std::string_view, Step::Kind> kPlaces[] = {
        {"^", Step::kBegin}, {"$", Step::kEnd}, {"\\b", Step::kBoundary}};
    for (const auto& [name, kind] : kPlaces) {
      if (!rest_.starts_with(name)) continue;
      rest_.remove_prefix(name.size());
      step.kind = kind;
      return absl::OkStatus();
    }
    if (c == '[') {
      rest_.remove_prefix(1);
      return ReadClass(step);
    }
    if (c == '\\') {
      rest_.remove_prefix(1);
      return ReadEscape(step.ranges);
    }
    if (c == '.') {
      rest_.remove_prefix(1);
      step.ranges = {{'\n', '\n'}};
      step.negated = true;
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const uint32_t code, TakeCodePoint());
    step.ranges = {{code, code}};
    return absl::OkStatus();
  }

  // The numbers of {n}, {n,} or {n,m}; no maximum is −1.
  Status ReadCounts(int64_t& least, int64_t& most) {
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) return Unsupported("{");
    const std::string_view inside = rest_.substr(1, end - 1);
    const size_t comma = inside.find(',');
    const auto number = [&](std::string_view text, int64_t& value) {
      const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      return error == std::errc() && last == text.data() + text.size() && value >= 0 &&
             value <= kMostRepeats;
    };
    bool valid = number(inside.substr(0, comma), least);
    most = least;
    if (valid && comma != std::string_view::npos) {
      most = -1;
      valid =
          comma + 1 == inside.size() || (number(inside.substr(comma + 1), most) && most >= least);
    }
    if (!valid) return Unsupported(rest_.substr(0, end + 1));
    rest_.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  StatusOr<Steps> Repeated(const Steps& item) {
    int64_t least = 1, most = 1;
    const char c = rest_.empty() ? '\0' : rest_[0];
    if (c == '?' || c == '*' || c == '+') {
      rest_.remove_prefix(1);
      least = c == '+' ? 1 : 0;
      most = c == '?' ? 1 : -1;
    } else if (c == '{') {
      CHAIRLIFT_RETURN_IF_ERROR(ReadCounts(least, most));
    } else {
      return item;
    }
    if (!rest_.empty() && std::string_view("?*+{").find(rest_[0]) != std::string_view::npos) {
      return Unsupported(rest_.substr(0, 1));
    }
    Steps all;
    for (int64_t i = 0; i < least; ++i) CHAIRLIFT_RETURN_IF_ERROR(Append(all, item));
    if (most < 0) {
      const size_t again = all.size();
      all.push_back(Go(Step::kSplit, again + item.size() + 2));
      CHAIRLIFT_RETURN_IF_ERROR(Append(all, item));
      all.push_back(Go(Step::kJump, again));
      return all;
    }
    // Each of the others may be the last.
    const auto others = static_cast<size_t>(most - least);
    const size_t end = all.size() + others * (item.size() + 1);
    for (size_t i = 0; i < others; ++i) {
      all.push_back(Go(Step::kSplit, end));
      CHAIRLIFT_RETURN_IF_ERROR(Append(all, item));
    }
    return all;
  }

  const std::string_view whole_;
  std::string_view rest_;
};

StatusOr<TextPattern> TextPattern::Parse(std::string_view expression) {
  return Parser(expression).Run();
}

void TextPattern::Follow(std::string_view text, size_t at, size_t first,
                         std::vector<size_t>& states, std::vector<size_t>& open) const {
  const bool before = at > 0 && IsWordByte(text[at - 1]);
  const bool after = at < text.size() && IsWordByte(text[at]);
  open.push_back(first);
  while (!open.empty()) {
    const size_t i = open.back();
    open.pop_back();
    const auto reach = [&](size_t to) {
      if (states[to] <= states[i]) return;
      states[to] = states[i];
      if (to < steps_.size() && steps_[to].kind != Step::kSet) open.push_back(to);
    };
    const Step& step = steps_[i];
    const bool passes =
        step.kind == Step::kSplit || (step.kind == Step::kBoundary && before != after) ||
        (step.kind == Step::kBegin && at == 0) || (step.kind == Step::kEnd && at == text.size());
    if (passes) reach(i + 1);
    if (step.kind == Step::kSplit || step.kind == Step::kJump) reach(step.to);
  }
}

// All possible matches advance together. Each step keeps the first byte of the match that began
// earliest, because later ones that reach the same step cannot win.
std::optional<std::pair<size_t, size_t>> TextPattern::Find(std::string_view text,
                                                           size_t from) const {
  constexpr size_t kNone = std::string_view::npos;
  const size_t end = steps_.size();
  std::vector<size_t> states(end + 1, kNone), next(end + 1);
  std::vector<size_t> order, open;
  std::optional<std::pair<size_t, size_t>> best;
  for (size_t at = from;;) {
    if (!best) states[0] = std::min(states[0], at);
    // Follows the steps that take no character, from the earliest match on: each is followed once.
    order.clear();
    for (size_t i = 0; i < end; ++i) {
      if (states[i] != kNone && steps_[i].kind != Step::kSet) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return states[a] < states[b]; });
    for (const size_t first : order) Follow(text, at, first, states, open);
    if (states[end] != kNone && (!best || states[end] <= best->first)) {
      best = {states[end], at};
    }
    if (at >= text.size()) return best;
    const auto [code, size] = FirstCodePoint(text.substr(at));
    std::fill(next.begin(), next.end(), kNone);
    bool any = false;
    for (size_t i = 0; i < end; ++i) {
      const Step& step = steps_[i];
      const bool lost = states[i] == kNone || (best && states[i] > best->first);
      if (lost || step.kind != Step::kSet || !step.Takes(code)) continue;
      next[i + 1] = std::min(next[i + 1], states[i]);
      any = true;
    }
    if (best && !any) return best;
    std::swap(states, next);
    at += std::max<size_t>(size, 1);
  }
}

bool TextPattern::MatchesWhole(std::string_view text) const {
  const auto found = Find(text, 0);
  return found && found->first == 0 && found->second == text.size();
}

}  // namespace chairlift
