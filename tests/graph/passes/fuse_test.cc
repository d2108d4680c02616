// fuse_batch_norm, fuse_conv, fuse_matmul.
#include <gtest/gtest.h>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace fuse_test {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

void ExpectSameResults(const Graph& before, const Graph& after, const Shape& shape) {
  std::mt19937 random(9);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < before.inputs.size(); ++i) inputs.push_back(RandomFloats(random, shape));
  ExpectClose(Evaluate(before, inputs), Evaluate(after, inputs));
}

// A graph under construction with random weights.
struct Model : GraphBuilder {
  std::mt19937 random{10};
  ValueId Weights(const Shape& shape) { return Constant(RandomFloats(random, shape)); }
  ValueId Positive(const Shape& shape) {
    Tensor t = RandomFloats(random, shape);
    for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = std::abs(t.data<float>()[i]) + 0.1f;
    return Constant(t);
  }
  ValueId Image() { return Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4, 6, 5})); }
  ValueId Rows() { return Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4})); }
  // 3×3, shape-preserving.
  ValueId Conv(ValueId x, int channels = 4, bool bias = true) {
    std::vector<ValueId> inputs = {x, Weights(Shape{channels, 4, 3, 3})};
    if (bias) inputs.push_back(Weights(Shape{channels}));
    return Op("Conv", inputs, Attrs({{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
  }
  ValueId BatchNorm(ValueId x, int channels) {
    return Op("BatchNormalization",
              {x, Weights(Shape{channels}), Weights(Shape{channels}), Weights(Shape{channels}),
               Positive(Shape{channels})},
              Attrs({{"epsilon", 1e-3f}}));
  }
};

bool HasBatchNorm() {
  return OperatorRegistry::Builtin().Find("", "BatchNormalization") != nullptr;
}

TEST(FuseBatchNormTest, GoesIntoTheWeightsOfWhatIsBefore) {
  if (!HasBatchNorm()) GTEST_SKIP();
  for (bool bias : {false, true}) {
    Model m;
    m.Output(m.BatchNorm(m.Conv(m.Image(), 6, bias), 6));
    const Graph graph = std::move(m).Build();
    const PassResult r = RunPass("fuse_batch_norm", graph);
    EXPECT_EQ(r.Operators(), "Conv");
    ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
  }
  {
    Model m;
    m.Output(m.BatchNorm(m.Op("ConvTranspose", {m.Image(), m.Weights(Shape{4, 3, 2, 2})}), 3));
    const Graph graph = std::move(m).Build();
    const PassResult r = RunPass("fuse_batch_norm", graph);
    EXPECT_EQ(r.Operators(), "ConvTranspose");
    ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
  }
  for (int64_t transposed : {0, 1}) {
    Model m;
    const Shape shape = transposed ? Shape{3, 4} : Shape{4, 3};
    m.Output(m.BatchNorm(m.Op("Gemm", {m.Rows(), m.Weights(shape), m.Weights(Shape{1, 3})},
                              Attrs({{"transB", transposed}, {"beta", 0.5f}})),
                         3));
    const Graph graph = std::move(m).Build();
    const PassResult r = RunPass("fuse_batch_norm", graph);
    EXPECT_EQ(r.Operators(), "Gemm");
    ExpectSameResults(graph, r.graph, Shape{5, 4});
  }
}

TEST(FuseBatchNormTest, ArithmeticByChannelGoesTheSameWay) {
  Model m;
  ValueId v = m.Conv(m.Image(), 6);
  v = m.Op("Mul", {v, m.Weights(Shape{1, 6, 1, 1})});
  v = m.Op("Add", {m.Weights(Shape{6, 1, 1}), v});
  v = m.Op("Div", {v, m.Constant(Tensor::Scalar(2.0f))});
  v = m.Op("Sub", {v, m.Weights(Shape{6, 1, 1})});
  m.Output(v);
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_batch_norm", graph);
  EXPECT_EQ(r.rewrites, 4);
  EXPECT_EQ(r.Operators(), "Conv");
  ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
}

TEST(FuseBatchNormTest, WhatIsNotByChannelOrReadElsewhereStays) {
  Model m;
  const ValueId x = m.Image();
  m.Output(m.Op("Add", {m.Conv(x, 5), m.Weights(Shape{5})}));  // along the width
  m.Output(m.Op("Sub", {m.Constant(Tensor::Scalar(1.0f)), m.Conv(x)}));
  const ValueId shared = m.Conv(x);
  m.Output(m.Op("Mul", {shared, m.Weights(Shape{4, 1, 1})}));
  m.Output(shared);
  EXPECT_EQ(RunPass("fuse_batch_norm", std::move(m).Build()).rewrites, 0);
}

TEST(FuseConvTest, ResidualThenActivation) {
  Model m;
  const ValueId x = m.Image();
  const ValueId sum = m.Op("Add", {x, m.Conv(x)});
  m.Output(m.Op("Relu", {sum}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_conv", graph);
  EXPECT_EQ(r.rewrites, 2);
  ASSERT_EQ(r.Operators(), "FusedConv");
  EXPECT_EQ(r.graph.nodes[0].attributes.String("activation", ""), "Relu");
  EXPECT_EQ(r.graph.nodes[0].inputs[3], r.graph.inputs[0]);
  ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
}

TEST(FuseConvTest, NothingFollowsAnActivation) {
  Model m;
  const ValueId x = m.Image();
  const ValueId v =
      m.Op("Clip", {m.Conv(x), m.Constant(Tensor::Scalar(0.0f)), m.Constant(Tensor::Scalar(1.5f))});
  m.Output(m.Op("Relu", {m.Op("Add", {v, x})}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_conv", graph);
  EXPECT_EQ(r.Operators(), "FusedConv Add Relu");
  ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
}

// A convolution of `taps` x `taps` after a factor for each channel, [n, channels, 1, 1].
struct Scaled {
  int64_t channels = 16, out_channels = 16, taps = 1;
  std::string activation = {};
  bool read_twice = false;

  PassResult Run() const {
    Model m;
    const ValueId x =
        m.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), channels, 6, 6}));
    const ValueId gate = m.Op("Sigmoid", {m.Op("GlobalAveragePool", {x})});
    const ValueId product = m.Op("Mul", {gate, x});
    const ValueId y = m.Op("Conv", {product, m.Weights(Shape{out_channels, channels, taps, taps})});
    m.Output(activation.empty() ? y : m.Op(activation.c_str(), {y}));
    if (read_twice) m.Output(product);
    const Graph graph = std::move(m).Build();
    PassResult r = RunPass("fuse_conv", graph);
    ExpectSameResults(graph, r.graph, Shape{2, channels, 6, 6});
    return r;
  }
};

TEST(FuseConvTest, AFactorForEachChannelGoesIntoTheConvolutionOfOneTapAfterIt) {
  for (const char* activation : {"", "Relu"}) {
    EXPECT_EQ(Scaled{.activation = activation}.Run().Operators(),
              "GlobalAveragePool Sigmoid FusedConv");
  }
  EXPECT_EQ((Scaled{.channels = 24, .out_channels = 40}).Run().Operators(),
            "GlobalAveragePool Sigmoid FusedConv");
}

TEST(FuseConvTest, AFactorStaysWhereTheConvolutionCannotTakeIt) {
  const std::string apart = "GlobalAveragePool Sigmoid Mul ";
  EXPECT_EQ((Scaled{.taps = 3}).Run().Operators(), apart + "Conv");
  EXPECT_EQ((Scaled{.read_twice = true}).Run().Operators(), apart + "Conv");
  EXPECT_EQ((Scaled{.out_channels = 3}).Run().Operators(), apart + "Conv");
  // Zeros that fill up the last block would not stay zeros.
  EXPECT_EQ((Scaled{.out_channels = 20, .activation = "Sigmoid"}).Run().Operators(),
            apart + "FusedConv");
}

TEST(FuseConvTest, OfTwoConvolutionsTheLaterTakesTheSum) {
  Model m;
  const ValueId x = m.Image();
  m.Output(m.Op("Add", {m.Conv(x), m.Conv(x)}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_conv", graph);
  EXPECT_EQ(r.Operators(), "Conv FusedConv");
  ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
}

TEST(FuseConvTest, ABroadcastSumOrASharedResultStays) {
  Model m;
  const ValueId x = m.Image();
  m.Output(m.Op("Add", {m.Conv(x), m.Weights(Shape{5})}));
  const ValueId shared = m.Conv(x);
  m.Output(m.Op("Relu", {shared}));
  m.Output(m.Op("Tanh", {shared}));
  const PassResult r = RunPass("fuse_conv", std::move(m).Build());
  EXPECT_EQ(r.rewrites, 0);
  EXPECT_EQ(r.notes.size(), 1u);
}

TEST(FuseConvTest, EveryActivationKeepsItsParameters) {
  const std::pair<const char*, Attributes> cases[] = {
      {"Relu", {}},
      {"LeakyRelu", Attrs({{"alpha", 0.3f}})},
      {"Sigmoid", {}},
      {"Tanh", {}},
      {"HardSwish", {}},
      {"HardSigmoid", Attrs({{"alpha", 0.3f}, {"beta", 0.4f}})},
      {"Elu", Attrs({{"alpha", 0.7f}})},
      {"Gelu", Attrs({{"approximate", std::string("tanh")}})},
      {"Gelu", {}}};
  for (const auto& [name, attributes] : cases) {
    Model m;
    m.Output(m.Op(name, {m.Conv(m.Image())}, attributes));
    const Graph graph = std::move(m).Build();
    const PassResult r = RunPass("fuse_conv", graph);
    EXPECT_EQ(r.Operators(), "FusedConv") << name;
    ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
  }
}

TEST(FuseConvTest, ATransposedConvolutionTakesAnActivationOnly) {
  Model m;
  const ValueId x = m.Image();
  const auto up = [&] {
    return m.Op("ConvTranspose", {x, m.Weights(Shape{4, 3, 2, 2}), m.Weights(Shape{3})},
                Attrs({{"strides", std::vector<int64_t>{2, 2}}}));
  };
  m.Output(m.Op("LeakyRelu", {up()}, Attrs({{"alpha", 0.3f}})));
  m.Output(m.Op("Add", {up(), up()}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_conv", graph);
  EXPECT_EQ(r.Operators(), "FusedConvTranspose ConvTranspose ConvTranspose Add");
  ExpectSameResults(graph, r.graph, Shape{2, 4, 6, 5});
}

TEST(FuseMatMulTest, BiasActivationAndResidual) {
  Model m;
  const ValueId x = m.Input("x", DType::kFloat, SymbolicShape({2, Dim::Symbol("n"), 4}));
  ValueId v = m.Op("MatMul", {x, m.Weights(Shape{4, 4})});
  v = m.Op("Add", {m.Weights(Shape{4}), v});
  v = m.Op("Add", {v, x});
  v = m.Op("Gelu", {v});
  v = m.Op("MatMul", {v, m.Weights(Shape{4, 3})});
  m.Output(m.Op("Add", {v, m.Weights(Shape{1, 1, 3})}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_matmul", graph);
  EXPECT_EQ(r.rewrites, 4);
  ASSERT_EQ(r.Operators(), "FusedMatMul FusedMatMul");
  EXPECT_EQ(r.graph.nodes[0].inputs[3], r.graph.inputs[0]);
  ExpectSameResults(graph, r.graph, Shape{2, 7, 4});
}

// A product with 4-bit weights, [4, 4].
ValueId FourBitProduct(Model& m, ValueId x) {
  Tensor codes = Tensor::Allocate(DType::kUInt8, Shape{4, 1, 8});
  for (int64_t i = 0; i < codes.size(); ++i) {
    codes.data<uint8_t>()[i] = static_cast<uint8_t>(m.random());
  }
  return m.Op("MatMulNBits", {x, m.Constant(codes), kNoValue, kNoValue, m.Weights(Shape{4})},
              Attrs({{"K", int64_t{4}}, {"N", int64_t{4}}, {"block_size", int64_t{16}}}),
              "chairlift");
}

TEST(FuseMatMulTest, WeightsOfFourBitsTakeWhatFollowsToo) {
  Model m;
  const ValueId x = m.Input("x", DType::kFloat, SymbolicShape({2, Dim::Symbol("n"), 4}));
  ValueId v = FourBitProduct(m, x);
  v = m.Op("Add", {m.Weights(Shape{1, 1, 4}), v});
  v = m.Op("Add", {x, v});  // what the product reads itself
  v = m.Op("Relu", {v});
  const ValueId y = FourBitProduct(m, v);
  m.Output(m.Op("Relu", {m.Op("Sigmoid", {m.Op("Add", {y, m.Op("Abs", {v})})})}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_matmul", graph);
  EXPECT_EQ(r.Operators(), "MatMulNBits Abs MatMulNBits Relu");
  EXPECT_EQ(r.graph.nodes[0].inputs[3], r.graph.inputs[0]);
  ExpectSameResults(graph, r.graph, Shape{2, 7, 4});
}

TEST(FuseMatMulTest, WhatWeightsOfFourBitsDoNotTakeStays) {
  Model m;
  const ValueId x = m.Rows();
  const auto product = [&] { return FourBitProduct(m, x); };
  m.Output(m.Op("Mul", {product(), m.Constant(Tensor::Scalar(2.0f))}));
  m.Output(m.Op("Add", {product(), m.Weights(Shape{4, 1})}));
  m.Output(m.Op("Add", {product(), m.Constant(Tensor::Scalar(2.0f))}));
  const ValueId twice = product();
  m.Output(m.Op("Add", {twice, twice}));
  const ValueId shared = product();
  m.Output(m.Op("Relu", {shared}));
  m.Output(m.Op("Add", {shared, m.Weights(Shape{4})}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_matmul", graph);
  EXPECT_EQ(r.rewrites, 0);
  ExpectSameResults(graph, r.graph, Shape{4, 4});
}

TEST(FuseMatMulTest, ATransposeThatEndsElsewhereIsReadAcross) {
  Model m;
  const ValueId x = m.Input("x", DType::kFloat, SymbolicShape(Shape{2, 3, 5, 4}));
  const auto transpose = [&](std::vector<int64_t> order) {
    return m.Op("Transpose", {x}, Attrs({{"perm", std::move(order)}}));
  };
  const ValueId rows = transpose({0, 2, 1, 3});               // [2, 5, 3, 4]
  m.Output(m.Op("MatMul", {rows, transpose({0, 2, 3, 1})}));  // [2, 5, 3, 3]
  m.Output(m.Op("MatMul", {x, transpose({0, 1, 3, 2})}));     // [2, 3, 5, 5]
  m.Output(m.Op("MatMul", {transpose({0, 1, 3, 2}), x}));     // [2, 3, 4, 4]
  const ValueId shared = transpose({0, 1, 3, 2});
  m.Output(m.Op("MatMul", {shared, transpose({0, 1, 2, 3})}));  // left as they are
  m.Output(shared);
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_matmul", graph);
  EXPECT_EQ(r.rewrites, 3);
  EXPECT_EQ(r.Operators(),
            "Transpose Transpose FusedMatMul FusedMatMul FusedMatMul Transpose Transpose MatMul");
  ExpectSameResults(graph, r.graph, Shape{2, 3, 5, 4});
}

TEST(FuseMatMulTest, AFactorOfTheProductAlone) {
  Model m;
  const ValueId x = m.Rows();
  const ValueId scaled =
      m.Op("Div", {m.Op("MatMul", {x, m.Weights(Shape{4, 4})}), m.Constant(Tensor::Scalar(3.0f))});
  const ValueId sum = m.Op("Add", {scaled, m.Weights(Shape{4})});
  m.Output(m.Op("Mul", {sum, m.Constant(Tensor::Scalar(2.0f))}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_matmul", graph);
  EXPECT_EQ(r.Operators(), "FusedMatMul Mul");
  ExpectSameResults(graph, r.graph, Shape{3, 4});
}

TEST(FuseMatMulTest, GemmWithARowForItsC) {
  for (const Shape& c : {Shape{3}, Shape{1, 3}}) {
    Model m;
    m.Output(m.Op("Relu", {m.Op("Gemm", {m.Rows(), m.Weights(Shape{3, 4}), m.Weights(c)},
                                Attrs({{"transB", int64_t{1}}, {"alpha", 0.5f}}))}));
    const Graph graph = std::move(m).Build();
    const PassResult r = RunPass("fuse_matmul", graph);
    EXPECT_EQ(r.Operators(), "FusedMatMul");
    ExpectSameResults(graph, r.graph, Shape{5, 4});
  }
}

TEST(FuseMatMulTest, WhatDoesNotFitStays) {
  Model m;
  const ValueId x = m.Rows();
  const Attributes half = Attrs({{"beta", 0.5f}});
  m.Output(m.Op("Relu", {m.Op("Gemm", {x, m.Weights(Shape{4, 3}), m.Weights(Shape{3})}, half)}));
  // One value a row, or another rank.
  m.Output(m.Op("Add", {m.Op("MatMul", {x, m.Weights(Shape{4, 4})}), m.Weights(Shape{4, 1})}));
  m.Output(m.Op("Add", {m.Op("MatMul", {x, m.Weights(Shape{4, 4})}), m.Weights(Shape{1, 1, 4})}));
  const PassResult r = RunPass("fuse_matmul", std::move(m).Build());
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 3u);
  EXPECT_NE(r.notes[0].find("(Relu): the product before it is not of matrices with a bias"),
            std::string::npos)
      << r.notes[0];
  EXPECT_NE(r.notes[1].find("[4,1] is neither one value a column of the product [n,4] nor"),
            std::string::npos)
      << r.notes[1];
}

TEST(FuseParallelMatMulTest, ProductsOfOneValueAreOneNode) {
  Model m;
  const ValueId x = m.Rows();
  const ValueId q =
      m.Op("FusedMatMul", {x, m.Weights(Shape{4, 4}), m.Weights(Shape{4})}, {}, "chairlift");
  const ValueId k = m.Op("MatMul", {x, m.Weights(Shape{4, 6})});
  m.Output(m.Op("Relu", {q}));
  m.Output(m.Op("FusedMatMul", {x, m.Weights(Shape{4, 5}), m.Weights(Shape{5})}, {}, "chairlift"));
  m.Output(m.Op("MatMul", {q, m.Weights(Shape{4, 4})}));  // of another value
  m.Output(k);
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_parallel_matmul", graph);
  EXPECT_EQ(r.rewrites, 1);
  EXPECT_EQ(r.Operators(), "ParallelMatMul Relu MatMul");
  EXPECT_TRUE(r.notes.empty());
  ExpectSameResults(graph, r.graph, Shape{3, 4});
}

TEST(FuseParallelMatMulTest, NoneNeedsABias) {
  Model m;
  const ValueId x = m.Rows();
  for (int i = 0; i < 3; ++i) m.Output(m.Op("MatMul", {x, m.Weights(Shape{4, 4 + i})}));
  const Graph graph = std::move(m).Build();
  const PassResult r = RunPass("fuse_parallel_matmul", graph);
  EXPECT_EQ(r.Operators(), "ParallelMatMul");
  ExpectSameResults(graph, r.graph, Shape{3, 4});
}

TEST(FuseParallelMatMulTest, WhatDoesNotFitStaysAndIsNamed) {
  Model m;
  const ValueId x = m.Rows();
  m.Output(m.Op("FusedMatMul", {x, m.Weights(Shape{4, 4})}, Attrs({{"activation", "Relu"}}),
                "chairlift"));
  m.Output(m.Op("FusedMatMul", {x, m.Weights(Shape{4, 4})}, Attrs({{"alpha", 0.5f}}), "chairlift"));
  m.Output(m.Op("FusedMatMul", {x, m.Weights(Shape{5, 4})}, Attrs({{"transpose_b", int64_t{1}}}),
                "chairlift"));
  m.Output(m.Op("FusedMatMul", {x, m.Weights(Shape{4, 4}), kNoValue, x}, {}, "chairlift"));
  m.Output(m.Op("MatMul", {x, m.Weights(Shape{4, 4})}));
  m.Output(m.Op("MatMul", {x, m.Weights(Shape{4})}));  // a vector
  m.Output(m.Op("MatMul", {x, m.Op("Transpose", {x})}));
  const PassResult r = RunPass("fuse_parallel_matmul", std::move(m).Build());
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 4u);
  const std::vector<std::string> why = {"an activation follows", "it is scaled", "is transposed",
                                        "a residual"};
  for (size_t i = 0; i < why.size(); ++i) {
    EXPECT_NE(r.notes[i].find(why[i]), std::string::npos) << r.notes[i];
  }
}

// Attention over queries, keys and values that are [batch, 2, length, 2].
ValueId Attention(Model& m, ValueId q, ValueId k, ValueId v) {
  const auto heads = [&m](ValueId x) {
    return m.Op("Transpose",
                {m.Op("Reshape", {x, m.Constant(Tensor::Of<int64_t>(Shape{4}, {0, 0, 2, 2}))})},
                Attrs({{"perm", std::vector<int64_t>{0, 2, 1, 3}}}));
  };
  return m.Op("Attention", {heads(q), heads(k), heads(v)}, {}, "chairlift");
}

TEST(FuseParallelMatMulTest, AttentionOfSeveralProductsIsNotedWithItsReason) {
  const auto notes = [](const std::string& kind) {
    Model m;
    const auto input = [&m](const char* name) {
      return m.Input(name, DType::kFloat,
                     SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("length"), 4}));
    };
    const ValueId x = input("x"), y = input("y");
    const auto by = [&m](ValueId from, ValueId weights) { return m.Op("MatMul", {from, weights}); };
    const ValueId q = by(x, m.Weights(Shape{4, 4}));
    const ValueId k =
        by(kind == "cross" ? y : x, kind == "computed" ? m.Op("Transpose", {m.Weights(Shape{4, 4})})
                                                       : m.Weights(Shape{4, 4}));
    const ValueId v = by(kind == "cross" ? y : x, m.Weights(Shape{4, 4}));
    // Queries turned by their places, as positions may be given.
    const ValueId turned = kind == "turned" ? m.Op("Mul", {q, by(y, m.Weights(Shape{4, 4}))}) : q;
    m.Output(kind == "one" ? Attention(m, q, m.Op("Neg", {q}), q) : Attention(m, turned, k, v));
    const PassResult r = RunPass("fuse_parallel_matmul", std::move(m).Build());
    EXPECT_LE(r.notes.size(), 1u);
    return r.notes.empty() ? std::string() : r.notes[0];
  };
  EXPECT_EQ(notes("all"), "");
  EXPECT_EQ(notes("one"), "");
  EXPECT_EQ(notes("turned"), "");
  EXPECT_NE(notes("cross").find("come from 2 products, of different values"), std::string::npos);
  EXPECT_NE(notes("computed").find("(MatMul) is not one of a float32 value and a constant matrix"),
            std::string::npos);
}

TEST(FuseMatMulTest, AnActivationThatStaysIsNotedWithItsReason) {
  Model m;
  const ValueId x = m.Rows();
  const ValueId shared = m.Op("MatMul", {x, m.Weights(Shape{4, 4})});
  m.Output(m.Op("Relu", {shared}));
  m.Output(shared);
  m.Output(m.Op("Tanh", {m.Op("Relu", {m.Op("MatMul", {x, m.Weights(Shape{4, 4})})})}));
  const PassResult r = RunPass("fuse_matmul", std::move(m).Build());
  EXPECT_EQ(r.rewrites, 1);
  ASSERT_EQ(r.notes.size(), 2u);
  EXPECT_NE(r.notes[0].find("(Relu): others read the product before it"), std::string::npos);
  EXPECT_NE(r.notes[1].find("(Tanh): the product before it has an activation already"),
            std::string::npos);
}

}  // namespace fuse_test
}  // namespace chairlift
