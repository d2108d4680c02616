// Costs of batches from a table of measured sizes.
#ifndef CHAIRLIFT_BATCHING_TABULATED_COSTS_H_
#define CHAIRLIFT_BATCHING_TABULATED_COSTS_H_

#include <span>
#include <vector>

#include "batching/scheduler.h"
#include "chairlift/status.h"

namespace chairlift {

// Between two sizes the cost is interpolated; below the first it is the first one's, above the last
// it grows in proportion to the rows.
class TabulatedCosts : public CostModel {
 public:
  struct Point {
    int32_t rows;
    Duration cost;
  };

  // The points of the next cell type, in any order, sizes from 1 up and each once, costs above 0.
  // InvalidArgument where they are not so, or there are none.
  Status AddType(std::vector<Point> points);
  // Multiplies all costs, of types yet to come too.
  void Scale(double factor) { scale_ *= factor; }

  // `type` must have been added.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  // The same of one type's points; ascending, and at least one.
  static double CostNs(std::span<const Point> points, int32_t rows);

 private:
  std::vector<std::vector<Point>> types_;
  double scale_ = 1;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_TABULATED_COSTS_H_
