// StringNormalizer: removes stop words and changes the case of letters.
//
// Letters of all scripts are mapped one by one, as in locale C.UTF-8. Bytes that are not UTF-8 stay
// as they are. If no string is left, the result is one empty string, as ONNX requires.
#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/tabular/tabular.h"
#include "tensor/text_types.h"
#include "tensor/utf8.h"

namespace chairlift {
namespace {

enum class CaseChange : uint8_t { kNone, kLower, kUpper };

// Null if the system has no such locale. Kept for the life of the process.
locale_t LettersOfAllScripts() {
  static const locale_t letters = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return letters;
}

std::string WithCase(std::string_view text, CaseChange change) {
  if (change == CaseChange::kNone) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, size] = FirstCodePoint(text);
    if (size == 0) {
      out.push_back(text[0]);
      text.remove_prefix(1);
      continue;
    }
    const wint_t mapped = change == CaseChange::kLower ? towlower_l(code, LettersOfAllScripts())
                                                       : towupper_l(code, LettersOfAllScripts());
    AppendCodePoint(static_cast<uint32_t>(mapped), out);
    text.remove_prefix(size);
  }
  return out;
}

struct TextRules {
  CaseChange change = CaseChange::kNone;
  bool case_sensitive = false;
  std::set<std::string, std::less<>> stopwords;  // in lower case unless case_sensitive

  bool Stops(std::string_view text) const {
    if (stopwords.empty()) return false;
    return case_sensitive ? stopwords.contains(text)
                          : stopwords.contains(WithCase(text, CaseChange::kLower));
  }
};

StatusOr<TextRules> ReadTextRules(const Attributes& attributes) {
  TextRules rules;
  const std::string change = attributes.String("case_change_action", "NONE");
  if (change != "NONE" && change != "LOWER" && change != "UPPER") {
    return InvalidArgument("its attribute 'case_change_action' is '{}'; NONE, LOWER, UPPER are",
                           change);
  }
  if (change == "LOWER") rules.change = CaseChange::kLower;
  if (change == "UPPER") rules.change = CaseChange::kUpper;
  rules.case_sensitive = attributes.Int("is_case_sensitive", 0) != 0;
  const std::string language = attributes.String("locale", "").substr(0, 2);
  if (language == "tr" || language == "az" || language == "lt") {
    return Unimplemented(
        "locale '{}' has letters of its own in upper and lower case; only the "
        "mapping that other languages share is supported",
        attributes.String("locale", ""));
  }
  const std::vector<std::string> stopwords = attributes.Strings("stopwords");
  const bool maps =
      rules.change != CaseChange::kNone || (!stopwords.empty() && !rules.case_sensitive);
  if (maps && LettersOfAllScripts() == nullptr) {
    return Unimplemented("upper and lower case need locale C.UTF-8, which this system lacks");
  }
  for (const std::string& word : stopwords) {
    rules.stopwords.insert(rules.case_sensitive ? word : WithCase(word, CaseChange::kLower));
  }
  return rules;
}

Status InferStringNormalizer(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, DType::kBytes, SymbolicShape());
  if (in.rank() < 1 || in.rank() > 2) {
    return InvalidArgument("input {} is neither [strings] nor [1,strings]", in.ToString());
  }
  SymbolicShape out = in;
  const bool removes = !context.attributes().Strings("stopwords").empty();
  if (removes) {
    if (in.rank() == 2 && in[0].known() && in[0].value() != 1) {
      return InvalidArgument("input {} has several rows; stop words are removed from one alone",
                             in.ToString());
    }
    out[in.rank() - 1] = Dim::Unknown();
  }
  return SetOutput(context, 0, DType::kBytes, std::move(out));
}

StatusOr<std::vector<Tensor>> EvaluateStringNormalizer(const EvaluateContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const TextRules rules, ReadTextRules(context.attributes));
  const Tensor& x = context.inputs[0];
  std::vector<std::string> texts;
  for (const std::string_view text : TextsOf(x)) {
    if (!rules.Stops(text)) texts.push_back(WithCase(text, rules.change));
  }
  if (rules.stopwords.empty()) return std::vector<Tensor>{TextTensor(x.shape(), std::move(texts))};
  if (x.shape().rank() == 2 && x.shape()[0] != 1) {
    return InvalidArgument("input {} has several rows; stop words are removed from one alone",
                           x.shape().ToString());
  }
  if (texts.empty()) texts.emplace_back();
  Shape shape = x.shape();
  shape[shape.rank() - 1] = static_cast<int64_t>(texts.size());
  return std::vector<Tensor>{TextTensor(shape, std::move(texts))};
}

// Without stop words each string is changed on its own.
StatusOr<AxisMap> AxesOfStringNormalizer(const InferContext& context) {
  if (context.attributes().Strings("stopwords").empty()) return ElementwiseAxes(context);
  AxisMap map = MakeAxisMap(context);
  map.does = "removes stop words from";
  return map;
}

}  // namespace

void RegisterStringNormalizer(OperatorRegistry& registry) {
  registry.Add({.name = "StringNormalizer",
                .min_opset = 10,
                .input_types = {kTextType},
                .infer = InferStringNormalizer,
                .axes = AxesOfStringNormalizer,
                .evaluate = EvaluateStringNormalizer});
}

}  // namespace chairlift
