// The ready queue and its bit sets against ordered sets of the standard library.
#include "batching/ready_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace chairlift {
namespace {

TEST(OrderedBitsTest, AgreesWithAnOrderedSet) {
  std::mt19937 random(1);
  for (const int32_t size : {1, 63, 64, 65, 4096, 4097, 300000}) {
    OrderedBits bits;
    bits.Reset(size);
    std::set<int32_t> expected;
    const auto pick = [&] { return std::uniform_int_distribution<int32_t>(0, size - 1)(random); };
    for (int i = 0; i < 5000; ++i) {
      const int32_t number = pick();
      if (random() % 3 > 0) {
        bits.Insert(number);
        expected.insert(number);
      } else {
        const auto some = expected.lower_bound(number);
        if (some != expected.end()) {
          bits.Erase(*some);
          expected.erase(some);
        }
      }
      const int32_t from = pick();
      const auto next = expected.lower_bound(from);
      ASSERT_EQ(bits.Next(from), next == expected.end() ? OrderedBits::kNone : *next) << size;
    }
    EXPECT_EQ(bits.Next(size), OrderedBits::kNone);
  }
}

TEST(ReadyQueueTest, KeepsOrderAndListsAsEntriesMove) {
  std::mt19937 random(2);
  ReadyQueue queue;
  struct Expected {
    int32_t position;
    int32_t list;
  };
  std::map<int32_t, Expected> expected;  // by subgraph, which are numbered as they are added
  const auto moved = [&](const ReadyQueue::Entry& entry, int32_t position) {
    expected.at(entry.subgraph).position = position;
  };
  int32_t next = 0;
  for (int i = 0; i < 20000; ++i) {
    if (expected.size() < 3 || random() % 2 == 0) {
      const int32_t position = queue.Add(7, next, moved);
      expected[next++] = {position, ReadyQueue::kUnfiled};
    } else {
      // Old ones leave, but for some that stay for long.
      auto some = expected.begin();
      std::advance(some, random() % 3);
      queue.Remove(some->second.position);
      expected.erase(some);
    }
    auto filed = expected.begin();
    std::advance(filed, random() % expected.size() / 2);
    filed->second.list = static_cast<int32_t>(random() % 4) - 1;
    queue.File(filed->second.position, filed->second.list);
    if (i % 100 != 0) continue;
    for (int32_t list = 0; list < 3; ++list) {
      int32_t position = queue.Next(list, 0);
      for (const auto& [subgraph, entry] : expected) {
        if (entry.list != list) continue;
        ASSERT_EQ(position, entry.position);
        ASSERT_EQ(queue.at(position).subgraph, subgraph);
        position = queue.Next(list, position + 1);
      }
      ASSERT_EQ(position, ReadyQueue::kNone);
    }
  }
}

}  // namespace
}  // namespace chairlift
