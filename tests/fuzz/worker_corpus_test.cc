#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/worker_case.h"

namespace chairlift {
namespace {

TEST(WorkerCorpusTest, WhatTheFuzzerKeptHoldsItsProperties) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CHAIRLIFT_WORKER_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    RunWorkerCase(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

}  // namespace
}  // namespace chairlift
