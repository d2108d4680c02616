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

#include "chairlift/status.h"
#include "chairlift/tensor.h"

namespace chairlift {

// How far the load of a model has come.
struct LoadProgress {
  std::string model;
  std::string step;  // "timing batches"; empty: the load is over, whatever came of it
  double done = 0;   // of the step, from 0 to 1; stays 0 where it is unknown
};

// Members are initialised one by one so that designated initialisers may name only some of them.
struct EngineOptions {
  // Workers, each with a thread of its own on a core of its own. 0: one for each core this process
  // may run on.
  int workers = 0;
  // The cores to pin them to, one a worker; empty: the cores this process may run on, in order.
  std::vector<int> cores = {};
  // What tasks may have at once of intermediates and outputs, all workers together: each has an
  // equal share of it. A request that needs more runs in parts where its rows are apart, and is
  // refused (kOutOfRange) where they are not. 0: half of what this process may use, by the machine,
  // its control groups and its own limits.
  int64_t memory_budget = 0;
  // Requests in preparation, waiting or running over all models; more are refused
  // (kResourceExhausted).
  int max_requests = 4096;
  // Of models that set none of their own: ModelConfig::max_queue_wait_us; 0: not bounded.
  int64_t max_queue_wait_us = 0;
  // Whether a model whose batches are chosen by what they cost (cells, packed tokens, padded
  // sequences) is timed when it is loaded: up to three seconds, once for each model, machine and
  // build; what is measured is kept in $XDG_CACHE_HOME/chairlift. Without, what is kept counts, and
  // otherwise a guess.
  bool time_cells = true;
  // Whether models may bring an unfold plugin (docs/cells.md): a shared library in the model's
  // folder, which runs as part of this process. A model with one is refused where this is false.
  bool allow_plugins = false;
  // Called by one thread at a time, for one model at a time, before its load returns; may be null.
  // It must not call the engine.
  std::function<void(const LoadProgress&)> on_load = {};
};

// How one model is served. Every field has a default derived from the model; a `model.yaml` beside
// the versions sets the same names.
struct ModelConfig {
  std::string policy = {};  // one of KnownPolicies(); empty: chosen from the model
  // Rows; 0: 32 where the model can batch, else unbatched; of a model that runs as cells, for each
  // cell what suits its costs. A request with more rows is refused where this was set, and makes a
  // batch of its own where it was not.
  int max_batch_size = 0;
  // Of a model of sequences that runs on packed tokens: tokens in a batch; a request with more
  // makes a batch of its own. 0: what suits its costs.
  int max_batch_tokens = 0;
  int64_t queue_delay_us = 0;  // how long the oldest request may wait for company
  // What an answer may take, for the policy length_dp with a queue_delay: it holds nothing back any
  // more where half of this is about to be spent. 0: unset.
  int64_t latency_objective_us = 0;
  // Of a model of sequences of which it is not proved that padding changes nothing: the input that
  // marks with 1 the tokens that count, trusted to hide all others. Its requests share batches that
  // are padded. It is tried on a few requests when the model is loaded, which proves nothing.
  // Empty: none is trusted.
  std::string trusted_mask = {};
  std::vector<int> preferred_batch_sizes = {};
  int max_queue_size = 1024;  // requests waiting; more are refused (kResourceExhausted)
  // How long a new request may be expected to wait for its turn, by what the batches of late have
  // cost; where it is longer the request is refused at once (kResourceExhausted). 0: not bounded.
  // As long as nothing is known of the costs, max_queue_size bounds alone.
  std::optional<int64_t> max_queue_wait_us = {};
  int64_t default_timeout_us = 0;  // deadline of requests that bring none; 0: none
  std::set<std::string> disabled_passes = {};
  // Of a model that is cut into cells: an embedding that only the first layer's input projection
  // reads becomes a table of what the projection makes of its rows, where that takes at most so
  // many bytes. It saves the projection. 0: never.
  int64_t max_embedding_bytes = 0;
  // State that stays with the engine between the requests of a sequence: the output that leaves it
  // and the input that the next request of the sequence takes it by. Both vanish from what clients
  // of a sequence send and get.
  std::map<std::string, std::string> sequence_state = {};
  int max_sequences = 4096;               // live at once; more are refused (kResourceExhausted)
  int64_t sequence_idle_us = 60'000'000;  // a sequence that hears nothing for so long has ended
  // Memory for answers that are given again when a request comes again, byte for byte; 0: none.
  // Requests of a client, of a sequence, and for parts are computed every time.
  int64_t response_cache_bytes = 0;
  // A setting that the model or its policy has no use for is dropped, and the diagnosis says so,
  // rather than refused. For settings that were written for another server; a model.yaml has none.
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
  // Rows: with fewer than `min` a batch costs as much as with `min`; it never has more than `max`
  // unless one request brings them.
  int min_batch_size = 1;
  int max_batch_size = 1;
  // Measured, by rows: the time of a batch on one worker. Empty: not timed.
  std::map<int, std::chrono::nanoseconds> costs = {};
};

// What a kind of program said when it was asked to serve a model.
struct ProgramChoice {
  std::string kind = {};     // "cells", "packed", "padded", "specialised", "whole"
  std::string summary = {};  // what it does for requests
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
  ModelConfig config;    // as in force, defaults filled in
  // In words: what varies, which policy, and why; which classes of requests run one by one.
  std::string diagnosis;
  std::vector<CellBatching> cells;  // empty where the model runs whole
  // In the order in which they were asked; the last one serves the model.
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

// Parts come in the order of their steps within a row and output. Runs on an engine thread (or on
// the caller's, before InferAsync() returns), one call at a time, never after the request's
// callback; it must not block. What comes while it runs, comes with its next call.
using PartsCallback = std::function<void(std::span<const InferPart>)>;

struct InferRequest {
  std::string model = {};
  std::string version = {};  // empty: the latest
  std::string id = {};       // echoed
  std::vector<NamedTensor> inputs = {};
  std::vector<std::string> outputs = {};  // wanted; empty: all
  // Answers to requests of one client keep the order of the requests, but for refusals at once.
  // 0: no client.
  uint64_t client = 0;
  // Not empty: this request goes on with that sequence of a model with sequence_state. Requests of
  // a sequence run one after the other, in the order they came. `sequence_start` begins again, from
  // a state of zeros; one that neither starts a sequence nor goes on with a live one is refused
  // (kInvalidArgument).
  std::string sequence = {};
  bool sequence_start = false;
  bool sequence_end = false;  // forget the state after this one
  // From now; when it has passed the answer is kDeadlineExceeded, at once, whether the request
  // waits or runs.
  std::optional<std::chrono::microseconds> timeout = {};
  // Not empty: called with the answer's parts as they are produced. Only models that run as cells
  // have any, and only of outputs with a time axis; the answer holds all of them again, with the
  // padding of rows that ended early.
  PartsCallback on_parts = {};
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

// Counters since load, as in the protocol's statistics.
struct ModelStatistics {
  std::string name = {};
  std::string version = {};
  struct Count {
    uint64_t count = 0;
    uint64_t ns = 0;
  };
  uint64_t inference_count = 0;  // rows
  // Batches. Of a model that runs as cells a batch of one cell counts for its part of the requests
  // that ride in it: rows over executions is the mean batch, however a model is served.
  uint64_t execution_count = 0;
  int64_t last_inference_ms = 0;  // since the epoch
  Count success, fail, queue, compute_input, compute_infer, compute_output;
  // Of the response cache. A hit is a success, but no inference; its time is all it took, a miss's
  // is that of looking.
  Count cache_hit, cache_miss;
  std::map<std::string, uint64_t> failures;  // by reason: "timeout", "queue_full", ...
  std::map<int, Count> batches;              // by rows: executions and their compute time
  uint64_t padded_rows = 0;
  int waiting = 0;
  int running = 0;
};

// A timeline of what the workers ran.
struct Trace {
  // Chrome's trace event format, for ui.perfetto.dev or chrome://tracing: a track a worker, a slice
  // a task, named after its cell, or its model where that runs whole; its rows and requests in
  // `args`. Times in µs after StartTrace().
  std::string json;
  uint64_t tasks = 0;
  uint64_t dropped = 0;  // later tasks, for which there was no memory
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

  // Loads one .onnx file (or the version folder of a model made of cells, docs/cells.md) as version
  // `version` of `name`, replacing that version when it is ready.
  virtual Status LoadModel(const std::string& name, const std::string& path,
                           const ModelConfig& config, const std::string& version = "1") = 0;
  // Names a folder of <name>/<version>/model.onnx with optional <name>/model.yaml or, as Triton has
  // it, <name>/config.pbtxt, to be loaded by LoadFromRepository: the latest version, or those that
  // the file names.
  virtual Status AddRepository(const std::string& directory) = 0;
  virtual Status LoadFromRepository(const std::string& name) = 0;
  // Refuses new requests, lets the accepted ones end, frees the model. Empty version: all.
  virtual Status UnloadModel(const std::string& name, const std::string& version = "") = 0;

  // Keeps the caller about a millisecond at most: what takes longer to validate, to look up or to
  // unfold, and all that runs a plugin's code, is prepared on a thread of the engine's.
  // `callback` runs exactly once, on an engine thread (or on the caller's, when refused, or
  // answered from the response cache, at once); it must not block. The request id is good for
  // Cancel() until then.
  virtual RequestId InferAsync(InferRequest request, InferCallback callback) = 0;
  StatusOr<InferResponse> Infer(InferRequest request);
  // The request leaves at the next boundary with kCancelled: at once where it waits, with its batch
  // where it runs, which ends at the next operator where nobody else rides in it. Nothing happens
  // where it has ended.
  virtual void Cancel(RequestId request) = 0;

  virtual std::vector<ModelIndexEntry> Index() const = 0;
  virtual StatusOr<ModelMetadata> Metadata(const std::string& name,
                                           const std::string& version = "") const = 0;
  // Empty name: all models.
  virtual StatusOr<std::vector<ModelStatistics>> Statistics(
      const std::string& name, const std::string& version = "") const = 0;
  virtual bool ModelReady(const std::string& name, const std::string& version = "") const = 0;
  virtual int workers() const = 0;

  // From now on, what the workers begin is recorded, as far as `max_bytes` go (a task and its
  // requests take 40 bytes and 8 each), instead of what was before.
  virtual void StartTrace(size_t max_bytes = size_t{64} << 20) = 0;
  // What ended since, each request by the number that InferAsync() returned; recording ends.
  virtual Trace StopTrace() = 0;

  // Refuses new requests, waits up to `drain` for accepted ones, fails the rest (kUnavailable).
  virtual void Shutdown(std::chrono::milliseconds drain) = 0;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_H_
