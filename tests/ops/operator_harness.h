// Runs one operator the way the runtime does: shape rule, compile, run. On the CPU, or on the
// device that CHAIRLIFT_TEST_DEVICE names ("cuda"), where that has a kernel for the operands.
#ifndef CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
#define CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status.h"
#include "ops/call_on_device.h"
#include "ops/operator.h"
#include "support/device_under_test.h"

namespace chairlift::testing {

inline Attributes Attrs(std::initializer_list<std::pair<const char*, AttributeValue>> list) {
  Attributes attributes;
  for (const auto& [name, value] : list) attributes.Set(name, value);
  return attributes;
}

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

// Calls move(place in the row-major tensor, place in the blocked one) for every element of a
// tensor of that shape.
inline void ForBlocked(const Shape& shape, absl::FunctionRef<void(int64_t, int64_t)> move) {
  const int64_t block = ChannelBlock(), channels = shape[1], blocks = ChannelBlocks(channels);
  const int64_t size = shape.NumElements(2, shape.rank());
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t i = 0; i < size; ++i) {
        move((n * channels + c) * size + i,
             ((n * blocks + c / block) * size + i) * block + c % block);
      }
    }
  }
}

// A row-major tensor as it lies in blocks of channels.
inline Tensor ToBlocks(const Tensor& t) {
  Tensor out = Tensor::Allocate(
      DType::kFloat, TensorDesc{t.dtype(), t.shape(), Layout::kChannelBlocked}.StoredShape());
  std::fill_n(out.data<float>(), out.size(), 0.0f);
  ForBlocked(t.shape(), [&](int64_t plain, int64_t blocked) {
    out.data<float>()[blocked] = t.data<float>()[plain];
  });
  return out;
}

// And back. What fills up the blocks must be zero: else all of it is NaN, which equals nothing.
inline Tensor FromBlocks(const Tensor& t, const Shape& shape) {
  Tensor rest = t.Clone(), out = Tensor::Allocate(DType::kFloat, shape);
  ForBlocked(shape, [&](int64_t plain, int64_t blocked) {
    out.data<float>()[plain] = t.data<float>()[blocked];
    rest.data<float>()[blocked] = 0;
  });
  const auto filling = rest.values<float>();
  if (std::any_of(filling.begin(), filling.end(), [](float x) { return x != 0; })) {
    std::fill_n(out.data<float>(), out.size(), std::numeric_limits<float>::quiet_NaN());
  }
  return out;
}

// A call compiled for the shapes of its inputs, with its memory.
class CompiledCall {
 public:
  static StatusOr<std::unique_ptr<CompiledCall>> Make(const OperatorCall& call, int width,
                                                      KernelChoice* choice = nullptr) {
    const OperatorDef* def = OperatorRegistry::Builtin().Find(call.domain, call.name);
    if (def == nullptr) return NotFound("operator {}", call.name);
    auto made = std::unique_ptr<CompiledCall>(new CompiledCall(call));
    std::vector<ValueInfo> infos;
    std::vector<TensorDesc> inputs;
    std::vector<const Tensor*> constants(call.inputs.size(), nullptr);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Tensor& t = call.inputs[i];
      infos.push_back({t.dtype(), SymbolicShape(t.shape()), t.present() ? &t : nullptr, {}});
      inputs.push_back({t.dtype(), t.shape()});
      made->input_data_.push_back(t.raw());
      if ((call.blocked.inputs >> i & 1) == 0 || !t.present()) continue;
      made->blocked_inputs_.push_back(ToBlocks(t));
      inputs.back().layout = Layout::kChannelBlocked;
      made->input_data_.back() = std::as_const(made->blocked_inputs_.back()).raw();
    }
    for (int i : call.constants) constants[i] = &made->call_.inputs[i];
    InferContext infer(call.attributes, infos, call.num_outputs);
    CHAIRLIFT_RETURN_IF_ERROR(def->infer(infer));
    for (const ValueInfo& info : infer.outputs()) {
      if (!info.shape.concrete()) {
        return Internal("{}: output shape {} is not concrete", call.name, info.shape.ToString());
      }
      made->outputs_.push_back({info.dtype, info.shape.ToShape()});
      if ((call.blocked.outputs >> made->results_.size() & 1) != 0) {
        made->outputs_.back().layout = Layout::kChannelBlocked;
      }
      made->results_.push_back(Tensor::Allocate(info.dtype, made->outputs_.back().StoredShape()));
      // What a kernel forgets to write shows as NaN or as a negative number.
      std::memset(made->results_.back().raw(), 0xff, made->results_.back().byte_size());
      made->output_data_.push_back(made->results_.back().raw());
    }
    if (def->is_view) return made;
    if (Device* const device = DeviceUnderTest(); device != nullptr && choice == nullptr) {
      std::vector<TensorDesc> plain_inputs = inputs, plain_outputs = made->outputs_;
      for (TensorDesc& desc : plain_inputs) desc.layout = Layout::kRowMajor;
      for (TensorDesc& desc : plain_outputs) desc.layout = Layout::kRowMajor;
      auto there = CallOnDevice::Make(*device, *def,
                                      {call.attributes, plain_inputs, plain_outputs, constants,
                                       made->device_weights_, width, nullptr, *device},
                                      call.inputs);
      if (absl::IsUnimplemented(there.status())) {  // operands that say shapes are constants there
        for (size_t i = 1; i < call.inputs.size(); ++i) {
          if (call.inputs[i].present()) constants[i] = &made->call_.inputs[i];
        }
        there = CallOnDevice::Make(*device, *def,
                                   {call.attributes, plain_inputs, plain_outputs, constants,
                                    made->device_weights_, width, nullptr, *device},
                                   call.inputs);
      }
      if (there.ok()) {
        made->there_ = *std::move(there);
        return made;
      }
      if (!absl::IsUnimplemented(there.status())) return there.status();
      CallOnDevice::NoteRefused(there.status());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        made->kernel_, CompileOperator(*def, {call.attributes, inputs, made->outputs_, constants,
                                              made->weights_, width, choice}));
    made->scratch_ = Tensor::Allocate(DType::kUInt8,
                                      Shape{static_cast<int64_t>(made->kernel_->scratch_bytes())});
    std::memset(made->scratch_.raw(), 0xff, made->scratch_.byte_size());
    return made;
  }

  Status Run(Team& team) {
    if (there_ != nullptr) return there_->Run(team);
    if (kernel_ == nullptr) return absl::OkStatus();  // a view
    return kernel_->Run({input_data_, output_data_, scratch_.raw(), team, 0});
  }

  // Row-major.
  std::vector<Tensor> Results() const {
    if (there_ != nullptr) return there_->results();
    if (kernel_ == nullptr) return {call_.inputs[0].Reshaped(outputs_[0].shape)};
    std::vector<Tensor> results = results_;
    for (size_t i = 0; i < results.size(); ++i) {
      if (outputs_[i].layout == Layout::kChannelBlocked) {
        results[i] = FromBlocks(results[i], outputs_[i].shape);
      }
    }
    return results;
  }

 private:
  explicit CompiledCall(OperatorCall call) : call_(std::move(call)) {}

  const OperatorCall call_;
  std::vector<Tensor> blocked_inputs_, results_;
  std::vector<TensorDesc> outputs_;
  std::vector<const void*> input_data_;
  std::vector<void*> output_data_;
  WeightCache weights_, device_weights_;
  std::unique_ptr<Kernel> kernel_;       // null: a view
  std::unique_ptr<CallOnDevice> there_;  // null: it runs here
  Tensor scratch_;
};

inline StatusOr<std::vector<Tensor>> RunOperator(const OperatorCall& call, Team* team = nullptr) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find(call.domain, call.name);
  SoloTeam solo;
  Team& workers = team != nullptr ? *team : solo;
  if (def != nullptr && def->evaluate != nullptr) {
    return EvaluateOperator(*def, {call.attributes, call.inputs, call.num_outputs, workers, 0});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto compiled, CompiledCall::Make(call, workers.width()));
  CHAIRLIFT_RETURN_IF_ERROR(compiled->Run(workers));
  return compiled->Results();
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_OPERATOR_HARNESS_H_
