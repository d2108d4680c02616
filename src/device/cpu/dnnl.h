// How Chairlift uses oneDNN: one engine, one stream per thread, one thread per primitive.
//
// oneDNN here is an OpenMP build. Every thread that creates or runs primitives uses
// DnnlThreadStream() or DnnlEngine(), which limit OpenMP to one thread in the calling thread. Work
// is distributed by Team::For, never inside a primitive. CHAIRLIFT_ISA selects the instruction set.
#ifndef CHAIRLIFT_DEVICE_CPU_DNNL_H_
#define CHAIRLIFT_DEVICE_CPU_DNNL_H_

namespace dnnl {
struct engine;
struct stream;
}  // namespace dnnl

namespace chairlift {

// The process's CPU engine. Thread-safe.
const dnnl::engine& DnnlEngine();
// Call it before creating a primitive. Throws std::bad_alloc if memory is nearly exhausted: oneDNN
// does not check its own allocations and crashes the process (seen in 2.6).
void ExpectMemoryForDnnl();
// The calling thread's stream.
const dnnl::stream& DnnlThreadStream();

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_DNNL_H_
