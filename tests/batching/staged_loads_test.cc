// Policy `staged` under Poisson loads in virtual time, against those that serve models whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "batching/length_costs.h"
#include "batching/policy.h"
#include "batching/simulator.h"

namespace chairlift {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kRequests = 4000;
constexpr int kWarmUp = kRequests / 5;
constexpr double kTaskMs = 0.02;  // that each task takes besides
constexpr std::array kRows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

struct Model {
  std::string name;
  std::vector<std::function<double(int)>> stages;  // ms of that many rows
};

const std::function<double(int)> kGains = [](int rows) { return 7 + 0.3 * rows; };
std::function<double(int)> InProportion(double ms) {
  return [ms](int rows) { return ms * rows; };
}
std::function<double(int)> Affine(double batch, double row) {
  return [batch, row](int rows) { return batch + row * rows; };
}
// As on a GPU: the same time up to the preferred batch.
std::function<double(int)> Prefers(int preferred) {
  return [preferred](int rows) { return 0.35 * std::max(rows, preferred); };
}

class StagedLoadsTest : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    std::vector<LengthCosts::Sample> all;
    for (const int rows : kRows) all.push_back({rows, 0, FromMs(kTaskMs)});
    CellGraph chain;
    for (const auto& stage : GetParam().stages) {
      std::vector<LengthCosts::Sample> samples;
      for (size_t i = 0; i < kRows.size(); ++i) {
        samples.push_back({kRows[i], 0, FromMs(stage(kRows[i]) + kTaskMs)});
        all[i].cost += FromMs(stage(kRows[i]));
      }
      ASSERT_TRUE(costs_.AddType(samples).ok());
      const auto type = static_cast<CellType>(chain.size());
      type == 0 ? chain.Add(0) : chain.Add(type, 1, {static_cast<int32_t>(type) - 1});
    }
    ASSERT_TRUE(whole_.AddType(all).ok());
    CellGraph one;
    one.Add(0);
    graphs_ = {one, chain};
  }

  static Duration FromMs(double ms) {
    return std::chrono::duration_cast<Duration>(Milliseconds(ms));
  }
  // Requests at `rate` a second; 0: of 128 clients.
  SimulationResult Run(const std::string& name, int workers, double rate) const {
    const bool staged = name == "staged";
    const LengthCosts& costs = staged ? costs_ : whole_;
    const auto policy = MakeScheduler(
        name, {.max_batch_size = 64, .workers = workers, .costs = staged ? &costs : nullptr});
    Workload load{
        .graphs = {graphs_[staged ? 1 : 0]}, .arrivals = {}, .clients = rate > 0 ? 0 : 128};
    std::mt19937_64 random(7);
    std::exponential_distribution<double> gap(rate > 0 ? rate / 1000 : 1);
    double at = 0;
    for (int i = 0; i < kRequests; ++i) load.arrivals.push_back({FromMs(at += gap(random)), 0});
    return Simulate(**policy, load, costs, workers, 1);
  }
  double RateOf(const std::string& name, int workers) const {
    return kRequests * 1000 / Milliseconds(Run(name, workers, 0).end).count();
  }
  double MeanOf(const std::string& name, int workers, double rate) const {
    const SimulationResult result = Run(name, workers, rate);
    Milliseconds sum(0);
    for (int i = kWarmUp; i < kRequests; ++i) {
      const SimulatedRequest& request = result.requests[static_cast<size_t>(i)];
      sum += request.left - request.arrived;
    }
    return sum.count() / (kRequests - kWarmUp);
  }

 private:
  LengthCosts costs_;  // of the stages
  LengthCosts whole_;
  std::vector<CellGraph> graphs_;
};

// What the stages cost beside the whole weighs most near the peak: 3 · kTaskMs of 10 ms are 6% of
// the mean at 9/10.
TEST_P(StagedLoadsTest, IsHardlyEverWorseThanTheBestOfThoseThatServeItWhole) {
  for (const int workers : {1, 2}) {
    const double peak = std::max(RateOf("none", workers), RateOf("window", workers));
    EXPECT_GE(RateOf("staged", workers), 0.97 * peak);
    for (const double share : {0.25, 0.6, 0.9}) {
      const double rate = share * peak;
      const double best = std::min(MeanOf("none", workers, rate), MeanOf("window", workers, rate));
      EXPECT_LE(MeanOf("staged", workers, rate), (share < 0.9 ? 1.05 : 1.12) * best)
          << workers << " workers, " << share << " of " << peak;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Costs, StagedLoadsTest,
    ::testing::Values(Model{"in_proportion", std::vector(4, InProportion(2.5))},
                      Model{"affine", std::vector(4, Affine(0.75, 1.75))},
                      Model{"late_gain", {InProportion(5), InProportion(5), kGains}},
                      Model{"early_gain", {kGains, InProportion(5), InProportion(5)}},
                      Model{"gain_between", {InProportion(4), kGains, InProportion(4)}},
                      Model{"in_turn", {InProportion(3), kGains, InProportion(3), kGains}},
                      Model{"gpu", {Prefers(32), Prefers(32), Prefers(4), Prefers(4)}}),
    [](const auto& info) { return info.param.name; });

// Dense layers at the end of convolutions, two workers: images run apart and meet before them.
class LateGainTest : public StagedLoadsTest {};

TEST_P(LateGainTest, IsMuchBetterThanTheBestOfThoseThatServeItWhole) {
  const double rate = 0.9 * RateOf("window", 2);
  EXPECT_LE(MeanOf("staged", 2, rate), 0.8 * MeanOf("window", 2, rate));
}

INSTANTIATE_TEST_SUITE_P(Costs, LateGainTest,
                         ::testing::Values(Model{"vgg",
                                                 {InProportion(5), InProportion(5), kGains}}));

}  // namespace
}  // namespace chairlift
