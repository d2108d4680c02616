// How a tensor's axes are made up of rows, time steps and plain numbers, and moving from one such
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
  Dim number;  // of kNumber
  friend bool operator==(const Piece& a, const Piece& b) {
    return a.kind == b.kind && (a.kind != Kind::kNumber || a.number.Same(b.number));
  }
};
using Form = std::vector<std::vector<Piece>>;

// The numbers of a form in order, but for ones that share an axis with others.
std::vector<Dim> RowOf(const Form& form);
bool AllKnown(const std::vector<Dim>& dims);

// How many elements lie before each entry of the one piece of that kind; all numbers are known.
int64_t CountBefore(const Form& form, Piece::Kind kind);

// `x`, of one form, in another with the same numbers in the same order: views, and at most one
// transposition. One of the two has its numbers last. Unimplemented where sizes that are not known
// stand in the way.
StatusOr<ValueId> ConvertForm(GraphWriter& writer, ValueId x, const Form& from, const Form& to);

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_CELLS_FORM_H_
