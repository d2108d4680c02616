// What the oracles have their models computed on: the device that CHAIRLIFT_TEST_DEVICE names,
// "cpu", "cuda", or "test": TestDevice, an asynchronous one with the CPU's kernels.
#ifndef CHAIRLIFT_TESTS_ENGINE_ENGINE_DEVICE_H_
#define CHAIRLIFT_TESTS_ENGINE_ENGINE_DEVICE_H_

#include <cstdlib>
#include <string>

#include "device/devices.h"
#include "support/test_device.h"
#include "support/test_kernels.h"

namespace chairlift::testing {

// As ModelConfig::device takes it.
inline const std::string& EngineDevice() {
  static const auto* const name = [] {
    const char* const asked = std::getenv("CHAIRLIFT_TEST_DEVICE");
    auto* const device = new std::string(asked == nullptr ? "" : asked);
    if (*device == "test") NameDevice(*device, *new TestDevice(new TestKernels()));
    return device;
  }();
  return *name;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_ENGINE_DEVICE_H_
