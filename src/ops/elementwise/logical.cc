// And, Or, Xor, Not of truth values. Bytes are read as integers: any but 0 is true.
#include "ops/elementwise/elementwise.h"

namespace chairlift {
namespace {

struct AndOp {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x != 0) & (y != 0); }
};
struct OrOp {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x | y) != 0; }
};
struct XorOp {
  static uint8_t Apply(uint8_t x, uint8_t y) { return (x != 0) != (y != 0); }
};
struct NotOp {
  static uint8_t Apply(uint8_t x, const ElementParams&) { return x == 0; }
};

Status InferPair(InferContext& context) { return InferBroadcast(context, DType::kBool); }

template <typename Op>
StatusOr<std::unique_ptr<Kernel>> CompilePair(const CompileContext& context) {
  return MakeElementKernel(context, BinaryBlock<Op, uint8_t, uint8_t, uint8_t>);
}

StatusOr<std::unique_ptr<Kernel>> CompileNot(const CompileContext& context) {
  return MakeElementKernel(context, UnaryBlock<NotOp, uint8_t, uint8_t>);
}

template <typename Op>
void RegisterPair(OperatorRegistry& registry, const char* name) {
  registry.Add({.name = name,
                .min_inputs = 2,
                .max_inputs = 2,
                .input_types = {kBoolType},
                .infer = InferPair,
                .compile = CompilePair<Op>,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace

void RegisterLogical(OperatorRegistry& registry) {
  RegisterPair<AndOp>(registry, "And");
  RegisterPair<OrOp>(registry, "Or");
  RegisterPair<XorOp>(registry, "Xor");
  registry.Add({.name = "Not",
                .input_types = {kBoolType},
                .infer = InferSameAsInput,
                .compile = CompileNot,
                .in_place = true,
                .layout_agnostic = true});
}

}  // namespace chairlift
