// Sequence models that run on packed tokens: no padding is computed.
#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "batching/team_costs.h"
#include "engine/costs/learn.h"
#include "engine/costs/measure.h"
#include "engine/programs/makers.h"
#include "engine/programs/original_model.h"
#include "engine/programs/packing.h"
#include "engine/programs/sequence_signature.h"
#include "engine/programs/single_node.h"
#include "engine/requests/request_size.h"

namespace chairlift {
namespace {

constexpr int64_t kLength = 64;  // length of timed sequences, if the model supports it
constexpr int kMinTimedTokens = 8;
constexpr int kMaxTimedTokens = 4096;
// In a batch on a GPU if settings do not say: from this size on, products run at full speed.
constexpr int kTokensOnDevice = 16384;
constexpr Duration kPackedTimingBudget = std::chrono::milliseconds(1500);

// The model on packed tokens. Thread-safe once made.
struct PackedModel {
  Signature signature;  // with `sequences` set
  std::vector<RaggedInput> inputs;
  std::unique_ptr<Executable> executable;
  std::vector<PassReport> passes;  // run before packing
  std::vector<std::string> notes;
};

// Costs of batches by tokens, on one worker and on all of them together.
struct TokenCosts final : TeamCosts {
  static constexpr CellType kAlone = 0;
  static constexpr CellType kTeam = 1;

  LearntCosts costs;
  bool team = false;  // whether kTeam is included

  // A model of tokens has one type of batches.
  std::optional<Cost> Of(CellType /*type*/, int32_t tokens) const override {
    if (!team) return std::nullopt;
    return Cost{.alone = costs.Cost(kAlone, tokens, 0), .team = costs.Cost(kTeam, tokens, 0)};
  }
};

CostTable::Key KeyOf(const char* how, const PackedModel& model, int workers) {
  std::string description = how;
  DescribeForCosts(model.executable->graph(), description);
  return CostTableKeyOf(description, workers);
}

// A run of `tokens` tokens on `team` or, if null, on one worker.
TimedRun OnTokens(const PackedModel& model, int tokens, Team* team) {
  const int64_t longest = model.signature.sequences->max_length;
  const auto most =
      std::bit_floor(static_cast<uint32_t>(longest > 0 ? std::min(longest, kLength) : kLength));
  const int length = std::min(tokens, static_cast<int>(most));
  return [&model, team, request = OnesRequest(model.signature, tokens / length, length)](
             int worker, WorkerMemory& memory) -> Status {
    const ValidatedRequest* const requests[] = {&request};
    const Packing packing(model.signature, model.inputs, requests);
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, packing.Inputs(memory.staging));
    SoloTeam alone(worker);
    return model.executable
        ->Run(inputs, team == nullptr ? alone : *team, worker, memory.compute, memory.stop)
        .status();
  };
}

// Saved costs, or, if the options allow it, measured ones: in sequences of kLength or, for fewer
// tokens, one sequence. `team`: on all workers together; otherwise on one while the others run
// another.
CostSamples CostsOf(const CostTable::Key& key, const PackedModel& model, bool team, int max_tokens,
                    const LoadOptions& load, const TimingProgress& progress) {
  CostSamples costs = KeptCosts(key);
  if (!costs.empty() || !load.autotune) return costs;
  const auto measure = [&](Team* with) {
    costs = MeasureCosts(
        1,
        {.min_rows = kMinTimedTokens,
         .max_rows = max_tokens,
         .workers = team ? 1 : load.workers,
         .budget = kPackedTimingBudget,
         .progress = progress},
        [&](size_t /*program*/, int tokens) { return OnTokens(model, tokens, with); })[0];
  };
  if (team) {
    OnIdlePool(load.workers, [&](Team& all) { measure(&all); });
  } else {
    measure(nullptr);
  }
  if (!costs.empty()) WarnNotKept(KeepCosts(key, costs));
  return costs;
}

// Null if unknown.
std::unique_ptr<TokenCosts> FindTokenCosts(const PackedModel& model, const LoadOptions& load) {
  const TimingProgress progress = load.ReportTiming();
  auto found = std::make_unique<TokenCosts>();
  const CostTable::Key key = KeyOf("tokens of", model, load.workers);
  const CostSamples alone =
      CostsOf(key, model, false, kMaxTimedTokens, load, [&](double done) { progress(done / 2); });
  if (alone.empty() || !found->costs.AddType(alone, key).ok()) return nullptr;
  if (load.workers < 2) return found;
  const CostTable::Key team_key = KeyOf("by all workers together: tokens of", model, load.workers);
  const CostSamples team =
      CostsOf(team_key, model, true, std::min(alone.back().rows, kMaxTimedTokens), load,
              [&](double done) { progress((1 + done) / 2); });
  found->team = !team.empty() && found->costs.AddType(team, team_key).ok();
  return found;
}

class PackedProgram final : public SingleNodeProgram {
 public:
  PackedProgram(PackedModel model, const ServingPlan& plan, std::unique_ptr<TokenCosts> costs,
                std::unique_ptr<OriginalModel> original, std::unique_ptr<DeviceLanes> lanes)
      : SingleNodeProgram("packed", model.signature, plan, plan.config.max_batch_tokens,
                          /*cell=*/0, std::move(lanes)),
        model_(std::move(model)),
        costs_(std::move(costs)),
        original_(std::move(original)) {}

  bool TakesLong(const InferRequest& request) const override {
    return InputBytes(request) > kQuickBytes;  // masks are read
  }

  StatusOr<ProgramView> View() override {
    return ProgramView{.executable = model_.executable.get(),
                       .packed = model_.inputs,
                       .passes = model_.passes,
                       .notes = model_.notes};
  }

  Duration Cost(int /*cell*/, const Task& task) const override {
    return costs_ == nullptr ? Duration(0) : costs_->costs.Cost(TokenCosts::kAlone, task.rows, 0);
  }
  double UnitCostNs(int /*cell*/) const override {
    constexpr int32_t kTokens = 1024;
    if (costs_ == nullptr) return 0;
    return static_cast<double>(costs_->costs.Cost(TokenCosts::kAlone, kTokens, 0).count()) /
           kTokens;
  }
  void Learn(const Task& task, bool helped, Duration measured) override {
    // A task with temporary help is neither a single worker's nor a team's measurement.
    if (costs_ == nullptr || helped != task.by_team || (task.by_team && !costs_->team)) return;
    costs_->costs.Learn(task.by_team ? TokenCosts::kTeam : TokenCosts::kAlone, task.rows, 0,
                        measured);
  }
  Status KeepCosts() const override {
    return costs_ == nullptr ? absl::OkStatus() : costs_->costs.Keep();
  }

 protected:
  StatusOr<Batch> Join(RequestSpan requests) override {
    return Batch{model_.executable.get(),
                 std::make_unique<Packing>(signature_, model_.inputs, requests)};
  }
  StatusOr<Executable*> Original() override { return original_->Get(); }
  bool RowsAreApart(const ValidatedRequest& /*request*/) const override {
    return SequencesAreApart(model_.inputs);
  }

 private:
  const PackedModel model_;
  const std::unique_ptr<TokenCosts> costs_;  // null: unknown
  const std::unique_ptr<OriginalModel> original_;
};

}  // namespace

StatusOr<std::unique_ptr<Program>> MakePacked(LoadingModel& model, std::string& refused) {
  StatusOr<RaggedModel>& ragged = model.Ragged();
  if (!ragged.ok()) {
    refused = Message(ragged.status());
    return nullptr;
  }
  PackedModel packed;
  packed.signature = PackedSignature(*ragged, model.graph, model.config.max_batch_size);
  packed.inputs = std::move(ragged->inputs);
  packed.passes = std::move(ragged->passes);
  packed.notes = std::move(ragged->notes);
  CHAIRLIFT_ASSIGN_OR_RETURN(packed.executable,
                             Executable::Create(std::move(ragged->graph), model.executable));
  auto original = std::make_unique<OriginalModel>(std::move(model.graph), model.executable);
  const bool on_host = model.executable.device->is_host();
  if (!on_host && model.config.max_batch_tokens == 0) {
    model.config.max_batch_tokens = kTokensOnDevice;
  }
  std::unique_ptr<TokenCosts> costs;
  if (on_host) costs = FindTokenCosts(packed, model.load);
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanTokenServing(model.config, costs == nullptr ? nullptr : &costs->costs.costs(),
                       model.load.workers));
  plan.scheduling.team_costs = costs.get();
  CHAIRLIFT_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(*model.executable.device));
  return std::make_unique<PackedProgram>(std::move(packed), std::move(plan), std::move(costs),
                                         std::move(original), std::move(lanes));
}

}  // namespace chairlift
