// A pipeline's output as one vector per text: pooled over its tokens, and normalised. Also the
// outputs that clients see of a text pipeline instead of, or in addition to, those of its steps.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_

#include <optional>
#include <vector>

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/programs/pipeline/wiring.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Checks that the output exists and has a shape that can be pooled: float32 [rows, tokens, size],
// or [rows, size].
Status CheckEmbedding(const EmbeddingConfig& config, const Signature& wired);

// For models that are pooled: the output with a vector for each token of all rows, [tokens, size].
// "num_tokens" has the number of tokens of each row.
inline constexpr const char* kTokenEmbeddings = "token_embeddings";

// The outputs that clients see. With an embedding: "embedding" and "pooled", [rows, size], and
// kTokenEmbeddings replace the internal output that they are made from. With classes: "scores"
// [rows, classes] in addition to it. Otherwise the internal signature itself; the same applies
// below.
Signature ShownSignature(const PipelineConfig& config, const Signature& wired);

// The internal outputs needed for the requested client outputs.
std::vector<int> WiredOutputs(const PipelineConfig& config, const PipelineWiring& wiring,
                              const std::vector<int>& wanted);

// The requested outputs of one row, from the internal ones. All tokens are valid: a row has no
// padding.
StatusOr<std::vector<NamedTensor>> ShownOutputs(const PipelineConfig& config,
                                                std::vector<NamedTensor> wired,
                                                const Signature& shown,
                                                const std::vector<int>& wanted);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_
