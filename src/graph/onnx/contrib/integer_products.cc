// Rules for scaled products of 8-bit integers, and for the quantisation of their operands.
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

ValueId Accumulated(Maker& make, const IntegerProduct& p) {
  std::vector<ValueId> inputs = {p.a, p.b, p.a_zero_point, p.b_zero_point};
  while (inputs.back() == kNoValue) inputs.pop_back();
  return make.Make("MatMulInteger", std::move(inputs));
}

ValueId Transposed(Maker& make, const char* attribute, size_t input) {
  const ValueId id = make.in(input);
  return make.attributes().Int(attribute, 0) != 0 ? make.Transpose(id, {1, 0}) : id;
}

// (w − zero point) · scale per direction, or per direction and column, with rows and columns
// exchanged: [directions, inputs, 4·hidden] to [directions, 4·hidden, inputs].
ValueId RecurrentWeights(Maker& make, size_t w, size_t scale, size_t zero_point) {
  const auto spread = [&](ValueId id) {
    const int rank = make.Rank(id, "the scale of its weights");
    return rank == 1 ? make.Unsqueeze(id, {1, 2}) : make.Unsqueeze(id, {1});
  };
  ValueId real = make.CastToFloat(make.in(w));
  if (make.has(zero_point)) {
    real = make.Make("Sub", {real, make.CastToFloat(spread(make.in(zero_point)))});
  }
  real = make.Make("Mul", {real, spread(make.in(scale))});
  return make.Transpose(real, {0, 2, 1});
}

}  // namespace

ValueId ScaledProduct(Maker& make, const IntegerProduct& p) {
  const ValueId sum = make.CastToFloat(Accumulated(make, p));
  return make.Make("Mul", {sum, make.Make("Mul", {p.a_scale, p.b_scale})});
}

// Inputs: a, b, b_scale, b_zero_point, bias.
Status DynamicQuantizeMatMul(Maker& make) {
  const std::vector<ValueId> a = make.MakeSeveral("DynamicQuantizeLinear", {make.in(0)}, 3);
  const ValueId y = ScaledProduct(make, {.a = a[0],
                                         .b = make.in(1),
                                         .a_scale = a[1],
                                         .b_scale = make.in(2),
                                         .a_zero_point = a[2],
                                         .b_zero_point = make.in(3)});
  if (make.has(4)) return make.Become("Add", {y, make.in(4)});
  return make.Become("Identity", {y});
}

// Inputs: a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias.
Status MatMulIntegerToFloat(Maker& make) {
  const ValueId y = ScaledProduct(make, {.a = make.in(0),
                                         .b = make.in(1),
                                         .a_scale = make.in(2),
                                         .b_scale = make.in(3),
                                         .a_zero_point = make.in(4),
                                         .b_zero_point = make.in(5)});
  if (make.has(6)) return make.Become("Add", {y, make.in(6)});
  return make.Become("Identity", {y});
}

// Inputs: a, its scale and zero point; b, its scale and zero point; c in int32; scale and zero
// point of the result. Without the last two the result is float32.
Status QGemm(Maker& make) {
  if (make.has(7) != make.has(8)) {
    return InvalidArgument(
        "it has only one of y_scale and y_zero_point; give both for a quantized result, or neither "
        "for float32");
  }
  ValueId sum = Accumulated(make, {.a = Transposed(make, "transA", 0),
                                   .b = Transposed(make, "transB", 3),
                                   .a_scale = kNoValue,
                                   .b_scale = kNoValue,
                                   .a_zero_point = make.in(2),
                                   .b_zero_point = make.in(5)});
  if (make.has(6)) sum = make.Make("Add", {sum, make.in(6)});
  ValueId a_scale = make.in(1);
  if (const float alpha = make.attributes().Float("alpha", 1.0f); alpha != 1.0f) {
    a_scale = make.Make("Mul", {a_scale, make.ScalarLike(a_scale, alpha)});
  }
  if (!make.has(7)) {
    return make.Become("Mul", {make.CastToFloat(sum), make.Make("Mul", {a_scale, make.in(4)})});
  }
  return make.Become(
      "Identity",
      {make.MakeOwn("Requantize", {sum, make.AsScalar(a_scale), make.AsScalar(make.in(7)),
                                   make.AsScalar(make.in(8)), make.in(4)})});
}

// The layer on the dequantised weights. Its inputs and states are not quantised. ONNX Runtime
// rounds them to 8 bits at each step with one scale for all rows of a batch, so that its answers
// depend on a row's neighbours.
Status DynamicQuantizeLstm(Maker& make) {
  std::vector<ValueId> inputs = {make.in(0), RecurrentWeights(make, 1, 8, 9),
                                 RecurrentWeights(make, 2, 10, 11)};
  for (size_t i = 3; i < 8; ++i) inputs.push_back(make.in(i));
  return make.BecomeWith({0, 1, 2}, "LSTM", std::move(inputs), make.attributes());
}

}  // namespace chairlift::contrib
