// chairlift::Tokenizer(texts) → [texts' shape, tokens]: ONNX Runtime's Tokenizer. Tokens are the
// matches of `tokenexp`, or the parts between matches of `separators`, which are applied one after
// the other. Those with fewer than `mincharnum` characters are dropped. Shorter lists are filled up
// with `pad_value`; with `mark`, each begins with byte 2 and ends with byte 3.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stop_poll.h"
#include "chairlift/text.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/tabular/tabular.h"
#include "ops/tabular/text_limit.h"
#include "ops/tabular/text_pattern.h"
#include "tensor/text_types.h"
#include "tensor/utf8.h"

namespace chairlift {
namespace {

struct TokenRules {
  bool characters = false;  // each character is a token
  std::vector<TextPattern> separators;
  std::vector<TextPattern> tokens;  // one, if there are no separators
  size_t least = 1;                 // characters
  std::string pad;
  bool marks = false;
};

StatusOr<TokenRules> ReadTokenRules(const Attributes& attributes) {
  TokenRules rules;
  rules.pad = attributes.String("pad_value", "");
  rules.marks = attributes.Int("mark", 0) != 0;
  constexpr int64_t kMostLeast = 256;  // a match that is too short is searched again
  const int64_t least = attributes.Int("mincharnum", 0);
  if (least < 1 || least > kMostLeast) {
    return InvalidArgument("its attribute 'mincharnum' is {}; it must be from 1 to {}", least,
                           kMostLeast);
  }
  rules.least = static_cast<size_t>(least);
  const std::vector<std::string> separators = attributes.Strings("separators");
  const std::string expression = attributes.String("tokenexp", "");
  if (separators.empty() == expression.empty()) {
    return InvalidArgument("it must have one of the attributes 'separators' and 'tokenexp'");
  }
  rules.characters = expression == "." || (separators.size() == 1 && separators[0].empty());
  if (rules.characters) {
    if (least == 1) return rules;
    return InvalidArgument("its attribute 'mincharnum' is {}, but its tokens have 1 character",
                           least);
  }
  const auto read = [](const std::string& text, std::vector<TextPattern>& to) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::Parse(text));
    if (pattern.matches_empty()) {
      return Unimplemented(
          "the regular expression '{}' matches nothing at all; it must need a "
          "character",
          text);
    }
    to.push_back(std::move(pattern));
    return absl::OkStatus();
  };
  for (const std::string& separator : separators) {
    CHAIRLIFT_RETURN_IF_ERROR(read(separator, rules.separators));
  }
  if (!expression.empty()) CHAIRLIFT_RETURN_IF_ERROR(read(expression, rules.tokens));
  return rules;
}

Status InferTokenizer(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(ReadTokenRules(context.attributes()).status());
  SymbolicShape shape = context.shape(0);
  if (shape.has_rank()) {
    if (shape.rank() < 1 || shape.rank() > 2) {
      return InvalidArgument("input {} is neither [texts] nor [batch,texts]", shape.ToString());
    }
    shape.Append(Dim::Unknown());
  }
  return SetOutput(context, 0, DType::kBytes, std::move(shape));
}

// Its characters; an error if it is not UTF-8.
StatusOr<size_t> CountCharacters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) {
    const size_t size = FirstCodePoint(text).second;
    if (size == 0) return InvalidArgument("a text is not UTF-8");
    text.remove_prefix(size);
  }
  return count;
}

using Tokens = std::vector<std::string_view>;

void AddLongEnough(std::string_view token, const TokenRules& rules, Tokens& tokens) {
  if (CountCharacters(token).value_or(0) >= rules.least) tokens.push_back(token);
}

// Each search may read the rest of the text, so the work can grow with its square.
StatusOr<Tokens> TokensOf(std::string_view text, const TokenRules& rules, StopPoll& poll) {
  for (const std::vector<TextPattern>* patterns : {&rules.tokens, &rules.separators}) {
    for (const TextPattern& pattern : *patterns) {
      CHAIRLIFT_RETURN_IF_ERROR(pattern.Admit(text));
    }
  }
  Tokens tokens;
  if (rules.characters) {
    for (; !text.empty(); text.remove_prefix(tokens.back().size())) {
      tokens.push_back(text.substr(0, FirstCodePoint(text).second));
    }
    return tokens;
  }
  if (!rules.tokens.empty()) {
    for (size_t from = 0; const auto found = rules.tokens[0].Find(text, from);) {
      if (poll.Stopped(std::ssize(text))) return StoppedStatus();
      const size_t before = tokens.size();
      AddLongEnough(text.substr(found->first, found->second - found->first), rules, tokens);
      // A shorter match may begin inside one that is too short.
      from = tokens.size() > before
                 ? found->second
                 : found->first + FirstCodePoint(text.substr(found->first)).second;
    }
    return tokens;
  }
  tokens = {text};
  for (const TextPattern& separator : rules.separators) {
    Tokens pieces;
    for (const std::string_view piece : tokens) {
      size_t from = 0;
      while (const auto found = separator.Find(piece, from)) {
        if (poll.Stopped(std::ssize(piece))) return StoppedStatus();
        AddLongEnough(piece.substr(from, found->first - from), rules, pieces);
        from = found->second;
      }
      AddLongEnough(piece.substr(from), rules, pieces);
    }
    tokens = std::move(pieces);
  }
  return tokens;
}

StatusOr<std::vector<Tensor>> EvaluateTokenizer(const EvaluateContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const TokenRules rules, ReadTokenRules(context.attributes));
  const Tensor& x = context.inputs[0];
  std::vector<Tokens> lists;
  size_t longest = 0, bytes = 0;
  StopPoll poll;
  for (const std::string_view text : TextsOf(x)) {
    CHAIRLIFT_RETURN_IF_ERROR(CountCharacters(text).status());
    CHAIRLIFT_ASSIGN_OR_RETURN(Tokens tokens, TokensOf(text, rules, poll));
    lists.push_back(std::move(tokens));
    longest = std::max(longest, lists.back().size());
    bytes += text.size() + lists.back().size() * sizeof(std::string_view);
    if (bytes > kMostTextBytes) return MoreThanMostTextBytes();
  }
  const size_t marks = longest > 0 && rules.marks ? 2 : 0, width = longest + marks;
  const size_t each = sizeof(std::string) + rules.pad.size();
  if (width > 0 && lists.size() > kMostTextBytes / each / width) return MoreThanMostTextBytes();
  std::vector<std::string> texts;
  for (const Tokens& tokens : lists) {
    if (marks > 0) texts.emplace_back("\x02");
    texts.insert(texts.end(), tokens.begin(), tokens.end());
    if (marks > 0) texts.emplace_back("\x03");
    texts.resize(texts.size() + longest - tokens.size(), rules.pad);
  }
  Shape shape = x.shape();
  shape.Append(static_cast<int64_t>(width));
  return std::vector<Tensor>{TextTensor(shape, std::move(texts))};
}

}  // namespace

void RegisterTokenizer(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "Tokenizer",
                .input_types = {kTextType},
                .infer = InferTokenizer,
                .evaluate = EvaluateTokenizer});
}

}  // namespace chairlift
