#include "batching/tabulated_costs.h"

#include <algorithm>

#include "base/status.h"

namespace chairlift {

Status TabulatedCosts::AddType(std::vector<Point> points) {
  if (points.empty()) return InvalidArgument("a cell type has no costs");
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.rows < b.rows; });
  for (size_t i = 0; i < points.size(); ++i) {
    if (points[i].rows < 1 || points[i].cost <= Duration::zero()) {
      return InvalidArgument("{} rows for {} ns: both must be above 0", points[i].rows,
                             points[i].cost.count());
    }
    if (i > 0 && points[i].rows == points[i - 1].rows) {
      return InvalidArgument("the cost of {} rows is given twice", points[i].rows);
    }
  }
  types_.push_back(std::move(points));
  return absl::OkStatus();
}

Duration TabulatedCosts::Cost(CellType type, int32_t rows, int32_t /*length*/) const {
  return Duration(static_cast<int64_t>(CostNs(types_[type], rows) * scale_));
}

double TabulatedCosts::CostNs(std::span<const Point> points, int32_t rows) {
  const auto ns = [](const Point& point) { return static_cast<double>(point.cost.count()); };
  const auto above = std::find_if(points.begin(), points.end(),
                                  [rows](const Point& point) { return point.rows >= rows; });
  double cost = 0;
  if (above == points.begin()) {
    cost = ns(*above);
  } else if (above == points.end()) {
    cost = ns(points.back()) * rows / points.back().rows;
  } else {
    const Point& below = *(above - 1);
    const double part = static_cast<double>(rows - below.rows) / (above->rows - below.rows);
    cost = ns(below) + part * (ns(*above) - ns(below));
  }
  return cost;
}

}  // namespace chairlift
