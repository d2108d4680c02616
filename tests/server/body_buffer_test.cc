// Bodies of every size keep their bytes and their alignment, and are charged
// for what has come.
#include "server/http/body_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "server/http/oip_codec.h"

namespace chairlift::http {
namespace {

TEST(BodyBufferTest, GrowthKeepsBytesAndAlignment) {
  std::mt19937 random(7);
  for (const size_t aligned_byte : {0, 1, 63, 64, 100}) {
    const auto budget = std::make_shared<ByteBudget>(int64_t{1} << 30);
    std::string model;
    {
      auto body = BodyBuffer::Create(1, aligned_byte, budget);
      ASSERT_NE(body, nullptr);
      while (body->capacity() < (size_t{3} << 20)) {
        const std::string bytes(std::min<size_t>(body->room(), random() % 100'000),
                                static_cast<char>(random()));
        ASSERT_EQ(body->Append(bytes), nullptr);
        model += bytes;
        if (body->room() == 0) {
          ASSERT_TRUE(body->Grow(body->capacity() * 2 + random() % 3));
        }
        EXPECT_EQ(reinterpret_cast<uintptr_t>(body->view().data() + aligned_byte) % 64, 0U);
      }
      EXPECT_TRUE(body->view() == model);
      EXPECT_EQ(budget->held(), static_cast<int64_t>(model.size()));
      volatile char behind = 0;
      for (size_t i = 0; i < kBodyPadding; ++i) behind = body->end()[body->room() + i];
      (void)behind;
    }
    EXPECT_EQ(budget->held(), 0);
  }
}

TEST(BodyBufferTest, WhatTheBudgetLacksIsNotAdded) {
  const auto budget = std::make_shared<ByteBudget>(10);
  const auto body = BodyBuffer::Create(1 << 20, 0, budget);
  EXPECT_EQ(body->Append("0123456789"), nullptr);
  EXPECT_EQ(body->Append("x"), budget.get());
  EXPECT_EQ(body->view(), "0123456789");
}

}  // namespace
}  // namespace chairlift::http
