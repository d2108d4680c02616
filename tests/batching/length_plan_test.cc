// Plans of padded batches: the document's example, and every way to cut up small sets.
#include "batching/length_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace chairlift {
namespace {

// Costs by length and rows, kept as PlanLengths() asks for them.
class Costs {
 public:
  using Cost = std::function<double(int32_t length, int32_t rows)>;

  Costs(int max_rows, Cost cost) : max_rows_(max_rows), cost_(std::move(cost)) {}

  double operator()(int32_t length, int32_t rows) const { return cost_(length, rows); }
  LengthPlan Plan(const std::vector<LengthItem>& items) {
    return PlanLengths(items, max_rows_, [this](int32_t length) {
      row_.clear();
      for (int32_t rows = 1; rows <= max_rows_; ++rows) row_.push_back(cost_(length, rows));
      return std::span<const double>(row_);
    });
  }

 private:
  int max_rows_;
  Cost cost_;
  std::vector<double> row_;
};

double CostOf(const LengthPlan& plan) {
  double cost = 0;
  for (const LengthPlan::Batch& batch : plan.batches) cost += batch.cost;
  return cost;
}

// Every item once, in order, at the cost of its batch.
void CheckPlan(const LengthPlan& plan, const std::vector<LengthItem>& items, const Costs& costs,
               int max_rows) {
  int32_t next = 0;
  for (const auto& [begin, end, cost] : plan.batches) {
    ASSERT_EQ(begin, next);
    ASSERT_LT(begin, end);
    int32_t rows = 0;
    for (int32_t i = begin; i < end; ++i) rows += items[i].rows;
    ASSERT_TRUE(rows <= max_rows || end == begin + 1);
    const int32_t length = items[end - 1].length;
    const double expected =
        rows <= max_rows ? costs(length, rows) : costs(length, max_rows) * rows / max_rows;
    EXPECT_NEAR(cost, expected, 1e-9 * expected);
    next = end;
  }
  EXPECT_EQ(next, static_cast<int32_t>(items.size()));
}

// TurboTransformers Fig. 8. The document prints the costs of requests alone and of the best plan's
// batches; the others are no better here than requests alone, and one batch of five is worse.
TEST(LengthPlanTest, TheDocumentsExample) {
  const std::map<int32_t, double> alone = {
      {17, 2.97}, {18, 2.97}, {52, 4.54}, {63, 4.61}, {77, 5.53}};
  Costs costs(20, [&](int32_t length, int32_t rows) {
    if (length == 18 && rows == 2) return 4.35;
    if (length == 63 && rows == 2) return 5.36;
    return rows * alone.at(length);
  });
  const std::vector<LengthItem> items = {{17, 1}, {18, 1}, {52, 1}, {63, 1}, {77, 1}};
  const LengthPlan plan = costs.Plan(items);
  CheckPlan(plan, items, costs, 20);
  EXPECT_NEAR(CostOf(plan), 15.24, 1e-9);
  ASSERT_EQ(plan.batches.size(), 3u);
  EXPECT_EQ(plan.batches[0].end, 2);
  EXPECT_EQ(plan.batches[1].end, 4);
  EXPECT_GT(costs(77, 5), 20.62);
}

TEST(LengthPlanTest, NothingToPlan) {
  Costs costs(4, [](int32_t, int32_t) { return 1.0; });
  EXPECT_TRUE(costs.Plan({}).batches.empty());
}

TEST(LengthPlanTest, NoBatchHasMoreRowsThanAllowedButForOneOfASingleRequest) {
  Costs costs(4, [](int32_t, int32_t) { return 1.0; });
  const std::vector<LengthItem> items = {{1, 2}, {1, 2}, {2, 2}, {3, 9}, {4, 1}};
  const LengthPlan plan = costs.Plan(items);
  CheckPlan(plan, items, costs, 4);
  EXPECT_EQ(plan.batches.size(), 4u);
}

// Every way to cut the items, in their order.
double BestCut(const std::vector<LengthItem>& items, const Costs& costs, int max_rows) {
  double best = 1e300;
  for (uint32_t cuts = 0; cuts < 1u << (items.size() - 1); ++cuts) {
    double cost = 0;
    int32_t rows = 0;
    int32_t members = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      rows += items[i].rows;
      ++members;
      if (i + 1 < items.size() && (cuts >> i & 1) == 0) continue;
      if (rows > max_rows) {
        cost += members > 1 ? 1e300 : costs(items[i].length, max_rows) * rows / max_rows;
      } else {
        cost += costs(items[i].length, rows);
      }
      rows = members = 0;
    }
    best = std::min(best, cost);
  }
  return best;
}

TEST(LengthPlanTest, IsTheBestOfAllCuts) {
  std::mt19937 random(1);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const int max_rows = pick(1, 8);
    std::map<std::pair<int32_t, int32_t>, double> table;
    Costs costs(max_rows, [&](int32_t length, int32_t rows) {
      double& cost = table[{length, rows}];
      if (cost == 0) cost = pick(1, 1000);
      return cost;
    });
    std::vector<LengthItem> items;
    for (int n = pick(1, 10); n > 0; --n)
      items.push_back({pick(1, 6), pick(0, 9) ? 1 : pick(1, 9)});
    std::sort(items.begin(), items.end(),
              [](const LengthItem& a, const LengthItem& b) { return a.length < b.length; });
    const LengthPlan plan = costs.Plan(items);
    CheckPlan(plan, items, costs, max_rows);
    EXPECT_NEAR(CostOf(plan), BestCut(items, costs, max_rows), 1e-6);
  }
}

// The least cost of items[i..] put into `batches` or new ones.
double BestPartition(const std::vector<LengthItem>& items, size_t i, const Costs& costs,
                     int max_rows, std::vector<LengthItem>& batches) {
  if (i == items.size()) {
    double cost = 0;
    for (const LengthItem& batch : batches) cost += costs(batch.length, batch.rows);
    return cost;
  }
  double best = 1e300;
  for (size_t b = 0; b < batches.size(); ++b) {
    if (batches[b].rows == max_rows) continue;
    const LengthItem before = batches[b];
    batches[b] = {std::max(before.length, items[i].length), before.rows + 1};
    best = std::min(best, BestPartition(items, i + 1, costs, max_rows, batches));
    batches[b] = before;
  }
  batches.push_back({items[i].length, 1});
  best = std::min(best, BestPartition(items, i + 1, costs, max_rows, batches));
  batches.pop_back();
  return best;
}

// If longer costs more, only neighbours in length need to be tried.
TEST(LengthPlanTest, IsTheBestOfAllPartitionsWhereLongerCostsMore) {
  std::mt19937 random(2);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 100; ++round) {
    const int max_rows = pick(1, 5);
    const double fixed = pick(0, 300);
    const double power = 0.1 * pick(3, 12);
    const Costs::Cost cost = [=](int32_t length, int32_t rows) {
      return fixed + length * std::pow(rows, power);
    };
    Costs costs(max_rows, cost);
    std::vector<LengthItem> items;
    for (int n = pick(1, 8); n > 0; --n) items.push_back({pick(1, 100), 1});
    std::sort(items.begin(), items.end(),
              [](const LengthItem& a, const LengthItem& b) { return a.length < b.length; });
    std::vector<LengthItem> batches;
    EXPECT_NEAR(CostOf(costs.Plan(items)), BestPartition(items, 0, costs, max_rows, batches), 1e-6);
  }
}

}  // namespace
}  // namespace chairlift
