// What operators say of their axes is true of their kernels: entries picked along a label before
// the operator are entries picked after it. Every operator that says something has a case here.
#include "ops/axis_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/text.h"
#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Attrs;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;

// Random floats, integers in [0, high), or the numbers of an argument.
struct Input {
  Input() = default;
  Input(DType type, const Shape& of, double from, double to)
      : dtype(type), shape(of), low(from), high(to) {}
  explicit Input(const Tensor& value) : argument({value}) {}

  DType dtype = DType::kUndefined;
  Shape shape;
  double low = 0, high = 0;
  std::vector<Tensor> argument;  // at most one

  Tensor Make(uint32_t seed) const {
    if (!argument.empty()) return argument[0];
    if (dtype == DType::kUndefined) return {};
    if (dtype == DType::kBytes) return Texts(seed);
    return RandomTensor(dtype, shape, low, high, seed);
  }
  // Strings that are numbers.
  Tensor Texts(uint32_t seed) const {
    std::vector<std::string> texts;
    for (int64_t i = 0; i < shape.NumElements(); ++i) {
      texts.push_back(std::to_string((seed + 7 * static_cast<uint32_t>(i)) % 10));
    }
    return TextTensor(shape, std::move(texts));
  }
};

Input Floats(const Shape& shape) { return {DType::kFloat, shape, 0.5, 2.0}; }
Input Bytes(const Shape& shape) { return {DType::kUInt8, shape, 0, 200}; }
Input Indices(const Shape& shape, int64_t end) {
  return {DType::kInt64, shape, 0, static_cast<double>(end)};
}
Input Ints(std::initializer_list<int64_t> values) {
  return Input(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values));
}
Input Int(int64_t value) { return Input(Tensor::Scalar(value)); }
// 0, 1, 2, 3, 0, ...
Input Places(const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<int64_t>()[i] = i % 4;
  return Input(t);
}
Input Absent() { return {}; }

struct Case {
  std::string op;
  std::vector<Input> inputs;
  Attributes attributes = {};
  int outputs = 1;
  std::string domain = "";
};

DType FirstOf(TypeSet types) {
  for (const DType dtype : {DType::kFloat, DType::kBool, DType::kUInt8, DType::kInt32}) {
    if (types.Contains(dtype)) return dtype;
  }
  if (types.Contains(DType::kBytes)) return DType::kBytes;
  return DType::kInt64;
}

// An elementwise operator, with operands of one shape and with operands that broadcast.
std::vector<Case> ElementwiseCases(const OperatorDef& def) {
  const Attributes attributes = Attrs({{"to", int64_t{6}},
                                       {"direction", std::string("LEFT")},
                                       {"fmod", int64_t{1}},
                                       {"keys", Tensor::Of<float>({1}, {1})},  // of Lookup
                                       {"values", Tensor::Of<float>({1}, {2})},
                                       {"default", Tensor::Of<float>({1}, {3})}});
  const int count = def.max_inputs == OperatorDef::kVariadic ? 3 : def.min_inputs;
  std::vector<Case> cases;
  for (const bool broadcast : {false, true}) {
    Case c{.op = def.name, .inputs = {}, .attributes = attributes, .domain = def.domain};
    const std::vector<Shape> shapes = {Shape{3, 4, 5}, Shape{4, 1}, Shape{3, 1, 1}};
    for (int i = 0; i < count; ++i) {
      const size_t last = def.input_types.size() - 1;
      const DType dtype = FirstOf(def.input_types[std::min(static_cast<size_t>(i), last)]);
      c.inputs.push_back({dtype, shapes[broadcast ? static_cast<size_t>(i) : 0], 0.5, 3.0});
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Case> Convolutions() {
  const Attributes pads = Attrs({{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  const Input scale(Tensor::Scalar(0.05f));
  const Input zero(Tensor::Scalar(uint8_t{3}));
  return {
      {"Conv", {Floats({3, 4, 6, 6}), Floats({5, 4, 3, 3}), Floats({5})}, pads},
      {"Conv", {Floats({3, 4, 6, 6}), Floats({5, 4, 1, 1}), Floats({5})}},
      {"Conv",
       {Floats({3, 4, 6, 6}), Floats({5, 4, 1, 3})},
       Attrs({{"strides", std::vector<int64_t>{1, 2}}})},
      {"ConvTranspose", {Floats({3, 4, 6, 6}), Floats({4, 5, 3, 3})}},
      {"ConvInteger", {Bytes({3, 4, 6, 6}), Bytes({5, 4, 3, 3}), zero}, pads},
      {"QLinearConv",
       {Bytes({3, 4, 6, 6}), scale, zero, Bytes({5, 4, 3, 3}), scale, zero, scale, zero},
       pads},
      {"QLinearConv",
       {Bytes({3, 6, 6, 4}), scale, zero, Bytes({5, 4, 3, 3}), scale, zero, scale, zero},
       Attrs({{"pads", std::vector<int64_t>{1, 1, 1, 1}}, {"channels_last", int64_t{1}}}),
       1,
       "chairlift"},
      {"DeformConv",
       {Floats({3, 4, 5, 5}), Floats({5, 4, 3, 3}), Floats({3, 18, 3, 3}), Floats({5}),
        Floats({3, 9, 3, 3})}},
      {"Col2Im", {Floats({3, 8, 9}), Ints({4, 4}), Ints({2, 2})}},
  };
}

std::vector<Case> Pools() {
  std::vector<Case> cases;
  const Attributes kernel = Attrs({{"kernel_shape", std::vector<int64_t>{2, 2}}});
  for (const char* op : {"AveragePool", "LpPool", "MaxPool"}) {
    cases.push_back({op, {Floats({3, 4, 6, 6})}, kernel});
  }
  cases.push_back({"MaxPool", {Floats({3, 4, 6, 6})}, kernel, 2});
  cases.push_back({"ByteMaxPool", {Bytes({3, 6, 6, 4})}, kernel, 1, "chairlift"});
  for (const char* op : {"GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"}) {
    cases.push_back({op, {Floats({3, 4, 6, 6})}});
  }
  return cases;
}

std::vector<Case> Reductions() {
  std::vector<Case> cases;
  const Attributes drop = Attrs({{"keepdims", int64_t{0}}});
  for (const char* op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                         "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"}) {
    cases.push_back({op, {Floats({3, 4, 5}), Ints({1})}});
    cases.push_back({op, {Floats({3, 4, 5}), Ints({0, -1})}, drop});
  }
  for (const char* op : {"ArgMax", "ArgMin"}) {
    cases.push_back({op, {Floats({3, 4, 5})}, Attrs({{"axis", int64_t{1}}})});
    cases.push_back({op, {Floats({3, 4, 5})}, drop});
  }
  for (const char* op : {"Hardmax", "LogSoftmax", "LpNormalization", "Softmax"}) {
    cases.push_back({op, {Floats({3, 4, 5})}});
    cases.push_back({op, {Floats({3, 4, 5})}, Attrs({{"axis", int64_t{1}}})});
  }
  cases.push_back({"TopK", {Floats({3, 4, 5}), Ints({2})}, Attrs({{"axis", int64_t{1}}}), 2});
  for (const char* op : {"CumProd", "CumSum"}) {
    cases.push_back({op, {Floats({3, 4, 5}), Int(1)}});
    cases.push_back({op, {Floats({3, 4, 5}), Int(-3)}, Attrs({{"reverse", int64_t{1}}})});
  }
  return cases;
}

std::vector<Case> Normalizations() {
  return {
      {"BatchNormalization",
       {Floats({3, 4, 5}), Floats({4}), Floats({4}), Floats({4}), Floats({4})}},
      {"GroupNormalization",
       {Floats({3, 4, 5}), Floats({4}), Floats({4})},
       Attrs({{"num_groups", int64_t{2}}})},
      {"InstanceNormalization", {Floats({3, 4, 5}), Floats({4}), Floats({4})}},
      {"LRN", {Floats({3, 4, 5, 5})}, Attrs({{"size", int64_t{3}}})},
      {"LayerNormalization", {Floats({3, 4, 5}), Floats({5}), Floats({5})}, {}, 3},
      {"LayerNormalization", {Floats({3, 4, 5}), Floats({4, 5})}, Attrs({{"axis", int64_t{1}}})},
      {"MeanVarianceNormalization", {Floats({3, 4, 5, 6})}},
      {"MeanVarianceNormalization",
       {Floats({3, 4, 5})},
       Attrs({{"axes", std::vector<int64_t>{1}}})},
      {"RMSNormalization", {Floats({3, 4, 5}), Floats({5})}},
  };
}

std::vector<Case> Movements() {
  const auto axis = [](int64_t a) { return Attrs({{"axis", a}}); };
  const Attributes block = Attrs({{"blocksize", int64_t{2}}});
  return {
      {"ChannelShuffle", {Floats({3, 6, 5})}, Attrs({{"groups", int64_t{2}}}), 1, "chairlift"},
      {"Concat", {Floats({3, 2, 5}), Floats({3, 4, 5})}, axis(1)},
      {"DepthToSpace", {Floats({3, 8, 2, 3})}, block},
      {"Dropout", {Floats({3, 4})}},
      {"Expand", {Floats({3, 1, 5}), Ints({2, 3, 4, 5})}},
      {"Flatten", {Floats({3, 4, 5})}},
      {"Gather", {Floats({3, 4, 5}), Indices({2, 3}, 4)}, axis(1)},
      {"Gather", {Floats({3, 4}), Int(1)}, axis(-1)},
      {"GatherElements", {Floats({3, 4, 5}), Indices({3, 2, 5}, 4)}, axis(1)},
      {"GatherND", {Floats({3, 3, 5}), Indices({4, 2}, 3)}},
      {"GatherND", {Floats({3, 4, 5}), Indices({3, 2, 1}, 4)}, Attrs({{"batch_dims", int64_t{1}}})},
      {"OneHot", {Indices({3, 4}, 5), Int(5), Input(Tensor::Of<float>(Shape{2}, {0, 1}))}, axis(1)},
      {"Pad", {Floats({3, 4, 5}), Ints({0, 1, 0, 0, 2, 0})}},
      {"Pad", {Floats({3, 4, 5}), Ints({1, 1}), Absent(), Ints({-2})}},
      {"Reshape", {Floats({3, 4}), Ints({2, 6})}},
      {"ReverseSequence", {Floats({4, 3, 2}), Indices({3}, 5)}},
      {"ScatterElements", {Floats({3, 4, 5}), Places({3, 1, 5}), Floats({3, 1, 5})}, axis(1)},
      {"Slice", {Floats({3, 4, 5}), Ints({1}), Ints({3}), Ints({1})}},
      {"SpaceToDepth", {Floats({3, 2, 4, 6})}, block},
      {"Split", {Floats({3, 4, 5}), Ints({1, 3})}, axis(1), 2},
      {"Squeeze", {Floats({3, 1, 5}), Ints({1})}},
      {"Tile", {Floats({3, 4, 5}), Ints({1, 2, 1})}},
      {"Transpose", {Floats({3, 4, 5})}, Attrs({{"perm", std::vector<int64_t>{1, 2, 0}}})},
      {"Transpose", {Floats({3, 4, 5})}},
      {"Trilu", {Floats({3, 2, 4, 4})}},
      {"Unsqueeze", {Floats({3, 4}), Ints({-1, 0})}},
  };
}

std::vector<Case> Products() {
  const auto equation = [](const char* text) { return Attrs({{"equation", std::string(text)}}); };
  const Input scale(Tensor::Scalar(0.05f));
  const Input zero(Tensor::Scalar(uint8_t{3}));
  return {
      {"Einsum", {Floats({3, 4, 5}), Floats({3, 5, 6})}, equation("bij,bjk->bik")},
      {"Einsum", {Floats({3, 4, 4, 5}), Floats({5, 6})}, equation("...iij,jk->...ki")},
      {"Gemm", {Floats({3, 4}), Floats({4, 5}), Floats({5})}},
      {"Gemm",
       {Floats({4, 3}), Floats({5, 4}), Floats({3, 1})},
       Attrs({{"transA", int64_t{1}}, {"transB", int64_t{1}}})},
      {"MatMul", {Floats({3, 4, 5}), Floats({5, 6})}},
      {"MatMul", {Floats({2, 3, 4, 5}), Floats({3, 5, 6})}},
      {"MatMul", {Floats({1, 4, 5}), Floats({3, 5, 6})}},
      {"MatMul", {Floats({3, 4, 5}), Floats({5})}},
      {"MatMul", {Floats({5}), Floats({3, 5, 4})}},
      {"MatMulNBits",
       {Floats({3, 4, 16}), Bytes({6, 1, 8}), Floats({6}), Floats({3, 4, 6}), Floats({6})},
       Attrs({{"K", int64_t{16}}, {"N", int64_t{6}}, {"block_size", int64_t{16}}}),
       1,
       "chairlift"},
      {"MatMulInteger", {Bytes({3, 4, 5}), Bytes({5, 6}), zero, Bytes({6})}},
      {"MatMulInteger", {Bytes({3, 4, 5}), Bytes({3, 5, 6}), Bytes({3, 4, 1}), Bytes({3, 1, 6})}},
      {"MatMulInteger", {Bytes({4, 5}), Bytes({5, 6}), Bytes({4})}},
      {"QLinearMatMul", {Bytes({3, 4, 5}), scale, zero, Bytes({5, 6}), scale, zero, scale, zero}},
      {"QLinearMatMul",
       {Bytes({4, 5}), Floats({4}), Bytes({4}), Bytes({5, 6}), Floats({6}), Bytes({6}), scale,
        zero}},
      {"QLinearAdd",
       {Bytes({3, 4, 5}), scale, zero, Bytes({4, 1}), scale, zero, scale, zero},
       {},
       1,
       "chairlift"},
      {"QLinearMul",
       {Bytes({4, 5}), scale, zero, Bytes({3, 1, 5}), scale, zero, scale, zero},
       {},
       1,
       "chairlift"},
      {"Requantize", {Floats({3, 4, 5}), scale, scale, zero}, {}, 1, "chairlift"},
      {"Requantize", {Floats({3, 4, 5}), scale, scale, zero, Floats({5})}, {}, 1, "chairlift"},
      {"QuantizeLinear", {Floats({3, 4, 5}), scale, zero}},
      {"QuantizeLinear", {Floats({3, 4, 5}), Floats({4}), Bytes({4})}},
      {"DequantizeLinear", {Bytes({3, 4, 5}), scale, zero}},
      {"DequantizeLinear", {Bytes({3, 4, 5}), Floats({5})}, Attrs({{"axis", int64_t{-1}}})},
  };
}

std::vector<Case> Sequences() {
  std::vector<Case> cases;
  for (const auto& [op, gates] : {std::pair("LSTM", 4), {"GRU", 3}, {"RNN", 1}}) {
    for (const int64_t layout : {0, 1}) {
      const Attributes attributes = Attrs({{"hidden_size", int64_t{2}}, {"layout", layout}});
      const Shape x = layout == 0 ? Shape{4, 3, 5} : Shape{3, 4, 5};
      const Shape state = layout == 0 ? Shape{1, 3, 2} : Shape{3, 1, 2};
      const Input lengths(Tensor::Of<int32_t>(Shape{3}, {4, 1, 2}));
      std::vector<Input> inputs = {Floats(x),
                                   Floats({1, 2 * gates, 5}),
                                   Floats({1, 2 * gates, 2}),
                                   Floats({1, 4 * gates}),
                                   lengths,
                                   Floats(state)};
      if (gates == 4) inputs.push_back(Floats(state));
      cases.push_back({op, inputs, attributes, gates == 4 ? 3 : 2});
    }
  }
  const Attributes heads = Attrs({{"q_num_heads", int64_t{2}}, {"kv_num_heads", int64_t{2}}});
  cases.push_back({"Attention", {Floats({3, 4, 6}), Floats({3, 5, 6}), Floats({3, 5, 6})}, heads});
  cases.push_back({"Attention",
                   {Floats({3, 2, 4, 6}), Floats({3, 2, 5, 6}), Floats({3, 2, 5, 6}),
                    Floats({3, 1, 4, 7}), Floats({3, 2, 2, 6}), Floats({3, 2, 2, 6})},
                   {},
                   3});
  cases.push_back({"Attention",
                   {Floats({3, 2, 4, 6}), Floats({3, 2, 5, 6}), Floats({3, 2, 5, 6}),
                    Floats({1, 1, 4, 5}), Absent(), Absent(), Indices({3}, 5)}});
  cases.push_back({"LinearAttention",
                   {Floats({3, 4, 6}), Floats({3, 4, 6}), Floats({3, 4, 4}), Floats({3, 2, 3, 2})},
                   Attrs({{"q_num_heads", int64_t{2}},
                          {"kv_num_heads", int64_t{2}},
                          {"update_rule", std::string("linear")}}),
                   2});
  cases.push_back({"RotaryEmbedding",
                   {Floats({3, 4, 8}), Floats({3, 4, 2}), Floats({3, 4, 2})},
                   Attrs({{"num_heads", int64_t{2}}})});
  cases.push_back(
      {"RotaryEmbedding", {Floats({3, 2, 4, 6}), Floats({3, 4, 3}), Floats({3, 4, 3})}});
  cases.push_back(
      {"RotaryEmbedding", {Floats({3, 2, 4, 6}), Floats({1, 4, 3}), Floats({3, 1, 3})}});
  cases.push_back(
      {.op = "GrowCache",
       .inputs = {Floats({3, 2, 4, 5}), Floats({3, 2, 2, 5}),
                  Input(Tensor::Of<int32_t>({3}, {5, 5, 5})), Input(Tensor::Of<int32_t>({1}, {6}))},
       .domain = "chairlift"});
  cases.push_back(
      {.op = "Random",
       .inputs = {Input(Tensor::Of<int64_t>({3, 3}, {5, 0, 1, 5, 1, 1, 6, 0, 1})),
                  Floats({3, 4, 5})},
       .attributes = Attrs({{"distribution", std::string("normal")}, {"dtype", int64_t{1}}}),
       .domain = "chairlift"});
  cases.push_back({.op = "MixtureOfExperts",
                   .inputs = {Floats({3, 4}), Floats({3, 2}), Floats({2, 5, 4}), Absent(),
                              Floats({2, 5}), Floats({2, 4, 5})},
                   .attributes = Attrs({{"k", int64_t{1}}}),
                   .domain = "chairlift"});
  cases.push_back({"TensorScatter", {Floats({3, 2, 6, 5}), Floats({3, 2, 2, 5}), Indices({3}, 4)}});
  cases.push_back({"DFT", {Floats({3, 8, 4, 1})}});
  cases.push_back({"DFT", {Floats({3, 8, 4, 2}), Absent(), Int(1)}});
  cases.push_back({"STFT", {Floats({3, 16, 1}), Int(4), Absent(), Int(8)}});
  cases.push_back({"GridSample", {Floats({3, 2, 5, 5}), Floats({3, 4, 4, 2})}});
  return cases;
}

const std::vector<Case>& Cases() {
  static const auto* const kCases = [] {
    auto* cases = new std::vector<Case>;
    for (const auto& family : {Convolutions(), Pools(), Reductions(), Normalizations(), Movements(),
                               Products(), Sequences()}) {
      cases->insert(cases->end(), family.begin(), family.end());
    }
    // The others of this map.
    cases->push_back({"CastLike", {Indices({3, 4}, 5), Floats({3, 4, 5})}});
    cases->push_back({"StringNormalizer",
                      {Input(DType::kBytes, {3, 4}, 0, 0)},
                      Attrs({{"case_change_action", std::string("UPPER")}})});
    cases->push_back({"CoupledProbabilities",
                      {{DType::kDouble, {4, 3}, 0.1, 0.9}},
                      Attrs({{"classes", int64_t{3}}}),
                      1,
                      "chairlift"});
    cases->push_back({"Clip", {Floats({3, 4}), Input(Tensor::Scalar(1.0f))}});
    cases->push_back({"RowQuantize", {Floats({3, 4, 5})}, {}, 3, "chairlift"});
    for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
      if (!IsElementwise(*def)) continue;
      const std::vector<Case> made = ElementwiseCases(*def);
      cases->insert(cases->end(), made.begin(), made.end());
    }
    return cases;
  }();
  return *kCases;
}

// The entries `indices` of one axis.
Tensor Take(const Tensor& t, int axis, const std::vector<int64_t>& indices) {
  Shape shape = t.shape();
  shape[axis] = static_cast<int64_t>(indices.size());
  Tensor out = Tensor::Allocate(t.dtype(), shape);
  const auto inner =
      static_cast<size_t>(t.shape().NumElements(axis + 1, t.shape().rank())) * DTypeSize(t.dtype());
  const auto outer = static_cast<size_t>(t.shape().NumElements(0, axis));
  const auto dim = static_cast<size_t>(t.shape()[axis]);
  auto* to = static_cast<std::byte*>(out.raw());
  for (size_t o = 0; o < outer; ++o) {
    for (const int64_t i : indices) {
      std::memcpy(to,
                  static_cast<const std::byte*>(std::as_const(t).raw()) +
                      (o * dim + static_cast<size_t>(i)) * inner,
                  inner);
      to += inner;
    }
  }
  return out;
}

void ExpectSame(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  if (got.dtype() == DType::kBytes) {
    const auto a = TextsOf(got), b = TextsOf(want);
    ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    return;
  }
  const std::vector<double> a = AsDoubles(got), b = AsDoubles(want);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_NEAR(a[i], b[i], 1e-4 * std::max(1.0, std::abs(b[i]))) << "at element " << i;
  }
}

StatusOr<AxisMap> MapOf(const Case& c, const OperatorDef& def, const std::vector<Tensor>& inputs) {
  std::vector<ValueInfo> infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool known = !c.inputs[i].argument.empty();
    infos.push_back(
        {inputs[i].dtype(), SymbolicShape(inputs[i].shape()), known ? &inputs[i] : nullptr, {}});
  }
  return def.axes(InferContext(c.attributes, infos, c.outputs));
}

// How many labels hold.
int CheckLabels(const Case& c, const OperatorDef& def, uint32_t seed) {
  std::vector<Tensor> inputs;
  for (const Input& input : c.inputs) inputs.push_back(input.Make(seed++));
  const auto map = MapOf(c, def, inputs);
  EXPECT_TRUE(map.ok()) << map.status();
  const auto whole = RunOperator({c.op, c.attributes, inputs, c.outputs, c.domain});
  EXPECT_TRUE(whole.ok()) << whole.status();
  if (!map.ok() || !whole.ok()) return 0;
  EXPECT_EQ(map->inputs.size(), inputs.size());
  EXPECT_EQ(map->outputs.size(), static_cast<size_t>(c.outputs));
  std::set<int> labels;
  for (const auto* operands : {&map->inputs, &map->outputs}) {
    for (const AxisMap::Operand& operand : *operands) {
      labels.insert(operand.labels.begin(), operand.labels.end());
    }
  }
  labels.erase(AxisMap::kNone);
  std::mt19937 random(seed);
  for (const int label : labels) {
    SCOPED_TRACE(::testing::Message() << "label " << label);
    int64_t size = 1;
    bool any = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int axis = map->inputs[i].AxisOf(label);
      if (axis < 0) continue;
      any = true;
      const int64_t own = inputs[i].shape()[axis];
      EXPECT_TRUE(own == size || size == 1 || (own == 1 && map->inputs[i].broadcasts));
      size = std::max(size, own);
    }
    EXPECT_TRUE(any) << "no input has it";
    for (int trial = 0; trial < 4; ++trial) {
      std::vector<int64_t> indices(1 + random() % 5);
      for (int64_t& i : indices) i = static_cast<int64_t>(random() % static_cast<uint32_t>(size));
      std::vector<Tensor> picked = inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const int axis = map->inputs[i].AxisOf(label);
        if (map->inputs[i].unread) picked[i] = Floats({2}).Make(9);
        if (axis < 0 || (inputs[i].shape()[axis] == 1 && size > 1)) continue;
        picked[i] = Take(inputs[i], axis, indices);
      }
      const auto part = RunOperator({c.op, c.attributes, picked, c.outputs, c.domain});
      EXPECT_TRUE(part.ok()) << part.status();
      for (size_t i = 0; part.ok() && i < part->size(); ++i) {
        const int axis = map->outputs[i].AxisOf(label);
        if (axis >= 0) ExpectSame((*part)[i], Take((*whole)[i], axis, indices));
      }
    }
  }
  return static_cast<int>(labels.size());
}

const OperatorDef& Find(const Case& c) { return *OperatorRegistry::Builtin().Find(c.domain, c.op); }

TEST(AxisMapTest, EntriesAlongALabelAreComputedOneByOne) {
  std::set<const OperatorDef*> checked;
  uint32_t seed = 1;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.op);
    const OperatorDef& def = Find(c);
    if (def.axes == nullptr) continue;
    EXPECT_GT(CheckLabels(c, def, seed += 100), 0) << "nothing stays apart";
    checked.insert(&def);
  }
  for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
    EXPECT_EQ(checked.contains(def), def->axes != nullptr) << def->name << " has no case";
  }
}

TEST(AxisMapTest, WhatOnlyMovesHasElementsOfItsInputAlone) {
  std::set<const OperatorDef*> checked;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.op);
    const OperatorDef& def = Find(c);
    if (!def.OnlyMoves()) continue;
    checked.insert(&def);
    std::vector<Tensor> inputs;
    for (const Input& input : c.inputs) inputs.push_back(input.Make(7));
    const auto outputs = RunOperator({c.op, c.attributes, inputs, c.outputs, c.domain});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const bool truncates = (*outputs)[0].dtype() != inputs[0].dtype();
    std::set<double> known;
    for (const double x : AsDoubles(inputs[0])) known.insert(truncates ? std::trunc(x) : x);
    for (const double y : AsDoubles((*outputs)[0])) EXPECT_TRUE(known.contains(y)) << y;
  }
  for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
    EXPECT_EQ(checked.contains(def), def->OnlyMoves()) << def->name << " has no case";
  }
}

}  // namespace
}  // namespace chairlift
