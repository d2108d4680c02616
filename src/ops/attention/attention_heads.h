// Attention of many heads, distributed over a team.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "base/stop_poll.h"
#include "device/cpu/team.h"
#include "ops/attention/attention_kernel.h"
#include "ops/operator.h"

namespace chairlift {

// Attend() (attention_kernel.h), some queries at a time, until it is stopped.
void AttendUnlessStopped(const AttentionHead& head, int64_t first, int64_t last, const void* packed,
                         void* scratch, const StopPoll& poll);

// Thread-safe: Run() may be called concurrently with separate scratch memory.
class AttentionHeads {
 public:
  AttentionHeads() = default;
  // `units` heads in total, none larger than `most` in any of its sizes; up to `width` workers.
  AttentionHeads(const AttentionHead& most, int64_t units, int width)
      : most_(most), units_(units), width_(width) {}

  size_t scratch_bytes() const { return static_cast<size_t>(width_) * SlotBytes(); }
  // `head(unit)` describes each one; it is called from several threads. `scratch` is 64-byte
  // aligned.
  // kCancelled if it was stopped.
  Status Run(Team& team, void* scratch, absl::FunctionRef<AttentionHead(int64_t unit)> head) const;

 private:
  size_t PackedBytes() const;
  size_t SlotBytes() const;

  AttentionHead most_;
  int64_t units_ = 0;
  int width_ = 1;
};

// A node chairlift::Attention bound to shapes.
struct AttentionShapes {
  enum Place { kBatch, kHead, kRow, kColumn };
  using Strides = std::array<int64_t, 4>;  // by axis, in elements

  int64_t batch = 0, heads = 0;
  int64_t sharing = 1;               // query heads per key head
  AttentionHead head;                // common to all heads, without addresses
  std::array<Strides, 4> strides{};  // for q, k, v and y
  Strides mask{};
  int64_t first = 0;  // of a mask by distance: the index of distance 0
};
StatusOr<AttentionShapes> AttentionShapesOf(const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
