// What a trivial Python function costs that an engine in this process serves.
//
//   function_rates FILE.py:NAME SECONDS
//   < a line of JSON for each load: requests/s, median µs of a request; CPU µs a request takes here
//     and in the worker
//
// `one`: one client that waits; `64`: as many requests of one row of 256 bytes in flight, batches
// of up to 64; `1MB`: 4 requests of a row of 1 MB in flight. Times on a busy machine are no
// measure: CPU time is (schedstat).
#include <dirent.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift {
namespace {

using Steady = std::chrono::steady_clock;

double CpuOf(const std::string& task) {
  double ns = 0;
  std::ifstream(task + "/schedstat") >> ns;
  return ns * 1e-9;
}

struct Cpu {
  double own = 0, workers = 0;  // s
};

Cpu CpuNow() {
  Cpu cpu;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* const task = ::readdir(tasks)) {
    if (task->d_name[0] == '.') continue;
    const std::string path = std::string("/proc/self/task/") + task->d_name;
    cpu.own += CpuOf(path);
    std::ifstream children(path + "/children");
    for (std::string pid; children >> pid;) {
      DIR* const threads = ::opendir(("/proc/" + pid + "/task").c_str());
      if (threads == nullptr) continue;
      while (const dirent* const thread = ::readdir(threads)) {
        if (thread->d_name[0] == '.') continue;
        cpu.workers += CpuOf("/proc/" + pid + "/task/" + thread->d_name);
      }
      ::closedir(threads);
    }
  }
  ::closedir(tasks);
  return cpu;
}

// Keeps `in_flight` requests of a row of `floats` in flight.
void Measure(Engine& engine, const char* name, int in_flight, int64_t floats, double seconds) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> latencies;
  int out = 0;
  size_t failed = 0;
  const Tensor x = Tensor::Allocate(DType::kFloat, {1, floats});
  std::fill_n(static_cast<float*>(const_cast<void*>(x.raw())), floats, 1.0f);
  const auto send = [&] {
    InferRequest request;
    request.model = "f";
    request.inputs = {{"x", x}};
    const auto start = Steady::now();
    engine.InferAsync(std::move(request), [&, start](const StatusOr<InferResponse>& answer) {
      const std::lock_guard<std::mutex> lock(mutex);
      failed += answer.ok() ? 0 : 1;
      latencies.push_back(std::chrono::duration<double>(Steady::now() - start).count());
      if (--out == in_flight - 1 || out == 0) changed.notify_one();
    });
  };
  const auto run = [&](double time) {
    const auto end = Steady::now() + std::chrono::duration<double>(time);
    while (Steady::now() < end) {
      if (in_flight == 1) {
        InferRequest request;
        request.model = "f";
        request.inputs = {{"x", x}};
        const auto start = Steady::now();
        failed += engine.Infer(std::move(request)).ok() ? 0 : 1;
        latencies.push_back(std::chrono::duration<double>(Steady::now() - start).count());
        continue;
      }
      int more = 0;
      {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return out < in_flight; });
        more = in_flight - out;
        out = in_flight;
      }
      for (; more > 0; --more) send();
    }
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return out == 0; });
  };
  run(seconds / 4);
  latencies.clear();
  const Cpu before = CpuNow();
  const auto start = Steady::now();
  run(seconds);
  const double wall = std::chrono::duration<double>(Steady::now() - start).count();
  const Cpu after = CpuNow();
  const double count = static_cast<double>(latencies.size());
  std::nth_element(latencies.begin(), latencies.begin() + latencies.size() / 2, latencies.end());
  fmt::print(
      "{{\"load\": \"{}\", \"requests_per_s\": {:.0f}, \"median_us\": {:.1f}, \"engine_cpu_us\": "
      "{:.2f}, \"worker_cpu_us\": {:.2f}, \"failed\": {}}}\n",
      name, count / wall, latencies[latencies.size() / 2] * 1e6,
      (after.own - before.own) / count * 1e6, (after.workers - before.workers) / count * 1e6,
      failed);
}

int Main(const std::string& function, double seconds) {
  spdlog::set_level(spdlog::level::warn);
  auto engine = Engine::Create({.workers = 1});
  if (!engine.ok()) return 1;
  const Status loaded = (*engine)->LoadModel("f", function, {.max_batch_size = 64});
  if (!loaded.ok()) {
    fmt::print(stderr, "{}\n", loaded.ToString());
    return 1;
  }
  Measure(**engine, "one", 1, 64, seconds);
  Measure(**engine, "64", 64, 64, seconds);
  Measure(**engine, "256", 256, 64, seconds);
  Measure(**engine, "1MB", 4, 262144, seconds);
  return 0;
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "function_rates FILE.py:NAME SECONDS\n");
    return 2;
  }
  return chairlift::Main(argv[1], std::atof(argv[2]));
}
