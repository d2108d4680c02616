// The devices that this machine has, by name.
#ifndef CHAIRLIFT_DEVICE_DEVICES_H_
#define CHAIRLIFT_DEVICE_DEVICES_H_

#include <string>
#include <string_view>

#include "chairlift/status.h"
#include "device/device.h"

namespace chairlift {

struct DeviceOptions {
  // Products of float32 may round their operands to TensorFloat-32 (10 bits of mantissa) on devices
  // where that is faster.
  bool tf32 = false;
};

// "cpu", or an NVIDIA GPU as "cuda" or "cuda:0", "cuda:1", …. GPUs need libchairlift_cuda.so:
// beside the program (or the library that contains this code), in ../lib or ../bin from there, or
// in the system's library path. The same name and options give the same device for the life of the
// process. kInvalidArgument for other names; kNotFound, with the reason, if the device is not
// available. Thread-safe.
StatusOr<Device*> FindDevice(std::string_view name, const DeviceOptions& options = {});

// For tests: registers a device under another name. It must outlive all uses.
void NameDevice(const std::string& name, Device& device);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_DEVICES_H_
