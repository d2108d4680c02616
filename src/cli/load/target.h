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

// A request of a sequence whose state stays with the engine.
struct LoadSequence {
  std::string id = {};  // empty: none
  bool start = false;
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  virtual std::string name() const = 0;
  virtual const std::vector<TensorSpec>& inputs() const = 0;
  // Makes ready to send these inputs; returns a handle for Send. Not timed.
  virtual size_t Prepare(std::vector<NamedTensor> inputs, const LoadSequence& sequence = {}) = 0;
  // Sends without waiting; `done` runs once, on any thread. A target that cannot start it at once
  // queues it: that wait is part of the latency.
  virtual void Send(size_t prepared, std::function<void(Status)> done) = 0;
  // The model's counters; of a server, `batches` alone.
  virtual StatusOr<ModelStatistics> Statistics() = 0;
};

// `engine` must have `model` loaded and outlive the target.
StatusOr<std::unique_ptr<LoadTarget>> MakeEngineTarget(Engine& engine, const std::string& model);

// `url` is http://HOST:PORT with a numeric host or "localhost"; at most `connections` are open,
// each with one request at a time. Tensors travel in the binary extension.
StatusOr<std::unique_ptr<LoadTarget>> MakeHttpTarget(const std::string& url,
                                                     const std::string& model, int connections);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_LOAD_TARGET_H_
