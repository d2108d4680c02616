// Tokens of several requests in one batch, and what comes out of it back to each.
#include "engine/programs/packing.h"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <memory>
#include <numeric>

namespace chairlift {
namespace {

using ::testing::ElementsAre;

SymbolicShape Dims(std::vector<Dim> dims) { return SymbolicShape(std::move(dims)); }
const Dim kBatch = Dim::Symbol("batch");
const Dim kLength = Dim::Symbol("length");

// ids and mask by token, a weight by sequence, two features by token and one by sequence out.
Signature Encoder() {
  Signature s;
  s.inputs = {{"ids", DType::kInt64, Dims({kBatch, kLength})},
              {"mask", DType::kInt64, Dims({kBatch, kLength})},
              {"weight", DType::kFloat, Dims({kBatch})}};
  s.outputs = {{"hidden", DType::kFloat, Dims({kBatch, kLength, 2})},
               {"pooled", DType::kFloat, Dims({kBatch, 1})}};
  s.batches = true;
  s.sequences = SequenceSignature{.token_inputs = {true, true, false},
                                  .token_outputs = {true, false},
                                  .mask = 1,
                                  .marks = {},
                                  .first_marks = {},
                                  .all_marks = {},
                                  .sequences_ignore_masked = true,
                                  .max_length = 16};
  return s;
}

const std::vector<RaggedInput> kInputs = {{RaggedRole::kTokens, 0},
                                          {RaggedRole::kOffsets, -1},
                                          {RaggedRole::kPositions, -1},
                                          {RaggedRole::kRows, 2},
                                          {RaggedRole::kTokens, 1}};

InferRequest Ask(int64_t rows, int64_t length, int64_t first_id, std::vector<int64_t> mask = {}) {
  std::vector<int64_t> ids(static_cast<size_t>(rows * length));
  std::iota(ids.begin(), ids.end(), first_id);
  if (mask.empty()) mask.assign(ids.size(), 1);
  std::vector<float> weight(static_cast<size_t>(rows), static_cast<float>(first_id));
  InferRequest request;
  request.inputs = {{"ids", Tensor::Of<int64_t>({rows, length}, ids)},
                    {"mask", Tensor::Of<int64_t>({rows, length}, mask)},
                    {"weight", Tensor::Of<float>({rows}, weight)}};
  return request;
}

ValidatedRequest Accept(const Signature& signature, const InferRequest& asked) {
  StatusOr<ValidatedRequest> validated = Validate(signature, asked);
  EXPECT_TRUE(validated.ok()) << validated.status();
  return validated.ok() ? *std::move(validated) : ValidatedRequest{};
}

bool RunsAlone(const Signature& signature, const InferRequest& asked) {
  return Accept(signature, asked).runs_alone;
}

TEST(PackingTest, RoomIsAFewPerCentLargerAtMost) {
  EXPECT_EQ(TokenRoom(0), 1);
  EXPECT_EQ(TokenRoom(63), 63);
  EXPECT_EQ(TokenRoom(65), 66);
  EXPECT_EQ(TokenRoom(1025), 1056);
  for (int64_t n = 1; n < 10000; n += 7) {
    EXPECT_GE(TokenRoom(n), n);
    EXPECT_LE(TokenRoom(n), n + n / 32 + 1) << n;
    EXPECT_EQ(TokenRoom(TokenRoom(n)), TokenRoom(n)) << n;
  }
  EXPECT_EQ(SequenceRoom(1), 1);
  EXPECT_EQ(SequenceRoom(5), 8);
}

TEST(PackingTest, PacksWhatTheMaskCounts) {
  const Signature s = Encoder();
  InferRequest first = Ask(2, 3, 10, {1, 1, 0, 0, 1, 1});  // a padded end, and a padded beginning
  first.outputs = {"pooled"};
  InferRequest second = Ask(1, 2, 50);
  const auto a = Accept(s, first), b = Accept(s, second);
  EXPECT_EQ(a.load(), 4);
  EXPECT_EQ(b.load(), 2);
  const ValidatedRequest* const requests[] = {&a, &b};
  const Packing packing(s, kInputs, requests);
  Arena staging;
  const auto inputs = packing.Inputs(staging);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT((*inputs)[0].values<int64_t>(), ElementsAre(10, 11, 14, 15, 50, 51));
  EXPECT_THAT((*inputs)[1].values<int64_t>(), ElementsAre(0, 2, 4, 6, 6));
  EXPECT_THAT((*inputs)[2].values<int64_t>(), ElementsAre(0, 1, 1, 2, 0, 1));
  EXPECT_THAT((*inputs)[3].values<float>(), ElementsAre(10, 10, 50, 0));
  EXPECT_THAT((*inputs)[4].values<int64_t>(), ElementsAre(1, 1, 1, 1, 1, 1));

  const std::vector<Tensor> outputs = {
      Tensor::Of<float>({6, 2}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}),
      Tensor::Of<float>({4, 1}, {100, 101, 102, 103})};
  const auto to_a = packing.Outputs(0, outputs), to_b = packing.Outputs(1, outputs);
  ASSERT_TRUE(to_a.ok() && to_b.ok());
  ASSERT_EQ(to_a->size(), 1u);
  EXPECT_EQ((*to_a)[0].name, "pooled");
  EXPECT_THAT((*to_a)[0].tensor.values<float>(), ElementsAre(100, 101));
  EXPECT_EQ((*to_b)[0].tensor.shape(), (Shape{1, 2, 2}));
  EXPECT_THAT((*to_b)[0].tensor.values<float>(), ElementsAre(4, 4, 5, 5));
  EXPECT_THAT((*to_b)[1].tensor.values<float>(), ElementsAre(102));
}

TEST(PackingTest, WhatRoundsABatchIsZeros) {
  const Signature s = Encoder();
  std::deque<ValidatedRequest> owned;
  std::vector<const ValidatedRequest*> requests;
  for (int i = 0; i < 13; ++i) {
    owned.push_back(Accept(s, Ask(1, 5, 7)));
    requests.push_back(&owned.back());
  }
  Arena staging;
  const auto inputs = Packing(s, kInputs, requests).Inputs(staging);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  for (const size_t i : {0, 2, 4}) {
    ASSERT_EQ((*inputs)[i].shape(), (Shape{66})) << i;
    EXPECT_EQ((*inputs)[i].data<int64_t>()[65], 0) << i;
  }
  EXPECT_THAT((*inputs)[1].values<int64_t>().subspan(12), ElementsAre(60, 65, 65, 65, 65));
}

TEST(PackingTest, WhereGapsMatterOnlyTheEndIsLeftOut) {
  Signature s = Encoder();
  s.sequences->sequences_ignore_masked = false;
  s.sequences->sequences_ignore_trailing = true;
  InferRequest asked = Ask(2, 4, 10, {1, 0, 1, 0, 0, 0, 0, 1});
  asked.outputs = {"pooled"};
  const auto request = Accept(s, asked);
  EXPECT_THAT(request.tokens, ElementsAre(3, 4));
  const ValidatedRequest* const requests[] = {&request};
  Arena staging;
  const auto inputs = Packing(s, kInputs, requests).Inputs(staging);
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  EXPECT_THAT((*inputs)[0].values<int64_t>(), ElementsAre(10, 11, 12, 14, 15, 16, 17));
  EXPECT_THAT((*inputs)[4].values<int64_t>(), ElementsAre(1, 0, 1, 0, 0, 0, 1));
}

TEST(PackingTest, MaskedTokensAreComputedWhereTheyAreWanted) {
  const auto request = Accept(Encoder(), Ask(1, 3, 0, {1, 0, 0}));
  EXPECT_EQ(request.load(), 3);
  EXPECT_TRUE(request.left_out.empty());
}

TEST(PackingTest, ASequenceWithoutACountedTokenIsKeptWhole) {
  InferRequest asked = Ask(2, 2, 0, {0, 0, 1, 0});
  asked.outputs = {"pooled"};
  const auto request = Accept(Encoder(), asked);
  EXPECT_THAT(request.tokens, ElementsAre(2, 1));
}

TEST(PackingTest, EveryElementTypeOfAMaskIsRead) {
  for (const DType dtype :
       {DType::kInt64, DType::kInt32, DType::kBool, DType::kFloat, DType::kUInt8, DType::kInt8}) {
    Signature s = Encoder();
    s.inputs[1].dtype = dtype;
    InferRequest asked = Ask(1, 4, 0);
    asked.outputs = {"pooled"};
    Tensor mask = Tensor::Allocate(dtype, {1, 4});
    std::memset(mask.raw(), 0, mask.byte_size());
    asked.inputs[1].tensor = mask;
    EXPECT_EQ(Accept(s, asked).load(), 4) << DTypeName(dtype);
    // 1 in the third place.
    const float one = 1;
    auto* at = static_cast<char*>(mask.raw()) + 2 * DTypeSize(dtype);
    if (dtype == DType::kFloat) {
      std::memcpy(at, &one, sizeof(one));
    } else {
      *at = 1;
    }
    EXPECT_EQ(Accept(s, asked).load(), 1) << DTypeName(dtype);
  }
}

TEST(PackingTest, WhatCannotBePackedRunsAlone) {
  EXPECT_FALSE(RunsAlone(Encoder(), Ask(1, 16, 0)));
  EXPECT_TRUE(RunsAlone(Encoder(), Ask(1, 17, 0)));
  EXPECT_TRUE(RunsAlone(Encoder(), Ask(1, 0, 0)));
  EXPECT_TRUE(RunsAlone(Encoder(), Ask(0, 4, 0)));
  EXPECT_TRUE(RunsAlone(Encoder(), Ask(1, 2, 0, {1, 2})));
  Signature s = Encoder();
  s.sequences->mask = -1;
  EXPECT_FALSE(RunsAlone(s, Ask(1, 2, 0, {1, 2})));
  s.sequences->marks = {1};
  EXPECT_TRUE(RunsAlone(s, Ask(1, 2, 0, {1, 2})));
  EXPECT_FALSE(RunsAlone(s, Ask(1, 2, 0, {1, 0})));
}

TEST(PackingTest, WhatCannotBePaddedRunsAlone) {
  Signature s = Encoder();
  s.sequences->padded = true;
  EXPECT_FALSE(RunsAlone(s, Ask(2, 2, 0, {1, 0, 0, 1})));
  EXPECT_TRUE(RunsAlone(s, Ask(2, 2, 0, {1, 0, 0, 0}))) << "padding would count as much";
  EXPECT_TRUE(RunsAlone(s, Ask(1, 2, 0, {1, 3})));
  EXPECT_TRUE(RunsAlone(s, Ask(1, 0, 0)));
}

TEST(PackingTest, AloneARequestCountsForItsTokens) {
  EXPECT_EQ(Accept(Encoder(), Ask(3, 20, 0)).load(), 60);
  EXPECT_EQ(Accept(Encoder(), Ask(0, 20, 0)).load(), 1);
}

TEST(PackingTest, RefusesWhatTheModelDoesNotTake) {
  InferRequest uneven = Ask(1, 4, 0);
  uneven.inputs[1] = Ask(1, 3, 0).inputs[1];
  EXPECT_FALSE(Validate(Encoder(), uneven).ok());
}

TEST(PackingTest, AnOutputOfAnotherShapeIsAnError) {
  const Signature s = Encoder();
  const auto request = Accept(s, Ask(1, 2, 0));
  const ValidatedRequest* const requests[] = {&request};
  const Packing packing(s, kInputs, requests);
  const std::vector<Tensor> outputs = {Tensor::Allocate(DType::kFloat, {3, 2}),
                                       Tensor::Allocate(DType::kFloat, {1, 1})};
  EXPECT_EQ(packing.Outputs(0, outputs).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace chairlift
