#include "engine/programs/device_lanes.h"

#include <utility>

#include "base/status.h"
#include "device/device.h"

namespace chairlift {

DeviceLanes::Lane::Lane(std::unique_ptr<Stream> on) : stream(std::move(on)), memory(*stream) {}

StatusOr<std::unique_ptr<DeviceLanes>> DeviceLanes::Create(Device& device) {
  if (device.is_host()) return nullptr;
  auto made = std::unique_ptr<DeviceLanes>(new DeviceLanes());
  for (int i = 0; i < kLanes; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
    const auto lane = std::make_shared<Lane>(std::move(stream));
    lane->thread = std::thread([lane] { lane->Main(); });
    made->lanes_.push_back(lane);
  }
  return made;
}

DeviceLanes::~DeviceLanes() {
  for (const auto& lane : lanes_) {
    const std::lock_guard<std::mutex> lock(lane->mutex);
    lane->ending = true;
    lane->changed.notify_one();
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.get_id() == std::this_thread::get_id()) {
      lane->thread.detach();
    } else {
      lane->thread.join();
    }
  }
}

void DeviceLanes::Run(TaskRun& run, Program::TaskDone done, Compute compute) {
  Lane& lane = *lanes_[static_cast<size_t>(run.worker)];
  const std::lock_guard<std::mutex> lock(lane.mutex);
  lane.jobs.push_back({&run, std::move(done), std::move(compute)});
  lane.changed.notify_one();
}

void DeviceLanes::Lane::Main() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return ending || !jobs.empty(); });
    if (jobs.empty()) return;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    RunJob(std::move(job));
    lock.lock();
  }
}

void DeviceLanes::Lane::RunJob(Job job) {
  const TaskRun& given = *job.run;
  SoloTeam team(given.worker);
  memory.compute.set_limit(given.memory.compute.limit());
  memory.partial_answers = given.memory.partial_answers;
  memory.stop = given.stop;
  TaskRun here{.cell = given.cell,
               .padding_rows = given.padding_rows,
               .padded_steps = given.padded_steps,
               .nodes = given.nodes,
               .team = team,
               .worker = given.worker,
               .memory = memory,
               .stop = given.stop,
               .send_parts = given.send_parts};
  job.compute(here, std::move(job.done));
}

}  // namespace chairlift
