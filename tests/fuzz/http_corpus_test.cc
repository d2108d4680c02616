#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/http_case.h"

namespace chairlift::http {
namespace {

TEST(HttpCorpusTest, WhatTheFuzzerKeptHoldsItsProperties) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CHAIRLIFT_HTTP_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    SCOPED_TRACE(entry.path().string());
    for (int step = 0; step < 64; ++step) {
      std::string input = bytes;
      if (!input.empty()) input[0] = static_cast<char>(step);
      RunHttpCase(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
    ++cases;
  }
  EXPECT_GE(cases, 10);
}

}  // namespace
}  // namespace chairlift::http
