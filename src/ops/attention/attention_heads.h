// Attention of many heads, shared among a team.
#ifndef CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
#define CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "device/cpu/team.h"
#include "ops/attention/attention_kernel.h"
#include "ops/operator.h"

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

// A node chairlift::Attention bound to shapes.
struct AttentionShapes {
  enum Place { kBatch, kHead, kRow, kColumn };
  using Strides = std::array<int64_t, 4>;  // by place, in elements

  int64_t batch = 0, heads = 0;
  int64_t sharing = 1;               // heads of queries to one of keys
  AttentionHead head;                // of every head: without addresses
  std::array<Strides, 4> strides{};  // of q, k, v and y
  Strides mask{};
  int64_t first = 0;  // of a mask by distance: where 0 is
};
StatusOr<AttentionShapes> AttentionShapesOf(const CompileContext& context);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_ATTENTION_ATTENTION_HEADS_H_
