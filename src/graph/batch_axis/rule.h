// What is known about the rows of a value, and the rules that propagate it through operators.
//
// The proof is an abstract interpretation. A value is one of
//   shared   the same for every batch: weights, and everything computed from them and from
//            dimensions other than the batch;
//   sizes    integers that depend on the batch size and on nothing else that varies (Shape and
//            the arithmetic on it), element by element;
//   rows     along `axis`, entry (o·N + n)·inner + i depends on row n alone; the axis has
//            outer·N·inner entries, and no other dimension depends on the batch;
//   places   numbers that follow from indices and sizes, the batch's among them (places.h);
//   picks    rows along `axis`, integers: the row's own number in `column` of the last axis, and
//            numbers that follow from the row in the others;
//   mixed    anything else, with the reason.
#ifndef CHAIRLIFT_GRAPH_BATCH_AXIS_RULE_H_
#define CHAIRLIFT_GRAPH_BATCH_AXIS_RULE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/analysis/node_reader.h"
#include "graph/analysis/shapes.h"
#include "graph/ir.h"

namespace chairlift::batch_axis {

using analysis::Dims;
using analysis::Line;
using analysis::NodeReader;
using analysis::Size;

struct State {
  enum class Kind { kAbsent, kShared, kSizes, kRows, kPlaces, kPicks, kMixed };
  Kind kind = Kind::kAbsent;
  int axis = 0;                                           // of rows and picks
  int column = -1;                                        // of picks
  Line outer = Line::Number(1), inner = Line::Number(1);  // of rows
  // For sizes, and for shared integers of rank 0 or 1 if they are known.
  std::optional<Dims> elements = {};
  std::string why = {};  // for mixed

  static State Shared() {
    State s;
    s.kind = Kind::kShared;
    return s;
  }
  static State Rows(int axis) {
    State s = Shared();
    s.kind = Kind::kRows;
    s.axis = axis;
    return s;
  }
  // Shared if no element depends on the batch, else sizes.
  static State Of(Dims elements);
  State At(int new_axis) const {
    State s = *this;
    s.axis = new_axis;
    return s;
  }
  bool shared() const { return kind == Kind::kShared || kind == Kind::kAbsent; }
  bool rows() const { return kind == Kind::kRows; }
  bool sizes() const { return kind == Kind::kSizes; }
  bool places() const { return kind == Kind::kPlaces || kind == Kind::kPicks; }
  // Whether the axis is divided among the rows in the same way.
  bool SameRows(const State& other) const { return outer == other.outer && inner == other.inner; }
};

// One node, as its rule sees it. Rules run only if an input is rows or sizes.
class Context : public NodeReader {
 public:
  Context(const Graph& graph, const Node& node, const std::string& batch_symbol,
          const std::vector<State>& states);

  const State& in(int i) const { return has(i) ? states_[id(i)] : absent_; }
  // Whether all inputs from `first` on are shared or absent.
  bool SharedFrom(int first) const;

  // Dimensions of input i. Unknown ones get new symbols.
  StatusOr<Dims> DimsOf(int i) const override;
  // The value of the constant boolean input i.
  StatusOr<bool> Flag(int i) const;
  const Dims* Elements(int i) const override;

  void Set(int output, State state) { outputs_[output] = std::move(state); }
  void SetAll(const State& state) {
    for (State& output : outputs_) output = state;
  }
  std::vector<State>& outputs() { return outputs_; }
  const std::string& symbol() const { return batch_symbol_; }
  const std::vector<State>& states() const { return states_; }

 private:
  const std::string& batch_symbol_;
  const std::vector<State>& states_;
  const State absent_;
  std::vector<State> outputs_;
};

// Sets the states of the outputs, or returns Unimplemented with the reason why rows are mixed.
using Rule = Status (*)(Context&);

// By operator of the default domain.
using RuleTable = std::map<std::string, Rule, std::less<>>;
// For operators whose result depends on data. The axis maps of the operators cover the others.
void AddShapeRules(RuleTable& rules);
void AddImageRules(RuleTable& rules);

// Applies the operator's own axis map.
Status FollowAxes(Context& context);

// The usual error: the operator works along the batch.
Status MixesRows();

}  // namespace chairlift::batch_axis

#endif  // CHAIRLIFT_GRAPH_BATCH_AXIS_RULE_H_
