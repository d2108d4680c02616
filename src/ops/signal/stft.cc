// STFT: the Fourier transforms of overlapping windowed frames of a signal.
// out[b, f, k] = Σ_n window[n] × signal[b, f·step + n] × exp(−2πi·k·n / frame_length).
#include <algorithm>

#include "ops/axes.h"
#include "ops/axis_map.h"
#include "ops/input_values.h"
#include "ops/signal/fft.h"
#include "ops/signal/signal.h"

namespace chairlift {
namespace {

constexpr int kStep = 1;
constexpr int kWindow = 2;
constexpr int kFrameLength = 3;

StatusOr<std::optional<int64_t>> KnownNumber(const InferContext& context, int i) {
  const auto value = context.has_input(i) ? context.known_elements(i) : std::nullopt;
  if (!value) return std::optional<int64_t>();
  if (value->size() != 1) return InvalidArgument("input {} must be one number", i);
  return std::optional<int64_t>((*value)[0]);
}

Status Check(int64_t step, int64_t length) {
  if (step < 1) return InvalidArgument("frame_step {} is not above 0", step);
  if (length < 1 || length > Fft::kLongest) {
    return InvalidArgument("frame_length {} is outside [1, {}]", length, Fft::kLongest);
  }
  return absl::OkStatus();
}

int64_t Frames(int64_t signal, int64_t length, int64_t step) {
  return signal < length ? 0 : (signal - length) / step + 1;
}

Status InferStft(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  const bool onesided = context.attributes().Int("onesided", 1) != 0;
  // A signal without a dimension for the parts is real.
  if (in.has_rank() && in.rank() != 3 && in.rank() != 2) {
    return InvalidArgument("signal must have rank 3, not {}", in.ToString());
  }
  if (in.has_rank() && in.rank() == 3 && in[2].known()) {
    if (in[2].value() < 1 || in[2].value() > 2) {
      return InvalidArgument("the last dimension must be 1 (real) or 2 (complex), not {}",
                             in[2].value());
    }
    if (in[2].value() == 2 && onesided) {
      return InvalidArgument("a one-sided transform takes a real signal");
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto step, KnownNumber(context, kStep));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto length, KnownNumber(context, kFrameLength));
  if (context.has_input(kWindow) && context.shape(kWindow).has_rank()) {
    const SymbolicShape& window = context.shape(kWindow);
    if (window.rank() != 1) {
      return InvalidArgument("window must have rank 1, not {}", window.ToString());
    }
    if (context.dtype(kWindow) != context.dtype(0)) {
      return InvalidArgument("window is {}, but signal is {}; both must have one type",
                             DTypeName(context.dtype(kWindow)), DTypeName(context.dtype(0)));
    }
    if (window[0].known()) {
      if (length && *length != window[0].value()) {
        return InvalidArgument("window of {} for frames of {}", window[0].value(), *length);
      }
      length = window[0].value();
    }
  } else if (!context.has_input(kWindow) && !context.has_input(kFrameLength) && in.has_rank() &&
             in[1].known()) {
    length = in[1].value();
  }
  SymbolicShape out = SymbolicShape::OfRank(4);
  if (in.has_rank()) out[0] = in[0];
  out[3] = 2;
  if (length) {
    CHAIRLIFT_RETURN_IF_ERROR(Check(step.value_or(1), *length));
    out[2] = onesided ? *length / 2 + 1 : *length;
    if (step && in.has_rank() && in[1].known()) out[1] = Frames(in[1].value(), *length, *step);
  }
  return SetOutput(context, 0, context.dtype(0), std::move(out));
}

struct StftPlan {
  int64_t signal = 0;
  int64_t parts = 1;
  int64_t frames = 0;
  int64_t step = 1;
  int64_t bins = 1;
};

// Real frames are transformed in pairs, one as the real part and one as the imaginary part of a
// complex frame. With Z its transform and Z' the conjugate of Z at −k, their transforms are (Z +
// Z') / 2 and (Z − Z') / 2i.
template <typename T>
void RealPair(const StftPlan& plan, const Fft& fft, const T* window, const T* first,
              const T* second, Complex* scratch, T* out_first, T* out_second) {
  const int64_t n = fft.length();
  for (int64_t i = 0; i < n; ++i) {
    const double w = window == nullptr ? 1 : static_cast<double>(window[i]);
    scratch[i] = {w * static_cast<double>(first[i]),
                  second == nullptr ? 0 : w * static_cast<double>(second[i])};
  }
  const Complex* z = scratch + n;
  fft.Run(scratch, scratch + n, scratch + 2 * n);
  for (int64_t k = 0; k < plan.bins; ++k) {
    const Complex a = z[k];
    const Complex b = z[k == 0 ? 0 : n - k];
    out_first[2 * k] = static_cast<T>((a.re + b.re) / 2);
    out_first[2 * k + 1] = static_cast<T>((a.im - b.im) / 2);
    if (second == nullptr) continue;
    out_second[2 * k] = static_cast<T>((a.im + b.im) / 2);
    out_second[2 * k + 1] = static_cast<T>((b.re - a.re) / 2);
  }
}

template <typename T>
void ComplexFrame(const StftPlan& plan, const Fft& fft, const T* window, const T* frame,
                  Complex* scratch, T* out) {
  const int64_t n = fft.length();
  for (int64_t i = 0; i < n; ++i) {
    const double w = window == nullptr ? 1 : static_cast<double>(window[i]);
    scratch[i] = {w * static_cast<double>(frame[2 * i]), w * static_cast<double>(frame[2 * i + 1])};
  }
  fft.Run(scratch, scratch + n, scratch + 2 * n);
  for (int64_t k = 0; k < plan.bins; ++k) {
    out[2 * k] = static_cast<T>(scratch[n + k].re);
    out[2 * k + 1] = static_cast<T>(scratch[n + k].im);
  }
}

template <typename T>
std::unique_ptr<Kernel> MakeStft(const StftPlan& plan, int64_t batch, int64_t length, int width) {
  constexpr int64_t kParallelElements = 16 * 1024;
  const auto fft = std::make_shared<const Fft>(length);
  const int64_t buffers = 2 * length + fft->scratch_size();
  const int64_t pairs = (plan.frames + 1) / 2;
  const int64_t jobs = batch * pairs;
  const int64_t most_parts = std::min<int64_t>(jobs, width == 1 ? 1 : width * 2);
  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        const auto* in = static_cast<const T*>(args.inputs[0]);
        const auto* window =
            args.inputs.size() > kWindow ? static_cast<const T*>(args.inputs[kWindow]) : nullptr;
        auto* out = static_cast<T*>(args.outputs[0]);
        const auto range = [&](int part, int64_t first, int64_t last) {
          Complex* scratch = static_cast<Complex*>(args.scratch) + part * buffers;
          for (int64_t job = first; job < last; ++job) {
            const int64_t b = job / pairs;
            const int64_t f = job % pairs * 2;
            const bool pair = f + 1 < plan.frames;
            const T* frame = in + (b * plan.signal + f * plan.step) * plan.parts;
            const T* next = pair ? frame + plan.step * plan.parts : nullptr;
            T* to = out + (b * plan.frames + f) * plan.bins * 2;
            T* to_next = to + plan.bins * 2;
            if (plan.parts == 1) {
              RealPair(plan, *fft, window, frame, next, scratch, to, to_next);
            } else {
              ComplexFrame(plan, *fft, window, frame, scratch, to);
              if (pair) ComplexFrame(plan, *fft, window, next, scratch, to_next);
            }
          }
        };
        if (jobs * length <= kParallelElements || args.team.width() == 1) {
          range(0, 0, jobs);
          return absl::OkStatus();
        }
        const int64_t parts = std::min<int64_t>(most_parts, args.team.width() * 2);
        args.team.For(static_cast<int>(parts), [&](int part, int) {
          range(part, jobs * part / parts, jobs * (part + 1) / parts);
        });
        return absl::OkStatus();
      },
      static_cast<size_t>(most_parts * buffers) * sizeof(Complex));
}

StatusOr<std::unique_ptr<Kernel>> CompileStft(const CompileContext& context) {
  const Shape in = context.inputs[0].shape;
  const Shape out = context.outputs[0].shape;
  const DType dtype = context.inputs[0].dtype;
  const bool onesided = context.attributes.Int("onesided", 1) != 0;
  const int width = context.width;
  const int64_t window = context.has_input(kWindow) ? context.inputs[kWindow].size() : -1;
  return CompileFromValues(
      context, {kStep, kFrameLength},
      [=](const std::vector<Tensor>& values) -> StatusOr<std::unique_ptr<Kernel>> {
        const int64_t step = ScalarOr(values[kStep], 0);
        const int64_t length = ScalarOr(values[kFrameLength], window >= 0 ? window : in[1]);
        CHAIRLIFT_RETURN_IF_ERROR(Check(step, length));
        if (window >= 0 && window != length) {
          return InvalidArgument("window of {} for frames of {}", window, length);
        }
        const StftPlan plan{in[1], in.rank() == 3 ? in[2] : 1, Frames(in[1], length, step), step,
                            onesided ? length / 2 + 1 : length};
        if (!(out == Shape{in[0], plan.frames, plan.bins, 2})) {
          return InvalidArgument("{} frames of {} bins are not the expected {}", plan.frames,
                                 plan.bins, out.ToString());
        }
        return DispatchFloat(dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
          return MakeStft<T>(plan, in[0], length, width);
        });
      });
}

}  // namespace

OperatorDef STFTOperator() {
  return {.name = "STFT",
          .min_inputs = 2,
          .max_inputs = 4,
          .input_types = {kFloatTypes, kIndexTypes, kFloatTypes, kIndexTypes},
          .infer = InferStft,
          .axes = FirstAxis<0>,
          .compile = CompileStft};
}

}  // namespace chairlift
