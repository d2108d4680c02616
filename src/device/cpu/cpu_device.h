// The host as a device. Everything can read its memory, and its streams run at once on the calling
// thread.
#ifndef CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_
#define CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_

namespace chairlift {

class Device;
class Stream;

// The single instance of this process. Thread-safe.
Device& CpuDevice();
// Stateless, so all threads may use it at the same time.
Stream& CpuStream();

}  // namespace chairlift

#endif  // CHAIRLIFT_DEVICE_CPU_CPU_DEVICE_H_
