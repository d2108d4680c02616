#include "device/cpu/cpu_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "base/out_of_memory.h"
#include "device/cpu/isa.h"
#include "device/device.h"

namespace chairlift {
namespace {

constexpr std::align_val_t kHugePage{size_t{2} << 20};

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown";
}

class HostStream final : public Stream {
 public:
  explicit HostStream(Device& device) : Stream(device) {}

  StatusOr<Tensor> NewTensor(DType dtype, const Shape& shape) override {
    return CatchOutOfMemory([&]() -> StatusOr<Tensor> { return Tensor::Allocate(dtype, shape); });
  }
  Status CopyIn(void* to, const void* host, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, bytes);
    return absl::OkStatus();
  }
  Status CopyOut(void* host, const void* from, size_t bytes) override {
    return CopyIn(host, from, bytes);
  }
  Status Gather(void* to, const std::byte* const* rows, int64_t count, size_t row_bytes) override {
    if (row_bytes == 0) return absl::OkStatus();
    auto* place = static_cast<std::byte*>(to);
    for (int64_t r = 0; r < count; ++r, place += row_bytes) {
      std::memcpy(place, rows[r], row_bytes);
    }
    return absl::OkStatus();
  }
  Status CopyRows(std::span<const RowCopy> copies, size_t row_bytes) override {
    for (const RowCopy& copy : copies) std::memcpy(copy.to, copy.from, row_bytes);
    return absl::OkStatus();
  }
  void Discard(void* from, size_t bytes) override { madvise(from, bytes, MADV_DONTNEED); }
  void Keep(std::shared_ptr<const void> /*owner*/) override {}
  std::shared_ptr<Event> Record() override {
    auto event = std::make_shared<Event>();
    event->Complete(absl::OkStatus());
    return event;
  }
};

class HostDevice final : public Device {
 public:
  HostDevice() : Device("cpu", /*is_host=*/true, nullptr) {}

  std::string Description() const override {
    return fmt::format("{} {}", ProcessorName(), CpuIsaName(ActiveCpuIsa()));
  }
  StatusOr<std::shared_ptr<void>> Allocate(size_t bytes) override {
    return CatchOutOfMemory([&]() -> StatusOr<std::shared_ptr<void>> {
      std::shared_ptr<void> memory(::operator new(bytes, kHugePage),
                                   [](void* p) { ::operator delete(p, kHugePage); });
      madvise(memory.get(), bytes, MADV_HUGEPAGE);  // a hint: if refused, only speed is lost
      return memory;
    });
  }
  StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<HostStream>(*this);
  }
};

}  // namespace

Device& CpuDevice() {
  static auto* const kDevice = new HostDevice;
  return *kDevice;
}

Stream& CpuStream() {
  static auto* const kStream = new HostStream(CpuDevice());
  return *kStream;
}

}  // namespace chairlift
