#include "engine/execution/unfold_threads.h"

#include <pthread.h>

#include <utility>

namespace chairlift {

UnfoldThreads::UnfoldThreads(int threads) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Main(); });
  } catch (...) {  // no thread or no memory: the threads already started must not outlive this
    Stop();
    throw;
  }
}

UnfoldThreads::~UnfoldThreads() { Stop(); }

void UnfoldThreads::Add(const void* lane, Job job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::deque<Job>& jobs = lanes_[lane];
  jobs.push_back(std::move(job));
  if (jobs.size() > 1) return;
  ready_.push_back(lane);
  changed_.notify_one();
}

void UnfoldThreads::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void UnfoldThreads::Main() {
  pthread_setname_np(pthread_self(), "unfold");
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !ready_.empty() || (stopping_ && lanes_.empty()); });
    if (ready_.empty()) return;
    const void* lane = ready_.front();
    ready_.pop_front();
    Job job = std::move(lanes_.at(lane).front());
    lock.unlock();
    job();
    job = nullptr;  // destroys what it holds
    lock.lock();
    std::deque<Job>& jobs = lanes_.at(lane);
    jobs.pop_front();
    if (!jobs.empty()) {
      ready_.push_back(lane);
      changed_.notify_one();
      continue;
    }
    lanes_.erase(lane);
    if (stopping_) changed_.notify_all();
  }
}

}  // namespace chairlift
