// A team of real threads for tests: parts are claimed one by one, by any free thread.
#ifndef CHAIRLIFT_TESTS_OPS_THREAD_TEAM_H_
#define CHAIRLIFT_TESTS_OPS_THREAD_TEAM_H_

#include <atomic>
#include <thread>
#include <vector>

#include "device/cpu/team.h"

namespace chairlift::testing {

class ThreadTeam : public Team {
 public:
  explicit ThreadTeam(int width) : width_(width) {}
  int width() const override { return width_; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    std::atomic<int> next{0};
    const auto work = [&](int worker) {
      for (int part = next++; part < parts; part = next++) body(part, worker);
    };
    std::vector<std::thread> helpers;
    for (int worker = 1; worker < width_; ++worker) helpers.emplace_back(work, worker);
    work(0);
    for (std::thread& helper : helpers) helper.join();
  }

 private:
  int width_;
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_THREAD_TEAM_H_
