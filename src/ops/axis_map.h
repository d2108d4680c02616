// What an operator does to axes, said once, beside the operator (OperatorDef::axes): the proofs of
// graph/batch_axis, graph/cells and graph/ragged read it, and tests/ops/axis_map_test.cc runs the
// kernels against it.
//
// Axes are labelled as in Einsum's notation. For each label, and any list of indices:
//     f(every input with the entries `indices` of its axis of that label)
//   = f(inputs), every output with the entries `indices` of its axis of that label.
// So entries along a label are computed one by one, all in the same way, whatever their number and
// order. (GSPMD and Shardy describe operators so, to shard them.)
#ifndef CHAIRLIFT_OPS_AXIS_MAP_H_
#define CHAIRLIFT_OPS_AXIS_MAP_H_

#include <span>
#include <vector>

#include "base/status.h"
#include "ops/operator.h"

namespace chairlift {

struct AxisMap {
  // The operator looks along the axis, or nothing is known of it.
  static constexpr int kNone = -1;
  struct Operand {
    std::vector<int> labels = {};  // by axis; those beyond the list have none
    // An axis of size 1 stands for any number of equal entries.
    bool broadcasts = false;
    // Its elements change nothing.
    bool unread = false;
    int Label(int axis) const {
      return axis < static_cast<int>(labels.size()) ? labels[static_cast<size_t>(axis)] : kNone;
    }
    // The axis with the label; −1 where none has it.
    int AxisOf(int label) const;
  };
  std::vector<Operand> inputs;   // no labels for absent ones
  std::vector<Operand> outputs;  // no labels where entries do not stay apart
  // What is done to axes without a label, in words: "it ... the batch".
  const char* does = "works along";
};

// No labels yet.
AxisMap MakeAxisMap(const InferContext& context);
// An error where the rank is not known.
StatusOr<int> KnownRank(const InferContext& context, int input);
// 0, 1, ..., but kNone for those in `without`.
std::vector<int> LabelsWithout(int rank, std::span<const int> without);

// --- Maps that several operators share, for OperatorDef::axes
// -------------------------------------

// Elements one by one, all inputs broadcasting together.
StatusOr<AxisMap> ElementwiseAxes(const InferContext& context);
// Whether it is that map.
inline bool IsElementwise(const OperatorDef& def) { return def.axes == ElementwiseAxes; }

AxisMap FirstAxisOf(const InferContext& context, std::span<const int> inputs);
// Entries along axis 0 of these inputs, and of all outputs; other inputs are parameters.
template <int... kInputs>
StatusOr<AxisMap> FirstAxis(const InferContext& context) {
  static constexpr int kList[] = {kInputs...};
  return FirstAxisOf(context, kList);
}

// All axes of input 0 but those, in the same places of all outputs; other inputs are parameters.
StatusOr<AxisMap> AxesWithout(const InferContext& context, std::span<const int64_t> without);
// All but the one that attribute `axis` names.
template <int kDefault>
StatusOr<AxisMap> AxesButOne(const InferContext& context) {
  const int64_t axis = context.attributes().Int("axis", kDefault);
  return AxesWithout(context, {&axis, 1});
}

// All but the one that attribute `axis` names, by default 0, in the same places of all inputs and
// outputs.
StatusOr<AxisMap> SameAxesButOne(const InferContext& context);

// Matrix products of inputs a and b.
StatusOr<AxisMap> ProductAxes(const InferContext& context, int a, int b);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_AXIS_MAP_H_
