// Requests of a model that generates: their inputs and outputs, what each may be, and the limits of
// the answer that follow from them and from the files beside the model.
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

// What the model itself can take.
struct GenerationRoom {
  int64_t max_length = 1;  // of prompt and answer
  int64_t vocabulary = 0;
  bool source = false;                          // it has an encoder
  int64_t max_source = 0;                       // of the source
  int64_t source_vocabulary = 0;                // likewise; 0: unknown
  std::optional<SourceFeatures> features = {};  // what the encoder takes in place of tokens
};

// Thread-safe.
class GenerationInputs {
 public:
  // `pool` must outlive it.
  GenerationInputs(GenerationConfig config, const GenerationRoom& room, const BlockPool& pool);

  const Signature& signature() const { return signature_; }

  // With defaults for what is left out, and without the outputs that do not go with the request's
  // inputs. InvalidArgument names the input that is wrong.
  StatusOr<ValidatedRequest> Validate(const InferRequest& request) const;

  // Of a request that Validate() gave. The source of an encoder of features has a zero for each of
  // its places.
  std::span<const int64_t> Source(const ValidatedRequest& request) const;
  Tensor Features(const ValidatedRequest& request) const;  // absent: the encoder takes tokens
  std::span<const int64_t> Prompt(const ValidatedRequest& request) const;
  GenerationLimits LimitsOf(const ValidatedRequest& request) const;
  // Hypotheses that it is to be answered with.
  static int64_t Returned(const ValidatedRequest& request);

 private:
  InferRequest WithDefaults(const InferRequest& request) const;
  Status CheckLength(const InferRequest& request, ValidatedRequest& validated) const;
  // `own_start`: the tokens that come before the answer are the request's, not the files'.
  Status CheckTokenLists(const ValidatedRequest& validated, bool own_start) const;
  // Those that the model has.
  std::vector<int64_t> Known(std::span<const int64_t> tokens) const;

  const GenerationConfig config_;
  const GenerationRoom room_;
  const BlockPool& pool_;
  const std::vector<int64_t> places_;  // the source, of features
  const Signature signature_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_INPUTS_H_
