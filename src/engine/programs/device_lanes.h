// How programs run tasks on a device other than the CPU: a few lanes, each a stream with a thread
// that enqueues a task on it, waits for it, and completes it.
//
// With several lanes the device can run ahead. While one task computes, the next one is already
// enqueued on another stream, and the host has that task's time to complete the previous one and
// form the next. Two lanes are enough for that. A task waits for the device on its lane only, so it
// does not block a worker of the engine. All inputs of a task are complete before it starts, so no
// stream waits for another.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_DEVICE_LANES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_DEVICE_LANES_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "engine/programs/program.h"

namespace chairlift {

class DeviceLanes {
 public:
  static constexpr int kLanes = 3;

  // Null on the CPU, whose tasks run on the engine's workers.
  static StatusOr<std::unique_ptr<DeviceLanes>> Create(Device& device);
  // Runs the started tasks and joins the threads, except the calling one.
  ~DeviceLanes();
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  TaskLanes lanes() const { return {.tasks = kLanes, .at_work = 1}; }

  // Calls compute(run, done) on the lane's thread, with the lane's memory on the device. Returns at
  // once. `run` belongs to a task in a lane (Program::lanes).
  using Compute = absl::AnyInvocable<void(TaskRun& run, Program::TaskDone done)>;
  void Run(TaskRun& run, Program::TaskDone done, Compute compute);

 private:
  struct Job {
    TaskRun* run = nullptr;
    Program::TaskDone done;
    Compute compute;
  };
  // Shared with its thread, which may be the one that destroys the program and so this object.
  struct Lane {
    explicit Lane(std::unique_ptr<Stream> on);

    const std::unique_ptr<Stream> stream;
    WorkerMemory memory;
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex; one at a time, except for a task that follows immediately.
    std::deque<Job> jobs;
    bool ending = false;  // guarded by mutex
    std::thread thread;

    void Main();
    void RunJob(Job job);
  };

  DeviceLanes() = default;

  std::vector<std::shared_ptr<Lane>> lanes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_DEVICE_LANES_H_
