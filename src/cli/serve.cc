// `chairlift serve`: runs engine and server until a signal arrives.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/example_request.h"
#include "cli/export_hint.h"
#include "cli/flags.h"
#include "cli/limit_flags.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/server_process.h"
#include "cli/terminal.h"
#include "device/cpu/isa.h"
#include "server/server.h"

namespace chairlift {
namespace {

struct ServeFlags {
  std::vector<std::string> models;
  std::vector<std::string> repositories;
  std::vector<std::string> only;
  std::vector<std::string> settings;  // NAME=VALUE
  std::string name;                   // of the only model; empty: its own name
  EngineOptions engine;
  ServerOptions server;
  // About the time in which load balancers notice. Both phases together end within Kubernetes' 30
  // s.
  int drain_seconds = 5;
  int exit_timeout_secs = 20;
  bool exit_on_error = false;
  std::string control;  // empty: as --load-model is given or not
  bool print_example = false;
  int parent_fd = -1;
  std::string log_level = "info";
};

// The models and folders of models in the positional arguments.
StatusOr<std::vector<ModelPath>> FindModels(ServeFlags& flags) {
  std::vector<ModelPath> models;
  std::map<std::string, std::string> names;
  const bool one = flags.models.size() == 1 && flags.repositories.empty();
  if (!flags.name.empty() && (!one || IsRepository(flags.models[0]))) {
    return Usage(InvalidArgument(
        "--name is for one model that is served alone; models of a repository are named after "
        "their folders"));
  }
  for (const std::string& path : flags.models) {
    if (IsRepository(path)) {
      flags.repositories.push_back(path);
      continue;
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(path));
    if (!flags.name.empty()) model.name = flags.name;
    const auto [other, is_new] = names.emplace(model.name, path);
    if (!is_new) {
      return Usage(InvalidArgument(
          "{} and {} would both be served as '{}': rename one, or put them in folders of their "
          "names, as <name>/model.onnx",
          other->second, path, model.name));
    }
    models.push_back(std::move(model));
  }
  for (const std::string& setting : flags.settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) return Usage(InvalidArgument("{}", NoValueOf(setting)));
    if (models.empty()) {
      return Usage(InvalidArgument(
          "--set {}: settings are for models that are named by their file or folder; for those of "
          "a repository, write a model.yaml",
          setting));
    }
    for (ModelPath& model : models) {
      const Status set =
          ApplyGiven(setting.substr(0, equals), setting.substr(equals + 1), false, model);
      if (!set.ok()) return Usage(Annotate(set, "--set"));
    }
  }
  return models;
}

bool WantsAll(const ServeFlags& flags) {
  return flags.control == "none" || std::count(flags.only.begin(), flags.only.end(), "*") > 0;
}

// The models in the repositories, or the selected ones.
std::vector<std::string> NamesToLoad(const Engine& engine, const ServeFlags& flags) {
  if (!WantsAll(flags)) return flags.only;
  std::vector<std::string> names;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state == ModelState::kReady) continue;
    if (names.empty() || names.back() != entry.name) names.push_back(entry.name);
  }
  return names;
}

// Models of a repository that could not be loaded.
struct Failures {
  Status first;
  int count = 0;
  bool logged = false;  // each as it happened; the only model of a server is not

  // The end of an error that these failures cause.
  std::string Why() const {
    if (!logged) return ": " + Message(first);
    return count == 1 ? "; the error above says why" : "; the errors above say why";
  }
};

// Files that a repository's reader may expect to be served.
void WarnOfLooseFiles(const std::string& repository) {
  const std::vector<std::string> loose = LooseModelFiles(repository);
  if (loose.empty()) return;
  const std::string others = loose.size() == 1 ? "" : fmt::format(" and {} more", loose.size() - 1);
  spdlog::warn(
      "{}: {}{} {} in the repository itself, and {} not served: put each file into a folder of its "
      "own, as {}/model.onnx, or name the files to `serve`",
      repository, loose[0], others, loose.size() == 1 ? "lies" : "lie",
      loose.size() == 1 ? "is" : "are", std::filesystem::path(loose[0]).stem().string());
}

// A model of a repository that fails to load is logged and left out.
Status Load(Engine& engine, const std::vector<ModelPath>& models, const ServeFlags& flags,
            Failures* failures) {
  for (const ModelPath& model : models) {
    CHAIRLIFT_RETURN_IF_ERROR(
        engine.LoadModel(model.name, model.path, model.config, model.version));
  }
  const auto ready = [&] {
    std::set<std::string> names;
    for (const ModelIndexEntry& entry : engine.Index()) {
      if (entry.state == ModelState::kReady) names.insert(entry.name);
    }
    return names;
  };
  for (const std::string& folder : flags.repositories) WarnOfLooseFiles(folder);
  const std::set<std::string> ready_before = ready();
  const std::vector<std::string> names = NamesToLoad(engine, flags);
  failures->logged = models.size() + names.size() > 1 && spdlog::should_log(spdlog::level::err);
  for (const std::string& name : names) {
    // As a step of a pipeline that was loaded before it.
    if (!ready_before.contains(name) && ready().contains(name)) continue;
    const Status status = engine.LoadFromRepository(name);
    if (status.ok()) continue;
    ++failures->count;
    failures->first.Update(status);
    if (failures->logged) spdlog::error("model not loaded: {}", Message(status));
  }
  return absl::OkStatus();
}

// Logs how each ready model runs; returns how many there are that clients can name.
StatusOr<int> ReportReady(const Engine& engine) {
  int ready = 0;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    if (entry.name.find('/') == std::string::npos) ++ready;  // others are parts of these
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata,
                               engine.Metadata(entry.name, entry.version));
    spdlog::info("{} version {}: {}", entry.name, entry.version, metadata.diagnosis);
    if (const int64_t batch = FixedBatch(metadata); batch > 0 && RunsOneByOne(metadata)) {
      spdlog::warn("{}: the file fixes the batch to {}, so that requests run one by one; {}",
                   entry.name, batch, ExportHint(metadata));
    }
  }
  return ready;
}

// Replaces the server option at the start of a message by its flag. An invalid value of an option
// is an error of the command line.
Status InFlags(const Status& status) {
  std::string text = Message(status);
  const size_t end = text.find_first_of(" :");
  std::string flag = text.substr(0, end);
  if (flag == "cors_origins") flag = "cors_allow_origin";
  const bool is_name = flag.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  if (flag == "address" || (is_name && flag.find('_') != std::string::npos)) {
    std::replace(flag.begin(), flag.end(), '_', '-');
    text = fmt::format("--{}{}", flag, text.substr(end));
  }
  if (absl::IsInvalidArgument(status)) return Usage(InvalidArgument("{}", text));
  if (flag == "http-port" || flag == "metrics-port") {
    // Ports below 1024 need a privilege. Another port does not help if no more files can be opened.
    const bool no_right = text.find(std::strerror(EACCES)) != std::string::npos;
    const bool in_use = text.find(std::strerror(EADDRINUSE)) != std::string::npos;
    text += no_right ? "; ports below 1024 need CAP_NET_BIND_SERVICE: name a higher port"
            : in_use ? "; name another port, or 0 for any free one"
                     : "";
  }
  return Status(status.code(), text);
}

// Answers the running requests, within the time of the flags, and stops.
Status Stop(const ServeFlags& flags, Engine& engine, Server& server) {
  const auto timeout = std::chrono::seconds(flags.exit_timeout_secs);
  spdlog::info(
      "draining: no new requests; those in flight have {} s (a second signal stops at once)",
      flags.exit_timeout_secs);
  // The engine answers what still runs then with 503.
  constexpr std::chrono::seconds kForAnswers(1);
  std::promise<void> all_answered;
  std::thread cut_off;
  try {
    cut_off = std::thread([&, answered = all_answered.get_future()] {
      if (answered.wait_for(timeout) == std::future_status::timeout) {
        engine.Shutdown(std::chrono::milliseconds(0));
      }
    });
  } catch (const std::system_error&) {
    // No thread could be started: connections that are not answered by then are closed.
  }
  Status drained = server.Drain(timeout + kForAnswers);
  all_answered.set_value();
  if (cut_off.joinable()) cut_off.join();
  engine.Shutdown(kForAnswers);
  if (drained.ok()) spdlog::info("stopped");
  return drained;
}

// Standard output may be closed, or a pipe that nothing reads.
void PrintExample(Engine& engine, const std::string& address) {
  try {
    PrintText("\n{}\n", ExampleRequest(engine, address));
    std::fflush(stdout);
  } catch (const std::system_error& error) {
    spdlog::warn("cannot print the examples: {}", error.what());
  }
}

// What is wrong with the name, which becomes part of a file name; empty: nothing.
std::string CheckConfigName(const std::string& name) {
  if (!name.empty() && name[0] != '.' && name.find('/') == std::string::npos) return "";
  return "it must be the name of a file in configs/, without .pbtxt";
}

Status Serve(ServeFlags flags) {
  ReturnLargeBuffers();
  KeepRunning();
  if (flags.models.empty() && flags.repositories.empty()) {
    return Usage(InvalidArgument(
        "nothing to serve: name a model.onnx, a my.py:function, a model's folder, or a folder of "
        "models"));
  }
  constexpr int64_t kLeastMemory = int64_t{1} << 20;
  if (flags.engine.memory_budget != 0 && flags.engine.memory_budget < kLeastMemory) {
    return Usage(
        InvalidArgument("--memory-budget: {} bytes are too few for any model; it must be "
                        "1MiB or more, or 0 (half of what this process may use)",
                        flags.engine.memory_budget));
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<ModelPath> models, FindModels(flags));
  if (!flags.only.empty() && flags.repositories.empty()) {
    return Usage(
        InvalidArgument("--load-model needs a repository; name one with --model-repository"));
  }
  for (const std::string& directory : flags.repositories) {
    CHAIRLIFT_RETURN_IF_ERROR(CheckRepository(directory));
  }
  if (flags.control.empty()) flags.control = flags.only.empty() ? "none" : "explicit";
  flags.server.model_control = flags.control == "explicit";
  if (!flags.server.model_control && !flags.only.empty()) {
    return Usage(InvalidArgument(
        "--load-model needs --model-control-mode explicit: with 'none' all models are loaded"));
  }
  if (flags.server.http_port != 0 && flags.server.http_port == flags.server.metrics_port) {
    return Usage(InvalidArgument("--http-port and --metrics-port are both {}; each needs its own",
                                 flags.server.http_port));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckParent(flags.parent_fd));
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  // Blocks the signals that are waited for below. While models load, and while the server drains, a
  // signal ends the program at once.
  const sigset_t signals = SignalSet({SIGTERM, SIGINT});
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  flags.engine.on_load = LoadBar();
  flags.engine.serve_texts = true;
  auto created = Engine::Create(flags.engine);
  if (!created.ok()) return InFlags(created.status());
  const std::unique_ptr<Engine> engine = *std::move(created);
  for (const std::string& directory : flags.repositories) {
    CHAIRLIFT_RETURN_IF_ERROR(engine->AddRepository(directory));
  }
  // Before the models: a port in use is reported at once, and early requests are answered.
  flags.server.ready = false;
  auto started = Server::Start(*engine, flags.server);
  if (!started.ok()) return InFlags(started.status());
  const std::unique_ptr<Server> server = *std::move(started);
  spdlog::info("listening on {}; loading models",
               HostAndPort(flags.server.address, server->http_port()));
  if (!IsLoopback(flags.server.address)) {
    spdlog::warn("everyone who can reach {} can use this server (docs/deploy/security.md)",
                 HostAndPort(flags.server.address, server->http_port()));
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  Failures failures;
  CHAIRLIFT_RETURN_IF_ERROR(Load(*engine, models, flags, &failures));
  if (flags.exit_on_error && failures.count > 0) {
    return NotFound("a model could not be loaded (--exit-on-error){}", failures.Why());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int ready, ReportReady(*engine));
  // Without models, clients may still load some.
  const bool may_be_empty = flags.server.model_control && (flags.only.empty() || WantsAll(flags));
  if (ready == 0 && !may_be_empty && failures.count == 0) {
    return NotFound("'{}' holds no models; a repository is <name>/<version>/model.onnx",
                    fmt::join(flags.repositories, "', '"));
  }
  if (ready == 0 && !may_be_empty) {
    return NotFound("no model{} could be loaded{}", flags.only.empty() ? "" : " of --load-model",
                    failures.Why());
  }
  if (failures.count > 0 && !failures.logged) {
    spdlog::error("model not loaded: {}", Message(failures.first));
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  SetWaitsForSignals(true);
  server->SetReady();
  if (ActiveCpuIsa() == CpuIsa::kAmx && flags.engine.precision.empty()) {
    spdlog::info("this machine has AMX: `precision: bfloat16` in a model.yaml uses it");
  }
  spdlog::info("ready: {} on http://{}, {}", Counted(ready, "model"),
               HostAndPort(flags.server.address, server->http_port()),
               Counted(engine->workers(), "worker"));
  if (server->metrics_port() >= 0) {
    spdlog::info("metrics on http://{}/metrics",
                 HostAndPort(flags.server.address, server->metrics_port()));
  }
  ReportTo(flags.parent_fd, flags.server.address, *server);
  if (flags.print_example) {
    PrintExample(*engine, HostAndPort(Reachable(flags.server.address), server->http_port()));
  }

  const int signal = WaitForEnd(flags.parent_fd);
  SetWaitsForSignals(false);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  // Load balancers stop sending when they see that it is not ready. After Ctrl-C there is nothing
  // to wait for.
  if (signal == SIGTERM && flags.drain_seconds > 0) {
    server->BeginDrain();
    spdlog::info("draining: no longer ready; requests are still answered for {} s",
                 flags.drain_seconds);
    std::this_thread::sleep_for(std::chrono::seconds(flags.drain_seconds));
  }
  return Stop(flags, *engine, *server);
}

}  // namespace

Command AddServe(CLI::App& parser) {
  auto flags = std::make_shared<ServeFlags>();
  // Many clients give up after that; a longer queue would only delay all of them.
  flags->engine.max_queue_wait_us = 30'000'000;
  parser.footer(R"(Examples:
  chairlift serve model.onnx                     one file, named after the file
  chairlift serve models/identity                the folder of one model
  chairlift serve minilm/onnx/model_int8.onnx    one file of a Hugging Face repository
  chairlift serve models                         every model of a repository
  chairlift serve my.py:predict                  a Python function
  curl localhost:8000/v2/models/NAME             the inputs and outputs of a model
  curl localhost:8000/v2/models/NAME/infer -d '{"inputs": [{"name": "x", "shape": [1, 2],
       "datatype": "FP32", "data": [1, 2]}]}'

A model file needs no configuration: Chairlift derives batching from the model. A repository
holds <name>/<version>/model.onnx, <name>/model.onnx or <name>/onnx/model.onnx. Settings may
be in <name>/model.yaml or in Triton's <name>/config.pbtxt (docs/reference/repositories.md).

Settings of model.yaml. A setting that is absent is chosen from the model. If a comment begins
with policies, only they use the setting.
  policy: window             # or none; encoders: packed, length_dp, naive; decoders: continuous;
                             # recurrent models: cellular, bucketed, graph_merge;
                             # models in stages: staged, cellular (docs/concepts)
  max_batch_size: 32         # rows in a batch; for models that run as cells: by measured cost
  max_batch_tokens: 0        # tokens: tokens in a batch, 0: by measured cost;
                             # continuous: tokens in a step, 0: 256
  queue_delay_us: 0          # window, length_dp, staged: longest wait for more requests
  preferred_batch_sizes: []  # window: a batch of one of these sizes does not wait
  latency_objective_us: 0    # length_dp: stop waiting after half of this;
                             # staged: no request joins if another would exceed this
  max_queue_size: 1024       # requests that may wait; more are refused (503)
  max_queue_wait_us: 30000000  # longest expected wait; default: --max-queue-wait-us
  default_timeout_us: 0      # timeout of requests that set none; 0: no timeout
  response_cache_bytes: 0    # memory for a cache of answers; 0: no cache
  max_length: 0              # continuous: tokens of a prompt and its answer together
  kv_cache_bytes: 0          # continuous: memory for keys and values; 0: by the model
  prefix_caching: true       # continuous: compute a shared beginning of prompts once
  time_slice_us: 200         # cellular: time that a task may run before new requests can join
  stages: 4                  # staged, cellular: number of stages, or a list of the nodes or
                             # tensors that end a stage
  buffer_pairs: 2            # staged: 1: one batch at a time; more: a pipeline
  join_window_us: 0          # staged: how long a batch accepts requests; 0: by measured cost
  exits: [{output: a, ...}]  # staged, cellular: early exits, or stages to skip
  stage_plugin: {library: p} # staged: your own conditions for exits and batches
  padding_mask: mask         # length_dp, naive: the input that masks padding
  sequence_state: {}         # state between requests, output: input (docs/reference/http.md)
  max_sequences: 4096        # sequences at a time
  max_sequence_idle_us: 60000000  # a sequence ends after this time without a request
  tensor_names: {}           # other names for inputs and outputs, in file: served
  device: cpu                # or cuda, cuda:1: an NVIDIA GPU
  precision: float32         # or bfloat16; on a GPU also tf32, float16
  disabled_passes: []        # see `chairlift inspect MODEL --passes`
  max_folded_embedding_bytes: 0  # memory for an embedding folded into the first layer
  versions: latest           # or all, or [1, 2]
  file: onnx/model_int8.onnx # instead of model.onnx
  pooling: mean              # text embeddings: or cls, max, … (docs/guides/embeddings.md)
  normalize: true            # text embeddings: scale vectors to length 1
  python: my.py:predict      # a Python model; docs/guides/python-models.md has its other settings
  steps: [{model: a}, ...]   # a pipeline of other models (docs/guides/pipelines.md)
  cells: {...}               # a model made of cells; also `unfold` (docs/concepts/cells.md)

Tokenizers and Python models need a Python with numpy. Chairlift looks for it in CHAIRLIFT_PYTHON,
VIRTUAL_ENV, a .venv or venv beside this program, beside the function or in the working
directory, then python3. The log says which one it takes, and what is missing there.

Signals: after SIGTERM the server reports that it is not ready, and answers requests for
--drain-seconds. It then stops accepting requests, and finishes those in flight within
--exit-timeout-secs. Ctrl-C skips the first step. A second signal stops at once. SIGHUP is
ignored.)");
  TakesModel(
      parser.add_option("MODEL", flags->models,
                        "ONNX files, Python functions (FILE.py:NAME), folders of a model, or "
                        "repositories"));
  parser
      .add_option("--model-repository", flags->repositories,
                  "Repository: a folder of models; may be repeated")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  parser
      .add_option("--load-model", flags->only,
                  "Load only this model of the repositories ('*': all); may be repeated")
      ->type_name("NAME");
  parser
      .add_option("--model-control-mode", flags->control,
                  "none: load all models at start; clients cannot load or unload models.\n"
                  "explicit: load those of --load-model ('*': all); clients can load and unload.\n"
                  "Default: explicit with --load-model, else none")
      ->check(CLI::IsMember({"none", "explicit"}))
      ->type_name("MODE");
  parser
      .add_option("--model-config-name", flags->engine.model_config_name,
                  "Read <model>/configs/NAME.pbtxt, where it exists, instead of the model's\n"
                  "config.pbtxt or model.yaml")
      ->check(CheckConfigName)
      ->type_name("NAME");
  parser
      .add_option("--set", flags->settings,
                  "Override a setting of model.yaml for every MODEL, as max_batch_size=64;\n"
                  "may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  parser
      .add_option(
          "--name", flags->name,
          "Name of the only MODEL. Default: the name of the file, or of the folder if the file\n"
          "is called model.onnx")
      ->check([](const std::string& name) -> std::string {
        return name.empty() ? "the name is empty; give one, or leave --name out" : "";
      })
      ->type_name("NAME");
  parser.add_flag("--print-example", flags->print_example,
                  "Print a tested curl command for each model");
  parser
      .add_option("--log-level", flags->log_level,
                  "Least severe messages to log; debug adds an access log")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->type_name("LEVEL")
      ->capture_default_str();
  AddNumber(parser, "--parent-fd", &flags->parent_fd, -1, 1 << 20, "FD",
            "Socket to the parent process: gets the addresses when the server is ready; when the\n"
            "parent closes it, the server drains and stops; -1: none");
  AddNumber(
      parser, "--drain-seconds", &flags->drain_seconds, 0, 3600, "S",
      "Time after SIGTERM in which the server is not ready but still answers requests, so that\n"
      "load balancers notice");
  AddNumber(parser, "--exit-timeout-secs", &flags->exit_timeout_secs, 0, 3600, "S",
            "Time to finish requests in flight before exit");
  parser.add_flag("--exit-on-error", flags->exit_on_error,
                  "Exit if a model of a repository cannot be loaded. Default: serve the others");
  parser.add_flag("--strict-readiness", flags->server.strict_readiness,
                  "Report not ready (503) while any requested model is not loaded. Default: ready\n"
                  "with the models that are loaded");

  constexpr const char* kNetwork = "Network";
  parser
      .add_option("--address", flags->server.address,
                  "IP address to listen on; 0.0.0.0: all addresses; IPv6 as [::1]")
      ->type_name("IP")
      ->group(kNetwork)
      ->capture_default_str();
  AddNumber(parser, "--http-port", &flags->server.http_port, 0, 65535, "PORT",
            "HTTP port; 0: a free port")
      ->group(kNetwork);
  AddNumber(parser, "--metrics-port", &flags->server.metrics_port, -1, 65535, "PORT",
            "Port for /metrics; 0: a free port; -1: no metrics port")
      ->group(kNetwork);
  parser
      .add_flag("--http-metrics", flags->server.http_metrics, "Serve /metrics on the HTTP port too")
      ->group(kNetwork);
  parser
      .add_option("--allowed-host", flags->server.allowed_hosts,
                  "Host name in URLs of clients that load or unload models; IP addresses and\n"
                  "localhost are always allowed; may be repeated")
      ->check([](const std::string& name) -> std::string {
        const bool is_name = !name.empty() && name.find_first_of("/: ") == std::string::npos;
        if (is_name) return "";
        return fmt::format(
            "'{}' is not a host name; write it without scheme and port, as "
            "models.example.org",
            name);
      })
      ->type_name("NAME")
      ->group(kNetwork);
  AddNumber(parser, "--io-threads", &flags->server.io_threads, 1, 64, "N",
            "Threads that read requests; add threads for many clients that send JSON")
      ->group(kNetwork);
  AddNumber(parser, "--codec-threads", &flags->server.codec_threads, 1, 64, "N",
            "Threads that decode large requests and encode large answers")
      ->group(kNetwork);

  parser
      .add_option("--cors-allow-origin", flags->server.cors_origins,
                  "Origin whose pages may call this server from a browser, as https://host:port;\n"
                  "*: all; may be repeated")
      ->type_name("ORIGIN")
      ->group(kNetwork);

  constexpr const char* kCompute = "Compute";
  parser
      .add_flag(
          "!--no-autotune", flags->engine.autotune,
          "Do not time batches when a model is first loaded. Timing takes up to 8 s, chooses\n"
          "batch sizes and stages, and is kept in the cache folder")
      ->group(kCompute);
  AddWorkers(parser, &flags->engine.workers)->group(kCompute);
  AddDevice(parser, &flags->engine.device)->group(kCompute);
  AddPrecision(parser, &flags->engine.precision)->group(kCompute);
  parser.add_option("--cores", flags->engine.cores, "CPU cores to pin the workers to, as 0,1,2")
      ->delimiter(',')
      ->group(kCompute)
      ->type_name("LIST");
  AddNumber(parser, "--max-requests", &flags->engine.max_requests, 1, 1 << 20, "N",
            "Requests in flight over all models; more are refused (503)")
      ->group(kCompute);
  AddNumber(
      parser, "--max-queue-wait-us", &flags->engine.max_queue_wait_us, 0, 3'600'000'000, "US",
      "Refuse a request (503) if its expected wait is longer, by the cost of recent batches;\n"
      "0: no limit")
      ->group(kCompute);
  CLI::Option* const budget = parser.add_option(
      "--memory-budget", flags->engine.memory_budget,
      "Memory for intermediate results and outputs, as 4GiB. Each worker has an equal share; a\n"
      "request that needs more runs in parts or is refused (400). 0: half of the available\n"
      "memory");
  TakesBytes(budget, 0);
  budget->group(kCompute)->capture_default_str();
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddLimitFlags(parser, &flags->server.limits);
  return [flags] { return Serve(*flags); };
}

}  // namespace chairlift
