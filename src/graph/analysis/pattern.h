// The pattern of a value's elements for all sizes. Positions, lengths and masks that an exporter
// computes are followed element by element.
//
// A decoder is followed for requests whose tokens all count (a mask of ones) and for all sizes at
// once; an encoder for all masks, too.
#ifndef CHAIRLIFT_GRAPH_ANALYSIS_PATTERN_H_
#define CHAIRLIFT_GRAPH_ANALYSIS_PATTERN_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/analysis/shapes.h"
#include "graph/ir.h"

namespace chairlift::analysis {

// Distances between tokens are followed up to this.
inline constexpr int64_t kReach = 4095;
// More conditions are not followed.
inline constexpr size_t kMostConditions = 4;
inline bool IsInteger(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }
void CopyElement(const Tensor& from, int64_t i, Tensor& to, int64_t j);

struct Pattern {
  enum class Kind {
    kUnknown,
    kShaped,  // only the dimensions are known
    kLine,    // each element is `line`
    kList,    // of rank 1: element i is list[i]
    kTable,   // each element is table[m], where bit i of m says whether conditions[i] holds
    // Each element is curve[line + kReach, its index along `column`]; where −1, curve has one
    // column. If there is a table, table[m] is added.
    kCurve,
    // Each element is table[m] + slopes[its index along `column`] · line.
    // For both: if table[m] is below −1e30, the element is only known to be below half of that.
    kSlopes,
    // For rank > 1: each element is list[its index along the last axis]. Only read by ScatterND.
    kTuples,
  };
  Kind kind = Kind::kUnknown;
  DType dtype = DType::kUndefined;
  Dims dims = {};  // none is 0 except that of an empty list
  Line line = {};
  std::vector<Line> list = {};
  std::vector<Line> conditions = {};
  Tensor table = {};   // [2^conditions]
  Tensor curve = {};   // [2·kReach + 1, columns]
  Tensor slopes = {};  // [columns]
  int column = -1;

  // Whether its elements are known.
  bool known() const {
    return kind != Kind::kUnknown && kind != Kind::kShaped && kind != Kind::kTuples;
  }
  bool uniform() const { return is_table() && conditions.empty(); }
  bool is_line() const { return kind == Kind::kLine; }
  bool is_table() const { return kind == Kind::kTable; }
  bool is_curve() const { return kind == Kind::kCurve; }
  bool is_slopes() const { return kind == Kind::kSlopes; }
  // Slopes, or a curve to which a table is added.
  bool is_sum() const { return is_slopes() || (is_curve() && table.present()); }
  int rank() const { return static_cast<int>(dims.size()); }

  static Pattern OfLine(DType dtype, std::vector<Line> dims, Line line);
  static Pattern OfList(DType dtype, std::vector<Line> list);
  // `rank` is 0 or 1.
  static Pattern OfElements(DType dtype, int rank, std::vector<Line> list) {
    return rank == 0 ? OfLine(dtype, {}, list[0]) : OfList(dtype, std::move(list));
  }
  // One number everywhere; `one`: of one element.
  static Pattern Uniform(std::vector<Line> dims, const Tensor& one);
  // Of [batch, length] marks: input `input` of the graph, of 0 and 1. Unknown of other types.
  static Pattern OfMarks(DType dtype, int input);
  // The condition that input `input` marks that token.
  static Line MarkAt(const Line& sequence, const Line& token, int input);
  // For numbers that are equal, integers that grow evenly along each axis, numbers at a slope of
  // each row, or numbers that are cut along a diagonal of the last two axes. Unknown for others.
  static Pattern OfConstant(const Tensor& constant);
  // For a float vector, as a curve with the same numbers everywhere. Unknown for others.
  static Pattern OfColumns(const Tensor& constant);
  // For float rows along one axis that are multiples of the distance from the first or last entry,
  // where all are 0.
  static std::optional<Pattern> OfSlopes(const Tensor& constant);

  // The elements of a value of rank 0 or 1 and known length; nothing if they are not lines.
  std::optional<std::vector<Line>> Elements() const;
  // A table of one whole number, as a line.
  std::optional<Line> AsLine() const;
  // A line that is a number, as a table.
  std::optional<Pattern> AsTable() const;
  // As a curve, of a table whose conditions follow from one distance between tokens.
  std::optional<Pattern> AsCurve() const;
  // For a table: its pattern if all of its marks are 1 (`set`), or 0.
  Pattern WithMarks(bool set) const;
  // For slopes and curves: the pattern of what is added to them.
  Pattern Added() const;
  // Whether its lines are what its type holds: a 32-bit integer wraps, and a float rounds.
  bool Exact() const;
  // Removes conditions that are always true or false, alone or given others, and those without
  // effect. Tables are compared by bytes, or `by_value`, where 0 and -0 are equal.
  void Simplify(bool by_value = false);
  // Whether, for some sizes and indices, exactly the conditions in the bits of `m` may hold. If
  // not, table[m] is meaningless.
  bool Possible(int64_t m) const;
};

// Patterns of a graph's values, computed node by node. `limit` is lowered to the largest number of
// tokens (P + S) for which the patterns hold, if a constant has no more entries.
class PatternReader {
 public:
  explicit PatternReader(const Graph& graph) : graph_(graph) {}

  const Pattern& of(ValueId id) const {
    const auto found = patterns_.find(id);
    return found == patterns_.end() ? unknown_ : found->second;
  }
  void Set(ValueId id, Pattern pattern) { patterns_[id] = std::move(pattern); }
  // The dimensions of a value as lines, from its pattern or its shape; nothing if one is unknown.
  std::optional<Dims> DimsOf(ValueId id) const;
  // For a number, a size of `Size`, or a product of them.
  static std::optional<Line> SizeOf(const Dim& dim);
  static std::optional<Dim> DimOf(const Line& size);
  // Adds the known dimensions to the shape of the value in `graph`, the graph being read.
  void NameDims(ValueId id, Graph& graph) const;
  // For sizes that are followed elsewhere: takes the elements of a value of rank 0 or 1 about which
  // nothing is known here. Not of integers that may be negative.
  void TakeSizes(ValueId id, const std::optional<Dims>& elements);
  // An input's pattern; it may be constant. Unknown if it is absent.
  Pattern In(const Node& node, size_t i) const;
  // Sets the pattern of the node's output, or says why it cannot be followed.
  Status Visit(const Node& node);
  int64_t limit() const { return limit_; }
  void LimitTokens(int64_t most) { limit_ = limit_ == 0 ? most : std::min(limit_, most); }

 private:
  StatusOr<Pattern> Follow(const Node& node);
  // The shape that an elementwise operator's inputs are broadcast to.
  std::optional<Dims> SpreadDims(const Node& node) const;
  StatusOr<Pattern> Elementwise(const Node& node, std::vector<Pattern> inputs);
  StatusOr<Pattern> OfLists(const Node& node, const std::vector<Pattern>& inputs);
  StatusOr<Pattern> Tables(const Node& node, const std::vector<Pattern>& inputs,
                           std::vector<Line> dims);
  // Computed by the operator itself for each point.
  StatusOr<Pattern> Curve(const Node& node, const std::vector<Pattern>& inputs,
                          std::vector<Line> dims);
  StatusOr<Pattern> GatherND(const Node& node);
  StatusOr<Pattern> GatherByCurve(const Tensor& rows, const Pattern& index);
  // For a constant with one number per column times a line along a later axis; nothing for other
  // inputs.
  std::optional<Pattern> TimesSlopes(const Node& node) const;
  // For slopes or a curve that are masked or added to; slopes are scaled, too.
  StatusOr<Pattern> OfSum(const Node& node, const std::vector<Pattern>& inputs,
                          std::vector<Line> dims);
  StatusOr<Pattern> Slice(const Node& node);
  StatusOr<Pattern> Gather(const Node& node);
  StatusOr<Pattern> Range(const Node& node);
  StatusOr<Pattern> Reshape(const Node& node);
  StatusOr<Pattern> Expand(const Node& node);
  StatusOr<Pattern> Concat(const Node& node);
  StatusOr<Pattern> ConcatTables(const Node& node);
  std::optional<Pattern> ConcatTuples(const Node& node) const;
  std::optional<Pattern> ConcatLines(const Node& node) const;
  StatusOr<Pattern> ScatterND(const Node& node);
  StatusOr<Pattern> CumSum(const Node& node);
  StatusOr<Pattern> ReduceSum(const Node& node);
  StatusOr<Pattern> Tile(const Node& node);
  StatusOr<Pattern> Trilu(const Node& node);
  // For Squeeze, Unsqueeze and Transpose.
  StatusOr<Pattern> Move(const Node& node);

  std::optional<Dims> ElementsOf(const Node& node, size_t i) const;
  DType TypeOf(const Node& node) const {
    return graph_.values[static_cast<size_t>(node.outputs[0])].dtype;
  }

  const Graph& graph_;
  std::map<ValueId, Pattern> patterns_;  // of values of which anything is known
  const Pattern unknown_;
  int64_t limit_ = 0;  // 0: no limit
};

}  // namespace chairlift::analysis

#endif  // CHAIRLIFT_GRAPH_ANALYSIS_PATTERN_H_
