// Text completion for models that generate: a request is one node, whose task makes requests to the
// tokenizer, the model and the detokenizer.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"
#include "engine/programs/completing/completion_run.h"
#include "engine/programs/generating/choosing.h"
#include "engine/programs/makers.h"
#include "engine/programs/model_calls.h"
#include "engine/requests/answer_parts.h"

namespace chairlift {
namespace {

constexpr int kAtOnce = 256;          // concurrent requests, as for a pipeline
constexpr int64_t kMostAnswers = 32;  // per prompt
constexpr int64_t kMostAnswersInAll = 1024;
constexpr int64_t kMostStops = 16;
constexpr size_t kMostStopBytes = 1024;

// In this order, followed by the model's own inputs.
enum Input { kText, kOptions, kStops, kAnswers, kEcho, kWithoutPrompt, kStreams, kFirstOfModel };
enum Output {
  kTexts,
  kReasons,
  kPromptTokens,
  kNumTokens,
  // With logprobs:
  kTextTokens,
  kTextTokenLogprobs,
  kTextOffsets,
  kTextTopTokens,
  kTextTopLogprobs
};

// Inputs of the model that are derived from the text, or given as text here.
constexpr const char* kNotTaken[] = {"input_ids", "decoder_input_ids", "stop_sequences",
                                     "num_return_sequences", "forced_tokens"};
constexpr const char* kLogprobsInput = "logprobs";
constexpr const char* kMaxTokensInput = "max_tokens";
// In options[1], for a chat: its answer continues until it ends, as OpenAI's do; its memory is
// bounded by its number of tokens.
constexpr int64_t kOfMessages = 2;
constexpr const char* kNotOfTexts = "input_features";

SymbolicSpec Spec(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, SymbolicShape(std::move(dims))};
}

StatusOr<Signature> SignatureOfTexts(const Signature& model) {
  const auto has = [&](const std::vector<SymbolicSpec>& specs, std::string_view name) {
    return std::any_of(specs.begin(), specs.end(),
                       [&](const SymbolicSpec& spec) { return spec.name == name; });
  };
  if (has(model.inputs, kNotOfTexts)) {
    return InvalidArgument("its input '{}' is not one that a tokenizer supplies", kNotOfTexts);
  }
  if (!has(model.inputs, "input_ids") || !has(model.outputs, "output_ids")) {
    return InvalidArgument("it has no input 'input_ids' or no output 'output_ids'");
  }
  Signature signature;
  const Dim prompts = Dim::Symbol("prompts");
  signature.inputs = {Spec("text_input", DType::kBytes, {prompts}),
                      Spec("options", DType::kInt64, {prompts, 2}),
                      Spec("stop", DType::kBytes, {Dim::Symbol("stops")}),
                      Spec("n", DType::kInt32, {1}),
                      Spec("echo", DType::kBool, {1}),
                      Spec("exclude_input_in_output", DType::kBool, {1}),
                      Spec("stream", DType::kBool, {1})};
  for (const SymbolicSpec& spec : model.inputs) {
    if (std::count(std::begin(kNotTaken), std::end(kNotTaken), spec.name) > 0) continue;
    signature.inputs.push_back(spec);
  }
  const Dim answers = Dim::Symbol("answers"), longest = Dim::Symbol("longest");
  const Dim likely = Dim::Symbol("likely");
  signature.outputs = {Spec("text_output", DType::kBytes, {answers}),
                       Spec("finish_reason", DType::kBytes, {answers}),
                       Spec("num_prompt_tokens", DType::kInt64, {prompts}),
                       Spec("num_tokens", DType::kInt64, {answers}),
                       Spec("tokens", DType::kBytes, {answers, longest}),
                       Spec("token_logprobs", DType::kFloat, {answers, longest}),
                       Spec("text_offset", DType::kInt64, {answers, longest}),
                       Spec("top_tokens", DType::kBytes, {answers, longest, likely}),
                       Spec("top_logprobs", DType::kFloat, {answers, longest, likely})};
  return signature;
}

// Stands for an omitted input.
Tensor Absent(DType dtype) { return Tensor::Allocate(dtype, Shape{0}); }

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Information about the tokens of answers, [answers, longest, …]. Padding for shorter answers:
// offsets −1, empty texts, log-probabilities 0.
class TokenTensors {
 public:
  TokenTensors(int64_t answers, size_t longest, int64_t likely)
      : shape_{answers, static_cast<int64_t>(longest)}, likely_(likely) {
    const auto count = static_cast<size_t>(shape_.NumElements());
    texts_.resize(count);
    logprobs_.resize(count, 0.0f);
    offsets_.resize(count, -1);
    top_texts_.resize(count * static_cast<size_t>(likely));
    top_logprobs_.resize(top_texts_.size(), kLeastLogprob);
  }

  // Returns the offset of the next text, in characters.
  int64_t Set(int64_t answer, std::span<const TextToken> tokens, int64_t offset) {
    auto at = static_cast<size_t>(answer * shape_[1]);
    for (const TextToken& token : tokens) {
      texts_[at] = token.text;
      logprobs_[at] = token.logprob;
      offsets_[at] = offset;
      offset += Characters(token.text);
      for (size_t i = 0; i < token.likely.size(); ++i) {
        const size_t place = at * static_cast<size_t>(likely_) + i;
        top_texts_[place] = token.likely[i].first;
        top_logprobs_[place] = token.likely[i].second;
      }
      ++at;
    }
    return offset;
  }

  Tensor Take(int output) {
    const Shape top{shape_[0], shape_[1], likely_};
    switch (output) {
      case kTextTokens:
        return TextTensor(shape_, std::move(texts_));
      case kTextTokenLogprobs:
        return Tensor::Of<float>(shape_, std::span<const float>(logprobs_));
      case kTextOffsets:
        return Tensor::Of<int64_t>(shape_, std::span<const int64_t>(offsets_));
      case kTextTopTokens:
        return TextTensor(top, std::move(top_texts_));
      default:
        return Tensor::Of<float>(top, std::span<const float>(top_logprobs_));
    }
  }

 private:
  const Shape shape_;
  const int64_t likely_;
  std::vector<std::string> texts_, top_texts_;
  std::vector<float> logprobs_, top_logprobs_;
  std::vector<int64_t> offsets_;
};

class CompletionGraph final : public RequestGraph {
 public:
  // `answers`: in total. `likely`: the number of candidate tokens given per position.
  CompletionGraph(ValidatedRequest request, std::vector<std::string> names,
                  std::shared_ptr<CompletionRun> run, size_t answers, int64_t likely, bool parts)
      : RequestGraph(std::move(request)),
        names_(std::move(names)),
        run_(std::move(run)),
        likely_(likely),
        parts_(InParts(this->request(), parts)),
        pieces_(answers),
        offsets_(pieces_.size()) {}

  int32_t num_nodes() const override { return 1; }
  GraphNode run(int32_t /*index*/) const override {
    return {.cell = 0, .rows = 1, .key = {}, .dependencies = {}};
  }
  void Leave() override { run_->Stop(); }
  bool done() const override { return done_; }
  void TakeParts(SendParts send) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    send(parts_.Take());
  }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  CompletionRun& run() { return *run_; }
  void Emit(size_t answer, CompletionPiece piece);
  void Complete() { done_ = true; }

 private:
  static std::vector<bool> InParts(const ValidatedRequest& request, bool parts) {
    std::vector<bool> wanted(kTextTopLogprobs + 1, false);
    wanted[kTexts] = parts;
    for (const int output : request.outputs) {
      if (output >= kTextTokens) wanted[static_cast<size_t>(output)] = parts;
    }
    return wanted;
  }

  const std::vector<std::string> names_;  // of outputs
  const std::shared_ptr<CompletionRun> run_;
  const int64_t likely_;
  bool done_ = false;
  std::mutex mutex_;
  // Guarded by mutex_.
  AnswerParts parts_;
  std::vector<int64_t> pieces_;   // by answer: number of pieces so far
  std::vector<int64_t> offsets_;  // by answer: characters so far
};

void CompletionGraph::Emit(size_t answer, CompletionPiece piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!parts_.wants(kTexts)) return;
  AnswerPart part{.output = kTexts,
                  .row = static_cast<int64_t>(answer),
                  .first = pieces_[answer]++,
                  .count = 1};
  parts_.Emit(part, TextTensor({1}, {std::move(piece.text)}));
  TokenTensors tokens(1, piece.tokens.size(), likely_);
  offsets_[answer] = tokens.Set(0, piece.tokens, offsets_[answer]);
  for (int output = kTextTokens; output <= kTextTopLogprobs; ++output) {
    if (!parts_.wants(output)) continue;
    part.output = output;
    parts_.Emit(part, tokens.Take(output));
  }
}

StatusOr<std::vector<NamedTensor>> CompletionGraph::TakeOutputs() {
  std::vector<std::string> texts, reasons;
  std::vector<int64_t> counts;
  size_t longest = 0;
  const std::vector<Completion>& answers = run_->answers();
  for (const Completion& answer : answers) {
    texts.push_back(answer.text);
    reasons.emplace_back(answer.stopped ? "stop" : "length");
    counts.push_back(answer.tokens);
    longest = std::max(longest, answer.text_tokens.size());
  }
  const Shape shape{static_cast<int64_t>(texts.size())};
  TokenTensors tokens(shape[0], longest, likely_);
  for (size_t i = 0; i < answers.size(); ++i) {
    tokens.Set(static_cast<int64_t>(i), answers[i].text_tokens, 0);
  }
  std::vector<NamedTensor> outputs;
  for (const int output : request().outputs) {
    NamedTensor& own = outputs.emplace_back();
    own.name = names_[static_cast<size_t>(output)];
    if (output == kTexts) own.tensor = TextTensor(shape, texts);
    if (output == kReasons) own.tensor = TextTensor(shape, reasons);
    if (output == kPromptTokens) {
      const std::vector<int64_t> prompts = run_->prompt_tokens();
      own.tensor = Tensor::Of<int64_t>({static_cast<int64_t>(prompts.size())},
                                       std::span<const int64_t>(prompts));
    }
    if (output == kNumTokens) {
      own.tensor = Tensor::Of<int64_t>(shape, std::span<const int64_t>(counts));
    }
    if (output >= kTextTokens) own.tensor = tokens.Take(output);
  }
  return outputs;
}

StatusOr<CompletionModels> FindModels(const CompletionConfig& config, ModelCalls& calls) {
  CompletionModels models;
  CHAIRLIFT_ASSIGN_OR_RETURN(models.tokenizer, calls.Find(config.tokenizer));
  CHAIRLIFT_ASSIGN_OR_RETURN(models.model, calls.Find(config.model));
  CHAIRLIFT_ASSIGN_OR_RETURN(models.detokenizer, calls.Find(config.detokenizer));
  return models;
}

class CompletingProgram final : public Program {
 public:
  CompletingProgram(CompletionConfig config, Signature signature, ServingPlan plan,
                    ModelCalls& calls)
      : Program("completion", std::move(signature), std::move(plan)),
        config_(std::move(config)),
        calls_(calls) {}

  StatusOr<ProgramView> View() override {
    return ProgramView{.notes = {config_.tokenizer, config_.model, config_.detokenizer}};
  }
  TaskLanes lanes() const override { return {.tasks = kAtOnce, .at_work = kAtOnce}; }
  std::string_view platform() const override { return "pipeline_chairlift"; }
  bool SendsParts() const override { return true; }
  int steps() const override { return 3; }
  bool Calls(const std::string& name) const override {
    return name == config_.tokenizer || name == config_.model || name == config_.detokenizer;
  }
  bool CallsOthers() const override { return true; }
  // Requests to its detokenizer are many and short.
  std::vector<ExpectedCalls> CallsOf(int64_t /*rows*/) const override {
    StatusOr<CompletionModels> models = FindModels(config_, calls_);
    if (!models.ok()) return {};  // it is refused when it is unfolded
    return {{std::move(models->tokenizer)}, {std::move(models->model)}};
  }
  Status Ready() const override {
    CHAIRLIFT_ASSIGN_OR_RETURN(const CompletionModels models, FindModels(config_, calls_));
    for (const CalledModel* model : {&models.tokenizer, &models.model, &models.detokenizer}) {
      CHAIRLIFT_RETURN_IF_ERROR(model->program->Ready());
    }
    return absl::OkStatus();
  }

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override;
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  void Run(TaskRun& run, TaskDone done) override;

 private:
  int64_t LogprobsOf(const ValidatedRequest& request) const;
  // For a request whose other inputs are valid: checks the number of prompts and the size of their
  // echo.
  Status CheckPrompts(const ValidatedRequest& request) const;
  // The first number of an input of the model; null: omitted.
  const int32_t* NumberGiven(const ValidatedRequest& request, std::string_view name) const;

  const CompletionConfig config_;
  ModelCalls& calls_;
};

// The number of prompts, if their shape has one.
int64_t PromptsIn(const InferRequest& request) {
  for (const NamedTensor& input : request.inputs) {
    if (input.name == "text_input" && input.tensor.shape().rank() == 1) {
      return input.tensor.shape()[0];
    }
  }
  return 0;
}

// Omitted inputs are Absent(). For given inputs of the model, its validation checks the values.
StatusOr<ValidatedRequest> CompletingProgram::Validate(const InferRequest& request) {
  InferRequest full;
  full.inputs = request.inputs;
  full.outputs = request.outputs;
  std::vector<bool> given(signature_.inputs.size(), true);
  for (size_t i = kOptions; i < signature_.inputs.size(); ++i) {
    const SymbolicSpec& spec = signature_.inputs[i];
    given[i] = std::any_of(request.inputs.begin(), request.inputs.end(),
                           [&](const NamedTensor& input) { return input.name == spec.name; });
    if (given[i]) continue;
    Shape shape;
    for (const Dim& dim : spec.shape.dims()) shape.Append(dim.known() ? dim.value() : 0);
    if (i == kOptions) shape[0] = PromptsIn(request);
    full.inputs.push_back({spec.name, Tensor::Allocate(spec.dtype, shape)});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, chairlift::Validate(signature_, full));
  for (size_t i = kOptions; i < given.size(); ++i) {
    if (!given[i]) validated.inputs[i] = Absent(signature_.inputs[i].dtype);
  }
  if (given[kAnswers]) {
    const int64_t answers = validated.inputs[kAnswers].data<int32_t>()[0];
    if (answers < 1 || answers > kMostAnswers) {
      return InvalidArgument("\"n\" is {}; it must be from 1 to {}", answers, kMostAnswers);
    }
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckPrompts(validated));
  if (given[kWithoutPrompt] && !validated.inputs[kWithoutPrompt].data<bool>()[0]) {
    return InvalidArgument(
        "exclude_input_in_output is false, but answers never contain the prompt; leave it out, or "
        "set it to true");
  }
  const auto stops = TextsOf(validated.inputs[kStops]);
  if (static_cast<int64_t>(stops.size()) > kMostStops) {
    return InvalidArgument("stop has {} strings; it may have {}", stops.size(), kMostStops);
  }
  for (const std::string_view stop : stops) {
    if (!stop.empty() && stop.size() <= kMostStopBytes) continue;
    return InvalidArgument("stop has a string of {} bytes; each may have 1 to {}", stop.size(),
                           kMostStopBytes);
  }
  const int64_t logprobs = LogprobsOf(validated);
  const auto missing = [&](int output) -> const char* {
    if (output < kTextTokens) return nullptr;
    if (output < kTextTopTokens) return logprobs >= 0 ? nullptr : "logprobs of 0 or more";
    return logprobs > 0 ? nullptr : "logprobs of 1 or more";
  };
  for (const int output : validated.outputs) {
    if (request.outputs.empty() || missing(output) == nullptr) continue;
    return InvalidArgument("output '{}' goes with {}",
                           signature_.outputs[static_cast<size_t>(output)].name, missing(output));
  }
  std::erase_if(validated.outputs, [&](int output) { return missing(output) != nullptr; });
  return validated;
}

const int32_t* CompletingProgram::NumberGiven(const ValidatedRequest& request,
                                              std::string_view name) const {
  for (size_t i = kFirstOfModel; i < request.inputs.size(); ++i) {
    if (signature_.inputs[i].name != name || request.inputs[i].size() == 0) continue;
    return request.inputs[i].data<int32_t>();
  }
  return nullptr;
}

Status CompletingProgram::CheckPrompts(const ValidatedRequest& request) const {
  const int64_t prompts = request.inputs[kText].size();
  const Tensor& n = request.inputs[kAnswers];
  const int64_t answers = n.size() > 0 ? n.data<int32_t>()[0] : 1;
  if (prompts < 1 || prompts > kMostAnswersInAll / answers) {
    return InvalidArgument(
        "the request has {} prompts and n is {}; it must have a prompt, and may have {} answers in "
        "all",
        prompts, answers, kMostAnswersInAll);
  }
  const int32_t* const beams = NumberGiven(request, "num_beams");
  if (prompts > 1 && beams != nullptr && *beams > 1) {
    return InvalidArgument(
        "num_beams is {}, and the request has {} prompts: with beams it may have one", *beams,
        prompts);
  }
  const Tensor& echo = request.inputs[kEcho];
  if (echo.size() == 0 || !echo.data<bool>()[0] || config_.continues_prompt) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "echo is true, but the model has an encoder, so its answer does not continue the prompt: "
      "leave echo out");
}

// −1: not requested.
int64_t CompletingProgram::LogprobsOf(const ValidatedRequest& request) const {
  const int32_t* const logprobs = NumberGiven(request, kLogprobsInput);
  return logprobs == nullptr ? -1 : *logprobs;
}

StatusOr<std::unique_ptr<RequestGraph>> CompletingProgram::Unfold(ValidatedRequest request,
                                                                  bool parts) {
  CHAIRLIFT_ASSIGN_OR_RETURN(CompletionModels models, FindModels(config_, calls_));
  const uint64_t turn = NextTurn();
  for (CalledModel* model : {&models.tokenizer, &models.model, &models.detokenizer}) {
    model->turn = turn;
  }
  CompletionRequest made;
  made.text = request.inputs[kText];
  made.options = request.inputs[kOptions];
  if (made.options.size() == 0) {
    made.options = Tensor::Allocate(DType::kInt64, Shape{made.text.size(), 2});
    std::fill_n(made.options.data<int64_t>(), made.options.size(), int64_t{0});
  }
  const Tensor& echo = request.inputs[kEcho];
  made.echo = echo.size() > 0 && echo.data<bool>()[0];
  for (const std::string_view stop : TextsOf(request.inputs[kStops])) made.stops.emplace_back(stop);
  if (request.inputs[kAnswers].size() > 0) {
    made.answers = request.inputs[kAnswers].data<int32_t>()[0];
  }
  made.in_pieces = parts;
  bool own_ends = true;
  for (size_t i = kFirstOfModel; i < request.inputs.size(); ++i) {
    const Tensor& value = request.inputs[i];
    const std::string& name = signature_.inputs[i].name;
    if (value.size() == 0) continue;
    if (name == "seed") {
      made.seed = value.data<int64_t>()[0];
      continue;
    }
    if (name == kMaxTokensInput && made.echo && value.data<int32_t>()[0] == 0) {
      made.no_tokens = true;
      continue;
    }
    if (name == "num_beams") made.beams = value.data<int32_t>()[0] > 1;
    if (name == "ignore_eos") own_ends = !value.data<bool>()[0];
    if (name == "stop_token_ids") {
      const auto tokens = value.values<int64_t>();
      made.end_tokens.insert(tokens.begin(), tokens.end());
    }
    made.given.push_back({name, value});
  }
  if (made.beams) {
    made.given.push_back(
        {"num_return_sequences", Tensor::Of<int32_t>({1}, {static_cast<int32_t>(made.answers)})});
  }
  const bool counted =
      std::any_of(made.given.begin(), made.given.end(),
                  [](const NamedTensor& input) { return input.name == kMaxTokensInput; });
  if (made.options.data<int64_t>()[1] == kOfMessages && !counted && !made.beams &&
      !config_.says_how_long && config_.continues_prompt) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ProgramView view, models.model.program->View());
    if (view.cache) {
      made.longest =
          std::min(view.cache->max_length, view.cache->blocks * view.cache->block_tokens);
    }
  }
  if (own_ends) made.end_tokens.insert(config_.end_tokens.begin(), config_.end_tokens.end());
  const int64_t logprobs = LogprobsOf(request);
  if (logprobs >= 0) made.logprobs = logprobs;
  std::vector<std::string> names;
  for (const SymbolicSpec& output : signature_.outputs) names.push_back(output.name);
  const auto answers = static_cast<size_t>(made.text.size() * made.answers);
  auto run = std::make_shared<CompletionRun>(config_, std::move(models), calls_, std::move(made));
  return std::make_unique<CompletionGraph>(std::move(request), std::move(names), std::move(run),
                                           answers, logprobs > 0 ? logprobs + 1 : 0, parts);
}

void CompletingProgram::Run(TaskRun& run, TaskDone done) {
  TaskNode& node = run.nodes[0];
  auto& graph = static_cast<CompletionGraph&>(*node.graph);
  node.units = 1;
  const TimePoint start = Clock::Steady().Now();
  graph.run().Begin(
      node.deadline, node.admission,
      [&graph, &run](size_t answer, CompletionPiece piece) {
        graph.Emit(answer, std::move(piece));
        if (run.send_parts != nullptr) run.send_parts(0);
      },
      [&node, &graph, start, done = std::move(done)](const Status& status) mutable {
        TaskResult result{.rows = 1};
        result.compute_infer = Clock::Steady().Now() - start;
        node.status = Status(status.code(), status.message());
        if (status.ok()) graph.Complete();
        done(result);
      });
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeCompleting(LoadingModel& model, std::string& /*refused*/) {
  CompletionConfig config = *model.source.completion;
  if (model.load.calls == nullptr) {
    return InvalidArgument(
        "generating text needs an engine with the tokenizer's models, and this model has no "
        "engine");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const CompletionModels models, FindModels(config, *model.load.calls));
  CHAIRLIFT_ASSIGN_OR_RETURN(Signature signature,
                             SignatureOfTexts(models.model.program->signature()));
  BatchAxisReport rows;
  rows.why = fmt::format("texts continued by '{}'", config.model);
  CHAIRLIFT_ASSIGN_OR_RETURN(ServingPlan plan, PlanServing(model.config, rows, 1));
  plan.diagnosis = rows.why;
  return std::make_unique<CompletingProgram>(std::move(config), std::move(signature),
                                             std::move(plan), *model.load.calls);
}

}  // namespace chairlift
