#include "engine/costs/measure.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/cpu/worker_pool.h"
#include "runtime/run_deadline.h"

namespace chairlift {
namespace {

constexpr int kMaxRounds = 200;
// Runs that take longer, for example loops of many iterations, are not timed.
constexpr Duration kLongestRun = std::chrono::seconds(10);
// For a budget without a bound: small enough to be added to a time point.
constexpr Duration kNoEnd = std::chrono::hours(24 * 365);
// Finds out which sizes are worthwhile.
constexpr TimingEffort kFirstLook = {.rounds = 2};
// For runs that take longer, one round is enough.
constexpr Duration kSlow = std::chrono::milliseconds(20);
constexpr TimingEffort kFirstLookAtSlow = {.rounds = 1};
constexpr TimingEffort kSecondLook = {.rounds = 10};
// More rows count as faster only if they improve throughput by more than this factor.
constexpr double kFaster = 1.03;
// After this many consecutive sizes without improvement, larger ones are not tried.
constexpr int kNotFaster = 3;

// CPU time of this thread: time that other programs take on its core does not count.
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
                                              const TimingEffort& effort, TimePoint until,
                                              const std::function<void()>& tick) {
  const Clock& clock = Clock::Steady();
  const auto succeeds = [&runs](size_t i, int worker, WorkerMemory& memory) {
    return CatchOutOfMemory([&] { return runs[i](worker, memory); }).ok();
  };
  // Runs start in time, and do not end much later.
  const Duration left = std::clamp<Duration>(until - clock.Now(), Duration(0), kNoEnd);
  const RunDeadline deadline(left + kLongestRun);
  WorkerMemory memory;
  memory.stop = deadline.stop();
  std::vector<std::vector<Duration>> times(runs.size());
  std::vector<size_t> good;  // those that do not fail; their plans are made here
  for (size_t i = 0; i < runs.size(); ++i) {
    if (succeeds(i, 0, memory)) good.push_back(i);
  }
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(workers));
  const absl::Cleanup join = [&] {
    done = true;
    for (std::thread& thread : others) thread.join();
  };
  for (int worker = 1; worker < workers && !good.empty(); ++worker) {
    others.emplace_back([&succeeds, &good, &done, &deadline, worker] {
      WorkerMemory own;
      own.stop = deadline.stop();
      while (!done.load()) {
        for (size_t i : good) succeeds(i, worker, own);
      }
    });
  }
  const TimePoint enough = clock.Now() + effort.each * static_cast<int>(good.size());
  for (int round = 0; round < kMaxRounds && !good.empty(); ++round) {
    const TimePoint begin = clock.Now();
    if (round > 0 && (begin > until || (round >= effort.rounds && begin > enough))) break;
    for (size_t i : good) {
      const Duration start = ThreadTime();
      const bool ran = succeeds(i, 0, memory);
      const Duration time = ThreadTime() - start;
      if (ran) times[i].push_back(time);
    }
    tick();
  }
  std::vector<std::optional<Duration>> fast(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    if (times[i].empty()) continue;
    const auto quartile = times[i].begin() + static_cast<std::ptrdiff_t>(times[i].size() / 4);
    std::nth_element(times[i].begin(), quartile, times[i].end());
    fast[i] = *quartile;
  }
  return fast;
}

std::vector<CostSamples> MeasureCosts(size_t programs, const MeasureOptions& options,
                                      absl::FunctionRef<TimedRun(size_t i, int rows)> make) {
  const TimePoint until = Clock::Steady().Now() + options.budget;
  const TimePoint half = until - options.budget / 2;
  const std::function<void()> tick = ProgressUntil(until, options.progress);
  struct State {
    double best = 0;  // rows per nanosecond
    int not_faster = 0;
    bool done = false;
  };
  struct Point {
    size_t program;
    size_t index;  // index of its costs
  };
  std::vector<State> states(programs);
  std::vector<CostSamples> costs(programs);
  std::vector<TimedRun> runs;
  std::vector<Point> points;  // of the runs
  for (int rows = options.min_rows; rows <= options.max_rows; rows *= 2) {
    Duration last{0};
    bool any = false;
    for (size_t i = 0; i < programs; ++i) {
      if (states[i].done) continue;
      any = true;
      if (!costs[i].empty()) last += costs[i].back().cost;
    }
    // These take up to twice as long as half the rows did, and run once before they are timed.
    const TimingEffort& effort = last > kSlow ? kFirstLookAtSlow : kFirstLook;
    if (!any || Clock::Steady().Now() + 2 * (effort.rounds + 1) * last > half) break;
    const size_t before = runs.size();
    std::vector<size_t> which;
    for (size_t i = 0; i < programs; ++i) {
      if (states[i].done) continue;
      TimedRun run = make(i, rows);
      if (!run) continue;
      which.push_back(i);
      runs.push_back(std::move(run));
    }
    const auto times =
        TimeRuns(std::span(runs).subspan(before), options.workers, effort, half, tick);
    std::vector<TimedRun> good;
    for (size_t t = 0; t < which.size(); ++t) {
      State& state = states[which[t]];
      if (!times[t]) {
        state.done = true;
        continue;
      }
      points.push_back({which[t], costs[which[t]].size()});
      good.push_back(std::move(runs[before + t]));
      const Duration cost = std::max(*times[t], Duration(1));
      costs[which[t]].push_back({rows, 0, cost});
      const double rate = rows / static_cast<double>(cost.count());
      state.not_faster = rate > kFaster * state.best ? 0 : state.not_faster + 1;
      state.best = std::max(state.best, rate);
      state.done = state.not_faster == kNotFaster;
    }
    runs.resize(before);
    std::move(good.begin(), good.end(), std::back_inserter(runs));
  }
  // Times all sizes again, in turns: their comparison must not depend on the load from other
  // programs during each one. Taking turns also keeps the workers from reading the same weights in
  // step.
  Duration round{0};
  for (const CostSamples& of_program : costs) {
    for (const auto& point : of_program) round += point.cost;
  }
  if (Clock::Steady().Now() + 2 * round > until) return costs;
  const auto again = TimeRuns(runs, options.workers, kSecondLook, until, tick);
  for (size_t t = 0; t < points.size(); ++t) {
    Duration& cost = costs[points[t].program][points[t].index].cost;
    if (again[t]) cost = std::max(*again[t], Duration(1));
  }
  return costs;
}

CostTable::Key LengthCostKey(const std::string& description, const LengthSampling& sampling) {
  return CostTableKeyOf(fmt::format("up to {} rows of length {} of {}", sampling.max_rows,
                                    sampling.max_length, description),
                        sampling.workers);
}

CostSamples FindLengthCosts(const CostTable::Key& key, const LengthSampling& sampling, bool measure,
                            absl::FunctionRef<TimedRun(int rows, int length)> make) {
  CostSamples samples = KeptCosts(key);
  if (!samples.empty() || !measure) return samples;
  const Clock& clock = Clock::Steady();
  const TimePoint until = clock.Now() + sampling.budget;
  const std::function<void()> tick = ProgressUntil(until, sampling.progress);
  Duration last{0};
  for (const auto& [rows, length] :
       SizesToMeasure(sampling.max_rows, sampling.max_length, sampling.max_places)) {
    // The next size takes up to twice as long as the last, and runs at least twice.
    if (clock.Now() + 4 * last > until) break;
    const TimedRun run = make(rows, length);
    if (!run) continue;
    const std::optional<Duration> time = TimeRuns({&run, 1}, sampling.workers, {}, until, tick)[0];
    if (!time) continue;
    last = std::max(*time, Duration(1));
    samples.push_back({rows, length, last});
  }
  if (!samples.empty()) WarnNotKept(KeepCosts(key, samples));
  return samples;
}

bool OnIdlePool(int workers, absl::FunctionRef<void(Team& team)> body) {
  std::promise<void> done;  // outlives the worker, which may still be in set_value()
  WorkerPoolOptions options;
  options.workers = workers;
  auto pool = WorkerPool::Create(options);
  if (!pool.ok()) return false;
  Status ran;
  const bool taken = (*pool)->Submit(0, [&](int worker) {
    {
      WorkerPool::TeamLease lease = (*pool)->OpenTeam(worker, true);
      ran = CatchOutOfMemory([&] {
        body(lease.team());
        return absl::OkStatus();
      });
    }
    done.set_value();
  });
  if (taken) done.get_future().wait();
  return taken && ran.ok();
}

}  // namespace chairlift
