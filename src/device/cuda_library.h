// What libchairlift_cuda exports: device/devices.cc calls it, ops/cuda/kernels.cc defines it.
#ifndef CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_
#define CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_

namespace chairlift {
class Device;
}

// A device that is never destroyed; null, after refuse(to, why), where there is none. `tf32`: as
// DeviceOptions has it.
extern "C" chairlift::Device* ChairliftCudaDevice(int index, bool tf32,
                                                  void (*refuse)(void* to, const char* why),
                                                  void* to);

#endif  // CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_
