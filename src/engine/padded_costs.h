// What padded batches cost on this machine, by rows and length.
#ifndef CHAIRLIFT_ENGINE_PADDED_COSTS_H_
#define CHAIRLIFT_ENGINE_PADDED_COSTS_H_

#include <memory>

#include "batching/length_costs.h"
#include "engine/signature.h"
#include "runtime/executable.h"

namespace chairlift {

// Of a model whose signature tells its sequences, for batches of up to `max_rows`. Kept on disk;
// where they are not and `measure` says so, they are measured, within about two seconds. Where
// they are not known, they are guessed until some are learnt.
std::unique_ptr<LengthCosts> FindPaddedCosts(const Signature& signature, Executable& executable,
                                             int max_rows, int workers, bool measure);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PADDED_COSTS_H_
