// A pipeline's output as vectors, one for each text: pooled over its tokens, and normalised.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_

#include <optional>
#include <vector>

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/pipeline/wiring.h"
#include "engine/requests/validate.h"

namespace chairlift {

// That the output is there, and of a shape that can be pooled so: float32 [rows, tokens, size], or
// [rows, size].
Status CheckEmbedding(const EmbeddingConfig& config, const Signature& wired);

// What clients see: "embedding" and "pooled", [rows, size], and the wired outputs but the one that
// they are made from. The wired signature itself where there is no embedding; likewise below.
Signature ShownSignature(const std::optional<EmbeddingConfig>& config, const Signature& wired);

// The wired outputs that the wanted ones, of the shown signature, are made from.
std::vector<int> WiredOutputs(const std::optional<EmbeddingConfig>& config,
                              const PipelineWiring& wiring, const std::vector<int>& wanted);

// The wanted outputs of one row, from the wired ones. All tokens count: a row is not padded.
StatusOr<std::vector<NamedTensor>> ShownOutputs(const std::optional<EmbeddingConfig>& config,
                                                std::vector<NamedTensor> wired,
                                                const Signature& shown,
                                                const std::vector<int>& wanted);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_
