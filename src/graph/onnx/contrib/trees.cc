// Rules for ensembles of decision trees. They are written as one step for each level, for all trees
// together: the current node of each row in each tree selects a column and a threshold, and the
// comparison selects the next node. Leaves lead to themselves.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"

namespace chairlift::contrib {
namespace {

// A limit above the depth that learners produce.
constexpr int kMaxDepth = 256;

using Ints = std::vector<int64_t>;

struct Trees {
  // By node, over all trees.
  Ints features, on_true, on_false;
  std::vector<float> values;
  std::map<std::pair<int64_t, int64_t>, int64_t> places;  // keyed by (tree, node)
  Ints roots;                                             // by tree
  std::string mode;                                       // of all branches; empty: there are no
                                                          // branches
  int depth = 0;
};

StatusOr<Trees> ReadTrees(const Attributes& attributes) {
  const Ints tree_ids = attributes.Ints("nodes_treeids"),
             node_ids = attributes.Ints("nodes_nodeids");
  const Ints true_ids = attributes.Ints("nodes_truenodeids");
  const Ints false_ids = attributes.Ints("nodes_falsenodeids");
  const std::vector<std::string> modes = attributes.Strings("nodes_modes");
  Trees t;
  t.features = attributes.Ints("nodes_featureids");
  t.values = attributes.Floats("nodes_values");
  const size_t count = tree_ids.size();
  if (count == 0 || node_ids.size() != count || true_ids.size() != count ||
      false_ids.size() != count || modes.size() != count || t.features.size() != count ||
      t.values.size() != count) {
    return InvalidArgument("its attributes 'nodes_*' are missing or differ in length");
  }
  for (const int64_t tracks : attributes.Ints("nodes_missing_value_tracks_true")) {
    if (tracks != 0) {
      return Unimplemented(
          "its attribute 'nodes_missing_value_tracks_true' is only supported as 0");
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (!t.places.emplace(std::pair(tree_ids[i], node_ids[i]), static_cast<int64_t>(i)).second) {
      return InvalidArgument("node {} of tree {} is there twice", node_ids[i], tree_ids[i]);
    }
    if (t.features[i] < 0) return InvalidArgument("column {} of the input", t.features[i]);
  }
  t.on_true.resize(count);
  t.on_false.resize(count);
  std::vector<bool> is_child(count, false);
  for (size_t i = 0; i < count; ++i) {
    const auto self = static_cast<int64_t>(i);
    t.on_true[i] = t.on_false[i] = self;
    if (modes[i] == "LEAF") continue;
    if (!t.mode.empty() && modes[i] != t.mode) {
      return Unimplemented("branches of modes {} and {} in one model are not supported", t.mode,
                           modes[i]);
    }
    t.mode = modes[i];
    const auto follow = [&](int64_t id, int64_t& to) {
      const auto found = t.places.find({tree_ids[i], id});
      if (found == t.places.end() || is_child[static_cast<size_t>(found->second)]) return false;
      is_child[static_cast<size_t>(found->second)] = true;
      to = found->second;
      return true;
    };
    if (!follow(true_ids[i], t.on_true[i]) || !follow(false_ids[i], t.on_false[i])) {
      return InvalidArgument("the branches of node {} of tree {} do not make a tree", node_ids[i],
                             tree_ids[i]);
    }
  }
  // Every node has at most one parent, so what roots reach is a tree.
  Ints level;
  for (size_t i = 0; i < count; ++i) {
    if (!is_child[i]) level.push_back(static_cast<int64_t>(i));
  }
  t.roots = level;
  size_t reached = level.size();
  for (; !level.empty(); ++t.depth) {
    Ints next;
    for (const int64_t i : level) {
      if (t.on_true[static_cast<size_t>(i)] == i) continue;
      next.push_back(t.on_true[static_cast<size_t>(i)]);
      next.push_back(t.on_false[static_cast<size_t>(i)]);
    }
    reached += next.size();
    level = std::move(next);
  }
  --t.depth;
  if (reached != count) return InvalidArgument("the branches of some nodes lead in a circle");
  if (t.depth > kMaxDepth) {
    return Unimplemented("trees of {} levels are not supported; {} are", t.depth, kMaxDepth);
  }
  return t;
}

// The values of leaves: `results` numbers for each node.
StatusOr<std::vector<float>> ReadLeaves(const Attributes& attributes, const Trees& t,
                                        const std::string& prefix, int64_t results) {
  const Ints trees = attributes.Ints(prefix + "treeids"),
             nodes = attributes.Ints(prefix + "nodeids");
  const Ints ids = attributes.Ints(prefix + "ids");
  const std::vector<float> weights = attributes.Floats(prefix + "weights");
  if (nodes.size() != trees.size() || ids.size() != trees.size() ||
      weights.size() != trees.size()) {
    return InvalidArgument("its attributes '{}*' differ in length", prefix);
  }
  constexpr int64_t kMaxNumbers = int64_t{1} << 26;
  if (results < 1 || results > kMaxNumbers / static_cast<int64_t>(t.values.size())) {
    return InvalidArgument("{} results of {} nodes are too many or none", results, t.values.size());
  }
  std::vector<float> out(t.values.size() * static_cast<size_t>(results), 0.0f);
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto found = t.places.find({trees[i], nodes[i]});
    if (found == t.places.end() || ids[i] < 0 || ids[i] >= results) {
      return InvalidArgument("its attributes '{}*' name node {} of tree {} and result {}", prefix,
                             nodes[i], trees[i], ids[i]);
    }
    out[static_cast<size_t>(found->second * results + ids[i])] += weights[i];
  }
  return out;
}

ValueId Compare(Maker& make, const std::string& mode, ValueId x, ValueId threshold) {
  const char* op = mode == "BRANCH_LEQ"   ? "LessOrEqual"
                   : mode == "BRANCH_LT"  ? "Less"
                   : mode == "BRANCH_GTE" ? "GreaterOrEqual"
                   : mode == "BRANCH_GT"  ? "Greater"
                   : mode == "BRANCH_EQ"  ? "Equal"
                                          : nullptr;
  if (op == nullptr) make.Fail(Unimplemented("branches of mode '{}' are not supported", mode));
  return op == nullptr ? kNoValue : make.Make(op, {x, threshold});
}

// The values of the leaves that each row reaches, [rows, trees, results].
ValueId Reached(Maker& make, const Trees& t, int64_t results, const std::vector<float>& leaves) {
  const auto count = static_cast<int64_t>(t.values.size());
  const auto trees = static_cast<int64_t>(t.roots.size());
  const int64_t columns = make.Size(make.in(0), 1, "its input");
  if (make.ok() && make.Rank(make.in(0), "its input") != 2) {
    make.Fail(Unimplemented("an input of other than [rows,columns] is not supported"));
  }
  if (make.ok() && *std::max_element(t.features.begin(), t.features.end()) >= columns) {
    make.Fail(InvalidArgument("its trees look at more than the {} columns of its input", columns));
  }
  if (!make.ok()) return kNoValue;
  const bool is_float = make.info(make.in(0)).dtype == DType::kFloat;
  const ValueId x = is_float ? make.in(0) : make.CastToFloat(make.in(0));
  const ValueId features = make.Ints(t.features), values = make.Floats({count}, t.values);
  const ValueId on_true = make.Ints(t.on_true), on_false = make.Ints(t.on_false);
  const ValueId rows = make.Make("Shape", {x}, With({{"start", int64_t{0}}, {"end", int64_t{1}}}));
  const ValueId all = make.Make("Concat", {rows, make.Ints({trees})}, With({{"axis", int64_t{0}}}));
  ValueId at = make.Make("Expand", {make.Reshape(make.Ints(t.roots), {1, trees}), all});
  for (int level = 0; level < t.depth; ++level) {
    const ValueId seen = make.Make("GatherElements", {x, make.Make("Gather", {features, at})},
                                   With({{"axis", int64_t{1}}}));
    const ValueId goes = Compare(make, t.mode, seen, make.Make("Gather", {values, at}));
    at = make.Make("Where",
                   {goes, make.Make("Gather", {on_true, at}), make.Make("Gather", {on_false, at})});
  }
  return make.Make("Gather", {make.Floats({count, results}, leaves), at});
}

// Adds the base values: one per result, or none.
ValueId WithBase(Maker& make, ValueId scores, int64_t results) {
  const std::vector<float> base = make.attributes().Floats("base_values");
  if (base.empty()) return scores;
  if (static_cast<int64_t>(base.size()) != results) {
    make.Fail(
        Unimplemented("{} base values for {} results are not supported", base.size(), results));
    return kNoValue;
  }
  return make.Make("Add", {scores, make.Floats({results}, base)});
}

ValueId SumOfTrees(Maker& make, ValueId reached) {
  return make.Make("ReduceSum", {reached, make.Ints({1})}, With({{"keepdims", int64_t{0}}}));
}

}  // namespace

Status TreeEnsembleRegressor(Maker& make) {
  const int64_t results = make.attributes().Int("n_targets", 1);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Trees trees, ReadTrees(make.attributes()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<float> leaves,
                             ReadLeaves(make.attributes(), trees, "target_", results));
  for (const auto& [name, only] :
       {std::pair("aggregate_function", "SUM"), {"post_transform", "NONE"}}) {
    const std::string given = make.attributes().String(name, only);
    if (given != only) {
      return Unimplemented("its attribute '{}' is only supported as {}, not {}", name, only, given);
    }
  }
  const ValueId scores = SumOfTrees(make, Reached(make, trees, results, leaves));
  return make.Become("Identity", {WithBase(make, scores, results)});
}

// One score per class. For two classes a single score determines both. ONNX does not define what
// ONNX Runtime computes from two scores for two classes.
Status TreeEnsembleClassifier(Maker& make) {
  const Ints labels = make.attributes().Ints("classlabels_int64s");
  if (labels.size() < 2) {
    return Unimplemented("labels other than integers ('classlabels_int64s') are not supported");
  }
  const Ints ids = make.attributes().Ints("class_ids");
  const bool one_score = labels.size() == 2 && !ids.empty() &&
                         std::all_of(ids.begin(), ids.end(), [](int64_t id) { return id == 0; });
  if (labels.size() == 2 && !one_score) {
    return Unimplemented("2 labels with a score each are not supported; one score for both is");
  }
  const auto results = one_score ? int64_t{1} : static_cast<int64_t>(labels.size());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Trees trees, ReadTrees(make.attributes()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<float> leaves,
                             ReadLeaves(make.attributes(), trees, "class_", results));
  const std::string transform = make.attributes().String("post_transform", "NONE");
  const bool softmax = !one_score && transform == "SOFTMAX";
  if (transform != "NONE" && !softmax && !(one_score && transform == "LOGISTIC")) {
    return Unimplemented("its attribute 'post_transform' is not supported as '{}'", transform);
  }
  const ValueId scores =
      WithBase(make, SumOfTrees(make, Reached(make, trees, results, leaves)), results);
  const ValueId names = make.Ints(labels);
  const Attributes axis = With({{"axis", int64_t{-1}}});
  if (!one_score) {
    if (make.wants(1))
      make.MakeOutput(1, softmax ? "Softmax" : "Identity", {scores}, softmax ? axis : Attributes());
    const ValueId best =
        make.Make("ArgMax", {scores}, With({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}));
    return make.Become("Gather", {names, best});
  }
  // If all weights are positive, the score is a probability and the threshold is a half (even if
  // LOGISTIC transforms it, as in ONNX Runtime). Otherwise the sign decides.
  const std::vector<float> weights = make.attributes().Floats("class_weights");
  const bool probability =
      std::all_of(weights.begin(), weights.end(), [](float w) { return w >= 0; });
  const bool logistic = transform == "LOGISTIC";
  ValueId first = probability && !logistic ? make.Make("Sub", {make.ScalarLike(scores, 1), scores})
                                           : make.Make("Neg", {scores});
  ValueId second = scores;
  if (logistic) {
    first = make.Make("Sigmoid", {first});
    second = make.Make("Sigmoid", {second});
  }
  if (make.wants(1)) make.MakeOutput(1, "Concat", {first, second}, axis);
  const ValueId above =
      make.Make("Greater", {scores, make.ScalarLike(scores, probability ? 0.5f : 0.0f)});
  const ValueId place = make.CastToInt64(make.Squeeze(above, {1}));
  return make.Become("Gather", {names, place});
}

}  // namespace chairlift::contrib
