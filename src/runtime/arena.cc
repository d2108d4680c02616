#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "runtime/executable.h"

namespace chairlift {
namespace {
constexpr std::align_val_t kHugePage{size_t{2} << 20};
constexpr size_t kPage = 4096;
// Runs in which memory must have been of no use before it is handed back. Those who need it then
// pay some 250 ns a page, 0.3 ms for the 5 MB of MiniLM's longest sequence, which takes 100 ms.
constexpr int kIdleRuns = 32;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

Arena::Arena() = default;
Arena::~Arena() { ::operator delete(data_, kHugePage); }

std::byte* Arena::Reserve(size_t bytes) {
  if (bytes > capacity_) {
    const size_t rounded = RoundUp(bytes, static_cast<size_t>(kHugePage));
    auto* data = static_cast<std::byte*>(::operator new(rounded, kHugePage, std::nothrow));
    if (data == nullptr) return nullptr;
    madvise(data, rounded, MADV_HUGEPAGE);  // a hint: refusal costs speed only
    if (capacity_ > 0) std::memcpy(data, data_, capacity_);
    ::operator delete(data_, kHugePage);
    data_ = data;
    capacity_ = rounded;
  }
  held_ = std::max(held_, RoundUp(bytes, kPage));
  recent_ = std::max(recent_, bytes);
  if (++asked_ == kIdleRuns) ReleaseUnused(bytes);
  return data_;
}

// `bytes`: in use now.
void Arena::ReleaseUnused(size_t bytes) {
  const size_t keep = RoundUp(recent_, kPage);
  if (keep < held_ / 2) {
    madvise(data_ + keep, held_ - keep, MADV_DONTNEED);
    held_ = keep;
  }
  recent_ = bytes;
  asked_ = 0;
}

Arena& Arena::Nested() {
  if (nested_ == nullptr) nested_ = std::make_unique<Arena>();
  return *nested_;
}

}  // namespace chairlift
