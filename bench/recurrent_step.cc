// Runs the bare step of a recurrent cell in a loop at full batch: an upper bound for serving.
// Prints rows per second by hidden size and batch, for contiguous and for scattered rows. Compares
// with the minimum time of the multiply-adds and of reading R on this machine.
#include "ops/recurrent/recurrent_step.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/peak_rates.h"
#include "device/cpu/worker_pool.h"

namespace chairlift {
namespace {

struct Options {
  std::string cell = "LSTM";
  std::vector<int64_t> hidden = {256, 1024};
  std::vector<int64_t> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  int workers = 1;    // each in a separate loop
  bool team = false;  // all workers share one loop
  int samples = 101;
  double sample_seconds = 0.002;
  bool cpu_time = false;  // counts the workers' CPU time, for machines with other load
  bool json = false;
};

StepSpec Spec(const std::string& cell, int64_t hidden) {
  StepSpec spec;
  spec.hidden = hidden;
  spec.usual_gates = true;
  const GateActivation sigmoid{GateFunction::kSigmoid, 0, 0};
  const GateActivation tanh{GateFunction::kTanh, 0, 0};
  if (cell == "LSTM") {
    spec.activations = {sigmoid, tanh, tanh};
  } else if (cell == "GRU") {
    spec.cell = CellKind::kGru;
    spec.gates = 3;
    spec.activations = {sigmoid, tanh};
  } else {
    spec.cell = CellKind::kRnn;
    spec.gates = 1;
    spec.activations = {tanh};
  }
  return spec;
}

void FillNormal(Tensor& t, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal(0, scale);
  std::generate_n(t.data<float>(), t.size(), [&] { return normal(random); });
}

// A worker's rows: states in two halves that are read and written alternately.
class Loop {
 public:
  Loop(const RecurrentStep& step, int64_t batch, bool scattered, int width, uint32_t seed)
      : step_(step), batch_(batch) {
    const StepSpec& spec = step.kernel().spec();
    std::mt19937 random(seed);
    // Four places per row, so that neighbouring rows are not adjacent.
    const int64_t places = scattered ? 4 * batch : batch;
    const auto make = [&](Tensor& arena, int64_t columns) {
      arena = Tensor::Allocate(DType::kFloat, Shape{places, columns});
      FillNormal(arena, 0.5f, random);
      std::vector<int64_t> order(places);
      for (int64_t i = 0; i < places; ++i) order[i] = i;
      if (scattered) std::shuffle(order.begin(), order.end(), random);
      std::vector<float*> rows(batch);
      for (int64_t r = 0; r < batch; ++r) rows[r] = arena.data<float>() + order[r] * columns;
      return rows;
    };
    xw_ = make(arenas_[0], spec.gates * spec.hidden);
    for (int half = 0; half < 2; ++half) {
      h_[half] = make(arenas_[1 + half], spec.hidden);
      c_[half] = make(arenas_[3 + half], spec.hidden);
    }
    scratch_ = Tensor::Allocate(DType::kUInt8,
                                Shape{static_cast<int64_t>(step.ScratchBytes(batch, width))});
  }

  void Run(int64_t steps, Team& team) {
    for (int64_t i = 0; i < steps; ++i) {
      const int from = i % 2;
      step_.Step(batch_, xw_.data(), h_[from].data(), c_[from].data(), h_[1 - from].data(),
                 c_[1 - from].data(), from != 0, team, scratch_.data<uint8_t>());
    }
  }

 private:
  const RecurrentStep& step_;
  int64_t batch_;
  Tensor arenas_[5], scratch_;
  std::vector<float*> xw_, h_[2], c_[2];
};

// Runs body(worker, team) on every worker concurrently, or on worker 0 with all as its team.
void OnWorkers(WorkerPool& pool, bool team, const std::function<void(int, Team&)>& body) {
  const int jobs = team ? 1 : pool.size();
  std::atomic<int> ready{0};
  std::atomic<int> done{0};
  for (int w = 0; w < jobs; ++w) {
    const bool queued = pool.Submit(w, [&, jobs](int worker) {
      SoloTeam solo(worker);
      ++ready;
      while (ready < jobs) {
      }
      if (team) {
        auto lease = pool.OpenTeam(worker, true);
        body(worker, lease.team());
      } else {
        body(worker, solo);
      }
      ++done;
      done.notify_one();
    });
    if (!queued) std::abort();
  }
  for (int now = done; now < jobs; now = done) done.wait(now);
}

// Seconds from an arbitrary start; only this thread's CPU time if `cpu_time`.
double Now(bool cpu_time) {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

struct Rates {
  double median = 0, best = 0;  // rows per second, all workers together
};

// Contiguous and scattered, alternating sample by sample.
std::array<Rates, 2> Measure(const Options& options, const RecurrentStep& step, int64_t batch,
                             WorkerPool& pool) {
  const int loops = options.team ? 1 : pool.size();
  std::vector<std::array<std::unique_ptr<Loop>, 2>> kinds(loops);
  for (int w = 0; w < loops; ++w) {
    for (int s = 0; s < 2; ++s) {
      kinds[w][s] = std::make_unique<Loop>(step, batch, s == 1, options.workers, 7 + w);
    }
  }
  const auto run = [&](int kind, int64_t steps) {
    std::vector<double> seconds(loops);
    OnWorkers(pool, options.team, [&](int worker, Team& team) {
      const double begin = Now(options.cpu_time);
      kinds[worker][kind]->Run(steps, team);
      seconds[worker] = Now(options.cpu_time) - begin;
    });
    double rate = 0;
    for (double s : seconds) rate += static_cast<double>(batch * steps) / s;
    return rate;
  };
  run(0, 2);
  const double first = run(0, 4) / static_cast<double>(batch * loops);  // steps per second
  const int64_t steps =
      std::max<int64_t>(1, std::llround(std::ceil(options.sample_seconds * first)));
  std::array<std::vector<double>, 2> rates;
  for (int i = 0; i < options.samples; ++i) {
    for (int kind = 0; kind < 2; ++kind) rates[kind].push_back(run(kind, steps));
  }
  std::array<Rates, 2> out;
  for (int kind = 0; kind < 2; ++kind) {
    out[kind] = {Median(rates[kind]), *std::max_element(rates[kind].begin(), rates[kind].end())};
  }
  return out;
}

Status Run(const Options& options) {
  WorkerPoolOptions pool_options;
  pool_options.workers = options.workers;
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto pool, WorkerPool::Create(pool_options));
  const auto together = [&](const std::function<double()>& measure) {
    std::vector<double> rates(options.workers);
    OnWorkers(*pool, false, [&](int worker, Team&) { rates[worker] = measure(); });
    double sum = 0;
    for (double rate : rates) sum += rate;
    return sum;
  };
  const double gflops = together(MeasureFma);
  if (!options.json) {
    fmt::print("{}, {} worker(s){}, {}, {:.1f} GFLOP/s at most\n", options.cell, options.workers,
               options.team ? " as one team" : "", CpuIsaName(ActiveCpuIsa()), gflops);
    fmt::print("{:>6} {:>6} {:>12} {:>12} {:>9} {:>8} {:>8} {:>8} {:>10}\n", "hidden", "batch",
               "rows/s", "best", "GFLOP/s", "% FMA", "% bound", "best %", "scattered");
  }
  std::vector<std::string> rows;
  for (const int64_t hidden : options.hidden) {
    const StepSpec spec = Spec(options.cell, hidden);
    std::mt19937 random(5);
    Tensor r = Tensor::Allocate(DType::kFloat, Shape{spec.gates * hidden, hidden});
    FillNormal(r, 1.0f / std::sqrt(static_cast<float>(hidden)), random);
    WeightCache cache;
    CHAIRLIFT_ASSIGN_OR_RETURN(const RecurrentStep step,
                               RecurrentStep::Create(spec, r, Tensor(), Tensor(), cache));
    // Each member of a team reads a share.
    const size_t bytes = r.byte_size();
    const size_t share = options.team ? bytes / options.workers : bytes;
    const double gbs = together([&] { return MeasureRead(share / 256 * 256); });
    for (const int64_t batch : options.batches) {
      const auto [row, scattered] = Measure(options, step, batch, *pool);
      const double flops = 2.0 * static_cast<double>(r.size());  // per row
      // Rows per second that each bound allows.
      const double fma_bound = gflops * 1e9 / flops;
      const double read_bound = gbs * 1e9 / static_cast<double>(bytes) * static_cast<double>(batch);
      const double bound = std::min(fma_bound, read_bound);
      if (options.json) {
        rows.push_back(fmt::format(
            "{{\"hidden\": {}, \"batch\": {}, \"rows_per_second\": {:.0f}, \"best\": {:.0f}, "
            "\"scattered_rows_per_second\": {:.0f}, \"percent_of_fma\": {:.1f}, "
            "\"percent_of_bound\": {:.1f}}}",
            hidden, batch, row.median, row.best, scattered.median, 100 * row.median / fma_bound,
            100 * row.median / bound));
      } else {
        fmt::print(
            "{:>6} {:>6} {:>12.0f} {:>12.0f} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>9.3f}x\n",
            hidden, batch, row.median, row.best, row.median * flops / 1e9,
            100 * row.median / fma_bound, 100 * row.median / bound, 100 * row.best / bound,
            scattered.median / row.median);
      }
    }
  }
  if (options.json) {
    fmt::print(
        "{{\"cell\": \"{}\", \"workers\": {}, \"team\": {}, \"gflops\": {:.1f}, "
        "\"rows\": [{}]}}\n",
        options.cell, options.workers, options.team, gflops, fmt::join(rows, ", "));
  }
  return {};
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  chairlift::Options options;
  CLI::App app("The bare recurrent step in a loop at full batch");
  app.add_option("--cell", options.cell)->check(CLI::IsMember({"LSTM", "GRU", "RNN"}));
  app.add_option("--hidden", options.hidden)->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batches)->check(CLI::PositiveNumber);
  app.add_option("--workers", options.workers, "loops at once, one a core")
      ->check(CLI::Range(1, 256));
  app.add_flag("--team", options.team, "one loop that all workers share");
  app.add_flag("--cpu-time", options.cpu_time,
               "count the workers' own time, for machines that others use too")
      ->excludes("--team");
  app.add_option("--samples", options.samples)->check(CLI::PositiveNumber);
  app.add_option("--sample-seconds", options.sample_seconds)->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "one JSON object instead of the table");
  CLI11_PARSE(app, argc, argv);
  const chairlift::Status status = chairlift::Run(options);
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  }
  return 0;
}
