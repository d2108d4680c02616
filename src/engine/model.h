// One version of one model, ready to run.
#ifndef CHAIRLIFT_ENGINE_MODEL_H_
#define CHAIRLIFT_ENGINE_MODEL_H_

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/scheduler.h"
#include "engine/signature.h"
#include "engine/statistics.h"
#include "runtime/executable.h"

namespace chairlift {

class Model {
 public:
  // Imports the file, compiles it, and settles how it is to be served. Where only the batch varies,
  // one row is planned ahead, for a worker alone and for `workers`: the first request finds its
  // weights packed, and a model that cannot run is refused here.
  static StatusOr<std::shared_ptr<Model>> Load(const std::string& name, const std::string& version,
                                               const std::filesystem::path& file,
                                               const ModelConfig& config, int workers);

  // `versions` is left empty: the repository knows.
  const ModelMetadata& metadata() const { return metadata_; }
  const Signature& signature() const { return signature_; }
  Executable& executable() { return *executable_; }
  StatisticsRecorder& statistics() { return statistics_; }

  // The model's place in the dispatcher, which alone touches it, under its lock.
  struct Lane {
    std::unique_ptr<Scheduler> scheduler;
    bool active = false;        // it has requests
    int requests = 0;           // waiting or running
    Duration used{0};           // compute time charged so far, for fairness between models
    Duration expected_cost{0};  // of one task, from those that ended

    // Shape classes with a request waiting or running.
    CellType TypeOf(const ShapeKey& key);
    void ReleaseType(CellType type);

   private:
    struct TypeEntry {
      ShapeKey key;
      int requests = 0;
    };
    absl::flat_hash_map<ShapeKey, CellType> types_;
    std::vector<TypeEntry> entries_;
    std::vector<CellType> free_;
  };
  Lane& lane() { return lane_; }

 private:
  Model(const std::string& name, const std::string& version) : statistics_(name, version) {}

  ModelMetadata metadata_;
  Signature signature_;
  std::unique_ptr<Executable> executable_;
  StatisticsRecorder statistics_;
  Lane lane_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_MODEL_H_
