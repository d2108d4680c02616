// Operators that change shapes.
#include <algorithm>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

using analysis::ToString;

const Line& Length() {
  static const Line* const kLength = new Line(Line::Of(kLengthSymbol));
  return *kLength;
}
const Line& BatchTimesLength() {
  static const Line* const kBoth = new Line(*Line::Product(Line::Batch(), Length()));
  return *kBoth;
}
bool Varies(const Line& dim) { return dim.batch() > 0 || dim.power(kLengthSymbol) > 0; }

// The new positions of the axes of `form` when [from] is reshaped to [to]; an error if its entries
// do not stay whole.
StatusOr<Form> Regroup(const Form& form, const Dims& from, const Dims& to) {
  const auto groups = analysis::GroupAxes(from, to);
  bool whole = groups.has_value();
  Form out = form;
  for (size_t i = 0; whole && i < groups->size(); ++i) {
    const analysis::AxisGroup& group = (*groups)[i];
    const std::vector<int> left = analysis::WideAxes(from, group.from, group.from_end);
    const std::vector<int> right = analysis::WideAxes(to, group.to, group.to_end);
    const auto of = [&](const Dims& dims, const std::vector<int>& axes) {
      Dims wide;
      for (const int axis : axes) wide.push_back(dims[static_cast<size_t>(axis)]);
      return wide;
    };
    const Dims before = of(from, left), after = of(to, right);
    if (std::none_of(before.begin(), before.end(), Varies)) continue;
    const Dims apart = {Line::Batch(), Length()}, joined = {BatchTimesLength()};
    if (before == after && before.size() == 1) {
      if (form.batch == left[0]) out.batch = right[0];
      if (form.length == left[0]) out.length = right[0];
    } else if (form.tokens() && before == apart && after == joined) {
      out.batch = out.length = right[0];
    } else if (form.merged() && before == joined && after == apart) {
      out.batch = right[0];
      out.length = right[1];
    } else {
      whole = false;
    }
  }
  if (whole) return out;
  return Unimplemented("it makes {} of {}, which does not keep tokens whole", ToString(to),
                       ToString(from));
}

// The node as a Reshape to `to`, which has the axes of `form`.
Status EmitReshape(Context& c, const Form& form, const Dims& to) {
  std::vector<int64_t> shape;
  const Form& from = c.in(0);
  for (int axis = 0; axis < static_cast<int>(to.size()); ++axis) {
    const Line& dim = to[static_cast<size_t>(axis)];
    const bool varies = axis == form.length || (axis == form.batch && form.rows());
    if (varies) {
      const bool same_place = axis == (form.length >= 0 ? from.length : from.batch);
      shape.push_back(same_place ? 0 : -1);
    } else if (axis == form.batch) {
      shape.push_back(1);
    } else if (dim.is_number() && dim.number > 0) {
      shape.push_back(dim.number);
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
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims from, c.DimsOf(0));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims to, analysis::Reshaped(c.node(), from, c.Elements(1)));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, Regroup(c.in(0), from, to));
  return EmitReshape(c, form, to);
}

// The axes of a shape that has `batch` or `length` somewhere; an error if it depends on them in
// other ways.
StatusOr<Form> FormOfShape(const Dims& shape) {
  Form form;
  for (size_t i = 0; i < shape.size(); ++i) {
    int* axis = shape[i] == Line::Batch() ? &form.batch
                : shape[i] == Length()    ? &form.length
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
  const Dims* shape = c.Elements(0);
  if (shape == nullptr) return Unimplemented("the shape it is given cannot be followed");
  CHAIRLIFT_ASSIGN_OR_RETURN(const Form form, FormOfShape(*shape));
  return c.Copy(form);
}

Status Expand(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  const Dims* given = c.Elements(1);
  if (given == nullptr) return Unimplemented("the shape it is given cannot be followed");
  const size_t rank = std::max(dims.size(), given->size());
  const auto at = [&](const Dims& of, size_t axis) {
    const size_t missing = rank - of.size();
    return axis < missing ? Line::Number(1) : of[axis - missing];
  };
  Dims out, target;
  for (size_t axis = 0; axis < rank; ++axis) {
    const Line from = at(dims, axis), to = at(*given, axis);
    if (to.is_number() && to.number < 1) {
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
    target.push_back(from.is_one() ? to : Line::Number(1));
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
    target[0] = target[1] = Line::Number(1);
  }
  inputs[1] = packer.Sizes(target, 1, DType::kInt64, form.rows());
  return c.Copy(form, inputs);
}

}  // namespace

void AddShapeRules(RuleTable& rules) {
  rules["ConstantOfShape"] = ConstantOfShape;
  rules["Expand"] = Expand;
  rules["Flatten"] = Reshape;
  rules["Reshape"] = Reshape;
}

}  // namespace chairlift::ragged
