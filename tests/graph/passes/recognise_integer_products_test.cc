// recognise_integer_products: what it takes gives the same answers, what it leaves stays.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace recognise_integer_products_test {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

constexpr int64_t kDepth = 24, kColumns = 10, kRows = 5;

Tensor RandomBytes(DType dtype, const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor t = Tensor::Allocate(dtype, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    static_cast<uint8_t*>(t.raw())[i] = static_cast<uint8_t>(random());
  }
  return t;
}

Tensor Scales(int64_t n) {
  Tensor t = Tensor::Allocate(DType::kFloat, n == 0 ? Shape{} : Shape{n});
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = 0.01f * static_cast<float>(i + 1);
  return t;
}

// A model of DynamicQuantizeLinear and MatMulInteger; `scale` multiplies the sum, given the sum,
// A's scale and W's.
struct Model {
  DType w_type = DType::kInt8;
  bool a_zero = true, w_zero = true;
  int64_t w_zeros = 0;   // 0: a scalar
  int64_t w_scales = 0;  // likewise
  std::function<ValueId(GraphBuilder&, ValueId, ValueId, ValueId)> scale;

  Graph Build() const {
    GraphBuilder b;
    const ValueId x = b.Input("x", DType::kFloat,
                              SymbolicShape({Dim::Symbol("n"), Dim::Symbol("t"), Dim(kDepth)}));
    const std::vector<ValueId> a =
        b.Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {x}, 3);
    std::vector<ValueId> inputs = {a[0],
                                   b.Constant(RandomBytes(w_type, Shape{kDepth, kColumns}, 1)),
                                   a_zero ? a[2] : kNoValue};
    if (w_zero) {
      inputs.push_back(b.Constant(RandomBytes(w_type, w_zeros == 0 ? Shape{} : Shape{w_zeros}, 2)));
    } else if (!a_zero) {
      inputs.pop_back();
    }
    const ValueId sum = b.Op("Cast", {b.Op("MatMulInteger", inputs)}, Attrs({{"to", int64_t{1}}}));
    b.Output(scale(b, sum, a[1], b.Constant(Scales(w_scales))));
    return std::move(b).Build();
  }
};

std::vector<Tensor> Input() {
  std::mt19937 random(4);
  return {RandomFloats(random, Shape{2, kRows, kDepth})};
}

// The pass leaves these operators, and the answer.
void ExpectFused(const Model& model, const std::string& operators) {
  const Graph graph = model.Build();
  PassResult r = RunPass("recognise_integer_products", graph);
  EXPECT_EQ(r.rewrites, 1);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  EXPECT_EQ(r.Operators(), operators);
  ExpectClose(Evaluate(graph, Input()), Evaluate(r.graph, Input()));
}

ValueId Usual(GraphBuilder& b, ValueId sum, ValueId a, ValueId w) {
  return b.Op("Mul", {sum, b.Op("Mul", {a, w})});
}

TEST(RecogniseIntegerProductsTest, EveryOrderOfTheScales) {
  const std::string fused = "DynamicQuantizeLinear ScaledIntegerProduct";
  using B = GraphBuilder;
  for (const int64_t scales : {int64_t{0}, int64_t{1}, kColumns}) {
    const auto expect = [&](auto scale) {
      ExpectFused({.w_scales = scales, .scale = scale}, fused);
    };
    expect([](B& b, ValueId s, ValueId a, ValueId w) { return Usual(b, s, a, w); });
    expect([](B& b, ValueId s, ValueId a, ValueId w) { return Usual(b, s, w, a); });
    expect([](B& b, ValueId s, ValueId a, ValueId w) {
      return b.Op("Mul", {b.Op("Mul", {a, w}), s});
    });
    expect([](B& b, ValueId s, ValueId a, ValueId w) {
      return b.Op("Mul", {b.Op("Mul", {s, a}), w});
    });
    expect([](B& b, ValueId s, ValueId a, ValueId w) {
      return b.Op("Mul", {a, b.Op("Mul", {w, s})});
    });
  }
}

TEST(RecogniseIntegerProductsTest, EveryKindOfZeroPoint) {
  const std::string fused = "DynamicQuantizeLinear ScaledIntegerProduct";
  for (const DType type : {DType::kInt8, DType::kUInt8}) {
    for (const bool a_zero : {false, true}) {
      ExpectFused({.w_type = type, .a_zero = a_zero, .w_zero = false, .scale = Usual}, fused);
      for (const int64_t zeros : {int64_t{0}, int64_t{1}, kColumns}) {
        ExpectFused({.w_type = type, .a_zero = a_zero, .w_zeros = zeros, .scale = Usual}, fused);
      }
    }
  }
}

TEST(RecogniseIntegerProductsTest, FactorsThatAreNoScalesStay) {
  using B = GraphBuilder;
  ExpectFused({.scale = [](B&, ValueId s, ValueId, ValueId) { return s; }},
              "DynamicQuantizeLinear ScaledIntegerProduct");
  // A second computed factor.
  ExpectFused({.scale =
                   [](B& b, ValueId s, ValueId a, ValueId w) {
                     return b.Op("Mul", {Usual(b, s, a, w), b.Op("Sqrt", {a})});
                   }},
              "DynamicQuantizeLinear ScaledIntegerProduct Sqrt Mul");
  // One for each row of a matrix, in every matrix.
  ExpectFused({.scale =
                   [](B& b, ValueId s, ValueId a, ValueId w) {
                     std::mt19937 random(9);
                     const ValueId rows = b.Constant(RandomFloats(random, Shape{kRows, 1}));
                     return b.Op("Mul", {Usual(b, s, a, w), rows});
                   }},
              "DynamicQuantizeLinear ScaledIntegerProduct Mul");
}

TEST(RecogniseIntegerProductsTest, SumsThatOthersReadStay) {
  GraphBuilder b;
  const ValueId a = b.Input("a", DType::kUInt8, SymbolicShape({Dim::Symbol("n"), Dim(kDepth)}));
  const ValueId sum =
      b.Op("MatMulInteger", {a, b.Constant(RandomBytes(DType::kInt8, Shape{kDepth, kColumns}, 1))});
  b.Output(b.Op("Cast", {sum}, Attrs({{"to", int64_t{1}}})));
  b.Output(sum);
  const PassResult r = RunPass("recognise_integer_products", std::move(b).Build());
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 1U);
  EXPECT_NE(r.notes[0].find("others read the sums"), std::string::npos) << r.notes[0];
}

TEST(RecogniseIntegerProductsTest, ParametersOfRows) {
  // As of packed requests: a scale and a zero point for each row.
  GraphBuilder b;
  const SymbolicShape rows({Dim(1), Dim::Symbol("t"), Dim(1)});
  const ValueId a =
      b.Input("a", DType::kUInt8, SymbolicShape({Dim(1), Dim::Symbol("t"), Dim(kDepth)}));
  const ValueId scale = b.Input("scale", DType::kFloat, rows);
  const ValueId zero = b.Input("zero", DType::kUInt8, rows);
  const ValueId w = b.Constant(RandomBytes(DType::kInt8, Shape{kDepth, kColumns}, 1));
  const ValueId sum =
      b.Op("Cast", {b.Op("MatMulInteger", {a, w, zero})}, Attrs({{"to", int64_t{1}}}));
  b.Output(Usual(b, sum, scale, b.Constant(Scales(kColumns))));
  const Graph graph = std::move(b).Build();
  PassResult r = RunPass("recognise_integer_products", graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  EXPECT_EQ(r.Operators(), "ScaledIntegerProduct");
  std::mt19937 random(3);
  const std::vector<Tensor> inputs = {RandomBytes(DType::kUInt8, Shape{1, kRows, kDepth}, 5),
                                      RandomFloats(random, Shape{1, kRows, 1}),
                                      RandomBytes(DType::kUInt8, Shape{1, kRows, 1}, 6)};
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs));
}

// QuantizeLinear(x) and a product of what DequantizeLinear gives.
struct Dequantised {
  DType type = DType::kInt8;
  bool gemm = false, transposed = false, bias = false, zeros = true;
  int64_t scales = kColumns;
  int64_t axis = 1;

  Graph Build() const {
    GraphBuilder b;
    const ValueId x = b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), Dim(kDepth)}));
    const ValueId scale = b.Constant(Scales(0));
    const ValueId zero = b.Constant(RandomBytes(type, Shape{}, 7));
    const ValueId a =
        b.Op("DequantizeLinear", {b.Op("QuantizeLinear", {x, scale, zero}), scale, zero});
    const Shape of_w = transposed ? Shape{kColumns, kDepth} : Shape{kDepth, kColumns};
    std::vector<ValueId> inputs = {b.Constant(RandomBytes(type, of_w, 8)),
                                   b.Constant(Scales(scales))};
    if (zeros) inputs.push_back(b.Constant(RandomBytes(type, Shape{scales}, 9)));
    std::vector<ValueId> product = {a, b.Op("DequantizeLinear", inputs, Attrs({{"axis", axis}}))};
    std::mt19937 random(2);
    if (bias) product.push_back(b.Constant(RandomFloats(random, Shape{kColumns})));
    b.Output(gemm ? b.Op("Gemm", product,
                         Attrs({{"transB", int64_t{transposed ? 1 : 0}}, {"alpha", 0.5f}}))
                  : b.Op("MatMul", product));
    return std::move(b).Build();
  }
};

PassResult RunOn(const Graph& graph) {
  PassResult r = RunPass("recognise_integer_products", graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  return r;
}

TEST(RecogniseIntegerProductsTest, ProductsOfDequantisedBytes) {
  std::mt19937 random(4);
  const std::vector<Tensor> inputs = {RandomFloats(random, Shape{kRows, kDepth})};
  for (const Dequantised& d :
       {Dequantised{}, Dequantised{.type = DType::kUInt8}, Dequantised{.zeros = false},
        Dequantised{.scales = 1}, Dequantised{.gemm = true, .bias = true},
        Dequantised{.gemm = true, .transposed = true, .bias = true, .axis = 0},
        Dequantised{.gemm = true, .transposed = true, .axis = -2}}) {
    const Graph graph = d.Build();
    const PassResult r = RunOn(graph);
    EXPECT_EQ(r.Operators(), "QuantizeLinear ScaledIntegerProduct");
    ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs), 1e-4f);
  }
}

TEST(RecogniseIntegerProductsTest, ScalesOfRowsOfWeightsStay) {
  const PassResult r = RunOn(Dequantised{.zeros = false, .scales = kDepth, .axis = 0}.Build());
  EXPECT_EQ(r.rewrites, 0);
  ASSERT_EQ(r.notes.size(), 1U);
}

}  // namespace recognise_integer_products_test
}  // namespace chairlift
