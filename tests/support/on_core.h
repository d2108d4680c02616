// Code that runs on one core.
#ifndef CHAIRLIFT_TESTS_SUPPORT_ON_CORE_H_
#define CHAIRLIFT_TESTS_SUPPORT_ON_CORE_H_

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <future>
#include <thread>

namespace chairlift::testing {

// What `body` returns on a thread that is pinned to `core`, one of AllowedCores() below 1,024.
template <typename Body>
auto OnCore(int core, Body body) {
  std::promise<decltype(body())> result;
  std::thread thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    EXPECT_EQ(pthread_setaffinity_np(pthread_self(), sizeof(set), &set), 0);
    result.set_value(body());
  });
  thread.join();
  return result.get_future().get();
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_SUPPORT_ON_CORE_H_
