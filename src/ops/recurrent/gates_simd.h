// What a recurrent cell does with its gates once the matrix products are done: from pre-activations
// and the old state to the new state, for some rows.
//
// Pre-activations lie in blocks: gate g of unit b·block + j of row r is at
//   base + r·row_stride + b·block_stride + offset(g) + j,   j in [0, block),
// so one block holds all gates of `block` units. Plain [rows, gates·hidden] is one block of
// `hidden` units. States are [rows, blocks·block], rows a stride apart. Strides are in elements.
// The caller may split the work by rows or by blocks; nothing here keeps state.
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

// The rows and blocks at hand, and what holds for all gates.
struct GateShape {
  int64_t rows = 0;
  int64_t blocks = 0;
  int64_t block = 0;
  // Bound on what goes into the activations of the gates.
  float clip = std::numeric_limits<float>::infinity();
};

// Pre-activations x + recurrent, the latter null where x holds the sum already.
template <typename T>
struct GateInput {
  const T* x = nullptr;
  int64_t x_row_stride = 0;
  int64_t x_block_stride = 0;
  const T* recurrent = nullptr;
  int64_t recurrent_row_stride = 0;
  int64_t recurrent_block_stride = 0;
};

// c' = f(F)·c + f(I)·g(G), h' = f(O)·h(c'), with the peepholes' P·c added inside where given.
template <typename T>
struct LstmGates {
  GateShape shape;
  GateInput<T> input;
  int64_t offset_i = 0, offset_o = 0, offset_f = 0, offset_g = 0;
  const T* c = nullptr;
  int64_t c_stride = 0;
  T* c_next = nullptr;  // may be c
  int64_t c_next_stride = 0;
  T* h_next = nullptr;
  int64_t h_next_stride = 0;
  const T* peephole_i = nullptr;  // [blocks·block], all three or none
  const T* peephole_o = nullptr;
  const T* peephole_f = nullptr;
  bool input_forget = false;  // the forget gate is 1 − the input gate
  GateActivation f, g, h;
};
void ComputeGates(const LstmGates<float>& gates);
void ComputeGates(const LstmGates<double>& gates);

// The reset gate alone: reset_h = f(R)·h, for the product that makes the hidden gate. `input` is of
// the z and r gates: offset 0 and `block`, in x and recurrent alike.
template <typename T>
struct GruReset {
  GateShape shape;
  GateInput<T> input;
  const T* h = nullptr;
  int64_t h_stride = 0;
  T* reset_h = nullptr;
  int64_t reset_h_stride = 0;
  GateActivation f;
};
void ComputeGates(const GruReset<float>& gates);
void ComputeGates(const GruReset<double>& gates);

// h' = (1 − z)·n + z·h with z = f(Z) and n = g(x_n + recurrent_n), or, where the reset gate applies
// after the product, n = g(x_n + f(R)·recurrent_n). x holds z, r and n at offsets 0, `block` and
// 2·`block`; recurrent z and r; recurrent_n its own blocks.
template <typename T>
struct GruGates {
  GateShape shape;
  GateInput<T> input;
  const T* recurrent_n = nullptr;
  int64_t recurrent_n_row_stride = 0;  // block stride: `block`
  bool reset_after = false;
  const T* h = nullptr;
  int64_t h_stride = 0;
  T* h_next = nullptr;
  int64_t h_next_stride = 0;
  GateActivation f, g;
};
void ComputeGates(const GruGates<float>& gates);
void ComputeGates(const GruGates<double>& gates);

// h' = f(x + recurrent).
template <typename T>
struct RnnGate {
  GateShape shape;
  GateInput<T> input;
  T* h_next = nullptr;
  int64_t h_next_stride = 0;
  GateActivation f;
};
void ComputeGates(const RnnGate<float>& gates);
void ComputeGates(const RnnGate<double>& gates);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_GATES_SIMD_H_
