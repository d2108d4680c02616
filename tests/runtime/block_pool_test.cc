#include "runtime/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace chairlift {
namespace {

TEST(BlockPoolTest, ASequenceHoldsAsManyBlocksAsItsTokensNeed) {
  BlockPool pool(4, 3);
  BlockPool::Sequence sequence(pool);
  EXPECT_TRUE(sequence.Grow(0));
  EXPECT_TRUE(sequence.blocks().empty());
  EXPECT_TRUE(sequence.Grow(3));
  EXPECT_EQ(sequence.blocks().size(), 1u);
  const int64_t first = sequence.blocks()[0];
  EXPECT_TRUE(sequence.Grow(4));
  EXPECT_EQ(sequence.blocks().size(), 2u);
  EXPECT_EQ(sequence.blocks()[0], first);
  EXPECT_FALSE(sequence.Grow(13));
  EXPECT_EQ(sequence.tokens(), 4);
  EXPECT_TRUE(sequence.Grow(12));
  EXPECT_EQ(pool.use().blocks, 4);
  EXPECT_EQ(pool.use().tokens, 12);
}

TEST(BlockPoolTest, BlocksComeBackWithTheSequence) {
  BlockPool pool(2, 8);
  {
    BlockPool::Sequence sequence(pool);
    ASSERT_TRUE(sequence.Grow(16));
    BlockPool::Sequence other(pool);
    EXPECT_FALSE(other.Grow(1));
    sequence.Clear();
    EXPECT_TRUE(other.Grow(1));
  }
  EXPECT_EQ(pool.use().blocks, 0);
  EXPECT_EQ(pool.use().most_blocks, 2);
}

// Against a map from sequences to tokens.
TEST(BlockPoolTest, RandomSchedulesHandEachBlockToOneSequence) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const int64_t blocks = 1 + random() % 40, block_tokens = 1 + random() % 9;
    BlockPool pool(blocks, block_tokens);
    struct Live {
      std::unique_ptr<BlockPool::Sequence> sequence;
      int64_t tokens = 0;
    };
    std::map<int, Live> live;
    int next = 0, refused = 0;
    for (int event = 0; event < 2000; ++event) {
      const auto needed = [&](int64_t tokens) {
        return (tokens + block_tokens - 1) / block_tokens;
      };
      int64_t held = 0, tokens = 0;
      for (const auto& [id, entry] : live) {
        held += needed(entry.tokens);
        tokens += entry.tokens;
      }
      ASSERT_EQ(pool.use().blocks, held);
      ASSERT_EQ(pool.use().tokens, tokens);
      const unsigned choice = random() % 10;
      if (live.empty() || choice == 0) {
        live[next++] = {std::make_unique<BlockPool::Sequence>(pool), 0};
        continue;
      }
      auto at = live.begin();
      std::advance(at, random() % live.size());
      if (choice == 1) {
        live.erase(at);
        continue;
      }
      if (choice == 2) {
        at->second.sequence->Clear();
        at->second.tokens = 0;
        continue;
      }
      const int64_t to = at->second.tokens + random() % (2 * block_tokens + 1);
      const bool fits = held - needed(at->second.tokens) + needed(to) <= blocks;
      const std::vector<int64_t> before(at->second.sequence->blocks().begin(),
                                        at->second.sequence->blocks().end());
      ASSERT_EQ(at->second.sequence->Grow(to), fits);
      refused += fits ? 0 : 1;
      if (fits) at->second.tokens = to;
      ASSERT_TRUE(std::equal(before.begin(), before.end(), at->second.sequence->blocks().begin()));
      std::set<int64_t> all;
      for (const auto& [id, entry] : live) {
        ASSERT_EQ(static_cast<int64_t>(entry.sequence->blocks().size()), needed(entry.tokens));
        for (const int64_t block : entry.sequence->blocks()) {
          ASSERT_TRUE(block >= 0 && block < blocks && all.insert(block).second);
        }
      }
    }
    EXPECT_GT(refused, 0);
  }
}

}  // namespace
}  // namespace chairlift
