#include "batching/fair_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace chairlift {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Client = FairShare::Client;

constexpr Duration kLimit = seconds(8);
constexpr Duration kLong = seconds(5);  // a wait in which clients are counted

TimePoint AtTime(Duration time) { return TimePoint(seconds(1000) + time); }

TEST(FairShareTest, OneThatIsAloneHasAllOfIt) {
  FairShare shares;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(shares.Allowed({1, 1}, kLong, kLimit, AtTime(milliseconds(i))), kLimit);
    shares.Charge({1, 1}, seconds(1), AtTime(milliseconds(i)));
  }
}

TEST(FairShareTest, WhoHasHadMoreThanTheAverageGoesLessFar) {
  FairShare shares;
  for (const uint64_t member : {1, 2, 3}) {
    EXPECT_EQ(shares.Allowed({1, member}, kLong, kLimit, AtTime({})), kLimit);
  }
  shares.Charge({1, 1}, seconds(4), AtTime({}));
  shares.Charge({1, 2}, seconds(5), AtTime({}));
  shares.Charge({1, 3}, seconds(3), AtTime({}));
  EXPECT_EQ(shares.Allowed({1, 1}, kLong, kLimit, AtTime({})), kLimit);
  EXPECT_EQ(shares.Allowed({1, 2}, kLong, kLimit, AtTime({})), kLimit * 4 / 5);
  EXPECT_EQ(shares.Allowed({1, 3}, kLong, kLimit, AtTime({})), kLimit);
  shares.Charge({1, 3}, seconds(100), AtTime({}));
  EXPECT_EQ(shares.Allowed({1, 3}, kLong, kLimit, AtTime({})), kLimit / 2);
}

TEST(FairShareTest, AGroupHasOneShareHoweverManyAreInIt) {
  FairShare shares;
  for (uint64_t member = 0; member < 10; ++member) {
    shares.Allowed({1, member}, kLong, kLimit, AtTime({}));
    shares.Charge({1, member}, seconds(1), AtTime({}));
  }
  shares.Allowed({2, 0}, kLong, kLimit, AtTime({}));
  shares.Charge({2, 0}, seconds(5), AtTime({}));
  // The average of two groups is 7.5 s.
  EXPECT_EQ(shares.Allowed({1, 3}, kLong, kLimit, AtTime({})), kLimit * 3 / 4);
  EXPECT_EQ(shares.Allowed({2, 0}, kLong, kLimit, AtTime({})), kLimit);
}

TEST(FairShareTest, NobodyIsCountedWhileTheQueueIsShort) {
  FairShare shares;
  for (uint64_t member = 0; member < 10; ++member) {
    EXPECT_EQ(shares.Allowed({1, member}, FairShare::Free(kLimit), kLimit, AtTime({})), kLimit);
    shares.Charge({1, member}, seconds(1), AtTime({}));
  }
  EXPECT_EQ(shares.size(), 0U);
}

TEST(FairShareTest, WhatIsLongAgoIsForgotten) {
  FairShare shares;
  shares.Allowed({1, 1}, kLong, kLimit, AtTime({}));
  shares.Allowed({1, 2}, kLong, kLimit, AtTime({}));
  shares.Charge({1, 1}, seconds(9), AtTime({}));
  EXPECT_EQ(shares.Allowed({1, 1}, kLong, kLimit, AtTime({})), kLimit / 2);
  const Duration later = 2 * FairShare::kPeriod;
  EXPECT_EQ(shares.Allowed({1, 1}, kLong, kLimit, AtTime(later)), kLimit);
  EXPECT_EQ(shares.size(), 1U);
}

TEST(FairShareTest, NoMoreAreRememberedThanItHasRoomFor) {
  FairShare shares;
  for (uint64_t member = 0; member < 2 * FairShare::kMostClients; ++member) {
    EXPECT_EQ(shares.Allowed({member % 7, member}, kLong, kLimit, AtTime({})), kLimit);
    shares.Charge({member % 7, member}, Duration(0), AtTime({}));
  }
  EXPECT_EQ(shares.size(), FairShare::kMostClients);
}

// As said in the header, from all that ever happened.
class SimpleShares {
 public:
  Duration Allowed(Client client, Duration wait, Duration limit, TimePoint now) {
    if (wait <= FairShare::Free(limit)) return limit;
    Move(now);
    counts_until_ = now + FairShare::kPeriod;
    events_.push_back({now, client, 0});
    double own = 0, group = 0, all = 0;
    std::set<uint64_t> groups, members;
    const double fading = 1 - std::chrono::duration<double>(now - start_) /
                                  std::chrono::duration<double>(FairShare::kPeriod);
    for (const Event& event : events_) {
      if (event.at < start_ - FairShare::kPeriod) continue;
      const double given = event.at < start_ ? event.work * fading : event.work;
      all += given;
      groups.insert(event.client.group);
      if (event.client.group != client.group) continue;
      group += given;
      members.insert(event.client.member);
      if (event.client.member == client.member) own += given;
    }
    const double times =
        std::max(all > 0 ? group * static_cast<double>(groups.size()) / all : 0,
                 group > 0 ? own * static_cast<double>(members.size()) / group : 0);
    return std::chrono::duration_cast<Duration>(limit / std::clamp(times, 1.0, 2.0));
  }
  void Charge(Client client, Duration work, TimePoint now) {
    if (now >= counts_until_) return;
    Move(now);
    events_.push_back({now, client, static_cast<double>(work.count())});
  }

 private:
  struct Event {
    TimePoint at;
    Client client;
    double work;
  };
  void Move(TimePoint now) {
    if (now - start_ >= 2 * FairShare::kPeriod) {
      start_ = now;
      events_.clear();
    }
    while (now - start_ >= FairShare::kPeriod) start_ += FairShare::kPeriod;
  }
  std::vector<Event> events_;
  TimePoint start_{};
  TimePoint counts_until_{};
};

TEST(FairShareTest, AllowsWhatASimpleModelAllows) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int below) {
      return std::uniform_int_distribution<int>(0, below - 1)(random);
    };
    FairShare shares;
    SimpleShares simple;
    Duration now{0};
    for (int i = 0; i < 300; ++i) {
      now += milliseconds(draw(20) == 0 ? draw(30'000) : draw(500));
      const Client client{static_cast<uint64_t>(draw(3)), static_cast<uint64_t>(draw(4))};
      if (draw(2) == 0) {
        const Duration wait = milliseconds(draw(9000));
        const Duration allowed = shares.Allowed(client, wait, kLimit, AtTime(now));
        ASSERT_NEAR(static_cast<double>(allowed.count()),
                    static_cast<double>(simple.Allowed(client, wait, kLimit, AtTime(now)).count()),
                    1000)
            << "seed " << seed << ", event " << i;
      } else {
        const Duration work = milliseconds(draw(1000));
        shares.Charge(client, work, AtTime(now));
        simple.Charge(client, work, AtTime(now));
      }
    }
  }
}

// A queue that is worked off one request after another, and clients that ask again as soon as they
// are answered or, where they are refused, after a while.
struct Asker {
  Client client;
  int at_once = 1;
  Duration again_after = milliseconds(50);
  Duration pause{0};  // between an answer and the next request

  int answered = 0;
  int refused = 0;
};

void SimulateShares(std::vector<Asker>& askers, Duration limit, Duration each, Duration from,
                    Duration until) {
  std::mt19937 random(7);
  FairShare shares;
  using Event = std::pair<Duration, size_t>;  // when an asker asks
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (size_t i = 0; i < askers.size(); ++i) {
    for (int k = 0; k < askers[i].at_once; ++k) {
      events.emplace(Duration(std::uniform_int_distribution<int64_t>(0, 1'000'000)(random)), i);
    }
  }
  Duration free{0};  // when the queue is empty
  while (events.top().first < until) {
    const auto [now, i] = events.top();
    events.pop();
    Asker& asker = askers[i];
    const Duration wait = std::max(free - now, Duration(0));
    if (wait <= shares.Allowed(asker.client, wait, limit, AtTime(now))) {
      shares.Charge(asker.client, each, AtTime(now));
      free = std::max(free, now) + each;
      if (now >= from) ++asker.answered;
      events.emplace(free + asker.pause, i);
    } else {
      if (now >= from) ++asker.refused;
      const double some = std::uniform_real_distribution<>(0.5, 1.5)(random);
      events.emplace(now + std::chrono::duration_cast<Duration>(some * asker.again_after), i);
    }
  }
}

TEST(FairShareTest, ThosePoliteEnoughToWaitHaveTheSameShare) {
  std::vector<Asker> askers;
  for (uint64_t i = 0; i < 20; ++i) {
    const bool polite = i % 4 == 0;
    askers.push_back({.client = {1, i},
                      .at_once = polite ? 10 : 40,
                      .again_after = polite ? milliseconds(300) : milliseconds(4)});
  }
  SimulateShares(askers, seconds(1), milliseconds(5), seconds(20), seconds(70));
  const int fair = 50 * 200 / 20;
  for (size_t i = 0; i < askers.size(); ++i) {
    EXPECT_GT(askers[i].answered, fair * 3 / 4) << i;
    EXPECT_LT(askers[i].answered, fair * 5 / 4) << i;
  }
}

// As the models' own clients and those of a pipeline ask, at ten times what can be answered.
TEST(FairShareTest, ManyConnectionsOfOneRequestEachHaveTheSameShare) {
  std::vector<Asker> askers;
  for (uint64_t i = 0; i < 136; ++i) {
    askers.push_back({.client = {1, i}, .again_after = i < 8 ? milliseconds(50) : milliseconds(5)});
  }
  SimulateShares(askers, seconds(1), milliseconds(20), seconds(30), seconds(330));
  int first = 0, all = 0;
  for (size_t i = 0; i < askers.size(); ++i) (i < 8 ? first : all) += askers[i].answered;
  all += first;
  EXPECT_NEAR(static_cast<double>(first) / all, 8.0 / 136, 0.3 * 8 / 136);
}

TEST(FairShareTest, WhoAsksForLittleIsNotRefusedBecauseAnotherAsksForAll) {
  std::vector<Asker> askers;
  for (uint64_t i = 0; i < 500; ++i) {
    askers.push_back({.client = {1, i}, .again_after = milliseconds(10)});
  }
  askers.push_back(
      {.client = {2, 0}, .again_after = milliseconds(100), .pause = milliseconds(200)});
  SimulateShares(askers, seconds(1), milliseconds(10), seconds(5), seconds(65));
  EXPECT_EQ(askers.back().refused, 0);
  EXPECT_GT(askers.back().answered, 40);
  int all = 0;
  for (const Asker& asker : askers) all += asker.answered;
  EXPECT_GT(all, 5900) << "the machine is always at work";
}

}  // namespace
}  // namespace chairlift
