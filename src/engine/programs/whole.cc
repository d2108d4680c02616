// Models that run as a whole. Requests of equal sizes share batches if rows are proved independent
// along dimension 0; otherwise they run one by one. Or (specialised) the proof is for the model
// specialised for requests with equal scalars and sizes.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "engine/programs/makers.h"
#include "engine/programs/original_model.h"
#include "engine/programs/plan_ahead.h"
#include "engine/programs/single_node.h"
#include "engine/programs/specialisations.h"
#include "graph/row_scales.h"

namespace chairlift {
namespace {

class WholeProgram : public SingleNodeProgram {
 public:
  WholeProgram(std::string_view kind, Signature signature, const ServingPlan& plan,
               std::shared_ptr<Executable> executable, std::unique_ptr<DeviceLanes> lanes)
      : SingleNodeProgram(kind, std::move(signature), plan, plan.scheduling.max_batch_size,
                          /*cell=*/0, std::move(lanes)),
        executable_(std::move(executable)) {}

 protected:
  StatusOr<Batch> Join(RequestSpan requests) override {
    return Together(*executable_, {}, requests);
  }
  StatusOr<Executable*> Original() override { return executable_.get(); }

  // `inputs`: as in LoneRequest.
  Batch Together(Executable& executable, std::span<const int> inputs, RequestSpan requests) const {
    if (requests.size() == 1) {
      return {&executable, std::make_unique<LoneRequest>(signature_, inputs, *requests[0])};
    }
    return {&executable, std::make_unique<RowsTogether>(signature_, inputs, requests)};
  }

 private:
  const std::shared_ptr<Executable> executable_;
};

// Requests of one row share batches by a graph with dynamic scales for each row. In one of several
// rows a scale spans all of them, so it runs alone.
class RowScalesProgram final : public WholeProgram {
 public:
  RowScalesProgram(Signature signature, const ServingPlan& plan,
                   std::shared_ptr<Executable> executable, std::unique_ptr<OriginalModel> original,
                   std::unique_ptr<DeviceLanes> lanes)
      : WholeProgram("whole", std::move(signature), plan, executable, std::move(lanes)),
        by_row_(std::move(executable)),
        original_(std::move(original)) {}

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, WholeProgram::Validate(request));
    if (validated.rows > 1) validated.runs_alone = true;
    return validated;
  }
  StatusOr<ProgramView> View() override { return ProgramView{.executable = by_row_.get()}; }

 protected:
  StatusOr<Executable*> Original() override { return original_->Get(); }

 private:
  const std::shared_ptr<Executable> by_row_;
  const std::unique_ptr<OriginalModel> original_;
};

class SpecialisedProgram final : public WholeProgram {
 public:
  SpecialisedProgram(Signature signature, const ServingPlan& plan,
                     std::shared_ptr<Executable> executable,
                     std::shared_ptr<Specialisations> specialisations,
                     std::unique_ptr<DeviceLanes> lanes)
      : WholeProgram("specialised", std::move(signature), plan, std::move(executable),
                     std::move(lanes)),
        specialisations_(std::move(specialisations)) {}

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override {
    CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, WholeProgram::Validate(request));
    specialisations_->Place(validated);
    return validated;
  }
  std::vector<std::string> Remarks() const override { return specialisations_->Refusals(); }

 protected:
  bool RowsAreApart(const ValidatedRequest& request) const override {
    return request.axes != nullptr;
  }
  StatusOr<Batch> Join(RequestSpan requests) override {
    if (requests[0]->axes == nullptr) return WholeProgram::Join(requests);
    const auto& made = static_cast<const Specialisation&>(*requests[0]->axes);
    return Together(*made.executable, made.executable_inputs, requests);
  }

 private:
  const std::shared_ptr<Specialisations> specialisations_;
};

// The shapes of a request of one row; nothing if more than the batch varies.
std::optional<std::vector<Shape>> ShapesOfOneRow(const Signature& signature) {
  std::vector<Shape> shapes;
  for (const SymbolicSpec& input : signature.inputs) {
    if (!input.shape.has_rank()) return std::nullopt;
    Shape shape;
    for (int axis = 0; axis < input.shape.rank(); ++axis) {
      const Dim& dim = input.shape[axis];
      if (!dim.known() && !(axis == 0 && signature.batches)) return std::nullopt;
      shape.Append(dim.known() ? dim.value() : 1);
    }
    shapes.push_back(shape);
  }
  return shapes;
}

// If only the batch varies, or nothing, plans are made in advance.
Status PlanAhead(const std::shared_ptr<Executable>& executable, const Signature& signature,
                 int max_rows, const LoadOptions& load) {
  const std::optional<std::vector<Shape>> shapes = ShapesOfOneRow(signature);
  if (!shapes) return absl::OkStatus();
  if (!signature.batches) {
    CHAIRLIFT_RETURN_IF_ERROR(executable->Prepare(*shapes, 1).status());
    if (load.workers == 1) return absl::OkStatus();
    return executable->Prepare(*shapes, load.workers).status();
  }
  const BatchPlanner planner = PlannerOf(*executable, *shapes, max_rows);
  CHAIRLIFT_RETURN_IF_ERROR(PlanOneRow(planner, load.workers));
  PlanBatchesAhead({planner}, executable, load);
  return absl::OkStatus();
}

// A note for a sequence model whose requests share batches only at equal lengths; empty if it is
// not one, or if nothing else is possible.
std::string LengthsApart(const std::vector<SymbolicSpec>& inputs, const Status& not_ragged) {
  const SymbolicSpec* mask = nullptr;
  int sequences = 0;
  for (const SymbolicSpec& input : inputs) {
    if (!input.shape.has_rank() || input.shape.rank() < 2 || input.shape[1].known()) continue;
    ++sequences;
    const bool named = input.name.find("mask") != std::string::npos;
    if (input.shape.rank() == 2 && (mask == nullptr || named)) mask = &input;
  }
  if (sequences < 2 || mask == nullptr) return {};
  return fmt::format(
      "; requests of equal lengths share batches: not packed: {}; where an input hides padding, "
      "model.yaml may say so to have others share them, too ('padding_mask: {}')",
      Message(not_ragged), mask->name);
}

// A graph with dynamic scales for each row, if these alone prevent that requests share batches.
// `batching` is then its report.
std::optional<Graph> ByRow(const LoadingModel& model, BatchAxisReport& batching) {
  if (batching.batches || !batching.inputs_share || model.config.policy == "none") {
    return std::nullopt;
  }
  std::optional<Graph> by_row = WithRowScales(model.graph);
  if (!by_row) return std::nullopt;
  BatchAxisReport report = AnalyseBatchAxis(*by_row);
  if (!report.batches) return std::nullopt;
  report.why += "; each has the dynamic scales that it has alone; one of several rows runs alone";
  batching = std::move(report);
  return by_row;
}

// Why a model is not specialised for classes of requests; empty: it is.
std::string NoClasses(LoadingModel& model) {
  const BatchAxisReport& batching = model.Batching();
  if (batching.batches) return "requests share batches whatever scalars they bring";
  if (batching.inputs_share) return batching.why;
  if (model.config.policy == "none" || model.config.max_batch_size == 1) {
    return "its settings have requests run one by one";
  }
  if (!Specialisations::MayHelp(model.graph)) {
    return "only models that take single numbers, such as a sample rate, beside tensors with an "
           "open dimension can be";
  }
  if (model.load.background == nullptr) return "there is no thread to specialise it on";
  return {};
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeSpecialised(LoadingModel& model, std::string& refused) {
  refused = NoClasses(model);
  if (!refused.empty()) return nullptr;
  BatchAxisReport batching = model.Batching();
  batching.batches = true;
  batching.why +=
      "; requests that are equal in scalars and sizes share batches, where that is proved of the "
      "model specialised for them";
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanServing(model.config, batching, model.load.workers));
  plan.batches = false;  // not for arbitrary requests
  auto specialisations =
      std::make_shared<Specialisations>(model.name, model.graph, model.executable,
                                        plan.config.max_batch_size, *model.load.background);
  CHAIRLIFT_ASSIGN_OR_RETURN(std::shared_ptr<Executable> executable,
                             Executable::Create(std::move(model.graph), model.executable));
  Signature signature{.inputs = executable->inputs(), .outputs = executable->outputs()};
  CHAIRLIFT_RETURN_IF_ERROR(
      PlanAhead(executable, signature, plan.scheduling.max_batch_size, model.load));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(*model.executable.device));
  return std::make_unique<SpecialisedProgram>(std::move(signature), std::move(plan),
                                              std::move(executable), std::move(specialisations),
                                              std::move(lanes));
}

StatusOr<std::unique_ptr<Program>> MakeWhole(LoadingModel& model, std::string& /*refused*/) {
  BatchAxisReport batching = model.Batching();
  std::optional<Graph> by_row = ByRow(model, batching);
  if (model.config.policy.empty() && batching.batches) {
    batching.why += LengthsApart(SignatureOf(model.graph).inputs, model.Ragged().status());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan,
                             PlanServing(model.config, batching, model.load.workers));
  std::unique_ptr<OriginalModel> original;
  if (by_row) {
    original = std::make_unique<OriginalModel>(std::move(model.graph), model.executable);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      std::shared_ptr<Executable> executable,
      Executable::Create(by_row ? *std::move(by_row) : std::move(model.graph), model.executable));
  Signature signature{.inputs = executable->inputs(),
                      .outputs = executable->outputs(),
                      .batches = plan.batches,
                      .max_rows = plan.batches ? model.config.max_batch_size : 0};
  CHAIRLIFT_RETURN_IF_ERROR(
      PlanAhead(executable, signature, plan.scheduling.max_batch_size, model.load));
  CHAIRLIFT_ASSIGN_OR_RETURN(auto lanes, DeviceLanes::Create(*model.executable.device));
  if (original != nullptr) {
    return std::make_unique<RowScalesProgram>(std::move(signature), std::move(plan),
                                              std::move(executable), std::move(original),
                                              std::move(lanes));
  }
  return std::make_unique<WholeProgram>("whole", std::move(signature), std::move(plan),
                                        std::move(executable), std::move(lanes));
}

}  // namespace chairlift
