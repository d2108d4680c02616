// What an operator does to axes, declared once, next to the operator (OperatorDef::axes). The
// proofs of graph/batch_axis, graph/cells and graph/ragged use it, and tests/ops/axis_map_test.cc
// checks the kernels against it.
//
// Axes have labels as in Einsum's notation. For each label, and any list of indices:
//     f(every input with the entries `indices` of its axis of that label)
//   = f(inputs), every output with the entries `indices` of its axis of that label.
// So entries along a label are computed independently and in the same way, whatever their number
// and order. (GSPMD and Shardy describe operators like this in order to shard them.)
#ifndef CHAIRLIFT_OPS_AXIS_MAP_H_
#define CHAIRLIFT_OPS_AXIS_MAP_H_

#include <span>
#include <vector>

#include "base/status.h"
#include "ops/operator.h"

namespace chairlift {

struct AxisMap {
  // The operator works along the axis, or nothing is known about it.
  static constexpr int kNone = -1;
  struct Operand {
    std::vector<int> labels = {};  // by axis; axes beyond the list have no label
    // An axis of size 1 stands for any number of equal entries.
    bool broadcasts = false;
    // Its elements have no effect.
    bool unread = false;
    int Label(int axis) const {
      return axis < static_cast<int>(labels.size()) ? labels[static_cast<size_t>(axis)] : kNone;
    }
    // The axis with the label; −1 if there is none.
    int AxisOf(int label) const;
  };
  std::vector<Operand> inputs;   // no labels for absent ones
  std::vector<Operand> outputs;  // no labels for axes whose entries are not independent
  // What is done to axes without a label, worded as in: "it ... the batch".
  const char* does = "works along";
};

// A map without labels.
AxisMap MakeAxisMap(const InferContext& context);
// An error if the rank is unknown.
StatusOr<int> KnownRank(const InferContext& context, int input);
// 0, 1, ..., with kNone for those in `without`.
std::vector<int> LabelsWithout(int rank, std::span<const int> without);

// --- Common maps, for OperatorDef::axes ----------------------------------------------------------

// Elementwise, with all inputs broadcast together.
StatusOr<AxisMap> ElementwiseAxes(const InferContext& context);
// Whether the operator has that map.
inline bool IsElementwise(const OperatorDef& def) { return def.axes == ElementwiseAxes; }

AxisMap FirstAxisOf(const InferContext& context, std::span<const int> inputs);
// Entries along axis 0 of these inputs and of all outputs are independent; other inputs are
// parameters.
template <int... kInputs>
StatusOr<AxisMap> FirstAxis(const InferContext& context) {
  static constexpr int kList[] = {kInputs...};
  return FirstAxisOf(context, kList);
}

// All axes of input 0 except those in `without`, at the same positions in all outputs; other inputs
// are parameters.
StatusOr<AxisMap> AxesWithout(const InferContext& context, std::span<const int64_t> without);
// All but the one in attribute `axis`.
template <int kDefault>
StatusOr<AxisMap> AxesButOne(const InferContext& context) {
  const int64_t axis = context.attributes().Int("axis", kDefault);
  return AxesWithout(context, {&axis, 1});
}

// All but the one in attribute `axis` (default 0), at the same positions in all inputs and outputs.
StatusOr<AxisMap> SameAxesButOne(const InferContext& context);

// Matrix products of inputs a and b.
StatusOr<AxisMap> ProductAxes(const InferContext& context, int a, int b);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_AXIS_MAP_H_
