// Replays the fuzzer's kept corpus in every build.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/import_case.h"

namespace chairlift {
namespace {

TEST(ImportCorpusTest, EveryFileEndsInAModelOrAnErrorSoon) {
  int files = 0;
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CHAIRLIFT_IMPORT_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    const std::clock_t begin = std::clock();
    const Status status = fuzz::ImportCase(std::as_bytes(std::span(bytes.data(), bytes.size())));
    EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC) << entry.path();
    if (!status.ok()) {
      EXPECT_FALSE(status.message().empty()) << entry.path();
    }
    ++files;
    models += status.ok();
  }
  // The corpus holds both kinds, so that neither path goes untried.
  EXPECT_GT(models, 20);
  EXPECT_GT(files - models, 20);
}

}  // namespace
}  // namespace chairlift
