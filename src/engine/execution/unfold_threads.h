// Threads for unfolding requests if that would block the caller of InferAsync() for too long: many
// bytes to read or hash, thousands of cells, or a user's own unfold code.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_THREADS_H_
#define CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_THREADS_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"

namespace chairlift {

// Thread-safe. Jobs of one lane (a model) run one at a time, in order; lanes take turns, so that a
// slow one occupies one thread. Not bounded: the caller must bound the number of jobs.
class UnfoldThreads {
 public:
  using Job = absl::AnyInvocable<void()>;

  explicit UnfoldThreads(int threads);
  ~UnfoldThreads();  // calls Stop()
  UnfoldThreads(const UnfoldThreads&) = delete;
  UnfoldThreads& operator=(const UnfoldThreads&) = delete;

  // Must not be called after Stop().
  void Add(const void* lane, Job job);
  // Returns when every job has run.
  void Stop();

 private:
  void Main();

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  absl::flat_hash_map<const void*, std::deque<Job>> lanes_;  // the first job of each may be running
  std::deque<const void*> ready_;                            // lanes without a running job
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_UNFOLD_THREADS_H_
