// What is followed of sizes, positions and masks, for all sizes at once, is what is computed for
// some.
#include "graph/analysis/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "graph/decoders/decoder_models.h"
#include "graph/decoders/without_past.h"
#include "graph/infer.h"
#include "graph/ragged/evaluate_values.h"
#include "graph/ragged/prepare.h"

namespace chairlift::decoders {
namespace {

struct Sizes {
  int64_t batch, added, past, source = 1;
};

int64_t At(const Line& line, const Sizes& sizes, const std::vector<int64_t>& index) {
  const std::map<std::string, int64_t> named = {{Size::kBatch, sizes.batch},
                                                {Size::kNew, sizes.added},
                                                {Size::kPast, sizes.past},
                                                {Size::kSource, sizes.source}};
  int64_t sum = line.number;
  for (const auto& [factors, times] : line.products) {
    int64_t product = times;
    for (const auto& [axis, size] : factors) {
      product *= axis < 0 ? named.at(size) : index[static_cast<size_t>(axis)];
    }
    sum += product;
  }
  return sum;
}

double Element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kInt64:
      return static_cast<double>(t.data<int64_t>()[i]);
    case DType::kInt32:
      return t.data<int32_t>()[i];
    case DType::kBool:
      return t.data<bool>()[i] ? 1 : 0;
    case DType::kFloat:
      return t.data<float>()[i];
    default:
      ADD_FAILURE() << DTypeName(t.dtype());
      return 0;
  }
}

double Element(const Pattern& pattern, const Sizes& sizes, const std::vector<int64_t>& index) {
  if (pattern.is_line()) return static_cast<double>(At(pattern.line, sizes, index));
  if (pattern.kind == Pattern::Kind::kList) {
    return static_cast<double>(At(pattern.list[static_cast<size_t>(index[0])], sizes, {}));
  }
  if (pattern.kind == Pattern::Kind::kTuples) {
    return static_cast<double>(At(pattern.list[static_cast<size_t>(index.back())], sizes, index));
  }
  if (pattern.is_curve()) {
    const int64_t column = pattern.column < 0 ? 0 : index[static_cast<size_t>(pattern.column)];
    return Element(pattern.curve,
                   (At(pattern.line, sizes, index) + kReach) * pattern.curve.shape()[1] + column);
  }
  int64_t m = 0;
  for (size_t i = 0; i < pattern.conditions.size(); ++i) {
    if (At(pattern.conditions[i], sizes, index) >= 0) m |= int64_t{1} << i;
  }
  EXPECT_TRUE(pattern.Possible(m));
  if (!pattern.is_slopes()) return Element(pattern.table, m);
  const float slope = pattern.slopes.data<float>()[index[static_cast<size_t>(pattern.column)]];
  return pattern.table.data<float>()[m] +
         slope * static_cast<float>(At(pattern.line, sizes, index));
}

void ExpectEqual(const Pattern& pattern, const Tensor& tensor, const Sizes& sizes) {
  ASSERT_EQ(tensor.shape().rank(), pattern.rank());
  std::vector<int64_t> index(pattern.dims.size(), 0);
  for (int axis = 0; axis < pattern.rank(); ++axis) {
    ASSERT_EQ(tensor.shape()[axis], At(pattern.dims[static_cast<size_t>(axis)], sizes, {}));
  }
  if (!pattern.known() && pattern.kind != Pattern::Kind::kTuples) return;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const double want = Element(pattern, sizes, index);
    if (pattern.is_slopes() && want < -1e30) {
      ASSERT_LT(Element(tensor, i), want / 2);
    } else {
      ASSERT_EQ(Element(tensor, i), want);
    }
    for (int axis = pattern.rank(); axis-- > 0;) {
      int64_t& place = index[static_cast<size_t>(axis)];
      if (++place < tensor.shape()[axis]) break;
      place = 0;
    }
  }
}

// Returns how many values are followed that depend on sizes. `encoder`: its tokens and mask alone.
int Check(const std::string& bytes, const Sizes& sizes, bool encoder = false) {
  auto imported = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
  EXPECT_TRUE(imported.ok()) << imported.status();
  auto normalised = NormaliseDecoder(imported->graph);
  EXPECT_TRUE(normalised.ok()) << normalised.status();
  Graph graph = *std::move(normalised);
  DecoderPorts of_encoder;
  of_encoder.tokens = 0;
  of_encoder.mask = 1;
  const auto ports = encoder ? of_encoder : FindDecoderPorts(graph);
  EXPECT_TRUE(ports.ok()) << ports.status();
  NameSizes(graph, *ports);
  EXPECT_TRUE(ragged::RunPreparingPasses(graph).ok());
  PatternReader reader(graph);
  StartPatterns(graph, *ports, reader);
  InferBudget budget;
  std::vector<ValueId> followed;
  for (Node& node : graph.nodes) {
    EXPECT_TRUE(InferNode(graph, node, budget).ok());
    (void)reader.Visit(node);
    const ValueId out = node.outputs[0];
    if (reader.of(out).kind != Pattern::Kind::kUnknown) followed.push_back(out);
  }
  std::map<int, Tensor> inputs;
  const auto ints = [&](int input, int64_t count, auto number) {
    if (input < 0) return;
    const ValueId id = graph.inputs[static_cast<size_t>(input)];
    const DType dtype = graph.values[static_cast<size_t>(id)].dtype;
    Tensor t = Tensor::Allocate(dtype, {sizes.batch, count});
    for (int64_t i = 0; i < t.size(); ++i) {
      if (dtype == DType::kInt32) {
        t.data<int32_t>()[i] = static_cast<int32_t>(number(i % count));
      } else {
        t.data<int64_t>()[i] = number(i % count);
      }
    }
    inputs[input] = t;
  };
  ints(ports->tokens, sizes.added, [](int64_t i) { return i; });
  ints(ports->mask, sizes.past + sizes.added, [](int64_t) { return 1; });
  ints(ports->positions, sizes.added, [&](int64_t i) { return sizes.past + i; });
  ints(ports->source_mask, sizes.source, [](int64_t) { return 1; });
  if (ports->source >= 0) {
    const auto& shape =
        graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(ports->source)])].shape;
    Tensor t = Tensor::Allocate(DType::kFloat, {sizes.batch, sizes.source, shape[2].value()});
    std::fill_n(t.data<float>(), t.size(), 0.5f);
    inputs[ports->source] = t;
  }
  for (const DecoderPorts::Cache& cache : ports->caches) {
    const auto& shape =
        graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(cache.input)])].shape;
    Tensor t = Tensor::Allocate(DType::kFloat,
                                {sizes.batch, shape[1].value(), sizes.past, shape[3].value()});
    std::fill_n(t.data<float>(), t.size(), 0.5f);
    inputs[cache.input] = t;
  }
  const auto values = ragged::EvaluateValues(graph, followed, inputs, {});
  EXPECT_TRUE(values.ok()) << values.status();
  int count = 0;
  for (size_t i = 0; values.ok() && i < followed.size(); ++i) {
    SCOPED_TRACE(graph.values[static_cast<size_t>(followed[i])].name);
    ExpectEqual(reader.of(followed[i]), (*values)[i], sizes);
    count += reader.of(followed[i]).uniform() ? 0 : 1;
  }
  return count;
}

TEST(PatternTest, WhatIsFollowedIsWhatIsComputed) {
  std::vector<std::string> models = {testing::Gpt2Model(), testing::LlamaModel(),
                                     testing::Gpt2Model({}, {.sees_later = 2}),
                                     testing::LlamaModel({}, {.sees_later = 1})};
  const auto folder = std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    models.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (const std::string& model : models) {
    for (const Sizes& sizes : {Sizes{1, 1, 0}, Sizes{2, 3, 0}, Sizes{3, 1, 7}, Sizes{2, 5, 4}}) {
      EXPECT_GT(Check(model, sizes), 10);
    }
  }
}

TEST(PatternTest, WhatIsFollowedOfEncodersAndTheirDecodersIsWhatIsComputed) {
  const auto folder = std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "encoder_decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    for (const bool encoder : {false, true}) {
      const auto name = encoder ? "encoder_model.onnx" : "decoder_model.onnx";
      SCOPED_TRACE(entry.path() / name);
      std::ifstream file(entry.path() / name, std::ios::binary);
      const std::string model((std::istreambuf_iterator<char>(file)), {});
      for (const Sizes& sizes : {Sizes{1, 1, 0, 1}, Sizes{2, 30, 0, 4}, Sizes{3, 4, 0, 4}}) {
        EXPECT_GT(Check(model, sizes, encoder), 5);
      }
    }
  }
}

TEST(PatternTest, BoundsHoldForAllSizes) {
  const Line batch = Line::Of(Size::kBatch), added = Line::Of(Size::kNew),
             past = Line::Of(Size::kPast);
  const std::vector<Line> dims = {added, Line::Total()};
  EXPECT_EQ(added.Least({}), 1);
  EXPECT_EQ(past.Least({}), 0);
  EXPECT_EQ(past.Most({}), std::nullopt);
  EXPECT_EQ(Line::Sum(batch, added)->Least({}), 2);
  EXPECT_EQ(Line::Sum(batch, added, -1)->Least({}), std::nullopt);
  // past + index 0 − index 1 may have either sign; past + new − 1 − index 1 may not.
  const Line seen = *Line::Sum(*Line::Sum(past, Line::Index(0)), Line::Index(1), -1);
  EXPECT_EQ(seen.Least(dims), std::nullopt);
  const Line rest = *Line::Sum(*Line::Sum(Line::Total(), Line::Number(1), -1), Line::Index(1), -1);
  EXPECT_EQ(rest.Least(dims), 0);
  const int64_t large = int64_t{1} << 40;
  EXPECT_EQ(Line::Sum(Line::Number(large), Line::Number(large)), std::nullopt);
  EXPECT_EQ(Line::Product(Line::Number(large), Line::Number(large)), std::nullopt);
  // batch·new is divided by its factors only, and read row by row within its bounds.
  const Line all = *Line::Product(batch, added);
  EXPECT_EQ(all.Least({}), 1);
  EXPECT_EQ(Line::Quotient(all, added), batch);
  EXPECT_EQ(Line::Quotient(all, past), std::nullopt);
  EXPECT_EQ(Line::Quotient(*Line::Product(batch, Line::Total()), Line::Total()), batch);
  const Line place = *Line::Sum(*Line::Product(Line::Index(0), added), Line::Index(1));
  const std::vector<Line> rows = {batch, added};
  EXPECT_EQ(place.Least(rows), 0);
  EXPECT_EQ(Line::Sum(place, all, -1)->Most(rows), -1);
  EXPECT_EQ(Line::Sum(place, all, -1)->Most(std::vector<Line>{batch, batch}), std::nullopt);
}

TEST(PatternTest, ConditionsThatOthersDecideGo) {
  // index 1 > index 0, and index 1 > past + index 0, which is never so without the first.
  const Line above = *Line::Sum(*Line::Sum(Line::Index(1), Line::Index(0), -1), Line::Number(-1));
  const Line later = *Line::Sum(above, Line::Of(Size::kPast), -1);
  Pattern pattern;
  pattern.kind = Pattern::Kind::kTable;
  pattern.dtype = DType::kFloat;
  pattern.dims = {Line::Of(Size::kNew), Line::Total()};
  pattern.conditions = {above, later};
  pattern.table = Tensor::Of<float>({4}, {0, 0, 9, 1});
  EXPECT_FALSE(pattern.Possible(2));
  pattern.Simplify();
  ASSERT_EQ(pattern.conditions, std::vector<Line>{later});
  EXPECT_EQ(pattern.table.data<float>()[0], 0);
  EXPECT_EQ(pattern.table.data<float>()[1], 1);
}

// Whatever a file does to lists of sizes: what has no such element is not followed.
TEST(PatternTest, ListsThatAreTooShortAreNotFollowed) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kInt64, {"n"}).Output("y", testing::kInt64);
  m.Tensor("none", testing::kInt64, {0});
  const auto list = [&](const char* name, int64_t n) {
    m.Tensor(name, testing::kInt64, {1})->add_int64_data(n);
  };
  list("far", -5), list("one", 1), list("zero", 0);
  m.Node("Shape", {"x"}, {"sizes"});
  m.Node("Add", {"sizes", "none"}, {"sum"});
  m.Node("Slice", {"sizes", "far", "one"}, {"cut"});
  m.Node("Concat", {"sum", "cut"}, {"y"}).Int("axis", 0);
  const auto imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  Graph graph = imported->graph;
  graph.values[static_cast<size_t>(graph.inputs[0])].shape =
      SymbolicShape({Dim::Symbol(Size::kNew)});
  PatternReader reader(graph);
  for (const Node& node : graph.nodes) {
    EXPECT_EQ(reader.Visit(node).ok(), node.def->name == "Shape") << node.Describe();
  }
}

// y of x [length], by nodes that `build` adds.
Pattern Followed(const std::function<void(testing::ModelBuilder&)>& build) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kInt64, {"n"}).Output("y");
  m.Node("Shape", {"x"}, {"sizes"});
  build(m);
  const auto imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  Graph graph = imported->graph;
  graph.values[static_cast<size_t>(graph.inputs[0])].shape =
      SymbolicShape({Dim::Symbol(Size::kNew)});
  PatternReader reader(graph);
  for (const Node& node : graph.nodes) (void)reader.Visit(node);
  return reader.of(graph.outputs[0]);
}

// {a, length} op {b, length}.
Pattern OfLargeNumbers(const char* op, int64_t a, int64_t b) {
  return Followed([&](testing::ModelBuilder& m) {
    m.Ints("a", {a}).Ints("b", {b});
    m.Node("Concat", {"a", "sizes"}, {"as"}).Int("axis", 0);
    m.Node("Concat", {"b", "sizes"}, {"bs"}).Int("axis", 0);
    m.Node(op, {"as", "bs"}, {"y"});
  });
}

TEST(PatternTest, LargeNumbersOfListsAreExact) {
  constexpr int64_t kLarge = int64_t{1} << 62;
  const Pattern difference = OfLargeNumbers("Sub", kLarge, kLarge - 2);
  ASSERT_EQ(difference.list.size(), 2U);
  EXPECT_EQ(difference.list[0], Line::Number(2));
  for (const char* op : {"Greater", "Equal", "Less", "Mod"}) {
    const Pattern compared = OfLargeNumbers(op, kLarge, kLarge - 2);
    if (!compared.known()) continue;
    const auto elements = compared.Elements();
    ASSERT_TRUE(elements && elements->size() == 2) << op;
    EXPECT_EQ((*elements)[0], Line::Number(op == std::string("Greater") ? 1
                                           : op == std::string("Mod")   ? 2
                                                                        : 0))
        << op;
  }
  const Pattern wrapped = OfLargeNumbers("Add", kLarge, kLarge);  // as the operator adds
  ASSERT_EQ(wrapped.list.size(), 2U);
  EXPECT_EQ(wrapped.list[0], Line::Number(std::numeric_limits<int64_t>::min()));
}

TEST(PatternTest, NumbersThatTheirTypeMayNotHoldAreNotFollowed) {
  // The length · 2^16, times.
  const auto scaled = [](int64_t type, int times) {
    return Followed([=](testing::ModelBuilder& m) {
      m.Ints("c", {65536});
      m.Node("Cast", {"c"}, {"factor"}).Int("to", type);
      m.Node("Cast", {"sizes"}, {"v0"}).Int("to", type);
      for (int i = 0; i < times; ++i) {
        const std::string from = "v" + std::to_string(i);
        m.Node("Mul", {from, "factor"}, {i + 1 == times ? "y" : "v" + std::to_string(i + 1)});
      }
    });
  };
  EXPECT_TRUE(scaled(testing::kInt64, 2).known());
  EXPECT_TRUE(scaled(onnx::TensorProto::INT32, 1).known());
  EXPECT_FALSE(scaled(onnx::TensorProto::INT32, 2).known());
  EXPECT_FALSE(scaled(testing::kFloat, 1).known());
  const Line length = Line::Of(Size::kNew);
  std::optional<Line> power = length;
  for (int i = 1; i < 8; ++i) power = Line::Product(*power, length);
  EXPECT_TRUE(length.FitsIn(DType::kFloat));
  EXPECT_FALSE(power->FitsIn(DType::kInt64));
}

TEST(PatternTest, EntriesBeforeTheFirstAreNotTaken) {
  const auto last = [](int64_t start) {
    return Followed([=](testing::ModelBuilder& m) {
      m.Ints("start", {start}).Ints("end", {std::numeric_limits<int64_t>::max()});
      m.Tensor("zero", testing::kInt64, {})->add_int64_data(0);
      m.Tensor("one", testing::kInt64, {})->add_int64_data(1);
      m.Node("Squeeze", {"sizes"}, {"length"});
      m.Node("Range", {"zero", "length", "one"}, {"places"});
      m.Node("Slice", {"places", "start", "end"}, {"y"});
    });
  };
  EXPECT_EQ(last(-1).dims, std::vector<Line>{Line::Number(1)});
  EXPECT_EQ(last(0).dims, std::vector<Line>{Line::Of(Size::kNew)});
  for (const int64_t start : {int64_t{-2}, int64_t{-9}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_FALSE(last(start).known()) << start;
  }
}

}  // namespace
}  // namespace chairlift::decoders
