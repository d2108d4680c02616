// Det: determinants of the square matrices in the last two dimensions, by elimination in double.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/stop_poll.h"
#include "ops/reduction/reduction.h"

namespace chairlift {
namespace {

Status InferDet(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  context.set_output(0, context.dtype(0), SymbolicShape());
  if (!shape.has_rank()) return absl::OkStatus();
  const int rank = shape.rank();
  const bool square = rank >= 2 && (!shape[rank - 2].known() || !shape[rank - 1].known() ||
                                    shape[rank - 2].value() == shape[rank - 1].value());
  if (!square) return InvalidArgument("shape {} is not one of square matrices", shape.ToString());
  std::vector<Dim> dims(shape.dims().begin(), shape.dims().end() - 2);
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

// Overwrites the n × n matrix a. 0 if it is stopped.
double Determinant(double* a, int64_t n, StopPoll& poll) {
  double det = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t r = k + 1; r < n; ++r) {
      if (std::abs(a[r * n + k]) > std::abs(a[pivot * n + k])) pivot = r;
    }
    if (a[pivot * n + k] == 0) return 0;
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
      det = -det;
    }
    det *= a[k * n + k];
    for (int64_t r = k + 1; r < n; ++r) {
      if (poll.Stopped(n - k)) return 0;
      const double factor = a[r * n + k] / a[k * n + k];
      for (int64_t c = k; c < n; ++c) a[r * n + c] -= factor * a[k * n + c];
    }
  }
  return det;
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileForDet(const CompileContext& context) {
  const Shape& shape = context.inputs[0].shape;
  const int64_t n = shape[shape.rank() - 1];
  const int64_t count = context.outputs[0].size();
  return MakeKernel(
      [n, count](const KernelArgs& args) -> Status {
        const T* x = static_cast<const T*>(args.inputs[0]);
        T* y = static_cast<T*>(args.outputs[0]);
        auto* matrix = static_cast<double*>(args.scratch);
        StopPoll poll;
        for (int64_t k = 0; k < count; ++k) {
          std::copy_n(x + k * n * n, n * n, matrix);
          y[k] = static_cast<T>(Determinant(matrix, n, poll));
          if (poll.Stopped()) return StoppedStatus();
        }
        return absl::OkStatus();
      },
      static_cast<size_t>(n * n) * sizeof(double));
}

StatusOr<std::unique_ptr<Kernel>> CompileDet(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() { return CompileForDet<T>(context); });
}

}  // namespace

void RegisterDet(OperatorRegistry& registry) {
  registry.Add({.name = "Det",
                .min_opset = 11,
                .input_types = {kFloatTypes},
                .infer = InferDet,
                .compile = CompileDet});
}

}  // namespace chairlift
