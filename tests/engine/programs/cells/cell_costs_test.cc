#include "engine/programs/cells/cell_costs.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "chairlift/engine.h"
#include "engine/recurrent_models.h"
#include "runtime/cost_table.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using testing::TempFolder;
using testing::TokenClassifier;
using testing::WriteFile;

TEST(CellSizesTest, TheSmallestBatchThatIsAsFastAsAny) {
  // An LSTM step of h = 1024 whose weights come out of a shared cache, and a cell that is little
  // work: what the engine does for a task is spread over many rows.
  const std::vector<CellCosts> costs = {
      {{1, 0, microseconds(310)},
       {2, 0, microseconds(388)},
       {4, 0, microseconds(434)},
       {8, 0, microseconds(610)},
       {16, 0, microseconds(1242)},
       {32, 0, microseconds(2400)}},
      {{1, 0, microseconds(1)}, {2, 0, microseconds(1)}, {64, 0, microseconds(8)}}};
  std::vector<CellTypeOptions> types;
  ChooseCellSizes(costs, 0, types);
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[0].max_batch_size, 8);
  EXPECT_EQ(types[0].min_batch_size, 1);
  EXPECT_EQ(types[1].max_batch_size, 512);
  EXPECT_EQ(types[1].min_batch_size, 8);
}

TEST(CellSizesTest, WhatIsGivenStays) {
  const std::vector<CellCosts> costs(2, {{1, 0, microseconds(1000)}, {64, 0, microseconds(1000)}});
  std::vector<CellTypeOptions> types(1);
  types[0].max_batch_size = 5;
  ChooseCellSizes(costs, 0, types);
  EXPECT_EQ(types[0].max_batch_size, 5);
  EXPECT_EQ(types[0].min_batch_size, 5);
  EXPECT_EQ(types[1].max_batch_size, 64);
  types.resize(1);
  ChooseCellSizes(costs, 12, types);
  EXPECT_EQ(types[0].max_batch_size, 5);
  EXPECT_EQ(types[1].max_batch_size, 12);
}

TEST(CellSizesTest, WithoutCostsTheyStayOpen) {
  const std::vector<CellCosts> costs(1);
  std::vector<CellTypeOptions> types;
  ChooseCellSizes(costs, 0, types);
  EXPECT_EQ(types[0].max_batch_size, 0);
  ChooseCellSizes(costs, 9, types);
  EXPECT_EQ(types[0].max_batch_size, 9);
}

// With a cache folder of its own.
class CellCostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    model_ = WriteFile(folder_ / "model.onnx", TokenClassifier().Bytes());
  }
  void TearDown() override {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }

  std::vector<CellBatching> Cells(bool autotune, const ModelConfig& config = {}) {
    EngineOptions options;
    options.workers = 2;
    options.autotune = autotune;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return {};
    const Status loaded = (*engine)->LoadModel("m", model_, config);
    EXPECT_TRUE(loaded.ok()) << loaded;
    const auto metadata = (*engine)->Metadata("m");
    return metadata.ok() ? metadata->cells : std::vector<CellBatching>{};
  }
  std::vector<fs::path> Tables() const {
    std::vector<fs::path> tables;
    std::error_code none;
    for (fs::directory_iterator it(folder_ / "cache/chairlift", none), end; it != end; ++it) {
      tables.push_back(it->path());
    }
    return tables;
  }
  // As though every table said that larger batches than `rows` only take longer.
  void Rewrite(int rows, const std::string& build = "") const {
    for (const fs::path& path : Tables()) {
      const auto table = CostTable::Load(path);
      ASSERT_TRUE(table.ok()) << table.status();
      CostTable::Key key = table->key();
      if (!build.empty()) key.build = build;
      CostTable other(key);
      for (int size = 1; size <= 2 * rows; size *= 2) {
        other.Set(size, 0, std::chrono::milliseconds(std::max(size, rows)));
      }
      ASSERT_TRUE(other.Save(path).ok());
    }
  }

  TempFolder folder_;
  std::optional<std::string> before_;
  std::string model_;
};

TEST_F(CellCostsTest, AModelIsTimedWhenItIsFirstLoadedAndTheTableIsKept) {
  const std::vector<CellBatching> cells = Cells(true);
  ASSERT_GE(cells.size(), 4u);
  for (const CellBatching& cell : cells) {
    ASSERT_FALSE(cell.costs.empty()) << cell.name;
    EXPECT_EQ(cell.costs.begin()->first, 1);
    EXPECT_GT(cell.costs.begin()->second.count(), 0);
    EXPECT_GE(cell.max_batch_size, 1);
    EXPECT_LE(cell.max_batch_size, 512);
    EXPECT_LE(cell.min_batch_size, cell.max_batch_size);
  }
  const std::vector<CellBatching> again = Cells(true);
  ASSERT_EQ(again.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_EQ(again[i].costs, cells[i].costs) << cells[i].name;
    EXPECT_EQ(again[i].max_batch_size, cells[i].max_batch_size) << cells[i].name;
  }
}

TEST_F(CellCostsTest, TheKeptTableDecidesTheBatchSizes) {
  Cells(true);
  ASSERT_FALSE(Tables().empty());
  Rewrite(32);
  for (const CellBatching& cell : Cells(false)) {
    EXPECT_EQ(cell.max_batch_size, 32) << cell.name;
    EXPECT_EQ(cell.min_batch_size, 32) << cell.name;
    EXPECT_EQ(cell.costs.at(64), std::chrono::milliseconds(64)) << cell.name;
  }
}

TEST_F(CellCostsTest, WhatModelYamlSaysWins) {
  Cells(true);
  Rewrite(32);
  for (const CellBatching& cell : Cells(true, {.max_batch_size = 7})) {
    EXPECT_EQ(cell.max_batch_size, 7) << cell.name;
  }
}

TEST_F(CellCostsTest, ATableThatIsDamagedOrOfAnotherBuildIsNotBelieved) {
  Cells(true);
  Rewrite(32);
  for (const fs::path& path : Tables()) {
    const auto size = fs::file_size(path);
    fs::resize_file(path, size - 2);
  }
  for (const CellBatching& cell : Cells(false)) {
    EXPECT_TRUE(cell.costs.empty()) << cell.name;
    EXPECT_EQ(cell.max_batch_size, 64) << cell.name;
  }
  for (const CellBatching& cell : Cells(true)) {  // they are made again
    EXPECT_FALSE(cell.costs.empty()) << cell.name;
    EXPECT_LT(cell.costs.begin()->second, std::chrono::milliseconds(32)) << cell.name;
  }
  Rewrite(32, "another build");
  for (const CellBatching& cell : Cells(false)) EXPECT_TRUE(cell.costs.empty()) << cell.name;
}

TEST_F(CellCostsTest, NothingIsTimedWhereNobodyAsks) {
  for (const CellBatching& cell : Cells(false)) EXPECT_EQ(cell.max_batch_size, 64) << cell.name;
  for (const CellBatching& cell : Cells(true, {.max_batch_size = 7})) {
    EXPECT_EQ(cell.max_batch_size, 7) << cell.name;
  }
  EXPECT_TRUE(Tables().empty());
}

Task StepsOf(std::vector<int32_t> steps) {
  Task task;
  task.rows = static_cast<int32_t>(steps.size());
  for (const int32_t of_row : steps)
    task.nodes.push_back({.request = 1, .node = 0, .steps = of_row});
  return task;
}

TEST(StepCostsTest, AreThoseOfTheTableAndATasksBesides) {
  const StepCosts costs({{{1, 0, microseconds(10)}, {4, 0, microseconds(40)}}});
  const Duration fixed = costs.FixedCost(0);
  EXPECT_GT(fixed, Duration(0));
  EXPECT_EQ(costs.Cost(0, 2, 0), microseconds(20) + fixed);
  EXPECT_EQ(costs.Cost(1, 2, 0), Duration(0));  // no such cell
}

TEST(StepCostsTest, AreLearntWhereNobodyHasTimedThem) {
  StepCosts costs(std::vector<CellCosts>(1));
  EXPECT_EQ(costs.Cost(0, 4, 0), Duration(0));
  costs.Learn(StepsOf({4, 4, 2, 2}), microseconds(120));  // 12 rows
  const Duration fixed = costs.FixedCost(0);
  EXPECT_EQ(costs.Cost(0, 4, 0), microseconds(40) + fixed);
  EXPECT_EQ(costs.Cost(0, 1, 0), microseconds(40) + fixed);  // at most
  EXPECT_EQ(costs.Cost(0, 16, 0), microseconds(160) + fixed);
  costs.Learn(StepsOf({1}), microseconds(12));
  EXPECT_EQ(costs.Cost(0, 1, 0), microseconds(12) + fixed);
  EXPECT_EQ(costs.Cost(0, 4, 0), microseconds(40) + fixed);
  costs.Learn(StepsOf({1, 1, 1, 1}), microseconds(80));
  EXPECT_EQ(costs.Cost(0, 4, 0), microseconds(50) + fixed);
}

TEST_F(CellCostsTest, AFolderThatCannotBeWrittenIsNoObstacle) {
  WriteFile(folder_ / "cache", "not a folder");
  for (const CellBatching& cell : Cells(true)) EXPECT_FALSE(cell.costs.empty()) << cell.name;
}

}  // namespace
}  // namespace chairlift
