#include "engine/ragged_program.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {

SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs) {
  SequenceSignature sequences;
  sequences.token_inputs.assign(num_inputs, false);
  for (const RaggedInput& input : ragged.inputs) {
    if (input.role == RaggedRole::kTokens) {
      sequences.token_inputs[static_cast<size_t>(input.source)] = true;
    }
  }
  if (ragged.mask >= 0) sequences.token_inputs[static_cast<size_t>(ragged.mask)] = true;
  sequences.token_outputs = ragged.output_is_tokens;
  sequences.mask = ragged.mask;
  sequences.sequences_ignore_masked = ragged.rows_ignore_masked;
  sequences.sequences_ignore_trailing = ragged.rows_ignore_trailing;
  sequences.min_length = std::max<int64_t>(ragged.min_length, 1);
  sequences.max_length = ragged.max_length;
  sequences.max_shared_length = ragged.max_proved_length;
  return sequences;
}

StatusOr<Executable*> OriginalProgram::Get() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (executable_ == nullptr && failed_.ok()) {
    StatusOr<std::unique_ptr<Executable>> made = Executable::Create(std::move(graph_), options_);
    graph_ = Graph();
    if (!made.ok()) failed_ = made.status();
    if (made.ok()) executable_ = *std::move(made);
  }
  CHAIRLIFT_RETURN_IF_ERROR(failed_);
  return executable_.get();
}

StatusOr<std::unique_ptr<RaggedProgram>> MakeRaggedProgram(RaggedModel model, const Graph& original,
                                                           const ExecutableOptions& options) {
  auto program = std::make_unique<RaggedProgram>();
  program->sequences = SequencesOf(model, original.inputs.size());
  if (model.max_proved_length > 0) {
    program->original = std::make_unique<OriginalProgram>(original, options);
  }
  program->inputs = std::move(model.inputs);
  CHAIRLIFT_ASSIGN_OR_RETURN(program->executable,
                             Executable::Create(std::move(model.graph), options));
  return program;
}

}  // namespace chairlift
