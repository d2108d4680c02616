// A recurrent cell over a sequence: first the input's part of the gates for many time steps in one
// product, then step by step the state's part and the gate arithmetic.
//
// Sequences are sorted by length, longest first, so that the rows that are still active at a step
// are the first ones: no row is computed past its end. Each part of the team has the same blocks of
// units in every step, and with them a dense part of the packed weights.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/linear/huge_tensor.h"
#include "ops/recurrent/cell_product.h"
#include "ops/recurrent/recurrent.h"

namespace chairlift {
namespace {

// Rows of input (time steps × batch) projected together.
constexpr int64_t kProjectedRows = 256;
// Below this many multiply-adds of the projection, a team is not worth its fork and join (1 to 2
// µs).
constexpr double kSplitWork = 200e3;

// Allocates scratch memory: offsets in bytes, each 64-byte aligned.
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

// One direction's offsets in scratch memory, and its packed weights if they are constant.
template <typename T>
struct DirectionPlan {
  size_t h[2] = {};      // [B, state_stride], read and written alternately
  size_t c = 0;          // [B, state_stride]
  size_t input = 0;      // gathered rows of X [rows, I]
  size_t projected = 0;  // [rows, x columns]
  size_t bias = 0;       // [x columns]
  size_t step = 0;       // scratch of the steps
  size_t w = 0, r = 0;   // packed in each run
  Tensor packed_w, packed_r;
  StepKernel<T> kernel;
};

// The state of one run.
template <typename T>
struct Run {
  std::byte* scratch = nullptr;
  const KernelArgs* args = nullptr;
  int64_t* lengths = nullptr;  // by rank: longest first; null if all are T
  int64_t* order = nullptr;    // the row of each rank
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
    w_ = {features_, hidden_, 0, spec_.gates};
    gathers_ = spec_.batch_first || context.has_input(kInputLengths);
    chunk_steps_ = std::clamp<int64_t>(batch_ == 0 ? 1 : kProjectedRows / batch_, 1,
                                       std::max<int64_t>(time_, 1));
    // An odd number of cache lines apart, so that states do not share a cache set.
    constexpr int64_t kLine = 64 / sizeof(T);
    state_stride_ = (w_.blocks() * kUnitBlock / kLine | 1) * kLine;
    const double work =
        static_cast<double>(chunk_steps_ * batch_) * static_cast<double>(w_.elements());
    project_parts_ = context.width > 1 && work >= kSplitWork ? context.width : 1;
    directions_.resize(spec_.directions);
    for (int d = 0; d < spec_.directions; ++d) {
      directions_[d].kernel = StepKernel<T>(spec_.Step(d, hidden_));
    }
    step_parts_ = directions_[0].kernel.Parts(batch_ * spec_.directions, context.width);
  }

  // Packs the constant weights; the others are packed into scratch memory in each run.
  Status PackConstants(const CompileContext& context) {
    for (int d = 0; d < spec_.directions; ++d) {
      DirectionPlan<T>& plan = directions_[d];
      if (const Tensor* w = context.constant(kInputW); w != nullptr) {
        const std::string key =
            fmt::format("recurrent {}: {} gates of {}x{}", d, spec_.gates, hidden_, features_);
        CHAIRLIFT_ASSIGN_OR_RETURN(plan.packed_w, context.weights.Get(*w, key, [&] {
          Tensor t = HugeTensor(DTypeOf<T>::kValue, Shape{w_.elements()});
          PackCellWeights(w_, w->data<T>() + d * spec_.gates * hidden_ * features_, t.data<T>());
          return StatusOr<Tensor>(std::move(t));
        }));
      }
      if (const Tensor* r = context.constant(kInputR); r != nullptr) {
        CHAIRLIFT_ASSIGN_OR_RETURN(plan.packed_r,
                                   PackStepWeights(plan.kernel.spec(), *r, d, context.weights));
      }
    }
    return {};
  }

  void PlanScratch(const CompileContext& context) {
    ScratchPlan plan;
    const int64_t rows = chunk_steps_ * batch_;
    const bool lstm = spec_.cell == CellKind::kLstm;
    const int64_t state = batch_ * state_stride_;
    for (DirectionPlan<T>& d : directions_) {
      d.h[0] = plan.Add<T>(state);
      d.h[1] = plan.Add<T>(state);
      d.c = plan.Add<T>(lstm ? state : 0);
      d.input = plan.Add<T>(gathers_ ? rows * features_ : 0);
      d.projected = plan.Add<T>(rows * w_.columns());
      d.bias = plan.Add<T>(w_.columns());
      d.step =
          plan.Add<std::byte>(static_cast<int64_t>(d.kernel.ScratchBytes(batch_, step_parts_)));
      d.w = plan.Add<T>(d.packed_w.present() ? 0 : w_.elements());
      d.r = plan.Add<T>(d.packed_r.present() ? 0 : d.kernel.packed_elements());
    }
    if (context.has_input(kInputLengths)) {
      lengths_ = plan.Add<int64_t>(batch_);
      order_ = plan.Add<int64_t>(batch_);
      has_lengths_ = true;
    }
    scratch_bytes_ = plan.bytes();
  }

  const T* W(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan<T>& plan = directions_[d];
    return plan.packed_w.present() ? plan.packed_w.template data<T>() : run.At(plan.w);
  }
  StepWeights<T> Weights(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan<T>& plan = directions_[d];
    StepWeights<T> weights;
    weights.r = plan.packed_r.present() ? plan.packed_r.template data<T>() : run.At(plan.r);
    const T* bias = run.input(kInputBias);
    if (bias != nullptr && !FoldsBias()) weights.bias = RBias(bias, d);
    const T* p = spec_.cell == CellKind::kLstm ? run.input(kInputPeepholes) : nullptr;
    if (p != nullptr) weights.peepholes = p + d * 3 * hidden_;
    return weights;
  }
  // R's half of B.
  const T* RBias(const T* bias, int d) const { return bias + (d * 2 + 1) * spec_.gates * hidden_; }
  // Whether R's bias is added with W's. Not for GRU: its hidden gate multiplies it by the reset
  // gate if that comes after the product.
  bool FoldsBias() const { return spec_.cell != CellKind::kGru; }
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
  // Rows that have a step `step`; never fewer than at a later one.
  int64_t Alive(const chairlift::Run<T>& run, int64_t step) const {
    if (run.lengths == nullptr) return batch_;
    return std::partition_point(run.lengths, run.lengths + batch_,
                                [&](int64_t length) { return length > step; }) -
           run.lengths;
  }
  // The time of direction d at `step` in the sequence of this rank.
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

  // Sets up states, biases and weights that are not constant.
  void Start(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan<T>& plan = directions_[d];
    const bool lstm = spec_.cell == CellKind::kLstm;
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
    if (const T* bias = run.input(kInputBias); bias != nullptr) {
      AddCellBias(w_, bias + d * 2 * spec_.gates * hidden_, run.At(plan.bias));
      if (FoldsBias()) AddCellBias(w_, RBias(bias, d), run.At(plan.bias));
    }
    const auto weights = [&](int input, int64_t k) {
      return run.input(input) + d * spec_.gates * hidden_ * k;
    };
    if (!plan.packed_w.present()) {
      PackCellWeights(w_, weights(kInputW, features_), run.At(plan.w));
    }
    if (!plan.packed_r.present()) plan.kernel.Pack(weights(kInputR, hidden_), run.At(plan.r));
    // Outputs after a sequence's end are zero.
    if (T* y = run.output(0); y != nullptr && run.lengths != nullptr) {
      for (int64_t rank = 0; rank < batch_; ++rank) {
        for (int64_t t = run.lengths[rank]; t < time_; ++t) {
          std::fill_n(y + YOffset(d, t, run.Row(rank)), hidden_, T(0));
        }
      }
    }
  }

  // Calls body(part, direction, first block, last block) for a part's blocks.
  template <typename F>
  void ForBlocks(int part, int parts, F body) const {
    const int64_t blocks = w_.blocks();
    const int64_t first = blocks * spec_.directions * part / parts;
    const int64_t last = blocks * spec_.directions * (part + 1) / parts;
    for (int d = 0; d < spec_.directions; ++d) {
      const int64_t from = std::max(first - d * blocks, int64_t{0});
      const int64_t to = std::min(last - d * blocks, blocks);
      if (from < to) body(part, d, from, to);
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

  // The row of the chunk's projections where `step` begins. Gathered rows are in order of steps;
  // rows read in place are in order of time.
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
    Spread(run, project_parts_, [&](int, int d, int64_t from, int64_t to) {
      const DirectionPlan<T>& plan = directions_[d];
      const auto product = [&](const T* a, int64_t rows, int64_t row) {
        CellProduct(w_, from, to, rows, a, features_, W(run, d), run.At(plan.bias),
                    run.At(plan.projected) + row * w_.columns(), w_.columns());
      };
      if (!gathers_) {
        product(x + XOffset(Reversed(d) ? time_ - last : first, 0), (last - first) * batch_, 0);
        return;
      }
      // One product per run of steps in which all rows are active, else one per step.
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
    const int64_t count = Alive(run, step);
    const int phases = directions_[0].kernel.phases();
    for (int phase = 0; phase < phases; ++phase) {
      Spread(run, step_parts_, [&](int part, int d, int64_t from, int64_t to) {
        const DirectionPlan<T>& plan = directions_[d];
        StepRows<T> rows;
        rows.count = count;
        rows.x = {run.At(plan.projected) + ProjectedRow(d, first, last, step) * w_.columns(),
                  w_.columns()};
        rows.x_in_panels = true;
        rows.h = {run.At(plan.h[step & 1]), state_stride_};
        rows.h_next = {run.At(plan.h[(step + 1) & 1]), state_stride_};
        rows.c = {run.At(plan.c), state_stride_};
        rows.c_next = {run.At(plan.c), state_stride_};
        rows.h_is_zero = step == 0 && run.input(kInputH) == nullptr;
        rows.backward = step % 2 != 0;
        plan.kernel.Run(Weights(run, d), rows, phase, from, to, part, run.At(plan.step));
        if (phase + 1 == phases) StoreY(run, d, step, rows, from, to);
      });
    }
  }

  void StoreY(const chairlift::Run<T>& run, int d, int64_t step, const StepRows<T>& rows,
              int64_t from, int64_t to) const {
    T* y = run.output(0);
    if (y == nullptr) return;
    const int64_t unit = from * kUnitBlock;
    const int64_t units = std::min(to * kUnitBlock, hidden_) - unit;
    for (int64_t rank = 0; rank < rows.count; ++rank) {
      std::copy_n(rows.h_next[rank] + unit, units,
                  y + YOffset(d, TimeOf(run, d, rank, step), run.Row(rank)) + unit);
    }
  }

  // The last states, Y_h and Y_c; zero for a sequence of no steps, as in onnxruntime.
  void Finish(const chairlift::Run<T>& run, int d) const {
    const DirectionPlan<T>& plan = directions_[d];
    const bool lstm = spec_.cell == CellKind::kLstm;
    const auto store = [&](T* y, const T* state, int64_t rank, int64_t length) {
      if (y == nullptr) return;
      y += StateOffset(d, run.Row(rank));
      if (length == 0) {
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
  CellWeights w_;
  int64_t state_stride_ = 0;
  int64_t chunk_steps_ = 1;
  bool gathers_ = false;  // rows of X are copied into order before the product
  bool has_lengths_ = false;
  int step_parts_ = 1;
  int project_parts_ = 1;
  std::vector<DirectionPlan<T>> directions_;
  size_t lengths_ = 0, order_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace

std::span<const Implementation<RecurrentSpec>> RecurrentImplementations() {
  return RecurrentTable<RecurrentKernel>::kTable;
}

StatusOr<std::unique_ptr<Kernel>> CompileRecurrent(CellKind cell, const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentSpec spec,
                             RecurrentSpec::Parse(cell, context.attributes));
  return CompileFirst(RecurrentImplementations(), spec, context);
}

}  // namespace chairlift
