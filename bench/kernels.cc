// Times the kernels of tests/ops/kernel_cases.h on one thread, each beside its bound:
//   max(FLOPs / measured peak, bytes / measured bandwidth of a buffer as large as its operands).
// An implementation that refuses a case says why. Takes Google Benchmark's flags.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/peak_rates.h"
#include "ops/kernel_cases.h"

namespace chairlift {
namespace {

using testing::CompiledCall;
using testing::KernelCase;

// What the machine can do at most, measured on first use.
class Peaks {
 public:
  // Seconds.
  double Bound(const KernelCase& c, double bytes) {
    const double arithmetic = c.flops / (fma_ * 1e9) + c.int8_flops / (integers_ * 1e9);
    return std::max(arithmetic, bytes / (Bandwidth(static_cast<size_t>(bytes)) * 1e9));
  }

 private:
  double Bandwidth(size_t bytes) {
    constexpr size_t kGrain = size_t{1} << 16;
    const size_t size =
        (std::clamp<size_t>(bytes, kGrain, size_t{1} << 28) + kGrain - 1) / kGrain * kGrain;
    const auto [found, fresh] = reads_.emplace(size, 0);
    if (fresh) found->second = MeasureRead(size);
    return found->second;
  }

  const double fma_ = MeasureFma(), integers_ = MeasureIntegerPairs();
  std::map<size_t, double> reads_;
};

double Bytes(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += t.present() ? static_cast<double>(t.byte_size()) : 0;
  return bytes;
}

void Register(const KernelCase& c, Peaks& peaks) {
  testing::OperatorCall call = c.MakeCall();
  KernelChoice choice{.only = c.implementation};
  auto compiled = CompiledCall::Make(call, 1, &choice);
  std::string name = c.name;
  if (!c.implementation.empty()) name += ", " + c.implementation;
  if (!compiled.ok()) {
    const std::string why = choice.refused.empty() ? std::string(compiled.status().message())
                                                   : choice.refused.back().why;
    benchmark::RegisterBenchmark(name.c_str(), [why](benchmark::State& state) {
      state.SkipWithError(("refused: " + why).c_str());
    });
    return;
  }
  const double bytes = c.bytes > 0 ? c.bytes : Bytes(call.inputs) + Bytes((*compiled)->Results());
  const double bound_us = 1e6 * peaks.Bound(c, bytes);
  const std::shared_ptr<CompiledCall> kernel = *std::move(compiled);
  benchmark::RegisterBenchmark(name.c_str(), [kernel, bound_us](benchmark::State& state) {
    SoloTeam team;
    for ([[maybe_unused]] auto _ : state) {
      const Status status = kernel->Run(team);
      if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    }
    state.counters["bound_us"] = bound_us;
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(chairlift::CpuIsaName(chairlift::ActiveCpuIsa())));
  chairlift::Peaks peaks;
  for (const chairlift::testing::KernelCase& c : chairlift::testing::KernelCases()) {
    chairlift::Register(c, peaks);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
