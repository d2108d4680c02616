#include "batching/size_costs.h"

#include <algorithm>
#include <bit>

namespace chairlift {
namespace {

// The weight of each earlier request relative to the next one of the same group.
constexpr double kEarlier = 0.9;
// Longer than any request runs, but small enough that sums over requests do not overflow.
constexpr double kLongestNs = 3600e9;

}  // namespace

size_t SizeCosts::GroupOf(int64_t bytes) {
  const auto width =
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(bytes, 1))));
  return std::min(width, kGroups) - 1;
}

void SizeCosts::Learn(int64_t bytes, Duration cost, int batched) {
  Group& group = groups_[GroupOf(bytes)];
  if (group.most) group = {};
  const double weight = std::max(batched, 1);
  group.cost_ns = kEarlier * group.cost_ns + weight * static_cast<double>(cost.count());
  group.bytes = kEarlier * group.bytes + weight * static_cast<double>(std::max<int64_t>(bytes, 1));
  group.number = kEarlier * group.number + weight;
}

void SizeCosts::LearnMost(int64_t bytes, Duration cost) {
  const Group& group = groups_[GroupOf(bytes)];
  if (group.bytes > 0 && !group.most) return;
  Learn(bytes, cost, 1);
  groups_[GroupOf(bytes)].most = true;
}

void SizeCosts::LearnLeast(int64_t bytes, Duration cost) {
  if (Predict(bytes).cost >= cost) return;
  groups_[GroupOf(bytes)] = {};
  Learn(bytes, cost, 1);
}

SizeCosts::Prediction SizeCosts::Predict(int64_t bytes) const {
  const auto size = static_cast<double>(std::max<int64_t>(bytes, 1));
  const auto known = [](const Group& group) { return group.bytes > 0; };
  const auto time = [](double ns) {
    return Duration(static_cast<int64_t>(std::min(ns, kLongestNs)));
  };
  const size_t own = GroupOf(bytes);
  if (known(groups_[own])) {
    return {time(groups_[own].cost_ns / groups_[own].bytes * size), true};
  }
  const auto larger =
      std::find_if(groups_.begin() + static_cast<ptrdiff_t>(own), groups_.end(), known);
  const auto smaller =
      std::find_if(groups_.rend() - static_cast<ptrdiff_t>(own), groups_.rend(), known);
  Prediction prediction;
  if (smaller != groups_.rend()) prediction.cost = time(smaller->cost_ns / smaller->bytes * size);
  if (larger != groups_.end()) {
    const Duration most = time(larger->cost_ns / larger->number);
    prediction.cost = smaller != groups_.rend() ? std::min(prediction.cost, most) : most;
  }
  return prediction;
}

}  // namespace chairlift
