// LSTM, GRU and RNN as operators.
#include "ops/recurrent/recurrent.h"

#include "ops/recurrent/recurrent_operators.h"

namespace chairlift {
namespace {

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
  def.compile = [](const CompileContext& context) { return CompileRecurrent(cell, context); };
  return def;
}

}  // namespace

OperatorDef LstmOperator() { return Recurrent<CellKind::kLstm>("LSTM", 8, 3); }
OperatorDef GruOperator() { return Recurrent<CellKind::kGru>("GRU", 6, 2); }
OperatorDef RnnOperator() { return Recurrent<CellKind::kRnn>("RNN", 6, 2); }

}  // namespace chairlift
