#include "batching/size_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "batching/queue_time.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(SizeCostsTest, NothingIsKnownBeforeARequestHasRun) {
  const SizeCosts costs;
  EXPECT_EQ(costs.Predict(100).cost, Duration(0));
  EXPECT_FALSE(costs.Predict(100).measured);
}

TEST(SizeCostsTest, ASizeCostsWhatRequestsOfAboutThatSizeTook) {
  SizeCosts costs;
  costs.Learn(1000, microseconds(100), 1);
  costs.Learn(1'000'000, milliseconds(10), 1);
  EXPECT_EQ(costs.Predict(1000).cost, microseconds(100));
  EXPECT_EQ(costs.Predict(600).cost, microseconds(60));
  EXPECT_TRUE(costs.Predict(600).measured);
  EXPECT_EQ(costs.Predict(1'000'000).cost, milliseconds(10));
}

TEST(SizeCostsTest, OtherSizesLieBetweenTheirNeighbours) {
  SizeCosts costs;
  costs.Learn(1000, microseconds(100), 1);
  EXPECT_EQ(costs.Predict(100'000).cost, milliseconds(10)) << "in proportion";
  EXPECT_FALSE(costs.Predict(100'000).measured);
  EXPECT_EQ(costs.Predict(10).cost, microseconds(100)) << "at most as much as the next larger";
  costs.Learn(1'000'000, microseconds(5000), 1);
  EXPECT_EQ(costs.Predict(100'000).cost, microseconds(5000));
  EXPECT_EQ(costs.Predict(10'000).cost, microseconds(1000));
  EXPECT_EQ(costs.Predict(INT64_MAX).cost > milliseconds(10), true);
  EXPECT_EQ(costs.Predict(-1).cost, microseconds(100));
}

TEST(SizeCostsTest, RequestsOfLargeBatchesWeighMore) {
  SizeCosts costs;
  for (int i = 0; i < 100; ++i) costs.Learn(64, microseconds(50), 1);
  for (int i = 0; i < 3; ++i) costs.Learn(64, microseconds(2), 64);
  EXPECT_LT(costs.Predict(64).cost, microseconds(5));
}

TEST(SizeCostsTest, ATimeWithHelpCountsUntilOneWithoutIsKnown) {
  SizeCosts costs;
  costs.LearnMost(100, microseconds(800));
  costs.LearnMost(100, microseconds(800));
  EXPECT_EQ(costs.Predict(100).cost, microseconds(800));
  costs.Learn(100, microseconds(300), 1);
  EXPECT_EQ(costs.Predict(100).cost, microseconds(300));
  costs.LearnMost(100, microseconds(900));
  EXPECT_EQ(costs.Predict(100).cost, microseconds(300));
}

TEST(SizeCostsTest, ARequestThatDidNotEndTellsTheLeastThatItCosts) {
  SizeCosts costs;
  costs.Learn(100, microseconds(300), 1);
  costs.LearnLeast(100, microseconds(200));
  EXPECT_EQ(costs.Predict(100).cost, microseconds(300));
  costs.LearnLeast(100, microseconds(4000));
  EXPECT_EQ(costs.Predict(100).cost, microseconds(4000));
  costs.LearnLeast(1'000'000, std::chrono::seconds(90));
  EXPECT_EQ(costs.Predict(1'000'000).cost, std::chrono::seconds(90)) << "never seen to end";
}

// Against one that keeps every observation and adds them up again each time.
TEST(SizeCostsTest, AgreesWithItsModelWhateverHappens) {
  struct Seen {
    double bytes, cost, weight;
    bool most;
  };
  for (int seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    SizeCosts costs;
    std::map<int, std::vector<Seen>> groups;
    const auto group_of = [](int64_t bytes) {
      return static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes)));
    };
    const auto mean = [](const std::vector<Seen>& seen, bool of_a_byte) {
      double above = 0, under = 0, weight = 1;
      for (size_t i = seen.size(); i-- > 0; weight *= 0.9) {
        above += weight * seen[i].weight * seen[i].cost;
        under += weight * seen[i].weight * (of_a_byte ? seen[i].bytes : 1);
      }
      return above / under;
    };
    const auto predict = [&](int64_t bytes) {
      const int own = group_of(bytes);
      const auto size = static_cast<double>(bytes);
      if (groups.contains(own)) return mean(groups[own], true) * size;
      const auto larger = groups.upper_bound(own);
      const double most = larger == groups.end() ? -1 : mean(larger->second, false);
      if (larger == groups.begin()) return groups.empty() ? 0 : most;
      const double scaled = mean(std::prev(larger)->second, true) * size;
      return most < 0 ? scaled : std::min(most, scaled);
    };
    for (int event = 0; event < 300; ++event) {
      const int64_t bytes = 1 + below(int64_t{1} << (1 + below(24)));
      const int64_t ns = 1 + below(1'000'000);
      const auto size = static_cast<double>(bytes);
      const auto cost = static_cast<double>(ns);
      std::vector<Seen>* own = &groups[group_of(bytes)];
      const bool helped_only =
          std::all_of(own->begin(), own->end(), [](const Seen& seen) { return seen.most; });
      switch (below(5)) {
        case 0:
          costs.LearnMost(bytes, Duration(ns));
          if (helped_only) *own = {{size, cost, 1, true}};
          break;
        case 1: {
          costs.LearnLeast(bytes, Duration(ns));
          if (own->empty()) groups.erase(group_of(bytes));
          if (static_cast<int64_t>(predict(bytes)) >= ns) break;
          groups[group_of(bytes)] = {{size, cost, 1, false}};
          break;
        }
        default: {
          const int batched = static_cast<int>(1 + below(64));
          costs.Learn(bytes, Duration(ns), batched);
          if (helped_only) own->clear();
          own->push_back({size, cost, static_cast<double>(batched), false});
        }
      }
      std::erase_if(groups, [](const auto& group) { return group.second.empty(); });
      const int64_t asked = 1 + below(int64_t{1} << (1 + below(26)));
      const double expected = std::min(predict(asked), 3600e9);
      ASSERT_NEAR(static_cast<double>(costs.Predict(asked).cost.count()), expected,
                  2 + expected * 1e-6)
          << seed << ' ' << event;
      ASSERT_EQ(costs.Predict(asked).measured, groups.contains(group_of(asked)));
    }
  }
}

// Requests of 1 KB to 4 MB, which are parsed before they are queued. Their cost is known from
// earlier ones only. Many large ones come at the same moment. Two workers, ten times the load.
class MixedSizes {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(1);
  static constexpr int kWorkers = 2;

  explicit MixedSizes(int seed) : random_(seed) {}

  // `load`: of the workers. Runs for 60 s.
  void Run(double load) {
    double offered = 0;
    for (TimePoint now{}; now < TimePoint{} + std::chrono::seconds(60); now += milliseconds(1)) {
      Complete(now);
      // The next of the requests that the load allows, in bursts of up to nine of one size.
      while (offered < load * kWorkers * Seconds(now - TimePoint{})) {
        const int64_t bytes = int64_t{1024} << (random_() % 13);
        const int number = 1 + static_cast<int>(random_() % 9);
        for (int i = 0; i < number; ++i) {
          const Duration cost = CostOf(bytes);
          offered += Seconds(cost);
          Arrive(now, bytes, cost);
        }
      }
      // Parsed at 100 MB/s each.
      for (auto it = coming_.begin(); it != coming_.end();) {
        if (it->arrival + Duration(10 * it->bytes) > now) {
          ++it;
          continue;
        }
        waiting_.push_back(*it);
        it = coming_.erase(it);
      }
      Begin(now);
    }
  }

  Duration longest_over{0};  // from arrival to answer, less what its own cost is above half a limit
  double busy = 0;           // seconds
  int admitted = 0, refused = 0, refused_idle = 0;

 private:
  struct Request {
    TimePoint arrival;
    int64_t bytes = 0;
    Duration cost{0};
    Duration expected{0};
  };
  struct Worker {
    TimePoint free_at;
    std::optional<Request> runs;
  };

  static double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
  Duration CostOf(int64_t bytes) {
    const double noise = std::uniform_real_distribution<double>(0.8, 1.2)(random_);
    return Duration(static_cast<int64_t>(noise * (100'000.0 + 400.0 * static_cast<double>(bytes))));
  }
  Duration Left() const {
    Duration left{0};
    for (const Request& request : coming_) left += request.expected;
    for (const Request& request : waiting_) left += request.expected;
    for (const Worker& worker : workers_) {
      if (worker.runs) left += worker.runs->expected;
    }
    return left;
  }
  void Arrive(TimePoint now, int64_t bytes, Duration cost) {
    const bool none = coming_.empty() && waiting_.empty() &&
                      std::none_of(workers_.begin(), workers_.end(),
                                   [](const Worker& worker) { return worker.runs.has_value(); });
    const SizeCosts::Prediction own = costs_.Predict(bytes);
    const Duration expected = own.cost > Duration(0) ? own.cost : milliseconds(100);
    const std::vector<Duration> work = {Left()};
    const Duration wait = ExpectedWait(work, 0, kWorkers);
    if (ExpectedAnswer(wait, 1, expected, kLimit) > kLimit) {
      ++refused;
      if (none) ++refused_idle;
      return;
    }
    ++admitted;
    coming_.push_back({now, bytes, cost, expected});
  }
  void Complete(TimePoint now) {
    for (Worker& worker : workers_) {
      if (!worker.runs || worker.free_at > now) continue;
      const Request& request = *worker.runs;
      busy += Seconds(request.cost);
      costs_.Learn(request.bytes, request.cost, 1);
      const Duration own = std::max(request.cost - kLimit / 2, Duration(0));
      if (now > TimePoint{} + std::chrono::seconds(10)) {
        longest_over = std::max(longest_over, worker.free_at - request.arrival - own);
      }
      worker.runs.reset();
    }
  }
  void Begin(TimePoint now) {
    for (Worker& worker : workers_) {
      if (worker.runs || waiting_.empty()) continue;
      worker.runs = waiting_.front();
      waiting_.pop_front();
      worker.free_at = now + worker.runs->cost;
    }
  }

  std::mt19937 random_;
  SizeCosts costs_;
  std::deque<Request> coming_, waiting_;
  std::vector<Worker> workers_{kWorkers};
};

TEST(SizeCostsTest, RequestsOfAllSizesAreAnsweredWithinTheLimit) {
  for (int seed = 0; seed < 5; ++seed) {
    MixedSizes run(seed);
    run.Run(10);
    EXPECT_LE(run.longest_over, MixedSizes::kLimit * 5 / 4)
        << "costs vary by a fifth; seed " << seed;
    EXPECT_GT(run.busy, 60 * MixedSizes::kWorkers * 0.75) << seed;
    EXPECT_EQ(run.refused_idle, 0) << "one that costs more than the limit could never be answered";
    EXPECT_GT(run.refused, 1000);
  }
}

}  // namespace
}  // namespace chairlift
