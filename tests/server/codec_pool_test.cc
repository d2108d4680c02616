// The pool's bound and order, and what it does with tasks that throw.
#include "server/http/codec_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

#include "absl/synchronization/notification.h"

namespace chairlift::http {
namespace {

TEST(CodecPoolTest, TasksRunInOrderUpToABound) {
  std::vector<int> ran;
  CodecPool pool(1, 2, ServerLimits());
  std::promise<void> begun, go;
  ASSERT_TRUE(pool.Run(
      [&](Decoders&) {
        begun.set_value();
        go.get_future().wait();
      },
      1, 10));
  begun.get_future().wait();
  EXPECT_TRUE(pool.Run([&](Decoders&) { ran.push_back(1); }, 1, 10));
  EXPECT_TRUE(pool.Run([&](Decoders&) { ran.push_back(2); }, 1, 10));
  EXPECT_FALSE(pool.Run([&](Decoders&) { ran.push_back(3); }, 1, 10));
  go.set_value();
  pool.Stop();
  EXPECT_THAT(ran, ::testing::ElementsAre(1, 2));
}

TEST(CodecPoolTest, AClientWithOneTaskDoesNotWaitForAllOfAnother) {
  std::vector<int> ran;
  CodecPool pool(1, 100, ServerLimits());
  absl::Notification begun, go;
  ASSERT_TRUE(pool.Run([&](Decoders&) { begun.Notify(), go.WaitForNotification(); }, 1, 10));
  begun.WaitForNotification();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(pool.Run([&](Decoders&) { ran.push_back(1); }, 1, 1 << 20));
  }
  EXPECT_TRUE(pool.Run([&](Decoders&) { ran.push_back(2); }, 2, 1 << 20));
  go.Notify();
  pool.Stop();
  EXPECT_THAT(ran, ::testing::ElementsAre(1, 2, 1, 1, 1, 1));
}

TEST(CodecPoolTest, ATaskThatThrowsEndsAlone) {
  CodecPool pool(1, 10, ServerLimits());
  bool ran = false;
  ASSERT_TRUE(pool.Run([](Decoders&) { throw std::bad_alloc(); }, 1, 10));
  ASSERT_TRUE(pool.Run([](Decoders&) { throw std::length_error("too long"); }, 1, 10));
  ASSERT_TRUE(pool.Run([&](Decoders&) { ran = true; }, 1, 10));
  pool.Stop();
  EXPECT_TRUE(ran);
}

TEST(CodecPoolTest, WhatIsFreedIsFreedOnAThreadOfThePool) {
  CodecPool pool(1, 10, ServerLimits());
  std::promise<std::thread::id> where;
  pool.Free(std::shared_ptr<int>(new int(1), [&](const int* value) {
    where.set_value(std::this_thread::get_id());
    delete value;
  }));
  EXPECT_NE(where.get_future().get(), std::this_thread::get_id());
}

}  // namespace
}  // namespace chairlift::http
