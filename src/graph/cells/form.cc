#include "graph/cells/form.h"

#include <algorithm>
#include <optional>

namespace chairlift {
namespace {

using Kind = Piece::Kind;

// All pieces of a form except ones, in order.
std::vector<Piece> Flatten(const Form& form) {
  std::vector<Piece> pieces;
  for (const auto& axis : form) {
    for (const Piece& piece : axis) {
      const bool one =
          piece.kind == Kind::kNumber && piece.number.known() && piece.number.value() == 1;
      if (!one) pieces.push_back(piece);
    }
  }
  return pieces;
}

bool OnePieceEach(const Form& form) {
  return std::all_of(form.begin(), form.end(), [](const auto& axis) { return axis.size() == 1; });
}

// Merges consecutive numbers into one.
std::vector<Piece> Merge(const std::vector<Piece>& pieces) {
  std::vector<Piece> merged;
  for (const Piece& piece : pieces) {
    if (!merged.empty() && merged.back().kind == Kind::kNumber && piece.kind == Kind::kNumber) {
      merged.back().number = Dim(merged.back().number.value() * piece.number.value());
    } else {
      merged.push_back(piece);
    }
  }
  return merged;
}

// The index in `from` of each piece of `to`; nothing if their pieces differ. Numbers are matched in
// order.
std::optional<std::vector<int64_t>> Permutation(const std::vector<Piece>& from,
                                                const std::vector<Piece>& to) {
  if (from.size() != to.size()) return std::nullopt;
  std::vector<int64_t> perm;
  std::vector<bool> taken(from.size(), false);
  for (const Piece& piece : to) {
    size_t i = 0;
    while (i < from.size() && (taken[i] || from[i].kind != piece.kind)) ++i;
    if (i == from.size() || !(from[i] == piece)) return std::nullopt;
    taken[i] = true;
    perm.push_back(static_cast<int64_t>(i));
  }
  return perm;
}

bool IsIdentity(const std::vector<int64_t>& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

Form AxisEach(const std::vector<Piece>& pieces) {
  Form form;
  for (const Piece& piece : pieces) form.push_back({piece});
  return form;
}

bool NumbersLast(const std::vector<Piece>& pieces) {
  return std::is_partitioned(pieces.begin(), pieces.end(),
                             [](const Piece& p) { return p.kind != Kind::kNumber; });
}

// The pieces of `first`, whose numbers come last, with the numbers of `other`.
std::vector<Piece> InOrderOf(const std::vector<Piece>& first, const std::vector<Piece>& other) {
  std::vector<Piece> result;
  for (const Piece& piece : first) {
    if (piece.kind != Kind::kNumber) result.push_back(piece);
  }
  for (const Piece& piece : other) {
    if (piece.kind == Kind::kNumber) result.push_back(piece);
  }
  return result;
}

StatusOr<ValueId> Reshape(GraphWriter& writer, ValueId x, const Form& from, const Form& to) {
  if (from == to) return x;
  std::vector<int64_t> dims;
  int deduced = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    int64_t product = 1;
    bool known = true;
    for (const Piece& piece : to[i]) {
      known = known && piece.kind == Kind::kNumber && piece.number.known();
      if (known) product *= piece.number.value();
    }
    if (known) {
      dims.push_back(product);
    } else if (i < from.size() && from[i] == to[i]) {
      dims.push_back(0);
    } else {
      dims.push_back(-1);
      ++deduced;
    }
  }
  if (deduced > 1) return Unimplemented("rows in several dimensions cannot be put together");
  return writer.Reshape(x, dims);
}

}  // namespace

std::vector<Dim> RowOf(const Form& form) {
  std::vector<Dim> row;
  for (const std::vector<Piece>& axis : form) {
    for (const Piece& piece : axis) {
      if (piece.kind == Piece::Kind::kNumber) row.push_back(piece.number);
    }
  }
  return row;
}

bool AllKnown(const std::vector<Dim>& dims) {
  return std::all_of(dims.begin(), dims.end(),
                     [](const Dim& d) { return d.known() && d.value() > 0; });
}

int64_t CountBefore(const Form& form, Kind kind) {
  int64_t count = 1;
  for (const auto& axis : form) {
    for (const Piece& piece : axis) {
      if (piece.kind == kind) return count;
      if (piece.kind == Kind::kNumber) count *= piece.number.value();
    }
  }
  return 1;
}

StatusOr<ValueId> ConvertForm(GraphWriter& writer, ValueId x, const Form& from, const Form& to) {
  if (from == to) return x;
  if (OnePieceEach(from) && OnePieceEach(to)) {
    std::vector<Piece> source;
    std::vector<Piece> target;
    for (const auto& axis : from) source.push_back(axis[0]);
    for (const auto& axis : to) target.push_back(axis[0]);
    // Ones may be among them; separate ones are moved along.
    const auto perm = Permutation(source, target);
    const bool known = AllKnown(RowOf(from));
    if (perm && (!known || Merge(Flatten(from)) != Merge(Flatten(to)))) {
      return writer.Transpose(x, *perm);
    }
  }
  std::vector<Piece> source = Flatten(from);
  std::vector<Piece> target = Flatten(to);
  if (AllKnown(RowOf(from)) && AllKnown(RowOf(to))) {
    source = Merge(source);
    target = Merge(target);
    if (source == target) return Reshape(writer, x, from, to);
    // One of the two has its numbers at the end, in one run, which is divided like the other's.
    if (NumbersLast(source)) {
      source = InOrderOf(source, target);
    } else {
      target = InOrderOf(target, source);
    }
  }
  const auto perm = Permutation(source, target);
  if (!perm) return Unimplemented("rows cannot be put first");
  CHAIRLIFT_ASSIGN_OR_RETURN(x, Reshape(writer, x, from, AxisEach(source)));
  if (!IsIdentity(*perm)) x = writer.Transpose(x, *perm);
  return Reshape(writer, x, AxisEach(target), to);
}

}  // namespace chairlift
