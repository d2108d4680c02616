// chairlift::SourceAttention(q [T, heads, columns], offsets, lengths [R], blocks [R, M], key_cache
// [N, kv_heads, columns, B], value_cache [N, kv_heads, B, values]) -> y [T, heads, values]. The
// tokens of each of R sequences attend to the keys and values of its own source.
//
// The source of sequence r has lengths[r] ≥ 1 tokens (if the sequence is not empty). The key and
// value of its token at position p are in block blocks[r, p / B] of the two caches. The key is
// column p % B there, the value row p % B. Every token of the sequence attends to all of them.
//
// In a model that is not yet paged, q is the only input. It is [T, heads, columns], or [batch,
// heads, length, columns] in the order of attribute `q_axes`. The axes of y are then in the order
// of `y_axes`. Without keys and values it returns zeros.
//
// Attributes: scale (1); kv_heads, which divides heads; key_size; value_size. Sequences and their
// key heads are distributed over the workers.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ops/ragged/paged_head.h"
#include "ops/ragged/ragged.h"
#include "ops/reads_in_part.h"

namespace chairlift {
namespace {

constexpr int kSourceOffsets = 1, kLengths = 2, kSourceBlocks = 3, kSourceKeys = 4,
              kSourceValues = 5;

// The positions of batch, head, row and column.
StatusOr<std::array<int, 4>> SourceAxes(const Attributes& attributes, const char* name) {
  const std::vector<int64_t> given = attributes.Ints(name, {0, 1, 2, 3});
  std::array<int, 4> axes{};
  std::array<bool, 4> seen{};
  for (size_t i = 0; i < given.size() && i < 4; ++i) {
    if (given[i] < 0 || given[i] > 3) break;
    axes[i] = static_cast<int>(given[i]);
    seen[static_cast<size_t>(given[i])] = true;
  }
  if (given.size() != 4 || std::find(seen.begin(), seen.end(), false) != seen.end()) {
    return InvalidArgument("attribute {} is not a permutation of 0 to 3", name);
  }
  return axes;
}

Status InferSource(InferContext& context) {
  const Dim values(context.attributes().Int("value_size", 0));
  const SymbolicShape& q = context.shape(0);
  if (q.has_rank() && q.rank() == 4) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto from, SourceAxes(context.attributes(), "q_axes"));
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto to, SourceAxes(context.attributes(), "y_axes"));
    std::vector<Dim> out(4);
    for (size_t i = 0; i < 4; ++i) out[static_cast<size_t>(to[i])] = i < 3 ? q[from[i]] : values;
    context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
    return absl::OkStatus();
  }
  if (q.has_rank() && q.rank() != 3) return InvalidArgument("input 0 has rank {}", q.rank());
  if (context.has_input(kSourceOffsets)) {
    CHAIRLIFT_RETURN_IF_ERROR(SequencesOf(context, kSourceOffsets).status());
  }
  std::vector<Dim> out(3);
  if (q.has_rank()) {
    out[0] = q[0];
    out[1] = q[1];
  }
  out[2] = values;
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
  return absl::OkStatus();
}

class SourceAttention final : public Kernel, public ReadsInPart {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    if (context.inputs.size() == 1) {
      const size_t bytes = context.outputs[0].byte_size();
      return MakeKernel([bytes](const KernelArgs& args) -> Status {
        std::memset(args.outputs[0], 0, bytes);
        return absl::OkStatus();
      });
    }
    if (context.inputs.size() != 6) {
      return InvalidArgument("it has {} inputs; it takes q alone, or 6", context.inputs.size());
    }
    auto made = std::make_unique<SourceAttention>();
    const auto shape = [&](int i) -> const Shape& {
      return context.inputs[static_cast<size_t>(i)].shape;
    };
    static constexpr std::array<int, 6> kRanks = {3, 1, 1, 2, 4, 4};
    for (int i = 0; i < 6; ++i) {
      if (shape(i).rank() == kRanks[static_cast<size_t>(i)]) continue;
      return InvalidArgument("input {} has rank {}, not {}", i, shape(i).rank(),
                             kRanks[static_cast<size_t>(i)]);
    }
    const Shape& q = shape(0);
    made->tokens_ = q[0];
    made->heads_ = q[1];
    made->head_size_ = q[2];
    made->kv_heads_ = shape(kSourceKeys)[1];
    made->value_size_ = shape(kSourceValues)[3];
    made->offsets_ = context.inputs[kSourceOffsets];
    made->sequences_ = shape(kSourceBlocks)[0];
    made->most_blocks_ = shape(kSourceBlocks)[1];
    made->num_blocks_ = shape(kSourceKeys)[0];
    made->block_tokens_ = shape(kSourceValues)[2];
    if (made->kv_heads_ < 1 || q[1] % made->kv_heads_ != 0) {
      return InvalidArgument("{} heads of keys do not divide {} of queries", made->kv_heads_, q[1]);
    }
    const auto fits = [&](int i, const Shape& wanted) -> Status {
      if (shape(i) == wanted) return absl::OkStatus();
      return InvalidArgument("input {} is {}, not {}", i, shape(i).ToString(), wanted.ToString());
    };
    CHAIRLIFT_RETURN_IF_ERROR(fits(kSourceOffsets, {made->sequences_ + 1}));
    CHAIRLIFT_RETURN_IF_ERROR(fits(kLengths, {made->sequences_}));
    CHAIRLIFT_RETURN_IF_ERROR(
        fits(kSourceKeys, {made->num_blocks_, made->kv_heads_, q[2], made->block_tokens_}));
    CHAIRLIFT_RETURN_IF_ERROR(fits(kSourceValues, {made->num_blocks_, made->kv_heads_,
                                                   made->block_tokens_, made->value_size_}));
    if (context.outputs[0].shape != Shape{q[0], q[1], made->value_size_}) {
      return InvalidArgument("attribute value_size is not {}", made->value_size_);
    }
    made->scale_ = context.attributes.Float("scale", 1.0f);
    made->width_ = context.width;
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(width_) * SlotBytes(); }

  // The bytes of blocks that no source of the batch uses.
  double UntouchedBytes(const KernelArgs& args) const override {
    const auto offsets = CheckedOffsets(args, kSourceOffsets, offsets_, tokens_);
    if (!offsets.ok() || !CheckSources(args, *offsets).ok()) return 0;
    const auto* lengths = static_cast<const int64_t*>(args.inputs[kLengths]);
    int64_t tokens = num_blocks_ * block_tokens_;
    for (int64_t r = 0; r < sequences_; ++r) {
      const auto at = static_cast<size_t>(r);
      if ((*offsets)[at + 1] > (*offsets)[at]) tokens -= lengths[r];
    }
    return UntouchedCache(tokens, kv_heads_, head_size_ + value_size_);
  }

  Status Run(const KernelArgs& args) const override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets,
                               CheckedOffsets(args, kSourceOffsets, offsets_, tokens_));
    CHAIRLIFT_RETURN_IF_ERROR(CheckSources(args, offsets));
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t out_row = heads_ * value_size_;
    std::fill(out + offsets.back() * out_row, out + tokens_ * out_row, 0.0f);
    const int64_t items = sequences_ * kv_heads_;
    const int width = std::min(args.team.width(), width_);
    const int64_t parts = std::min<int64_t>(items, width == 1 ? 1 : int64_t{8} * width);
    args.team.For(static_cast<int>(parts), [&](int part, int worker) {
      const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
      auto* own =
          reinterpret_cast<float*>(static_cast<std::byte*>(args.scratch) + slot * SlotBytes());
      for (int64_t item = items * part / parts; item < items * (part + 1) / parts; ++item) {
        RunSource(args, offsets, item / kv_heads_, item % kv_heads_, own);
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t most_keys() const { return most_blocks_ * block_tokens_; }
  size_t SlotBytes() const {
    return (static_cast<size_t>(PagedScratch(head_size_, value_size_)) * sizeof(float) + 63) / 64 *
           64;
  }

  Status CheckSources(const KernelArgs& args, std::span<const int64_t> offsets) const {
    const auto* lengths = static_cast<const int64_t*>(args.inputs[kLengths]);
    const auto* blocks = static_cast<const int64_t*>(args.inputs[kSourceBlocks]);
    for (int64_t r = 0; r < sequences_; ++r, blocks += most_blocks_) {
      const auto at = static_cast<size_t>(r);
      if (offsets[at + 1] == offsets[at]) continue;
      if (lengths[r] < 1 || lengths[r] > most_keys()) {
        return InvalidArgument("the source of sequence {} has {} tokens; its blocks hold {}", r,
                               lengths[r], most_keys());
      }
      for (int64_t b = 0; b < (lengths[r] + block_tokens_ - 1) / block_tokens_; ++b) {
        if (blocks[b] >= 0 && blocks[b] < num_blocks_) continue;
        return InvalidArgument("block {} of the source of sequence {} is {}; there are {}", b, r,
                               blocks[b], num_blocks_);
      }
    }
    return absl::OkStatus();
  }

  void RunSource(const KernelArgs& args, std::span<const int64_t> offsets, int64_t r, int64_t kv,
                 float* scratch) const {
    const int64_t first = offsets[static_cast<size_t>(r)];
    PagedHead head;
    head.queries = offsets[static_cast<size_t>(r) + 1] - first;
    if (head.queries == 0) return;
    head.keys_block = kv_heads_ * block_tokens_ * head_size_;
    head.values_block = kv_heads_ * block_tokens_ * value_size_;
    head.keys =
        static_cast<const float*>(args.inputs[kSourceKeys]) + kv * block_tokens_ * head_size_;
    head.values =
        static_cast<const float*>(args.inputs[kSourceValues]) + kv * block_tokens_ * value_size_;
    head.q_row = heads_ * head_size_;
    head.out_row = heads_ * value_size_;
    head.head_size = head_size_;
    head.value_size = value_size_;
    head.cached = static_cast<const int64_t*>(args.inputs[kLengths])[r];
    head.causal = false;
    head.blocks = static_cast<const int64_t*>(args.inputs[kSourceBlocks]) + r * most_blocks_;
    head.block_tokens = block_tokens_;
    head.scale = scale_;
    const int64_t shared = heads_ / kv_heads_;
    for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
      head.q = static_cast<const float*>(args.inputs[0]) + first * head.q_row + h * head_size_;
      head.out = static_cast<float*>(args.outputs[0]) + first * head.out_row + h * value_size_;
      AttendPaged(head, scratch);
    }
  }

  int64_t tokens_ = 0, heads_ = 0, kv_heads_ = 0, head_size_ = 0, value_size_ = 0;
  int64_t sequences_ = 0, most_blocks_ = 0, num_blocks_ = 0, block_tokens_ = 0;
  float scale_ = 1.0f;
  TensorDesc offsets_;
  int width_ = 1;
};

}  // namespace

void RegisterSourceAttention(OperatorRegistry& registry) {
  constexpr TypeSet kFloats = TypeSet{DType::kFloat};
  constexpr TypeSet kIntegers = TypeSet{DType::kInt64};
  registry.Add({.domain = "chairlift",
                .name = "SourceAttention",
                .min_inputs = 1,
                .max_inputs = 6,
                .input_types = {kFloats, kIntegers, kIntegers, kIntegers, kFloats, kFloats},
                .infer = InferSource,
                .compile = SourceAttention::Compile});
}

}  // namespace chairlift
