// float16/bfloat16 for operators that compute in float: storage types, converted before and after.
#include <algorithm>
#include <cstddef>

#include "device/device.h"
#include "ops/half_simd.h"
#include "ops/operator.h"

namespace chairlift {
namespace {

bool IsHalf(DType dtype) { return kHalfTypes.Contains(dtype); }

void Widen(DType from, const void* src, float* dst, int64_t n) {
  if (from == DType::kFloat16) {
    WidenFloat16(static_cast<const Float16*>(src), dst, n);
  } else {
    WidenBFloat16(static_cast<const BFloat16*>(src), dst, n);
  }
}

void Narrow(DType to, const float* src, void* dst, int64_t n) {
  if (to == DType::kFloat16) {
    NarrowFloat16(src, static_cast<Float16*>(dst), n);
  } else {
    NarrowBFloat16(src, static_cast<BFloat16*>(dst), n);
  }
}

size_t PaddedBytes(size_t bytes) { return (bytes + 127) / 64 * 64; }

// Scratch memory: the inner kernel's, then a float copy of every 16-bit operand.
class HalfKernel final : public Kernel {
 public:
  HalfKernel(std::unique_ptr<Kernel> inner, std::span<const TensorDesc> inputs,
             std::span<const TensorDesc> outputs)
      : inner_(std::move(inner)),
        inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()) {
    scratch_bytes_ = PaddedBytes(inner_->scratch_bytes());
    for (const auto& d : inputs_) scratch_bytes_ += IsHalf(d.dtype) ? PaddedBytes(4 * d.size()) : 0;
    for (const auto& d : outputs_)
      scratch_bytes_ += IsHalf(d.dtype) ? PaddedBytes(4 * d.size()) : 0;
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    absl::InlinedVector<const void*, 8> inputs(args.inputs.begin(), args.inputs.end());
    absl::InlinedVector<void*, 8> outputs(args.outputs.begin(), args.outputs.end());
    auto* next = static_cast<std::byte*>(args.scratch) + PaddedBytes(inner_->scratch_bytes());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!IsHalf(inputs_[i].dtype) || inputs[i] == nullptr) continue;
      Widen(inputs_[i].dtype, inputs[i], reinterpret_cast<float*>(next), inputs_[i].size());
      inputs[i] = next;
      next += PaddedBytes(4 * inputs_[i].size());
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!IsHalf(outputs_[i].dtype) || outputs[i] == nullptr) continue;
      outputs[i] = next;
      next += PaddedBytes(4 * outputs_[i].size());
    }
    CHAIRLIFT_RETURN_IF_ERROR(inner_->Run({{inputs.data(), inputs.size()},
                                           {outputs.data(), outputs.size()},
                                           args.scratch,
                                           args.team,
                                           args.worker}));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!IsHalf(outputs_[i].dtype) || args.outputs[i] == nullptr) continue;
      Narrow(outputs_[i].dtype, static_cast<const float*>(outputs[i]), args.outputs[i],
             outputs_[i].size());
    }
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Kernel> inner_;
  std::vector<TensorDesc> inputs_;
  std::vector<TensorDesc> outputs_;
  size_t scratch_bytes_ = 0;
};

Tensor Widened(const Tensor& t) {
  Tensor wide = Tensor::Allocate(DType::kFloat, t.shape());
  Widen(t.dtype(), t.raw(), wide.data<float>(), t.size());
  return wide;
}

StatusOr<std::unique_ptr<Kernel>> CompileForDevice(const OperatorDef& def,
                                                   const CompileContext& context) {
  StatusOr<std::unique_ptr<Kernel>> kernel = nullptr;
  if (const DeviceKernels* const kernels = context.device.kernels()) {
    kernel = kernels->Compile(def, context);
  }
  if (!kernel.ok()) return Annotate(kernel.status(), def.name);
  if (*kernel != nullptr) return kernel;
  return Unimplemented("operator {} has no kernel for device '{}'", def.name,
                       context.device.name());
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileOperator(const OperatorDef& def,
                                                  const CompileContext& context) {
  if (!context.device.is_host()) return CompileForDevice(def, context);
  const auto is_half = [](const TensorDesc& d) { return IsHalf(d.dtype); };
  const bool half = std::any_of(context.inputs.begin(), context.inputs.end(), is_half) ||
                    std::any_of(context.outputs.begin(), context.outputs.end(), is_half);
  StatusOr<std::unique_ptr<Kernel>> kernel;
  if (def.native_half || !half) {
    kernel = def.compile(context);
  } else {
    std::vector<TensorDesc> inputs(context.inputs.begin(), context.inputs.end());
    std::vector<TensorDesc> outputs(context.outputs.begin(), context.outputs.end());
    for (auto* descs : {&inputs, &outputs}) {
      for (auto& d : *descs) {
        if (IsHalf(d.dtype)) d.dtype = DType::kFloat;
      }
    }
    // Constants are widened in the cache, so that they are still packed only once.
    std::vector<Tensor> wide(context.constants.size());
    std::vector<const Tensor*> constants(context.constants.begin(), context.constants.end());
    for (size_t i = 0; i < constants.size(); ++i) {
      if (constants[i] == nullptr || !IsHalf(constants[i]->dtype())) continue;
      CHAIRLIFT_ASSIGN_OR_RETURN(wide[i], context.weights.Get(*constants[i], "widened", [&] {
        return StatusOr<Tensor>(Widened(*constants[i]));
      }));
      constants[i] = &wide[i];
    }
    kernel = def.compile({context.attributes, inputs, outputs, constants, context.weights,
                          context.width, context.choice});
    if (kernel.ok()) {
      kernel = std::unique_ptr<Kernel>(
          new HalfKernel(*std::move(kernel), context.inputs, context.outputs));
    }
  }
  if (!kernel.ok()) return Annotate(kernel.status(), def.name);
  return kernel;
}

StatusOr<std::vector<Tensor>> EvaluateOperator(const OperatorDef& def,
                                               const EvaluateContext& context) {
  std::vector<Tensor> inputs(context.inputs.begin(), context.inputs.end());
  DType half = DType::kUndefined;
  if (!def.native_half) {
    for (auto& t : inputs) {
      if (!IsHalf(t.dtype())) continue;
      half = t.dtype();
      t = Widened(t);
    }
  }
  auto outputs =
      def.evaluate({context.attributes, inputs, context.num_outputs, context.team, context.worker});
  if (!outputs.ok()) return Annotate(outputs.status(), def.name);
  if (half != DType::kUndefined) {
    for (auto& t : *outputs) {
      if (t.dtype() != DType::kFloat) continue;
      Tensor narrow = Tensor::Allocate(half, t.shape());
      Narrow(half, t.data<float>(), narrow.raw(), t.size());
      t = narrow;
    }
  }
  return outputs;
}

}  // namespace chairlift
