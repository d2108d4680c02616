// What is known about the elements of a tensor from which a mask is computed, for all sizes and
// marks.
#ifndef CHAIRLIFT_GRAPH_RAGGED_GRID_H_
#define CHAIRLIFT_GRAPH_RAGGED_GRID_H_

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/batch_axis/extent.h"
#include "graph/ir.h"
#include "graph/ragged/place.h"

namespace chairlift::ragged {

struct Grid {
  enum class Kind {
    kUnknown,
    // Each element is bits[m], where m (0 or 1) is the mark of token l of sequence b. b and l are
    // its indices along `batch` and `length`, or b·(length) + l is its index along both if they are
    // one axis. If they are −1, bits[0] and bits[1] are equal, and so are all elements.
    kBits,
    kPlace,   // each element is places[0] of its indices
    kPlaces,  // the same, with places[i] for index i along the last axis
  };
  Kind kind = Kind::kUnknown;
  std::optional<std::vector<Extent>> dims = {};  // none has 0 entries; absent if unknown
  int batch = -1, length = -1;
  int input = -1;    // the graph input of the marks; −1 if `batch` is −1
  Tensor bits = {};  // [2]
  std::vector<Place> places = {};
  std::string why = {};  // for unknown

  static Grid Unknown(std::string why, std::optional<std::vector<Extent>> dims = {});
  static Grid OfConstant(const Tensor& constant);
  // Integers of rank 0 or 1.
  static Grid OfSizes(const std::vector<Extent>& elements, int rank, DType dtype);
  // For an input [batch, length]; for others only the shape is known.
  static Grid OfInput(const Value& value, int input);
  // The same everywhere; `bits`: [2], equal.
  static Grid OfBits(Tensor bits, std::vector<Extent> dims);
  static Grid OfPlace(Place place, std::vector<Extent> dims);

  bool is_bits() const { return kind == Kind::kBits; }
  bool is_place() const { return kind == Kind::kPlace; }
  bool constant() const { return is_bits() && batch < 0; }
  // As a place, if possible: uniform numbers are places too.
  std::optional<Place> AsPlace() const;
  // As bits of that type, if possible: a place that is a constant number can be converted too.
  std::optional<Grid> AsBits(DType dtype) const;

  // With axis i moved to `to[i]` and the dimensions `dims`; a dimension of 1 may be removed (−1).
  // Elements that cannot be described there become unknown.
  Grid Moved(std::span<const int> to, std::vector<Extent> dims) const;
  // Broadcast to `dims`; unknown if it does not fit.
  Grid Broadcast(const std::vector<Extent>& dims) const;
  // With other dimensions and the elements in the same order.
  Grid Reshaped(std::vector<Extent> dims) const;
};

// The shape that operands are broadcast to; nothing if unknown.
std::optional<std::vector<Extent>> BroadcastDims(const std::vector<Extent>& a,
                                                 const std::vector<Extent>& b);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_GRID_H_
