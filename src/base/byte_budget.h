// A bound on the bytes that many owners hold together.
#ifndef CHAIRLIFT_BASE_BYTE_BUDGET_H_
#define CHAIRLIFT_BASE_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace chairlift {

// Thread-safe. Bytes taken from a share also count against its parent budget.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit, std::shared_ptr<ByteBudget> whole = nullptr)
      : limit_(limit), whole_(std::move(whole)) {}

  // Takes `bytes` and returns null, or takes nothing and returns the budget that lacks the room.
  [[nodiscard]] const ByteBudget* Take(int64_t bytes) {
    if (held_.fetch_add(bytes) + bytes > limit_) {
      held_.fetch_sub(bytes);
      return this;
    }
    const ByteBudget* const lacking = whole_ == nullptr ? nullptr : whole_->Take(bytes);
    if (lacking != nullptr) held_.fetch_sub(bytes);
    return lacking;
  }
  void Give(int64_t bytes) {
    held_.fetch_sub(bytes);
    if (whole_ != nullptr) whole_->Give(bytes);
  }

  int64_t limit() const { return limit_; }
  int64_t held() const { return held_; }
  bool is_share() const { return whole_ != nullptr; }

 private:
  const int64_t limit_;
  const std::shared_ptr<ByteBudget> whole_;
  std::atomic<int64_t> held_{0};
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_BYTE_BUDGET_H_
