// The instruction sets that the Highway kernels are compiled for. Include before hwy/highway.h in
// every *_simd.cc. There is one build each for the baseline, AVX2 and AVX-512 (and those of other
// architectures), not for the steps between them.
#ifndef CHAIRLIFT_OPS_SIMD_TARGETS_H_
#define CHAIRLIFT_OPS_SIMD_TARGETS_H_

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

namespace chairlift {

// Limits Highway's dynamic dispatch to ActiveCpuIsa(). Called once, before any kernel is looked up.
void RestrictSimdTargets();

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_SIMD_TARGETS_H_
