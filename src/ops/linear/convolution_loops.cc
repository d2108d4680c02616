// Convolutions by plain loops: for element types and ranks that oneDNN does not support.
#include <algorithm>
#include <utility>

#include "base/stop_poll.h"
#include "ops/linear/convolution.h"

namespace chairlift {
namespace {

// Along the last axis, one tap connects outputs [first, last) to inputs `stride` apart: the range
// of indices for which the input index is inside.
struct TapRange {
  int64_t first = 0, last = 0;
};

TapRange RangeOf(int64_t offset, int64_t stride, int64_t near, int64_t far) {
  // 0 ≤ i · stride + offset < far, 0 ≤ i < near.
  const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t last = offset >= far ? 0 : (far - 1 - offset) / stride + 1;
  return {std::min(first, near), std::min(std::max<int64_t>(last, 0), near)};
}

// Adds one input plane times `scale` and one kernel plane to one output plane. `near` is the plane
// that is traversed (the output; transposed, the input), `far` the one reached through the taps.
template <typename T>
void AddPlane(const Convolution& c, const T* in, const T* weights, T scale, T* out) {
  const std::vector<int64_t>& near = c.transposed ? c.in : c.out;
  const std::vector<int64_t>& far = c.transposed ? c.out : c.in;
  const int last = c.spatial_rank() - 1;
  const int64_t taps = c.KernelSize();
  int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= near[i];
  std::vector<int64_t> tap(last + 1), row(last + 1);
  for (int64_t t = 0; t < taps; ++t) {
    int64_t rest = t;
    for (int i = last; i >= 0; --i) {
      tap[i] = rest % c.kernel[i] * c.dilations[i] - c.pads_begin[i];
      rest /= c.kernel[i];
    }
    const T weight = weights[t] * scale;
    const TapRange range = RangeOf(tap[last], c.strides[last], near[last], far[last]);
    if (range.first >= range.last) continue;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t left = r;
      int64_t far_row = 0, scale = 1;
      bool inside = true;
      for (int i = last - 1; i >= 0; --i) {
        const int64_t at = left % near[i] * c.strides[i] + tap[i];
        left /= near[i];
        inside = inside && at >= 0 && at < far[i];
        far_row += at * scale;
        scale *= far[i];
      }
      if (!inside) continue;
      const int64_t near_at = r * near[last];
      const int64_t far_at = far_row * far[last] + tap[last];
      const int64_t stride = c.strides[last];
      if (c.transposed) {
        for (int64_t i = range.first; i < range.last; ++i) {
          out[far_at + i * stride] += in[near_at + i] * weight;
        }
      } else {
        for (int64_t i = range.first; i < range.last; ++i) {
          out[near_at + i] += in[far_at + i * stride] * weight;
        }
      }
    }
  }
}

template <typename T>
void ComputePlane(const Convolution& c, const KernelArgs& args, int64_t plane) {
  const int64_t image = plane / c.out_channels, o = plane % c.out_channels;
  const int64_t in_group = c.channels / c.groups, out_group = c.out_channels / c.groups;
  const int64_t group = o / out_group;
  const T* x = static_cast<const T*>(args.inputs[0]);
  const T* w = static_cast<const T*>(args.inputs[1]);
  T* y = static_cast<T*>(args.outputs[0]) + plane * c.OutSize();
  const T bias = c.bias_input < 0 ? T{0} : static_cast<const T*>(args.inputs[c.bias_input])[o];
  std::fill_n(y, c.OutSize(), bias);
  const T* scales = c.scale_input < 0 ? nullptr
                                      : static_cast<const T*>(args.inputs[c.scale_input]) +
                                            (c.scale_per_image ? image * c.channels : 0);
  for (int64_t i = 0; i < in_group; ++i) {
    const int64_t channel = group * in_group + i;
    const int64_t weight = c.transposed ? channel * out_group + o % out_group : o * in_group + i;
    AddPlane(c, x + (image * c.channels + channel) * c.InSize(), w + weight * c.KernelSize(),
             scales == nullptr ? T{1} : scales[channel], y);
  }
  const T* residual = c.residual_input < 0 ? nullptr
                                           : static_cast<const T*>(args.inputs[c.residual_input]) +
                                                 plane * c.OutSize();
  if (residual == nullptr && c.activation.kind == ActivationKind::kNone) return;
  for (int64_t i = 0; i < c.OutSize(); ++i) {
    y[i] = static_cast<T>(Activate(c.activation, y[i] + (residual == nullptr ? 0 : residual[i])));
  }
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> CompileLoopConvolution(const Convolution& convolution,
                                                         const CompileContext& context) {
  const auto row_major = [](const TensorDesc& d) { return d.layout == Layout::kRowMajor; };
  if (!std::all_of(context.inputs.begin(), context.inputs.end(), row_major) ||
      !row_major(context.outputs[0])) {
    return Unimplemented("they take row-major tensors only");
  }
  return DispatchFloat(convolution.dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
    return MakeKernel([c = convolution, width = context.width](const KernelArgs& args) {
      const int64_t planes = c.batch * c.out_channels;
      const int parts = static_cast<int>(
          c.MultiplyAdds() < 1e5 ? 1 : std::min<int64_t>(planes, 4 * int64_t{width}));
      const StopPoll poll;
      args.team.For(width == 1 ? 1 : parts, [&](int part, int) {
        const int n = width == 1 ? 1 : parts;
        for (int64_t p = planes * part / n; p < planes * (part + 1) / n && !poll.Stopped(); ++p) {
          ComputePlane<T>(c, args, p);
        }
      });
      return poll.Result();
    });
  });
}

}  // namespace chairlift
