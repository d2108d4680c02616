// Blocks of memory by number, and the sequences that hold them: what paged keys and values are
// handed out by. Sequences that begin alike may share blocks, each until it writes (as in Kwon et
// al., "Efficient memory management for large language model serving with PagedAttention", SOSP
// 2023, §4.4). No memory is here.
//
// Blocks that nobody holds any more keep the tokens that they were published with, until room is
// needed, the longest unused first: a sequence that begins as others did reuses them, and theirs.
#ifndef CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
#define CHAIRLIFT_RUNTIME_BLOCK_POOL_H_

#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/prefix_index.h"

namespace chairlift {

// Thread-safe. Outlives its sequences.
class BlockPool {
 public:
  // `block_tokens` ≥ 1: tokens to a block.
  BlockPool(int64_t blocks, int64_t block_tokens);

  int64_t blocks() const { return blocks_; }
  int64_t block_tokens() const { return block_tokens_; }
  // Of so many tokens.
  int64_t BlocksOf(int64_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }

  // Blocks that several sequences share, and the tokens in them, count once.
  struct Use {
    int64_t blocks = 0;       // held
    int64_t tokens = 0;       // in them
    int64_t most_blocks = 0;  // that have been held at once
    int64_t kept = 0;         // blocks that nobody holds, to be reused
    int64_t reused = 0;       // tokens that were, in all
  };
  Use use() const;

  // The first `tokens` tokens of block `from` must be copied to `to`, before either is written.
  struct Copy {
    int64_t from = 0, to = 0;
    int64_t tokens = 0;
  };

  // The tokens of one sequence, in blocks. Used by one thread at a time, together with those that
  // share its blocks; gives them back at its end.
  class Sequence {
   public:
    explicit Sequence(BlockPool& pool) : pool_(&pool) {}
    ~Sequence() { Clear(); }
    Sequence(Sequence&& other) noexcept;
    Sequence& operator=(Sequence&& other) noexcept;

    int64_t tokens() const { return tokens_; }
    std::span<const int64_t> blocks() const { return blocks_; }
    // Room for so many tokens, no fewer than it has, behind those in blocks that nobody else holds:
    // where the last one that it has is to be filled further and is shared, it gets another in its
    // place, and `copies` one more. False, and nothing has changed, where there are too few free
    // blocks.
    [[nodiscard]] bool Grow(int64_t tokens, std::vector<Copy>& copies);
    // Of one that shares no block.
    [[nodiscard]] bool Grow(int64_t tokens);
    // Takes the blocks in which other sequences were published that begin with these tokens; to be
    // called while it has none. Only whole blocks, and never all of the tokens. Returns how many
    // tokens it has then.
    int64_t Reuse(std::span<const int64_t> tokens);
    // Its first tokens are these, as many of them as it has at most, and what belongs to them is in
    // its blocks: others that begin so may reuse the blocks that they fill. `tokens` must go on as
    // they began in earlier calls.
    void Publish(std::span<const int64_t> tokens);
    // Another with the same tokens, in the same blocks.
    Sequence Share() const;
    // Gives all blocks back.
    void Clear();

   private:
    BlockPool* pool_;
    std::vector<int64_t> blocks_;
    int64_t tokens_ = 0;
    // Of its first blocks, how many have been published, and the last one's link.
    size_t published_ = 0;
    PrefixIndex::Link link_ = PrefixIndex::kNone;
  };

 private:
  // All under mutex_:
  int64_t available() const { return static_cast<int64_t>(free_.size() + kept_.size()); }
  int64_t Take();
  // One more holder of a block that was published.
  void Hold(int64_t block);
  // One fewer; whether it was the last.
  bool Drop(int64_t block);

  const int64_t blocks_;
  const int64_t block_tokens_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<int64_t> free_;     // the last given back is the first to be taken
  std::vector<int32_t> holders_;  // by block
  PrefixIndex prefixes_;
  // Published, without holders, in the order in which they were left; and all others.
  std::list<int64_t> kept_, not_kept_;
  std::vector<std::list<int64_t>::iterator> place_;  // by block: in either
  Use use_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
