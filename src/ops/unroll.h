// CHAIRLIFT_UNROLL before a short loop with a known bound unrolls it completely.
#ifndef CHAIRLIFT_OPS_UNROLL_H_
#define CHAIRLIFT_OPS_UNROLL_H_

#if defined(__clang__)
#define CHAIRLIFT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CHAIRLIFT_UNROLL _Pragma("GCC unroll 32")
#endif

#endif  // CHAIRLIFT_OPS_UNROLL_H_
