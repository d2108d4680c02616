// What batches of packed tokens cost on this machine, and the token budget that follows from it.
#ifndef CHAIRLIFT_ENGINE_TOKEN_COSTS_H_
#define CHAIRLIFT_ENGINE_TOKEN_COSTS_H_

#include "batching/batch_sizes.h"
#include "engine/kept_costs.h"
#include "engine/ragged_program.h"
#include "engine/timing_progress.h"

namespace chairlift {

// By tokens, in sequences of 64 or, where they are fewer, one: what a batch of them takes on one
// core while the others run another. Kept on disk like those of cells; where none are kept and
// `measure` says so, they are measured, within about a second. Empty where they are not known.
RowCosts FindTokenCosts(const Signature& signature, RaggedProgram& program, int workers,
                        bool measure, const TimingProgress& progress);

// The same, of all workers together on one batch, at the sizes of `alone`. Empty for one worker.
RowCosts FindTokenTeamCosts(const Signature& signature, RaggedProgram& program, int workers,
                            const RowCosts& alone, bool measure, const TimingProgress& progress);

// Tokens in a batch: `max`, its budget, so that throughput is within a few per cent of the best;
// and `min`, below which a batch costs the same.
BatchSizes ChooseTokenBudget(const RowCosts& costs);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_TOKEN_COSTS_H_
