// Runs one pass on a graph built by hand and compares what the graph computes before and after.
#ifndef CHAIRLIFT_TESTS_GRAPH_PASSES_PASS_HARNESS_H_
#define CHAIRLIFT_TESTS_GRAPH_PASSES_PASS_HARNESS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "graph/evaluate.h"
#include "graph/graph_builder.h"
#include "graph/passes/pass.h"

namespace chairlift::testing {

inline std::vector<Tensor> Evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  WeightCache weights;
  SoloTeam team;
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) values[i] = graph.values[i].constant;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<Tensor> arguments;
    for (ValueId id : node.inputs) arguments.push_back(id == kNoValue ? Tensor() : values[id]);
    auto results = EvaluateNode(node, arguments, weights, team, 0);
    EXPECT_TRUE(results.ok()) << results.status();
    if (!results.ok()) return {};
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNoValue) values[node.outputs[i]] = (*results)[i];
    }
  }
  std::vector<Tensor> outputs;
  for (ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

struct PassResult {
  Graph graph;
  int rewrites = 0;
  std::vector<std::string> notes;

  // "Conv Relu": the operators, in order.
  std::string Operators() const {
    std::string out;
    for (const Node& node : graph.nodes) out += (out.empty() ? "" : " ") + node.def->name;
    return out;
  }
};

inline PassResult RunPass(const std::string& name, Graph graph) {
  PassResult result;
  result.graph = std::move(graph);
  for (const Pass& pass : AllPasses()) {
    if (pass.name != name) continue;
    Status status = InferShapes(result.graph);
    EXPECT_TRUE(status.ok()) << status;
    auto rewrites = pass.run(result.graph, result.notes);
    EXPECT_TRUE(rewrites.ok()) << rewrites.status();
    if (rewrites.ok()) result.rewrites = *rewrites;
    status = Verify(result.graph);
    EXPECT_TRUE(status.ok()) << status;
    status = InferShapes(result.graph);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  }
  ADD_FAILURE() << "no pass " << name;
  return result;
}

inline Tensor RandomFloats(std::mt19937& random, const Shape& shape, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

// Float outputs are equal but for rounding.
inline void ExpectClose(const std::vector<Tensor>& a, const std::vector<Tensor>& b,
                        float tolerance = 1e-4f) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape(), b[i].shape()) << "output " << i;
    ASSERT_EQ(a[i].dtype(), DType::kFloat) << "output " << i;
    for (int64_t k = 0; k < a[i].size(); ++k) {
      const float x = a[i].data<float>()[k];
      const float y = b[i].data<float>()[k];
      ASSERT_NEAR(x, y, tolerance * (1 + std::abs(x))) << "output " << i << ", element " << k;
    }
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_PASSES_PASS_HARNESS_H_
