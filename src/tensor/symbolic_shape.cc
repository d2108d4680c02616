#include "tensor/symbolic_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace chairlift {

std::string Dim::ToString() const {
  return known() ? std::to_string(value_) : is_symbol() ? symbol_ : "?";
}

bool SymbolicShape::concrete() const {
  return has_rank() &&
         std::all_of(dims_->begin(), dims_->end(), [](const Dim& d) { return d.known(); });
}

Shape SymbolicShape::ToShape() const {
  assert(concrete());
  Shape shape;
  for (const Dim& d : *dims_) shape.Append(d.value());
  return shape;
}

std::string SymbolicShape::ToString() const {
  if (!has_rank()) return "?";
  std::string out = "[";
  for (int i = 0; i < rank(); ++i) {
    if (i > 0) out += ",";
    out += (*dims_)[i].ToString();
  }
  return out + "]";
}

bool SameShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return false;
  for (int i = 0; i < a.rank(); ++i) {
    if (!a[i].Same(b[i])) return false;
  }
  return true;
}

Dim MergeDims(const Dim& a, const Dim& b) {
  if (a.known()) return a;
  if (b.known()) return b;
  return a.is_symbol() ? a : b;
}

}  // namespace chairlift
