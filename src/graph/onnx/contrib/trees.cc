// Writes ensembles of decision trees as one step for each level, for all trees together: the
// current node of each row in each tree selects a column and a threshold, and the comparison
// selects the next node. Leaves lead to themselves.
//
// The only comparison of the steps is x ≤ threshold. The other kinds of branches become one or
// more nodes of this kind.
#include "graph/onnx/contrib/trees.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace chairlift::contrib {
namespace {

// A limit above the depth that learners produce.
constexpr int64_t kMaxDepth = 512;
constexpr int64_t kMaxNumbers = int64_t{1} << 26;

// The largest normal number below v, so that x < v means x ≤ Below(v). Denormals count as zero
// (ops/README.md). NaN, which nothing is at most, if there is no such number.
template <typename T>
T Below(T v) {
  constexpr T kSmallest = std::numeric_limits<T>::min();
  if (v == -std::numeric_limits<T>::infinity()) return std::numeric_limits<T>::quiet_NaN();
  if (std::fabs(v) < kSmallest) return -kSmallest;
  const T below = std::nextafter(v, -std::numeric_limits<T>::infinity());
  return std::fabs(below) < kSmallest ? T{0} : below;
}

// The levels of steps that a branch takes.
int64_t LevelsOf(const TreeNode& node) {
  switch (node.mode) {
    case BranchMode::kLeaf:
      return 0;
    case BranchMode::kEq:
    case BranchMode::kNeq:
      return 2;
    case BranchMode::kMember: {
      int64_t levels = 2;
      for (size_t n = node.members.size(); n > 1; n /= 2) levels += 2;
      return levels;
    }
    default:
      return 1;
  }
}

// The nodes as steps: x[feature] ≤ threshold ? on_true : on_false, in element type T.
template <typename T>
class Steps {
 public:
  explicit Steps(const TreeEnsembleSpec& spec) {
    const size_t count = spec.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      const auto self = static_cast<int64_t>(i);
      Append({0, T{0}, self, self, false});
    }
    for (size_t i = 0; i < count; ++i) Write(i, spec.nodes[i]);
  }

  std::vector<int64_t> features, on_true, on_false;
  std::vector<T> thresholds;
  std::vector<uint8_t> missing_is_true;

 private:
  struct Step {
    int64_t feature;
    T threshold;
    int64_t on_true, on_false;
    bool missing_is_true;
  };

  int64_t Append(const Step& step) {
    const auto at = static_cast<int64_t>(features.size());
    features.push_back(step.feature);
    thresholds.push_back(step.threshold);
    on_true.push_back(step.on_true);
    on_false.push_back(step.on_false);
    missing_is_true.push_back(step.missing_is_true ? 1 : 0);
    return at;
  }

  void Set(size_t at, const Step& step) {
    features[at] = step.feature;
    thresholds[at] = step.threshold;
    on_true[at] = step.on_true;
    on_false[at] = step.on_false;
    missing_is_true[at] = step.missing_is_true ? 1 : 0;
  }

  void Write(size_t at, const TreeNode& node) {
    const T value = static_cast<T>(node.value);
    const int64_t yes = node.on_true, no = node.on_false;
    const bool missing = node.missing_is_true;
    if (node.mode == BranchMode::kLeaf) return;
    if (node.mode == BranchMode::kMember) return WriteMembers(at, node);
    if (std::isnan(value)) {  // equal to nothing
      const bool always = node.mode == BranchMode::kNeq;
      return Set(at, {node.feature, value, yes, always ? yes : no, missing});
    }
    switch (node.mode) {
      case BranchMode::kLeq:
        return Set(at, {node.feature, value, yes, no, missing});
      case BranchMode::kLt:
        return Set(at, {node.feature, Below(value), yes, no, missing});
      case BranchMode::kGte:
        return Set(at, {node.feature, Below(value), no, yes, !missing});
      case BranchMode::kGt:
        return Set(at, {node.feature, value, no, yes, !missing});
      case BranchMode::kEq:
        return Set(at, Equals(node.feature, value, yes, no, no, missing));
      default:  // kNeq: NaN differs from every number
        return Set(at, Equals(node.feature, value, no, yes, yes, false));
    }
  }

  // x = value ? equal : x < value ? less : more. NaN leads to `equal` if `missing`, else to `more`.
  Step Equals(int64_t feature, T value, int64_t equal, int64_t less, int64_t more, bool missing) {
    const int64_t at_most = Append({feature, Below(value), less, equal, false});
    return {feature, value, at_most, more, missing};
  }

  void WriteMembers(size_t at, const TreeNode& node) {
    std::vector<T> sorted;
    for (const double member : node.members) sorted.push_back(static_cast<T>(member));
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    const T nothing = std::numeric_limits<T>::quiet_NaN();
    if (sorted.empty()) {
      return Set(at, {node.feature, nothing, node.on_true, node.on_false, node.missing_is_true});
    }
    Set(at, AmongSorted(node, sorted, 0, sorted.size()));
  }

  // A binary search among the members [first, last).
  Step AmongSorted(const TreeNode& node, const std::vector<T>& sorted, size_t first, size_t last) {
    const size_t middle = first + (last - first) / 2;
    const auto rest = [&](size_t from, size_t to) {
      return from == to ? node.on_false : Append(AmongSorted(node, sorted, from, to));
    };
    const int64_t less = rest(first, middle), more = rest(middle + 1, last);
    return Equals(node.feature, sorted[middle], node.on_true, less, more, node.missing_is_true);
  }
};

// The number of levels until every row is at a leaf. Branches may share what follows: exporters
// write a set of categories as a chain of comparisons with one goal.
StatusOr<int64_t> DepthOf(const TreeEnsembleSpec& spec) {
  constexpr int64_t kUnknown = -1, kOpen = -2;
  std::vector<int64_t> depths(spec.nodes.size(), kUnknown);
  const auto depth = [&](int64_t node) -> int64_t& { return depths[static_cast<size_t>(node)]; };
  std::vector<int64_t> path;
  int64_t deepest = 0;
  for (const int64_t root : spec.roots) {
    path.push_back(root);
    while (!path.empty()) {
      const int64_t at = path.back();
      const TreeNode& node = spec.nodes[static_cast<size_t>(at)];
      if (depth(at) >= 0) {
        path.pop_back();
        continue;
      }
      if (node.mode == BranchMode::kLeaf) {
        depth(at) = 0;
        continue;
      }
      depth(at) = kOpen;
      bool ready = true;
      for (const int64_t next : {node.on_true, node.on_false}) {
        if (depth(next) == kOpen) {
          return InvalidArgument("its branches do not make a tree: node {} leads back to itself",
                                 next);
        }
        if (depth(next) != kUnknown) continue;
        path.push_back(next);
        ready = false;
        break;
      }
      if (ready) depth(at) = std::max(depth(node.on_true), depth(node.on_false)) + LevelsOf(node);
    }
    deepest = std::max(deepest, depth(root));
    if (deepest > kMaxDepth) {
      return Unimplemented("trees of more than {} levels are not supported", kMaxDepth);
    }
  }
  for (size_t i = 0; i < depths.size(); ++i) {
    if (depths[i] != kUnknown || spec.nodes[i].mode == BranchMode::kLeaf) continue;
    return InvalidArgument(
        "no root leads to branch {}: its branches lead in a circle, or a root is "
        "missing",
        i);
  }
  return deepest;
}

template <typename T>
ValueId Vector(Maker& make, const std::vector<T>& values) {
  return make.Constant(Tensor::Of<T>(Shape{static_cast<int64_t>(values.size())}, values));
}

// The step that each row reaches in each tree, [rows, trees].
template <typename T>
ValueId ReachedSteps(Maker& make, const TreeEnsembleSpec& spec, const Steps<T>& steps, ValueId x,
                     int64_t depth) {
  const auto trees = static_cast<int64_t>(spec.roots.size());
  const ValueId features = make.Ints(steps.features), values = Vector(make, steps.thresholds);
  const ValueId on_true = make.Ints(steps.on_true), on_false = make.Ints(steps.on_false);
  const bool tracks = std::find(steps.missing_is_true.begin(), steps.missing_is_true.end(), 1) !=
                      steps.missing_is_true.end();
  Tensor flags =
      Tensor::Allocate(DType::kBool, Shape{static_cast<int64_t>(steps.missing_is_true.size())});
  for (size_t i = 0; i < steps.missing_is_true.size(); ++i) {
    flags.data<bool>()[i] = steps.missing_is_true[i] != 0;
  }
  const ValueId missing_is_true = tracks ? make.Constant(flags) : kNoValue;
  const ValueId rows = make.Make("Shape", {x}, With({{"start", int64_t{0}}, {"end", int64_t{1}}}));
  const ValueId all = make.Make("Concat", {rows, make.Ints({trees})}, With({{"axis", int64_t{0}}}));
  ValueId at = make.Make("Expand", {make.Reshape(make.Ints(spec.roots), {1, trees}), all});
  for (int64_t level = 0; level < depth; ++level) {
    const ValueId seen = make.Make("GatherElements", {x, make.Make("Gather", {features, at})},
                                   With({{"axis", int64_t{1}}}));
    ValueId goes = make.Make("LessOrEqual", {seen, make.Make("Gather", {values, at})});
    if (tracks) {
      const ValueId missing = make.Make(
          "And", {make.Make("IsNaN", {seen}), make.Make("Gather", {missing_is_true, at})});
      goes = make.Make("Or", {goes, missing});
    }
    at = make.Make("Where",
                   {goes, make.Make("Gather", {on_true, at}), make.Make("Gather", {on_false, at})});
  }
  return at;
}

// The weights of every step, [steps, results]. Results that a leaf has no weight for get `absent`.
template <typename T>
ValueId LeafTable(Maker& make, const TreeEnsembleSpec& spec, int64_t count, TreeAggregate aggregate,
                  T absent) {
  std::vector<T> table(static_cast<size_t>(count * spec.results), absent);
  for (size_t i = 0; i < spec.leaves.size(); ++i) {
    for (const auto& [result, weight] : spec.leaves[i]) {
      T& entry = table[i * static_cast<size_t>(spec.results) + static_cast<size_t>(result)];
      const T given = static_cast<T>(weight);
      entry = aggregate == TreeAggregate::kMin   ? std::min(entry, given)
              : aggregate == TreeAggregate::kMax ? std::max(entry, given)
                                                 : entry + given;
    }
  }
  return make.Constant(Tensor::Of<T>(Shape{count, spec.results}, table));
}

template <typename T>
ValueId Aggregated(Maker& make, const TreeEnsembleSpec& spec, ValueId x, int64_t depth,
                   TreeAggregate aggregate) {
  const Steps<T> steps(spec);
  const auto count = static_cast<int64_t>(steps.features.size());
  if (spec.results < 1 || spec.results > kMaxNumbers / count) {
    make.Fail(InvalidArgument("{} results of {} nodes are too many or none", spec.results, count));
    return kNoValue;
  }
  const ValueId at = ReachedSteps<T>(make, spec, steps, x, depth);
  const bool extreme = aggregate == TreeAggregate::kMin || aggregate == TreeAggregate::kMax;
  T absent = 0;
  if (extreme) {
    absent = std::numeric_limits<T>::infinity();
    if (aggregate == TreeAggregate::kMax) absent = -absent;
  }
  const ValueId weights =
      make.Make("Gather", {LeafTable<T>(make, spec, count, aggregate, absent), at});
  const char* const op = aggregate == TreeAggregate::kMin   ? "ReduceMin"
                         : aggregate == TreeAggregate::kMax ? "ReduceMax"
                                                            : "ReduceSum";
  const ValueId whole = make.Make(op, {weights, make.Ints({1})}, With({{"keepdims", int64_t{0}}}));
  if (extreme) {  // a result that no leaf gives is 0
    const ValueId none = make.Make("Equal", {whole, make.Constant(Tensor::Scalar<T>(absent))});
    return make.Make("Where", {none, make.ScalarLike(whole, 0), whole});
  }
  if (aggregate != TreeAggregate::kAverage) return whole;
  return make.Make("Div", {whole, make.ScalarLike(whole, static_cast<float>(spec.roots.size()))});
}

}  // namespace

ValueId AggregateTrees(Maker& make, const TreeEnsembleSpec& spec, TreeAggregate aggregate) {
  const int64_t columns = make.Size(make.in(0), 1, "its input");
  if (make.ok() && make.Rank(make.in(0), "its input") != 2) {
    make.Fail(Unimplemented("an input of other than [rows,columns] is not supported"));
  }
  if (make.ok() && (spec.roots.empty() || columns < 1)) {
    make.Fail(InvalidArgument("it has no tree, or its input has no column"));
  }
  for (const TreeNode& node : spec.nodes) {
    if (make.ok() && node.mode != BranchMode::kLeaf &&
        (node.feature < 0 || node.feature >= columns)) {
      make.Fail(InvalidArgument("its trees read column {}, but its input has {} columns",
                                node.feature, columns));
    }
  }
  if (!make.ok()) return kNoValue;
  const StatusOr<int64_t> depth = DepthOf(spec);
  make.Fail(depth.status());
  if (!make.ok()) return kNoValue;
  const DType dtype = make.info(make.in(0)).dtype;
  if (dtype == DType::kDouble) {
    return Aggregated<double>(make, spec, make.in(0), *depth, aggregate);
  }
  const ValueId x = dtype == DType::kFloat ? make.in(0) : make.CastToFloat(make.in(0));
  return Aggregated<float>(make, spec, x, *depth, aggregate);
}

}  // namespace chairlift::contrib
