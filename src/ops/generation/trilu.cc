// Trilu: the upper or lower triangle of matrices, zeros elsewhere.
#include <algorithm>
#include <array>
#include <cstring>

#include "ops/axis_map.h"
#include "ops/generation/generation.h"

namespace chairlift {
namespace {

Status InferTrilu(InferContext& context) {
  const SymbolicShape& shape = context.shape(0);
  if (shape.has_rank() && shape.rank() < 2) {
    return InvalidArgument("shape {} is not one of matrices", shape.ToString());
  }
  if (context.has_input(1)) {
    CHAIRLIFT_RETURN_IF_ERROR(KnownScalar(context, 1).status());
  }
  context.set_output(0, context.dtype(0), shape);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileTrilu(const CompileContext& context) {
  const bool upper = context.attributes.Int("upper", 1) != 0;
  const Shape& shape = context.inputs[0].shape;
  const int64_t rows = shape[shape.rank() - 2];
  const int64_t cols = shape[shape.rank() - 1];
  const int64_t total = shape.NumElements(0, shape.rank() - 1);
  const auto bytes = static_cast<int64_t>(DTypeSize(context.inputs[0].dtype));
  if (context.has_input(1) && context.inputs[1].size() != 1) {
    return InvalidArgument("k has {} elements, not 1", context.inputs[1].size());
  }
  return MakeKernel([=](const KernelArgs& args) {
    int64_t k = 0;
    if (args.inputs.size() > 1 && args.inputs[1] != nullptr) {
      k = *static_cast<const int64_t*>(args.inputs[1]);
    }
    k = std::clamp(k, -rows - 1, cols + 1);
    const auto* x = static_cast<const char*>(args.inputs[0]);
    auto* y = static_cast<char*>(args.outputs[0]);
    for (int64_t r = 0; r < total; ++r) {
      // Upper keeps columns from `cut` on, lower those before it.
      const int64_t cut = std::clamp<int64_t>(r % rows + k + (upper ? 0 : 1), 0, cols);
      const auto* from = x + r * cols * bytes;
      auto* to = y + r * cols * bytes;
      const int64_t first = upper ? cut : 0;
      const int64_t last = upper ? cols : cut;
      if (to != from)
        std::memmove(to + first * bytes, from + first * bytes, (last - first) * bytes);
      std::memset(to, 0, first * bytes);
      std::memset(to + last * bytes, 0, (cols - last) * bytes);
    }
    return absl::OkStatus();
  });
}

// Matrices are independent.
StatusOr<AxisMap> AxesOfTrilu(const InferContext& context) {
  return AxesWithout(context, std::to_array<int64_t>({-2, -1}));
}

}  // namespace

void RegisterTrilu(OperatorRegistry& registry) {
  registry.Add({.name = "Trilu",
                .min_opset = 14,
                .max_inputs = 2,
                .input_types = {kAllTypes, TypeSet{DType::kInt64}},
                .infer = InferTrilu,
                .axes = AxesOfTrilu,
                .compile = CompileTrilu,
                .in_place = true,
                .native_half = true});
}

}  // namespace chairlift
