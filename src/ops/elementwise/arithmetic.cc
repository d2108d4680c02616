// Add, Sub, Mul, Div: broadcast arithmetic of two operands, and of shapes.
//
// Integer results wrap around. Division of an integer by zero gives 0, and the smallest one divided
// by −1 is itself.
#include <type_traits>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/elementwise/element_loops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/float_simd.h"
#include "ops/hands_on.h"

namespace chairlift {
namespace {

// Wide unsigned integers, so that overflow wraps (and uint16 × uint16 does not become int).
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;

struct AddOp {
  static constexpr FloatBinary kFloat = FloatBinary::kAdd;
  template <typename T>
  static T Apply(T x, T y) {
    return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
  }
};
struct SubOp {
  static constexpr FloatBinary kFloat = FloatBinary::kSub;
  template <typename T>
  static T Apply(T x, T y) {
    return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
  }
};
struct MulOp {
  static constexpr FloatBinary kFloat = FloatBinary::kMul;
  template <typename T>
  static T Apply(T x, T y) {
    return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
  }
};
struct DivOp {
  static constexpr FloatBinary kFloat = FloatBinary::kDiv;
  template <typename T>
  static T Apply(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) return 0;
      if constexpr (std::is_signed_v<T>) {
        if (y == -1) return SubOp::Apply<T>(0, x);
      }
    }
    return static_cast<T>(x / y);
  }
};

// The dimension x op y, if it is certain.
template <typename Op>
Dim ApplyToDims(const Dim& x, const Dim& y) {
  if (x.known() && y.known()) {
    const auto result = Op::template Apply<int64_t>(x.value(), y.value());
    return result >= 0 ? Dim(result) : Dim::Unknown();
  }
  const auto is = [](const Dim& d, int64_t value) { return d.known() && d.value() == value; };
  if constexpr (std::is_same_v<Op, MulOp>) {
    return Product(std::vector<Dim>{x, y});
  } else if constexpr (std::is_same_v<Op, DivOp>) {
    if (is(y, 0)) return Dim::Unknown();
    return Quotient({&x, 1}, {&y, 1}).value_or(Dim::Unknown());
  } else {
    if (is(y, 0)) return x;
    return std::is_same_v<Op, AddOp> && is(x, 0) ? y : Dim::Unknown();
  }
}

template <typename Op>
Status InferArithmetic(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(InferBroadcast(context, context.dtype(0)));
  const auto x = ShapeElements(context, 0);
  const auto y = ShapeElements(context, 1);
  const SymbolicShape& shape = context.outputs()[0].shape;
  if (!x || !y || !shape.has_rank() || shape.rank() > 1) return absl::OkStatus();
  const size_t count = std::max(x->size(), y->size());
  if ((x->size() != count && x->size() != 1) || (y->size() != count && y->size() != 1)) {
    return absl::OkStatus();
  }
  std::vector<Dim> elements;
  for (size_t i = 0; i < count; ++i) {
    elements.push_back(ApplyToDims<Op>((*x)[x->size() == 1 ? 0 : i], (*y)[y->size() == 1 ? 0 : i]));
  }
  context.set_output_elements(0, ElementsOfType(context.dtype(0), std::move(elements)));
  return absl::OkStatus();
}

template <typename Op>
struct Typed {
  template <typename T>
  struct For {
    static T Apply(T x, T y) { return Op::template Apply<T>(x, y); }
  };
};

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompileArithmetic(const CompileContext& context) {
  if (context.inputs[0].dtype == DType::kFloat) {
    return MakeElementKernel(context, FindFloatBinary(Op::kFloat));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ElementFn fn, DispatchNumeric(context.inputs[0].dtype, []<typename T>() {
        return StatusOr<ElementFn>(BinaryBlock<typename Typed<Op>::template For<T>, T, T, T>);
      }));
  return MakeElementKernel(context, fn);
}

// x + 0, x − 0, x · 1, x / 1.
template <typename Op>
int ArithmeticHandsOn(const Attributes&, std::span<const ValueInfo> inputs,
                      std::span<const ValueInfo> outputs) {
  constexpr bool kSum = std::is_same_v<Op, AddOp> || std::is_same_v<Op, SubOp>;
  constexpr bool kEither = std::is_same_v<Op, AddOp> || std::is_same_v<Op, MulOp>;
  return NeutralHandsOn(inputs, outputs, kSum ? 0 : 1, kEither);
}

template <typename Op>
void Register(OperatorRegistry& registry, const char* name) {
  registry.Add({.name = name,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kNumericTypes},
                .infer = InferArithmetic<Op>,
                .axes = ElementwiseAxes,
                .compile = CompileArithmetic<Op>,
                .hands_on = ArithmeticHandsOn<Op>,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace

void RegisterArithmetic(OperatorRegistry& registry) {
  Register<AddOp>(registry, "Add");
  Register<SubOp>(registry, "Sub");
  Register<MulOp>(registry, "Mul");
  Register<DivOp>(registry, "Div");
}

}  // namespace chairlift
