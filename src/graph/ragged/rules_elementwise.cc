// Operators that work on elements one by one, with broadcasting.
#include <algorithm>
#include <optional>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

// What the result's axes are, counted from the right: 1 is the last; 0: it has none.
struct Axes {
  int batch = 0, length = 0;
  bool rows = false;  // some operand differs between sequences
};

Status Join(int& axis, int other, const char* what) {
  if (other == 0 || axis == other) return absl::OkStatus();
  if (axis != 0) return Unimplemented("its inputs have the {} along different dimensions", what);
  axis = other;
  return absl::OkStatus();
}

StatusOr<Axes> JoinedAxes(Context& c) {
  Axes axes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has(i) || c.in(i).fixed()) continue;
    const Form& form = c.in(i);
    if (form.sizes()) return ComputesWithSizes();
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(i));
    CHAIRLIFT_RETURN_IF_ERROR(Join(axes.batch, form.batch < 0 ? 0 : rank - form.batch, "batch"));
    CHAIRLIFT_RETURN_IF_ERROR(
        Join(axes.length, form.length < 0 ? 0 : rank - form.length, "length"));
    axes.rows |= form.rows() || form.tokens();
  }
  // [length] against [batch·length].
  for (int i = 0; i < c.num_inputs() && axes.batch != 0 && axes.batch == axes.length; ++i) {
    if (c.has(i) && !c.in(i).fixed() && !c.in(i).merged()) {
      return Unimplemented("its inputs have the tokens along different dimensions");
    }
  }
  return axes;
}

// Rows as tokens: [R, 1, ...] as [1, T, ...].
StatusOr<ValueId> Spread(Context& c, int i, const Axes& axes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(i));
  if (c.in(i).batch != 0 || axes.length != rank - 1) {
    return Unimplemented("its input {} has the batch along dimension {}", i, c.in(i).batch);
  }
  Packer& packer = c.packer();
  const std::string& name = c.node().name;
  const ValueId rows = packer.Emit(name, "Squeeze", {c.packed(i), packer.Integers({1})});
  const ValueId spread = packer.Emit(name, "RaggedSpread",
                                     {rows, packer.offsets(), packer.positions()}, {}, "chairlift");
  return packer.AddBatch(spread, name);
}

}  // namespace

Status Broadcast(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Axes axes, JoinedAxes(c));
  int out_rank = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(i));
    const int rank = static_cast<int>(dims.size());
    out_rank = std::max(out_rank, rank);
    const auto repeats = [&](int own, int from_right) {
      return from_right != 0 && own < 0 && rank >= from_right &&
             !dims[static_cast<size_t>(rank - from_right)].is_one();
    };
    if (repeats(c.in(i).batch, axes.batch)) {
      return Unimplemented("its input {} has a fixed number of entries along the batch", i);
    }
    if (repeats(c.in(i).length, axes.length)) {
      return Unimplemented("its input {} has a fixed number of entries along the length", i);
    }
  }
  Form form = Form::Of(axes.length == 0  ? axes.rows ? Kind::kRows : Kind::kUniform
                       : axes.batch == 0 ? Kind::kPositions
                                         : Kind::kTokens);
  if (axes.batch != 0) form.batch = out_rank - axes.batch;
  if (axes.length != 0) form.length = out_rank - axes.length;
  std::map<int, ValueId> inputs;
  for (int i = 0; i < c.num_inputs() && form.tokens(); ++i) {
    if (!c.in(i).rows()) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(inputs[i], Spread(c, i, axes));
  }
  return c.Copy(form, inputs);
}

namespace {

Status Dropout(Context& c) {
  if (c.has(2)) {
    const Value& training = c.packer().original().values[static_cast<size_t>(c.id(2))];
    if (!training.is_constant() || training.dtype != DType::kBool ||
        training.constant.size() != 1 || training.constant.data<bool>()[0]) {
      return Unimplemented("it is in training mode");
    }
  }
  if (!c.FixedFrom(1)) return ComputesWithSizes();
  return c.Copy(c.in(0));
}

// Scales and zero points that are one for all elements.
Status Quantize(Context& c) {
  if (!c.FixedFrom(1)) return Unimplemented("its scale depends on the tokens");
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!c.has(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.Rank(i));
    if (rank != 0) return Unimplemented("its scale differs along an axis");
  }
  return c.Copy(c.in(0));
}

}  // namespace

void AddElementwiseRules(RuleTable& rules) {
  for (const std::string_view op : batch_axis::ElementwiseOperators()) {
    rules[std::string(op)] = Broadcast;
  }
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Equal", "Where", "Cast", "Identity"}) {
    rules[op] = Broadcast;
  }
  rules["Dropout"] = Dropout;
  rules["QuantizeLinear"] = Quantize;
  rules["DequantizeLinear"] = Quantize;
}

}  // namespace chairlift::ragged
