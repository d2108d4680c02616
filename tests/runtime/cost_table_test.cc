#include "runtime/cost_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace chairlift {
namespace {

using std::chrono::nanoseconds;

class CostTableTest : public ::testing::Test {
 protected:
  CostTableTest() {
    std::string pattern = ::testing::TempDir() + "/costs-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~CostTableTest() override { std::filesystem::remove_all(folder_); }

  std::string Read() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& text) const { std::ofstream(path()) << text; }
  std::filesystem::path path() const { return folder_ / "table.costs"; }

  std::filesystem::path folder_;
};

TEST_F(CostTableTest, WhatIsSavedLoadsBack) {
  CostTable table({"0123", "a CPU avx2", "0.1.0", 2});
  table.Set(1, 16, nanoseconds(1000));
  table.Set(8, 128, nanoseconds(123456789));
  ASSERT_TRUE(table.Save(path()).ok());
  const auto loaded = CostTable::Load(path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->key(), table.key());
  EXPECT_EQ(loaded->costs(), table.costs());
}

TEST_F(CostTableTest, EveryTruncationAndEveryChangedByteIsNoticed) {
  CostTable table({"0123", "cpu", "0.1.0", 1});
  table.Set(1, 16, nanoseconds(1000));
  ASSERT_TRUE(table.Save(path()).ok());
  const std::string whole = Read();
  for (size_t i = 0; i < whole.size(); ++i) {
    Write(whole.substr(0, i));
    EXPECT_FALSE(CostTable::Load(path()).ok()) << "cut at " << i;
    std::string changed = whole;
    changed[i] ^= 1;
    Write(changed);
    EXPECT_FALSE(CostTable::Load(path()).ok()) << "changed at " << i;
  }
}

TEST_F(CostTableTest, NoFileIsNotFound) {
  EXPECT_EQ(CostTable::Load(path()).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CostTableTest, TheKeyTellsModelsApart) {
  Write("one");
  const auto one = CostTableKey(path(), 1);
  Write("two");
  const auto two = CostTableKey(path(), 1);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->model, two->model);
}

}  // namespace
}  // namespace chairlift
