// Engines whose memory runs out, and what must hold of them after it did.
#ifndef CHAIRLIFT_TESTS_OUT_OF_MEMORY_ENGINE_FIXTURE_H_
#define CHAIRLIFT_TESTS_OUT_OF_MEMORY_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "support/failing_allocator.h"

namespace chairlift::testing {

inline std::unique_ptr<Engine> SmallEngine(int workers) {
  EngineOptions options;
  options.workers = workers;
  options.autotune = false;
  auto engine = Engine::Create(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

// Requests sent together, and their answers. Takes no memory of its own between Send() and Wait().
class Answers {
 public:
  Answers(Engine& engine, std::vector<InferRequest> requests)
      : engine_(engine), requests_(std::move(requests)), slots_(requests_.size()) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      callbacks_.push_back([this, i](StatusOr<InferResponse> answer) {
        const FailingAllocator::Exempt exempt;
        const std::lock_guard<std::mutex> lock(mutex_);
        slots_[i].answer = std::move(answer);
        ++slots_[i].calls;
        if (++calls_ == static_cast<int>(slots_.size())) all_.notify_all();
      });
    }
  }

  void Send() {
    for (size_t i = 0; i < slots_.size(); ++i) {
      engine_.InferAsync(std::move(requests_[i]), std::move(callbacks_[i]));
    }
  }
  // False where some answer does not come.
  bool Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return all_.wait_for(lock, std::chrono::seconds(60),
                         [&] { return calls_ >= static_cast<int>(slots_.size()); });
  }
  size_t size() const { return slots_.size(); }
  int calls(size_t i) const { return slots_[i].calls; }
  const StatusOr<InferResponse>& operator[](size_t i) const { return *slots_[i].answer; }

 private:
  struct Slot {
    std::optional<StatusOr<InferResponse>> answer;
    int calls = 0;
  };
  Engine& engine_;
  std::vector<InferRequest> requests_;
  std::vector<InferCallback> callbacks_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<Slot> slots_;
  int calls_ = 0;
};

inline void ExpectSame(const InferResponse& got, const InferResponse& want) {
  ASSERT_EQ(got.outputs.size(), want.outputs.size());
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const Tensor& a = got.outputs[i].tensor;
    const Tensor& b = want.outputs[i].tensor;
    ASSERT_EQ(a.shape(), b.shape()) << got.outputs[i].name;
    for (int64_t at = 0; at < a.size(); ++at) {
      ASSERT_NEAR(a.data<float>()[at], b.data<float>()[at], 1e-4f) << got.outputs[i].name;
    }
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OUT_OF_MEMORY_ENGINE_FIXTURE_H_
