// A request in parts: ranges of its rows, where rows are apart, and their outputs as one answer.
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

// Rows [first, first + rows) of a tensor along `axis`; they share its bytes where they lie
// together.
Tensor CutRows(const Tensor& whole, int axis, int64_t first, int64_t rows);

// Those rows of a request whose rows are apart.
ValidatedRequest RowsOf(const ValidatedRequest& whole, RowRange range);

// Thread-safe.
class RowParts {
 public:
  // Of `whole`, a request of several rows that are apart: ranges of at most `max_load`
  // (ValidatedRequest::load()) each, but of one row at least. `whole` must outlive this and stay as
  // it is.
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
    // Of all answers in parts, held by each until its RowParts is destroyed. Null: unlimited.
    std::shared_ptr<ByteBudget> all;
  };
  // A part's answer. kInternal if the outputs are not those of its rows, kOutOfRange if the whole
  // answer is beyond its own limit, kResourceExhausted if it is beyond what all answers have left,
  // or there is no memory. The limits are those of the first call.
  Status Put(int part, std::span<const NamedTensor> outputs, const Limits& limits);
  // Once all parts are there.
  std::vector<NamedTensor> Take() { return std::move(outputs_); }

 private:
  int OutputAxis(size_t output) const;
  // Makes room for all rows of outputs like these of one part.
  Status MakeOutputs(RowRange part, std::span<const NamedTensor> outputs, const Limits& limits);

  const ValidatedRequest& whole_;
  std::vector<RowRange> ranges_;
  std::mutex mutex_;
  std::vector<NamedTensor> outputs_;    // made under mutex_; parts write to rows of their own
  std::shared_ptr<ByteBudget> budget_;  // that taken_ bytes are from
  int64_t taken_ = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REQUESTS_ROW_PARTS_H_
