#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/load/generator.h"
#include "cli/load/peak.h"
#include "cli/load/schedule.h"
#include "cli/load/token_load.h"

namespace chairlift {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ScheduleTest, PoissonArrivalsHaveTheRateAndTheSeedDecidesThem) {
  ScheduleOptions options;
  options.rate = 1000;
  options.seconds = 20;
  const auto schedule = MakeSchedule(options);
  ASSERT_TRUE(schedule.ok());
  // 20000 expected, standard deviation 141.
  EXPECT_NEAR(static_cast<double>(schedule->size()), 20000, 5 * 141);
  const auto again = MakeSchedule(options);
  EXPECT_EQ(again->back().at, schedule->back().at);
  options.seed = 2;
  EXPECT_NE(MakeSchedule(options)->back().at, schedule->back().at);
}

TEST(ScheduleTest, GapsAreScaledToTheRate) {
  ScheduleOptions options;
  options.gaps_ms = {1, 3};
  options.rate = 100;
  options.seconds = 1.001;
  const auto schedule = MakeSchedule(options);
  ASSERT_TRUE(schedule.ok());
  EXPECT_EQ(schedule->size(), 100u);
  EXPECT_NEAR(static_cast<double>((*schedule)[0].at.count()), 5e6, 1);
  EXPECT_NEAR(static_cast<double>((*schedule)[1].at.count()), 20e6, 1);
}

TEST(ScheduleTest, ImpossibleSchedulesAreRefused) {
  ScheduleOptions options;
  options.rate = 0;
  EXPECT_FALSE(MakeSchedule(options).ok());
  options.rate = 1e9;
  options.max_requests = 1000;
  EXPECT_FALSE(MakeSchedule(options).ok());
}

TEST(LengthHistogramTest, SamplesInProportion) {
  const auto histogram = LengthHistogram::Parse(R"({"histogram": {"3": 1, "7": 3}})");
  ASSERT_TRUE(histogram.ok()) << histogram.status();
  EXPECT_DOUBLE_EQ(histogram->mean(), 6.0);
  std::mt19937_64 random(1);
  std::map<int64_t, int> seen;
  for (int i = 0; i < 4000; ++i) ++seen[histogram->Sample(random)];
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen[7], 3000, 150);
}

TEST(LengthHistogramTest, WhatIsNoHistogramIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"histogram": 3})", R"({"a": 1})", R"({"3": -1})",
                           R"({"3": 0})", R"({"0": 5})"}) {
    EXPECT_FALSE(LengthHistogram::Parse(text).ok()) << text;
  }
}

TEST(LengthHistogramTest, ANumberOrTwoStandForThemselves) {
  std::mt19937_64 random(1);
  const auto one = LengthHistogram::From("128");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->Sample(random), 128);
  const auto range = LengthHistogram::From("2-4");
  ASSERT_TRUE(range.ok()) << range.status();
  std::map<int64_t, int> seen;
  for (int i = 0; i < 3000; ++i) ++seen[range->Sample(random)];
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_NEAR(seen[2], 1000, 150);
  for (const char* text : {"0", "4-2", "0-3", "9999999", "-1", "3-", "no/such/file"}) {
    EXPECT_FALSE(LengthHistogram::From(text).ok()) << text;
  }
}

std::vector<LoadSample> Samples(int count, milliseconds gap, milliseconds latency) {
  std::vector<LoadSample> samples(count);
  for (int i = 0; i < count; ++i) {
    samples[i].scheduled = samples[i].sent = gap * i;
    samples[i].done = samples[i].scheduled + latency;
  }
  return samples;
}

TEST(SummarizeTest, PercentilesAreNearestRank) {
  auto samples = Samples(1000, milliseconds(1), milliseconds(0));
  for (int i = 0; i < 1000; ++i) samples[i].done = samples[i].scheduled + milliseconds(i + 1);
  const LoadReport report = Summarize(samples, 1.0);
  EXPECT_DOUBLE_EQ(report.p50_ms, 500);
  EXPECT_DOUBLE_EQ(report.p90_ms, 900);
  EXPECT_DOUBLE_EQ(report.p99_ms, 990);
  EXPECT_DOUBLE_EQ(report.max_ms, 1000);
}

TEST(SummarizeTest, AQuietRunIsValid) {
  const LoadReport report = Summarize(Samples(1000, milliseconds(1), milliseconds(2)), 1.0);
  EXPECT_THAT(report.invalid, IsEmpty());
  EXPECT_NEAR(report.achieved_rate, 1000, 5);
}

TEST(SummarizeTest, LatencyCountsFromTheScheduledTimeAndALateGeneratorIsInvalid) {
  auto samples = Samples(1000, milliseconds(1), milliseconds(30));
  for (auto& sample : samples) sample.sent = sample.scheduled + milliseconds(25);
  const LoadReport report = Summarize(samples, 1.0);
  EXPECT_DOUBLE_EQ(report.p50_ms, 30);
  EXPECT_THAT(report.invalid, Contains(HasSubstr("load generator could not keep up")));
}

TEST(SummarizeTest, ABacklogAFailureAndAHandfulOfRequestsAreInvalidByName) {
  auto slow = Samples(1000, milliseconds(1), milliseconds(0));
  for (int i = 0; i < 1000; ++i) slow[i].done = milliseconds(2) * (i + 1);
  EXPECT_THAT(Summarize(slow, 1.0).invalid, Contains(HasSubstr("did not keep up")));

  auto failed = Samples(1000, milliseconds(1), milliseconds(1));
  failed[3].status = ResourceExhausted("queue full");
  EXPECT_THAT(Summarize(failed, 1.0).invalid, Contains("1 of 1,000 requests failed: queue full"));

  EXPECT_THAT(Summarize(Samples(10, milliseconds(1), milliseconds(1)), 0.01).invalid,
              Contains(HasSubstr("only 10 requests")));
}

// Answers when it is asked to, if ever.
class MuteTarget final : public LoadTarget {
 public:
  std::string name() const override { return "mute"; }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  size_t Prepare(std::vector<NamedTensor>, const LoadSequence&) override { return 0; }
  void Send(size_t, std::function<void(Status)> done) override { open.push_back(std::move(done)); }
  StatusOr<ModelStatistics> Statistics() override { return NotFound("none"); }

  std::vector<std::function<void(Status)>> open;

 private:
  std::vector<TensorSpec> inputs_;
};

TEST(PutLoadTest, WhatIsNotAnsweredInTimeHasFailedAndMayStillBeAnswered) {
  MuteTarget target;
  const std::vector<Arrival> schedule(3);
  int64_t sent = 0;
  const std::vector<LoadSample> samples =
      PutLoad(target, schedule, [](const Arrival&) { return 0; },
              {.patience = milliseconds(1), .progress = [&](int64_t count) { sent = count; }});
  EXPECT_EQ(sent, 3);
  ASSERT_EQ(samples.size(), 3u);
  for (const LoadSample& sample : samples) {
    EXPECT_EQ(sample.status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  const LoadReport report = Summarize(samples, 1);
  EXPECT_EQ(report.succeeded, 0);
  EXPECT_THAT(report.invalid, Contains(HasSubstr("3 of 3 requests failed: not answered within")));
  for (const auto& done : target.open) done(absl::OkStatus());
}

TEST(TokenLoadTest, TimesAreOfWhatCameInTheWindow) {
  const auto ms = [](int at) { return std::chrono::nanoseconds(milliseconds(at)); };
  std::vector<TokenSample> samples(2);
  // Its first token comes before the window: its prompt does not count.
  samples[0] = {.counts = {.prompt = 100, .output = 3},
                .scheduled = ms(0),
                .sent = ms(0),
                .done = ms(130),
                .tokens = {ms(50), ms(110), ms(130)}};
  // Two tokens that came together.
  samples[1] = {.counts = {.prompt = 10, .output = 4},
                .scheduled = ms(120),
                .sent = ms(121),
                .done = ms(400),
                .tokens = {ms(150), ms(170), ms(170), ms(400)}};
  const TokenReport report = SummarizeTokens(samples, ms(100), ms(200));
  EXPECT_DOUBLE_EQ(report.prompt_tokens_per_s, 100);
  EXPECT_DOUBLE_EQ(report.output_tokens_per_s, 50);
  EXPECT_DOUBLE_EQ(report.first_ms.mean, 30);
  EXPECT_DOUBLE_EQ(report.between_ms.max, 60);
  EXPECT_DOUBLE_EQ(report.between_ms.mean, (60 + 20 + 20 + 0) / 4.0);
  EXPECT_EQ(report.requests.scheduled, 1);  // that ended
  EXPECT_DOUBLE_EQ(report.requests.max_ms, 130);
}

// Answers at once, one token less than asked for from some request on.
class EagerTarget final : public TokenTarget {
 public:
  explicit EagerTarget(int whole) : whole_(whole) {}
  std::string name() const override { return "eager"; }
  void Stream(std::span<const int64_t> prompt, int64_t output, Came came,
              std::function<void(Status)> done) override {
    prompt_tokens += static_cast<int64_t>(prompt.size());
    // Elsewhere, as an engine does: answers at once would send the next from within the last.
    // The next answer may come, and bring another request, before this thread is kept.
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.emplace_back([=, short_by = whole_-- > 0 ? 0 : 1] {
      std::this_thread::sleep_for(milliseconds(1));
      came(output - short_by);
      done(absl::OkStatus());
    });
  }
  ~EagerTarget() override {
    std::deque<std::thread> kept;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      kept.swap(threads_);
    }
    for (std::thread& thread : kept) thread.join();
  }

  std::atomic<int64_t> prompt_tokens{0};

 private:
  std::atomic<int> whole_;
  std::mutex mutex_;
  std::deque<std::thread> threads_;
};

TEST(TokenLoadTest, AClientSendsItsNextRequestUntilOneFails) {
  EagerTarget target(5);
  int drawn = 0;
  const std::vector<TokenSample> samples =
      KeepTokenLoad(target, {.clients = 1, .seconds = 20, .next = [&] {
                               ++drawn;
                               return TokenCounts{.prompt = 3, .output = 2};
                             }});
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(drawn, 6);
  EXPECT_EQ(target.prompt_tokens, 18);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(samples[i].status.ok()) << samples[i].status;
  EXPECT_THAT(std::string(samples[5].status.message()), HasSubstr("has 1 tokens, not 2"));
}

TEST(TokenLoadTest, ArrivalsBringTheirCounts) {
  EagerTarget target(10);
  const std::vector<Arrival> schedule = {{.at = milliseconds(1), .length = 7, .output = 3},
                                         {.at = milliseconds(2), .length = 2, .output = 1}};
  const std::vector<TokenSample> samples = PutTokenLoad(target, schedule, 1);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].tokens.size(), 3u);
  EXPECT_EQ(samples[1].counts.prompt, 2);
  EXPECT_GE(samples[1].sent, milliseconds(2));
  EXPECT_TRUE(samples[1].status.ok());
}

TEST(FindPeakTest, EndsCloseBelowThePeakWhereverItBegins) {
  for (const double peak : {5.0, 40.0, 41.0, 600.0}) {
    int trials = 0;
    const auto found = FindPeak({.start = 40}, [&](double rate) -> StatusOr<bool> {
      ++trials;
      return rate <= peak;
    });
    ASSERT_TRUE(found.ok());
    EXPECT_LE(*found, peak);
    EXPECT_GE(*found * 1.04, peak);
    EXPECT_LE(trials, 12);
  }
}

TEST(FindPeakTest, IsZeroWhereNothingHoldsAndEndsWithTheFirstError) {
  EXPECT_EQ(*FindPeak({}, [](double) -> StatusOr<bool> { return false; }), 0);
  int trials = 0;
  const auto failed = FindPeak({}, [&](double) -> StatusOr<bool> {
    if (++trials == 2) return Unavailable("gone");
    return true;
  });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(trials, 2);
}

}  // namespace
}  // namespace chairlift
