// One thread, one bounded queue.
#include "base/background.h"

#include <utility>

namespace chairlift {

Background::Background(size_t max_waiting)
    : max_waiting_(max_waiting), thread_([this] { Loop(); }) {}

Background::~Background() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool Background::Run(std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.size() >= max_waiting_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void Background::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // before the next task starts: destroying it may release what others wait for
    lock.lock();
  }
}

}  // namespace chairlift
