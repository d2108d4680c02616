#include <algorithm>
#include <utility>

#include "device/device.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;
// Memory that was not needed for this many runs is returned to the system. A later run that needs
// it pays about 250 ns a page: 0.3 ms for the 5 MB of MiniLM's longest sequence, which takes 100
// ms.
constexpr int kIdleRuns = 32;
// Smaller amounts are kept, because tasks of one step and of many steps alternate.
constexpr size_t kWorthHandingBack = size_t{1} << 20;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

Arena::Arena(Stream& stream) : stream_(stream) {}
Arena::~Arena() {
  if (memory_ != nullptr) stream_.Keep(std::move(memory_));
}

std::byte* Arena::Reserve(size_t bytes) {
  if (bytes > capacity_ && !Grow(bytes)) return nullptr;
  in_use_ = bytes;
  idle_ = false;
  held_ = std::max(held_, RoundUp(bytes, kPage));
  recent_ = std::max(recent_, bytes);
  if (++asked_ == kIdleRuns) ReleaseUnused(bytes);
  return data();
}

bool Arena::Grow(size_t bytes) {
  const size_t rounded = RoundUp(bytes, kHugePage);
  StatusOr<std::shared_ptr<void>> memory = stream_.device().Allocate(rounded);
  if (!memory.ok()) return false;
  if (capacity_ > 0) {
    if (!stream_.Copy(memory->get(), data(), capacity_).ok()) return false;
    stream_.Keep(std::move(memory_));
  }
  memory_ = *std::move(memory);
  capacity_ = rounded;
  return true;
}

// `bytes`: in use now.
void Arena::ReleaseUnused(size_t bytes) {
  const size_t keep = RoundUp(recent_, kPage);
  if (keep < held_ / 2 && held_ - keep >= kWorthHandingBack) {
    stream_.Discard(data() + keep, held_ - keep);
    held_ = keep;
  }
  recent_ = bytes;
  asked_ = 0;
}

void Arena::ReleaseIdle() {
  if (nested_ != nullptr) nested_->ReleaseIdle();
  if (!std::exchange(idle_, true) || held_ < kWorthHandingBack) return;
  stream_.Discard(data(), held_);
  held_ = 0;
}

Arena& Arena::Nested() {
  if (nested_ == nullptr) nested_ = std::make_unique<Arena>(stream_);
  nested_->set_limit(limit_ - std::min(limit_, in_use_));
  return *nested_;
}

}  // namespace chairlift
