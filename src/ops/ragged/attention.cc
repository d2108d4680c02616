// chairlift::RaggedAttention(q [T, heads, columns], k [T, kv_heads, columns], v [T, kv_heads,
// values], offsets, by_key? [T], by_distance? [heads, 2·n − 1]) -> y [T, heads, values]: softmax(
// scale·q·kᵀ + biases)·v for every head of every sequence, within the sequence. Entry j of by_key
// is added to the scores of key j, for every query. Entry n − 1 + j − i of a head of by_distance is
// added to the score of query i and key j. Sequences then have at most n tokens. Each key head
// serves heads / kv_heads query heads, a whole number. Attributes:
//   - scale (1);
//   - causal (0): if not 0, no query attends to a later key;
//   - softcap (0: none): limits scores by a tanh;
//   - zeros_for_none (0): if not 0, a query whose scores are all −∞ gets zeros instead of NaN; if
//     2, so does a query with a score that is NaN or +∞;
//   - steps (none): if given, scores and weights are rounded to 8 bits (attention_steps.h).
//
// Heads are distributed by their amount of work, and so are the queries of long sequences. No
// matrix of queries by keys is stored.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/stop_poll.h"
#include "ops/attention/attention_heads.h"
#include "ops/attention/attention_steps.h"
#include "ops/ragged/ragged.h"

namespace chairlift {
namespace {

Status InferAttention(InferContext& context) {
  CHAIRLIFT_RETURN_IF_ERROR(SequencesOf(context, 3).status());
  std::vector<Dim> out(3);
  for (int i = 0; i < 3; ++i) {
    const SymbolicShape& shape = context.shape(i);
    if (context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("input {} is {}, input 0 {}", i, DTypeName(context.dtype(i)),
                             DTypeName(context.dtype(0)));
    }
    if (!shape.has_rank()) continue;
    if (shape.rank() != 3) return InvalidArgument("input {} has rank {}, not 3", i, shape.rank());
    const SymbolicShape& q = context.shape(0);
    for (const int axis : {0, 1, 2}) {
      const bool shared = axis == 0 || (axis == 2 && i == 1);
      if (axis == 1 && q.has_rank() && q[1].known() && shape[1].known() &&
          (shape[1].value() == 0 ? q[1].value() != 0 : q[1].value() % shape[1].value() != 0)) {
        return InvalidArgument("{} heads of keys do not divide {} of queries", shape[1].value(),
                               q[1].value());
      }
      if (shared && q.has_rank() && q[axis].known() && shape[axis].known() &&
          q[axis].value() != shape[axis].value()) {
        return InvalidArgument("input {} is {}, input 0 {}", i, shape.ToString(), q.ToString());
      }
    }
    out[0] = MergeDims(out[0], shape[0]);
    if (i == 0) out[1] = shape[1];
    if (i == 2) out[2] = shape[2];
  }
  if (context.has_input(4) && context.shape(4).has_rank()) {
    const SymbolicShape& bias = context.shape(4);
    if (bias.rank() != 1) return InvalidArgument("the bias has rank {}, not 1", bias.rank());
    if (bias[0].known() && out[0].known() && bias[0].value() != out[0].value()) {
      return InvalidArgument("the bias is for {} tokens of {}", bias[0].value(), out[0].value());
    }
  }
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
  return absl::OkStatus();
}

class RaggedAttention final : public Kernel {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<RaggedAttention>();
    const Shape& q = context.inputs[0].shape;
    made->tokens_ = q[0];
    made->heads_ = q[1];
    AttentionHead& head = made->head_;
    head.head_size = q[2];
    head.value_size = context.inputs[2].shape[2];
    made->kv_heads_ = std::max<int64_t>(context.inputs[1].shape[1], 1);
    if (context.inputs[2].shape[1] != context.inputs[1].shape[1]) {
      return InvalidArgument("keys have {} heads, values {}", context.inputs[1].shape[1],
                             context.inputs[2].shape[1]);
    }
    head.q_row = q[1] * q[2];
    head.k_row = made->kv_heads_ * q[2];
    head.v_row = made->kv_heads_ * head.value_size;
    head.out_row = q[1] * head.value_size;
    head.softcap = context.attributes.Float("softcap", 0.0f);
    if (context.attributes.Int("causal", 0) != 0) head.last_seen = 0;
    head.scale = context.attributes.Float("scale", 1.0f);
    head.zeros_for_none = context.attributes.Int("zeros_for_none", 0) != 0;
    head.zeros_for_nan = context.attributes.Int("zeros_for_none", 0) == 2;
    if (context.has_input(5)) {
      const Shape& bias = context.inputs[5].shape;
      if (bias.rank() != 2 || bias[0] != made->heads_ || bias[1] % 2 == 0) {
        return InvalidArgument("a bias {} is not for distances of {} heads", bias.ToString(),
                               made->heads_);
      }
      made->points_ = bias[1];
      head.mask_row = -1;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(made->steps_, AttentionStepsOf(context.attributes));
    made->offsets_ = context.inputs[3];
    made->width_ = context.width;
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(width_) * SlotBytes(); }

  Status Run(const KernelArgs& args) const override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets, CheckedOffsets(args, 3, offsets_, tokens_));
    auto* out = static_cast<float*>(args.outputs[0]);
    std::fill(out + offsets.back() * head_.out_row, out + tokens_ * head_.out_row, 0.0f);
    double pairs = 0;  // of query and key, per head
    int64_t pieces = 0;
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      const int64_t length = offsets[s + 1] - offsets[s];
      if (points_ > 0 && length > points_ / 2 + 1) {
        return InvalidArgument("sequence {} has {} tokens; there are biases for {}", s, length,
                               points_ / 2 + 1);
      }
      pairs += static_cast<double>(length) * static_cast<double>(length);
      pieces += length > 0 ? heads_ * std::max<int64_t>(1, length / kCut) : 0;
    }
    if (pieces == 0) return absl::OkStatus();
    constexpr double kWorthSharing = 2e5;
    const double total = pairs * static_cast<double>(heads_);
    const int width = std::min(args.team.width(), width_);
    const int64_t parts =
        width == 1 ||
                total * static_cast<double>(head_.head_size + head_.value_size) < kWorthSharing
            ? 1
            : std::min<int64_t>(pieces, int64_t{4} * width);
    const StopPoll poll;
    args.team.For(static_cast<int>(parts), [&](int part, int worker) {
      const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
      std::byte* scratch = static_cast<std::byte*>(args.scratch) + slot * SlotBytes();
      const auto border = [&](int64_t p) {
        if (p == parts) return std::numeric_limits<double>::infinity();
        return total * static_cast<double>(p) / static_cast<double>(parts);
      };
      RunPart(args, offsets, border(part), border(part + 1), scratch, poll);
    });
    return poll.Result();
  }

 private:
  // Sequences shorter than twice this are not divided within a head.
  static constexpr int64_t kCut = 64;

  size_t PackedBytes() const {
    return (PackedHeadBytes(tokens_, head_.head_size, head_.value_size) + 63) / 64 * 64;
  }
  size_t SlotBytes() const {
    return PackedBytes() + (AttendScratchBytes(head_.head_size) + 63) / 64 * 64;
  }

  // How many queries of a sequence, counted head after head, come before pair number `pairs`.
  int64_t QueriesBefore(double pairs, int64_t length) const {
    const int64_t all = heads_ * length;
    if (pairs <= 0) return 0;
    const double queries = pairs / static_cast<double>(length);
    if (queries >= static_cast<double>(all)) return all;
    const auto query = static_cast<int64_t>(queries);
    const int64_t whole = query / length * length;
    return length < 2 * kCut ? whole : whole + (query - whole) / kCut * kCut;
  }

  // The pairs [first, last) of all, sequence after sequence and head after head.
  void RunPart(const KernelArgs& args, std::span<const int64_t> offsets, double first, double last,
               std::byte* scratch, const StopPoll& poll) const {
    double before = 0;
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      const int64_t length = offsets[s + 1] - offsets[s];
      if (length == 0) continue;
      int64_t query = QueriesBefore(first - before, length);
      const int64_t end = QueriesBefore(last - before, length);
      while (query < end && !poll.Stopped()) {
        const int64_t head = query / length;
        const int64_t stop = std::min(end, (head + 1) * length);
        RunHead(args, offsets[s], length, head, query - head * length, stop - head * length,
                scratch, poll);
        query = stop;
      }
      before +=
          static_cast<double>(heads_) * static_cast<double>(length) * static_cast<double>(length);
      if (before >= last) return;
    }
  }

  void RunHead(const KernelArgs& args, int64_t token, int64_t length, int64_t h, int64_t first,
               int64_t last, std::byte* scratch, const StopPoll& poll) const {
    AttentionHead head = head_;
    head.queries = head.keys = length;
    head.q = static_cast<const float*>(args.inputs[0]) + token * head.q_row + h * head.head_size;
    const int64_t kv = h / (heads_ / kv_heads_);
    head.k = static_cast<const float*>(args.inputs[1]) + token * head.k_row + kv * head.head_size;
    head.v = static_cast<const float*>(args.inputs[2]) + token * head.v_row + kv * head.value_size;
    head.out = static_cast<float*>(args.outputs[0]) + token * head.out_row + h * head.value_size;
    if (args.inputs.size() > 4 && args.inputs[4] != nullptr) {
      head.key_mask = static_cast<const float*>(args.inputs[4]) + token;
    }
    if (points_ > 0) {
      head.mask = static_cast<const float*>(args.inputs[5]) + h * points_ + points_ / 2;
    }
    if (steps_) {
      head.steps = &*steps_;
      return AttendInSteps(head, first, last, reinterpret_cast<float*>(scratch));
    }
    PackHead(head, scratch);
    AttendUnlessStopped(head, first, last, scratch, scratch + PackedBytes(), poll);
  }

  int64_t tokens_ = 0, heads_ = 0, kv_heads_ = 1;
  AttentionHead head_;
  std::optional<AttentionSteps> steps_;
  int64_t points_ = 0;  // of a bias by distance; 0: not by distance
  TensorDesc offsets_;
  int width_ = 1;
};

}  // namespace

void RegisterRaggedAttention(OperatorRegistry& registry) {
  constexpr TypeSet kTypes = kHalfTypes | TypeSet{DType::kFloat};
  registry.Add({.domain = "chairlift",
                .name = "RaggedAttention",
                .min_inputs = 4,
                .max_inputs = 6,
                .input_types = {kTypes, kTypes, kTypes, TypeSet{DType::kInt64}, kTypes, kTypes},
                .infer = InferAttention,
                .compile = RaggedAttention::Compile});
}

}  // namespace chairlift
