// The inference engine: loads models and answers requests. The server and the command line are thin
// adapters over it, and C++ programs embed it.
//
//   auto engine = chairlift::Engine::Create({});
//   (*engine)->LoadModel("resnet", "resnet50.onnx", {});
//   auto response = (*engine)->Infer({.model = "resnet", .inputs = {{"image", tensor}}});
//
// Thread-safe throughout. The engine shares a request's tensors and does not copy them. Do not
// write to them before the callback has run. After kDeadlineExceeded, do not write to them before
// the engine has also released its references. Tensors that the engine cannot share (Tensor::Wrap()
// without an owner) are free once the callback has run.
#ifndef CHAIRLIFT_ENGINE_H_
#define CHAIRLIFT_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chairlift/stage_policy.h"
#include "chairlift/status.h"
#include "chairlift/tensor.h"
#include "chairlift/unfold.h"

namespace chairlift {

// Progress of loading a model.
struct LoadProgress {
  std::string model;
  std::string step;  // "timing batches"; empty when the load has ended, whether or not it succeeded
  double done = 0;   // of this step, from 0 to 1; stays 0 if it is unknown
};

// Each member has its own initialiser so that designated initialisers can name a subset.
struct EngineOptions {
  // Worker threads, each pinned to its own core. 0: one per core that this process may run on.
  int workers = 0;
  // The cores to pin the workers to, one per worker. Empty: the cores that this process may run on,
  // in order.
  std::vector<int> cores = {};
  // Bytes for intermediates and outputs of all workers; each worker gets an equal share. A request
  // that needs more than one share runs in parts if its rows are independent, and is refused
  // (kOutOfRange) otherwise. 0: half of the memory that this process may use, given the machine,
  // its control groups and its resource limits.
  int64_t memory_budget = 0;
  // Requests that are being prepared, waiting or running, over all models. More are refused
  // (kResourceExhausted).
  int max_requests = 4096;
  // Default of ModelConfig::max_queue_wait_us. 0: no bound.
  int64_t max_queue_wait_us = 0;
  // Whether to time a model at load if its batches are chosen by cost. That takes up to 20 s for
  // stages, up to 3 s for cells, packed tokens and padded sequences. It happens once per model,
  // machine and build; the result is kept in $XDG_CACHE_HOME/chairlift. If false, the engine uses a
  // kept result, or else an estimate.
  bool autotune = true;
  // Whether models may have a plugin (docs/concepts: cells.md, stages.md): a shared library in the
  // model's folder that runs inside this process. If false, a model with a plugin is refused.
  bool allow_plugins = false;
  // Default of ModelConfig::device. Empty: the CPU.
  std::string device = {};
  // Default of ModelConfig::precision. Empty: float32.
  std::string precision = {};
  // Whether a model with a tokenizer.json beside it also accepts text inputs, through the pipeline
  // <name>/embed or <name>/rerank. The first step of these pipelines runs in a worker process
  // (docs/guides/embeddings.md).
  bool serve_texts = false;
  // For models in a repository: if a model's folder has configs/<name>.pbtxt, that file replaces
  // its other settings. Empty: no such file is read.
  std::string model_config_name = {};
  // Reports load progress; may be null. Called by one thread at a time, for one model at a time,
  // and only before that model's load returns. It must not call the engine.
  std::function<void(const LoadProgress&)> on_load = {};
};

// Decides, given one of a request's outputs [rows, row…], whether the request exits early or skips
// stages. Thread-safe. It blocks the worker while it runs. An exception fails the request.
using ExitPredicate = std::function<bool(const Tensor& output)>;

// In a model that is cut into stages: a point where requests may exit early or skip stages. The
// model is cut after it.
struct StageExit {
  std::string output = {};  // of the model; computed before its other outputs
  // A request takes the exit if, in each of its rows, the largest value of the output is at least
  // this. Float types only; NaN never qualifies.
  std::optional<double> at_least = {};
  // Replaces `at_least`. If both are absent, the model's stage plugin supplies the predicate.
  ExitPredicate predicate = {};
  // The last node or tensor to be skipped. The request continues after it; the model is cut there
  // too. Empty: the request exits and is answered.
  std::string skip_to = {};
  // Substitutes for tensors that are then not computed, by name. Needed for every output that an
  // exiting request does not have, and for every tensor that is read after the skipped part. Types
  // and rows must match.
  std::map<std::string, std::string> instead = {};
};

// A shared library in the model's folder (chairlift/stage_plugin.h).
struct StagePluginFile {
  std::string library = {};
  std::map<std::string, std::string> options = {};
};

// How one model is served. The engine derives a default for every field from the model. A
// `model.yaml` beside the version folders sets fields by the same names.
struct ModelConfig {
  // Where the model runs: "cpu", or an NVIDIA GPU as "cuda" or "cuda:0", "cuda:1", …. A model with
  // an operator that has no kernel for the device is refused; the error names the operator. Empty:
  // EngineOptions::device. Not for Python models, pipelines and completions: set it on the models
  // that they call.
  std::string device = {};
  // How float32 parts of the model are computed. Empty or "float32": in float32. Empty also stands
  // for EngineOptions::precision. Inputs and outputs stay float32.
  // On the CPU, "bfloat16": matrix products with constant weights round their operands to bfloat16
  // and add in float32. Processors with AMX run them several times as fast. "int8": likewise in 8
  // bits, with a scale for each row and for each column of weights, and exact sums.
  // On a GPU, "tf32": in float32, but products may round their operands to TensorFloat-32 (10 bits
  // of mantissa). "float16", "bfloat16": in 16 bits with float32 sums. Tensor cores run these
  // several times as fast.
  std::string precision = {};
  std::string policy = {};  // one of KnownPolicies(); empty: chosen from the model
  // Rows. 0: 32 if the model can batch, else 1; for models that run as cells, chosen per cell from
  // its costs. If set, a request with more rows is refused; otherwise such a request runs as a
  // batch by itself.
  int max_batch_size = 0;
  // For models that run on packed tokens: tokens in a batch; a request with more tokens runs as a
  // batch by itself. 0: chosen from the model's costs. For models that generate: tokens in a step;
  // 0: 256.
  int max_batch_tokens = 0;
  // For models that generate: the most tokens of a prompt and its answer together. 0: the length of
  // the model's position tables, else 2048.
  int max_length = 0;
  // Bytes for the keys and values of all running requests. A request starts when there is room for
  // everything that it may grow to. 0: 1 GiB; less if 32 of the longest requests need less, more if
  // a single one needs more.
  int64_t kv_cache_bytes = 0;
  // Renames the file's inputs and outputs: from the file's name to the new one. All other settings,
  // requests and answers use the new names. "{i}", once in both names, matches any number. This
  // allows a decoder step whose inputs and outputs are not named as exporters name them to be
  // served as one that generates (docs/guides/language-models.md). Not for its encoder.
  std::map<std::string, std::string> tensor_names = {};
  // Reuse the keys and values of earlier prompts for prompts with the same beginning. They are kept
  // until the room is needed.
  bool prefix_caching = true;
  int64_t queue_delay_us = 0;  // how long the oldest request may wait for others
  // Target latency. Policy length_dp with a queue_delay: requests are no longer held back once half
  // of it is nearly spent. Policy staged: no request joins a batch if that would make a request of
  // the batch miss it. 0: unset.
  int64_t latency_objective_us = 0;
  // Policy cellular: how much longer than one step of a recurrence a task of several steps may
  // take. This bounds how long new requests wait. 0: one step per task. Absent: 200.
  std::optional<int64_t> time_slice_us = {};
  // Policies staged and cellular, for models without recurrences: the number of stages, at most 64.
  // 0: chosen from the model.
  int stages = 0;
  // Replaces `stages`: the nodes or tensors after which the model is cut, in any order.
  std::vector<std::string> stages_after = {};
  // Policy staged: pairs of buffers between two stages. 1: batches run one after the other; more:
  // they run as a pipeline.
  int buffer_pairs = 2;
  // A batch that is older than this accepts no more requests. 0: decided from the costs of the
  // stages.
  int64_t join_window_us = 0;
  // Replaces the policy's own rules for new batches, stretch and split.
  StagePolicyFactory stage_policy = {};
  // Early exits of a model that is cut into stages, in order. If several have the same output, a
  // request takes the first whose condition holds.
  std::vector<StageExit> exits = {};
  // Supplies the stage policy, and the predicates of exits, if they are not set here.
  StagePluginFile stage_plugin = {};
  // For sequence models whose padding is not proved to be harmless: the input that marks valid
  // tokens with 1. It is trusted to hide all other tokens, so the model's requests share padded
  // batches. The mask is tried on a few requests at load, which proves nothing. Empty: no mask is
  // trusted.
  std::string padding_mask = {};
  // 0: the first dimension is the batch, although the file fixes it to 1. It is opened if each row
  // is proved to be computed alone; else the load fails and says why.
  std::optional<int> batch_dim = {};
  std::vector<int> preferred_batch_sizes = {};
  int max_queue_size = 1024;  // waiting requests; more are refused (kResourceExhausted)
  // The longest expected wait of a new request, estimated from the cost of recent batches. A
  // request that would wait longer is refused at once (kResourceExhausted). 0: no bound. Until
  // costs are known, only max_queue_size bounds the queue. For a pipeline: the sum of the waits in
  // the queues of all its steps.
  std::optional<int64_t> max_queue_wait_us = {};
  int64_t default_timeout_us = 0;  // for requests that set no timeout; 0: no timeout
  std::set<std::string> disabled_passes = {};
  // For models that run as cells. If only the first layer's input projection reads an embedding, a
  // table of projected rows can replace it, which saves the projection. It does if the table takes
  // at most this many bytes. 0: never.
  int64_t max_folded_embedding_bytes = 0;
  // State that the engine keeps between the requests of a sequence. Maps each output that produces
  // state to the input of the next request that receives it. Clients of a sequence neither send nor
  // receive these two.
  std::map<std::string, std::string> sequence_state = {};
  int max_sequences = 4096;  // live at once; more are refused (kResourceExhausted)
  int64_t max_sequence_idle_us =
      60'000'000;  // a sequence without a request for this long has ended
  // Bytes for answers, reused when a request comes again byte for byte; 0: no cache. Requests with
  // a client, a sequence or a parts callback are always computed.
  int64_t response_cache_bytes = 0;
  // For a model of cells whose model.yaml names an unfold plugin: replaces the plugin, and no
  // library is loaded. Not settable in model.yaml.
  MakeUnfolders unfold = {};
  // For Python models: their own settings (docs/guides/python-models.md), by name, each written as
  // in a model.yaml. They override those in its file.
  std::map<std::string, std::string> function = {};
  // For pipelines, and Python models that call other models: maps a model name in their files to
  // the name in this engine, if they differ. Not settable in model.yaml.
  std::map<std::string, std::string> model_names = {};
  // Triton's config.pbtxt that these settings come from. Its declarations of inputs, outputs,
  // sequences and labels apply too. Not settable in model.yaml.
  std::string config_file = {};
  // Allows this model a plugin or Python code even if EngineOptions::allow_plugins is false. Not
  // settable in model.yaml.
  bool allow_plugins = false;
  // Called from time to time while the model loads. If it returns true, the load ends with
  // kCancelled.
  std::function<bool()> interrupted = {};
  // Drop settings that the model or its policy does not use, and say so in the diagnosis. By
  // default they are refused. For settings written for another server; not settable in model.yaml.
  bool drop_unused = false;
};

struct TensorSpec {
  std::string name = {};
  DType dtype = DType::kUndefined;
  std::vector<int64_t> shape = {};  // −1 for a dimension that varies
};

// A cell of a model that runs as cells.
struct CellBatching {
  std::string name = {};
  // Rows. A batch of fewer than `min` costs as much as one of `min`. A batch has at most `max`, or
  // `most` if many requests wait, unless a single request has more.
  int min_batch_size = 1;
  int max_batch_size = 1;
  int most_batch_size = 1;
  // Measured time of a batch on one worker, by rows. Empty: not timed.
  std::map<int, std::chrono::nanoseconds> costs = {};
};

// Whether one kind of program can serve a model, and if not, why.
struct ProgramChoice {
  std::string kind = {};     // "cells", "packed", "padded", "staged", …
  std::string summary = {};  // how it runs requests
  std::string refused = {};  // why it cannot serve the model; empty: it can
};

struct ModelMetadata {
  std::string name = {};
  std::string version = {};
  std::string platform;  // "onnx_chairlift"
  std::vector<std::string> versions;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  bool batches = false;  // requests share batches along dimension 0
  // The most rows of a request, if the model's config.pbtxt says so. Then dimension 0 of all inputs
  // and outputs is the batch, whether or not requests share batches. 0: the model has no batch
  // dimension.
  std::optional<int> max_rows = {};
  bool sequences_only = false;              // every request must belong to a sequence
  std::set<std::string> shown_states = {};  // outputs of sequence_state that are also client
                                            // outputs, under other names
  // Class names of a model that classifies text inputs, in the order of its scores.
  std::vector<std::string> labels = {};
  ModelConfig config;  // as used, with defaults filled in

  // The Triton configuration that the model was loaded with, as JSON; empty if it has none.
  std::string triton_config = {};

  // Whether dimension 0 of inputs and outputs is the batch.
  bool has_batch() const { return max_rows ? *max_rows > 0 : batches; }
  // Text: what varies, the policy and why it was chosen, and which kinds of requests run one by
  // one.
  std::string diagnosis;
  std::vector<CellBatching> cells;  // empty if the model runs as a whole
  // In the order they were tried. The last one serves the model.
  std::vector<ProgramChoice> programs;
};

// A place in a model's queue (Engine::Reserve()). Giving up the last reference frees the place.
class Admission;

// The body of a request that is not parsed yet.
struct UnreadBody {
  int64_t bytes = 0;
  bool binary = false;  // the bytes are those of tensors; otherwise of JSON
};

struct NamedTensor {
  std::string name = {};
  Tensor tensor = {};
};

// Time steps [first, first + n) of one row of the answer, sent before the rest is computed.
struct InferPart {
  int64_t row = 0;  // of the batch
  int64_t first = 0;
  std::vector<NamedTensor> outputs = {};  // [n, …] each
};

// Receives parts of an answer; those of one row and output arrive in the order of their steps. Runs
// on an engine thread, or on the caller's before InferAsync() returns. Calls do not overlap, and
// none comes after the request's callback. It must not block. Parts that are produced while it runs
// come with the next call.
using PartsCallback = std::function<void(std::span<const InferPart>)>;

struct InferRequest {
  std::string model = {};
  std::string version = {};  // empty: the latest
  std::string id = {};       // copied to the response
  std::vector<NamedTensor> inputs = {};
  std::vector<std::string> outputs = {};  // requested outputs; empty: all
  // Outputs to replace by the largest scores of each row, and how many scores to return. They are
  // strings "score:class:label": BYTES [rows, number], or [number] without rows.
  std::map<std::string, int> classes = {};
  // Requests of one client are answered in order; only refusals come at once. 0: no client.
  uint64_t client = 0;
  // The sender, for fair queues. When a queue fills up, groups (addresses) get equal shares of it,
  // and the members (connections) of a group get equal shares of the group's. Requests without a
  // caller count as one caller.
  struct Caller {
    uint64_t group = 0;
    uint64_t member = 0;
  };
  Caller caller = {};
  // If not empty: the sequence that this request belongs to, for a model with sequence_state.
  // Requests of a sequence run one after the other, in order of arrival. `sequence_start` resets
  // the state to zeros. A request without it is refused (kInvalidArgument) if its sequence is not
  // live.
  std::string sequence = {};
  bool sequence_start = false;
  bool sequence_end = false;  // drop the state after this request
  // Starts at the call. When it expires, the answer is kDeadlineExceeded at once, whether the
  // request waits or runs.
  std::optional<std::chrono::microseconds> timeout = {};
  // If not empty: receives parts of the answer as they are produced. Only models that run as cells
  // produce parts, and only for outputs with a time axis. The answer contains them again, with
  // padding for rows that ended early.
  PartsCallback on_parts = {};
  // For a model with random operators, or one that generates: requests with equal inputs and seeds
  // get equal answers, alone and in any batch. Absent: another seed for each request. An input
  // "seed" of one INT64 does the same, unless the model itself has an input of this name.
  std::optional<int64_t> seed = {};
  // With `on_parts`: the caller does not need the parts again in the answer. Then the answer of a
  // Python generator omits the outputs that were sent in parts, and the engine does not keep them.
  bool parts_once = false;
  // With `on_parts`: returns how many bytes of the parts are still unread. Called on an engine
  // thread; must not block. While the number is large, a Python generator is paused. Empty: it is
  // never paused.
  std::function<int64_t()> unread = {};
  // For Infer(): called about 20 times a second on the waiting thread, without locks held. If it
  // returns true, the request is cancelled and Infer() returns kCancelled without waiting for the
  // batch to end.
  std::function<bool()> interrupted = {};
  // From Engine::Reserve(); may be null. InferAsync() gives the place back, and admits the request
  // by what it really is. It is not refused for its wait if the place is for the same model and
  // covers its work.
  std::shared_ptr<Admission> place = {};
};

struct InferResponse {
  std::string model = {};
  std::string version = {};
  std::string id = {};
  std::vector<NamedTensor> outputs;
  std::chrono::nanoseconds queue_time{0};
  std::chrono::nanoseconds compute_time{0};
  int batch_rows = 0;  // rows of the batch that it ran in; 0: it came from the response cache
};

// counts[i] is the number of values at most bounds[i] and above the previous bound. The last count
// is for values above all bounds.
struct Histogram {
  std::vector<double> bounds = {};
  std::vector<uint64_t> counts = {};
  double sum = 0;  // of the values
};

// Statistics of a model that generates (docs/guides/language-models.md).
struct GenerationStatistics {
  // Requests now. `waiting`: for room for their keys and values, or for the first part of their
  // prompt to be computed. `running`: all others.
  int waiting = 0;
  int running = 0;
  // Since load: tokens of prompts (of sources, if there is an encoder) whose first token was
  // produced, and tokens of answers.
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  // Since load: how often a request gave up its keys and values to older requests, to be recomputed
  // later.
  uint64_t preemptions = 0;
  // Current blocks of keys and values.
  int64_t blocks = 0;
  int64_t blocks_used = 0;
  int64_t block_tokens = 0;            // capacity of a block
  int64_t tokens_used = 0;             // in the blocks in use; shared tokens count once
  Histogram first_token_seconds = {};  // from a request's arrival
  Histogram between_tokens_seconds = {};
};

// Counters since load, with the meanings of the protocol's statistics.
struct ModelStatistics {
  std::string name = {};
  std::string version = {};
  struct Count {
    uint64_t count = 0;
    uint64_t ns = 0;
  };
  uint64_t inference_count = 0;  // rows
  // Batches. For models that run as cells, a batch of one cell counts as a fraction of its
  // requests' work. So rows / executions is the mean batch size for every kind of model.
  uint64_t execution_count = 0;
  int64_t last_inference_ms = 0;  // since the epoch
  Count success, fail, queue, compute_input, compute_infer, compute_output;
  // For the response cache. A hit counts as a success but not as an inference. A hit's time is that
  // of the whole request, a miss's only that of the lookup.
  Count cache_hit, cache_miss;
  std::map<std::string, uint64_t> failures;  // by reason: "timeout", "queue_full", ...
  // The requests among these that were parts of other requests: steps of pipelines and of text
  // routes, and calls that Python models make. The others came from callers.
  struct Steps {
    uint64_t success = 0;
    uint64_t fail = 0;
    std::map<std::string, uint64_t> failures = {};
    int running = 0;
  };
  Steps steps = {};
  std::map<int, Count> batches;  // executions and their compute time, by rows
  uint64_t padded_rows = 0;
  int waiting = 0;
  int running = 0;
  // The work of accepted requests that is not computed yet: the time that one worker would need for
  // it, by measured costs. 0 if costs are not known yet.
  std::chrono::nanoseconds queued_work{0};
  std::optional<GenerationStatistics> generation = {};  // absent: the model does not generate
};

struct TraceOptions {
  // 48 per task, 8 per request in it, 24 per node. A task that does not fit is dropped with all
  // that follow.
  size_t max_bytes = size_t{64} << 20;
  bool nodes = false;  // also record each node of the models' graphs
};

// A node of a model's optimised graph, and how long it took.
struct NodeProfile {
  std::string model = {};
  std::string cell = {};            // empty if the model runs as a whole
  std::string node = {};            // its name in the file, or a generated one
  std::string op = {};              // "Conv"
  std::string implementation = {};  // "winograd"; empty: the operator has only one
  std::string refused = {};         // implementations tried before, and why they were refused
  std::string shapes = {};          // "[1,3,224,224], [64,3,7,7] -> [1,64,112,112]"
  double flops = 0;                 // per run, of matrix products and convolutions; 0: not counted
  double bytes = 0;                 // per run, of all operands
  // For a Loop or Scan: iterations in its first run; −1: not a loop.
  int64_t iterations = -1;
  uint64_t runs = 0;
  // Excludes the nodes of its own bodies (If, Loop, Scan).
  std::chrono::nanoseconds median{0};
  std::chrono::nanoseconds total{0};
};

// A timeline of what the workers ran.
struct Trace {
  // Chrome's trace event format, for ui.perfetto.dev or chrome://tracing. It has a track per worker
  // and a slice per task, named after its cell, or its model if that runs as a whole. `args` has
  // the task's rows, steps, cells and requests: the rows are those of the first step, `cells`
  // counts all steps. If nodes are traced, each is a slice below its task's. Times are µs since
  // StartTrace().
  std::string json;
  uint64_t tasks = 0;
  uint64_t dropped = 0;  // tasks that ended after max_bytes was full
  // If nodes are traced: one entry per node and shape class, in descending order of total time.
  std::vector<NodeProfile> nodes;
};

enum class ModelState { kLoading, kReady, kUnloading, kUnavailable };
struct ModelIndexEntry {
  std::string name = {};
  std::string version = {};
  ModelState state = ModelState::kUnavailable;
  std::string reason;  // why it is not ready
};

using InferCallback = std::function<void(StatusOr<InferResponse>)>;
using RequestId = uint64_t;

class Engine {
 public:
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  virtual ~Engine() = default;  // calls Shutdown(0)

  // Loads one .onnx file, or the version folder of a model made of cells (docs/concepts/cells.md),
  // as version `version` of `name`. It replaces that version when it is ready.
  virtual Status LoadModel(const std::string& name, const std::string& path,
                           const ModelConfig& config, const std::string& version = "1") = 0;
  // Adds a folder of <name>/<version>/model.onnx with an optional <name>/model.yaml or Triton's
  // <name>/config.pbtxt. LoadFromRepository() then loads the latest version, or the versions that
  // the file names.
  virtual Status AddRepository(const std::string& directory) = 0;
  // If `config` is not empty, it is Triton's model configuration as JSON. It replaces the settings
  // in the model's folder until the model is loaded again.
  virtual Status LoadFromRepository(const std::string& name, const std::string& config = "") = 0;
  // Makes a loaded model accept text inputs, as EngineOptions::serve_texts does at load. `path` is
  // the model's file. NotFound if there is no tokenizer.json beside it; InvalidArgument if the
  // engine cannot tell what the answer to a text should be. `interrupted` is null or works like
  // ModelConfig::interrupted.
  virtual Status LoadTexts(const std::string& name, const std::string& path,
                           const std::function<bool()>& interrupted) = 0;
  // Refuses new requests, lets accepted ones finish, then frees the model. Empty version: all
  // versions.
  virtual Status UnloadModel(const std::string& name, const std::string& version = "") = 0;

  // Returns within about a millisecond. Requests that take longer to validate, look up or unfold
  // are prepared on an engine thread; so are all that run a plugin's code. `callback` runs exactly
  // once, on an engine thread, or on the caller's if the request is refused or answered from the
  // response cache at once. It must not block. The request id is valid for Cancel() until then.
  virtual RequestId InferAsync(InferRequest request, InferCallback callback) = 0;
  // For a server that has received a large request and not parsed it. Refuses it now if
  // InferAsync() would refuse it for its expected wait: refusing stays cheap. Otherwise takes a
  // place in the queues of the model and of those that it calls, for InferRequest::place. The work
  // that it counts there is estimated from the size of the body. The place is null if only
  // InferAsync() can decide: the model is not known, or caches its answers.
  virtual StatusOr<std::shared_ptr<Admission>> Reserve(const std::string& /*name*/,
                                                       const std::string& /*version*/,
                                                       const InferRequest::Caller& /*caller*/,
                                                       const UnreadBody& /*body*/) {
    return nullptr;
  }
  // Waits for the answer. A task of this request alone runs on the calling thread if it is too
  // short to wake another thread. The calling thread needs a stack of the default size.
  virtual StatusOr<InferResponse> Infer(InferRequest request);
  // Answers the request with kCancelled: at once if it waits, at the end of its batch if it runs. A
  // batch without another request stops at the next operator. No effect after the request has
  // ended.
  virtual void Cancel(RequestId request) = 0;

  virtual std::vector<ModelIndexEntry> Index() const = 0;
  virtual StatusOr<ModelMetadata> Metadata(const std::string& name,
                                           const std::string& version = "") const = 0;
  // Empty name: all models.
  virtual StatusOr<std::vector<ModelStatistics>> Statistics(
      const std::string& name, const std::string& version = "") const = 0;
  virtual bool ModelReady(const std::string& name, const std::string& version = "") const = 0;
  virtual int workers() const = 0;

  // Discards earlier records, and records the tasks that workers start from now on.
  virtual void StartTrace(const TraceOptions& options = {}) = 0;
  // Ends the recording and returns the tasks that ended since StartTrace(). Requests are named by
  // the id that InferAsync() returned.
  virtual Trace StopTrace() = 0;

  // Refuses new requests, waits up to `drain` for accepted ones, then fails the rest
  // (kUnavailable).
  virtual void Shutdown(std::chrono::milliseconds drain) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_H_
