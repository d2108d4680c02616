// What is known of the elements of a tensor that a mask is made of, whatever the sizes and marks.
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
    // Each element is bits[m], where m, 0 or 1, is the mark of token l of sequence b: b and l are
    // its indices along `batch` and `length`, or its index b·(length) + l along both where they are
    // one axis. Where they are −1, bits[0] and bits[1] are equal, and all elements are that.
    kBits,
    kPlace,   // each element is places[0] of its indices
    kPlaces,  // likewise, places[i] where its index along the last axis is i
  };
  Kind kind = Kind::kUnknown;
  std::optional<std::vector<Extent>> dims = {};  // none has 0 entries; nothing where not known
  int batch = -1, length = -1;
  int input = -1;    // of the graph, which the marks come from; −1 with `batch`
  Tensor bits = {};  // [2]
  std::vector<Place> places = {};
  std::string why = {};  // of unknown

  static Grid Unknown(std::string why, std::optional<std::vector<Extent>> dims = {});
  static Grid OfConstant(const Tensor& constant);
  // Integers of rank 0 or 1.
  static Grid OfSizes(const std::vector<Extent>& elements, int rank, DType dtype);
  // Of [batch, length]; else nothing is known but its shape.
  static Grid OfInput(const Value& value, int input);
  // The same everywhere; `bits`: [2], equal.
  static Grid OfBits(Tensor bits, std::vector<Extent> dims);
  static Grid OfPlace(Place place, std::vector<Extent> dims);

  bool is_bits() const { return kind == Kind::kBits; }
  bool is_place() const { return kind == Kind::kPlace; }
  bool constant() const { return is_bits() && batch < 0; }
  // As a place, where it is one: numbers that are the same everywhere are, too.
  std::optional<Place> AsPlace() const;
  // As bits of that type, where it is: a place that is one number is, too.
  std::optional<Grid> AsBits(DType dtype) const;

  // With axis i moved to `to[i]` and the dimensions `dims`; a dimension of 1 may go to −1. Elements
  // that cannot be described there become unknown.
  Grid Moved(std::span<const int> to, std::vector<Extent> dims) const;
  // As operands are broadcast. Nothing is known where it does not fit `dims`.
  Grid Broadcast(const std::vector<Extent>& dims) const;
  // With the elements in the same order.
  Grid Reshaped(std::vector<Extent> dims) const;
};

// The shape that operands are broadcast to; nothing where that is not known.
std::optional<std::vector<Extent>> BroadcastDims(const std::vector<Extent>& a,
                                                 const std::vector<Extent>& b);

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_GRID_H_
