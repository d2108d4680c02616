// A thread for slow work (loading a model, specialising one), so that other threads keep answering.
#ifndef CHAIRLIFT_BASE_BACKGROUND_H_
#define CHAIRLIFT_BASE_BACKGROUND_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace chairlift {

// Thread-safe. Runs tasks one after another, in order. The destructor runs the waiting ones.
class Background {
 public:
  explicit Background(size_t max_waiting);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Returns false and drops the task if max_waiting tasks already wait.
  [[nodiscard]] bool Run(std::function<void()> task);

 private:
  void Loop();

  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_BASE_BACKGROUND_H_
