// ConvInteger and QLinearConv: contracts and shapes. chairlift::QLinearConv has three more
// attributes: `channels_last` (X and Y are [batch, spatial..., channels]), and `low` and `high`, to
// which an activation clamps the results.
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/byte_conv.h"
#include "ops/quantization/channels_last.h"
#include "ops/quantization/quantization.h"
#include "ops/window.h"

namespace chairlift {
namespace {

constexpr ByteConvInputs kConvInteger{};
constexpr ByteConvInputs kQLinearConv{0, 3, 2, 5, 1, 4, 6, 7, 8};

// An input of known shape must have one entry or, if `channels` > 0, one per channel.
Status CheckParameter(const InferContext& context, int input, const char* name, int64_t channels) {
  if (input < 0 || !context.has_input(input) || !context.shape(input).concrete()) return {};
  const int64_t count = context.shape(input).ToShape().NumElements();
  if (count == 1 || (channels > 0 && count == channels)) return {};
  return InvalidArgument("{} has shape {}; {} entries are needed", name,
                         context.shape(input).ToString(), std::max<int64_t>(channels, 1));
}

bool ChannelsLast(const Attributes& attributes) { return attributes.Int("channels_last", 0) != 0; }

Status InferConv(InferContext& context, const ByteConvInputs& at, DType output) {
  const bool channels_last = ChannelsLast(context.attributes());
  const SymbolicShape x =
      channels_last ? WithChannelsFirst(context.shape(at.x)) : context.shape(at.x);
  const SymbolicShape& w = context.shape(at.w);
  for (const auto& [zero, operand] : {std::pair{at.x_zero, at.x}, {at.w_zero, at.w}}) {
    if (context.has_input(zero) && context.dtype(zero) != context.dtype(operand)) {
      return InvalidArgument("input {} is {} where input {} is {}", zero,
                             DTypeName(context.dtype(zero)), operand,
                             DTypeName(context.dtype(operand)));
    }
  }
  context.set_output(0, output, SymbolicShape());
  if (!w.has_rank()) return {};
  if (w.rank() < 3) return InvalidArgument("weights {} need a spatial axis", w.ToString());
  if (x.has_rank() && x.rank() != w.rank()) {
    return InvalidArgument("input {} and weights {} differ in rank", x.ToString(), w.ToString());
  }
  SymbolicShape shape = SymbolicShape::OfRank(w.rank());
  shape[1] = w[0];
  const int64_t groups = context.attributes().Int("group", 1);
  if (groups < 1) return InvalidArgument("group {} must be at least 1", groups);
  if (w[0].known() && w[0].value() % groups != 0) {
    return InvalidArgument("weights {} do not divide into {} groups", w.ToString(), groups);
  }
  if (x.has_rank() && x[1].known() && w[1].known() &&
      (x[1].value() % groups != 0 || x[1].value() / groups != w[1].value())) {
    return InvalidArgument("weights {} do not fit input {} in {} groups", w.ToString(),
                           x.ToString(), groups);
  }
  std::vector<int64_t> kernel;
  for (int i = 2; i < w.rank() && w[i].known(); ++i) kernel.push_back(w[i].value());
  if (x.has_rank()) {
    shape[0] = x[0];
    if (static_cast<int>(kernel.size()) == w.rank() - 2) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                                 Window::Parse(context.attributes(), w.rank() - 2, kernel));
      for (int i = 2; i < x.rank(); ++i) {
        CHAIRLIFT_ASSIGN_OR_RETURN(shape[i], window.OutputDim(i - 2, x[i]));
      }
    }
  }
  const int64_t channels = w[0].known() ? w[0].value() : 0;
  CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.x_zero, "X's zero point", 0));
  CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.x_scale, "X's scale", 0));
  CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.y_zero, "Y's zero point", 0));
  CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.y_scale, "Y's scale", 0));
  if (channels > 0) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.w_zero, "W's zero point", channels));
    CHAIRLIFT_RETURN_IF_ERROR(CheckParameter(context, at.w_scale, "W's scale", channels));
    if (at.bias >= 0 && context.has_input(at.bias) && context.shape(at.bias).concrete() &&
        !(context.shape(at.bias).ToShape() == Shape{channels})) {
      return InvalidArgument("the bias {} must have {} entries", context.shape(at.bias).ToString(),
                             channels);
    }
  }
  if (channels_last) shape = WithChannelsLast(shape);
  return SetOutput(context, 0, output, std::move(shape));
}

StatusOr<std::unique_ptr<Kernel>> CompileConv(const CompileContext& context,
                                              const ByteConvInputs& at) {
  ByteConv conv;
  conv.at = at;
  conv.channels_last = ChannelsLast(context.attributes);
  const int first = conv.channels_last ? 1 : 2;  // spatial axis
  const Shape& x = context.inputs[at.x].shape;
  const Shape& w = context.inputs[at.w].shape;
  const Shape& y = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(conv.window,
                             Window::Parse(context.attributes, w.rank() - 2, w.dims().subspan(2)));
  for (int i = 0; i < w.rank() - 2; ++i) {
    conv.in.push_back(x[i + first]);
    conv.out.push_back(y[i + first]);
    conv.pads.push_back(conv.window.PadBegin(i, x[i + first]));
  }
  conv.groups = context.attributes.Int("group", 1);
  conv.batch = x[0];
  conv.out_channels = w[0];
  conv.channels = w[1] * conv.groups;
  conv.x_signed = context.inputs[at.x].dtype == DType::kInt8;
  conv.w_signed = context.inputs[at.w].dtype == DType::kInt8;
  conv.y_signed = context.outputs[0].dtype == DType::kInt8;
  conv.low = static_cast<int32_t>(context.attributes.Int("low", conv.low));
  conv.high = static_cast<int32_t>(context.attributes.Int("high", conv.high));
  return CompileByteConv(conv, context);
}

constexpr TypeSet kConvTypes{DType::kInt8, DType::kUInt8};

}  // namespace

void RegisterIntegerConv(OperatorRegistry& registry) {
  OperatorDef integer;
  integer.name = "ConvInteger";
  integer.min_opset = 10;
  integer.min_inputs = 2;
  integer.max_inputs = 4;
  integer.input_types = {kConvTypes};
  integer.infer = [](InferContext& c) { return InferConv(c, kConvInteger, DType::kInt32); };
  integer.axes = FirstAxis<0>;
  integer.compile = [](const CompileContext& c) { return CompileConv(c, kConvInteger); };
  integer.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                             std::span<const TensorDesc> out) {
    return ConvolutionMultiplyAdds(out[0], in[kConvInteger.w]);
  };
  registry.Add(std::move(integer));

  for (const char* domain : {"", "chairlift"}) {
    constexpr TypeSet kScale{DType::kFloat};
    OperatorDef quantized;
    quantized.domain = domain;
    quantized.name = "QLinearConv";
    quantized.min_opset = quantized.domain.empty() ? 10 : 1;
    quantized.min_inputs = 8;
    quantized.max_inputs = 9;
    quantized.input_types = {kConvTypes, kScale, kConvTypes, kConvTypes,     kScale,
                             kConvTypes, kScale, kConvTypes, {DType::kInt32}};
    quantized.infer = [](InferContext& c) {
      return InferConv(c, kQLinearConv, c.dtype(kQLinearConv.y_zero));
    };
    quantized.axes = FirstAxis<0>;
    quantized.compile = [](const CompileContext& c) { return CompileConv(c, kQLinearConv); };
    quantized.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                                 std::span<const TensorDesc> out) {
      return ConvolutionMultiplyAdds(out[0], in[kQLinearConv.w]);
    };
    registry.Add(std::move(quantized));
  }
}

}  // namespace chairlift
