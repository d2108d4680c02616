// Convolutions and their transposes by cuDNN, followed by one pass for bias, residual and
// activation. Padding that differs between the two ends, and scaled inputs, need a copy of the
// images.
#include "ops/cuda/convolution.cuh"

#include <cudnn.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "ops/cuda/kernels.h"
#include "ops/linear/convolution.h"

namespace chairlift::cuda {
namespace {

constexpr size_t kMostWorkspace = size_t{256} << 20;

Status CheckedDnn(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return Internal("{}: {}", what, cudnnGetErrorString(status));
}

// The calling thread's handle for a device: a handle may be used by one thread at a time. Lives as
// long as the process.
StatusOr<cudnnHandle_t> HandleOf(int device) {
  thread_local std::map<int, cudnnHandle_t> handles;
  cudnnHandle_t& handle = handles[device];
  if (handle == nullptr) {
    CHAIRLIFT_RETURN_IF_ERROR(Checked(cudaSetDevice(device), "cudaSetDevice"));
    CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(cudnnCreate(&handle), "cuDNN"));
  }
  return handle;
}

std::vector<int> Ints(std::initializer_list<int64_t> first, const std::vector<int64_t>& rest) {
  std::vector<int> all(first.begin(), first.end());
  // cuDNN needs at least two spatial axes.
  if (rest.size() == 1) all.push_back(1);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}
std::vector<int> Axes(const std::vector<int64_t>& values, int missing) {
  std::vector<int> all;
  if (values.size() == 1) all.push_back(missing);
  all.insert(all.end(), values.begin(), values.end());
  return all;
}

struct Descriptors {
  ~Descriptors() {
    if (x != nullptr) cudnnDestroyTensorDescriptor(x);
    if (y != nullptr) cudnnDestroyTensorDescriptor(y);
    if (w != nullptr) cudnnDestroyFilterDescriptor(w);
    if (convolution != nullptr) cudnnDestroyConvolutionDescriptor(convolution);
  }
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

Status Describe(cudnnTensorDescriptor_t* tensor, cudnnDataType_t type, int64_t batch,
                int64_t channels, const std::vector<int64_t>& spatial) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(cudnnCreateTensorDescriptor(tensor), "cuDNN"));
  const std::vector<int> dims = Ints({batch, channels}, spatial);
  std::vector<int> strides(dims.size(), 1);
  for (size_t d = dims.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * dims[d];
  return CheckedDnn(cudnnSetTensorNdDescriptor(*tensor, type, static_cast<int>(dims.size()),
                                               dims.data(), strides.data()),
                    "cuDNN");
}

class ConvolutionKernel final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const Convolution& c,
                                                   const CompileContext& context);

  size_t scratch_bytes() const override { return image_bytes_ + workspace_; }
  Status Run(const KernelArgs& args) const override;

 private:
  explicit ConvolutionKernel(const Convolution& c) : c_(c) {}
  Status Describe(bool tf32);
  Status Choose(cudnnHandle_t handle);

  const Convolution c_;
  DeviceActivation activation_;
  int device_ = 0;
  bool empty_ = false;
  Descriptors d_;
  cudnnConvolutionFwdAlgo_t forward_ = {};
  cudnnConvolutionBwdDataAlgo_t backward_ = {};
  size_t workspace_ = 0;
  // The images that cuDNN reads (transposed: writes) are copies in scratch; if false, the operands
  // themselves.
  bool moves_ = false;
  ImageMove move_ = {};
  std::vector<int64_t> moved_;  // their spatial dimensions
  size_t image_bytes_ = 0;
};

cudnnDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kDouble) return CUDNN_DATA_DOUBLE;
  if (dtype == DType::kFloat16) return CUDNN_DATA_HALF;
  return dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// The last of three spatial axes.
void Spread(const std::vector<int64_t>& from, int64_t missing, int64_t* to) {
  std::fill_n(to, 3, missing);
  std::copy(from.begin(), from.end(), to + 3 - from.size());
}

Status ConvolutionKernel::Describe(bool tf32) {
  const cudnnDataType_t type = TypeOf(c_.dtype);
  const std::vector<int64_t>& x = c_.transposed ? c_.in : moves_ ? moved_ : c_.in;
  const std::vector<int64_t>& y = c_.transposed && moves_ ? moved_ : c_.out;
  CHAIRLIFT_RETURN_IF_ERROR(cuda::Describe(&d_.x, type, c_.batch, c_.channels, x));
  CHAIRLIFT_RETURN_IF_ERROR(cuda::Describe(&d_.y, type, c_.batch, c_.out_channels, y));
  CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(cudnnCreateFilterDescriptor(&d_.w), "cuDNN"));
  const std::vector<int> filter = c_.transposed
                                      ? Ints({c_.channels, c_.out_channels / c_.groups}, c_.kernel)
                                      : Ints({c_.out_channels, c_.channels / c_.groups}, c_.kernel);
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckedDnn(cudnnSetFilterNdDescriptor(d_.w, type, CUDNN_TENSOR_NCHW,
                                            static_cast<int>(filter.size()), filter.data()),
                 "cuDNN"));
  const std::vector<int64_t> none(c_.in.size(), 0);
  const std::vector<int> pads = Axes(moves_ ? none : c_.pads_begin, 0);
  const std::vector<int> strides = Axes(c_.strides, 1), dilations = Axes(c_.dilations, 1);
  CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(cudnnCreateConvolutionDescriptor(&d_.convolution), "cuDNN"));
  CHAIRLIFT_RETURN_IF_ERROR(
      CheckedDnn(cudnnSetConvolutionNdDescriptor(
                     d_.convolution, static_cast<int>(pads.size()), pads.data(), strides.data(),
                     dilations.data(), CUDNN_CROSS_CORRELATION,
                     c_.dtype == DType::kDouble ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
                 "cuDNN"));
  CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(
      cudnnSetConvolutionGroupCount(d_.convolution, static_cast<int>(c_.groups)), "cuDNN"));
  const bool exact = c_.dtype == DType::kFloat && !tf32;
  return CheckedDnn(cudnnSetConvolutionMathType(d_.convolution, exact ? CUDNN_FMA_MATH
                                                                : kHalfTypes.Contains(c_.dtype)
                                                                    ? CUDNN_TENSOR_OP_MATH
                                                                    : CUDNN_DEFAULT_MATH),
                    "cuDNN");
}

Status ConvolutionKernel::Choose(cudnnHandle_t handle) {
  constexpr int kMost = 16;
  int count = 0;
  const auto fits = [&](const auto& perf) {
    return perf.status == CUDNN_STATUS_SUCCESS && perf.memory <= kMostWorkspace;
  };
  if (c_.transposed) {
    cudnnConvolutionBwdDataAlgoPerf_t found[kMost];
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckedDnn(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d_.w, d_.x, d_.convolution,
                                                               d_.y, kMost, &count, found),
                   "cuDNN"));
    for (int i = 0; i < count; ++i) {
      if (!fits(found[i])) continue;
      backward_ = found[i].algo;
      workspace_ = found[i].memory;
      return absl::OkStatus();
    }
  } else {
    cudnnConvolutionFwdAlgoPerf_t found[kMost];
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckedDnn(cudnnGetConvolutionForwardAlgorithm_v7(handle, d_.x, d_.w, d_.convolution, d_.y,
                                                          kMost, &count, found),
                   "cuDNN"));
    for (int i = 0; i < count; ++i) {
      if (!fits(found[i])) continue;
      forward_ = found[i].algo;
      workspace_ = found[i].memory;
      return absl::OkStatus();
    }
  }
  return Unimplemented("cuDNN has no algorithm for this convolution of {}", DTypeName(c_.dtype));
}

StatusOr<std::unique_ptr<Kernel>> ConvolutionKernel::Compile(const Convolution& c,
                                                             const CompileContext& context) {
  if (c.spatial_rank() < 1 || c.spatial_rank() > 3) {
    return Unimplemented("{} spatial axes", c.spatial_rank());
  }
  auto made = std::unique_ptr<ConvolutionKernel>(new ConvolutionKernel(c));
  const auto& device = static_cast<const CudaDevice&>(context.device);
  made->device_ = device.index();
  made->activation_ = {c.activation.kind, c.activation.alpha, c.activation.beta};
  made->empty_ = c.batch * c.out_channels * c.OutSize() == 0;
  if (made->empty_) return std::unique_ptr<Kernel>(std::move(made));
  if (c.channels == 0 || c.InSize() == 0) return Unimplemented("a convolution of no inputs");
  const bool scales = c.scale_input >= 0;
  made->moves_ = scales;
  for (size_t d = 0; d < c.in.size(); ++d) {
    const int64_t extent = (c.kernel[d] - 1) * c.dilations[d] + 1;
    const int64_t from = c.transposed ? c.out[d] : c.in[d], to = c.transposed ? c.in[d] : c.out[d];
    const int64_t given = (from + 2 * c.pads_begin[d] - extent) / c.strides[d] + 1;
    made->moves_ = made->moves_ || from + 2 * c.pads_begin[d] < extent || given != to;
    made->moved_.push_back((to - 1) * c.strides[d] + extent);
  }
  if (made->moves_) {
    ImageMove& move = made->move_;
    move.batch = c.batch;
    move.channels = c.transposed ? c.out_channels : c.channels;
    move.scale_per_image = c.scale_per_image;
    std::vector<int64_t> begin = c.pads_begin;
    if (c.transposed) {
      for (int64_t& b : begin) b = -b;
    }
    Spread(c.transposed ? made->moved_ : c.in, 1, move.in);
    Spread(c.transposed ? c.out : made->moved_, 1, move.out);
    Spread(begin, 0, move.begin);
    int64_t elements = move.batch * move.channels;
    for (const int64_t dim : made->moved_) elements *= dim;
    if (elements > std::numeric_limits<int>::max()) return Unimplemented("2^31 elements and more");
    const size_t bytes = static_cast<size_t>(elements) * DTypeSize(c.dtype);
    made->image_bytes_ = (bytes + 255) / 256 * 256;
  }
  for (const int64_t size :
       {c.batch * c.channels * c.InSize(), c.batch * c.out_channels * c.OutSize()}) {
    if (size > std::numeric_limits<int>::max()) return Unimplemented("2^31 elements and more");
  }
  CHAIRLIFT_RETURN_IF_ERROR(made->Describe(device.tf32()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const cudnnHandle_t handle, HandleOf(made->device_));
  CHAIRLIFT_RETURN_IF_ERROR(made->Choose(handle));
  return std::unique_ptr<Kernel>(std::move(made));
}

Status ConvolutionKernel::Run(const KernelArgs& args) const {
  if (empty_) return absl::OkStatus();
  const cudaStream_t stream = StreamOf(args).handle();
  CHAIRLIFT_ASSIGN_OR_RETURN(const cudnnHandle_t handle, HandleOf(device_));
  CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(cudnnSetStream(handle, stream), "cuDNN"));
  auto* const images = static_cast<std::byte*>(args.scratch);
  void* const workspace = workspace_ == 0 ? nullptr : images + image_bytes_;
  const auto input = [&](int i) -> const void* {
    return i >= 0 && static_cast<size_t>(i) < args.inputs.size() ? args.inputs[i] : nullptr;
  };
  const float one = 1, zero = 0;
  const double one_double = 1, zero_double = 0;
  const bool is_double = c_.dtype == DType::kDouble;
  const void* const alpha = is_double ? static_cast<const void*>(&one_double) : &one;
  const void* const beta = is_double ? static_cast<const void*>(&zero_double) : &zero;
  const void* x = args.inputs[0];
  void* const y = args.outputs[0];
  if (c_.transposed) {
    CHAIRLIFT_RETURN_IF_ERROR(
        CheckedDnn(cudnnConvolutionBackwardData(handle, alpha, d_.w, args.inputs[1], d_.x, x,
                                                d_.convolution, backward_, workspace, workspace_,
                                                beta, d_.y, moves_ ? images : y),
                   "a transposed convolution"));
    if (moves_) LaunchMoveImages(c_.dtype, move_, images, nullptr, y, stream);
  } else {
    if (moves_) {
      LaunchMoveImages(c_.dtype, move_, x, input(c_.scale_input), images, stream);
      x = images;
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckedDnn(
        cudnnConvolutionForward(handle, alpha, d_.x, x, d_.w, args.inputs[1], d_.convolution,
                                forward_, workspace, workspace_, beta, d_.y, y),
        "a convolution"));
  }
  const void *const bias = input(c_.bias_input), *const residual = input(c_.residual_input);
  if (bias != nullptr || residual != nullptr || activation_.kind != ActivationKind::kNone) {
    LaunchFinishConvolution(c_.dtype, c_.batch, c_.out_channels, c_.OutSize(), bias, residual,
                            activation_, y, stream);
  }
  return Launched("a convolution");
}

StatusOr<std::unique_ptr<Kernel>> CompileConv(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Convolution c, ConvolutionOf(context, /*transposed=*/false));
  return ConvolutionKernel::Compile(c, context);
}
StatusOr<std::unique_ptr<Kernel>> CompileConvTranspose(const CompileContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Convolution c, ConvolutionOf(context, /*transposed=*/true));
  return ConvolutionKernel::Compile(c, context);
}

}  // namespace

std::span<const KernelEntry> ConvolutionKernels() {
  static const KernelEntry kKernels[] = {
      {"", "Conv", CompileConv},
      {"chairlift", "FusedConv", CompileConv},
      {"", "ConvTranspose", CompileConvTranspose},
      {"chairlift", "FusedConvTranspose", CompileConvTranspose},
  };
  return kKernels;
}

}  // namespace chairlift::cuda
