// Decoders: a request is its prompt in pieces, then a step a token, and joins and leaves the batch
// at any step. Keys and values stay in blocks from step to step. With an encoder, that runs once
// before, and leaves the keys and values of the source in blocks, too.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/device.h"
#include "engine/programs/generating/generating_request.h"
#include "engine/programs/generating/generation_config.h"
#include "engine/programs/generating/paged_step.h"
#include "engine/programs/generating/sampling.h"
#include "engine/programs/generating/source_encoder.h"
#include "engine/programs/generating/trial.h"
#include "engine/programs/makers.h"
#include "graph/decoders/decoder.h"
#include "graph/onnx/import.h"

namespace chairlift {
namespace {

// Tokens of a prompt that ride beside the steps of others, at most.
constexpr int64_t kPieceTokens = 32;
constexpr int64_t kBlockTokens = 16;
constexpr int64_t kLikelyBatch = 16;
// Where neither the model's tables nor its files say how long a sequence may be.
constexpr int64_t kDefaultMaxLength = 2048;
// Tokens of an answer where neither the request nor the model's files say how many.
constexpr int64_t kDefaultMaxTokens = 16;
// Each is compared with every token.
constexpr int64_t kMostStopTokens = 256;
constexpr float kMostTemperature = 100.0f;
// Of presence and frequency, as OpenAI has it.
constexpr float kMostPenalty = 2.0f;
// Of keys and values, where the settings do not say: room for so many of the longest requests, and
// so many bytes at most, but for one request.
constexpr int64_t kDefaultLongest = 32;
constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

constexpr const char* kEncoderFile = "encoder_model.onnx";

enum InputPlace {
  kTokens,  // the prompt; with an encoder, the source
  kMaxTokens,
  kMinTokens,
  kIgnoreEnds,
  kStopTokens,
  kTemperature,
  kTopK,
  kTopP,
  kMinP,
  kSeed,
  kRepetition,
  kPresence,
  kFrequency,
  kNoRepeat,
  kDecoderPrompt,  // with an encoder
};

Signature SignatureOfRequests(bool source) {
  const auto spec = [](const char* name, DType dtype, std::vector<Dim> dims) {
    return SymbolicSpec{name, dtype, SymbolicShape(std::move(dims))};
  };
  Signature signature;
  signature.inputs = {spec("input_ids", DType::kInt64, {1, Dim::Symbol("tokens")}),
                      spec("max_tokens", DType::kInt32, {1}),
                      spec("min_tokens", DType::kInt32, {1}),
                      spec("ignore_eos", DType::kBool, {1}),
                      spec("stop_token_ids", DType::kInt64, {Dim::Symbol("stop_tokens")}),
                      spec("temperature", DType::kFloat, {1}),
                      spec("top_k", DType::kInt32, {1}),
                      spec("top_p", DType::kFloat, {1}),
                      spec("min_p", DType::kFloat, {1}),
                      spec("seed", DType::kInt64, {1}),
                      spec("repetition_penalty", DType::kFloat, {1}),
                      spec("presence_penalty", DType::kFloat, {1}),
                      spec("frequency_penalty", DType::kFloat, {1}),
                      spec("no_repeat_ngram_size", DType::kInt32, {1})};
  if (source) {
    signature.inputs.push_back(
        spec("decoder_input_ids", DType::kInt64, {1, Dim::Symbol("decoder_tokens")}));
  }
  signature.outputs = {spec("output_ids", DType::kInt64, {1, Dim::Symbol("generated")})};
  return signature;
}

int64_t AnySeed() {
  std::random_device device;
  return static_cast<int64_t>(device()) << 32 | device();
}

SamplingOptions SamplingOf(const ValidatedRequest& request) {
  SamplingOptions options;
  options.temperature = request.inputs[kTemperature].data<float>()[0];
  // −1 stands for all, as in other servers.
  options.top_k = request.inputs[kTopK].data<int32_t>()[0];
  if (options.top_k == -1) options.top_k = 0;
  options.top_p = request.inputs[kTopP].data<float>()[0];
  options.min_p = request.inputs[kMinP].data<float>()[0];
  options.seed = static_cast<uint64_t>(request.inputs[kSeed].data<int64_t>()[0]);
  return options;
}

Status CheckSampling(const SamplingOptions& options) {
  // Also where one is NaN.
  if (!(options.temperature >= 0 && options.temperature <= kMostTemperature)) {
    return InvalidArgument("temperature is {}; it must be from 0 to {}", options.temperature,
                           kMostTemperature);
  }
  if (options.top_k < 0) return InvalidArgument("top_k must be from 1 up, or 0 or -1 for all");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return InvalidArgument("top_p is {}; it must be above 0 and at most 1", options.top_p);
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return InvalidArgument("min_p is {}; it must be from 0 to 1", options.min_p);
  }
  return absl::OkStatus();
}

Penalties PenaltiesOf(const ValidatedRequest& request) {
  return {.repetition = request.inputs[kRepetition].data<float>()[0],
          .presence = request.inputs[kPresence].data<float>()[0],
          .frequency = request.inputs[kFrequency].data<float>()[0],
          .no_repeat_ngram = request.inputs[kNoRepeat].data<int32_t>()[0]};
}

Status CheckPenalties(const Penalties& penalties) {
  if (!(penalties.repetition > 0 && penalties.repetition <= kMostRepetitionPenalty)) {
    return InvalidArgument("repetition_penalty is {}; it must be above 0 and at most {}",
                           penalties.repetition, kMostRepetitionPenalty);
  }
  for (const auto& [name, value] : {std::pair("presence_penalty", penalties.presence),
                                    std::pair("frequency_penalty", penalties.frequency)}) {
    if (value >= -kMostPenalty && value <= kMostPenalty) continue;
    return InvalidArgument("{} is {}; it must be from {} to {}", name, value, -kMostPenalty,
                           kMostPenalty);
  }
  if (penalties.no_repeat_ngram >= 0) return absl::OkStatus();
  return InvalidArgument("no_repeat_ngram_size is {}; it must be 0 or more",
                         penalties.no_repeat_ngram);
}

// Tokens 0 to vocabulary − 1; 0: any that are not negative.
Status CheckTokens(std::string_view input, std::span<const int64_t> tokens, int64_t vocabulary) {
  if (tokens.empty()) {
    return InvalidArgument("input '{}' has no tokens; it must have one or more", input);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && (vocabulary == 0 || tokens[i] < vocabulary)) continue;
    if (vocabulary == 0) {
      return InvalidArgument("input '{}': token {} is {}; it must be 0 or more", input, i,
                             tokens[i]);
    }
    return InvalidArgument("input '{}': token {} is {}; the model has tokens 0 to {}", input, i,
                           tokens[i], vocabulary - 1);
  }
  return absl::OkStatus();
}

// An encoder and what its tokens may be.
struct Source {
  std::unique_ptr<SourceEncoder> encoder;  // null: there is none
  int64_t vocabulary = 0;                  // 0: unknown
};

class GeneratingProgram final : public Program {
 public:
  GeneratingProgram(ServingPlan plan, std::unique_ptr<PagedStep> step, Source source,
                    GenerationConfig config, int64_t piece, std::vector<std::string> notes,
                    std::vector<PassReport> passes)
      : Program("generating", SignatureOfRequests(source.encoder != nullptr), std::move(plan)),
        step_(std::move(step)),
        source_(std::move(source)),
        config_(std::move(config)),
        piece_(piece),
        notes_(std::move(notes)),
        passes_(std::move(passes)) {}

  const std::string& CellName(int cell) const override {
    static const std::string kStep = "step", kEncoder = "encoder";
    return cell == kEncodeCell ? kEncoder : kStep;
  }
  int num_cells() const override { return source_.encoder == nullptr ? 1 : 2; }
  bool SendsParts() const override { return true; }
  StatusOr<ProgramView> View() override {
    return ProgramView{.executable = &step_->executable(),
                       .batch = step_->InputShapes(kLikelyBatch, kLikelyBatch),
                       .batch_of = fmt::format("a step of {} requests", kLikelyBatch),
                       .passes = passes_,
                       .notes = notes_};
  }
  std::vector<std::string> Remarks() const override {
    const BlockPool::Use use = step_->pool().use();
    return {fmt::format("keys and values: {} of {} blocks in use, with {} tokens; {} at the most",
                        use.blocks, step_->pool().blocks(), use.tokens, use.most_blocks)};
  }

  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override;
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  void Run(TaskRun& run, TaskDone done) override;

 private:
  struct Item {
    GeneratingRequest* request;
    size_t first, end;  // nodes of the task
    StepTokens tokens = {};
    bool complete = false;  // its request has the result: it must not be computed again
  };
  using Items = absl::InlinedVector<Item, 32>;

  // The place of the input that the decoder begins with.
  InputPlace prompt_place() const { return source_.encoder == nullptr ? kTokens : kDecoderPrompt; }
  GenerationLimits LimitsOf(const ValidatedRequest& request) const;
  Items BeginSteps(TaskRun& run, TaskResult& result) const;
  Items BeginSources(TaskRun& run, TaskResult& result) const;
  Status Compute(std::span<Item> items, TaskRun& run);
  Status Encode(std::span<Item> items, TaskRun& run);

  const std::unique_ptr<PagedStep> step_;
  const Source source_;
  const GenerationConfig config_;
  const int64_t piece_;
  const std::vector<std::string> notes_;
  const std::vector<PassReport> passes_;
};

StatusOr<ValidatedRequest> GeneratingProgram::Validate(const InferRequest& request) {
  // What is left out has its default; how many tokens that is depends on the prompt.
  InferRequest full;
  full.inputs = request.inputs;
  full.outputs = request.outputs;
  const auto given = [&](InputPlace place) {
    const std::string& name = signature_.inputs[place].name;
    return std::any_of(request.inputs.begin(), request.inputs.end(),
                       [&](const NamedTensor& input) { return input.name == name; });
  };
  const auto fill = [&](InputPlace place, Tensor value) {
    if (!given(place)) full.inputs.push_back({signature_.inputs[place].name, std::move(value)});
  };
  if (source_.encoder != nullptr) {
    const int64_t start = config_.start_token;
    if (start < 0 && !given(kDecoderPrompt)) {
      return InvalidArgument(
          "input 'decoder_input_ids' is left out, and no file beside the model names a "
          "\"decoder_start_token_id\"");
    }
    fill(kDecoderPrompt, Tensor::Of<int64_t>({1, 1}, {start}));
  }
  fill(kMaxTokens, Tensor::Of<int32_t>({1}, {1}));
  fill(kMinTokens, Tensor::Of<int32_t>({1}, {0}));
  fill(kIgnoreEnds, Tensor::Of<bool>({1}, {false}));
  fill(kStopTokens, Tensor::Of<int64_t>({0}, {}));
  fill(kTemperature, Tensor::Of<float>({1}, {0.0f}));
  fill(kTopK, Tensor::Of<int32_t>({1}, {0}));
  fill(kTopP, Tensor::Of<float>({1}, {1.0f}));
  fill(kMinP, Tensor::Of<float>({1}, {0.0f}));
  const Penalties& penalties = config_.penalties;
  fill(kRepetition, Tensor::Of<float>({1}, {penalties.repetition}));
  fill(kPresence, Tensor::Of<float>({1}, {0.0f}));
  fill(kFrequency, Tensor::Of<float>({1}, {0.0f}));
  fill(kNoRepeat, Tensor::Of<int32_t>({1}, {static_cast<int32_t>(penalties.no_repeat_ngram)}));
  if (!given(kSeed)) {
    fill(kSeed, Tensor::Of<int64_t>({1}, {given(kTemperature) ? AnySeed() : 0}));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ValidatedRequest validated, chairlift::Validate(signature_, full));
  const std::string& prompt_name = signature_.inputs[prompt_place()].name;
  const auto prompt = validated.inputs[prompt_place()].values<int64_t>();
  const auto size = static_cast<int64_t>(prompt.size());
  const int64_t room = step_->max_length() - size;
  if (room < 1) {
    return InvalidArgument("input '{}' has {} tokens; prompt and answer together may have {}",
                           prompt_name, size, step_->max_length());
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckTokens(prompt_name, prompt, step_->vocabulary()));
  int64_t source = 0;
  if (source_.encoder != nullptr) {
    const auto tokens = validated.inputs[kTokens].values<int64_t>();
    source = static_cast<int64_t>(tokens.size());
    if (source > step_->max_source()) {
      return InvalidArgument("input 'input_ids' has {} tokens; the encoder takes {}", source,
                             step_->max_source());
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckTokens("input_ids", tokens, source_.vocabulary));
  }
  if (!given(kMaxTokens)) {
    const int64_t wanted = config_.max_new_tokens > 0  ? config_.max_new_tokens
                           : config_.max_length > size ? config_.max_length - size
                                                       : kDefaultMaxTokens;
    validated.inputs[kMaxTokens] =
        Tensor::Of<int32_t>({1}, {static_cast<int32_t>(std::min(wanted, room))});
  }
  const int64_t most = validated.inputs[kMaxTokens].data<int32_t>()[0];
  const int64_t least = validated.inputs[kMinTokens].data<int32_t>()[0];
  if (most < 1 || most > room) {
    return InvalidArgument(
        "max_tokens is {}; behind a prompt of {} tokens it must be from 1 to {} (prompt and answer "
        "together may have {})",
        most, size, room, step_->max_length());
  }
  if (least < 0 || least > most) {
    return InvalidArgument("min_tokens is {}; it must be from 0 to max_tokens, {}", least, most);
  }
  const int64_t stops = validated.inputs[kStopTokens].size();
  if (stops > kMostStopTokens) {
    return InvalidArgument("stop_token_ids has {} tokens; it may have {}", stops, kMostStopTokens);
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckSampling(SamplingOf(validated)));
  CHAIRLIFT_RETURN_IF_ERROR(CheckPenalties(PenaltiesOf(validated)));
  const BlockPool& pool = step_->pool();
  if (pool.BlocksOf(source) + pool.BlocksOf(size + most - 1) > pool.blocks()) {
    return InvalidArgument(
        "keys and values of {} tokens do not fit into cache_bytes; {}a prompt and its max_tokens "
        "may have {} together",
        source + size + most, source > 0 ? "a source (in blocks of its own), " : "",
        pool.blocks() * pool.block_tokens() + 1);
  }
  return validated;
}

GenerationLimits GeneratingProgram::LimitsOf(const ValidatedRequest& request) const {
  GenerationLimits limits;
  limits.max_tokens = request.inputs[kMaxTokens].data<int32_t>()[0];
  limits.min_tokens = request.inputs[kMinTokens].data<int32_t>()[0];
  if (!request.inputs[kIgnoreEnds].data<bool>()[0]) {
    limits.end_tokens = config_.end_tokens;
    limits.last_token = config_.forced_end;
  }
  limits.first_token = config_.forced_first;
  limits.suppressed = config_.suppressed;
  limits.first_suppressed = config_.first_suppressed;
  const auto stops = request.inputs[kStopTokens].values<int64_t>();
  limits.sampling = SamplingOf(request);
  limits.penalties = PenaltiesOf(request);
  limits.end_tokens.insert(limits.end_tokens.end(), stops.begin(), stops.end());
  return limits;
}

StatusOr<std::unique_ptr<RequestGraph>> GeneratingProgram::Unfold(ValidatedRequest request,
                                                                  bool parts) {
  GenerationLimits limits = LimitsOf(request);
  const Tensor prompt = request.inputs[prompt_place()], tokens = request.inputs[kTokens];
  const bool source = source_.encoder != nullptr;
  return std::make_unique<GeneratingRequest>(
      std::move(request), source ? tokens.values<int64_t>() : std::span<const int64_t>(),
      prompt.values<int64_t>(), std::move(limits), piece_, step_->pool(), parts);
}

Status GeneratingProgram::Compute(std::span<Item> items, TaskRun& run) {
  absl::InlinedVector<StepTokens, 32> sequences;
  for (const Item& item : items) sequences.push_back(item.tokens);
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor logits,
                             step_->Run(sequences, run.team, run.worker, run.memory));
  for (size_t i = 0; i < items.size(); ++i) {
    GeneratingRequest& request = *items[i].request;
    StatusOr<int64_t> next = int64_t{0};
    if (request.predicts()) {
      const auto size = static_cast<size_t>(step_->vocabulary());
      std::span<const float> row = logits.values<float>().subspan(i * size, size);
      std::vector<float> penalised;
      if (request.penalties().any()) {
        penalised.assign(row.begin(), row.end());
        Penalise(penalised, request.prompt(), request.answer(), request.penalties());
        row = penalised;
      }
      next = NextToken(row, request.Suppressed(), request.sampling(), request.place());
      if (next.ok() && request.forced() >= 0) next = request.forced();
    }
    for (size_t n = items[i].first; n < items[i].end; ++n) run.nodes[n].status = next.status();
    items[i].complete = true;
    if (next.ok()) request.Complete(*next);
  }
  return absl::OkStatus();
}

Status GeneratingProgram::Encode(std::span<Item> items, TaskRun& run) {
  absl::InlinedVector<SourceTokens, 32> sources;
  for (const Item& item : items) {
    sources.push_back({item.request->source(), item.request->source_blocks()});
  }
  CHAIRLIFT_RETURN_IF_ERROR(
      source_.encoder->Run(sources, *step_, run.team, run.worker, run.memory));
  for (Item& item : items) {
    for (size_t n = item.first; n < item.end; ++n) run.nodes[n].status = absl::OkStatus();
    item.complete = true;
    item.request->CompleteSource();
  }
  return absl::OkStatus();
}

GeneratingProgram::Items GeneratingProgram::BeginSources(TaskRun& run, TaskResult& result) const {
  Items items;
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    auto& request = static_cast<GeneratingRequest&>(*run.nodes[n].graph);
    run.nodes[n].units = static_cast<int64_t>(request.source().size());
    run.nodes[n].share = 1.0 / static_cast<double>(request.planned_nodes());
    if (!request.BeginSource()) continue;
    result.rows += static_cast<int32_t>(request.source().size());
    items.push_back({&request, n, n + 1});
  }
  return items;
}

GeneratingProgram::Items GeneratingProgram::BeginSteps(TaskRun& run, TaskResult& result) const {
  Items items;
  for (size_t n = 0; n < run.nodes.size();) {
    auto& request = static_cast<GeneratingRequest&>(*run.nodes[n].graph);
    const size_t first = n;
    int64_t tokens = 0;
    for (; n < run.nodes.size() && run.nodes[n].graph == &request; ++n) {
      TaskNode& node = run.nodes[n];
      node.units = request.Rows(node.node);
      node.share = 1.0 / static_cast<double>(request.planned_nodes());
      tokens += node.units;
    }
    const std::span<const int64_t> begun = request.Begin(static_cast<int32_t>(n - first), tokens);
    result.rows += static_cast<int32_t>(begun.size());
    if (begun.empty()) continue;
    items.push_back({&request,
                     first,
                     n,
                     {.tokens = begun,
                      .cached = request.computed(),
                      .blocks = request.blocks(),
                      .source = static_cast<int64_t>(request.source().size()),
                      .source_blocks = request.source_blocks()}});
  }
  return items;
}

void GeneratingProgram::Run(TaskRun& run, TaskDone done) {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  TaskResult result;
  const bool encode = run.cell == kEncodeCell;
  Items items = encode ? BeginSources(run, result) : BeginSteps(run, result);
  const auto compute = [&](std::span<Item> some) {
    const Status computed =
        CatchOutOfMemory([&] { return encode ? Encode(some, run) : Compute(some, run); });
    if (computed.ok()) return true;
    for (const Item& item : some) {
      if (item.complete) continue;
      for (size_t i = item.first; i < item.end; ++i) run.nodes[i].status = computed;
    }
    return false;
  };
  const TimePoint begun = clock.Now();
  const bool together = items.empty() || compute(std::span(items.data(), items.size()));
  const bool stopped = run.memory.stop != nullptr && *run.memory.stop;
  if (!together && items.size() > 1 && !stopped) {
    // None fails for another's data.
    for (Item& item : items) {
      if (!item.complete) compute({&item, 1});
    }
  }
  result.compute_input = begun - start;
  result.compute_infer = clock.Now() - begun;
  done(result);
}

// What of a model's files and settings is said of it.
std::string Described(PagedStep& step, const GenerationConfig& config, int64_t cache_bytes) {
  std::string text = fmt::format(
      "it generates: up to {} tokens of prompt and answer; keys and values take {} bytes a token, "
      "{} MiB in blocks of {} tokens; greedy, or with a temperature sampled",
      step.max_length(), step.token_bytes(), cache_bytes >> 20, step.pool().block_tokens());
  if (step.max_source() > 0) {
    text += fmt::format("; of a source of up to {} tokens", step.max_source());
    text += config.start_token >= 0
                ? fmt::format(", behind token {}", config.start_token)
                : "; no file beside the model names the token that an answer begins with";
  }
  text += config.end_tokens.empty()
              ? "; no file beside the model names an end token: answers end at max_tokens"
              : fmt::format("; an answer ends at token {}", fmt::join(config.end_tokens, " or "));
  if (!config.not_applied.empty()) {
    text += fmt::format("; of generation_config.json not applied: {}",
                        fmt::join(config.not_applied, ", "));
  }
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<Program>> MakeGenerating(LoadingModel& model, std::string& refused) {
  if (!model.executable.device->is_host()) {
    refused = "decoders run on the CPU only";
    return nullptr;
  }
  StatusOr<Graph> graph = PickCacheBranch(model.graph);
  if (!graph.ok()) {
    refused = Message(graph.status());
    return nullptr;
  }
  std::optional<Graph> encoder;
  if (HasSource(*graph)) {
    const std::filesystem::path file = model.source.path.parent_path() / kEncoderFile;
    std::error_code error;
    if (!std::filesystem::exists(file, error)) {
      refused =
          fmt::format("it reads what an encoder gives, and there is no {} beside it", kEncoderFile);
      return nullptr;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(file));
    encoder = std::move(imported.graph);
  }
  const Graph* const encoder_graph = encoder ? &*encoder : nullptr;
  StatusOr<DecoderModel> made = MakeDecoder(*graph, encoder_graph);
  if (!made.ok()) {
    refused = Message(made.status());
    return nullptr;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      GenerationConfig config,
      ReadGenerationConfig(model.source.path.parent_path(), made->source.has_value()));
  for (const auto& [name, token] : {std::pair("decoder_start_token_id", config.start_token),
                                    std::pair("forced_bos_token_id", config.forced_first),
                                    std::pair("forced_eos_token_id", config.forced_end)}) {
    if (token < made->vocabulary) continue;
    return InvalidArgument("the files beside the model: \"{}\" is {}; the model has tokens 0 to {}",
                           name, token, made->vocabulary - 1);
  }
  const ModelConfig& settings = model.config;
  PagedStep::Sizes sizes{.block_tokens = kBlockTokens};
  const int64_t tables = made->max_length;
  sizes.max_length = settings.max_length > 0 ? settings.max_length
                     : tables > 0            ? tables
                                             : std::max(kDefaultMaxLength, config.max_length);
  if (tables > 0 && sizes.max_length > tables) {
    return InvalidArgument("max_length is {}; the model has tables for {} tokens", sizes.max_length,
                           tables);
  }
  int64_t token_bytes = 0;
  for (const DecoderLayer& layer : made->layers) {
    token_bytes +=
        layer.heads * (layer.key_size + layer.value_size) * static_cast<int64_t>(sizeof(float));
  }
  Source source;
  if (made->source) {
    for (const IndexBound& bound : FindIndexBounds(*encoder)) {
      if (bound.input == "input_ids") source.vocabulary = bound.bound;
    }
    sizes.max_source = made->source->max_length > 0 ? made->source->max_length : kDefaultMaxLength;
  }
  const auto blocks_of = [](int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; };
  const int64_t block_bytes = token_bytes * kBlockTokens;
  const int64_t longest = (blocks_of(sizes.max_length) + blocks_of(sizes.max_source)) * block_bytes;
  const int64_t bytes =
      settings.cache_bytes > 0
          ? settings.cache_bytes
          : std::max(longest, std::min(kDefaultCacheBytes, kDefaultLongest * longest));
  sizes.blocks = bytes / block_bytes;
  if (sizes.blocks < 1) {
    return InvalidArgument("cache_bytes is {}; a block of keys and values takes {}", bytes,
                           block_bytes);
  }
  std::vector<std::string> notes = std::move(made->notes);
  std::vector<PassReport> passes = std::move(made->passes);
  if (made->source) {
    CHAIRLIFT_ASSIGN_OR_RETURN(source.encoder,
                               SourceEncoder::Create(*std::move(made->source), model.executable));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<PagedStep> step,
                             PagedStep::Create(*std::move(made), sizes, model.executable));
  CHAIRLIFT_ASSIGN_OR_RETURN(const DecoderPorts ports, FindDecoderPorts(*graph));
  if (const Status tried = TrySteps({*graph, ports, encoder_graph}, *step, source.encoder.get());
      !tried.ok()) {
    refused = Message(tried);
    return nullptr;
  }
  ModelConfig chosen = settings;
  chosen.max_length = static_cast<int>(sizes.max_length);
  chosen.cache_bytes = sizes.blocks * block_bytes;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanGenerationServing(chosen, Described(*step, config, chosen.cache_bytes), sizes.blocks));
  model.graph = Graph();
  const int64_t piece = std::min<int64_t>(kPieceTokens, plan.config.max_batch_tokens);
  return std::make_unique<GeneratingProgram>(std::move(plan), std::move(step), std::move(source),
                                             std::move(config), piece, std::move(notes),
                                             std::move(passes));
}

}  // namespace chairlift
