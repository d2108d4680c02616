// Runs one operator the way the runtime does: shape rule, compile, run.
#ifndef CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
#define CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/operator.h"

namespace chairlift::testing {

struct OperatorCall {
  std::string name;
  Attributes attributes = {};
  std::vector<Tensor> inputs = {};
  int num_outputs = 1;
  std::string domain = "";
  // Inputs given to compile() as constants (weights), by index.
  std::vector<int> constants = {};
};

inline StatusOr<std::vector<Tensor>> RunOperator(const OperatorCall& call, Team* team = nullptr) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find(call.domain, call.name);
  if (def == nullptr) return NotFound("operator {}", call.name);
  SoloTeam solo;
  Team& workers = team != nullptr ? *team : solo;
  if (def->evaluate != nullptr) {
    return EvaluateOperator(*def, {call.attributes, call.inputs, call.num_outputs, workers, 0});
  }
  std::vector<ValueInfo> infos;
  std::vector<TensorDesc> inputs;
  std::vector<const Tensor*> constants(call.inputs.size(), nullptr);
  std::vector<const void*> input_data;
  for (const Tensor& t : call.inputs) {
    infos.push_back({t.dtype(), SymbolicShape(t.shape()), t.present() ? &t : nullptr, {}});
    inputs.push_back({t.dtype(), t.shape()});
    input_data.push_back(t.raw());
  }
  for (int i : call.constants) constants[i] = &call.inputs[i];
  InferContext infer(call.attributes, infos, call.num_outputs);
  CHAIRLIFT_RETURN_IF_ERROR(def->infer(infer));
  std::vector<TensorDesc> outputs;
  std::vector<Tensor> results;
  std::vector<void*> output_data;
  for (const ValueInfo& info : infer.outputs()) {
    if (!info.shape.concrete()) {
      return Internal("{}: output shape {} is not concrete", call.name, info.shape.ToString());
    }
    outputs.push_back({info.dtype, info.shape.ToShape()});
    results.push_back(Tensor::Allocate(info.dtype, outputs.back().shape));
    output_data.push_back(results.back().raw());
  }
  if (def->is_view) {
    return std::vector<Tensor>{call.inputs[0].Reshaped(outputs[0].shape)};
  }
  WeightCache weights;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      auto kernel, CompileOperator(*def, {call.attributes, inputs, outputs, constants, weights,
                                          workers.width()}));
  const Tensor scratch =
      Tensor::Allocate(DType::kUInt8, Shape{static_cast<int64_t>(kernel->scratch_bytes())});
  CHAIRLIFT_RETURN_IF_ERROR(
      kernel->Run({input_data, output_data, const_cast<void*>(scratch.raw()), workers, 0}));
  return results;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
