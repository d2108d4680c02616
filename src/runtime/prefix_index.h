// Which blocks hold the beginnings of which sequences: chains of whole blocks by their tokens.
//
// A link is the tokens of one block behind those of the links before it. Tokens are compared, not
// their hashes alone: nobody is given another's keys and values.
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
  // Numbers links, never again the same one. kNone: of no tokens.
  using Link = uint64_t;
  static constexpr Link kNone = 0;

  explicit PrefixIndex(int64_t blocks) : of_block_(static_cast<size_t>(blocks)) {}

  struct Found {
    Link link = kNone;
    int64_t block = -1;
  };
  // The link of these tokens, of one block, behind `before`; kNone where there is none.
  Found Find(Link before, std::span<const int64_t> tokens) const;
  // There must be none, and the block must have none.
  Link Add(Link before, std::span<const int64_t> tokens, int64_t block);
  bool has(int64_t block) const { return of_block_[static_cast<size_t>(block)] != nullptr; }
  // The block is to hold other tokens. Links behind its own are found no more.
  void Forget(int64_t block);

 private:
  using Key = std::pair<Link, std::vector<int64_t>>;

  absl::flat_hash_map<Key, Found> links_;
  std::vector<std::unique_ptr<const Key>> of_block_;  // null: it has no link
  Link last_ = kNone;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_PREFIX_INDEX_H_
