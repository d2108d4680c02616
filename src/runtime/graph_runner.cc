#include "runtime/graph_runner.h"

#include <chrono>
#include <utility>

#include "graph/evaluate.h"
#include "runtime/control_flow.h"

namespace chairlift {
namespace {

// Kept whatever they hold.
constexpr int kPlansKept = 4;

// Where an operand of no bytes at all may point.
alignas(64) std::byte nothing[64];

}  // namespace

// One run of the graph: what its places refer to.
class GraphRunner::RunState {
 public:
  RunState(std::span<const Tensor> inputs, size_t num_outputs, const RunContext& context)
      : inputs_(inputs), outputs_(num_outputs), context_(context) {}

  // Makes everything that `plan` writes to.
  Status Enter(const Plan& plan) {
    plan_ = &plan;
    base_ = context_.arena.Reserve(plan.arena_bytes);
    if (base_ == nullptr) {
      return ResourceExhausted("no memory for {} bytes of intermediates", plan.arena_bytes);
    }
    for (const NewOutput& output : plan.new_outputs) {
      outputs_[output.index] = Tensor::Allocate(output.desc.dtype, output.desc.shape);
    }
    return absl::OkStatus();
  }

  Status RunSteps() {
    std::vector<const void*>& inputs = context_.arena.input_pointers();
    std::vector<void*>& outputs = context_.arena.output_pointers();
    for (const Step& step : plan_->steps) {
      inputs.clear();
      outputs.clear();
      for (const Operand& operand : step.inputs) inputs.push_back(Address(operand.place));
      for (const Operand& operand : step.outputs) outputs.push_back(Address(operand.place));
      void* scratch = step.has_scratch ? base_ + step.scratch_offset : nullptr;
      const KernelArgs args{inputs, outputs, scratch, context_.team, context_.worker};
      const Status status = Observed(step.node, [&] {
        return std::pair(step.kernel->Run(args),
                         step.outputs.empty() ? nullptr : &step.outputs[0].desc);
      });
      if (!status.ok()) return Annotate(status, step.node->Describe());
    }
    return absl::OkStatus();
  }

  Status RunLate(GraphRunner& runner) {
    for (const LateNode& node : plan_->late) {
      std::vector<Tensor> inputs;
      inputs.reserve(node.inputs.size());
      for (const Operand& operand : node.inputs) inputs.push_back(TensorAt(operand));
      std::vector<Tensor> results;
      CHAIRLIFT_RETURN_IF_ERROR(Observed(node.node, [&]() -> std::pair<Status, const TensorDesc*> {
        auto computed = runner.ComputeLate(*node.node, inputs, context_);
        if (!computed.ok()) return {computed.status(), nullptr};
        results = *std::move(computed);
        return {absl::OkStatus(), nullptr};
      }));
      for (size_t i = 0; i < node.node->outputs.size(); ++i) {
        // What a node hands through from the arena must outlive its place there.
        late_.push_back(context_.arena.Contains(results[i].raw()) ? results[i].Clone()
                                                                  : std::move(results[i]));
        if (node.node->outputs[i] != kNoValue && !late_.back().present()) {
          return Internal("{}: output {} was not computed", node.node->Describe(), i);
        }
      }
    }
    return absl::OkStatus();
  }

  void ShareOutputs() {
    for (const SharedOutput& output : plan_->shared_outputs) {
      Tensor t = TensorAt(output.source);
      outputs_[output.index] = context_.arena.Contains(t.raw()) ? t.Clone() : std::move(t);
    }
  }

  std::span<const Tensor> late() const { return late_; }
  std::vector<Tensor> TakeOutputs() { return std::move(outputs_); }

 private:
  void* Address(Place place) {
    switch (place.kind) {
      case Place::kAbsent:
        return nullptr;
      case Place::kInput: {
        void* data = const_cast<void*>(inputs_[place.at].raw());
        return data != nullptr ? data : nothing;
      }
      case Place::kKnown:
        return const_cast<void*>(plan_->known[place.at].raw());
      case Place::kArena:
        return base_ + place.at;
      case Place::kOutput:
        return outputs_[place.at].raw();
      case Place::kLate:
        return late_[place.at].raw();
    }
    return nullptr;
  }

  // Shares the bytes; those in the arena are only lent.
  Tensor TensorAt(const Operand& operand) {
    const auto as = [&](const Tensor& t) {
      return t.shape() == operand.desc.shape ? t : t.Reshaped(operand.desc.shape);
    };
    switch (operand.place.kind) {
      case Place::kAbsent:
        return {};
      case Place::kInput:
        return as(inputs_[operand.place.at]);
      case Place::kKnown:
        return as(plan_->known[operand.place.at]);
      case Place::kArena:
        return Tensor::Wrap(operand.desc.dtype, operand.desc.shape, base_ + operand.place.at);
      case Place::kOutput:
        return as(outputs_[operand.place.at]);
      case Place::kLate:
        return as(late_[operand.place.at]);
    }
    return {};
  }

  template <typename F>
  Status Observed(const Node* node, F run) {
    if (context_.observer == nullptr) return run().first;
    const auto start = std::chrono::steady_clock::now();
    const std::pair<Status, const TensorDesc*> result = run();
    const auto time = std::chrono::steady_clock::now() - start;
    context_.observer->OnStep(*node, result.second != nullptr ? *result.second : TensorDesc{},
                              std::chrono::duration_cast<std::chrono::nanoseconds>(time));
    return result.first;
  }

  std::span<const Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> late_;
  const RunContext& context_;
  const Plan* plan_ = nullptr;
  std::byte* base_ = nullptr;
};

GraphRunner::GraphRunner(const Graph& graph, int64_t max_plan_bytes, WeightCache& weights)
    : graph_(graph), weights_(weights), plans_(max_plan_bytes, kPlansKept) {
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) {
      bodies_[body.get()] = std::make_unique<GraphRunner>(*body, max_plan_bytes, weights);
    }
  }
}

StatusOr<PlanPtr> GraphRunner::Prepare(std::span<const TensorDesc> inputs, int width) {
  PlanKey key;
  key.Add(width);
  for (const TensorDesc& input : inputs) key.Add(input.dtype, input.shape);
  return plans_.Get(
      key, [&] { return BuildPlan(graph_, InitialState(graph_, inputs), width, weights_); });
}

StatusOr<PlanPtr> GraphRunner::PlanFor(std::span<const Tensor> inputs, int width) {
  PlanKey key;
  key.Add(width);
  for (const Tensor& input : inputs) key.Add(input.dtype(), input.shape());
  return plans_.Get(key, [&] {
    std::vector<TensorDesc> descs;
    descs.reserve(inputs.size());
    for (const Tensor& input : inputs) descs.push_back({input.dtype(), input.shape()});
    return BuildPlan(graph_, InitialState(graph_, descs), width, weights_);
  });
}

StatusOr<PlanPtr> GraphRunner::Continue(const Plan& plan, std::span<const Tensor> late, int width) {
  PlanKey key;
  for (const Tensor& t : late.last(plan.rest->fresh_late)) key.Add(t.dtype(), t.shape());
  return plan.continuations.Get(
      key, [&] { return BuildPlan(graph_, StateAfter(graph_, plan, late), width, weights_); });
}

StatusOr<std::vector<Tensor>> GraphRunner::ComputeLate(const Node& node,
                                                       std::span<const Tensor> inputs,
                                                       const RunContext& context) {
  if (!IsControlFlow(node)) {
    return EvaluateNode(node, inputs, weights_, context.team, context.worker,
                        Shape::kMaxTensorBytes, graph_.values);
  }
  const RunContext nested{context.team, context.worker, context.arena.Nested(), context.observer};
  return RunControlFlow(node, inputs, [&](const Graph& body, std::span<const Tensor> arguments) {
    return bodies_.at(&body)->Run(arguments, nested);
  });
}

StatusOr<std::vector<Tensor>> GraphRunner::Run(std::span<const Tensor> inputs,
                                               const RunContext& context) {
  const int width = context.team.width();
  CHAIRLIFT_ASSIGN_OR_RETURN(PlanPtr plan, PlanFor(inputs, width));
  RunState state(inputs, graph_.outputs.size(), context);
  while (true) {
    CHAIRLIFT_RETURN_IF_ERROR(state.Enter(*plan));
    CHAIRLIFT_RETURN_IF_ERROR(state.RunSteps());
    CHAIRLIFT_RETURN_IF_ERROR(state.RunLate(*this));
    state.ShareOutputs();
    if (plan->rest == nullptr) return state.TakeOutputs();
    CHAIRLIFT_ASSIGN_OR_RETURN(plan, Continue(*plan, state.late(), width));
  }
}

}  // namespace chairlift
