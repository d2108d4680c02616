// Costs of batches by rows and length from measured samples, kept true by what is measured while
// they are used.
#ifndef CHAIRLIFT_BATCHING_LENGTH_COSTS_H_
#define CHAIRLIFT_BATCHING_LENGTH_COSTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "batching/scheduler.h"
#include "chairlift/status.h"

namespace chairlift {

// Of each cell type, a grid of costs: more rows never cost less, nor do longer ones. Between the
// grid's lines the cost is interpolated in both directions, so that it never leaves what surrounds
// it; below the first line of a direction it is that line's; beyond the last it grows in
// proportion. A type whose rows have no length (tokens) has samples of length 0 only.
//
// Not thread-safe: for one that schedules, who learns under the lock under which it schedules.
class LengthCosts : public CostModel {
 public:
  struct Sample {
    int32_t rows;
    int32_t length;
    Duration cost;
  };

  // The samples of the next cell type, in any order; not every number of rows need be there for
  // every length. A sample of 0 rows is what the others contain of costs that a task of several
  // steps has once (FixedCost). InvalidArgument where there are no others, one is there twice, rows
  // or lengths are not from 0 up, or costs not above 0.
  Status AddType(const std::vector<Sample>& samples);
  // Multiplies all costs, of types yet to come too.
  void Scale(double factor) { scale_ *= factor; }

  // `type` must have been added.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  Duration FixedCost(CellType type) const override;

  // A batch took `measured`. The difference (which counts as at most four times what was expected)
  // may come from the machine, which others slow down, or of batches of that size: all costs, of
  // all types, move by an eighth of it, and what surrounds it in the grid by up to a 256th more.
  // The rest of the grid moves as far as more would cost less otherwise.
  void Learn(CellType type, int32_t rows, int32_t length, Duration measured);

  // The grid as it is now, in order of length, then rows: to be kept.
  std::vector<Sample> Samples(CellType type) const;

 private:
  struct Grid {
    std::vector<int32_t> rows;
    std::vector<int32_t> lengths;
    std::vector<double> costs_ns;  // [lengths][rows]
    double fixed_ns = 0;

    double& at(size_t length, size_t row) { return costs_ns[length * rows.size() + row]; }
    double at(size_t length, size_t row) const { return costs_ns[length * rows.size() + row]; }
    double CostNs(int32_t rows, int32_t length) const;
    // Has no other place contradict this one.
    void Settle(size_t length, size_t row);
  };

  std::vector<Grid> types_;
  double scale_ = 1;
};

// What so many rows cost, from samples of one length in order of rows, as LengthCosts interpolates.
double CostNsOfRows(std::span<const LengthCosts::Sample> samples, int32_t rows);

// The sizes to measure for a model whose batches have up to `max_rows` rows of up to `max_length`
// (0: rows have no length): powers of two, and the limits themselves, but none of more than
// `max_places` rows times length. In order of rows times length: where time runs out, what is left
// are the largest.
struct CostSize {
  int32_t rows;
  int32_t length;
  friend bool operator==(const CostSize&, const CostSize&) = default;
};
std::vector<CostSize> SizesToMeasure(int32_t max_rows, int32_t max_length, int64_t max_places);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LENGTH_COSTS_H_
