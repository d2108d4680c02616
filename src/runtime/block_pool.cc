#include "runtime/block_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {

BlockPool::BlockPool(int64_t blocks, int64_t block_tokens)
    : blocks_(blocks), block_tokens_(block_tokens), holders_(static_cast<size_t>(blocks)) {
  assert(blocks >= 0 && block_tokens > 0);
  free_.reserve(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(block);
}

BlockPool::Use BlockPool::use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return use_;
}

BlockPool::Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      tokens_(std::exchange(other.tokens_, 0)) {}

BlockPool::Sequence& BlockPool::Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  return *this;
}

bool BlockPool::Sequence::Grow(int64_t tokens, std::vector<Copy>& copies) {
  assert(tokens >= tokens_);
  const int64_t more = pool_->BlocksOf(tokens) - static_cast<int64_t>(blocks_.size());
  const int64_t filled = tokens_ % pool_->block_tokens_;  // of the last block; 0: all of it
  blocks_.reserve(static_cast<size_t>(pool_->BlocksOf(tokens)));
  copies.reserve(copies.size() + 1);
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  std::vector<int64_t>& free = pool_->free_;
  const bool copied =
      tokens > tokens_ && filled > 0 && pool_->holders_[static_cast<size_t>(blocks_.back())] > 1;
  if (more + (copied ? 1 : 0) > static_cast<int64_t>(free.size())) return false;
  const auto take = [&] {
    const int64_t block = free.back();
    free.pop_back();
    pool_->holders_[static_cast<size_t>(block)] = 1;
    return block;
  };
  Use& use = pool_->use_;
  if (copied) {
    --pool_->holders_[static_cast<size_t>(blocks_.back())];
    copies.push_back({.from = blocks_.back(), .to = take(), .tokens = filled});
    blocks_.back() = copies.back().to;
    ++use.blocks;
    use.tokens += filled;
  }
  for (int64_t i = 0; i < more; ++i) blocks_.push_back(take());
  use.blocks += more;
  use.tokens += tokens - tokens_;
  use.most_blocks = std::max(use.most_blocks, use.blocks);
  tokens_ = tokens;
  return true;
}

bool BlockPool::Sequence::Grow(int64_t tokens) {
  std::vector<Copy> copies;
  const bool grown = Grow(tokens, copies);
  assert(copies.empty());
  return grown;
}

BlockPool::Sequence BlockPool::Sequence::Share() const {
  Sequence other(*pool_);
  other.blocks_ = blocks_;
  other.tokens_ = tokens_;
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  for (const int64_t block : blocks_) ++pool_->holders_[static_cast<size_t>(block)];
  return other;
}

void BlockPool::Sequence::Clear() {
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  int64_t end = static_cast<int64_t>(blocks_.size()) * pool_->block_tokens_;
  for (; !blocks_.empty(); blocks_.pop_back()) {
    end -= pool_->block_tokens_;
    const int64_t block = blocks_.back();
    if (--pool_->holders_[static_cast<size_t>(block)] > 0) continue;
    pool_->free_.push_back(block);
    --pool_->use_.blocks;
    pool_->use_.tokens -= std::min(tokens_ - end, pool_->block_tokens_);
  }
  tokens_ = 0;
}

}  // namespace chairlift
