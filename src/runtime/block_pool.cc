#include "runtime/block_pool.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

BlockPool::BlockPool(int64_t blocks, int64_t block_tokens)
    : blocks_(blocks), block_tokens_(block_tokens) {
  assert(blocks >= 0 && block_tokens > 0);
  free_.reserve(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) free_.push_back(block);
}

BlockPool::Use BlockPool::use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return use_;
}

bool BlockPool::Sequence::Grow(int64_t tokens) {
  assert(tokens >= tokens_);
  const auto more = pool_.BlocksOf(tokens) - static_cast<int64_t>(blocks_.size());
  const std::lock_guard<std::mutex> lock(pool_.mutex_);
  std::vector<int64_t>& free = pool_.free_;
  if (more > static_cast<int64_t>(free.size())) return false;
  for (int64_t i = 0; i < more; ++i) {
    blocks_.push_back(free.back());
    free.pop_back();
  }
  Use& use = pool_.use_;
  use.blocks += more;
  use.tokens += tokens - tokens_;
  use.most_blocks = std::max(use.most_blocks, use.blocks);
  tokens_ = tokens;
  return true;
}

void BlockPool::Sequence::Clear() {
  const std::lock_guard<std::mutex> lock(pool_.mutex_);
  pool_.free_.insert(pool_.free_.end(), blocks_.rbegin(), blocks_.rend());
  pool_.use_.blocks -= static_cast<int64_t>(blocks_.size());
  pool_.use_.tokens -= tokens_;
  blocks_.clear();
  tokens_ = 0;
}

}  // namespace chairlift
