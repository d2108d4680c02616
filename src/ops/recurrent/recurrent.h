// Common part of LSTM, GRU, RNN and RecurrentStep: attributes, shape rules, and the kernel that
// runs a cell over a sequence.
#ifndef CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_
#define CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "ops/implementations.h"
#include "ops/operator.h"
#include "ops/recurrent/recurrent_step.h"

namespace chairlift {

// The operators' inputs by position; C and P only for LSTM.
enum RecurrentInput : int {
  kInputX = 0,  // [T, B, I]; layout 1: [B, T, I]
  kInputW,      // [D, gates·H, I]
  kInputR,      // [D, gates·H, H]
  kInputBias,   // [D, 2·gates·H]: W's, then R's
  kInputLengths,
  kInputH,  // [D, B, H]; layout 1: [B, D, H]
  kInputC,
  kInputPeepholes,  // [D, 3·H]: i, o, f
};

struct RecurrentSpec {
  CellKind cell = CellKind::kLstm;
  int gates = 4;             // matrices in W and R: LSTM i, o, f, c; GRU z, r, h; RNN one
  int directions = 1;        // D
  bool reverse = false;      // direction 0 starts at the end
  bool batch_first = false;  // layout 1
  bool input_forget = false;
  bool reset_after = false;  // GRU's linear_before_reset
  float clip = std::numeric_limits<float>::infinity();
  // ActivationCount(cell) per direction.
  std::vector<GateActivation> activations;
  bool usual_gates = false;  // as LstmGates::usual, in every direction

  static StatusOr<RecurrentSpec> Parse(CellKind cell, const Attributes& attributes);
  // One time step of one direction.
  StepSpec Step(int direction, int64_t hidden) const;
};
// LSTM f, g, h; GRU f, g; RNN f.
int ActivationCount(CellKind cell);

// The element type for which a kernel K<T> of LSTM, GRU and RNN, or of one of their steps, is made:
// that of X, input 0.
template <template <typename> class K>
struct RecurrentTable {
  using Made = StatusOr<std::unique_ptr<Kernel>>;
  static Made UsualGates(const RecurrentSpec& spec, const CompileContext& context) {
    if (context.inputs[0].dtype != DType::kFloat) return Unimplemented("it computes float32");
    if (!spec.usual_gates) {
      return Unimplemented("it is for sigmoid and tanh without clip and input_forget");
    }
    return K<float>::Compile(spec, context);
  }
  static Made AnyGates(const RecurrentSpec& spec, const CompileContext& context) {
    if (context.inputs[0].dtype != DType::kFloat) return Unimplemented("it computes float32");
    RecurrentSpec any = spec;
    any.usual_gates = false;
    return K<float>::Compile(any, context);
  }
  static Made Loops(const RecurrentSpec& spec, const CompileContext& context) {
    if (context.inputs[0].dtype != DType::kDouble) return Unimplemented("it computes float64");
    return K<double>::Compile(spec, context);
  }
  static constexpr Implementation<RecurrentSpec> kTable[] = {
      {"packed panels, usual gates", UsualGates},
      {"packed panels, any gates", AnyGates},
      {"plain loops", Loops},
  };
};
// All implementations of LSTM, GRU and RNN, and those of chairlift::RecurrentStep, in the order in
// which they are tried.
std::span<const Implementation<RecurrentSpec>> RecurrentImplementations();
std::span<const Implementation<RecurrentSpec>> RecurrentStepImplementations();

Status InferRecurrent(CellKind cell, InferContext& context);
StatusOr<std::unique_ptr<Kernel>> CompileRecurrent(CellKind cell, const CompileContext& context);

// The inputs of chairlift::RecurrentStep; see recurrent_step_operator.cc.
enum StepInput : int { kStepX = 0, kStepH, kStepC, kStepR, kStepBias, kStepPeepholes };

StatusOr<RecurrentSpec> ParseStep(const Attributes& attributes);
Status InferStep(InferContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_
