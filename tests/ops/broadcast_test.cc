// The broadcasting shape rule on symbols, and loops over channel-blocked operands.
#include "ops/broadcast.h"

#include <gtest/gtest.h>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::RandomTensor;

const Dim kN = Dim::Symbol("n");
const Dim kM = Dim::Symbol("m");

TEST(BroadcastDimsTest, KeepsWhatIsCertain) {
  EXPECT_TRUE(BroadcastDims(kN, 1)->Same(kN));
  EXPECT_TRUE(BroadcastDims(1, kN)->Same(kN));
  EXPECT_TRUE(BroadcastDims(kN, kN)->Same(kN));
  EXPECT_TRUE(BroadcastDims(kN, 5)->Same(5));
  EXPECT_TRUE(BroadcastDims(0, kN)->Same(0));
  EXPECT_TRUE(BroadcastDims(Dim::Unknown(), 7)->Same(7));
  // Either may be 1.
  const Dim either = *BroadcastDims(kN, kM);
  EXPECT_FALSE(either.known() || either.is_symbol());
  const Dim open = *BroadcastDims(Dim::Unknown(), Dim::Unknown());
  EXPECT_FALSE(open.known() || open.is_symbol());
  EXPECT_EQ(BroadcastDims(2, 3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BroadcastDims(0, 3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BroadcastShapesTest, AlignsAtTheLastDimension) {
  const SymbolicShape shapes[] = {SymbolicShape({kN, 1, 4}), SymbolicShape(Shape{3, 1}),
                                  SymbolicShape::Scalar()};
  const auto joint = BroadcastShapes(shapes);
  ASSERT_TRUE(joint.ok());
  EXPECT_EQ(joint->ToString(), "[n,3,4]");
  const SymbolicShape open[] = {SymbolicShape(), SymbolicShape(Shape{3, 1})};
  EXPECT_FALSE(BroadcastShapes(open)->has_rank());
}

TEST(BroadcastLoopTest, CollapsesWhatAllOperandsWalkAlike) {
  const Shape operands[] = {{2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}};
  const auto loop = MakeBroadcastLoop(operands, Shape{2, 3, 4, 5});
  ASSERT_TRUE(loop.ok());
  EXPECT_EQ(loop->dims, (BroadcastLoop::Vector{2, 3, 20}));
  EXPECT_EQ(loop->strides[0], (BroadcastLoop::Vector{60, 20, 1}));
  EXPECT_EQ(loop->strides[1], (BroadcastLoop::Vector{0, 1, 0}));
  const Shape wrong[] = {{2, 3}};
  EXPECT_FALSE(MakeBroadcastLoop(wrong, Shape{3, 3}).ok());
}

// `t` of shape [n, c, h, w] with its channels in blocks.
Tensor Blocked(const Tensor& t) {
  const int64_t block = ChannelBlock(), channels = t.shape()[1];
  const int64_t plane = t.shape().NumElements(2, t.shape().rank());
  Tensor out = Tensor::Allocate(t.dtype(), t.shape());
  for (int64_t e = 0; e < t.size(); ++e) {
    const int64_t n = e / (channels * plane), c = e / plane % channels, p = e % plane;
    const int64_t to = ((n * (channels / block) + c / block) * plane + p) * block + c % block;
    out.data<float>()[to] = t.data<float>()[e];
  }
  return out;
}

StatusOr<Tensor> RunBlocked(const char* name, const std::vector<Tensor>& inputs,
                            const std::vector<bool>& blocked) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", name);
  std::vector<TensorDesc> descs;
  std::vector<const void*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    descs.push_back({inputs[i].dtype(), inputs[i].shape(),
                     blocked[i] ? Layout::kChannelBlocked : Layout::kRowMajor});
    pointers.push_back(inputs[i].raw());
  }
  const std::vector<TensorDesc> outputs = {
      {inputs[0].dtype(), inputs[0].shape(), Layout::kChannelBlocked}};
  const std::vector<const Tensor*> constants(inputs.size(), nullptr);
  const Attributes none;
  WeightCache weights;
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto kernel,
                             CompileOperator(*def, {none, descs, outputs, constants, weights}));
  Tensor y = Tensor::Allocate(inputs[0].dtype(), inputs[0].shape());
  void* output = y.raw();
  SoloTeam solo;
  CHAIRLIFT_RETURN_IF_ERROR(kernel->Run({pointers, {&output, 1}, nullptr, solo, 0}));
  return y;
}

TEST(BlockedTest, FullPerChannelAndScalarOperands) {
  const int64_t channels = 2 * ChannelBlock();
  const Tensor x = RandomTensor(DType::kFloat, {2, channels, 3, 5}, -1, 1, 1);
  const Tensor full = RandomTensor(DType::kFloat, {2, channels, 3, 5}, -1, 1, 2);
  const struct {
    Tensor operand;
    bool blocked;
  } others[] = {{full, true},
                {RandomTensor(DType::kFloat, {channels, 1, 1}, -1, 1, 3), false},
                {RandomTensor(DType::kFloat, {2, channels, 1, 1}, -1, 1, 4), false},
                {RandomTensor(DType::kFloat, {3, 5}, -1, 1, 5), false},
                {RandomTensor(DType::kFloat, {2, 1, 1, 5}, -1, 1, 6), false},
                {RandomTensor(DType::kFloat, {}, -1, 1, 7), false}};
  for (const auto& [operand, is_blocked] : others) {
    auto expected = testing::RunOperator({"Mul", {}, {x, operand}});
    ASSERT_TRUE(expected.ok()) << expected.status();
    auto actual = RunBlocked("Mul", {Blocked(x), is_blocked ? Blocked(operand) : operand},
                             {true, is_blocked});
    ASSERT_TRUE(actual.ok()) << operand.shape().ToString() << actual.status();
    EXPECT_EQ(testing::AsDoubles(*actual), testing::AsDoubles(Blocked((*expected)[0])))
        << operand.shape().ToString();
  }
  // Row-major along channels and elsewhere at once cannot be walked.
  EXPECT_EQ(RunBlocked("Mul", {Blocked(x), full}, {true, false}).status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace chairlift
