#include <gtest/gtest.h>

#include <algorithm>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace fuse_lstm_gates_test {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

constexpr int64_t kUnits = 5;

struct CellOptions {
  std::string order = "ifgo";
  bool swap = false;  // operands of commutative operators the other way round
  const char* candidate = "Tanh";
  const char* output_gate = "Sigmoid";
  Shape c = Shape{3, kUnits};
  int64_t axis = 1;
  bool split_input = false;
  bool shares_forget = false;  // the input gate is used for both
  bool reads_inside = false;   // something else reads σ(f)
};

// gates [3, 4·units], c → h, c' (and σ(f)).
Graph Cell(const CellOptions& options) {
  GraphBuilder b;
  const ValueId gates =
      b.Input("gates", DType::kFloat, SymbolicShape({Dim::Symbol("rows"), Dim(4 * kUnits)}));
  const ValueId c = b.Input("c", DType::kFloat, SymbolicShape(options.c));
  std::vector<ValueId> split_inputs = {gates};
  Attributes split = Attrs({{"axis", options.axis}});
  if (options.split_input) {
    split_inputs.push_back(
        b.Constant(Tensor::Of<int64_t>(Shape{4}, {kUnits, kUnits, kUnits, kUnits})));
  } else {
    split.Set("num_outputs", int64_t{4});
  }
  const std::vector<ValueId> parts =
      b.Call(*OperatorRegistry::Builtin().Find("", "Split"), split_inputs, 4, split);
  const auto gate = [&](char name) { return parts[options.order.find(name)]; };
  const auto both = [&](const char* op, ValueId x, ValueId y) {
    return options.swap ? b.Op(op, {y, x}) : b.Op(op, {x, y});
  };
  const ValueId forget = b.Op("Sigmoid", {gate(options.shares_forget ? 'i' : 'f')});
  const ValueId kept = both("Mul", forget, c);
  const ValueId added =
      both("Mul", b.Op("Sigmoid", {gate('i')}), b.Op(options.candidate, {gate('g')}));
  const ValueId c_next = both("Add", kept, added);
  const ValueId h = both("Mul", b.Op(options.output_gate, {gate('o')}), b.Op("Tanh", {c_next}));
  b.Output(h);
  b.Output(c_next);
  if (options.reads_inside) b.Output(forget);
  return std::move(b).Build();
}

std::vector<Tensor> Inputs(const CellOptions& options) {
  std::mt19937 random(61);
  return {RandomFloats(random, Shape{3, 4 * kUnits}, 2), RandomFloats(random, options.c)};
}

// The rewrite must leave what the graph computes.
PassResult Fuse(const CellOptions& options) {
  const auto before = Evaluate(Cell(options), Inputs(options));
  PassResult result = RunPass("fuse_lstm_gates", Cell(options));
  ExpectClose(before, Evaluate(result.graph, Inputs(options)), 1e-6f);
  return result;
}

std::string OrderOf(const PassResult& result) {
  for (const Node& node : result.graph.nodes) {
    if (node.def->name == "LstmGates") return node.attributes.String("order", "");
  }
  return "none";
}

TEST(FuseLstmGatesTest, EveryOrderOfGates) {
  std::string order = "fgio";
  do {
    for (bool swap : {false, true}) {
      const PassResult result = Fuse({.order = order, .swap = swap});
      EXPECT_EQ(result.rewrites, 1);
      EXPECT_EQ(OrderOf(result), order);
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(FuseLstmGatesTest, SplitByLengthsAndFromTheEnd) {
  EXPECT_EQ(Fuse({.split_input = true}).rewrites, 1);
  EXPECT_EQ(Fuse({.axis = -1}).rewrites, 1);
}

TEST(FuseLstmGatesTest, AStateOfOneRowForAll) {
  EXPECT_EQ(Fuse({.c = Shape{1, kUnits}}).rewrites, 1);
}

TEST(FuseLstmGatesTest, InnerValuesThatOthersReadStay) {
  const PassResult result = Fuse({.reads_inside = true});
  EXPECT_EQ(result.rewrites, 1);
  EXPECT_NE(result.Operators().find("Sigmoid"), std::string::npos);
}

TEST(FuseLstmGatesTest, TheCellIsOneNodeOnceDeadNodesAreGone) {
  PassResult result = RunPass("fuse_lstm_gates", Cell({}));
  result = RunPass("remove_dead_nodes", std::move(result.graph));
  EXPECT_EQ(result.Operators(), "LstmGates");
}

TEST(FuseLstmGatesTest, TwoCellsInARow) {
  GraphBuilder b;
  const ValueId gates =
      b.Input("gates", DType::kFloat, SymbolicShape({Dim::Symbol("rows"), Dim(4 * kUnits)}));
  ValueId c = b.Input("c", DType::kFloat, SymbolicShape(Shape{3, kUnits}));
  for (int cell = 0; cell < 2; ++cell) {
    const auto parts = b.Call(*OperatorRegistry::Builtin().Find("", "Split"), {gates}, 4,
                              Attrs({{"axis", int64_t{1}}, {"num_outputs", int64_t{4}}}));
    const ValueId kept = b.Op("Mul", {b.Op("Sigmoid", {parts[1]}), c});
    c = b.Op("Add", {kept, b.Op("Mul", {b.Op("Sigmoid", {parts[0]}), b.Op("Tanh", {parts[2]})})});
    b.Output(b.Op("Mul", {b.Op("Sigmoid", {parts[3]}), b.Op("Tanh", {c})}));
  }
  Graph graph = std::move(b).Build();
  const auto before = Evaluate(graph, Inputs({}));
  const PassResult result = RunPass("fuse_lstm_gates", std::move(graph));
  EXPECT_EQ(result.rewrites, 2);
  ExpectClose(before, Evaluate(result.graph, Inputs({})), 1e-6f);
}

TEST(FuseLstmGatesTest, WhatOnlyLooksLikeACellIsLeft) {
  EXPECT_EQ(Fuse({.candidate = "Relu"}).rewrites, 0);
  EXPECT_EQ(Fuse({.output_gate = "Tanh"}).rewrites, 0);
  EXPECT_EQ(Fuse({.shares_forget = true}).rewrites, 0);
  EXPECT_EQ(Fuse({.c = Shape{3, 1}}).rewrites, 0);
  EXPECT_EQ(Fuse({.c = Shape{kUnits}}).rewrites, 0);
}

}  // namespace fuse_lstm_gates_test
}  // namespace chairlift
