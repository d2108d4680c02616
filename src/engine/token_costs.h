// What batches of packed tokens cost on this machine, by one worker and by all of them together.
#ifndef CHAIRLIFT_ENGINE_TOKEN_COSTS_H_
#define CHAIRLIFT_ENGINE_TOKEN_COSTS_H_

#include <memory>
#include <optional>

#include "batching/length_costs.h"
#include "batching/scheduler.h"
#include "batching/team_costs.h"
#include "engine/ragged_program.h"
#include "engine/timing_options.h"
#include "runtime/cost_table.h"

namespace chairlift {

struct TokenCosts final : TeamCosts {
  static constexpr CellType kAlone = 0;
  static constexpr CellType kTeam = 1;  // absent for one worker

  LengthCosts costs;
  CostTable::Key alone_key;  // under which they are kept
  std::optional<CostTable::Key> team_key;
  bool learnt = false;  // since they were read or measured

  // TeamCosts. A model of tokens has one type of batches.
  std::optional<Cost> Of(CellType type, int32_t tokens) const override;
  // What a task took; `helped`: more than one worker ran it.
  void Learn(const Task& task, bool helped, Duration measured);
  // Has the next load find what was learnt.
  Status Keep() const;
};

// By tokens, in sequences of 64 or, where they are fewer, one. `kAlone`: on one core while the
// others run another. Kept on disk like those of cells; where none are kept and `measure` says so,
// they are measured, within about three seconds, and `progress`, which is not null, is told. Null
// where they are not known.
std::unique_ptr<TokenCosts> FindTokenCosts(const Signature& signature, RaggedProgram& program,
                                           int workers, bool measure,
                                           const TimingProgress& progress);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_TOKEN_COSTS_H_
