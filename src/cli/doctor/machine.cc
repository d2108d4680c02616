#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "cli/doctor/findings.h"
#include "cli/terminal.h"
#include "device/cpu/cores.h"
#include "device/cpu/isa.h"
#include "device/cpu/memory.h"
#include "device/cpu/peak_rates.h"
#include "device/device.h"
#include "device/devices.h"

namespace chairlift::doctor {
namespace {

// A small file of /proc or /sys; empty if there is none.
std::string ReadText(const char* path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Finding Cores() {
  const std::vector<int> allowed = AllowedCores();
  const long machine = sysconf(_SC_NPROCESSORS_ONLN);
  const std::optional<double> quota = CgroupCoreQuota();
  std::string said = fmt::format("{} of {} cores of the machine", allowed.size(), machine);
  if (quota) said += fmt::format(", limited to {:.3g} by the control group", *quota);
  const auto placement = PlaceWorkers(0, {}, allowed, quota);
  if (!placement.ok()) return {Level::kProblem, "cores", Message(placement.status())};
  said += fmt::format("; workers: {}, {}", placement->workers,
                      placement->pinned.empty() ? "not pinned" : "each pinned to a core");
  if (quota && *quota < 1) {
    return {Level::kHint, "cores", said,
            "requests stop whenever the quota is used up: raise it to at least 1 core"};
  }
  return {Level::kOk, "cores", said};
}

// Instruction sets apart from those that select kernels, with their names in /proc/cpuinfo.
std::string Narrow() {
  const std::string info = ReadText("/proc/cpuinfo");
  std::vector<std::string> found;
  for (const char* flag :
       {"avx512_vnni", "avx_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"}) {
    if (info.find(std::string(" ") + flag) != std::string::npos) found.emplace_back(flag);
  }
  return found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "));
}

Finding InstructionSets() {
  const CpuIsa isa = ActiveCpuIsa();
  const std::string said =
      fmt::format("kernels for {}; extensions for narrow types: {}", CpuIsaName(isa), Narrow());
  if (isa == CpuIsa::kBaseline) {
    return {Level::kHint, "instructions", said,
            "most models run several times faster with AVX2: in a virtual machine, pass the host's "
            "CPU through"};
  }
  return {Level::kOk, "instructions", said};
}

Finding Rates() {
  const auto placement = PlaceWorkers(0, {}, AllowedCores(), CgroupCoreQuota());
  const int threads = placement.ok() ? placement->workers : 1;
  const PeakRates rates = MeasurePeakRates(threads);
  return {Level::kOk, "peak",
          fmt::format("{:.0f} GFLOP/s (float32) and {:.0f} GB/s from memory, measured on {}",
                      rates.gflops, rates.memory_gbs, Counted(threads, "thread"))};
}

Finding HugePages() {
  const std::string modes = ReadText("/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = modes.find('['), close = modes.find(']');
  if (open == std::string::npos || close == std::string::npos) {
    return {Level::kInfo, "huge pages", "not known"};
  }
  const std::string mode = modes.substr(open + 1, close - open - 1);
  if (mode != "never") return {Level::kOk, "huge pages", "transparent huge pages: " + mode};
  return {Level::kHint, "huge pages", "transparent huge pages are off",
          "for faster reads of large weights: echo madvise > "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding Governor() {
  const std::string governor = ReadText("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) return {Level::kInfo, "clock", "the frequency governor is not known"};
  if (governor == "powersave" || governor == "conservative") {
    return {Level::kHint, "clock", "the frequency governor is " + governor,
            "for steadier latencies: cpupower frequency-set -g performance"};
  }
  return {Level::kOk, "clock", "the frequency governor is " + governor};
}

Finding Gpu() {
  const auto device = FindDevice("cuda", {});
  if (device.ok()) return {Level::kOk, "GPU", (*device)->Description()};
  return {Level::kInfo, "GPU", "not used: " + Message(device.status())};
}

}  // namespace

std::vector<Finding> OfMachine() {
  return {Cores(),
          {Level::kOk, "memory",
           HumanBytes(static_cast<double>(UsableMemoryBytes())) + " available to this process"},
          InstructionSets(),
          Rates(),
          HugePages(),
          Governor(),
          Gpu()};
}

}  // namespace chairlift::doctor
