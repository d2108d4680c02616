#include "runtime/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
  static CostTable Small() {
    CostTable table({"0123", "cpu", "0.1.0", 1});
    table.Set(1, 16, nanoseconds(1000));
    return table;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
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

// A limit on the size of files stands for a disk that is full.
TEST_F(CostTableTest, WhatCannotBeWrittenLeavesNothingAndKeepsTheOldTable) {
  ASSERT_TRUE(Small().Save(path()).ok());
  rlimit whole{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &whole), 0);
  const rlimit full{.rlim_cur = 8, .rlim_max = whole.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const Status saved = Small().Save(path());
  ::setrlimit(RLIMIT_FSIZE, &whole);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(saved.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(saved.ToString(), ::testing::HasSubstr("File too large"));
  EXPECT_THAT(Files(), ::testing::ElementsAre(path().filename().string()));
  EXPECT_TRUE(CostTable::Load(path()).ok());
}

TEST_F(CostTableTest, SavingRemovesWhatWasLeftHalfWritten) {
  const auto left = [this](const char* name, int minutes) {
    const std::filesystem::path file = folder_ / name;
    std::ofstream(file) << "half";
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(minutes));
  };
  left("other.1-1.part", 90);
  left("another.2-1.part", 1);  // of a process that may still write it
  left("kept.costs", 90);
  ASSERT_TRUE(Small().Save(path()).ok());
  EXPECT_THAT(Files(), ::testing::UnorderedElementsAre(path().filename().string(),
                                                       "another.2-1.part", "kept.costs"));
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
