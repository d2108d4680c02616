// Sequence models whose batches are padded to the longest, with padding hidden by a mask: for
// models that cannot run packed, and for comparing policies.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "engine/costs/learn.h"
#include "engine/costs/measure.h"
#include "engine/programs/makers.h"
#include "engine/programs/padded_sequences.h"
#include "engine/programs/padding.h"
#include "engine/programs/sequence_signature.h"
#include "engine/programs/single_node.h"
#include "engine/requests/request_size.h"

namespace chairlift {
namespace {

constexpr int kMaxLength = 512;  // the longest that is timed

// In proportion to tokens plus a fixed cost: only the relation between sizes matters.
CostSamples Guess() {
  constexpr int kOfABatch = 16;
  CostSamples samples;
  for (const int rows : {1, 64}) {
    for (const int length : {1, kMaxLength}) {
      samples.push_back({rows, length, std::chrono::microseconds(kOfABatch + rows * length)});
    }
  }
  return samples;
}

// For batches of up to `max_rows`: saved or measured; if unknown, a guess until some are learnt.
std::unique_ptr<LearntCosts> FindPaddedCosts(const Signature& signature, Executable& executable,
                                             int max_rows, const LoadOptions& load) {
  const int64_t longest = signature.sequences->max_length;
  const LengthSampling sampling = {
      .max_rows = max_rows,
      .max_length =
          longest > 0 ? static_cast<int>(std::min<int64_t>(longest, kMaxLength)) : kMaxLength,
      .max_places = 4096,
      .workers = load.workers,
      .budget = std::chrono::seconds(2),
      .progress = load.ReportTiming()};
  const auto make = [&](int rows, int length) -> TimedRun {
    return [&, request = OnesRequest(signature, rows, length)](int worker,
                                                               WorkerMemory& memory) -> Status {
      const ValidatedRequest* const requests[] = {&request};
      CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Tensor> inputs,
                                 Padding(signature, requests).Inputs(memory.staging));
      SoloTeam team(worker);
      return executable.Run(inputs, team, worker, memory.compute, memory.stop).status();
    };
  };
  std::string description;
  DescribeForCosts(executable.graph(), description);
  const Device& device = executable.device();
  if (!device.is_host()) description += " on " + device.Description();
  const CostTable::Key key = LengthCostKey(description, sampling);
  const CostSamples samples = FindLengthCosts(key, sampling, load.autotune, make);
  auto found = std::make_unique<LearntCosts>();
  if (samples.empty() || !found->AddType(samples, key).ok()) {
    found->AddType(Guess(), std::nullopt).IgnoreError();
  }
  return found;
}

class PaddedProgram final : public SingleNodeProgram {
 public:
  PaddedProgram(Signature signature, const ServingPlan& plan,
                std::unique_ptr<Executable> executable, std::unique_ptr<LearntCosts> costs,
                std::unique_ptr<DeviceLanes> lanes)
      : SingleNodeProgram("padded", std::move(signature), plan, plan.scheduling.max_batch_size,
                          /*cell=*/0, std::move(lanes)),
        executable_(std::move(executable)),
        costs_(std::move(costs)) {}

  bool TakesLong(const InferRequest& request) const override {
    return InputBytes(request) > kQuickBytes;  // masks are read
  }

  Duration Cost(int /*cell*/, const Task& task) const override {
    return costs_->Cost(0, task.rows, task.length);
  }
  double UnitCostNs(int /*cell*/) const override {
    constexpr int32_t kRows = 32;
    constexpr int32_t kLength = 64;
    return static_cast<double>(costs_->Cost(0, kRows, kLength).count()) / (kRows * kLength);
  }
  void Learn(const Task& task, bool helped, Duration measured) override {
    if (!helped) costs_->Learn(0, task.rows, task.length, measured);
  }
  Status KeepCosts() const override { return costs_->Keep(); }

 protected:
  StatusOr<Batch> Join(RequestSpan requests) override {
    if (requests.size() > 1) {
      return Batch{executable_.get(), std::make_unique<Padding>(signature_, requests)};
    }
    return Batch{executable_.get(),
                 std::make_unique<LoneRequest>(signature_, std::span<const int>(), *requests[0])};
  }
  StatusOr<Executable*> Original() override { return executable_.get(); }
  bool pads() const override { return true; }

 private:
  const std::unique_ptr<Executable> executable_;
  const std::unique_ptr<LearntCosts> costs_;
};

// The form of requests that share padded batches. `not_proved` receives the reason if it is only
// trusted.
StatusOr<SequenceSignature> FindPadding(LoadingModel& model, Executable& executable,
                                        Status& not_proved) {
  const StatusOr<RaggedModel>& ragged = model.Ragged();
  StatusOr<SequenceSignature> padding =
      ragged.ok() ? ProvedPadding(*ragged, executable) : ragged.status();
  if (padding.ok()) return padding;
  const ModelConfig& config = model.config;
  const std::string policy =
      config.policy.empty() ? "padding_mask" : fmt::format("policy '{}'", config.policy);
  if (!model.Batching().batches) {
    return InvalidArgument("{} cannot serve this model: {}", policy, model.Batching().why);
  }
  if (config.padding_mask.empty()) {
    return InvalidArgument(
        "{} cannot serve this model: it is not proved that padding changes nothing: {}; "
        "padding_mask in model.yaml names an input to be trusted to hide it",
        policy, Message(padding.status()));
  }
  not_proved = padding.status();
  return TrustedPadding(config.padding_mask, executable);
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakePadded(LoadingModel& model, std::string& refused) {
  const ModelConfig& config = model.config;
  if (config.policy.empty() && config.padding_mask.empty()) {
    refused = "no padding_mask in model.yaml names an input that hides padding";
    return nullptr;
  }
  model.Ragged().status().IgnoreError();  // both proofs need the graph, which is moved away
  model.Batching();
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                             Executable::Create(std::move(model.graph), model.executable));
  Status not_proved;
  Signature signature{.inputs = executable->inputs(), .outputs = executable->outputs()};
  CHAIRLIFT_ASSIGN_OR_RETURN(signature.sequences, FindPadding(model, *executable, not_proved));
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanPaddedServing(config, Message(not_proved), model.load.workers));
  signature.batches = true;
  signature.max_rows = config.max_batch_size;
  std::unique_ptr<LearntCosts> costs =
      FindPaddedCosts(signature, *executable, plan.scheduling.max_batch_size, model.load);
  plan.scheduling.costs = &costs->costs();
  CHAIRLIFT_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(*model.executable.device));
  return std::make_unique<PaddedProgram>(std::move(signature), std::move(plan),
                                         std::move(executable), std::move(costs), std::move(lanes));
}

}  // namespace chairlift
