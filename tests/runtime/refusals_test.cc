// What a model refuses without passes it refuses with them, too: no pass takes out a node that
// would have refused what a request brings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/passes/pass.h"
#include "ops/element_type.h"
#include "runtime/executable.h"

namespace chairlift {
namespace refusals_test {

using testing::Attrs;
using testing::GraphBuilder;

Tensor Integers(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

// The same graph with all passes and with none.
struct Pair {
  std::unique_ptr<Executable> with, without;
};

StatusOr<Pair> MakePair(Graph graph) {
  CHAIRLIFT_RETURN_IF_ERROR(InferShapes(graph));
  ExecutableOptions none;
  for (const Pass& pass : AllPasses()) none.disabled_passes.insert(pass.name);
  Pair pair;
  CHAIRLIFT_ASSIGN_OR_RETURN(pair.without, Executable::Create(graph, none));
  CHAIRLIFT_ASSIGN_OR_RETURN(pair.with, Executable::Create(std::move(graph), {}));
  return pair;
}

StatusOr<std::vector<Tensor>> RunOne(Executable& executable, const std::vector<Tensor>& inputs) {
  SoloTeam team;
  Arena arena;
  return executable.Run(inputs, team, 0, arena);
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.size(); ++i) {
    if (a.dtype() == DType::kInt64) {
      ASSERT_EQ(a.data<int64_t>()[i], b.data<int64_t>()[i]);
    } else {
      const float x = a.data<float>()[i], y = b.data<float>()[i];
      ASSERT_TRUE((std::isnan(x) && std::isnan(y)) || x == y ||
                  std::abs(x - y) <= 1e-4f * (1 + std::abs(x)))
          << x << " and " << y;
    }
  }
}

// Whether the request was answered; both ways do the same.
bool ExpectSameEnd(const Pair& pair, const std::vector<Tensor>& inputs) {
  const auto without = RunOne(*pair.without, inputs);
  const auto with = RunOne(*pair.with, inputs);
  EXPECT_EQ(with.ok(), without.ok())
      << "with passes: " << with.status() << "\nwithout: " << without.status();
  if (!with.ok() || !without.ok()) return false;
  EXPECT_EQ(with->size(), without->size());
  for (size_t i = 0; i < with->size(); ++i) ExpectSame((*with)[i], (*without)[i]);
  return true;
}

// --- One node that would hand on its input ------------------------------------------------------

struct Case {
  const char* name;
  // From x [3,4] and from the request's integers.
  ValueId (*build)(GraphBuilder& b, ValueId x, ValueId given);
  std::vector<std::vector<int64_t>> right, wrong;  // all of one length
  // What the file says of the output's shape; empty: nothing.
  SymbolicShape declared = {};
};

const Case kCases[] = {
    {"Expand",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Expand", {x, s});
     },
     {{3, 4}, {1, 4}, {1, 1}},
     {{5, 4}, {3, 5}, {0, 4}, {-1, 4}}},
    {"Reshape with a stale shape",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Reshape", {x, s});
     },
     {{3, 4}, {4, 3}, {-1, 2}},
     {{5, 4}, {-2, 4}},
     SymbolicShape(Shape{3, 4})},
    {"Tile with a stale shape",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Tile", {x, s});
     },
     {{1, 1}, {2, 1}},
     {{-1, 1}},
     SymbolicShape(Shape{3, 4})},
    {"Slice with a stale shape",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Slice", {x, b.Constant(Integers({0, 0})), s});
     },
     {{3, 4}, {2, 4}},
     {},
     SymbolicShape(Shape{3, 4})},
    {"Pad of nothing along given axes",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Pad", {x, b.Constant(Integers({0, 0, 0, 0})), kNoValue, s});
     },
     {{0, 1}, {-1, 0}},
     {{0, 2}, {1, 1}, {5, 0}}},
    {"Squeeze of axes of an unsqueezed value",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Squeeze", {x, s});
     },
     {},
     {{0}, {7}},
     SymbolicShape(Shape{3, 4})},
    {"the shape of an Expand",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       return b.Op("Shape", {b.Op("Expand", {x, s})});
     },
     {{3, 4}, {1, 1}},
     {{5, 4}, {3, 2}}},
    {"a dimension of a Reshape of a shape",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       const ValueId shape = b.Op("Reshape", {b.Op("Shape", {x}), s});
       return b.Op("Gather", {shape, b.Constant(Tensor::Scalar<int64_t>(0))});
     },
     {{2}, {-1}},
     {{3}, {1}}},
    {"a dimension of a Squeeze of a shape",
     [](GraphBuilder& b, ValueId x, ValueId s) {
       const ValueId one = b.Op("Shape", {x}, Attrs({{"start", int64_t{1}}}));
       return b.Op("Squeeze", {one, s});
     },
     {{0}, {-1}},
     {{1}, {7}}},
};

TEST(RefusalsTest, ANodeThatMayRefuseStays) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const size_t length = c.right.empty() ? c.wrong[0].size() : c.right[0].size();
    GraphBuilder b;
    const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{3, 4}));
    const ValueId given =
        b.Input("given", DType::kInt64, SymbolicShape(Shape{static_cast<int64_t>(length)}));
    const ValueId y = c.build(b, x, given);
    b.value(y).shape = c.declared;
    b.Output(y);
    auto pair = MakePair(std::move(b).Build());
    ASSERT_TRUE(pair.ok()) << pair.status();
    Tensor values = Tensor::Allocate(DType::kFloat, {3, 4});
    for (int i = 0; i < 12; ++i) values.data<float>()[i] = static_cast<float>(i);
    for (const auto& right : c.right) {
      EXPECT_TRUE(ExpectSameEnd(*pair, {values, Integers(right)})) << right[0];
    }
    for (const auto& wrong : c.wrong) {
      EXPECT_FALSE(ExpectSameEnd(*pair, {values, Integers(wrong)})) << wrong[0];
    }
  }
}

// Two inputs whose shapes have to fit, of which nothing but the shape of the sum is asked for.
TEST(RefusalsTest, OperandsAreCheckedForTheirShapeAlone) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{3}));
  const ValueId y = b.Input("y", DType::kFloat, SymbolicShape({Dim::Symbol("n")}));
  const ValueId sum = b.Op("Relu", {b.Op("Add", {x, y})});
  b.Output(b.Op("ConstantOfShape", {b.Op("Shape", {sum})}));
  auto pair = MakePair(std::move(b).Build());
  ASSERT_TRUE(pair.ok()) << pair.status();
  const auto floats = [](int64_t n) {
    Tensor t = Tensor::Allocate(DType::kFloat, {n});
    std::fill_n(t.data<float>(), n, 1.0f);
    return t;
  };
  EXPECT_TRUE(ExpectSameEnd(*pair, {floats(3), floats(3)}));
  EXPECT_TRUE(ExpectSameEnd(*pair, {floats(3), floats(1)}));
  EXPECT_FALSE(ExpectSameEnd(*pair, {floats(3), floats(5)}));
}

// What has no such check goes as before.
TEST(RefusalsTest, KnownShapesAreStillFolded) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{3, 4}));
  const ValueId y = b.Input("y", DType::kFloat, SymbolicShape(Shape{3, 4}));
  const ValueId moved = b.Op("Transpose", {b.Op("Relu", {b.Op("Add", {x, y})})});
  const ValueId shape = b.Op("Shape", {moved});
  b.Output(b.Op("Reshape", {x, shape}));
  b.Output(b.Op("Expand", {x, b.Op("Shape", {y})}));
  auto pair = MakePair(std::move(b).Build());
  ASSERT_TRUE(pair.ok()) << pair.status();
  std::vector<std::string> left;
  for (const Node& node : pair->with->graph().nodes) left.push_back(node.def->name);
  EXPECT_THAT(left, ::testing::ElementsAre("Reshape"));
}

// --- Random graphs ------------------------------------------------------------------------------

class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {
    for (const char* name : {"x", "y"}) {
      floats_.push_back(b_.Input(name, DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4})));
    }
    floats_.push_back(b_.Input("z", DType::kFloat, SymbolicShape({Dim::Symbol("m"), 4})));
    floats_.push_back(b_.Input("w", DType::kFloat, SymbolicShape(Shape{3, 4})));
    for (const char* name : {"s", "t"}) {
      given_.push_back(b_.Input(name, DType::kInt64, SymbolicShape(Shape{2})));
    }
    shapes_ = given_;
    const int steps = Below(6) + 2;
    for (int i = 0; i < steps; ++i) Step();
  }

  // All that nothing reads is an output: nothing is dead from the start.
  Graph Build() && {
    Graph graph = std::move(b_).Build();
    std::set<ValueId> read;
    for (const Node& node : graph.nodes) read.insert(node.inputs.begin(), node.inputs.end());
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.outputs) {
        if (!read.contains(id)) graph.outputs.push_back(id);
      }
    }
    return graph;
  }

  std::vector<Tensor> Request() {
    const int64_t n = Below(4) + 1, m = Below(3) == 0 ? n : Below(4) + 1;
    std::vector<Tensor> inputs = {Floats({n, 4}), Floats({n, 4}), Floats({m, 4}), Floats({3, 4})};
    for (int i = 0; i < 2; ++i) {
      switch (Below(4)) {
        case 0:
          inputs.push_back(Integers({Below(6) - 2, Below(6) - 1}));
          break;
        case 1:
          inputs.push_back(Integers({1, 1}));
          break;
        default:
          inputs.push_back(Integers({Below(2) == 0 ? n : 3, 4}));
      }
    }
    return inputs;
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  ValueId Any(const std::vector<ValueId>& of) {
    return of[static_cast<size_t>(Below(std::ssize(of)))];
  }
  ValueId Float() { return Any(floats_); }
  ValueId Shapely() {
    switch (Below(5)) {
      case 0:
        return b_.Op("Shape", {Float()});
      case 1:
        return b_.Constant(Integers({3, 4}));
      case 2:
        return b_.Constant(Integers({1, 1}));
      default:
        return Any(shapes_);
    }
  }
  ValueId Number(float v) { return b_.Constant(Tensor::Scalar(v)); }
  Tensor Floats(const Shape& shape) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    for (int64_t i = 0; i < t.size(); ++i) {
      t.data<float>()[i] = static_cast<float>(Below(9) - 4) / 4;
    }
    return t;
  }

  void Step() {
    const ValueId x = Float();
    const auto op = [&](const char* name, std::vector<ValueId> inputs, Attributes attributes = {}) {
      floats_.push_back(b_.Op(name, std::move(inputs), std::move(attributes)));
    };
    const auto ints = [&](std::vector<int64_t> v) { return b_.Constant(Integers(v)); };
    switch (Below(24)) {
      case 0:
      case 1:
        return op("Expand", {x, Shapely()});
      case 2:
      case 3:
        return op("Reshape", {x, Shapely()});
      case 4:
        return op("Tile", {x, Below(2) == 0 ? Any(given_) : ints({1, 1})});
      case 5:
        return op("Slice", {x, Below(2) == 0 ? Any(given_) : ints({0, 0}), Shapely()});
      case 6:
        return op("Pad",
                  {x, ints({0, 0, 0, 0}), kNoValue, Below(2) == 0 ? Any(given_) : ints({0, 1})});
      case 7:
        return op("Concat", {x}, Attrs({{"axis", int64_t{1}}}));
      case 8:
        return op("Concat", {x, Float()}, Attrs({{"axis", Below(2)}}));
      case 9:
        return op("Add", {x, Below(2) == 0 ? Number(0) : Float()});
      case 10:
        return op("Mul", {Below(2) == 0 ? Number(1) : Float(), x});
      case 11:
        return op("Sub", {x, Float()});
      case 12:
        return op("Where", {b_.Op("Greater", {x, Float()}), x, Float()});
      case 13:
        return op("MatMul", {x, b_.Constant(Floats({4, 4}))});
      case 14:
        return op("LayerNormalization",
                  {b_.Op("Add", {x, Float()}), b_.Constant(Floats({4})), b_.Constant(Floats({4}))});
      case 15:
        return op("Mul", {x, b_.Op("Sigmoid", {x})});
      case 16:
        return op("Gather", {x, Any(given_)});
      case 17:
        return op("Unsqueeze", {x, Below(2) == 0 ? Any(given_) : ints({0})});
      case 18:
        return op("Squeeze", {b_.Op("Unsqueeze", {x, ints({0, 1})}), Any(given_)});
      case 19:
        return op("Cast", {x}, Attrs({{"to", OnnxOfElementType(DType::kFloat)}}));
      case 20:
        return op("ReduceMean", {x, Any(given_)});
      case 21:
        return op("ConstantOfShape", {Shapely()});
      case 22:
        return op("Relu",
                  {b_.Op("Add", {b_.Op("MatMul", {x, b_.Constant(Floats({4, 4}))}), Float()})});
      default:
        shapes_.push_back(b_.Op(Below(2) == 0 ? "Add" : "Mul", {Shapely(), Shapely()}));
        return;
    }
  }

  std::mt19937 random_;
  GraphBuilder b_;
  std::vector<ValueId> floats_, given_, shapes_;
};

TEST(RefusalsTest, RandomGraphsEndTheSameWithPassesAndWithout) {
  int graphs = 0, answered = 0, refused = 0;
  for (unsigned seed = 0; seed < 1500 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    std::vector<std::vector<Tensor>> requests;
    for (int i = 0; i < 6; ++i) requests.push_back(random.Request());
    Graph graph = std::move(random).Build();
    std::string nodes;
    for (const Node& node : graph.nodes) nodes += node.def->name + " ";
    SCOPED_TRACE(nodes);
    const auto pair = MakePair(std::move(graph));
    if (!pair.ok()) continue;  // no request could be right
    ++graphs;
    for (const auto& request : requests) ++(ExpectSameEnd(*pair, request) ? answered : refused);
  }
  EXPECT_GT(graphs, 200);
  EXPECT_GT(answered, 500);
  EXPECT_GT(refused, 500);
}

}  // namespace refusals_test
}  // namespace chairlift
