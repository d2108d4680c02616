#include "base/private_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMost = 100;

class PrivateFolderTest : public ::testing::Test {
 protected:
  PrivateFolderTest() {
    std::string pattern = ::testing::TempDir() + "/private-XXXXXX";
    around_ = mkdtemp(pattern.data());
  }
  ~PrivateFolderTest() override { fs::remove_all(around_); }

  fs::path path() const { return around_ / "above/folder"; }
  PrivateFolder Make() const {
    StatusOr<PrivateFolder> folder = PrivateFolder::OpenOrMake(path());
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *std::move(folder);
  }
  mode_t Mode(const fs::path& of) const {
    struct stat about {};
    EXPECT_EQ(::stat(of.c_str(), &about), 0);
    return about.st_mode & 0777;
  }
  static std::string Content(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path()))
      names.push_back(entry.path().filename());
    return names;
  }

  fs::path around_;
};

TEST_F(PrivateFolderTest, WhatIsWrittenIsReadByItsOwnerAlone) {
  const PrivateFolder folder = Make();
  ASSERT_TRUE(folder.Write("a", "first").ok());
  ASSERT_TRUE(folder.Write("a", "second").ok());
  EXPECT_EQ(folder.Read("a", kMost).value(), "second");
  EXPECT_EQ(Mode(path()), 0700U);
  EXPECT_EQ(Mode(path() / "a"), 0600U);
  EXPECT_THAT(Names(), ElementsAre("a"));
}

TEST_F(PrivateFolderTest, OneThatOthersMayUseIsClosedToThem) {
  fs::create_directories(path());
  ASSERT_EQ(::chmod(path().c_str(), 0777), 0);
  ASSERT_TRUE(PrivateFolder::Open(path()).ok());
  EXPECT_EQ(Mode(path()), 0700U);
}

TEST_F(PrivateFolderTest, ALinkInPlaceOfTheFolderIsRefused) {
  fs::create_directories(around_ / "elsewhere");
  fs::create_directories(path().parent_path());
  fs::create_directory_symlink(around_ / "elsewhere", path());
  EXPECT_EQ(PrivateFolder::Open(path()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(PrivateFolder::OpenOrMake(path()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PrivateFolderTest, AnotherUsersFolderIsRefused) {
  const fs::path others = ::geteuid() == 0 ? path() : fs::path("/");
  if (::geteuid() == 0) {
    fs::create_directories(path());
    if (::chown(path().c_str(), 12345, 12345) != 0) GTEST_SKIP() << "it cannot be given away";
  }
  const StatusOr<PrivateFolder> folder = PrivateFolder::OpenOrMake(others);
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(folder.status().message()), HasSubstr("belongs to user"));
}

TEST_F(PrivateFolderTest, AnotherUsersFileIsNotRead) {
  const PrivateFolder folder = Make();
  ASSERT_TRUE(folder.Write("a", "text").ok());
  if (::geteuid() != 0 || ::chown((path() / "a").c_str(), 12345, 12345) != 0) {
    GTEST_SKIP() << "it cannot be given away";
  }
  EXPECT_EQ(folder.Read("a", kMost).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFolderTest, WhatIsNoFileOfItsOwnIsNotRead) {
  const PrivateFolder folder = Make();
  EXPECT_EQ(folder.Read("a", kMost).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(::mkfifo((path() / "pipe").c_str(), 0600), 0);
  fs::create_directory(path() / "folder");
  std::ofstream(around_ / "victim") << "precious";
  fs::create_symlink(around_ / "victim", path() / "link");
  for (const char* name : {"pipe", "folder", "link"}) {
    EXPECT_EQ(folder.Read(name, kMost).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(PrivateFolderTest, WhatIsTooLargeIsNotRead) {
  const PrivateFolder folder = Make();
  ASSERT_TRUE(folder.Write("a", std::string(kMost, 'x')).ok());
  EXPECT_TRUE(folder.Read("a", kMost).ok());
  EXPECT_THAT(std::string(folder.Read("a", kMost - 1).status().message()),
              HasSubstr("may have 99"));
  std::ofstream(path() / "sparse") << "";
  fs::resize_file(path() / "sparse", uintmax_t{1} << 40);
  EXPECT_EQ(folder.Read("sparse", kMost).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFolderTest, WritingReplacesALinkAndAPipeAndLeavesNothingWhereAFolderIs) {
  const PrivateFolder folder = Make();
  std::ofstream(around_ / "victim") << "precious";
  fs::create_symlink(around_ / "victim", path() / "a");
  ASSERT_EQ(::mkfifo((path() / "b").c_str(), 0600), 0);
  EXPECT_TRUE(folder.Write("a", "text").ok());
  EXPECT_TRUE(folder.Write("b", "text").ok());
  EXPECT_EQ(Content(around_ / "victim"), "precious");
  EXPECT_EQ(folder.Read("a", kMost).value(), "text");
  EXPECT_EQ(folder.Read("b", kMost).value(), "text");
  fs::create_directory(path() / "c");
  EXPECT_EQ(folder.Write("c", "text").code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Names(), ::testing::UnorderedElementsAre("a", "b", "c"));
}

TEST_F(PrivateFolderTest, ListsByEndingAndRemoves) {
  const PrivateFolder folder = Make();
  ASSERT_TRUE(folder.Write("a.x", "").ok());
  ASSERT_TRUE(folder.Write("b.y", "").ok());
  fs::create_directory(path() / "c.x");
  const auto entries = folder.List(".x", 10);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name, "a.x");
  folder.Remove("a.x");
  folder.Remove("a.x");
  EXPECT_TRUE(folder.List(".x", 10).empty());
  ASSERT_TRUE(folder.Write("c.y", "").ok());
  EXPECT_EQ(folder.List(".y", 1).size(), 1U);
}

}  // namespace
}  // namespace chairlift
