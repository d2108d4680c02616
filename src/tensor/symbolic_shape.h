// Shapes known before there is a request: dimensions may be numbers, names or unknown.
#ifndef CHAIRLIFT_TENSOR_SYMBOLIC_SHAPE_H_
#define CHAIRLIFT_TENSOR_SYMBOLIC_SHAPE_H_

#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/tensor.h"

namespace chairlift {

// A number ("3"), a symbol ("batch": equal if the names are equal), or unknown ("?": never equal,
// not even to itself).
class Dim {
 public:
  Dim() = default;
  Dim(int64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): reads as a number
  static Dim Unknown() { return Dim(); }
  static Dim Symbol(std::string name) {
    Dim d;
    d.symbol_ = std::move(name);
    return d;
  }

  bool known() const { return value_ >= 0; }
  bool is_symbol() const { return !known() && !symbol_.empty(); }
  int64_t value() const {
    assert(known());
    return value_;
  }
  const std::string& symbol() const { return symbol_; }
  // Whether both are certainly equal at run time.
  bool Same(const Dim& other) const {
    return known() ? other.known() && value_ == other.value_
                   : is_symbol() && other.is_symbol() && symbol_ == other.symbol_;
  }
  std::string ToString() const;

 private:
  int64_t value_ = -1;
  std::string symbol_;
};

// Dimensions of known rank, or a completely unknown shape.
class SymbolicShape {
 public:
  SymbolicShape() = default;  // unknown rank
  explicit SymbolicShape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  explicit SymbolicShape(const Shape& shape) : dims_(std::in_place, shape.begin(), shape.end()) {}
  static SymbolicShape OfRank(int rank) { return SymbolicShape(std::vector<Dim>(rank)); }
  static SymbolicShape Scalar() { return OfRank(0); }

  bool has_rank() const { return dims_.has_value(); }
  int rank() const { return static_cast<int>(dims_->size()); }
  const Dim& operator[](int axis) const { return (*dims_)[axis]; }
  Dim& operator[](int axis) { return (*dims_)[axis]; }
  const std::vector<Dim>& dims() const { return *dims_; }
  void Append(Dim dim) { dims_->push_back(std::move(dim)); }

  // Whether the rank is known and every dimension is a number.
  bool concrete() const;
  Shape ToShape() const;         // requires concrete()
  std::string ToString() const;  // "[batch,3,?]", or "?" if the rank is unknown

 private:
  std::optional<std::vector<Dim>> dims_;
};

// Whether both certainly have the same shape.
bool SameShape(const SymbolicShape& a, const SymbolicShape& b);

// The dimension that two sources of the same tensor agree on. A number takes precedence over a
// symbol, and a symbol over unknown.
Dim MergeDims(const Dim& a, const Dim& b);

}  // namespace chairlift

#endif  // CHAIRLIFT_TENSOR_SYMBOLIC_SHAPE_H_
