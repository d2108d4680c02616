// Makes Highway's choice of instruction set follow CHAIRLIFT_ISA.
#include "ops/simd_targets.h"

#include <hwy/highway.h>

#include "device/cpu/isa.h"

namespace chairlift {

void RestrictSimdTargets() {
  int64_t disabled = 0;
  if (ActiveCpuIsa() < CpuIsa::kAvx512) disabled |= HWY_AVX3 | HWY_AVX3_DL;
  if (ActiveCpuIsa() < CpuIsa::kAvx2) disabled |= HWY_AVX2;
  hwy::DisableTargets(disabled);
}

}  // namespace chairlift
