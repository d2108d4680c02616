#include "engine/token_costs.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/ones_request.h"
#include "engine/packing.h"
#include "engine/timing.h"

namespace chairlift {
namespace {

constexpr int kLength = 64;  // of a sequence
constexpr int kMinTokens = 8;
constexpr int kMaxTokens = 4096;
// Whole requests fall short of a budget, and fill the tiles of products less evenly than the round
// sizes that are timed: with the timed size itself CoLA's sentences (11 tokens) get 5% less done.
constexpr int kSlack = 2;
// Where nothing was measured: enough rows for products to run at full speed.
constexpr int kDefaultBudget = 512;

}  // namespace

RowCosts FindTokenCosts(const Signature& signature, RaggedProgram& program, int workers,
                        bool measure) {
  std::string description = "tokens of";
  DescribeForCosts(program.executable->graph(), description);
  const CostTable::Key key = CostTableKeyOf(description, workers);
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  const int64_t longest = signature.sequences->max_length;
  if (longest > 0 && longest < kLength) return costs;
  const auto make = [&](size_t /*program*/, int tokens) -> TimedRun {
    const int length = std::min(tokens, kLength);
    return [&signature, &program,
            request = std::shared_ptr<Request>(OnesRequest(signature, tokens / length, length))](
               int worker, WorkerMemory& memory) -> Status {
      const Request* const requests[] = {request.get()};
      const Packing packing(signature, program.inputs, requests);
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, packing.Inputs(memory.staging));
      SoloTeam team(worker);
      return program.executable->Run(inputs, team, worker, memory.compute).status();
    };
  };
  costs = MeasureCosts(1, {.min_rows = kMinTokens, .max_rows = kMaxTokens, .workers = workers},
                       make)[0];
  // Where the folder cannot be written, the next load measures again.
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
