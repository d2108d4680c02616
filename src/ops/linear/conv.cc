// Conv, ConvTranspose and their fused forms: contracts and shapes.
#include <algorithm>
#include <utility>

#include "ops/axis_map.h"
#include "ops/linear/convolution.h"
#include "ops/linear/linear.h"
#include "ops/multiply_adds.h"
#include "ops/window.h"

namespace chairlift {
namespace {

// Checks for both directions of X, W and the bias vector B, with `bias` entries per group.
Status CheckOperands(const InferContext& context, bool transposed) {
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (context.has_input(i) && context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {} but X is {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
  }
  const SymbolicShape &x = context.shape(0), &w = context.shape(1);
  const int64_t groups = context.attributes().Int("group", 1);
  if (groups < 1) return InvalidArgument("group {} must be at least 1", groups);
  if (!w.has_rank()) return absl::OkStatus();
  if (w.rank() < 3) return InvalidArgument("weights {} need a spatial axis", w.ToString());
  if (x.has_rank() && x.rank() != w.rank()) {
    return InvalidArgument("input {} and weights {} differ in rank", x.ToString(), w.ToString());
  }
  if (w[0].known() && w[0].value() % groups != 0) {
    return InvalidArgument("weights {} do not divide into {} groups", w.ToString(), groups);
  }
  if (x.has_rank() && x[1].known() && w[transposed ? 0 : 1].known()) {
    const int64_t wanted = transposed ? w[0].value() : w[1].value();
    const int64_t had = transposed ? x[1].value() : x[1].value() / groups;
    if (had != wanted || x[1].value() % groups != 0) {
      return InvalidArgument("weights {} do not fit input {} in {} groups", w.ToString(),
                             x.ToString(), groups);
    }
  }
  if (context.has_input(2) && context.shape(2).concrete() && w.concrete()) {
    const int64_t channels = transposed ? w[1].value() * groups : w[0].value();
    if (!(context.shape(2).ToShape() == Shape{channels})) {
      return InvalidArgument("bias {} must have {} entries", context.shape(2).ToString(), channels);
    }
  }
  return absl::OkStatus();
}

// The kernel's extent from the weights if they have it, else from kernel_shape.
StatusOr<std::optional<Window>> WindowOf(const InferContext& context) {
  const SymbolicShape &x = context.shape(0), &w = context.shape(1);
  std::vector<int64_t> kernel;
  if (w.has_rank()) {
    for (int i = 2; i < w.rank(); ++i) {
      if (!w[i].known()) break;
      kernel.push_back(w[i].value());
    }
    if (static_cast<int>(kernel.size()) != w.rank() - 2) kernel.clear();
  }
  if (kernel.empty() && !context.attributes().Has("kernel_shape")) return std::optional<Window>();
  const int spatial = w.has_rank() ? w.rank() - 2
                      : x.has_rank()
                          ? x.rank() - 2
                          : static_cast<int>(context.attributes().Ints("kernel_shape").size());
  CHAIRLIFT_ASSIGN_OR_RETURN(Window window, Window::Parse(context.attributes(), spatial, kernel));
  return std::optional<Window>(std::move(window));
}

StatusOr<SymbolicShape> ConvShape(const InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(context, false));
  const SymbolicShape &x = context.shape(0), &w = context.shape(1);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::optional<Window> window, WindowOf(context));
  if (!x.has_rank() && !w.has_rank()) return SymbolicShape();
  SymbolicShape out = SymbolicShape::OfRank(x.has_rank() ? x.rank() : w.rank());
  if (x.has_rank()) out[0] = x[0];
  if (w.has_rank()) out[1] = w[0];
  if (x.has_rank() && window) {
    if (x.rank() != window->rank() + 2) {
      return InvalidArgument("input {} needs {} axes", x.ToString(), window->rank() + 2);
    }
    for (int i = 0; i < window->rank(); ++i) {
      CHAIRLIFT_ASSIGN_OR_RETURN(out[i + 2], window->OutputDim(i, x[i + 2]));
    }
  }
  return out;
}

Status InferConv(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, ConvShape(context));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

// Places are independent along axes where the kernel has one tap and takes every place.
StatusOr<AxisMap> ConvAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(AxisMap map, FirstAxis<0>(context));
  const StatusOr<std::optional<Window>> window = WindowOf(context);
  if (!window.ok() || !*window) return map;
  for (int i = 0; i < (*window)->rank(); ++i) {
    const auto axis = static_cast<size_t>(i);
    if ((*window)->kernel[axis] != 1 || (*window)->strides[axis] != 1 ||
        (*window)->pads_begin[axis] != 0 || (*window)->pads_end[axis] != 0) {
      continue;
    }
    for (std::vector<int>* labels : {&map.inputs[0].labels, &map.outputs[0].labels}) {
      labels->resize(std::max(labels->size(), axis + 3), AxisMap::kNone);
      (*labels)[axis + 2] = i + 1;
    }
  }
  return map;
}

// The factors of the inputs: one per channel of each image, or per channel of all.
Status CheckScale(const InferContext& context) {
  const SymbolicShape &x = context.shape(0), &w = context.shape(1), &scale = context.shape(4);
  if (!x.concrete() || !w.concrete() || !scale.concrete()) return absl::OkStatus();
  for (int i = 2; i < w.rank(); ++i) {
    if (w[i].value() != 1) return InvalidArgument("weights {} scaled have one tap", w.ToString());
  }
  bool fits = context.attributes().Int("group", 1) == 1 && scale.rank() == x.rank() &&
              x.rank() > 2 && scale[1].value() == x[1].value() &&
              (scale[0].value() == 1 || scale[0].value() == x[0].value());
  for (int i = 2; fits && i < scale.rank(); ++i) fits = scale[i].value() == 1;
  if (fits) return absl::OkStatus();
  return InvalidArgument("the scale {} must have one entry for each channel of the input {}",
                         scale.ToString(), x.ToString());
}

Status InferFusedConv(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(SymbolicShape shape, ConvShape(context));
  CHAIRLIFT_RETURN_IF_ERROR(Activation::Parse(context.attributes()).status());
  if (context.has_input(3) && context.shape(3).concrete() && shape.concrete() &&
      !(context.shape(3).ToShape() == shape.ToShape())) {
    return InvalidArgument("the residual {} must have the output's shape {}",
                           context.shape(3).ToString(), shape.ToString());
  }
  if (context.has_input(4)) CHAIRLIFT_RETURN_IF_ERROR(CheckScale(context));
  context.set_output(0, context.dtype(0), std::move(shape));
  return absl::OkStatus();
}

// Output sizes and leading pads of a transposed convolution along its spatial axes.
struct TransposedWindow {
  Window window;
  std::vector<int64_t> out;
  std::vector<int64_t> pads_begin;
};

StatusOr<TransposedWindow> TransposedSizes(const Attributes& attributes,
                                           std::span<const int64_t> in,
                                           std::span<const int64_t> kernel) {
  const int rank = static_cast<int>(in.size());
  TransposedWindow t;
  CHAIRLIFT_ASSIGN_OR_RETURN(t.window, Window::Parse(attributes, rank, kernel));
  const Window& w = t.window;
  std::vector<int64_t> output_padding = attributes.Ints("output_padding");
  if (output_padding.empty()) output_padding.assign(rank, 0);
  std::vector<int64_t> output_shape = attributes.Ints("output_shape");
  // Some exporters list all axes.
  if (static_cast<int>(output_shape.size()) == rank + 2) {
    output_shape.erase(output_shape.begin(), output_shape.begin() + 2);
  }
  if (static_cast<int>(output_padding.size()) != rank ||
      (!output_shape.empty() && static_cast<int>(output_shape.size()) != rank)) {
    return InvalidArgument("output_padding and output_shape must have {} entries", rank);
  }
  for (int i = 0; i < rank; ++i) {
    if (output_padding[i] < 0 || output_padding[i] > Window::kLimit) {
      return InvalidArgument("output_padding {} is out of range", output_padding[i]);
    }
    const int64_t full = (in[i] - 1) * w.strides[i] + w.Extent(i) + output_padding[i];
    int64_t out = full - w.pads_begin[i] - w.pads_end[i];
    int64_t begin = w.pads_begin[i];
    const bool same = w.auto_pad == AutoPad::kSameUpper || w.auto_pad == AutoPad::kSameLower;
    if (!output_shape.empty() || same) {
      out = output_shape.empty() ? in[i] * w.strides[i] : output_shape[i];
      const int64_t total = std::max<int64_t>(0, full - out);
      begin = w.auto_pad == AutoPad::kSameUpper ? total / 2 : total - total / 2;
    }
    if (out < 0 || out > (int64_t{1} << 40)) {
      return InvalidArgument("spatial axis {} would have {} elements", i, out);
    }
    t.out.push_back(out);
    t.pads_begin.push_back(begin);
  }
  return t;
}

Status InferConvTranspose(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckOperands(context, true));
  const SymbolicShape &x = context.shape(0), &w = context.shape(1);
  CHAIRLIFT_RETURN_IF_ERROR(WindowOf(context).status());
  if (!x.has_rank() && !w.has_rank()) {
    context.set_output(0, context.dtype(0), SymbolicShape());
    return absl::OkStatus();
  }
  SymbolicShape out = SymbolicShape::OfRank(x.has_rank() ? x.rank() : w.rank());
  if (x.has_rank()) out[0] = x[0];
  if (w.has_rank() && w[1].known()) out[1] = w[1].value() * context.attributes().Int("group", 1);
  // Axis by axis, so that one unknown size does not hide the others.
  for (int i = 2; x.has_rank() && w.concrete() && i < x.rank(); ++i) {
    if (!x[i].known()) continue;
    std::vector<int64_t> in, kernel;
    for (int j = 2; j < x.rank(); ++j) {
      in.push_back(x[j].known() ? x[j].value() : x[i].value());
      kernel.push_back(w[j].value());
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(const TransposedWindow t,
                               TransposedSizes(context.attributes(), in, kernel));
    out[i] = t.out[i - 2];
  }
  context.set_output(0, context.dtype(0), std::move(out));
  return absl::OkStatus();
}

Status InferFusedConvTranspose(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(Activation::Parse(context.attributes()).status());
  return InferConvTranspose(context);
}

Convolution Common(const CompileContext& context, bool transposed) {
  const Shape &x = context.inputs[0].shape, &w = context.inputs[1].shape;
  Convolution c;
  c.transposed = transposed;
  c.dtype = context.inputs[0].dtype;
  c.batch = x[0];
  c.channels = x[1];
  c.groups = context.attributes.Int("group", 1);
  c.out_channels = context.outputs[0].shape[1];
  for (int i = 2; i < x.rank(); ++i) {
    c.in.push_back(x[i]);
    c.out.push_back(context.outputs[0].shape[i]);
    c.kernel.push_back(w[i]);
  }
  if (context.has_input(2)) c.bias_input = 2;
  return c;
}

StatusOr<Convolution> Forward(const CompileContext& context) {
  Convolution c = Common(context, false);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Window window,
                             Window::Parse(context.attributes, c.spatial_rank(), c.kernel));
  c.strides = window.strides;
  c.dilations = window.dilations;
  for (int i = 0; i < c.spatial_rank(); ++i) c.pads_begin.push_back(window.PadBegin(i, c.in[i]));
  if (context.has_input(3)) c.residual_input = 3;
  if (context.has_input(4)) {
    c.scale_input = 4;
    c.scale_per_image = context.inputs[4].shape[0] != 1;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(c.activation, Activation::Parse(context.attributes));
  return c;
}

StatusOr<Convolution> Transposed(const CompileContext& context) {
  Convolution c = Common(context, true);
  CHAIRLIFT_ASSIGN_OR_RETURN(const TransposedWindow t,
                             TransposedSizes(context.attributes, c.in, c.kernel));
  c.strides = t.window.strides;
  c.dilations = t.window.dilations;
  c.pads_begin = t.pads_begin;
  CHAIRLIFT_ASSIGN_OR_RETURN(c.activation, Activation::Parse(context.attributes));
  return c;
}

template <bool transposed>
StatusOr<std::unique_ptr<Kernel>> CompileEither(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Convolution c, ConvolutionOf(context, transposed));
  return CompileConvolution(c, context);
}

// Whether a transposed convolution adds several products to the same output.
bool Overlaps(const Attributes& attributes, const Shape& weights) {
  const std::vector<int64_t> strides = attributes.Ints("strides");
  for (int i = 2; i < weights.rank(); ++i) {
    const auto axis = static_cast<size_t>(i - 2);
    if (weights[i] > (axis < strides.size() ? strides[axis] : 1)) return true;
  }
  return false;
}

// Whether a transposed convolution may have outputs at least a stride beyond everything that its
// inputs reach: oneDNN does not support those.
bool PadsBeyond(const Attributes& attributes) {
  const std::vector<int64_t> strides = attributes.Ints("strides");
  const std::vector<int64_t> padding = attributes.Ints("output_padding");
  for (size_t i = 0; i < padding.size(); ++i) {
    if (padding[i] >= (i < strides.size() ? strides[i] : 1)) return true;
  }
  return false;
}

// Whether a transposed convolution with a kernel of k multiplies the size of each axis by k.
bool Upsamples(const Attributes& attributes, const Shape& weights) {
  const auto all = [&](const char* name, int64_t value) {
    const std::vector<int64_t> values = attributes.Ints(name);
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == value; });
  };
  const std::string auto_pad = attributes.String("auto_pad", "NOTSET");
  return weights.rank() == 4 && all("pads", 0) && all("output_padding", 0) && all("dilations", 1) &&
         !attributes.Has("output_shape") && (auto_pad == "NOTSET" || auto_pad == "VALID") &&
         attributes.Ints("strides") == std::vector<int64_t>{weights[2], weights[3]};
}

// Each side is blocked if FillsBlocks() is true for it; with groups, both or neither. Transposed:
// the inputs must be whole blocks, and the outputs too unless it upsamples.
template <bool transposed>
std::optional<BlockedForm> ConvBlockedForm(const Attributes& attributes,
                                           std::span<const ValueInfo> inputs,
                                           std::span<const ValueInfo> outputs) {
  const SymbolicShape &x = inputs[0].shape, &w = inputs[1].shape, &y = outputs[0].shape;
  if (inputs[0].dtype != DType::kFloat || !x.has_rank() || !y.has_rank() || !w.has_rank() ||
      x.rank() > 5 || !x[1].known() || !y[1].known()) {
    return std::nullopt;
  }
  const int64_t groups = attributes.Int("group", 1);
  const bool depthwise = groups == x[1].value() && groups == y[1].value();
  const auto fits = [&](int64_t channels) {
    if (!transposed) return FillsBlocks(channels);
    return (depthwise ? groups : channels / groups) % ChannelBlock() == 0;
  };
  if (transposed && PadsBeyond(attributes)) return std::nullopt;
  // Overlapping outputs are summed row-major, from columns of products (col2im).
  if (transposed && !depthwise && (!w.concrete() || Overlaps(attributes, w.ToShape()))) {
    return std::nullopt;
  }
  const bool in = fits(x[1].value()), out = fits(y[1].value());
  if ((groups > 1 && !(in && out)) || (transposed && !in)) return std::nullopt;
  if (transposed && !out && !Upsamples(attributes, w.ToShape())) return std::nullopt;
  const auto whole = [&](const Dim& channels) {
    return channels.value() / groups % ChannelBlock() == 0;
  };
  if (groups > 1 && !depthwise && !transposed && !(whole(x[1]) && whole(y[1])) &&
      !(x.rank() <= 4 && GroupsFitBlocks(groups, x[1].value(), y[1].value()))) {
    return std::nullopt;
  }
  if (!in && !out) return std::nullopt;
  if (inputs.size() > 4 && inputs[4].dtype != DType::kUndefined) {
    // Scaled inputs need all operands blocked, or none.
    if (!(in && out)) return std::nullopt;
    const auto activation = Activation::Parse(attributes);
    if (y[1].value() % ChannelBlock() != 0 &&
        !(activation.ok() && Activate(*activation, 0.0) == 0)) {
      return std::nullopt;
    }
  }
  BlockedForm form{.inputs = in ? 1u : 0u, .outputs = out ? 1u : 0u, .anchor = true};
  const auto with = [&](size_t i) {
    if (inputs.size() > i && inputs[i].dtype != DType::kUndefined) form.inputs |= 1u << i;
  };
  if (out) with(3);
  with(4);
  return form;
}

double TransposedMultiplyAdds(const Attributes&, std::span<const TensorDesc> in,
                              std::span<const TensorDesc>) {
  return ConvolutionMultiplyAdds(in[0], in[1]);
}

template <bool transposed>
OperatorDef ConvDef(const char* domain, const char* name, int max_inputs) {
  OperatorDef def;
  def.domain = domain;
  def.name = name;
  def.min_inputs = 2;
  def.max_inputs = max_inputs;
  def.input_types = {kFloatTypes};
  def.blocked_form = ConvBlockedForm<transposed>;
  def.multiply_adds = [](const Attributes&, std::span<const TensorDesc> in,
                         std::span<const TensorDesc> out) {
    return ConvolutionMultiplyAdds(out[0], in[1]);
  };
  return def;
}

}  // namespace

StatusOr<Convolution> ConvolutionOf(const CompileContext& context, bool transposed) {
  return transposed ? Transposed(context) : Forward(context);
}

void RegisterConv(OperatorRegistry& registry) {
  OperatorDef conv = ConvDef<false>("", "Conv", 3);
  conv.infer = InferConv;
  conv.axes = ConvAxes;
  conv.compile = CompileEither<false>;
  registry.Add(std::move(conv));

  OperatorDef fused = ConvDef<false>("chairlift", "FusedConv", 5);
  fused.infer = InferFusedConv;
  fused.compile = CompileEither<false>;
  registry.Add(std::move(fused));

  OperatorDef transpose = ConvDef<true>("", "ConvTranspose", 3);
  transpose.infer = InferConvTranspose;
  transpose.axes = FirstAxis<0>;
  transpose.compile = CompileEither<true>;
  transpose.multiply_adds = TransposedMultiplyAdds;
  registry.Add(std::move(transpose));

  OperatorDef fused_transpose = ConvDef<true>("chairlift", "FusedConvTranspose", 3);
  fused_transpose.infer = InferFusedConvTranspose;
  fused_transpose.compile = CompileEither<true>;
  fused_transpose.multiply_adds = TransposedMultiplyAdds;
  registry.Add(std::move(fused_transpose));
}

}  // namespace chairlift
