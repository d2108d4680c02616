// The instruction set of the CPU kernels: the best that the machine has, or the one that
// CHAIRLIFT_ISA (amx, avx512, avx2, baseline) limits it to.
#ifndef CHAIRLIFT_DEVICE_CPU_ISA_H_
#define CHAIRLIFT_DEVICE_CPU_ISA_H_

#include <string_view>

namespace chairlift {

enum class CpuIsa { kBaseline, kAvx2, kAvx512, kAmx };

// Read once, at first use.
CpuIsa ActiveCpuIsa();
std::string_view CpuIsaName(CpuIsa isa);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_ISA_H_
