// ConvInteger and QLinearConv: convolutions of 8-bit tensors as integer products, patch by patch.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/integer_product.h"
#include "ops/quantization/quantization.h"
#include "ops/quantization/scale_ratio.h"
#include "ops/window.h"

namespace chairlift {
namespace {

// The input numbers of an operator's operands; −1 if it has no such operand.
struct ConvInputs {
  int x = 0, w = 1, x_zero = 2, w_zero = 3;
  int x_scale = -1, w_scale = -1, y_scale = -1, y_zero = -1, bias = -1;
};
constexpr ConvInputs kConvInteger{};
constexpr ConvInputs kQLinearConv{0, 3, 2, 5, 1, 4, 6, 7, 8};

// Output positions computed together.
constexpr int64_t kPositions = 256;
// Rows of a group of one channel up to which each is summed up in place: patches would be gathered
// for too few products.
constexpr int64_t kRowsInPlace = 8;
// Multiply-adds below which a team is not worth its fork and join.
constexpr double kSplitWork = 1e6;

// An input of known shape must have one entry or, if `channels` > 0, one per channel.
Status CheckParameter(const InferContext& context, int input, const char* name, int64_t channels) {
  if (input < 0 || !context.has_input(input) || !context.shape(input).concrete()) return {};
  const int64_t count = context.shape(input).ToShape().NumElements();
  if (count == 1 || (channels > 0 && count == channels)) return {};
  return InvalidArgument("{} has shape {}; {} entries are needed", name,
                         context.shape(input).ToString(), std::max<int64_t>(channels, 1));
}

Status InferConv(InferContext& context, const ConvInputs& at, DType output) {
  const SymbolicShape& x = context.shape(at.x);
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
  return SetOutput(context, 0, output, std::move(shape));
}

// sums[i] += w · (x[i·stride] − zero), modulo 2³².
template <typename Byte>
void AddProducts(const Byte* x, int64_t stride, int32_t zero, int16_t w, int64_t count,
                 int32_t* sums) {
  const auto shift = static_cast<int16_t>(zero);
  const auto add = [&](int64_t i, Byte value) {
    const int32_t product = static_cast<int16_t>(value - shift) * w;
    sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(product));
  };
  if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) add(i, x[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) add(i, x[i * stride]);
  }
}

// The patches under windows as widened panels (integer_product.h): a column a position, k going
// over channels and in them over taps.
struct Patches {
  Window window;
  std::vector<int64_t> in, out, pads;
  int64_t channels = 0;  // per group
  int64_t taps = 1, in_size = 1, out_size = 1;

  int64_t k() const { return channels * taps; }

  // Panels of the positions [first, last) of the group whose input begins at x, minus zero.
  // Positions outside the input are then zero.
  template <typename Byte>
  void Gather(const Byte* x, int32_t zero, int64_t first, int64_t last, int16_t* wide) const {
    const int64_t panel_size = (k() + 1) / 2 * 2 * kIntegerPanel;
    for (; first < last; first += kIntegerPanel, wide += panel_size) {
      std::fill_n(wide + panel_size - 2 * kIntegerPanel, 2 * kIntegerPanel, int16_t{0});
      if (in_size == 0) {
        std::fill_n(wide, panel_size, int16_t{0});
        continue;
      }
      const Starts starts = StartsOf(first, std::min(kIntegerPanel, last - first));
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t offsets[kIntegerPanel];
        int32_t inside[kIntegerPanel];  // all ones or zero
        Locate(starts, tap, offsets, inside);
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t row = c * taps + tap;
          int16_t* to = wide + row / 2 * 2 * kIntegerPanel + row % 2;
          const Byte* from = x + c * in_size;
          for (int64_t j = 0; j < kIntegerPanel; ++j) {
            to[2 * j] = static_cast<int16_t>((from[offsets[j]] - zero) & inside[j]);
          }
        }
      }
    }
  }

  // Without patches, where a group has one channel, which begins at x: sums[i] of the window at
  // position first + i, whose taps count as `w` says.
  template <typename Byte>
  void Sum(const Byte* x, int32_t zero, const int16_t* w, int64_t first, int64_t count,
           int32_t* sums) const {
    std::fill_n(sums, count, 0);
    if (in_size == 0) return;
    const int axis = window.rank() - 1;
    const int64_t stride = window.strides[axis];
    // Line by line along the last axis.
    for (int64_t done = 0; done < count;) {
      const int64_t line = (first + done) / out[axis], begin = (first + done) % out[axis];
      const int64_t end = std::min(begin + count - done, out[axis]);
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t from = LineUnder(line, tap / window.kernel[axis]);
        if (from < 0) continue;
        // Window i reads at i · stride + shift.
        const int64_t shift = tap % window.kernel[axis] * window.dilations[axis] - pads[axis];
        const int64_t past = in[axis] - shift;
        const int64_t low = std::max(begin, shift < 0 ? (stride - 1 - shift) / stride : 0);
        const int64_t high = std::min(end, past <= 0 ? 0 : (past - 1) / stride + 1);
        if (low >= high) continue;
        AddProducts(x + from + low * stride + shift, stride, zero, w[tap], high - low,
                    sums + done + low - begin);
      }
      done += end - begin;
    }
  }

 private:
  // The line of the input, by its first element, that a tap of the outer axes of the windows of a
  // line of the output reads; −1: it is outside.
  int64_t LineUnder(int64_t line, int64_t tap) const {
    int64_t from = 0, size = in[window.rank() - 1];
    for (int i = window.rank() - 1; i-- > 0;) {
      const int64_t index = line % out[i] * window.strides[i] - pads[i] +
                            tap % window.kernel[i] * window.dilations[i];
      if (index < 0 || index >= in[i]) return -1;
      from += index * size;
      size *= in[i];
      line /= out[i];
      tap /= window.kernel[i];
    }
    return from;
  }
  // By axis: where the windows of a panel's positions begin, which may be outside the input.
  using Starts = absl::InlinedVector<std::array<int64_t, kIntegerPanel>, 3>;

  Starts StartsOf(int64_t first, int64_t count) const {
    Starts starts(window.rank());
    for (int64_t j = 0; j < kIntegerPanel; ++j) {
      int64_t position = first + j;
      for (int i = window.rank(); i-- > 0; position /= out[i]) {
        // Columns past the last position are outside.
        starts[i][j] = j < count ? position % out[i] * window.strides[i] - pads[i]
                                 : std::numeric_limits<int64_t>::min() / 2;
      }
    }
    return starts;
  }
  // Where a tap of each window reads (some place inside the input if it is outside).
  void Locate(const Starts& starts, int64_t tap, int64_t* offsets, int32_t* inside) const {
    std::fill_n(offsets, kIntegerPanel, int64_t{0});
    std::fill_n(inside, kIntegerPanel, -1);
    int64_t stride = 1;
    for (int i = window.rank(); i-- > 0; tap /= window.kernel[i]) {
      const int64_t shift = tap % window.kernel[i] * window.dilations[i];
      for (int64_t j = 0; j < kIntegerPanel; ++j) {
        const int64_t index = starts[i][j] + shift;
        const bool fits = index >= 0 && index < in[i];
        inside[j] &= fits ? -1 : 0;
        offsets[j] += fits ? index * stride : 0;
      }
      stride *= in[i];
    }
  }
};

StatusOr<std::unique_ptr<Kernel>> CompileConv(const CompileContext& context, const ConvInputs& at) {
  const Shape& x = context.inputs[at.x].shape;
  const Shape& w = context.inputs[at.w].shape;
  const Shape& y = context.outputs[0].shape;
  Patches patches;
  const auto kernel = w.dims().subspan(2);
  CHAIRLIFT_ASSIGN_OR_RETURN(patches.window,
                             Window::Parse(context.attributes, w.rank() - 2, kernel));
  for (int i = 2; i < x.rank(); ++i) {
    patches.in.push_back(x[i]);
    patches.out.push_back(y[i]);
    patches.pads.push_back(patches.window.PadBegin(i - 2, x[i]));
  }
  const int64_t groups = context.attributes.Int("group", 1);
  const int64_t batch = x[0];
  const int64_t rows = w[0] / groups;
  patches.channels = w[1];
  patches.taps = w.NumElements(2, w.rank());
  patches.in_size = x.NumElements(2, x.rank());
  patches.out_size = y.NumElements(2, y.rank());
  const int64_t k = patches.k();
  const bool in_place = patches.channels == 1 && rows <= kRowsInPlace;
  const bool x_signed = context.inputs[at.x].dtype == DType::kInt8;
  const bool w_signed = context.inputs[at.w].dtype == DType::kInt8;
  const bool y_signed = context.outputs[0].dtype == DType::kInt8;
  const auto entries = [&](int input) {
    return input >= 0 && context.has_input(input) ? context.inputs[input].size() : 0;
  };
  const int64_t w_zero_stride = entries(at.w_zero) > 1 ? 1 : 0;
  const int64_t w_scale_stride = entries(at.w_scale) > 1 ? 1 : 0;

  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t positions = std::min(kPositions, patches.out_size);
  const int64_t wide_patch_bytes = in_place ? 0 : aligned(WidePanelsSize(positions, k) * 2);
  const int64_t sums_bytes = aligned(rows * positions * 4);
  const int64_t worker_bytes = wide_patch_bytes + sums_bytes;
  const int64_t w_bytes = aligned(w[0] * WideRowStride(k) * 2);
  // One part of the work: some positions of one image's group.
  const int64_t chunks = (patches.out_size + kPositions - 1) / kPositions;
  const int64_t tasks = batch * groups * chunks;
  const double work = static_cast<double>(y.NumElements()) * k;
  const int parts = context.width > 1 && work > kSplitWork
                        ? static_cast<int>(std::clamp<int64_t>(tasks, 1, context.width))
                        : 1;

  return MakeKernel(
      [=, patches = std::move(patches)](const KernelArgs& args) -> Status {
        auto* wide_w = static_cast<int16_t*>(args.scratch);
        const auto input = [&](int i) {
          return i >= 0 && i < static_cast<int>(args.inputs.size()) ? args.inputs[i] : nullptr;
        };
        const auto* x_data = static_cast<const uint8_t*>(input(at.x));
        const ZeroPoints x_zero{input(at.x_zero), x_signed, 0};
        const ZeroPoints y_zero{input(at.y_zero), y_signed, 0};
        const auto* bias = static_cast<const int32_t*>(input(at.bias));
        const auto scale_of = [&](int i) { return static_cast<const float*>(input(i)); };
        WidenRows({input(at.w), w_signed, k, 1}, {input(at.w_zero), w_signed, w_zero_stride},
                  groups * rows, k, wide_w);

        const auto run = [&](int64_t task, std::byte* scratch) {
          auto* wide = reinterpret_cast<int16_t*>(scratch);
          auto* sums = reinterpret_cast<int32_t*>(scratch + wide_patch_bytes);
          const int64_t image = task / chunks;
          const int64_t first_row = image % groups * rows;
          const int64_t first = task % chunks * kPositions;
          const int64_t count = std::min(kPositions, patches.out_size - first);
          const uint8_t* from = x_data + image * patches.channels * patches.in_size;
          const int16_t* own_w = wide_w + first_row * WideRowStride(k);
          const auto sum = [&](const auto* bytes) {
            if (in_place) {
              for (int64_t r = 0; r < rows; ++r) {
                patches.Sum(bytes, x_zero[0], own_w + r * WideRowStride(k), first, count,
                            sums + r * count);
              }
              return;
            }
            patches.Gather(bytes, x_zero[0], first, first + count, wide);
            IntegerProduct(own_w, wide, rows, count, k, 0, IntegerPanels(count), sums, count);
          };
          if (x_signed) {
            sum(reinterpret_cast<const int8_t*>(from));
          } else {
            sum(from);
          }
          for (int64_t r = 0; r < rows; ++r) {
            int32_t* row = sums + r * count;
            const int64_t channel = first_row + r;
            const int64_t to = (image * rows + r) * patches.out_size + first;
            if (at.y_scale < 0) {
              std::memcpy(static_cast<int32_t*>(args.outputs[0]) + to, row, count * 4);
              continue;
            }
            if (bias != nullptr) {
              for (int64_t i = 0; i < count; ++i) {
                row[i] = static_cast<int32_t>(static_cast<uint32_t>(row[i]) +
                                              static_cast<uint32_t>(bias[channel]));
              }
            }
            const float scale =
                ScaleRatio(*scale_of(at.x_scale), scale_of(at.w_scale)[channel * w_scale_stride],
                           *scale_of(at.y_scale));
            Requantize(row, count, scale, y_zero[0], y_signed,
                       static_cast<uint8_t*>(args.outputs[0]) + to);
          }
        };
        const auto run_part = [&](int part, int) {
          std::byte* scratch =
              static_cast<std::byte*>(args.scratch) + w_bytes + part * worker_bytes;
          for (int64_t task = tasks * part / parts; task < tasks * (part + 1) / parts; ++task) {
            run(task, scratch);
          }
        };
        if (parts == 1) {
          run_part(0, 0);
        } else {
          args.team.For(parts, run_part);
        }
        return {};
      },
      static_cast<size_t>(w_bytes + parts * worker_bytes));
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

  constexpr TypeSet kScale{DType::kFloat};
  OperatorDef quantized;
  quantized.name = "QLinearConv";
  quantized.min_opset = 10;
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

}  // namespace chairlift
