// Common part of elementwise operators: registration functions of this folder's files, shape rules,
// and small compile helpers.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_

#include "ops/elementwise/element_loops.h"
#include "ops/operator.h"

namespace chairlift {

void RegisterArithmetic(OperatorRegistry& registry);   // arithmetic.cc: Add, Sub, Mul, Div
void RegisterMath(OperatorRegistry& registry);         // math.cc: Abs, Exp, Sin, ...
void RegisterActivations(OperatorRegistry& registry);  // activations.cc: Relu, Gelu, ...
void RegisterIdentity(OperatorRegistry& registry);     // identity.cc: Identity, Dropout
void RegisterCast(OperatorRegistry& registry);         // cast.cc: Cast, CastLike
void RegisterMod(OperatorRegistry& registry);
void RegisterPow(OperatorRegistry& registry);
void RegisterBitwise(OperatorRegistry& registry);     // bitwise.cc: BitShift, BitwiseAnd, ...
void RegisterLogical(OperatorRegistry& registry);     // logical.cc: And, Or, Xor, Not
void RegisterComparison(OperatorRegistry& registry);  // comparison.cc: Equal, Less, IsNaN, ...
void RegisterVariadic(OperatorRegistry& registry);    // variadic.cc: Max, Min, Sum, Mean
void RegisterWhere(OperatorRegistry& registry);
void RegisterClip(OperatorRegistry& registry);
void RegisterPRelu(OperatorRegistry& registry);
void RegisterFusedElementwise(OperatorRegistry& registry);

// Finds BinaryBlock<Op<T>, T, T, T> among the element types Ts.
template <template <typename> class Op, typename... Ts>
StatusOr<std::unique_ptr<Kernel>> CompileBinary(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ElementFn fn,
                             (DispatchTypes<Ts...>(context.inputs[0].dtype, []<typename T>() {
                               return StatusOr<ElementFn>(BinaryBlock<Op<T>, T, T, T>);
                             })));
  return MakeElementKernel(context, fn);
}

// Output 0 has the type and shape of input 0.
Status InferSameAsInput(InferContext& context);
// The same, and its elements.
Status InferPassedOn(InferContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_ELEMENTWISE_H_
