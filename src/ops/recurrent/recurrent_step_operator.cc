// chairlift::RecurrentStep: one time step of one direction of an LSTM, GRU or RNN with projected
// input; the body of a recurrent cell.
//
//   h', c' = RecurrentStep(xw [N, G·H], h [N, H], c [N, H], R [G·H, H], Rb [G·H], P [3·H]; cell, …)
//
// `cell` is "LSTM" (G = 4: i, o, f, c), "GRU" (3: z, r, h) or "RNN" (1). xw = x·Wᵀ + Wb. c, P and
// c' exist only for LSTM; Rb and P are optional. activations, activation_alpha, activation_beta,
// clip, input_forget and linear_before_reset are ONNX's, for one direction.
#include <algorithm>

#include "ops/multiply_adds.h"
#include "ops/recurrent/recurrent.h"
#include "ops/recurrent/recurrent_operators.h"

namespace chairlift {
namespace {

template <typename T>
class StepOperatorKernel final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const RecurrentSpec& spec,
                                                   const CompileContext& context) {
    auto kernel = std::unique_ptr<StepOperatorKernel>(new StepOperatorKernel());
    const Shape& state = context.inputs[kStepH].shape;
    kernel->rows_ = state[0];
    kernel->hidden_ = state[1];
    kernel->kernel_ = StepKernel<T>(spec.Step(0, state[1]));
    kernel->parts_ = kernel->kernel_.Parts(state[0], context.width);
    kernel->step_bytes_ = Aligned(kernel->kernel_.ScratchBytes(state[0], kernel->parts_));
    if (const Tensor* r = context.constant(kStepR); r != nullptr) {
      CHAIRLIFT_ASSIGN_OR_RETURN(kernel->packed_,
                                 PackStepWeights(kernel->kernel_.spec(), *r, 0, context.weights));
    } else {
      kernel->packed_bytes_ = Aligned(kernel->kernel_.packed_elements() * sizeof(T));
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  // The step's own scratch memory, R packed if it is not constant, and an output that nothing
  // reads.
  size_t scratch_bytes() const override {
    return step_bytes_ + packed_bytes_ + static_cast<size_t>(rows_ * hidden_) * sizeof(T);
  }

  Status Run(const KernelArgs& args) const override {
    const auto input = [&](size_t i) {
      return i < args.inputs.size() ? static_cast<const T*>(args.inputs[i]) : nullptr;
    };
    auto* scratch = static_cast<std::byte*>(args.scratch);
    StepWeights<T> weights;
    weights.bias = input(kStepBias);
    weights.peepholes = input(kStepPeepholes);
    if (packed_.present()) {
      weights.r = packed_.data<T>();
    } else {
      T* packed = reinterpret_cast<T*>(scratch + step_bytes_);
      kernel_.Pack(input(kStepR), packed);
      weights.r = packed;
    }
    const auto output = [&](size_t i) -> GateRows<T> {
      void* data = i < args.outputs.size() ? args.outputs[i] : nullptr;
      if (data == nullptr) data = scratch + step_bytes_ + packed_bytes_;
      return {static_cast<T*>(data), hidden_};
    };
    StepRows<T> rows;
    rows.count = rows_;
    rows.x = {input(kStepX), kernel_.spec().gates * hidden_};
    rows.h = {input(kStepH), hidden_};
    rows.c = {input(kStepC), hidden_};
    rows.h_next = output(0);
    rows.c_next = output(1);
    kernel_.Step(weights, rows, parts_, args.team, scratch);
    return {};
  }

 private:
  StepOperatorKernel() = default;
  static size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

  int64_t rows_ = 0, hidden_ = 0;
  StepKernel<T> kernel_;
  int parts_ = 1;
  Tensor packed_;
  size_t step_bytes_ = 0, packed_bytes_ = 0;
};

StatusOr<std::unique_ptr<Kernel>> CompileRecurrentStepOperator(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec, ParseStep(context.attributes));
  return CompileFirst(RecurrentStepImplementations(), spec, context);
}

}  // namespace

std::span<const Implementation<RecurrentSpec>> RecurrentStepImplementations() {
  return RecurrentTable<StepOperatorKernel>::kTable;
}

OperatorDef RecurrentStepOperator() {
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "RecurrentStep";
  def.min_inputs = 2;  // the shape rule requires R, which comes after an optional input
  def.max_inputs = 6;
  def.max_outputs = 2;
  def.input_types = {kFloatTypes};
  def.infer = InferStep;
  def.compile = CompileRecurrentStepOperator;
  def.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                         std::span<const TensorDesc>) {
    return static_cast<double>(in[kStepH].shape[0]) * static_cast<double>(in[kStepR].size());
  };
  return def;
}

}  // namespace chairlift
