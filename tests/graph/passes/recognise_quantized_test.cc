// recognise_quantized and keep_channels_last: what they take gives the same bytes within one step,
// what they leave stays.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace recognise_quantized_test {

using testing::Attrs;
using testing::Evaluate;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RunPass;

// A graph of bytes with one code for each value, built as quantize_static writes it.
class QuantizedBuilder {
 public:
  explicit QuantizedBuilder(DType dtype) : dtype_(dtype) {}

  struct Code {
    ValueId scale, zero;
  };
  Code NewCode(float scale, int zero) {
    return {b.Constant(Tensor::Scalar(scale)),
            b.Constant(dtype_ == DType::kInt8 ? Tensor::Scalar(static_cast<int8_t>(zero - 128))
                                              : Tensor::Scalar(static_cast<uint8_t>(zero)))};
  }
  ValueId Dequantized(ValueId bytes, const Code& code) {
    return b.Op("DequantizeLinear", {bytes, code.scale, code.zero});
  }
  ValueId Quantized(ValueId real, const Code& code) {
    return b.Op("QuantizeLinear", {real, code.scale, code.zero});
  }
  // int8 weights by channel, and an int32 bias in the scale of the sums.
  ValueId Conv(ValueId real, float x_scale, const Shape& weights, Attributes attributes) {
    std::uniform_int_distribution<int> byte(-127, 127), whole(-3000, 3000);
    std::uniform_real_distribution<float> uniform(0.002f, 0.01f);
    Tensor w = Tensor::Allocate(DType::kInt8, weights);
    for (int64_t i = 0; i < w.size(); ++i) w.data<int8_t>()[i] = static_cast<int8_t>(byte(random));
    const Shape channels{weights[0]};
    Tensor scale = Tensor::Allocate(DType::kFloat, channels);
    Tensor bias = Tensor::Allocate(DType::kInt32, channels);
    Tensor bias_scale = Tensor::Allocate(DType::kFloat, channels);
    for (int64_t c = 0; c < weights[0]; ++c) {
      scale.data<float>()[c] = uniform(random);
      bias_scale.data<float>()[c] = scale.data<float>()[c] * x_scale;
      bias.data<int32_t>()[c] = whole(random);
    }
    const Attributes axis = Attrs({{"axis", int64_t{0}}});
    return b.Op("Conv",
                {real, b.Op("DequantizeLinear", {b.Constant(w), b.Constant(scale)}, axis),
                 b.Op("DequantizeLinear", {b.Constant(bias), b.Constant(bias_scale)}, axis)},
                std::move(attributes));
  }
  Tensor Random(const Shape& shape) {
    Tensor t = Tensor::Allocate(dtype_, shape);
    std::uniform_int_distribution<int> byte(0, 255);
    for (int64_t i = 0; i < t.size(); ++i) {
      static_cast<uint8_t*>(t.raw())[i] = static_cast<uint8_t>(byte(random));
    }
    return t;
  }

  GraphBuilder b;
  std::mt19937 random{5};

 private:
  const DType dtype_;
};

void ExpectWithinOneStep(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  for (int64_t i = 0; i < a.size(); ++i) {
    const auto at = [&](const Tensor& t) {
      return t.dtype() == DType::kInt8 ? int{t.data<int8_t>()[i]} : int{t.data<uint8_t>()[i]};
    };
    ASSERT_NEAR(at(a), at(b), 1) << "element " << i;
  }
}

PassResult Cleaned(const std::string& pass, const Graph& graph) {
  PassResult r = RunPass(pass, graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  return r;
}

SymbolicShape Symbolic(std::initializer_list<int64_t> dims) {
  std::vector<Dim> all{Dim::Symbol("n")};
  for (const int64_t d : dims) all.emplace_back(d);
  return SymbolicShape(all);
}

// A block of a residual network.
Graph Block(DType dtype, const char* activation, bool same_code, bool as_output,
            std::vector<Tensor>* inputs) {
  QuantizedBuilder q(dtype);
  const auto x_code = q.NewCode(0.03f, 110), y_code = q.NewCode(0.11f, 100);
  const auto sum_code = q.NewCode(0.12f, dtype == DType::kInt8 ? 0 : 3);
  const auto pool_code = same_code ? sum_code : q.NewCode(0.13f, 3);
  const ValueId x = q.b.Input("x", dtype, Symbolic({6, 9, 7}));
  const Attributes pads = Attrs({{"pads", std::vector<int64_t>{1, 1, 0, 1}}});
  ValueId y = q.Conv(q.Dequantized(x, x_code), 0.03f, Shape{6, 6, 2, 3}, pads);
  if (activation != nullptr && std::string(activation) == "Clip") {
    y = q.b.Op("Clip",
               {y, q.b.Constant(Tensor::Scalar(-1.0f)), q.b.Constant(Tensor::Scalar(4.0f))});
  } else if (activation != nullptr) {
    y = q.b.Op(activation, {y});
  }
  if (as_output) q.b.Output(y);
  y = q.Dequantized(q.Quantized(y, y_code), y_code);
  const ValueId sum = q.Quantized(q.b.Op("Add", {y, q.Dequantized(x, x_code)}), sum_code);
  const ValueId pooled = q.Quantized(q.b.Op("MaxPool", {q.Dequantized(sum, sum_code)},
                                            Attrs({{"kernel_shape", std::vector<int64_t>{3, 2}},
                                                   {"strides", std::vector<int64_t>{2, 1}},
                                                   {"pads", std::vector<int64_t>{1, 0, 1, 1}}})),
                                     pool_code);
  q.b.Output(pooled);
  *inputs = {q.Random(Shape{2, 6, 9, 7})};
  return std::move(q.b).Build();
}

TEST(RecogniseQuantizedTest, ConvolutionsAndWhatFollowsThemComputeOnBytes) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    for (const char* activation : {"", "Relu", "Clip"}) {
      SCOPED_TRACE(::testing::Message() << DTypeName(dtype) << " " << activation);
      std::vector<Tensor> inputs;
      const Graph graph =
          Block(dtype, *activation == 0 ? nullptr : activation, true, false, &inputs);
      const PassResult r = Cleaned("recognise_quantized", graph);
      EXPECT_EQ(r.rewrites, 3);
      EXPECT_EQ(r.Operators(), "QLinearConv QLinearAdd MaxPool");
      const auto expected = Evaluate(graph, inputs), got = Evaluate(r.graph, inputs);
      ExpectWithinOneStep(expected[0], got[0]);

      const PassResult last = Cleaned("keep_channels_last", r.graph);
      EXPECT_EQ(last.Operators(), "Transpose QLinearConv QLinearAdd ByteMaxPool Transpose");
      const auto same = Evaluate(last.graph, inputs);
      ASSERT_EQ(same[0].shape(), got[0].shape());
      EXPECT_EQ(std::memcmp(same[0].raw(), got[0].raw(), static_cast<size_t>(got[0].size())), 0);
    }
  }
}

TEST(RecogniseQuantizedTest, WhatDoesNotMatchStays) {
  std::vector<Tensor> inputs;
  // The real value is needed too.
  EXPECT_EQ(
      Cleaned("recognise_quantized", Block(DType::kUInt8, "Relu", true, true, &inputs)).rewrites,
      0);
  // Another activation.
  EXPECT_EQ(Cleaned("recognise_quantized", Block(DType::kUInt8, "Sigmoid", true, false, &inputs))
                .rewrites,
            0);
  // The pool's result has another scale.
  const PassResult other =
      Cleaned("recognise_quantized", Block(DType::kUInt8, nullptr, false, false, &inputs));
  EXPECT_EQ(other.Operators(), "QLinearConv QLinearAdd DequantizeLinear MaxPool QuantizeLinear");
}

TEST(RecogniseQuantizedTest, ADenseLayerAfterConvolutionsIsAConvolutionOfOnePosition) {
  for (const bool transposed : {false, true}) {
    QuantizedBuilder q(DType::kUInt8);
    const auto code = q.NewCode(0.03f, 110), y_code = q.NewCode(0.5f, 120);
    const ValueId x = q.b.Input("x", DType::kUInt8, Symbolic({6, 3, 2}));
    const ValueId a =
        q.Quantized(q.Conv(q.Dequantized(x, code), 0.03f, Shape{5, 6, 2, 1}, {}), code);
    const ValueId flat = q.Quantized(
        q.b.Op("Flatten", {q.Dequantized(a, code)}, Attrs({{"axis", int64_t{1}}})), code);
    Tensor w = Tensor::Allocate(DType::kInt8, transposed ? Shape{7, 20} : Shape{20, 7});
    std::uniform_int_distribution<int> byte(-128, 127);
    for (int64_t i = 0; i < w.size(); ++i) {
      w.data<int8_t>()[i] = static_cast<int8_t>(byte(q.random));
    }
    const ValueId weights =
        q.b.Op("DequantizeLinear", {q.b.Constant(w), q.b.Constant(Tensor::Scalar(0.01f))});
    const Tensor bias = testing::RandomFloats(q.random, Shape{7}, 3);
    q.b.Output(q.Quantized(q.b.Op("Gemm", {q.Dequantized(flat, code), weights, q.b.Constant(bias)},
                                  Attrs({{"transB", int64_t{transposed}}})),
                           y_code));
    const std::vector<Tensor> inputs = {q.Random(Shape{3, 6, 3, 2})};
    const Graph graph = std::move(q.b).Build();
    const PassResult r = Cleaned("recognise_quantized", graph);
    EXPECT_EQ(r.Operators(), "QLinearConv Flatten Unsqueeze QLinearConv Squeeze");
    ExpectWithinOneStep(Evaluate(graph, inputs)[0], Evaluate(r.graph, inputs)[0]);
  }
}

TEST(KeepChannelsLastTest, ConcatAveragesAndTranspositionsAreIncluded) {
  QuantizedBuilder q(DType::kUInt8);
  const auto code = q.NewCode(0.03f, 110);
  const ValueId x = q.b.Input("x", DType::kUInt8, Symbolic({6, 9, 7}));
  const ValueId a = q.Quantized(q.Conv(q.Dequantized(x, code), 0.03f, Shape{5, 6, 2, 3}, {}), code);
  const ValueId b = q.Quantized(q.Conv(q.Dequantized(x, code), 0.03f, Shape{4, 6, 2, 3}, {}), code);
  const ValueId both =
      q.Quantized(q.b.Op("Concat", {q.Dequantized(a, code), q.Dequantized(b, code)},
                         Attrs({{"axis", int64_t{-3}}})),
                  code);
  q.b.Output(q.b.Op("GlobalAveragePool", {q.Dequantized(both, code)}));
  q.b.Output(q.b.Op("Transpose", {both}, Attrs({{"perm", std::vector<int64_t>{0, 2, 3, 1}}})));
  const std::vector<Tensor> inputs = {q.Random(Shape{2, 6, 9, 7})};
  const Graph graph = std::move(q.b).Build();
  const PassResult bytes = Cleaned("recognise_quantized", graph);
  const PassResult r = Cleaned("keep_channels_last", bytes.graph);
  EXPECT_EQ(r.Operators(),
            "Transpose QLinearConv QLinearConv Concat DequantizeLinear ReduceMean Transpose");
  const auto expected = Evaluate(bytes.graph, inputs), got = Evaluate(r.graph, inputs);
  testing::ExpectClose({expected[0]}, {got[0]}, 1e-6f);
  ASSERT_EQ(got[1].shape(), expected[1].shape());
  EXPECT_EQ(std::memcmp(got[1].raw(), expected[1].raw(), static_cast<size_t>(got[1].size())), 0);
}

}  // namespace recognise_quantized_test
}  // namespace chairlift
