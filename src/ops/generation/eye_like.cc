// EyeLike: ones on a diagonal of a matrix of the input's shape.
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

Status InferEyeLike(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  if (shape.has_rank() && shape.rank() != 2) {
    return InvalidArgument("shape {} is not that of a matrix", shape.ToString());
  }
  DType dtype = context.dtype(0);
  if (context.attributes().Has("dtype")) {
    CHAIRLIFT_ASSIGN_OR_RETURN(dtype,
                               TypeAttribute(context.attributes().Int("dtype", 0), kAllTypes));
  }
  context.set_output(0, dtype, shape.has_rank() ? shape : SymbolicShape::OfRank(2));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileEyeLike(const CompileContext& context) {
  const TensorDesc& out = context.outputs[0];
  const int64_t k = context.attributes.Int("k", 0);
  const int64_t rows = out.shape[0];
  const int64_t cols = out.shape[1];
  return DispatchTypes<float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                       uint32_t, uint64_t, bool>(
      out.dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) {
          T* y = static_cast<T*>(args.outputs[0]);
          for (int64_t r = 0; r < rows; ++r) {
            // k may be any number: it is compared, never added to.
            for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = c - r == k ? T{1} : T{0};
          }
          return absl::OkStatus();
        });
      });
}

}  // namespace

void RegisterEyeLike(OperatorRegistry& registry) {
  registry.Add({.name = "EyeLike",
                .min_opset = 9,
                .input_types = {kAllTypes},
                .infer = InferEyeLike,
                .compile = CompileEyeLike});
}

}  // namespace chairlift
