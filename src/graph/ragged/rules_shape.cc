// Operators that change shapes.
#include <algorithm>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

using batch_axis::ToString;

const Extent& Length() {
  static const Extent* const kLength = new Extent(Extent::Symbol(kLengthSymbol));
  return *kLength;
}
const Extent& BatchTimesLength() {
  static const Extent* const kBoth = new Extent(*Extent::Product(Extent::Batch(), Length()));
  return *kBoth;
}
bool Varies(const Extent& dim) { return dim.batch() > 0 || dim.power(kLengthSymbol) > 0; }

// The new positions of the axes of `form` when [from] is reshaped to [to]; an error if its entries
// do not stay whole.
StatusOr<Form> Regroup(const Form& form, const std::vector<Extent>& from,
                       const std::vector<Extent>& to) {
  size_t prefix = 0;
  while (prefix < std::min(from.size(), to.size()) && from[prefix] == to[prefix]) ++prefix;
  size_t suffix = 0;
  while (suffix < std::min(from.size(), to.size()) - prefix &&
         from[from.size() - 1 - suffix] == to[to.size() - 1 - suffix]) {
    ++suffix;
  }
  // The dimensions in between are regrouped: they may join or split batch and length, or contain
  // neither.
  std::vector<Extent> left(from.begin() + static_cast<int64_t>(prefix),
                           from.end() - static_cast<int64_t>(suffix));
  std::vector<Extent> right(to.begin() + static_cast<int64_t>(prefix),
                            to.end() - static_cast<int64_t>(suffix));
  const auto none = [](const std::vector<Extent>& dims) {
    return std::none_of(dims.begin(), dims.end(), Varies);
  };
  const auto starts = [&](const std::vector<Extent>& dims, std::initializer_list<Extent> with) {
    return dims.size() >= with.size() && std::equal(with.begin(), with.end(), dims.begin()) &&
           none({dims.begin() + static_cast<int64_t>(with.size()), dims.end()});
  };
  Form out = form.Moved([&](int axis) {
    const auto at = static_cast<size_t>(axis);
    return at < prefix                  ? axis
           : at >= from.size() - suffix ? axis + static_cast<int>(to.size() - from.size())
                                        : -2;
  });
  if (none(left) && none(right)) return out;
  // A dimension of one that is added or removed ends the common part early.
  const int at = static_cast<int>(prefix);
  if (form.tokens() && starts(left, {Extent::Batch(), Length()}) &&
      starts(right, {BatchTimesLength()})) {
    return Form::Of(Kind::kTokens, at, at);
  }
  if (form.merged() && starts(left, {BatchTimesLength()}) &&
      starts(right, {Extent::Batch(), Length()})) {
    return Form::Of(Kind::kTokens, at, at + 1);
  }
  // The same varying dimensions in the same order, with ones added or removed around them.
  std::vector<int> places;
  const auto plain = [](const std::vector<Extent>& dims) {
    return std::all_of(dims.begin(), dims.end(),
                       [](const Extent& d) { return d.is_one() || Varies(d); });
  };
  std::vector<Extent> before, after;
  for (const Extent& d : left) {
    if (Varies(d)) before.push_back(d);
  }
  for (size_t i = 0; i < right.size(); ++i) {
    if (!Varies(right[i])) continue;
    after.push_back(right[i]);
    places.push_back(at + static_cast<int>(i));
  }
  if (plain(left) && plain(right) && before == after) {
    size_t next = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      if (!Varies(left[i])) continue;
      const int axis = at + static_cast<int>(i);
      if (axis == form.batch) out.batch = places[next];
      if (axis == form.length) out.length = places[next];
      ++next;
    }
    return out;
  }
  return Unimplemented("it makes {} of {}, which does not keep tokens whole", ToString(to),
                       ToString(from));
}

// The node as a Reshape to `to`, which has the axes of `form`.
Status EmitReshape(Context& c, const Form& form, const std::vector<Extent>& to) {
  std::vector<int64_t> shape;
  const Form& from = c.in(0);
  for (int axis = 0; axis < static_cast<int>(to.size()); ++axis) {
    const Extent& dim = to[static_cast<size_t>(axis)];
    const bool varies = axis == form.length || (axis == form.batch && form.rows());
    if (varies) {
      const bool same_place = axis == (form.length >= 0 ? from.length : from.batch);
      shape.push_back(same_place ? 0 : -1);
    } else if (axis == form.batch) {
      shape.push_back(1);
    } else if (dim.is_number() && dim.number() > 0) {
      shape.push_back(dim.number());
    } else {
      return Unimplemented("dimension {} of its result, {}, cannot be followed", axis,
                           dim.ToString());
    }
  }
  Packer& packer = c.packer();
  return c.Result(form,
                  packer.Emit(c.node().name, "Reshape", {c.packed(0), packer.Integers(shape)}));
}

Status Reshape(Context& c) {
  if (c.in(0).fixed()) return Unimplemented("the shape it gives depends on the batch or length");
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, c.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(Context::WantedShape wanted, c.Wanted(from));
  std::vector<Extent>& to = wanted.dims;
  const std::optional<Extent> total = Extent::Product(std::span<const Extent>(from));
  if (!total) return Unimplemented("its sizes are too large");
  Context::NameAsInput(*total, wanted);
  if (wanted.deduced) {
    const std::optional<Extent> dim = Extent::Quotient(*total, wanted.known);
    if (!dim) {
      return Unimplemented("it makes a dimension of {} / {} entries, which cannot be followed",
                           total->ToString(), wanted.known.ToString());
    }
    to[*wanted.deduced] = *dim;
  } else if (!(*total == wanted.known)) {
    return Unimplemented("it makes {} of {}, which depends on the length", ToString(to),
                         ToString(from));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, Regroup(c.in(0), from, to));
  return EmitReshape(c, form, to);
}

Status Flatten(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> from, c.Dims(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> to, c.Flattened(from));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, Regroup(c.in(0), from, to));
  return EmitReshape(c, form, to);
}

// The axes of a shape that has `batch` or `length` somewhere; an error if it depends on them in
// other ways.
StatusOr<Form> FormOfShape(const std::vector<Extent>& shape) {
  Form form;
  for (size_t i = 0; i < shape.size(); ++i) {
    int* axis = shape[i] == Extent::Batch() ? &form.batch
                : shape[i] == Length()      ? &form.length
                                            : nullptr;
    if (axis != nullptr && *axis < 0) {
      *axis = static_cast<int>(i);
    } else if (shape[i] == BatchTimesLength() && form.batch < 0 && form.length < 0) {
      form.batch = form.length = static_cast<int>(i);
    } else if (Varies(shape[i]) || !shape[i].is_number()) {
      return Unimplemented("it gives a shape {}, which cannot be followed", ToString(shape));
    }
  }
  form.kind = form.length >= 0  ? form.batch >= 0 ? Kind::kTokens : Kind::kPositions
              : form.batch >= 0 ? Kind::kUniform
                                : Kind::kFixed;
  return form;
}

Status ConstantOfShape(Context& c) {
  const std::vector<Extent>* shape = c.Elements(0);
  if (shape == nullptr) return Unimplemented("the shape it is given cannot be followed");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, FormOfShape(*shape));
  return c.Copy(form);
}

Status Expand(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const std::vector<Extent>* given = c.Elements(1);
  if (given == nullptr) return Unimplemented("the shape it is given cannot be followed");
  const size_t rank = std::max(dims.size(), given->size());
  const auto at = [&](const std::vector<Extent>& of, size_t axis) {
    const size_t missing = rank - of.size();
    return axis < missing ? Extent() : of[axis - missing];
  };
  std::vector<Extent> out, target;
  for (size_t axis = 0; axis < rank; ++axis) {
    const Extent from = at(dims, axis), to = at(*given, axis);
    if (to.is_number() && to.number() < 1) {
      return Unimplemented("it makes {} entries of {}", to.ToString(), from.ToString());
    }
    if (from.is_one()) {
      out.push_back(to);
    } else if (to.is_one() || to == from) {
      out.push_back(from);
    } else {
      return Unimplemented("it makes {} entries of {}", to.ToString(), from.ToString());
    }
    // An existing dimension is unchanged.
    target.push_back(from.is_one() ? to : Extent());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(Form form, FormOfShape(out));
  const int moved = static_cast<int>(rank - dims.size());
  if (c.in(0).rows() && form.kind == Kind::kUniform) form.kind = Kind::kRows;
  std::map<int, ValueId> inputs;
  Packer& packer = c.packer();
  if (c.in(0).rows() && form.tokens()) {
    // [R, 1, ...] to [1, T, ...].
    if (c.in(0).batch != 0 || moved != 0 || form.length != 1) {
      return Unimplemented("it spreads rows along dimension {}", form.length);
    }
    const std::string& name = c.node().name;
    const ValueId rows = packer.Emit(name, "Squeeze", {c.packed(0), packer.Integers({1})});
    inputs[0] =
        packer.AddBatch(packer.Emit(name, "RaggedSpread",
                                    {rows, packer.offsets(), packer.positions()}, {}, "chairlift"),
                        name);
    target[0] = target[1] = Extent();
  }
  inputs[1] = packer.Sizes(target, 1, DType::kInt64, form.rows());
  return c.Copy(form, inputs);
}

}  // namespace

void AddShapeRules(RuleTable& rules) {
  rules["ConstantOfShape"] = ConstantOfShape;
  rules["Expand"] = Expand;
  rules["Flatten"] = Flatten;
  rules["Reshape"] = Reshape;
}

}  // namespace chairlift::ragged
