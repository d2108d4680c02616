// Convolutions by oneDNN: layouts and primitives are chosen, weights packed and work divided once,
// in compile().
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "device/cpu/dnnl.h"
#include "ops/dnnl_call.h"
#include "ops/linear/convolution.h"
#include "ops/linear/fill.h"
#include "ops/linear/huge_tensor.h"

namespace chairlift {
namespace {

using dnnl::memory;
using Dims = memory::dims;
using Tag = memory::format_tag;

Tag TagOf(Layout layout, int spatial_rank) {
  constexpr Tag kPlain[] = {Tag::ncw, Tag::nchw, Tag::ncdhw};
  constexpr Tag kBlocked16[] = {Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
  constexpr Tag kBlocked8[] = {Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
  if (layout == Layout::kRowMajor) return kPlain[spatial_rank - 1];
  return (ChannelBlock() == 16 ? kBlocked16 : kBlocked8)[spatial_rank - 1];
}

memory::desc ActivationDesc(int64_t batch, int64_t channels, const std::vector<int64_t>& spatial,
                            Layout layout) {
  Dims dims{batch, channels};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return {dims, memory::data_type::f32, TagOf(layout, static_cast<int>(spatial.size()))};
}

// Elements of one image, in whole blocks if the layout is blocked.
int64_t ImageSize(int64_t channels, int64_t spatial_size, Layout layout) {
  const int64_t block = layout == Layout::kChannelBlocked ? ChannelBlock() : 1;
  return (channels + block - 1) / block * block * spatial_size;
}

// The weights of groups [0, groups) and `out_channels` outputs in total, in ONNX's layout.
memory::desc UserWeights(const Convolution& c, int64_t groups, int64_t out_channels) {
  const int64_t taps = c.KernelSize();
  const int64_t in_group = c.channels / c.groups;
  const int64_t out_group_all = c.out_channels / c.groups;
  const int64_t out_group = out_channels / groups;
  Dims dims, strides;
  if (c.groups > 1) {
    dims.push_back(groups);
    strides.push_back(in_group * out_group_all * taps);
  }
  dims.insert(dims.end(), {out_group, in_group});
  if (c.transposed) {
    strides.insert(strides.end(), {taps, out_group_all * taps});
  } else {
    strides.insert(strides.end(), {in_group * taps, taps});
  }
  int64_t stride = taps;
  for (int i = 0; i < c.spatial_rank(); ++i) {
    dims.push_back(c.kernel[i]);
    stride /= c.kernel[i];
    strides.push_back(stride);
  }
  return {dims, memory::data_type::f32, strides};
}

void AppendActivation(const Activation& a, dnnl::post_ops& ops) {
  using dnnl::algorithm;
  const auto append = [&](algorithm kind, float alpha, float beta) {
    ops.append_eltwise(1.0f, kind, alpha, beta);
  };
  switch (a.kind) {
    case ActivationKind::kNone:
      return;
    case ActivationKind::kRelu:
      return append(algorithm::eltwise_relu, 0, 0);
    case ActivationKind::kLeakyRelu:
      return append(algorithm::eltwise_relu, a.alpha, 0);
    case ActivationKind::kClip:
      return append(algorithm::eltwise_clip, a.alpha, a.beta);
    case ActivationKind::kSigmoid:
      return append(algorithm::eltwise_logistic, 0, 0);
    case ActivationKind::kTanh:
      return append(algorithm::eltwise_tanh, 0, 0);
    case ActivationKind::kHardSigmoid:
      append(algorithm::eltwise_linear, a.alpha, a.beta);
      return append(algorithm::eltwise_clip, 0, 1);
    case ActivationKind::kHardSwish:
      return append(algorithm::eltwise_hardswish, 0, 0);
    case ActivationKind::kSilu:
      return append(algorithm::eltwise_swish, 1, 0);
    case ActivationKind::kElu:
      return append(algorithm::eltwise_elu, a.alpha, 0);
    case ActivationKind::kGelu:
      return append(algorithm::eltwise_gelu_erf, 0, 0);
    case ActivationKind::kGeluTanh:
      return append(algorithm::eltwise_gelu_tanh, 0, 0);
  }
}

// Output rows [out, out + out_rows) along the first spatial axis, and the input rows that they
// read; `pad` of those are before the first.
struct Rows {
  int64_t out = 0, out_rows = 0;
  int64_t in = 0, in_rows = 0;
  int64_t pad = 0;
};

Rows RowsOf(const Convolution& c, int64_t first, int64_t last) {
  const int64_t extent = (c.kernel[0] - 1) * c.dilations[0] + 1;
  const int64_t begin = first * c.strides[0] - c.pads_begin[0];
  const int64_t end = (last - 1) * c.strides[0] - c.pads_begin[0] + extent;
  const int64_t in = std::clamp<int64_t>(begin, 0, c.in[0]);
  return {first, last - first, in, std::clamp<int64_t>(end, in, c.in[0]) - in, in - begin};
}

// The part of the whole that a primitive computes: some images, some groups or outputs, some rows.
struct Slice {
  int64_t images = 0;
  int64_t groups = 1;
  int64_t channels = 0, out_channels = 0;
  std::optional<Rows> rows = {};  // absent: all
};

// The convolution restricted to the rows of the slice.
Convolution Restrict(const Convolution& whole, const Slice& slice) {
  Convolution c = whole;
  if (slice.rows) {
    c.in[0] = slice.rows->in_rows;
    c.out[0] = slice.rows->out_rows;
    c.pads_begin[0] = slice.rows->pad;
  }
  return c;
}

// The layouts of a primitive.
struct Layouts {
  Layout src = Layout::kRowMajor;
  Layout dst = Layout::kRowMajor;
};

struct PrimitiveChoice {
  dnnl::primitive primitive;
  memory::desc weights, scratchpad;
  std::string implementation;
};

// Images too small for the 4x4 tiles of winograd.h, where oneDNN's 2x2 tiles still help.
bool MayBeSmallWinograd(const Convolution& c, Layouts layouts) {
  const auto all = [](const std::vector<int64_t>& values, int64_t low, int64_t high) {
    return std::all_of(values.begin(), values.end(),
                       [=](int64_t v) { return v >= low && v <= high; });
  };
  return c.spatial_rank() == 2 && c.groups == 1 && all(c.kernel, 3, 3) && all(c.strides, 1, 1) &&
         all(c.dilations, 1, 1) && all(c.out, 6, 11) && c.channels >= 64 && c.out_channels >= 64 &&
         c.residual_input < 0 && layouts.src == Layout::kChannelBlocked &&
         layouts.dst == Layout::kChannelBlocked &&
         (c.activation.kind == ActivationKind::kNone || c.activation.kind == ActivationKind::kRelu);
}

PrimitiveChoice MakePrimitive(const Convolution& whole, const Slice& slice, Layouts layouts) {
  const MakingDnnlPrimitive making;
  const Convolution c = Restrict(whole, slice);
  dnnl::post_ops ops;
  const memory::desc src = ActivationDesc(slice.images, slice.channels, c.in, layouts.src);
  const memory::desc dst = ActivationDesc(slice.images, slice.out_channels, c.out, layouts.dst);
  if (c.residual_input >= 0) ops.append_binary(dnnl::algorithm::binary_add, dst);
  AppendActivation(c.activation, ops);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc user = UserWeights(c, slice.groups, slice.out_channels);
  const memory::desc weights(user.dims(), memory::data_type::f32, Tag::any);
  const memory::desc bias =
      c.bias_input < 0 ? memory::desc()
                       : memory::desc({slice.out_channels}, memory::data_type::f32, Tag::x);
  Dims dilations, pads_end;
  for (int i = 0; i < c.spatial_rank(); ++i) {
    dilations.push_back(c.dilations[i] - 1);
    const int64_t extent = (c.kernel[i] - 1) * c.dilations[i] + 1;
    const int64_t near = c.transposed ? c.in[i] : c.out[i];
    const int64_t far = c.transposed ? c.out[i] : c.in[i];
    pads_end.push_back((near - 1) * c.strides[i] + extent - far - c.pads_begin[i]);
  }
  const auto finish = [&](auto pd, auto primitive) {
    return PrimitiveChoice{primitive, pd.weights_desc(), pd.scratchpad_desc(), pd.impl_info_str()};
  };
  constexpr auto kInference = dnnl::prop_kind::forward_inference;
  if (c.transposed) {
    const dnnl::deconvolution_forward::primitive_desc pd(
        {kInference, dnnl::algorithm::deconvolution_direct, src, weights, bias, dst, c.strides,
         dilations, c.pads_begin, pads_end},
        attributes, DnnlEngine());
    return finish(pd, dnnl::deconvolution_forward(pd));
  }
  const auto convolve = [&](dnnl::algorithm algorithm) {
    const dnnl::convolution_forward::primitive_desc pd(
        {kInference, algorithm, src, weights, bias, dst, c.strides, dilations, c.pads_begin,
         pads_end},
        attributes, DnnlEngine());
    return finish(pd, dnnl::convolution_forward(pd));
  };
  if (MayBeSmallWinograd(c, layouts)) {
    try {
      return convolve(dnnl::algorithm::convolution_winograd);
    } catch (const dnnl::error&) {
      // Not on this instruction set, or not with this activation: the direct one always exists.
    }
  }
  return convolve(dnnl::algorithm::convolution_direct);
}

std::unique_ptr<DnnlCall> MakeReorder(const memory::desc& from, const memory::desc& to) {
  const MakingDnnlPrimitive making;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(DnnlEngine(), from, DnnlEngine(), to, attributes);
  if (pd.scratchpad_desc().get_size() > 0) {
    throw dnnl::error(dnnl_unimplemented, "a reorder that needs scratch");
  }
  return std::make_unique<DnnlCall>(
      dnnl::reorder(pd), std::vector<DnnlCall::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

// The same convolution with whole blocks of channels where `layouts` has blocks, using zero weights
// for the added channels. oneDNN supports other numbers too, but slowly if there are few channels
// or a residual.
Convolution Widen(const Convolution& c, Layouts layouts) {
  const bool depthwise = c.groups == c.channels && c.groups == c.out_channels;
  if (c.groups > 1 && !depthwise) return c;
  const auto whole = [](int64_t channels, Layout layout) {
    return layout == Layout::kRowMajor ? channels : ChannelBlocks(channels) * ChannelBlock();
  };
  Convolution wide = c;
  wide.channels = whole(c.channels, layouts.src);
  wide.out_channels = whole(c.out_channels, layouts.dst);
  if (depthwise) wide.groups = wide.channels;
  return wide;
}

// Weights [out_channels, channels / groups, taps…] of `given`, extended to those of `wide`.
Tensor WidenedWeights(const Convolution& given, const Convolution& wide, const Tensor& weights) {
  const int64_t filter = given.channels / given.groups * given.KernelSize();
  const int64_t wide_filter = wide.channels / wide.groups * wide.KernelSize();
  Tensor all = Tensor::Allocate(DType::kFloat, Shape{wide.out_channels, wide_filter});
  std::fill_n(all.data<float>(), all.size(), 0.0f);
  for (int64_t o = 0; o < given.out_channels; ++o) {
    std::copy_n(weights.data<float>() + o * filter, filter, all.data<float>() + o * wide_filter);
  }
  return all;
}

class DnnlConvolution final : public Kernel {
 public:
  // `last_resort`: whether oneDNN's reference convolution is acceptable.
  DnnlConvolution(const Convolution& given, const Convolution& wide, Layouts layouts,
                  bool last_resort)
      : given_(given), c_(wide), layouts_(layouts), last_resort_(last_resort) {}

  // Throws dnnl::error.
  Status Prepare(const CompileContext& context) {
    Divide(context.width, context.constant(1) != nullptr);
    const bool blocked_in = layouts_.src != context.inputs[0].layout;
    const bool blocked_out = layouts_.dst != context.outputs[0].layout;
    const memory::desc src = ActivationDesc(given_.batch, given_.channels, given_.in, layouts_.src);
    const memory::desc dst =
        ActivationDesc(given_.batch, given_.out_channels, given_.out, layouts_.dst);
    if (blocked_in) {
      src_reorder_ = MakeReorder(
          ActivationDesc(given_.batch, given_.channels, given_.in, context.inputs[0].layout), src);
      src_at_ = Take(src.get_size());
    }
    const memory::desc user_dst =
        ActivationDesc(given_.batch, given_.out_channels, given_.out, context.outputs[0].layout);
    if (blocked_out) {
      dst_reorder_ = MakeReorder(dst, user_dst);
      dst_at_ = Take(dst.get_size());
    }
    if (given_.residual_input >= 0) {
      const Layout layout = context.inputs[given_.residual_input].layout;
      if (layout != layouts_.dst) {
        residual_reorder_ =
            MakeReorder(ActivationDesc(given_.batch, given_.out_channels, given_.out, layout), dst);
        residual_at_ = Take(dst.get_size());
      }
    }
    if (c_.bias_input >= 0 && c_.out_channels != given_.out_channels) {
      bias_at_ = Take(static_cast<size_t>(c_.out_channels) * sizeof(float));
      widens_bias_ = true;
    }
    size_t scratchpad = 0;
    for (Part& part : parts_) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const size_t needed, MakeCall(part, context));
      scratchpad = std::max(scratchpad, needed);
    }
    for (Part& part : parts_) {
      part.scratchpad_at = Take(scratchpad);
      if (CopiesRows(part)) {
        part.rows_at = Take(static_cast<size_t>(part.slice.images * c_.channels *
                                                part.slice.rows->in_rows * InRow()) *
                            sizeof(float));
      }
    }
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override { return scratch_bytes_; }

  Status Run(const KernelArgs& args) const override {
    auto* scratch = static_cast<char*>(args.scratch);
    const auto* src = static_cast<const float*>(args.inputs[0]);
    auto* dst = static_cast<float*>(args.outputs[0]);
    const float* residual =
        c_.residual_input < 0 ? nullptr : static_cast<const float*>(args.inputs[c_.residual_input]);
    const auto change = [&](const DnnlCall& reorder, const void* from, void* to) {
      const void* data[] = {from, to};
      return reorder.Run(args.worker, data);
    };
    if (src_reorder_ != nullptr) {
      CHAIRLIFT_RETURN_IF_ERROR(change(*src_reorder_, src, scratch + src_at_));
      src = reinterpret_cast<const float*>(scratch + src_at_);
    }
    if (residual_reorder_ != nullptr) {
      CHAIRLIFT_RETURN_IF_ERROR(change(*residual_reorder_, residual, scratch + residual_at_));
      residual = reinterpret_cast<const float*>(scratch + residual_at_);
    }
    if (weights_reorder_ != nullptr) {
      CHAIRLIFT_RETURN_IF_ERROR(change(*weights_reorder_, args.inputs[1], scratch + weights_at_));
    }
    const float* bias =
        c_.bias_input < 0 ? nullptr : static_cast<const float*>(args.inputs[c_.bias_input]);
    if (widens_bias_) {
      auto* whole = reinterpret_cast<float*>(scratch + bias_at_);
      std::copy_n(bias, given_.out_channels, whole);
      std::fill(whole + given_.out_channels, whole + c_.out_channels, 0.0f);
      bias = whole;
    }
    float* computed = dst_reorder_ != nullptr ? reinterpret_cast<float*>(scratch + dst_at_) : dst;
    std::atomic<bool> failed{false};
    args.team.For(static_cast<int>(parts_.size()), [&](int index, int worker) {
      const Part& part = parts_[index];
      const void* data[6];
      size_t count = 0;
      data[count++] = CopiesRows(part) ? CopyRows(part, src, scratch) : src + part.src_at;
      if (weights_reorder_ != nullptr) data[count++] = scratch + weights_at_;
      if (bias != nullptr) data[count++] = bias + part.out_channel;
      data[count++] = computed + part.dst_at;
      if (residual != nullptr) data[count++] = residual + part.dst_at;
      data[count++] = scratch + part.scratchpad_at;
      if (!calls_[part.call]->Run(worker, {data, count}).ok()) failed = true;
      if (dst_reorder_ == nullptr) ClearFill(part, computed + part.dst_at);
    });
    if (failed) return Internal("a oneDNN convolution failed");
    if (dst_reorder_ != nullptr) return change(*dst_reorder_, computed, dst);
    return absl::OkStatus();
  }

 private:
  struct Part {
    Slice slice;
    int64_t image = 0, channel = 0, out_channel = 0;  // the first of each
    int call = -1;
    int64_t src_at = 0, dst_at = 0;  // elements
    size_t scratchpad_at = 0;        // bytes
    size_t rows_at = 0;              // bytes; the buffer for a copy of its rows
  };

  size_t Take(size_t bytes) {
    const size_t at = scratch_bytes_;
    scratch_bytes_ += (bytes + 63) / 64 * 64;
    return at;
  }

  int64_t InRow() const { return c_.InSize() / c_.in[0]; }
  int64_t OutRow() const { return c_.OutSize() / c_.out[0]; }

  // Whether its rows are not contiguous, because the planes of a picture lie between them.
  bool CopiesRows(const Part& part) const {
    return part.slice.rows && layouts_.src == Layout::kRowMajor;
  }
  const float* CopyRows(const Part& part, const float* src, char* scratch) const {
    auto* const rows = reinterpret_cast<float*>(scratch + part.rows_at);
    const int64_t size = part.slice.rows->in_rows * InRow();
    for (int64_t plane = 0; plane < part.slice.images * c_.channels; ++plane) {
      std::copy_n(src + part.src_at + plane * c_.InSize(), size, rows + plane * size);
    }
    return rows;
  }

  // Zeroes the padding of the last block of outputs, if the part has it.
  void ClearFill(const Part& part, float* dst) const {
    const int64_t filled = c_.out_channels - given_.out_channels;
    const int64_t end = part.out_channel + part.slice.out_channels;
    if (filled == 0 || c_.groups > 1 || end != c_.out_channels) return;
    const int64_t block = ChannelBlock();
    const int64_t pixels = part.slice.rows ? part.slice.rows->out_rows * OutRow() : c_.OutSize();
    for (int64_t image = 1; image <= part.slice.images; ++image) {
      float* last = dst + (image * (part.slice.out_channels / block) - 1) * pixels * block;
      ClearFilledUp(last, pixels, block - filled, block);
    }
  }

  // The number of parts into which an image may be divided by rows with dense results: possible
  // with one block of outputs, and one block of inputs or the few planes of a picture.
  int64_t RowParts(int64_t wanted) const {
    if (c_.transposed || c_.out.empty() || layouts_.dst != Layout::kChannelBlocked ||
        c_.out_channels > ChannelBlock() || c_.channels > ChannelBlock()) {
      return 1;
    }
    const int64_t parts = std::min(wanted, c_.out[0]);
    for (int64_t i = 0; i < parts; ++i) {
      const Rows rows = RowsOf(c_, c_.out[0] * i / parts, c_.out[0] * (i + 1) / parts);
      if (rows.in_rows == 0) return 1;  // nothing but padding
    }
    return parts;
  }

  // By images if there are enough. Otherwise each image is divided by groups or blocks of output
  // channels or, if it has only one block, by rows, so that each part's result is dense.
  void Divide(int width, bool constant_weights) {
    const int64_t block = ChannelBlock();
    int64_t image_parts = 1, channel_parts = 1, row_parts = 1;
    const bool share = width > 1 && constant_weights && c_.WorthSharing();
    const int64_t out_group = c_.out_channels / c_.groups;
    const int64_t in_group = c_.channels / c_.groups;
    // Groups per smallest part that starts on a block boundary on both sides.
    int64_t unit = c_.groups == 1 ? block : 1;
    while (c_.groups > 1 && (unit * out_group % block != 0 || unit * in_group % block != 0)) {
      unit *= 2;
    }
    const int64_t pieces =
        c_.groups == 1 ? (c_.out_channels + block - 1) / block : (c_.groups + unit - 1) / unit;
    if (share && c_.batch >= width) {
      image_parts = width;
    } else if (share) {
      image_parts = c_.batch;
      const int64_t wanted = (width + c_.batch - 1) / c_.batch;
      channel_parts = std::min(wanted, pieces);
      if (pieces == 1) row_parts = RowParts(wanted);
    }
    for (int64_t i = 0; i < image_parts; ++i) {
      const int64_t image = c_.batch * i / image_parts;
      const int64_t image_end = c_.batch * (i + 1) / image_parts;
      for (int64_t j = 0; j < channel_parts * row_parts; ++j) {
        const int64_t first = pieces * (j / row_parts) / channel_parts * unit;
        const int64_t last = pieces * (j / row_parts + 1) / channel_parts * unit;
        Part part;
        part.image = image;
        part.slice.images = image_end - image;
        if (c_.groups == 1) {
          part.out_channel = first;
          part.slice.out_channels = std::min(last, c_.out_channels) - first;
          part.slice.channels = c_.channels;
        } else {
          part.slice.groups = std::min(last, c_.groups) - first;
          part.channel = first * in_group;
          part.out_channel = first * out_group;
          part.slice.channels = part.slice.groups * in_group;
          part.slice.out_channels = part.slice.groups * out_group;
        }
        part.src_at =
            image * ImageSize(c_.channels, c_.InSize(), layouts_.src) + part.channel * c_.InSize();
        part.dst_at = image * ImageSize(c_.out_channels, c_.OutSize(), layouts_.dst) +
                      part.out_channel * c_.OutSize();
        if (row_parts > 1) {
          const int64_t row = j % row_parts;
          const Rows rows =
              RowsOf(c_, c_.out[0] * row / row_parts, c_.out[0] * (row + 1) / row_parts);
          part.slice.rows = rows;
          part.src_at += rows.in * InRow() * (layouts_.src == Layout::kRowMajor ? 1 : block);
          part.dst_at += rows.out * OutRow() * block;
        }
        parts_.push_back(part);
      }
    }
  }

  static bool SameShape(const Slice& a, const Slice& b) {
    const auto shape = [](const Slice& slice) {
      const Rows rows = slice.rows.value_or(Rows{});
      return std::array{rows.out_rows, rows.in_rows, rows.pad};
    };
    return shape(a) == shape(b);
  }

  // The call that computes `part`. Parts that differ only in their images, or in where their rows
  // begin, share it. Returns the scratchpad's size in bytes.
  StatusOr<size_t> MakeCall(Part& part, const CompileContext& context) {
    for (const Part& other : parts_) {
      if (other.call >= 0 && other.out_channel == part.out_channel &&
          other.slice.images == part.slice.images && SameShape(other.slice, part.slice)) {
        part.call = other.call;
        return size_t{0};
      }
    }
    const PrimitiveChoice choice = MakePrimitive(c_, part.slice, layouts_);
    const bool depthwise = DepthwiseAccepts(c_, context).ok();
    if (choice.implementation.starts_with("ref") && (depthwise || !last_resort_)) {
      return Unimplemented("it has only its reference convolution for this case");
    }
    if (choice.implementation.find("gemm") != std::string::npos && depthwise) {
      return Unimplemented("it has only a product of matrices for each channel");
    }
    const memory::desc user = UserWeights(c_, part.slice.groups, part.slice.out_channels);
    void* fixed = nullptr;
    if (const Tensor* constant = context.constant(1); constant != nullptr) {
      CHAIRLIFT_ASSIGN_OR_RETURN(Tensor packed,
                                 PackWeights(*constant, part, user, choice, context.weights));
      fixed = packed.raw();
      packed_.push_back(std::move(packed));
    } else {
      weights_reorder_ = MakeReorder(user, choice.weights);
      weights_at_ = Take(choice.weights.get_size());
    }
    const Convolution own = Restrict(c_, part.slice);
    std::vector<DnnlCall::Argument> arguments{
        {DNNL_ARG_SRC,
         ActivationDesc(part.slice.images, part.slice.channels, own.in, layouts_.src)},
        {DNNL_ARG_WEIGHTS, choice.weights, fixed}};
    if (c_.bias_input >= 0) {
      arguments.push_back(
          {DNNL_ARG_BIAS, {{part.slice.out_channels}, memory::data_type::f32, Tag::x}});
    }
    const memory::desc dst =
        ActivationDesc(part.slice.images, part.slice.out_channels, own.out, layouts_.dst);
    arguments.push_back({DNNL_ARG_DST, dst});
    if (c_.residual_input >= 0) {
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, dst});
    }
    arguments.push_back({DNNL_ARG_SCRATCHPAD, choice.scratchpad});
    part.call = static_cast<int>(calls_.size());
    calls_.push_back(std::make_unique<DnnlCall>(choice.primitive, std::move(arguments)));
    return choice.scratchpad.get_size();
  }

  StatusOr<Tensor> PackWeights(const Tensor& weights, const Part& part, const memory::desc& user,
                               const PrimitiveChoice& choice, WeightCache& cache) const {
    const dnnl_memory_desc_t& d = choice.weights.data;
    std::string key = fmt::format("conv t{} g{} o{} of {}:", c_.transposed ? 1 : 0, part.channel,
                                  part.out_channel, part.slice.out_channels);
    if (d.format_kind == dnnl_format_kind_wino) {
      const dnnl_wino_desc_t& w = d.format_desc.wino_desc;
      key += fmt::format(" winograd {} {} {} {}/{} {}/{}", static_cast<int>(w.wino_format), w.alpha,
                         w.ic_block, w.oc_block, w.oc2_block, w.ic2_block, w.size);
    } else {
      for (int i = 0; i < d.ndims; ++i) {
        key += fmt::format(" {}/{}", d.padded_dims[i], d.format_desc.blocking.strides[i]);
      }
      for (int i = 0; i < d.format_desc.blocking.inner_nblks; ++i) {
        key += fmt::format(" {}*{}", d.format_desc.blocking.inner_idxs[i],
                           d.format_desc.blocking.inner_blks[i]);
      }
    }
    return cache.Get(weights, key, [&]() -> StatusOr<Tensor> {
      const int64_t in_group = c_.channels / c_.groups;
      const int64_t taps = c_.KernelSize();
      const int64_t offset = c_.transposed && c_.groups == 1 ? part.out_channel * taps
                             : c_.transposed ? part.channel * (c_.out_channels / c_.groups) * taps
                                             : part.out_channel * in_group * taps;
      Tensor packed = HugeTensor(
          DType::kFloat, Shape{static_cast<int64_t>(
                             (choice.weights.get_size() + sizeof(float) - 1) / sizeof(float))});
      const bool same = c_.groups == given_.groups && c_.channels == given_.channels &&
                        c_.out_channels == given_.out_channels;
      const Tensor whole = same ? weights : WidenedWeights(given_, c_, weights);
      const memory from(user, DnnlEngine(), const_cast<float*>(whole.data<float>() + offset));
      const memory to(choice.weights, DnnlEngine(), packed.raw());
      dnnl::reorder(from, to).execute(DnnlThreadStream(), const_cast<memory&>(from),
                                      const_cast<memory&>(to));
      return packed;
    });
  }

  const Convolution given_;
  const Convolution c_;  // the convolution passed to oneDNN
  const Layouts layouts_;
  const bool last_resort_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<DnnlCall>> calls_;
  std::vector<Tensor> packed_;
  std::unique_ptr<DnnlCall> src_reorder_, dst_reorder_, residual_reorder_, weights_reorder_;
  size_t src_at_ = 0, dst_at_ = 0, residual_at_ = 0, weights_at_ = 0;
  size_t bias_at_ = 0;
  bool widens_bias_ = false;
  size_t scratch_bytes_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileDnnlConvolution(const Convolution& convolution,
                                                         const CompileContext& context) {
  const Convolution& c = convolution;
  if (c.dtype != DType::kFloat || c.spatial_rank() > 3 || c.channels == 0) {
    return Unimplemented("it convolves float32 over one to three spatial axes");
  }
  if (c.scale_input >= 0) return Unimplemented("it does not scale its inputs");
  for (int i = 0; c.transposed && i < c.spatial_rank(); ++i) {
    const int64_t reached = (c.in[i] - 1) * c.strides[i] + (c.kernel[i] - 1) * c.dilations[i] + 1;
    if (c.out[i] + c.pads_begin[i] >= reached + c.strides[i]) {
      return Unimplemented("rows of outputs lie beyond all that its inputs reach");
    }
  }
  // Blocked inside, except for the few planes of a picture.
  const bool picture = c.groups == 1 && c.channels <= 3 && !c.transposed &&
                       context.inputs[0].layout == Layout::kRowMajor;
  // Padding zeros must give zeros.
  const bool may_widen =
      !c.transposed && context.constant(1) != nullptr && Activate(c.activation, 0.0f) == 0;
  const Layouts candidates[] = {
      {picture ? Layout::kRowMajor : Layout::kChannelBlocked, Layout::kChannelBlocked},
      {Layout::kRowMajor, Layout::kRowMajor}};
  // The plain loops do not support blocked operands.
  const auto is_blocked = [](const TensorDesc& d) { return d.layout == Layout::kChannelBlocked; };
  const bool any_blocked = is_blocked(context.outputs[0]) ||
                           std::any_of(context.inputs.begin(), context.inputs.end(), is_blocked);
  Status last;
  for (const Layouts& layouts : candidates) {
    const bool blocked = layouts.dst == Layout::kChannelBlocked;
    auto kernel = std::make_unique<DnnlConvolution>(c, blocked && may_widen ? Widen(c, layouts) : c,
                                                    layouts, any_blocked && !blocked);
    last = CatchDnnl("oneDNN convolution", [&] { return kernel->Prepare(context); });
    if (last.ok()) return kernel;
  }
  return last;
}

}  // namespace chairlift
