#include "ops/linear/convolution.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "device/cpu/isa.h"
#include "ops/linear/winograd.h"

namespace chairlift {

int64_t Convolution::Product(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (int64_t d : dims) product *= d;
  return product;
}

double Convolution::MultiplyAdds() const {
  const int64_t channels_in_group = channels / groups;
  return static_cast<double>(batch) * static_cast<double>(out_channels) *
         static_cast<double>(channels_in_group) * static_cast<double>(KernelSize()) *
         static_cast<double>(transposed ? InSize() : OutSize());
}

bool Convolution::WorthSharing() const {
  // With one channel per group, each multiplication needs its own load.
  const double work = groups == channels ? 2 * MultiplyAdds() : MultiplyAdds();
  return work > 2e5;
}

namespace {

// Spatial axes with one element and one tap have no effect; one axis is kept.
Convolution WithoutUnitAxes(const Convolution& c) {
  Convolution out = c;
  for (int i = c.spatial_rank() - 1; i >= 0 && out.spatial_rank() > 1; --i) {
    const auto at = static_cast<size_t>(i);
    if (c.in[at] != 1 || c.out[at] != 1 || c.kernel[at] != 1 || c.pads_begin[at] != 0) continue;
    for (auto* axes :
         {&out.in, &out.out, &out.kernel, &out.strides, &out.dilations, &out.pads_begin}) {
      axes->erase(axes->begin() + i);
    }
  }
  return out;
}

// A convolution without the taps that meet no input, which wide dilations on small images have.
struct Trimmed {
  Convolution convolution;
  std::vector<int64_t> first;  // by axis: the first remaining tap
};

std::optional<Trimmed> Trim(const Convolution& c) {
  if (c.transposed) return std::nullopt;
  Trimmed out{c, {}};
  for (size_t i = 0; i < c.in.size(); ++i) {
    const auto meets = [&](int64_t tap) {  // for some output
      const int64_t at = tap * c.dilations[i] - c.pads_begin[i];
      // The first output that does not read before the input.
      const int64_t o = at >= 0 ? 0 : (-at + c.strides[i] - 1) / c.strides[i];
      return o < c.out[i] && o * c.strides[i] + at < c.in[i];
    };
    int64_t first = 0, last = c.kernel[i];
    while (first < last && !meets(first)) ++first;
    while (last > first && !meets(last - 1)) --last;
    out.first.push_back(first);
    out.convolution.kernel[i] = last - first;
    out.convolution.pads_begin[i] -= first * c.dilations[i];
    if (first == last || out.convolution.pads_begin[i] < 0) return std::nullopt;
  }
  if (out.convolution.kernel == c.kernel) return std::nullopt;
  return out;
}

// [out_channels, channels / groups, remaining taps…]
StatusOr<Tensor> TrimmedWeights(const Convolution& c, const Trimmed& trimmed,
                                const CompileContext& context) {
  const std::vector<int64_t>& kernel = trimmed.convolution.kernel;
  const std::string key =
      fmt::format("taps {} of {}", fmt::join(kernel, "x"), fmt::join(trimmed.first, " "));
  const Tensor& weights = *context.constant(1);
  return context.weights.Get(weights, key, [&]() -> StatusOr<Tensor> {
    const int64_t filters = c.out_channels * (c.channels / c.groups);
    const int64_t left = trimmed.convolution.KernelSize();
    Tensor out = Tensor::Allocate(DType::kFloat, Shape{filters, left});
    for (int64_t t = 0; t < left; ++t) {
      int64_t rest = t, from = 0, scale = 1;
      for (size_t i = kernel.size(); i-- > 0;) {
        from += (trimmed.first[i] + rest % kernel[i]) * scale;
        rest /= kernel[i];
        scale *= c.kernel[i];
      }
      for (int64_t f = 0; f < filters; ++f) {
        out.data<float>()[f * left + t] = weights.data<float>()[f * c.KernelSize() + from];
      }
    }
    return out;
  });
}

}  // namespace

std::span<const Implementation<Convolution>> ConvolutionImplementations() {
  static const auto kTable = [] {
    std::array table = {
        Implementation<Convolution>{"winograd", CompileWinogradConvolution},
        Implementation<Convolution>{"few outputs", CompileFewOutputs},
        Implementation<Convolution>{"dilated", CompileDilated},
        Implementation<Convolution>{"grouped", CompileGrouped},
        Implementation<Convolution>{"pointwise", CompilePointwise},
        Implementation<Convolution>{"upsampling", CompileUpsampling},
        Implementation<Convolution>{"col2im", CompileCol2im},
        Implementation<Convolution>{"onednn", CompileDnnlConvolution},
        Implementation<Convolution>{"depthwise", CompileDepthwise},
        Implementation<Convolution>{"plain loops", CompileLoopConvolution},
    };
    // With vectors of eight, oneDNN takes 0.62 to 0.82 of our time (Zen 3).
    if (ActiveCpuIsa() == CpuIsa::kAvx2) {
      const auto at = [&](std::string_view name) {
        return std::find_if(table.begin(), table.end(),
                            [&](const auto& i) { return i.name == name; });
      };
      std::rotate(at("pointwise"), at("pointwise") + 1, at("onednn") + 1);
    }
    return table;
  }();
  return kTable;
}

StatusOr<std::unique_ptr<Kernel>> CompileConvolution(const Convolution& convolution,
                                                     const CompileContext& context) {
  if (context.outputs[0].size() == 0) {
    return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
  }
  const Convolution c = WithoutUnitAxes(convolution);
  const Tensor* weights = context.constant(1);
  if (weights != nullptr && c.dtype == DType::kFloat) {
    if (const std::optional<Trimmed> trimmed = Trim(c)) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor taps, TrimmedWeights(c, *trimmed, context));
      std::vector<const Tensor*> constants(context.constants.begin(), context.constants.end());
      constants[1] = &taps;
      CompileContext of_taps = context;
      of_taps.constants = constants;
      // The plain loops would read the original weights instead of these.
      const auto table = ConvolutionImplementations();
      auto kernel = CompileFirst(table.first(table.size() - 1), trimmed->convolution, of_taps);
      if (kernel.ok()) return kernel;
    }
  }
  return CompileFirst(ConvolutionImplementations(), c, context);
}

}  // namespace chairlift
