#include "ops/linear/convolution.h"

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

std::span<const Implementation<Convolution>> ConvolutionImplementations() {
  static constexpr Implementation<Convolution> kTable[] = {
      {"winograd", CompileWinogradConvolution},
      {"upsampling", CompileUpsampling},
      {"col2im", CompileCol2im},
      {"onednn", CompileDnnlConvolution},
      {"plain loops", CompileLoopConvolution},
  };
  return kTable;
}

StatusOr<std::unique_ptr<Kernel>> CompileConvolution(const Convolution& convolution,
                                                     const CompileContext& context) {
  if (context.outputs[0].size() == 0) {
    return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
  }
  return CompileFirst(ConvolutionImplementations(), convolution, context);
}

}  // namespace chairlift
