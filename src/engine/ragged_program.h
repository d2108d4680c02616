// A model of sequences that runs on packed tokens.
#ifndef CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
#define CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_

#include <memory>
#include <vector>

#include "engine/signature.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// What requests to a model look like that can run ragged. `num_inputs`: of the original.
SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs);

// Thread-safe once made.
struct RaggedProgram {
  std::unique_ptr<Executable> executable;
  std::vector<RaggedInput> inputs;  // the executable's
  SequenceSignature sequences;
};

StatusOr<std::unique_ptr<RaggedProgram>> MakeRaggedProgram(RaggedModel model, size_t num_inputs,
                                                           const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
