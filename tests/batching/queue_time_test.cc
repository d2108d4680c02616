#include "batching/queue_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace chairlift {
namespace {

using std::chrono::microseconds;
using Work = QueueTime::Work;

TEST(QueueTimeTest, WhatIsNotKnownCountsNothing) {
  QueueTime queue;
  QueueTime::Share share;
  queue.Arrive(std::vector<Work>{{0, 100}}, share);
  EXPECT_EQ(queue.work(), Duration(0));
  queue.Expect(0, 2000);
  EXPECT_EQ(queue.work(), microseconds(200));
  queue.Leave(true, share);
  EXPECT_EQ(queue.work(), Duration(0));
}

TEST(QueueTimeTest, WhatRanCostsWhatItTookAndTablesAreForgotten) {
  QueueTime queue;
  QueueTime::Share share;
  queue.Arrive(std::vector<Work>{{3, 10}}, share);
  queue.Expect(3, 9999);
  queue.Learn(3, 4, microseconds(40));
  EXPECT_EQ(queue.work(), microseconds(100));
  queue.Expect(3, 9999);
  queue.Ran({3, 4}, share);
  EXPECT_EQ(queue.work(), microseconds(60));
}

TEST(QueueTimeTest, KnowsWhatOneRequestHasLeft) {
  QueueTime queue;
  QueueTime::Share small, large;
  queue.Learn(0, 1, microseconds(1));
  queue.Arrive(std::vector<Work>{{0, 10}}, small);
  queue.Arrive(std::vector<Work>{{0, 100}}, large);
  queue.Ran({0, 60}, large);
  EXPECT_EQ(queue.work(large), microseconds(40));
  EXPECT_EQ(queue.work(small), microseconds(10));
  queue.Leave(true, large);
  EXPECT_EQ(queue.work(large), Duration(0));
}

TEST(QueueTimeTest, WorkOfUnknownCostIsGuessedUntilItHasRun) {
  QueueTime queue;
  QueueTime::Share share, other;
  queue.Arrive(std::vector<Work>{{0, 4}}, share, microseconds(800));
  queue.Arrive(std::vector<Work>{{1, 2}}, other, microseconds(300));
  EXPECT_FALSE(queue.Prices(0));
  EXPECT_EQ(queue.work(), microseconds(1100));
  queue.Ran({0, 1}, share);
  EXPECT_EQ(queue.work(share), microseconds(600));
  EXPECT_EQ(queue.work(), microseconds(900));
  queue.Ran({0, 9}, share);
  EXPECT_EQ(queue.work(share), Duration(0));
  queue.Leave(false, other);
  EXPECT_EQ(queue.work(), Duration(0));
}

TEST(QueueTimeTest, AMeasurementReplacesWhatWasGuessed) {
  QueueTime queue;
  std::vector<QueueTime::Share> shares(3);
  for (QueueTime::Share& share : shares) {
    queue.Arrive(std::vector<Work>{{0, 2}}, share, microseconds(500));
  }
  EXPECT_EQ(queue.work(), microseconds(1500));
  queue.Learn(0, 2, microseconds(8));
  EXPECT_EQ(queue.work(), microseconds(24));
  EXPECT_EQ(queue.work(shares[1]), microseconds(8));
  for (QueueTime::Share& share : shares) queue.Leave(true, share);
  EXPECT_EQ(queue.work(), Duration(0));
  queue.Forget(0);
  queue.Arrive(std::vector<Work>{{0, 2}}, shares[0], microseconds(500));
  EXPECT_EQ(queue.work(), microseconds(500)) << "units of another shape";
}

TEST(QueueTimeTest, OnlyTheUnknownPartIsGuessed) {
  QueueTime queue;
  QueueTime::Share share;
  queue.Learn(0, 1, microseconds(10));
  queue.Arrive(std::vector<Work>{{0, 3}, {1, 5}}, share, microseconds(100));
  EXPECT_EQ(queue.work(), microseconds(100));
  queue.Ran({1, 5}, share);
  EXPECT_EQ(queue.work(), microseconds(30));
  queue.Leave(true, share);
  EXPECT_EQ(queue.work(), Duration(0));
}

// After a time of single requests, a few large batches say what the queue costs.
TEST(QueueTimeTest, LargeTasksWeighMoreThanSmallOnes) {
  QueueTime queue;
  QueueTime::Share share;
  queue.Arrive(std::vector<Work>{{0, 1000}}, share);
  for (int i = 0; i < 1000; ++i) queue.Learn(0, 1, microseconds(50));
  EXPECT_NEAR(std::chrono::duration<double>(queue.work()).count(), 0.05, 1e-6);
  for (int i = 0; i < 2; ++i) queue.Learn(0, 64, microseconds(64 * 2));
  EXPECT_LT(queue.work(), microseconds(6000));
}

TEST(QueueTimeTest, ARequestIsExpectedToGrowAsOthersDid) {
  QueueTime queue;
  queue.Learn(1, 1, microseconds(1));
  for (int i = 0; i < 200; ++i) {
    QueueTime::Share share;
    queue.Arrive(std::vector<Work>{{0, 5}}, share);
    for (int step = 0; step < 30; ++step) {
      queue.Grow({1, 1}, share);
      queue.Ran({1, 1}, share);
    }
    queue.Leave(true, share);
  }
  QueueTime::Share share;
  queue.Arrive(std::vector<Work>{{0, 5}}, share);
  EXPECT_EQ(queue.work(), microseconds(30));
  for (int step = 0; step < 10; ++step) {
    queue.Grow({1, 1}, share);
    queue.Ran({1, 1}, share);
  }
  EXPECT_EQ(queue.work(), microseconds(20));
  queue.Leave(false, share);
  EXPECT_EQ(queue.work(), Duration(0));
}

// Against one that keeps every request and adds everything up again each time.
TEST(QueueTimeTest, AgreesWithItsModelWhateverHappens) {
  struct Price {
    double cost = 0, units = 0;
    bool learnt = false;
  };
  struct Part {
    int64_t known = 0, grown = 0, expected = 0;
    double guess = 0;
    bool held = false;  // by its request, so that the type stays what it is
    int64_t left() const { return known + std::max<int64_t>(expected - grown, 0); }
  };
  for (int seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    QueueTime queue;
    std::vector<QueueTime::Share> shares(20);
    std::vector<std::map<CellType, Part>> model(20);
    std::vector<bool> here(20, false);
    std::map<CellType, Price> prices;
    std::map<CellType, double> growth;
    const auto work_of = [&](const std::map<CellType, Part>& parts) {
      double ns = 0;
      for (const auto& [index, part] : parts) {
        const Price& price = prices[index];
        ns += price.units > 0 ? static_cast<double>(part.left()) * price.cost / price.units
                              : part.guess;
      }
      return ns;
    };
    // The cost of the type is known from now on: guesses are forgotten.
    const auto priced = [&](CellType type) {
      for (auto& parts : model) {
        if (parts.contains(type)) parts[type].guess = 0;
      }
    };
    for (int event = 0; event < 2000; ++event) {
      const auto who = static_cast<size_t>(below(20));
      const auto type = static_cast<CellType>(below(6));
      switch (below(7)) {
        case 0: {
          const int units = below(50);
          const Duration cost = microseconds(below(1000));
          queue.Learn(type, units, cost);
          if (units == 0) break;
          priced(type);
          Price& price = prices[type];
          if (!price.learnt) price = {};
          price = {0.9 * price.cost + static_cast<double>(cost.count()), 0.9 * price.units + units,
                   true};
          break;
        }
        case 1: {
          const double each = below(5000);
          queue.Expect(type, each);
          if (prices[type].learnt) break;
          priced(type);
          prices[type] = {each, 1, false};
          break;
        }
        case 2: {
          if (here[who]) break;
          const std::vector<Work> work = {{type, below(30)}, {static_cast<CellType>(below(6)), 3}};
          const Duration whole = microseconds(below(3000));
          queue.Arrive(work, shares[who], whole);
          here[who] = true;
          for (const Work& part : work) {
            model[who][part.type].known += part.units;
            model[who][part.type].held = true;
          }
          for (const auto& [grows, mean] : growth) {
            model[who][grows].expected = std::llround(mean);
          }
          for (const Work& part : work) {
            if (part.units == 0 || prices[part.type].units > 0) continue;
            const double rest = static_cast<double>(whole.count()) - work_of(model[who]);
            model[who][part.type].guess = std::max(rest, 0.0);
            break;
          }
          break;
        }
        case 3: {
          if (!here[who]) break;
          const int units = below(9);
          queue.Grow({type, units}, shares[who]);
          growth.emplace(type, 0);
          model[who][type].known += units;
          model[who][type].grown += units;
          model[who][type].held = true;
          break;
        }
        case 4: {
          if (!here[who] || model[who][type].known == 0) break;
          const int64_t units = 1 + below(static_cast<int>(model[who][type].known));
          queue.Ran({type, units}, shares[who]);
          Part& part = model[who][type];
          const auto before = static_cast<double>(part.left());
          part.known -= units;
          part.guess *= static_cast<double>(part.left()) / before;
          break;
        }
        case 5: {
          const bool is_held = std::any_of(model.begin(), model.end(), [&](const auto& parts) {
            const auto found = parts.find(type);
            return found != parts.end() && found->second.held;
          });
          if (is_held) break;
          queue.Forget(type);
          prices[type] = {};
          break;
        }
        default: {
          if (!here[who]) break;
          const bool complete = below(2) == 0;
          queue.Leave(complete, shares[who]);
          for (auto& [grows, mean] : growth) {
            if (complete) mean += (static_cast<double>(model[who][grows].grown) - mean) / 16;
          }
          model[who].clear();
          here[who] = false;
        }
      }
      double expected = 0;
      for (const auto& parts : model) expected += work_of(parts);
      ASSERT_NEAR(static_cast<double>(queue.work().count()), expected, 200)
          << seed << ' ' << event << ": guesses are rounded each time";
      if (std::none_of(here.begin(), here.end(), [](bool is) { return is; })) {
        ASSERT_EQ(queue.work(), Duration(0)) << "an empty queue";
      }
    }
  }
}

// Two workers, batches of up to 32 that take 1 ms and 0.1 ms a row, ten times as many requests as
// they can serve: refusals keep the wait of the others within the limit, and the workers busy.
TEST(QueueTimeTest, AnswersWithinItsLimitAtTenTimesThePeak) {
  constexpr Duration kLimit = std::chrono::milliseconds(50);
  constexpr int kWorkers = 2;
  constexpr Duration kBetween = microseconds(6);  // the peak is 32 rows in 2.1 ms
  const std::vector<Work> one = {{0, 1}};
  struct Request {
    TimePoint arrival;
    QueueTime::Share share;
  };
  struct Worker {
    TimePoint free_at;
    TimePoint began;
    std::vector<Request> batch;
  };
  QueueTime queue;
  BatchTime batch_time;
  std::deque<Request> waiting;
  std::vector<Worker> workers(kWorkers);
  const TimePoint start{};
  Duration longest{0};
  Duration busy{0};
  int refused = 0;
  TimePoint now = start;
  for (; now < start + std::chrono::seconds(3); now += kBetween) {
    for (Worker& worker : workers) {
      if (worker.free_at > now) continue;
      if (!worker.batch.empty()) {
        const Duration cost = worker.free_at - worker.began;
        busy += cost;
        queue.Learn(0, static_cast<int64_t>(worker.batch.size()), cost);
        batch_time.Learn(cost);
        for (Request& request : worker.batch) {
          longest = std::max(longest, worker.free_at - request.arrival);
          queue.Leave(true, request.share);
        }
        worker.batch.clear();
      }
      while (!waiting.empty() && worker.batch.size() < 32) {
        worker.batch.push_back(std::move(waiting.front()));
        waiting.pop_front();
      }
      if (worker.batch.empty()) continue;
      worker.began = now;
      worker.free_at = now + microseconds(1000 + 100 * worker.batch.size());
    }
    const std::vector<Duration> work = {queue.work()};
    const Duration wait = ExpectedWait(work, 0, kWorkers);
    if (ExpectedAnswer(wait, 1, batch_time.time(), kLimit) > kLimit) {
      ++refused;
      continue;
    }
    waiting.push_back({now, {}});
    queue.Arrive(one, waiting.back().share);
  }
  EXPECT_LE(longest, kLimit) << "from arrival to answer: the batch that answers it counts";
  EXPECT_GT(longest, kLimit * 3 / 4);
  EXPECT_GT(busy, (now - start) * kWorkers * 95 / 100);
  EXPECT_GT(refused, 400'000);
}

TEST(QueueTimeTest, ASlowBatchLeavesHalfOfTheLimitToTheQueue) {
  constexpr Duration kLimit = std::chrono::milliseconds(100);
  EXPECT_EQ(ExpectedAnswer(microseconds(10), 1.5, microseconds(20), kLimit), microseconds(35));
  EXPECT_EQ(ExpectedAnswer(microseconds(10), 1, std::chrono::seconds(9), kLimit),
            microseconds(50'010));
}

TEST(BatchTimeTest, LongBatchesAreLearntFasterThanShortOnes) {
  BatchTime batches;
  EXPECT_EQ(batches.time(), Duration(0));
  for (int i = 0; i < 40; ++i) batches.Learn(microseconds(1000));
  EXPECT_GT(batches.time(), microseconds(990));
  for (int i = 0; i < 400; ++i) batches.Learn(microseconds(i % 2 == 0 ? 1000 : 2000));
  EXPECT_GT(batches.time(), microseconds(1700));
  for (int i = 0; i < 400; ++i) batches.Learn(microseconds(100));
  EXPECT_LT(batches.time(), microseconds(101));
}

TEST(WaitStretchTest, FewWaitLongerThanTheyAreTold) {
  WaitStretch stretch;
  EXPECT_EQ(stretch.factor(), 1);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> noise(0.8, 1.7);
  int longer = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto expected = microseconds(1000 + 10 * (i % 50));
    const auto waited = std::chrono::duration_cast<Duration>(expected * noise(random));
    if (i >= 1000 && waited > expected * stretch.factor()) ++longer;
    stretch.Learn(expected, waited);
  }
  EXPECT_LT(longer, 19000 * 15 / 100);
  EXPECT_LT(stretch.factor(), 1.7);
  for (int i = 0; i < 3000; ++i) stretch.Learn(microseconds(100), microseconds(90));
  EXPECT_LT(stretch.factor(), 1.001) << "it is forgotten";
  for (int i = 0; i < 100; ++i) stretch.Learn(microseconds(1), std::chrono::seconds(1));
  EXPECT_LE(stretch.factor(), WaitStretch::kMost);
  stretch.Learn(Duration(0), microseconds(100));
  EXPECT_LE(stretch.factor(), WaitStretch::kMost);
}

TEST(QueueTimeTest, AnotherModelsQueueCountsUpToOnesOwn) {
  const std::vector<Duration> work = {microseconds(300), microseconds(100), microseconds(0)};
  EXPECT_EQ(ExpectedWait(work, 0, 2), microseconds(200));
  EXPECT_EQ(ExpectedWait(work, 1, 2), microseconds(100));
  EXPECT_EQ(ExpectedWait(work, 2, 2), microseconds(0));
}

}  // namespace
}  // namespace chairlift
