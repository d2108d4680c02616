// The devices that this machine has, by name.
#ifndef CHAIRLIFT_DEVICE_DEVICES_H_
#define CHAIRLIFT_DEVICE_DEVICES_H_

#include <string>
#include <string_view>

#include "chairlift/status.h"
#include "device/device.h"

namespace chairlift {

struct DeviceOptions {
  // Products of float32 may round their operands to TensorFloat-32 (10 bits of mantissa), on
  // devices that are faster so.
  bool tf32 = false;
};

// "cpu"; "cuda" or "cuda:0", "cuda:1", …: an NVIDIA GPU, through libchairlift_cuda.so, which lies
// beside the program (or beside the library that this is in), in ../lib or ../bin from there, or
// where the system looks for libraries. The same device for the same name and options, for as long
// as the process lives. kInvalidArgument for other names, kNotFound where it is not there, with
// why. Thread-safe.
StatusOr<Device*> FindDevice(std::string_view name, const DeviceOptions& options = {});

// Makes a device known by another name: for tests. It must outlive all use.
void NameDevice(const std::string& name, Device& device);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_DEVICES_H_
