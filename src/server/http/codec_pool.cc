// The pool's queue and its threads.
#include "server/http/codec_pool.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <exception>

namespace chairlift::http {

CodecPool::CodecPool(int threads, size_t max_waiting, const ServerLimits& limits)
    : max_waiting_(max_waiting), limits_(limits) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  } catch (...) {  // no thread or no memory: the threads already started must not outlive this
    Stop();
    throw;
  }
}

CodecPool::~CodecPool() { Stop(); }

bool CodecPool::Run(Task task, uint64_t client, size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.size() >= max_waiting_) return false;
    tasks_.Add(client, bytes, std::move(task));
  }
  changed_.notify_one();
  return true;
}

void CodecPool::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void CodecPool::Loop() {
  pthread_setname_np(pthread_self(), "chairlift-codec");
  Decoders decoders(limits_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = tasks_.Take();
    lock.unlock();
    try {
      task(decoders);
    } catch (const std::exception& error) {
      spdlog::error("internal error while a request was decoded or encoded: {}", error.what());
    }
    task = nullptr;  // before the next task starts: destroying it may release what others wait for
    lock.lock();
  }
}

}  // namespace chairlift::http
