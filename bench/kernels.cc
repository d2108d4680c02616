// Times the kernels of tests/ops/kernel_cases.h on one thread, each with its bound:
//   max(FLOPs / measured peak, bytes / measured bandwidth of a buffer as large as its operands),
// or as large as what a recurrent layer reads at every time step. An implementation that refuses a
// case says why. Accepts Google Benchmark's flags.
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

// The machine's peak rates, measured on first use.
class Peaks {
 public:
  // In seconds.
  double Bound(const KernelCase& c, double bytes) {
    const double arithmetic =
        c.flops / (fma_ * 1e9) + c.int8_flops / (integers_ * 1e9) +
        c.bfloat16_flops / ((tiles_ > 0 ? tiles_ : fma_) * 1e9) +
        c.tile_int8_flops / ((int8_tiles_ > 0 ? int8_tiles_ : integers_) * 1e9);
    // Weights are packed in fewer bytes than the operands have: only the tiles' rate bounds that.
    if (c.bfloat16_flops > 0 || c.tile_int8_flops > 0) return arithmetic;
    const double again = c.working_set > 0 ? c.working_set : bytes;
    return std::max(arithmetic, bytes / (Bandwidth(static_cast<size_t>(again)) * 1e9));
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

  const double fma_ = MeasureFma(), integers_ = MeasureIntegerPairs(), tiles_ = MeasureTiles(),
               int8_tiles_ = MeasureInt8Tiles();
  std::map<size_t, double> reads_;
};

double Bytes(const std::vector<Tensor>& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += t.present() ? static_cast<double>(t.byte_size()) : 0;
  return bytes;
}

// A case, created when it is first run.
class Made {
 public:
  Made(const KernelCase& c, Peaks& peaks) : case_(c), peaks_(peaks) {}

  void Run(benchmark::State& state) {
    Make();
    if (kernel_ == nullptr) {
      state.SkipWithError(("refused: " + refusal_).c_str());
      return;
    }
    SoloTeam team;
    for ([[maybe_unused]] auto _ : state) {
      const Status status = kernel_->Run(team);
      if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    }
    state.counters["bound_us"] = bound_us_;
  }

 private:
  void Make() {
    if (kernel_ != nullptr || !refusal_.empty()) return;
    const testing::OperatorCall call = case_.MakeCall();
    KernelChoice choice{.only = case_.implementation};
    auto compiled = CompiledCall::Make(call, 1, &choice);
    if (!compiled.ok()) {
      refusal_ = choice.refused.empty() ? std::string(compiled.status().message())
                                        : choice.refused.back().why;
      return;
    }
    const double bytes =
        case_.bytes > 0 ? case_.bytes : Bytes(call.inputs) + Bytes((*compiled)->Results());
    bound_us_ = 1e6 * peaks_.Bound(case_, bytes);
    kernel_ = *std::move(compiled);
  }

  const KernelCase& case_;
  Peaks& peaks_;
  std::shared_ptr<CompiledCall> kernel_;
  std::string refusal_;
  double bound_us_ = 0;
};

void Register(const KernelCase& c, Peaks& peaks) {
  std::string name = c.name;
  if (!c.implementation.empty()) name += ", " + c.implementation;
  const auto made = std::make_shared<Made>(c, peaks);
  benchmark::RegisterBenchmark(name.c_str(), [made](benchmark::State& state) {
    made->Run(state);
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", std::string(chairlift::CpuIsaName(chairlift::ActiveCpuIsa())));
  chairlift::Peaks peaks;
  for (const auto* cases :
       {&chairlift::testing::KernelCases(), &chairlift::testing::RecurrentCases()}) {
    for (const chairlift::testing::KernelCase& c : *cases) chairlift::Register(c, peaks);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
