#include "batching/length_costs.h"

#include <algorithm>
#include <map>

#include "base/status.h"

namespace chairlift {
namespace {

constexpr double kLearningRate = 0.125;  // for all costs
// For costs near the size that ran, in addition. If the machine's speed halves, both adapt in this
// proportion. It is small so that sizes that do not run meanwhile do not seem much cheaper.
constexpr double kPlaceLearningRate = kLearningRate / 32;
// If a batch took more than this times its expected cost, that says more about the machine than
// about the batch.
constexpr double kMaxSurprise = 4;
// Sampled lengths start here: shorter ones cost little.
constexpr int32_t kShortest = 8;

// A position relative to the grid's lines: lines[low]·(1 − part) + lines[low + 1]·part, then times
// `beyond`.
struct Between {
  size_t low = 0;
  double part = 0;
  double beyond = 1;
};

Between Place(std::span<const int32_t> lines, int32_t value) {
  const auto above = std::lower_bound(lines.begin(), lines.end(), value);
  if (above == lines.begin()) return {};
  if (above == lines.end()) {
    const int32_t last = lines.back();
    return {.low = lines.size() - 1,
            .part = 0,
            .beyond = last > 0 ? static_cast<double>(value) / last : 1.0};
  }
  const auto below = above - 1;
  return {.low = static_cast<size_t>(below - lines.begin()),
          .part = static_cast<double>(value - *below) / (*above - *below),
          .beyond = 1};
}

void AddPowers(int32_t from, int32_t limit, std::vector<int32_t>& sizes) {
  for (int64_t size = from; size < limit; size *= 2) sizes.push_back(static_cast<int32_t>(size));
  sizes.push_back(limit);
}

}  // namespace

Status LengthCosts::AddType(const std::vector<Sample>& samples) {
  std::map<int32_t, std::vector<Sample>> by_length;
  Grid grid;
  for (const auto& [rows, length, cost] : samples) {
    if (rows == 0 && length == 0 && cost > Duration(0) && grid.fixed_ns == 0) {
      grid.fixed_ns = static_cast<double>(cost.count());
      continue;
    }
    if (rows < 1 || length < 0 || cost <= Duration(0)) {
      return InvalidArgument("{} rows of length {} for {} ns is not a cost", rows, length,
                             cost.count());
    }
    by_length[length].push_back({rows, length, cost});
    grid.rows.push_back(rows);
  }
  if (grid.rows.empty()) return InvalidArgument("a cell type has no costs");
  std::sort(grid.rows.begin(), grid.rows.end());
  grid.rows.erase(std::unique(grid.rows.begin(), grid.rows.end()), grid.rows.end());
  for (auto& [length, points] : by_length) {
    const auto fewer = [](const auto& a, const auto& b) { return a.rows < b.rows; };
    std::sort(points.begin(), points.end(), fewer);
    const auto same = [](const auto& a, const auto& b) { return a.rows == b.rows; };
    const auto twice = std::adjacent_find(points.begin(), points.end(), same);
    if (twice != points.end()) {
      return InvalidArgument("the cost of {} rows of length {} is given twice", twice->rows,
                             length);
    }
    grid.lengths.push_back(length);
    for (const int32_t rows : grid.rows) {
      grid.costs_ns.push_back(CostNsOfRows(points, rows));
    }
  }
  for (size_t l = 0; l < grid.lengths.size(); ++l) {
    for (size_t r = 0; r < grid.rows.size(); ++r) {
      double& cost = grid.at(l, r);
      if (l > 0) cost = std::max(cost, grid.at(l - 1, r));
      if (r > 0) cost = std::max(cost, grid.at(l, r - 1));
    }
  }
  types_.push_back(std::move(grid));
  return absl::OkStatus();
}

double LengthCosts::Grid::CostNs(int32_t row_count, int32_t length) const {
  const Between row = Place(rows, row_count);
  const Between line = Place(lengths, length);
  const auto along = [&](size_t l) {
    const double low = at(l, row.low);
    return row.part > 0 ? low + row.part * (at(l, row.low + 1) - low) : low;
  };
  double cost = along(line.low);
  if (line.part > 0) cost += line.part * (along(line.low + 1) - cost);
  return cost * row.beyond * line.beyond;
}

Duration LengthCosts::Cost(CellType type, int32_t rows, int32_t length) const {
  return Duration(static_cast<int64_t>(types_[type].CostNs(rows, length) * scale_));
}

Duration LengthCosts::FixedCost(CellType type) const {
  return Duration(static_cast<int64_t>(types_[type].fixed_ns * scale_));
}

void LengthCosts::Grid::Settle(size_t length, size_t row) {
  const double cost = at(length, row);
  for (size_t l = 0; l < lengths.size(); ++l) {
    for (size_t r = 0; r < rows.size(); ++r) {
      if (l >= length && r >= row) at(l, r) = std::max(at(l, r), cost);
      if (l <= length && r <= row) at(l, r) = std::min(at(l, r), cost);
    }
  }
}

void LengthCosts::Learn(CellType type, int32_t rows, int32_t length, Duration measured) {
  if (measured <= Duration(0)) return;
  Grid& grid = types_[type];
  const double expected = grid.CostNs(rows, length) * scale_;
  const double ratio =
      std::clamp(static_cast<double>(measured.count()) / expected, 1 / kMaxSurprise, kMaxSurprise);
  scale_ *= 1 + kLearningRate * (ratio - 1);
  const Between row = Place(grid.rows, rows);
  const Between line = Place(grid.lengths, length);
  for (const size_t l : {line.low, line.low + 1}) {
    for (const size_t r : {row.low, row.low + 1}) {
      const double weight =
          (l == line.low ? 1 - line.part : line.part) * (r == row.low ? 1 - row.part : row.part);
      if (weight <= 0) continue;
      grid.at(l, r) *= 1 + kPlaceLearningRate * weight * (ratio - 1);
      grid.Settle(l, r);
    }
  }
}

std::vector<LengthCosts::Sample> LengthCosts::Samples(CellType type) const {
  const Grid& grid = types_[type];
  std::vector<Sample> samples;
  if (grid.fixed_ns > 0) samples.push_back({0, 0, FixedCost(type)});
  for (size_t l = 0; l < grid.lengths.size(); ++l) {
    for (size_t r = 0; r < grid.rows.size(); ++r) {
      const double cost = std::max(1.0, grid.at(l, r) * scale_);
      samples.push_back({grid.rows[r], grid.lengths[l], Duration(static_cast<int64_t>(cost))});
    }
  }
  return samples;
}

double CostNsOfRows(std::span<const LengthCosts::Sample> samples, int32_t rows) {
  const auto ns = [](const LengthCosts::Sample& at) {
    return static_cast<double>(at.cost.count());
  };
  const auto above = std::find_if(samples.begin(), samples.end(),
                                  [rows](const auto& sample) { return sample.rows >= rows; });
  if (above == samples.begin()) return ns(*above);
  if (above == samples.end()) return ns(samples.back()) * rows / samples.back().rows;
  const LengthCosts::Sample& below = *(above - 1);
  const double part = static_cast<double>(rows - below.rows) / (above->rows - below.rows);
  return ns(below) + part * (ns(*above) - ns(below));
}

std::vector<CostSize> SizesToMeasure(int32_t max_rows, int32_t max_length, int64_t max_places) {
  std::vector<int32_t> rows;
  AddPowers(1, max_rows, rows);
  std::vector<int32_t> lengths;
  if (max_length == 0) {
    lengths = {0};
  } else {
    AddPowers(kShortest, max_length, lengths);
  }
  std::vector<CostSize> sizes;
  const auto places = [](const CostSize& size) {
    return int64_t{size.rows} * std::max(size.length, 1);
  };
  for (const int32_t length : lengths) {
    for (const int32_t count : rows) {
      const CostSize size{count, length};
      if (places(size) <= max_places) sizes.push_back(size);
    }
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [&](const CostSize& a, const CostSize& b) { return places(a) < places(b); });
  return sizes;
}

}  // namespace chairlift
