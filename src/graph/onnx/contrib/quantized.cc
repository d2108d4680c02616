// Rules for quantised operators other than products: what their integers stand for goes through the
// plain operator, and the result is quantised.
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// A scale or zero point as a scalar: [1] is taken for one.
ValueId AsScalar(Maker& make, ValueId id) {
  if (id == kNoValue) return id;
  const SymbolicShape shape = make.shape(id);
  if (shape.has_rank() && shape.rank() == 0) return id;
  return make.Make("Reshape", {id, make.Ints({})});
}

ValueId Dequantized(Maker& make, size_t x, size_t scale, size_t zero_point) {
  std::vector<ValueId> inputs = {make.in(x), AsScalar(make, make.in(scale))};
  if (make.has(zero_point)) inputs.push_back(AsScalar(make, make.in(zero_point)));
  return make.Make("DequantizeLinear", std::move(inputs));
}

// The node becomes `real` in the integers of `like`.
Status BecomeQuantized(Maker& make, ValueId real, size_t scale, size_t zero_point, ValueId like) {
  const ValueId zero =
      make.has(zero_point) ? AsScalar(make, make.in(zero_point)) : make.ScalarLike(like, 0);
  return make.Become("QuantizeLinear", {real, AsScalar(make, make.in(scale)), zero});
}

// Inputs: a, its scale and zero point; b, its scale and zero point; scale and zero point of the
// result.
Status QLinearBinary(Maker& make, const char* op) {
  const ValueId a = Dequantized(make, 0, 1, 2);
  const ValueId b = Dequantized(make, 3, 4, 5);
  return BecomeQuantized(make, make.Make(op, {a, b}), 6, 7, make.in(0));
}

// Inputs: x, its scale and zero point; scale and zero point of the result.
Status QLinearUnary(Maker& make, const char* op, Attributes attributes = {}) {
  const ValueId real = make.Make(op, {Dequantized(make, 0, 1, 2)}, std::move(attributes));
  return BecomeQuantized(make, real, 3, 4, make.in(0));
}

Status CheckChannelsFirst(const Maker& make) {
  if (make.attributes().Int("channels_last", 0) == 0) return absl::OkStatus();
  return Unimplemented("its attribute 'channels_last' is only supported as 0");
}

}  // namespace

Status QLinearAdd(Maker& make) { return QLinearBinary(make, "Add"); }
Status QLinearMul(Maker& make) { return QLinearBinary(make, "Mul"); }

Status QLinearSigmoid(Maker& make) { return QLinearUnary(make, "Sigmoid"); }

Status QLinearLeakyRelu(Maker& make) {
  return QLinearUnary(make, "LeakyRelu",
                      With({{"alpha", make.attributes().Float("alpha", 0.01f)}}));
}

Status QLinearSoftmax(Maker& make) {
  const auto* opset = make.attributes().Find<int64_t>("opset");
  if (opset == nullptr) return InvalidArgument("its attribute 'opset' is missing");
  int64_t axis = make.attributes().Int("axis", -1);
  if (*opset < 13) {  // then all axes from `axis` on were one
    const int rank = make.Rank(make.in(0), "its input");
    CHAIRLIFT_RETURN_IF_ERROR(make.status());
    if (axis != -1 && axis != rank - 1) {
      return Unimplemented("its attribute 'opset' below 13 is only supported for the last axis");
    }
    axis = -1;
  }
  return QLinearUnary(make, "Softmax", With({{"axis", axis}}));
}

Status QLinearAveragePool(Maker& make) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckChannelsFirst(make));
  Attributes attributes = make.attributes();
  attributes.Erase("channels_last");
  return QLinearUnary(make, "AveragePool", std::move(attributes));
}

Status QLinearGlobalAveragePool(Maker& make) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckChannelsFirst(make));
  return QLinearUnary(make, "GlobalAveragePool");
}

// Inputs: scale and zero point of the result, then x, its scale and its zero point of each part.
Status QLinearConcat(Maker& make) {
  if (make.num_inputs() % 3 != 2) {
    return InvalidArgument("it has {} inputs; it takes 2 and 3 for each part", make.num_inputs());
  }
  if (!make.attributes().Has("axis")) return InvalidArgument("its attribute 'axis' is missing");
  std::vector<ValueId> parts;
  for (size_t i = 2; i < make.num_inputs(); i += 3) {
    parts.push_back(Dequantized(make, i, i + 1, i + 2));
  }
  const ValueId real =
      make.Make("Concat", std::move(parts), With({{"axis", make.attributes().Int("axis", 0)}}));
  return BecomeQuantized(make, real, 0, 1, make.in(2));
}

// QuantizeLinear and DequantizeLinear of more types than ONNX's had when these came.
Status Quantization(Maker& make) {
  std::vector<ValueId> inputs = {make.in(0), make.in(1)};
  if (make.has(2)) inputs.push_back(make.in(2));
  return make.Become(make.op_type(), std::move(inputs), make.attributes());
}

}  // namespace chairlift::contrib
