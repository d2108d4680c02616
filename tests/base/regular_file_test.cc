#include "base/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace chairlift {
namespace {

class RegularFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("regular_file_" + std::to_string(::getpid()));
};

TEST_F(RegularFileTest, IsReadAsFarAsIsAskedFor) {
  std::ofstream(folder_ / "text") << "hello";
  EXPECT_EQ(*ReadRegularFile(folder_ / "text", 100), "hello");
  EXPECT_EQ(*ReadRegularFile(folder_ / "text", 5), "hello");
  EXPECT_EQ(*ReadRegularFile(folder_ / "text", 2), "he");
  std::ofstream(folder_ / "empty");
  EXPECT_EQ(*ReadRegularFile(folder_ / "empty", 100), "");
}

TEST_F(RegularFileTest, OthersAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile(folder_ / "pipe", 100).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile("/dev/zero", 100).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadRegularFile(folder_, 100).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile(folder_ / "none", 100).status()));
}

}  // namespace
}  // namespace chairlift
