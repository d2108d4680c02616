#include "runtime/block_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {

BlockPool::BlockPool(int64_t blocks, int64_t block_tokens)
    : blocks_(blocks),
      block_tokens_(block_tokens),
      holders_(static_cast<size_t>(blocks)),
      prefixes_(blocks),
      place_(static_cast<size_t>(blocks)) {
  assert(blocks >= 0 && block_tokens > 0);
  free_.reserve(static_cast<size_t>(blocks));
  for (int64_t block = blocks; block-- > 0;) {
    free_.push_back(block);
    place_[static_cast<size_t>(block)] = not_kept_.insert(not_kept_.end(), block);
  }
}

BlockPool::Use BlockPool::use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Use use = use_;
  use.kept = static_cast<int64_t>(kept_.size());
  return use;
}

int64_t BlockPool::Take() {
  int64_t block = 0;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = kept_.front();
    not_kept_.splice(not_kept_.end(), kept_, kept_.begin());
    prefixes_.Forget(block);
  }
  holders_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockPool::Hold(int64_t block) {
  const auto at = static_cast<size_t>(block);
  if (holders_[at]++ > 0) return;
  not_kept_.splice(not_kept_.end(), kept_, place_[at]);
  ++use_.blocks;
  use_.tokens += block_tokens_;
  use_.most_blocks = std::max(use_.most_blocks, use_.blocks);
}

bool BlockPool::Drop(int64_t block) {
  const auto at = static_cast<size_t>(block);
  if (--holders_[at] > 0) return false;
  if (prefixes_.has(block)) {
    kept_.splice(kept_.end(), not_kept_, place_[at]);
  } else {
    free_.push_back(block);
  }
  --use_.blocks;
  return true;
}

BlockPool::Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      tokens_(std::exchange(other.tokens_, 0)),
      published_(std::exchange(other.published_, 0)),
      link_(std::exchange(other.link_, PrefixIndex::kNone)) {}

BlockPool::Sequence& BlockPool::Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  Clear();
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  tokens_ = std::exchange(other.tokens_, 0);
  published_ = std::exchange(other.published_, 0);
  link_ = std::exchange(other.link_, PrefixIndex::kNone);
  return *this;
}

bool BlockPool::Sequence::Grow(int64_t tokens, std::vector<Copy>& copies) {
  assert(tokens >= tokens_);
  const int64_t more = pool_->BlocksOf(tokens) - static_cast<int64_t>(blocks_.size());
  const int64_t filled = tokens_ % pool_->block_tokens_;  // of the last block; 0: the block is full
  blocks_.reserve(static_cast<size_t>(pool_->BlocksOf(tokens)));
  copies.reserve(copies.size() + 1);
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  const bool copied =
      tokens > tokens_ && filled > 0 && pool_->holders_[static_cast<size_t>(blocks_.back())] > 1;
  if (more + (copied ? 1 : 0) > pool_->available()) return false;
  Use& use = pool_->use_;
  if (copied) {
    --pool_->holders_[static_cast<size_t>(blocks_.back())];
    copies.push_back({.from = blocks_.back(), .to = pool_->Take(), .tokens = filled});
    blocks_.back() = copies.back().to;
    ++use.blocks;
    use.tokens += filled;
  }
  for (int64_t i = 0; i < more; ++i) blocks_.push_back(pool_->Take());
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

int64_t BlockPool::Sequence::Reuse(std::span<const int64_t> tokens) {
  assert(blocks_.empty());
  const auto each = static_cast<size_t>(pool_->block_tokens_);
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  for (size_t end = each; end < tokens.size(); end += each) {
    const PrefixIndex::Found found = pool_->prefixes_.Find(link_, tokens.subspan(end - each, each));
    if (found.link == PrefixIndex::kNone) break;
    blocks_.push_back(found.block);
    pool_->Hold(found.block);
    link_ = found.link;
    ++published_;
    tokens_ += pool_->block_tokens_;
  }
  pool_->use_.reused += tokens_;
  return tokens_;
}

void BlockPool::Sequence::Publish(std::span<const int64_t> tokens) {
  const auto each = static_cast<size_t>(pool_->block_tokens_);
  const size_t whole = std::min(tokens.size(), static_cast<size_t>(tokens_)) / each;
  if (published_ >= whole) return;
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  for (; published_ < whole; ++published_) {
    const auto own = tokens.subspan(published_ * each, each);
    PrefixIndex::Found found = pool_->prefixes_.Find(link_, own);
    // If another sequence has already published the same tokens, later requests reuse its blocks.
    if (found.link == PrefixIndex::kNone) {
      found.link = pool_->prefixes_.Add(link_, own, blocks_[published_]);
    }
    link_ = found.link;
  }
}

BlockPool::Sequence BlockPool::Sequence::Share() const {
  Sequence other(*pool_);
  other.blocks_ = blocks_;
  other.tokens_ = tokens_;
  other.published_ = published_;
  other.link_ = link_;
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  for (const int64_t block : blocks_) ++pool_->holders_[static_cast<size_t>(block)];
  return other;
}

void BlockPool::Sequence::Clear() {
  const std::lock_guard<std::mutex> lock(pool_->mutex_);
  int64_t end = static_cast<int64_t>(blocks_.size()) * pool_->block_tokens_;
  for (; !blocks_.empty(); blocks_.pop_back()) {
    end -= pool_->block_tokens_;
    if (!pool_->Drop(blocks_.back())) continue;
    pool_->use_.tokens -= std::min(tokens_ - end, pool_->block_tokens_);
  }
  tokens_ = 0;
  published_ = 0;
  link_ = PrefixIndex::kNone;
}

}  // namespace chairlift
