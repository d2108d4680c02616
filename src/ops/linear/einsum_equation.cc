#include "ops/linear/einsum_equation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace chairlift {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One comma-free term: the letters before and after its ellipsis, if it has one.
struct Term {
  std::string before, after;
  bool ellipsis = false;
};

StatusOr<Term> ParseTerm(std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "..." && !term.ellipsis) {
      term.ellipsis = true;
      i += 2;
    } else if (IsLetter(text[i])) {
      (term.ellipsis ? term.after : term.before) += text[i];
    } else {
      return InvalidArgument("Einsum: unexpected '{}' in '{}'", text[i], text);
    }
  }
  return term;
}

// `hidden`: the number of axes of the ellipsis.
std::vector<EinsumLabel> Labels(const Term& term, int hidden) {
  std::vector<EinsumLabel> labels(term.before.begin(), term.before.end());
  for (int i = hidden - 1; i >= 0; --i) labels.push_back(kEllipsisLabel + i);
  labels.insert(labels.end(), term.after.begin(), term.after.end());
  return labels;
}

}  // namespace

StatusOr<EinsumEquation> EinsumEquation::Parse(std::string_view text, std::span<const int> ranks) {
  EinsumEquation equation;
  std::optional<std::string_view> result;
  std::string_view left = text;
  if (const size_t arrow = text.find("->"); arrow != std::string_view::npos) {
    left = text.substr(0, arrow);
    result = text.substr(arrow + 2);
  }
  int hidden_axes = 0;
  std::map<EinsumLabel, int> uses;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t comma = left.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == ranks.size())) {
      return InvalidArgument("Einsum: '{}' does not have {} operands", text, ranks.size());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const Term term, ParseTerm(left.substr(0, comma)));
    if (comma != std::string_view::npos) left.remove_prefix(comma + 1);
    const int named = static_cast<int>(term.before.size() + term.after.size());
    if (named > ranks[i] || (named < ranks[i] && !term.ellipsis)) {
      return InvalidArgument("Einsum: operand {} has {} axes, which '{}' does not name", i,
                             ranks[i], text);
    }
    hidden_axes = std::max(hidden_axes, ranks[i] - named);
    equation.operands.push_back(Labels(term, ranks[i] - named));
    for (EinsumLabel label : equation.operands.back()) ++uses[label];
  }
  if (!result.has_value()) {
    // The ellipsis, then every letter used once, in alphabetical order.
    for (int i = hidden_axes - 1; i >= 0; --i) equation.result.push_back(kEllipsisLabel + i);
    for (const auto& [label, count] : uses) {
      if (label < kEllipsisLabel && count == 1) equation.result.push_back(label);
    }
    return equation;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Term term, ParseTerm(*result));
  equation.result = Labels(term, term.ellipsis ? hidden_axes : 0);
  for (size_t i = 0; i < equation.result.size(); ++i) {
    const EinsumLabel label = equation.result[i];
    if (uses.count(label) == 0 || std::find(equation.result.begin(), equation.result.begin() + i,
                                            label) != equation.result.begin() + i) {
      return InvalidArgument("Einsum: '{}' is not in the operands of '{}', or twice in its result",
                             label < kEllipsisLabel ? static_cast<char>(label) : '.', text);
    }
  }
  return equation;
}

}  // namespace chairlift
