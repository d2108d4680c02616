// Rules for numeric operators of domain ai.onnx.ml, in the forms that converters of classical
// models write.
#include <cmath>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"
#include "graph/onnx/contrib/scores.h"

namespace chairlift::contrib {
namespace {

// Input 0 in float32, the type that these operators compute in.
ValueId Real(Maker& make) {
  const DType dtype = make.info(make.in(0)).dtype;
  return dtype == DType::kFloat ? make.in(0) : make.CastToFloat(make.in(0));
}

// One number for all columns of the input, or one per column.
ValueId Columns(Maker& make, const std::vector<float>& values, const char* attribute) {
  const SymbolicShape shape = make.shape(make.in(0));
  if (values.empty() || (values.size() > 1 && shape.has_rank() && shape.rank() > 0 &&
                         shape[shape.rank() - 1].known() &&
                         shape[shape.rank() - 1].value() != static_cast<int64_t>(values.size()))) {
    make.Fail(InvalidArgument("its attribute '{}' has {} values for an input {}", attribute,
                              values.size(), shape.ToString()));
  }
  return make.Floats({static_cast<int64_t>(values.size())}, values);
}

// [rows, columns] · coefficientsᵀ + intercepts, [rows, results].
ValueId LinearScores(Maker& make, int64_t results) {
  const std::vector<float> coefficients = make.attributes().Floats("coefficients");
  const std::vector<float> intercepts = make.attributes().Floats("intercepts");
  const auto size = static_cast<int64_t>(coefficients.size());
  if (make.Rank(make.in(0), "its input") != 2) {
    make.Fail(Unimplemented("an input {} is not supported; [rows,columns] is",
                            make.shape(make.in(0)).ToString()));
  }
  if (results < 1 || size == 0 || size % results != 0 ||
      (!intercepts.empty() && static_cast<int64_t>(intercepts.size()) != results)) {
    make.Fail(InvalidArgument("{} coefficients and {} intercepts do not fit {} results", size,
                              intercepts.size(), results));
  }
  if (!make.ok()) return kNoValue;
  std::vector<ValueId> inputs = {Real(make), make.Floats({results, size / results}, coefficients)};
  if (!intercepts.empty()) inputs.push_back(make.Floats({results}, intercepts));
  return make.Make("Gemm", std::move(inputs), With({{"transB", int64_t{1}}}));
}

}  // namespace

// Selects elements of the last dimension by index.
Status ArrayFeatureExtractor(Maker& make) {
  const int rank = make.Rank(make.in(0), "its input");
  const ValueId index = make.Reshape(make.in(1), {-1});
  const ValueId x = rank == 1 ? make.Unsqueeze(make.in(0), {0}) : make.in(0);
  return make.Become("Gather", {x, index}, With({{"axis", int64_t{-1}}}));
}

Status Binarizer(Maker& make) {
  const ValueId x = make.in(0);
  const ValueId above =
      make.Make("Greater", {x, make.ScalarLike(x, make.attributes().Float("threshold", 0.0f))});
  return make.Become("CastLike", {above, x});
}

// Concatenates the columns of its inputs.
Status FeatureVectorizer(Maker& make) {
  const std::vector<int64_t> columns = make.attributes().Ints("inputdimensions");
  if (columns.size() != make.num_inputs()) {
    return InvalidArgument("its attribute 'inputdimensions' has {} values for {} inputs",
                           columns.size(), make.num_inputs());
  }
  std::vector<ValueId> parts;
  for (size_t i = 0; i < make.num_inputs(); ++i) {
    if (make.Size(make.in(i), 1, "its input") != columns[i]) {
      make.Fail(Unimplemented("input {} {} has to have {} columns", i,
                              make.shape(make.in(i)).ToString(), columns[i]));
    }
    parts.push_back(make.CastToFloat(make.in(i)));
  }
  return make.Become("Concat", std::move(parts), With({{"axis", int64_t{1}}}));
}

// Replaces missing values, NaN by default, by a number for each column.
Status Imputer(Maker& make) {
  const ValueId x = make.in(0);
  const std::vector<int64_t> integers = make.attributes().Ints("imputed_value_int64s");
  if (!integers.empty()) {
    if (make.info(x).dtype != DType::kInt64) {
      return InvalidArgument("its attribute 'imputed_value_int64s' is for int64, not {}",
                             DTypeName(make.info(x).dtype));
    }
    const ValueId missing =
        make.Constant(Tensor::Scalar<int64_t>(make.attributes().Int("replaced_value_int64", 0)));
    return make.Become("Where", {make.Make("Equal", {x, missing}), make.Ints(integers), x});
  }
  if (make.info(x).dtype != DType::kFloat) {
    return Unimplemented("it is only supported for float32, not {}", DTypeName(make.info(x).dtype));
  }
  const float missing = make.attributes().Float("replaced_value_float", 0.0f);
  const ValueId is_missing = std::isnan(missing)
                                 ? make.Make("IsNaN", {x})
                                 : make.Make("Equal", {x, make.ScalarLike(x, missing)});
  const ValueId given =
      Columns(make, make.attributes().Floats("imputed_value_floats"), "imputed_value_floats");
  return make.Become("Where", {is_missing, given, x});
}

// The label of each row's highest score, and the scores. Two labels may have one score, whose sign
// decides.
Status LinearClassifier(Maker& make) {
  const Labels labels = ReadLabels(make, "classlabels_ints", "classlabels_strings");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const auto intercepts = static_cast<int64_t>(make.attributes().Floats("intercepts").size());
  const bool one_score = labels.count == 2 && intercepts == 1;
  if (labels.count < 2 || (intercepts != 0 && !one_score && intercepts != labels.count)) {
    return Unimplemented("{} intercepts for {} labels are not supported; one a label is",
                         intercepts, labels.count);
  }
  const ValueId scores = LinearScores(make, one_score ? 1 : labels.count);
  if (!one_score) {
    if (make.wants(1)) make.MakeOutput(1, "Identity", {Transformed(make, scores)});
    const ValueId best =
        make.Make("ArgMax", {scores}, With({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}));
    return BecomeLabels(make, labels, best);
  }
  if (make.wants(1)) {
    const std::string transform = make.attributes().String("post_transform", "NONE");
    const bool complement = transform == "NONE" || transform == "PROBIT";
    const ValueId other = complement ? make.Make("Sub", {make.ScalarLike(scores, 1), scores})
                                     : make.Make("Neg", {scores});
    const ValueId both = make.Make("Concat", {other, scores}, With({{"axis", int64_t{-1}}}));
    make.MakeOutput(1, "Identity", {Transformed(make, both)});
  }
  const ValueId above = make.Make("Greater", {scores, make.ScalarLike(scores, 0)});
  return BecomeLabels(make, labels, make.CastToInt64(make.Squeeze(above, {1})));
}

Status LinearRegressor(Maker& make) {
  const ValueId scores = LinearScores(make, make.attributes().Int("targets", 1));
  return make.Become("Identity", {Transformed(make, scores)});
}

// Divides rows by their norm; rows of norm 0 are unchanged.
Status Normalizer(Maker& make) {
  const std::string norm = make.attributes().String("norm", "MAX");
  const char* op = norm == "MAX"  ? "ReduceMax"
                   : norm == "L1" ? "ReduceL1"
                   : norm == "L2" ? "ReduceL2"
                                  : nullptr;
  if (op == nullptr) return InvalidArgument("its attribute 'norm' is '{}'; MAX, L1, L2 are", norm);
  const ValueId x = Real(make);
  const ValueId size = make.Make(op, {x, make.Ints({-1})});
  const ValueId divisor = make.Make("Where", {make.Make("Equal", {size, make.ScalarLike(size, 0)}),
                                              make.ScalarLike(size, 1), size});
  return make.Become("Div", {x, divisor});
}

Status Scaler(Maker& make) {
  const ValueId moved =
      make.Make("Sub", {Real(make), Columns(make, make.attributes().Floats("offset"), "offset")});
  return make.Become("Mul", {moved, Columns(make, make.attributes().Floats("scale"), "scale")});
}

}  // namespace chairlift::contrib
