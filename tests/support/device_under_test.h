// The device that CHAIRLIFT_TEST_DEVICE names ("cuda"), on which tests of devices run, too.
#ifndef CHAIRLIFT_TESTS_SUPPORT_DEVICE_UNDER_TEST_H_
#define CHAIRLIFT_TESTS_SUPPORT_DEVICE_UNDER_TEST_H_

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/devices.h"

namespace chairlift::testing {

// Null where none is named, or the CPU. Ends the program where it is not there.
inline Device* DeviceUnderTest() {
  static Device* const device = []() -> Device* {
    const char* const name = std::getenv("CHAIRLIFT_TEST_DEVICE");
    if (name == nullptr) return nullptr;
    const auto found = FindDevice(name);
    if (found.ok()) return (*found)->is_host() ? nullptr : *found;
    std::fprintf(stderr, "CHAIRLIFT_TEST_DEVICE: %s\n", found.status().ToString().c_str());
    std::exit(1);
  }();
  return device;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_DEVICE_UNDER_TEST_H_
