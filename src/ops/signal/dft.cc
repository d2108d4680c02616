// DFT: the discrete Fourier transform along one axis, its inverse, and their one-sided forms for
// real signals. Complex numbers are pairs in the last dimension.
#include <algorithm>
#include <array>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/input_values.h"
#include "ops/signal/fft.h"
#include "ops/signal/signal.h"

namespace chairlift {
namespace {

constexpr int kLength = 1;
constexpr int kAxis = 2;

struct Options {
  bool inverse;
  bool onesided;
  bool to_real() const { return inverse && onesided; }

  static Options Parse(const Attributes& attributes) {
    return {attributes.Int("inverse", 0) != 0, attributes.Int("onesided", 0) != 0};
  }
};

StatusOr<int> SignalAxis(int64_t axis, int rank) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int a, NormalizeAxis(axis, rank));
  if (a == rank - 1) return InvalidArgument("axis {} is the one of the complex parts", axis);
  return a;
}

Status CheckLength(int64_t length) {
  if (length < 1 || length > Fft::kLongest) {
    return InvalidArgument("dft_length {} is outside [1, {}]", length, Fft::kLongest);
  }
  return absl::OkStatus();
}

int64_t DefaultLength(const Options& options, int64_t dim) {
  if (dim > Fft::kLongest) return dim;  // refused by CheckLength
  return options.to_real() ? 2 * (dim - 1) : dim;
}

Status InferDft(InferContext& context) {
  const Options options = Options::Parse(context.attributes());
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape());
  if (in.rank() < 2)
    return InvalidArgument("input must have rank 2 or more, not {}", in.ToString());
  const Dim& parts = in[in.rank() - 1];
  if (parts.known() && (parts.value() < 1 || parts.value() > 2)) {
    return InvalidArgument("the last dimension must be 1 (real) or 2 (complex), not {}",
                           parts.value());
  }
  if (options.onesided && parts.known() && parts.value() != (options.inverse ? 2 : 1)) {
    return InvalidArgument("a one-sided {} takes {} input",
                           options.inverse ? "inverse transform" : "transform",
                           options.inverse ? "complex" : "real");
  }
  std::vector<Dim> out = in.dims();
  out.back() = options.to_real() ? 1 : 2;
  const auto axis_value =
      context.has_input(kAxis) ? context.known_elements(kAxis) : std::vector<int64_t>{-2};
  const bool has_length = context.has_input(kLength);
  if (!axis_value) {
    if (has_length || options.onesided) std::fill(out.begin(), out.end() - 1, Dim::Unknown());
    return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
  }
  if (axis_value->size() != 1) return InvalidArgument("axis must be one number");
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, SignalAxis((*axis_value)[0], in.rank()));
  std::optional<int64_t> length;
  if (has_length) {
    if (const auto value = context.known_elements(kLength)) {
      if (value->size() != 1) return InvalidArgument("dft_length must be one number");
      length = (*value)[0];
    }
  } else if (in[axis].known()) {
    length = DefaultLength(options, in[axis].value());
  } else if (!options.onesided) {
    return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
  }
  out[axis] = Dim::Unknown();
  if (length) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckLength(*length));
    out[axis] = options.onesided && !options.inverse ? *length / 2 + 1 : *length;
  }
  return SetOutput(context, 0, context.dtype(0), SymbolicShape(std::move(out)));
}

struct Plan {
  Options options;
  int64_t outer = 1;
  int64_t in_length = 1;
  int64_t out_length = 1;
  int64_t inner = 1;     // between the axis and the parts
  int64_t in_parts = 1;  // 1 real, 2 complex
};

// The line's spectrum or signal as `length` complex numbers, truncated or padded with zeros. For
// the inverse, real and imaginary parts are swapped, which turns the forward transform into it.
template <typename T>
void LoadLine(const Plan& plan, int64_t length, const T* in, Complex* line) {
  const int64_t step = plan.inner * plan.in_parts;
  const int64_t spectrum = length / 2 + 1;
  const int64_t n = std::min({plan.in_length, length, plan.options.to_real() ? spectrum : length});
  for (int64_t i = 0; i < n; ++i) {
    const auto re = static_cast<double>(in[i * step]);
    const double im = plan.in_parts == 2 ? static_cast<double>(in[i * step + 1]) : 0;
    line[i] = plan.options.inverse ? Complex{im, re} : Complex{re, im};
  }
  std::fill(line + n, line + length, Complex{});
  if (!plan.options.to_real()) return;
  // The other side is the conjugate; an entry without another side is real. Parts are swapped here.
  line[0].re = 0;
  if (length % 2 == 0) line[length / 2].re = 0;
  for (int64_t i = 1; 2 * i < length; ++i) line[length - i] = {-line[i].re, line[i].im};
}

template <typename T>
void StoreLine(const Plan& plan, int64_t length, const Complex* line, T* out) {
  const int64_t parts = plan.options.to_real() ? 1 : 2;
  const int64_t step = plan.inner * parts;
  const double scale = plan.options.inverse ? 1 / static_cast<double>(length) : 1;
  for (int64_t k = 0; k < plan.out_length; ++k) {
    const double re = plan.options.inverse ? line[k].im : line[k].re;
    const double im = plan.options.inverse ? line[k].re : line[k].im;
    out[k * step] = static_cast<T>(re * scale);
    if (parts == 2) out[k * step + 1] = static_cast<T>(im * scale);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeDft(const Plan& plan, int64_t length, int width) {
  constexpr int64_t kParallelElements = 16 * 1024;
  const auto fft = std::make_shared<const Fft>(length);
  const int64_t buffers = 2 * length + fft->scratch_size();
  const int64_t lines = plan.outer * plan.inner;
  const int64_t most_parts = std::min<int64_t>(lines, width == 1 ? 1 : width * 2);
  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        const auto* in = static_cast<const T*>(args.inputs[0]);
        auto* out = static_cast<T*>(args.outputs[0]);
        const int64_t out_parts = plan.options.to_real() ? 1 : 2;
        const auto range = [&](int part, int64_t first, int64_t last) {
          Complex* line = static_cast<Complex*>(args.scratch) + part * buffers;
          for (int64_t l = first; l < last; ++l) {
            const int64_t o = l / plan.inner;
            const int64_t i = l % plan.inner;
            LoadLine(plan, length, in + (o * plan.in_length * plan.inner + i) * plan.in_parts,
                     line);
            fft->Run(line, line + length, line + 2 * length);
            StoreLine(plan, length, line + length,
                      out + (o * plan.out_length * plan.inner + i) * out_parts);
          }
        };
        if (lines * length <= kParallelElements || args.team.width() == 1) {
          range(0, 0, lines);
          return absl::OkStatus();
        }
        const int64_t parts = std::min<int64_t>(most_parts, args.team.width() * 2);
        args.team.For(static_cast<int>(parts), [&](int part, int) {
          range(part, lines * part / parts, lines * (part + 1) / parts);
        });
        return absl::OkStatus();
      },
      static_cast<size_t>(most_parts * buffers) * sizeof(Complex));
}

StatusOr<std::unique_ptr<Kernel>> CompileDft(const CompileContext& context) {
  const Options options = Options::Parse(context.attributes);
  const Shape in = context.inputs[0].shape;
  const Shape out = context.outputs[0].shape;
  const DType dtype = context.inputs[0].dtype;
  const int width = context.width;
  return CompileFromValues(
      context, {kLength, kAxis},
      [=](const std::vector<Tensor>& values) -> StatusOr<std::unique_ptr<Kernel>> {
        CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                                   SignalAxis(ScalarOr(values[kAxis], -2), in.rank()));
        const int64_t length = ScalarOr(values[kLength], DefaultLength(options, in[axis]));
        CHAIRLIFT_RETURN_IF_ERROR(CheckLength(length));
        const int64_t out_length = options.onesided && !options.inverse ? length / 2 + 1 : length;
        Shape expected = in;
        expected[axis] = out_length;
        expected[in.rank() - 1] = options.to_real() ? 1 : 2;
        if (!(expected == out)) {
          return InvalidArgument("dft_length {} along axis {} makes {}, not the expected {}",
                                 length, axis, expected.ToString(), out.ToString());
        }
        const Plan plan{options,
                        in.NumElements(0, axis),
                        in[axis],
                        out_length,
                        in.NumElements(axis + 1, in.rank() - 1),
                        in[in.rank() - 1]};
        return DispatchFloat(dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
          return MakeDft<T>(plan, length, width);
        });
      });
}

StatusOr<AxisMap> AxesOfDft(const InferContext& context) {
  int64_t axis = -2;
  if (context.has_input(kAxis)) {
    const auto known = context.known_elements(kAxis);
    if (!known || known->size() != 1) return Unimplemented("its axis is not a single number");
    axis = (*known)[0];
  }
  return AxesWithout(context, std::to_array<int64_t>({axis, -1}));  // the last holds complex parts
}

}  // namespace

OperatorDef DFTOperator() {
  return {.name = "DFT",
          .max_inputs = 3,
          .input_types = {kFloatTypes, kIndexTypes, {DType::kInt64}},
          .infer = InferDft,
          .axes = AxesOfDft,
          .compile = CompileDft};
}

}  // namespace chairlift
