// Which graphs are proved to keep rows apart, and what is said of those that are not.
#include "graph/batch_axis.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "graph/model_builder.h"

namespace chairlift {
namespace {

using testing::GraphProtoBuilder;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;

BatchAxisReport Analyse(const ModelBuilder& model) {
  const StatusOr<ImportedModel> imported = model.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? AnalyseBatchAxis(imported->graph) : BatchAxisReport{};
}

struct Case {
  std::string name;
  std::vector<testing::DeclaredDim> input;        // shape of x
  std::function<void(GraphProtoBuilder&)> build;  // from x to y
  std::string problem = "";  // empty: rows keep apart; else a part of what is said
  int opset = 17;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class BatchAxisTest : public ::testing::TestWithParam<Case> {};

TEST_P(BatchAxisTest, SaysWhetherRowsKeepApart) {
  const Case& c = GetParam();
  ModelBuilder m(c.opset);
  m.Input("x", kFloat, c.input).Output("y", kFloat);
  c.build(m);
  const BatchAxisReport report = Analyse(m);
  EXPECT_EQ(report.batches, c.problem.empty()) << report.why;
  EXPECT_THAT(report.why, HasSubstr(c.problem));
}

void Weights(GraphProtoBuilder& m, const std::string& name, std::initializer_list<int64_t> dims) {
  int64_t size = 1;
  for (int64_t d : dims) size *= d;
  auto* tensor = m.Tensor(name, kFloat, dims);
  for (int64_t i = 0; i < size; ++i) tensor->add_float_data(0.5f);
}

// A node from x to y, with further inputs.
std::function<void(GraphProtoBuilder&)> Unary(const std::string& op) {
  return [op](GraphProtoBuilder& m) { m.Node(op, {"x"}, {"y"}); };
}
std::function<void(GraphProtoBuilder&)> WithAxis(const std::string& op, int64_t axis) {
  return [=](GraphProtoBuilder& m) { m.Node(op, {"x"}, {"y"}).Int("axis", axis); };
}
std::function<void(GraphProtoBuilder&)> WithWeights(const std::string& op,
                                                    std::initializer_list<int64_t> dims) {
  const std::vector<int64_t> shape = dims;
  return [=](GraphProtoBuilder& m) {
    auto* tensor = m.Tensor("w", kFloat, {});
    int64_t size = 1;
    for (int64_t d : shape) {
      tensor->add_dims(d);
      size *= d;
    }
    for (int64_t i = 0; i < size; ++i) tensor->add_float_data(0.5f);
    m.Node(op, {"x", "w"}, {"y"});
  };
}
std::function<void(GraphProtoBuilder&)> WithInts(const std::string& op,
                                                 std::vector<int64_t> values) {
  return [=](GraphProtoBuilder& m) {
    auto* tensor = m.Tensor("n", kInt64, {static_cast<int64_t>(values.size())});
    for (int64_t v : values) tensor->add_int64_data(v);
    m.Node(op, {"x", "n"}, {"y"});
  };
}

// y = x · a number that `build` makes as "n" of "rows", the number of rows.
std::function<void(GraphProtoBuilder&)> TimesNumberOf(
    const std::function<void(GraphProtoBuilder&)>& build) {
  return [=](GraphProtoBuilder& m) {
    m.Ints("first", {0});
    m.Node("Shape", {"x"}, {"shape"});
    m.Node("Gather", {"shape", "first"}, {"rows"});
    build(m);
    m.Node("Cast", {"n"}, {"number"}).Int("to", kFloat);
    m.Node("Mul", {"x", "number"}, {"y"});
  };
}
// n: how many of the last rows there are, at most `most`.
std::function<void(GraphProtoBuilder&)> TimesLastRows(int64_t most) {
  return TimesNumberOf([=](GraphProtoBuilder& m) {
    m.Ints("start", {most});
    m.Ints("end", {std::numeric_limits<int64_t>::max()});
    m.Tensor("zero", kInt64, {})->add_int64_data(0);
    m.Tensor("one", kInt64, {})->add_int64_data(1);
    m.Node("Squeeze", {"rows"}, {"limit"});
    m.Node("Range", {"zero", "limit", "one"}, {"places"});
    m.Node("Slice", {"places", "start", "end"}, {"last"});
    m.Node("Shape", {"last"}, {"n"});
  });
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, BatchAxisTest,
    ::testing::Values(
        Case{"of the last row", {"b", 4}, TimesLastRows(-1), ""},
        Case{"of the last rows, which may be fewer", {"b", 4}, TimesLastRows(-4), "Slice"},
        Case{"of rows from before the first on",
             {"b", 4},
             TimesLastRows(std::numeric_limits<int64_t>::min()),
             "Slice"},
        Case{"rows - rows",
             {"b", 4},
             TimesNumberOf([](GraphProtoBuilder& m) {
               m.Node("Sub", {"rows", "rows"}, {"n"});
             }),
             ""},
        Case{"rows in 32 bits - rows",
             {"b", 4},
             TimesNumberOf([](GraphProtoBuilder& m) {
               m.Node("Cast", {"rows"}, {"narrow"}).Int("to", onnx::TensorProto::INT32);
               m.Node("Cast", {"narrow"}, {"wide"}).Int("to", kInt64);
               m.Node("Sub", {"wide", "rows"}, {"n"});
             }),
             ""},
        // A product that wraps is 0 for any number of rows, not the product.
        Case{"a product cast to 32 bits - the product",
             {"b", 4},
             TimesNumberOf([](GraphProtoBuilder& m) {
               m.Ints("large", {int64_t{1} << 32});
               m.Node("Mul", {"rows", "large"}, {"product"});
               m.Node("Cast", {"product"}, {"narrow"}).Int("to", onnx::TensorProto::INT32);
               m.Node("Cast", {"narrow"}, {"wide"}).Int("to", kInt64);
               m.Node("Sub", {"wide", "product"}, {"n"});
             }),
             "Mul"},
        Case{"a product in 32 bits - the product",
             {"b", 4},
             TimesNumberOf([](GraphProtoBuilder& m) {
               for (const char* name : {"c", "d"}) {
                 m.Tensor(name, onnx::TensorProto::INT32, {})->add_int32_data(65536);
               }
               m.Ints("large", {int64_t{1} << 32});
               m.Node("Cast", {"rows"}, {"narrow"}).Int("to", onnx::TensorProto::INT32);
               m.Node("Mul", {"narrow", "c"}, {"once"});
               m.Node("Mul", {"once", "d"}, {"twice"});
               m.Node("Cast", {"twice"}, {"wide"}).Int("to", kInt64);
               m.Node("Mul", {"rows", "large"}, {"product"});
               m.Node("Sub", {"wide", "product"}, {"n"});
             }),
             "Mul"}),
    [](const auto& info) { return std::to_string(info.index); });

INSTANTIATE_TEST_SUITE_P(
    Elementwise, BatchAxisTest,
    ::testing::Values(
        Case{"relu", {"b", 4}, Unary("Relu"), ""},
        Case{"an input left out",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Tensor("most", kFloat, {})->add_float_data(1);
               m.Node("Clip", {"x", "", "most"}, {"y"});
             },
             ""},
        Case{"bias", {"b", 4}, WithWeights("Add", {4}), ""},
        Case{"row bias", {"b", 4}, WithWeights("Add", {1, 4}), ""},
        Case{"fixed rows", {"b", 4}, WithWeights("Add", {8, 4}), "8 entries along the batch"},
        Case{"broadcast over the batch",
             {"b", 4},
             WithWeights("Add", {3, 1, 4}),
             "has the batch along dimension 1"},
        Case{"rows against columns",
             {"b", "b2"},
             [](GraphProtoBuilder& m) {
               m.Node("Transpose", {"x"}, {"t"}).Ints("perm", {1, 0});
               m.Node("Add", {"x", "t"}, {"y"});
             },
             "along different dimensions"}));

INSTANTIATE_TEST_SUITE_P(
    Linear, BatchAxisTest,
    ::testing::Values(Case{"matmul", {"b", 4}, WithWeights("MatMul", {4, 5}), ""},
                      Case{"matmul of sequences", {"b", "t", 4}, WithWeights("MatMul", {4, 5}), ""},
                      Case{"matmul with fixed batch",
                           {"b", 3, 4},
                           WithWeights("MatMul", {2, 4, 5}),
                           "has 2 entries along the batch"},
                      Case{"a grid a row",
                           {"b", 2, 3},
                           [](GraphProtoBuilder& m) {
                             m.Ints("zero", {0}).Ints("image", {3, 8, 8});
                             m.Node("Shape", {"x"}, {"s"});
                             m.Node("Gather", {"s", "zero"}, {"n"});
                             m.Node("Concat", {"n", "image"}, {"size"}).Int("axis", 0);
                             m.Node("AffineGrid", {"x", "size"}, {"y"});
                           },
                           ""},
                      Case{"gram of rows",
                           {"b", 4},
                           [](GraphProtoBuilder& m) {
                             m.Node("Transpose", {"x"}, {"t"}).Ints("perm", {1, 0});
                             m.Node("MatMul", {"x", "t"}, {"y"});
                           },
                           "along different dimensions"},
                      Case{"attention",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) {
                             m.Node("Transpose", {"x"}, {"t"}).Ints("perm", {0, 2, 1});
                             m.Node("MatMul", {"x", "t"}, {"s"});
                             m.Node("Softmax", {"s"}, {"p"}).Int("axis", -1);
                             m.Node("MatMul", {"p", "x"}, {"y"});
                           },
                           ""},
                      Case{"gemm",
                           {"b", 4},
                           [](GraphProtoBuilder& m) {
                             Weights(m, "w", {5, 4});
                             Weights(m, "c", {5});
                             m.Node("Gemm", {"x", "w", "c"}, {"y"}).Int("transB", 1);
                           },
                           ""},
                      Case{"gemm over the batch",
                           {"b", 4},
                           [](GraphProtoBuilder& m) {
                             Weights(m, "w", {4, 5});
                             m.Node("Gemm", {"x", "w"}, {"y"}).Int("transA", 1);
                           },
                           "works along the batch"},
                      Case{
                          "convolution", {"b", 3, "h", "w"}, WithWeights("Conv", {4, 3, 3, 3}), ""},
                      Case{"pooling", {"b", 3, "h", "w"}, Unary("GlobalAveragePool"), ""},
                      Case{"pooling with indices",
                           {"b", 3, 8, 8},
                           [](GraphProtoBuilder& m) {
                             m.Node("MaxPool", {"x"}, {"y", "i"}).Ints("kernel_shape", {2, 2});
                             m.Output("i", kInt64);
                           },
                           "its output 1 does not keep rows apart"}));

INSTANTIATE_TEST_SUITE_P(
    Axes, BatchAxisTest,
    ::testing::Values(
        Case{"softmax", {"b", 4}, WithAxis("Softmax", 1), ""},
        Case{"softmax over the batch", {"b", 4}, WithAxis("Softmax", 0), "works along the batch"},
        Case{"softmax over the batch from the back",
             {"b", 4},
             WithAxis("Softmax", -2),
             "works along the batch"},
        Case{"sum of columns", {"b", 4, 5}, WithInts("ReduceSum", {1}), ""},
        Case{"sum of all", {"b", 4}, Unary("ReduceSum"), "works along the batch"},
        Case{"sum over the batch", {"b", 4}, WithInts("ReduceSum", {0}), "works along the batch"},
        Case{"mean of all but the batch",
             {"b", 4, "t"},
             [](GraphProtoBuilder& m) {
               m.Node("ReduceMean", {"x"}, {"y"}).Ints("axes", {1, 2});
             },
             ""},
        Case{"normalisation over the batch",
             {"b", 3, 4, 4},
             Unary("MeanVarianceNormalization"),
             "works along the batch"},
        Case{"layer normalisation",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               Weights(m, "s", {4});
               m.Node("LayerNormalization", {"x", "s"}, {"y"}).Int("axis", -1);
             },
             ""},
        Case{"top-k",
             {"b", 8},
             [](GraphProtoBuilder& m) {
               m.Ints("k", {3});
               m.Node("TopK", {"x", "k"}, {"y", "i"}).Int("axis", 1);
               m.Output("i", kInt64);
             },
             ""},
        Case{"dynamic quantisation",
             {"b", 8},
             [](GraphProtoBuilder& m) {
               m.Node("DynamicQuantizeLinear", {"x"}, {"q", "s", "z"});
               m.Node("DequantizeLinear", {"q", "s", "z"}, {"y"});
             },
             "not known to keep rows apart"},
        Case{"sequence first output",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               m.Node("Transpose", {"x"}, {"y"}).Ints("perm", {1, 0, 2});
             },
             "output 'y' has the batch along dimension 1"}));

INSTANTIATE_TEST_SUITE_P(
    Shapes, BatchAxisTest,
    ::testing::Values(
        Case{"flatten", {"b", 3, 4}, WithAxis("Flatten", 1), ""},
        Case{"flatten into rows", {"b", 3, 4}, WithAxis("Flatten", 2), "several entries"},
        Case{"reshape", {"b", 12}, WithInts("Reshape", {-1, 3, 4}), ""},
        Case{"reshape that copies", {"b", "t", 12}, WithInts("Reshape", {0, 0, 3, 4}), ""},
        Case{"reshape that fixes the batch",
             {"b", 12},
             WithInts("Reshape", {1, 3, 4}),
             "its result has 12 entries, whatever the batch size"},
        Case{"reshape that moves entries between rows",
             {"b", 12},
             WithInts("Reshape", {-1, 8}),
             "cannot be followed"},
        Case{"sizes that only shape inference follows",
             {"b", 12},
             [](GraphProtoBuilder& m) {
               m.Ints("four", {4}).Ints("three", {3}).Ints("zero", {0}).Ints("parts", {1, 1});
               m.Node("Shape", {"x"}, {"shape"});
               m.Node("Gather", {"shape", "zero"}, {"b"});
               m.Node("Mul", {"b", "four"}, {"b4"});
               m.Node("Concat", {"b4", "three"}, {"both"}).Int("axis", 0);
               m.Node("Split", {"both", "parts"}, {"rows", "columns"}).Int("axis", 0);
               m.Node("Concat", {"rows", "columns"}, {"wanted"}).Int("axis", 0);
               m.Node("Reshape", {"x", "wanted"}, {"r"});
               m.Node("Reshape", {"r", "shape"}, {"y"});
             },
             ""},
        Case{"reshape with shape arithmetic",
             {"b", "t", 12},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("one", {1}).Ints("rest", {3, 4});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Gather", {"s", "one"}, {"t"});
               m.Node("Concat", {"n", "t", "rest"}, {"shape"}).Int("axis", 0);
               m.Node("Reshape", {"x", "shape"}, {"heads"});
               m.Node("Transpose", {"heads"}, {"y"}).Ints("perm", {0, 2, 1, 3});
             },
             ""},
        Case{"heads folded into the batch and back",
             {"b", "t", 12},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("one", {1}).Ints("three", {3}).Ints("four", {4});
               m.Ints("back", {-1, 3}).Ints("split", {0, 0, 3, 4});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Gather", {"s", "one"}, {"t"});
               m.Node("Mul", {"n", "three"}, {"n3"});
               m.Node("Reshape", {"x", "split"}, {"heads"});
               m.Node("Transpose", {"heads"}, {"h"}).Ints("perm", {0, 2, 1, 3});
               m.Node("Concat", {"n3", "t", "four"}, {"folded"}).Int("axis", 0);
               m.Node("Reshape", {"h", "folded"}, {"f"});
               m.Node("Softmax", {"f"}, {"p"}).Int("axis", 1);
               m.Node("Concat", {"n", "three", "t", "four"}, {"unfolded"}).Int("axis", 0);
               m.Node("Reshape", {"p", "unfolded"}, {"y"});
             },
             ""},
        Case{"softmax over heads folded into the batch",
             {"b", 3, 4},
             [](GraphProtoBuilder& m) {
               m.Ints("folded", {-1, 4}).Ints("back", {-1, 3, 4});
               m.Node("Reshape", {"x", "folded"}, {"f"});
               m.Node("Softmax", {"f"}, {"p"}).Int("axis", 0);
               m.Node("Reshape", {"p", "back"}, {"y"});
             },
             "works along the batch"},
        Case{"time folded in front of the batch and back",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("rows", {-1, 4}).Ints("zero", {0}).Ints("one", {1}).Ints("four", {4});
               Weights(m, "w", {4, 4});
               m.Node("Transpose", {"x"}, {"tb"}).Ints("perm", {1, 0, 2});
               m.Node("Reshape", {"tb", "rows"}, {"f"});
               m.Node("MatMul", {"f", "w"}, {"g"});
               m.Node("Shape", {"tb"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"t"});
               m.Node("Gather", {"s", "one"}, {"n"});
               m.Node("Concat", {"t", "n", "four"}, {"shape"}).Int("axis", 0);
               m.Node("Reshape", {"g", "shape"}, {"h"});
               m.Node("Transpose", {"h"}, {"y"}).Ints("perm", {1, 0, 2});
             },
             ""},
        Case{"time folded in front of the batch, unfolded the wrong way",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("rows", {-1, 4});
               m.Node("Transpose", {"x"}, {"tb"}).Ints("perm", {1, 0, 2});
               m.Node("Reshape", {"tb", "rows"}, {"f"});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Reshape", {"f", "s"}, {"y"});
             },
             "does not keep one block of entries for each row"},
        Case{"class token",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               Weights(m, "token", {1, 1, 4});
               m.Ints("zero", {0}).Ints("rest", {-1, -1}).Ints("minus", {-1}).Ints("length", {3});
               m.Ints("ones3", {1, 1, 1});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Concat", {"n", "rest"}, {"wanted"}).Int("axis", 0);
               // As PyTorch writes expand(n, -1, -1).
               m.Node("Mul", {"ones3", "minus"}, {"minuses"});
               m.Node("Equal", {"wanted", "minuses"}, {"keep"});
               m.Node("Where", {"keep", "ones3", "wanted"}, {"shape"});
               m.Node("Expand", {"token", "shape"}, {"tokens"});
               m.Node("Concat", {"tokens", "x"}, {"y"}).Int("axis", 1);
             },
             ""},
        Case{"concatenation of rows",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Node("Concat", {"x", "x"}, {"y"}).Int("axis", 0);
             },
             "works along the batch"},
        Case{"shape of a number that nobody knows",
             {"b", 4, "h", "w"},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("two", {2}).Ints("three", {3}).Ints("channels", {4});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Gather", {"s", "two"}, {"h"});
               m.Node("Gather", {"s", "three"}, {"w"});
               m.Node("Sub", {"h", "two"}, {"less"});
               m.Node("Add", {"less", "two"}, {"again"});
               m.Node("Mul", {"again", "w"}, {"places"});
               m.Node("Concat", {"n", "channels", "places"}, {"shape"}).Int("axis", 0);
               m.Node("Reshape", {"x", "shape"}, {"y"});
             },
             ""},
        Case{"the same entries of each row",
             {"b", 3, 3},
             [](GraphProtoBuilder& m) {
               auto* places = m.Tensor("places", kInt64, {2, 2});
               for (int64_t v : {0, 1, 2, 2}) places->add_int64_data(v);
               m.Node("Transpose", {"x"}, {"t"}).Ints("perm", {1, 2, 0});
               m.Node("GatherND", {"t", "places"}, {"picked"});
               m.Node("Transpose", {"picked"}, {"y"}).Ints("perm", {1, 0});
             },
             ""},
        Case{"the same rows of each batch",
             {"b", 3, 3},
             [](GraphProtoBuilder& m) {
               auto* places = m.Tensor("places", kInt64, {2, 2});
               for (int64_t v : {0, 1, 2, 2}) places->add_int64_data(v);
               m.Node("GatherND", {"x", "places"}, {"y"});
             },
             "picks along the batch"},
        Case{"squeeze of everything",
             {"b", 1, 4},
             Unary("Squeeze"),
             "drops dimensions that happen to be 1"},
        Case{"a shape that names the batch twice",
             {"b", 12},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("open", {-1});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Concat", {"n", "n", "open"}, {"shape"}).Int("axis", 0);
               m.Node("Reshape", {"x", "shape"}, {"y"});
             },
             "several dimensions of its result depend on the batch"},
        Case{"squeeze", {"b", 1, 4}, WithInts("Squeeze", {1}), ""},
        Case{"unsqueeze in front",
             {"b", 4},
             WithInts("Unsqueeze", {0}),
             "has the batch along dimension 1"},
        Case{"first row",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("one", {1});
               m.Node("Slice", {"x", "zero", "one", "zero"}, {"y"});
             },
             "works along the batch"},
        Case{"all rows",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0}).Ints("many", {1000000000});
               m.Node("Slice", {"x", "zero", "many", "zero"}, {"y"});
             },
             ""},
        Case{"positions cut to the length, then reshaped",
             {"b", "t", 12},
             [](GraphProtoBuilder& m) {
               Weights(m, "table", {1, 64, 12});
               m.Ints("zero", {0}).Ints("one", {1}).Ints("heads", {3, 4});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "one"}, {"t"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Slice", {"table", "zero", "t", "one"}, {"positions"});
               m.Node("Add", {"x", "positions"}, {"e"});
               m.Node("Concat", {"n", "t", "heads"}, {"shape"}).Int("axis", 0);
               m.Node("Reshape", {"e", "shape"}, {"y"});
             },
             ""},
        Case{"first token",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0});
               m.Node("Gather", {"x", "zero"}, {"y"}).Int("axis", 1);
             },
             ""},
        Case{"chosen row",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0});
               m.Node("Gather", {"x", "zero"}, {"y"}).Int("axis", 0);
             },
             "picks along the batch"},
        Case{"row numbers",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               auto scalar = [&m](const std::string& name, int64_t v) {
                 m.Tensor(name, kInt64, {})->add_int64_data(v);
               };
               scalar("zero", 0);
               scalar("one", 1);
               m.Ints("last", {1});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"}).Int("axis", 0);
               m.Node("Range", {"zero", "n", "one"}, {"r"});
               m.Node("Cast", {"r"}, {"f"}).Int("to", kFloat);
               m.Node("Unsqueeze", {"f", "last"}, {"c"});
               m.Node("Add", {"x", "c"}, {"y"});
             },
             "not known to keep rows apart"},
        Case{"division by the batch size",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               m.Ints("zero", {0});
               m.Node("Shape", {"x"}, {"s"});
               m.Node("Gather", {"s", "zero"}, {"n"});
               m.Node("Cast", {"n"}, {"f"}).Int("to", kFloat);
               m.Node("Div", {"x", "f"}, {"y"});
             },
             "computes with the batch size"},
        Case{"output that nobody's rows reach",
             {"b", 4},
             [](GraphProtoBuilder& m) {
               Weights(m, "w", {2, 2});
               m.Node("Relu", {"w"}, {"y"});
             },
             "output 'y' does not depend on the rows"}));

INSTANTIATE_TEST_SUITE_P(
    Recurrent, BatchAxisTest,
    ::testing::Values(
        Case{"batch first LSTM",
             {"b", "t", 4},
             [](GraphProtoBuilder& m) {
               Weights(m, "w", {1, 20, 4});
               Weights(m, "r", {1, 20, 5});
               m.Ints("one", {1});
               m.Node("Transpose", {"x"}, {"tb"}).Ints("perm", {1, 0, 2});
               m.Node("LSTM", {"tb", "w", "r"}, {"h"}).Int("hidden_size", 5);
               m.Node("Squeeze", {"h", "one"}, {"q"});
               m.Node("Transpose", {"q"}, {"y"}).Ints("perm", {1, 0, 2});
             },
             ""},
        Case{
            "LSTM with zero state of the batch's size",
            {"b", "t", 4},
            [](GraphProtoBuilder& m) {
              Weights(m, "w", {1, 20, 4});
              Weights(m, "r", {1, 20, 5});
              m.Ints("one", {1}).Ints("zero", {0}).Ints("five", {5});
              m.Node("Shape", {"x"}, {"s"});
              m.Node("Gather", {"s", "zero"}, {"n"});
              m.Node("Concat", {"one", "n", "five"}, {"state"}).Int("axis", 0);
              m.Node("ConstantOfShape", {"state"}, {"h0"});
              m.Node("Transpose", {"x"}, {"tb"}).Ints("perm", {1, 0, 2});
              m.Node("LSTM", {"tb", "w", "r", "", "", "h0", "h0"}, {"", "h"}).Int("hidden_size", 5);
              m.Node("Squeeze", {"h", "zero"}, {"y"});
            },
            ""},
        Case{"LSTM along the batch",
             {"b", 1, 4},
             [](GraphProtoBuilder& m) {
               Weights(m, "w", {1, 20, 4});
               Weights(m, "r", {1, 20, 5});
               m.Node("LSTM", {"x", "w", "r"}, {"y"}).Int("hidden_size", 5);
             },
             "works along the batch"}));

TEST(BatchAxisInputsTest, InputsMustShareTheSymbol) {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"b", 4}).Input("c", kFloat, {"other", 4}).Output("y", kFloat);
  m.Node("Relu", {"a"}, {"y"});
  EXPECT_THAT(Analyse(m).why, HasSubstr("inputs 'a' and 'c' are not known to share dimension 0"));
}

TEST(BatchAxisInputsTest, AFixedOrMissingBatchIsNamed) {
  ModelBuilder fixed(17);
  fixed.Input("a", kFloat, {1, 4}).Output("y", kFloat);
  fixed.Node("Relu", {"a"}, {"y"});
  EXPECT_THAT(Analyse(fixed).why, HasSubstr("dimension 0 of input 'a' is fixed to 1"));
  ModelBuilder scalar(17);
  scalar.Input("a", kFloat, {}).Output("y", kFloat);
  scalar.Node("Relu", {"a"}, {"y"});
  EXPECT_THAT(Analyse(scalar).why, HasSubstr("'a' is a scalar"));
}

TEST(BatchAxisInputsTest, SeveralInputsOfOneSymbolBatch) {
  ModelBuilder m(17);
  m.Input("ids", kInt64, {"batch", "seq"}).Input("mask", kInt64, {"batch", "seq"});
  m.Output("y", kFloat);
  Weights(m, "table", {10, 4});
  m.Ints("last", {2});
  m.Node("Gather", {"table", "ids"}, {"e"});
  m.Node("Cast", {"mask"}, {"f"}).Int("to", kFloat);
  m.Node("Unsqueeze", {"f", "last"}, {"u"});
  m.Node("Mul", {"e", "u"}, {"y"});
  const BatchAxisReport report = Analyse(m);
  EXPECT_TRUE(report.batches) << report.why;
  EXPECT_THAT(report.why, HasSubstr("inputs share dimension 0 'batch'"));
}

TEST(BatchAxisInputsTest, DeformableConvolutionKeepsImagesApartIfOffsetsAreTheirs) {
  for (const bool own : {true, false}) {
    ModelBuilder m(19);
    m.Input("x", kFloat, {"b", 2, 5, 5}).Output("y", kFloat);
    Weights(m, "w", {1, 2, 1, 1});
    Weights(m, "offset", {1, 2, 5, 5});
    m.Node("DeformConv", {"x", "w", own ? "x" : "offset"}, {"y"});
    EXPECT_EQ(Analyse(m).batches, own) << Analyse(m).why;
  }
}

// x [rows, 3] and s [2, rows, 3] to y [rows, 3], s' [2, rows, 3].
StatusOr<std::vector<int>> RowsOf(const std::function<void(GraphProtoBuilder&)>& build) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"rows", 3}).Input("s", kFloat, {2, "rows", 3});
  m.Output("y", kFloat).Output("t", kFloat);
  build(m);
  const StatusOr<ImportedModel> imported = m.Import();
  if (!imported.ok()) return imported.status();
  return AnalyseRows(imported->graph, "rows", std::vector<int>{0, 1});
}

TEST(RowsTest, MayLieAlongAnyDimension) {
  const auto axes = RowsOf([](GraphProtoBuilder& m) {
    m.Tensor("first", kInt64, {})->add_int64_data(0);
    m.Node("Gather", {"s", "first"}, {"h"}).Int("axis", 0);
    m.Node("Add", {"x", "h"}, {"y"});
    m.Node("Add", {"s", "y"}, {"t"});
  });
  ASSERT_TRUE(axes.ok()) << axes.status();
  EXPECT_EQ(*axes, (std::vector<int>{0, 1}));
}

TEST(RowsTest, OutputsThatCannotBeCutAreNamed) {
  const auto mixed = RowsOf([](GraphProtoBuilder& m) {
    m.Node("Relu", {"x"}, {"y"});
    m.Node("ReduceSum", {"s"}, {"t"}).Int("keepdims", 0);
  });
  EXPECT_THAT(Message(mixed.status()), HasSubstr("ReduceSum"));
  const auto shared = RowsOf([](GraphProtoBuilder& m) {
    Weights(m, "w", {3, 3});
    m.Node("Relu", {"x"}, {"y"});
    m.Node("Relu", {"w"}, {"t"});
  });
  EXPECT_THAT(Message(shared.status()), HasSubstr("output 't' does not depend on the rows"));
  // [2 · rows, 3]: two entries of each row, not side by side.
  const auto several = RowsOf([](GraphProtoBuilder& m) {
    m.Ints("flat", {-1, 3});
    m.Node("Relu", {"x"}, {"y"});
    m.Node("Reshape", {"s", "flat"}, {"t"});
  });
  EXPECT_THAT(Message(several.status()), HasSubstr("output 't' has several entries"));
}

// Attention over x [batch, 2, 3, 4] with a mask of its own shape.
BatchAxisReport AnalyseAttention(const std::vector<testing::DeclaredDim>& mask,
                                 const std::vector<testing::DeclaredDim>& past) {
  ModelBuilder m(23);
  m.Input("x", kFloat, {"batch", 2, 3, 4}).Input("mask", kFloat, mask);
  m.Input("past", kFloat, past).Output("y", kFloat).Output("k", kFloat).Output("v", kFloat);
  m.Node("Attention", {"x", "x", "x", "mask", "past", "past"}, {"y", "k", "v"});
  return Analyse(m);
}

TEST(BatchAxisTest, AttentionKeepsRowsApart) {
  const std::vector<testing::DeclaredDim> past = {"batch", 2, 5, 4};
  EXPECT_TRUE(AnalyseAttention({"batch", 1, 3, 8}, past).batches);
  EXPECT_FALSE(AnalyseAttention({1, 1, 3, 8}, past).batches);     // an input that is not batched
  EXPECT_FALSE(AnalyseAttention({"batch", 3, 8}, past).batches);  // its heads are the batch
  EXPECT_FALSE(AnalyseAttention({"batch", 1, 3, 8}, {1, 2, 5, 4}).batches);
  ModelBuilder m(23);
  m.Input("x", kFloat, {"batch", 2, 3, 4}).Output("y", kFloat);
  Weights(m, "mask", {3, 3});
  m.Node("Attention", {"x", "x", "x", "mask"}, {"y"});
  EXPECT_TRUE(Analyse(m).batches) << Analyse(m).why;
}

TEST(BatchAxisTest, WhatStandsBesideAttentionKeepsRowsApart) {
  ModelBuilder m(28);
  m.Input("x", kFloat, {"batch", "length", 8}).Input("ids", kInt64, {"batch", "length"});
  m.Input("at", kInt64, {"batch"}).Output("y", kFloat);
  for (const char* table : {"cos", "sin"}) Weights(m, table, {16, 2});
  Weights(m, "scale", {8});
  m.Node("RMSNormalization", {"x", "scale"}, {"normal"});
  m.Node("RotaryEmbedding", {"normal", "cos", "sin", "ids"}, {"turned"}).Int("num_heads", 2);
  m.Node("TensorScatter", {"x", "turned", "at"}, {"cache"});
  m.Node("Swish", {"cache"}, {"swish"});
  m.Node("SwiGLU", {"swish", "x"}, {"gated"});
  m.Node("LinearAttention", {"gated", "x", "x", "", "x", "x"}, {"y"})
      .Int("q_num_heads", 8)
      .Int("kv_num_heads", 8);
  const BatchAxisReport report = Analyse(m);
  EXPECT_TRUE(report.batches) << report.why;
}

// x [b, t, 4], looked up by the numbers of its rows beside others.
void LooksUp(GraphProtoBuilder& m, const std::function<void(GraphProtoBuilder&)>& change = {}) {
  m.Ints("one_axis", {1}).Ints("zero_axis", {0}).Ints("last", {-1});
  for (const auto& [name, number] : {std::pair("zero", 0), {"one", 1}}) {
    m.Tensor(name, kInt64, {})->add_int64_data(number);
  }
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"n"});
  m.Node("Gather", {"shape", "one"}, {"t"});
  m.Node("Range", {"zero", "n", "one"}, {"all_rows"});
  if (change) {
    change(m);
  } else {
    m.Node("Identity", {"all_rows"}, {"rows"});
  }
  m.Node("Range", {"zero", "t", "one"}, {"places"});
  m.Node("Unsqueeze", {"rows", "one_axis"}, {"rows2"});
  m.Node("Unsqueeze", {"places", "zero_axis"}, {"places2"});
  m.Node("Max", {"rows2", "places2"}, {"both"});
  m.Node("Shape", {"both"}, {"both_shape"});
  for (const std::string of : {"rows2", "places2"}) {
    m.Node("Expand", {of, "both_shape"}, {of + "_all"});
    m.Node("Unsqueeze", {of + "_all", "last"}, {of + "_column"});
  }
  m.Node("Concat", {"rows2_column", "places2_column"}, {"at"}).Int("axis", -1);
  m.Node("GatherND", {"x", "at"}, {"y"});
}
// The row of x [b, t, 4] that `last` says, or its own number where nothing is given.
void PicksLast(GraphProtoBuilder& m, const std::string& rows_op) {
  m.Ints("last_axis", {-1}).Ints("two_axis", {2});
  for (const auto& [name, number] : {std::pair("zero", 0), {"one", 1}}) {
    m.Tensor(name, kInt64, {})->add_int64_data(number);
  }
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"n"});
  m.Node("Range", {"zero", "n", "one"}, {"all_rows"});
  m.Node("ReduceMax", {"x"}, {"largest"}).Ints("axes", {2}).Int("keepdims", 0);
  m.Node("ArgMax", {"largest"}, {"best"}).Int("axis", 1).Int("keepdims", 0);
  m.Node(rows_op, {"all_rows", "zero"}, {"rows"});
  m.Node("Unsqueeze", {"rows", "last_axis"}, {"rows_column"});
  m.Node("Unsqueeze", {"best", "last_axis"}, {"best_column"});
  m.Node("Concat", {"rows_column", "best_column"}, {"at"}).Int("axis", -1);
  m.Node("GatherND", {"x", "at"}, {"y"});
}

// x [b, 2, 3] as one list, read at step·row + 3·i + j, as exporters write strided views.
void ReadsStrided(GraphProtoBuilder& m, int64_t step, int64_t more) {
  m.Ints("all", {-1}).Ints("others", {1, 2});
  for (const auto& [name, number] : {std::pair("zero", 0), {"one", 1}, {"step", int(step)}}) {
    m.Tensor(name, kInt64, {})->add_int64_data(number);
  }
  auto* rows = m.Tensor("columns", kInt64, {1, 2, 3});
  for (int64_t i = 0; i < 6; ++i) rows->add_int64_data(i + more);
  m.Node("Reshape", {"x", "all"}, {"flat"});
  m.Node("Shape", {"x"}, {"shape"});
  m.Node("Gather", {"shape", "zero"}, {"n"});
  m.Node("Range", {"zero", "n", "one"}, {"numbers"});
  m.Node("Mul", {"numbers", "step"}, {"starts"});
  m.Node("Unsqueeze", {"starts", "others"}, {"starts3"});
  m.Node("Add", {"starts3", "columns"}, {"at"});
  m.Node("Gather", {"flat", "at"}, {"y"});
}

INSTANTIATE_TEST_SUITE_P(StridedViews, BatchAxisTest,
                         ::testing::Values(Case{"each row's own block",
                                                {"b", 2, 3},
                                                [](GraphProtoBuilder& m) { ReadsStrided(m, 6, 0); },
                                                ""},
                                           Case{"a block that ends in the next row",
                                                {"b", 2, 3},
                                                [](GraphProtoBuilder& m) { ReadsStrided(m, 6, 1); },
                                                "numbers of rows"},
                                           Case{
                                               "a block that begins in the row before",
                                               {"b", 2, 3},
                                               [](GraphProtoBuilder& m) { ReadsStrided(m, 6, -1); },
                                               "numbers of rows"},
                                           Case{"blocks that overlap",
                                                {"b", 2, 3},
                                                [](GraphProtoBuilder& m) { ReadsStrided(m, 3, 0); },
                                                "numbers of rows"}));

// x [b, t, 12] with time first, as [t / 2 · 2, heads·b, columns]: as many where t is even.
void SplitsHeads(GraphProtoBuilder& m, int64_t heads, bool open) {
  m.Ints("zero", {0}).Ints("one", {1}).Ints("two", {2}).Ints("heads", {heads}).Ints("open", {-1});
  m.Ints("columns", {12 / heads});
  m.Node("Shape", {"x"}, {"s"});
  m.Node("Gather", {"s", "zero"}, {"n"});
  m.Node("Gather", {"s", "one"}, {"t"});
  m.Node("Div", {"t", "two"}, {"half"});
  m.Node("Mul", {"half", "two"}, {"even"});
  m.Node("Mul", {"n", "heads"}, {"rows"});
  m.Node("Transpose", {"x"}, {"first"}).Ints("perm", {1, 0, 2});
  m.Node("Concat", {"even", "rows", open ? "open" : "columns"}, {"shape"}).Int("axis", 0);
  m.Node("Reshape", {"first", "shape"}, {"split"});
  m.Ints("all", {12});
  m.Node("Concat", {"even", "n", "all"}, {"shape3"}).Int("axis", 0);
  m.Node("Reshape", {"split", "shape3"}, {"joined"});
  m.Node("Transpose", {"joined"}, {"y"}).Ints("perm", {1, 0, 2});
}

INSTANTIATE_TEST_SUITE_P(
    SizesOfOtherNames, BatchAxisTest,
    ::testing::Values(Case{"a length by another formula",
                           {"b", "t", 12},
                           [](GraphProtoBuilder& m) { SplitsHeads(m, 3, false); },
                           ""},
                      Case{"a length by another formula and an open dimension",
                           {"b", "t", 12},
                           [](GraphProtoBuilder& m) { SplitsHeads(m, 3, true); },
                           "does not keep one block of entries"}));

// x [b, 4, 4] of several images scaled along dimensions of its own, the batch behind one entry.
void Scales(GraphProtoBuilder& m, const std::string& rows, const std::string& policy) {
  m.Ints("zero", {0}).Ints("one", {1}).Ints("sides", {8, 8});
  m.Node("Shape", {"x"}, {"s"});
  m.Node("Gather", {"s", "zero"}, {"n"});
  m.Node("Add", {"n", "one"}, {"more"});
  m.Node("Unsqueeze", {"x", "zero"}, {"x4"});
  m.Node("Concat", {"one", rows, "sides"}, {"sizes"}).Int("axis", 0);
  m.Node("Resize", {"x4", "", "", "sizes"}, {"y4"})
      .String("mode", "linear")
      .String("keep_aspect_ratio_policy", policy);
  m.Node("Squeeze", {"y4", "zero"}, {"y"});
}

INSTANTIATE_TEST_SUITE_P(
    Resizes, BatchAxisTest,
    ::testing::Values(Case{"the batch behind one entry",
                           {"b", 4, 4},
                           [](GraphProtoBuilder& m) { Scales(m, "n", "stretch"); },
                           "",
                           18},
                      Case{"one image more",
                           {"b", 4, 4},
                           [](GraphProtoBuilder& m) { Scales(m, "more", "stretch"); },
                           "(Resize)",
                           18},
                      Case{"the batch as the sides",
                           {"b", 4, 4},
                           [](GraphProtoBuilder& m) { Scales(m, "n", "not_larger"); },
                           "(Resize)",
                           18}));

INSTANTIATE_TEST_SUITE_P(
    NumbersOfRows, BatchAxisTest,
    ::testing::Values(Case{"each row at its own number",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) { LooksUp(m); },
                           ""},
                      Case{"numbers from the end, never taken",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) {
                             LooksUp(m, [](GraphProtoBuilder& b) {
                               b.Node("Less", {"all_rows", "zero"}, {"negative"});
                               b.Node("Add", {"all_rows", "n"}, {"wrapped"});
                               b.Node("Where", {"negative", "wrapped", "all_rows"}, {"rows"});
                             });
                           },
                           ""},
                      Case{"as many as all entries are, divided among rows",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) {
                             LooksUp(m, [](GraphProtoBuilder& b) {
                               b.Node("Mul", {"n", "t"}, {"all"});
                               b.Node("Div", {"all", "t"}, {"divided"});
                               b.Node("Range", {"zero", "divided", "one"}, {"rows"});
                             });
                           },
                           ""},
                      Case{"rows in reverse",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) {
                             LooksUp(m, [](GraphProtoBuilder& b) {
                               b.Node("Sub", {"n", "one"}, {"end"});
                               b.Node("Sub", {"end", "all_rows"}, {"rows"});
                             });
                           },
                           "computes with the numbers of rows"},
                      Case{"the first row for all",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) {
                             LooksUp(m, [](GraphProtoBuilder& b) {
                               b.Node("Mul", {"all_rows", "zero"}, {"rows"});
                             });
                           },
                           "(GatherND)"},
                      Case{"the best place of each row",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) { PicksLast(m, "Add"); },
                           ""},
                      Case{"the best place of the first row",
                           {"b", "t", 4},
                           [](GraphProtoBuilder& m) { PicksLast(m, "Mul"); },
                           "(GatherND)"},
                      Case{"added to the rows",
                           {"b", 4},
                           [](GraphProtoBuilder& m) {
                             m.Ints("one_axis", {1});
                             for (const auto& [name, number] : {std::pair("zero", 0), {"one", 1}}) {
                               m.Tensor(name, kInt64, {})->add_int64_data(number);
                             }
                             m.Node("Shape", {"x"}, {"shape"});
                             m.Node("Gather", {"shape", "zero"}, {"n"});
                             m.Node("Range", {"zero", "n", "one"}, {"rows"});
                             m.Node("Unsqueeze", {"rows", "one_axis"}, {"column"});
                             m.Node("Cast", {"column"}, {"number"}).Int("to", kFloat);
                             m.Node("Add", {"x", "number"}, {"y"});
                           },
                           "computes with the numbers of rows"},
                      Case{"of a table",
                           {"b", 4},
                           [](GraphProtoBuilder& m) {
                             auto* table = m.Tensor("table", kFloat, {9, 4});
                             for (int i = 0; i < 36; ++i)
                               table->add_float_data(static_cast<float>(i));
                             for (const auto& [name, number] : {std::pair("zero", 0), {"one", 1}}) {
                               m.Tensor(name, kInt64, {})->add_int64_data(number);
                             }
                             m.Node("Shape", {"x"}, {"shape"});
                             m.Node("Gather", {"shape", "zero"}, {"n"});
                             m.Node("Range", {"zero", "n", "one"}, {"rows"});
                             m.Node("Gather", {"table", "rows"}, {"picked"});
                             m.Node("Add", {"x", "picked"}, {"y"});
                           },
                           "computes with the numbers of rows"}));

}  // namespace
}  // namespace chairlift
