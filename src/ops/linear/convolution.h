// A convolution, or its transpose, bound to shapes: the common form of Conv, ConvTranspose and
// their fused forms, and its implementations.
#ifndef CHAIRLIFT_OPS_LINEAR_CONVOLUTION_H_
#define CHAIRLIFT_OPS_LINEAR_CONVOLUTION_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/implementations.h"
#include "ops/linear/activation.h"
#include "ops/operator.h"

namespace chairlift {

// Y = f((X · scale) ∗ W + bias + residual). X [batch, channels, in...], Y [batch, out_channels,
// out...]. W: [out_channels, channels / groups, kernel...], transposed: [channels, out_channels /
// groups, kernel...]. Along an axis, tap t of output o reads input o · stride + t · dilation − pad.
// Transposed, input i is added to output i · stride + t · dilation − pad.
struct Convolution {
  bool transposed = false;
  DType dtype = DType::kUndefined;
  int64_t batch = 0, channels = 0, out_channels = 0, groups = 1;
  std::vector<int64_t> in, out, kernel, strides, dilations, pads_begin;
  // Inputs X and W are 0 and 1; −1 if absent.
  int bias_input = -1;      // [out_channels]
  int residual_input = -1;  // shape and layout of Y
  int scale_input = -1;     // [batch or 1, channels, 1...]; layout of X; only for one tap
  bool scale_per_image = false;
  Activation activation;

  int spatial_rank() const { return static_cast<int>(in.size()); }
  int64_t InSize() const { return Product(in); }
  int64_t OutSize() const { return Product(out); }
  int64_t KernelSize() const { return Product(kernel); }
  double MultiplyAdds() const;
  // Whether a second core makes it faster: true if one core needs about 4 µs or more.
  bool WorthSharing() const;

 private:
  static int64_t Product(const std::vector<int64_t>& dims);
};

// Describes a Conv or ConvTranspose node, fused or not.
StatusOr<Convolution> ConvolutionOf(const CompileContext& context, bool transposed);

// Whether grouped convolutions with constant filters are fast on blocked channels with these groups
// (grouped.h).
bool GroupsFitBlocks(int64_t groups, int64_t channels, int64_t out_channels);

// Convolutions most of whose taps are outside the image, on blocked channels.
StatusOr<std::unique_ptr<Kernel>> CompileDilated(const Convolution& convolution,
                                                 const CompileContext& context);
// Fewer than half a block of output channels, from blocked input channels.
StatusOr<std::unique_ptr<Kernel>> CompileFewOutputs(const Convolution& convolution,
                                                    const CompileContext& context);
// Groups whose channels are not whole blocks, on blocked channels.
StatusOr<std::unique_ptr<Kernel>> CompileGrouped(const Convolution& convolution,
                                                 const CompileContext& context);
// One tap, on blocked channels.
StatusOr<std::unique_ptr<Kernel>> CompilePointwise(const Convolution& convolution,
                                                   const CompileContext& context);
// Transposed convolutions whose windows do not overlap, on blocked channels.
StatusOr<std::unique_ptr<Kernel>> CompileUpsampling(const Convolution& convolution,
                                                    const CompileContext& context);
// Transposed convolutions of row-major channels: a product, and a sum into the output.
StatusOr<std::unique_ptr<Kernel>> CompileCol2im(const Convolution& convolution,
                                                const CompileContext& context);
// oneDNN: float32, one to three spatial axes, any layouts.
StatusOr<std::unique_ptr<Kernel>> CompileDnnlConvolution(const Convolution& convolution,
                                                         const CompileContext& context);
// Depthwise, on blocked channels, for cases in which oneDNN has no depthwise kernel (long filters,
// wide padding). In other cases oneDNN's kernel is up to 1.9 times as fast.
StatusOr<std::unique_ptr<Kernel>> CompileDepthwise(const Convolution& convolution,
                                                   const CompileContext& context);
// OK if CompileDepthwise() supports the convolution, else the reason why not.
Status DepthwiseAccepts(const Convolution& convolution, const CompileContext& context);
// Plain loops for float32 and float64, any rank, row-major.
StatusOr<std::unique_ptr<Kernel>> CompileLoopConvolution(const Convolution& convolution,
                                                         const CompileContext& context);
// All implementations, in the order in which they are tried.
std::span<const Implementation<Convolution>> ConvolutionImplementations();
// Uses the first implementation that accepts the convolution.
StatusOr<std::unique_ptr<Kernel>> CompileConvolution(const Convolution& convolution,
                                                     const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_LINEAR_CONVOLUTION_H_
