// Inputs that the command line makes up.
#include "cli/inputs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace chairlift {
namespace {

TEST(MakeInputsTest, FitWhatEncodersAreGiven) {
  const std::vector<TensorSpec> specs = {{"input_ids", DType::kInt64, {-1, -1}},
                                         {"attention_mask", DType::kInt64, {-1, -1}},
                                         {"token_type_ids", DType::kInt64, {-1, -1}},
                                         {"scores", DType::kFloat, {-1, 3}},
                                         {"sr", DType::kInt64, {}},
                                         {"children", DType::kInt64, {-1, 2}}};
  std::mt19937_64 random(1);
  const auto inputs = MakeInputs(specs, {.by_name = {}, .batch = 4, .length = 50}, random);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_EQ(inputs->size(), 6u);
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
  EXPECT_EQ((*inputs)[4].tensor.data<int64_t>()[0], 16000) << "samples a second";
  EXPECT_EQ((*inputs)[5].tensor.data<int64_t>()[0], -1) << "no child";
}

TEST(MakeInputsTest, OfAModelThatGeneratesAPromptAndHowManyTokensFollow) {
  const std::vector<TensorSpec> specs = {{"input_ids", DType::kInt64, {1, -1}},
                                         {"max_tokens", DType::kInt32, {1}},
                                         {"ignore_eos", DType::kBool, {1}},
                                         {"stop_token_ids", DType::kInt64, {-1}},
                                         {"temperature", DType::kFloat, {1}},
                                         {"num_beams", DType::kInt32, {1}},
                                         {"decoder_input_ids", DType::kInt64, {1, -1}}};
  std::mt19937_64 random(1);
  const InputShapes shapes = {.by_name = {}, .batch = 1, .length = 12};
  const auto inputs = MakeInputs(specs, shapes, random);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_EQ(*DescribeInputs(specs, shapes),
            "input_ids int64 [1,12], max_tokens int32 [1], ignore_eos bool [1], decoder_input_ids "
            "int64 [1,1]");
  ASSERT_EQ(inputs->size(), 4u);
  EXPECT_EQ((*inputs)[1].tensor.data<int32_t>()[0], 8);
  EXPECT_TRUE((*inputs)[2].tensor.data<bool>()[0]);
}

const std::vector<TensorSpec> kStateful = {{"x", DType::kFloat, {-1, -1}},
                                           {"state", DType::kFloat, {2, -1, 8}}};

TEST(FindShapesTest, TriesLengthsAndBothMeaningsOfAStateUntilOneWillDo) {
  const std::vector<int64_t> lengths = {32, 64};
  std::vector<std::string> tried;
  const auto found = FindShapes(kStateful, {}, lengths, [&](const InputShapes& shapes) -> Status {
    tried.push_back(*DescribeInputs(kStateful, shapes));
    return tried.size() == 4 ? absl::OkStatus() : absl::InvalidArgumentError("no");
  });
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->length, 32);
  EXPECT_TRUE(found->fixed_first_is_state);
  EXPECT_EQ(tried, (std::vector<std::string>{"x float32 [1,16], state float32 [2,16,8]",
                                             "x float32 [1,16], state float32 [2,1,8]",
                                             "x float32 [1,32], state float32 [2,32,8]",
                                             "x float32 [1,32], state float32 [2,1,8]"}));
}

TEST(FindShapesTest, SaysWhatWasRefusedFirstAndStopsAtOtherErrors) {
  const std::vector<int64_t> lengths = {32, 1 << 25};
  int attempts = 0;
  const auto refuse = [&](absl::StatusCode code) {
    return [&attempts, code](const InputShapes&) {
      return Status(code, fmt::format("{}", ++attempts));
    };
  };
  const Status refused =
      FindShapes(kStateful, {}, lengths, refuse(absl::StatusCode::kInvalidArgument)).status();
  EXPECT_THAT(refused.ToString(), ::testing::HasSubstr("state float32 [2,16,8]: 1; set other"));
  EXPECT_EQ(attempts, 4) << "what is too large is not tried";
  const Status full =
      FindShapes(kStateful, {}, lengths, refuse(absl::StatusCode::kResourceExhausted)).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(attempts, 5);
}

}  // namespace
}  // namespace chairlift
