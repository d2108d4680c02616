#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

TEST(ReorderTest, MovesBetweenRowMajorAndBlocked) {
  for (const Shape& shape :
       {Shape{1, 16, 5}, Shape{2, 32, 7, 3}, Shape{1, 64, 40, 41}, Shape{3, 16, 2, 3, 4},
        Shape{2, 16, 1, 1}, Shape{0, 16, 4, 4}, Shape{2, 9, 5, 3}, Shape{1, 24, 60, 61},
        Shape{3, 40, 1}, Shape{2, 17, 70, 71}}) {
    const Tensor x = RandomTensor(DType::kFloat, shape, -1, 1, 3);
    for (int width : {1, 2}) {
      for (uint32_t in : {0u, 1u}) {
        ThreadTeam team(width);
        const auto out = RunOperator({.name = "Reorder",
                                      .inputs = {x},
                                      .domain = "chairlift",
                                      .blocked = {.inputs = in, .outputs = 1 - in}},
                                     &team);
        ASSERT_TRUE(out.ok()) << out.status();
        ExpectNear((*out)[0], AsDoubles(x), 0, shape.ToString());
      }
    }
  }
}

TEST(ReorderTest, RefusesTensorsWithoutSpatialAxes) {
  const Tensor x = RandomTensor(DType::kFloat, {1, 16}, -1, 1, 3);
  EXPECT_EQ(RunOperator({.name = "Reorder", .inputs = {x}, .domain = "chairlift"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace chairlift::testing
