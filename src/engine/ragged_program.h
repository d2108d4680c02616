// A model of sequences that runs on packed tokens.
#ifndef CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
#define CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/signature.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// Thread-safe once made.
struct RaggedProgram {
  std::unique_ptr<Executable> executable;
  std::vector<RaggedInput> inputs;  // the executable's
  SequenceSignature sequences;
  std::vector<std::string> notes;  // what was done to the model
};

// Unimplemented says why the model has to run padded.
StatusOr<std::unique_ptr<RaggedProgram>> MakeRaggedProgram(const Graph& graph,
                                                           const ExecutableOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_RAGGED_PROGRAM_H_
