// LRN: divides every element by a power of the squares of its neighbours in nearby channels.
#include <algorithm>
#include <cmath>

#include "ops/axis_map.h"
#include "ops/normalization/normalization.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

Status InferLrn(InferContext& context) {
  const int64_t size = context.attributes().Int("size", 0);
  if (size < 1) return InvalidArgument("attribute size is {}", size);
  const SymbolicShape& shape = context.shape(0);
  if (shape.has_rank() && shape.rank() < 2) {
    return InvalidArgument("shape {} has no channels", shape.ToString());
  }
  context.set_output(0, context.dtype(0), shape);
  return absl::OkStatus();
}

struct ChannelWindow {
  int64_t before, after;  // channels
  double factor, bias, beta;
};

// t^-beta; by square roots for the exponent of nearly all models.
template <typename T>
T NegativePower(T t, double beta) {
  if (beta == 0.75) {
    const T root = std::sqrt(t);
    return T{1} / (root * std::sqrt(root));
  }
  return std::pow(t, static_cast<T>(-beta));
}

// One channel plane, in parts whose sums stay in the cache.
template <typename T>
void RunPlane(const ChannelWindow& w, const T* item, T* y, int64_t channels, int64_t plane,
              int64_t c) {
  constexpr int64_t kStretch = 256;
  const int64_t first = std::max<int64_t>(0, c - w.before);
  const int64_t last = std::min(channels - 1, c + w.after);
  T sums[kStretch];
  for (int64_t begin = 0; begin < plane; begin += kStretch) {
    const int64_t n = std::min(kStretch, plane - begin);
    std::fill_n(sums, n, T{0});
    for (int64_t k = first; k <= last; ++k) {
      const T* x = item + k * plane + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] += x[i] * x[i];
    }
    const T* x = item + c * plane + begin;
    for (int64_t i = 0; i < n; ++i) {
      const T t = static_cast<T>(w.bias) + static_cast<T>(w.factor) * sums[i];
      y[begin + i] = x[i] * NegativePower(t, w.beta);
    }
  }
}

StatusOr<std::unique_ptr<Kernel>> CompileLrn(const CompileContext& context) {
  const Attributes& a = context.attributes;
  const Shape& shape = context.inputs[0].shape;
  const int64_t channels = shape[1];
  const int64_t plane = shape.NumElements(2, shape.rank());
  const int64_t planes = shape[0] * channels;
  const int64_t size = std::min<int64_t>(a.Int("size", 1), 2 * channels + 1);
  const ChannelWindow w{
      (size - 1) / 2, size / 2,
      static_cast<double>(a.Float("alpha", 0.0001f)) / static_cast<double>(a.Int("size", 1)),
      a.Float("bias", 1.0f), a.Float("beta", 0.75f)};
  return DispatchFloat(
      context.inputs[0].dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
        return MakeKernel([=](const KernelArgs& args) {
          const T* x = static_cast<const T*>(args.inputs[0]);
          T* y = static_cast<T*>(args.outputs[0]);
          ForRanges(args.team, planes, planes * plane, kMinNormalizedToShare,
                    [&](int64_t first, int64_t last) {
                      for (int64_t p = first; p < last; ++p) {
                        const int64_t c = p % channels;
                        RunPlane(w, x + (p - c) * plane, y + p * plane, channels, plane, c);
                      }
                    });
          return absl::OkStatus();
        });
      });
}

}  // namespace

void RegisterLrn(OperatorRegistry& registry) {
  registry.Add({.name = "LRN",
                .input_types = {kFloatTypes},
                .infer = InferLrn,
                .axes = FirstAxis<0>,
                .compile = CompileLrn});
}

}  // namespace chairlift
