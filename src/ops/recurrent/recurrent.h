// What LSTM, GRU, RNN and RecurrentStep share: their attributes, their shape rules, and the kernel
// that runs a cell over a sequence.
#ifndef CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_
#define CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "ops/operator.h"
#include "ops/recurrent/recurrent_step.h"

namespace chairlift {

// The operators' inputs by position; C and P are LSTM's alone.
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
  bool reverse = false;      // direction 0 runs from the end
  bool batch_first = false;  // layout 1
  bool input_forget = false;
  bool reset_after = false;  // GRU's linear_before_reset
  float clip = std::numeric_limits<float>::infinity();
  // ActivationCount(cell) for each direction.
  std::vector<GateActivation> activations;

  static StatusOr<RecurrentSpec> Parse(CellKind cell, const Attributes& attributes);
  // One time step of one direction.
  StepSpec Step(int direction, int64_t hidden) const;
};
// LSTM f, g, h; GRU f, g; RNN f.
int ActivationCount(CellKind cell);

Status InferRecurrent(CellKind cell, InferContext& context);
StatusOr<std::unique_ptr<Kernel>> CompileRecurrent(CellKind cell, const CompileContext& context);

// The inputs of chairlift::RecurrentStep; see recurrent_step_operator.cc.
enum StepInput : int { kStepX = 0, kStepH, kStepC, kStepR, kStepBias, kStepPeepholes };

StatusOr<RecurrentSpec> ParseStep(const Attributes& attributes);
Status InferStep(InferContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_RECURRENT_H_
