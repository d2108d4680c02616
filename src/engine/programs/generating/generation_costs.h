// What a decoder's steps cost, by tokens and by the sequences that these are of: a sequence's last
// token alone has logits, which may take as much as all else.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_

#include <cstdint>
#include <memory>

#include "engine/costs/learn.h"
#include "engine/programs/generating/generating_request.h"
#include "engine/programs/generating/paged_step.h"
#include "engine/programs/loading_model.h"

namespace chairlift {

// With samples of `max_tokens` tokens where the time that timing may take has ended before: each
// further token takes what those before it did. (In proportion, as costs go on beyond the last
// sample, what a step takes once would count again and again: pieces of prompts would stay small,
// and what larger ones take would never be learnt.)
CostSamples WithMostTokens(CostSamples samples, int32_t max_tokens);

// Of tasks by all workers together. Not thread-safe: as LearntCosts.
class GenerationCosts final : public CostModel {
 public:
  struct Size {
    int32_t tokens = 0;
    int32_t sequences = 0;
  };

  // Kept ones, or, if `load` says so, measured, with steps of up to `max_tokens`; null where they
  // are not known.
  static std::unique_ptr<GenerationCosts> Find(PagedStep& step, int max_tokens,
                                               const LoadOptions& load);

  // `type`: kStepCell. `length`: sequences.
  Duration Cost(CellType type, int32_t rows, int32_t length) const override;
  // A step of that size took so long; of no tokens: nothing is said. `helped`: by more than one
  // worker.
  void Learn(const Size& size, bool helped, Duration measured);
  Status Keep() const { return costs_.Keep(); }

 private:
  GenerationCosts() = default;

  LearntCosts costs_;
  int workers_ = 1;
  int32_t most_sequences_ = 1;  // of those measured: more cost what these do
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATION_COSTS_H_
