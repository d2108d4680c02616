// Costs of batches by rows and length: from measured samples, and updated with measurements while
// they are used.
#ifndef CHAIRLIFT_BATCHING_LENGTH_COSTS_H_
#define CHAIRLIFT_BATCHING_LENGTH_COSTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "batching/scheduler.h"
#include "chairlift/status.h"

namespace chairlift {

// A grid of costs for each cell type. Costs never decrease with rows or length. Between grid lines
// the cost is interpolated in both directions, so it stays between its neighbours. Below the first
// line of a direction it equals that line; beyond the last it grows in proportion. A type whose
// rows have no length (tokens) has only samples of length 0.
//
// Not thread-safe: for use by one scheduler, which calls Learn() under the lock that it schedules
// under.
class LengthCosts : public CostModel {
 public:
  struct Sample {
    int32_t rows;
    int32_t length;
    Duration cost;
  };

  // Adds the next cell type from its samples, in any order; some numbers of rows may be missing for
  // some lengths. A sample of 0 rows is the part of the other costs that a task of several steps
  // pays only once (FixedCost). InvalidArgument if there are no other samples, if one occurs twice,
  // if rows or lengths are negative, or if a cost is not positive.
  Status AddType(const std::vector<Sample>& samples);
  // Multiplies all costs, including those of types added later.
  void Scale(double factor) { scale_ *= factor; }

  // `type` must have been added.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  Duration FixedCost(CellType type) const override;

  // Learns from a batch that took `measured`. The difference (at most four times the expected cost)
  // may be due to the machine, slowed down by others, or to batches of this size. So all costs of
  // all types move by an eighth of it, and the neighbours in the grid by up to another 256th. The
  // rest of the grid moves only as far as needed to keep costs from decreasing with size.
  void Learn(CellType type, int32_t rows, int32_t length, Duration measured);

  // The current grid in order of length, then rows, for saving.
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
    // Adjusts the other grid points so that none contradicts this one.
    void Settle(size_t length, size_t row);
  };

  std::vector<Grid> types_;
  double scale_ = 1;
};

// The cost of `rows` rows, from samples of one length in order of rows, with the interpolation of
// LengthCosts.
double CostNsOfRows(std::span<const LengthCosts::Sample> samples, int32_t rows);

// The sizes to measure for a model whose batches have up to `max_rows` rows of up to `max_length`
// (0: rows have no length). They are powers of two and the limits themselves, each with at most
// `max_places` = rows times length. Sorted by rows times length, so that if time runs out, only the
// largest are missing.
struct CostSize {
  int32_t rows;
  int32_t length;
  friend bool operator==(const CostSize&, const CostSize&) = default;
};
std::vector<CostSize> SizesToMeasure(int32_t max_rows, int32_t max_length, int64_t max_places);

}  // namespace chairlift

#endif  // CHAIRLIFT_BATCHING_LENGTH_COSTS_H_
