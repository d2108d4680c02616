// The target of a load: an engine in this process, or a server by URL.
#ifndef CHAIRLIFT_CLI_LOAD_TARGET_H_
#define CHAIRLIFT_CLI_LOAD_TARGET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chairlift/engine.h"

namespace chairlift {

// A sequence of requests whose state stays in the engine.
struct LoadSequence {
  std::string id = {};  // empty: none
  bool start = false;
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  virtual std::string name() const = 0;
  virtual const std::vector<TensorSpec>& inputs() const = 0;
  // Prepares a request with these inputs; returns a handle for Send. Not timed.
  virtual size_t Prepare(std::vector<NamedTensor> inputs, const LoadSequence& sequence = {}) = 0;
  // Sends without waiting; `done` runs once, on any thread. If a target cannot start it at once, it
  // queues it: that wait is part of the latency.
  virtual void Send(size_t prepared, std::function<void(Status)> done) = 0;
  // The model's counters; for a server only `batches`.
  virtual StatusOr<ModelStatistics> Statistics() = 0;
};

// `engine` must have loaded `model` and outlive the target.
StatusOr<std::unique_ptr<LoadTarget>> MakeEngineTarget(Engine& engine, const std::string& model);

// `url` is http://HOST:PORT with a numeric host or "localhost". At most `connections` are open,
// each with one request at a time. Tensors are sent in the binary extension.
StatusOr<std::unique_ptr<LoadTarget>> MakeHttpTarget(const std::string& url,
                                                     const std::string& model, int connections);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TARGET_H_
