// Reshape and Flatten: the same elements in the same order with another shape.
#include <algorithm>

#include "ops/axes.h"
#include "ops/hands_on.h"
#include "ops/movement/movement.h"
#include "tensor/text_types.h"

namespace chairlift {
namespace {

// The requested dimensions with 0 resolved to the input's (unless allowzero). At most one is
// deduced from the number of elements.
Status Resolve(InferContext& context, std::vector<Dim> wanted, bool exact, SymbolicShape& out) {
  const SymbolicShape& in = context.shape(0);
  const bool allow_zero = context.attributes().Int("allowzero", 0) != 0;
  int rest = -1;
  int unknown = 0;
  // The dimensions of both sides, without those that are copied.
  std::vector<Dim> total;
  std::vector<Dim> parts;
  std::vector<bool> copied(in.has_rank() ? in.rank() : 0, false);
  for (int i = 0; i < static_cast<int>(wanted.size()); ++i) {
    Dim& d = wanted[i];
    if (d.known() && d.value() == 0 && !allow_zero) {
      if (in.has_rank() && i >= in.rank()) {
        return InvalidArgument("shape copies dimension {} of an input of rank {}", i, in.rank());
      }
      d = in.has_rank() ? in[i] : Dim::Unknown();
      if (in.has_rank()) copied[i] = true;
    } else if (!d.known() && !d.is_symbol()) {
      rest = i;
      ++unknown;
    } else {
      parts.push_back(d);
    }
  }
  for (int i = 0; in.has_rank() && i < in.rank(); ++i) {
    if (!copied[i]) total.push_back(in[i]);
  }
  if (in.has_rank() && unknown == 1) {
    if (const auto q = Quotient(total, parts)) {
      wanted[rest] = *q;
    } else if (in.concrete()) {
      // Every part is a number here: with a concrete input, only the requested shape can have
      // symbols.
      const bool numbers =
          std::all_of(parts.begin(), parts.end(), [](auto& d) { return d.known(); });
      if (exact && numbers) {
        return InvalidArgument("input {} cannot be reshaped to {}: -1 has no whole value",
                               in.ToString(), SymbolicShape(wanted).ToString());
      }
    }
  }
  out = SymbolicShape(std::move(wanted));
  if (in.concrete() && out.concrete()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t have, in.ToShape().Checked(1));
    CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t want, out.ToShape().Checked(1));
    if (have != want) {
      return InvalidArgument("input {} of {} elements cannot be reshaped to {} of {}",
                             in.ToString(), have, out.ToString(), want);
    }
  }
  return absl::OkStatus();
}

Status InferReshape(InferContext& context) {
  const auto known = context.known_elements(1);
  const auto elements = ShapeElements(context, 1);
  SymbolicShape out;
  if (context.shape(1).has_rank() && context.shape(1).rank() != 1) {
    return InvalidArgument("shape must have rank 1, not {}", context.shape(1).ToString());
  }
  if (elements) {
    if (known) {
      for (int64_t d : *known) {
        if (d < -1) return InvalidArgument("shape has the negative dimension {}", d);
      }
      if (std::count(known->begin(), known->end(), -1) > 1) {
        return InvalidArgument("shape has more than one -1");
      }
      if (context.attributes().Int("allowzero", 0) != 0 &&
          std::count(known->begin(), known->end(), -1) == 1 &&
          std::count(known->begin(), known->end(), 0) > 0) {
        return InvalidArgument("shape has both 0 and -1 where allowzero is set");
      }
    }
    CHAIRLIFT_RETURN_IF_ERROR(Resolve(context, *elements, known.has_value(), out));
  } else if (known) {
    return InvalidArgument("shape of {} dimensions is more than {}", known->size(), kMaxRank);
  } else if (context.shape(1).has_rank() && context.shape(1)[0].known()) {
    if (context.shape(1)[0].value() > kMaxRank) {
      return InvalidArgument("shape of {} dimensions is more than {}", context.shape(1)[0].value(),
                             kMaxRank);
    }
    out = SymbolicShape::OfRank(static_cast<int>(context.shape(1)[0].value()));
  }
  const bool shape_like = out.concrete() && out.rank() <= 1 && elements.has_value();
  CHAIRLIFT_RETURN_IF_ERROR(SetOutput(context, 0, context.dtype(0), std::move(out)));
  if (shape_like) {
    if (auto e = ShapeElements(context, 0)) context.set_output_elements(0, *std::move(e));
  }
  return absl::OkStatus();
}

Status InferFlatten(InferContext& context) {
  const SymbolicShape& in = context.shape(0);
  if (!in.has_rank()) return SetOutput(context, 0, context.dtype(0), SymbolicShape::OfRank(2));
  int64_t axis = context.attributes().Int("axis", 1);
  if (axis < -in.rank() || axis > in.rank()) {
    return InvalidArgument("axis {} is outside [{}, {}] for a tensor of rank {}", axis, -in.rank(),
                           in.rank(), in.rank());
  }
  if (axis < 0) axis += in.rank();
  const std::span<const Dim> dims(in.dims());
  return SetOutput(
      context, 0, context.dtype(0),
      SymbolicShape(std::vector<Dim>{Product(dims.first(axis)), Product(dims.subspan(axis))}));
}

}  // namespace

OperatorDef ReshapeOperator() {
  return {.name = "Reshape",
          .min_inputs = 2,
          .max_inputs = 2,
          .input_types = {kMovableTypes, {DType::kInt64}},
          .infer = InferReshape,
          .hands_on = SameShapeHandsOn,
          .is_view = true,
          .native_half = true};
}

OperatorDef FlattenOperator() {
  return {.name = "Flatten",
          .input_types = {kMovableTypes},
          .infer = InferFlatten,
          .hands_on = SameShapeHandsOn,
          .is_view = true,
          .native_half = true};
}

}  // namespace chairlift
