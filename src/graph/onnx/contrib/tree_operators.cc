// Rules for the operators of decision trees: TreeEnsembleClassifier, TreeEnsembleRegressor and,
// since ai.onnx.ml opset 5, TreeEnsemble.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "graph/onnx/contrib/rules.h"
#include "graph/onnx/contrib/scores.h"
#include "graph/onnx/contrib/trees.h"

namespace chairlift::contrib {
namespace {

using IntList = std::vector<int64_t>;

StatusOr<BranchMode> ModeByName(const std::string& name) {
  static const std::map<std::string, BranchMode> kBranchModes = {
      {"LEAF", BranchMode::kLeaf},      {"BRANCH_LEQ", BranchMode::kLeq},
      {"BRANCH_LT", BranchMode::kLt},   {"BRANCH_GTE", BranchMode::kGte},
      {"BRANCH_GT", BranchMode::kGt},   {"BRANCH_EQ", BranchMode::kEq},
      {"BRANCH_NEQ", BranchMode::kNeq},
  };
  const auto found = kBranchModes.find(name);
  if (found == kBranchModes.end())
    return Unimplemented("branches of mode '{}' are not supported", name);
  return found->second;
}

using Places = std::map<std::pair<int64_t, int64_t>, int64_t>;  // keyed by (tree, node)

// The nodes and roots of the operators that list leaves among the nodes.
StatusOr<Places> ReadNodes(Maker& make, TreeEnsembleSpec& spec) {
  const Attributes& attributes = make.attributes();
  const IntList tree_ids = attributes.Ints("nodes_treeids");
  const IntList node_ids = attributes.Ints("nodes_nodeids");
  const IntList true_ids = attributes.Ints("nodes_truenodeids");
  const IntList false_ids = attributes.Ints("nodes_falsenodeids");
  const IntList features = attributes.Ints("nodes_featureids");
  const IntList tracks = attributes.Ints("nodes_missing_value_tracks_true");
  const std::vector<std::string> modes = attributes.Strings("nodes_modes");
  const std::vector<double> values = Numbers(make, "nodes_values");
  const size_t count = tree_ids.size();
  if (count == 0 || node_ids.size() != count || true_ids.size() != count ||
      false_ids.size() != count || modes.size() != count || features.size() != count ||
      values.size() != count || (!tracks.empty() && tracks.size() != count)) {
    return InvalidArgument("its attributes 'nodes_*' are missing or differ in length");
  }
  Places places;
  for (size_t i = 0; i < count; ++i) {
    if (!places.emplace(std::pair(tree_ids[i], node_ids[i]), static_cast<int64_t>(i)).second) {
      return InvalidArgument("node {} of tree {} is defined twice", node_ids[i], tree_ids[i]);
    }
  }
  spec.nodes.resize(count);
  std::vector<bool> is_child(count, false);
  for (size_t i = 0; i < count; ++i) {
    TreeNode& node = spec.nodes[i];
    CHAIRLIFT_ASSIGN_OR_RETURN(node.mode, ModeByName(modes[i]));
    if (node.mode == BranchMode::kLeaf) continue;
    node.feature = features[i];
    node.value = values[i];
    node.missing_is_true = !tracks.empty() && tracks[i] != 0;
    const auto follow = [&](int64_t id, int64_t& to) {
      const auto found = places.find({tree_ids[i], id});
      if (found == places.end()) return false;
      is_child[static_cast<size_t>(found->second)] = true;
      to = found->second;
      return true;
    };
    if (!follow(true_ids[i], node.on_true) || !follow(false_ids[i], node.on_false)) {
      return InvalidArgument("the branches of node {} of tree {} do not make a tree", node_ids[i],
                             tree_ids[i]);
    }
  }
  std::map<int64_t, int64_t> roots;  // by tree
  for (size_t i = 0; i < count; ++i) {
    roots.try_emplace(tree_ids[i], -1);
    if (is_child[i]) continue;
    int64_t& root = roots[tree_ids[i]];
    if (root >= 0) {
      return InvalidArgument(
          "the nodes of tree {} do not make a tree: no branch leads to node {} or to node {}",
          tree_ids[i], node_ids[static_cast<size_t>(root)], node_ids[i]);
    }
    root = static_cast<int64_t>(i);
  }
  for (const auto& [tree, root] : roots) {
    if (root < 0) return InvalidArgument("the branches of tree {} lead in a circle", tree);
    spec.roots.push_back(root);
  }
  return places;
}

// The weights of the leaves: those of attributes `prefix`*, named `target_` or `class_`.
Status ReadLeaves(Maker& make, const Places& places, const std::string& prefix,
                  TreeEnsembleSpec& spec) {
  const Attributes& attributes = make.attributes();
  const IntList trees = attributes.Ints(prefix + "treeids");
  const IntList nodes = attributes.Ints(prefix + "nodeids");
  const IntList ids = attributes.Ints(prefix + "ids");
  const std::vector<double> weights = Numbers(make, prefix + "weights");
  if (nodes.size() != trees.size() || ids.size() != trees.size() ||
      weights.size() != trees.size()) {
    return InvalidArgument("its attributes '{}*' differ in length", prefix);
  }
  spec.leaves.resize(spec.nodes.size());
  for (size_t i = 0; i < trees.size(); ++i) {
    const auto found = places.find({trees[i], nodes[i]});
    if (found == places.end() || ids[i] < 0 || ids[i] >= spec.results) {
      return InvalidArgument("its attributes '{}*' name node {} of tree {} and result {}", prefix,
                             nodes[i], trees[i], ids[i]);
    }
    spec.leaves[static_cast<size_t>(found->second)].emplace_back(ids[i], weights[i]);
  }
  return absl::OkStatus();
}

// Adds the base values: one per result, one for all, or none.
ValueId WithBase(Maker& make, ValueId scores, int64_t results) {
  const std::vector<double> base = Numbers(make, "base_values");
  if (base.empty() || !make.ok()) return scores;
  if (static_cast<int64_t>(base.size()) != results) {
    make.Fail(
        Unimplemented("{} base values for {} results are not supported", base.size(), results));
    return kNoValue;
  }
  if (make.info(scores).dtype == DType::kDouble) {
    return make.Make("Add", {scores, make.Constant(Tensor::Of<double>(Shape{results}, base))});
  }
  return make.Make("Add",
                   {scores, make.Floats({results}, std::vector<float>(base.begin(), base.end()))});
}

ValueId AsFloat(Maker& make, ValueId scores) {
  const bool is_float = make.ok() && make.info(scores).dtype == DType::kFloat;
  return is_float ? scores : make.CastToFloat(scores);
}

// The scores of two classes from one: [−s, s], or [1 − s, s] if it is a probability.
ValueId TwoScores(Maker& make, ValueId score, bool probability) {
  const ValueId other = probability ? make.Make("Sub", {make.ScalarLike(score, 1), score})
                                    : make.Make("Neg", {score});
  return make.Make("Concat", {other, score}, With({{"axis", int64_t{-1}}}));
}

ValueId Highest(Maker& make, ValueId scores) {
  return make.Make("ArgMax", {scores}, With({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}}));
}

}  // namespace

Status TreeEnsembleRegressor(Maker& make) {
  TreeEnsembleSpec spec;
  spec.results = make.attributes().Int("n_targets", 1);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Places places, ReadNodes(make, spec));
  CHAIRLIFT_RETURN_IF_ERROR(ReadLeaves(make, places, "target_", spec));
  // ONNX Runtime takes one of several weights for a single result, the standard their sum.
  const auto twice = [](const LeafWeights& weights) { return weights.size() > 1; };
  if (spec.results == 1 && std::any_of(spec.leaves.begin(), spec.leaves.end(), twice)) {
    return InvalidArgument(
        "its attributes 'target_*' give one leaf several weights for its only result; each leaf "
        "needs one");
  }
  const std::string name = make.attributes().String("aggregate_function", "SUM");
  static const std::map<std::string, TreeAggregate> kAggregates = {
      {"SUM", TreeAggregate::kSum},
      {"AVERAGE", TreeAggregate::kAverage},
      {"MIN", TreeAggregate::kMin},
      {"MAX", TreeAggregate::kMax}};
  const auto found = kAggregates.find(name);
  if (found == kAggregates.end()) {
    return InvalidArgument("its attribute 'aggregate_function' is '{}'; SUM, AVERAGE, MIN, MAX are",
                           name);
  }
  const ValueId scores = WithBase(make, AggregateTrees(make, spec, found->second), spec.results);
  return make.Become("Identity", {Transformed(make, AsFloat(make, scores))});
}

// One score per class. For two classes, leaves may give a single score that determines both.
Status TreeEnsembleClassifier(Maker& make) {
  const Labels labels = ReadLabels(make, "classlabels_int64s", "classlabels_strings");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  if (labels.count < 2) return Unimplemented("a classifier with a single label is not supported");
  const IntList ids = make.attributes().Ints("class_ids");
  const bool one_id =
      !ids.empty() && std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id == ids[0]; });
  const bool one_score = labels.count == 2 && one_id && ids[0] == 0;
  TreeEnsembleSpec spec;
  spec.results = one_score ? 1 : labels.count;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Places places, ReadNodes(make, spec));
  CHAIRLIFT_RETURN_IF_ERROR(ReadLeaves(make, places, "class_", spec));
  const ValueId sums = AggregateTrees(make, spec, TreeAggregate::kSum);
  const ValueId scores = AsFloat(make, WithBase(make, sums, spec.results));
  // If all weights are positive, a single score is a probability and the threshold is a half (even
  // if LOGISTIC transforms it, as in ONNX Runtime). Otherwise the sign decides.
  const std::vector<double> weights = Numbers(make, "class_weights");
  const bool probability =
      std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; });
  const auto above = [&](ValueId score) {
    const ValueId is_above =
        make.Make("Greater", {score, make.ScalarLike(score, probability ? 0.5f : 0.0f)});
    return make.CastToInt64(make.Squeeze(is_above, {1}));
  };
  if (one_score) {
    const std::string transform = make.attributes().String("post_transform", "NONE");
    const bool complement = transform == "PROBIT" || (probability && transform == "NONE");
    if (make.wants(1)) {
      const ValueId both = TwoScores(make, scores, complement);
      make.MakeOutput(1, "Identity", {Transformed(make, both)});
    }
    return BecomeLabels(make, labels, above(scores));
  }
  if (make.wants(1)) make.MakeOutput(1, "Identity", {Transformed(make, scores)});
  if (labels.count == 2 && one_id) {  // all leaves give the score of the second label
    return BecomeLabels(make, labels, above(make.Split(scores, 1, {1, 1})[1]));
  }
  return BecomeLabels(make, labels, Highest(make, scores));
}

// Nodes and leaves are separate lists, and the numbers are tensors.
Status TreeEnsemble(Maker& make) {
  const Attributes& attributes = make.attributes();
  const IntList features = attributes.Ints("nodes_featureids");
  const IntList true_ids = attributes.Ints("nodes_truenodeids");
  const IntList false_ids = attributes.Ints("nodes_falsenodeids");
  const IntList true_leaves = attributes.Ints("nodes_trueleafs");
  const IntList false_leaves = attributes.Ints("nodes_falseleafs");
  const IntList tracks = attributes.Ints("nodes_missing_value_tracks_true");
  const IntList targets = attributes.Ints("leaf_targetids");
  const std::vector<double> splits = TensorNumbers(make, "nodes_splits");
  const std::vector<double> modes = TensorNumbers(make, "nodes_modes");
  const std::vector<double> weights = TensorNumbers(make, "leaf_weights");
  const std::vector<double> members = TensorNumbers(make, "membership_values");
  CHAIRLIFT_RETURN_IF_ERROR(make.status());
  const size_t count = features.size(), leaves = weights.size();
  if (count == 0 || true_ids.size() != count || false_ids.size() != count ||
      true_leaves.size() != count || false_leaves.size() != count || splits.size() != count ||
      modes.size() != count || (!tracks.empty() && tracks.size() != count)) {
    return InvalidArgument("its attributes 'nodes_*' are missing or differ in length");
  }
  if (leaves == 0 || targets.size() != leaves) {
    return InvalidArgument("its attributes 'leaf_*' are missing or differ in length");
  }
  TreeEnsembleSpec spec;
  spec.results = attributes.Int("n_targets", 0);
  spec.nodes.resize(count + leaves);
  spec.leaves.resize(count + leaves);
  // Branches come first, leaves after them.
  const auto child = [&](int64_t id, int64_t is_leaf, int64_t& to) {
    const size_t size = is_leaf != 0 ? leaves : count;
    to = is_leaf != 0 ? id + static_cast<int64_t>(count) : id;
    return id >= 0 && id < static_cast<int64_t>(size);
  };
  constexpr BranchMode kModes[] = {BranchMode::kLeq,   BranchMode::kLt, BranchMode::kGte,
                                   BranchMode::kGt,    BranchMode::kEq, BranchMode::kNeq,
                                   BranchMode::kMember};
  size_t member = 0;
  for (size_t i = 0; i < count; ++i) {
    TreeNode& node = spec.nodes[i];
    if (!(modes[i] >= 0 && modes[i] < static_cast<double>(std::size(kModes)))) {
      return Unimplemented("branches of mode {} are not supported; 0 to 6 are", modes[i]);
    }
    node.mode = kModes[static_cast<size_t>(modes[i])];
    node.feature = features[i];
    node.value = splits[i];
    node.missing_is_true = !tracks.empty() && tracks[i] != 0;
    if (!child(true_ids[i], true_leaves[i], node.on_true) ||
        !child(false_ids[i], false_leaves[i], node.on_false)) {
      return InvalidArgument("a branch of node {} leads to a node that does not exist", i);
    }
    if (node.mode != BranchMode::kMember) continue;
    for (; member < members.size() && !std::isnan(members[member]); ++member) {
      node.members.push_back(members[member]);
    }
    if (member++ >= members.size()) {
      return InvalidArgument("its attribute 'membership_values' has no set for node {}", i);
    }
  }
  for (size_t i = 0; i < leaves; ++i) {
    if (targets[i] < 0 || targets[i] >= spec.results) {
      return InvalidArgument("leaf {} has target {}, but there are {} targets", i, targets[i],
                             spec.results);
    }
    spec.leaves[count + i].emplace_back(targets[i], weights[i]);
  }
  for (const int64_t root : attributes.Ints("tree_roots")) {
    if (root < 0 || root >= static_cast<int64_t>(count)) {
      return InvalidArgument("the root {} is not one of {} nodes", root, count);
    }
    spec.roots.push_back(root);
  }
  constexpr TreeAggregate kAggregates[] = {TreeAggregate::kAverage, TreeAggregate::kSum,
                                           TreeAggregate::kMin, TreeAggregate::kMax};
  const int64_t aggregate = attributes.Int("aggregate_function", 1);
  const int64_t transform = attributes.Int("post_transform", 0);
  constexpr const char* kTransforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4) {
    return InvalidArgument(
        "its attributes have aggregate_function {} and post_transform {}; 0 to "
        "3 and 0 to 4 are",
        aggregate, transform);
  }
  const ValueId scores = AggregateTrees(make, spec, kAggregates[aggregate]);
  return make.Become("CastLike", {Transformed(make, scores, kTransforms[transform]), make.in(0)});
}

}  // namespace chairlift::contrib
