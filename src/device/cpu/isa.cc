#include "device/cpu/isa.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "device/cpu/tiles.h"

namespace chairlift {
namespace {

CpuIsa Detect() {
  CpuIsa best = CpuIsa::kBaseline;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = CpuIsa::kAvx2;
  if (best == CpuIsa::kAvx2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    best = CpuIsa::kAvx512;
  }
  // kAmx means bfloat16 and 8-bit tiles, and what AVX-512 has for both.
  if (best == CpuIsa::kAvx512 && __builtin_cpu_supports("avx512bf16") &&
      __builtin_cpu_supports("avx512vnni") && GrantTiles()) {
    best = CpuIsa::kAmx;
  }
#endif
  const char* wanted = std::getenv("CHAIRLIFT_ISA");
  if (wanted == nullptr || *wanted == '\0') return best;
  for (CpuIsa isa : {CpuIsa::kBaseline, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    if (CpuIsaName(isa) == wanted) return std::min(isa, best);
  }
  spdlog::warn("CHAIRLIFT_ISA={} is not amx, avx512, avx2 or baseline; using {}", wanted,
               CpuIsaName(best));
  return best;
}

}  // namespace

CpuIsa ActiveCpuIsa() {
  static const CpuIsa isa = Detect();
  return isa;
}

std::string_view CpuIsaName(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAmx:
      return "amx";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx2:
      return "avx2";
    default:
      return "baseline";
  }
}

}  // namespace chairlift
