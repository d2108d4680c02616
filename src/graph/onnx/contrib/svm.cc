// Rules for support vector machines, SVMClassifier and SVMRegressor. They are computed in float64:
// distances are differences of large products.
#include <algorithm>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"
#include "graph/onnx/contrib/scores.h"

namespace chairlift::contrib {
namespace {

constexpr int64_t kMaxVectorNumbers = int64_t{1} << 28;
constexpr int64_t kMaxPairNumbers = int64_t{1} << 26;  // of the tables of all pairs of classes

ValueId DoubleScalar(Maker& make, double value) {
  return make.Constant(Tensor::Scalar<double>(value));
}

ValueId Doubles(Maker& make, const Shape& shape, const std::vector<double>& values) {
  return make.Constant(Tensor::Of<double>(shape, values));
}

std::vector<double> DoublesOf(const Maker& make, const char* name) {
  const std::vector<float> floats = make.attributes().Floats(name);
  return {floats.begin(), floats.end()};
}

// Input 0 as float64 [rows, columns]; `numbers` numbers of the model are vectors of that many
// columns.
ValueId Rows(Maker& make, size_t numbers, int64_t vectors) {
  if (make.Rank(make.in(0), "its input") != 2) {
    make.Fail(Unimplemented("an input {} is not supported; [rows,columns] is",
                            make.shape(make.in(0)).ToString()));
  }
  if (!make.ok()) return kNoValue;
  const Dim columns = make.shape(make.in(0))[1];
  const auto size = static_cast<int64_t>(numbers);
  if (vectors < 1 || size == 0 || size % vectors != 0 || size > kMaxVectorNumbers ||
      (columns.known() && columns.value() != size / vectors)) {
    make.Fail(InvalidArgument("{} numbers do not make {} vectors for an input {}", size, vectors,
                              make.shape(make.in(0)).ToString()));
  }
  return make.CastToDouble(make.in(0));
}

// The kernel of every row with each of `count` vectors, [rows, count].
ValueId KernelValues(Maker& make, ValueId x, const std::vector<double>& vectors, int64_t count,
                     const std::string& kernel) {
  if (!make.ok()) return kNoValue;
  const std::vector<double> parameters = DoublesOf(make, "kernel_params");
  const double gamma = parameters.empty() ? 0 : parameters[0];
  const double coef0 = parameters.size() < 2 ? 0 : parameters[1];
  const double degree = parameters.size() < 3 ? 0 : parameters[2];
  const int64_t columns = static_cast<int64_t>(vectors.size()) / count;
  std::vector<double> transposed(vectors.size());
  std::vector<double> squares(static_cast<size_t>(count), 0.0);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      const double v = vectors[static_cast<size_t>(i * columns + c)];
      transposed[static_cast<size_t>(c * count + i)] = v;
      squares[static_cast<size_t>(i)] += v * v;
    }
  }
  const ValueId dot = make.Make("MatMul", {x, Doubles(make, {columns, count}, transposed)});
  if (kernel == "LINEAR") return dot;
  if (kernel == "RBF") {
    const ValueId own = make.Make("ReduceSumSquare", {x, make.Ints({-1})});
    const ValueId sum = make.Make("Add", {own, Doubles(make, {count}, squares)});
    const ValueId twice = make.Make("Mul", {dot, DoubleScalar(make, 2)});
    const ValueId distance =
        make.Make("Max", {make.Make("Sub", {sum, twice}), DoubleScalar(make, 0)});
    return make.Make("Exp", {make.Make("Mul", {distance, DoubleScalar(make, -gamma)})});
  }
  const ValueId scaled = make.Make(
      "Add", {make.Make("Mul", {dot, DoubleScalar(make, gamma)}), DoubleScalar(make, coef0)});
  if (kernel == "SIGMOID") return make.Make("Tanh", {scaled});
  if (kernel == "POLY") return make.Make("Pow", {scaled, DoubleScalar(make, degree)});
  make.Fail(InvalidArgument("its attribute 'kernel_type' is '{}'; LINEAR, POLY, RBF, SIGMOID are",
                            kernel));
  return kNoValue;
}

// The machines of every pair of classes: how kernel values become their scores, and which class
// each score votes for.
struct Pairs {
  std::vector<double> weights;  // [vectors, pairs]
  // The votes of each class if no score is above 0, [classes], and what changes with each score
  // above 0, [pairs, classes].
  std::vector<float> votes, changes;
  int64_t count = 0;
};

Pairs ReadPairs(const std::vector<double>& coefficients, const std::vector<int64_t>& per_class,
                int64_t vectors) {
  const auto classes = static_cast<int64_t>(per_class.size());
  Pairs pairs;
  pairs.count = classes * (classes - 1) / 2;
  pairs.weights.assign(static_cast<size_t>(vectors * pairs.count), 0.0);
  pairs.changes.assign(static_cast<size_t>(pairs.count * classes), 0.0f);
  pairs.votes.assign(static_cast<size_t>(classes), 0.0f);
  std::vector<int64_t> starts = {0};
  for (const int64_t count : per_class) starts.push_back(starts.back() + count);
  int64_t pair = 0;
  const auto take = [&](int64_t of, int64_t row) {
    for (int64_t v = starts[static_cast<size_t>(of)]; v < starts[static_cast<size_t>(of) + 1];
         ++v) {
      pairs.weights[static_cast<size_t>(v * pairs.count + pair)] =
          coefficients[static_cast<size_t>(row * vectors + v)];
    }
  };
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      take(i, j - 1);
      take(j, i);
      pairs.changes[static_cast<size_t>(pair * classes + i)] = 1;
      pairs.changes[static_cast<size_t>(pair * classes + j)] = -1;
      pairs.votes[static_cast<size_t>(j)] += 1;
    }
  }
  return pairs;
}

ValueId Best(Maker& make, ValueId scores) {
  return make.Make("ArgMax", {scores}, With({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}));
}

Status LinearMachines(Maker& make, const Labels& labels) {
  const std::vector<double> coefficients = DoublesOf(make, "coefficients");
  const std::vector<double> rho = DoublesOf(make, "rho");
  if (rho.empty()) return InvalidArgument("its attribute 'rho' is missing");
  const ValueId x = Rows(make, coefficients.size(), labels.count);
  const ValueId dot = KernelValues(make, x, coefficients, labels.count, "LINEAR");
  const ValueId scores = make.Make("Add", {dot, DoubleScalar(make, rho[0])});
  if (make.wants(1)) {
    make.MakeOutput(1, "Identity", {Transformed(make, make.CastToFloat(scores))});
  }
  return BecomeLabels(make, labels, Best(make, scores));
}

}  // namespace

Status SvmClassifier(Maker& make) {
  const Attributes& attributes = make.attributes();
  const Labels labels = ReadLabels(make, "classlabels_ints", "classlabels_strings");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const std::vector<int64_t> per_class = attributes.Ints("vectors_per_class");
  int64_t vectors = 0;
  for (const int64_t count : per_class) {
    if (count < 0 || count > kMaxVectorNumbers - vectors) {
      return InvalidArgument("a class of {} support vectors", count);
    }
    vectors += count;
  }
  if (vectors == 0) return LinearMachines(make, labels);
  const int64_t classes = labels.count;
  const std::vector<double> coefficients = DoublesOf(make, "coefficients");
  const std::vector<double> rho = DoublesOf(make, "rho");
  const std::vector<double> support = DoublesOf(make, "support_vectors");
  const std::vector<double> prob_a = DoublesOf(make, "prob_a");
  const std::vector<double> prob_b = DoublesOf(make, "prob_b");
  constexpr int64_t kMostClasses = 4096;
  if (classes < 2 || classes > kMostClasses || static_cast<int64_t>(per_class.size()) != classes) {
    return InvalidArgument("{} labels and {} counts of support vectors do not fit together",
                           classes, per_class.size());
  }
  const int64_t pair_count = classes * (classes - 1) / 2;
  if (vectors + classes > kMaxPairNumbers / pair_count) {
    return Unimplemented(
        "{} classes with {} support vectors together are not supported: the tables of {} pairs of "
        "classes are too large; machines of one class against the rest need none",
        classes, vectors, pair_count);
  }
  if (static_cast<int64_t>(coefficients.size()) != (classes - 1) * vectors ||
      static_cast<int64_t>(rho.size()) < pair_count || prob_a.size() != prob_b.size() ||
      (!prob_a.empty() && static_cast<int64_t>(prob_a.size()) < pair_count)) {
    return InvalidArgument(
        "its attributes do not fit {} classes with {} support vectors: {} coefficients, {} rho, {} "
        "prob_a, {} prob_b",
        classes, vectors, coefficients.size(), rho.size(), prob_a.size(), prob_b.size());
  }
  const Pairs pairs = ReadPairs(coefficients, per_class, vectors);
  const auto first = [pair_count](std::vector<double> values) {
    values.resize(static_cast<size_t>(pair_count));
    return values;
  };
  const ValueId x = Rows(make, support.size(), vectors);
  const ValueId kernels =
      KernelValues(make, x, support, vectors, attributes.String("kernel_type", "LINEAR"));
  const ValueId scores = make.Make(
      "Add", {make.Make("MatMul", {kernels, Doubles(make, {vectors, pair_count}, pairs.weights)}),
              Doubles(make, {pair_count}, first(rho))});
  const ValueId wins = make.Make("Greater", {scores, DoubleScalar(make, 0)});
  const ValueId votes =
      make.Make("Add", {make.Make("MatMul", {make.CastToFloat(wins),
                                             make.Floats({pair_count, classes}, pairs.changes)}),
                        make.Floats({classes}, pairs.votes)});
  if (make.wants(1)) {
    ValueId out = scores;
    if (!prob_a.empty()) {
      const ValueId fitted =
          make.Make("Add", {make.Make("Mul", {scores, Doubles(make, {pair_count}, first(prob_a))}),
                            Doubles(make, {pair_count}, first(prob_b))});
      const ValueId pairwise = make.Make("Sigmoid", {make.Make("Neg", {fitted})});
      out = make.MakeOwn("CoupledProbabilities", {pairwise}, With({{"classes", classes}}));
    } else if (classes == 2) {
      const std::string transform = attributes.String("post_transform", "NONE");
      const bool negated = transform == "NONE" || transform == "LOGISTIC";
      const ValueId other =
          negated ? make.Make("Neg", {scores}) : make.Make("Sub", {DoubleScalar(make, 1), scores});
      out = make.Make("Concat", {other, scores}, With({{"axis", int64_t{-1}}}));
    }
    make.MakeOutput(1, "Identity", {Transformed(make, make.CastToFloat(out))});
  }
  return BecomeLabels(make, labels, Best(make, votes));
}

Status SvmRegressor(Maker& make) {
  const Attributes& attributes = make.attributes();
  const std::vector<double> coefficients = DoublesOf(make, "coefficients");
  const std::vector<double> rho = DoublesOf(make, "rho");
  const int64_t vectors = attributes.Int("n_supports", 0);
  if (rho.empty()) return InvalidArgument("its attribute 'rho' is missing");
  ValueId sum = kNoValue;
  if (vectors > 0) {
    const std::vector<double> support = DoublesOf(make, "support_vectors");
    if (static_cast<int64_t>(coefficients.size()) != vectors) {
      return InvalidArgument("{} coefficients for {} support vectors", coefficients.size(),
                             vectors);
    }
    const ValueId x = Rows(make, support.size(), vectors);
    const ValueId kernels =
        KernelValues(make, x, support, vectors, attributes.String("kernel_type", "LINEAR"));
    sum = make.Make("MatMul", {kernels, Doubles(make, {vectors, 1}, coefficients)});
  } else {
    sum = KernelValues(make, Rows(make, coefficients.size(), 1), coefficients, 1, "LINEAR");
  }
  const ValueId score = make.Make("Add", {sum, DoubleScalar(make, rho[0])});
  if (attributes.Int("one_class", 0) != 0) {
    const ValueId inside = make.Make("Greater", {score, DoubleScalar(make, 0)});
    return make.Become("Where", {inside, make.Floats({}, {1.0f}), make.Floats({}, {-1.0f})});
  }
  return make.Become("Identity", {Transformed(make, make.CastToFloat(score))});
}

}  // namespace chairlift::contrib
