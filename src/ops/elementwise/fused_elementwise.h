// Several elementwise float32 operators as one: the computation of chairlift::FusedElementwise, and
// the operators that may be part of it.
#ifndef CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ELEMENTWISE_H_
#define CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ELEMENTWISE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/attributes.h"
#include "ops/operator.h"

namespace chairlift {

// An operator that may be a step, under its own name in ai.onnx or domain chairlift. Gelu's two
// forms are Gelu and GeluTanh.
struct FusableOperator {
  std::string_view name;
  int operands;
  // Attributes that are the step's parameters; empty if there are none.
  std::string_view alpha = {};
  float alpha_default = 0;
  std::string_view beta = {};
  float beta_default = 0;
};
// Null if the operator cannot be a step.
const FusableOperator* FindFusable(std::string_view name);

struct FusedStep {
  static constexpr int kMaxOperands = 3;

  std::string name;  // of a FusableOperator
  // The node's inputs by number, followed by the results of earlier steps; −1 beyond the operator's
  // operands.
  std::array<int64_t, kMaxOperands> operands = {-1, -1, -1};
  float alpha = 0;  // Clip: the lower bound
  float beta = 0;   // Clip: the upper bound
};

// The node as a step whose operands are its inputs by number. They must have the types that the
// step supports, by the operator's own rule (OperatorDef::step) or by its name.
std::optional<FusedStep> StepOf(const OperatorDef& def, const Attributes& attributes,
                                std::span<const ValueInfo> inputs);

// The steps in order; the last one's result is the node's. Inputs broadcast to it, and every step's
// result has its shape.
struct FusedProgram {
  static constexpr int kMaxInputs = 8;
  static constexpr int kMaxSteps = 24;

  std::vector<FusedStep> steps;

  void Store(Attributes& attributes) const;
  // InvalidArgument if the attributes are not a program with this number of inputs.
  static StatusOr<FusedProgram> Load(const Attributes& attributes, int num_inputs);
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ELEMENTWISE_FUSED_ELEMENTWISE_H_
