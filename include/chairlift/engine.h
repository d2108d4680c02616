// The engine: models in, answers out. What the server and the command line are thin adapters over,
// and what a C++ program embeds.
//
//   auto engine = chairlift::Engine::Create({});
//   (*engine)->LoadModel("resnet", "resnet50.onnx", {});
//   auto response = (*engine)->Infer({.model = "resnet", .inputs = {{"image", tensor}}});
//
// Thread-safe throughout. A request's tensors are shared, not copied: they must not be written
// until its callback has run; where that brings kDeadlineExceeded, not before the engine has
// dropped its shares of them (tensors that it does not share, Tensor::Wrap() without an owner, are
// free from the callback on).
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

// How far the load of a model has come.
struct LoadProgress {
  std::string model;
  std::string step;  // "timing batches"; empty: the load is over, whether or not it succeeded
  double done = 0;   // of the step, from 0 to 1; stays 0 where it is unknown
};

// Members are initialised one by one so that designated initialisers may name only some of them.
struct EngineOptions {
  // Workers, each with a thread of its own on a core of its own. 0: one for each core this process
  // may run on.
  int workers = 0;
  // The cores to pin them to, one per worker; empty: the cores this process may run on, in order.
  std::vector<int> cores = {};
  // Bytes of intermediates and outputs over all workers; each worker has an equal share. A request
  // that needs more than a share runs in parts if its rows are independent, and is refused
  // (kOutOfRange) if they are not. 0: half of what this process may use, by the machine, its
  // control groups and its own limits.
  int64_t memory_budget = 0;
  // Requests that are prepared, wait or run, over all models; more are refused
  // (kResourceExhausted).
  int max_requests = 4096;
  // ModelConfig::max_queue_wait_us for models that do not set it; 0: not bounded.
  int64_t max_queue_wait_us = 0;
  // Whether to time a model at load if its batches are chosen by cost (cells, packed tokens, padded
  // sequences: up to three seconds; stages: up to twenty), once per model, machine and build. The
  // result is kept in
  // $XDG_CACHE_HOME/chairlift. If false, a kept result is used, else an estimate.
  bool time_cells = true;
  // Whether models may bring a plugin (docs/concepts: cells.md, stages.md): a shared library in the
  // model's folder, which runs as part of this process. If false, a model with one is refused.
  bool allow_plugins = false;
  // What models are computed on whose settings do not say: ModelConfig::device. Empty: the CPU.
  std::string device = {};
  // Whether models with a tokenizer.json beside them are served texts, too, as the pipelines
  // <name>/embed or <name>/rerank; the first step runs in a worker (docs/guides/embeddings.md).
  bool serve_texts = false;
  // Of models in a repository: where a model's folder has configs/<name>.pbtxt, that is read in
  // place of its other settings. Empty: none is.
  std::string model_config_name = {};
  // Called by one thread at a time, for one model at a time, before its load returns; may be null.
  // It must not call the engine.
  std::function<void(const LoadProgress&)> on_load = {};
};

// Whether a request leaves, or skips stages, from what it has of an output, [rows, row…]. Thread-
// safe; it holds up the worker. An exception fails the request.
using ExitPredicate = std::function<bool(const Tensor& output)>;

// Of a model that is cut into stages, a place where requests may leave early, or skip stages. There
// is a cut behind it.
struct StageExit {
  std::string output = {};  // of the model, computed before its other outputs
  // A request takes the exit if in each of its rows the largest number of the output is at least
  // this (float types; NaN is not).
  std::optional<double> at_least = {};
  // In its place. Null, and `at_least` absent: that of the model's stage plugin.
  ExitPredicate predicate = {};
  // The node or tensor that is the last to be skipped: the request goes on behind it, where there
  // is a cut, too. Empty: it leaves, and is answered.
  std::string skip_to = {};
  // What stands for tensors that are not computed then, by name: for every output of the model that
  // a request that leaves here has not got, and for all that is read behind what is skipped; of
  // equal types and rows.
  std::map<std::string, std::string> instead = {};
};

// A shared library in the model's folder (chairlift/stage_plugin.h).
struct StagePluginFile {
  std::string library = {};
  std::map<std::string, std::string> options = {};
};

// How one model is served. Every field has a default derived from the model; a `model.yaml` beside
// the versions sets the same names.
struct ModelConfig {
  // What it is computed on: "cpu"; "cuda" or "cuda:0", "cuda:1", …, an NVIDIA GPU. A model with an
  // operator that the device has no kernel for is refused, by the operator's name. Empty:
  // EngineOptions::device. Not for functions, pipelines and completions, whose models say it.
  std::string device = {};
  // On a GPU, what is float32 in the model is computed as: empty or "float32": float32; "tf32":
  // float32, but products may round their operands to TensorFloat-32 (10 bits of mantissa);
  // "float16", "bfloat16": in 16 bits, sums in float32. Tensor cores multiply the latter three many
  // times as fast. Inputs and outputs stay float32.
  std::string precision = {};
  std::string policy = {};  // one of KnownPolicies(); empty: chosen from the model
  // Rows; 0: 32 if the model can batch, else 1; for models that run as cells: chosen per cell from
  // its costs. A request with more rows is refused if this is set; otherwise it is a batch by
  // itself.
  int max_batch_size = 0;
  // For models that run on packed tokens: tokens in a batch; a request with more is a batch by
  // itself. 0: chosen from the model's costs. For models that generate: tokens in a step; 0: 256.
  int max_batch_tokens = 0;
  // For models that generate: tokens of a prompt and its answer together. 0: what the model has
  // tables for, else 2048.
  int max_length = 0;
  // Bytes for the keys and values of all requests under way: a request starts when there is room
  // for all that it may grow to. 0: 1 GiB, less where 32 of the longest requests need less, more
  // where one needs more.
  int64_t cache_bytes = 0;
  // Other names for the file's inputs and outputs, from its own; all other settings, requests and
  // answers have these. "{i}", once in both, stands for any number. So a decoder's step of one's
  // own, whose inputs and outputs have other names than exporters give, can be served as one that
  // generates (docs/guides/language-models.md). Not of the encoder beside it.
  std::map<std::string, std::string> names = {};
  // Keys and values that a prompt left are reused by prompts that begin alike, until room is
  // needed.
  bool share_prefixes = true;
  int64_t queue_delay_us = 0;  // how long the oldest request may wait for others
  // Target latency. For the policy length_dp with a queue_delay: requests are not held back once
  // half of it is about to be spent. For the policy staged: nobody joins a batch of which a
  // request would then miss it. 0: unset.
  int64_t latency_objective_us = 0;
  // For the policy cellular: how much longer than one step of a recurrence a task may take that
  // runs several, so that newcomers wait no longer than that. 0: one step a task. Absent: 200.
  std::optional<int64_t> step_slice_us = {};
  // For the policies staged and cellular, of a model without recurrences: how many stages it is cut
  // into, at most 64; 0: chosen from the model.
  int stages = 0;
  // In their place, the nodes or tensors after each of which it is cut, in any order.
  std::vector<std::string> stages_after = {};
  // For the policy staged: the buffers between two stages, in pairs. 1: batches run one after the
  // other; more: as a pipeline.
  int buffer_pairs = 2;
  // Nobody joins a batch that was made longer ago. 0: who joins follows from what stages cost.
  int64_t stretch_within_us = 0;
  // In place of the policy's own conditions for new batches, stretch and split.
  StagePolicyFactory stage_policy = {};
  // Where a model that is cut into stages may be left early; the earliest first. Of several of one
  // output the first that holds is taken.
  std::vector<StageExit> exits = {};
  // Brings the stage policy, and predicates of exits, where these are not set.
  StagePluginFile stage_plugin = {};
  // For models of sequences where padding is not proved to change nothing: the input that marks the
  // tokens that count with 1, trusted to hide all others. The model's requests then share padded
  // batches. The mask is tried on a few requests at load, which proves nothing. Empty: no mask is
  // trusted.
  std::string trusted_mask = {};
  std::vector<int> preferred_batch_sizes = {};
  int max_queue_size = 1024;  // requests waiting; more are refused (kResourceExhausted)
  // The longest expected wait of a new request, from the cost of recent batches; a request that
  // would wait longer is refused at once (kResourceExhausted). 0: not bounded. Until costs are
  // known, only max_queue_size bounds the queue. Of a pipeline: the waits in the queues of all its
  // steps together.
  std::optional<int64_t> max_queue_wait_us = {};
  int64_t default_timeout_us = 0;  // timeout of requests that set none; 0: none
  std::set<std::string> disabled_passes = {};
  // For models that run as cells: an embedding that only the first layer's input projection reads
  // is replaced by a table of its projected rows, if the table takes at most this many bytes. It
  // saves the projection. 0: never.
  int64_t max_embedding_bytes = 0;
  // State that the engine keeps between the requests of a sequence: from the output that leaves it
  // to the input of the next request that takes it. Clients of a sequence neither send nor get
  // these two.
  std::map<std::string, std::string> sequence_state = {};
  int max_sequences = 4096;               // live at once; more are refused (kResourceExhausted)
  int64_t sequence_idle_us = 60'000'000;  // a sequence without a request for this long has ended
  // Bytes for answers, reused when a request comes again byte for byte; 0: no cache. Requests with
  // a client, a sequence or a parts callback are always computed.
  int64_t response_cache_bytes = 0;
  // For a model of cells whose model.yaml names an unfold plugin: unfolds in its place, and no
  // library is loaded. Not settable in model.yaml.
  MakeUnfolders unfold = {};
  // Of a function: its settings (docs/guides/python-models.md), by name, as in a model.yaml; they
  // come before those of its file.
  std::map<std::string, std::string> function = {};
  // Of a pipeline, or a function that asks other models: for the models that its files name, what
  // they are called in this engine, where that is another name. Not settable in model.yaml.
  std::map<std::string, std::string> model_names = {};
  // Triton's config.pbtxt that these settings are from: what it says of inputs, outputs, sequences
  // and labels holds, too. Not settable in model.yaml.
  std::string config_file = {};
  // It may bring a plugin or a function though not all models may (EngineOptions::allow_plugins).
  // Not settable in model.yaml.
  bool allow_plugins = false;
  // Asked now and then while the model loads; true: the load ends (kCancelled).
  std::function<bool()> interrupted = {};
  // Settings that the model or its policy does not use are dropped, and the diagnosis says so; by
  // default they are refused. For settings written for another server; not settable in model.yaml.
  bool drop_unused = false;
};

struct TensorSpec {
  std::string name = {};
  DType dtype = DType::kUndefined;
  std::vector<int64_t> shape = {};  // −1 where it varies
};

// A cell of a model that runs as cells.
struct CellBatching {
  std::string name = {};
  // Rows: a batch of fewer than `min` costs as much as one of `min`; a batch has at most `max` or,
  // where many requests wait, `most`, unless a single request has more.
  int min_batch_size = 1;
  int max_batch_size = 1;
  int most_batch_size = 1;
  // Measured time of a batch on one worker, by rows. Empty: not timed.
  std::map<int, std::chrono::nanoseconds> costs = {};
};

// Whether one kind of program serves a model, and why not.
struct ProgramChoice {
  std::string kind = {};     // "cells", "packed", "padded", "staged", …
  std::string summary = {};  // how it runs requests
  std::string refused = {};  // why it does not serve the model; empty: it does
};

struct ModelMetadata {
  std::string name = {};
  std::string version = {};
  std::string platform;  // "onnx_chairlift"
  std::vector<std::string> versions;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  bool batches = false;  // requests share batches along dimension 0
  // Rows that a request may bring, where the model's config.pbtxt says so: dimension 0 of all
  // inputs and outputs is the batch, whether or not requests share one. 0: there is none.
  std::optional<int> max_rows = {};
  bool sequences_only = false;              // each request must be of a sequence
  std::set<std::string> shown_states = {};  // outputs of sequence_state that clients get as others
  // Names of the classes, by place in its scores, of a model that classifies texts.
  std::vector<std::string> labels = {};
  ModelConfig config;  // as in force, defaults filled in

  // The configuration that the model was loaded with, as Triton has it in JSON; empty where it has
  // none of Triton's.
  std::string triton_config = {};

  // Whether dimension 0 of inputs and outputs is the batch.
  bool has_batch() const { return max_rows ? *max_rows > 0 : batches; }
  // Text: what varies, which policy, and why; which classes of requests run one by one.
  std::string diagnosis;
  std::vector<CellBatching> cells;  // empty where the model runs whole
  // In the order they were tried; the last one serves the model.
  std::vector<ProgramChoice> programs;
};

struct NamedTensor {
  std::string name = {};
  Tensor tensor = {};
};

// Time steps [first, first + n) of one row of the answer, sent before all of it is computed.
struct InferPart {
  int64_t row = 0;  // of the batch
  int64_t first = 0;
  std::vector<NamedTensor> outputs = {};  // [n, …] each
};

// Parts of one row and output come in the order of their steps. Runs on an engine thread (or on
// the caller's, before InferAsync() returns), one call at a time, never after the request's
// callback; it must not block. Parts produced while it runs come with the next call.
using PartsCallback = std::function<void(std::span<const InferPart>)>;

struct InferRequest {
  std::string model = {};
  std::string version = {};  // empty: the latest
  std::string id = {};       // echoed
  std::vector<NamedTensor> inputs = {};
  std::vector<std::string> outputs = {};  // wanted; empty: all
  // Outputs in whose place the largest scores of each row are wanted, as texts
  // "score:class:label", and how many of them. BYTES [rows, number], without rows [number].
  std::map<std::string, int> classes = {};
  // Requests of one client are answered in their order, except that refusals come at once.
  // 0: no client.
  uint64_t client = 0;
  // Who asks: when a queue fills up, groups (addresses) get equal shares of it, and so do the
  // members (connections) of each. All that leave it out are one.
  struct Caller {
    uint64_t group = 0;
    uint64_t member = 0;
  };
  Caller caller = {};
  // Not empty: the sequence this request belongs to, of a model with sequence_state. Requests of a
  // sequence run one after the other, in order of arrival. `sequence_start` resets the state to
  // zeros; a request without it whose sequence is not live is refused (kInvalidArgument).
  std::string sequence = {};
  bool sequence_start = false;
  bool sequence_end = false;  // drop the state after this request
  // From the call on; when it has passed, the answer is kDeadlineExceeded at once, whether the
  // request waits or runs.
  std::optional<std::chrono::microseconds> timeout = {};
  // Not empty: called with the answer's parts as they are produced. Only models that run as cells
  // produce parts, and only of outputs with a time axis; the answer contains them again, with the
  // padding of rows that ended early.
  PartsCallback on_parts = {};
  // With `on_parts`: the caller does not need the parts again in the answer. A Python generator's
  // answer then leaves out the outputs that came in parts, and they are not kept for it.
  bool parts_once = false;
  // With `on_parts`: returns how many bytes of the parts still wait to be read. It is called on an
  // engine thread and must not block. A Python generator is held back while there are many. Empty:
  // it is never held back.
  std::function<int64_t()> unread = {};
  // For Infer(): called some 20 times a second on the thread that waits, without locks; true
  // cancels the request, and Infer() returns kCancelled without waiting for its batch to end.
  std::function<bool()> interrupted = {};
};

struct InferResponse {
  std::string model = {};
  std::string version = {};
  std::string id = {};
  std::vector<NamedTensor> outputs;
  std::chrono::nanoseconds queue_time{0};
  std::chrono::nanoseconds compute_time{0};
  int batch_rows = 0;  // rows of the batch it rode in; 0: it came from the response cache
};

// How many values are at most bounds[i] and above the bound before; the last count is of those
// above all bounds.
struct Histogram {
  std::vector<double> bounds = {};
  std::vector<uint64_t> counts = {};
  double sum = 0;  // of the values
};

// Of a model that generates (docs/guides/language-models.md).
struct GenerationStatistics {
  // Requests now: that wait for room for their keys and values, or for the first piece of their
  // prompt; and those under way.
  int waiting = 0;
  int live = 0;
  // Since load: of prompts (with an encoder, of sources) whose first token has come, and of
  // answers.
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  // Likewise, how often a request gave its keys and values to older ones, to be computed again.
  uint64_t preempted = 0;
  // Of keys and values, now.
  int64_t blocks = 0;
  int64_t blocks_used = 0;
  int64_t block_tokens = 0;            // for which a block has room
  int64_t tokens_held = 0;             // in the blocks in use; what requests share counts once
  Histogram first_token_seconds = {};  // from a request's arrival
  Histogram between_tokens_seconds = {};
};

// Counters since load, as in the protocol's statistics.
struct ModelStatistics {
  std::string name = {};
  std::string version = {};
  struct Count {
    uint64_t count = 0;
    uint64_t ns = 0;
  };
  uint64_t inference_count = 0;  // rows
  // Batches. For models that run as cells, a batch of one cell counts as a fraction of its
  // requests' work, so that rows / executions is the mean batch for every kind of model.
  uint64_t execution_count = 0;
  int64_t last_inference_ms = 0;  // since the epoch
  Count success, fail, queue, compute_input, compute_infer, compute_output;
  // Of the response cache. A hit is a success, but not an inference; its time is the whole
  // request's, a miss's only the lookup's.
  Count cache_hit, cache_miss;
  std::map<std::string, uint64_t> failures;  // by reason: "timeout", "queue_full", ...
  std::map<int, Count> batches;              // by rows: executions and their compute time
  uint64_t padded_rows = 0;
  int waiting = 0;
  int running = 0;
  std::optional<GenerationStatistics> generation = {};  // absent: the model does not generate
};

struct TraceOptions {
  // 48 per task, 8 per request in it, 24 per node. A task whose nodes alone take more is dropped
  // with all that follow.
  size_t max_bytes = size_t{64} << 20;
  bool nodes = false;  // also each node of the models' graphs
};

// A node of a model's optimised graph, and how long it took.
struct NodeProfile {
  std::string model = {};
  std::string cell = {};            // empty if the model runs whole
  std::string node = {};            // its name in the file, or one made up
  std::string op = {};              // "Conv"
  std::string implementation = {};  // "winograd"; empty: the operator has only one
  std::string refused = {};         // implementations tried before, and why they refused
  std::string shapes = {};          // "[1,3,224,224], [64,3,7,7] -> [1,64,112,112]"
  double flops = 0;                 // per run, of products and convolutions; 0: not counted
  double bytes = 0;                 // per run, of all operands
  // Of a Loop or Scan: how often its first run went through the body; −1: no loop.
  int64_t iterations = -1;
  uint64_t runs = 0;
  // Without the nodes of its own bodies (If, Loop, Scan).
  std::chrono::nanoseconds median{0};
  std::chrono::nanoseconds total{0};
};

// A timeline of what the workers ran.
struct Trace {
  // Chrome's trace event format, for ui.perfetto.dev or chrome://tracing: a track per worker, a
  // slice per task, named after its cell, or its model if that runs whole; its rows, steps (the
  // rows are the first's; `cells` are those of all steps) and requests in `args`. If nodes are
  // traced, a slice per node under its task's. Times in µs after StartTrace().
  std::string json;
  uint64_t tasks = 0;
  uint64_t dropped = 0;  // tasks after max_bytes was full
  // If nodes are traced: one entry per node and shape class, the largest total first.
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
  virtual ~Engine() = default;  // as Shutdown(0)

  // Loads one .onnx file (or a version folder with cells, docs/concepts/cells.md) as version
  // `version` of `name`, replacing that version when it is ready.
  virtual Status LoadModel(const std::string& name, const std::string& path,
                           const ModelConfig& config, const std::string& version = "1") = 0;
  // Adds a folder of <name>/<version>/model.onnx with optional <name>/model.yaml or Triton's
  // <name>/config.pbtxt, for LoadFromRepository(), which loads the latest version, or those that
  // the file names.
  virtual Status AddRepository(const std::string& directory) = 0;
  // `config`: not empty: Triton's model configuration as JSON, which stands for what its folder
  // says, until the model is loaded again.
  virtual Status LoadFromRepository(const std::string& name, const std::string& config = "") = 0;
  // Has a loaded model take texts, as EngineOptions::serve_texts does at load; `path` is its file.
  // NotFound where there is no tokenizer.json beside it, InvalidArgument where it is not known how
  // texts would be answered. Null, or as ModelConfig::interrupted.
  virtual Status LoadTexts(const std::string& name, const std::string& path,
                           const std::function<bool()>& interrupted) = 0;
  // Refuses new requests, lets the accepted ones end, frees the model. Empty version: all.
  virtual Status UnloadModel(const std::string& name, const std::string& version = "") = 0;

  // Returns within about a millisecond: requests that take longer to validate, look up or unfold,
  // and all that run a plugin's code, are prepared on an engine thread.
  // `callback` runs exactly once, on an engine thread (or on the caller's, if the request is
  // refused or answered from the response cache at once); it must not block. The request id is
  // valid for Cancel() until then.
  virtual RequestId InferAsync(InferRequest request, InferCallback callback) = 0;
  // Waits for the answer. Tasks of the request alone that are too short to wake a thread for run on
  // the calling thread, which needs the stack that threads have by default.
  virtual StatusOr<InferResponse> Infer(InferRequest request);
  // Answers the request with kCancelled: at once if it waits, at the end of its batch if it runs; a
  // batch with no other request stops at the next operator. No effect if it has ended.
  virtual void Cancel(RequestId request) = 0;

  virtual std::vector<ModelIndexEntry> Index() const = 0;
  virtual StatusOr<ModelMetadata> Metadata(const std::string& name,
                                           const std::string& version = "") const = 0;
  // Empty name: all models.
  virtual StatusOr<std::vector<ModelStatistics>> Statistics(
      const std::string& name, const std::string& version = "") const = 0;
  virtual bool ModelReady(const std::string& name, const std::string& version = "") const = 0;
  virtual int workers() const = 0;

  // Discards what was recorded, and records the tasks that workers begin from now on.
  virtual void StartTrace(const TraceOptions& options = {}) = 0;
  // Ends the recording. The tasks that ended since; requests by the id that InferAsync() returned.
  virtual Trace StopTrace() = 0;

  // Refuses new requests, waits up to `drain` for accepted ones, then fails the rest
  // (kUnavailable).
  virtual void Shutdown(std::chrono::milliseconds drain) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_H_
