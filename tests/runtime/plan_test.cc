// Plans against running node by node, and what plans promise about memory.
#include "runtime/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "graph/evaluate.h"
#include "graph/graph_builder.h"
#include "runtime/allocation_count.h"
#include "runtime/executable.h"
#include "runtime/graph_runner.h"
#include "runtime/test_operators.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using testing::GraphBuilder;
using ::testing::Pair;

SymbolicShape Vector(const std::string& symbol) { return SymbolicShape({Dim::Symbol(symbol)}); }

Tensor Ramp(int64_t n) {
  Tensor t = Tensor::Allocate(DType::kFloat, Shape{n});
  for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = static_cast<float>(i % 7) - 2;
  return t;
}

// What the graph computes, one node after the other, every value in a tensor of its own.
std::vector<Tensor> Reference(const Graph& graph, const std::vector<Tensor>& inputs) {
  WeightCache weights;
  SoloTeam team;
  std::vector<Tensor> values(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) values[i] = graph.values[i].constant;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (const Node& node : graph.nodes) {
    std::vector<Tensor> arguments;
    for (ValueId id : node.inputs) arguments.push_back(values[id]);
    auto results = EvaluateNode(node, arguments, weights, team, 0);
    EXPECT_TRUE(results.ok()) << results.status();
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = (*results)[i];
  }
  std::vector<Tensor> outputs;
  for (ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].shape(), b[i].shape()) << "output " << i;
    EXPECT_THAT(a[i].values<float>(), ::testing::ElementsAreArray(b[i].values<float>()))
        << "output " << i;
  }
}

// A graph of in-place, view, reducing and late operators, joined at random.
Graph RandomGraph(std::mt19937& random, bool late) {
  GraphBuilder b;
  struct Known {
    ValueId id;
    int group;  // values of one group have one shape
  };
  std::vector<Known> values;
  int groups = 2;
  values.push_back({b.Input("x", DType::kFloat, Vector("n")), 0});
  values.push_back({b.Input("y", DType::kFloat, Vector("n")), 0});
  values.push_back({b.Constant(Tensor::Of<float>(Shape{1}, {0.5f})), 1});
  const int count = 3 + static_cast<int>(random() % 25);
  for (int i = 0; i < count; ++i) {
    const Known a = values[random() % values.size()];
    const int kind = static_cast<int>(random() % (late ? 9 : 8));
    if (kind < 5) {
      ValueId other = values[2].id;
      for (int tries = 0; tries < 4; ++tries) {
        const Known c = values[random() % values.size()];
        if (c.group == a.group) other = c.id;
      }
      values.push_back({b.Op(testing::TestAdd(), {a.id, other}), a.group});
    } else if (kind < 7) {
      values.push_back({b.Op(testing::TestFlatten(), {a.id}), a.group});
    } else if (kind < 8) {
      values.push_back({b.Op(testing::TestSum(), {a.id}), 1});
    } else {
      values.push_back({b.Op(testing::TestPositive(), {a.id}), groups++});
    }
  }
  const int outputs = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < outputs; ++i) b.Output(values[random() % values.size()].id);
  b.Output(values.back().id);
  return std::move(b).Build();
}

TEST(PlanTest, RandomGraphsComputeWhatTheirNodesDo) {
  std::mt19937 random(4);
  SoloTeam team;
  Arena arena;
  for (int trial = 0; trial < 300; ++trial) {
    const Graph graph = RandomGraph(random, trial % 2 == 1);
    auto executable = Executable::Create(graph, {});
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (int64_t n : {5, 0, 1, 33, 5}) {
      const std::vector<Tensor> inputs = {Ramp(n), Ramp(n)};
      auto outputs = (*executable)->Run(inputs, team, 0, arena);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ExpectSame(*outputs, Reference(graph, inputs));
      ExpectSame(inputs, {Ramp(n), Ramp(n)});
    }
  }
}

Graph Chain(int length) {
  GraphBuilder b;
  ValueId v = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId half = b.Constant(Tensor::Of<float>(Shape{1}, {0.5f}));
  const ValueId x = v;
  for (int i = 0; i < length; ++i) v = b.Op(testing::TestAdd(), {v, i % 3 == 0 ? x : half});
  b.Output(v);
  return std::move(b).Build();
}

TEST(PlanTest, AnElementwiseChainRunsInPlaceInItsOutput) {
  auto executable = Executable::Create(Chain(10), {});
  ASSERT_TRUE(executable.ok());
  const auto stats = (*executable)->Prepare(std::vector<Shape>{Shape{1000}}, 1);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->steps, 10);
  EXPECT_EQ(stats->tensor_bytes, 0u);
}

TEST(PlanTest, TellsWhichImplementationsItTookAndWhyOthersWereRefused) {
  GraphBuilder b;
  const auto product = [&](DType dtype) {
    const SymbolicShape matrix({Dim::Symbol("n"), Dim(4)});
    const ValueId x = b.Input(dtype == DType::kFloat ? "x" : "y", dtype, matrix);
    b.Output(b.Op("MatMul", {x, b.Constant(Tensor::Allocate(dtype, Shape{4, 4}))}));
  };
  product(DType::kFloat);
  product(DType::kDouble);
  auto executable = Executable::Create(std::move(b).Build(), {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto stats = (*executable)->Prepare(std::vector<Shape>{Shape{3, 4}, Shape{3, 4}}, 1);
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_THAT(
      stats->kernels,
      ElementsAre(Pair("MatMul: packed panels", Field(&PlanStats::KernelUse::steps, 1)),
                  Pair("MatMul: plain loops (packed panels: it computes float32)",
                       Field(&PlanStats::KernelUse::first, (*executable)->graph().nodes[1].name))));
}

TEST(PlanTest, TheSecondRunAllocatesNothingButTheListOfOutputs) {
  auto executable = Executable::Create(Chain(30), {});
  ASSERT_TRUE(executable.ok());
  SoloTeam team;
  Arena arena;
  const std::vector<Tensor> inputs = {Ramp(1000)};
  const auto run = [&] {
    const auto outputs = (*executable)->Run(inputs, team, 0, arena);
    ASSERT_TRUE(outputs.ok());
    ASSERT_EQ((*outputs)[0].shape(), (Shape{1000}));
  };
  run();
  run();
  if (!CHAIRLIFT_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer's allocator";
  const int64_t before = testing::AllocationCount();
  run();
  EXPECT_EQ(testing::AllocationCount() - before, 1);
}

// Shape-like values: y = [number of elements of x], int64, from the shape alone.
const OperatorDef& TestSize() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Size",
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, DType::kInt64, SymbolicShape(Shape{1}));
        if (c.shape(0).concrete()) {
          c.set_output_elements(0, {Dim(c.shape(0).ToShape().NumElements())});
        }
        return absl::OkStatus();
      },
      .compile = [](const CompileContext&) -> StatusOr<std::unique_ptr<Kernel>> {
        return Internal("a size is known without running");
      }};
  return kDef;
}

// y = zeros of the shape given as int64 elements.
const OperatorDef& TestZeros() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Zeros",
      .infer = [](InferContext& c) -> Status {
        const auto dims = c.known_elements(0);
        c.set_output(0, DType::kFloat,
                     dims ? SymbolicShape(Shape(*dims)) : SymbolicShape::OfRank(1));
        return absl::OkStatus();
      },
      .compile = [](const CompileContext& c) -> StatusOr<std::unique_ptr<Kernel>> {
        const int64_t n = c.outputs[0].size();
        return MakeKernel([n](const KernelArgs& args) -> Status {
          std::fill_n(static_cast<float*>(args.outputs[0]), n, 0.0f);
          return absl::OkStatus();
        });
      }};
  return kDef;
}

TEST(PlanTest, WhatDependsOnShapesAloneIsComputedOncePerClass) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId zeros = b.Op(TestZeros(), {b.Op(TestSize(), {b.Op(testing::TestFlatten(), {x})})});
  b.Output(b.Op(testing::TestAdd(), {x, zeros}));
  auto executable = Executable::Create(std::move(b).Build(), {});
  ASSERT_TRUE(executable.ok());
  const auto small = (*executable)->Prepare(std::vector<Shape>{Shape{10}}, 1);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->steps, 1);
  EXPECT_EQ(small->folded_nodes, 2);
  // Zeros that are too large to keep are computed in each run.
  const auto large = (*executable)->Prepare(std::vector<Shape>{Shape{100000}}, 1);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(large->steps, 2);
  EXPECT_EQ(large->folded_nodes, 1);
}

TEST(PlanTest, PlansAreKeptByShapeAndTheOldestGoes) {
  const Graph graph = Chain(3);
  WeightCache weights;
  GraphRunner runner(graph, /*max_plan_bytes=*/1, weights);  // as few as are always kept
  const auto plan = [&](int64_t n, int width) {
    return *runner.Prepare(std::vector<TensorDesc>{{DType::kFloat, Shape{n}}}, width);
  };
  const PlanPtr one = plan(1, 1);
  const PlanPtr two = plan(2, 1);
  EXPECT_NE(one, two);
  EXPECT_EQ(plan(1, 1), one);
  EXPECT_NE(plan(1, 2), one) << "a plan is made for a width";
  plan(3, 1);
  EXPECT_EQ(plan(1, 1), one);
  plan(4, 1);  // takes the place of `two`
  EXPECT_EQ(plan(1, 1), one);
  EXPECT_NE(plan(2, 1), two);
}

TEST(PlanTest, WhatPlansHoldIsCounted) {
  WeightCache weights;
  const Graph few = Chain(3);
  const Graph many = Chain(30);
  const std::vector<TensorDesc> inputs = {{DType::kFloat, Shape{5}}};
  const int64_t small = (*GraphRunner(few, 1, weights).Prepare(inputs, 1))->held_bytes();
  const int64_t large = (*GraphRunner(many, 1, weights).Prepare(inputs, 1))->held_bytes();
  EXPECT_GT(small, 0);
  EXPECT_GT(large, 3 * small);
}

TEST(PlanTest, ContinuationsAreKeptByTheShapesThatDataGave) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId kept = b.Op(testing::TestPositive(), {x});
  b.Output(b.Op(testing::TestSum(), {b.Op(testing::TestAdd(), {kept, kept})}));
  const Graph graph = std::move(b).Build();
  WeightCache weights;
  GraphRunner runner(graph, 1 << 20, weights);
  SoloTeam team;
  Arena arena;
  const auto run = [&](std::initializer_list<float> values) {
    const std::vector<Tensor> inputs = {Tensor::Of<float>(Shape{4}, values)};
    auto out = runner.Run(inputs, {team, 0, arena});
    EXPECT_TRUE(out.ok()) << out.status();
    return (*out)[0].values<float>()[0];
  };
  EXPECT_EQ(run({1, 2, -1, -1}), 6);
  EXPECT_EQ(run({-1, 2, -1, 5}), 14);
  EXPECT_EQ(run({1, 2, 3, -1}), 12);
  const PlanPtr plan = *runner.Prepare(std::vector<TensorDesc>{{DType::kFloat, Shape{4}}}, 1);
  EXPECT_EQ(plan->stats.late_nodes, 1);
  EXPECT_EQ(runner.plans_kept(), 3) << "the plan and two continuations";
}

TEST(PlanTest, WorkersShareAnExecutable) {
  std::mt19937 random(5);
  const Graph graph = RandomGraph(random, true);
  auto executable = Executable::Create(graph, {.disabled_passes = {}, .max_plan_bytes = 3000});
  ASSERT_TRUE(executable.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      SoloTeam team(t);
      Arena arena;
      for (int i = 0; i < 60; ++i) {
        const std::vector<Tensor> inputs = {Ramp(1 + (i + t) % 6), Ramp(1 + (i + t) % 6)};
        auto outputs = (*executable)->Run(inputs, team, t, arena);
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        ExpectSame(*outputs, Reference(graph, inputs));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PlanTest, AnArenaKeepsItsContentsWhenItGrows) {
  Arena arena;
  std::byte* data = arena.Reserve(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  data[99] = std::byte{42};
  const size_t before = arena.capacity();
  data = arena.Reserve(before + 1);
  EXPECT_GT(arena.capacity(), before);
  EXPECT_EQ(data[99], std::byte{42});
  EXPECT_TRUE(arena.Contains(data + before));
  EXPECT_FALSE(arena.Contains(data + arena.capacity()));
}

}  // namespace
}  // namespace chairlift
