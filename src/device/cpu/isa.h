// Which instruction set the CPU kernels use: the best this machine has, or less where CHAIRLIFT_ISA
// (avx512, avx2, baseline) asks for less.
#ifndef CHAIRLIFT_DEVICE_CPU_ISA_H_
#define CHAIRLIFT_DEVICE_CPU_ISA_H_

#include <string_view>

namespace chairlift {

enum class CpuIsa { kBaseline, kAvx2, kAvx512 };

// Read once, at first use.
CpuIsa ActiveCpuIsa();
std::string_view CpuIsaName(CpuIsa isa);

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_ISA_H_
