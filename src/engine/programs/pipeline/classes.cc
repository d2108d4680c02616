#include "engine/programs/pipeline/classes.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "tensor/datatype.h"

namespace chairlift {

Status CheckClasses(const ClassesConfig& config, const Signature& wired) {
  const auto classes = static_cast<int64_t>(config.labels.size());
  for (const SymbolicSpec& output : wired.outputs) {
    if (output.name != config.from) continue;
    const bool fits = output.dtype == DType::kFloat && output.shape.has_rank() &&
                      output.shape.rank() == 2 &&
                      (!output.shape[1].known() || output.shape[1].value() == classes);
    if (fits) return absl::OkStatus();
    return InvalidArgument(
        "output '{}' is {} {}; scores of {} classes are made from FP32 [batch, {}]", config.from,
        DatatypeName(output.dtype), output.shape.ToString(), classes, classes);
  }
  return InvalidArgument("the model has no output '{}'", config.from);
}

StatusOr<Tensor> ClassScores(const ClassesConfig& config, const Tensor& logits) {
  const auto classes = static_cast<int64_t>(config.labels.size());
  if (logits.dtype() != DType::kFloat || logits.shape().rank() != 2 ||
      logits.shape()[1] != classes) {
    return Internal("logits of shape {} are not of {} classes", logits.shape().ToString(), classes);
  }
  Tensor scores = Tensor::Allocate(DType::kFloat, logits.shape());
  for (int64_t row = 0; row < logits.shape()[0]; ++row) {
    const float* const from = logits.data<float>() + row * classes;
    float* const to = scores.data<float>() + row * classes;
    if (config.several) {
      std::transform(from, from + classes, to, [](float x) { return 1 / (1 + std::exp(-x)); });
      continue;
    }
    const float largest = *std::max_element(from, from + classes);
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(double{from[i]} - largest);
    for (int64_t i = 0; i < classes; ++i) {
      to[i] = static_cast<float>(std::exp(double{from[i]} - largest) / sum);
    }
  }
  return scores;
}

}  // namespace chairlift
