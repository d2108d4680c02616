// What padded batches cost on this machine, by rows and length.
#ifndef CHAIRLIFT_ENGINE_PADDED_COSTS_H_
#define CHAIRLIFT_ENGINE_PADDED_COSTS_H_

#include <memory>
#include <optional>

#include "batching/length_costs.h"
#include "engine/signature.h"
#include "engine/timing_options.h"
#include "runtime/cost_table.h"
#include "runtime/executable.h"

namespace chairlift {

struct PaddedCosts {
  LengthCosts costs;                  // of type 0
  std::optional<CostTable::Key> key;  // under which they are kept; of those guessed none are
  bool learnt = false;                // since they were read or measured

  void Learn(int32_t rows, int32_t length, Duration measured);
  // Has the next load find what was learnt.
  Status Keep() const;
};

// Of a model whose signature tells its sequences, for batches of up to `max_rows`. Kept on disk;
// where they are not and `measure` says so, they are measured, within about two seconds. Where
// they are not known, they are guessed until some are learnt.
std::unique_ptr<PaddedCosts> FindPaddedCosts(const Signature& signature, Executable& executable,
                                             int max_rows, int workers, bool measure,
                                             const TimingProgress& progress);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PADDED_COSTS_H_
