// Max, Min, Sum and Mean of any number of operands, folded from the left.
#include <cstring>
#include <utility>
#include <vector>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"
#include "ops/elementwise/fused_elementwise.h"
#include "ops/extrema.h"
#include "ops/hands_on.h"

namespace chairlift {
namespace {

struct MaxOp {
  static constexpr FloatBinary kFloat = FloatBinary::kMax;
  template <typename T>
  struct For {
    static T Apply(T x, T y) { return Larger(x, y); }
  };
};
struct MinOp {
  static constexpr FloatBinary kFloat = FloatBinary::kMin;
  template <typename T>
  struct For {
    static T Apply(T x, T y) { return Smaller(x, y); }
  };
};
struct SumOp {
  static constexpr FloatBinary kFloat = FloatBinary::kAdd;
  template <typename T>
  struct For {
    static T Apply(T x, T y) { return static_cast<T>(x + y); }
  };
};

// params: the factor.
template <typename T>
struct ScaleOp {
  static T Apply(T x, const ElementParams& p) { return static_cast<T>(x * p[0]); }
};

template <typename Op>
StatusOr<ElementFn> FindVariadic(DType dtype) {
  if (dtype == DType::kFloat) return FindFloatBinary(Op::kFloat);
  return DispatchNumeric(dtype, []<typename T>() {
    return StatusOr<ElementFn>(BinaryBlock<typename Op::template For<T>, T, T, T>);
  });
}

// The first loop reads inputs 0 and 1. The others read the output and one more input each, which
// the output must therefore not overwrite.
template <typename Op, bool kMean>
StatusOr<std::unique_ptr<Kernel>> CompileVariadic(const CompileContext& context) {
  const size_t count = context.inputs.size();
  const TensorDesc& output = context.outputs[0];
  if (count == 1) {
    return MakeKernel([bytes = output.byte_size()](const KernelArgs& args) {
      if (args.outputs[0] != args.inputs[0] && bytes > 0) {
        std::memcpy(args.outputs[0], args.inputs[0], bytes);
      }
      return absl::OkStatus();
    });
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fold, FindVariadic<Op>(output.dtype));
  std::vector<ElementLoop> loops;
  for (size_t k = 1; k < count; ++k) {
    const TensorDesc operands[] = {k == 1 ? context.inputs[0] : output, context.inputs[k]};
    CHAIRLIFT_ASSIGN_OR_RETURN(ElementLoop loop, ElementLoop::Make(operands, output, fold, {}));
    loops.push_back(std::move(loop));
  }
  if (kMean) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn scale, DispatchFloat(output.dtype, []<typename T>() {
                                 return StatusOr<ElementFn>(UnaryBlock<ScaleOp<T>, T, T>);
                               }));
    CHAIRLIFT_ASSIGN_OR_RETURN(
        ElementLoop loop,
        ElementLoop::Make({&output, 1}, output, scale, {1.0 / static_cast<double>(count)}));
    loops.push_back(std::move(loop));
  }
  return MakeKernel([loops = std::move(loops), count](const KernelArgs& args) {
    for (size_t k = 0; k < loops.size(); ++k) {
      const bool scales = k + 1 == count;
      const void* inputs[] = {k == 0 ? args.inputs[0] : args.outputs[0],
                              scales ? nullptr : args.inputs[k + 1]};
      loops[k].Run({inputs, scales ? size_t{1} : size_t{2}}, args.outputs[0], args.team);
    }
    return absl::OkStatus();
  });
}

Status InferVariadic(InferContext& context) { return InferBroadcast(context, context.dtype(0)); }

std::optional<FusedStep> SumStep(const Attributes&, std::span<const ValueInfo> inputs) {
  if (inputs.size() != 2) return std::nullopt;
  return FusedStep{.name = "Add", .operands = {0, 1, -1}};
}

template <typename Op, bool kMean = false>
void Register(OperatorRegistry& registry, const char* name, TypeSet types,
              decltype(OperatorDef::step) step = nullptr) {
  registry.Add({.name = name,
                .min_inputs = 1,
                .max_inputs = OperatorDef::kVariadic,
                .input_types = {types},
                .infer = InferVariadic,
                .axes = ElementwiseAxes,
                .compile = CompileVariadic<Op, kMean>,
                .hands_on = OnlyInputHandsOn,
                .step = step,
                .layout_agnostic = true});
}

}  // namespace

void RegisterVariadic(OperatorRegistry& registry) {
  Register<MaxOp>(registry, "Max", kNumericTypes);
  Register<MinOp>(registry, "Min", kNumericTypes);
  Register<SumOp>(registry, "Sum", kFloatTypes, SumStep);
  Register<SumOp, true>(registry, "Mean", kFloatTypes);
}

}  // namespace chairlift
