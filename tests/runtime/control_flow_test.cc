#include "runtime/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "runtime/executable.h"
#include "runtime/graph_runner.h"
#include "runtime/run_deadline.h"
#include "runtime/test_operators.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::ControlOp;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;

const SymbolicShape kAny = SymbolicShape();
const SymbolicShape kOne = SymbolicShape(Shape{1});

StatusOr<std::vector<Tensor>> RunGraph(Graph graph, std::vector<Tensor> inputs) {
  CHAIRLIFT_ASSIGN_OR_RETURN(auto executable, Executable::Create(std::move(graph), {}));
  SoloTeam team;
  Arena arena;
  return executable->Run(inputs, team, 0, arena);
}

Tensor Floats(std::initializer_list<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

std::shared_ptr<const Graph> AddCapture(float amount) {
  GraphBuilder b;
  const ValueId captured = b.Capture(DType::kFloat, kAny);
  b.Output(b.Op(testing::TestAdd(), {captured, b.Constant(Floats({amount}))}));
  return std::move(b).BuildShared();
}

TEST(ControlFlowTest, IfRunsTheBranchOnItsOwnCaptures) {
  GraphBuilder b;
  const ValueId condition = b.Input("c", DType::kBool, kAny);
  const ValueId x = b.Input("x", DType::kFloat, kAny);
  const ValueId y = b.Input("y", DType::kFloat, kAny);
  // Captures in order of attribute name: else_branch's, then then_branch's.
  b.Output(b.Op(ControlOp("If"), {condition, x, y},
                Attrs({{"then_branch", AddCapture(10)}, {"else_branch", AddCapture(20)}})));
  const Graph graph = std::move(b).Build();
  auto out = RunGraph(graph, {Tensor::Scalar(true), Floats({1}), Floats({2, 3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].values<float>(), ElementsAre(12, 13));
  out = RunGraph(graph, {Tensor::Scalar(false), Floats({1}), Floats({2, 3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].values<float>(), ElementsAre(21));
}

// Bodies have no bound of their own.
TEST(ControlFlowTest, PlansOfAllBodiesTogetherStayWithinTheBoundOfTheModel) {
  GraphBuilder b;
  const ValueId condition = b.Input("c", DType::kBool, SymbolicShape::Scalar());
  ValueId x = b.Input("x", DType::kFloat, kAny);
  for (int i = 0; i < 4; ++i) {
    x = b.Op(ControlOp("If"), {condition, x, x},
             Attrs({{"then_branch", AddCapture(1)}, {"else_branch", AddCapture(2)}}));
  }
  b.Output(x);
  const Graph graph = std::move(b).Build();
  WeightCache weights;
  SoloTeam team;
  Arena arena;
  const auto run = [&](GraphRunner& runner, bool value, int64_t size) {
    const std::vector<Tensor> inputs = {Tensor::Scalar(value),
                                        Tensor::Allocate(DType::kFloat, Shape{size})};
    const auto out = runner.Run(inputs, {team, 0, arena});
    ASSERT_TRUE(out.ok()) << out.status();
  };
  GraphRunner unlimited(graph, int64_t{1} << 40, weights);
  run(unlimited, true, 1);
  const int64_t once = unlimited.held_bytes();
  const int kept = unlimited.plans_kept();
  EXPECT_GE(kept, 5) << "the model's own, and of each node one of the two branches";
  run(unlimited, false, 1);
  EXPECT_GT(unlimited.plans_kept(), kept);
  const int64_t bound = 10 * once;
  GraphRunner bounded(graph, bound, weights);
  for (int64_t size = 1; size <= 100; ++size) run(bounded, size % 2 == 0, size);
  EXPECT_LE(bounded.held_bytes(), bound);
  EXPECT_GT(bounded.held_bytes(), bound / 2);
  const int before = bounded.plans_kept();
  run(bounded, true, 100);
  EXPECT_EQ(bounded.plans_kept(), before) << "the latest are kept";
}

// Body: state += step (captured); goes on while state < 4; scans the state.
std::shared_ptr<const Graph> CountingBody() {
  GraphBuilder b;
  b.Input("iteration", DType::kInt64, SymbolicShape::Scalar());
  b.Input("condition", DType::kBool, SymbolicShape::Scalar());
  const ValueId state = b.Input("state", DType::kFloat, kOne);
  const ValueId step = b.Capture(DType::kFloat, kOne);
  const ValueId next = b.Op(testing::TestAdd(), {state, step});
  b.value(next).dtype = DType::kFloat;
  b.value(next).shape = kOne;
  b.Output(b.Op(testing::TestBelow(), {next}, Attrs({{"limit", 4.0f}})));
  b.Output(next);
  b.Output(next);
  return std::move(b).BuildShared();
}

Graph LoopGraph(std::shared_ptr<const Graph> body, const SymbolicShape& state_shape = kOne) {
  GraphBuilder b;
  const ValueId trips = b.Input("trips", DType::kInt64, SymbolicShape::Scalar());
  const ValueId condition = b.Input("condition", DType::kBool, SymbolicShape::Scalar());
  const ValueId state = b.Input("state", DType::kFloat, state_shape);
  const ValueId step = b.Input("step", DType::kFloat, kOne);
  for (ValueId id : b.Call(ControlOp("Loop"), {trips, condition, state, step}, 2,
                           Attrs({{"body", std::move(body)}}))) {
    b.Output(id);
  }
  return std::move(b).Build();
}

TEST(ControlFlowTest, LoopEndsByTripCountOrCondition) {
  const Graph graph = LoopGraph(CountingBody());
  const auto run = [&](int64_t trips, bool condition, float step) {
    auto out = RunGraph(
        graph, {Tensor::Scalar(trips), Tensor::Scalar(condition), Floats({0}), Floats({step})});
    EXPECT_TRUE(out.ok()) << out.status();
    return *out;
  };
  std::vector<Tensor> out = run(2, true, 1);
  EXPECT_THAT(out[0].values<float>(), ElementsAre(2));
  EXPECT_EQ(out[1].shape(), (Shape{2, 1}));
  EXPECT_THAT(out[1].values<float>(), ElementsAre(1, 2));
  out = run(100, true, 1.5);
  EXPECT_THAT(out[0].values<float>(), ElementsAre(4.5));
  EXPECT_THAT(out[1].values<float>(), ElementsAre(1.5, 3, 4.5));
  for (const auto& nothing : {run(0, true, 1), run(5, false, 1)}) {
    EXPECT_THAT(nothing[0].values<float>(), ElementsAre(0));
    EXPECT_EQ(nothing[1].shape(), (Shape{0, 1}));
  }
}

TEST(ControlFlowTest, LoopWhoseBodyDoesNotFitIsRefused) {
  GraphBuilder body;
  body.Input("iteration", DType::kInt64, SymbolicShape::Scalar());
  body.Output(body.Input("condition", DType::kBool, SymbolicShape::Scalar()));
  const Graph graph = LoopGraph(std::move(body).BuildShared());
  const Status status =
      RunGraph(graph, {Tensor::Scalar<int64_t>(1), Tensor::Scalar(true), Floats({0}), Floats({1})})
          .status();
  EXPECT_THAT(Message(status), HasSubstr("node 'Loop0' (Loop): the body takes 2"));
}

// Body: state += item; scans the state.
std::shared_ptr<const Graph> RunningSumBody() {
  GraphBuilder b;
  const ValueId state = b.Input("state", DType::kFloat, kAny);
  const ValueId item = b.Input("item", DType::kFloat, kAny);
  const ValueId next = b.Op(testing::TestAdd(), {state, item});
  b.Output(next);
  b.Output(next);
  return std::move(b).BuildShared();
}

std::vector<Tensor> RunScan(Attributes attributes, const Tensor& state, const Tensor& items) {
  GraphBuilder b;
  const ValueId s = b.Input("state", DType::kFloat, kAny);
  const ValueId x = b.Input("items", DType::kFloat, kAny);
  attributes.Set("body", RunningSumBody());
  attributes.Set("num_scan_inputs", int64_t{1});
  for (ValueId id : b.Call(ControlOp("Scan"), {s, x}, 2, attributes)) b.Output(id);
  auto out = RunGraph(std::move(b).Build(), {state, items});
  EXPECT_TRUE(out.ok()) << out.status();
  return *out;
}

TEST(ControlFlowTest, ScanSumsAlongTheFirstAxis) {
  const Tensor items = Tensor::Of<float>(Shape{3, 2}, {1, 2, 3, 4, 5, 6});
  const auto out = RunScan({}, Floats({0, 0}), items);
  EXPECT_THAT(out[0].values<float>(), ElementsAre(9, 12));
  EXPECT_EQ(out[1].shape(), (Shape{3, 2}));
  EXPECT_THAT(out[1].values<float>(), ElementsAre(1, 2, 4, 6, 9, 12));
}

TEST(ControlFlowTest, ScanFollowsAxesAndDirections) {
  const Tensor items = Tensor::Of<float>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const auto out = RunScan(Attrs({{"scan_input_axes", std::vector<int64_t>{-1}},
                                  {"scan_input_directions", std::vector<int64_t>{1}},
                                  {"scan_output_axes", std::vector<int64_t>{1}},
                                  {"scan_output_directions", std::vector<int64_t>{1}}}),
                           Floats({0, 0}), items);
  EXPECT_THAT(out[0].values<float>(), ElementsAre(6, 15));
  EXPECT_EQ(out[1].shape(), (Shape{2, 3}));
  EXPECT_THAT(out[1].values<float>(), ElementsAre(6, 5, 3, 15, 11, 6));
}

TEST(ControlFlowTest, ScanOverNoStepsHasTheShapeThatItsStepsWouldHave) {
  for (const int64_t axis : {0, 1, 2}) {
    const Attributes attributes = Attrs({{"scan_input_axes", std::vector<int64_t>{1}},
                                         {"scan_output_axes", std::vector<int64_t>{axis}}});
    const Tensor state = Tensor::Allocate(DType::kFloat, Shape{4, 7});
    const auto out = RunScan(attributes, state, Tensor::Allocate(DType::kFloat, Shape{4, 0, 7}));
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0].shape(), (Shape{4, 7}));
    Shape steps{4, 7};
    steps.Insert(static_cast<int>(axis), 0);
    EXPECT_EQ(out[1].shape(), steps);
    EXPECT_EQ(out[1].dtype(), DType::kFloat);
  }
}

TEST(ControlFlowTest, LoopOfNoTripsHasTheShapeThatItsTripsWouldHave) {
  GraphBuilder body;
  body.Input("iteration", DType::kInt64, SymbolicShape::Scalar());
  const ValueId condition = body.Input("condition", DType::kBool, SymbolicShape::Scalar());
  const ValueId state = body.Input("state", DType::kFloat, kAny);
  const ValueId next = body.Op(testing::TestAdd(), {state, body.Capture(DType::kFloat, kAny)});
  for (const ValueId id : {condition, next, next}) body.Output(id);
  const Graph graph = LoopGraph(std::move(body).BuildShared(), kAny);
  const auto out = RunGraph(graph, {Tensor::Scalar<int64_t>(0), Tensor::Scalar(true),
                                    Tensor::Allocate(DType::kFloat, Shape{4, 7}), Floats({1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[1].shape(), (Shape{0, 4, 7}));
}

// Counts its runs; the one with number `stop_at` sets the flag.
struct CountedRuns {
  int seen = 0;
  int stop_at = 0;
  StopFlag stop{false};
};
CountedRuns* counted_runs = nullptr;

const OperatorDef& CountedAdd() {
  static const OperatorDef* const kDef = [] {
    auto* def = new OperatorDef(testing::TestAdd());
    def->name = "CountedAdd";
    def->compile = [](const CompileContext& c) -> StatusOr<std::unique_ptr<Kernel>> {
      CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<Kernel> add, testing::TestAdd().compile(c));
      return MakeKernel([add](const KernelArgs& args) -> Status {
        if (++counted_runs->seen == counted_runs->stop_at) counted_runs->stop = true;
        return add->Run(args);
      });
    };
    return def;
  }();
  return *kDef;
}

TEST(ControlFlowTest, ARunThatIsStoppedEndsBeforeTheNextOperatorOfTheBody) {
  GraphBuilder body;
  body.Input("iteration", DType::kInt64, SymbolicShape::Scalar());
  const ValueId condition = body.Input("condition", DType::kBool, SymbolicShape::Scalar());
  const ValueId state = body.Input("state", DType::kFloat, kOne);
  const ValueId step = body.Capture(DType::kFloat, kOne);
  const ValueId half = body.Op(CountedAdd(), {state, step});
  const ValueId next = body.Op(CountedAdd(), {half, step});
  for (const ValueId id : {condition, next, next}) body.Output(id);
  auto executable = Executable::Create(LoopGraph(std::move(body).BuildShared()), {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const std::vector<Tensor> inputs = {Tensor::Scalar<int64_t>(100), Tensor::Scalar(true),
                                      Floats({0}), Floats({0.001F})};
  SoloTeam team;
  Arena arena;
  const auto run = [&](CountedRuns& runs) {
    counted_runs = &runs;
    return (*executable)->Run(inputs, team, 0, arena, &runs.stop);
  };
  CountedRuns all;
  ASSERT_TRUE(run(all).ok());
  ASSERT_EQ(all.seen, 200);
  for (const int steps : {1, 2, 17, 100}) {
    CountedRuns runs{.stop_at = steps};
    EXPECT_TRUE(absl::IsCancelled(run(runs).status()));
    EXPECT_EQ(runs.seen, steps);
  }
}

// An attempt to learn of a model is bounded, however many trips its loops ask for.
TEST(ControlFlowTest, ATriedLoopEndsAtItsDeadline) {
  for (const bool has_operators : {true, false}) {
    GraphBuilder body;
    body.Input("iteration", DType::kInt64, SymbolicShape::Scalar());
    const ValueId condition = body.Input("condition", DType::kBool, SymbolicShape::Scalar());
    const ValueId state = body.Input("state", DType::kFloat, kOne);
    const ValueId step = body.Capture(DType::kFloat, kOne);
    const ValueId next = has_operators ? body.Op(testing::TestAdd(), {state, step}) : state;
    for (const ValueId id : {condition, next, step}) body.Output(id);
    auto executable = Executable::Create(LoopGraph(std::move(body).BuildShared()), {});
    ASSERT_TRUE(executable.ok()) << executable.status();
    const std::vector<Tensor> inputs = {Tensor::Scalar(int64_t{1} << 62), Tensor::Scalar(true),
                                        Floats({0}), Floats({1})};
    SoloTeam team;
    Arena arena;
    const RunDeadline deadline(Duration(0));
    const Status status = (*executable)->Run(inputs, team, 0, arena, deadline.stop()).status();
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_TRUE(deadline.passed());
  }
}

TEST(ControlFlowTest, ADeadlineThatIsNotReachedStopsNothing) {
  const RunDeadline deadline(std::chrono::hours(1));
  EXPECT_FALSE(deadline.passed());
}

}  // namespace
}  // namespace chairlift
