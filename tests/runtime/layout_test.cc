// assign_layouts: the same results, and no reorder inside a network.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "graph/graph_builder.h"
#include "ops/operator.h"
#include "runtime/allocation_count.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::GraphBuilder;

Tensor RandomFloats(std::mt19937& random, const Shape& shape, float scale) {
  std::normal_distribution<float> normal(0, scale);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

Tensor Integers(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())},
                             std::span<const int64_t>(values));
}

struct Network : GraphBuilder {
  std::mt19937 random{11};
  ValueId Image(int64_t channels) {
    return Input("x", DType::kFloat,
                 SymbolicShape({Dim::Symbol("n"), channels, Dim::Symbol("h"), Dim::Symbol("w")}));
  }
  ValueId Conv(ValueId x, int64_t in, int64_t out, int64_t stride = 1) {
    return Op("Conv",
              {x, Constant(RandomFloats(random, Shape{out, in, 3, 3}, 0.1f)),
               Constant(RandomFloats(random, Shape{out}, 0.1f))},
              Attrs({{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                     {"strides", std::vector<int64_t>{stride, stride}}}));
  }
  ValueId Relu(ValueId x) { return Op("Relu", {x}); }
  ValueId PerChannel(int64_t channels) {
    return Constant(RandomFloats(random, Shape{channels, 1, 1}, 1));
  }
};

// Operators of the graph after all passes but those, and its results equal to those without
// layouts.
std::string CheckAndList(const Graph& graph, const std::vector<Shape>& shapes,
                         const std::set<std::string>& disabled = {}) {
  Graph inferred = graph;
  EXPECT_TRUE(InferShapes(inferred).ok());
  auto blocked = Executable::Create(inferred, {.disabled_passes = disabled});
  auto plain =
      Executable::Create(inferred, {.disabled_passes = {"assign_layouts", "fuse_elementwise"}});
  EXPECT_TRUE(blocked.ok()) << blocked.status();
  EXPECT_TRUE(plain.ok()) << plain.status();
  if (!blocked.ok() || !plain.ok()) return "";
  SoloTeam team;
  Arena arena;
  std::mt19937 random(12);
  for (const Shape& shape : shapes) {
    const std::vector<Tensor> inputs = {RandomFloats(random, shape, 1)};
    auto a = (*blocked)->Run(inputs, team, 0, arena);
    auto b = (*plain)->Run(inputs, team, 0, arena);
    EXPECT_TRUE(a.ok()) << a.status();
    EXPECT_TRUE(b.ok()) << b.status();
    if (!a.ok() || !b.ok()) return "";
    for (size_t i = 0; i < a->size(); ++i) {
      EXPECT_EQ((*a)[i].shape(), (*b)[i].shape());
      for (int64_t k = 0; k < (*a)[i].size(); ++k) {
        const float wanted = (*b)[i].data<float>()[k];
        EXPECT_NEAR((*a)[i].data<float>()[k], wanted, 1e-4f * (1 + std::abs(wanted)))
            << "output " << i << ", element " << k;
        if (::testing::Test::HasFailure()) return "";
      }
    }
  }
  std::string operators;
  for (const Node& node : (*blocked)->graph().nodes) operators += node.def->name + " ";
  return operators;
}

// A convolution, transposed or not, of as many channels as its weights say.
struct Filter {
  const char* what;
  Shape weights;
  Attributes attributes;
  const char* op = "Conv";

  int64_t channels() const {
    const bool transposed = std::string(op) == "ConvTranspose";
    return transposed ? weights[0] : weights[1] * attributes.Int("group", 1);
  }
};

Attributes Windows(int64_t pad, int64_t stride, int64_t dilation, int64_t group) {
  return Attrs({{"pads", std::vector<int64_t>{pad, pad, pad, pad}},
                {"strides", std::vector<int64_t>{stride, stride}},
                {"dilations", std::vector<int64_t>{dilation, dilation}},
                {"group", group}});
}

// What each of these convolutions gives of its own input, all with the same memory for weights.
std::vector<Tensor> Convolved(const std::vector<Filter>& filters, const Tensor& weights) {
  GraphBuilder b;
  std::mt19937 random(3);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < filters.size(); ++i) {
    const Filter& filter = filters[i];
    const Shape shape{2, filter.channels(), 16, 16};
    const ValueId x = b.Input("x" + std::to_string(i), DType::kFloat, SymbolicShape(shape));
    b.Output(b.Op(filter.op, {x, b.Constant(weights.Reshaped(filter.weights))}, filter.attributes));
    random.seed(static_cast<unsigned>(filter.channels()));
    inputs.push_back(RandomFloats(random, shape, 1));
  }
  Graph graph = std::move(b).Build();
  EXPECT_TRUE(InferShapes(graph).ok());
  const auto executable = Executable::Create(graph, {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  SoloTeam team;
  Arena arena;
  auto outputs = (*executable)->Run(inputs, team, 0, arena);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
}

TEST(LayoutTest, OneMemoryOfWeightsIsReadInSeveralForms) {
  const auto window = [](int64_t pad, int64_t group = 1) { return Windows(pad, 1, 1, group); };
  const auto by = [](int64_t stride) { return Windows(0, stride, 1, 1); };
  const std::pair<Filter, Filter> pairs[] = {
      {{"pointwise", {64, 32, 1, 1}, window(0)}, {"", {32, 64, 1, 1}, window(0)}},
      {{"pointwise", {64, 32, 1, 1}, window(0)}, {"of groups", {64, 32, 1, 1}, window(0, 2)}},
      {{"Winograd", {64, 32, 3, 3}, window(1)}, {"", {32, 64, 3, 3}, window(1)}},
      {{"few outputs", {4, 32, 3, 3}, window(1)}, {"", {2, 64, 3, 3}, window(1)}},
      {{"dilated", {64, 32, 3, 3}, Windows(6, 1, 6, 1)}, {"", {32, 64, 3, 3}, Windows(6, 1, 6, 1)}},
      {{"grouped", {32, 24, 3, 3}, window(1, 4)}, {"", {32, 24, 3, 3}, window(1, 8)}},
      {{"grouped", {32, 8, 3, 3}, window(1, 2)}, {"", {64, 4, 3, 3}, window(1, 8)}},
      {{"depthwise", {32, 1, 3, 3}, window(1, 32)}, {"", {96, 1, 3, 1}, window(1, 96)}},
      {{"depthwise", {32, 1, 3, 3}, window(1, 32)}, {"two of each", {32, 1, 3, 3}, window(1, 16)}},
      {{"strided", {64, 32, 3, 3}, by(2)}, {"", {32, 64, 3, 3}, by(2)}},
      {{"upsampling", {64, 32, 2, 2}, by(2), "ConvTranspose"},
       {"", {32, 64, 2, 2}, by(2), "ConvTranspose"}},
      {{"upsampling", {64, 32, 2, 2}, by(2), "ConvTranspose"},
       {"to few", {512, 4, 2, 2}, by(2), "ConvTranspose"}},
      {{"columns", {64, 32, 3, 3}, by(2), "ConvTranspose"},
       {"", {32, 64, 3, 3}, by(2), "ConvTranspose"}}};
  for (const auto& [first, second] : pairs) {
    SCOPED_TRACE(std::string(first.what) + ", " + second.what);
    std::mt19937 random(5);
    const Tensor weights = RandomFloats(random, first.weights, 0.1f);
    ASSERT_EQ(first.weights.NumElements(), second.weights.NumElements());
    const std::vector<Tensor> both = Convolved({first, second}, weights);
    ASSERT_EQ(both.size(), 2u);
    for (const auto& [filter, got] : {std::pair(first, both[0]), std::pair(second, both[1])}) {
      const std::vector<Tensor> alone = Convolved({filter}, weights);
      ASSERT_EQ(alone.size(), 1u);
      ASSERT_EQ(alone[0].shape(), got.shape());
      EXPECT_EQ(std::memcmp(alone[0].raw(), got.raw(), got.byte_size()), 0);
    }
  }
}

// An infinity that an activation ends, as it would be without blocks of channels. (Winograd's
// transforms make NaN of it.)
TEST(LayoutTest, WhatFillsUpBlocksStaysZeroBesideInfinities) {
  const Filter firsts[] = {{"pointwise", {27, 9, 1, 1}, Windows(0, 1, 1, 1)},
                           {"strided", {27, 24, 3, 3}, Windows(1, 2, 1, 1)},
                           {"dilated", {27, 24, 3, 3}, Windows(6, 1, 6, 1)},
                           {"grouped", {24, 4, 3, 3}, Windows(1, 1, 1, 6)}};
  const Filter seconds[] = {{"pointwise", {24, 0, 1, 1}, Windows(0, 1, 1, 1)},
                            {"Winograd", {24, 0, 3, 3}, Windows(1, 1, 1, 1)},
                            {"strided", {24, 0, 3, 3}, Windows(1, 2, 1, 1)},
                            {"few outputs", {3, 0, 3, 3}, Windows(1, 1, 1, 1)}};
  for (const Filter& first : firsts) {
    for (Filter second : seconds) {
      for (const char* activation : {"Tanh", "Sigmoid", "Clip"}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", first.what, activation, second.what));
        GraphBuilder b;
        std::mt19937 random(7);
        const Shape image{2, first.channels(), 24, 24};
        second.weights =
            Shape{second.weights[0], first.weights[0], second.weights[2], second.weights[3]};
        const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(image));
        ValueId v = b.Op("Conv", {x, b.Constant(RandomFloats(random, first.weights, 0.1f))},
                         first.attributes);
        std::vector<ValueId> operands = {v};
        if (std::string(activation) == "Clip") {
          operands.push_back(b.Constant(Tensor::Of<float>({}, {0})));
          operands.push_back(b.Constant(Tensor::Of<float>({}, {6})));
        }
        v = b.Op(activation, operands);
        b.Output(b.Op("Conv", {v, b.Constant(RandomFloats(random, second.weights, 0.1f))},
                      second.attributes));
        Graph graph = std::move(b).Build();
        ASSERT_TRUE(InferShapes(graph).ok());
        const auto executable = Executable::Create(graph, {});
        ASSERT_TRUE(executable.ok()) << executable.status();
        Tensor input = RandomFloats(random, image, 1);
        input.data<float>()[5 * 24 + 7] = std::numeric_limits<float>::infinity();
        SoloTeam team;
        Arena arena;
        const auto outputs = (*executable)->Run(std::vector<Tensor>{input}, team, 0, arena);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        int64_t wrong = 0;
        for (const float value : (*outputs)[0].values<float>()) wrong += !std::isfinite(value);
        EXPECT_EQ(wrong, 0);
      }
    }
  }
}

TEST(LayoutTest, AResidualNetworkIsReorderedOnlyAtItsEnd) {
  Network m;
  ValueId v = m.Relu(m.Conv(m.Image(3), 3, 32, 2));
  v = m.Op("MaxPool", {v}, Attrs({{"kernel_shape", std::vector<int64_t>{2, 2}}}));
  const ValueId skip = v;
  v = m.Relu(m.Conv(v, 32, 32));
  v = m.Relu(m.Op("Add", {m.Conv(v, 32, 32), skip}));
  v = m.Op("GlobalAveragePool", {v});
  v = m.Op("Flatten", {v});
  m.Output(m.Op("MatMul", {v, m.Constant(RandomFloats(m.random, Shape{32, 5}, 1))}));
  EXPECT_EQ(CheckAndList(std::move(m).Build(), {Shape{1, 3, 16, 16}, Shape{2, 3, 13, 9}}),
            "FusedConv MaxPool FusedConv FusedConv GlobalAveragePool Reorder Flatten MatMul ");
}

TEST(LayoutTest, ElementwiseOperatorsWithFactorsByChannelStayBlocked) {
  Network m;
  const ValueId v = m.Conv(m.Image(16), 16, 16);
  const ValueId gate = m.Op("Sigmoid", {m.Op("GlobalAveragePool", {v})});  // [n, 16, 1, 1]
  ValueId u = m.Op("Mul", {v, gate});
  u = m.Op("PRelu", {u, m.PerChannel(16)});
  u = m.Op("Clip", {u, m.Constant(Tensor::Scalar(-1.0f)), m.Constant(Tensor::Scalar(1.0f))});
  m.Output(m.Op("Exp", {u}));
  const Graph graph = std::move(m).Build();
  const std::vector<Shape> shapes = {Shape{1, 16, 6, 6}, Shape{3, 16, 5, 1}};
  // Into the convolution, the gate (one element a channel: no copy), out of the network.
  EXPECT_EQ(CheckAndList(graph, shapes, {"fuse_elementwise"}),
            "Reorder Conv GlobalAveragePool Sigmoid Reorder Mul PRelu Clip Exp Reorder ");
  EXPECT_EQ(CheckAndList(graph, shapes),
            "Reorder Conv GlobalAveragePool Sigmoid Reorder FusedElementwise Reorder ");
}

TEST(LayoutTest, SkipsJoinedAlongChannelsStayBlocked) {
  Network m;
  const ValueId a = m.Relu(m.Conv(m.Image(3), 3, 16));
  const ValueId b = m.Relu(m.Conv(a, 16, 32));
  const ValueId joined = m.Op("Concat", {a, b}, Attrs({{"axis", int64_t{1}}}));
  m.Output(m.Conv(joined, 48, 16));
  EXPECT_EQ(CheckAndList(std::move(m).Build(), {Shape{1, 3, 8, 8}, Shape{2, 3, 7, 5}}),
            "FusedConv FusedConv Concat Conv Reorder ");
}

TEST(LayoutTest, WhatGrowsForNobodyIsReorderedBefore) {
  for (const bool read_again : {false, true}) {
    Network b;
    const ValueId x =
        b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 16, 12, Dim(9)}));
    ValueId y = b.Op(
        "Resize",
        {b.Conv(x, 16, 24), kNoValue, b.Constant(Tensor::Of<float>({4}, {1.0f, 1.0f, 3.0f, 2.5f}))},
        Attrs({{"mode", std::string("linear")}}));
    y = read_again ? b.Conv(b.Op("Sigmoid", {y}), 24, 16) : b.Op("Sigmoid", {y});
    b.Output(y);
    EXPECT_EQ(CheckAndList(std::move(b).Build(), {Shape{2, 16, 12, 9}}, {"fuse_elementwise"}),
              read_again ? "Reorder Conv Resize Sigmoid Conv Reorder "
                         : "Reorder Conv Reorder Resize Sigmoid ");
  }
}

TEST(LayoutTest, FewChannelsStayRowMajor) {
  Network m;
  const ValueId v = m.Relu(m.Conv(m.Image(3), 3, 3));
  m.Output(m.Op("Neg", {m.Conv(v, 3, 2)}));
  EXPECT_EQ(CheckAndList(std::move(m).Build(), {Shape{2, 3, 8, 8}}), "FusedConv Conv Neg ");
}

// One block and a half, and two and a half: the rest of the last one is unused.
TEST(LayoutTest, ChannelsNeedNotComeInWholeBlocks) {
  Network m;
  const int64_t half = ChannelBlock() / 2;
  const int64_t begin = half, end = 4 * half + 1;
  const Attributes channels = Attrs({{"axis", int64_t{1}}});
  const ValueId a = m.Relu(m.Conv(m.Image(3), 3, 3 * half, 2));
  const ValueId gate = m.Op("Sigmoid", {m.Op("GlobalAveragePool", {a})});  // [n, 3 · half, 1, 1]
  ValueId v = m.Op("Add", {m.Op("Mul", {a, gate}), m.Constant(Tensor::Scalar(2.0f))});
  v = m.Op("PRelu", {v, m.PerChannel(3 * half)});
  v = m.Op("Concat", {m.Conv(v, 3 * half, 5 * half), v}, channels);
  v = m.Op("Exp", {m.Op("Neg", {m.Op("Softplus", {v})})});
  const ValueId first = m.Op("Slice", {v, m.Constant(Integers({begin})),
                                       m.Constant(Integers({end})), m.Constant(Integers({1}))});
  m.Output(m.Conv(m.Op("MaxPool", {first}, Attrs({{"kernel_shape", std::vector<int64_t>{2, 2}}})),
                  end - begin, 5 * half / 2));
  EXPECT_EQ(CheckAndList(std::move(m).Build(), {Shape{1, 3, 16, 16}, Shape{2, 3, 13, 9}},
                         {"fuse_elementwise"}),
            "FusedConv GlobalAveragePool Sigmoid Mul Add Reorder PRelu Conv Concat Softplus Neg "
            "Exp Slice MaxPool "
            "Conv Reorder ");
}

// Parts that nothing reads keep their lengths, whatever gives these: constants, an input, or the
// number of parts.
TEST(LayoutTest, PartsMayBeLeftOut) {
  for (const std::string told : {"constant", "input", "number"}) {
    for (const bool blocked : {false, true}) {
      Network m;
      ValueId x = m.Image(48);
      if (blocked) x = m.Conv(x, 48, 48);
      const ValueId lengths = told == "constant" ? m.Constant(Integers({16, 16, 16}))
                              : told == "number"
                                  ? kNoValue
                                  : m.Input("lengths", DType::kInt64, SymbolicShape({Dim(3)}));
      Attributes attributes = Attrs({{"axis", int64_t{1}}});
      if (told == "number") attributes.Set("num_outputs", int64_t{3});
      const OperatorDef& split = *OperatorRegistry::Builtin().Find("", "Split");
      std::vector<ValueId> inputs = {x};
      if (lengths != kNoValue) inputs.push_back(lengths);
      const std::vector<ValueId> parts = m.Call(split, inputs, 3, attributes);
      m.Output(parts[0]);
      m.Output(parts[2]);
      m.Output(x);
      Graph graph = std::move(m).Build();
      graph.nodes.back().outputs[1] = kNoValue;
      ASSERT_TRUE(InferShapes(graph).ok());
      const auto executable = Executable::Create(graph, {});
      ASSERT_TRUE(executable.ok()) << executable.status();
      SoloTeam team;
      Arena arena;
      std::mt19937 random(5);
      std::vector<Tensor> in = {RandomFloats(random, Shape{2, 48, 3, 5}, 1)};
      if (told == "input") in.push_back(Integers({16, 16, 16}));
      const auto out = (*executable)->Run(in, team, 0, arena);
      ASSERT_TRUE(out.ok()) << out.status();
      for (const int part : {0, 2}) {
        const Tensor& got = (*out)[part == 0 ? 0 : 1];
        ASSERT_EQ(got.shape(), (Shape{2, 16, 3, 5}));
        for (int64_t k = 0; k < got.size(); ++k) {
          const int64_t at = k / 240 * 720 + part * 240 + k % 240;
          ASSERT_EQ(got.data<float>()[k], (*out)[2].data<float>()[at]) << told << ", part " << part;
        }
      }
    }
  }
}

TEST(LayoutTest, OneReorderServesAllReaders) {
  Network m;
  const ValueId v = m.Conv(m.Image(16), 16, 16);
  const Attributes axis = Attrs({{"axis", int64_t{2}}});
  m.Output(m.Op("Softmax", {v}, axis));
  m.Output(m.Op("Softmax", {v}));
  m.Output(v);
  EXPECT_EQ(CheckAndList(std::move(m).Build(), {Shape{2, 16, 3, 8}}),
            "Reorder Conv Reorder Softmax Softmax ");
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Each size of image has code of its own, which is most of what its plan holds.
TEST(LayoutTest, WhatConvolutionsOfManySizesHoldIsCounted) {
  if (CHAIRLIFT_COUNTS_ALLOCATIONS == 0) GTEST_SKIP() << "sanitizers keep memory that was freed";
  Network n;
  n.Output(n.Relu(n.Conv(n.Image(3), 3, 16)));
  std::mt19937 random(13);
  Graph graph = std::move(n).Build();
  ASSERT_TRUE(InferShapes(graph).ok());
  const auto executable = Executable::Create(graph, {.max_plan_bytes = int64_t{1} << 40});
  ASSERT_TRUE(executable.ok()) << executable.status();
  SoloTeam team;
  Arena arena;
  const Tensor largest = RandomFloats(random, Shape{1, 3, 64, 64}, 1);
  ASSERT_TRUE((*executable)->Run(std::vector<Tensor>{largest}, team, 0, arena).ok());
  const int64_t before = ResidentBytes();
  int64_t counted = 0;
  for (int64_t h = 8; h < 24; ++h) {
    for (int64_t w = 8; w < 24; ++w) {
      std::vector<Tensor> inputs = {RandomFloats(random, Shape{1, 3, h, w}, 1)};
      const auto plan = (*executable)->Prepare(std::vector<Shape>{inputs[0].shape()}, 1);
      ASSERT_TRUE(plan.ok()) << plan.status();
      counted += plan->held_bytes;
      ASSERT_TRUE((*executable)->Run(inputs, team, 0, arena).ok());
    }
  }
  const int64_t held = ResidentBytes() - before;
  EXPECT_GT(held, 4 << 20);
  EXPECT_GT(static_cast<double>(counted), 0.9 * static_cast<double>(held));
  EXPECT_LT(counted, 4 * held);
}

}  // namespace
}  // namespace chairlift
