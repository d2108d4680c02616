#include "batching/batch_sizes.h"

#include <algorithm>

namespace chairlift {
namespace {

constexpr double kOfTheBestThroughput = 0.95;
constexpr double kOfTheCostOfOne = 1.10;

}  // namespace

BatchSizes ChooseBatchSizes(const CostModel& costs, CellType type, int limit, Duration overhead) {
  std::vector<int> sizes;
  for (int64_t size = 1; size < limit; size *= 2) sizes.push_back(static_cast<int>(size));
  sizes.push_back(limit);
  const auto cost = [&](int size) {
    return std::max(1.0, static_cast<double>((costs.Cost(type, size) + overhead).count()));
  };
  double best = 0;
  for (const int size : sizes) best = std::max(best, size / cost(size));
  const auto enough = [&](int size) { return size / cost(size) >= kOfTheBestThroughput * best; };

  BatchSizes chosen;
  chosen.max = *std::find_if(sizes.begin(), sizes.end(), enough);
  for (const int size : sizes) {
    if (size <= chosen.max && cost(size) <= kOfTheCostOfOne * cost(1)) chosen.min = size;
  }
  return chosen;
}

}  // namespace chairlift
