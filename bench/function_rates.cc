// Measures the cost of a trivial Python model that an engine in this process serves.
//
//   function_rates FILE.py:NAME SECONDS
//   < a line of JSON for each load: requests/s, median µs of a request; CPU µs per request here
//     and in the worker
//
// `one`: one client that waits; `64`: 64 requests of one row of 256 bytes in flight, batches of up
// to 64; `1MB`: 4 requests with a row of 1 MB in flight. On a busy machine wall-clock times mean
// little, so CPU time is measured too (schedstat). `killed`: from a worker's kill -9 to the next
// answer, without a spare worker and with one.
#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

std::vector<std::string> EntriesOf(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return names;
  while (const dirent* const entry = ::readdir(entries)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(entries);
  return names;
}

constexpr const char* kOwnTasks = "/proc/self/task/";

std::vector<std::string> WorkerIds() {
  std::vector<std::string> ids;
  for (const std::string& task : EntriesOf(kOwnTasks)) {
    std::ifstream children(kOwnTasks + task + "/children");
    for (std::string id; children >> id;) ids.push_back(id);
  }
  return ids;
}

Cpu CpuNow() {
  Cpu cpu;
  for (const std::string& task : EntriesOf(kOwnTasks)) cpu.own += CpuOf(kOwnTasks + task);
  for (const std::string& id : WorkerIds()) {
    const std::string tasks = "/proc/" + id + "/task/";
    for (const std::string& task : EntriesOf(tasks)) cpu.workers += CpuOf(tasks + task);
  }
  return cpu;
}

// Keeps `in_flight` requests with a row of `floats` in flight.
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

// The time from killing a worker to the next answer.
int MeasureDeath(const std::string& function, int spares) {
  namespace fs = std::filesystem;
  const size_t colon = function.rfind(':');
  const fs::path file = function.substr(0, colon);
  const fs::path folder = fs::temp_directory_path() / fmt::format("chairlift-rates-{}", ::getpid());
  fs::create_directories(folder / "f/1");
  fs::copy_file(file, folder / "f/1" / file.filename(), fs::copy_options::overwrite_existing);
  std::ofstream(folder / "f/model.yaml")
      << fmt::format("python: {}{}\nspare_workers: {}\n", file.filename().string(),
                     function.substr(colon), spares);
  auto engine = Engine::Create({.workers = 1, .allow_plugins = true});
  if (!engine.ok() || !(*engine)->AddRepository(folder.string()).ok() ||
      !(*engine)->LoadFromRepository("f").ok()) {
    return 1;
  }
  const auto ask = [&] {
    InferRequest request;
    request.model = "f";
    request.inputs = {{"x", Tensor::Of<float>({1, 1}, {1})}};
    return (*engine)->Infer(std::move(request)).ok();
  };
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    if (!ask()) return 1;
    int oldest = INT_MAX;  // the oldest one serves
    for (const std::string& id : WorkerIds()) oldest = std::min(oldest, std::stoi(id));
    const auto start = Steady::now();
    ::kill(oldest, SIGKILL);
    while (!ask()) {
    }
    times.push_back(std::chrono::duration<double>(Steady::now() - start).count());
    std::this_thread::sleep_for(std::chrono::seconds(1));  // until a new spare is ready
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  fmt::print("{{\"load\": \"killed\", \"spares\": {}, \"median_ms\": {:.1f}}}\n", spares,
             times[times.size() / 2] * 1e3);
  fs::remove_all(folder);
  return 0;
}

int Main(const std::string& function, double seconds) {
  spdlog::set_level(spdlog::level::off);
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
  engine->reset();
  const int without = MeasureDeath(function, 0);
  return MeasureDeath(function, 1) + without;
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: function_rates FILE.py:NAME SECONDS\n");
    return 2;
  }
  return chairlift::Main(argv[1], std::atof(argv[2]));
}
