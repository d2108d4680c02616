// PRelu: x if it is not negative, else slope × x; the slope broadcasts to x.
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"

namespace chairlift {
namespace {

template <typename T>
struct PReluOp {
  static T Apply(T x, T slope) {
    // Integer products wrap around.
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    return x < T{0} ? static_cast<T>(static_cast<Wide>(x) * static_cast<Wide>(slope)) : x;
  }
};

Status InferPrelu(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferBroadcast(context, context.dtype(0)));
  const SymbolicShape& x = context.shape(0);
  const SymbolicShape& out = context.outputs()[0].shape;
  bool grows = x.has_rank() && out.has_rank() && out.rank() > x.rank();
  for (int i = 0; x.has_rank() && out.has_rank() && !grows && i < x.rank(); ++i) {
    grows = x[i].known() && out[i].known() && x[i].value() != out[i].value();
  }
  if (grows) {
    return InvalidArgument("a slope of shape {} does not broadcast to {}",
                           context.shape(1).ToString(), x.ToString());
  }
  context.set_output(0, context.dtype(0), x);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompilePrelu(const CompileContext& context) {
  if (context.inputs[0].dtype == DType::kFloat) {
    return MakeElementKernel(context, FindFloatBinary(FloatBinary::kPRelu));
  }
  return CompileBinary<PReluOp, double, uint32_t, uint64_t, int32_t, int64_t>(context);
}

}  // namespace

void RegisterPRelu(OperatorRegistry& registry) {
  registry.Add({.name = "PRelu",
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kFloatTypes | TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32,
                                                      DType::kUInt64}},
                .infer = InferPrelu,
                .axes = ElementwiseAxes,
                .compile = CompilePrelu,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
