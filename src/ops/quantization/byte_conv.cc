#include "ops/quantization/byte_conv.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "device/cpu/dnnl.h"
#include "ops/dnnl_call.h"
#include "ops/kernel_memory.h"
#include "ops/movement/transpose_tile.h"
#include "ops/quantization/integer_product.h"
#include "ops/quantization/scale_ratio.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

using dnnl::memory;

// Multiply-adds below which a team is not worth its fork and join.
constexpr double kConvSplitWork = 1e6;
// Sums and patches of one task, in bytes: they stay in the second-level cache.
constexpr int64_t kSumsBytes = 192 << 10, kPatchBytes = 512 << 10;
// Padded rows of a depthwise task, in bytes, and sums that are computed together.
constexpr int64_t kSlabBytes = 96 << 10, kSumsTogether = 4096;
constexpr uint8_t kSignBit = 0x80;
// Short lines of a patch are copied as this many bytes.
constexpr int64_t kShortLine = 32;

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Whether oneDNN's products of uint8 and int8 are exact: without VNNI their instructions saturate.
bool DnnlSumsBytesExactly() {
  static const bool kExact = [] {
    (void)DnnlEngine();
    const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni);
    return (has & needed) == needed;
  }();
  return kExact;
}

// to[c, r] = from[r, c] of `rows` x `columns`, for columns [first, last).
template <typename T>
void TransposeColumns(const T* from, int64_t rows, int64_t columns, int64_t first, int64_t last,
                      T* to) {
  constexpr int64_t kTile = 16 / sizeof(T);
  int64_t c = first;
  for (; c + kTile <= last; c += kTile) {
    int64_t r = 0;
    for (; r + kTile <= rows; r += kTile) {
      TransposeTile<T>(reinterpret_cast<const char*>(from + r * columns + c),
                       columns * static_cast<int64_t>(sizeof(T)),
                       reinterpret_cast<char*>(to + c * rows + r),
                       rows * static_cast<int64_t>(sizeof(T)));
    }
    for (; r < rows; ++r) {
      for (int64_t i = c; i < c + kTile; ++i) to[i * rows + r] = from[r * columns + i];
    }
  }
  for (; c < last; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
  }
}

// Transposes each of `batch` matrices.
template <typename T>
void Transpose(Team& team, const T* from, int64_t batch, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kTogether = 256;  // columns
  const int64_t parts = (columns + kTogether - 1) / kTogether;
  ForRanges(team, batch * parts, batch * rows * columns, int64_t{1} << 15,
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                const int64_t at = i / parts * rows * columns, first = i % parts * kTogether;
                TransposeColumns(from + at, rows, columns, first,
                                 std::min(columns, first + kTogether), to + at);
              }
            });
}

// Weights [outputs, K] with their terms in the order of patches: by tap, then by channel.
void OrderTerms(const uint8_t* w, int64_t outputs, int64_t channels, int64_t taps, uint8_t* to) {
  for (int64_t n = 0; n < outputs; ++n, w += channels * taps, to += channels * taps) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) to[t * channels + c] = w[c * taps + t];
    }
  }
}

int32_t ByteAt(const uint8_t* w, bool is_signed, int64_t i) {
  return is_signed ? static_cast<int8_t>(w[i]) : w[i];
}

class ByteConvKernel final : public Kernel {
 public:
  explicit ByteConvKernel(const ByteConv& conv) : c_(conv) {}

  Status Prepare(const CompileContext& context) {
    const auto constant = [&](int i) {
      return i < 0 || !context.has_input(i) || context.constant(i) != nullptr;
    };
    fixed_weights_ = constant(c_.at.w) && constant(c_.at.w_zero);
    const auto entries = [&](int i) {
      return i >= 0 && context.has_input(i) ? context.inputs[i].size() : int64_t{0};
    };
    w_zero_stride_ = entries(c_.at.w_zero) > 1 ? 1 : 0;
    w_scale_stride_ = entries(c_.at.w_scale) > 1 ? 1 : 0;
    start_at_ = Take(c_.out_channels * 4);
    if (c_.at.quantizes()) {
      if (constant(c_.at.x_scale) && constant(c_.at.w_scale) && constant(c_.at.y_scale)) {
        const auto data = [&](int i) { return context.constant(i)->data<float>(); };
        scales_.resize(static_cast<size_t>(c_.out_channels));
        Scales(data(c_.at.x_scale), data(c_.at.w_scale), data(c_.at.y_scale), scales_.data());
      } else {
        scales_at_ = Take(c_.out_channels * 4);
      }
    }
    if (!c_.channels_last && c_.InSize() > 1 && c_.channels > 1) {
      x_at_ = Take(c_.batch * c_.InSize() * c_.channels);
    }
    if (!c_.channels_last && c_.OutSize() > 1 && c_.out_channels > 1) {
      y_at_ = Take(c_.batch * c_.OutSize() * c_.out_channels * ResultBytes());
    }
    total_ = c_.batch * c_.OutSize();
    double work = static_cast<double>(total_) * static_cast<double>(c_.out_channels * c_.K());
    if (c_.Depthwise()) work *= 8;  // each term needs its own load
    const int64_t workers = context.width > 1 && work > kConvSplitWork ? context.width : 1;
    if (c_.Depthwise()) {
      PlanDepthwise(workers);
      CHAIRLIFT_RETURN_IF_ERROR(PackDepthwise(context));
    } else {
      CHAIRLIFT_RETURN_IF_ERROR(PrepareProduct(context, workers));
    }
    parts_ = static_cast<int>(std::clamp<int64_t>(tasks_, 1, workers));
    parts_at_ = Take(parts_ * part_bytes_);
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(scratch_bytes_); }

  // Uses the first of three methods that is possible.
  Status PrepareProduct(const CompileContext& context, int64_t workers) {
    if (fixed_weights_ && c_.K() > 0 && DnnlSumsBytesExactly()) {
      const auto packs = [&](auto pack) -> StatusOr<bool> {
        const Status status = CatchDnnl("oneDNN", [&]() -> Status { return pack(); });
        if (!status.ok() && status.code() != absl::StatusCode::kUnimplemented) return status;
        return status.ok();
      };
      CHAIRLIFT_ASSIGN_OR_RETURN(bool packed,
                                 packs([&] { return PrepareWindows(context, workers); }));
      if (packed) return absl::OkStatus();
      PlanProduct(workers);
      CHAIRLIFT_ASSIGN_OR_RETURN(packed, packs([&] { return PackForDnnl(context); }));
      if (packed) return absl::OkStatus();
    }
    PlanProduct(workers);
    return PackWide(context);
  }

  Status Run(const KernelArgs& args) const override {
    auto* scratch = static_cast<uint8_t*>(args.scratch);
    const auto input = [&](int i) {
      return i >= 0 && i < static_cast<int>(args.inputs.size()) ? args.inputs[i] : nullptr;
    };
    Call call{.x = static_cast<const uint8_t*>(input(c_.at.x)),
              .y = static_cast<uint8_t*>(args.outputs[0]),
              .start = reinterpret_cast<int32_t*>(scratch + start_at_)};
    call.x_zero = ZeroPoints{input(c_.at.x_zero), c_.x_signed, 0}[0];
    if (x_at_ >= 0) {
      Transpose(args.team, call.x, c_.batch, c_.channels, c_.InSize(), scratch + x_at_);
      call.x = scratch + x_at_;
    }
    uint8_t* const y = call.y;
    if (y_at_ >= 0) call.y = scratch + y_at_;
    call.weights = packed_.present() ? packed_.data<uint8_t>() : scratch + weights_at_;
    if (!packed_.present()) {
      const auto* w = static_cast<const uint8_t*>(input(c_.at.w));
      const ZeroPoints zero{input(c_.at.w_zero), c_.w_signed, w_zero_stride_};
      if (c_.Depthwise()) {
        FillDepthwise(w, zero, scratch + weights_at_);
      } else {
        FillWide(w, zero, scratch + terms_at_, scratch + weights_at_);
      }
    }
    if (c_.at.quantizes()) {
      const auto data = [&](int i) { return static_cast<const float*>(input(i)); };
      call.scales = scales_.data();
      if (scales_.empty()) {
        auto* scales = reinterpret_cast<float*>(scratch + scales_at_);
        Scales(data(c_.at.x_scale), data(c_.at.w_scale), data(c_.at.y_scale), scales);
        call.scales = scales;
      }
      call.range.zero = ZeroPoints{input(c_.at.y_zero), c_.y_signed, 0}[0];
      call.range.is_signed = c_.y_signed;
      call.range.low = std::max(c_.y_signed ? -128 : 0, c_.low);
      call.range.high = std::min(c_.y_signed ? 127 : 255, c_.high);
    }
    Start(static_cast<const int32_t*>(input(c_.at.bias)), call);
    std::atomic<bool> failed{false};
    const auto run_part = [&](int part, int worker) {
      uint8_t* own = scratch + parts_at_ + part * part_bytes_;
      for (int64_t task = tasks_ * part / parts_; task < tasks_ * (part + 1) / parts_; ++task) {
        if (c_.Depthwise()) {
          RunDepthwise(call, task, own);
        } else if (!(windows_ ? RunWindows(call, task, worker, own)
                              : RunProduct(call, task, worker, own))
                        .ok()) {
          failed.store(true, std::memory_order_relaxed);
        }
      }
    };
    if (parts_ == 1) {
      run_part(0, args.worker);
    } else {
      args.team.For(parts_, run_part);
    }
    if (failed.load()) return Internal("oneDNN failed in a convolution of bytes");
    if (y_at_ >= 0) {
      if (c_.at.quantizes()) {
        Transpose(args.team, call.y, c_.batch, c_.OutSize(), c_.out_channels, y);
      } else {
        Transpose(args.team, reinterpret_cast<const uint32_t*>(call.y), c_.batch, c_.OutSize(),
                  c_.out_channels, reinterpret_cast<uint32_t*>(y));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The operands of one run, with channels last.
  struct Call {
    const uint8_t* x = nullptr;
    uint8_t* y = nullptr;
    int32_t* start = nullptr;  // by output channel: what is added to its sums
    const uint8_t* weights = nullptr;
    const float* scales = nullptr;
    int32_t x_zero = 0;
    ByteRange range = {};
  };

  // Reserve bytes in the scratch memory of a run, or of one part of it. Return their offset.
  int64_t Take(int64_t bytes) {
    return std::exchange(scratch_bytes_, scratch_bytes_ + Aligned(bytes));
  }
  int64_t TakeOfPart(int64_t bytes) {
    return std::exchange(part_bytes_, part_bytes_ + Aligned(bytes));
  }
  int64_t ResultBytes() const { return c_.at.quantizes() ? 1 : 4; }

  void Scales(const float* x, const float* w, const float* y, float* scales) const {
    for (int64_t n = 0; n < c_.out_channels; ++n) {
      scales[n] = ScaleRatio(*x, w[n * w_scale_stride_], *y);
    }
  }

  // Packs the weights in the form named `form`. Kernels share the result unless outputs have
  // different zero points.
  template <typename Fill>
  Status Pack(const CompileContext& context, const std::string& form, int64_t bytes, Fill fill) {
    const Tensor& w = *context.constant(c_.at.w);
    const auto make = [&]() -> StatusOr<Tensor> {
      Tensor packed = Tensor::Allocate(DType::kUInt8, Shape{bytes});
      std::memset(packed.raw(), 0, static_cast<size_t>(bytes));
      fill(static_cast<const uint8_t*>(w.raw()), Zeros(context), packed.data<uint8_t>());
      return packed;
    };
    const ZeroPoints zeros = Zeros(context);
    bool one = true;
    for (int64_t n = 0; n < c_.out_channels && w_zero_stride_ != 0; ++n) {
      one = one && zeros[n] == zeros[0];
    }
    if (one) {
      CHAIRLIFT_ASSIGN_OR_RETURN(
          packed_,
          context.weights.Get(
              w, fmt::format("byte conv {} zero {} groups {}", form, zeros[0], c_.groups), make));
      return absl::OkStatus();
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(packed_, make());
    KernelMemory::Add(bytes);
    return absl::OkStatus();
  }
  ZeroPoints Zeros(const CompileContext& context) const {
    const Tensor* zero = c_.at.w_zero < 0 ? nullptr : context.constant(c_.at.w_zero);
    return {zero == nullptr ? nullptr : zero->raw(), c_.w_signed, w_zero_stride_};
  }

  // --- One filter per channel --------------------------------------------------------------------

  // Two spatial axes: the first has one element if the convolution has only one axis.
  static int64_t At(const std::vector<int64_t>& values, int axis, int64_t missing) {
    const int at = axis - (2 - static_cast<int>(values.size()));
    return at < 0 ? missing : values[static_cast<size_t>(at)];
  }

  void SetAxes() {
    for (int axis = 0; axis < 2; ++axis) {
      Axis& a = axes_[axis];
      a = {At(c_.in, axis, 1),
           At(c_.out, axis, 1),
           At(c_.pads, axis, 0),
           At(c_.window.kernel, axis, 1),
           At(c_.window.strides, axis, 1),
           At(c_.window.dilations, axis, 1)};
    }
    const Axis &ys = axes_[0], &xs = axes_[1];
    pads_ = c_.x_signed || ys.pad > 0 || xs.pad > 0 || ys.Reach(ys.out) > ys.in ||
            xs.Reach(xs.out) > xs.in;
  }
  // Bytes of a row of the input with its padding.
  int64_t Line() const {
    return (pads_ ? axes_[1].Reach(axes_[1].out) : axes_[1].in) * c_.channels;
  }

  void PlanDepthwise(int64_t workers) {
    SetAxes();
    const Axis &ys = axes_[0], &xs = axes_[1];
    const int64_t line = Line();
    rows_ = std::clamp<int64_t>(kSlabBytes / std::max<int64_t>(1, line * ys.stride), 1, ys.out);
    const int64_t of_image = (workers + c_.batch - 1) / c_.batch;  // at least
    rows_ = std::min(rows_, (ys.out + of_image - 1) / of_image);
    row_tasks_ = (ys.out + rows_ - 1) / rows_;
    tasks_ = c_.batch * row_tasks_;
    together_ = std::clamp<int64_t>(kSumsTogether / c_.channels, 1, xs.out);
    sums_at_ = TakeOfPart(together_ * c_.channels * 4);
    if (pads_) slab_at_ = TakeOfPart(ys.Reach(rows_) * line);
  }

  DepthwiseTaps WindowTaps() const {
    const Axis &ys = axes_[0], &xs = axes_[1];
    return {c_.channels,
            ys.kernel,
            xs.kernel,
            ys.dilation * Line(),
            xs.dilation * c_.channels,
            xs.stride * c_.channels};
  }

  Status PackDepthwise(const CompileContext& context) {
    if (fixed_weights_ && HasDepthwiseVnni(c_.channels)) {
      const auto* w = static_cast<const uint8_t*>(context.constant(c_.at.w)->raw());
      const ZeroPoints zero = Zeros(context);
      std::vector<int8_t> small(static_cast<size_t>(c_.channels * c_.Taps()));
      bool fits = true;
      for (int64_t i = 0; i < c_.channels * c_.Taps(); ++i) {
        const int32_t value = ByteAt(w, c_.w_signed, i) - zero[i / c_.Taps()];
        small[static_cast<size_t>(i)] = static_cast<int8_t>(value);
        fits = fits && value == small[static_cast<size_t>(i)];
      }
      if (fits) {
        depthwise_vnni_ = true;
        SumWeights(context);
        return Pack(context, "depthwise vnni", DepthwiseVnniBytes(WindowTaps()),
                    [&](const uint8_t*, const ZeroPoints&, uint8_t* to) {
                      PackDepthwiseVnni(WindowTaps(), small.data(), reinterpret_cast<int8_t*>(to));
                    });
      }
    }
    const int64_t bytes = c_.channels * (c_.Taps() + 1) * 4;
    if (!fixed_weights_) {
      weights_at_ = Take(bytes);
      return absl::OkStatus();
    }
    return Pack(
        context, "depthwise", bytes,
        [&](const uint8_t* w, const ZeroPoints& zero, uint8_t* to) { FillDepthwise(w, zero, to); });
  }

  // [taps, channels] weights less their zero points, and their sums.
  void FillDepthwise(const uint8_t* w, const ZeroPoints& zero, uint8_t* to) const {
    auto* weights = reinterpret_cast<int32_t*>(to);
    int32_t* sums = weights + c_.Taps() * c_.channels;
    for (int64_t c = 0; c < c_.channels; ++c) {
      sums[c] = 0;
      for (int64_t t = 0; t < c_.Taps(); ++t) {
        const int32_t value = ByteAt(w, c_.w_signed, c * c_.Taps() + t) - zero[c];
        weights[t * c_.channels + c] = static_cast<uint16_t>(static_cast<int16_t>(value));
        sums[c] += value;
      }
    }
  }

  void RunDepthwise(const Call& call, int64_t task, uint8_t* own) const {
    const Axis &ys = axes_[0], &xs = axes_[1];
    const int64_t image = task / row_tasks_, first = task % row_tasks_ * rows_;
    const int64_t last = std::min(ys.out, first + rows_);
    const int64_t channels = c_.channels, width = Line() / channels;
    const uint8_t* x = call.x + image * c_.InSize() * channels;
    int64_t top = 0;  // the padded row at `from`
    const uint8_t* from = x;
    if (pads_) {
      FillSlab(call, x, first * ys.stride, ys.Reach(last - first), own + slab_at_);
      top = first * ys.stride;
      from = own + slab_at_;
    }
    const DepthwiseTaps taps = WindowTaps();
    auto* sums = reinterpret_cast<int32_t*>(own + sums_at_);
    for (int64_t oy = first; oy < last; ++oy) {
      const uint8_t* line = from + (oy * ys.stride - top) * width * channels;
      for (int64_t ox = 0; ox < xs.out; ox += together_) {
        const int64_t count = std::min(together_, xs.out - ox);
        const uint8_t* windows = line + ox * taps.step_bytes;
        if (depthwise_vnni_) {
          DepthwiseSumsVnni(taps, windows, reinterpret_cast<const int8_t*>(call.weights), count,
                            sums);
        } else {
          DepthwiseSums(taps, windows, reinterpret_cast<const int32_t*>(call.weights), count, sums);
        }
        Finish(call, sums, channels, count, (image * ys.out + oy) * xs.out + ox, 0, channels);
      }
    }
  }

  // Copies padded rows [first, first + count) of an image as unsigned bytes, as wide as windows
  // reach.
  void FillSlab(const Call& call, const uint8_t* x, int64_t first, int64_t count,
                uint8_t* to) const {
    const Axis &ys = axes_[0], &xs = axes_[1];
    const int64_t channels = c_.channels, width = xs.Reach(xs.out);
    const int fill = static_cast<uint8_t>(call.x_zero);
    const int64_t left = std::min(xs.pad, width);
    const int64_t inside = std::clamp<int64_t>(width - left, 0, xs.in);
    uint8_t* const end = to + count * width * channels;
    uint8_t* line = to;
    for (int64_t row = first - ys.pad; line < end; ++row, line += width * channels) {
      if (row < 0 || row >= ys.in) {
        std::memset(line, fill, static_cast<size_t>(width * channels));
        continue;
      }
      std::memset(line, fill, static_cast<size_t>(left * channels));
      if (inside > 0) {
        std::memcpy(line + left * channels, x + row * xs.in * channels,
                    static_cast<size_t>(inside * channels));
      }
      std::memset(line + (left + inside) * channels, fill,
                  static_cast<size_t>((width - left - inside) * channels));
    }
    if (c_.x_signed) {
      for (uint8_t* byte = to; byte < end; ++byte) *byte ^= kSignBit;
    }
  }

  // --- oneDNN's convolution ----------------------------------------------------------------------

  // Uses oneDNN for windows of several taps over padded rows, without patches. Only the
  // implementation brgconv is accepted. Others of oneDNN 2.6 are slower for few channels, and one
  // is wrong for some dilations.
  Status PrepareWindows(const CompileContext& context, int64_t workers) {
    SetAxes();
    const Axis &ys = axes_[0], &xs = axes_[1];
    constexpr int64_t kFewChannels = 16;
    if (c_.window.rank() > 2 || c_.groups != 1 || c_.Taps() == 1 || c_.channels < kFewChannels ||
        ys.dilation != 1 || xs.dilation != 1) {
      return Unimplemented("patches are faster");
    }
    const ZeroPoints zeros = Zeros(context);
    const int32_t shift = c_.w_signed ? 0 : 128;
    for (int64_t n = 0; n < (w_zero_stride_ == 0 ? 1 : c_.out_channels); ++n) {
      if (zeros[n] != shift) return Unimplemented("weights have zero points");
    }
    const int64_t most = kSumsBytes / (4 * xs.out * c_.out_channels);
    int64_t count = (ys.out + std::max<int64_t>(1, most) - 1) / std::max<int64_t>(1, most);
    count = std::max(count, (workers + c_.batch - 1) / c_.batch);
    count = std::min(count, ys.out);
    rows_ = (ys.out + count - 1) / count;
    row_tasks_ = (ys.out + rows_ - 1) / rows_;
    tasks_ = c_.batch * row_tasks_;
    const int64_t width = Line() / c_.channels, height = ys.Reach(rows_);
    constexpr auto kNhwc = memory::format_tag::nhwc;
    const memory::desc x({1, c_.channels, height, width}, memory::data_type::u8, kNhwc);
    const memory::desc y({1, c_.out_channels, rows_, xs.out}, memory::data_type::s32, kNhwc);
    const memory::dims w_dims{c_.out_channels, c_.channels, ys.kernel, xs.kernel};
    const memory::desc any(w_dims, memory::data_type::s8, memory::format_tag::any);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto made = [&] {
      const MakingDnnlPrimitive making;
      const dnnl::convolution_forward::primitive_desc pd({dnnl::prop_kind::forward_inference,
                                                          dnnl::algorithm::convolution_direct,
                                                          x,
                                                          any,
                                                          y,
                                                          {ys.stride, xs.stride},
                                                          {0, 0},
                                                          {0, 0},
                                                          {0, 0}},
                                                         attributes, DnnlEngine());
      return std::tuple(dnnl::convolution_forward(pd), pd.weights_desc(), pd.scratchpad_desc(),
                        std::string(pd.impl_info_str()));
    }();
    const memory::desc &weights = std::get<1>(made), &scratchpad = std::get<2>(made);
    if (!std::get<3>(made).starts_with("brgconv")) return Unimplemented("patches are faster");
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::string form, FormOf("windows", weights));
    weights_bytes_ = Aligned(static_cast<int64_t>(weights.get_size()));
    const auto fill = [&](const uint8_t* w, const ZeroPoints&, uint8_t* to) {
      std::vector<int8_t> plain(static_cast<size_t>(c_.out_channels * c_.K()));
      for (size_t i = 0; i < plain.size(); ++i) {
        plain[i] = static_cast<int8_t>(ByteAt(w, c_.w_signed, static_cast<int64_t>(i)) - shift);
      }
      memory from({w_dims, memory::data_type::s8, memory::format_tag::oihw}, DnnlEngine(),
                  plain.data());
      memory packed(weights, DnnlEngine(), to);
      dnnl::reorder(from, packed).execute(DnnlThreadStream(), from, packed);
    };
    CHAIRLIFT_RETURN_IF_ERROR(Pack(context, form, weights_bytes_, fill));
    SumWeights(context);
    sums_at_ = TakeOfPart(rows_ * xs.out * c_.out_channels * 4);
    if (pads_) slab_at_ = TakeOfPart(height * Line());
    scratchpad_at_ = TakeOfPart(static_cast<int64_t>(scratchpad.get_size()));
    product_ = std::make_unique<DnnlCall>(
        std::get<0>(made), std::vector<DnnlCall::Argument>{{DNNL_ARG_SRC, x},
                                                           {DNNL_ARG_WEIGHTS, weights},
                                                           {DNNL_ARG_DST, y},
                                                           {DNNL_ARG_SCRATCHPAD, scratchpad}});
    windows_ = true;
    return absl::OkStatus();
  }

  Status RunWindows(const Call& call, int64_t task, int worker, uint8_t* own) const {
    const Axis &ys = axes_[0], &xs = axes_[1];
    const int64_t image = task / row_tasks_, wanted = task % row_tasks_ * rows_;
    // The last task repeats rows instead of being shorter.
    const int64_t first = std::min(wanted, ys.out - rows_);
    const uint8_t* x = call.x + image * c_.InSize() * c_.channels;
    const uint8_t* from = own + slab_at_;
    if (pads_) {
      FillSlab(call, x, first * ys.stride, ys.Reach(rows_), own + slab_at_);
    } else {
      from = x + first * ys.stride * Line();
    }
    auto* sums = reinterpret_cast<int32_t*>(own + sums_at_);
    const void* data[] = {from, call.weights, sums, own + scratchpad_at_};
    CHAIRLIFT_RETURN_IF_ERROR(product_->Run(worker, data));
    const int64_t skipped = (wanted - first) * xs.out;
    Finish(call, sums + skipped * c_.out_channels, c_.out_channels, rows_ * xs.out - skipped,
           (image * ys.out + wanted) * xs.out, 0, c_.out_channels);
    return absl::OkStatus();
  }

  // The name of a packed form.
  static StatusOr<std::string> FormOf(const std::string& name, const memory::desc& weights) {
    if (weights.data.format_kind != dnnl_blocked || weights.data.extra.flags != 0) {
      return Unimplemented("oneDNN packs these weights in a form that cannot be named");
    }
    std::string form = name + ":";
    const dnnl_blocking_desc_t& blocking = weights.data.format_desc.blocking;
    for (int i = 0; i < weights.data.ndims; ++i) {
      form += fmt::format(" {}/{}", weights.data.padded_dims[i], blocking.strides[i]);
    }
    for (int i = 0; i < blocking.inner_nblks; ++i) {
      form += fmt::format(" {}*{}", blocking.inner_idxs[i], blocking.inner_blks[i]);
    }
    return form;
  }
  // The sum of each output's weights less their zero points.
  void SumWeights(const CompileContext& context) {
    const auto* w = static_cast<const uint8_t*>(context.constant(c_.at.w)->raw());
    const ZeroPoints zeros = Zeros(context);
    w_sums_.assign(static_cast<size_t>(c_.out_channels), 0);
    for (int64_t n = 0; n < c_.out_channels; ++n) {
      int32_t sum = 0;
      for (int64_t i = 0; i < c_.K(); ++i) {
        sum += ByteAt(w, c_.w_signed, n * c_.K() + i) - zeros[n];
      }
      w_sums_[static_cast<size_t>(n)] = sum;
    }
  }

  // --- Products of patches and weights -----------------------------------------------------------

  void PlanProduct(int64_t workers) {
    const bool one_tap = [&] {
      for (int i = 0; i < c_.window.rank(); ++i) {
        if (c_.window.kernel[i] != 1 || c_.window.strides[i] != 1 || c_.pads[i] != 0 ||
            c_.in[i] != c_.out[i]) {
          return false;
        }
      }
      return true;
    }();
    direct_ = one_tap && !c_.x_signed && c_.groups == 1;
    const int64_t outputs = c_.group_outputs();
    rows_ = std::min(kSumsBytes / (4 * outputs), kPatchBytes / std::max<int64_t>(1, c_.K()));
    rows_ = std::max<int64_t>(32, rows_ / 32 * 32);
    // Equal tasks; the last one may repeat rows of the one before.
    int64_t count = (total_ + rows_ - 1) / rows_;
    const int64_t of_group = (workers + c_.groups - 1) / c_.groups;  // at least
    count = (count + of_group - 1) / of_group * of_group;
    rows_ = std::min(total_, ((total_ + count - 1) / count + 15) / 16 * 16);
    row_tasks_ = (total_ + rows_ - 1) / rows_;
    tasks_ = c_.groups * row_tasks_;
  }

  Status PackWide(const CompileContext& context) {
    const int64_t outputs = c_.group_outputs();
    row_bytes_ = c_.K();
    direct_ = direct_ && row_bytes_ == c_.channels;
    sums_stride_ = outputs;
    sums_at_ = TakeOfPart(rows_ * outputs * 4);
    if (!direct_) patches_at_ = TakeOfPart(rows_ * row_bytes_ + kShortLine);
    wide_at_ = TakeOfPart(rows_ * WideRowStride(c_.K()) * 2);
    weights_bytes_ = Aligned(WidePanelsSize(outputs, c_.K()) * 2);
    const int64_t terms = c_.out_channels * c_.K();
    if (!fixed_weights_) {
      terms_at_ = Take(terms);
      weights_at_ = Take(c_.groups * weights_bytes_);
      return absl::OkStatus();
    }
    return Pack(context, "wide", c_.groups * weights_bytes_,
                [&](const uint8_t* w, const ZeroPoints& zero, uint8_t* to) {
                  std::vector<uint8_t> ordered(static_cast<size_t>(terms));
                  FillWide(w, zero, ordered.data(), to);
                });
  }

  void FillWide(const uint8_t* w, const ZeroPoints& zero, uint8_t* ordered, uint8_t* to) const {
    const int64_t outputs = c_.group_outputs(), k = c_.K();
    OrderTerms(w, c_.out_channels, c_.group_channels(), c_.Taps(), ordered);
    for (int64_t g = 0; g < c_.groups; ++g) {
      ZeroPoints own = zero;
      if (own.data != nullptr) {
        own.data = static_cast<const uint8_t*>(own.data) + g * outputs * own.stride;
      }
      WidenPanels({ordered + g * outputs * k, c_.w_signed, 1, k}, own, outputs, k, 0,
                  IntegerPanels(outputs), reinterpret_cast<int16_t*>(to + g * weights_bytes_));
    }
  }

  // Weights as int8, and sums from which the zero points are subtracted afterwards:
  //   Σ (x − x0)(w − w0) = Σ xw − w0 Σ x − x0 (Σ w − K w0).
  // If weights have zero points, Σ x is the product with a further output of ones.
  Status PackForDnnl(const CompileContext& context) {
    const int64_t outputs = c_.group_outputs(), k = c_.K();
    const auto* w = static_cast<const uint8_t*>(context.constant(c_.at.w)->raw());
    const ZeroPoints zeros = Zeros(context);
    const int32_t shift = c_.w_signed ? 0 : 128;
    w_zeros_.assign(static_cast<size_t>(c_.out_channels), 0);
    bool has_zeros = false;
    for (int64_t n = 0; n < c_.out_channels; ++n) {
      w_zeros_[static_cast<size_t>(n)] = zeros[n] - shift;
      has_zeros = has_zeros || zeros[n] != shift;
    }
    if (!has_zeros) w_zeros_.clear();
    // Rows of patches of whole tiles are up to twice as fast.
    row_bytes_ = direct_ ? k : k > 32 ? (k + 63) / 64 * 64 : (k + 3) / 4 * 4;
    sums_stride_ = outputs + (has_zeros ? 1 : 0);
    const memory::desc a({rows_, row_bytes_}, memory::data_type::u8, memory::format_tag::ab);
    const memory::desc b({row_bytes_, sums_stride_}, memory::data_type::s8,
                         memory::format_tag::any);
    const memory::desc sums({rows_, sums_stride_}, memory::data_type::s32, memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto made = [&] {
      const MakingDnnlPrimitive making;
      const dnnl::matmul::primitive_desc pd({a, b, sums}, attributes, DnnlEngine());
      return std::tuple(dnnl::matmul(pd), pd.weights_desc(), pd.scratchpad_desc());
    }();
    const memory::desc &weights = std::get<1>(made), &scratchpad = std::get<2>(made);
    weights_bytes_ = Aligned(static_cast<int64_t>(weights.get_size()));
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::string form,
                               FormOf(fmt::format("rows of {}", row_bytes_), weights));
    const auto fill = [&](const uint8_t*, const ZeroPoints&, uint8_t* to) {
      std::vector<uint8_t> ordered(static_cast<size_t>(c_.out_channels * k));
      OrderTerms(w, c_.out_channels, c_.group_channels(), c_.Taps(), ordered.data());
      std::vector<int8_t> plain(static_cast<size_t>(row_bytes_ * sums_stride_));
      for (int64_t g = 0; g < c_.groups; ++g) {
        std::fill(plain.begin(), plain.end(), int8_t{0});
        for (int64_t i = 0; i < k; ++i) {
          int8_t* row = plain.data() + i * sums_stride_;
          for (int64_t n = 0; n < outputs; ++n) {
            row[n] = static_cast<int8_t>(
                ByteAt(ordered.data(), c_.w_signed, (g * outputs + n) * k + i) - shift);
          }
          if (has_zeros) row[outputs] = 1;
        }
        const memory::desc user({row_bytes_, sums_stride_}, memory::data_type::s8,
                                memory::format_tag::ab);
        memory from(user, DnnlEngine(), plain.data());
        memory packed(weights, DnnlEngine(), to + g * weights_bytes_);
        dnnl::reorder(from, packed).execute(DnnlThreadStream(), from, packed);
      }
    };
    CHAIRLIFT_RETURN_IF_ERROR(Pack(context, form, c_.groups * weights_bytes_, fill));
    SumWeights(context);
    sums_at_ = TakeOfPart(rows_ * sums_stride_ * 4);
    if (!direct_) patches_at_ = TakeOfPart(rows_ * row_bytes_ + kShortLine);
    scratchpad_at_ = TakeOfPart(static_cast<int64_t>(scratchpad.get_size()));
    product_ = std::make_unique<DnnlCall>(
        std::get<0>(made), std::vector<DnnlCall::Argument>{{DNNL_ARG_SRC, a},
                                                           {DNNL_ARG_WEIGHTS, weights},
                                                           {DNNL_ARG_DST, sums},
                                                           {DNNL_ARG_SCRATCHPAD, scratchpad}});
    return absl::OkStatus();
  }

  Status RunProduct(const Call& call, int64_t task, int worker, uint8_t* own) const {
    const int64_t group = task / row_tasks_, outputs = c_.group_outputs();
    // The last task repeats rows instead of being shorter.
    const int64_t wanted = task % row_tasks_ * rows_;
    const int64_t first = std::min(wanted, total_ - rows_);
    const uint8_t* rows = own + patches_at_;
    if (direct_) {
      rows = call.x + first * c_.channels;
    } else {
      Gather(call, group, first, own + patches_at_);
    }
    auto* sums = reinterpret_cast<int32_t*>(own + sums_at_);
    const uint8_t* weights = call.weights + group * weights_bytes_;
    if (product_ != nullptr) {
      const void* data[] = {rows, weights, sums, own + scratchpad_at_};
      CHAIRLIFT_RETURN_IF_ERROR(product_->Run(worker, data));
      if (!w_zeros_.empty()) SubtractZeros(group, sums);
    } else {
      auto* wide = reinterpret_cast<int16_t*>(own + wide_at_);
      const int64_t k = c_.K();
      const auto zero = static_cast<uint8_t>(Unsigned(call.x_zero));
      WidenRows({rows, false, row_bytes_, 1}, {&zero, false, 0}, rows_, k, wide);
      IntegerProduct(wide, reinterpret_cast<const int16_t*>(weights), rows_, outputs, k, 0,
                     IntegerPanels(outputs), sums, outputs);
    }
    const int64_t skipped = wanted - first;
    Finish(call, sums + skipped * sums_stride_, sums_stride_, rows_ - skipped, wanted,
           group * outputs, outputs);
    return absl::OkStatus();
  }

  void SubtractZeros(int64_t group, int32_t* sums) const {
    const int64_t outputs = c_.group_outputs();
    const int32_t* zeros = w_zeros_.data() + group * outputs;
    for (int64_t r = 0; r < rows_; ++r, sums += sums_stride_) {
      const auto of_x = static_cast<uint32_t>(sums[outputs]);
      for (int64_t n = 0; n < outputs; ++n) {
        sums[n] = static_cast<int32_t>(static_cast<uint32_t>(sums[n]) -
                                       static_cast<uint32_t>(zeros[n]) * of_x);
      }
    }
  }

  // Writes the patch of each of a task's positions as one row of unsigned bytes. Values outside the
  // input are the zero point.
  void Gather(const Call& call, int64_t group, int64_t first, uint8_t* to) const {
    const int last = c_.window.rank() - 1;
    const int64_t channels = c_.group_channels();
    const int64_t columns = c_.window.kernel[last], lines = c_.Taps() / columns;
    const int64_t dilation = c_.window.dilations[last];
    const int fill = static_cast<uint8_t>(call.x_zero);
    const int64_t line_bytes = columns * channels;
    const bool together = dilation == 1 && c_.groups == 1;  // taps of a line lie together
    // Short lines are copied as kShortLine bytes if these are all in X. The excess bytes are
    // overwritten by the next line, or are unused bytes of the row, whose weights are zero.
    const int64_t last_short =
        line_bytes <= kShortLine ? c_.batch * c_.InSize() * c_.channels - kShortLine : -1;
    // The image of the first window, and by axis its number and its first tap.
    int64_t image = first;
    absl::InlinedVector<int64_t, 3> output(c_.window.rank()), at(c_.window.rank());
    const auto place = [&](int axis) {
      at[axis] = output[axis] * c_.window.strides[axis] - c_.pads[axis];
    };
    for (int axis = last; axis >= 0; --axis) {
      output[axis] = image % c_.out[axis];
      image /= c_.out[axis];
      place(axis);
    }
    for (int64_t i = 0; i < rows_; ++i) {
      const uint8_t* from = call.x;
      if (c_.InSize() > 0) from += image * c_.InSize() * c_.channels + group * channels;
      uint8_t* row = to + i * row_bytes_;
      const int64_t begin = at[last];
      const int64_t low = std::clamp<int64_t>(-begin, 0, columns);
      const int64_t high = std::clamp<int64_t>(c_.in[last] - begin, low, columns);
      for (int64_t line = 0; line < lines; ++line, row += line_bytes) {
        int64_t rest = line, offset = 0, size = c_.in[last];
        bool inside = true;
        for (int axis = last - 1; axis >= 0; --axis) {
          const int64_t index =
              at[axis] + rest % c_.window.kernel[axis] * c_.window.dilations[axis];
          inside = inside && index >= 0 && index < c_.in[axis];
          offset += index * size;
          size *= c_.in[axis];
          rest /= c_.window.kernel[axis];
        }
        if (!inside) {
          std::memset(row, fill, static_cast<size_t>(line_bytes));
        } else if (together && high - low == columns) {
          const uint8_t* source = from + (offset + begin) * channels;
          if (source - call.x <= last_short) {
            std::memcpy(row, source, kShortLine);
          } else {
            std::memcpy(row, source, static_cast<size_t>(line_bytes));
          }
        } else if (together) {
          std::memset(row, fill, static_cast<size_t>(low * channels));
          if (high > low) {
            std::memcpy(row + low * channels, from + (offset + begin + low) * channels,
                        static_cast<size_t>((high - low) * channels));
          }
          std::memset(row + high * channels, fill,
                      static_cast<size_t>((columns - high) * channels));
        } else {
          for (int64_t t = 0; t < columns; ++t) {
            const int64_t index = begin + t * dilation;
            if (index < 0 || index >= c_.in[last]) {
              std::memset(row + t * channels, fill, static_cast<size_t>(channels));
            } else {
              std::memcpy(row + t * channels, from + (offset + index) * c_.channels,
                          static_cast<size_t>(channels));
            }
          }
        }
      }
      // The next window.
      int axis = last;
      while (axis >= 0 && ++output[axis] == c_.out[axis]) {
        output[axis] = 0;
        place(axis--);
      }
      if (axis >= 0) {
        place(axis);
      } else {
        ++image;
      }
    }
    // Rows are contiguous, and a short line may be copied beyond its row. So unused bytes are
    // cleared last.
    for (int64_t i = 0; i < rows_ && row_bytes_ > c_.K(); ++i) {
      std::memset(to + i * row_bytes_ + c_.K(), 0, static_cast<size_t>(row_bytes_ - c_.K()));
    }
    if (c_.x_signed) {
      for (int64_t i = 0; i < rows_ * row_bytes_; ++i) to[i] ^= kSignBit;
    }
  }

  // --- Common ------------------------------------------------------------------------------------

  // A zero point of X after its bytes became unsigned.
  int32_t Unsigned(int32_t zero) const { return zero + (c_.x_signed ? 128 : 0); }

  void Start(const int32_t* bias, const Call& call) const {
    const int32_t* sums = nullptr;  // of the weights; multiplied by x_zero
    if (product_ != nullptr || depthwise_vnni_) {
      sums = w_sums_.data();
    } else if (c_.Depthwise()) {
      sums = reinterpret_cast<const int32_t*>(call.weights) + c_.Taps() * c_.channels;
    }
    const auto zero = static_cast<uint32_t>(Unsigned(call.x_zero));
    for (int64_t n = 0; n < c_.out_channels; ++n) {
      call.start[n] =
          static_cast<int32_t>((bias == nullptr ? 0u : static_cast<uint32_t>(bias[n])) -
                               (sums == nullptr ? 0u : zero * static_cast<uint32_t>(sums[n])));
    }
  }

  // The results of `rows` positions from `position` on, of channels [first, first + channels).
  void Finish(const Call& call, const int32_t* sums, int64_t sums_stride, int64_t rows,
              int64_t position, int64_t first, int64_t channels) const {
    const int64_t to = position * c_.out_channels + first;
    const int32_t* start = call.start + first;
    if (c_.at.quantizes()) {
      SumsToBytes(call.range, sums, rows, channels, sums_stride, start, call.scales + first,
                  call.y + to, c_.out_channels);
      return;
    }
    int32_t* y = reinterpret_cast<int32_t*>(call.y) + to;
    for (int64_t r = 0; r < rows; ++r, sums += sums_stride, y += c_.out_channels) {
      for (int64_t n = 0; n < channels; ++n) {
        y[n] =
            static_cast<int32_t>(static_cast<uint32_t>(sums[n]) + static_cast<uint32_t>(start[n]));
      }
    }
  }

  // A spatial axis of a depthwise convolution.
  struct Axis {
    int64_t in = 1, out = 1, pad = 0, kernel = 1, stride = 1, dilation = 1;
    // Padded inputs under `outputs` windows.
    int64_t Reach(int64_t outputs) const {
      return (outputs - 1) * stride + (kernel - 1) * dilation + 1;
    }
  };

  const ByteConv c_;
  bool fixed_weights_ = false, direct_ = false, pads_ = false;
  bool windows_ = false, depthwise_vnni_ = false;
  int64_t w_zero_stride_ = 0, w_scale_stride_ = 0;
  int64_t total_ = 0;  // positions of all images
  int64_t rows_ = 0;   // positions, or rows of outputs, of a task
  int64_t row_tasks_ = 0, tasks_ = 0;
  int64_t together_ = 0;
  int64_t row_bytes_ = 0, sums_stride_ = 0;
  int64_t weights_bytes_ = 0;  // of a group
  Axis axes_[2];
  std::vector<float> scales_;  // empty: computed in each run
  std::vector<int32_t> w_sums_, w_zeros_;
  Tensor packed_;  // absent: packed in each run
  std::unique_ptr<DnnlCall> product_;
  int parts_ = 1;
  int64_t scratch_bytes_ = 0, part_bytes_ = 0;
  int64_t start_at_ = 0, scales_at_ = 0, weights_at_ = 0, terms_at_ = 0, parts_at_ = 0;
  int64_t x_at_ = -1, y_at_ = -1;
  // Offsets in the scratch memory of a part.
  int64_t sums_at_ = 0, slab_at_ = 0, patches_at_ = 0, wide_at_ = 0, scratchpad_at_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileByteConv(const ByteConv& conv,
                                                  const CompileContext& context) {
  if (context.outputs[0].size() == 0) {
    return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
  }
  auto kernel = std::make_unique<ByteConvKernel>(conv);
  CHAIRLIFT_RETURN_IF_ERROR(kernel->Prepare(context));
  return kernel;
}

}  // namespace chairlift
