#include "base/memory_reserve.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <new>
#include <utility>

namespace chairlift {
namespace {

std::array<std::atomic<void*>, MemoryReserve::kSlices> reserve{};
std::atomic<int> missing{MemoryReserve::kSlices};
std::atomic<bool> installed{false};
std::new_handler previous = nullptr;
thread_local bool in_use = false;

bool Release() {
  for (std::atomic<void*>& slot : reserve) {
    void* slice = slot.exchange(nullptr);
    if (slice == nullptr) continue;
    munmap(slice, MemoryReserve::kSliceBytes);
    missing.fetch_add(1);
    return true;
  }
  return false;
}

void Fill() {
  for (std::atomic<void*>& slot : reserve) {
    if (slot.load() != nullptr) continue;
    void* slice = mmap(nullptr, MemoryReserve::kSliceBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slice == MAP_FAILED) return;
    void* expected = nullptr;
    if (slot.compare_exchange_strong(expected, slice)) {
      missing.fetch_sub(1);
    } else {
      munmap(slice, MemoryReserve::kSliceBytes);
    }
  }
}

void OnNoMemory() {
  if (in_use && Release()) return;
  if (previous != nullptr) return previous();
  throw std::bad_alloc();
}

}  // namespace

void MemoryReserve::Install() {
  if (installed.exchange(true)) return;
  Fill();
  previous = std::set_new_handler(OnNoMemory);
}

bool MemoryReserve::Ready() {
  if (missing.load(std::memory_order_relaxed) > 0) Fill();
  return missing.load(std::memory_order_relaxed) <= kSlices / 4;
}

int MemoryReserve::slices() { return kSlices - missing.load(); }

MemoryReserve::Use::Use() : before_(std::exchange(in_use, true)) {}
MemoryReserve::Use::~Use() {
  in_use = before_;
  if (!before_ && missing.load(std::memory_order_relaxed) > 0 && installed.load()) Fill();
}

MemoryReserve::Suspend::Suspend() : before_(std::exchange(in_use, false)) {}
MemoryReserve::Suspend::~Suspend() { in_use = before_; }

}  // namespace chairlift
