// One time step of one direction of an LSTM, GRU or RNN with projected input, on rows at arbitrary
// addresses.
//
// For each block of 32 units, the recurrent product of all its gates is computed, followed by the
// gates' arithmetic while the sums are in the cache. Rows of h are copied side by side, a few dozen
// at a time; everything else is read and written in place.
#ifndef CHAIRLIFT_OPS_RECURRENT_RECURRENT_STEP_H_
#define CHAIRLIFT_OPS_RECURRENT_RECURRENT_STEP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/status.h"
#include "chairlift/tensor.h"
#include "device/cpu/team.h"
#include "ops/operator.h"
#include "ops/recurrent/cell_product.h"
#include "ops/recurrent/gates_simd.h"

namespace chairlift {

enum class CellKind : uint8_t { kLstm, kGru, kRnn };

struct StepSpec {
  CellKind cell = CellKind::kLstm;
  int gates = 4;  // matrices in R: LSTM i, o, f, c; GRU z, r, h; RNN one
  int64_t hidden = 0;
  bool input_forget = false;
  bool reset_after = false;  // GRU's linear_before_reset
  float clip = std::numeric_limits<float>::infinity();
  std::array<GateActivation, 3> activations;  // LSTM f, g, h; GRU f, g; RNN f
  bool usual_gates = false;                   // as LstmGates::usual
};

// What a step reads apart from its rows.
template <typename T>
struct StepWeights {
  const T* r = nullptr;          // as packed by StepKernel::Pack
  const T* bias = nullptr;       // [gates·hidden], or null
  const T* peepholes = nullptr;  // LSTM: [3·hidden], i, o, f; or null
};

template <typename T>
struct StepRows {
  int64_t count = 0;
  // The projected input: plain rows [gates·hidden], or the output format of CellProduct.
  GateRows<const T> x;
  bool x_in_panels = false;
  GateRows<const T> h;     // [hidden]
  GateRows<const T> c;     // LSTM: [hidden]
  GateRows<T> h_next;      // must not overlap h
  GateRows<T> c_next;      // a row may be its row of c
  bool h_is_zero = false;  // R then need not be read
  // From the last block to the first. Alternating steps find in the cache what the previous step
  // read last.
  bool backward = false;
};

// Thread-compatible: const calls may run concurrently, each with separate scratch memory.
template <typename T>
class StepKernel {
 public:
  StepKernel() = default;
  explicit StepKernel(const StepSpec& spec);

  const StepSpec& spec() const { return spec_; }
  int64_t blocks() const { return weights_.blocks(); }

  // R [gates·hidden, hidden] in panels.
  int64_t packed_elements() const { return weights_.elements(); }
  void Pack(const T* r, T* packed) const { PackCellWeights(weights_, r, packed); }

  // The number of parts worth using for `rows` rows on a team of this width.
  int Parts(int64_t rows, int width) const;
  // For at most `rows` rows in at most `parts` parts; must be 64-byte aligned.
  size_t ScratchBytes(int64_t rows, int parts) const;

  void Step(const StepWeights<T>& weights, const StepRows<T>& rows, int parts, Team& team,
            void* scratch) const;

  // The same in phases, for callers that distribute more than one step together: first phase 0 of
  // all blocks, then phase 1, and so on, with the same blocks, `part` and `scratch` in each phase.
  // No two concurrent calls may have the same `part`.
  int phases() const { return two_phases_ ? 2 : 1; }
  void Run(const StepWeights<T>& weights, const StepRows<T>& rows, int phase, int64_t first_block,
           int64_t last_block, int part, void* scratch) const;

 private:
  struct Part;
  int64_t SumElements(int64_t rows) const;
  size_t PartBytes(int64_t rows) const;
  int64_t Want(const Part& part) const;
  template <typename Float>  // only float
  void FewRowsProducts(const Part& part, int first_gate, int last_gate, const Float* a,
                       int64_t a_stride) const;
  void Products(const Part& part, int first_gate, int last_gate, const T* a,
                int64_t a_stride) const;
  void Finish(const Part& part) const;

  StepSpec spec_;
  CellWeights weights_;
  int64_t stride_ = 0;  // of copied rows
  // The reset state of all units is needed before the hidden gate's product.
  bool two_phases_ = false;
};

extern template class StepKernel<float>;
extern template class StepKernel<double>;

// The packed form of one direction of R [directions·gates·hidden, hidden], made once per cache.
StatusOr<Tensor> PackStepWeights(const StepSpec& spec, const Tensor& r, int direction,
                                 WeightCache& weights);

// A float32 step bound to its weights: runs cellular batches.
class RecurrentStep {
 public:
  // R [gates·hidden, hidden] is packed once per `weights` cache; Rb [gates·hidden] and P [3·hidden]
  // may be absent. The tensors are float32 and kept.
  static StatusOr<RecurrentStep> Create(const StepSpec& spec, const Tensor& r, const Tensor& rb,
                                        const Tensor& p, WeightCache& weights);

  const StepKernel<float>& kernel() const { return kernel_; }
  size_t ScratchBytes(int64_t rows, int width) const { return kernel_.ScratchBytes(rows, width); }

  // Computes rows of h_next and c_next from rows of xw [gates·hidden], h and c [hidden]; the former
  // must not overlap the latter. c and c_next only for LSTM. `backward` as in StepRows. `scratch`
  // has ScratchBytes(rows, team.width()) bytes, 64-byte aligned. Thread-safe.
  void Step(int64_t rows, const float* const* xw, const float* const* h, const float* const* c,
            float* const* h_next, float* const* c_next, bool backward, Team& team,
            void* scratch) const;

 private:
  StepKernel<float> kernel_;
  StepWeights<float> weights_;
  Tensor packed_, bias_, peepholes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_RECURRENT_RECURRENT_STEP_H_
