#include "runtime/prefix_index.h"

#include <cassert>

namespace chairlift {

PrefixIndex::Found PrefixIndex::Find(Link before, std::span<const int64_t> tokens) const {
  const auto found = links_.find(Key(before, {tokens.begin(), tokens.end()}));
  return found == links_.end() ? Found() : found->second;
}

PrefixIndex::Link PrefixIndex::Add(Link before, std::span<const int64_t> tokens, int64_t block) {
  auto key =
      std::make_unique<const Key>(before, std::vector<int64_t>(tokens.begin(), tokens.end()));
  const bool added = links_.try_emplace(*key, Found{last_ + 1, block}).second;
  assert(added && !has(block));
  (void)added;
  of_block_[static_cast<size_t>(block)] = std::move(key);
  return ++last_;
}

void PrefixIndex::Forget(int64_t block) {
  std::unique_ptr<const Key>& key = of_block_[static_cast<size_t>(block)];
  if (key == nullptr) return;
  links_.erase(*key);
  key.reset();
}

}  // namespace chairlift
