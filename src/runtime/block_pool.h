// Numbered blocks of memory and the sequences that hold them: the allocator for paged keys and
// values. Sequences with the same beginning may share blocks until one of them writes (Kwon et al.,
// "Efficient memory management for large language model serving with PagedAttention", SOSP 2023,
// §4.4). This class manages numbers only, no memory.
//
// Blocks without a holder keep their published tokens until the room is needed; the least recently
// used are taken first. A new sequence with the same beginning reuses such blocks.
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
  // `block_tokens` ≥ 1: tokens per block.
  BlockPool(int64_t blocks, int64_t block_tokens);

  int64_t blocks() const { return blocks_; }
  int64_t block_tokens() const { return block_tokens_; }
  // Blocks for `tokens` tokens.
  int64_t BlocksOf(int64_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }

  // Blocks that several sequences share count once; so do their tokens.
  struct Use {
    int64_t blocks = 0;       // held
    int64_t tokens = 0;       // in them
    int64_t most_blocks = 0;  // maximum held at the same time
    int64_t kept = 0;         // blocks without a holder that can be reused
    int64_t reused = 0;       // total tokens reused
  };
  Use use() const;

  // The first `tokens` tokens of block `from` must be copied to `to`, before either is written.
  struct Copy {
    int64_t from = 0, to = 0;
    int64_t tokens = 0;
  };

  // The blocks of one sequence. Used by one thread at a time, together with the sequences that
  // share its blocks. The destructor returns the blocks.
  class Sequence {
   public:
    explicit Sequence(BlockPool& pool) : pool_(&pool) {}
    ~Sequence() { Clear(); }
    Sequence(Sequence&& other) noexcept;
    Sequence& operator=(Sequence&& other) noexcept;

    int64_t tokens() const { return tokens_; }
    std::span<const int64_t> blocks() const { return blocks_; }
    // Makes room for `tokens` tokens, at least as many as it has now. Appended tokens go to blocks
    // that no other sequence holds: if the last block is partly filled and shared, the sequence
    // gets a new block in its place and `copies` gets an entry. If there are too few free blocks,
    // returns false and changes nothing.
    [[nodiscard]] bool Grow(int64_t tokens, std::vector<Copy>& copies);
    // For a sequence that shares no block.
    [[nodiscard]] bool Grow(int64_t tokens);
    // Takes the blocks of published sequences that begin with these tokens. Call it while the
    // sequence has no tokens. It takes whole blocks only, and never all of the tokens. Returns the
    // number of tokens that the sequence then has.
    int64_t Reuse(std::span<const int64_t> tokens);
    // Declares that its first tokens are `tokens`, at most as many as it has, and that their keys
    // and values are in its blocks. Other sequences with this beginning may then reuse the full
    // blocks. `tokens` must start with the tokens of earlier calls.
    void Publish(std::span<const int64_t> tokens);
    // Returns another sequence with the same tokens in the same blocks.
    Sequence Share() const;
    // Gives all blocks back.
    void Clear();

   private:
    BlockPool* pool_;
    std::vector<int64_t> blocks_;
    int64_t tokens_ = 0;
    // How many of its first blocks have been published, and the link of the last one.
    size_t published_ = 0;
    PrefixIndex::Link link_ = PrefixIndex::kNone;
  };

 private:
  // All under mutex_:
  int64_t available() const { return static_cast<int64_t>(free_.size() + kept_.size()); }
  int64_t Take();
  // Adds a holder to a published block.
  void Hold(int64_t block);
  // Removes a holder. Returns whether it was the last.
  bool Drop(int64_t block);

  const int64_t blocks_;
  const int64_t block_tokens_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<int64_t> free_;     // stack: the last returned is the first taken
  std::vector<int32_t> holders_;  // by block
  PrefixIndex prefixes_;
  // Published blocks without holders, in the order in which they were released; and all other
  // blocks.
  std::list<int64_t> kept_, not_kept_;
  std::vector<std::list<int64_t>::iterator> place_;  // by block: its position in either list
  Use use_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
