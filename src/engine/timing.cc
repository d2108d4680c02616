#include "engine/timing.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <utility>

#include "base/status.h"
#include "device/cpu/worker_pool.h"

namespace chairlift {
namespace {

constexpr Duration kPerSize = std::chrono::milliseconds(3);
constexpr int kMinRuns = 5;
constexpr int kMaxRuns = 200;
// More rows that make the machine faster by less than this make it no faster,
constexpr double kFaster = 1.03;
// and where so many sizes in a row do not, larger ones are not tried.
constexpr int kNotFaster = 3;

// Of this thread: what other programs take of its core does not count.
Duration ThreadTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
}

}  // namespace

std::function<void()> ProgressUntil(TimePoint until, const TimingProgress& progress) {
  if (progress == nullptr) return [] {};
  const TimePoint start = Clock::Steady().Now();
  return [start, until, progress] {
    const std::chrono::duration<double> over = Clock::Steady().Now() - start;
    const std::chrono::duration<double> whole = until - start;
    progress(std::clamp(over / whole, 0.0, 1.0));
  };
}

std::vector<std::optional<Duration>> TimeRuns(std::span<const TimedRun> runs, int workers,
                                              Duration at_least, TimePoint until,
                                              const std::function<void()>& tick) {
  const Clock& clock = Clock::Steady();
  WorkerMemory memory;
  std::vector<std::optional<Duration>> fastest(runs.size());
  std::vector<size_t> good;  // that do not fail; the plans are made here
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i](0, memory).ok()) good.push_back(i);
  }
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (int worker = 1; worker < workers && !good.empty(); ++worker) {
    others.emplace_back([&runs, &good, &done, worker] {
      WorkerMemory own;
      while (!done.load()) {
        for (size_t i : good) runs[i](worker, own).IgnoreError();
      }
    });
  }
  const TimePoint enough = clock.Now() + at_least * static_cast<int>(good.size());
  for (int round = 0; round < kMaxRuns && !good.empty(); ++round) {
    const TimePoint begin = clock.Now();
    if (round > 0 && (begin > until || (round >= kMinRuns && begin > enough))) break;
    for (size_t i : good) {
      const Duration start = ThreadTime();
      const bool ran = runs[i](0, memory).ok();
      const Duration time = ThreadTime() - start;
      if (ran) fastest[i] = std::min(time, fastest[i].value_or(time));
    }
    tick();
  }
  done = true;
  for (std::thread& thread : others) thread.join();
  return fastest;
}

std::vector<RowCosts> MeasureCosts(size_t programs, const MeasureOptions& options,
                                   absl::FunctionRef<TimedRun(size_t i, int rows)> make) {
  const TimePoint until = Clock::Steady().Now() + options.budget;
  const std::function<void()> tick = ProgressUntil(until, options.progress);
  struct State {
    double best = 0;  // rows a nanosecond
    int not_faster = 0;
    bool done = false;
  };
  std::vector<State> states(programs);
  std::vector<RowCosts> costs(programs);
  for (int rows = options.min_rows; rows <= options.max_rows; rows *= 2) {
    Duration last{0};
    bool any = false;
    for (size_t i = 0; i < programs; ++i) {
      if (states[i].done) continue;
      any = true;
      if (!costs[i].empty()) last += costs[i].back().cost;
    }
    // They take up to twice as long as half the rows did, and run twice at least.
    if (!any || Clock::Steady().Now() + 4 * last > until) break;
    std::vector<size_t> which;
    std::vector<TimedRun> runs;
    for (size_t i = 0; i < programs; ++i) {
      if (states[i].done) continue;
      TimedRun run = make(i, rows);
      if (!run) continue;
      which.push_back(i);
      runs.push_back(std::move(run));
    }
    const auto times = TimeRuns(runs, options.workers, kPerSize, until, tick);
    for (size_t t = 0; t < which.size(); ++t) {
      State& state = states[which[t]];
      if (!times[t]) {
        state.done = true;
        continue;
      }
      const Duration cost = std::max(*times[t], Duration(1));
      costs[which[t]].push_back({rows, cost});
      const double rate = rows / static_cast<double>(cost.count());
      state.not_faster = rate > kFaster * state.best ? 0 : state.not_faster + 1;
      state.best = std::max(state.best, rate);
      state.done = state.not_faster == kNotFaster;
    }
  }
  return costs;
}

bool OnIdlePool(int workers, absl::FunctionRef<void(Team& team)> body) {
  WorkerPoolOptions options;
  options.workers = workers;
  auto pool = WorkerPool::Create(options);
  if (!pool.ok()) return false;
  std::promise<void> done;
  const bool taken = (*pool)->Submit(0, [&](int worker) {
    {
      WorkerPool::TeamLease lease = (*pool)->OpenTeam(worker, true);
      body(lease.team());
    }
    done.set_value();
  });
  if (taken) done.get_future().wait();
  return taken;
}

}  // namespace chairlift
