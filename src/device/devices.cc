#include "device/devices.h"

#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda_library.h"

namespace chairlift {
namespace {

constexpr const char* kLibrary = "libchairlift_cuda.so";

// The folder of the program or library that contains this code.
std::filesystem::path OwnFolder() {
  Dl_info info;
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0) return {};
  const auto own = std::filesystem::canonical(info.dli_fname, error);
  if (!error) return own.parent_path();
  return std::filesystem::canonical("/proc/self/exe", error).parent_path();
}

// Never destroyed: other threads may still compute when the program ends.
struct KnownDevices {
  std::mutex mutex;
  std::map<std::string, Device*, std::less<>> named;  // guarded by mutex
  // Guarded by mutex; by index, and whether it uses TF32.
  std::map<std::pair<int, bool>, Device*> cuda;
};
KnownDevices& Known() {
  static KnownDevices& known = *new KnownDevices;
  return known;
}

using MakeDevice = decltype(&ChairliftCudaDevice);

StatusOr<MakeDevice> LoadCuda() {
  std::string why;
  const std::filesystem::path folder = OwnFolder();
  for (const auto& path :
       {folder / kLibrary, folder.parent_path() / "lib" / kLibrary,
        folder.parent_path() / "bin" / kLibrary, std::filesystem::path(kLibrary)}) {
    std::error_code error;
    if (path.has_parent_path() && !std::filesystem::exists(path, error)) continue;
    void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded != nullptr) {
      return reinterpret_cast<MakeDevice>(dlsym(loaded, "ChairliftCudaDevice"));
    }
    const char* const reason = dlerror();
    const std::string said = reason == nullptr ? path.string() : reason;
    // The loader's own search has no more to say than that it found nothing.
    if (!path.has_parent_path() && said.find("cannot open shared object") != std::string::npos) {
      continue;
    }
    why += (why.empty() ? "" : "; ") + said;
  }
  return NotFound(
      "this build has no GPU support: {} {}; build with CUDA=1 where CUDA's toolkit is installed "
      "(docs/guides/gpus.md)",
      kLibrary, why.empty() ? "was not found" : fmt::format("cannot be loaded ({})", why));
}

StatusOr<int> IndexOfCuda(std::string_view name) {
  int index = 0;
  std::string_view rest = name.substr(std::string_view("cuda").size());
  if (rest.empty()) return index;
  rest.remove_prefix(1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (rest.empty() || error != std::errc() || end != rest.data() + rest.size() || index < 0) {
    return InvalidArgument("device '{}': a number is expected after 'cuda:', as in 'cuda:0'", name);
  }
  return index;
}

}  // namespace

void NameDevice(const std::string& name, Device& device) {
  const std::lock_guard<std::mutex> lock(Known().mutex);
  Known().named[name] = &device;
}

StatusOr<Device*> FindDevice(std::string_view name, const DeviceOptions& options) {
  if (name == "cpu") return &CpuDevice();
  const std::lock_guard<std::mutex> lock(Known().mutex);
  if (const auto named = Known().named.find(name); named != Known().named.end()) {
    return named->second;
  }
  if (name != "cuda" && !name.starts_with("cuda:")) {
    return InvalidArgument(
        "there is no device '{}'; use cpu, cuda (the first NVIDIA GPU) or cuda:N", name);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int index, IndexOfCuda(name));
  Device*& device = Known().cuda[{index, options.tf32}];
  if (device != nullptr) return device;
  CHAIRLIFT_ASSIGN_OR_RETURN(const MakeDevice make, LoadCuda());
  if (make == nullptr) return NotFound("{} is of another version of Chairlift", kLibrary);
  std::string why;
  device = make(
      index, options.tf32,
      [](void* to, const char* text) { *static_cast<std::string*>(to) = text; }, &why);
  if (device == nullptr) return NotFound("{}", why);
  return device;
}

}  // namespace chairlift
