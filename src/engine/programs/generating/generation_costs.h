// The cost of a decoder's steps, by tokens and by the number of their sequences: logits are
// computed for the last token of each sequence, which may take as long as everything else.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_

#include <cstdint>
#include <memory>

#include "engine/costs/learn.h"
#include "engine/programs/generating/generating_request.h"
#include "engine/programs/generating/paged_step.h"
#include "engine/programs/loading_model.h"

namespace chairlift {

// Adds samples of `max_tokens` tokens if the time limit stopped timing before: each further token
// costs as much as the average of the earlier ones. (Extrapolating in proportion, as costs do
// beyond the last sample, would count the fixed cost of a step again and again. Parts of prompts
// would stay small, and the cost of larger ones would never be learnt.)
CostSamples WithMostTokens(CostSamples samples, int32_t max_tokens);

// For tasks by all workers together. Not thread-safe: like LearntCosts.
class GenerationCosts final : public CostModel {
 public:
  struct Size {
    int32_t tokens = 0;
    int32_t sequences = 0;
  };

  // Saved costs, or, if `load` allows it, measured ones with steps of up to `max_tokens`; null if
  // unknown.
  static std::unique_ptr<GenerationCosts> Find(PagedStep& step, int max_tokens,
                                               const LoadOptions& load);

  // `type`: kStepCell. `length`: number of sequences.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  // Learns that a step of that size took `measured`; ignored for 0 tokens. `helped`: by more than
  // one worker.
  void Learn(const Size& size, bool helped, Duration measured);
  Status Keep() const { return costs_.Keep(); }

 private:
  GenerationCosts() = default;

  LearntCosts costs_;
  int workers_ = 1;
  int32_t most_sequences_ = 1;  // the most measured: more sequences cost the same
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_
