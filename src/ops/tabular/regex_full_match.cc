// RegexFullMatch: whether the whole of each string matches `pattern` (text_pattern.h).
#include <string>
#include <string_view>
#include <utility>

#include "base/stop_poll.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/tabular/tabular.h"
#include "ops/tabular/text_pattern.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

StatusOr<TextPattern> FullPattern(const Attributes& attributes) {
  return TextPattern::Parse(attributes.String("pattern", ""));
}

Status InferRegexFullMatch(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(FullPattern(context.attributes()).status());
  return SetOutput(context, 0, DType::kBool, context.shape(0));
}

StatusOr<std::unique_ptr<Kernel>> CompileRegexFullMatch(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(TextPattern pattern, FullPattern(context.attributes));
  const int64_t count = context.inputs[0].shape.NumElements();
  return MakeKernel([pattern = std::move(pattern), count](const KernelArgs& args) -> Status {
    const auto* texts = static_cast<const std::string_view*>(args.inputs[0]);
    auto* out = static_cast<bool*>(args.outputs[0]);
    StopPoll poll;
    for (int64_t i = 0; i < count; ++i) {
      CHAIRLIFT_RETURN_IF_ERROR(pattern.Admit(texts[i]));
      out[i] = pattern.MatchesWhole(texts[i]);
      if (poll.Stopped(std::ssize(texts[i]))) return StoppedStatus();
    }
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterRegexFullMatch(OperatorRegistry& registry) {
  registry.Add({.name = "RegexFullMatch",
                .min_opset = 20,
                .input_types = {kTextType},
                .infer = InferRegexFullMatch,
                .axes = ElementwiseAxes,
                .compile = CompileRegexFullMatch});
}

}  // namespace chairlift
