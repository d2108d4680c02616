// A model of sequences that runs on packed tokens.
#ifndef CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
#define CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/signature.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// What requests to a model look like that can run ragged. `num_inputs`: of the original.
SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs);

// The model as it was imported, compiled when it is first asked for: most never are. Thread-safe.
class OriginalProgram {
 public:
  OriginalProgram(Graph graph, ExecutableOptions options)
      : graph_(std::move(graph)), options_(std::move(options)) {}
  StatusOr<Executable*> Get();

 private:
  std::mutex mutex_;
  Graph graph_;  // until it is compiled
  const ExecutableOptions options_;
  std::unique_ptr<Executable> executable_;
  Status failed_;
};

// Thread-safe once made.
struct RaggedProgram {
  std::unique_ptr<Executable> executable;
  std::vector<RaggedInput> inputs;  // the executable's
  SequenceSignature sequences;
  // What runs requests that run alone; null where none do.
  std::unique_ptr<OriginalProgram> original;
};

// `original`: the graph that the model was made from.
StatusOr<std::unique_ptr<RaggedProgram>> MakeRaggedProgram(RaggedModel model, const Graph& original,
                                                           const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
