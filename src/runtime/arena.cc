#include <sys/mman.h>

#include <new>

#include "runtime/executable.h"

namespace chairlift {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

Arena::Arena() = default;
Arena::~Arena() { ::operator delete (data_, std::align_val_t{kHugePage}); }

std::byte* Arena::Reserve(size_t bytes) {
  if (bytes > capacity_) {
    const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    ::operator delete (data_, std::align_val_t{kHugePage});
    data_ = nullptr;
    capacity_ = 0;
    data_ = static_cast<std::byte*>(::operator new (rounded, std::align_val_t{kHugePage}));
    madvise(data_, rounded, MADV_HUGEPAGE);  // a hint: refusal costs speed only
    capacity_ = rounded;
  }
  return data_;
}

}  // namespace chairlift
