// The host as a device: its memory is what everybody reads, and its streams run at once on the
// calling thread.
#ifndef CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_
#define CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_

namespace chairlift {

class Device;
class Stream;

// The process's own. Thread-safe.
Device& CpuDevice();
// Has no state, so that all threads may use it at once.
Stream& CpuStream();

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_
