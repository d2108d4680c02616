// A pipeline's output as vectors, one for each text: pooled over its tokens, and normalised. And
// what clients see of a pipeline of texts in place of, or beside, what its steps give.
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

// The output that has a vector for each token, of models that are pooled: those of all rows, one
// behind the other, [tokens, size]. "num_tokens" says how many each row has.
inline constexpr const char* kTokenEmbeddings = "token_embeddings";

// What clients see. With an embedding, "embedding" and "pooled", [rows, size], and kTokenEmbeddings
// in place of the wired output that they are made from; with classes, "scores" [rows, classes]
// beside it. Else the wired signature itself; likewise below.
Signature ShownSignature(const PipelineConfig& config, const Signature& wired);

// The wired outputs that the wanted ones, of the shown signature, are made from.
std::vector<int> WiredOutputs(const PipelineConfig& config, const PipelineWiring& wiring,
                              const std::vector<int>& wanted);

// The wanted outputs of one row, from the wired ones. All tokens count: a row is not padded.
StatusOr<std::vector<NamedTensor>> ShownOutputs(const PipelineConfig& config,
                                                std::vector<NamedTensor> wired,
                                                const Signature& shown,
                                                const std::vector<int>& wanted);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_EMBEDDING_H_
