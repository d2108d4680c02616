#include "runtime/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "runtime/test_operators.h"

namespace chairlift {
namespace executable_test {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;

StatusOr<std::vector<Tensor>> RunOnce(Executable& executable, std::vector<Tensor> inputs) {
  SoloTeam team;
  Arena arena;
  return executable.Run(inputs, team, 0, arena);
}

Tensor Floats(std::initializer_list<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

SymbolicShape Vector(const std::string& symbol) { return SymbolicShape({Dim::Symbol(symbol)}); }

std::unique_ptr<Executable> Make(Graph graph) {
  auto executable = Executable::Create(std::move(graph), {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  return std::move(executable).value();
}

TEST(ExecutableTest, RunsAChainForAnyShape) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId y = b.Op(testing::TestAdd(), {x, x});
  const ValueId z = b.Op(testing::TestAdd(), {y, b.Constant(Floats({10}))});
  b.Output(z);
  auto executable = Make(std::move(b).Build());

  auto one = RunOnce(*executable, {Floats({1, 2, 3})});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT((*one)[0].values<float>(), ElementsAre(12, 14, 16));
  auto other = RunOnce(*executable, {Floats({})});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)[0].shape(), (Shape{0}));
}

TEST(ExecutableTest, AnOutputThatIsAnInputOrConstantIsACopy) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, SymbolicShape(Shape{2, 2}));
  const Tensor weight = Floats({7});
  b.Output(x);
  b.Output(b.Op(testing::TestFlatten(), {x}));
  b.Output(b.Constant(weight));
  auto executable = Make(std::move(b).Build());
  const Tensor in = Tensor::Of<float>(Shape{2, 2}, {1, 2, 3, 4});

  auto out = RunOnce(*executable, {in});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].values<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ((*out)[1].shape(), (Shape{4}));
  EXPECT_NE((*out)[0].raw(), in.raw());
  EXPECT_NE((*out)[1].raw(), in.raw());
  EXPECT_NE((*out)[0].raw(), (*out)[1].raw());
  EXPECT_NE((*out)[2].raw(), weight.raw());
}

TEST(ExecutableTest, InputErrorsNameTheInput) {
  GraphBuilder b;
  const ValueId x = b.Input("left", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 2}));
  const ValueId y = b.Input("right", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 2}));
  b.Output(b.Op(testing::TestAdd(), {x, y}));
  auto executable = Make(std::move(b).Build());
  const auto message = [&](std::vector<Tensor> inputs) {
    const Status status = RunOnce(*executable, std::move(inputs)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  const Tensor good = Tensor::Of<float>(Shape{1, 2}, {1, 2});
  EXPECT_THAT(message({good}), HasSubstr("1 inputs given, the model takes 2"));
  EXPECT_THAT(message({good, Tensor::Of<int64_t>(Shape{1, 2}, {1, 2})}),
              HasSubstr("input 'right' has element type int64"));
  EXPECT_THAT(message({Floats({1}), good}), HasSubstr("input 'left' has shape [1]"));
  EXPECT_THAT(message({good, Tensor::Of<float>(Shape{1, 1}, {1})}),
              HasSubstr("input 'right' has shape [1,1], the model takes [n,2]"));
  EXPECT_THAT(message({good, Tensor::Of<float>(Shape{2, 2}, {1, 2, 3, 4})}),
              HasSubstr("'n' is 1 in input 'left'"));
}

TEST(ExecutableTest, ShapesThatDependOnDataAreFoundAtRunTime) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId kept = b.Op(testing::TestPositive(), {x});
  b.Output(b.Op(testing::TestAdd(), {kept, kept}));
  b.Output(b.Op(testing::TestSum(), {kept}));
  auto executable = Make(std::move(b).Build());

  auto out = RunOnce(*executable, {Floats({1, -1, 3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT((*out)[0].values<float>(), ElementsAre(2, 6));
  EXPECT_THAT((*out)[1].values<float>(), ElementsAre(4));
  out = RunOnce(*executable, {Floats({-1, -1, -3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{0}));
}

TEST(ExecutableTest, WhatNoKernelCanDoIsRefusedAtOnce) {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Nothing",
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, c.dtype(0), c.shape(0));
        return absl::OkStatus();
      },
      .compile = [](const CompileContext&) -> StatusOr<std::unique_ptr<Kernel>> {
        return Unimplemented("nothing can be done");
      }};
  GraphBuilder b;
  b.Output(b.Op(kDef, {b.Input("x", DType::kFloat, SymbolicShape({Dim::Symbol("n"), 4}))}));
  const Status status = Executable::Create(std::move(b).Build(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("node 'Nothing0' (Nothing)"));
  EXPECT_THAT(Message(status), HasSubstr("nothing can be done"));
}

TEST(ExecutableTest, AKernelErrorNamesTheNode) {
  GraphBuilder b;
  const ValueId x = b.Input("x", DType::kFloat, Vector("n"));
  const ValueId y = b.Input("y", DType::kFloat, Vector("m"));
  b.Output(b.Op(testing::TestAdd(), {x, y}));
  auto executable = Make(std::move(b).Build());
  const Status status = RunOnce(*executable, {Floats({1, 2, 3}), Floats({1, 2})}).status();
  EXPECT_THAT(Message(status), HasSubstr("node 'Add0' (Add)"));
  EXPECT_THAT(Message(status), HasSubstr("cannot add [2] to [3]"));
}

}  // namespace executable_test
}  // namespace chairlift
