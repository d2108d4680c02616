#include "engine/ragged_program.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {

StatusOr<std::unique_ptr<RaggedProgram>> MakeRaggedProgram(const Graph& graph,
                                                           const ExecutableOptions& options) {
  CHAIRLIFT_ASSIGN_OR_RETURN(RaggedModel ragged, MakeRagged(graph));
  auto program = std::make_unique<RaggedProgram>();
  program->inputs = std::move(ragged.inputs);
  program->notes = std::move(ragged.notes);
  SequenceSignature& sequences = program->sequences;
  sequences.token_inputs.assign(graph.inputs.size(), false);
  for (const RaggedInput& input : program->inputs) {
    if (input.role == RaggedRole::kTokens) {
      sequences.token_inputs[static_cast<size_t>(input.source)] = true;
    }
  }
  if (ragged.mask >= 0) sequences.token_inputs[static_cast<size_t>(ragged.mask)] = true;
  sequences.token_outputs = std::move(ragged.output_is_tokens);
  sequences.mask = ragged.mask;
  sequences.sequences_ignore_masked = ragged.rows_ignore_masked;
  sequences.sequences_ignore_trailing = ragged.rows_ignore_trailing;
  sequences.min_length = std::max<int64_t>(ragged.min_length, 1);
  sequences.max_length = ragged.max_length;
  CHAIRLIFT_ASSIGN_OR_RETURN(program->executable,
                             Executable::Create(std::move(ragged.graph), options));
  return program;
}

}  // namespace chairlift
