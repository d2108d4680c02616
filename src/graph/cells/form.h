// How the axes of a tensor consist of rows, time steps and plain numbers; conversion from one such
// form to another.
#ifndef CHAIRLIFT_GRAPH_CELLS_FORM_H_
#define CHAIRLIFT_GRAPH_CELLS_FORM_H_

#include <cstdint>
#include <vector>

#include "graph/cells/graph_writer.h"

namespace chairlift {

// An axis of a tensor is a product of pieces, the first outermost.
struct Piece {
  enum class Kind { kNumber, kLanes, kTokens };
  Kind kind = Kind::kNumber;
  Dim number;  // for kNumber
  friend bool operator==(const Piece& a, const Piece& b) {
    return a.kind == b.kind && (a.kind != Kind::kNumber || a.number.Same(b.number));
  }
};
using Form = std::vector<std::vector<Piece>>;

// The numbers of a form in order, without ones that share an axis with others.
std::vector<Dim> RowOf(const Form& form);
bool AllKnown(const std::vector<Dim>& dims);

// The number of elements before each entry of the only piece of that kind. All numbers must be
// known.
int64_t CountBefore(const Form& form, Piece::Kind kind);

// Converts `x` from one form to another with the same numbers in the same order, by views and at
// most one transpose. One of the two must have its numbers at the end. Unimplemented if unknown
// sizes prevent it.
StatusOr<ValueId> ConvertForm(GraphWriter& writer, ValueId x, const Form& from, const Form& to);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_FORM_H_
