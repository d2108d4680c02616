// RaggedQuantize against DynamicQuantizeLinear of each segment alone, bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/operator_harness.h"
#include "ops/ragged/packed_sequences.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::Offsets;
using testing::OperatorCall;
using testing::Packing;
using testing::Packings;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

const Shape kRows[] = {{1}, {5}, {8}, {67}, {0}, {3, 4}, {2, 3, 9}};

std::vector<Tensor> Quantized(const OperatorCall& call, int width = 1) {
  ThreadTeam team(width);
  OperatorCall three = call;
  three.num_outputs = 3;
  auto got = RunOperator(three, &team);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.ok() ? *std::move(got) : std::vector<Tensor>();
}

// Checks tokens [first, last) of `got` against x[first, last) alone.
void ExpectAsAlone(const Tensor& x, const std::vector<Tensor>& got, int64_t first, int64_t last) {
  const std::vector<Tensor> alone =
      Quantized({.name = "DynamicQuantizeLinear", .inputs = {x.Rows(first, last - first).Clone()}});
  ASSERT_EQ(alone.size(), 3u);
  const Tensor y = got[0].Rows(first, last - first);
  EXPECT_EQ(std::memcmp(y.raw(), alone[0].raw(), alone[0].byte_size()), 0);
  const Tensor scales = got[1].Rows(first, last - first), zeros = got[2].Rows(first, last - first);
  for (int64_t i = 0; i < scales.size(); ++i) {
    ASSERT_EQ(scales.data<float>()[i], alone[1].data<float>()[0]);
    ASSERT_EQ(zeros.data<uint8_t>()[i], alone[2].data<uint8_t>()[0]);
  }
}

void Check(const Tensor& x, const Packing& packing, int width) {
  const std::vector<Tensor> got = Quantized(
      {.name = "RaggedQuantize", .inputs = {x, Offsets(packing.lengths)}, .domain = "chairlift"},
      width);
  ASSERT_EQ(got.size(), 3u);
  Shape parameters = x.shape();
  parameters[parameters.rank() - 1] = 1;
  EXPECT_EQ(got[0].shape(), x.shape());
  EXPECT_EQ(got[1].shape(), parameters);
  EXPECT_EQ(got[2].shape(), parameters);
  int64_t first = 0;
  for (const int64_t length : packing.lengths) {
    if (length > 0) ExpectAsAlone(x, got, first, first + length);
    first += length;
  }
  for (const Tensor& t : got) {  // behind the last segment
    const Tensor spare = t.Rows(first, packing.spare);
    const auto* bytes = static_cast<const std::byte*>(spare.raw());
    for (size_t i = 0; i < spare.byte_size(); ++i) ASSERT_EQ(bytes[i], std::byte{0});
  }
}

TEST(RaggedQuantizeTest, EachSegmentIsQuantizedAsItIsAlone) {
  for (const Packing& packing : Packings()) {
    for (const Shape& rows : kRows) {
      Shape shape{packing.tokens()};
      for (const int64_t dim : rows) shape.Append(dim);
      Check(RandomTensor(DType::kFloat, shape, -9, 4, 7), packing, 1);
    }
  }
  const Packing large{{700, 1, 0, 333}, 5};
  Check(RandomTensor(DType::kFloat, {large.tokens(), 130}, 0, 3, 7), large, 3);
}

TEST(RaggedQuantizeTest, UnusualNumbersStayInTheirSegment) {
  const Packing packing{{3, 2, 4, 1}, 1};
  Tensor x = RandomTensor(DType::kFloat, {packing.tokens(), 11}, -1, 1, 5);
  auto* data = x.data<float>();
  std::fill_n(data + 3 * 11, 2 * 11, 0.0f);  // all zeros
  data[0] = std::numeric_limits<float>::quiet_NaN();
  data[5 * 11] = std::numeric_limits<float>::max();
  data[5 * 11 + 1] = std::numeric_limits<float>::lowest();
  data[9 * 11 + 10] = std::numeric_limits<float>::infinity();
  data[10 * 11] = 1e30f;  // belongs to no segment
  Check(x, packing, 1);
}

TEST(RaggedQuantizeTest, SequencesOfARequestHaveOneRange) {
  const Tensor x = RandomTensor(DType::kFloat, {19, 2, 5}, -2, 7, 3);
  const std::vector<Tensor> got =
      Quantized({.name = "RaggedQuantize",
                 .inputs = {x, Offsets({3, 0, 7, 1, 5, 0}), Offsets({2, 1, 0, 3, 0, 0})},
                 .domain = "chairlift"});
  ASSERT_EQ(got.size(), 3u);
  ExpectAsAlone(x, got, 0, 3);
  ExpectAsAlone(x, got, 3, 10);
  ExpectAsAlone(x, got, 10, 16);
  for (int64_t i = 16 * 2; i < got[1].size(); ++i) EXPECT_EQ(got[1].data<float>()[i], 0.0f);
}

TEST(RaggedQuantizeTest, WithoutOffsetsAllIsOneSegment) {
  const Tensor x = RandomTensor(DType::kFloat, {4, 3, 5}, -2, 7, 3);
  const std::vector<Tensor> got =
      Quantized({.name = "RaggedQuantize", .inputs = {x}, .domain = "chairlift"});
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[1].shape(), Shape({4, 3, 1}));
  ExpectAsAlone(x, got, 0, 4);
}

TEST(RowQuantizeTest, EachRowIsQuantizedAsItIsAlone) {
  for (const Shape& shape : {Shape{4, 5}, Shape{3, 2, 9}, Shape{1, 8}, Shape{0, 3}, Shape{2, 0}}) {
    const Tensor x = RandomTensor(DType::kFloat, shape, -2, 7, 3);
    const std::vector<Tensor> got =
        Quantized({.name = "RowQuantize", .inputs = {x}, .domain = "chairlift"});
    ASSERT_EQ(got.size(), 3u);
    for (int64_t row = 0; row < shape[0]; ++row) ExpectAsAlone(x, got, row, row + 1);
  }
}

TEST(RaggedQuantizeTest, OffsetsAreChecked) {
  const Tensor x = RandomTensor(DType::kFloat, {4, 5}, -2, 7, 3);
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{1, 4}, {0, 5}, {0, 3, 2}, {0, -1}}) {
    const Tensor offsets = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(wrong.size())},
                                               std::span<const int64_t>(wrong));
    const auto got =
        RunOperator({.name = "RaggedQuantize", .inputs = {x, offsets}, .domain = "chairlift"});
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    const auto of_requests = RunOperator({.name = "RaggedQuantize",
                                          .inputs = {x, Offsets({1, 1, 1, 1}), offsets},
                                          .domain = "chairlift"});
    EXPECT_EQ(of_requests.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace chairlift
