// CoupledProbabilities: probabilities of classes from those of every pair of classes.
//
// Input 0, float64 [rows, pairs]: the probability of the first class of each pair (i, j), i < j, in
// order. The output, float64 [rows, classes], minimises the differences between pairs (Wu, Lin,
// Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling, algorithm 2), as
// libsvm does it, with its limits on steps and error.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/tabular/tabular.h"

namespace chairlift {
namespace {

constexpr int64_t kMostCoupled = 4096;

StatusOr<int64_t> CoupledClasses(const Attributes& attributes) {
  const int64_t classes = attributes.Int("classes", 0);
  if (classes >= 2 && classes <= kMostCoupled) return classes;
  return InvalidArgument("{} classes; 2 to {} are supported", classes, kMostCoupled);
}

Status InferCoupled(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t classes, CoupledClasses(context.attributes()));
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, DType::kDouble, SymbolicShape());
  const int64_t pairs = classes * (classes - 1) / 2;
  if (in.rank() != 2 || (in[1].known() && in[1].value() != pairs)) {
    return InvalidArgument("its input {} is not [rows,{}]", in.ToString(), pairs);
  }
  return SetOutput(context, 0, DType::kDouble,
                   SymbolicShape(std::vector<Dim>{in[0], Dim(classes)}));
}

// Space for one row: r and q [classes, classes], qp [classes].
struct Coupling {
  explicit Coupling(int64_t classes) : k(static_cast<size_t>(classes)), r(k * k), q(k * k), qp(k) {}
  size_t k;
  std::vector<double> r, q, qp;

  void Run(const double* pairs, double* p) {
    constexpr double kLeast = 1e-7;
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = i + 1; j < k; ++j) {
        r[i * k + j] = std::clamp(*pairs++, kLeast, 1 - kLeast);
        r[j * k + i] = 1 - r[i * k + j];
      }
    }
    for (size_t i = 0; i < k; ++i) {
      q[i * k + i] = 0;
      for (size_t j = 0; j < k; ++j) {
        if (j == i) continue;
        q[i * k + i] += r[j * k + i] * r[j * k + i];
        q[i * k + j] = -r[j * k + i] * r[i * k + j];
      }
      p[i] = 1.0 / static_cast<double>(k);
    }
    const double enough = 0.005 / static_cast<double>(k);
    const size_t most = std::max<size_t>(100, k);
    for (size_t step = 0; step < most; ++step) {
      double pqp = 0;
      for (size_t i = 0; i < k; ++i) {
        qp[i] = 0;
        for (size_t j = 0; j < k; ++j) qp[i] += q[i * k + j] * p[j];
        pqp += p[i] * qp[i];
      }
      double error = 0;
      for (const double one : qp) error = std::max(error, std::fabs(one - pqp));
      if (error < enough) break;
      for (size_t i = 0; i < k; ++i) Improve(i, pqp, p);
    }
  }

  void Improve(size_t i, double& pqp, double* p) {
    const double diff = (pqp - qp[i]) / q[i * k + i];
    const double whole = 1 + diff;
    p[i] += diff;
    pqp = (pqp + diff * (diff * q[i * k + i] + 2 * qp[i])) / whole / whole;
    for (size_t j = 0; j < k; ++j) {
      qp[j] = (qp[j] + diff * q[i * k + j]) / whole;
      p[j] /= whole;
    }
  }
};

StatusOr<std::unique_ptr<Kernel>> CompileCoupled(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t classes, CoupledClasses(context.attributes));
  const int64_t rows = context.inputs[0].shape[0], pairs = context.inputs[0].shape[1];
  return MakeKernel([=](const KernelArgs& args) {
    const auto* in = static_cast<const double*>(args.inputs[0]);
    auto* out = static_cast<double*>(args.outputs[0]);
    Coupling coupling(classes);
    for (int64_t row = 0; row < rows; ++row) coupling.Run(in + row * pairs, out + row * classes);
    return absl::OkStatus();
  });
}

}  // namespace

void RegisterCoupledProbabilities(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "CoupledProbabilities",
                .input_types = {TypeSet{DType::kDouble}},
                .infer = InferCoupled,
                .axes = FirstAxis<0>,
                .compile = CompileCoupled});
}

}  // namespace chairlift
