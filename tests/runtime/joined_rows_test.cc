#include "runtime/joined_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/model_builder.h"
#include "runtime/cell.h"
#include "runtime/worker_memory.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::kFloat;
using testing::ModelBuilder;

// Rows of 2 and 1 numbers side by side, beside others of 3.
ModelBuilder Joining() {
  ModelBuilder m(17);
  m.Input("other", kFloat, {"batch", 3}).Input("left", kFloat, {"batch", 2});
  m.Input("right", kFloat, {"batch", 1});
  return m;
}

std::vector<std::vector<int>> SourcesOf(const ModelBuilder& m) {
  StatusOr<ImportedModel> imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  std::vector<std::vector<int>> sources = JoinRows(imported->graph);
  EXPECT_EQ(sources.size(), imported->graph.inputs.size());
  EXPECT_TRUE(Verify(imported->graph).ok()) << Verify(imported->graph);
  return sources;
}

TEST(JoinedRowsTest, WhatIsOnlyJoinedIsOneInput) {
  for (const int64_t axis : {1, -1}) {
    ModelBuilder m = Joining();
    m.Output("y", kFloat);
    m.Node("Concat", {"right", "left"}, {"joined"}).Int("axis", axis);
    m.Node("Add", {"joined", "other"}, {"y"});
    EXPECT_THAT(SourcesOf(m), ElementsAre(ElementsAre(0), ElementsAre(2, 1)));
  }
}

TEST(JoinedRowsTest, WhatIsReadElsewhereTooStaysApart) {
  ModelBuilder m = Joining();
  m.Output("y", kFloat).Output("z", kFloat);
  m.Node("Concat", {"left", "right"}, {"joined"}).Int("axis", 1);
  m.Node("Add", {"joined", "other"}, {"y"});
  m.Node("Relu", {"left"}, {"z"});
  EXPECT_THAT(SourcesOf(m), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(JoinedRowsTest, WhatIsJoinedWithAnythingElseOrTwiceStaysApart) {
  ModelBuilder computed = Joining();
  computed.Output("y", kFloat);
  computed.Node("Relu", {"left"}, {"positive"});
  computed.Node("Concat", {"positive", "right"}, {"joined"}).Int("axis", 1);
  computed.Node("Add", {"joined", "other"}, {"y"});
  EXPECT_THAT(SourcesOf(computed), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));

  ModelBuilder twice = Joining();
  twice.Output("y", kFloat).Output("z", kFloat);
  twice.Node("Concat", {"right", "right", "right"}, {"joined"}).Int("axis", 1);
  twice.Node("Add", {"joined", "other"}, {"y"});
  twice.Node("Relu", {"left"}, {"z"});
  EXPECT_THAT(SourcesOf(twice), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(JoinedRowsTest, ACellGathersThemSideBySide) {
  ModelBuilder m = Joining();
  m.Output("y", kFloat);
  m.Node("Concat", {"left", "right"}, {"joined"}).Int("axis", 1);
  m.Node("Add", {"joined", "other"}, {"y"});
  StatusOr<ImportedModel> imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  StatusOr<std::unique_ptr<Cell>> cell = Cell::Create("join", std::move(imported->graph), {});
  ASSERT_TRUE(cell.ok()) << cell.status();
  ASSERT_EQ((*cell)->inputs().size(), 3);
  EXPECT_EQ((*cell)->inputs()[1].name, "left");
  EXPECT_EQ((*cell)->inputs()[1].row_bytes, 8);

  const float other[] = {100, 200, 300};
  const float left[] = {1, 2, 3, 4};
  const float right[] = {5, 6};
  const auto at = [](const float* place) { return reinterpret_cast<const std::byte*>(place); };
  // Rows may be anywhere, and read twice.
  const std::byte* const others[] = {at(other), at(other), at(other)};
  const std::byte* const lefts[] = {at(left + 2), at(left), at(left)};
  const std::byte* const rights[] = {at(right), at(right + 1), at(right)};
  SoloTeam team;
  WorkerMemory memory;
  for (const int64_t rows : {0, 1, 3}) {
    const Cell::Rows inputs[] = {{Shape{3}, others}, {Shape{2}, lefts}, {Shape{1}, rights}};
    const StatusOr<std::vector<Tensor>> outputs =
        (*cell)->Run(rows, inputs, team, 0, memory.compute, memory.staging);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ASSERT_EQ((*outputs)[0].shape(), (Shape{rows, 3}));
    const std::vector<float> expected = {103, 204, 305, 101, 202, 306, 101, 202, 305};
    const auto* y = (*outputs)[0].data<float>();
    EXPECT_EQ(std::vector<float>(y, y + 3 * rows),
              std::vector<float>(expected.begin(), expected.begin() + 3 * rows));
  }
}

}  // namespace
}  // namespace chairlift
