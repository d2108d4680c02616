// Finds the blocks that hold the beginning of a sequence: chains of whole blocks, by their tokens.
//
// A link is the tokens of one block following those of the links before it. Tokens are compared,
// not only their hashes, so no request gets another's keys and values.
#ifndef CHAIRLIFT_RUNTIME_PREFIX_INDEX_H_
#define CHAIRLIFT_RUNTIME_PREFIX_INDEX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace chairlift {

// Not thread-safe.
class PrefixIndex {
 public:
  // Links have numbers that are never reused. kNone: the link of no tokens.
  using Link = uint64_t;
  static constexpr Link kNone = 0;

  explicit PrefixIndex(int64_t blocks) : of_block_(static_cast<size_t>(blocks)) {}

  struct Found {
    Link link = kNone;
    int64_t block = -1;
  };
  // The link of the tokens of one block following `before`; kNone if there is no such link.
  Found Find(Link before, std::span<const int64_t> tokens) const;
  // Neither the link nor a link of the block may exist.
  Link Add(Link before, std::span<const int64_t> tokens, int64_t block);
  bool has(int64_t block) const { return of_block_[static_cast<size_t>(block)] != nullptr; }
  // The block is about to hold other tokens. Links that follow its own are no longer found.
  void Forget(int64_t block);

 private:
  using Key = std::pair<Link, std::vector<int64_t>>;

  absl::flat_hash_map<Key, Found> links_;
  std::vector<std::unique_ptr<const Key>> of_block_;  // null: it has no link
  Link last_ = kNone;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PREFIX_INDEX_H_
