// Plans by shape class: the most recently used ones.
#ifndef CHAIRLIFT_RUNTIME_PLAN_CACHE_H_
#define CHAIRLIFT_RUNTIME_PLAN_CACHE_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "chairlift/tensor.h"

namespace chairlift {

// A shape class as numbers: whatever else matters, then types and shapes.
class PlanKey {
 public:
  void Add(int64_t number) { numbers_.push_back(number); }
  void Add(DType dtype, const Shape& shape) {
    numbers_.push_back(static_cast<int64_t>(dtype) << 32 | shape.rank());
    for (int64_t d : shape) numbers_.push_back(d);
  }
  friend bool operator==(const PlanKey& a, const PlanKey& b) { return a.numbers_ == b.numbers_; }

 private:
  absl::InlinedVector<int64_t, 32> numbers_;
};

// Thread-safe. A few dozen entries at most: found by going through them.
template <typename T>
class PlanCache {
 public:
  explicit PlanCache(int capacity) : capacity_(std::max(1, capacity)) {}

  std::optional<T> Find(const PlanKey& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Entry& entry : entries_) {
      if (!(entry.key == key)) continue;
      entry.used = ++clock_;
      return entry.value;
    }
    return std::nullopt;
  }

  // Adds `value`, in place of the least recently used one when full; returns what is in the cache,
  // which is another thread's value where that came first.
  T Insert(const PlanKey& key, T value) {
    T evicted{};  // destroyed after the lock is released
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.key == key) return entry.value;
    }
    if (static_cast<int>(entries_.size()) >= capacity_) {
      auto oldest =
          std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.used < b.used; });
      evicted = std::move(oldest->value);
      *oldest = {key, value, ++clock_};
    } else {
      entries_.push_back({key, value, ++clock_});
    }
    return value;
  }

  int size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(entries_.size());
  }

 private:
  struct Entry {
    PlanKey key;
    T value;
    uint64_t used;
  };
  const int capacity_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PLAN_CACHE_H_
