// Runs one operator the way the runtime does: shape rule, compile, run.
#ifndef CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
#define CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_

#include <cstddef>
#include <cstring>
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
  // Operands to hand over channel-blocked: bit i stands for input (output) i. Tensors here stay
  // row-major.
  BlockedForm blocked = {};
};

// Between row-major and channel-blocked float32, element by element.
inline Tensor ChangeLayout(const Tensor& t, bool to_blocked) {
  const Shape& shape = t.shape();
  const int64_t block = ChannelBlock(), channels = shape[1];
  const int64_t size = shape.NumElements(2, shape.rank());
  Tensor out = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < size; ++i) {
        const int64_t plain = (n * channels + c) * size + i;
        const int64_t blocked = n * channels * size + (c / block * size + i) * block + c % block;
        out.data<float>()[to_blocked ? blocked : plain] =
            t.data<float>()[to_blocked ? plain : blocked];
      }
    }
  }
  return out;
}

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
  std::vector<Tensor> blocked_inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& t = call.inputs[i];
    infos.push_back({t.dtype(), SymbolicShape(t.shape()), t.present() ? &t : nullptr, {}});
    inputs.push_back({t.dtype(), t.shape()});
    input_data.push_back(t.raw());
    if ((call.blocked.inputs >> i & 1) == 0 || !t.present()) continue;
    blocked_inputs.push_back(ChangeLayout(t, true));
    inputs.back().layout = Layout::kChannelBlocked;
    input_data.back() = blocked_inputs.back().raw();
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
    if ((call.blocked.outputs >> results.size() & 1) != 0) {
      outputs.back().layout = Layout::kChannelBlocked;
    }
    results.push_back(Tensor::Allocate(info.dtype, outputs.back().shape));
    // What a kernel forgets to write shows as NaN or as a negative number.
    std::memset(results.back().raw(), 0xff, results.back().byte_size());
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
  std::memset(const_cast<void*>(scratch.raw()), 0xff, scratch.byte_size());
  CHAIRLIFT_RETURN_IF_ERROR(
      kernel->Run({input_data, output_data, const_cast<void*>(scratch.raw()), workers, 0}));
  for (size_t i = 0; i < results.size(); ++i) {
    if (outputs[i].layout == Layout::kChannelBlocked) results[i] = ChangeLayout(results[i], false);
  }
  return results;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
