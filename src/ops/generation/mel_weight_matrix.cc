// MelWeightMatrix: triangular filters over the bins of a spectrum, evenly spaced on the mel scale.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/axes.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

double ToMel(double hertz) { return 2595.0 * std::log10(1.0 + hertz / 700.0); }
double ToHertz(double mel) { return 700.0 * (std::pow(10.0, mel / 2595.0) - 1.0); }

Status InferMelWeightMatrix(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const DType dtype,
      TypeAttribute(context.attributes().Int("output_datatype", 1), kNumericTypes));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim filters, ScalarDim(context, 0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dim length, ScalarDim(context, 1));
  Dim bins = length.known() ? Dim(length.value() / 2 + 1) : Dim::Unknown();
  return SetOutput(context, 0, dtype, SymbolicShape({std::move(bins), std::move(filters)}));
}

// The bin of each filter's edge or centre: count + 2 of them, within [0, bins].
StatusOr<std::vector<int64_t>> FilterBins(std::span<const TensorDesc> inputs,
                                          const KernelArgs& args, int64_t count, int64_t bins) {
  const auto at = [&](int i) { return ScalarAt(inputs[i].dtype, args.inputs[i]); };
  const double length = at(1), rate = at(2), low = at(3), high = at(4);
  if (!(rate > 0) || !(low >= 0) || !(high >= low) || std::isinf(high)) {
    return InvalidArgument("sample rate {}, lower edge {} Hz, upper edge {} Hz", rate, low, high);
  }
  const double step = (ToMel(high) - ToMel(low)) / static_cast<double>(count + 2);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count + 2; ++i) {
    const double hertz = ToHertz(ToMel(low) + static_cast<double>(i) * step);
    const double bin = std::floor((length + 1) * hertz / rate);
    out.push_back(static_cast<int64_t>(std::clamp(bin, 0.0, static_cast<double>(bins))));
  }
  return out;
}

template <typename T>
void FillFilter(T* y, int64_t filter, int64_t count, int64_t bins, const int64_t* edges) {
  const auto set = [&](int64_t bin, double weight) {
    if (bin < bins) y[bin * count + filter] = static_cast<T>(weight);
  };
  const int64_t lower = edges[filter], centre = edges[filter + 1], upper = edges[filter + 2];
  if (centre == lower) set(centre, 1);
  for (int64_t j = lower; centre > lower && j <= centre; ++j) {
    set(j, static_cast<double>(j - lower) / static_cast<double>(centre - lower));
  }
  for (int64_t j = centre; j < upper; ++j) {
    set(j, static_cast<double>(upper - j) / static_cast<double>(upper - centre));
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileMelWeightMatrix(const CompileContext& context) {
  const Shape& shape = context.outputs[0].shape;
  const int64_t bins = shape[0];
  const int64_t count = shape[1];
  const std::vector<TensorDesc> inputs(context.inputs.begin(), context.inputs.end());
  return DispatchNumeric(context.outputs[0].dtype,
                         [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
                           return MakeKernel([=](const KernelArgs& args) -> Status {
                             CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int64_t> edges,
                                                        FilterBins(inputs, args, count, bins));
                             T* y = static_cast<T*>(args.outputs[0]);
                             std::fill_n(y, bins * count, T{0});
                             for (int64_t f = 0; f < count; ++f)
                               FillFilter(y, f, count, bins, edges.data());
                             return absl::OkStatus();
                           });
                         });
}

}  // namespace

void RegisterMelWeightMatrix(OperatorRegistry& registry) {
  registry.Add({.name = "MelWeightMatrix",
                .min_opset = 17,
                .min_inputs = 5,
                .max_inputs = 5,
                .input_types = {kIndexTypes, kIndexTypes, kIndexTypes, kFloatTypes, kFloatTypes},
                .infer = InferMelWeightMatrix,
                .compile = CompileMelWeightMatrix});
}

}  // namespace chairlift
