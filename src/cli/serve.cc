// `chairlift serve`: runs engine and server until a signal arrives.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <initializer_list>
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
#include "cli/flags.h"
#include "cli/heap_trim.h"
#include "cli/limit_flags.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
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
  // Many clients give up after this time; a longer queue would only delay all of them.
  int max_queue_wait_ms = 30'000;
  std::string control;  // empty: depends on --load-model
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
    if (equals == std::string::npos || models.empty()) {
      return Usage(InvalidArgument(
          "--set is '{}'; it must be NAME=VALUE, of a model that is named by its file or folder",
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

// A model of a repository that fails to load is logged and left out.
Status Load(Engine& engine, const std::vector<ModelPath>& models, const ServeFlags& flags,
            Status* first_failure) {
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
  const std::set<std::string> ready_before = ready();
  for (const std::string& name : NamesToLoad(engine, flags)) {
    // It was loaded as a step of an earlier pipeline.
    if (!ready_before.contains(name) && ready().contains(name)) continue;
    const Status status = engine.LoadFromRepository(name);
    if (!status.ok()) spdlog::error("not served: {}", Message(status));
    first_failure->Update(status);
  }
  return absl::OkStatus();
}

// Logs how each ready model runs; returns their number.
StatusOr<int> ReportReady(const Engine& engine) {
  int ready = 0;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    ++ready;
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata,
                               engine.Metadata(entry.name, entry.version));
    spdlog::info("{} version {}: {}", entry.name, entry.version, metadata.diagnosis);
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
    text += "; name another port, or 0 for any free one";
  }
  return Status(status.code(), text);
}

// An address at which a server that listens on all addresses can be reached.
std::string Reachable(const std::string& address) {
  if (address == "0.0.0.0") return "127.0.0.1";
  return address == "[::]" || address == "::" ? "[::1]" : address;
}

// Makes the C library return large buffers to the system when they are freed. By default it keeps
// up to 32 MiB of each such size: some hundreds of MiB after a burst.
void ReturnLargeBuffers() {
  constexpr int kLarge = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, 8 * kLarge);
}

// Does not allocate: memory may be exhausted.
int64_t ResidentBytes() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 128> text{};  // total pages, resident pages, …
  const ssize_t bytes = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  char* at = text.data();
  if (bytes > 0) std::strtoll(at, &at, 10);
  return std::strtoll(at, nullptr, 10) * sysconf(_SC_PAGESIZE);
}

// Freed memory in the C library's heaps, whether or not it was returned to the system.
int64_t FreeHeapBytes() { return static_cast<int64_t>(mallinfo2().fordblks); }

// The socket to the parent process, with which this program must end.
Status CheckParent(int descriptor) {
  if (descriptor < 0) return absl::OkStatus();
  int type = 0;
  socklen_t bytes = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) return absl::OkStatus();
  return Usage(InvalidArgument("--parent-fd {}: it is no socket that is open", descriptor));
}
// "127.0.0.1:8000 127.0.0.1:8002"
void ReportTo(int parent, const std::string& address, const Server& server) {
  if (parent < 0) return;
  std::string text = HostAndPort(Reachable(address), server.http_port());
  if (server.metrics_port() >= 0) {
    text += " " + HostAndPort(Reachable(address), server.metrics_port());
  }
  text += "\n";
  (void)::send(parent, text.data(), text.size(), MSG_NOSIGNAL);
}
bool HasEnded(int parent) {
  char byte = 0;
  return parent >= 0 && ::recv(parent, &byte, 1, MSG_DONTWAIT) == 0;
}

sigset_t SetOf(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

// Threads that models start as they load take signals too. Once the server is ready, those are
// handed to the thread that waits for them, where they are blocked.
pthread_t waiting_thread;
std::atomic<bool> is_ready{false};

// Before that, and once it drains, ends the program as the signal does by default. The first
// process of a container has no defaults.
void OnSignal(int number) {
  if (is_ready) {
    ::pthread_kill(waiting_thread, number);
    return;
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
  ::_exit(128 + number);
}

// A closed connection or log pipe must not end the program. Nor must a closed terminal at once:
// SIGHUP waits for WaitForEnd().
void KeepRunning() {
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t hangup = SetOf({SIGHUP});
  pthread_sigmask(SIG_BLOCK, &hangup, nullptr);
  waiting_thread = pthread_self();
  struct sigaction end = {};
  end.sa_handler = OnSignal;
  end.sa_flags = SA_NODEFER;
  for (const int number : {SIGTERM, SIGINT}) ::sigaction(number, &end, nullptr);
}

// Waits for SIGTERM or SIGINT, which are blocked, and returns the one received; 0 if the parent
// ended. Meanwhile returns free memory to the system: the C library returns only the end of each of
// its heaps.
int WaitForEnd(int parent) {
  const sigset_t signals = SetOf({SIGTERM, SIGINT, SIGHUP});
  const timespec interval{.tv_sec = parent < 0 ? 5 : 1, .tv_nsec = 0};
  HeapTrim trim({.resident = ResidentBytes(), .free = FreeHeapBytes()});
  while (!HasEnded(parent)) {
    const int number = sigtimedwait(&signals, nullptr, &interval);
    if (number == SIGTERM || number == SIGINT) return number;
    if (number == SIGHUP) spdlog::info("SIGHUP is ignored; restart to read models and flags again");
    if (!trim.Due(ResidentBytes(), FreeHeapBytes)) continue;
    malloc_trim(0);
    trim.Trimmed({.resident = ResidentBytes(), .free = FreeHeapBytes()});
  }
  return 0;
}

// Answers the running requests, within the time of the flags, and stops.
Status Stop(const ServeFlags& flags, Engine& engine, Server& server) {
  const auto timeout = std::chrono::seconds(flags.exit_timeout_secs);
  spdlog::info("draining: requests in flight have at most {} s; a second signal stops at once",
               flags.exit_timeout_secs);
  // The engine then answers the remaining requests with 503.
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
  const Status drained = server.Drain(timeout + kForAnswers);
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
    spdlog::warn("no example is printed: {}", error.what());
  }
}

// It becomes part of a file name.
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
    return Usage(InvalidArgument("--load-model names models of a repository, and there is none"));
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
  // Signals are waited for below. While it loads models, and while it drains, one ends the program
  // at once.
  const sigset_t signals = SetOf({SIGTERM, SIGINT});
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  flags.engine.on_load = LoadBar();
  flags.engine.serve_texts = true;
  flags.engine.max_queue_wait_us = int64_t{1000} * flags.max_queue_wait_ms;
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
  spdlog::info("listening on {}; ready once the models are loaded",
               HostAndPort(flags.server.address, server->http_port()));
  if (!IsLoopback(flags.server.address)) {
    spdlog::warn("everybody who reaches {} can use this server: docs/deploy/security.md",
                 HostAndPort(flags.server.address, server->http_port()));
  }
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  Status first_failure;
  CHAIRLIFT_RETURN_IF_ERROR(Load(*engine, models, flags, &first_failure));
  if (flags.exit_on_error && !first_failure.ok()) {
    return Annotate(first_failure, "a model is not served (--exit-on-error)");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int ready, ReportReady(*engine));
  // Without models, clients may still load some.
  const bool may_be_empty = flags.server.model_control && (flags.only.empty() || WantsAll(flags));
  if (ready == 0 && !may_be_empty && first_failure.ok()) {
    return NotFound("'{}' holds no models; a repository is <name>/<version>/model.onnx",
                    fmt::join(flags.repositories, "', '"));
  }
  if (ready == 0 && !may_be_empty) {
    return NotFound("no model{} could be loaded: {}", flags.only.empty() ? "" : " of --load-model",
                    Message(first_failure));
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  is_ready = true;
  server->SetReady();
  spdlog::info("{} on http://{}, {}", Counted(ready, "model"),
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
  is_ready = false;
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  // Load balancers stop sending when they see that it is not ready. After Ctrl-C there is nothing
  // to wait for.
  if (signal == SIGTERM && flags.drain_seconds > 0) {
    server->BeginDrain();
    spdlog::info("draining: not ready any more; requests are answered for {} s, then it stops",
                 flags.drain_seconds);
    std::this_thread::sleep_for(std::chrono::seconds(flags.drain_seconds));
  }
  return Stop(flags, *engine, *server);
}

}  // namespace

Command AddServe(CLI::App& parser) {
  auto flags = std::make_shared<ServeFlags>();
  parser.footer(
      "Examples:\n"
      "  chairlift serve model.onnx                     one file, under its file name\n"
      "  chairlift serve models/identity                one model's folder\n"
      "  chairlift serve minilm/onnx/model_int8.onnx    a file of a repository of Hugging Face\n"
      "  chairlift serve models                         all models of a repository\n"
      "  chairlift serve my.py:predict                  a Python function, in a process of its "
      "own\n"
      "A model file needs no configuration: batching is derived from the model. A repository "
      "holds\n"
      "<name>/<version>/model.onnx, <name>/model.onnx or <name>/onnx/model.onnx and, if wanted,\n"
      "<name>/model.yaml or Triton's <name>/config.pbtxt\n"
      "(docs/reference/repositories.md).\n"
      "These are the settings that a model.yaml may have. If one is absent,\n"
      "it is chosen from the model:\n"
      "  policy: window             # none; for encoders tokens, length_dp, naive;\n"
      "                             # for decoders continuous;\n"
      "                             # for recurrent models cellular, bucketed, graph_merge;\n"
      "                             # staged or cellular between stages\n"
      "  stages: 4                  # staged, cellular: how many, or a list of nodes or tensors,\n"
      "                             # each the last of its stage\n"
      "  buffer_pairs: 2            # staged: 1: one batch after the other; more: as a pipeline\n"
      "  stretch_within_us: 0       # staged: nobody joins a batch made longer ago; 0: by costs\n"
      "  exits: [{output: a, ...}]  # staged, cellular: where requests leave early, or skip "
      "stages\n"
      "  stage_plugin: {library: p} # conditions of your own: of exits, and of staged for batches\n"
      "  max_batch_size: 32         # rows in a batch; absent for cells: as timed\n"
      "  max_batch_tokens: 0        # tokens: tokens in a batch; 0: as timed;\n"
      "                             # continuous: tokens in a step; 0: 256\n"
      "  max_length: 0              # continuous: tokens of prompt and answer together\n"
      "  cache_bytes: 0             # continuous: memory for keys and values\n"
      "  share_prefixes: true       # continuous: prompts that begin alike compute that once\n"
      "  queue_delay_us: 0          # window, length_dp, staged: longest wait of the oldest "
      "request\n"
      "                             # for more\n"
      "  latency_objective_us: 0    # length_dp: no waiting once half of this is spent;\n"
      "                             # staged: nobody joins a batch that would then miss it\n"
      "  step_slice_us: 200         # cellular: longest wait of newcomers for a task's further "
      "steps\n"
      "  trusted_mask: mask         # length_dp, naive: the input that hides padding\n"
      "  preferred_batch_sizes: []  # window: run at these sizes without waiting\n"
      "  max_queue_size: 1024       # requests waiting; one more is refused\n"
      "  max_queue_wait_us: 30000000 # longest expected wait; absent: --max-queue-wait\n"
      "  default_timeout_us: 0      # deadline of requests without a timeout; 0: none\n"
      "  response_cache_bytes: 0    # memory for answers kept for equal requests; 0: none\n"
      "  names: {}                  # of inputs and outputs, the file's: served\n"
      "  sequence_state: {}         # state kept between requests, output: input\n"
      "  max_sequences: 4096        # live at once\n"
      "  sequence_idle_us: 60000000 # a sequence without a request for so long has ended\n"
      "  device: cpu                # or cuda, cuda:1: an NVIDIA GPU\n"
      "  precision: float32         # or tf32, float16, bfloat16: what a GPU computes float32 in\n"
      "  disabled_passes: []        # `chairlift inspect MODEL --passes` lists them\n"
      "  max_embedding_bytes: 0     # for an embedding folded into the first layer's projection\n"
      "  versions: latest           # or all, or [1, 2]\n"
      "  file: onnx/model_int8.onnx # in place of model.onnx\n"
      "  pooling: mean              # of text inputs: or cls, max, lasttoken, …\n"
      "  normalize: true            # of text inputs: whether their vectors have length 1\n"
      "  python: my.py:predict      # a function in place of model.onnx\n"
      "  steps: [{model: a}, ...]   # models of the repository, one after another\n"
      "or <name>/<version>/<cell>.onnx and a model.yaml with `cells` and `unfold` "
      "(docs/concepts/cells.md).\n"
      "Send a request:\n"
      "  curl localhost:8000/v2/models/NAME\n"
      "  curl localhost:8000/v2/models/NAME/infer -d '{\"inputs\": [{\"name\": \"x\", \"shape\": "
      "[1, 2],\n"
      "       \"datatype\": \"FP32\", \"data\": [1, 2]}]}'\n"
      "Texts and Python functions run in a Python that is looked for: CHAIRLIFT_PYTHON, "
      "VIRTUAL_ENV,\n"
      "a .venv or venv beside this program, beside a function or in the working directory, then\n"
      "python3. The log says which was taken and what it lacks (docs/guides/python-models.md).\n"
      "SIGTERM: not ready, but requests are answered for --drain-seconds; then, and at once after\n"
      "Ctrl-C, what is in flight is finished for at most --exit-timeout-secs. A second signal, or\n"
      "one while models load, stops at once. SIGHUP is ignored.");
  TakesModel(parser.add_option("MODEL", flags->models,
                               "ONNX files, Python functions (FILE.py:NAME), models' folders, or "
                               "folders of models"));
  parser.add_option("--model-repository", flags->repositories, "Folder of models; may be repeated")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  parser
      .add_option("--load-model", flags->only,
                  "Load only this model of the repositories ('*': all); may be repeated")
      ->type_name("NAME");
  parser
      .add_option(
          "--model-control-mode", flags->control,
          "none: all models are loaded at the start, and clients cannot load or unload any;\n"
          "explicit: only those of --load-model ('*': all), and clients can.\n"
          "Left out: explicit with --load-model, else none")
      ->check(CLI::IsMember({"none", "explicit"}))
      ->type_name("MODE");
  parser
      .add_option("--model-config-name", flags->engine.model_config_name,
                  "Of models that have a configs/NAME.pbtxt in their folder: read it in place of\n"
                  "their config.pbtxt or model.yaml")
      ->check(CheckConfigName)
      ->type_name("NAME");
  parser
      .add_option("--set", flags->settings,
                  "A setting of a model.yaml for the models that are named here, as\n"
                  "max_batch_size=64 or, of a function, workers=2; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  parser
      .add_option(
          "--name", flags->name,
          "Serve the only MODEL under this name; left out: its file's or, of a file called\n"
          "model.onnx, its folder's")
      ->type_name("NAME");
  parser.add_flag("--print-example", flags->print_example,
                  "Print a curl command for each model, tried once");
  parser.add_option("--log-level", flags->log_level, "What to log")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->type_name("LEVEL")
      ->capture_default_str();
  AddNumber(parser, "--parent-fd", &flags->parent_fd, -1, 1 << 20, "FD",
            "A socket to the program that started this one: it gets the addresses once the models\n"
            "are loaded, and the server drains and stops when its other end is closed; -1: none");
  AddNumber(
      parser, "--drain-seconds", &flags->drain_seconds, 0, 3600, "S",
      "After SIGTERM: time for load balancers to see that it is not ready, while requests are\n"
      "still accepted and answered");
  AddNumber(parser, "--exit-timeout-secs", &flags->exit_timeout_secs, 0, 3600, "S",
            "Time given to requests in flight at the end");
  parser.add_flag("--exit-on-error", flags->exit_on_error,
                  "End where a model of a repository cannot be loaded; else it is left out");
  parser.add_flag(
      "--strict-readiness", flags->server.strict_readiness,
      "Not ready (503) while a model that was to be loaded is not; else the models that\n"
      "are loaded make it ready");

  constexpr const char* kNetwork = "Network";
  parser
      .add_option("--address", flags->server.address,
                  "Address to listen on; 0.0.0.0: all; IPv6 as [::1]")
      ->type_name("IP")
      ->group(kNetwork)
      ->capture_default_str();
  AddNumber(parser, "--http-port", &flags->server.http_port, 0, 65535, "PORT",
            "HTTP port; 0: any free one")
      ->group(kNetwork);
  AddNumber(parser, "--metrics-port", &flags->server.metrics_port, -1, 65535, "PORT",
            "Port of /metrics; -1: none")
      ->group(kNetwork);
  parser
      .add_flag("--http-metrics", flags->server.http_metrics, "GET /metrics on the HTTP port, too")
      ->group(kNetwork);
  parser
      .add_option("--allowed-host", flags->server.allowed_hosts,
                  "Name by which clients may load and unload models, beside addresses and\n"
                  "localhost; may be repeated")
      ->type_name("NAME")
      ->group(kNetwork);
  AddNumber(parser, "--io-threads", &flags->server.io_threads, 1, 64, "N",
            "Threads that read requests; more for much JSON from many clients")
      ->group(kNetwork);
  AddNumber(parser, "--codec-threads", &flags->server.codec_threads, 1, 64, "N",
            "Threads that decode large requests and encode large answers")
      ->group(kNetwork);

  parser
      .add_option("--cors-allow-origin", flags->server.cors_origins,
                  "Site whose pages may use this server from a browser, as https://host:port; "
                  "*: all; may be repeated")
      ->type_name("ORIGIN")
      ->group(kNetwork);

  constexpr const char* kCompute = "Compute";
  parser
      .add_flag(
          "!--no-timing", flags->engine.time_cells,
          "Do not time the batches of recurrent models and encoders (a second or two), nor the\n"
          "operators of models in stages (up to eight), when they are first loaded: it chooses\n"
          "their batch sizes and stages, and is kept in the cache folder")
      ->group(kCompute);
  AddWorkers(parser, &flags->engine.workers)->group(kCompute);
  AddDevice(parser, &flags->engine.device)->group(kCompute);
  parser.add_option("--cores", flags->engine.cores, "Cores to pin the workers to, as 0,1,2")
      ->delimiter(',')
      ->group(kCompute)
      ->type_name("LIST");
  AddNumber(parser, "--max-requests", &flags->engine.max_requests, 1, 1 << 20, "N",
            "Requests accepted at once over all models; one more: 503")
      ->group(kCompute);
  AddNumber(parser, "--max-queue-wait", &flags->max_queue_wait_ms, 0, 3600000, "MS",
            "Refuse at once (503) a request whose expected wait is longer, by the costs of recent\n"
            "batches; 0: only the length of the queue is bounded. The default is meant to let\n"
            "bursts and load tools through, such as perf_analyzer")
      ->group(kCompute);
  CLI::Option* const budget = parser.add_option(
      "--memory-budget", flags->engine.memory_budget,
      "Memory of all tasks for intermediates and outputs, as 4GiB; a request that needs more\n"
      "than a worker's share runs in parts or is refused (400); 0: half of what this process\n"
      "may use");
  TakesBytes(budget, 0);
  budget->group(kCompute)->capture_default_str();
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddLimitFlags(parser, &flags->server.limits);
  return [flags] { return Serve(*flags); };
}

}  // namespace chairlift
