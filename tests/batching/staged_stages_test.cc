// The batch table and the buffer pairs of staged batching, on the document's examples.
#include <gmock/gmock.h>

#include "batching/policies/stages/batch_table.h"
#include "batching/policies/stages/buffer_pairs.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

BatchPart RunNext(BatchTable& table, int32_t stage) {
  const BatchPart part = table.Take(stage);
  table.Update(stage, part);
  return part;
}

// DVABatch Fig. 8; its stages count from 1.
TEST(BatchTableTest, ABatchIsMadeStretchedMergedAndSplit) {
  BatchTable table(4);
  const StagedBatchId id = table.New(2, TimePoint());
  BatchPart part = RunNext(table, 0);
  EXPECT_EQ(part, (BatchPart{id, 0, 2}));
  table.Forward(0, part);
  EXPECT_THAT(table.row(id).completed, ElementsAre(2, 0, 0, 0));

  const BatchPart old = table.Take(1);  // executor 2 runs it
  ASSERT_TRUE(table.MayStretch(id));
  table.Stretch(id, 2);
  EXPECT_EQ(table.row(id).size, 4);
  table.Update(1, old);
  table.Forward(1, old);
  EXPECT_EQ(table.Front(2), nullptr) << "the old part waits";
  part = RunNext(table, 0);
  EXPECT_EQ(part, (BatchPart{id, 2, 2}));
  table.Forward(0, part);
  part = RunNext(table, 1);
  EXPECT_EQ(part, (BatchPart{id, 2, 2}));
  table.Forward(1, part);

  part = RunNext(table, 2);
  EXPECT_EQ(part, (BatchPart{id, 0, 4}));
  const int32_t halves[] = {2, 2};
  const std::vector<StagedBatchId> parts = table.Split(2, id, halves);
  for (const StagedBatchId half : parts) {
    EXPECT_FALSE(table.MayStretch(half));
    part = RunNext(table, 3);
    EXPECT_EQ(part, (BatchPart{half, 0, 2}));
    table.Forward(3, part);
  }
  EXPECT_TRUE(table.empty());
}

TEST(BatchTableTest, OnlyTheLatestBatchStretchesAndNotAtItsLastStage) {
  BatchTable table(2);
  const StagedBatchId first = table.New(1, TimePoint());
  EXPECT_TRUE(table.MayStretch(first));
  const StagedBatchId second = table.New(1, TimePoint(), /*may_stretch=*/false);
  EXPECT_FALSE(table.MayStretch(first));
  EXPECT_FALSE(table.MayStretch(second));
  const StagedBatchId third = table.New(1, TimePoint());
  for (int i = 0; i < 3; ++i) table.Forward(0, RunNext(table, 0));
  EXPECT_FALSE(table.MayStretch(third));
}

TEST(BatchTableTest, ABatchHasCaughtUpWhereItsFirstQueryIs) {
  BatchTable table(3);
  const StagedBatchId id = table.New(1, TimePoint());
  table.Forward(0, RunNext(table, 0));
  table.Stretch(id, 1);
  const BatchPart newcomer = RunNext(table, 0);
  EXPECT_FALSE(table.CaughtUp(0, id)) << "the first query is a stage further";
  table.Forward(0, newcomer);
  table.Forward(1, RunNext(table, 1));
  EXPECT_FALSE(table.CaughtUp(1, id));
  table.Forward(1, RunNext(table, 1));
  EXPECT_EQ(table.Take(2), (BatchPart{id, 0, 2}));
}

TEST(BatchTableTest, PiecesOfABatchGoOnApartAndMeetWhereTheyAreTo) {
  BatchTable table(3);
  const StagedBatchId id = table.New(3, TimePoint());
  BatchPart piece = table.TakePiece(0, 1, /*meet_after=*/1);
  EXPECT_EQ(piece, (BatchPart{id, 0, 1}));
  EXPECT_EQ(*table.Front(0), (BatchPart{id, 1, 2}));
  for (int32_t stage = 0; stage < 2; ++stage) {
    table.Update(stage, piece);
    EXPECT_FALSE(table.CaughtUp(stage, id));
    table.Forward(stage, piece);
    if (stage == 0) {
      EXPECT_EQ(table.Take(1), piece);
    }
  }
  EXPECT_EQ(table.Front(2), nullptr) << "it waits for the others";
  ASSERT_TRUE(table.MayStretch(id));
  table.Stretch(id, 1);  // new requests meet them there, too
  while (table.Front(0) != nullptr) table.Forward(0, RunNext(table, 0));
  EXPECT_EQ(*table.Front(1), (BatchPart{id, 1, 2}));
  table.Forward(1, RunNext(table, 1));
  EXPECT_EQ(table.Front(2), nullptr);
  table.Forward(1, RunNext(table, 1));
  EXPECT_EQ(*table.Front(2), (BatchPart{id, 0, 4}));
  table.Forward(2, RunNext(table, 2));
  EXPECT_TRUE(table.empty());
}

TEST(BatchTableTest, ABatchHasNotCaughtUpWhileAPieceIsBeyond) {
  BatchTable table(3);
  const StagedBatchId id = table.New(2, TimePoint());
  const BatchPart first = table.TakePiece(0, 1, /*meet_after=*/1);
  table.Forward(0, RunNext(table, 0));  // the second one, sooner
  table.Update(0, first);
  EXPECT_FALSE(table.CaughtUp(0, id));
  table.Forward(0, first);
  table.Forward(1, RunNext(table, 1));
  const BatchPart last = RunNext(table, 1);
  EXPECT_TRUE(table.CaughtUp(1, id));
  table.Forward(1, last);
  EXPECT_EQ(*table.Front(2), (BatchPart{id, 0, 2}));
}

TEST(BufferPairsTest, OnePairRunsBatchesOneAfterTheOther) {
  BufferPairs buffers(3, 1);
  for (int64_t batch = 0; batch < 3; ++batch) {
    ASSERT_THAT(buffers.Legitimate(), Optional(0));
    for (int32_t stage = 0; stage < 3; ++stage) {
      ASSERT_TRUE(buffers.Begin(stage, 0, batch, 4));
      EXPECT_EQ(buffers.executor(stage), ExecutorState::kWorking);
      EXPECT_EQ(buffers.buffer(stage, 0), BufferState::kInReading);
      EXPECT_EQ(buffers.buffer(stage + 1, 0), BufferState::kInWriting);
      EXPECT_EQ(buffers.Legitimate(), std::nullopt);
      buffers.End(stage, 0, 4);
      if (stage == 2) break;
      EXPECT_EQ(buffers.buffer(stage, 0), BufferState::kInvalid);
      EXPECT_EQ(buffers.executor(stage), ExecutorState::kInactive);
      EXPECT_EQ(buffers.Legitimate(), std::nullopt);
      EXPECT_FALSE(buffers.Begin(0, 0, batch + 1, 4));
      EXPECT_EQ(buffers.executor(0), ExecutorState::kChecking);
    }
  }
}

TEST(BufferPairsTest, TwoPairsRunAsAPipeline) {
  BufferPairs buffers(2, 2);
  ASSERT_THAT(buffers.Legitimate(), Optional(0));
  ASSERT_TRUE(buffers.Begin(0, 0, 0, 1));
  buffers.End(0, 0, 1);
  ASSERT_THAT(buffers.Legitimate(), Optional(1));
  ASSERT_TRUE(buffers.Begin(1, 0, 0, 1));
  ASSERT_TRUE(buffers.Begin(0, 1, 1, 1));  // both executors work
  buffers.End(0, 1, 1);
  // What executor 1 reads is not to be written yet.
  EXPECT_EQ(buffers.Legitimate(), std::nullopt);
  buffers.End(1, 0, 1);
  EXPECT_THAT(buffers.Legitimate(), Optional(0));
  // Nor what it has still to read.
  EXPECT_FALSE(buffers.Begin(0, 1, 2, 1));
}

TEST(BufferPairsTest, NewcomersShareTheBuffersOfTheirOwnBatchOnly) {
  BufferPairs buffers(2, 1);
  ASSERT_TRUE(buffers.Begin(0, 0, 7, 2));
  buffers.End(0, 0, 2);
  ASSERT_TRUE(buffers.Begin(1, 0, 7, 2));
  EXPECT_FALSE(buffers.Begin(0, 0, 8, 1));
  EXPECT_TRUE(buffers.Begin(0, 0, 7, 1));
}

TEST(BufferPairsTest, AnExecutorMayRunSeveralPartsAtOnce) {
  BufferPairs buffers(2, 2, 2);
  ASSERT_TRUE(buffers.Begin(0, 0, 0, 1));
  EXPECT_THAT(buffers.Legitimate(), Optional(1));
  ASSERT_TRUE(buffers.Begin(0, 1, 1, 1));
  EXPECT_EQ(buffers.Legitimate(), std::nullopt);
  buffers.End(0, 1, 1);
  EXPECT_EQ(buffers.executor(0), ExecutorState::kWorking);
  EXPECT_TRUE(buffers.Begin(1, 1, 1, 1));  // it need not wait for the other
  buffers.End(0, 0, 1);
  EXPECT_TRUE(buffers.Begin(1, 0, 0, 1));
}

}  // namespace
}  // namespace chairlift
