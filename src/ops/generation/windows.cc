// HannWindow, HammingWindow and BlackmanWindow: sums of cosines over a given size.
#include <cmath>
#include <numbers>

#include "ops/axes.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

// c0 − c1 cos(2πi/N) + c2 cos(4πi/N), where N is the size, or one less if not periodic.
struct Coefficients {
  double c0, c1, c2;
};
constexpr Coefficients kHann{0.5, 0.5, 0};
constexpr Coefficients kHamming{25.0 / 46.0, 21.0 / 46.0, 0};
constexpr Coefficients kBlackman{0.42, 0.5, 0.08};

Status InferWindows(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(
      const DType dtype,
      TypeAttribute(context.attributes().Int("output_datatype", 1), kNumericTypes));
  CHAIRLIFT_ASSIGN_OR_RETURN(Dim size, ScalarDim(context, 0));
  return SetOutput(context, 0, dtype, SymbolicShape({std::move(size)}));
}

template <const Coefficients& kCoefficients>
StatusOr<std::unique_ptr<Kernel>> CompileWindows(const CompileContext& context) {
  const bool periodic = context.attributes.Int("periodic", 1) != 0;
  const int64_t size = context.outputs[0].size();
  return DispatchNumeric(
      context.outputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([periodic, size](const KernelArgs& args) {
          T* y = static_cast<T*>(args.outputs[0]);
          const int64_t period = periodic ? size : size - 1;
          for (int64_t i = 0; i < size; ++i) {
            // A symmetric window of one element is its middle.
            const double angle = period == 0 ? std::numbers::pi
                                             : 2 * std::numbers::pi * static_cast<double>(i) /
                                                   static_cast<double>(period);
            y[i] = static_cast<T>(kCoefficients.c0 - kCoefficients.c1 * std::cos(angle) +
                                  kCoefficients.c2 * std::cos(2 * angle));
          }
          return absl::OkStatus();
        });
      });
}

template <const Coefficients& kCoefficients>
void Register(OperatorRegistry& registry, const char* name) {
  registry.Add({.name = name,
                .min_opset = 17,
                .input_types = {kIndexTypes},
                .infer = InferWindows,
                .compile = CompileWindows<kCoefficients>});
}

}  // namespace

void RegisterWindows(OperatorRegistry& registry) {
  Register<kHann>(registry, "HannWindow");
  Register<kHamming>(registry, "HammingWindow");
  Register<kBlackman>(registry, "BlackmanWindow");
}

}  // namespace chairlift
