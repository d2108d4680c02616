// The arithmetic of recurrent cells around their matrix products.
//
// Rows are those of all directions: row d · batch + b is batch entry b of direction d.
#ifndef CHAIRLIFT_OPS_CUDA_RECURRENT_CUH_
#define CHAIRLIFT_OPS_CUDA_RECURRENT_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "chairlift/tensor.h"
#include "ops/recurrent/gates_simd.h"

namespace chairlift::cuda {

enum class GatesKind : uint8_t {
  kLstm,
  kGruReset,  // reset_h = f(R) · h alone, for the product that makes the hidden gate
  kGru,       // what comes after that product
  kGruAfter,  // the reset gate is applied after the product (linear_before_reset)
  kRnn,
};

// One time step. Data is of the element type T of the model, or where so said of the type C in
// which T is computed (float32 for 16 bits). Strides are in elements.
struct RecurrentGates {
  GatesKind kind = GatesKind::kLstm;
  int64_t directions = 1, batch = 0, hidden = 0;

  // Step `step` of a row of `length` steps is at time `step`, or length − 1 − step where its
  // direction is reversed; a row of no more steps than `step` keeps its state.
  int64_t step = 0, time = 1;
  const int32_t* lengths = nullptr;  // [batch], taken as at most `time` and at least 0; null: time
  bool reversed[2] = {false, false};

  // The pre-activation of gate g is x + w_bias + product + r_bias; all but x may be null. x of gate
  // g lies at d · direction stride + t · time stride + b · row stride + x_gate[g] · hidden.
  const void* x = nullptr;
  int64_t x_direction_stride = 0, x_time_stride = 0, x_row_stride = 0;
  int x_gate[4] = {0, 1, 2, 3};
  const void* product = nullptr;  // C [rows, gates · hidden]
  const void* w_bias = nullptr;   // [gates · hidden]
  const void* r_bias = nullptr;
  int64_t bias_direction_stride = 0;
  const void* peepholes = nullptr;  // [directions, 3 · hidden]: i, o, f
  int gates = 4;                    // LSTM i, o, f, c; GRU z, r, h; RNN one

  const void* h = nullptr;  // [rows, hidden]; GRU's alone
  void* h_next = nullptr;   // [rows, hidden]; may be h; null: not wanted
  void* reset_h = nullptr;  // [rows, hidden]; of kGruReset
  const void* c = nullptr;  // LSTM's, a row stride apart
  int64_t c_row_stride = 0;
  void* c_next = nullptr;      // [rows, hidden]; may be c; null: not wanted
  bool c_is_computed = false;  // c and c_next are of type C
  // h of all times, null where nobody reads it: at d · direction stride + t · time stride + b · row
  // stride. Times past a row's length become 0.
  void* y = nullptr;
  int64_t y_direction_stride = 0, y_time_stride = 0, y_row_stride = 0;

  float clip = std::numeric_limits<float>::infinity();
  bool input_forget = false;
  GateActivation activations[2][3];  // by direction: LSTM f, g, h; GRU f, g; RNN f
};
void ComputeGates(cudaStream_t stream, DType dtype, const RecurrentGates& gates);

// The states before the first step and after the last, for all rows. A state is [directions, batch,
// hidden], or [batch, directions, hidden] where `batch_first`, in T; in scratch h [rows, hidden] is
// of type T and c of type C.
struct RecurrentStates {
  int64_t directions = 1, batch = 0, hidden = 0, time = 0;
  bool batch_first = false;
  const int32_t* lengths = nullptr;  // [batch], or null
};
// h = from_h and c = from_c; null is 0. `c` is null but for LSTM. Lengths that are negative or
// longer than `time` are a DataFault at `fault`.
void StartStates(cudaStream_t stream, DType dtype, const RecurrentStates& states,
                 const void* from_h, const void* from_c, void* h, void* c, int* fault);
// to_h = h and to_c = c, either null where it is not wanted; 0 for sequences of no steps.
void FinishStates(cudaStream_t stream, DType dtype, const RecurrentStates& states, const void* h,
                  const void* c, void* to_h, void* to_c);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_RECURRENT_CUH_
