// Attention of many heads, shared among a team.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "device/cpu/team.h"
#include "ops/attention/attention_kernel.h"

namespace chairlift {

// Thread-safe: Run() may be called at once with other scratch.
class AttentionHeads {
 public:
  AttentionHeads() = default;
  // `units` heads in all, none larger than `most` in any of its sizes; up to `width` workers.
  AttentionHeads(const AttentionHead& most, int64_t units, int width)
      : most_(most), units_(units), width_(width) {}

  size_t scratch_bytes() const { return static_cast<size_t>(width_) * SlotBytes(); }
  // `head(unit)` says what each is. Calls come from several threads. `scratch` is 64-byte aligned.
  void Run(Team& team, void* scratch, absl::FunctionRef<AttentionHead(int64_t unit)> head) const;

 private:
  size_t PackedBytes() const;
  size_t SlotBytes() const;

  AttentionHead most_;
  int64_t units_ = 0;
  int width_ = 1;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
