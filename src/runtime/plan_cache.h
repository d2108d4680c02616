// Plans by shape class: the most recently used ones, within a byte limit.
#ifndef CHAIRLIFT_RUNTIME_PLAN_CACHE_H_
#define CHAIRLIFT_RUNTIME_PLAN_CACHE_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// A shape class as a sequence of numbers: other parameters first, then types and shapes.
class PlanKey {
 public:
  void Add(int64_t number) { numbers_.push_back(number); }
  void Add(DType dtype, const Shape& shape) {
    numbers_.push_back(static_cast<int64_t>(dtype) << 32 | shape.rank());
    for (int64_t d : shape) numbers_.push_back(d);
  }
  friend bool operator==(const PlanKey& a, const PlanKey& b) { return a.numbers_ == b.numbers_; }
  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& key) {
    return H::combine_contiguous(std::move(h), key.numbers_.data(), key.numbers_.size());
  }

 private:
  absl::InlinedVector<int64_t, 32> numbers_;
};

// Thread-safe. T is a pointer to an object with `int64_t held_bytes()`. Values are kept while all
// together hold at most `max_bytes`; the `kept_always` most recently used ones are kept whatever
// their size.
template <typename T>
class PlanCache {
 public:
  PlanCache(int64_t max_bytes, int kept_always)
      : max_bytes_(max_bytes), kept_always_(static_cast<size_t>(std::max(1, kept_always))) {}

  // The value stored under `key`, or else the result of `build`, a StatusOr<T>. Threads that ask
  // for a key while it is being built wait and share the result; nothing is built twice at the same
  // time. `build` must not ask for its own key.
  template <typename Build>
  StatusOr<T> Get(const PlanKey& key, Build build) {
    StatusOr<T> result = abandoned_;
    std::shared_ptr<Building> building;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (const auto found = entries_.find(key); found != entries_.end()) {
        found->second.used = ++clock_;
        return found->second.value;
      }
      const auto begun = building_.find(key);
      if (begun != building_.end()) {
        building = begun->second;
        building->done.wait(lock, [&] { return building->result.has_value(); });
        return *building->result;
      }
      const MemoryReserve::Use use;  // Abseil's maps do not survive a failed growth
      building = std::make_shared<Building>();
      building_.emplace(key, building);
    }
    {
      const absl::Cleanup finish = [&] { Finish(key, *building, result); };
      result = CatchOutOfMemory([&]() -> StatusOr<T> { return build(); });
    }
    return result;
  }

  int size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(entries_.size());
  }
  int64_t held_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return held_bytes_;
  }

 private:
  struct Entry {
    T value;
    int64_t bytes;
    uint64_t used;
  };
  struct Building {
    std::condition_variable done;
    std::optional<StatusOr<T>> result;
  };

  void Finish(const PlanKey& key, Building& building, const StatusOr<T>& result) {
    const MemoryReserve::Use use;  // others wait for this
    std::vector<T> evicted;        // destroyed after the lock is released
    const std::lock_guard<std::mutex> lock(mutex_);
    building.result = result;
    building.done.notify_all();
    building_.erase(key);
    if (!result.ok()) return;
    const int64_t bytes = (*result)->held_bytes();
    entries_[key] = {*result, bytes, ++clock_};
    held_bytes_ += bytes;
    while (held_bytes_ > max_bytes_ && entries_.size() > kept_always_) {
      const auto oldest = std::min_element(
          entries_.begin(), entries_.end(),
          [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
      held_bytes_ -= oldest->second.bytes;
      evicted.push_back(std::move(oldest->second.value));
      entries_.erase(oldest);
    }
  }

  const int64_t max_bytes_;
  const size_t kept_always_;
  const Status abandoned_ = Internal("planning was abandoned");
  mutable std::mutex mutex_;
  absl::flat_hash_map<PlanKey, Entry> entries_;
  absl::flat_hash_map<PlanKey, std::shared_ptr<Building>> building_;
  int64_t held_bytes_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PLAN_CACHE_H_
