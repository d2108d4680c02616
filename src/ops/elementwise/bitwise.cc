// BitShift and BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot.
#include <string>
#include <type_traits>

#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"

namespace chairlift {
namespace {

// A shift by at least the width, or a negative one, leaves 0, or the sign when shifting to the
// right.
template <typename T>
bool Within(T places) {
  return static_cast<std::make_unsigned_t<T>>(places) < sizeof(T) * 8;
}
template <typename T>
struct ShiftLeftOp {
  static T Apply(T x, T y) {
    using Bits = std::make_unsigned_t<T>;
    return Within(y) ? static_cast<T>(static_cast<Bits>(x) << y) : T{0};
  }
};
template <typename T>
struct ShiftRightOp {
  static T Apply(T x, T y) {
    if (Within(y)) return static_cast<T>(x >> y);
    return x < T{0} ? static_cast<T>(-1) : T{0};
  }
};
template <typename T>
struct AndOp {
  static T Apply(T x, T y) { return static_cast<T>(x & y); }
};
template <typename T>
struct OrOp {
  static T Apply(T x, T y) { return static_cast<T>(x | y); }
};
template <typename T>
struct XorOp {
  static T Apply(T x, T y) { return static_cast<T>(x ^ y); }
};
template <typename T>
struct NotOp {
  static T Apply(T x, const ElementParams&) { return static_cast<T>(~x); }
};

Status InferShift(InferContext& context) {
  const std::string direction = context.attributes().String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return InvalidArgument("attribute direction is '{}', not 'LEFT' or 'RIGHT'", direction);
  }
  return InferBroadcast(context, context.dtype(0));
}

template <template <typename> class Op>
StatusOr<std::unique_ptr<Kernel>> CompilePair(const CompileContext& context) {
  return CompileBinary<Op, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t,
                       uint64_t>(context);
}

StatusOr<std::unique_ptr<Kernel>> CompileShift(const CompileContext& context) {
  return context.attributes.String("direction", "") == "LEFT" ? CompilePair<ShiftLeftOp>(context)
                                                              : CompilePair<ShiftRightOp>(context);
}

Status InferPairBitwise(InferContext& context) { return InferBroadcast(context, context.dtype(0)); }

StatusOr<std::unique_ptr<Kernel>> CompileNot(const CompileContext& context) {
  return DispatchWidth(context.inputs[0].dtype, [&]<typename T>() {
    return MakeElementKernel(context, UnaryBlock<NotOp<T>, T, T>);
  });
}

OperatorDef PairDef(const char* name, int min_opset, TypeSet types,
                    decltype(InferPairBitwise)* infer, decltype(CompileShift)* compile) {
  return {.name = name,
          .min_opset = min_opset,
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {types},
          .infer = infer,
          .axes = ElementwiseAxes,
          .compile = compile,
          .in_place = true,
          .layout_agnostic = true};
}

}  // namespace

void RegisterBitwise(OperatorRegistry& registry) {
  registry.Add(PairDef("BitShift", 11, kIntegerTypes, InferShift, CompileShift));
  registry.Add(PairDef("BitwiseAnd", 18, kIntegerTypes, InferPairBitwise, CompilePair<AndOp>));
  registry.Add(PairDef("BitwiseOr", 18, kIntegerTypes, InferPairBitwise, CompilePair<OrOp>));
  registry.Add(PairDef("BitwiseXor", 18, kIntegerTypes, InferPairBitwise, CompilePair<XorOp>));
  registry.Add({.name = "BitwiseNot",
                .min_opset = 18,
                .input_types = {kIntegerTypes},
                .infer = InferSameAsInput,
                .axes = ElementwiseAxes,
                .compile = CompileNot,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
