// Rules for quantised operators other than products. Their integers, or the values that they
// represent if that matters, go through the plain operator, and the result is quantised.
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

constexpr float kLargestSoftmaxScale = 1.3e36f;

ValueId ZeroPoint(Maker& make, size_t zero_point, ValueId like) {
  return make.has(zero_point) ? make.AsScalar(make.in(zero_point)) : make.ScalarLike(like, 0);
}

ValueId Dequantized(Maker& make, size_t x, ValueId scale, size_t zero_point) {
  std::vector<ValueId> inputs = {make.in(x), scale};
  if (make.has(zero_point)) inputs.push_back(make.AsScalar(make.in(zero_point)));
  return make.Make("DequantizeLinear", std::move(inputs));
}
// x minus its zero point: whole numbers. Operators that commute with a scale work on these, because
// the dequantised values may be infinite even if the result is not.
ValueId Centred(Maker& make, size_t x, size_t zero_point) {
  return Dequantized(make, x, make.Floats({}, {1.0f}), zero_point);
}

// Replaces the node by `real`, quantised to the integer type of `like`.
Status BecomeQuantized(Maker& make, ValueId real, size_t scale, size_t zero_point, ValueId like) {
  return make.Become("QuantizeLinear",
                     {real, make.AsScalar(make.in(scale)), ZeroPoint(make, zero_point, like)});
}

// Inputs: a, its scale and zero point; b, its scale and zero point; scale and zero point of the
// result.
Status QLinearBinary(Maker& make, const char* op) {
  const ValueId like = make.in(0);
  const auto scale = [&](size_t i) { return make.AsScalar(make.in(i)); };
  const auto zero = [&](size_t i) { return ZeroPoint(make, i, like); };
  return make.Become("Identity", {make.MakeOwn(op, {like, scale(1), zero(2), make.in(3), scale(4),
                                                    zero(5), scale(6), zero(7)})});
}

// For a homogeneous operator. Inputs: x, its scale and zero point; scale and zero point of the
// result.
// `inputs`: further inputs of the operator.
Status QLinearHomogeneous(Maker& make, const char* op, Attributes attributes = {},
                          std::vector<ValueId> inputs = {}) {
  const bool channels_last = make.attributes().Int("channels_last", 0) != 0;
  const int rank = channels_last ? make.Rank(make.in(0), "its input") : 0;
  if (channels_last && make.ok() && rank < 3) {
    return InvalidArgument("its input has {} dimensions; it must have 3 or more", rank);
  }
  attributes.Erase("channels_last");
  const ValueId centred = Centred(make, 0, 2);
  inputs.insert(inputs.begin(), channels_last ? ChannelsFirst(make, centred) : centred);
  const ValueId result = make.Make(op, std::move(inputs), std::move(attributes));
  const ValueId y =
      make.MakeOwn("Requantize", {result, make.AsScalar(make.in(1)), make.AsScalar(make.in(3)),
                                  ZeroPoint(make, 4, make.in(0))});
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  return channels_last ? BecomeChannelsLast(make, y, rank) : make.Become("Identity", {y});
}

}  // namespace

Status QLinearAdd(Maker& make) { return QLinearBinary(make, "QLinearAdd"); }
Status QLinearMul(Maker& make) { return QLinearBinary(make, "QLinearMul"); }

Status QLinearSigmoid(Maker& make) {
  const ValueId x = Dequantized(make, 0, make.AsScalar(make.in(1)), 2);
  return BecomeQuantized(make, make.Make("Sigmoid", {x}), 3, 4, make.in(0));
}

Status QLinearLeakyRelu(Maker& make) {
  return QLinearHomogeneous(make, "LeakyRelu",
                            With({{"alpha", make.attributes().Float("alpha", 0.01f)}}));
}

Status QLinearSoftmax(Maker& make) {
  const auto* opset = make.attributes().Find<int64_t>("opset");
  if (opset == nullptr) return InvalidArgument("its attribute 'opset' is missing");
  int64_t axis = make.attributes().Int("axis", -1);
  if (*opset < 13) {  // before, all axes from `axis` on were one
    const int rank = make.Rank(make.in(0), "its input");
    CHAIRLIFT_RETURN_IF_ERROR(make.status());
    if (axis != -1 && axis != rank - 1) {
      return Unimplemented("its attribute 'opset' below 13 is only supported for the last axis");
    }
    axis = -1;
  }
  // The difference of two infinities is undefined. With the largest allowed scale, 255 steps are
  // finite, and hide all but the largest elements as a larger scale would.
  const ValueId scale =
      make.Make("Min", {make.AsScalar(make.in(1)), make.Floats({}, {kLargestSoftmaxScale})});
  const ValueId real =
      make.Make("Softmax", {Dequantized(make, 0, scale, 2)}, With({{"axis", axis}}));
  return BecomeQuantized(make, real, 3, 4, make.in(0));
}

Status QLinearAveragePool(Maker& make) {
  return QLinearHomogeneous(make, "AveragePool", make.attributes());
}

Status QLinearGlobalAveragePool(Maker& make) {
  return QLinearHomogeneous(make, "GlobalAveragePool");
}

// A mean over the axes in attribute `axes`.
Status QLinearReduceMean(Maker& make) {
  std::vector<ValueId> axes;
  if (const std::vector<int64_t> given = make.attributes().Ints("axes"); !given.empty()) {
    axes = {make.Ints(given)};
  }
  return QLinearHomogeneous(make, "ReduceMean",
                            With({{"keepdims", make.attributes().Int("keepdims", 1)}}), axes);
}

// Inputs: the condition; x, its scale and zero point; y, its scale and zero point; scale and zero
// point of the result.
Status QLinearWhere(Maker& make) {
  const auto requantized = [&](size_t x) {
    return make.MakeOwn("Requantize", {Centred(make, x, x + 2), make.AsScalar(make.in(x + 1)),
                                       make.AsScalar(make.in(7)), ZeroPoint(make, 8, make.in(x))});
  };
  return make.Become("Where", {make.in(0), requantized(1), requantized(4)});
}

// Inputs: scale and zero point of the result; then, for each part, x, its scale and its zero point.
Status QLinearConcat(Maker& make) {
  if (make.num_inputs() % 3 != 2) {
    return InvalidArgument("it has {} inputs; it takes 2 and 3 for each part", make.num_inputs());
  }
  if (!make.attributes().Has("axis")) return InvalidArgument("its attribute 'axis' is missing");
  std::vector<ValueId> parts;
  for (size_t i = 2; i < make.num_inputs(); i += 3) {
    parts.push_back(
        make.MakeOwn("Requantize", {Centred(make, i, i + 2), make.AsScalar(make.in(i + 1)),
                                    make.AsScalar(make.in(0)), ZeroPoint(make, 1, make.in(i))}));
  }
  return make.Become("Concat", std::move(parts),
                     With({{"axis", make.attributes().Int("axis", 0)}}));
}

// QuantizeLinear and DequantizeLinear for more types than ONNX's had when these were introduced.
Status Quantization(Maker& make) {
  std::vector<ValueId> inputs = {make.in(0), make.in(1)};
  if (make.has(2)) inputs.push_back(make.in(2));
  return make.Become(make.op_type(), std::move(inputs), make.attributes());
}

}  // namespace chairlift::contrib
