// Blocks of memory by number, and the sequences that hold them: what paged keys and values are
// handed out by. Sequences that begin alike may share blocks, each until it writes (as in Kwon et
// al., "Efficient memory management for large language model serving with PagedAttention", SOSP
// 2023, §4.4). No memory is here.
#ifndef CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
#define CHAIRLIFT_RUNTIME_BLOCK_POOL_H_

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

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
    // Another with the same tokens, in the same blocks.
    Sequence Share() const;
    // Gives all blocks back.
    void Clear();

   private:
    BlockPool* pool_;
    std::vector<int64_t> blocks_;
    int64_t tokens_ = 0;
  };

 private:
  const int64_t blocks_;
  const int64_t block_tokens_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<int64_t> free_;     // the last given back is the first to be taken
  std::vector<int32_t> holders_;  // by block
  Use use_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
