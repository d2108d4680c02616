#include "engine/token_costs.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/ones_request.h"
#include "engine/packing.h"
#include "engine/timing.h"

namespace chairlift {
namespace {

constexpr int64_t kLength = 64;  // of a sequence, where the model takes as long ones
constexpr int kMinTokens = 8;
constexpr int kMaxTokens = 4096;
// Whole requests fall short of a budget, and fill the tiles of products less evenly than the round
// sizes that are timed: with the timed size itself CoLA's sentences (11 tokens) get 5% less done.
constexpr int kSlack = 2;
// Where nothing was measured: enough rows for products to run at full speed.
constexpr int kDefaultBudget = 512;

constexpr Duration kTeamBudget = std::chrono::seconds(1);  // of measuring teams

CostTable::Key KeyOf(const char* how, const RaggedProgram& program, int workers) {
  std::string description = how;
  DescribeForCosts(program.executable->graph(), description);
  return CostTableKeyOf(description, workers);
}

// So many tokens, on `team` or, where there is none, on the worker alone.
TimedRun OnTokens(const Signature& signature, RaggedProgram& program, int tokens, Team* team) {
  const int64_t longest = signature.sequences->max_length;
  const auto most =
      std::bit_floor(static_cast<uint32_t>(longest > 0 ? std::min(longest, kLength) : kLength));
  const int length = std::min(tokens, static_cast<int>(most));
  return [&signature, &program, team,
          request = std::shared_ptr<Request>(OnesRequest(signature, tokens / length, length))](
             int worker, WorkerMemory& memory) -> Status {
    const Request* const requests[] = {request.get()};
    const Packing packing(signature, program.inputs, requests);
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, packing.Inputs(memory.staging));
    SoloTeam alone(worker);
    return program.executable->Run(inputs, team == nullptr ? alone : *team, worker, memory.compute)
        .status();
  };
}

}  // namespace

RowCosts FindTokenCosts(const Signature& signature, RaggedProgram& program, int workers,
                        bool measure, const TimingProgress& progress) {
  const CostTable::Key key = KeyOf("tokens of", program, workers);
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  costs = MeasureCosts(
      1, {.min_rows = kMinTokens, .max_rows = kMaxTokens, .workers = workers, .progress = progress},
      [&](size_t /*program*/, int tokens) {
        return OnTokens(signature, program, tokens, nullptr);
      })[0];
  // Where the folder cannot be written, the next load measures again.
  if (!costs.empty()) KeepCosts(key, costs).IgnoreError();
  return costs;
}

RowCosts FindTokenTeamCosts(const Signature& signature, RaggedProgram& program, int workers,
                            const RowCosts& alone, bool measure, const TimingProgress& progress) {
  if (workers < 2 || alone.empty()) return {};
  const CostTable::Key key = KeyOf("by all workers together: tokens of", program, workers);
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  OnIdlePool(workers, [&](Team& team) {
    costs = MeasureCosts(1,
                         {.min_rows = kMinTokens,
                          .max_rows = alone.back().rows,
                          .budget = kTeamBudget,
                          .progress = progress},
                         [&](size_t /*program*/, int tokens) {
                           return OnTokens(signature, program, tokens, &team);
                         })[0];
  });
  if (!costs.empty()) KeepCosts(key, costs).IgnoreError();
  return costs;
}

BatchSizes ChooseTokenBudget(const RowCosts& costs) {
  TabulatedCosts table;
  if (costs.empty() || !table.AddType(costs).ok()) return {.min = 1, .max = kDefaultBudget};
  BatchSizes sizes = ChooseBatchSizes(table, 0, kMaxTokens);
  sizes.max *= kSlack;
  return sizes;
}

}  // namespace chairlift
