#include "graph/onnx/contrib/scores.h"

#include <numbers>
#include <utility>

#include "chairlift/text.h"
#include "tensor/dtype.h"

namespace chairlift::contrib {
namespace {

// Formulas over values of the type of `like`.
struct Arithmetic {
  Maker& make;
  ValueId like;

  ValueId Number(double value) { return make.ScalarLike(like, static_cast<float>(value)); }
  ValueId Add(ValueId a, ValueId b) { return make.Make("Add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return make.Make("Sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return make.Make("Mul", {a, b}); }
};

// √2 · erf⁻¹(2x − 1), with the approximation of erf⁻¹ that the standard's reference has.
ValueId Probit(Maker& make, ValueId scores) {
  Arithmetic a{make, scores};
  constexpr double kA = 0.147;
  const ValueId y = a.Sub(a.Mul(scores, a.Number(2)), a.Number(1));
  const ValueId log = make.Make("Log", {a.Mul(a.Sub(a.Number(1), y), a.Add(a.Number(1), y))});
  const ValueId v = a.Add(a.Number(2 / (std::numbers::pi * kA)), a.Mul(a.Number(0.5), log));
  const ValueId root = make.Make("Sqrt", {a.Sub(a.Mul(v, v), a.Mul(a.Number(1 / kA), log))});
  const ValueId size = make.Make("Sqrt", {a.Sub(root, v)});
  return a.Mul(a.Number(std::numbers::sqrt2), a.Mul(make.Make("Sign", {y}), size));
}

// Softmax over the scores that are not 0; the others stay 0.
ValueId SoftmaxZero(Maker& make, ValueId scores) {
  Arithmetic a{make, scores};
  const Attributes keep = With({{"keepdims", int64_t{1}}});
  const ValueId axis = make.Ints({-1});
  const ValueId largest = make.Make("ReduceMax", {scores, axis}, keep);
  const ValueId given = make.Make("Greater", {make.Make("Abs", {scores}), a.Number(1e-7)});
  const ValueId grown = make.Make("Exp", {a.Sub(scores, largest)});
  const ValueId parts = make.Make("Where", {given, grown, a.Number(0)});
  const ValueId whole = make.Make("ReduceSum", {parts, axis}, keep);
  const ValueId none = make.Make("Equal", {whole, a.Number(0)});
  return make.Make("Div", {parts, make.Make("Where", {none, a.Number(1), whole})});
}

}  // namespace

ValueId Transformed(Maker& make, ValueId scores, const std::string& name) {
  if (name == "NONE") return scores;
  if (name == "LOGISTIC") return make.Make("Sigmoid", {scores});
  if (name == "SOFTMAX") return make.Make("Softmax", {scores}, With({{"axis", int64_t{-1}}}));
  if (name == "SOFTMAX_ZERO") return SoftmaxZero(make, scores);
  if (name == "PROBIT") return Probit(make, scores);
  make.Fail(InvalidArgument(
      "its attribute 'post_transform' is '{}'; NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO, PROBIT are",
      name));
  return kNoValue;
}

ValueId Transformed(Maker& make, ValueId scores) {
  return Transformed(make, scores, make.attributes().String("post_transform", "NONE"));
}

Labels ReadLabels(Maker& make, const char* ints, const char* strings) {
  const std::vector<int64_t> numbers = make.attributes().Ints(ints);
  std::vector<std::string> texts = make.attributes().Strings(strings);
  if (numbers.empty() == texts.empty()) {
    make.Fail(InvalidArgument("one of its attributes '{}' and '{}' must be given", ints, strings));
    return {};
  }
  if (!numbers.empty()) return {make.Ints(numbers), static_cast<int64_t>(numbers.size())};
  const auto count = static_cast<int64_t>(texts.size());
  return {make.Constant(TextTensor(Shape{count}, std::move(texts))), count};
}

Status BecomeLabels(Maker& make, const Labels& labels, ValueId index) {
  return make.Become("Gather", {labels.values, index});
}

std::vector<double> TensorNumbers(Maker& make, const std::string& name) {
  const Tensor* const tensor = make.attributes().Find<Tensor>(name);
  std::vector<double> numbers;
  if (tensor == nullptr) return numbers;
  const auto copied = DispatchNumeric(tensor->dtype(), [&]<typename T>() -> Status {
    for (const T value : tensor->values<T>()) numbers.push_back(static_cast<double>(value));
    return absl::OkStatus();
  });
  if (copied.ok()) return numbers;
  const bool half = tensor->dtype() == DType::kFloat16;
  if (half) {
    for (const Float16 value : tensor->values<Float16>()) {
      numbers.push_back(static_cast<float>(value));
    }
    return numbers;
  }
  make.Fail(Annotate(copied, "attribute '" + name + "'"));
  return {};
}

std::vector<double> Numbers(Maker& make, const std::string& name) {
  const std::vector<float> floats = make.attributes().Floats(name);
  if (floats.empty()) return TensorNumbers(make, name + "_as_tensor");
  if (make.attributes().Has(name + "_as_tensor")) {
    make.Fail(InvalidArgument("its attributes '{}' and '{}_as_tensor' are both given", name, name));
  }
  return {floats.begin(), floats.end()};
}

}  // namespace chairlift::contrib
