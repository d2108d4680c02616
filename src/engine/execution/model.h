// One version of one model, as it is served.
#ifndef CHAIRLIFT_ENGINE_EXECUTION_MODEL_H_
#define CHAIRLIFT_ENGINE_EXECUTION_MODEL_H_

#include <memory>

#include "chairlift/engine.h"
#include "engine/execution/model_queue.h"
#include "engine/programs/program.h"
#include "engine/requests/response_cache.h"
#include "engine/requests/sequences.h"
#include "engine/requests/statistics.h"

namespace chairlift {

class Model {
 public:
  // `metadata` has its name, its version and the choice of program; the rest comes from the
  // program. Its plan names the scheduling policy.
  static StatusOr<std::shared_ptr<Model>> Create(ModelMetadata metadata,
                                                 std::unique_ptr<Program> program);

  // Saves its learnt costs for the next load.
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // `versions` is empty: the repository has them.
  const ModelMetadata& metadata() const { return metadata_; }
  Program& program() const { return *program_; }
  // Null if the model keeps no state between requests.
  const std::shared_ptr<Sequences>& sequences() const { return sequences_; }
  StatisticsRecorder& statistics() { return statistics_; }
  // Null if answers are not cached.
  const std::shared_ptr<ResponseCache>& response_cache() const { return response_cache_; }
  // Used only by the dispatcher.
  ModelQueue& queue() { return queue_; }

 private:
  Model(ModelMetadata metadata, std::unique_ptr<Program> program,
        std::unique_ptr<Scheduler> scheduler);

  ModelMetadata metadata_;
  const std::unique_ptr<Program> program_;
  std::shared_ptr<Sequences> sequences_;
  std::shared_ptr<ResponseCache> response_cache_;
  StatisticsRecorder statistics_;
  ModelQueue queue_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_EXECUTION_MODEL_H_
