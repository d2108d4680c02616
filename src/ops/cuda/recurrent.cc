// LSTM, GRU, RNN, chairlift::RecurrentStep and chairlift::LstmGates on a GPU.
//
// A layer projects all its input in one product. Each time step is then one product of the states
// of both directions with R, and one kernel of gate arithmetic (two of each for a GRU whose reset
// gate comes before the product). Lengths stay on the device: a row that has ended keeps its state.
#include "ops/cuda/recurrent.cuh"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/cuda/cublas.h"
#include "ops/cuda/kernels.h"
#include "ops/recurrent/recurrent.h"
#include "ops/recurrent/recurrent_operators.h"

namespace chairlift::cuda {
namespace {

// The type that elements of this type are computed in.
DType ComputedIn(DType dtype) { return dtype == DType::kDouble ? dtype : DType::kFloat; }

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat || dtype == DType::kDouble || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// Allocates scratch memory: offsets in bytes, each 64-byte aligned.
class ScratchPlan {
 public:
  size_t Add(int64_t elements, DType dtype) {
    return AddBytes(static_cast<size_t>(elements) * DTypeSize(dtype));
  }
  size_t AddBytes(size_t bytes) {
    const size_t at = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

const void* InputOf(const KernelArgs& args, int i) {
  return i < static_cast<int>(args.inputs.size()) ? args.inputs[i] : nullptr;
}
void* OutputOf(const KernelArgs& args, int i) {
  return i < static_cast<int>(args.outputs.size()) ? args.outputs[i] : nullptr;
}
const void* Offset(const void* p, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(p) + elements * static_cast<int64_t>(DTypeSize(dtype));
}
void* Offset(void* p, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(p) + elements * static_cast<int64_t>(DTypeSize(dtype));
}

// Time steps of all directions of a cell.
class CellStep {
 public:
  // Allocates its scratch memory from `plan`.
  static StatusOr<CellStep> Create(const RecurrentSpec& spec, DType dtype, int64_t batch,
                                   int64_t hidden, const CompileContext& context,
                                   ScratchPlan& plan) {
    CellStep step;
    step.dtype_ = dtype;
    step.two_products_ = spec.cell == CellKind::kGru && !spec.reset_after;
    RecurrentGates& gates = step.gates_;
    gates.kind = spec.cell == CellKind::kLstm  ? GatesKind::kLstm
                 : spec.cell == CellKind::kRnn ? GatesKind::kRnn
                 : spec.reset_after            ? GatesKind::kGruAfter
                                               : GatesKind::kGru;
    gates.directions = spec.directions;
    gates.batch = batch;
    gates.hidden = hidden;
    gates.reversed[0] = spec.reverse;
    gates.reversed[1] = true;
    gates.gates = spec.gates;
    gates.clip = spec.clip;
    gates.input_forget = spec.input_forget;
    const int count = ActivationCount(spec.cell);
    for (int d = 0; d < spec.directions; ++d) {
      std::copy_n(spec.activations.begin() + d * count, count, gates.activations[d]);
    }

    const int64_t columns = spec.gates * hidden;
    MatrixProduct product{.dtype = dtype, .result = ComputedIn(dtype)};
    product.batches = spec.directions;
    product.m = batch;
    product.n = step.two_products_ ? 2 * hidden : columns;
    product.k = hidden;
    product.transpose_b = true;
    product.a_row_stride = product.b_row_stride = hidden;
    product.c_row_stride = columns;
    product.a_batch_stride = batch * hidden;
    product.b_batch_stride = columns * hidden;
    product.c_batch_stride = batch * columns;
    const auto& device = static_cast<const CudaDevice&>(context.device);
    const auto add = [&]() -> Status {
      CHAIRLIFT_ASSIGN_OR_RETURN(CublasProduct made, CublasProduct::Create(device, product));
      step.cublas_bytes_ = std::max(step.cublas_bytes_, made.scratch_bytes());
      step.products_.push_back(std::move(made));
      return {};
    };
    CHAIRLIFT_RETURN_IF_ERROR(add());
    if (step.two_products_) {
      product.n = hidden;
      CHAIRLIFT_RETURN_IF_ERROR(add());
      step.reset_ = plan.Add(spec.directions * batch * hidden, dtype);
    }
    step.product_ = plan.Add(spec.directions * batch * columns, ComputedIn(dtype));
    step.cublas_ = plan.AddBytes(step.cublas_bytes_);
    return step;
  }

  // What is the same in every step. The caller adds x, biases, states and y.
  const RecurrentGates& gates() const { return gates_; }

  // One step: gates.h is h before it. `r` is R [directions, gates · hidden, hidden], which is not
  // read if h is zero.
  Status Run(cudaStream_t stream, RecurrentGates gates, const void* r, bool h_is_zero,
             std::byte* scratch) const {
    if (!h_is_zero) {
      void* product = scratch + product_;
      CHAIRLIFT_RETURN_IF_ERROR(
          products_[0].Run(stream, gates.h, r, nullptr, nullptr, product, scratch + cublas_));
      gates.product = product;
      if (two_products_) {
        RecurrentGates reset = gates;
        reset.kind = GatesKind::kGruReset;
        reset.reset_h = scratch + reset_;
        ComputeGates(stream, dtype_, reset);
        CHAIRLIFT_RETURN_IF_ERROR(products_[1].Run(
            stream, reset.reset_h, Offset(r, 2 * gates.hidden * gates.hidden, dtype_), nullptr,
            nullptr, Offset(product, 2 * gates.hidden, ComputedIn(dtype_)), scratch + cublas_));
      }
    }
    ComputeGates(stream, dtype_, gates);
    return {};
  }

 private:
  DType dtype_ = DType::kUndefined;
  bool two_products_ = false;  // GRU: the hidden gate's product uses the reset state
  RecurrentGates gates_;
  std::vector<CublasProduct> products_;
  size_t cublas_bytes_ = 0;
  size_t product_ = 0, reset_ = 0, cublas_ = 0;  // offsets in the scratch memory
};

class RecurrentStepKernel final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    const DType dtype = context.inputs[kStepX].dtype;
    if (!IsFloat(dtype)) return Unimplemented("no recurrent step of {}", DTypeName(dtype));
    CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec, ParseStep(context.attributes));
    const Shape& state = context.inputs[kStepH].shape;
    ScratchPlan plan;
    CHAIRLIFT_ASSIGN_OR_RETURN(CellStep step,
                               CellStep::Create(spec, dtype, state[0], state[1], context, plan));
    return std::unique_ptr<Kernel>(new RecurrentStepKernel(std::move(step), plan.bytes()));
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    RecurrentGates gates = step_.gates();
    gates.reversed[0] = false;
    gates.x = args.inputs[kStepX];
    gates.x_row_stride = gates.gates * gates.hidden;
    gates.r_bias = InputOf(args, kStepBias);
    gates.peepholes = InputOf(args, kStepPeepholes);
    gates.h = args.inputs[kStepH];
    gates.c = args.inputs[kStepC];
    gates.c_row_stride = gates.hidden;
    gates.h_next = OutputOf(args, 0);
    gates.c_next = OutputOf(args, 1);
    CHAIRLIFT_RETURN_IF_ERROR(step_.Run(StreamOf(args).handle(), gates, args.inputs[kStepR], false,
                                        static_cast<std::byte*>(args.scratch)));
    return Launched("RecurrentStep");
  }

 private:
  RecurrentStepKernel(CellStep step, size_t scratch_bytes)
      : step_(std::move(step)), scratch_bytes_(scratch_bytes) {}

  CellStep step_;
  size_t scratch_bytes_;
};

// The CPU's error for known lengths; others become a fault at run time.
Status CheckLengths(const Tensor& lengths, int64_t time) {
  for (int64_t b = 0; b < lengths.size(); ++b) {
    const int32_t length = lengths.data<int32_t>()[b];
    if (length < 0 || length > time) {
      return InvalidArgument("sequence_lens[{}] is {}; it should be in [0, {}]", b, length, time);
    }
  }
  return {};
}

class LayerKernel final : public Kernel {
 public:
  template <CellKind kCell>
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    const DType dtype = context.inputs[kInputX].dtype;
    if (!IsFloat(dtype)) return Unimplemented("no recurrent layer of {}", DTypeName(dtype));
    CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec,
                               RecurrentSpec::Parse(kCell, context.attributes));
    const Shape& x = context.inputs[kInputX].shape;
    const int64_t time = x[spec.batch_first ? 1 : 0];
    const int64_t batch = x[spec.batch_first ? 0 : 1];
    const int64_t features = x[2];
    const int64_t hidden = context.inputs[kInputR].shape[2];
    if (const Tensor* lengths = context.constant(kInputLengths); lengths != nullptr) {
      CHAIRLIFT_RETURN_IF_ERROR(CheckLengths(*lengths, time));
    }
    const int64_t columns = spec.gates * hidden;
    MatrixProduct projection{.dtype = dtype, .result = dtype};
    projection.batches = spec.directions;
    projection.m = time * batch;
    projection.n = columns;
    projection.k = features;
    projection.transpose_b = true;
    projection.a_row_stride = projection.b_row_stride = features;
    projection.c_row_stride = columns;
    projection.b_batch_stride = columns * features;
    projection.c_batch_stride = projection.m * columns;
    CHAIRLIFT_ASSIGN_OR_RETURN(
        CublasProduct project,
        CublasProduct::Create(static_cast<const CudaDevice&>(context.device), projection));
    ScratchPlan plan;
    CHAIRLIFT_ASSIGN_OR_RETURN(CellStep step,
                               CellStep::Create(spec, dtype, batch, hidden, context, plan));
    auto kernel =
        std::unique_ptr<LayerKernel>(new LayerKernel(std::move(project), std::move(step)));
    kernel->dtype_ = dtype;
    kernel->lstm_ = kCell == CellKind::kLstm;
    kernel->states_ = {spec.directions, batch, hidden, time, spec.batch_first, nullptr};
    const int64_t state = spec.directions * batch * hidden;
    kernel->h_ = plan.Add(state, dtype);
    kernel->c_ = plan.Add(kernel->lstm_ ? state : 0, ComputedIn(dtype));
    kernel->projected_ = plan.Add(spec.directions * projection.m * columns, dtype);
    kernel->cublas_ = plan.AddBytes(kernel->project_.scratch_bytes());
    kernel->scratch_bytes_ = plan.bytes();
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    CudaStream& own = StreamOf(args);
    cudaStream_t stream = own.handle();
    auto* scratch = static_cast<std::byte*>(args.scratch);
    RecurrentStates states = states_;
    states.lengths = static_cast<const int32_t*>(InputOf(args, kInputLengths));
    void* h = scratch + h_;
    void* c = lstm_ ? scratch + c_ : nullptr;
    const void* first_h = InputOf(args, kInputH);
    const void* first_c = lstm_ ? InputOf(args, kInputC) : nullptr;
    StartStates(stream, dtype_, states, first_h, first_c, h, c,
                states.lengths != nullptr ? own.fault() : nullptr);
    CHAIRLIFT_RETURN_IF_ERROR(project_.Run(stream, args.inputs[kInputX], args.inputs[kInputW],
                                           nullptr, nullptr, scratch + projected_,
                                           scratch + cublas_));
    RecurrentGates gates = Gates(args, states);
    gates.h = gates.h_next = h;
    gates.c = gates.c_next = c;
    gates.x = scratch + projected_;
    if (states.batch > 0) {
      for (gates.step = 0; gates.step < states.time; ++gates.step) {
        CHAIRLIFT_RETURN_IF_ERROR(step_.Run(stream, gates, args.inputs[kInputR],
                                            gates.step == 0 && first_h == nullptr, scratch));
      }
    }
    FinishStates(stream, dtype_, states, h, c, OutputOf(args, 1),
                 lstm_ ? OutputOf(args, 2) : nullptr);
    return Launched("recurrent layer");
  }

 private:
  LayerKernel(CublasProduct project, CellStep step)
      : project_(std::move(project)), step_(std::move(step)) {}

  // Everything except the states and x.
  RecurrentGates Gates(const KernelArgs& args, const RecurrentStates& states) const {
    RecurrentGates gates = step_.gates();
    const int64_t columns = gates.gates * gates.hidden;
    gates.time = states.time;
    gates.lengths = states.lengths;
    gates.x_direction_stride = states.time * states.batch * columns;
    gates.x_time_stride = states.batch_first ? columns : states.batch * columns;
    gates.x_row_stride = states.batch_first ? states.time * columns : columns;
    if (const void* bias = InputOf(args, kInputBias); bias != nullptr) {
      gates.w_bias = bias;
      gates.r_bias = Offset(bias, columns, dtype_);
      gates.bias_direction_stride = 2 * columns;
    }
    if (lstm_) gates.peepholes = InputOf(args, kInputPeepholes);
    gates.c_row_stride = states.hidden;
    gates.c_is_computed = true;
    gates.y = OutputOf(args, 0);
    if (states.batch_first) {
      gates.y_direction_stride = states.hidden;
      gates.y_time_stride = states.directions * states.hidden;
      gates.y_row_stride = states.time * gates.y_time_stride;
    } else {
      gates.y_row_stride = states.hidden;
      gates.y_direction_stride = states.batch * states.hidden;
      gates.y_time_stride = states.directions * gates.y_direction_stride;
    }
    return gates;
  }

  DType dtype_ = DType::kUndefined;
  bool lstm_ = false;
  RecurrentStates states_;
  CublasProduct project_;
  CellStep step_;
  size_t h_ = 0, c_ = 0, projected_ = 0, cublas_ = 0;  // offsets in the scratch memory
  size_t scratch_bytes_ = 0;
};

StatusOr<std::unique_ptr<Kernel>> CompileLstmGates(const CompileContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (!IsFloat(dtype)) return Unimplemented("no LSTM gates of {}", DTypeName(dtype));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string order, LstmGatesOrder(context.attributes));
  const Shape& out =
      context.outputs[0].present() ? context.outputs[0].shape : context.outputs[1].shape;
  const int64_t units = out[out.rank() - 1];
  RecurrentGates gates;
  gates.batch = out.NumElements(0, out.rank() - 1);
  gates.hidden = units;
  constexpr char kNames[] = {'i', 'o', 'f', 'g'};
  for (int i = 0; i < 4; ++i) gates.x_gate[i] = static_cast<int>(order.find(kNames[i]));
  // An operand of one row serves all rows.
  const bool several = gates.batch != 1;
  gates.x_row_stride = context.inputs[0].size() == 4 * units && several ? 0 : 4 * units;
  gates.c_row_stride = context.inputs[1].size() == units && several ? 0 : units;
  gates.activations[0][1].function = gates.activations[0][2].function = GateFunction::kTanh;
  return MakeKernel([gates, dtype](const KernelArgs& args) -> Status {
    RecurrentGates run = gates;
    run.x = args.inputs[0];
    run.c = args.inputs[1];
    run.h_next = OutputOf(args, 0);
    run.c_next = OutputOf(args, 1);
    ComputeGates(StreamOf(args).handle(), dtype, run);
    return Launched("LstmGates");
  });
}

}  // namespace

std::span<const KernelEntry> RecurrentKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"", "LSTM", LayerKernel::Compile<CellKind::kLstm>},
      {"", "GRU", LayerKernel::Compile<CellKind::kGru>},
      {"", "RNN", LayerKernel::Compile<CellKind::kRnn>},
      {"chairlift", "RecurrentStep", RecurrentStepKernel::Compile},
      {"chairlift", "LstmGates", CompileLstmGates},
  };
  return kEntries;
}

}  // namespace chairlift::cuda
