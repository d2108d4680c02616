// And, Or, Xor, Not of bools. Bytes are read as integers: anything but 0 is true.
#include "ops/axis_map.h"
#include "ops/elementwise/elementwise.h"

namespace chairlift {
namespace {

struct LogicalAnd {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x != 0) & (y != 0); }
};
struct LogicalOr {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x | y) != 0; }
};
struct LogicalXor {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x != 0) != (y != 0); }
};
struct LogicalNot {
  static uint8_t Apply(uint8_t x, const ElementParams&) { return x == 0; }
};

Status InferPairLogical(InferContext& context) { return InferBroadcast(context, DType::kBool); }

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompilePair(const CompileContext& context) {
  return MakeElementKernel(context, BinaryBlock<Op, uint8_t, uint8_t, uint8_t>);
}

StatusOr<std::unique_ptr<Kernel>> CompileLogicalNot(const CompileContext& context) {
  return MakeElementKernel(context, UnaryBlock<LogicalNot, uint8_t, uint8_t>);
}

template <typename Op>
void RegisterPair(OperatorRegistry& registry, const char* name) {
  registry.Add({.name = name,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kBoolType},
                .infer = InferPairLogical,
                .axes = ElementwiseAxes,
                .compile = CompilePair<Op>,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace

void RegisterLogical(OperatorRegistry& registry) {
  RegisterPair<LogicalAnd>(registry, "And");
  RegisterPair<LogicalOr>(registry, "Or");
  RegisterPair<LogicalXor>(registry, "Xor");
  registry.Add({.name = "Not",
                .input_types = {kBoolType},
                .infer = InferSameAsInput,
                .axes = ElementwiseAxes,
                .compile = CompileLogicalNot,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
