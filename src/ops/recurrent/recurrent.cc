// LSTM, GRU and RNN as operators.
#include "ops/recurrent/recurrent.h"

#include <utility>

#include "ops/axis_map.h"
#include "ops/multiply_adds.h"
#include "ops/recurrent/recurrent_operators.h"

namespace chairlift {
namespace {

// Sequences are independent. Inputs: X, W, R, B, sequence_lens, initial_h and, for an LSTM,
// initial_c, P.
StatusOr<AxisMap> AxesOfRecurrent(const InferContext& context) {
  const bool batch_first = context.attributes().Int("layout", 0) != 0;
  const auto along = [](int axis) {
    std::vector<int> labels(static_cast<size_t>(axis) + 1, AxisMap::kNone);
    labels.back() = 0;
    return AxisMap::Operand{.labels = std::move(labels)};
  };
  const AxisMap::Operand batch = along(batch_first ? 0 : 1);
  AxisMap map = MakeAxisMap(context);
  for (const int i : {0, 4, 5, 6}) {
    if (context.has_input(i)) map.inputs[static_cast<size_t>(i)] = i == 4 ? along(0) : batch;
  }
  for (AxisMap::Operand& output : map.outputs) output = batch;
  if (!map.outputs.empty()) map.outputs[0] = along(batch_first ? 0 : 2);
  return map;
}

template <CellKind cell>
OperatorDef Recurrent(const char* name, int inputs, int outputs) {
  OperatorDef def;
  def.name = name;
  def.min_opset = 7;
  def.min_inputs = 3;
  def.max_inputs = inputs;
  def.min_outputs = 0;
  def.max_outputs = outputs;
  def.input_types = {kFloatTypes, kFloatTypes,     kFloatTypes,
                     kFloatTypes, {DType::kInt32}, kFloatTypes};
  def.infer = [](InferContext& context) { return InferRecurrent(cell, context); };
  def.axes = AxesOfRecurrent;
  def.compile = [](const CompileContext& context) { return CompileRecurrent(cell, context); };
  // Every step of every row is multiplied with W and R.
  def.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                         std::span<const TensorDesc>) {
    const int64_t features = std::max<int64_t>(in[0].shape.dims().back(), 1);
    const int64_t steps = in[0].size() / features;
    return static_cast<double>(steps) * static_cast<double>(in[1].size() + in[2].size());
  };
  return def;
}

}  // namespace

OperatorDef LstmOperator() { return Recurrent<CellKind::kLstm>("LSTM", 8, 3); }
OperatorDef GruOperator() { return Recurrent<CellKind::kGru>("GRU", 6, 2); }
OperatorDef RnnOperator() { return Recurrent<CellKind::kRnn>("RNN", 6, 2); }

}  // namespace chairlift
