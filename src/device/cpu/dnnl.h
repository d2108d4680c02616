// oneDNN as Chairlift uses it: one engine, one stream a thread, one thread to a primitive.
//
// oneDNN here is an OpenMP build. Every thread that creates or runs primitives does so through
// DnnlThreadStream() or DnnlEngine(), which hold OpenMP to one thread in the calling thread: work
// is spread by Team::For, never inside a primitive. The instruction set follows CHAIRLIFT_ISA.
#ifndef CHAIRLIFT_DEVICE_CPU_DNNL_H_
#define CHAIRLIFT_DEVICE_CPU_DNNL_H_

namespace dnnl {
struct engine;
struct stream;
}  // namespace dnnl

namespace chairlift {

// The process's CPU engine. Thread-safe.
const dnnl::engine& DnnlEngine();
// To be called before a primitive is made: throws std::bad_alloc where memory is about to run out.
// oneDNN does not look whether its own allocations succeed, and ends the process (seen in 2.6).
void ExpectMemoryForDnnl();
// The calling thread's stream.
const dnnl::stream& DnnlThreadStream();

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_DNNL_H_
