// Rules for loss functions, which a model saved for training ends with.
#include <string>
#include <utility>
#include <vector>

#include "graph/onnx/contrib/maker.h"
#include "graph/onnx/normalise_rules.h"

namespace chairlift::normalise {
namespace {

using contrib::Maker;

// The mean or sum of negative log-probabilities, weighted by class. Inputs: log-probabilities
// [N, C, ...], classes [N, ...] and optional weights [C].
struct Losses {
  ValueId probabilities, classes, weights;
};

ValueId NegativeLogLikelihood(Maker& make, const Losses& given) {
  const std::string reduction = make.attributes().String("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    make.Fail(InvalidArgument("its attribute 'reduction' is '{}'; it must be none, sum or mean",
                              reduction));
    return kNoValue;
  }
  ValueId classes = given.classes, ignored = kNoValue;
  if (const auto* index = make.attributes().Find<int64_t>("ignore_index")) {
    classes = make.CastToInt64(classes);
    ignored = make.Make("Equal", {classes, make.ScalarOf(*index)});
    classes = make.Make("Where", {ignored, make.ScalarOf(0), classes});
  }
  const ValueId picked =
      make.Squeeze(make.Make("GatherElements", {given.probabilities, make.Unsqueeze(classes, {1})},
                             contrib::With({{"axis", int64_t{1}}})),
                   {1});
  ValueId loss = make.Make("Neg", {picked}), weights = kNoValue;
  const ValueId zero = make.ScalarLike(given.probabilities, 0);
  if (given.weights != kNoValue) {
    weights = make.Make("Gather", {given.weights, classes});
    loss = make.Make("Mul", {loss, weights});
  }
  if (ignored != kNoValue) {
    loss = make.Make("Where", {ignored, zero, loss});
    const ValueId counted = weights != kNoValue ? weights : make.ScalarLike(given.probabilities, 1);
    weights = make.Make("Where", {ignored, zero, counted});
  }
  if (reduction == "none") return loss;
  const Attributes all = contrib::With({{"keepdims", int64_t{0}}});
  if (reduction == "mean" && weights == kNoValue) return make.Make("ReduceMean", {loss}, all);
  const ValueId sum = make.Make("ReduceSum", {loss}, all);
  if (reduction == "sum") return sum;
  return make.Make("Div", {sum, make.Make("ReduceSum", {weights}, all)});
}

Status CheckLoss(const Maker& make) {
  if (make.has(0) && make.has(1) && make.num_inputs() <= 3) return absl::OkStatus();
  return InvalidArgument("it takes scores, classes and optional weights, not {} inputs",
                         make.num_inputs());
}

}  // namespace

Status NegativeLogLikelihoodLoss(OnnxNode& node, Rewriter& rewriter) {
  Maker make(node, rewriter);
  CHAIRLIFT_RETURN_IF_ERROR(CheckLoss(make));
  return make.Become("Identity",
                     {NegativeLogLikelihood(make, {make.in(0), make.in(1), make.in(2)})});
}

// Output 1: the log-probabilities.
Status SoftmaxCrossEntropyLoss(OnnxNode& node, Rewriter& rewriter) {
  Maker make(node, rewriter);
  CHAIRLIFT_RETURN_IF_ERROR(CheckLoss(make));
  const ValueId probabilities =
      make.MakeOutput(1, "LogSoftmax", {make.in(0)}, contrib::With({{"axis", int64_t{1}}}));
  return make.Become("Identity",
                     {NegativeLogLikelihood(make, {probabilities, make.in(1), make.in(2)})});
}

}  // namespace chairlift::normalise
