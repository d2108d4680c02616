#include "runtime/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

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

TEST(BlockPoolTest, ASharedBlockIsCopiedByAllButTheLastWhoWrite) {
  BlockPool pool(4, 4);
  BlockPool::Sequence first(pool);
  ASSERT_TRUE(first.Grow(6));
  BlockPool::Sequence second = first.Share();
  EXPECT_EQ(pool.use().blocks, 2);
  EXPECT_EQ(pool.use().tokens, 6);
  std::vector<BlockPool::Copy> copies;
  ASSERT_TRUE(second.Grow(7, copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, first.blocks()[1]);
  EXPECT_EQ(copies[0].to, second.blocks()[1]);
  EXPECT_EQ(copies[0].tokens, 2);
  EXPECT_EQ(first.blocks()[0], second.blocks()[0]);
  EXPECT_EQ(pool.use().blocks, 3);
  EXPECT_EQ(pool.use().tokens, 9);
  ASSERT_TRUE(first.Grow(7, copies));  // it has the other one to itself
  EXPECT_EQ(copies.size(), 1u);
  first.Clear();
  EXPECT_EQ(pool.use().blocks, 2);
  EXPECT_EQ(pool.use().tokens, 7);
}

// Every sequence's tokens are written into a model of the memory as they are added, after the
// copies that were asked for: each goes on reading its own. Groups grow as beams do.
TEST(BlockPoolTest, RandomSequencesThatShareBlocksReadTheirOwnTokens) {
  int copied = 0, refused = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const int64_t blocks = 4 + random() % 40, block_tokens = 1 + random() % 6;
    BlockPool pool(blocks, block_tokens);
    std::vector<std::vector<int64_t>> memory(
        static_cast<size_t>(blocks), std::vector<int64_t>(static_cast<size_t>(block_tokens), -1));
    struct Live {
      BlockPool::Sequence sequence;
      std::vector<int64_t> tokens;
    };
    std::vector<Live> live;
    int64_t next = 0;
    for (int event = 0; event < 1500; ++event) {
      const unsigned choice = random() % 8;
      if (live.empty() || choice == 0) {
        live.push_back({BlockPool::Sequence(pool), {}});
      } else if (choice <= 2) {
        live.erase(live.begin() + random() % live.size());
      } else if (choice == 3) {
        const Live& from = live[random() % live.size()];
        live.push_back({from.sequence.Share(), from.tokens});
      } else {
        Live& one = live[random() % live.size()];
        const auto size = static_cast<int64_t>(one.tokens.size());
        const int64_t to = size + random() % (block_tokens + 1);
        std::vector<BlockPool::Copy> copies;
        const std::vector<int64_t> before(one.sequence.blocks().begin(),
                                          one.sequence.blocks().end());
        if (!one.sequence.Grow(to, copies)) {
          ++refused;
          ASSERT_TRUE(copies.empty());
          ASSERT_TRUE(std::equal(before.begin(), before.end(), one.sequence.blocks().begin(),
                                 one.sequence.blocks().end()));
          continue;
        }
        copied += static_cast<int>(copies.size());
        for (const BlockPool::Copy& copy : copies) {
          std::copy_n(memory[static_cast<size_t>(copy.from)].begin(), copy.tokens,
                      memory[static_cast<size_t>(copy.to)].begin());
        }
        for (int64_t at = size; at < to; ++at) {
          one.tokens.push_back(next);
          memory[static_cast<size_t>(one.sequence.blocks()[at / block_tokens])]
                [static_cast<size_t>(at % block_tokens)] = next++;
        }
      }
      std::map<int64_t, int64_t> held;  // by block: tokens
      for (const Live& one : live) {
        const auto size = static_cast<int64_t>(one.tokens.size());
        ASSERT_EQ(one.sequence.tokens(), size);
        ASSERT_EQ(static_cast<int64_t>(one.sequence.blocks().size()), pool.BlocksOf(size));
        for (int64_t at = 0; at < size; ++at) {
          const int64_t block = one.sequence.blocks()[at / block_tokens];
          ASSERT_EQ(memory[static_cast<size_t>(block)][static_cast<size_t>(at % block_tokens)],
                    one.tokens[static_cast<size_t>(at)]);
          held[block] = std::max(held[block], at % block_tokens + 1);
        }
      }
      int64_t tokens = 0;
      for (const auto& [block, count] : held) tokens += count;
      ASSERT_EQ(pool.use().blocks, static_cast<int64_t>(held.size()));
      ASSERT_EQ(pool.use().tokens, tokens);
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(copied, 500);
}

std::vector<int64_t> Counted(int64_t from, int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

TEST(BlockPoolTest, PublishedBlocksAreReusedByWhoBeginsAlike) {
  BlockPool pool(6, 4);
  BlockPool::Sequence first(pool);
  const std::vector<int64_t> prompt = Counted(1, 10);
  EXPECT_EQ(first.Reuse(prompt), 0);
  ASSERT_TRUE(first.Grow(10));
  first.Publish(prompt);
  BlockPool::Sequence second(pool);
  EXPECT_EQ(second.Reuse(prompt), 8);  // whole blocks
  EXPECT_EQ(second.tokens(), 8);
  EXPECT_EQ(second.blocks()[1], first.blocks()[1]);
  EXPECT_EQ(pool.use().blocks, 3);
  EXPECT_EQ(pool.use().tokens, 10);
  ASSERT_TRUE(second.Grow(9));  // behind the shared ones, in a block of its own
  EXPECT_NE(second.blocks()[2], first.blocks()[2]);
  BlockPool::Sequence third(pool);
  EXPECT_EQ(third.Reuse(std::span(prompt).first(8)), 4);  // one token at the least is computed
  std::vector<int64_t> other = prompt;
  other[1] = 0;
  BlockPool::Sequence fourth(pool);
  EXPECT_EQ(fourth.Reuse(other), 0);
  other = prompt;
  other[5] = 0;
  EXPECT_EQ(fourth.Reuse(other), 4);
  EXPECT_EQ(pool.use().reused, 16);
}

TEST(BlockPoolTest, WhatNobodyHoldsIsKeptUntilThereIsNoOtherRoomTheLongestUnusedFirst) {
  BlockPool pool(4, 2);
  const auto leave = [&](const std::vector<int64_t>& prompt) {
    BlockPool::Sequence sequence(pool);
    sequence.Reuse(prompt);
    ASSERT_TRUE(sequence.Grow(static_cast<int64_t>(prompt.size())));
    sequence.Publish(prompt);
  };
  const auto kept = [&](const std::vector<int64_t>& prompt) {
    return BlockPool::Sequence(pool).Reuse(prompt);
  };
  leave({1, 2, 3, 4});
  leave({5, 6});
  EXPECT_EQ(pool.use().blocks, 0);
  EXPECT_EQ(pool.use().kept, 3);
  EXPECT_EQ(kept({1, 2, 3, 4, 0}), 4);  // used: 5 6 is the longest unused one now
  BlockPool::Sequence filling(pool);
  ASSERT_TRUE(filling.Grow(3));  // the one that was free, and another
  EXPECT_EQ(kept({5, 6, 0}), 0);
  EXPECT_EQ(kept({1, 2, 3, 4, 0}), 4);
  ASSERT_TRUE(filling.Grow(5));  // of a chain the end goes first
  EXPECT_EQ(kept({1, 2, 3, 4, 0}), 2);
  ASSERT_TRUE(filling.Grow(8));
  EXPECT_EQ(kept({1, 2, 3, 4, 0}), 0);
  EXPECT_FALSE(filling.Grow(9));
}

// As above, of prompts that begin alike: what is in memory at a token stands for it and all before.
TEST(BlockPoolTest, RandomPromptsReuseWhatTheyWouldCompute) {
  int reused = 0, shared = 0, evicted = 0, refused = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const int64_t blocks = 4 + random() % 30, block_tokens = 1 + random() % 5;
    BlockPool pool(blocks, block_tokens);
    std::vector<std::vector<int64_t>> memory(
        static_cast<size_t>(blocks), std::vector<int64_t>(static_cast<size_t>(block_tokens), -1));
    std::map<std::vector<int64_t>, int64_t> numbers;  // of sequences of tokens
    const auto number = [&](const std::vector<int64_t>& tokens, int64_t count) {
      return numbers
          .try_emplace({tokens.begin(), tokens.begin() + count},
                       static_cast<int64_t>(numbers.size()))
          .first->second;
    };
    struct Live {
      BlockPool::Sequence sequence;
      std::vector<int64_t> tokens;  // all that it is to have
    };
    std::vector<Live> live;
    for (int event = 0; event < 1500; ++event) {
      const unsigned choice = random() % 10;
      const int64_t before = pool.use().kept;
      if (live.empty() || choice <= 1) {
        std::vector<int64_t> tokens;
        const unsigned alike = random() % 3;
        for (unsigned i = 0; i < 1 + random() % 14; ++i) {
          tokens.push_back(i < 8 ? alike : random() % 2);
        }
        live.push_back({BlockPool::Sequence(pool), tokens});
        const int64_t had = live.back().sequence.Reuse(tokens);
        ASSERT_EQ(had % block_tokens, 0);
        ASSERT_LT(had, static_cast<int64_t>(tokens.size()));
        reused += had > 0 ? 1 : 0;
      } else if (choice <= 4) {
        live.erase(live.begin() + random() % live.size());
      } else if (choice == 5) {
        Live& from = live[random() % live.size()];
        live.push_back({from.sequence.Share(), from.tokens});
      } else {
        Live& one = live[random() % live.size()];
        const int64_t size = one.sequence.tokens();
        const int64_t to = std::min<int64_t>(size + random() % (block_tokens + 2),
                                             static_cast<int64_t>(one.tokens.size()));
        std::vector<BlockPool::Copy> copies;
        const int64_t more = pool.BlocksOf(to) - pool.BlocksOf(size);
        const int64_t room = blocks - pool.use().blocks;
        if (!one.sequence.Grow(to, copies)) {
          ++refused;
          ASSERT_GT(more + 1, room) << "there was room";
          continue;
        }
        ASSERT_LE(more, room);
        for (const BlockPool::Copy& copy : copies) {
          std::copy_n(memory[static_cast<size_t>(copy.from)].begin(), copy.tokens,
                      memory[static_cast<size_t>(copy.to)].begin());
        }
        for (int64_t at = size; at < to; ++at) {
          memory[static_cast<size_t>(one.sequence.blocks()[at / block_tokens])]
                [static_cast<size_t>(at % block_tokens)] = number(one.tokens, at + 1);
        }
        evicted += pool.use().kept < before ? 1 : 0;
        if (random() % 2 == 0) one.sequence.Publish(one.tokens);
      }
      std::map<int64_t, int64_t> held;  // by block: tokens
      std::map<int64_t, int> holders;
      for (const Live& one : live) {
        for (int64_t at = 0; at < one.sequence.tokens(); ++at) {
          const int64_t block = one.sequence.blocks()[at / block_tokens];
          ASSERT_EQ(memory[static_cast<size_t>(block)][static_cast<size_t>(at % block_tokens)],
                    number(one.tokens, at + 1));
          held[block] = std::max(held[block], at % block_tokens + 1);
        }
        for (const int64_t block : one.sequence.blocks()) shared += ++holders[block] > 1 ? 1 : 0;
      }
      int64_t tokens = 0;
      for (const auto& [block, count] : held) tokens += count;
      ASSERT_EQ(pool.use().blocks, static_cast<int64_t>(held.size()));
      ASSERT_EQ(pool.use().tokens, tokens);
      ASSERT_LE(pool.use().blocks + pool.use().kept, blocks);
    }
  }
  EXPECT_GT(reused, 500);
  EXPECT_GT(shared, 500);
  EXPECT_GT(evicted, 200);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace chairlift
