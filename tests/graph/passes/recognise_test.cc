// recognise_gelu, recognise_gates, recognise_layer_norm, fuse_skip_layer_norm.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace recognise_test {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

SymbolicShape Rows() { return SymbolicShape({Dim::Symbol("n"), 8}); }

ValueId Scalar(GraphBuilder& b, float v) { return b.Constant(Tensor::Scalar(v)); }

// The graph after removing what nothing reads any more.
PassResult Recognise(const char* pass, const Graph& graph) {
  PassResult r = RunPass(pass, graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  return r;
}

void ExpectSameResults(const Graph& before, const Graph& after) {
  std::mt19937 random(6);
  const std::vector<Tensor> inputs = {RandomFloats(random, Shape{5, 8}, 2)};
  ExpectClose(Evaluate(before, inputs), Evaluate(after, inputs));
}

enum class Order { kXThenHalf, kHalfThenX, kHalfOfX };

Graph GeluGraph(Order order, bool tanh, float half = 0.5f) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Rows());
  ValueId inside;
  if (tanh) {
    const ValueId cube = b.Op("Pow", {x, Scalar(b, 3)});
    const ValueId sum = b.Op("Add", {x, b.Op("Mul", {Scalar(b, 0.044715f), cube})});
    inside = b.Op("Tanh", {b.Op("Mul", {sum, Scalar(b, std::sqrt(2 / M_PI))})});
  } else {
    inside = b.Op("Erf", {b.Op("Div", {x, Scalar(b, std::sqrt(2.0f))})});
  }
  ValueId v = b.Op("Add", {inside, Scalar(b, 1)});
  if (order == Order::kXThenHalf) {
    v = b.Op("Mul", {b.Op("Mul", {x, v}), Scalar(b, half)});
  } else if (order == Order::kHalfThenX) {
    v = b.Op("Mul", {b.Op("Mul", {v, Scalar(b, half)}), x});
  } else {
    v = b.Op("Mul", {b.Op("Mul", {x, Scalar(b, half)}), v});
  }
  b.Output(v);
  return std::move(b).Build();
}

TEST(RecogniseGeluTest, WhateverTheOrderOfItsFactors) {
  for (Order order : {Order::kXThenHalf, Order::kHalfThenX, Order::kHalfOfX}) {
    for (bool tanh : {false, true}) {
      const Graph graph = GeluGraph(order, tanh);
      const PassResult r = Recognise("recognise_gelu", graph);
      ASSERT_EQ(r.Operators(), "Gelu");
      EXPECT_EQ(r.graph.nodes[0].attributes.String("approximate", "none"), tanh ? "tanh" : "none");
      ExpectSameResults(graph, r.graph);
    }
  }
}

TEST(RecogniseGeluTest, AnotherFactorStaysAndIsNoted) {
  const PassResult r = Recognise("recognise_gelu", GeluGraph(Order::kXThenHalf, false, 0.25f));
  EXPECT_EQ(r.rewrites, 0);
  EXPECT_EQ(r.notes.size(), 1u);
}

Graph GateGraph(const std::string& kind) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Rows());
  const auto relu6 = [&] {
    return b.Op("Clip", {b.Op("Add", {x, Scalar(b, 3)}), Scalar(b, 0), Scalar(b, 6)});
  };
  if (kind == "silu") b.Output(b.Op("Mul", {b.Op("Sigmoid", {x}), x}));
  if (kind == "hardsigmoid") {
    b.Output(b.Op("Mul", {x, b.Op("HardSigmoid", {x}, Attrs({{"alpha", 1.0f / 6}}))}));
  }
  if (kind == "other hardsigmoid") b.Output(b.Op("Mul", {x, b.Op("HardSigmoid", {x})}));
  if (kind == "gate by six") {
    b.Output(b.Op("Mul", {x, b.Op("Div", {relu6(), Scalar(b, 6)})}));
  }
  if (kind == "product by six") {
    b.Output(b.Op("Div", {b.Op("Mul", {x, relu6()}), Scalar(b, 6)}));
  }
  if (kind == "mish") b.Output(b.Op("Mul", {x, b.Op("Tanh", {b.Op("Softplus", {x})})}));
  if (kind == "other operand") {
    b.Output(b.Op("Mul", {b.Op("Neg", {x}), b.Op("Sigmoid", {x})}));
  }
  return std::move(b).Build();
}

TEST(RecogniseGatesTest, EachGateHasItsOperator) {
  const std::pair<const char*, const char*> cases[] = {{"silu", "Silu"},
                                                       {"hardsigmoid", "HardSwish"},
                                                       {"gate by six", "HardSwish"},
                                                       {"product by six", "HardSwish"},
                                                       {"mish", "Mish"}};
  for (const auto& [kind, op] : cases) {
    const Graph graph = GateGraph(kind);
    const PassResult r = Recognise("recognise_gates", graph);
    EXPECT_EQ(r.Operators(), op) << kind;
    ExpectSameResults(graph, r.graph);
  }
}

TEST(RecogniseGatesTest, WhatOnlyLooksAlikeStays) {
  for (const char* kind : {"other hardsigmoid", "other operand"}) {
    EXPECT_EQ(Recognise("recognise_gates", GateGraph(kind)).rewrites, 0) << kind;
  }
}

Tensor Integers(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())},
                             std::span<const int64_t>(values));
}

Graph ShuffleGraph(const std::vector<int64_t>& split, const std::vector<int64_t>& order,
                   const std::vector<int64_t>& joined) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{2, 6, 3, 5}));
  const ValueId parts = b.Op("Reshape", {x, b.Constant(Integers(split))});
  const ValueId moved = b.Op("Transpose", {parts}, Attrs({{"perm", order}}));
  b.Output(b.Op("Reshape", {moved, b.Constant(Integers(joined))}));
  return std::move(b).Build();
}

TEST(RecogniseChannelShuffleTest, ThatAndNothingElse) {
  const Graph graph = ShuffleGraph({2, 3, 2, 3, 5}, {0, 2, 1, 3, 4}, {2, 6, 3, 5});
  const PassResult r = Recognise("recognise_channel_shuffle", graph);
  EXPECT_EQ(r.Operators(), "ChannelShuffle");
  EXPECT_EQ(r.graph.nodes[0].attributes.Int("groups", 0), 3);
  std::mt19937 random(3);
  const std::vector<Tensor> inputs = {RandomFloats(random, Shape{2, 6, 3, 5})};
  ExpectClose(Evaluate(r.graph, inputs), Evaluate(graph, inputs));
  for (const Graph& other : {
           ShuffleGraph({2, 3, 2, 3, 5}, {0, 1, 2, 3, 4}, {2, 6, 3, 5}),  // nothing moves
           ShuffleGraph({2, 3, 2, 3, 5}, {0, 2, 1, 4, 3}, {2, 6, 3, 5}),  // more does
           ShuffleGraph({2, 3, 2, 3, 5}, {0, 2, 1, 3, 4}, {2, 6, 5, 3}),  // another shape
           ShuffleGraph({2, 2, 3, 5, 3}, {0, 2, 1, 3, 4}, {2, 6, 3, 5}),  // and in between
           ShuffleGraph({3, 2, 2, 3, 5}, {0, 2, 1, 3, 4}, {2, 6, 3, 5}),  // across images
       }) {
    EXPECT_EQ(Recognise("recognise_channel_shuffle", other).rewrites, 0);
  }
}

struct NormOptions {
  bool square_by_mul = false;
  bool difference_twice = false;
  bool shift = true;
  int64_t axis = -1;
};

Graph NormGraph(const NormOptions& options) {
  GraphBuilder b;
  std::mt19937 random(7);
  const ValueId x = b.Input("x", DType::kFloat, Rows());
  const auto mean_of = [&](ValueId v) {
    return b.Op("ReduceMean", {v, b.Constant(Tensor::Of<int64_t>(Shape{1}, {options.axis}))});
  };
  const ValueId mean = mean_of(x);
  const ValueId centred = b.Op("Sub", {x, mean});
  const ValueId square = options.square_by_mul ? b.Op("Mul", {centred, centred})
                                               : b.Op("Pow", {centred, Scalar(b, 2)});
  const ValueId deviation = b.Op("Sqrt", {b.Op("Add", {mean_of(square), Scalar(b, 1e-3f)})});
  const ValueId again = options.difference_twice ? b.Op("Sub", {x, mean}) : centred;
  ValueId v = b.Op("Div", {again, deviation});
  v = b.Op("Mul", {v, b.Constant(RandomFloats(random, Shape{8}))});
  if (options.shift) v = b.Op("Add", {b.Constant(RandomFloats(random, Shape{8})), v});
  b.Output(v);
  return std::move(b).Build();
}

TEST(RecogniseLayerNormTest, InTheFormsThatExportersWrite) {
  if (OperatorRegistry::Builtin().Find("", "LayerNormalization") == nullptr) GTEST_SKIP();
  for (const NormOptions& options :
       {NormOptions{}, NormOptions{.square_by_mul = true}, NormOptions{.difference_twice = true},
        NormOptions{.shift = false}, NormOptions{.axis = 1}}) {
    const Graph graph = NormGraph(options);
    const PassResult r = Recognise("recognise_layer_norm", graph);
    EXPECT_EQ(r.Operators(), "LayerNormalization");
    ExpectSameResults(graph, r.graph);
  }
}

TEST(RecogniseLayerNormTest, AnotherAxisStays) {
  EXPECT_EQ(Recognise("recognise_layer_norm", NormGraph({.axis = 0})).rewrites, 0);
}

TEST(RecogniseLayerNormTest, WhatOnlyLooksAlikeIsNotedWithItsReason) {
  const auto note = [](bool centred, bool scaled) {
    GraphBuilder b;
    const ValueId x = b.Input("x", DType::kFloat, Rows());
    const ValueId last = b.Constant(Tensor::Of<int64_t>(Shape{1}, {-1}));
    const ValueId off = centred ? b.Op("Sub", {x, b.Op("ReduceMean", {x, last})}) : x;
    const ValueId variance = b.Op("ReduceMean", {b.Op("Mul", {off, off}), last});
    const ValueId deviation = b.Op("Sqrt", {b.Op("Add", {variance, Scalar(b, 1e-3f)})});
    const ValueId quotient = b.Op("Div", {scaled ? x : off, deviation});
    b.Output(scaled ? b.Op("Mul", {quotient, Scalar(b, 2)}) : quotient);
    const PassResult r = Recognise("recognise_layer_norm", std::move(b).Build());
    EXPECT_EQ(r.rewrites, 0);
    EXPECT_EQ(r.notes.size(), 1u);
    return r.notes.empty() ? std::string() : r.notes[0];
  };
  EXPECT_NE(
      note(false, true).find("(Sqrt): looks like a layer normalisation, but no mean is taken"),
      std::string::npos);
  EXPECT_NE(note(true, true).find("is not x - mean"), std::string::npos);
  EXPECT_NE(note(true, false).find("not scaled by one value a column"), std::string::npos);
}

Graph SkipGraph(bool sum_is_read, bool broadcasts) {
  GraphBuilder b;
  std::mt19937 random(8);
  const ValueId x = b.Input("x", DType::kFloat, Rows());
  const ValueId other = broadcasts ? b.Constant(RandomFloats(random, Shape{8})) : b.Op("Neg", {x});
  const ValueId twice = b.Op("Add", {x, x});
  const ValueId sum = b.Op("Add", {twice, other});
  if (sum_is_read) b.Output(b.Op("Exp", {sum}));
  b.Output(b.Op(
      "LayerNormalization",
      {sum, b.Constant(RandomFloats(random, Shape{8})), b.Constant(RandomFloats(random, Shape{8}))},
      Attrs({{"epsilon", 1e-3f}})));
  return std::move(b).Build();
}

TEST(FuseSkipLayerNormTest, TheSumIsTakenInAndGivenOutWhereRead) {
  if (OperatorRegistry::Builtin().Find("chairlift", "SkipLayerNorm") == nullptr) GTEST_SKIP();
  for (bool sum_is_read : {false, true}) {
    const Graph graph = SkipGraph(sum_is_read, false);
    const PassResult r = RunPass("fuse_skip_layer_norm", graph);
    EXPECT_EQ(r.Operators(), sum_is_read ? "Neg Add SkipLayerNorm Exp" : "Neg Add SkipLayerNorm");
    ExpectSameResults(graph, r.graph);
  }
}

TEST(FuseSkipLayerNormTest, ABroadcastSumStays) {
  if (OperatorRegistry::Builtin().Find("", "LayerNormalization") == nullptr) GTEST_SKIP();
  const PassResult r = RunPass("fuse_skip_layer_norm", SkipGraph(false, true));
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_NE(r.notes[0].find("the sum before it broadcasts, [n,8] + [8]"), std::string::npos);
}

TEST(FuseSkipLayerNormTest, WhatRowKernelsCannotNormaliseIsNoted) {
  const auto note = [](const std::string& kind) {
    GraphBuilder b;
    std::mt19937 random(8);
    const DType type = kind == "double" ? DType::kDouble : DType::kFloat;
    const ValueId x = b.Input("x", type, SymbolicShape({Dim::Symbol("n"), 4, 8}));
    const ValueId scale = kind == "double"   ? b.Op("Cast", {b.Constant(RandomFloats(random, {8}))},
                                                    Attrs({{"to", int64_t{11}}}))
                          : kind == "shared" ? b.Op("Neg", {b.Constant(RandomFloats(random, {8}))})
                                             : b.Constant(RandomFloats(random, {8}));
    const OperatorDef* def = OperatorRegistry::Builtin().Find("", "LayerNormalization");
    const int64_t axis = kind == "axis" ? 1 : -1;
    b.Output(b.Call(*def, {b.Op("Add", {x, x}), scale}, kind == "mean" ? 2 : 1,
                    Attrs({{"axis", axis}}))[0]);
    const PassResult r = RunPass("fuse_skip_layer_norm", std::move(b).Build());
    EXPECT_EQ(r.rewrites, 0) << kind;
    EXPECT_EQ(r.notes.size(), 1u) << kind;
    return r.notes.empty() ? std::string() : r.notes[0];
  };
  EXPECT_NE(note("double").find("it normalises float64, not float32"), std::string::npos);
  EXPECT_NE(note("axis").find("from axis 1 on"), std::string::npos);
  EXPECT_NE(note("mean").find("its mean and deviation are asked for"), std::string::npos);
  EXPECT_NE(note("shared").find("are not constants"), std::string::npos);
}

}  // namespace recognise_test
}  // namespace chairlift
