// chairlift::PagedAttention(q [T, heads, columns], k [T, kv_heads, columns], v [T, kv_heads,
// values], offsets, cached [R], blocks [R, M], key_cache [N, kv_heads, columns, B], value_cache [N,
// kv_heads, B, values], bias? [heads, 2·n − 1]) -> y [T, heads, values]: causal attention of the
// new tokens of R sequences over these and all earlier tokens.
//
// Sequence r has `cached[r]` earlier tokens. The key and value of its token at position p are in
// block blocks[r, p / B] of the two caches. The key is column p % B there, the value row p % B. The
// operator writes those of the new tokens there, in place. Token i then attends to positions 0 to
// cached[r] + i. Other contents of the caches are not written, have no effect, and may be anything.
// No two sequences may share a block that one of them writes to; the kernel does not check that.
// But a sequence may continue the one before it. It then has the same blocks, and its earlier
// tokens are all tokens of that sequence, old and new. If there is a bias, its entry n − 1 − d is
// added to the score of a key d positions before the query. Sequences then have at most n tokens.
//
// Attributes: scale (1); softcap (0: none), which limits scores by a tanh before the bias. Each key
// head serves heads / kv_heads query heads, a whole number. Sequences and their key heads are
// distributed over the workers.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ops/attention/attention_kernel.h"
#include "ops/ragged/paged_head.h"
#include "ops/ragged/ragged.h"
#include "ops/reads_in_part.h"

namespace chairlift {
namespace {

constexpr int kOffsets = 3, kCached = 4, kBlocks = 5, kKeyCache = 6, kValueCache = 7, kBias = 8;

Status InferPaged(InferContext& context) {
  static constexpr std::array<int, 8> kRanks = {3, 3, 3, 1, 1, 2, 4, 4};
  CHAIRLIFT_RETURN_IF_ERROR(SequencesOf(context, kOffsets).status());
  for (int i = 0; i < 8; ++i) {
    const SymbolicShape& shape = context.shape(i);
    if (shape.has_rank() && shape.rank() != kRanks[static_cast<size_t>(i)]) {
      return InvalidArgument("input {} has rank {}, not {}", i, shape.rank(),
                             kRanks[static_cast<size_t>(i)]);
    }
  }
  std::vector<Dim> out(3);
  if (context.shape(0).has_rank()) {
    out[0] = context.shape(0)[0];
    out[1] = context.shape(0)[1];
  }
  if (context.shape(2).has_rank()) out[2] = context.shape(2)[2];
  context.set_output(0, context.dtype(0), SymbolicShape(std::move(out)));
  return absl::OkStatus();
}

class PagedAttention final : public Kernel, public ReadsInPart {
 public:
  static StatusOr<std::unique_ptr<Kernel>> Compile(const CompileContext& context) {
    auto made = std::make_unique<PagedAttention>();
    const auto shape = [&](int i) -> const Shape& {
      return context.inputs[static_cast<size_t>(i)].shape;
    };
    const Shape &q = shape(0), &k = shape(1), &v = shape(2);
    made->tokens_ = q[0];
    made->heads_ = q[1];
    made->kv_heads_ = k[1];
    made->head_size_ = q[2];
    made->value_size_ = v[2];
    made->offsets_ = context.inputs[kOffsets];
    made->sequences_ = shape(kBlocks)[0];
    made->most_blocks_ = shape(kBlocks)[1];
    made->num_blocks_ = shape(kKeyCache)[0];
    made->block_tokens_ = shape(kValueCache)[2];
    if (k[1] < 1 || q[1] % k[1] != 0) {
      return InvalidArgument("{} heads of keys do not divide {} of queries", k[1], q[1]);
    }
    const auto fits = [&](int i, const Shape& wanted) -> Status {
      if (shape(i) == wanted) return absl::OkStatus();
      return InvalidArgument("input {} is {}, not {}", i, shape(i).ToString(), wanted.ToString());
    };
    CHAIRLIFT_RETURN_IF_ERROR(fits(1, {q[0], k[1], q[2]}));
    CHAIRLIFT_RETURN_IF_ERROR(fits(2, {q[0], k[1], v[2]}));
    CHAIRLIFT_RETURN_IF_ERROR(fits(kOffsets, {made->sequences_ + 1}));
    CHAIRLIFT_RETURN_IF_ERROR(fits(kCached, {made->sequences_}));
    CHAIRLIFT_RETURN_IF_ERROR(
        fits(kKeyCache, {made->num_blocks_, k[1], q[2], made->block_tokens_}));
    CHAIRLIFT_RETURN_IF_ERROR(
        fits(kValueCache, {made->num_blocks_, k[1], made->block_tokens_, v[2]}));
    if (context.has_input(kBias)) {
      const Shape& bias = shape(kBias);
      if (bias.rank() != 2 || bias[0] != q[1] || bias[1] % 2 == 0) {
        return InvalidArgument("a bias {} is not for distances of {} heads", bias.ToString(), q[1]);
      }
      made->points_ = bias[1];
    }
    made->scale_ = context.attributes.Float("scale", 1.0f);
    made->softcap_ = context.attributes.Float("softcap", 0.0f);
    made->width_ = context.width;
    return std::unique_ptr<Kernel>(std::move(made));
  }

  size_t scratch_bytes() const override { return static_cast<size_t>(width_) * SlotBytes(); }

  // The bytes of blocks that no sequence of the batch uses.
  double UntouchedBytes(const KernelArgs& args) const override {
    const auto offsets = CheckedOffsets(args, kOffsets, offsets_, tokens_);
    if (!offsets.ok() || !CheckBlocks(args, *offsets).ok()) return 0;
    const auto* cached = static_cast<const int64_t*>(args.inputs[kCached]);
    int64_t tokens = num_blocks_ * block_tokens_;
    for (int64_t r = 0; r < sequences_; ++r) {
      const auto at = static_cast<size_t>(r);
      const int64_t added = (*offsets)[at + 1] - (*offsets)[at];
      if (added > 0) tokens -= cached[r] + added;
    }
    return UntouchedCache(tokens, kv_heads_, head_size_ + value_size_);
  }

  Status Run(const KernelArgs& args) const override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto offsets,
                               CheckedOffsets(args, kOffsets, offsets_, tokens_));
    CHAIRLIFT_RETURN_IF_ERROR(CheckBlocks(args, offsets));
    auto* out = static_cast<float*>(args.outputs[0]);
    const int64_t out_row = heads_ * value_size_;
    std::fill(out + offsets.back() * out_row, out + tokens_ * out_row, 0.0f);
    const int64_t items = sequences_ * kv_heads_;
    const int width = std::min(args.team.width(), width_);
    const int64_t parts = std::min<int64_t>(items, width == 1 ? 1 : int64_t{8} * width);
    // Sequences that continue another one read what it writes in this call.
    const bool apart = AnyContinues(args, offsets);
    const auto for_heads = [&](bool write, bool attend) {
      args.team.For(static_cast<int>(parts), [&](int part, int worker) {
        const size_t slot = args.team.width() == 1 ? 0 : static_cast<size_t>(worker);
        std::byte* scratch = static_cast<std::byte*>(args.scratch) + slot * SlotBytes();
        for (int64_t item = items * part / parts; item < items * (part + 1) / parts; ++item) {
          const int64_t r = item / kv_heads_, kv = item % kv_heads_;
          if (write) WriteHead(args, offsets, r, kv);
          if (attend) RunHeads(args, offsets, r, kv, scratch);
        }
      });
    };
    if (apart) for_heads(true, false);
    for_heads(!apart, true);
    return absl::OkStatus();
  }

 private:
  // From this many queries on, keys and values are packed first.
  static constexpr int64_t kManyQueries = 8;

  static size_t Padded(size_t bytes) { return (bytes + 63) / 64 * 64; }
  int64_t most_keys() const { return most_blocks_ * block_tokens_; }
  size_t KeysBytes() const {
    return Padded(static_cast<size_t>(most_keys() * head_size_) * sizeof(float));
  }
  size_t ValuesBytes() const {
    return Padded(static_cast<size_t>(most_keys() * value_size_) * sizeof(float));
  }
  size_t PackedBytes() const {
    return Padded(PackedHeadBytes(most_keys(), head_size_, value_size_));
  }
  // Scratch memory of one worker. For few queries: the scratch memory of AttendPaged(). For many:
  // keys and values side by side and packed.
  size_t SlotBytes() const {
    const size_t few =
        Padded(static_cast<size_t>(PagedScratch(head_size_, value_size_)) * sizeof(float));
    if (tokens_ < kManyQueries) return few;
    return std::max(
        few, KeysBytes() + ValuesBytes() + PackedBytes() + Padded(AttendScratchBytes(head_size_)));
  }

  Status CheckBlocks(const KernelArgs& args, std::span<const int64_t> offsets) const {
    const auto* cached = static_cast<const int64_t*>(args.inputs[kCached]);
    const auto* blocks = static_cast<const int64_t*>(args.inputs[kBlocks]);
    for (int64_t r = 0; r < sequences_; ++r, blocks += most_blocks_) {
      const auto at = static_cast<size_t>(r);
      const int64_t added = offsets[at + 1] - offsets[at];
      if (added == 0) continue;
      if (cached[r] < 0 || cached[r] > most_keys() - added) {
        return InvalidArgument("sequence {} has {} tokens and {} new ones; its blocks hold {}", r,
                               cached[r], added, most_keys());
      }
      if (points_ > 0 && cached[r] + added > points_ / 2 + 1) {
        return InvalidArgument("sequence {} has {} tokens; there are biases for {}", r,
                               cached[r] + added, points_ / 2 + 1);
      }
      const int64_t used = (cached[r] + added + block_tokens_ - 1) / block_tokens_;
      for (int64_t b = 0; b < used; ++b) {
        if (blocks[b] >= 0 && blocks[b] < num_blocks_) continue;
        return InvalidArgument("block {} of sequence {} is {}; there are {}", b, r, blocks[b],
                               num_blocks_);
      }
    }
    return absl::OkStatus();
  }

  // Whether any sequence continues the one before it.
  bool AnyContinues(const KernelArgs& args, std::span<const int64_t> offsets) const {
    const auto* cached = static_cast<const int64_t*>(args.inputs[kCached]);
    const auto* blocks = static_cast<const int64_t*>(args.inputs[kBlocks]);
    for (int64_t r = 1; r < sequences_; ++r) {
      const auto at = static_cast<size_t>(r);
      const int64_t before = offsets[at] - offsets[at - 1];
      if (before == 0 || offsets[at + 1] == offsets[at]) continue;
      const int64_t written = cached[r - 1] / block_tokens_;
      const int64_t* own = blocks + r * most_blocks_;
      if (cached[r] == cached[r - 1] + before && own[written] == own[written - most_blocks_]) {
        return true;
      }
    }
    return false;
  }

  int64_t keys_block() const { return kv_heads_ * block_tokens_ * head_size_; }
  int64_t values_block() const { return kv_heads_ * block_tokens_ * value_size_; }
  // The caches are updated in place: they are inputs, and belong to the caller.
  float* KeysOf(const KernelArgs& args, int64_t kv) const {
    return static_cast<float*>(const_cast<void*>(args.inputs[kKeyCache])) +
           kv * block_tokens_ * head_size_;
  }
  float* ValuesOf(const KernelArgs& args, int64_t kv) const {
    return static_cast<float*>(const_cast<void*>(args.inputs[kValueCache])) +
           kv * block_tokens_ * value_size_;
  }

  // Writes the new tokens' rows of one key head.
  void WriteHead(const KernelArgs& args, std::span<const int64_t> offsets, int64_t r,
                 int64_t kv) const {
    const int64_t first = offsets[static_cast<size_t>(r)];
    const int64_t added = offsets[static_cast<size_t>(r) + 1] - first;
    if (added == 0) return;
    const int64_t cached = static_cast<const int64_t*>(args.inputs[kCached])[r];
    const int64_t* blocks = static_cast<const int64_t*>(args.inputs[kBlocks]) + r * most_blocks_;
    float* const keys = KeysOf(args, kv);
    float* const values = ValuesOf(args, kv);
    const auto* k = static_cast<const float*>(args.inputs[1]);
    const auto* v = static_cast<const float*>(args.inputs[2]);
    for (int64_t i = 0; i < added; ++i) {
      const int64_t place = cached + i, token = (first + i) * kv_heads_ + kv;
      const int64_t block = blocks[place / block_tokens_], row = place % block_tokens_;
      float* key = keys + block * keys_block() + row;
      for (int64_t d = 0; d < head_size_; ++d) key[d * block_tokens_] = k[token * head_size_ + d];
      std::copy_n(v + token * value_size_, value_size_,
                  values + block * values_block() + row * value_size_);
    }
  }

  // Attends with the queries of one key head.
  void RunHeads(const KernelArgs& args, std::span<const int64_t> offsets, int64_t r, int64_t kv,
                std::byte* scratch) const {
    const int64_t first = offsets[static_cast<size_t>(r)];
    const int64_t added = offsets[static_cast<size_t>(r) + 1] - first;
    if (added == 0) return;
    PagedHead head;
    head.keys_block = keys_block();
    head.values_block = values_block();
    head.queries = added;
    head.q_row = heads_ * head_size_;
    head.out_row = heads_ * value_size_;
    head.head_size = head_size_;
    head.value_size = value_size_;
    head.cached = static_cast<const int64_t*>(args.inputs[kCached])[r];
    head.blocks = static_cast<const int64_t*>(args.inputs[kBlocks]) + r * most_blocks_;
    head.block_tokens = block_tokens_;
    head.keys = KeysOf(args, kv);
    head.values = ValuesOf(args, kv);
    head.scale = scale_;
    head.softcap = softcap_;
    const int64_t shared = heads_ / kv_heads_;
    if (added >= kManyQueries) return AttendMany(args, head, first, kv * shared, shared, scratch);
    for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
      head.q = static_cast<const float*>(args.inputs[0]) + first * head.q_row + h * head_size_;
      head.out = static_cast<float*>(args.outputs[0]) + first * head.out_row + h * value_size_;
      head.bias = Bias(args, h);
      AttendPaged(head, reinterpret_cast<float*>(scratch));
    }
  }

  // A head's bias at distance 0; null if there is no bias.
  const float* Bias(const KernelArgs& args, int64_t head) const {
    if (points_ == 0) return nullptr;
    return static_cast<const float*>(args.inputs[kBias]) + head * points_ + points_ / 2;
  }

  void AttendMany(const KernelArgs& args, const PagedHead& paged, int64_t first, int64_t first_head,
                  int64_t heads, std::byte* scratch) const {
    auto* keys = reinterpret_cast<float*>(scratch);
    auto* values = reinterpret_cast<float*>(scratch + KeysBytes());
    std::byte* packed = scratch + KeysBytes() + ValuesBytes();
    AttentionHead head;
    head.queries = paged.queries;
    head.keys = paged.cached + paged.queries;
    for (int64_t at = 0; at < head.keys; at += block_tokens_) {
      const int64_t count = std::min(block_tokens_, head.keys - at);
      const int64_t block = paged.blocks[at / block_tokens_];
      const float* key = paged.keys + block * paged.keys_block;
      for (int64_t d = 0; d < head_size_; ++d) {
        std::copy_n(key + d * block_tokens_, count, keys + d * head.keys + at);
      }
      std::copy_n(paged.values + block * paged.values_block, count * value_size_,
                  values + at * value_size_);
    }
    head.head_size = head_size_;
    head.value_size = value_size_;
    head.k = keys;
    head.k_row = 1;
    head.k_column = head.keys;
    head.v = values;
    head.v_row = value_size_;
    head.q_row = paged.q_row;
    head.out_row = paged.out_row;
    head.scale = scale_;
    head.softcap = softcap_;
    head.last_seen = paged.cached;
    head.mask_row = -1;
    PackHead(head, packed);
    for (int64_t h = first_head; h < first_head + heads; ++h) {
      head.q = static_cast<const float*>(args.inputs[0]) + first * head.q_row + h * head_size_;
      head.out = static_cast<float*>(args.outputs[0]) + first * head.out_row + h * value_size_;
      if (points_ > 0) head.mask = Bias(args, h) - paged.cached;
      Attend(head, 0, head.queries, packed, packed + PackedBytes());
    }
  }

  int64_t tokens_ = 0, heads_ = 0, kv_heads_ = 0, head_size_ = 0, value_size_ = 0;
  int64_t sequences_ = 0, most_blocks_ = 0, num_blocks_ = 0, block_tokens_ = 0;
  int64_t points_ = 0;  // of the bias
  float scale_ = 1.0f, softcap_ = 0.0f;
  TensorDesc offsets_;
  int width_ = 1;
};

}  // namespace

void RegisterPagedAttention(OperatorRegistry& registry) {
  constexpr TypeSet kFloats = TypeSet{DType::kFloat};
  constexpr TypeSet kIntegers = TypeSet{DType::kInt64};
  registry.Add({.domain = "chairlift",
                .name = "PagedAttention",
                .min_inputs = 8,
                .max_inputs = 9,
                .input_types = {kFloats, kFloats, kFloats, kIntegers, kIntegers, kIntegers, kFloats,
                                kFloats, kFloats},
                .infer = InferPaged,
                .compile = PagedAttention::Compile,
                // It writes its caches.
                .deterministic = false});
}

}  // namespace chairlift
