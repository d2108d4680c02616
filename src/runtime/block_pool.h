// Blocks of memory by number, and the sequences that hold them: what paged keys and values are
// handed out by. No memory is here.
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

  struct Use {
    int64_t blocks = 0;       // held
    int64_t tokens = 0;       // in them
    int64_t most_blocks = 0;  // that have been held at once
  };
  Use use() const;

  // The tokens of one sequence, in blocks that nobody else holds. Used by one thread at a time;
  // gives its blocks back at its end.
  class Sequence {
   public:
    explicit Sequence(BlockPool& pool) : pool_(pool) {}
    ~Sequence() { Clear(); }
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    int64_t tokens() const { return tokens_; }
    std::span<const int64_t> blocks() const { return blocks_; }
    // Room for so many tokens, no fewer than it has. False, and nothing has changed, where there
    // are too few free blocks.
    [[nodiscard]] bool Grow(int64_t tokens);
    // Gives all blocks back.
    void Clear();

   private:
    BlockPool& pool_;
    std::vector<int64_t> blocks_;
    int64_t tokens_ = 0;
  };

 private:
  const int64_t blocks_;
  const int64_t block_tokens_;
  mutable std::mutex mutex_;
  std::vector<int64_t> free_;  // the last given back is the first to be taken: guarded by mutex_
  Use use_;                    // likewise
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_BLOCK_POOL_H_
