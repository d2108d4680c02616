// What libchairlift_cuda exports: device/devices.cc calls it, ops/cuda/kernels.cc defines it.
#ifndef CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_
#define CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_

namespace chairlift {
class Device;
}

// A device that is never destroyed. If there is none, calls refuse(to, why) and returns null.
// `tf32` as in DeviceOptions.
extern "C" chairlift::Device* ChairliftCudaDevice(int index, bool tf32,
                                                  void (*refuse)(void* to, const char* why),
                                                  void* to);

#endif  // CHAIRLIFT_DEVICE_CUDA_LIBRARY_H_
