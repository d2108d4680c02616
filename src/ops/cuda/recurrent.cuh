// The arithmetic of recurrent cells around their matrix products.
//
// Rows cover all directions: row d · batch + b is batch entry b of direction d.
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
  kGruReset,  // only reset_h = f(R) · h, for the product of the hidden gate
  kGru,       // the part after that product
  kGruAfter,  // the reset gate is applied after the product (linear_before_reset)
  kRnn,
};

// One time step. Data has the model's element type T or, where noted, the type C in which T is
// computed (float32 for 16 bits). Strides are in elements.
struct RecurrentGates {
  GatesKind kind = GatesKind::kLstm;
  int64_t directions = 1, batch = 0, hidden = 0;

  // Step `step` of a row of `length` steps is at time `step`, or at length − 1 − step if its
  // direction is reversed. A row of at most `step` steps keeps its state.
  int64_t step = 0, time = 1;
  const int32_t* lengths = nullptr;  // [batch], clamped to [0, time]; null: time
  bool reversed[2] = {false, false};

  // The pre-activation of gate g is x + w_bias + product + r_bias; all but x may be null. x of gate
  // g is at d · direction stride + t · time stride + b · row stride + x_gate[g] · hidden.
  const void* x = nullptr;
  int64_t x_direction_stride = 0, x_time_stride = 0, x_row_stride = 0;
  int x_gate[4] = {0, 1, 2, 3};
  const void* product = nullptr;  // C [rows, gates · hidden]
  const void* w_bias = nullptr;   // [gates · hidden]
  const void* r_bias = nullptr;
  int64_t bias_direction_stride = 0;
  const void* peepholes = nullptr;  // [directions, 3 · hidden]: i, o, f
  int gates = 4;                    // LSTM i, o, f, c; GRU z, r, h; RNN one

  const void* h = nullptr;  // [rows, hidden]; only for GRU
  void* h_next = nullptr;   // [rows, hidden]; may be h; null: not needed
  void* reset_h = nullptr;  // [rows, hidden]; for kGruReset
  const void* c = nullptr;  // for LSTM; rows are a row stride apart
  int64_t c_row_stride = 0;
  void* c_next = nullptr;      // [rows, hidden]; may be c; null: not needed
  bool c_is_computed = false;  // c and c_next have type C
  // h of all times, at d · direction stride + t · time stride + b · row stride; null if nothing
  // reads it. Times after a row's end become 0.
  void* y = nullptr;
  int64_t y_direction_stride = 0, y_time_stride = 0, y_row_stride = 0;

  float clip = std::numeric_limits<float>::infinity();
  bool input_forget = false;
  GateActivation activations[2][3];  // by direction: LSTM f, g, h; GRU f, g; RNN f
};
void ComputeGates(cudaStream_t stream, DType dtype, const RecurrentGates& gates);

// The states before the first step and after the last, for all rows. A state is [directions, batch,
// hidden], or [batch, directions, hidden] if `batch_first`, in T. In scratch memory h [rows,
// hidden] has type T and c type C.
struct RecurrentStates {
  int64_t directions = 1, batch = 0, hidden = 0, time = 0;
  bool batch_first = false;
  const int32_t* lengths = nullptr;  // [batch], or null
};
// h = from_h and c = from_c; null means 0. `c` is null except for LSTM. Lengths that are negative
// or longer than `time` are reported as a DataFault at `fault`.
void StartStates(cudaStream_t stream, DType dtype, const RecurrentStates& states,
                 const void* from_h, const void* from_c, void* h, void* c, int* fault);
// to_h = h and to_c = c; null if not needed; 0 for sequences of no steps.
void FinishStates(cudaStream_t stream, DType dtype, const RecurrentStates& states, const void* h,
                  const void* c, void* to_h, void* to_c);

}  // namespace chairlift::cuda

#endif  // CHAIRLIFT_OPS_CUDA_RECURRENT_CUH_
