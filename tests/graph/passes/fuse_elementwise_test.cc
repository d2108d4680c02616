// fuse_elementwise.
#include <gtest/gtest.h>

#include "graph/passes/pass_harness.h"
#include "ops/elementwise/fused_elementwise.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::Evaluate;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

// Inputs x and y of the same shape, [n, 4, 6], and one result, computed alike before and after.
struct Model : GraphBuilder {
  std::mt19937 random{12};
  SymbolicShape full{{Dim::Symbol("n"), 4, 6}};
  ValueId x = Input("x", DType::kFloat, full);
  ValueId y = Input("y", DType::kFloat, full);
  ValueId Scalar(float value) { return Constant(Tensor::Scalar(value)); }
  ValueId Weights(const Shape& shape) { return Constant(RandomFloats(random, shape)); }

  PassResult Run() && {
    const Graph graph = std::move(*this).Build();
    PassResult r = RunPass("fuse_elementwise", graph);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      inputs.push_back(RandomFloats(random, Shape{3, 4, 6}));
    }
    const auto before = Evaluate(graph, inputs), after = Evaluate(r.graph, inputs);
    EXPECT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].shape(), after[i].shape());
      for (int64_t k = 0; k < before[i].size(); ++k) {
        const float a = before[i].data<float>()[k], b = after[i].data<float>()[k];
        EXPECT_NEAR(a, b, 1e-6 * (1 + std::abs(a))) << "output " << i << ", element " << k;
      }
    }
    return r;
  }
};

TEST(FuseElementwiseTest, AChainBecomesOneNode) {
  Model m;
  ValueId v = m.Op("Mul", {m.x, m.Scalar(0.5f)});
  v = m.Op("Add", {m.Weights(Shape{4, 1}), v});
  v = m.Op("Clip", {v, m.Scalar(-1.0f), m.Scalar(2.0f)});
  v = m.Op("LeakyRelu", {v}, Attrs({{"alpha", 0.2f}}));
  v = m.Op("Pow", {v, m.Scalar(2.0f)});
  m.Output(m.Op("Sub", {v, m.y}));
  const PassResult r = std::move(m).Run();
  EXPECT_EQ(r.rewrites, 1);
  ASSERT_EQ(r.Operators(), "FusedElementwise");
  // Those that the result may be written over come first.
  const Node& node = r.graph.nodes[0];
  EXPECT_EQ(std::vector<ValueId>(node.inputs.begin(), node.inputs.begin() + 2), r.graph.inputs);
}

TEST(FuseElementwiseTest, AResultReadTwiceInsideIsInside) {
  Model m;
  const ValueId v = m.Op("Add", {m.x, m.y});
  const ValueId gate = m.Op("HardSigmoid", {v}, Attrs({{"alpha", 0.3f}, {"beta", 0.4f}}));
  m.Output(m.Op("Mul", {v, m.Op("Exp", {gate})}));
  EXPECT_EQ(std::move(m).Run().Operators(), "FusedElementwise");
}

TEST(FuseElementwiseTest, AResultReadElsewhereIsComputedForBoth) {
  {
    Model m;
    const ValueId v = m.Op("Tanh", {m.Op("Neg", {m.x})});
    m.Output(m.Op("Mul", {v, m.y}));
    m.Output(v);
    EXPECT_EQ(std::move(m).Run().Operators(), "FusedElementwise Mul");
  }
  {
    Model m;
    const ValueId v = m.Op("Tanh", {m.x});
    m.Output(m.Op("Abs", {m.Op("Mul", {v, m.y})}));
    m.Output(m.Op("ReduceSum", {v}));
    EXPECT_EQ(std::move(m).Run().Operators(), "Tanh FusedElementwise ReduceSum");
  }
}

TEST(FuseElementwiseTest, WhatIsSmallerIsComputedOnce) {
  Model m;
  const ValueId row = m.Op("ReduceMax", {m.x, m.Constant(Tensor::Of<int64_t>(Shape{1}, {2}))});
  const ValueId scale = m.Op("Exp", {m.Op("Neg", {row})});  // [n, 4, 1]
  m.Output(m.Op("Relu", {m.Op("Mul", {m.x, scale})}));
  EXPECT_EQ(std::move(m).Run().Operators(), "ReduceMax FusedElementwise FusedElementwise");
}

TEST(FuseElementwiseTest, WhatHasNoPlaceStays) {
  Model m;
  const ValueId eight = m.Op("Cast", {m.x}, Attrs({{"to", int64_t{11}}}));  // float64
  const ValueId sum = m.Op("Add", {m.Op("Neg", {eight}), eight});
  m.Output(m.Op("Cast", {sum}, Attrs({{"to", int64_t{1}}})));
  m.Output(m.Op("Pow", {m.Op("Softmax", {m.x}), m.Scalar(3.0f)}));
  m.Output(m.Op("Relu", {m.y}));
  EXPECT_EQ(std::move(m).Run().rewrites, 0);
}

TEST(FuseElementwiseTest, AConditionChoosesInside) {
  Model m;
  const ValueId less = m.Op("Less", {m.x, m.y});
  const ValueId v = m.Op("Where", {less, m.Op("Mul", {m.x, m.y}), m.Scalar(-3.0f)});
  m.Output(m.Op("Tanh", {v}));
  EXPECT_EQ(std::move(m).Run().Operators(), "Less FusedElementwise");
}

TEST(FuseElementwiseTest, LongChainsAndManyInputsAreCut) {
  Model m;
  ValueId v = m.x;
  for (int i = 0; i < FusedProgram::kMaxSteps + 10; ++i) v = m.Op("Sin", {v});
  for (int i = 0; i < FusedProgram::kMaxInputs + 3; ++i) {
    v = m.Op("Add", {v, m.Weights(Shape{6})});
  }
  m.Output(v);
  const PassResult r = std::move(m).Run();
  EXPECT_EQ(r.Operators(), "FusedElementwise FusedElementwise FusedElementwise");
}

TEST(FuseElementwiseTest, EveryOperatorKeepsItsParameters) {
  const std::pair<const char*, Attributes> cases[] = {
      {"Abs", {}},
      {"Exp", {}},
      {"Sin", {}},
      {"Cos", {}},
      {"Tanh", {}},
      {"Erf", {}},
      {"Floor", {}},
      {"Ceil", {}},
      {"Round", {}},
      {"Sigmoid", {}},
      {"HardSigmoid", {}},
      {"HardSwish", {}},
      {"LeakyRelu", {}},
      {"ThresholdedRelu", Attrs({{"alpha", 0.3f}})},
      {"Elu", Attrs({{"alpha", 0.3f}})},
      {"Selu", {}},
      {"Selu", Attrs({{"alpha", 0.3f}, {"gamma", 0.4f}})},
      {"Celu", Attrs({{"alpha", 0.3f}})},
      {"Softplus", {}},
      {"Softsign", {}},
      {"Mish", {}},
      {"Gelu", {}},
      {"Gelu", Attrs({{"approximate", std::string("tanh")}})}};
  for (const auto& [name, attributes] : cases) {
    SCOPED_TRACE(name);
    Model m;
    m.Output(m.Op("Neg", {m.Op(name, {m.Op("Max", {m.x, m.y})}, attributes)}));
    EXPECT_EQ(std::move(m).Run().Operators(), "FusedElementwise");
  }
  for (const char* name : {"Sqrt", "Log", "Reciprocal"}) {
    SCOPED_TRACE(name);
    Model m;
    m.Output(m.Op(name, {m.Op("Exp", {m.Op("Min", {m.x, m.y})})}));
    EXPECT_EQ(std::move(m).Run().Operators(), "FusedElementwise");
  }
}

}  // namespace
}  // namespace chairlift
