#include "device/cpu/dnnl.h"

#include <dlfcn.h>

#include <cstddef>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>

#include "device/cpu/isa.h"

namespace chairlift {
namespace {

// Finds the OpenMP runtime that oneDNN loaded. A oneDNN build without OpenMP has none, and nothing
// needs to be limited.
void HoldOpenMpToOneThread() {
  static const auto kSetNumThreads =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  static thread_local const bool kHeld = [] {
    if (kSetNumThreads != nullptr) kSetNumThreads(1);
    return true;
  }();
  (void)kHeld;
}

dnnl::cpu_isa MaxIsa() {
  switch (ActiveCpuIsa()) {
    case CpuIsa::kAmx:
      return dnnl::cpu_isa::all;
    case CpuIsa::kAvx512:
      return dnnl::cpu_isa::avx512_core_bf16;
    case CpuIsa::kAvx2:
      return dnnl::cpu_isa::avx2;
    default:
      return dnnl::cpu_isa::sse41;
  }
}

}  // namespace

const dnnl::engine& DnnlEngine() {
  HoldOpenMpToOneThread();
  static const dnnl::engine* const kEngine = [] {
    dnnl::set_max_cpu_isa(MaxIsa());
    // Identical layers share a primitive. A higher limit would keep unused primitives.
    constexpr int kPrimitivesKept = 256;
    dnnl::set_primitive_cache_capacity(kPrimitivesKept);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *kEngine;
}

void ExpectMemoryForDnnl() {
  // More than creating a primitive needs; never written to.
  constexpr size_t kEnough = size_t{16} << 20;
  void* volatile place = ::operator new(kEnough);
  ::operator delete(place);
}

const dnnl::stream& DnnlThreadStream() {
  static thread_local const dnnl::stream kStream(DnnlEngine());
  return kStream;
}

}  // namespace chairlift
