// A request in parts: ranges of its rows, if rows are independent, and their outputs as one answer.
#ifndef CHAIRLIFT_ENGINE_REQUESTS_ROW_PARTS_H_
#define CHAIRLIFT_ENGINE_REQUESTS_ROW_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/byte_budget.h"
#include "chairlift/engine.h"
#include "engine/requests/validate.h"

namespace chairlift {

struct RowRange {
  int32_t first = 0;
  int32_t rows = 0;
};

// Rows [first, first + rows) of a tensor along `axis`; they share its bytes if they are contiguous.
Tensor CutRows(const Tensor& whole, int axis, int64_t first, int64_t rows);

// These rows of a request whose rows are independent.
ValidatedRequest RowsOf(const ValidatedRequest& whole, RowRange range);

// Thread-safe.
class RowParts {
 public:
  // For `whole`, a request of several independent rows: ranges of at most `max_load`
  // (ValidatedRequest::load()), but at least one row each. `whole` must outlive this and stay
  // unchanged.
  RowParts(const ValidatedRequest& whole, int32_t max_load);
  ~RowParts();
  RowParts(const RowParts&) = delete;
  RowParts& operator=(const RowParts&) = delete;

  int count() const { return static_cast<int>(ranges_.size()); }
  RowRange range(int part) const { return ranges_[static_cast<size_t>(part)]; }
  int32_t load(int part) const;
  ValidatedRequest Part(int part) const { return RowsOf(whole_, range(part)); }

  struct Limits {
    size_t own = 0;  // bytes of this answer
    // The budget of all answers in parts, held by each until its RowParts is destroyed. Null:
    // unlimited.
    std::shared_ptr<ByteBudget> all;
  };
  // Adds a part's answer. kInternal if the outputs do not fit its rows, kOutOfRange if the whole
  // answer exceeds its own limit, kResourceExhausted if it exceeds the remaining budget of all
  // answers, or if there is no memory. The limits are those of the first call.
  Status Put(int part, std::span<const NamedTensor> outputs, const Limits& limits);
  // Call it when all parts have been added.
  std::vector<NamedTensor> Take();

 private:
  int OutputAxis(size_t output) const;
  // Allocates all rows of outputs, from those of one part.
  Status MakeOutputs(RowRange part, std::span<const NamedTensor> outputs, const Limits& limits);

  // Keeps the strings of a part's output for as long as the whole answer. Under mutex_.
  Status KeepTexts(const Tensor& tensor, const Limits& limits);

  using TextOwners = std::vector<std::shared_ptr<const void>>;

  const ValidatedRequest& whole_;
  std::vector<RowRange> ranges_;
  std::mutex mutex_;
  std::vector<NamedTensor> outputs_;    // made under mutex_; parts write to separate rows
  std::shared_ptr<ByteBudget> budget_;  // the budget that taken_ bytes come from
  int64_t taken_ = 0;
  size_t text_bytes_ = 0;
  std::shared_ptr<TextOwners> text_owners_ = std::make_shared<TextOwners>();
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_ROW_PARTS_H_
