#include "batching/batch_sizes.h"

#include <algorithm>

#include "base/status.h"

namespace chairlift {
namespace {

constexpr double kNearlyTheBest = 0.95;
constexpr double kTheBest = 0.99;
constexpr double kOfTheCostOfOne = 1.10;

}  // namespace

BatchSizes ChooseBatchSizes(const CostModel& costs, CellType type, int limit, Duration overhead) {
  std::vector<int> sizes;
  for (int64_t size = 1; size < limit; size *= 2) sizes.push_back(static_cast<int>(size));
  sizes.push_back(limit);
  const auto cost = [&](int size) {
    return std::max(1.0, static_cast<double>((costs.Cost(type, size, 0) + overhead).count()));
  };
  double best = 0;
  for (const int size : sizes) best = std::max(best, size / cost(size));
  const auto smallest = [&](double share) {
    return *std::find_if(sizes.begin(), sizes.end(),
                         [&](int size) { return size / cost(size) >= share * best; });
  };

  BatchSizes chosen;
  chosen.max = smallest(kNearlyTheBest);
  chosen.most = std::min(2 * chosen.max, smallest(kTheBest));
  for (const int size : sizes) {
    if (size <= chosen.max && cost(size) <= kOfTheCostOfOne * cost(1)) chosen.min = size;
  }
  return chosen;
}

BatchSizes SizesOf(const PolicyOptions& options, CellType type) {
  static const CellTypeOptions kNothing;
  const CellTypeOptions& given =
      type < options.cell_types.size() ? options.cell_types[type] : kNothing;
  const int limit = given.max_batch_size > 0 ? given.max_batch_size : options.max_batch_size;
  BatchSizes sizes{.min = 1, .max = limit, .most = limit};
  if (options.costs != nullptr) {
    sizes = ChooseBatchSizes(*options.costs, type, limit);
    if (given.max_batch_size > 0) sizes.max = sizes.most = limit;
  }
  if (given.min_batch_size > 0) sizes.min = given.min_batch_size;
  sizes.max = std::max(sizes.max, sizes.min);
  sizes.most = std::max({sizes.most, sizes.max, given.most_batch_size});
  return sizes;
}

}  // namespace chairlift
