#include "ops/recurrent/recurrent_step.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "ops/linear/huge_tensor.h"
#include "ops/own_parts.h"
#include "ops/recurrent/step_product.h"

namespace chairlift {
namespace {

// Rows that share one pass over the weights.
constexpr int64_t kStepRows = 98;
// Accesses of the gates per row and block: at most four of x, and c, c', h'.
constexpr int64_t kWantedPerRow = 8;
// Sums that wait for their gates' arithmetic: several blocks of units if there are few rows.
constexpr int64_t kWaitingSums = 8192;
// Panels in one product of few rows, if possible.
constexpr int64_t kPanelsTogether = 4;
// Weights much larger than the second-level cache: worth prefetching.
constexpr int64_t kFarElements = 512 << 10;
// Below this many multiply-adds, a team is not worth its fork and join (1 to 2 µs).
constexpr double kStepSplitWork = 60e3;

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// How many of `blocks` blocks of units wait with their sums together, for `rows` rows.
int64_t BlocksAtOnce(int64_t blocks, int64_t rows, int gates) {
  if (rows > kFewStepRows || blocks == 1) return 1;
  return std::max<int64_t>(1, kWaitingSums / (rows * gates * kUnitBlock));
}

}  // namespace

// Some blocks of units of some rows.
template <typename T>
struct StepKernel<T>::Part {
  const StepSpec& spec;
  const CellWeights& layout;
  const StepWeights<T>& weights;
  StepRows<T> rows;
  T* sums;           // [rows, blocks, gates, 32]
  const T** wanted;  // room for kWantedPerRow entries per row
  int64_t first_block = 0, last_block = 0;
  int64_t next_block = -1;  // the next block to be computed; −1: none

  int64_t unit() const { return first_block * kUnitBlock; }
  int64_t sums_stride() const {
    return (layout.FirstPanel(last_block) - layout.FirstPanel(first_block)) * kUnitBlock;
  }
  int64_t x_gate_stride() const {
    return rows.x_in_panels ? layout.GateStride(first_block) : spec.hidden;
  }
  int64_t x_block_stride() const { return (rows.x_in_panels ? spec.gates : 1) * kUnitBlock; }
  // The panels of a block's gates [first, last): the first, counted from the part's, and their
  // number.
  std::pair<int64_t, int64_t> Panels(int64_t block, int first, int last) const {
    const int64_t to_panel = kUnitBlock / layout.GateStride(block);
    const int64_t begin = first / to_panel;
    return {layout.FirstPanel(block) - layout.FirstPanel(first_block) + begin,
            (last + to_panel - 1) / to_panel - begin};
  }

  // Rows that begin at the part's first unit.
  template <typename U>
  GateRows<U> FromUnit(GateRows<U> rows) const {
    if (rows.base != nullptr) rows.base += unit();
    rows.offset += unit();
    return rows;
  }
  // Sets what all kinds of gates share.
  template <typename G>
  G Gates() const {
    G gates;
    gates.shape = {rows.count, std::min(last_block * kUnitBlock, spec.hidden) - unit(), kUnitBlock,
                   spec.clip};
    GateInput<T>& in = gates.input;
    in.x = rows.x;
    if (in.x.base != nullptr) in.x.base += first_block * x_block_stride();
    in.x.offset += first_block * x_block_stride();
    in.x_gate_stride = x_gate_stride();
    in.x_block_stride = x_block_stride();
    in.recurrent = rows.h_is_zero ? nullptr : sums;
    in.recurrent_row_stride = sums_stride();
    in.recurrent_gate_stride = layout.GateStride(first_block);
    in.recurrent_block_stride = spec.gates * kUnitBlock;
    if (weights.bias != nullptr) {
      in.bias = weights.bias + unit();
      in.bias_gate_stride = spec.hidden;
    }
    gates.f = spec.activations[0];
    gates.usual = spec.usual_gates;
    if constexpr (requires { gates.g; }) gates.g = spec.activations[1];
    return gates;
  }
};

template <typename T>
StepKernel<T>::StepKernel(const StepSpec& spec)
    : spec_(spec),
      weights_{spec.hidden, spec.hidden, 0, spec.gates},
      // An odd number of cache lines, so that rows do not share a cache set.
      stride_((RoundUp(spec.hidden, 16) / 16 | 1) * 16),
      two_phases_(spec.cell == CellKind::kGru && !spec.reset_after) {}

template <typename T>
int StepKernel<T>::Parts(int64_t rows, int width) const {
  const double work = static_cast<double>(rows) * static_cast<double>(packed_elements());
  if (work < kStepSplitWork) return 1;
  return static_cast<int>(std::clamp<int64_t>(blocks(), 1, std::max(width, 1)));
}

template <typename T>
size_t StepKernel<T>::ScratchBytes(int64_t rows, int parts) const {
  const size_t reset = two_phases_ ? static_cast<size_t>(rows * stride_) * sizeof(T) : 0;
  return reset + static_cast<size_t>(parts) * PartBytes(std::min(rows, kStepRows));
}

template <typename T>
int64_t StepKernel<T>::SumElements(int64_t rows) const {
  return std::max(kWaitingSums, rows * spec_.gates * kUnitBlock);
}

// Copied rows, sums, and the prefetch list.
template <typename T>
size_t StepKernel<T>::PartBytes(int64_t rows) const {
  return static_cast<size_t>(rows * stride_ + SumElements(rows)) * sizeof(T) +
         static_cast<size_t>(rows * kWantedPerRow) * sizeof(const T*);
}

template <typename T>
void StepKernel<T>::Step(const StepWeights<T>& weights, const StepRows<T>& rows, int parts,
                         Team& team, void* scratch) const {
  for (int phase = 0; phase < phases(); ++phase) {
    if (parts == 1) {
      Run(weights, rows, phase, 0, blocks(), 0, scratch);
      continue;
    }
    OwnParts own(parts);
    team.For(parts, [&](int, int worker) {
      const int part = own.Take(worker);
      Run(weights, rows, phase, blocks() * part / parts, blocks() * (part + 1) / parts, part,
          scratch);
    });
  }
}

template <typename T>
void StepKernel<T>::Run(const StepWeights<T>& weights, const StepRows<T>& all, int phase,
                        int64_t first_block, int64_t last_block, int part, void* scratch) const {
  if (all.count == 0 || first_block == last_block) return;
  if (all.h_is_zero && two_phases_ && phase == 0) return;
  const int64_t hidden = spec_.hidden;
  // Avoids divisions if possible: they are a twentieth of a small cell's step.
  const int64_t row_blocks = all.count <= kStepRows ? 1 : (all.count + kStepRows - 1) / kStepRows;
  const int64_t most_rows = std::min(all.count, kStepRows);
  T* reset = static_cast<T*>(scratch);
  auto* own = reinterpret_cast<std::byte*>(reset + (two_phases_ ? all.count * stride_ : 0)) +
              static_cast<size_t>(part) * PartBytes(most_rows);
  T* copied = reinterpret_cast<T*>(own);
  T* sums = copied + most_rows * stride_;
  for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
    const int64_t first_row = row_blocks == 1 ? 0 : all.count * row_block / row_blocks;
    const int64_t rows =
        row_blocks == 1 ? all.count : all.count * (row_block + 1) / row_blocks - first_row;
    const auto move = [&]<typename U>(GateRows<U>& to) {
      if (to.rows != nullptr) {
        to.rows += first_row;
      } else if (to.base != nullptr) {
        to.base += first_row * to.stride;
      }
    };
    Part at{spec_, weights_, weights,
            all,   sums,     reinterpret_cast<const T**>(sums + SumElements(most_rows))};
    at.rows.count = rows;
    move(at.rows.x);
    move(at.rows.h);
    move(at.rows.c);
    move(at.rows.h_next);
    move(at.rows.c_next);
    const GateRows<T> reset_rows{reset + first_row * stride_, stride_};

    const T* h = at.rows.h[0];
    int64_t h_stride = at.rows.h.stride;
    const bool part_of_many = last_block - first_block < blocks();
    // Scattered rows are copied together. Rows of which other workers write parts are copied too:
    // all their lines are then loaded at the same time.
    if (part_of_many || (at.rows.h.rows != nullptr && rows > 1)) {
      for (int64_t r = 0; r < rows; ++r) std::copy_n(at.rows.h[r], hidden, copied + r * stride_);
      h = copied;
      h_stride = stride_;
    }
    const int64_t at_once = BlocksAtOnce(last_block - first_block, rows, spec_.gates);
    const bool narrow_end = weights_.Narrow(last_block - 1);
    // One block's sums wait in `sums` from phase 0 to phase 1.
    const bool keeps_sums = two_phases_ && blocks() == 1 && row_blocks == 1;
    for (int64_t done = 0, count = 0; done < last_block - first_block; done += count) {
      count = std::min(at_once, last_block - first_block - done);
      // A narrow block is processed alone.
      if (narrow_end && all.backward && done == 0) count = 1;
      if (narrow_end && !all.backward && count > 1 && first_block + done + count == last_block) {
        --count;
      }
      at.first_block = all.backward ? last_block - done - count : first_block + done;
      at.last_block = at.first_block + count;
      const int64_t next = all.backward ? at.first_block - 1 : at.last_block;
      at.next_block = next >= first_block && next < last_block ? next : -1;
      if (two_phases_ && phase == 0) {
        Products(at, keeps_sums ? 0 : 1, 2, h, h_stride);
        auto gates = at.template Gates<GruReset<T>>();
        gates.h = at.FromUnit(at.rows.h);
        gates.reset_h = at.FromUnit(reset_rows);
        ComputeGates(gates);
      } else {
        if (!keeps_sums) Products(at, 0, two_phases_ ? 1 : spec_.gates, h, h_stride);
        if (two_phases_) Products(at, 2, 3, reset_rows.base, stride_);
        Finish(at);
      }
    }
  }
}

// The places that the gates of one block will access.
template <typename T>
int64_t StepKernel<T>::Want(const Part& at) const {
  const T** to = at.wanted;
  for (int64_t r = 0; r < at.rows.count; ++r) {
    const T* x = at.rows.x[r] + at.first_block * at.x_block_stride();
    for (int g = 0; g < spec_.gates; ++g) *to++ = x + g * at.x_gate_stride();
    *to++ = at.rows.h_next[r] + at.unit();
    if (spec_.cell != CellKind::kLstm) continue;
    *to++ = at.rows.c[r] + at.unit();
    *to++ = at.rows.c_next[r] + at.unit();
  }
  return to - at.wanted;
}

// Panels of several blocks together, so that there are enough sums to hide the latency of a
// multiply-add. All gates of a block are contiguous; one gate of several blocks is not.
template <typename T>
template <typename Float>
void StepKernel<T>::FewRowsProducts(const Part& at, int first_gate, int last_gate, const Float* a,
                                    int64_t a_stride) const {
  const int64_t k = spec_.hidden;
  const int64_t blocks = at.last_block - at.first_block;
  const bool side_by_side = last_gate - first_gate == spec_.gates || blocks == 1;
  const int64_t block_panels =
      side_by_side ? at.Panels(at.first_block, first_gate, last_gate).second : 1;
  const int64_t group = (kPanelsTogether + block_panels - 1) / block_panels;
  const int64_t groups = (blocks + group - 1) / group;
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t block = (at.rows.backward ? groups - 1 - i : i) * group;
    const int64_t count = std::min(group, blocks - block);
    for (int g = first_gate; g < (side_by_side ? first_gate + 1 : last_gate); ++g) {
      StepProduct product;
      product.rows = at.rows.count;
      product.k = k;
      product.a = a;
      product.a_stride = a_stride;
      const int64_t panel = at.Panels(at.first_block + block, g, g + 1).first;
      product.packed =
          at.weights.r + (weights_.FirstPanel(at.first_block) + panel) * k * kUnitBlock;
      product.panels = count * block_panels;
      product.c = at.sums + panel * kUnitBlock;
      product.c_stride = at.sums_stride();
      if (!side_by_side) {
        product.panel_stride = spec_.gates * k * kUnitBlock;
        product.c_panel_stride = spec_.gates * kUnitBlock;
      }
      Compute(product);
    }
  }
}

template <typename T>
void StepKernel<T>::Products(const Part& at, int first_gate, int last_gate, const T* a,
                             int64_t a_stride) const {
  if (at.rows.h_is_zero) return;
  if constexpr (std::is_same_v<T, float>) {
    if (at.rows.count <= kFewStepRows) {
      FewRowsProducts(at, first_gate, last_gate, a, a_stride);
      return;
    }
  }
  const int64_t k = spec_.hidden;
  const auto panels = [&](int64_t block) {
    const int64_t panel = at.Panels(block, first_gate, last_gate).first;
    return at.weights.r + (weights_.FirstPanel(at.first_block) + panel) * k * kUnitBlock;
  };
  const int64_t blocks = at.last_block - at.first_block;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t block = at.rows.backward ? blocks - 1 - i : i;
    const auto [panel, count] = at.Panels(at.first_block + block, first_gate, last_gate);
    T* sums = at.sums + panel * kUnitBlock;
    if constexpr (std::is_same_v<T, float>) {
      StepProduct product;
      product.rows = at.rows.count;
      product.k = k;
      product.a = a;
      product.a_stride = a_stride;
      product.packed = panels(at.first_block + block);
      product.panels = count;
      product.half = weights_.Narrow(at.first_block + block) && last_gate % 2 != 0;
      product.c = sums;
      product.c_stride = at.sums_stride();
      if (at.next_block >= 0 && packed_elements() >= kFarElements) {
        product.next_packed = panels(at.next_block);
      }
      product.wanted = at.wanted;
      // Scattered rows have left the cache since their last step. Contiguous rows are read
      // sequentially, and are in the second-level cache if a cell is small.
      if (!at.rows.x_in_panels || packed_elements() >= kFarElements) product.num_wanted = Want(at);
      Compute(product);
    } else {
      CellProduct(at.rows.count, k, a, a_stride, panels(at.first_block + block), count, sums,
                  at.sums_stride());
    }
  }
}

template <typename T>
void StepKernel<T>::Finish(const Part& at) const {
  if (spec_.cell == CellKind::kLstm) {
    auto gates = at.template Gates<LstmGates<T>>();
    gates.c = at.FromUnit(at.rows.c);
    gates.c_next = at.FromUnit(at.rows.c_next);
    gates.h_next = at.FromUnit(at.rows.h_next);
    if (const T* p = at.weights.peepholes; p != nullptr) {
      gates.peephole_i = p + at.unit();
      gates.peephole_o = gates.peephole_i + spec_.hidden;
      gates.peephole_f = gates.peephole_o + spec_.hidden;
    }
    gates.input_forget = spec_.input_forget;
    gates.h = spec_.activations[2];
    ComputeGates(gates);
  } else if (spec_.cell == CellKind::kGru) {
    auto gates = at.template Gates<GruGates<T>>();
    gates.reset_after = spec_.reset_after;
    gates.h = at.FromUnit(at.rows.h);
    gates.h_next = at.FromUnit(at.rows.h_next);
    ComputeGates(gates);
  } else {
    auto gates = at.template Gates<RnnGate<T>>();
    gates.h_next = at.FromUnit(at.rows.h_next);
    ComputeGates(gates);
  }
}

template class StepKernel<float>;
template class StepKernel<double>;

StatusOr<Tensor> PackStepWeights(const StepSpec& spec, const Tensor& r, int direction,
                                 WeightCache& weights) {
  const std::string key = fmt::format("recurrent step: {} gates of {}, direction {}", spec.gates,
                                      spec.hidden, direction);
  return weights.Get(r, key, [&]() -> StatusOr<Tensor> {
    const auto pack = [&]<typename T>() {
      const StepKernel<T> kernel(spec);
      Tensor packed = HugeTensor(DTypeOf<T>::kValue, Shape{kernel.packed_elements()});
      kernel.Pack(r.data<T>() + direction * spec.gates * spec.hidden * spec.hidden,
                  packed.data<T>());
      return packed;
    };
    return r.dtype() == DType::kDouble ? pack.template operator()<double>()
                                       : pack.template operator()<float>();
  });
}

StatusOr<RecurrentStep> RecurrentStep::Create(const StepSpec& spec, const Tensor& r,
                                              const Tensor& rb, const Tensor& p,
                                              WeightCache& weights) {
  const auto check = [&](const Tensor& t, const char* name, const Shape& shape) -> Status {
    if (t.dtype() == DType::kFloat && t.shape() == shape) return {};
    return InvalidArgument("{} is {} {}; float {} is needed", name, DTypeName(t.dtype()),
                           t.shape().ToString(), shape.ToString());
  };
  const int64_t columns = spec.gates * spec.hidden;
  CHAIRLIFT_RETURN_IF_ERROR(check(r, "R", Shape{columns, spec.hidden}));
  if (rb.present()) CHAIRLIFT_RETURN_IF_ERROR(check(rb, "Rb", Shape{columns}));
  if (p.present()) CHAIRLIFT_RETURN_IF_ERROR(check(p, "P", Shape{3 * spec.hidden}));
  RecurrentStep step;
  step.kernel_ = StepKernel<float>(spec);
  CHAIRLIFT_ASSIGN_OR_RETURN(step.packed_, PackStepWeights(spec, r, 0, weights));
  step.bias_ = rb;
  step.peepholes_ = p;
  step.weights_.r = step.packed_.data<float>();
  if (rb.present()) step.weights_.bias = step.bias_.data<float>();
  if (p.present()) step.weights_.peepholes = step.peepholes_.data<float>();
  return step;
}

void RecurrentStep::Step(int64_t rows, const float* const* xw, const float* const* h,
                         const float* const* c, float* const* h_next, float* const* c_next,
                         bool backward, Team& team, void* scratch) const {
  StepRows<float> all;
  all.count = rows;
  all.x.rows = xw;
  all.h.rows = h;
  all.c.rows = c;
  all.h_next.rows = h_next;
  all.c_next.rows = c_next;
  all.backward = backward;
  kernel_.Step(weights_, all, kernel_.Parts(rows, team.width()), team, scratch);
}

}  // namespace chairlift
