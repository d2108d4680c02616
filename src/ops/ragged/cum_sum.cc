// chairlift::RaggedCumSum(x [T, ...], offsets) -> y [T, ...]: running sums along each sequence.
// Attributes as in CumSum: exclusive (0), reverse (0).
#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/ragged/ragged.h"

namespace chairlift {
namespace {

Status InferRaggedCumSum(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(SequencesOf(context, 1).status());
  if (context.shape(0).has_rank() && context.shape(0).rank() == 0) {
    return InvalidArgument("input 0 is a scalar");
  }
  context.set_output(0, context.dtype(0), context.shape(0));
  return absl::OkStatus();
}

template <typename T>
std::unique_ptr<Kernel> Make(const CompileContext& context) {
  const bool exclusive = context.attributes.Int("exclusive", 0) != 0;
  const bool reverse = context.attributes.Int("reverse", 0) != 0;
  const Shape& shape = context.inputs[0].shape;
  const int64_t columns = shape.NumElements(1, shape.rank());
  return MakeKernel(
      [=, tokens = shape[0], desc = context.inputs[1]](const KernelArgs& args) -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 1, desc, tokens));
        const auto* x = static_cast<const T*>(args.inputs[0]);
        auto* y = static_cast<T*>(args.outputs[0]);
        // Integer sums wrap around.
        using Sum = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
        for (size_t s = 0; s + 1 < offsets.size(); ++s) {
          for (int64_t c = 0; c < columns; ++c) {
            Sum sum = 0;
            for (int64_t i = 0; i < offsets[s + 1] - offsets[s]; ++i) {
              const int64_t token = reverse ? offsets[s + 1] - 1 - i : offsets[s] + i;
              const auto v = static_cast<Sum>(x[token * columns + c]);
              y[token * columns + c] = static_cast<T>(exclusive ? sum : sum + v);
              sum += v;
            }
          }
        }
        std::fill(y + offsets.back() * columns, y + tokens * columns, T{});
        return absl::OkStatus();
      });
}

StatusOr<std::unique_ptr<Kernel>> CompileCumSum(const CompileContext& context) {
  return DispatchTypes<float, double, int32_t, int64_t, uint32_t, uint64_t>(
      context.inputs[0].dtype,
      [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> { return Make<T>(context); });
}

}  // namespace

void RegisterRaggedCumSum(OperatorRegistry& registry) {
  registry.Add({.domain = "chairlift",
                .name = "RaggedCumSum",
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kFloatTypes | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32,
                                                      DType::kUInt64},
                                TypeSet{DType::kInt64}},
                .infer = InferRaggedCumSum,
                .compile = CompileCumSum});
}

}  // namespace chairlift
