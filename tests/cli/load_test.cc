#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/load/generator.h"
#include "cli/load/peak.h"
#include "cli/load/schedule.h"

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
