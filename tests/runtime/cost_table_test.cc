#include "runtime/cost_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace chairlift {
namespace {

using std::chrono::nanoseconds;

// A variable as it is until this goes; null: it is not set.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    Set(value);
  }
  ~Environment() { Set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void Set(const char* value) const {
    value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_);
  }

  const char* const name_;
  std::optional<std::string> before_;
};

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

TEST_F(CostTableTest, LinksInPlaceOfItAreReplacedAndNeverWrittenThrough) {
  const std::filesystem::path victim = folder_ / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, path());
  EXPECT_FALSE(CostTable::Load(path()).ok());
  ASSERT_TRUE(Small().Save(path()).ok());
  EXPECT_TRUE(CostTable::Load(path()).ok());
  std::string precious;
  std::getline(std::ifstream(victim), precious);
  EXPECT_EQ(precious, "precious");
}

TEST_F(CostTableTest, WhatIsNoTableOrTooLargeIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(CostTable::Load(path()).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_EQ(CostTable::Load(path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Small().Save(path()).code(), absl::StatusCode::kUnavailable);
  std::filesystem::remove(path());
  Write("");
  std::filesystem::resize_file(path(), uintmax_t{1} << 40);
  EXPECT_EQ(CostTable::Load(path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CostTableTest, ACostOfCenturiesIsNoCost) {
  CostTable table({"0123", "cpu", "0.1.0", 1});
  table.Set(1, 16, nanoseconds::max());
  ASSERT_TRUE(table.Save(path()).ok());
  EXPECT_EQ(CostTable::Load(path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CostTableTest, TheOldestOfTooManyTablesGo) {
  constexpr int kMost = 4096;
  const auto name = [](int i) { return "old" + std::to_string(i) + ".costs"; };
  for (int i = 0; i < kMost + 1; ++i) {
    const std::filesystem::path file = folder_ / name(i);
    std::ofstream(file) << "a table";
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(2 * kMost - i));
  }
  ASSERT_TRUE(Small().Save(path()).ok());
  EXPECT_EQ(Files().size(), size_t{kMost});
  EXPECT_FALSE(std::filesystem::exists(folder_ / name(1)));
  EXPECT_TRUE(std::filesystem::exists(folder_ / name(2)));
  EXPECT_TRUE(CostTable::Load(path()).ok());
}

// Another user might have made a folder of any name before, if all users may write there.
TEST_F(CostTableTest, WithoutAHomeItIsKeptInAFolderOfItsUsersOwn) {
  const CostTable::Key key = {"0123", "cpu", "0.1.0", 1};
  const Environment cache("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  EXPECT_EQ(CostTablePath(key).parent_path(),
            std::filesystem::temp_directory_path() / ("chairlift-" + std::to_string(::geteuid())));
  const Environment relative("XDG_CACHE_HOME", "cache");
  EXPECT_TRUE(CostTablePath(key).is_absolute());
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
