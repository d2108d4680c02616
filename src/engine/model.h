// One version of one model, ready to run.
#ifndef CHAIRLIFT_ENGINE_MODEL_H_
#define CHAIRLIFT_ENGINE_MODEL_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "batching/scheduler.h"
#include "engine/cell_costs.h"
#include "engine/cell_program.h"
#include "engine/class_forms.h"
#include "engine/model_config.h"
#include "engine/padded_costs.h"
#include "engine/ragged_program.h"
#include "engine/response_cache.h"
#include "engine/sequences.h"
#include "engine/signature.h"
#include "engine/statistics.h"
#include "engine/token_costs.h"
#include "runtime/executable.h"

namespace chairlift {

// What a model is made from.
struct ModelSource {
  std::filesystem::path path;  // an ONNX file; of a model made of cells, the version's folder
  std::optional<CellManifest> cells = {};
};

struct LoadOptions {
  int workers = 1;
  Background* background = nullptr;  // for what may take long later on; must outlive the model
  bool time_cells = false;           // EngineOptions
  // Told what the load is at and how far that has come, from 0 to 1, where it can be told.
  std::function<void(const char* step, double done)> progress = nullptr;

  void Tell(const char* step, double done = 0) const {
    if (progress != nullptr) progress(step, done);
  }
  TimingProgress TellTiming() const {
    return [this](double done) { Tell("timing batches", done); };
  }
};

class Model {
 public:
  // Imports the files, compiles them, and settles how it is to be served. Where only the batch
  // varies, one row is planned ahead, for a worker alone and for all of them: the first request
  // finds its weights packed, and a model that cannot run is refused here.
  static StatusOr<std::shared_ptr<Model>> Load(const std::string& name, const std::string& version,
                                               const ModelSource& source, const ModelConfig& config,
                                               const LoadOptions& options);

  // Keeps what was learnt of its costs for the next load.
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // `versions` is left empty: the repository knows.
  const ModelMetadata& metadata() const { return metadata_; }
  const Signature& signature() const { return signature_; }
  // The model as one; null where it runs as cells.
  Executable* executable() { return ragged_ ? ragged_->executable.get() : executable_.get(); }
  // How requests go into executable(), where that takes packed tokens; else null.
  const RaggedProgram* ragged() const { return ragged_.get(); }
  // With whom its requests share batches; null where the signature tells, or nobody does.
  ClassForms* forms() { return forms_.get(); }
  // The model as cells; null where it runs as one.
  const std::shared_ptr<const CellProgram>& cells() const { return cells_; }
  // Null where the model keeps no state between requests.
  const std::shared_ptr<Sequences>& sequences() const { return sequences_; }
  StatisticsRecorder& statistics() { return statistics_; }
  // Null where answers are not kept.
  const std::shared_ptr<ResponseCache>& response_cache() const { return response_cache_; }

  // The model's place in the dispatcher, which alone touches it, under its lock.
  struct Lane {
    std::vector<CellCosts> costs;               // by cell; empty where none were measured
    std::unique_ptr<PaddedCosts> padded_costs;  // of a model that runs padded
    std::unique_ptr<TokenCosts> token_costs;    // of one on packed tokens; null: not known
    std::unique_ptr<Scheduler> scheduler;       // may ask for them
    bool active = false;                        // it has requests
    int requests = 0;                           // waiting or running
    Duration used{0};  // compute time charged so far, for fairness between models

    // Shape classes of a cell that a request holds while it is in the engine: a cell's rows of
    // equal shapes share a type. A model that runs whole is cell 0.
    CellType HoldType(int cell, const ShapeKey& key);
    // Has the first type of each cell be the cell's own number. To be called before any is held.
    void NumberTypes(int cells);
    void ReleaseType(CellType type);
    int cell(CellType type) const { return entries_[type].cell; }
    // What a task is expected to take: by the costs of its cell, or as others of its type did.
    Duration ExpectedCost(const Task& task) const;
    // What one took; `helped`: more than one worker ran it.
    void NoteCost(const Task& task, bool helped, Duration cost);

   private:
    struct TypeEntry {
      int cell = 0;
      ShapeKey key;
      int holders = 0;
      Duration mean_cost{0};  // of a task, the latest weighing most
    };
    absl::flat_hash_map<std::pair<int, ShapeKey>, CellType> types_;
    std::vector<TypeEntry> entries_;
    // By cell: a policy keeps what it knows of a type.
    absl::flat_hash_map<int, std::vector<CellType>> free_;
  };
  Lane& lane() { return lane_; }

 private:
  Model(const std::string& name, const std::string& version) : statistics_(name, version) {}
  // Each sets signature_ and one of cells_, ragged_ and executable_.
  StatusOr<ServingPlan> CompileCells(const ModelSource& source, const ModelConfig& config,
                                     const LoadOptions& load, const ExecutableOptions& options);
  StatusOr<ServingPlan> Compile(Graph graph, const ModelConfig& config, const LoadOptions& load,
                                const ExecutableOptions& options);
  StatusOr<ServingPlan> ServeCells(CellProgram program, std::vector<CellTypeOptions> types,
                                   const std::string& what, const ModelConfig& config,
                                   const LoadOptions& load);
  StatusOr<ServingPlan> ServeTokens(RaggedModel ragged, const Graph& original,
                                    const ModelConfig& config, const LoadOptions& load,
                                    const ExecutableOptions& options);
  StatusOr<ServingPlan> ServePadded(SequenceSignature sequences, const std::string& not_ragged,
                                    const ModelConfig& config, const LoadOptions& load);

  ModelMetadata metadata_;
  Signature signature_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<RaggedProgram> ragged_;
  std::shared_ptr<ClassForms> forms_;
  std::shared_ptr<const CellProgram> cells_;
  std::shared_ptr<Sequences> sequences_;
  std::shared_ptr<ResponseCache> response_cache_;
  StatisticsRecorder statistics_;
  Lane lane_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_MODEL_H_
