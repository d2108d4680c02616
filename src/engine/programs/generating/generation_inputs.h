// Requests of a model that generates: their inputs and outputs with their allowed values, and the
// limits of the answer that follow from them and from the files beside the model.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_INPUTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_INPUTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/programs/generating/generation_config.h"
#include "engine/programs/generating/generation_limits.h"
#include "engine/requests/validate.h"
#include "graph/decoders/decoder.h"
#include "runtime/block_pool.h"

namespace chairlift {

// The model's own limits.
struct GenerationRoom {
  int64_t max_length = 1;  // of prompt and answer
  int64_t vocabulary = 0;
  bool source = false;                          // it has an encoder
  int64_t max_source = 0;                       // tokens of the source
  int64_t source_vocabulary = 0;                // of the source; 0: unknown
  std::optional<SourceFeatures> features = {};  // what the encoder reads instead of tokens
};

// Thread-safe.
class GenerationInputs {
 public:
  // `pool` must outlive it.
  GenerationInputs(GenerationConfig config, const GenerationRoom& room, const BlockPool& pool);

  const Signature& signature() const { return signature_; }

  // Adds defaults for omitted inputs, and removes outputs that do not apply to the request's
  // inputs. InvalidArgument names the wrong input.
  StatusOr<ValidatedRequest> Validate(const InferRequest& request) const;

  // For a request from Validate(). The source of an encoder of features has a zero for each
  // position.
  std::span<const int64_t> Source(const ValidatedRequest& request) const;
  Tensor Features(const ValidatedRequest& request) const;  // absent: the encoder reads tokens
  std::span<const int64_t> Prompt(const ValidatedRequest& request) const;
  GenerationLimits LimitsOf(const ValidatedRequest& request) const;
  // The number of hypotheses in its answer.
  static int64_t Returned(const ValidatedRequest& request);

 private:
  InferRequest WithDefaults(const InferRequest& request) const;
  Status CheckLength(const InferRequest& request, ValidatedRequest& validated) const;
  // `own_start`: the tokens before the answer come from the request instead of the files.
  Status CheckTokenLists(const ValidatedRequest& validated, bool own_start) const;
  // The tokens among these that are in the model's vocabulary.
  std::vector<int64_t> Known(std::span<const int64_t> tokens) const;

  const GenerationConfig config_;
  const GenerationRoom room_;
  const BlockPool& pool_;
  const std::vector<int64_t> places_;  // the source if it is features
  const Signature signature_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_INPUTS_H_
