// Operators whose axis maps show that they keep sequences and tokens apart.
#include <map>
#include <optional>
#include <utility>

#include "graph/ragged/packer.h"

namespace chairlift::ragged {
namespace {

using Kind = Form::Kind;

// The labels of the batch and of the length.
struct Labels {
  int batch = AxisMap::kNone, length = AxisMap::kNone;
  bool rows = false;  // some operand differs between sequences
};

Status Join(int& label, int other, const char* what) {
  if (label != AxisMap::kNone && label != other) {
    return Unimplemented("its inputs have the {} along different dimensions", what);
  }
  label = other;
  return absl::OkStatus();
}

StatusOr<Labels> JoinedLabels(Context& c, const AxisMap& map) {
  Labels labels;
  bool merged = false, apart = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Form& form = c.in(i);
    const AxisMap::Operand& operand = map.inputs[static_cast<size_t>(i)];
    if (!c.has(i) || form.fixed() || operand.unread) continue;
    if (form.sizes()) return ComputesWithSizes();
    if (form.length >= 0) {
      const int own = operand.Label(form.length);
      if (own == AxisMap::kNone) return Unimplemented("it {} the length", map.does);
      CHAIRLIFT_RETURN_IF_ERROR(Join(labels.length, own, "length"));
    }
    if (form.batch >= 0) {
      const int own = operand.Label(form.batch);
      if (own == AxisMap::kNone) return Unimplemented("it {} the batch", map.does);
      CHAIRLIFT_RETURN_IF_ERROR(Join(labels.batch, own, "batch"));
    }
    (form.merged() ? merged : apart) = true;
    labels.rows |= form.rows() || form.tokens();
  }
  // [length] against [batch·length].
  if ((merged && apart) ||
      (!merged && labels.batch != AxisMap::kNone && labels.batch == labels.length)) {
    return Unimplemented("its inputs have the tokens along different dimensions");
  }
  return labels;
}

// Checks that no operand has more than one entry along the label.
Status CheckOthers(Context& c, const AxisMap& map, int label, bool of_batch) {
  for (int i = 0; i < c.num_inputs() && label != AxisMap::kNone; ++i) {
    const AxisMap::Operand& operand = map.inputs[static_cast<size_t>(i)];
    const int axis = operand.AxisOf(label);
    if (axis < 0 || (of_batch ? c.in(i).batch : c.in(i).length) >= 0) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(i));
    if (!operand.broadcasts || !dims[static_cast<size_t>(axis)].is_one()) {
      return Unimplemented("its input {} has a fixed number of entries along the {}", i,
                           of_batch ? "batch" : "length");
    }
  }
  return absl::OkStatus();
}

// Rows as tokens: [R, 1, ...] as [1, T, ...].
StatusOr<ValueId> Spread(Context& c, int i, int length_axis) {
  if (c.in(i).batch != 0 || length_axis != 1) {
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

Status FollowAxes(Context& c) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const AxisMap map, c.Axes());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Labels labels, JoinedLabels(c, map));
  CHAIRLIFT_RETURN_IF_ERROR(CheckOthers(c, map, labels.batch, true));
  CHAIRLIFT_RETURN_IF_ERROR(CheckOthers(c, map, labels.length, false));
  const bool has_length = labels.length != AxisMap::kNone;
  if (!has_length && labels.batch == AxisMap::kNone)
    return c.Copy(Form());  // it reads no token or
                            // row
  Form form = Form::Of(!has_length                      ? labels.rows ? Kind::kRows : Kind::kUniform
                       : labels.batch == AxisMap::kNone ? Kind::kPositions
                                                        : Kind::kTokens);
  std::optional<Form> first;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (c.node().outputs[static_cast<size_t>(i)] == kNoValue) continue;
    const AxisMap::Operand& output = map.outputs[static_cast<size_t>(i)];
    if (labels.batch != AxisMap::kNone) form.batch = output.AxisOf(labels.batch);
    if (has_length) form.length = output.AxisOf(labels.length);
    if ((labels.batch != AxisMap::kNone && form.batch < 0) || (has_length && form.length < 0)) {
      return Unimplemented("its output {} does not keep tokens apart", i);
    }
    if (first && !(*first == form)) {
      return Unimplemented("its outputs have the tokens along different dimensions");
    }
    first = form;
  }
  std::map<int, ValueId> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const AxisMap::Operand& operand = map.inputs[static_cast<size_t>(i)];
    if (operand.unread) continue;
    if (form.tokens() && c.in(i).rows()) {
      CHAIRLIFT_ASSIGN_OR_RETURN(inputs[i], Spread(c, i, operand.AxisOf(labels.length)));
    } else if (form.rows() && c.in(i).uniform() && !operand.broadcasts) {
      return Unimplemented("its inputs are not known to keep tokens apart");
    }
  }
  return c.Copy(form, inputs);
}

}  // namespace chairlift::ragged
