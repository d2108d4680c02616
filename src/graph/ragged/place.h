// Integers that depend on positions along axes: sums of axis indices times sizes, and of sizes.
#ifndef CHAIRLIFT_GRAPH_RAGGED_PLACE_H_
#define CHAIRLIFT_GRAPH_RAGGED_PLACE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "graph/batch_axis/extent.h"

namespace chairlift::ragged {

// A sum of products of the batch size, the length (both at least 1) and a number.
class SizeSum {
 public:
  SizeSum() = default;  // 0
  // Nothing if another dimension is a factor.
  static std::optional<SizeSum> Of(const Extent& extent);
  static SizeSum Number(int64_t value);

  bool is_zero() const { return terms_.empty(); }
  std::optional<int64_t> number() const;
  // Bounds for all sizes; nothing if there is no bound or none is found.
  std::optional<int64_t> Least() const;
  std::optional<int64_t> Most() const;
  // Whether no term is negative, or positive.
  bool AllAtLeastZero() const;
  bool AllAtMostZero() const;
  friend bool operator==(const SizeSum&, const SizeSum&) = default;

  // Nothing on overflow.
  static std::optional<SizeSum> Sum(const SizeSum& a, const SizeSum& b, int64_t times_b = 1);
  static std::optional<SizeSum> Product(const SizeSum& a, const SizeSum& b);

 private:
  using Powers = std::pair<int, int>;  // of the batch size and of the length
  bool Add(const Powers& powers, int64_t number);

  std::map<Powers, int64_t> terms_;  // no value is 0
};

// offset + Σ steps[axis] · (index along the axis).
struct Place {
  SizeSum offset;
  std::map<int, SizeSum> steps;  // no value is 0

  // The axis whose index it is; −1 if it is something else.
  int OnlyAxis() const;

  static std::optional<Place> Sum(const Place& a, const Place& b, int64_t times_b = 1);
  // Nothing if both depend on indices.
  static std::optional<Place> Product(const Place& a, const Place& b);
  // Bounds over all indices into the dimensions `dims`.
  std::optional<int64_t> Least(const std::vector<Extent>& dims) const;
  std::optional<int64_t> Most(const std::vector<Extent>& dims) const;

 private:
  std::optional<SizeSum> Bound(const std::vector<Extent>& dims, bool most) const;
};

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_PLACE_H_
