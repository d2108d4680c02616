// Threads for work in proportion to the request: reading large bodies, writing large answers,
// freeing both. The io threads keep answering meanwhile.
#ifndef CHAIRLIFT_SERVER_HTTP_CODEC_POOL_H_
#define CHAIRLIFT_SERVER_HTTP_CODEC_POOL_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/http/byte_turns.h"
#include "server/http/completion_codec.h"
#include "server/http/generate_codec.h"
#include "server/http/oip_codec.h"
#include "server/http/text_codec.h"
#include "server/limits.h"

namespace chairlift::http {

// One thread's decoders. Not thread-safe.
struct Decoders {
  explicit Decoders(const ServerLimits& limits)
      : infer(limits), generate(limits), texts(limits), completions(limits) {}

  InferDecoder infer;
  GenerateDecoder generate;
  TextDecoder texts;
  CompletionDecoder completions;
};

// Thread-safe. Tasks start in the order of byte_turns.h. A task that throws ends; its thread runs
// the next.
class CodecPool {
 public:
  using Task = absl::AnyInvocable<void(Decoders&)>;

  CodecPool(int threads, size_t max_waiting, const ServerLimits& limits);
  ~CodecPool();  // calls Stop()
  CodecPool(const CodecPool&) = delete;
  CodecPool& operator=(const CodecPool&) = delete;

  // Returns false and drops the task if max_waiting tasks already wait. `client`: whose task it is;
  // `bytes`: how many it reads or writes.
  [[nodiscard]] bool Run(Task task, uint64_t client, size_t bytes);
  // Frees `thing` on a thread of the pool, or here if too many tasks wait.
  template <typename Thing>
  void Free(Thing thing) noexcept {
    try {
      (void)Run([freed = std::move(thing)](Decoders&) {}, kNoClient, 0);
    } catch (const std::bad_alloc&) {
      // No memory for a task: it has been freed here.
    }
  }

  // Runs the waiting tasks, then ends the threads. Must not be called from one of them.
  void Stop();

 private:
  static constexpr uint64_t kNoClient = 0;

  void Loop();

  const size_t max_waiting_;
  const ServerLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  ByteTurns<Task> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace chairlift::http

#endif  // CHAIRLIFT_SERVER_HTTP_CODEC_POOL_H_
