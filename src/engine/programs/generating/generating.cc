// Decoders: a request is its prompt, in parts, then one step per token, and joins and leaves the
// batch at any step. Keys and values stay in blocks between steps. An encoder, if any, runs once
// before, and stores the keys and values of the source in blocks too.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "device/cpu/memory.h"
#include "device/device.h"
#include "engine/programs/generating/choosing.h"
#include "engine/programs/generating/generating_request.h"
#include "engine/programs/generating/generation_config.h"
#include "engine/programs/generating/generation_costs.h"
#include "engine/programs/generating/generation_inputs.h"
#include "engine/programs/generating/paged_step.h"
#include "engine/programs/generating/source_encoder.h"
#include "engine/programs/generating/trial.h"
#include "engine/programs/makers.h"
#include "graph/decoders/decoder.h"
#include "graph/onnx/import.h"
#include "graph/widen.h"

namespace chairlift {
namespace {

constexpr int64_t kBlockTokens = 16;
constexpr int64_t kLikelyBatch = 16;
// If neither the model's tables nor its files give a maximum length.
constexpr int64_t kDefaultMaxLength = 2048;
// The limit by tables if settings give none: some models have rotary tables for 131072 tokens.
constexpr int64_t kMostDefaultLength = 4096;
// For keys and values, so that blocks times tokens cannot overflow.
constexpr int64_t kMostTokenBytes = int64_t{1} << 30;
// For keys and values if settings give no size: room for this many of the longest requests, within
// a number of bytes, but at least for one request.
constexpr int64_t kDefaultLongest = 32;
constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

// Logits of one request's forced tokens in a task: 16 MiB.
constexpr int64_t kMostLogits = int64_t{4} << 20;

constexpr const char* kEncoderFile = "encoder_model.onnx";

class GeneratingProgram final : public Program {
 public:
  // `encoder`: null if there is none.
  GeneratingProgram(ServingPlan plan, std::unique_ptr<PagedStep> step,
                    std::unique_ptr<SourceEncoder> encoder,
                    std::unique_ptr<GenerationInputs> inputs,
                    std::unique_ptr<GenerationCosts> costs, std::vector<std::string> notes,
                    std::vector<PassReport> passes)
      : Program("decoder", inputs->signature(), std::move(plan)),
        step_(std::move(step)),
        encoder_(std::move(encoder)),
        inputs_(std::move(inputs)),
        costs_(std::move(costs)),
        notes_(std::move(notes)),
        passes_(std::move(passes)) {}

  const std::string& CellName(int cell) const override {
    static const std::string kStep = "step", kEncoder = "encoder";
    return cell == kEncodeCell ? kEncoder : kStep;
  }
  int num_cells() const override { return encoder_ == nullptr ? 1 : 2; }
  bool SendsParts() const override { return true; }
  bool JoinsOthers() const override { return true; }
  StatusOr<ProgramView> View() override {
    return ProgramView{.executable = &step_->executable(),
                       .batch = step_->InputShapes(kLikelyBatch, kLikelyBatch),
                       .batch_of = fmt::format("a step of {} requests", kLikelyBatch),
                       .passes = passes_,
                       .notes = notes_,
                       .cache = CacheView{.blocks = step_->pool().blocks(),
                                          .block_tokens = step_->pool().block_tokens(),
                                          .token_bytes = step_->token_bytes(),
                                          .max_length = step_->max_length(),
                                          .max_source = step_->max_source()}};
  }
  std::vector<std::string> Remarks() const override {
    const BlockPool::Use use = step_->pool().use();
    std::string text =
        fmt::format("keys and values: {} of {} blocks in use, with {} tokens; {} at the most",
                    use.blocks, step_->pool().blocks(), use.tokens, use.most_blocks);
    if (use.reused > 0) {
      text += fmt::format("; {} tokens of prompts were reused from earlier ones", use.reused);
    }
    return {std::move(text)};
  }

  std::optional<GenerationStatistics> Generation() const override {
    return counters_.Read(step_->pool());
  }
  StatusOr<ValidatedRequest> Validate(const InferRequest& request) override {
    return inputs_->Validate(request);
  }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  Duration Cost(int cell, const Task& task) const override {
    if (costs_ == nullptr || cell != kStepCell) return Duration(0);
    return costs_->Cost(task.type, task.rows, task.sequences);
  }
  void Learn(const Task& task, bool helped, Duration measured) override {
    const GenerationCosts::Size ran = std::exchange(ran_, {});
    if (costs_ != nullptr && task.type == kStepCell) costs_->Learn(ran, helped, measured);
  }
  Status KeepCosts() const override {
    return costs_ == nullptr ? absl::OkStatus() : costs_->Keep();
  }
  void Run(TaskRun& run, TaskDone done) override;

 private:
  struct Item {
    GeneratingRequest* request;
    size_t node;  // index in the task
    std::vector<StepTokens> sequences = {};
    bool complete = false;  // its request has the result: it must not be computed again
  };
  using Items = absl::InlinedVector<Item, 32>;

  Items BeginSteps(TaskRun& run, TaskResult& result);
  Items BeginSources(TaskRun& run, TaskResult& result) const;
  Status Compute(std::span<Item> items, TaskRun& run);
  // By sequence of `items`, in order; empty if the prompt of their request continues.
  std::vector<Choice> ChooseNext(std::span<const Item> items, const Tensor& logits, Team& team);
  Status Encode(std::span<Item> items, TaskRun& run);

  GenerationCounters counters_;  // outlives the requests
  const std::unique_ptr<PagedStep> step_;
  const std::unique_ptr<SourceEncoder> encoder_;
  const std::unique_ptr<GenerationInputs> inputs_;
  const std::unique_ptr<GenerationCosts> costs_;  // null: unknown
  GenerationCosts::Size ran_;                     // of the last task; 0 tokens: unknown
  const std::vector<std::string> notes_;
  const std::vector<PassReport> passes_;
};

StatusOr<std::unique_ptr<RequestGraph>> GeneratingProgram::Unfold(ValidatedRequest request,
                                                                  bool parts) {
  GenerationLimits limits = inputs_->LimitsOf(request);
  // The request keeps its tensors.
  const std::span<const int64_t> source = inputs_->Source(request);
  const std::span<const int64_t> prompt = inputs_->Prompt(request);
  const int64_t returned = GenerationInputs::Returned(request);
  auto made = std::make_unique<GeneratingRequest>(
      std::move(request), source, prompt, std::move(limits), returned, step_->pool(),
      plan().config.prefix_caching, !step_->whole_prompts(), parts,
      std::max<int64_t>(kMostLogits / step_->vocabulary(), 1));
  made->times.Arrive(counters_, Clock::Steady().Now());
  return made;
}

std::vector<Choice> GeneratingProgram::ChooseNext(std::span<const Item> items, const Tensor& logits,
                                                  Team& team) {
  struct Row {
    const GeneratingRequest* request;
    size_t sequence;  // index of its sequence
    size_t row;       // index of its logits row
  };
  std::vector<Row> rows;
  size_t sequences = 0;
  int64_t scratch = 0;
  for (const Item& item : items) {
    for (size_t i = 0; i < item.sequences.size(); ++i, ++sequences) {
      if (!item.request->predicts()) continue;
      rows.push_back({item.request, i, sequences});
      scratch = std::max(scratch, ScratchOf(item.request->limits(), step_->vocabulary()));
    }
  }
  std::vector<Choice> choices(sequences);
  const auto size = static_cast<size_t>(step_->vocabulary());
  const auto of_worker = static_cast<size_t>(scratch);
  const auto width = static_cast<size_t>(team.width());
  const auto floats = std::make_unique_for_overwrite<float[]>(of_worker * width);
  team.For(static_cast<int>(rows.size()), [&](int part, int worker) {
    const Row& row = rows[static_cast<size_t>(part)];
    const size_t own = width == 1 ? 0 : static_cast<size_t>(worker) * of_worker;
    Choice& choice = choices[row.row];
    const Status chosen = CatchOutOfMemory([&] {
      choice = Choose(row.request->limits(), row.request->prompt(),
                      row.request->answer(row.sequence), row.request->counts(row.sequence),
                      logits.values<float>().subspan(row.row * size, size),
                      {floats.get() + own, of_worker});
      return absl::OkStatus();
    });
    if (!chosen.ok()) choice.status = chosen;
  });
  return choices;
}

Status GeneratingProgram::Compute(std::span<Item> items, TaskRun& run) {
  absl::InlinedVector<StepTokens, 32> sequences;
  for (const Item& item : items) {
    sequences.insert(sequences.end(), item.sequences.begin(), item.sequences.end());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor logits,
                             step_->Run(sequences, run.team, run.worker, run.memory));
  const std::vector<Choice> choices = ChooseNext(items, logits, run.team);
  std::span<const Choice> left(choices);
  for (Item& item : items) {
    item.complete = true;
    GeneratingRequest& request = *item.request;
    const bool predicts = request.predicts();
    const Status completed =
        CatchOutOfMemory([&] { return request.Complete(left.first(item.sequences.size())); });
    // For all beams together, one token per step.
    const bool beams = request.limits().beams.beams > 1;
    const size_t tokens = !predicts ? 0 : beams ? 1 : item.sequences.size();
    for (size_t i = 0; completed.ok() && i < tokens; ++i) {
      request.times.Token(request.read_tokens(), Clock::Steady().Now());
    }
    if (request.done()) request.times.Leave();
    left = left.subspan(item.sequences.size());
    run.nodes[item.node].status = completed;
  }
  return absl::OkStatus();
}

Status GeneratingProgram::Encode(std::span<Item> items, TaskRun& run) {
  absl::InlinedVector<SourceTokens, 32> sources;
  for (const Item& item : items) {
    sources.push_back({item.request->source(), item.request->source_blocks(),
                       inputs_->Features(item.request->request())});
  }
  CHAIRLIFT_RETURN_IF_ERROR(encoder_->Run(sources, *step_, run.team, run.worker, run.memory));
  for (Item& item : items) {
    run.nodes[item.node].status = absl::OkStatus();
    item.complete = true;
    item.request->CompleteSource();
  }
  return absl::OkStatus();
}

GeneratingProgram::Items GeneratingProgram::BeginSources(TaskRun& run, TaskResult& result) const {
  Items items;
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    auto& request = static_cast<GeneratingRequest&>(*run.nodes[n].graph);
    run.nodes[n].share = 0;
    if (!request.BeginSource()) continue;
    const auto tokens = static_cast<int64_t>(request.source().size());
    run.nodes[n].units = tokens;
    run.nodes[n].share = static_cast<double>(tokens) / static_cast<double>(request.planned_rows());
    request.times.Start();
    result.rows += static_cast<int32_t>(tokens);
    items.push_back({&request, n});
  }
  return items;
}

GeneratingProgram::Items GeneratingProgram::BeginSteps(TaskRun& run, TaskResult& result) {
  Items items;
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    TaskNode& node = run.nodes[n];
    auto& request = static_cast<GeneratingRequest&>(*node.graph);
    if (node.set_back) {
      node.share = 0;
      node.skipped = request.SetBack();
      counters_.SetBack();
      continue;
    }
    std::vector<BlockPool::Copy> copies;
    std::vector<StepTokens> begun = request.Begin(node.rows, copies);
    step_->Make(copies, run.team);
    node.skipped = request.reused();
    for (const StepTokens& own : begun) node.units += static_cast<int64_t>(own.tokens.size());
    node.share = static_cast<double>(node.units) / static_cast<double>(request.planned_rows());
    result.rows += static_cast<int32_t>(node.units);
    if (begun.empty()) continue;
    request.times.Start();
    items.push_back({&request, n, std::move(begun)});
  }
  return items;
}

void GeneratingProgram::Run(TaskRun& run, TaskDone done) {
  const Clock& clock = Clock::Steady();
  const TimePoint start = clock.Now();
  TaskResult result;
  const bool encode = run.cell == kEncodeCell;
  Items items;
  const Status prepared = CatchOutOfMemory([&] {
    items = encode ? BeginSources(run, result) : BeginSteps(run, result);
    return absl::OkStatus();
  });
  if (!prepared.ok()) {
    for (TaskNode& node : run.nodes) node.status = prepared;
    return done(result);
  }
  const auto compute = [&](std::span<Item> some) {
    const Status computed =
        CatchOutOfMemory([&] { return encode ? Encode(some, run) : Compute(some, run); });
    if (computed.ok()) return true;
    for (const Item& item : some) {
      if (!item.complete) run.nodes[item.node].status = computed;
    }
    return false;
  };
  const TimePoint begun = clock.Now();
  const bool together = items.empty() || compute(std::span(items.data(), items.size()));
  const bool stopped = run.memory.stop != nullptr && *run.memory.stop;
  ran_ = {};
  if (together && !stopped && !encode) {
    ran_.tokens = result.rows;
    for (const Item& item : items) ran_.sequences += static_cast<int32_t>(item.sequences.size());
  }
  if (!together && items.size() > 1 && !stopped) {
    // None fails because of another's data.
    for (Item& item : items) {
      if (!item.complete) compute({&item, 1});
    }
  }
  result.compute_input = begun - start;
  result.compute_infer = clock.Now() - begun;
  done(result);
}

// The part of a model's files and settings shown in its diagnosis.
std::string Described(PagedStep& step, const GenerationConfig& config, int64_t kv_cache_bytes) {
  std::string text = fmt::format(
      "it generates: up to {} tokens of prompt and answer; keys and values take {} bytes a token, "
      "{} MiB in blocks of {} tokens; greedy, with num_beams by beams, or with a temperature "
      "sampled",
      step.max_length(), step.token_bytes(), kv_cache_bytes >> 20, step.pool().block_tokens());
  if (step.max_source() > 0) {
    text += fmt::format("; of a source of up to {} tokens", step.max_source());
    text += config.start_token >= 0
                ? fmt::format(", after token {}", config.start_token)
                : "; no file beside the model names the token that an answer begins with";
  }
  text += config.end_tokens.empty()
              ? "; no file beside the model names an end token: answers end at max_tokens"
              : fmt::format("; an answer ends at token {}", fmt::join(config.end_tokens, " or "));
  if (!config.not_applied.empty()) {
    text += fmt::format("; of the files beside the model not applied: {}",
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
  StatusOr<Graph> graph = NormaliseDecoder(model.graph);
  if (!graph.ok()) {
    refused = Message(graph.status());
    return nullptr;
  }
  bool halves = HasFloat16(model.graph);
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
    halves = halves || HasFloat16(*encoder);
    CHAIRLIFT_RETURN_IF_ERROR(WidenFloats(*encoder));
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
  const auto more = std::max_element(config.start_more.begin(), config.start_more.end());
  for (const auto& [name, token] :
       {std::pair(config.start_token_key.c_str(), config.start_token),
        std::pair("forced_decoder_ids", more == config.start_more.end() ? -1 : *more),
        std::pair("forced_bos_token_id", config.forced_first),
        std::pair("forced_eos_token_id", config.forced_end)}) {
    if (token < made->vocabulary) continue;
    return InvalidArgument("the files beside the model: \"{}\" is {}; the model has tokens 0 to {}",
                           name, token, made->vocabulary - 1);
  }
  const ModelConfig& settings = model.config;
  PagedStep::Sizes sizes{.block_tokens = kBlockTokens};
  const int64_t tables = made->max_length;
  const int64_t made_for = tables > 0 ? tables : config.trained_length;
  sizes.max_length = settings.max_length > 0 ? settings.max_length
                     : made_for > 0          ? std::min(made_for, kMostDefaultLength)
                                             : std::max(kDefaultMaxLength, config.max_length);
  if (tables > 0 && sizes.max_length > tables) {
    return InvalidArgument("max_length is {}; the model has tables for {} tokens", sizes.max_length,
                           tables);
  }
  int64_t token_bytes = 0;
  for (const DecoderLayer& layer : made->layers) {
    const int64_t most = kMostTokenBytes / static_cast<int64_t>(sizeof(float));
    const bool fits = layer.heads <= most && layer.key_size <= most && layer.value_size <= most &&
                      layer.heads <= most / std::max<int64_t>(layer.key_size + layer.value_size, 1);
    if (fits) {
      token_bytes +=
          layer.heads * (layer.key_size + layer.value_size) * static_cast<int64_t>(sizeof(float));
    }
    if (!fits || token_bytes < 1 || token_bytes > kMostTokenBytes) {
      refused = fmt::format("a token's keys and values take more than {} bytes, or none",
                            kMostTokenBytes);
      return nullptr;
    }
  }
  GenerationRoom room{.max_length = sizes.max_length,
                      .vocabulary = made->vocabulary,
                      .source = made->source.has_value()};
  if (made->source) {
    for (const IndexBound& bound : FindIndexBounds(*encoder)) {
      if (bound.input == "input_ids") room.source_vocabulary = bound.bound;
    }
    sizes.max_source = made->source->max_length > 0 ? made->source->max_length : kDefaultMaxLength;
    room.max_source = sizes.max_source;
    room.features = made->source->features;
  }
  const auto blocks_of = [](int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; };
  const int64_t block_bytes = token_bytes * kBlockTokens;
  const int64_t longest = (blocks_of(sizes.max_length) + blocks_of(sizes.max_source)) * block_bytes;
  const int64_t bytes =
      settings.kv_cache_bytes > 0
          ? settings.kv_cache_bytes
          : std::max(longest, std::min(kDefaultCacheBytes, kDefaultLongest * longest));
  sizes.blocks = bytes / block_bytes;
  if (const int64_t usable = UsableMemoryBytes(); bytes > usable) {
    return InvalidArgument(
        "keys and values need {} bytes (kv_cache_bytes, or else the need of one request of "
        "max_length {}), but this process may use only {}; lower kv_cache_bytes or max_length",
        bytes, sizes.max_length, usable);
  }
  if (sizes.blocks < 1) {
    return InvalidArgument("kv_cache_bytes is {}; a block of keys and values takes {}", bytes,
                           block_bytes);
  }
  std::vector<std::string> notes = std::move(made->notes);
  if (halves) notes.emplace_back("float16 is computed, and its keys and values kept, in float32");
  std::vector<PassReport> passes = std::move(made->passes);
  // The trial below compares with the original's float32.
  const DType asked = std::exchange(model.executable.round_products_to, DType::kUndefined);
  std::unique_ptr<SourceEncoder> source_encoder;
  if (made->source) {
    CHAIRLIFT_ASSIGN_OR_RETURN(source_encoder,
                               SourceEncoder::Create(*std::move(made->source), model.executable));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::unique_ptr<PagedStep> step,
                             PagedStep::Create(*std::move(made), sizes, model.executable));
  CHAIRLIFT_ASSIGN_OR_RETURN(const DecoderPorts ports, FindDecoderPorts(*graph));
  if (const Status tried = TrySteps({*graph, ports, encoder_graph}, *step, source_encoder.get());
      !tried.ok()) {
    model.executable.round_products_to = asked;
    refused = Message(tried);
    return nullptr;
  }
  ModelConfig chosen = settings;
  chosen.max_length = static_cast<int>(sizes.max_length);
  chosen.kv_cache_bytes = sizes.blocks * block_bytes;
  CHAIRLIFT_ASSIGN_OR_RETURN(
      ServingPlan plan,
      PlanGenerationServing(chosen, Described(*step, config, chosen.kv_cache_bytes), sizes.blocks));
  std::unique_ptr<GenerationCosts> costs =
      GenerationCosts::Find(*step, plan.scheduling.max_batch_size, model.load);
  plan.scheduling.costs = costs.get();
  if (step->whole_prompts()) {
    plan.config.policy = "whole_prompts";
    plan.config.prefix_caching = false;
    plan.diagnosis +=
        "; its scales are dynamic: a prompt runs in one step, and shares no prefix with others";
  }
  if (asked != DType::kUndefined) {
    plan.dropped += fmt::format(
        "; precision {} has no effect on a model that generates: it is float32", DTypeName(asked));
  }
  model.graph = Graph();
  auto inputs = std::make_unique<GenerationInputs>(std::move(config), room, step->pool());
  return std::make_unique<GeneratingProgram>(std::move(plan), std::move(step),
                                             std::move(source_encoder), std::move(inputs),
                                             std::move(costs), std::move(notes), std::move(passes));
}

}  // namespace chairlift
