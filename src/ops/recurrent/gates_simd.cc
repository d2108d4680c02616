// Gate arithmetic of LSTM, GRU and RNN cells, one build per instruction set.
#include "ops/recurrent/gates_simd.h"

#include "ops/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/recurrent/gates_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;

HWY_INLINE Vec<float> Sigmoid(Tag<float> d, Vec<float> x) { return VSigmoid(d, x); }
HWY_INLINE Vec<float> Tanh(Tag<float> d, Vec<float> x) { return VTanh(d, x); }
// Highway's functions do not guarantee NaN for NaN.
HWY_INLINE Vec<double> Sigmoid(Tag<double> d, Vec<double> x) {
  const auto one = hn::Set(d, 1.0);
  const auto e = hn::Exp(d, AtMost(hn::Neg(x), hn::Set(d, 709.0)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Div(one, hn::Add(one, e)));
}
HWY_INLINE Vec<double> Tanh(Tag<double> d, Vec<double> x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

template <typename T>
HWY_NOINLINE Vec<T> RareActivation(const GateActivation& f, Vec<T> x) {
  const Tag<T> d;
  const auto alpha = hn::Set(d, static_cast<T>(f.alpha));
  const auto beta = hn::Set(d, static_cast<T>(f.beta));
  const auto zero = hn::Zero(d);
  const auto one = hn::Set(d, T(1));
  switch (f.function) {
    case GateFunction::kSigmoid:
      return Sigmoid(d, x);
    case GateFunction::kTanh:
      return Tanh(d, x);
    case GateFunction::kRelu:
      return AtLeast(x, zero);
    case GateFunction::kAffine:
      return hn::MulAdd(alpha, x, beta);
    case GateFunction::kLeakyRelu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, x), x);
    case GateFunction::kThresholdedRelu:
      return hn::IfThenElseZero(hn::Gt(x, alpha), x);
    case GateFunction::kScaledTanh:
      return hn::Mul(alpha, Tanh(d, hn::Mul(beta, x)));
    case GateFunction::kHardSigmoid:
      return AtMost(AtLeast(hn::MulAdd(alpha, x, beta), zero), one);
    case GateFunction::kElu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, hn::Expm1(d, hn::Min(zero, x))), x);
    case GateFunction::kSoftsign:
      return hn::Div(x, hn::Add(one, hn::Abs(x)));
    case GateFunction::kSoftplus:
      return hn::Add(AtLeast(x, zero), hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(x)))));
  }
  return x;
}

template <typename T>
HWY_INLINE Vec<T> Activation(const GateActivation& f, Vec<T> x) {
  const Tag<T> d;
  if (HWY_LIKELY(f.function == GateFunction::kSigmoid)) return Sigmoid(d, x);
  if (HWY_LIKELY(f.function == GateFunction::kTanh)) return Tanh(d, x);
  return RareActivation<T>(f, x);
}

// Where one vector of units is read and written: n lanes, fewer at the end of a block.
template <typename T>
struct Lanes {
  size_t n;
  HWY_INLINE Vec<T> Load(const T* p) const {
    const Tag<T> d;
    if (HWY_LIKELY(n == hn::Lanes(d))) return hn::LoadU(d, p);
    HWY_ALIGN T lanes[hn::MaxLanes(Tag<T>())] = {};
    std::memcpy(lanes, p, n * sizeof(T));
    return hn::Load(d, lanes);
  }
  HWY_INLINE void Store(Vec<T> v, T* p) const {
    const Tag<T> d;
    if (HWY_LIKELY(n == hn::Lanes(d))) {
      hn::StoreU(v, d, p);
      return;
    }
    HWY_ALIGN T lanes[hn::MaxLanes(Tag<T>())];
    hn::Store(v, d, lanes);
    std::memcpy(p, lanes, n * sizeof(T));
  }
};

// One vector of units of one row, and the addresses of its parts.
template <typename T>
struct Place {
  int64_t row, unit;  // the first
  int64_t block, j;   // the unit's
  Lanes<T> lanes;
};

// Calls cell(place) for every vector of units of every row.
template <typename T, typename Cell>
HWY_INLINE void ForUnits(const GateShape& shape, Cell cell) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t first = 0, block = 0; first < shape.units; first += shape.block, ++block) {
      const int64_t units = HWY_MIN(shape.block, shape.units - first);
      for (int64_t j = 0; j < units; j += step) {
        cell(Place<T>{row, first + j, block, j, {static_cast<size_t>(HWY_MIN(step, units - j))}});
      }
    }
  }
}

// The pre-activations of one gate, without x.
template <typename T>
HWY_INLINE Vec<T> Input(const GateInput<T>& in, const Place<T>& at, int gate) {
  return at.lanes.Load(in.x[at.row] + gate * in.x_gate_stride + at.block * in.x_block_stride +
                       at.j);
}
template <typename T>
HWY_INLINE Vec<T> Recurrent(const GateInput<T>& in, const Place<T>& at, int gate) {
  Vec<T> sum = hn::Zero(Tag<T>());
  if (in.recurrent != nullptr) {
    sum = at.lanes.Load(in.recurrent + at.row * in.recurrent_row_stride +
                        gate * in.recurrent_gate_stride + at.block * in.recurrent_block_stride +
                        at.j);
  }
  if (in.bias != nullptr) {
    sum = hn::Add(sum, at.lanes.Load(in.bias + gate * in.bias_gate_stride + at.unit));
  }
  return sum;
}
template <typename T>
HWY_INLINE Vec<T> Sum(const GateInput<T>& in, const Place<T>& at, int gate) {
  return hn::Add(Input(in, at, gate), Recurrent(in, at, gate));
}

template <typename T>
HWY_INLINE Vec<T> Clip(const GateShape& shape, Vec<T> x) {
  const auto bound = hn::Set(Tag<T>(), static_cast<T>(shape.clip));
  return AtLeast(AtMost(x, bound), hn::Neg(bound));
}

// The usual functions, σ for gates and tanh for states, without bounds on their inputs. They are
// kept as fractions, so that a factor can share their division. Both parts stay finite: e^−x over
// all of float32; tanh's numerator and denominator are those of VTanh.
HWY_INLINE FloatVec ExpOfMinus(FloatVec x) {
  const FloatTag d;
  const auto y = AtLeast(AtMost(hn::Neg(x), hn::Set(d, 87.0f)), hn::Set(d, -87.0f));
  return VExpInRange(d, y);
}
HWY_INLINE FloatVec SigmoidDenominator(FloatVec x) {
  return hn::Add(hn::Set(FloatTag(), 1.0f), ExpOfMinus(x));
}

// A whole vector of units, or the first n lanes of one.
template <bool kWhole>
struct UsualLanes {
  size_t n;
  HWY_INLINE FloatVec Load(const float* p) const {
    return kWhole ? hn::LoadU(FloatTag(), p) : LoadPart(FloatTag(), p, n);
  }
  HWY_INLINE void Store(FloatVec v, float* p) const {
    kWhole ? hn::StoreU(v, FloatTag(), p) : StorePart(v, FloatTag(), p, n);
  }
};

// The addresses of the vector's parts.
struct UsualPlace {
  const float *x = nullptr, *recurrent = nullptr, *bias = nullptr;  // for gate 0
  const float* state = nullptr;                                     // LSTM c, GRU h
  float *next = nullptr, *c_next = nullptr;
  int64_t unit = 0;
};

// `sum` and the recurrent product and bias of one gate.
template <bool kWhole>
HWY_INLINE FloatVec UsualRecurrent(const GateInput<float>& in, const UsualPlace& at, int gate,
                                   UsualLanes<kWhole> lanes, FloatVec sum) {
  if (at.recurrent != nullptr) {
    sum = hn::Add(sum, lanes.Load(at.recurrent + gate * in.recurrent_gate_stride));
  }
  if (at.bias != nullptr) sum = hn::Add(sum, lanes.Load(at.bias + gate * in.bias_gate_stride));
  return sum;
}
// The pre-activation of one gate.
template <bool kWhole>
HWY_INLINE FloatVec UsualSum(const GateInput<float>& in, const UsualPlace& at, int gate,
                             UsualLanes<kWhole> lanes) {
  return UsualRecurrent(in, at, gate, lanes, lanes.Load(at.x + gate * in.x_gate_stride));
}

template <bool kWhole>
HWY_INLINE void UsualVector(const LstmGates<float>& a, const UsualPlace& at,
                            UsualLanes<kWhole> lanes) {
  const FloatTag d;
  const auto c = lanes.Load(at.state);
  auto i = UsualSum(a.input, at, a.gate_i, lanes);
  auto o = UsualSum(a.input, at, a.gate_o, lanes);
  auto f = UsualSum(a.input, at, a.gate_f, lanes);
  if (a.peephole_i != nullptr) {
    i = hn::MulAdd(lanes.Load(a.peephole_i + at.unit), c, i);
    f = hn::MulAdd(lanes.Load(a.peephole_f + at.unit), c, f);
  }
  const Fraction g = TanhFraction(d, UsualSum(a.input, at, a.gate_g, lanes));
  const auto kept = hn::Div(c, SigmoidDenominator(f));
  const auto c_next = hn::Add(kept, hn::Div(g.p, hn::Mul(g.q, SigmoidDenominator(i))));
  lanes.Store(c_next, at.c_next);
  if (a.peephole_o != nullptr) o = hn::MulAdd(lanes.Load(a.peephole_o + at.unit), c_next, o);
  const Fraction h = TanhFraction(d, c_next);
  lanes.Store(hn::Div(h.p, hn::Mul(h.q, SigmoidDenominator(o))), at.next);
}

template <bool kWhole>
HWY_INLINE void UsualVector(const GruReset<float>& a, const UsualPlace& at,
                            UsualLanes<kWhole> lanes) {
  const auto r = SigmoidDenominator(UsualSum(a.input, at, 1, lanes));
  lanes.Store(hn::Div(lanes.Load(at.state), r), at.next);
}

// With z = 1 / (1 + e) and n = p / q, h' = (1 − z)·n + z·h = (e·p + q·h) / (q·(1 + e)).
template <bool kWhole>
HWY_INLINE void UsualVector(const GruGates<float>& a, const UsualPlace& at,
                            UsualLanes<kWhole> lanes) {
  const FloatTag d;
  const auto e = ExpOfMinus(UsualSum(a.input, at, 0, lanes));
  FloatVec n;
  if (a.reset_after) {
    n = UsualRecurrent(a.input, at, 2, lanes, hn::Zero(d));
    n = hn::Div(n, SigmoidDenominator(UsualSum(a.input, at, 1, lanes)));
    n = hn::Add(n, lanes.Load(at.x + 2 * a.input.x_gate_stride));
  } else {
    n = UsualSum(a.input, at, 2, lanes);
  }
  const Fraction f = TanhFraction(d, n);
  const auto sum = hn::MulAdd(e, f.p, hn::Mul(f.q, lanes.Load(at.state)));
  lanes.Store(hn::Div(sum, hn::Mul(f.q, hn::Add(e, hn::Set(d, 1.0f)))), at.next);
}

template <bool kWhole>
HWY_INLINE void UsualVector(const RnnGate<float>& a, const UsualPlace& at,
                            UsualLanes<kWhole> lanes) {
  const Fraction h = TanhFraction(FloatTag(), UsualSum(a.input, at, 0, lanes));
  lanes.Store(hn::Div(h.p, h.q), at.next);
}

// The addresses of a row's unit 0, except x, recurrent and bias.
HWY_INLINE UsualPlace RowOf(const LstmGates<float>& a, int64_t row) {
  return {.state = a.c[row], .next = a.h_next[row], .c_next = a.c_next[row]};
}
HWY_INLINE UsualPlace RowOf(const GruReset<float>& a, int64_t row) {
  return {.state = a.h[row], .next = a.reset_h[row]};
}
HWY_INLINE UsualPlace RowOf(const GruGates<float>& a, int64_t row) {
  return {.state = a.h[row], .next = a.h_next[row]};
}
HWY_INLINE UsualPlace RowOf(const RnnGate<float>& a, int64_t row) {
  return {.next = a.h_next[row]};
}

template <typename Gates>
void ComputeUsual(const Gates& a) {
  const GateInput<float>& in = a.input;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  for (int64_t row = 0; row < a.shape.rows; ++row) {
    UsualPlace block = RowOf(a, row);
    block.x = in.x[row];
    block.recurrent = in.recurrent;
    block.bias = in.bias;
    if (in.recurrent != nullptr) block.recurrent += row * in.recurrent_row_stride;
    while (block.unit < a.shape.units) {
      const int64_t units = HWY_MIN(a.shape.block, a.shape.units - block.unit);
      const auto from = [&](int64_t j) HWY_ATTR {
        const int64_t unit = block.unit + j;
        return UsualPlace{block.x + j,
                          block.recurrent == nullptr ? nullptr : block.recurrent + j,
                          block.bias == nullptr ? nullptr : block.bias + unit,
                          block.state == nullptr ? nullptr : block.state + unit,
                          block.next + unit,
                          block.c_next == nullptr ? nullptr : block.c_next + unit,
                          unit};
      };
      int64_t j = 0;
      for (; j + lanes <= units; j += lanes) UsualVector(a, from(j), UsualLanes<true>{});
      if (j < units) UsualVector(a, from(j), UsualLanes<false>{static_cast<size_t>(units - j)});
      block.x += in.x_block_stride;
      if (block.recurrent != nullptr) block.recurrent += in.recurrent_block_stride;
      block.unit += a.shape.block;
    }
  }
}

template <typename T>
void Compute(const LstmGates<T>& a) {
  ForUnits<T>(a.shape, [&](const Place<T>& at) HWY_ATTR {
    const auto c = at.lanes.Load(a.c[at.row] + at.unit);
    auto i = Sum<T>(a.input, at, a.gate_i);
    auto o = Sum<T>(a.input, at, a.gate_o);
    auto f = Sum<T>(a.input, at, a.gate_f);
    const auto g = Sum<T>(a.input, at, a.gate_g);
    if (a.peephole_i != nullptr) {
      i = hn::MulAdd(at.lanes.Load(a.peephole_i + at.unit), c, i);
      f = hn::MulAdd(at.lanes.Load(a.peephole_f + at.unit), c, f);
    }
    i = Activation<T>(a.f, Clip<T>(a.shape, i));
    f = a.input_forget ? hn::Sub(hn::Set(Tag<T>(), T(1)), i)
                       : Activation<T>(a.f, Clip<T>(a.shape, f));
    const auto added = hn::Mul(i, Activation<T>(a.g, Clip<T>(a.shape, g)));
    const auto c_next = hn::MulAdd(f, c, added);
    if (a.peephole_o != nullptr) {
      o = hn::MulAdd(at.lanes.Load(a.peephole_o + at.unit), c_next, o);
    }
    o = Activation<T>(a.f, Clip<T>(a.shape, o));
    at.lanes.Store(c_next, a.c_next[at.row] + at.unit);
    at.lanes.Store(hn::Mul(o, Activation<T>(a.h, c_next)), a.h_next[at.row] + at.unit);
  });
}

template <typename T>
void Compute(const GruReset<T>& a) {
  ForUnits<T>(a.shape, [&](const Place<T>& at) HWY_ATTR {
    const auto r = Activation<T>(a.f, Clip<T>(a.shape, Sum<T>(a.input, at, 1)));
    at.lanes.Store(hn::Mul(r, at.lanes.Load(a.h[at.row] + at.unit)), a.reset_h[at.row] + at.unit);
  });
}

template <typename T>
void Compute(const GruGates<T>& a) {
  ForUnits<T>(a.shape, [&](const Place<T>& at) HWY_ATTR {
    const auto h = at.lanes.Load(a.h[at.row] + at.unit);
    const auto z = Activation<T>(a.f, Clip<T>(a.shape, Sum<T>(a.input, at, 0)));
    const auto x_n = Input<T>(a.input, at, 2);
    auto n = Recurrent<T>(a.input, at, 2);
    if (a.reset_after) {
      const auto r = Activation<T>(a.f, Clip<T>(a.shape, Sum<T>(a.input, at, 1)));
      n = hn::MulAdd(r, n, x_n);
    } else {
      n = hn::Add(n, x_n);
    }
    n = Activation<T>(a.g, Clip<T>(a.shape, n));
    // n + z (h − n) would lose digits if h and n are far apart.
    const auto kept = hn::Mul(z, h);
    at.lanes.Store(hn::MulAdd(hn::Sub(hn::Set(Tag<T>(), T(1)), z), n, kept),
                   a.h_next[at.row] + at.unit);
  });
}

template <typename T>
void Compute(const RnnGate<T>& a) {
  ForUnits<T>(a.shape, [&](const Place<T>& at) HWY_ATTR {
    at.lanes.Store(Activation<T>(a.f, Clip<T>(a.shape, Sum<T>(a.input, at, 0))),
                   a.h_next[at.row] + at.unit);
  });
}

void LstmFloat(const LstmGates<float>& a) { a.usual ? ComputeUsual(a) : Compute(a); }
void LstmDouble(const LstmGates<double>& a) { Compute(a); }
void GruResetFloat(const GruReset<float>& a) { a.usual ? ComputeUsual(a) : Compute(a); }
void GruResetDouble(const GruReset<double>& a) { Compute(a); }
void GruFloat(const GruGates<float>& a) { a.usual ? ComputeUsual(a) : Compute(a); }
void GruDouble(const GruGates<double>& a) { Compute(a); }
void RnnFloat(const RnnGate<float>& a) { a.usual ? ComputeUsual(a) : Compute(a); }
void RnnDouble(const RnnGate<double>& a) { Compute(a); }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace chairlift
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {

HWY_EXPORT(LstmFloat);
HWY_EXPORT(LstmDouble);
HWY_EXPORT(GruResetFloat);
HWY_EXPORT(GruResetDouble);
HWY_EXPORT(GruFloat);
HWY_EXPORT(GruDouble);
HWY_EXPORT(RnnFloat);
HWY_EXPORT(RnnDouble);

void ComputeGates(const LstmGates<float>& gates) { HWY_DYNAMIC_DISPATCH(LstmFloat)(gates); }
void ComputeGates(const LstmGates<double>& gates) { HWY_DYNAMIC_DISPATCH(LstmDouble)(gates); }
void ComputeGates(const GruReset<float>& gates) { HWY_DYNAMIC_DISPATCH(GruResetFloat)(gates); }
void ComputeGates(const GruReset<double>& gates) { HWY_DYNAMIC_DISPATCH(GruResetDouble)(gates); }
void ComputeGates(const GruGates<float>& gates) { HWY_DYNAMIC_DISPATCH(GruFloat)(gates); }
void ComputeGates(const GruGates<double>& gates) { HWY_DYNAMIC_DISPATCH(GruDouble)(gates); }
void ComputeGates(const RnnGate<float>& gates) { HWY_DYNAMIC_DISPATCH(RnnFloat)(gates); }
void ComputeGates(const RnnGate<double>& gates) { HWY_DYNAMIC_DISPATCH(RnnDouble)(gates); }

}  // namespace chairlift
#endif  // HWY_ONCE
