// What the linear operators must compute, in double and as their definitions read.
#ifndef CHAIRLIFT_TESTS_OPS_LINEAR_REFERENCE_H_
#define CHAIRLIFT_TESTS_OPS_LINEAR_REFERENCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "chairlift/tensor.h"
#include "ops/random_tensor.h"

namespace chairlift::testing {

inline double ReferenceActivation(const std::string& name, double alpha, double beta, double x) {
  if (name == "Relu") return x > 0 ? x : 0;
  if (name == "LeakyRelu") return x >= 0 ? x : alpha * x;
  if (name == "Clip") return std::min(beta, std::max(alpha, x));
  if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
  if (name == "Tanh") return std::tanh(x);
  if (name == "HardSigmoid") return std::max(0.0, std::min(1.0, alpha * x + beta));
  if (name == "HardSwish") return x * std::max(0.0, std::min(1.0, x / 6 + 0.5));
  if (name == "Silu") return x / (1 + std::exp(-x));
  if (name == "Elu") return x >= 0 ? x : alpha * (std::exp(x) - 1);
  if (name == "Gelu") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (name == "GeluTanh") {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
  }
  return x;
}

// |got − want| ≤ bound · the largest |want|, at least `bound` itself; NaN where NaN is wanted.
inline void ExpectNear(const Tensor& got, const std::vector<double>& want, double bound,
                       const std::string& what) {
  const std::vector<double> values = AsDoubles(got);
  ASSERT_EQ(values.size(), want.size()) << what;
  double range = 1;
  for (double w : want) range = std::max(range, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(values[i])) << values[i] << " in " << what << ", element " << i;
      continue;
    }
    ASSERT_NEAR(values[i], want[i], bound * range) << what << ", element " << i;
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_LINEAR_REFERENCE_H_
