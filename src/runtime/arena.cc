#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "runtime/executable.h"

namespace chairlift {
namespace {
constexpr std::align_val_t kHugePage{size_t{2} << 20};
}  // namespace

Arena::Arena() = default;
Arena::~Arena() { ::operator delete(data_, kHugePage); }

std::byte* Arena::Reserve(size_t bytes) {
  if (bytes > capacity_) {
    constexpr size_t kPage = static_cast<size_t>(kHugePage);
    const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
    auto* data = static_cast<std::byte*>(::operator new(rounded, kHugePage, std::nothrow));
    if (data == nullptr) return nullptr;
    madvise(data, rounded, MADV_HUGEPAGE);  // a hint: refusal costs speed only
    if (capacity_ > 0) std::memcpy(data, data_, capacity_);
    ::operator delete(data_, kHugePage);
    data_ = data;
    capacity_ = rounded;
  }
  return data_;
}

Arena& Arena::Nested() {
  if (nested_ == nullptr) nested_ = std::make_unique<Arena>();
  return *nested_;
}

}  // namespace chairlift
