// Resize: contract, shape rule and selection of a kernel.
#include <algorithm>
#include <cmath>

#include "ops/axes.h"
#include "ops/image/image.h"
#include "ops/image/resize_plan.h"
#include "ops/input_values.h"
#include "ops/kernel_memory.h"

namespace chairlift {
namespace {

constexpr int kRoi = 1;
constexpr int kScales = 2;
constexpr int kSizes = 3;
// Indices of elements along an axis are 32-bit.
constexpr int64_t kLongestAxis = (int64_t{1} << 31) - 1;

// Models of all opsets pass empty tensors for omitted inputs.
bool Given(const InferContext& context, int i) {
  if (!context.has_input(i)) return false;
  const SymbolicShape& s = context.shape(i);
  return !(s.has_rank() && s.rank() == 1 && s[0].known() && s[0].value() == 0);
}
bool Given(const CompileContext& context, int i) {
  return context.has_input(i) && context.inputs[i].size() > 0;
}

StatusOr<int64_t> ScaledLength(int64_t in, float scale) {
  const float length = std::floor(static_cast<float>(in) * scale);
  if (!(length <= static_cast<float>(kLongestAxis - 128))) {
    return InvalidArgument("dimension {} times {} is too large", in, scale);
  }
  return static_cast<int64_t>(length);
}

StatusOr<std::vector<float>> ReadFloats(const Tensor& t) {
  std::vector<float> out;
  if (t.dtype() == DType::kFloat) {
    out.assign(t.values<float>().begin(), t.values<float>().end());
  } else if (t.dtype() == DType::kDouble) {
    for (double v : t.values<double>()) out.push_back(static_cast<float>(v));
  } else if (t.dtype() == DType::kFloat16) {
    for (Float16 v : t.values<Float16>()) out.push_back(static_cast<float>(v));
  } else {
    return InvalidArgument("{} is not a type for scales or roi", DTypeName(t.dtype()));
  }
  return out;
}

// One scale for all listed axes, according to the policy.
float CommonScale(ResizeOptions::Policy policy, const std::vector<float>& scales) {
  return policy == ResizeOptions::Policy::kNotLarger
             ? *std::min_element(scales.begin(), scales.end())
             : *std::max_element(scales.begin(), scales.end());
}

Status InferFromScales(const InferContext& context, const std::vector<int>& axes,
                       std::vector<Dim>& out) {
  const Tensor* value = context.value(kScales);
  if (value == nullptr) {
    for (int a : axes) out[a] = Dim::Unknown();
    return absl::OkStatus();
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<float> scales, ReadFloats(*value));
  if (scales.size() != axes.size()) {
    return InvalidArgument("there are {} scales for {} axes; each axis needs one", scales.size(),
                           axes.size());
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!(scales[i] > 0)) return InvalidArgument("scale {} is not above 0", scales[i]);
    Dim& d = out[axes[i]];
    if (d.known()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(d, ScaledLength(d.value(), scales[i]));
    } else if (scales[i] == std::floor(scales[i]) && scales[i] < 1 << 20) {
      const Dim factors[] = {static_cast<int64_t>(scales[i]), d};
      d = Product(factors);
    } else {
      d = Dim::Unknown();
    }
  }
  return absl::OkStatus();
}

Status InferFromSizes(const InferContext& context, const ResizeOptions& options,
                      const std::vector<int>& axes, std::vector<Dim>& out) {
  const std::vector<Dim> in = out;
  for (int a : axes) out[a] = Dim::Unknown();
  if (const auto known = context.known_elements(kSizes)) {
    for (int64_t s : *known) {
      if (s < 0 || s > kLongestAxis) return InvalidArgument("size {} is not possible", s);
    }
  }
  const auto sizes = ShapeElements(context, kSizes);
  if (!sizes) return absl::OkStatus();
  if (sizes->size() != axes.size()) {
    return InvalidArgument("there are {} sizes for {} axes; each axis needs one", sizes->size(),
                           axes.size());
  }
  if (options.policy == ResizeOptions::Policy::kStretch) {
    for (size_t i = 0; i < axes.size(); ++i) out[axes[i]] = (*sizes)[i];
    return absl::OkStatus();
  }
  std::vector<float> scales;
  for (size_t i = 0; i < axes.size(); ++i) {
    const Dim& d = in[axes[i]];
    if (!d.known() || !(*sizes)[i].known()) return absl::OkStatus();
    if (d.value() == 0) return InvalidArgument("axis {} is empty", axes[i]);
    scales.push_back(static_cast<float>((*sizes)[i].value()) / static_cast<float>(d.value()));
  }
  const float scale = CommonScale(options.policy, scales);
  for (int a : axes) {
    const float length = std::round(scale * static_cast<float>(in[a].value()));
    if (!(length <= static_cast<float>(kLongestAxis - 128))) {
      return InvalidArgument("dimension {} times {} is too large", in[a].value(), scale);
    }
    out[a] = static_cast<int64_t>(length);
  }
  return absl::OkStatus();
}

Status InferResize(InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ResizeOptions options,
                             ResizeOptions::Parse(context.attributes()));
  if (context.dtype(0) == DType::kBool && options.mode != ResizeOptions::Mode::kNearest) {
    return InvalidArgument("mode {} cannot resize bool", context.attributes().String("mode", ""));
  }
  for (int i : {kRoi, kScales, kSizes}) {
    if (context.has_input(i) && context.shape(i).has_rank() && context.shape(i).rank() != 1) {
      return InvalidArgument("input {} must have rank 1, not {}", i, context.shape(i).ToString());
    }
  }
  const bool has_scales = Given(context, kScales);
  const bool has_sizes = Given(context, kSizes);
  if (has_scales == has_sizes) {
    return InvalidArgument("one of scales and sizes must be given, and only one");
  }
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             AxesOrAll(context.attributes(), in.rank()));
  if (axes.empty()) return InvalidArgument("no axis is named");
  const SymbolicShape& count = context.shape(has_scales ? kScales : kSizes);
  if (count.has_rank() && count[0].known() &&
      count[0].value() != static_cast<int64_t>(axes.size())) {
    return InvalidArgument("{} {} for {} axes", count[0].value(), has_scales ? "scales" : "sizes",
                           axes.size());
  }
  if (options.transform == ResizeOptions::Transform::kTfCropAndResize) {
    if (!Given(context, kRoi)) return InvalidArgument("tf_crop_and_resize needs input roi");
    const SymbolicShape& roi = context.shape(kRoi);
    if (roi.has_rank() && roi[0].known() &&
        roi[0].value() != static_cast<int64_t>(2 * axes.size())) {
      return InvalidArgument("roi has {} numbers for {} axes", roi[0].value(), axes.size());
    }
  }
  std::vector<Dim> out = in.dims();
  CHAIRLIFT_RETURN_IF_ERROR(has_scales ? InferFromScales(context, axes, out)
                                       : InferFromSizes(context, options, axes, out));
  for (int d = 0; d < in.rank(); ++d) {
    if (in[d].known() && in[d].value() > kLongestAxis) {
      return InvalidArgument("dimension {} is too large", in[d].value());
    }
    if (in[d].known() && in[d].value() == 0 && out[d].known() && out[d].value() > 0) {
      return InvalidArgument("axis {} is empty and cannot become {}", d, out[d].value());
    }
  }
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

// The inputs that determine how positions are mapped; null if they have no effect.
struct Mapping {
  const Tensor* scales = nullptr;
  const Tensor* sizes = nullptr;
  const Tensor* roi = nullptr;
};

StatusOr<std::vector<float>> Scales(const ResizeOptions& options, const std::vector<int>& axes,
                                    const Shape& in, const Shape& out, const Mapping& mapping) {
  if (mapping.scales != nullptr) return ReadFloats(*mapping.scales);
  std::vector<float> scales;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = mapping.sizes != nullptr && i < static_cast<size_t>(mapping.sizes->size())
                             ? mapping.sizes->data<int64_t>()[i]
                             : out[axes[i]];
    scales.push_back(static_cast<float>(size) / static_cast<float>(in[axes[i]]));
  }
  if (options.policy != ResizeOptions::Policy::kStretch) {
    scales.assign(scales.size(), CommonScale(options.policy, scales));
  }
  return scales;
}

StatusOr<std::unique_ptr<Kernel>> MakeResize(const ResizeOptions& options,
                                             const std::vector<int>& axes, const TensorDesc& in,
                                             const Shape& out, const Mapping& mapping, int width) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<float> scales,
                             Scales(options, axes, in.shape, out, mapping));
  std::vector<float> roi(2 * axes.size(), 0);
  if (mapping.roi != nullptr) {
    CHAIRLIFT_ASSIGN_OR_RETURN(roi, ReadFloats(*mapping.roi));
  }
  if (scales.size() != axes.size() || roi.size() != 2 * axes.size()) {
    return InvalidArgument("{} scales and {} roi numbers for {} axes", scales.size(), roi.size(),
                           axes.size());
  }
  ResizePlan plan;
  plan.options = options;
  plan.dtype = in.dtype;
  plan.width = width;
  std::vector<int> place(static_cast<size_t>(out.rank()), -1);
  for (size_t i = 0; i < axes.size(); ++i)
    place[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  for (int d = 0; d < out.rank(); ++d) {
    const int i = place[static_cast<size_t>(d)];
    const auto at = static_cast<size_t>(std::max(i, 0));
    const float scale = i < 0 ? 1 : scales[at];
    if (out[d] > 0 && !(scale > 0)) return InvalidArgument("scale {} is not above 0", scale);
    plan.axes.push_back(i < 0 ? MakeResizeAxis({}, in.shape[d], out[d], 1, 0, 0)
                              : MakeResizeAxis(options, in.shape[d], out[d], scale, roi[at],
                                               roi[at + axes.size()]));
  }
  if (in.layout == Layout::kChannelBlocked) {
    if (!plan.axes[1].identity) return Internal("channels of a blocked tensor cannot be resized");
    const int64_t blocks = ChannelBlocks(in.shape[1]);
    plan.axes[1] = MakeResizeAxis({}, blocks, blocks, 1, 0, 0);
    plan.axes.push_back(MakeResizeAxis({}, ChannelBlock(), ChannelBlock(), 1, 0, 0));
  }
  for (const ResizeAxis& axis : plan.axes) {  // kept as tables
    KernelMemory::Add(static_cast<int64_t>(axis.index.size() * sizeof(axis.index[0]) +
                                           axis.weight.size() * sizeof(axis.weight[0]) +
                                           axis.outside.size()));
  }
  if (options.mode == ResizeOptions::Mode::kNearest) return MakeNearestKernel(plan);
  return MakeInterpolationKernel(plan);
}

StatusOr<std::unique_ptr<Kernel>> CompileResize(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ResizeOptions options, ResizeOptions::Parse(context.attributes));
  const TensorDesc in = context.inputs[0];
  const Shape out = context.outputs[0].shape;
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> axes,
                             AxesOrAll(context.attributes, in.shape.rank()));
  // Which inputs matter beyond the output's shape.
  using Policy = ResizeOptions::Policy;
  const bool crops = options.transform == ResizeOptions::Transform::kTfCropAndResize;
  const bool has_scales = Given(context, kScales);
  const int width = context.width;
  const auto make = [=](const std::vector<Tensor>& values) {
    const auto given = [&](int i) {
      const Tensor& t = values[static_cast<size_t>(i)];
      return t.present() ? &t : nullptr;
    };
    return MakeResize(options, axes, in, out, {given(kScales), given(kSizes), given(kRoi)}, width);
  };
  if (has_scales) {
    return crops ? CompileFromValues(context, {kScales, kRoi}, make)
                 : CompileFromValues(context, {kScales}, make);
  }
  if (options.policy == Policy::kStretch) {
    return crops ? CompileFromValues(context, {kRoi}, make) : CompileFromValues(context, {}, make);
  }
  return crops ? CompileFromValues(context, {kSizes, kRoi}, make)
               : CompileFromValues(context, {kSizes}, make);
}

// Blocks of channels are kept if only later axes are resized.
std::optional<BlockedForm> Blocked(const Attributes& attributes, std::span<const ValueInfo> inputs,
                                   std::span<const ValueInfo> outputs) {
  const SymbolicShape& in = inputs[0].shape;
  const SymbolicShape& out = outputs[0].shape;
  const auto options = ResizeOptions::Parse(attributes);
  if (!options.ok() || options->transform == ResizeOptions::Transform::kTfCropAndResize ||
      options->policy != ResizeOptions::Policy::kStretch) {
    return std::nullopt;
  }
  if (inputs[0].dtype != DType::kFloat || !in.has_rank() || !out.has_rank() || in.rank() < 3 ||
      !in[1].Same(out[1])) {
    return std::nullopt;
  }
  // Sizes that depend on data.
  if (std::any_of(out.dims().begin(), out.dims().end(),
                  [](const Dim& d) { return !d.known() && !d.is_symbol(); })) {
    return std::nullopt;
  }
  // The number of channels may be unchanged by a scale that is not 1.
  const auto axes = AxesOrAll(attributes, in.rank());
  const bool has_scales = inputs.size() > kScales && inputs[kScales].dtype != DType::kUndefined;
  for (size_t i = 0; axes.ok() && has_scales && i < axes->size(); ++i) {
    if ((*axes)[i] != 1) continue;
    const Tensor* value = inputs[kScales].value;
    if (value == nullptr || value->dtype() != DType::kFloat) return std::nullopt;
    if (value->size() > static_cast<int64_t>(i) && value->data<float>()[i] != 1) {
      return std::nullopt;
    }
  }
  return BlockedForm{.inputs = 1, .outputs = 1};
}

}  // namespace

OperatorDef ResizeOperator() {
  return {.name = "Resize",
          .max_inputs = 4,
          .input_types = {kAllTypes, kFloatTypes, {DType::kFloat}, {DType::kInt64}},
          .infer = InferResize,
          .compile = CompileResize,
          .blocked_form = Blocked};
}

}  // namespace chairlift
