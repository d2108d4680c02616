// NumbersOfText and TextOfNumbers: Cast from and to strings.
//
// Numbers are written as in C++: digits, a point and an exponent, or "inf" or "nan" in any case.
// Blanks around a number are allowed. A float is written with the fewest digits that are read back
// as the same number.
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/excerpt.h"
#include "chairlift/text.h"
#include "ops/axis_map.h"
#include "ops/element_type.h"
#include "ops/tabular/tabular.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// False if the text is not one number of type T.
template <typename T>
bool ReadNumber(std::string_view text, T& number) {
  text = Trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && !text.empty() && end == text.data() + text.size();
}

Status InferNumbersOfText(InferContext& context) {
  const DType to = ElementTypeOfOnnx(context.attributes().Int("to", 0));
  if (to == DType::kUndefined) return UnsupportedType(to);
  context.set_output(0, to, context.shape(0));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileNumbersOfText(const CompileContext& context) {
  const int64_t size = context.inputs[0].size();
  const DType to = context.outputs[0].dtype;
  return DispatchTypes<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                       uint32_t, uint64_t>(to, [size, to]<typename T>() {
    return StatusOr<std::unique_ptr<Kernel>>(MakeKernel([size, to](const KernelArgs& args) {
      const auto* x = static_cast<const std::string_view*>(args.inputs[0]);
      auto* out = static_cast<T*>(args.outputs[0]);
      for (int64_t i = 0; i < size; ++i) {
        if (ReadNumber(x[i], out[i])) continue;
        return Status(InvalidArgument("string '{}' is not a number of type {}", Shortened(x[i], 64),
                                      DTypeName(to)));
      }
      return absl::OkStatus();
    }));
  });
}

template <typename T>
std::string NumberAsText(T number) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "INF" : "-INF";
  }
  return fmt::format("{}", number);
}

Status InferTextOfNumbers(InferContext& context) {
  context.set_output(0, DType::kBytes, context.shape(0));
  return absl::OkStatus();
}

StatusOr<std::vector<Tensor>> EvaluateTextOfNumbers(const EvaluateContext& context) {
  const Tensor& x = context.inputs[0];
  constexpr int64_t kMostNumbers = int64_t{1} << 23;  // about 400 MiB of strings
  if (x.size() > kMostNumbers) {
    return absl::OutOfRangeError(fmt::format(
        "its input has {} numbers; at most {} become strings at a time", x.size(), kMostNumbers));
  }
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(x.size()));
  if (x.dtype() == DType::kBool) {
    for (const bool flag : x.values<bool>()) texts.emplace_back(flag ? "1" : "0");
  } else {
    CHAIRLIFT_RETURN_IF_ERROR((DispatchNumeric(x.dtype(), [&]<typename T>() -> Status {
      for (const T number : x.values<T>()) texts.push_back(NumberAsText(number));
      return absl::OkStatus();
    })));
  }
  return std::vector<Tensor>{TextTensor(x.shape(), std::move(texts))};
}

}  // namespace

void RegisterStringCasts(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "NumbersOfText",
                .input_types = {kTextType},
                .infer = InferNumbersOfText,
                .axes = ElementwiseAxes,
                .compile = CompileNumbersOfText});
  registry.Add({.domain = "chairlift",
                .name = "TextOfNumbers",
                .input_types = {kFullFloatTypes | kIntegerTypes | kBoolType},
                .infer = InferTextOfNumbers,
                .axes = ElementwiseAxes,
                .evaluate = EvaluateTextOfNumbers});
}

}  // namespace chairlift
