// Kernels whose work grows faster than their inputs end early when they are stopped.
#include "base/stop_poll.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "chairlift/text.h"
#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::OperatorCall;
using testing::RunOperator;

Tensor Filled(const Shape& shape, float value = 1) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::fill_n(t.data<float>(), t.size(), value);
  return t;
}

Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor t = Tensor::Allocate(dtype, shape);
  std::memset(t.raw(), 0, t.byte_size());
  return t;
}

// Boxes in a row, so that none overlaps another.
Tensor Boxes(int64_t count) {
  Tensor boxes = Tensor::Allocate(DType::kFloat, {1, count, 4});
  for (int64_t i = 0; i < count; ++i) {
    float* const box = boxes.data<float>() + 4 * i;
    box[0] = static_cast<float>(2 * i);
    box[1] = 0;
    box[2] = static_cast<float>(2 * i + 1);
    box[3] = 1;
  }
  return boxes;
}

Tensor Identity(int64_t n) {
  Tensor t = Filled({1, n, n}, 0);
  for (int64_t i = 0; i < n; ++i) t.data<float>()[i * n + i] = 1;
  return t;
}

// Each has work for several polls, and is small enough to run to its end.
std::vector<OperatorCall> LongCalls() {
  const Tensor regions = Tensor::Of<float>({1, 5}, {0, 0, 0, 1023, 1023});
  const Tensor corners = Tensor::Of<float>({1, 4}, {0, 0, 1023, 1023});
  const Tensor doubles = Zeros(DType::kDouble, {128, 128});
  return {
      {.name = "TfIdfVectorizer",
       .attributes = Attrs({{"mode", std::string("TF")},
                            {"min_gram_length", int64_t{2}},
                            {"max_gram_length", int64_t{2}},
                            {"max_skip_count", int64_t{1000}},
                            {"ngram_counts", std::vector<int64_t>{0, 0}},
                            {"ngram_indexes", std::vector<int64_t>{0}},
                            {"pool_int64s", std::vector<int64_t>{0, 0}}}),
       .inputs = {Zeros(DType::kInt64, {1000})}},
      {.name = "NonMaxSuppression",
       .inputs = {Boxes(1000), Filled({1, 1, 1000}), Tensor::Scalar<int64_t>(1000),
                  Tensor::Scalar(0.5f)}},
      {.name = "RoiAlign",
       .inputs = {Filled({1, 1, 1024, 1024}), corners, Zeros(DType::kInt64, {1})}},
      {.name = "MaxRoiPool",
       .attributes = Attrs({{"pooled_shape", std::vector<int64_t>{1, 1}}}),
       .inputs = {Filled({1, 1, 1024, 1024}), regions}},
      {.name = "Det", .inputs = {Identity(256)}},
      {.name = "Einsum",
       .attributes = Attrs({{"equation", std::string("ab->")}}),
       .inputs = {Filled({1024, 1024})}},
      {.name = "MatMul", .inputs = {Filled({64, 64}), Filled({64, 64})}},
      {.name = "MatMul", .inputs = {doubles, doubles}},
      {.name = "RegexFullMatch",
       .attributes = Attrs({{"pattern", std::string("a*")}}),
       .inputs = {TextTensor({1}, {std::string(2'000'000, 'a')})}},
      {.name = "Tokenizer",
       .attributes = Attrs({{"mincharnum", int64_t{1}}, {"tokenexp", std::string("a(b*c)?")}}),
       .inputs = {TextTensor({1}, {std::string(4000, 'a')})},
       .domain = "chairlift"},
  };
}

TEST(StopPollTest, LongKernelsEndWhenTheyAreStopped) {
  for (const OperatorCall& call : LongCalls()) {
    SCOPED_TRACE(call.name);
    std::atomic<bool> stop{false};
    {
      const StopScope scope(&stop);
      const auto whole = RunOperator(call);
      EXPECT_TRUE(whole.ok()) << whole.status();
    }
    stop = true;
    {
      const StopScope scope(&stop);
      EXPECT_TRUE(absl::IsCancelled(RunOperator(call).status()));
    }
    const auto after = RunOperator(call);  // the scope has ended
    EXPECT_TRUE(after.ok()) << after.status();
  }
}

TEST(StopPollTest, ScopesNest) {
  std::atomic<bool> outer{true}, inner{false};
  EXPECT_FALSE(StopPoll().Stopped());
  const StopScope a(&outer);
  EXPECT_TRUE(StopPoll().Stopped());
  {
    const StopScope b(&inner);
    EXPECT_FALSE(StopPoll().Stopped());
    const StopScope none(nullptr);
    EXPECT_FALSE(StopPoll().Stopped(int64_t{1} << 40));
  }
  EXPECT_EQ(StopPoll().Result().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace chairlift
