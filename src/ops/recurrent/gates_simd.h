// The gate arithmetic of recurrent cells after the matrix products: from pre-activations and the
// old state to the new state, for some rows.
//
// Units are in blocks: unit u is unit u % block of block u / block. A row's pre-activation of gate
// g of unit u is at g · gate stride + (u / block) · block stride + u % block. So a plain row
// [gates·hidden] has a gate stride of `hidden` and a block stride of `block`. States are plain
// rows. Strides are in elements. The caller may divide the work by rows or by units; there is no
// state here.
#ifndef CHAIRLIFT_OPS_RECURRENT_GATES_SIMD_H_
#define CHAIRLIFT_OPS_RECURRENT_GATES_SIMD_H_

#include <cstdint>
#include <limits>

namespace chairlift {

// y = f(x), α and β as in ONNX's LSTM.
enum class GateFunction : uint8_t {
  kSigmoid,
  kTanh,
  kRelu,
  kAffine,           // αx + β
  kLeakyRelu,        // x < 0 ? αx : x
  kThresholdedRelu,  // x > α ? x : 0
  kScaledTanh,       // α tanh(βx)
  kHardSigmoid,      // clip(αx + β, 0, 1)
  kElu,              // x < 0 ? α(eˣ − 1) : x
  kSoftsign,         // x / (1 + |x|)
  kSoftplus,         // log(1 + eˣ)
};

struct GateActivation {
  GateFunction function = GateFunction::kSigmoid;
  float alpha = 0;
  float beta = 0;
};

// The rows and units of a call, and what applies to all gates.
struct GateShape {
  int64_t rows = 0;
  int64_t units = 0;
  int64_t block = 0;
  // Bound on the inputs of the gates' activations.
  float clip = std::numeric_limits<float>::infinity();
};

// The addresses of rows: a stride apart, or from a list of pointers.
template <typename T>
struct GateRows {
  T* base = nullptr;
  int64_t stride = 0;
  T* const* rows = nullptr;
  int64_t offset = 0;  // from a pointer in `rows` to unit 0

  T* operator[](int64_t row) const {
    return rows != nullptr ? rows[row] + offset : base + row * stride;
  }
};

// Pre-activations x + recurrent + bias; the latter two may be null.
template <typename T>
struct GateInput {
  GateRows<const T> x;
  int64_t x_gate_stride = 0;
  int64_t x_block_stride = 0;
  const T* recurrent = nullptr;
  int64_t recurrent_row_stride = 0;
  int64_t recurrent_gate_stride = 0;
  int64_t recurrent_block_stride = 0;
  const T* bias = nullptr;  // unit u of gate g at g · stride + u
  int64_t bias_gate_stride = 0;
};

// c' = f(F)·c + f(I)·g(G), h' = f(O)·h(c'), with the peepholes' P·c added inside if given.
template <typename T>
struct LstmGates {
  GateShape shape;
  GateInput<T> input;
  int gate_i = 0, gate_o = 1, gate_f = 2, gate_g = 3;
  GateRows<const T> c;
  GateRows<T> c_next;  // may be c
  GateRows<T> h_next;
  const T* peephole_i = nullptr;  // [units], all three or none
  const T* peephole_o = nullptr;
  const T* peephole_f = nullptr;
  bool input_forget = false;  // the forget gate is 1 − the input gate
  GateActivation f, g, h;
  // Gates use σ and states tanh, without a bound or input_forget: float32 has a faster path.
  bool usual = false;
};
void ComputeGates(const LstmGates<float>& gates);
void ComputeGates(const LstmGates<double>& gates);

// GRU's gates are z, r and n. Only the reset gate: reset_h = f(R)·h, for the product of the hidden
// gate.
template <typename T>
struct GruReset {
  GateShape shape;
  GateInput<T> input;
  GateRows<const T> h;
  GateRows<T> reset_h;
  GateActivation f;
  bool usual = false;  // as LstmGates::usual
};
void ComputeGates(const GruReset<float>& gates);
void ComputeGates(const GruReset<double>& gates);

// h' = (1 − z)·n + z·h with z = f(Z) and n = g(N) or, if the reset gate applies after the product,
// n = g(x_n + f(R)·(recurrent_n + bias_n)).
template <typename T>
struct GruGates {
  GateShape shape;
  GateInput<T> input;
  bool reset_after = false;
  GateRows<const T> h;
  GateRows<T> h_next;
  GateActivation f, g;
  bool usual = false;  // as LstmGates::usual
};
void ComputeGates(const GruGates<float>& gates);
void ComputeGates(const GruGates<double>& gates);

// h' = f(x + recurrent + bias).
template <typename T>
struct RnnGate {
  GateShape shape;
  GateInput<T> input;
  GateRows<T> h_next;
  GateActivation f;
  bool usual = false;  // as LstmGates::usual
};
void ComputeGates(const RnnGate<float>& gates);
void ComputeGates(const RnnGate<double>& gates);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_GATES_SIMD_H_
