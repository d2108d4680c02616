// Inputs that the command line makes up.
#include "cli/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace chairlift {
namespace {

TEST(MakeInputsTest, FitWhatEncodersAreGiven) {
  const std::vector<TensorSpec> specs = {{"input_ids", DType::kInt64, {-1, -1}},
                                         {"attention_mask", DType::kInt64, {-1, -1}},
                                         {"token_type_ids", DType::kInt64, {-1, -1}},
                                         {"scores", DType::kFloat, {-1, 3}}};
  std::mt19937_64 random(1);
  const auto inputs = MakeInputs(specs, {.by_name = {}, .batch = 4, .length = 50}, random);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->size(), 4u);
  const auto range = [&](size_t i) {
    const Tensor& tensor = (*inputs)[i].tensor;
    EXPECT_EQ(tensor.shape(), (Shape{4, 50}));
    const auto [least, most] =
        std::minmax_element(tensor.data<int64_t>(), tensor.data<int64_t>() + tensor.size());
    return std::pair(*least, *most);
  };
  EXPECT_EQ(range(0), std::pair(int64_t{0}, int64_t{1})) << "rows that any table has";
  EXPECT_EQ(range(1), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(range(2), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ((*inputs)[3].tensor.shape(), (Shape{4, 3}));
}

}  // namespace
}  // namespace chairlift
