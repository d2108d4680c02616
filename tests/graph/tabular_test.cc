// Operators of domain ai.onnx.ml against naive references, and strings in graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "chairlift/text.h"
#include "graph/evaluate.h"
#include "graph/model_builder.h"
#include "graph/onnx/contrib/contrib.h"
#include "graph/onnx/graph_builder.h"
#include "graph/onnx/unique_names.h"
#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace tabular_test {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::NodeBuilder;

constexpr int kDouble = onnx::TensorProto::DOUBLE;
constexpr int kString = onnx::TensorProto::STRING;
const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

// A model of one node; its outputs are the model's.
struct OneNode {
  OneNode(const std::string& op_type, std::initializer_list<std::string> inputs,
          std::initializer_list<std::string> outputs = {"y"},
          const std::string& domain = "ai.onnx.ml", int opset = 21)
      : model(opset), node(model.Node(op_type, inputs, outputs)) {
    if (!domain.empty()) {
      auto* import = model.model().add_opset_import();
      import->set_domain(domain);
      import->set_version(5);
      node.Domain(domain);
    }
    for (const std::string& name : outputs) model.Output(name);
  }
  void Ints(const std::string& name, const std::vector<int64_t>& values) {
    auto* attribute = node.Attribute(name, onnx::AttributeProto::INTS);
    for (const int64_t value : values) attribute->add_ints(value);
  }
  void Floats(const std::string& name, const std::vector<double>& values) {
    auto* attribute = node.Attribute(name, onnx::AttributeProto::FLOATS);
    for (const double value : values) attribute->add_floats(static_cast<float>(value));
  }
  void Strings(const std::string& name, const std::vector<std::string>& values) {
    auto* attribute = node.Attribute(name, onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) attribute->add_strings(value);
  }
  template <typename T>
  void Numbers(const std::string& name, int type, const std::vector<T>& values) {
    auto* tensor = node.Attribute(name, onnx::AttributeProto::TENSOR)->mutable_t();
    tensor->set_data_type(type);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    tensor->set_raw_data(values.data(), values.size() * sizeof(T));
  }
  StatusOr<Graph> Import() const {
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, model.Import());
    return std::move(imported.graph);
  }
  std::vector<Tensor> Run(const std::vector<Tensor>& inputs) const {
    const StatusOr<Graph> graph = Import();
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? testing::Evaluate(*graph, inputs) : std::vector<Tensor>{};
  }
  std::string Refused() const {
    const StatusOr<Graph> graph = Import();
    EXPECT_FALSE(graph.ok());
    return graph.ok() ? "" : Message(graph.status());
  }

  ModelBuilder model;
  NodeBuilder node;
};

template <typename T>
std::vector<T> ListOf(const Tensor& t) {
  return {t.values<T>().begin(), t.values<T>().end()};
}
std::vector<std::string> TextList(const Tensor& t) {
  return {TextsOf(t).begin(), TextsOf(t).end()};
}
void ExpectNear(const Tensor& got, const std::vector<double>& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
  for (int64_t i = 0; i < got.size(); ++i) {
    const double value = got.dtype() == DType::kDouble ? got.data<double>()[i]
                                                       : static_cast<double>(got.data<float>()[i]);
    const double wanted = want[static_cast<size_t>(i)];
    EXPECT_NEAR(value, wanted, tolerance * std::max(1.0, std::abs(wanted))) << "element " << i;
  }
}

// --- Trees ---------------------------------------------------------------------------------------

const char* const kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                              "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};

// A forest of random trees with every kind of branch, followed row by row.
struct Forest {
  struct Node {
    int64_t tree, id, on_true = 0, on_false = 0, feature = 0;
    int mode = -1;  // -1: a leaf
    float value = 0;
    bool tracks = false;
    std::vector<float> members = {};        // of mode 6
    std::map<int64_t, float> weights = {};  // by result
  };
  std::vector<Node> nodes;
  int64_t results, columns, trees;

  Forest(std::mt19937& random, int64_t results, int64_t columns, int modes)
      : results(results), columns(columns), trees(1 + random() % 4) {
    for (int64_t tree = 0; tree < trees; ++tree) Grow(random, tree, modes);
  }

  void Grow(std::mt19937& random, int64_t tree, int modes) {
    std::vector<std::pair<size_t, int>> open = {{nodes.size(), 0}};
    int64_t next = 1;
    nodes.push_back({tree, 0});
    while (!open.empty()) {
      const auto [at, depth] = open.back();
      open.pop_back();
      if (depth < 5 && (depth == 0 || random() % 10 < 7)) {
        Node& node = nodes[at];
        node.mode = static_cast<int>(random() % static_cast<unsigned>(modes));
        node.feature = static_cast<int64_t>(random() % static_cast<unsigned>(columns));
        node.value = Threshold(random);
        node.tracks = random() % 2 == 0;
        for (unsigned i = 0; node.mode == 6 && i < 1 + random() % 5; ++i) {
          node.members.push_back(static_cast<float>(static_cast<int>(random() % 5) - 2) / 2 +
                                 0.25f);
        }
        node.on_true = next++;
        node.on_false = next++;
        for (const int64_t id : {node.on_true, node.on_false}) {
          open.emplace_back(nodes.size(), depth + 1);
          nodes.push_back({tree, id});
        }
        continue;
      }
      for (int64_t r = 0; r < results; ++r) {
        if (results == 1 || random() % 2 == 0) {
          nodes[at].weights[r] = static_cast<float>(static_cast<int>(random() % 200) - 100) / 16;
        }
      }
    }
  }

  static float Threshold(std::mt19937& random) {
    constexpr float kSpecial[] = {0.0f, -0.0f, 1e-40f, 1.5f, -1.5f, 1e30f};
    if (random() % 3 == 0) return kSpecial[random() % std::size(kSpecial)];
    return static_cast<float>(static_cast<int>(random() % 5) - 2) / 2;
  }

  const Node& Leaf(int64_t tree, const float* x) const {
    const auto find = [&](int64_t id) {
      return &*std::find_if(nodes.begin(), nodes.end(),
                            [&](const Node& n) { return n.tree == tree && n.id == id; });
    };
    const Node* node = find(0);
    while (node->mode >= 0) {
      const float v = x[node->feature];
      // Denormals count as zero.
      const float w = std::fabs(node->value) < std::numeric_limits<float>::min() ? 0 : node->value;
      const bool goes[] = {
          v <= w, v<w, v >= w, v> w, v == w, v != w,
          std::find(node->members.begin(), node->members.end(), v) != node->members.end()};
      const bool is_true = goes[node->mode] || (std::isnan(v) && node->tracks);
      node = find(is_true ? node->on_true : node->on_false);
    }
    return *node;
  }

  std::vector<double> Aggregate(const Tensor& x, const std::string& how) const {
    std::vector<double> out;
    for (int64_t row = 0; row < x.shape()[0]; ++row) {
      std::vector<double> sums(static_cast<size_t>(results), 0.0);
      std::vector<bool> any(static_cast<size_t>(results), false);
      for (int64_t tree = 0; tree < trees; ++tree) {
        for (const auto& [result, weight] : Leaf(tree, x.data<float>() + row * columns).weights) {
          const auto r = static_cast<size_t>(result);
          if (how == "MIN" || how == "MAX") {
            const bool better = how == "MIN" ? weight < sums[r] : weight > sums[r];
            if (!any[r] || better) sums[r] = weight;
          } else {
            sums[r] += weight;
          }
          any[r] = true;
        }
      }
      for (double sum : sums) out.push_back(how == "AVERAGE" ? sum / double(trees) : sum);
    }
    return out;
  }

  void Write(OneNode& m, const std::string& leaf) const {
    std::vector<int64_t> tree_ids, ids, on_true, on_false, features, tracks, leaf_trees, leaf_nodes,
        leaf_ids;
    std::vector<double> values, weights;
    std::vector<std::string> modes;
    for (const Node& n : nodes) {
      tree_ids.push_back(n.tree);
      ids.push_back(n.id);
      on_true.push_back(n.on_true);
      on_false.push_back(n.on_false);
      features.push_back(n.feature);
      tracks.push_back(n.tracks ? 1 : 0);
      values.push_back(n.value);
      modes.emplace_back(n.mode < 0 ? "LEAF" : kModes[n.mode]);
      for (const auto& [result, weight] : n.weights) {
        leaf_trees.push_back(n.tree);
        leaf_nodes.push_back(n.id);
        leaf_ids.push_back(result);
        weights.push_back(weight);
      }
    }
    m.Ints("nodes_treeids", tree_ids);
    m.Ints("nodes_nodeids", ids);
    m.Ints("nodes_truenodeids", on_true);
    m.Ints("nodes_falsenodeids", on_false);
    m.Ints("nodes_featureids", features);
    m.Ints("nodes_missing_value_tracks_true", tracks);
    m.Floats("nodes_values", values);
    m.Strings("nodes_modes", modes);
    m.Ints(leaf + "treeids", leaf_trees);
    m.Ints(leaf + "nodeids", leaf_nodes);
    m.Ints(leaf + "ids", leaf_ids);
    m.Floats(leaf + "weights", weights);
  }

  // As operator TreeEnsemble has it: branches and leaves apart, one weight a leaf.
  void WriteApart(OneNode& m) const {
    std::map<std::pair<int64_t, int64_t>, int64_t> places;
    int64_t branches = 0, leaves = 0;
    for (const Node& n : nodes) places[{n.tree, n.id}] = n.mode < 0 ? leaves++ : branches++;
    std::vector<int64_t> features, on_true, on_false, true_leaf, false_leaf, tracks, targets, roots;
    std::vector<float> splits, weights, members;
    std::vector<uint8_t> modes;
    const auto is_leaf = [&](int64_t tree, int64_t id) {
      for (const Node& n : nodes) {
        if (n.tree == tree && n.id == id) return int64_t{n.mode < 0};
      }
      return int64_t{-1};
    };
    for (const Node& n : nodes) {
      if (n.mode < 0) {
        targets.push_back(n.weights.empty() ? 0 : n.weights.begin()->first);
        weights.push_back(n.weights.empty() ? 0 : n.weights.begin()->second);
        continue;
      }
      if (n.id == 0) roots.push_back(places[{n.tree, 0}]);
      features.push_back(n.feature);
      on_true.push_back(places[{n.tree, n.on_true}]);
      on_false.push_back(places[{n.tree, n.on_false}]);
      true_leaf.push_back(is_leaf(n.tree, n.on_true));
      false_leaf.push_back(is_leaf(n.tree, n.on_false));
      tracks.push_back(n.tracks ? 1 : 0);
      splits.push_back(n.value);
      modes.push_back(static_cast<uint8_t>(n.mode));
      if (n.mode != 6) continue;
      members.insert(members.end(), n.members.begin(), n.members.end());
      members.push_back(kNan);
    }
    m.Ints("nodes_featureids", features);
    m.Ints("nodes_truenodeids", on_true);
    m.Ints("nodes_falsenodeids", on_false);
    m.Ints("nodes_trueleafs", true_leaf);
    m.Ints("nodes_falseleafs", false_leaf);
    m.Ints("nodes_missing_value_tracks_true", tracks);
    m.Ints("leaf_targetids", targets);
    m.Ints("tree_roots", roots);
    m.Numbers("nodes_splits", kFloat, splits);
    m.Numbers("nodes_modes", onnx::TensorProto::UINT8, modes);
    m.Numbers("leaf_weights", kFloat, weights);
    if (!members.empty()) m.Numbers("membership_values", kFloat, members);
    m.node.Int("n_targets", results);
  }
};

// On thresholds, between them, and missing.
Tensor TreeRows(std::mt19937& random, int64_t rows, int64_t columns) {
  Tensor x = Tensor::Allocate(DType::kFloat, {rows, columns});
  for (int64_t i = 0; i < x.size(); ++i) {
    const unsigned kind = random() % 8;
    x.data<float>()[i] = kind == 0   ? kNan
                         : kind == 1 ? (random() % 2 == 0 ? kInf : -kInf)
                         : kind == 2 ? -0.0f
                                     : static_cast<float>(static_cast<int>(random() % 9) - 4) / 4;
  }
  return x;
}

TEST(TreeEnsembleTest, RegressorsFollowEveryKindOfBranchAndAggregate) {
  std::mt19937 random(11);
  for (const char* how : {"SUM", "AVERAGE", "MIN", "MAX"}) {
    for (int trial = 0; trial < 8; ++trial) {
      const int64_t results = 1 + trial % 3, columns = 1 + random() % 4;
      const Forest forest(random, results, columns, 6);
      OneNode m("TreeEnsembleRegressor", {"x"});
      m.model.Input("x", kFloat, {"n", columns});
      forest.Write(m, "target_");
      m.node.Int("n_targets", results).String("aggregate_function", how);
      const Tensor x = TreeRows(random, 20, columns);
      const auto got = m.Run({x});
      ASSERT_EQ(got.size(), 1u);
      EXPECT_EQ(got[0].shape(), (Shape{20, results}));
      ExpectNear(got[0], forest.Aggregate(x, how));
    }
  }
}

TEST(TreeEnsembleTest, BranchesAndLeavesApartWithSetsOfMembers) {
  std::mt19937 random(12);
  for (int trial = 0; trial < 12; ++trial) {
    const int64_t columns = 1 + random() % 4;
    Forest forest(random, 1 + trial % 2, columns, 7);
    for (Forest::Node& node : forest.nodes) {
      if (node.weights.size() > 1) node.weights.erase(node.weights.begin());
    }
    const char* const how[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    OneNode m("TreeEnsemble", {"x"});
    m.model.Input("x", kFloat, {"n", columns});
    forest.WriteApart(m);
    m.node.Int("aggregate_function", trial % 4);
    for (Forest::Node& node : forest.nodes) {  // as written: every leaf has a weight
      if (node.mode < 0 && node.weights.empty()) node.weights[0] = 0;
    }
    const Tensor x = TreeRows(random, 30, columns);
    ExpectNear(m.Run({x})[0], forest.Aggregate(x, how[trial % 4]));
  }
}

TEST(TreeEnsembleTest, DoublesAreComparedAsDoubles) {
  OneNode m("TreeEnsembleRegressor", {"x"});
  m.model.Input("x", kDouble, {"n", 1});
  const double threshold = 1.0 + 1e-12;  // 1 in float32
  m.Ints("nodes_treeids", {0, 0, 0});
  m.Ints("nodes_nodeids", {0, 1, 2});
  m.Ints("nodes_truenodeids", {1, 0, 0});
  m.Ints("nodes_falsenodeids", {2, 0, 0});
  m.Ints("nodes_featureids", {0, 0, 0});
  m.Numbers<double>("nodes_values_as_tensor", kDouble, {threshold, 0, 0});
  m.Strings("nodes_modes", {"BRANCH_LT", "LEAF", "LEAF"});
  m.Ints("target_treeids", {0, 0});
  m.Ints("target_nodeids", {1, 2});
  m.Ints("target_ids", {0, 0});
  m.Numbers<double>("target_weights_as_tensor", kDouble, {1, 2});
  const Tensor x = Tensor::Of<double>({3, 1}, {1.0, threshold, 1.0 + 2e-12});
  ExpectNear(m.Run({x})[0], {1, 2, 2});
}

TEST(TreeEnsembleTest, BranchesMayShareWhatFollows) {
  // x = 1 or x = 3 ? 10 : 20, as a chain with one goal.
  OneNode m("TreeEnsembleRegressor", {"x"});
  m.model.Input("x", kFloat, {"n", 1});
  m.Ints("nodes_treeids", {4, 4, 4, 4});
  m.Ints("nodes_nodeids", {0, 1, 2, 3});
  m.Ints("nodes_truenodeids", {2, 2, 0, 0});
  m.Ints("nodes_falsenodeids", {1, 3, 0, 0});
  m.Ints("nodes_featureids", {0, 0, 0, 0});
  m.Floats("nodes_values", {1, 3, 0, 0});
  m.Strings("nodes_modes", {"BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"});
  m.Ints("target_treeids", {4, 4});
  m.Ints("target_nodeids", {2, 3});
  m.Ints("target_ids", {0, 0});
  m.Floats("target_weights", {10, 20});
  ExpectNear(m.Run({Tensor::Of<float>({5, 1}, {1, 2, 3, kNan, 0})})[0], {10, 20, 10, 20, 20});
}

// One leaf with these weights for every class.
OneNode Leaf(const std::vector<double>& weights, const std::string& transform) {
  OneNode m("TreeEnsembleClassifier", {"x"}, {"y", "scores"});
  m.model.Input("x", kFloat, {"n", 1});
  m.Ints("nodes_treeids", {0});
  m.Ints("nodes_nodeids", {0});
  m.Ints("nodes_truenodeids", {0});
  m.Ints("nodes_falsenodeids", {0});
  m.Ints("nodes_featureids", {0});
  m.Floats("nodes_values", {0});
  m.Strings("nodes_modes", {"LEAF"});
  std::vector<int64_t> zeros(weights.size(), 0), ids;
  for (size_t i = 0; i < weights.size(); ++i) ids.push_back(static_cast<int64_t>(i));
  m.Ints("class_treeids", zeros);
  m.Ints("class_nodeids", zeros);
  m.Ints("class_ids", ids);
  m.Floats("class_weights", weights);
  m.node.String("post_transform", transform);
  return m;
}

TEST(TreeEnsembleTest, ScoresAreTransformed) {
  const std::vector<double> scores = {0.9, 0.0, 0.25};
  const auto probit = [](double p) {  // the standard's approximation
    const double y = 2 * p - 1, log = std::log((1 - y) * (1 + y));
    const double v = 2 / (M_PI * 0.147) + log / 2;
    return std::sqrt(2.0) * (y < 0 ? -1 : 1) * std::sqrt(std::sqrt(v * v - log / 0.147) - v);
  };
  const double whole = std::exp(0.9) + 1 + std::exp(0.25), part = std::exp(0.9) + std::exp(0.25);
  const std::map<std::string, std::vector<double>> wanted = {
      {"NONE", scores},
      {"LOGISTIC", {1 / (1 + std::exp(-0.9)), 0.5, 1 / (1 + std::exp(-0.25))}},
      {"SOFTMAX", {std::exp(0.9) / whole, 1 / whole, std::exp(0.25) / whole}},
      {"SOFTMAX_ZERO", {std::exp(0.9) / part, 0, std::exp(0.25) / part}}};
  for (const auto& [transform, want] : wanted) {
    OneNode m = Leaf(scores, transform);
    m.Strings("classlabels_strings", {"a", "b", "c"});
    const auto got = m.Run({Tensor::Of<float>({2, 1}, {1, 2})});
    EXPECT_THAT(TextList(got[0]), ElementsAre("a", "a"));
    std::vector<double> twice = want;
    twice.insert(twice.end(), want.begin(), want.end());
    ExpectNear(got[1], twice);
  }
  OneNode m = Leaf({0.9, 0.5, 0.25}, "PROBIT");
  m.Ints("classlabels_int64s", {4, 5, 6});
  ExpectNear(m.Run({Tensor::Of<float>({1, 1}, {1})})[1], {probit(0.9), 0, probit(0.25)}, 1e-4);
  OneNode wrong = Leaf(scores, "HARDMAX");
  wrong.Ints("classlabels_int64s", {4, 5, 6});
  EXPECT_THAT(wrong.Refused(), HasSubstr("'HARDMAX'"));
}

TEST(TreeEnsembleTest, TwoWeightsOfALeafForOneResultAreRefused) {
  OneNode m("TreeEnsembleRegressor", {"x"});
  m.model.Input("x", kFloat, {"n", 1});
  for (const char* name : {"nodes_treeids", "nodes_nodeids", "nodes_truenodeids",
                           "nodes_falsenodeids", "nodes_featureids"}) {
    m.Ints(name, {0});
  }
  m.Floats("nodes_values", {0});
  m.Strings("nodes_modes", {"LEAF"});
  for (const char* name : {"target_treeids", "target_nodeids", "target_ids"}) m.Ints(name, {0, 0});
  m.Floats("target_weights", {1, 2});
  EXPECT_THAT(m.Refused(), HasSubstr("several weights for its only result"));
}

// A short attribute asks for a table of any size, and a file has many nodes.
TEST(TreeEnsembleTest, TheTablesOfAllNodesTogetherAreBounded) {
  Graph graph;
  InferBudget budget{.constant_bytes_left = 5000};
  UniqueNames names;
  chairlift::GraphBuilder builder(graph, budget, names, /*is_body=*/false);
  const ValueId x = graph.AddValue({.name = "x",
                                    .dtype = DType::kFloat,
                                    .shape = SymbolicShape(std::vector<Dim>{Dim(2), Dim(1)})});
  const auto emit = [&](const std::string& name) {
    OnnxNode node;
    node.name = name;
    node.op_type = "TreeEnsembleRegressor";
    node.domain = "ai.onnx.ml";
    node.opset = 3;
    node.inputs = {x};
    node.outputs = {graph.AddValue({.name = name})};
    const auto ints = [&](const char* of, std::vector<int64_t> values) {
      node.attributes.Set(of, std::move(values));
    };
    for (const char* of :
         {"nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids",
          "nodes_featureids", "target_treeids", "target_nodeids", "target_ids"}) {
      ints(of, {0});
    }
    node.attributes.Set("nodes_values", std::vector<float>{0});
    node.attributes.Set("target_weights", std::vector<float>{1});
    node.attributes.Set("nodes_modes", std::vector<std::string>{"LEAF"});
    node.attributes.Set("n_targets", int64_t{1000});
    return builder.Emit(std::move(node));
  };
  EXPECT_TRUE(emit("first").ok());
  const Status refused = emit("second");
  EXPECT_THAT(Message(refused), HasSubstr("node 'second'"));
  EXPECT_THAT(Message(refused), HasSubstr("the tables of this node and of those before it"));
}

TEST(TreeEnsembleTest, AttributesThatMakeNoTreesAreRefused) {
  const auto ensemble = [](const std::function<void(OneNode&)>& add) {
    OneNode m("TreeEnsemble", {"x"});
    m.model.Input("x", kFloat, {"n", 2});
    add(m);
    return m.Refused();
  };
  const auto base = [](OneNode& m, std::vector<int64_t> on_true, std::vector<int64_t> leafs,
                       std::vector<uint8_t> modes, std::vector<int64_t> roots) {
    m.Ints("nodes_featureids", {0, 1});
    m.Ints("nodes_truenodeids", on_true);
    m.Ints("nodes_falsenodeids", {0, 0});
    m.Ints("nodes_trueleafs", leafs);
    m.Ints("nodes_falseleafs", {1, 1});
    m.Ints("leaf_targetids", {0});
    m.Ints("tree_roots", roots);
    m.Numbers<float>("nodes_splits", kFloat, {1, 2});
    m.Numbers("nodes_modes", onnx::TensorProto::UINT8, modes);
    m.Numbers<float>("leaf_weights", kFloat, {3});
    m.node.Int("n_targets", 1);
  };
  EXPECT_THAT(ensemble([&](OneNode& m) {
                base(m, {1, 0}, {0, 0}, {0, 0}, {0});
              }),
              HasSubstr("do not make a tree"));
  EXPECT_THAT(ensemble([&](OneNode& m) {
                base(m, {1, 7}, {0, 1}, {0, 0}, {0});
              }),
              HasSubstr("does not exist"));
  EXPECT_THAT(ensemble([&](OneNode& m) {
                base(m, {1, 0}, {0, 1}, {0, 9}, {0});
              }),
              HasSubstr("mode 9"));
  EXPECT_THAT(ensemble([&](OneNode& m) {
                base(m, {1, 0}, {0, 1}, {0, 6}, {0});
              }),
              HasSubstr("membership_values"));
  EXPECT_THAT(ensemble([&](OneNode& m) {
                base(m, {1, 0}, {0, 1}, {0, 0}, {2});
              }),
              HasSubstr("root 2"));
}

// --- Support vector machines ---------------------------------------------------------------------

double KernelOf(const std::string& kind, const std::vector<double>& params, const float* a,
                const double* b, int64_t columns) {
  double dot = 0, distance = 0;
  for (int64_t c = 0; c < columns; ++c) {
    dot += a[c] * b[c];
    distance += (a[c] - b[c]) * (a[c] - b[c]);
  }
  if (kind == "LINEAR") return dot;
  if (kind == "RBF") return std::exp(-params[0] * distance);
  const double scaled = params[0] * dot + params[1];
  return kind == "SIGMOID" ? std::tanh(scaled) : std::pow(scaled, params[2]);
}

std::vector<double> Normal(std::mt19937& random, int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(double(normal(random)));
  return values;
}
Tensor NormalRows(std::mt19937& random, int64_t rows, int64_t columns) {
  Tensor x = Tensor::Allocate(DType::kFloat, {rows, columns});
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = normal(random);
  return x;
}

TEST(SvmTest, RegressorsOfEveryKernel) {
  std::mt19937 random(21);
  const std::vector<double> params = {0.5, 0.25, 3};
  for (const char* kind : {"LINEAR", "RBF", "POLY", "SIGMOID"}) {
    for (const int one_class : {0, 1}) {
      const int64_t columns = 3, vectors = 5;
      const auto support = Normal(random, vectors * columns), weights = Normal(random, vectors);
      OneNode m("SVMRegressor", {"x"});
      m.model.Input("x", kFloat, {"n", columns});
      m.Floats("support_vectors", support);
      m.Floats("coefficients", weights);
      m.Floats("rho", {0.125});
      m.Floats("kernel_params", params);
      m.node.String("kernel_type", kind).Int("n_supports", vectors).Int("one_class", one_class);
      const Tensor x = NormalRows(random, 7, columns);
      std::vector<double> want;
      for (int64_t r = 0; r < 7; ++r) {
        double sum = 0.125;
        for (int64_t v = 0; v < vectors; ++v) {
          sum += weights[size_t(v)] * KernelOf(kind, params, x.data<float>() + r * columns,
                                               support.data() + v * columns, columns);
        }
        want.push_back(one_class == 0 ? sum : sum > 0 ? 1 : -1);
      }
      const auto got = m.Run({x});
      EXPECT_EQ(got[0].shape(), (Shape{7, 1}));
      ExpectNear(got[0], want);
    }
  }
}

// The machine of each pair of classes, one by one.
struct Machines {
  std::vector<int64_t> per_class;
  std::vector<double> support, weights, rho;
  int64_t columns = 3;
  std::vector<double> Scores(const float* x) const {
    const auto classes = static_cast<int64_t>(per_class.size());
    int64_t vectors = 0;
    std::vector<int64_t> starts;
    for (const int64_t n : per_class) {
      starts.push_back(vectors);
      vectors += n;
    }
    std::vector<double> scores;
    for (int64_t i = 0; i < classes; ++i) {
      for (int64_t j = i + 1; j < classes; ++j) {
        double sum = rho[scores.size()];
        const auto add = [&](int64_t of, int64_t row) {
          for (int64_t v = starts[size_t(of)]; v < starts[size_t(of)] + per_class[size_t(of)];
               ++v) {
            sum += weights[size_t(row * vectors + v)] *
                   KernelOf("RBF", {0.5}, x, support.data() + v * columns, columns);
          }
        };
        add(i, j - 1);
        add(j, i);
        scores.push_back(sum);
      }
    }
    return scores;
  }
};

TEST(SvmTest, ClassifiersVoteAndGiveProbabilities) {
  std::mt19937 random(22);
  for (const size_t classes : {size_t{2}, size_t{3}, size_t{5}}) {
    Machines machines;
    int64_t vectors = 0;
    for (size_t c = 0; c < classes; ++c) {
      machines.per_class.push_back(1 + static_cast<int64_t>(random() % 4));
      vectors += machines.per_class.back();
    }
    const auto pairs = static_cast<int64_t>(classes * (classes - 1) / 2);
    machines.support = Normal(random, vectors * machines.columns);
    machines.weights = Normal(random, vectors * (static_cast<int64_t>(classes) - 1));
    machines.rho = Normal(random, pairs);
    const auto prob_a = Normal(random, pairs), prob_b = Normal(random, pairs);
    const auto make = [&](bool probabilities) {
      OneNode m("SVMClassifier", {"x"}, {"y", "scores"});
      m.model.Input("x", kFloat, {"n", machines.columns});
      m.Ints("vectors_per_class", machines.per_class);
      m.Floats("support_vectors", machines.support);
      m.Floats("coefficients", machines.weights);
      m.Floats("rho", machines.rho);
      m.Floats("kernel_params", {0.5, 0, 3});
      m.node.String("kernel_type", "RBF");
      if (probabilities) m.Floats("prob_a", prob_a);
      if (probabilities) m.Floats("prob_b", prob_b);
      std::vector<int64_t> labels;
      for (size_t c = 0; c < classes; ++c) labels.push_back(10 + static_cast<int64_t>(c));
      m.Ints("classlabels_ints", labels);
      return m;
    };
    const Tensor x = NormalRows(random, 9, machines.columns);
    std::vector<int64_t> labels;
    std::vector<double> plain;
    for (int64_t r = 0; r < 9; ++r) {
      const auto scores = machines.Scores(x.data<float>() + r * machines.columns);
      std::vector<int> votes(classes, 0);
      size_t pair = 0;
      for (size_t i = 0; i < classes; ++i) {
        for (size_t j = i + 1; j < classes; ++j) ++votes[scores[pair++] > 0 ? i : j];
      }
      labels.push_back(10 + (std::max_element(votes.begin(), votes.end()) - votes.begin()));
      if (classes == 2) plain.push_back(-scores[0]);
      plain.insert(plain.end(), scores.begin(), scores.end());
    }
    const auto got = make(false).Run({x});
    EXPECT_THAT(ListOf<int64_t>(got[0]), ElementsAreArray(labels));
    ExpectNear(got[1], plain);

    const auto likely = make(true).Run({x});
    EXPECT_THAT(ListOf<int64_t>(likely[0]), ElementsAreArray(labels));
    ASSERT_EQ(likely[1].shape(), (Shape{9, static_cast<int64_t>(classes)}));
    for (int64_t r = 0; r < 9; ++r) {
      double sum = 0;
      for (size_t c = 0; c < classes; ++c) {
        sum += double(likely[1].data<float>()[r * static_cast<int64_t>(classes) + int64_t(c)]);
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      if (classes > 2) continue;  // two classes: the pair's own probability
      const double fitted = prob_a[0] * plain[size_t(2 * r + 1)] + prob_b[0];
      EXPECT_NEAR(double(likely[1].data<float>()[2 * r]), 1 / (1 + std::exp(fitted)), 3e-3);
    }
  }
}

TEST(SvmTest, CountsThatDoNotFitAreRefused) {
  OneNode m("SVMClassifier", {"x"}, {"y", "scores"});
  m.model.Input("x", kFloat, {"n", 2});
  m.Ints("vectors_per_class", {1, 1, 1});
  m.Floats("support_vectors", {1, 2, 3, 4});
  m.Floats("coefficients", {1, 2});
  m.Floats("rho", {1});
  m.Ints("classlabels_ints", {0, 1});
  EXPECT_THAT(m.Refused(), HasSubstr("2 labels and 3 counts"));
}

// Two scores of one machine: each becomes a probability, and both add up to 1.
TEST(SvmTest, TwoClassesMayBecomeProbabilitiesWithoutFits) {
  OneNode m("SVMClassifier", {"x"}, {"y", "scores"});
  m.model.Input("x", kFloat, {"n", 1});
  m.Ints("vectors_per_class", {1, 1});
  m.Floats("support_vectors", {1, 0});
  m.Floats("coefficients", {2, -1});
  m.Floats("rho", {0.5});
  m.Ints("classlabels_ints", {3, 4});
  m.node.String("post_transform", "LOGISTIC");
  const auto got = m.Run({Tensor::Of<float>({2, 1}, {1, -1})});
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  ASSERT_EQ(got.size(), 2u);
  // The scores are 2x + 0.5.
  ExpectNear(got[1], {logistic(-2.5), logistic(2.5), logistic(1.5), logistic(-1.5)});
}

// The tables of all pairs of classes would take 2 GB, from a file of 1 MB.
TEST(SvmTest, TooManyPairsOfClassesAreRefused) {
  constexpr int64_t kClasses = 600, kPairs = kClasses * (kClasses - 1) / 2;
  OneNode m("SVMClassifier", {"x"}, {"y", "scores"});
  m.model.Input("x", kFloat, {"n", 1});
  std::vector<int64_t> vectors(kClasses, 0), labels(kClasses);
  vectors[0] = 1;
  for (int64_t i = 0; i < kClasses; ++i) labels[static_cast<size_t>(i)] = i;
  m.Ints("vectors_per_class", vectors);
  m.Ints("classlabels_ints", labels);
  m.Floats("support_vectors", {1});
  m.Floats("coefficients", std::vector<double>(kClasses - 1, 1));
  m.Floats("rho", std::vector<double>(kPairs, 1));
  EXPECT_THAT(m.Refused(), HasSubstr("600 classes with 1 support vectors"));
}

// --- Encoders and strings ------------------------------------------------------------------------

TEST(EncoderTest, LabelsOfEveryTypeAreLookedUp) {
  OneNode strings("LabelEncoder", {"x"});
  strings.model.Input("x", kString, {"n", 2});
  strings.Strings("keys_strings", {"a", "", "long enough to be on the heap, certainly"});
  strings.Ints("values_int64s", {7, 8, 9});
  const Tensor texts =
      TextTensor({2, 2}, {"", "long enough to be on the heap, certainly", "A", "a"});
  const auto got = strings.Run({texts});
  EXPECT_EQ(got[0].shape(), (Shape{2, 2}));
  EXPECT_THAT(ListOf<int64_t>(got[0]), ElementsAre(8, 9, -1, 7));

  OneNode floats("LabelEncoder", {"x"});
  floats.model.Input("x", kFloat, {"n"});
  floats.Floats("keys_floats", {double(kNan), 0.0, 2.5, 2.5});
  floats.Strings("values_strings", {"missing", "zero", "first", "second"});
  floats.node.String("default_string", "other");
  EXPECT_THAT(TextList(floats.Run({Tensor::Of<float>({4}, {kNan, -0.0f, 2.5f, 1})})[0]),
              ElementsAre("missing", "zero", "first", "other"));

  OneNode tensors("LabelEncoder", {"x"});
  tensors.model.Input("x", onnx::TensorProto::INT16, {"n"});
  tensors.Numbers<int16_t>("keys_tensor", onnx::TensorProto::INT16, {1, -2});
  tensors.Numbers<double>("values_tensor", kDouble, {0.5, 1.5});
  tensors.Numbers<double>("default_tensor", kDouble, {9});
  EXPECT_THAT(ListOf<double>(tensors.Run({Tensor::Of<int16_t>({3}, {-2, 0, 1})})[0]),
              ElementsAre(1.5, 9, 0.5));

  OneNode wrong("LabelEncoder", {"x"});
  wrong.model.Input("x", kInt64, {"n"});
  wrong.Strings("keys_strings", {"a"});
  wrong.Ints("values_int64s", {1});
  EXPECT_THAT(wrong.Refused(), HasSubstr("its input is int64, but its keys are bytes"));
}

TEST(EncoderTest, OldLabelEncodersAndMappersGoBothWays) {
  for (const bool mapper : {false, true}) {
    for (const bool to_number : {false, true}) {
      OneNode m(mapper ? "CategoryMapper" : "LabelEncoder", {"x"});
      m.model.Input("x", to_number ? kString : kInt64, {"n"});
      if (!mapper) m.model.model().mutable_opset_import()->rbegin()->set_version(1);
      m.Strings(mapper ? "cats_strings" : "classes_strings", {"a", "b"});
      if (mapper) m.Ints("cats_int64s", {0, 1});
      if (to_number) {
        EXPECT_THAT(ListOf<int64_t>(m.Run({TextTensor({3}, {"b", "c", "a"})})[0]),
                    ElementsAre(1, -1, 0));
      } else {
        EXPECT_THAT(TextList(m.Run({Tensor::Of<int64_t>({3}, {1, 2, 0})})[0]),
                    ElementsAre("b", "_Unused", "a"));
      }
    }
  }
}

// As in ONNX Runtime.
TEST(EncoderTest, TheLastOfEqualCategoriesCounts) {
  OneNode numbers("OneHotEncoder", {"x"});
  numbers.model.Input("x", kInt64, {"n"});
  numbers.Ints("cats_int64s", {5, 7, 5});
  EXPECT_THAT(ListOf<float>(numbers.Run({Tensor::Of<int64_t>({2}, {5, 7})})[0]),
              ElementsAre(0, 0, 1, 0, 1, 0));

  OneNode strings("OneHotEncoder", {"x"});
  strings.model.Input("x", kString, {"n"});
  strings.Strings("cats_strings", {"a", "a"});
  EXPECT_THAT(ListOf<float>(strings.Run({TextTensor({1}, {"a"})})[0]), ElementsAre(0, 1));

  OneNode mapper("CategoryMapper", {"x"});
  mapper.model.Input("x", kString, {"n"});
  mapper.Strings("cats_strings", {"a", "b", "a"});
  mapper.Ints("cats_int64s", {1, 2, 3});
  EXPECT_THAT(ListOf<int64_t>(mapper.Run({TextTensor({2}, {"a", "b"})})[0]), ElementsAre(3, 2));

  // Lists of another type stay refused.
  OneNode floats("OneHotEncoder", {"x"});
  floats.model.Input("x", kInt64, {"n"});
  floats.Floats("cats_floats", {1, 2, 3});
  EXPECT_THAT(floats.Refused(), HasSubstr("no attribute 'cats_floats'"));
}

TEST(EncoderTest, OneHotOfNumbersAndStrings) {
  OneNode numbers("OneHotEncoder", {"x"});
  numbers.model.Input("x", kFloat, {"n", 2});
  numbers.Ints("cats_int64s", {5, -1, 7});
  const auto got = numbers.Run({Tensor::Of<float>({1, 2}, {-1, 3})});
  EXPECT_EQ(got[0].shape(), (Shape{1, 2, 3}));
  EXPECT_THAT(ListOf<float>(got[0]), ElementsAre(0, 1, 0, 0, 0, 0));

  OneNode strings("OneHotEncoder", {"x"});
  strings.model.Input("x", kString, {"n"});
  strings.Strings("cats_strings", {"x", "y"});
  strings.node.Int("zeros", 0);
  EXPECT_THAT(ListOf<float>(strings.Run({TextTensor({2}, {"y", "x"})})[0]),
              ElementsAre(0, 1, 1, 0));
  const auto graph = strings.Import();
  ASSERT_TRUE(graph.ok());
  WeightCache weights;
  SoloTeam team;
  const Tensor unknown = TextTensor({1}, {"z"});
  const auto refused = EvaluateNode(graph->nodes[0], {&unknown, 1}, weights, team, 0);
  EXPECT_THAT(Message(refused.status()), HasSubstr("'z' is not one of the 2 known categories"));
}

TEST(TextGraphTest, StringsAreMovedComparedAndChosen) {
  ModelBuilder m(17);
  m.Input("a", kString, {"n", 2}).Input("b", kString, {"n", 2}).Input("i", kInt64, {"k"});
  m.Node("Concat", {"a", "b"}, {"both"}).Int("axis", 1);
  m.Node("Transpose", {"both"}, {"turned"});
  m.Node("Gather", {"turned", "i"}, {"rows"});
  m.Node("Equal", {"a", "b"}, {"same"});
  m.Node("Where", {"same", "a", "b"}, {"chosen"});
  m.Output("rows").Output("same").Output("chosen");
  const auto imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto got = testing::Evaluate(imported->graph, {TextTensor({2, 2}, {"p", "q", "r", "s"}),
                                                       TextTensor({2, 2}, {"p", "Q", "R", "s"}),
                                                       Tensor::Of<int64_t>({2}, {3, 0})});
  EXPECT_THAT(TextList(got[0]), ElementsAre("Q", "s", "p", "r"));
  EXPECT_THAT(ListOf<bool>(got[1]), ElementsAre(true, false, false, true));
  EXPECT_THAT(TextList(got[2]), ElementsAre("p", "Q", "R", "s"));
}

TEST(TextGraphTest, ConstantsOfStringsAreRead) {
  ModelBuilder m(17);
  m.Input("i", kInt64, {"n"});
  m.Node("Constant", {}, {"names"});
  auto* value = m.model().mutable_graph()->mutable_node(0)->add_attribute();
  value->set_name("value_strings");
  value->set_type(onnx::AttributeProto::STRINGS);
  for (const char* text : {"x", "y", "z"}) value->add_strings(text);
  m.Node("Gather", {"names", "i"}, {"y"});
  m.Output("y");
  const auto imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto got = testing::Evaluate(imported->graph, {Tensor::Of<int64_t>({2}, {2, 0})});
  EXPECT_THAT(TextList(got[0]), ElementsAre("z", "x"));
}

TEST(TextGraphTest, CastsFromAndToStrings) {
  ModelBuilder m(17);
  m.Input("t", kString, {"n"}).Input("f", kFloat, {"n"});
  m.Node("Cast", {"t"}, {"numbers"}).Int("to", kFloat);
  m.Node("Cast", {"f"}, {"texts"}).Int("to", kString);
  m.Output("numbers").Output("texts");
  const auto imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto got = testing::Evaluate(imported->graph, {TextTensor({3}, {" 1.5 ", "-INF", "+2e3"}),
                                                       Tensor::Of<float>({3}, {0.1f, -kInf, 3})});
  EXPECT_THAT(ListOf<float>(got[0]), ElementsAre(1.5f, -kInf, 2000.0f));
  EXPECT_THAT(TextList(got[1]), ElementsAre("0.1", "-INF", "3"));
}

// As skl2onnx writes CountVectorizer and TfidfVectorizer.
TEST(TextGraphTest, TokensOfAVectorizer) {
  const auto tokens = [](const std::string& expression, int64_t least,
                         const std::vector<std::string>& texts) {
    OneNode m("Tokenizer", {"x"}, {"y"}, "com.microsoft");
    m.model.Input("x", kString, {"n"});
    m.node.String("tokenexp", expression).String("pad_value", "#");
    m.node.Int("mincharnum", least).Int("mark", 0);
    const auto imported = m.model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    const auto got = testing::Evaluate(imported->graph, {TextTensor({std::ssize(texts)}, texts)});
    EXPECT_EQ(got[0].shape()[0], std::ssize(texts));
    return TextList(got[0]);
  };
  EXPECT_THAT(tokens("[a-zA-Z0-9_]+", 1, {"Hello, world_1!", "", "a-b c"}),
              ElementsAre("Hello", "world_1", "#", "#", "#", "#", "a", "b", "c"));
  EXPECT_THAT(tokens("\\b\\w\\w+\\b", 1, {"I am here"}), ElementsAre("am", "here"));
  EXPECT_THAT(tokens("[a-z]+", 3, {"ab abc abcd"}), ElementsAre("abc", "abcd"));
  EXPECT_THAT(tokens(".", 1, {"a\xc3\xa9", "b"}), ElementsAre("a", "\xc3\xa9", "b", "#"));
  EXPECT_THAT(tokens("[0-9]+", 1, {"none", "at all"}), ElementsAre());
}

TEST(TextGraphTest, TokensBetweenSeparators) {
  OneNode m("Tokenizer", {"x"}, {"y"}, "com.microsoft");
  m.model.Input("x", kString, {2, 1});
  m.Strings("separators", {" ", "[.]", "\\?", "--+"});
  m.node.String("pad_value", "<pad>").Int("mincharnum", 1).Int("mark", 1);
  const auto imported = m.model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto got =
      testing::Evaluate(imported->graph, {TextTensor({2, 1}, {"Who? me.you --- x-y ", "one"})});
  EXPECT_EQ(got[0].shape(), (Shape{2, 1, 6}));
  EXPECT_THAT(TextList(got[0]), ElementsAre("\x02", "Who", "me", "you", "x-y", "\x03", "\x02",
                                            "one", "\x03", "<pad>", "<pad>", "<pad>"));
}

TEST(TextGraphTest, TokenizersRefuseWhatTheyHaveNot) {
  const auto refused = [](const char* name, const std::string& expression, int64_t least = 1) {
    OneNode m("Tokenizer", {"x"}, {"y"}, "com.microsoft");
    m.model.Input("x", kString, {"n"});
    if (std::string(name) == "separators") m.Strings(name, {expression});
    if (std::string(name) == "tokenexp") m.node.String(name, expression);
    m.node.String("pad_value", "#").Int("mincharnum", least).Int("mark", 0);
    return m.Refused();
  };
  EXPECT_THAT(refused("tokenexp", "(?u)\\b\\w+"), HasSubstr("(?u"));
  EXPECT_THAT(refused("tokenexp", "\\pX+"), HasSubstr("\\pX"));
  EXPECT_THAT(refused("tokenexp", "[a-z"), HasSubstr("missing ]"));
  EXPECT_THAT(refused("tokenexp", "a*"), HasSubstr("matches nothing at all"));
  EXPECT_THAT(refused("separators", "(,|)"), HasSubstr("matches nothing at all"));
  EXPECT_THAT(refused("tokenexp", ".", 2), HasSubstr("'mincharnum' is 2"));
  EXPECT_THAT(refused("tokenexp", "a", 0), HasSubstr("'mincharnum' is 0"));
  EXPECT_THAT(refused("", ""), HasSubstr("'separators' and 'tokenexp'"));

  OneNode m("Tokenizer", {"x"}, {"y"}, "com.microsoft");
  m.model.Input("x", kString, {"n"});
  m.node.String("tokenexp", "a").String("pad_value", "#").Int("mincharnum", 1).Int("mark", 0);
  const auto imported = m.model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  WeightCache weights;
  SoloTeam team;
  const Tensor broken = TextTensor({1}, {"a\xff"});
  const auto ran = EvaluateNode(imported->graph.nodes[0], {&broken, 1}, weights, team, 0);
  EXPECT_THAT(Message(ran.status()), HasSubstr("not UTF-8"));
}

// A pipeline of a vectorizer and a linear model.
TEST(TextGraphTest, TokensAreCounted) {
  ModelBuilder m(17);
  m.Input("text", kString, {"n", 1}).Output("y");
  m.Ints("flat", {-1});
  m.Node("Reshape", {"text", "flat"}, {"flattened"});
  m.Node("StringNormalizer", {"flattened"}, {"lower"}).String("case_change_action", "LOWER");
  m.Node("Tokenizer", {"lower"}, {"tokens"})
      .Domain("com.microsoft")
      .String("tokenexp", "[a-zA-Z0-9_]+")
      .String("pad_value", "#")
      .Int("mincharnum", 1)
      .Int("mark", 0);
  m.Node("Flatten", {"tokens"}, {"rows"});
  auto counts = m.Node("TfIdfVectorizer", {"rows"}, {"y"});
  counts.Int("min_gram_length", 1).Int("max_gram_length", 1).Int("max_skip_count", 0);
  counts.String("mode", "TF").Ints("ngram_counts", {0}).Ints("ngram_indexes", {1, 0});
  auto* pool = counts.Attribute("pool_strings", onnx::AttributeProto::STRINGS);
  for (const char* word : {"good", "bad"}) pool->add_strings(word);
  const auto imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto got =
      testing::Evaluate(imported->graph, {TextTensor({3, 1}, {"Good, GOOD day", "bad", ""})});
  EXPECT_EQ(got[0].shape(), (Shape{3, 2}));
  EXPECT_THAT(ListOf<float>(got[0]), ElementsAre(0, 2, 1, 0, 0, 0));
}

TEST(TextGraphTest, RegexFullMatchComparesWholeStrings) {
  const auto matches = [](const std::string& pattern, const std::vector<std::string>& texts) {
    OneNode m("RegexFullMatch", {"x"}, {"y"}, "", 20);
    m.model.Input("x", kString, {"n"});
    m.node.String("pattern", pattern);
    const auto imported = m.model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    const auto got = testing::Evaluate(imported->graph, {TextTensor({std::ssize(texts)}, texts)});
    return std::vector<bool>(got[0].values<bool>().begin(), got[0].values<bool>().end());
  };
  EXPECT_THAT(matches("(\\W|^)[\\w.\\-]{0,25}@(yahoo|gmail)\\.com(\\W|$)",
                      {"account@gmail.com", "account@hotmail.com", "", "a@yahoo.com "}),
              ElementsAre(true, false, false, true));
  EXPECT_THAT(matches("a|ab", {"ab", "abc", "xab"}), ElementsAre(true, false, false));
  EXPECT_THAT(matches("(?i)yes", {"Yes", "yes!"}), ElementsAre(true, false));
  OneNode refused("RegexFullMatch", {"x"}, {"y"}, "", 20);
  refused.model.Input("x", kString, {"n"});
  refused.node.String("pattern", "(?=yes)");
  EXPECT_THAT(refused.Refused(), HasSubstr("'(?=yes)' is not in RE2's syntax"));
}

// --- Maps ----------------------------------------------------------------------------------------

TEST(ZipMapTest, MapsAtTheOutputsBecomeTheTensorOfScores) {
  OneNode m("ZipMap", {"x"}, {"z"});
  // CatBoost imports no other domain.
  m.model.model().mutable_opset_import()->DeleteSubrange(0, 1);
  m.model.Input("x", kFloat, {"n", 2});
  m.Ints("classlabels_int64s", {0, 1});
  auto* type = m.model.model().mutable_graph()->mutable_output(0)->mutable_type();
  type->mutable_sequence_type()->mutable_elem_type()->mutable_map_type()->set_key_type(kInt64);
  const auto imported = m.model.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes, ElementsAre(HasSubstr("output 'z' is the tensor of scores")));
  EXPECT_EQ(imported->graph.values[imported->graph.outputs[0]].name, "z");
  const auto got = testing::Evaluate(imported->graph, {Tensor::Of<float>({1, 2}, {3, 4})});
  EXPECT_THAT(ListOf<float>(got[0]), ElementsAre(3, 4));
}

void DeclareMap(ModelBuilder& m, const std::string& name, int key, int value) {
  auto* input = m.model().mutable_graph()->add_input();
  input->set_name(name);
  auto* map = input->mutable_type()->mutable_map_type();
  map->set_key_type(key);
  map->mutable_value_type()->mutable_tensor_type()->set_elem_type(value);
}

TEST(DictVectorizerTest, AMapAtTheInputsBecomesItsRowsOfNumbers) {
  for (const bool texts : {true, false}) {
    OneNode m("DictVectorizer", {"x"}, {"z"});
    DeclareMap(m.model, "x", texts ? kString : kInt64, kFloat);
    if (texts) m.Strings("string_vocabulary", {"height", "width"});
    if (!texts) m.Ints("int64_vocabulary", {7, 5});
    const auto imported = m.model.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_THAT(imported->notes,
                ElementsAre(HasSubstr(texts ? "'x' is a tensor [rows,2] instead of a map; its "
                                              "columns: height, width"
                                            : "columns: 7, 5")));
    const auto got = testing::Evaluate(imported->graph, {Tensor::Of<float>({2, 2}, {1, 2, 3, 4})});
    EXPECT_THAT(ListOf<float>(got[0]), ElementsAre(1, 2, 3, 4));
  }
}

TEST(DictVectorizerTest, OtherMapsAreRefused) {
  OneNode numbers("DictVectorizer", {"x"}, {"z"});
  numbers.Strings("string_vocabulary", {"a"});
  numbers.model.Input("x", kFloat, {"n", 1});
  EXPECT_THAT(numbers.Refused(), HasSubstr("only supported as an input of the model"));
  OneNode words("DictVectorizer", {"x"}, {"z"});
  words.Strings("string_vocabulary", {"a"});
  DeclareMap(words.model, "x", kString, kString);
  EXPECT_THAT(words.Refused(), HasSubstr("of type map"));
  OneNode twice("DictVectorizer", {"x"}, {"z"});
  twice.Strings("string_vocabulary", {"a"});
  DeclareMap(twice.model, "x", kString, kFloat);
  twice.model.Node("Identity", {"x"}, {"w"});
  twice.model.Output("w");
  EXPECT_THAT(twice.Refused(), HasSubstr("of type map"));
}

TEST(ZipMapTest, MapsThatNodesReadAreRefused) {
  OneNode m("ZipMap", {"x"}, {"z"});
  m.model.Input("x", kFloat, {"n", 2});
  m.Ints("classlabels_int64s", {0, 1});
  m.model.Node("Identity", {"z"}, {"w"});
  m.model.Output("w");
  EXPECT_THAT(m.Refused(), HasSubstr("only supported as outputs of the model"));
}

}  // namespace tabular_test
}  // namespace chairlift
