// recognise_blockwise: what it takes gives the same answers, what it leaves stays.
#include <gtest/gtest.h>

#include <random>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace recognise_blockwise_test {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

struct Weights {
  DType dtype = DType::kInt8;
  int low = -8, high = 7;
  int64_t k = 64, n = 6, block = 16;
  bool zeros = false;
  int64_t axis = 0;
};

Tensor Integers(const Weights& w, const Shape& shape, std::mt19937& random) {
  std::uniform_int_distribution<int> uniform(w.low, w.high);
  Tensor t = Tensor::Allocate(w.dtype, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    // Both ends are there.
    const int value = i == 0 ? w.low : i == 1 ? w.high : uniform(random);
    static_cast<int8_t*>(t.raw())[i] = static_cast<int8_t>(value);
  }
  return t;
}

Graph Build(const Weights& w, bool of_both = false) {
  std::mt19937 random(3);
  GraphBuilder b;
  const ValueId x =
      b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("a"), Dim::Symbol("b"), Dim(w.k)}));
  const int64_t blocks = (w.k + w.block - 1) / w.block;
  std::vector<ValueId> inputs = {b.Constant(Integers(w, Shape{w.k, w.n}, random)),
                                 b.Constant(RandomFloats(random, Shape{blocks, w.n}))};
  if (w.zeros) inputs.push_back(b.Constant(Integers(w, Shape{blocks, w.n}, random)));
  const ValueId weights =
      b.Op("DequantizeLinear", inputs, Attrs({{"axis", w.axis}, {"block_size", w.block}}));
  b.Output(b.Op("MatMul", {x, weights}));
  if (of_both) b.Output(b.Op("Relu", {weights}));
  return std::move(b).Build();
}

void ExpectPacked(const Weights& w, int64_t bits, bool zeros) {
  const Graph graph = Build(w);
  PassResult r = RunPass("recognise_blockwise", graph);
  EXPECT_EQ(r.rewrites, 1);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  ASSERT_EQ(r.Operators(), "MatMulNBits");
  const Node& node = r.graph.nodes[0];
  EXPECT_EQ(node.attributes.Int("bits", 0), bits);
  EXPECT_EQ(node.inputs[5] != kNoValue, zeros);
  std::mt19937 random(6);
  const std::vector<Tensor> inputs = {RandomFloats(random, Shape{2, 3, w.k})};
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs));
}

TEST(RecogniseBlockwiseTest, InAsManyBitsAsTheCodesNeed) {
  for (const bool zeros : {false, true}) {
    for (const int64_t k : {64, 80, 75}) {
      SCOPED_TRACE(::testing::Message() << "zeros " << zeros << " k " << k);
      ExpectPacked({.k = k, .zeros = zeros}, 4, zeros);
      ExpectPacked({.low = 0, .high = 15, .k = k, .zeros = zeros}, 4, true);
      ExpectPacked({.dtype = DType::kUInt8, .low = 0, .high = 15, .k = k, .zeros = zeros}, 4, true);
      ExpectPacked({.low = -9, .high = 7, .k = k, .zeros = zeros}, 8, zeros);
      ExpectPacked({.low = -128, .high = 127, .k = k, .zeros = zeros}, 8, zeros);
      ExpectPacked({.dtype = DType::kUInt8, .low = 0, .high = 255, .k = k, .zeros = zeros}, 8,
                   true);
    }
  }
  ExpectPacked({.axis = -2}, 4, false);
}

TEST(RecogniseBlockwiseTest, OthersMayReadTheWeights) {
  const Graph graph = Build({}, true);
  PassResult r = RunPass("recognise_blockwise", graph);
  EXPECT_EQ(r.Operators(), "DequantizeLinear MatMulNBits Relu");
  std::mt19937 random(6);
  const std::vector<Tensor> inputs = {RandomFloats(random, Shape{2, 3, 64})};
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs));
}

TEST(RecogniseBlockwiseTest, OtherBlocksStay) {
  for (const Weights& w :
       {Weights{.block = 8}, Weights{.k = 48, .block = 24}, Weights{.n = 64, .axis = 1}}) {
    std::mt19937 random(3);
    GraphBuilder b;
    const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("a"), Dim(w.k)}));
    const int64_t blocks = w.axis == 0 ? w.k / w.block : w.k;
    const int64_t columns = w.axis == 0 ? w.n : w.n / w.block;
    const ValueId weights = b.Op("DequantizeLinear",
                                 {b.Constant(Integers(w, Shape{w.k, w.n}, random)),
                                  b.Constant(RandomFloats(random, Shape{blocks, columns}))},
                                 Attrs({{"axis", w.axis}, {"block_size", w.block}}));
    b.Output(b.Op("MatMul", {x, weights}));
    const PassResult r = RunPass("recognise_blockwise", std::move(b).Build());
    EXPECT_EQ(r.Operators(), "DequantizeLinear MatMul");
    EXPECT_EQ(r.rewrites, 0);
  }
}

TEST(RecogniseBlockwiseTest, ScalesThatARequestBringsStay) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("a"), Dim(16)}));
  const ValueId scales = b.Input("s", DType::kFloat, SymbolicShape({Dim(1), Dim(2)}));
  std::mt19937 random(3);
  const ValueId weights =
      b.Op("DequantizeLinear", {b.Constant(Integers({}, Shape{16, 2}, random)), scales},
           Attrs({{"axis", int64_t{0}}, {"block_size", int64_t{16}}}));
  b.Output(b.Op("MatMul", {x, weights}));
  EXPECT_EQ(RunPass("recognise_blockwise", std::move(b).Build()).rewrites, 0);
}

}  // namespace recognise_blockwise_test
}  // namespace chairlift
