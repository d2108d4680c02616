// chairlift::LstmGates: the arithmetic of an LSTM cell after its matrix products, made by
// fuse_lstm_gates.
//
//   h, c' = LstmGates(gates [..., 4·H], c [..., H]; order)
//   c' = σ(f)·c + σ(i)·tanh(g),  h = σ(o)·tanh(c')
//
// `order` gives the gate of each quarter of the last axis: a permutation of "ifgo". Leading
// dimensions are equal or, for matrices, one of the two may have one row for all of the other's.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/broadcast.h"
#include "ops/recurrent/gates_simd.h"
#include "ops/recurrent/recurrent_operators.h"

namespace chairlift {
namespace {

// Below this many elements of the state, a team is not worth its fork and join.
constexpr int64_t kSplitElements = 4096;
// Units per part are a multiple of this: whole cache lines.
constexpr int64_t kUnitGrain = 16;

Status InferLstmGates(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(LstmGatesOrder(context.attributes()).status());
  const SymbolicShape& gates = context.shape(0);
  const SymbolicShape& c = context.shape(1);
  const DType dtype = context.dtype(0);
  if (context.dtype(1) != dtype) {
    return InvalidArgument("c is {} where the gates are {}", DTypeName(context.dtype(1)),
                           DTypeName(dtype));
  }
  SymbolicShape out;
  if (gates.has_rank() && c.has_rank()) {
    const int rank = gates.rank();
    if (rank == 0 || c.rank() != rank) {
      return InvalidArgument("gates {} and c {} differ in rank, or are scalars", gates.ToString(),
                             c.ToString());
    }
    const Dim& columns = gates[rank - 1];
    const Dim& units = c[rank - 1];
    if (columns.known() &&
        (columns.value() % 4 != 0 || (units.known() && units.value() != columns.value() / 4))) {
      return InvalidArgument("gates {} are not four times as wide as c {}", gates.ToString(),
                             c.ToString());
    }
    out = c;
    for (int i = 0; i + 1 < rank; ++i) {
      CHAIRLIFT_ASSIGN_OR_RETURN(out[i], BroadcastDims(gates[i], c[i]));
      if (rank != 2 && gates[i].known() && c[i].known() && gates[i].value() != c[i].value()) {
        return InvalidArgument("gates {} and c {} differ in axis {}", gates.ToString(),
                               c.ToString(), i);
      }
    }
    if (!units.known() && columns.known()) out[rank - 1] = Dim(columns.value() / 4);
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, i, dtype, out));
  }
  return {};
}

template <typename T>
StatusOr<std::unique_ptr<Kernel>> CompileAsLstmGates(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string order, LstmGatesOrder(context.attributes));
  const Shape& out =
      context.outputs[0].present() ? context.outputs[0].shape : context.outputs[1].shape;
  const int64_t units = out[out.rank() - 1];
  LstmGates<T> gates;
  gates.shape.rows = out.NumElements(0, out.rank() - 1);
  gates.input.x_gate_stride = units;
  gates.gate_i = static_cast<int>(order.find('i'));
  gates.gate_f = static_cast<int>(order.find('f'));
  gates.gate_g = static_cast<int>(order.find('g'));
  gates.gate_o = static_cast<int>(order.find('o'));
  // An operand of one row serves all rows.
  gates.input.x.stride =
      context.inputs[0].size() == 4 * units && gates.shape.rows != 1 ? 0 : 4 * units;
  gates.c.stride = context.inputs[1].size() == units && gates.shape.rows != 1 ? 0 : units;
  gates.c_next.stride = gates.h_next.stride = units;
  gates.g.function = gates.h.function = GateFunction::kTanh;
  gates.usual = true;
  const int parts = context.width > 1 && gates.shape.rows * units >= kSplitElements
                        ? static_cast<int>(std::min<int64_t>(context.width, units / kUnitGrain + 1))
                        : 1;
  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        const auto run = [&](int64_t first, int64_t last, T* h, T* c) {
          LstmGates<T> part = gates;
          part.shape.units = part.shape.block = last - first;
          part.input.x.base = static_cast<const T*>(args.inputs[0]) + first;
          part.c.base = static_cast<const T*>(args.inputs[1]) + first;
          part.h_next.base = h + first;
          part.c_next.base = c + first;
          ComputeGates(part);
        };
        // An output that nothing reads is written to scratch memory.
        const auto output = [&](size_t i) {
          void* data = i < args.outputs.size() ? args.outputs[i] : nullptr;
          return static_cast<T*>(data != nullptr ? data : args.scratch);
        };
        T* h = output(0);
        T* c = output(1);
        if (parts == 1) {
          run(0, units, h, c);
          return {};
        }
        const int64_t grains = (units + kUnitGrain - 1) / kUnitGrain;
        args.team.For(parts, [&](int part, int) {
          const int64_t first = grains * part / parts * kUnitGrain;
          run(first, std::min(units, grains * (part + 1) / parts * kUnitGrain), h, c);
        });
        return {};
      },
      static_cast<size_t>(out.NumElements()) * sizeof(T));
}

StatusOr<std::unique_ptr<Kernel>> CompileLstmGates(const CompileContext& context) {
  return DispatchFloat(context.inputs[0].dtype,
                       [&]<typename T>() { return CompileAsLstmGates<T>(context); });
}

}  // namespace

StatusOr<std::string> LstmGatesOrder(const Attributes& attributes) {
  const std::string order = attributes.String("order", "ifgo");
  std::string sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != "fgio") return InvalidArgument("order '{}' is not a permutation of 'ifgo'", order);
  return order;
}

OperatorDef LstmGatesOperator() {
  OperatorDef def;
  def.domain = "chairlift";
  def.name = "LstmGates";
  def.min_inputs = def.max_inputs = 2;
  def.max_outputs = 2;
  def.input_types = {kFloatTypes};
  def.infer = InferLstmGates;
  def.compile = CompileLstmGates;
  return def;
}

}  // namespace chairlift
