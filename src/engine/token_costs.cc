#include "engine/token_costs.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "engine/kept_costs.h"
#include "engine/length_cost_table.h"
#include "engine/ones_request.h"
#include "engine/packing.h"
#include "engine/timing.h"

namespace chairlift {
namespace {

constexpr int64_t kLength = 64;  // of a sequence, where the model takes as long ones
constexpr int kMinTokens = 8;
constexpr int kMaxTokens = 4096;
constexpr Duration kTimingBudget = std::chrono::milliseconds(1500);

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

RowCosts CostsAlone(const CostTable::Key& key, const Signature& signature, RaggedProgram& program,
                    int workers, bool measure, const TimingProgress& progress) {
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  costs = MeasureCosts(1,
                       {.min_rows = kMinTokens,
                        .max_rows = kMaxTokens,
                        .workers = workers,
                        .budget = kTimingBudget,
                        .progress = progress},
                       [&](size_t /*program*/, int tokens) {
                         return OnTokens(signature, program, tokens, nullptr);
                       })[0];
  // Where the folder cannot be written, the next load measures again.
  if (!costs.empty()) KeepCosts(key, costs).IgnoreError();
  return costs;
}

RowCosts CostsOfTeam(const CostTable::Key& key, const Signature& signature, RaggedProgram& program,
                     int workers, int max_tokens, bool measure, const TimingProgress& progress) {
  RowCosts costs = KeptCosts(key);
  if (!costs.empty() || !measure) return costs;
  OnIdlePool(workers, [&](Team& team) {
    costs = MeasureCosts(1,
                         {.min_rows = kMinTokens,
                          .max_rows = max_tokens,
                          .budget = kTimingBudget,
                          .progress = progress},
                         [&](size_t /*program*/, int tokens) {
                           return OnTokens(signature, program, tokens, &team);
                         })[0];
  });
  if (!costs.empty()) KeepCosts(key, costs).IgnoreError();
  return costs;
}

LengthSamples SamplesOf(const RowCosts& costs) {
  LengthSamples samples;
  for (const auto& [tokens, cost] : costs) samples.push_back({tokens, 0, cost});
  return samples;
}

}  // namespace

std::optional<TeamCosts::Cost> TokenCosts::Of(CellType /*type*/, int32_t tokens) const {
  if (!team_key) return std::nullopt;
  return Cost{.alone = costs.Cost(kAlone, tokens, 0), .team = costs.Cost(kTeam, tokens, 0)};
}

void TokenCosts::Learn(const Task& task, bool helped, Duration measured) {
  // What idle workers helped with for a while is neither.
  if (helped != task.by_team || (task.by_team && !team_key)) return;
  costs.Learn(task.by_team ? kTeam : kAlone, task.rows, 0, measured);
  learnt = true;
}

Status TokenCosts::Keep() const {
  if (!learnt) return absl::OkStatus();
  CHAIRLIFT_RETURN_IF_ERROR(KeepLengthCosts(alone_key, costs.Samples(kAlone)));
  return team_key ? KeepLengthCosts(*team_key, costs.Samples(kTeam)) : absl::OkStatus();
}

std::unique_ptr<TokenCosts> FindTokenCosts(const Signature& signature, RaggedProgram& program,
                                           int workers, bool measure,
                                           const TimingProgress& progress) {
  auto found = std::make_unique<TokenCosts>();
  found->alone_key = KeyOf("tokens of", program, workers);
  const RowCosts alone = CostsAlone(found->alone_key, signature, program, workers, measure,
                                    [&](double done) { progress(done / 2); });
  if (alone.empty() || !found->costs.AddType(SamplesOf(alone)).ok()) return nullptr;
  if (workers < 2) return found;
  const CostTable::Key key = KeyOf("by all workers together: tokens of", program, workers);
  const RowCosts team = CostsOfTeam(key, signature, program, workers, alone.back().rows, measure,
                                    [&](double done) { progress((1 + done) / 2); });
  if (!team.empty() && found->costs.AddType(SamplesOf(team)).ok()) found->team_key = key;
  return found;
}

}  // namespace chairlift
