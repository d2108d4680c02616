// LpNormalization: vectors along an axis divided by their 1- or 2-norm; a zero vector stays zero.
#include <cmath>
#include <type_traits>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/normalization/normalization.h"
#include "ops/normalization/rows_simd.h"
#include "ops/ranges.h"
#include "ops/reduction/fold_simd.h"

namespace chairlift {
namespace {

Status InferLpNormalization(InferContext& context) {
  const int64_t p = context.attributes().Int("p", 2);
  if (p != 1 && p != 2) return InvalidArgument("attribute p is {}, not 1 or 2", p);
  context.set_output(0, context.dtype(0), context.shape(0));
  if (!context.shape(0).has_rank()) return absl::OkStatus();
  return NormalizeAxis(context.attributes().Int("axis", -1), context.shape(0).rank()).status();
}

template <typename T>
double Norm(const T* x, int64_t n, int64_t stride, bool squares) {
  if constexpr (std::is_same_v<T, float>) {
    if (stride == 1 && n > 0) {
      const double sum =
          FindFold(squares ? FloatFold::kSumSquare : FloatFold::kSumAbs).row(x, n, 0);
      return squares ? std::sqrt(sum) : sum;
    }
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<double>(x[i * stride]);
    sum += squares ? v * v : std::abs(v);
  }
  return squares ? std::sqrt(sum) : sum;
}

StatusOr<std::unique_ptr<Kernel>> CompileLpNormalization(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                             NormalizeAxis(context.attributes.Int("axis", -1), shape.rank()));
  const bool squares = context.attributes.Int("p", 2) == 2;
  const int64_t n = shape[axis];
  const int64_t inner = shape.NumElements(axis + 1, shape.rank());
  const int64_t lines = shape.NumElements(0, axis) * inner;
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) {
          ForRanges(args.team, lines, lines * n, kMinNormalizedToShare,
                    [&](int64_t first, int64_t last) {
                      for (int64_t line = first; line < last; ++line) {
                        const int64_t start = line / inner * n * inner + line % inner;
                        const T* x = static_cast<const T*>(args.inputs[0]) + start;
                        T* y = static_cast<T*>(args.outputs[0]) + start;
                        const double norm = Norm(x, n, inner, squares);
                        const T scale = norm == 0 ? T{0} : static_cast<T>(1 / norm);
                        for (int64_t i = 0; i < n; ++i) y[i * inner] = x[i * inner] * scale;
                      }
                    });
          return absl::OkStatus();
        });
      });
}

}  // namespace

void RegisterLpNormalization(OperatorRegistry& registry) {
  registry.Add({.name = "LpNormalization",
                .input_types = {kFloatTypes},
                .infer = InferLpNormalization,
                .axes = AxesButOne<-1>,
                .compile = CompileLpNormalization,
                .in_place = true});
}

}  // namespace chairlift
