// The imported model, for requests that do not fit what shares batches.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_ORIGINAL_MODEL_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_ORIGINAL_MODEL_H_

#include <memory>
#include <mutex>
#include <utility>

#include "runtime/executable.h"

namespace chairlift {

// Compiled on first use, which most models never need. Thread-safe.
class OriginalModel {
 public:
  OriginalModel(Graph graph, ExecutableOptions options)
      : graph_(std::move(graph)), options_(std::move(options)) {}
  // Valid as long as this object.
  StatusOr<Executable*> Get();

 private:
  std::mutex mutex_;
  Graph graph_;  // until it is compiled
  const ExecutableOptions options_;
  std::unique_ptr<Executable> executable_;
  Status failed_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_ORIGINAL_MODEL_H_
