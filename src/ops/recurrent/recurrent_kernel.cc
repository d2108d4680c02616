// A recurrent cell over a sequence: the input's share of the gates for many time steps in one
// product, then step by step the state's share and the gate arithmetic.
//
// Sequences of different lengths are taken longest first, so that the rows still alive at a step
// are the first ones: no row is computed past its end. Each part of the team owns some blocks of
// units in every step, and with them a dense share of the packed weights.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/linear/huge_tensor.h"
#include "ops/recurrent/cell_product.h"
#include "ops/recurrent/recurrent.h"

namespace chairlift {
namespace {

// Rows of input (time steps × batch) projected at once.
constexpr int64_t kProjectedRows = 256;
// Multiply-adds below which a team is not worth its fork and join (1 to 2 µs).
constexpr double kSplitWork = 200e3;

// Hands out the scratch: offsets in bytes, each 64-byte aligned.
class ScratchPlan {
 public:
  template <typename T>
  size_t Add(int64_t elements) {
    const size_t at = bytes_;
    bytes_ += (static_cast<size_t>(elements) * sizeof(T) + 127) / 64 * 64;
    return at;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// One direction's places in scratch, and its packed weights where they are constant.
struct DirectionPlan {
  size_t h[2] = {};      // [B, state_stride], read and written in turn
  size_t c = 0;          // [B, state_stride]
  size_t reset_h = 0;    // [B, state_stride]
  size_t input = 0;      // gathered rows of X [rows, I]
  size_t projected = 0;  // [rows, x columns]
  size_t recurrent = 0;  // [B, r columns]
  size_t recurrent_n = 0;
  size_t bias = 0;  // [x columns]
  size_t bias_n = 0;
  size_t peepholes = 0;          // 3 × [blocks·32]
  size_t w = 0, r = 0, r_n = 0;  // packed at each run
  Tensor packed_w, packed_r, packed_r_n;
};

// The state of one run.
template <typename T>
struct Run {
  std::byte* scratch = nullptr;
  const KernelArgs* args = nullptr;
  int64_t* lengths = nullptr;  // by rank: longest first; null where all are T
  int64_t* order = nullptr;    // the row of a rank
  int64_t steps = 0;           // of the longest

  T* At(size_t offset) const { return reinterpret_cast<T*>(scratch + offset); }
  const T* input(int i) const {
    return i < static_cast<int>(args->inputs.size()) ? static_cast<const T*>(args->inputs[i])
                                                     : nullptr;
  }
  T* output(int i) const {
    return i < static_cast<int>(args->outputs.size()) ? static_cast<T*>(args->outputs[i]) : nullptr;
  }
  int64_t Row(int64_t rank) const { return order == nullptr ? rank : order[rank]; }
};

template <typename T>
class RecurrentKernel final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(RecurrentSpec spec,
                                                   const CompileContext& context) {
    auto kernel = std::unique_ptr<RecurrentKernel>(new RecurrentKernel(std::move(spec), context));
    CHAIRLIFT_RETURN_IF_ERROR(kernel->PackConstants(context));
    kernel->PlanScratch(context);
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    chairlift::Run<T> run;
    run.scratch = static_cast<std::byte*>(args.scratch);
    run.args = &args;
    run.steps = time_;
    CHAIRLIFT_RETURN_IF_ERROR(OrderRows(run));
    for (int d = 0; d < spec_.directions; ++d) Start(run, d);
    for (int64_t first = 0; first < run.steps && batch_ > 0; first += chunk_steps_) {
      const int64_t last = std::min(run.steps, first + chunk_steps_);
      Project(run, first, last);
      for (int64_t step = first; step < last; ++step) Step(run, first, last, step);
    }
    for (int d = 0; d < spec_.directions; ++d) Finish(run, d);
    return {};
  }

 private:
  RecurrentKernel(RecurrentSpec spec, const CompileContext& context) : spec_(std::move(spec)) {
    const Shape& x = context.inputs[kInputX].shape;
    time_ = x[spec_.batch_first ? 1 : 0];
    batch_ = x[spec_.batch_first ? 0 : 1];
    features_ = x[2];
    hidden_ = context.inputs[kInputR].shape[2];
    const bool gru = spec_.cell == CellKind::kGru;
    w_ = {features_, hidden_, 0, spec_.gates};
    r_ = {hidden_, hidden_, 0, gru ? 2 : spec_.gates};
    r_n_ = {hidden_, hidden_, 2, gru ? 1 : 0};
    gathers_ = spec_.batch_first || context.has_input(kInputLengths);
    chunk_steps_ = std::clamp<int64_t>(batch_ == 0 ? 1 : kProjectedRows / batch_, 1,
                                       std::max<int64_t>(time_, 1));
    // States that lie a multiple of 1 KiB apart would compete for the same cache lines.
    state_stride_ = w_.blocks() * kUnitBlock;
    if (state_stride_ * sizeof(T) % 1024 == 0) state_stride_ += 64 / sizeof(T);
    const auto parts = [&](int64_t rows, int64_t k) {
      const double work = static_cast<double>(rows) * k * w_.columns();
      return context.width > 1 && work >= kSplitWork ? context.width : 1;
    };
    step_parts_ = parts(batch_, hidden_);
    project_parts_ = parts(chunk_steps_ * batch_, features_);
  }

  // Packs the weights that are known; the others are packed into scratch at each run.
  Status PackConstants(const CompileContext& context) {
    directions_.resize(spec_.directions);
    for (int d = 0; d < spec_.directions; ++d) {
      const auto pack = [&](int input, const CellWeights& weights, Tensor& packed) -> Status {
        const Tensor* constant = context.constant(input);
        if (constant == nullptr || weights.num_gates == 0) return {};
        const std::string key =
            fmt::format("recurrent {}: gates {}+{} of {}x{}x{}", d, weights.first_gate,
                        weights.num_gates, spec_.gates, weights.hidden, weights.k);
        CHAIRLIFT_ASSIGN_OR_RETURN(packed, context.weights.Get(*constant, key, [&] {
          Tensor t = HugeTensor(DTypeOf<T>::kValue, Shape{weights.elements()});
          PackCellWeights(weights, Source(weights, constant->data<T>(), d), t.data<T>());
          return StatusOr<Tensor>(std::move(t));
        }));
        return {};
      };
      DirectionPlan& plan = directions_[d];
      CHAIRLIFT_RETURN_IF_ERROR(pack(kInputW, w_, plan.packed_w));
      CHAIRLIFT_RETURN_IF_ERROR(pack(kInputR, r_, plan.packed_r));
      CHAIRLIFT_RETURN_IF_ERROR(pack(kInputR, r_n_, plan.packed_r_n));
    }
    return {};
  }

  void PlanScratch(const CompileContext& context) {
    ScratchPlan plan;
    const int64_t rows = chunk_steps_ * batch_;
    const bool lstm = spec_.cell == CellKind::kLstm;
    const bool gru = spec_.cell == CellKind::kGru;
    const int64_t state = batch_ * state_stride_;
    for (DirectionPlan& d : directions_) {
      d.h[0] = plan.Add<T>(state);
      d.h[1] = plan.Add<T>(state);
      d.c = plan.Add<T>(lstm ? state : 0);
      d.reset_h = plan.Add<T>(gru && !spec_.reset_after ? state : 0);
      d.input = plan.Add<T>(gathers_ ? rows * features_ : 0);
      d.projected = plan.Add<T>(rows * w_.columns());
      d.recurrent = plan.Add<T>(batch_ * r_.columns());
      d.recurrent_n = plan.Add<T>(batch_ * r_n_.columns());
      d.bias = plan.Add<T>(w_.columns());
      d.bias_n = plan.Add<T>(r_n_.columns());
      d.peepholes = plan.Add<T>(lstm ? 3 * w_.blocks() * kUnitBlock : 0);
      d.w = plan.Add<T>(d.packed_w.present() ? 0 : w_.elements());
      d.r = plan.Add<T>(d.packed_r.present() ? 0 : r_.elements());
      d.r_n = plan.Add<T>(d.packed_r_n.present() ? 0 : r_n_.elements());
    }
    if (context.has_input(kInputLengths)) {
      lengths_ = plan.Add<int64_t>(batch_);
      order_ = plan.Add<int64_t>(batch_);
      has_lengths_ = true;
    }
    scratch_bytes_ = plan.bytes();
  }

  // Direction d of W or R [D, gates·H, k].
  const T* Source(const CellWeights& weights, const T* w, int d) const {
    return w + d * spec_.gates * hidden_ * weights.k;
  }
  const T* W(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan& plan = directions_[d];
    return plan.packed_w.present() ? plan.packed_w.data<T>() : run.At(plan.w);
  }
  const T* R(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan& plan = directions_[d];
    return plan.packed_r.present() ? plan.packed_r.data<T>() : run.At(plan.r);
  }
  const T* RN(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan& plan = directions_[d];
    return plan.packed_r_n.present() ? plan.packed_r_n.data<T>() : run.At(plan.r_n);
  }
  bool Reversed(int d) const { return spec_.reverse || d == 1; }

  // Ranks the rows by length, longest first.
  Status OrderRows(chairlift::Run<T>& run) const {
    if (!has_lengths_) return {};
    const auto* lengths = static_cast<const int32_t*>(run.args->inputs[kInputLengths]);
    for (int64_t b = 0; b < batch_; ++b) {
      if (lengths[b] < 0 || lengths[b] > time_) {
        return InvalidArgument("sequence_lens[{}] is {}; it should be in [0, {}]", b, lengths[b],
                               time_);
      }
    }
    run.order = reinterpret_cast<int64_t*>(run.scratch + order_);
    run.lengths = reinterpret_cast<int64_t*>(run.scratch + lengths_);
    for (int64_t b = 0; b < batch_; ++b) run.order[b] = b;
    std::sort(run.order, run.order + batch_, [&](int64_t a, int64_t b) {
      return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
    });
    for (int64_t rank = 0; rank < batch_; ++rank) run.lengths[rank] = lengths[run.order[rank]];
    run.steps = batch_ == 0 ? 0 : run.lengths[0];
    return {};
  }
  // Rows that have a step `step`; never fewer at an earlier one.
  int64_t Alive(const chairlift::Run<T>& run, int64_t step) const {
    if (run.lengths == nullptr) return batch_;
    return std::partition_point(run.lengths, run.lengths + batch_,
                                [&](int64_t length) { return length > step; }) -
           run.lengths;
  }
  // The time that direction d has reached at `step` in the sequence of this rank.
  int64_t TimeOf(const chairlift::Run<T>& run, int d, int64_t rank, int64_t step) const {
    if (!Reversed(d)) return step;
    return (run.lengths == nullptr ? time_ : run.lengths[rank]) - 1 - step;
  }

  // Offsets of a row of X, Y, and of a state input or output.
  int64_t XOffset(int64_t time, int64_t row) const {
    return (spec_.batch_first ? row * time_ + time : time * batch_ + row) * features_;
  }
  int64_t YOffset(int d, int64_t time, int64_t row) const {
    return spec_.batch_first ? ((row * time_ + time) * spec_.directions + d) * hidden_
                             : ((time * spec_.directions + d) * batch_ + row) * hidden_;
  }
  int64_t StateOffset(int d, int64_t row) const {
    return (spec_.batch_first ? row * spec_.directions + d : d * batch_ + row) * hidden_;
  }

  // States, biases and whatever weights are not constant.
  void Start(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan& plan = directions_[d];
    const bool lstm = spec_.cell == CellKind::kLstm;
    const int64_t columns = w_.blocks() * kUnitBlock;
    const auto load = [&](const T* from, T* to) {
      std::fill_n(to, batch_ * state_stride_, T(0));
      if (from == nullptr) return;
      for (int64_t rank = 0; rank < batch_; ++rank) {
        std::copy_n(from + StateOffset(d, run.Row(rank)), hidden_, to + rank * state_stride_);
      }
    };
    load(run.input(kInputH), run.At(plan.h[0]));
    if (lstm) load(run.input(kInputC), run.At(plan.c));

    std::fill_n(run.At(plan.bias), w_.columns(), T(0));
    std::fill_n(run.At(plan.bias_n), r_n_.columns(), T(0));
    if (const T* bias = run.input(kInputBias); bias != nullptr) {
      const T* w_bias = bias + d * 2 * spec_.gates * hidden_;
      const T* r_bias = w_bias + spec_.gates * hidden_;
      AddCellBias(w_, w_bias, run.At(plan.bias));
      if (spec_.cell != CellKind::kGru) {
        AddCellBias(w_, r_bias, run.At(plan.bias));
      } else {
        // R's bias of the hidden gate is multiplied by the reset gate where that comes after.
        AddCellBias(r_n_, r_bias, run.At(plan.bias_n));
        T* x_bias = run.At(plan.bias);
        for (int64_t u = 0; u < hidden_; ++u) {
          T* at = x_bias + u / kUnitBlock * 3 * kUnitBlock + u % kUnitBlock;
          at[0] += r_bias[u];
          at[kUnitBlock] += r_bias[hidden_ + u];
        }
      }
    }
    if (const T* p = lstm ? run.input(kInputPeepholes) : nullptr; p != nullptr) {
      std::fill_n(run.At(plan.peepholes), 3 * columns, T(0));
      for (int g = 0; g < 3; ++g) {
        std::copy_n(p + (d * 3 + g) * hidden_, hidden_, run.At(plan.peepholes) + g * columns);
      }
    }
    if (!plan.packed_w.present()) {
      PackCellWeights(w_, Source(w_, run.input(kInputW), d), run.At(plan.w));
    }
    if (!plan.packed_r.present()) {
      PackCellWeights(r_, Source(r_, run.input(kInputR), d), run.At(plan.r));
      PackCellWeights(r_n_, Source(r_n_, run.input(kInputR), d), run.At(plan.r_n));
    }
    // Times past a sequence's end answer zero.
    if (T* y = run.output(0); y != nullptr && run.lengths != nullptr) {
      for (int64_t rank = 0; rank < batch_; ++rank) {
        for (int64_t t = run.lengths[rank]; t < time_; ++t) {
          std::fill_n(y + YOffset(d, t, run.Row(rank)), hidden_, T(0));
        }
      }
    }
  }

  // Calls body(direction, first block, last block) for a part's blocks.
  template <typename F>
  void ForBlocks(int part, int parts, F body) const {
    const int64_t blocks = w_.blocks();
    const int64_t first = blocks * spec_.directions * part / parts;
    const int64_t last = blocks * spec_.directions * (part + 1) / parts;
    for (int d = 0; d < spec_.directions; ++d) {
      const int64_t from = std::max(first - d * blocks, int64_t{0});
      const int64_t to = std::min(last - d * blocks, blocks);
      if (from < to) body(d, from, to);
    }
  }
  template <typename F>
  void Spread(const chairlift::Run<T>& run, int parts, F body) const {
    if (parts == 1) {
      ForBlocks(0, 1, body);
    } else {
      run.args->team.For(parts, [&](int part, int) { ForBlocks(part, parts, body); });
    }
  }

  // The row of the chunk's projections where `step` begins. Gathered rows lie in order of step;
  // those read in place in order of time.
  int64_t ProjectedRow(int d, int64_t first, int64_t last, int64_t step) const {
    return (!gathers_ && Reversed(d) ? last - 1 - step : step - first) * batch_;
  }

  // projected = X · Wᵀ + bias for the steps [first, last).
  void Project(const chairlift::Run<T>& run, int64_t first, int64_t last) const {
    const T* x = run.input(kInputX);
    if (gathers_) {
      for (int d = 0; d < spec_.directions; ++d) {
        T* to = run.At(directions_[d].input);
        for (int64_t step = first; step < last; ++step) {
          const int64_t alive = Alive(run, step);
          for (int64_t rank = 0; rank < alive; ++rank) {
            std::copy_n(x + XOffset(TimeOf(run, d, rank, step), run.Row(rank)), features_,
                        to + ((step - first) * batch_ + rank) * features_);
          }
        }
      }
    }
    Spread(run, project_parts_, [&](int d, int64_t from, int64_t to) {
      const DirectionPlan& plan = directions_[d];
      const auto product = [&](const T* a, int64_t rows, int64_t row) {
        CellProduct(w_, from, to, rows, a, features_, W(run, d), run.At(plan.bias),
                    run.At(plan.projected) + row * w_.columns(), w_.columns());
      };
      if (!gathers_) {
        product(x + XOffset(Reversed(d) ? time_ - last : first, 0), (last - first) * batch_, 0);
        return;
      }
      // One product for each run of steps that all rows are alive in, else one a step.
      int64_t step = first;
      while (step < last) {
        const int64_t alive = Alive(run, step);
        int64_t end = step + 1;
        while (alive == batch_ && end < last && Alive(run, end) == batch_) ++end;
        const int64_t row = (step - first) * batch_;
        product(run.At(plan.input) + row * features_, (end - step - 1) * batch_ + alive, row);
        step = end;
      }
    });
  }

  // One time step of both directions.
  void Step(const chairlift::Run<T>& run, int64_t first, int64_t last, int64_t step) const {
    const int64_t rows = Alive(run, step);
    if (spec_.cell == CellKind::kGru && !spec_.reset_after) {
      // The hidden gate's product needs the reset state of all units: two rounds.
      Spread(run, step_parts_, [&](int d, int64_t from, int64_t to) {
        StatePart at = Part(run, d, first, last, step, rows, from, to);
        StateProduct(run, at);
        ComputeGates(Reset(run, at));
      });
    }
    Spread(run, step_parts_, [&](int d, int64_t from, int64_t to) {
      StatePart at = Part(run, d, first, last, step, rows, from, to);
      if (spec_.cell == CellKind::kLstm) {
        StateProduct(run, at);
        ComputeGates(Lstm(run, at));
      } else if (spec_.cell == CellKind::kRnn) {
        StateProduct(run, at);
        ComputeGates(Rnn(run, at));
      } else {
        if (spec_.reset_after) StateProduct(run, at);
        CellProduct(r_n_, from, to, rows, spec_.reset_after ? at.h : run.At(directions_[d].reset_h),
                    state_stride_, RN(run, d), run.At(directions_[d].bias_n),
                    run.At(directions_[d].recurrent_n), r_n_.columns());
        ComputeGates(Gru(run, at));
      }
      StoreY(run, at);
    });
  }

  // One part of one step: rows × the units of blocks [from, to).
  struct StatePart {
    int d = 0;
    int64_t step = 0, rows = 0, from = 0, to = 0;
    int64_t unit = 0;      // the first
    const T* h = nullptr;  // from unit 0
    T* h_next = nullptr;
    GateShape shape;
    GateInput<T> input;
    const GateActivation* activations = nullptr;
  };
  StatePart Part(const chairlift::Run<T>& run, int d, int64_t first, int64_t last, int64_t step,
                 int64_t rows, int64_t from, int64_t to) const {
    const DirectionPlan& plan = directions_[d];
    StatePart at;
    at.d = d;
    at.step = step;
    at.rows = rows;
    at.from = from;
    at.to = to;
    at.unit = from * kUnitBlock;
    at.h = run.At(plan.h[step & 1]);
    at.h_next = run.At(plan.h[(step + 1) & 1]);
    at.shape = {rows, to - from, kUnitBlock, spec_.clip};
    const int64_t x_block = w_.num_gates * kUnitBlock;
    const int64_t r_block = r_.num_gates * kUnitBlock;
    at.input = {
        run.At(plan.projected) + ProjectedRow(d, first, last, step) * w_.columns() + from * x_block,
        w_.columns(),
        x_block,
        run.At(plan.recurrent) + from * r_block,
        r_.columns(),
        r_block};
    at.activations = spec_.activations.data() + d * ActivationCount(spec_.cell);
    return at;
  }
  void StateProduct(const chairlift::Run<T>& run, const StatePart& at) const {
    CellProduct(r_, at.from, at.to, at.rows, at.h, state_stride_, R(run, at.d), nullptr,
                run.At(directions_[at.d].recurrent), r_.columns());
  }

  LstmGates<T> Lstm(const chairlift::Run<T>& run, const StatePart& at) const {
    const DirectionPlan& plan = directions_[at.d];
    LstmGates<T> gates;
    gates.shape = at.shape;
    gates.input = at.input;
    gates.offset_i = 0;
    gates.offset_o = kUnitBlock;
    gates.offset_f = 2 * kUnitBlock;
    gates.offset_g = 3 * kUnitBlock;
    gates.c = gates.c_next = run.At(plan.c) + at.unit;
    gates.h_next = at.h_next + at.unit;
    gates.c_stride = gates.c_next_stride = gates.h_next_stride = state_stride_;
    if (run.input(kInputPeepholes) != nullptr) {
      const int64_t columns = w_.blocks() * kUnitBlock;
      gates.peephole_i = run.At(plan.peepholes) + at.unit;
      gates.peephole_o = gates.peephole_i + columns;
      gates.peephole_f = gates.peephole_o + columns;
    }
    gates.input_forget = spec_.input_forget;
    gates.f = at.activations[0];
    gates.g = at.activations[1];
    gates.h = at.activations[2];
    return gates;
  }
  GruReset<T> Reset(const chairlift::Run<T>& run, const StatePart& at) const {
    return {at.shape,
            at.input,
            at.h + at.unit,
            state_stride_,
            run.At(directions_[at.d].reset_h) + at.unit,
            state_stride_,
            at.activations[0]};
  }
  GruGates<T> Gru(const chairlift::Run<T>& run, const StatePart& at) const {
    return {at.shape,
            at.input,
            run.At(directions_[at.d].recurrent_n) + at.unit,
            r_n_.columns(),
            spec_.reset_after,
            at.h + at.unit,
            state_stride_,
            at.h_next + at.unit,
            state_stride_,
            at.activations[0],
            at.activations[1]};
  }
  RnnGate<T> Rnn(const chairlift::Run<T>&, const StatePart& at) const {
    return {at.shape, at.input, at.h_next + at.unit, state_stride_, at.activations[0]};
  }

  void StoreY(const chairlift::Run<T>& run, const StatePart& at) const {
    T* y = run.output(0);
    if (y == nullptr) return;
    const int64_t units = std::min(at.to * kUnitBlock, hidden_) - at.unit;
    for (int64_t rank = 0; rank < at.rows; ++rank) {
      std::copy_n(at.h_next + rank * state_stride_ + at.unit, units,
                  y + YOffset(at.d, TimeOf(run, at.d, rank, at.step), run.Row(rank)) + at.unit);
    }
  }

  // The last states, Y_h and Y_c; zero for a sequence of no steps, as onnxruntime has it.
  void Finish(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan& plan = directions_[d];
    const bool lstm = spec_.cell == CellKind::kLstm;
    const auto store = [&](T* y, const T* state, int64_t rank, int64_t length) {
      if (y == nullptr) return;
      y += StateOffset(d, run.Row(rank));
      if (length == 0 && run.lengths != nullptr) {
        std::fill_n(y, hidden_, T(0));
      } else {
        std::copy_n(state + rank * state_stride_, hidden_, y);
      }
    };
    for (int64_t rank = 0; rank < batch_; ++rank) {
      const int64_t length = run.lengths == nullptr ? time_ : run.lengths[rank];
      store(run.output(1), run.At(plan.h[length & 1]), rank, length);
      if (lstm) store(run.output(2), run.At(plan.c), rank, length);
    }
  }

  RecurrentSpec spec_;
  int64_t time_ = 0, batch_ = 0, features_ = 0, hidden_ = 0;
  CellWeights w_, r_;
  CellWeights r_n_;  // GRU's hidden gate
  int64_t state_stride_ = 0;
  int64_t chunk_steps_ = 1;
  bool gathers_ = false;  // rows of X are copied into order before the product
  bool has_lengths_ = false;
  int step_parts_ = 1;
  int project_parts_ = 1;
  std::vector<DirectionPlan> directions_;
  size_t lengths_ = 0, order_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileRecurrent(CellKind cell, const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(RecurrentSpec spec, RecurrentSpec::Parse(cell, context.attributes));
  if (context.inputs[kInputX].dtype == DType::kDouble) {
    return RecurrentKernel<double>::Compile(std::move(spec), context);
  }
  return RecurrentKernel<float>::Compile(std::move(spec), context);
}

}  // namespace chairlift
