#include "ops/cuda/kernels.h"

#include <map>
#include <utility>

#include "base/status.h"
#include "device/cuda_library.h"

namespace chairlift::cuda {
namespace {

class CudaKernels final : public DeviceKernels {
 public:
  CudaKernels() {
    for (const auto& kernels :
         {ElementwiseKernels(), MovementKernels(), ReductionKernels(), NormalizationKernels(),
          ProductKernels(), RaggedKernels(), RecurrentKernels(), ConvolutionKernels(),
          PoolingKernels(), AttentionKernels()}) {
      for (const KernelEntry& entry : kernels) {
        entries_[{entry.domain, entry.name}] = entry.compile;
      }
    }
  }

  StatusOr<std::unique_ptr<Kernel>> Compile(const OperatorDef& def,
                                            const CompileContext& context) const override {
    const auto at = entries_.find({def.domain, def.name});
    if (at == entries_.end()) return nullptr;
    for (const auto* descs : {&context.inputs, &context.outputs}) {
      for (const TensorDesc& desc : *descs) {
        if (desc.layout != Layout::kRowMajor) {
          return Unimplemented("a CUDA kernel takes row-major tensors only");
        }
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(Checked(
        cudaSetDevice(static_cast<const CudaDevice&>(context.device).index()), "cudaSetDevice"));
    return at->second(context);
  }

 private:
  std::map<std::pair<std::string, std::string>,
           StatusOr<std::unique_ptr<Kernel>> (*)(const CompileContext&)>
      entries_;
};

}  // namespace

StatusOr<Tensor> UploadNow(const CompileContext& context, const Tensor& host) {
  const auto& device = static_cast<const CudaDevice&>(context.device);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<void> memory,
                             device.Upload(host.raw(), host.byte_size()));
  void* const data = memory.get();
  return Tensor::Wrap(host.dtype(), host.shape(), data, std::move(memory), &device);
}

}  // namespace chairlift::cuda

extern "C" chairlift::Device* ChairliftCudaDevice(int index, bool tf32,
                                                  void (*refuse)(void* to, const char* why),
                                                  void* to) {
  // Never destroyed: when the program ends, CUDA may already be gone.
  static const auto* const kKernels = new chairlift::cuda::CudaKernels();
  auto device = chairlift::cuda::CudaDevice::Create(index, tf32, kKernels);
  if (device.ok()) return device->release();
  refuse(to, std::string(device.status().message()).c_str());
  return nullptr;
}
