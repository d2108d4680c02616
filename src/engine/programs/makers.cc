#include "engine/programs/makers.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "graph/bodies.h"
#include "graph/decoders/decoder.h"

namespace chairlift {
namespace {

// The source of a model, which determines the kinds that are tried.
enum class Source { kGraph, kFunction, kPipeline, kCompletion };

Source SourceOf(const LoadingModel& model) {
  if (model.source.pipeline) return Source::kPipeline;
  if (model.source.completion) return Source::kCompletion;
  return model.source.function ? Source::kFunction : Source::kGraph;
}

struct Maker {
  const char* kind;
  const char* summary;
  GraphForm form;  // of requests: policies that need another form are refused
  StatusOr<std::unique_ptr<Program>> (*make)(LoadingModel& model, std::string& refused);
  Source of = Source::kGraph;
  // Whether the kind applies to this form of model; null: to any.
  bool (*concerns)(const Graph& graph) = nullptr;
};

// In order: kinds that serve requests of unequal sizes better come first.
constexpr Maker kMakers[] = {
    {"decoder", "requests share every step of generation; one may start or end at any step",
     GraphForm::kGenerated, MakeGenerating, Source::kGraph, IsDecoder},
    {"cells", "requests may join or leave the batch at every step", GraphForm::kCells, MakeCells},
    {"packed", "the tokens of all requests form one batch without padding", GraphForm::kRagged,
     MakePacked},
    {"padded", "requests of different lengths share a batch, padded to the longest",
     GraphForm::kPadded, MakePadded},
    {"staged", "requests may join a batch, or be split off, between stages of the model",
     GraphForm::kStages, MakeStaged},
    {"specialised", "requests with equal scalar inputs and equal shapes share batches",
     GraphForm::kAny, MakeSpecialised},
    {"whole", "requests of equal shape share batches", GraphForm::kAny, MakeWhole},
    {"python", "worker processes call the Python function once for each batch", GraphForm::kAny,
     MakeProcess, Source::kFunction},
    {"pipeline", "each step is another model, which batches by itself", GraphForm::kAny,
     MakePipeline, Source::kPipeline},
    {"completion", "a tokenizer, a decoder and a detokenizer", GraphForm::kAny, MakeCompleting,
     Source::kCompletion},
};

// Whether a value that requests bring or that is computed has strings. Other kinds than whole
// models gather and keep rows by their bytes alone; strings belong to an owner.
bool HasText(const Graph& graph) { return FindText(graph, false) != nullptr; }

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeProgram(LoadingModel& model,
                                               std::vector<ProgramChoice>& choices) {
  const std::string& policy = model.config.policy;
  const bool drops_stages =
      SetsStages(model.config) && model.config.drop_unused && !MayServe(policy, GraphForm::kStages);
  const bool sets_stages = SetsStages(model.config) && !drops_stages;
  if (model.source.cells && !MayServe(policy, GraphForm::kCells)) {
    return InvalidArgument("policy '{}' cannot serve a model made of cells", policy);
  }
  if (sets_stages) {
    if (!MayServe(policy, GraphForm::kStages)) {
      return InvalidArgument(
          "stages are set, but policy '{}' does not use them; 'staged' and 'cellular' do", policy);
    }
    if (model.source.cells || model.source.function) {
      return InvalidArgument(
          "stages are set, but only a model of one graph can be cut into stages");
    }
  }
  const std::string not_cut = model.not_cut;
  std::vector<std::string> reasons;  // of kinds that the policy supports
  std::vector<IndexBound> index_bounds = FindIndexBounds(model.graph);
  for (const Maker& maker : kMakers) {
    if (maker.of != SourceOf(model)) continue;
    if (maker.concerns != nullptr && !maker.concerns(model.graph)) continue;
    ProgramChoice& choice = choices.emplace_back();
    choice.kind = maker.kind;
    choice.summary = maker.summary;
    if (!MayServe(policy, maker.form)) {
      choice.refused = fmt::format("policy '{}' is not for it", policy);
      continue;
    }
    if (sets_stages && maker.form != GraphForm::kStages) {
      choice.refused = "stages are set";
      continue;
    }
    if (maker.of == Source::kGraph && maker.form != GraphForm::kAny && HasText(model.graph)) {
      choice.refused = "it computes with strings, which only a model that runs as a whole may do";
      reasons.push_back(choice.refused);
      continue;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<Program> made, maker.make(model, choice.refused));
    if (made != nullptr) {
      if (maker.make == MakeWhole && !made->signature().batches) {
        choice.summary = "requests run one by one";
      }
      made->set_index_bounds(std::move(index_bounds));
      if (!model.not_cut.empty()) {
        made->Note("not in stages, as its settings ask: " + model.not_cut);
      }
      for (const std::string& note : model.notes) made->Note(note);
      if (model.widened) made->Note("float16 is computed in float32");
      if (drops_stages) made->Note(fmt::format("stages have no effect with policy '{}'", policy));
      return made;
    }
    if (model.not_cut != not_cut) {  // other kinds may have been refused because of its stages
      choices.clear();
      return MakeProgram(model, choices);
    }
    reasons.push_back(choice.refused);
  }
  if (sets_stages) {
    return InvalidArgument("stages are set, but the model cannot be cut into stages: {}",
                           fmt::join(reasons, "; "));
  }
  if (!policy.empty() && !MayServe(policy, GraphForm::kAny) && !model.source.function) {
    const std::string why = fmt::format("{}", fmt::join(reasons, "; "));
    return InvalidArgument(
        "policy '{}' cannot serve this model: {}; leave `policy` out, and it is chosen from the "
        "model",
        policy, why.empty() ? "the model is not of the kind that the policy is for" : why);
  }
  if (model.source.function) {
    return InvalidArgument("policy '{}' cannot serve a Python model; 'window' and 'none' can",
                           policy);
  }
  if (model.source.pipeline) {
    return InvalidArgument("policy '{}' cannot serve a pipeline; its steps have policies", policy);
  }
  return Internal("no kind of program serves the model");
}

}  // namespace chairlift
