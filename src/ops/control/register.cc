// Contracts of If, Loop and Scan. They have no kernels: the runtime runs their sub-graphs, and
// InferShapes (graph/) infers their outputs from the sub-graphs', which operators cannot see.
#include "ops/register.h"

#include "ops/operator.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

Status InferNothing(InferContext& context) {
  for (int i = 0; i < context.num_outputs(); ++i) {
    context.set_output(i, DType::kUndefined, SymbolicShape());
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterControl(OperatorRegistry& registry) {
  // Inputs beyond those in input_types are captures, which are not included in max_inputs, or a
  // loop's state: of any type.
  registry.Add({.name = "If",
                .max_outputs = OperatorDef::kVariadic,
                .input_types = {kBoolType, kMovableTypes},
                .infer = InferNothing,
                .runs_bodies = true});
  registry.Add({.name = "Loop",
                .min_inputs = 0,  // count and condition may be absent
                .max_inputs = OperatorDef::kVariadic,
                .max_outputs = OperatorDef::kVariadic,
                .input_types = {{DType::kInt64}, kBoolType, kMovableTypes},
                .infer = InferNothing,
                .runs_bodies = true});
  registry.Add({.name = "Scan",
                .max_inputs = OperatorDef::kVariadic,
                .max_outputs = OperatorDef::kVariadic,
                .input_types = {kMovableTypes},
                .infer = InferNothing,
                .runs_bodies = true});
}

}  // namespace chairlift
