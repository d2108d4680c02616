#include <algorithm>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/activation.cuh"
#include "ops/cuda/recurrent.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/types.cuh"

namespace chairlift::cuda {
namespace {

// Below this many elements, single units per thread are faster than packs.
constexpr int64_t kPackElements = int64_t{1} << 17;

__device__ __forceinline__ float Log1p(float x) { return log1pf(x); }
__device__ __forceinline__ double Log1p(double x) { return log1p(x); }
__device__ __forceinline__ float Absolute(float x) { return fabsf(x); }
__device__ __forceinline__ double Absolute(double x) { return fabs(x); }

template <typename C>
__device__ __noinline__ C RareActivation(GateFunction function, C alpha, C beta, C x) {
  switch (function) {
    case GateFunction::kSigmoid:
      return Sigmoid(x);
    case GateFunction::kTanh:
      return Tanh(x);
    case GateFunction::kRelu:
      return x < C(0) ? C(0) : x;
    case GateFunction::kAffine:
      return alpha * x + beta;
    case GateFunction::kLeakyRelu:
      return x < C(0) ? alpha * x : x;
    case GateFunction::kThresholdedRelu:
      return x > alpha ? x : C(0);
    case GateFunction::kScaledTanh:
      return alpha * Tanh(beta * x);
    case GateFunction::kHardSigmoid:
      return Clamp(alpha * x + beta, C(0), C(1));
    case GateFunction::kElu:
      return x < C(0) ? alpha * Expm1(x) : x;
    case GateFunction::kSoftsign:
      return x / (C(1) + Absolute(x));
    case GateFunction::kSoftplus:
      return (x < C(0) ? C(0) : x) + Log1p(Exp(-Absolute(x)));
  }
  return x;
}

template <typename C>
__device__ __forceinline__ C ActivateGate(const GateActivation& f, C x) {
  if (f.function == GateFunction::kSigmoid) return Sigmoid(x);
  if (f.function == GateFunction::kTanh) return Tanh(x);
  return RareActivation<C>(f.function, f.alpha, f.beta, x);
}

__device__ __forceinline__ int64_t LengthOf(const int32_t* lengths, int64_t b, int64_t time) {
  if (lengths == nullptr) return time;
  const int64_t length = lengths[b];
  return length < 0 ? 0 : length > time ? time : length;
}

// V units of one row, starting at `unit`, and the row's operands.
template <typename T, int V>
struct Place {
  using C = Compute<T>;
  const RecurrentGates& g;
  int64_t row, direction, unit;
  const T* x;  // for the gate in place 0

  // x + W's bias.
  __device__ __forceinline__ void Input(int gate, C* out) const {
    LoadPack<V>(x + g.x_gate[gate] * g.hidden + unit, out);
    AddBias(g.w_bias, gate, out);
  }
  // The recurrent product + R's bias.
  __device__ __forceinline__ void Recurrent(int gate, C* out) const {
    if (g.product != nullptr) {
      LoadPack<V>(static_cast<const C*>(g.product) + (row * g.gates + gate) * g.hidden + unit, out);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) out[i] = C(0);
    }
    AddBias(g.r_bias, gate, out);
  }
  __device__ __forceinline__ void Sum(int gate, C* out) const {
    C recurrent[V];
    Input(gate, out);
    Recurrent(gate, recurrent);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] += recurrent[i];
  }
  // out += P · state.
  __device__ __forceinline__ void AddPeephole(int place, const C* state, C* out) const {
    if (g.peepholes == nullptr) return;
    C p[V];
    LoadPack<V>(static_cast<const T*>(g.peepholes) + (direction * 3 + place) * g.hidden + unit, p);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] += p[i] * state[i];
  }
  __device__ __forceinline__ void AddBias(const void* bias, int gate, C* out) const {
    if (bias == nullptr) return;
    C b[V];
    LoadPack<V>(
        static_cast<const T*>(bias) + direction * g.bias_direction_stride + gate * g.hidden + unit,
        b);
#pragma unroll
    for (int i = 0; i < V; ++i) out[i] += b[i];
  }
  // x[i] = f(x[i] clipped to the bound).
  __device__ __forceinline__ void Gate(const GateActivation& f, C* x) const {
    const C bound = g.clip;
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = ActivateGate(f, Clamp(x[i], -bound, bound));
  }
};

// The new h of V units; for LSTM also c, which is stored.
template <GatesKind kKind, typename T, int V>
__device__ __forceinline__ void Cell(const RecurrentGates& g, const Place<T, V>& at,
                                     Compute<T>* h) {
  using C = Compute<T>;
  const GateActivation* f = g.activations[at.direction];
  const int64_t state_at = at.row * g.hidden + at.unit;
  if constexpr (kKind == GatesKind::kLstm) {
    C c[V], in[V], out[V], forget[V], cell[V];
    const int64_t c_at = at.row * g.c_row_stride + at.unit;
    if (g.c_is_computed) {
      LoadPack<V>(static_cast<const C*>(g.c) + c_at, c);
    } else {
      LoadPack<V>(static_cast<const T*>(g.c) + c_at, c);
    }
    at.Sum(0, in);
    at.Sum(1, out);
    at.Sum(2, forget);
    at.Sum(3, cell);
    at.AddPeephole(0, c, in);
    at.AddPeephole(2, c, forget);
    at.Gate(f[0], in);
    if (g.input_forget) {
#pragma unroll
      for (int i = 0; i < V; ++i) forget[i] = C(1) - in[i];
    } else {
      at.Gate(f[0], forget);
    }
    at.Gate(f[1], cell);
#pragma unroll
    for (int i = 0; i < V; ++i) c[i] = forget[i] * c[i] + in[i] * cell[i];
    at.AddPeephole(1, c, out);
    at.Gate(f[0], out);
    if (g.c_next != nullptr) {
      if (g.c_is_computed) {
        StorePack<V>(c, static_cast<C*>(g.c_next) + state_at);
      } else {
        StorePack<V>(c, static_cast<T*>(g.c_next) + state_at);
      }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) h[i] = out[i] * ActivateGate(f[2], c[i]);
  } else if constexpr (kKind == GatesKind::kRnn) {
    at.Sum(0, h);
    at.Gate(f[0], h);
  } else {
    C before[V], z[V], n[V];
    LoadPack<V>(static_cast<const T*>(g.h) + state_at, before);
    at.Sum(0, z);
    at.Gate(f[0], z);
    at.Input(2, n);
    C recurrent[V];
    at.Recurrent(2, recurrent);
    if constexpr (kKind == GatesKind::kGruAfter) {
      C r[V];
      at.Sum(1, r);
      at.Gate(f[0], r);
#pragma unroll
      for (int i = 0; i < V; ++i) recurrent[i] *= r[i];
    }
#pragma unroll
    for (int i = 0; i < V; ++i) n[i] += recurrent[i];
    at.Gate(f[1], n);
    // n + z (h − n) would lose digits if h and n are far apart.
#pragma unroll
    for (int i = 0; i < V; ++i) h[i] = (C(1) - z[i]) * n[i] + z[i] * before[i];
  }
}

// `columns` packs of V units per row.
template <GatesKind kKind, typename T, int V>
__global__ void __launch_bounds__(256)
    StepRows(const __grid_constant__ RecurrentGates g, int64_t columns) {
  using C = Compute<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const int64_t rows = g.directions * g.batch;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < rows;
       row += step) {
    const int64_t direction = row < g.batch ? 0 : 1;
    const int64_t b = row - direction * g.batch;
    const int64_t unit = column * V;
    const int64_t length = LengthOf(g.lengths, b, g.time);
    const bool alive = g.step < length;
    const int64_t t = alive && g.reversed[direction] ? length - 1 - g.step : g.step;
    C h[V] = {};
    if (alive) {
      const T* x = static_cast<const T*>(g.x) + direction * g.x_direction_stride +
                   t * g.x_time_stride + b * g.x_row_stride;
      const Place<T, V> at{g, row, direction, unit, x};
      if constexpr (kKind == GatesKind::kGruReset) {
        C before[V];
        LoadPack<V>(static_cast<const T*>(g.h) + row * g.hidden + unit, before);
        at.Sum(1, h);
        at.Gate(g.activations[direction][0], h);
#pragma unroll
        for (int i = 0; i < V; ++i) h[i] *= before[i];
      } else {
        Cell<kKind, T, V>(g, at, h);
        if (g.h_next != nullptr) {
          StorePack<V>(h, static_cast<T*>(g.h_next) + row * g.hidden + unit);
        }
      }
    }
    if constexpr (kKind == GatesKind::kGruReset) {
      StorePack<V>(h, static_cast<T*>(g.reset_h) + row * g.hidden + unit);
    } else if (g.y != nullptr) {
      StorePack<V>(h, static_cast<T*>(g.y) + direction * g.y_direction_stride +
                          t * g.y_time_stride + b * g.y_row_stride + unit);
    }
  }
}

// One element per thread.
template <typename T>
__global__ void __launch_bounds__(256)
    StartElements(const RecurrentStates s, const T* from_h, const T* from_c, T* h, Compute<T>* c,
                  int* fault) {
  const int64_t elements = s.directions * s.batch * s.hidden;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += step) {
    const int64_t unit = i % s.hidden;
    const int64_t row = i / s.hidden;
    const int64_t direction = row / s.batch;
    const int64_t b = row % s.batch;
    if (s.lengths != nullptr && unit == 0 && (s.lengths[b] < 0 || s.lengths[b] > s.time)) {
      atomicMax(fault, static_cast<int>(DataFault::kIndexOutOfRange));
    }
    const int64_t at = (s.batch_first ? b * s.directions + direction : row) * s.hidden + unit;
    Store(h + i, from_h != nullptr ? Load(from_h + at) : Compute<T>(0));
    if (c != nullptr) c[i] = from_c != nullptr ? Load(from_c + at) : Compute<T>(0);
  }
}
template <typename T>
__global__ void __launch_bounds__(256)
    FinishElements(const RecurrentStates s, const T* h, const Compute<T>* c, T* to_h, T* to_c) {
  const int64_t elements = s.directions * s.batch * s.hidden;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += step) {
    const int64_t unit = i % s.hidden;
    const int64_t row = i / s.hidden;
    const int64_t direction = row / s.batch;
    const int64_t b = row % s.batch;
    const bool any = LengthOf(s.lengths, b, s.time) > 0;
    const int64_t at = (s.batch_first ? b * s.directions + direction : row) * s.hidden + unit;
    if (to_h != nullptr) Store(to_h + at, any ? Load(h + i) : Compute<T>(0));
    if (to_c != nullptr) Store(to_c + at, any ? c[i] : Compute<T>(0));
  }
}

unsigned ElementBlocks(const RecurrentStates& s) {
  constexpr int64_t kThreads = 256, kMostBlocks = 4096;
  const int64_t elements = s.directions * s.batch * s.hidden;
  return static_cast<unsigned>(std::min((elements + kThreads - 1) / kThreads, kMostBlocks));
}

template <typename T, int V>
void LaunchStep(cudaStream_t stream, const RecurrentGates& g) {
  const int64_t columns = g.hidden / V;
  const RowGrid shape = GridOfRows(g.directions * g.batch, columns, 1);
  const auto launch = [&](auto* kernel) {
    kernel<<<shape.grid, shape.block, 0, stream>>>(g, columns);
  };
  switch (g.kind) {
    case GatesKind::kLstm:
      return launch(&StepRows<GatesKind::kLstm, T, V>);
    case GatesKind::kGruReset:
      return launch(&StepRows<GatesKind::kGruReset, T, V>);
    case GatesKind::kGru:
      return launch(&StepRows<GatesKind::kGru, T, V>);
    case GatesKind::kGruAfter:
      return launch(&StepRows<GatesKind::kGruAfter, T, V>);
    case GatesKind::kRnn:
      return launch(&StepRows<GatesKind::kRnn, T, V>);
  }
}

}  // namespace

void ComputeGates(cudaStream_t stream, DType dtype, const RecurrentGates& g) {
  const int64_t elements = g.directions * g.batch * g.hidden;
  if (elements == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    constexpr int kPack = kPackBytes / static_cast<int>(sizeof(T));
    bool packs = elements >= kPackElements;
    for (const int64_t stride :
         {g.hidden, g.x_direction_stride, g.x_time_stride, g.x_row_stride, g.bias_direction_stride,
          g.c_row_stride, g.y_direction_stride, g.y_time_stride, g.y_row_stride}) {
      packs = packs && stride % kPack == 0;
    }
    for (const void* p : {g.x, g.product, g.w_bias, g.r_bias, g.peepholes, g.h, g.c,
                          static_cast<const void*>(g.h_next), static_cast<const void*>(g.reset_h),
                          static_cast<const void*>(g.c_next), static_cast<const void*>(g.y)}) {
      packs = packs && PackAligned(p);
    }
    packs ? LaunchStep<T, kPack>(stream, g) : LaunchStep<T, 1>(stream, g);
  });
}

void StartStates(cudaStream_t stream, DType dtype, const RecurrentStates& states,
                 const void* from_h, const void* from_c, void* h, void* c, int* fault) {
  if (states.directions * states.batch * states.hidden == 0) return;
  ForFloats(dtype, [&]<typename T>() {
    StartElements<T><<<ElementBlocks(states), 256, 0, stream>>>(
        states, static_cast<const T*>(from_h), static_cast<const T*>(from_c), static_cast<T*>(h),
        static_cast<Compute<T>*>(c), fault);
  });
}

void FinishStates(cudaStream_t stream, DType dtype, const RecurrentStates& states, const void* h,
                  const void* c, void* to_h, void* to_c) {
  if (states.directions * states.batch * states.hidden == 0) return;
  if (to_h == nullptr && to_c == nullptr) return;
  ForFloats(dtype, [&]<typename T>() {
    FinishElements<T><<<ElementBlocks(states), 256, 0, stream>>>(
        states, static_cast<const T*>(h), static_cast<const Compute<T>*>(c), static_cast<T*>(to_h),
        static_cast<T*>(to_c));
  });
}

}  // namespace chairlift::cuda
