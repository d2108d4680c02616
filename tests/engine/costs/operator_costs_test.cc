// Operators are timed by batch size once, and their preferred sizes follow.
#include "engine/costs/operator_costs.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>

#include "engine/test_models.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(PreferredRowsTest, IsTheSmallestSizeThatIsAboutAsFastAsAny) {
  EXPECT_EQ(PreferredRows({}), 1);
  // In proportion, but for what the clock is off.
  EXPECT_EQ(PreferredRows({{1, microseconds(100)}, {2, microseconds(199)}, {4, microseconds(392)}}),
            1);
  EXPECT_EQ(PreferredRows({{1, microseconds(100)},
                           {2, microseconds(110)},
                           {4, microseconds(200)},
                           {8, microseconds(396)}}),
            4);
}

TEST(SumOfCostsTest, HasTheSizesThatAllHave) {
  const std::vector<CostByRows> costs = {
      {{1, microseconds(3)}, {2, microseconds(4)}, {4, microseconds(5)}},
      {},  // does not run
      {{1, microseconds(10)}, {4, microseconds(20)}, {8, microseconds(30)}}};
  EXPECT_THAT(SumOfCosts(costs), ElementsAre(Pair(1, microseconds(13)), Pair(4, microseconds(25))));
  EXPECT_THAT(SumOfCosts({}), IsEmpty());
}

class OperatorCostsTest : public ::testing::Test {
 protected:
  OperatorCostsTest() {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    const std::string bytes = testing::ConvModel().Bytes();
    auto imported = ImportOnnx(std::as_bytes(std::span(bytes)), {});
    EXPECT_TRUE(imported.ok()) << imported.status();
    auto made = Executable::Create(std::move(imported->graph), {});
    EXPECT_TRUE(made.ok()) << made.status();
    executable_ = *std::move(made);
  }
  ~OperatorCostsTest() override {
    before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
  }

  StatusOr<std::vector<CostByRows>> Find(OperatorProfiling profiling, bool measure) {
    profiling.workers = 2;
    return FindOperatorCosts(*executable_, profiling, measure,
                             [&](int rows) -> StatusOr<std::vector<Tensor>> {
                               batches_.push_back(rows);
                               Tensor image = Tensor::Allocate(DType::kFloat, {rows, 3, 12, 12});
                               std::memset(image.raw(), 0, image.byte_size());
                               return std::vector<Tensor>{std::move(image)};
                             });
  }

  testing::TempFolder folder_;
  std::optional<std::string> before_;
  std::unique_ptr<Executable> executable_;
  std::vector<int> batches_;
};

TEST_F(OperatorCostsTest, AreMeasuredOnceAndKept) {
  const auto unknown = Find({.max_rows = 4}, false);
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_FALSE(AnyKnown(*unknown));

  batches_.clear();
  const auto measured = Find({.max_rows = 4}, true);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_THAT(batches_, ElementsAre(1, 2, 4));
  const Graph& graph = executable_->graph();
  ASSERT_EQ(measured->size(), graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].def->name != "Conv") continue;
    EXPECT_EQ((*measured)[n].size(), 3u) << graph.nodes[n].name;
    for (const auto& [rows, cost] : (*measured)[n]) EXPECT_GT(cost, Duration(0)) << rows;
  }

  batches_.clear();
  const auto kept = Find({.max_rows = 4}, true);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(*kept, *measured);
  EXPECT_THAT(batches_, ElementsAre(1));  // for its shape
}

TEST_F(OperatorCostsTest, EndWhereMemoryOrTimeDoes) {
  ASSERT_TRUE(Find({.max_rows = 64, .budget = Duration(0)}, true).ok());
  EXPECT_THAT(batches_, ElementsAre(1));
  EXPECT_EQ(Find({.max_rows = 32, .max_bytes = 1}, true).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(OperatorCostsTest, AreMeasuredAgainWhereTheTableIsDamaged) {
  ASSERT_TRUE(Find({.max_rows = 2}, true).ok());
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache/chairlift")) {
    std::ofstream(entry.path(), std::ios::app) << "1 2 3\n";
  }
  EXPECT_FALSE(AnyKnown(*Find({.max_rows = 2}, false)));
  EXPECT_TRUE(AnyKnown(*Find({.max_rows = 2}, true)));
  EXPECT_TRUE(AnyKnown(*Find({.max_rows = 2}, false)));
}

}  // namespace
}  // namespace chairlift
