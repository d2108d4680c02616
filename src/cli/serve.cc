// `chairlift serve`: engine and server, until a signal.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/example_request.h"
#include "cli/limit_flags.h"
#include "cli/load_bar.h"
#include "server/server.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

struct ServeFlags {
  std::vector<std::string> models;
  std::vector<std::string> repositories;
  std::vector<std::string> only;
  EngineOptions engine;
  ServerOptions server;
  int drain_seconds = 30;
  bool print_example = false;
  std::string log_level = "info";
};

Status LoadFiles(Engine& engine, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (fs::is_directory(path)) {
      return InvalidArgument("{} is a folder: pass it as --model-repository {}", path, path);
    }
    const std::string name = fs::path(path).stem().string();
    CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel(name, path, ModelConfig{}));
  }
  return absl::OkStatus();
}

// Loads what the repositories hold (or the models named). One that fails is reported and left out.
Status LoadRepositories(Engine& engine, const ServeFlags& flags) {
  for (const std::string& directory : flags.repositories) {
    CHAIRLIFT_RETURN_IF_ERROR(engine.AddRepository(directory));
  }
  std::vector<std::string> names = flags.only;
  if (names.empty()) {
    for (const ModelIndexEntry& entry : engine.Index()) {
      if (entry.state == ModelState::kReady) continue;
      if (names.empty() || names.back() != entry.name) names.push_back(entry.name);
    }
  }
  for (const std::string& name : names) {
    const Status status = engine.LoadFromRepository(name);
    if (!status.ok()) spdlog::error("model '{}' is not served: {}", name, Message(status));
  }
  return absl::OkStatus();
}

Status Serve(ServeFlags flags) {
  if (flags.models.empty() && flags.repositories.empty()) {
    return InvalidArgument(
        "nothing to serve: name a model.onnx, or a folder with --model-repository");
  }
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  // Signals are waited for below. The threads of engine and server inherit a mask that leaves them
  // to this one; while it loads models, and while it drains, a signal ends the program as usual.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  flags.engine.on_load = LoadBar();
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(flags.engine));
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  CHAIRLIFT_RETURN_IF_ERROR(LoadFiles(*engine, flags.models));
  CHAIRLIFT_RETURN_IF_ERROR(LoadRepositories(*engine, flags));
  std::string example;
  int ready = 0;
  for (const ModelIndexEntry& entry : engine->Index()) {
    if (entry.state != ModelState::kReady) continue;
    ++ready;
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata,
                               engine->Metadata(entry.name, entry.version));
    spdlog::info("{} version {}: {}", entry.name, entry.version, metadata.diagnosis);
  }
  if (ready == 0) return NotFound("no model could be loaded");

  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                             Server::Start(*engine, flags.server));
  spdlog::info("{} models on http://{}:{}, {} workers", ready, flags.server.address,
               server->http_port(), engine->workers());
  if (server->metrics_port() >= 0) {
    spdlog::info("metrics on http://{}:{}/metrics", flags.server.address, server->metrics_port());
  }
  if (flags.print_example) {
    fmt::print("\n{}\n", ExampleRequest(*engine, flags.server.address, server->http_port()));
    std::fflush(stdout);
  }

  int signal_number = 0;
  sigwait(&signals, &signal_number);
  spdlog::info("draining for at most {} s; a second signal stops at once", flags.drain_seconds);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  const auto drain = std::chrono::seconds(flags.drain_seconds);
  Status drained = server->Drain(drain);
  engine->Shutdown(std::chrono::seconds(1));
  if (!drained.ok()) return drained;
  spdlog::info("stopped");
  return absl::OkStatus();
}

}  // namespace

Command AddServe(CLI::App& parser) {
  auto flags = std::make_shared<ServeFlags>();
  parser.footer(
      "A model file needs no configuration: it is served under its file name, batching is derived "
      "from it.\n"
      "A repository holds <name>/<version>/model.onnx and, if wanted, <name>/model.yaml. These are "
      "the\n"
      "settings it may have; what is absent is chosen from the model:\n"
      "  policy: window             # none; for encoders tokens, length_dp, naive "
      "(docs/encoders.md);\n"
      "                             # for recurrent models cellular, bucketed, graph_merge\n"
      "  max_batch_size: 32         # rows in a batch; of cells: absent, as timed (docs/cells.md)\n"
      "  max_batch_tokens: 0        # tokens: tokens in a batch; 0: as timed\n"
      "  queue_delay_us: 0          # window, length_dp: how long the oldest request may wait for "
      "company\n"
      "  latency_objective_us: 0    # length_dp: but no longer than until half of this is spent\n"
      "  preferred_batch_sizes: []  # window: run at these sizes without waiting\n"
      "  max_queue_size: 1024       # requests waiting; one more is refused\n"
      "  default_timeout_us: 0      # deadline of requests that bring none; 0: none\n"
      "  response_cache_bytes: 0    # memory for answers that equal requests get again\n"
      "  sequence_state: {}         # state kept between requests, output: input (docs/http.md)\n"
      "  max_sequences: 4096        # live at once\n"
      "  sequence_idle_us: 60000000 # one that hears nothing for so long has ended\n"
      "  disabled_passes: []        # `chairlift inspect MODEL --passes` lists them\n"
      "  max_embedding_bytes: 0     # for an embedding folded into the first layer's projection\n"
      "or <name>/<version>/<cell>.onnx and a model.yaml with `cells` and `unfold` "
      "(docs/cells.md).\n"
      "Ask it:\n"
      "  curl localhost:8000/v2/models/NAME\n"
      "  curl localhost:8000/v2/models/NAME/infer -d '{\"inputs\": [{\"name\": \"x\", \"shape\": "
      "[1, 2],\n"
      "       \"datatype\": \"FP32\", \"data\": [1, 2]}]}'\n"
      "SIGTERM or Ctrl-C finishes what is in flight, then stops; a second one stops at once.");
  parser.add_option("MODEL", flags->models, "ONNX files to serve")
      ->check(CLI::ExistingPath)
      ->type_name("FILE");
  parser.add_option("--model-repository", flags->repositories, "Folder of models; may be repeated")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
  parser
      .add_option("--load-model", flags->only,
                  "Load only this model of the repositories; may be repeated")
      ->type_name("NAME");
  parser.add_flag("--print-example", flags->print_example,
                  "Print a curl command for each model, tried once");
  parser.add_option("--log-level", flags->log_level, "What to log")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "off"}))
      ->type_name("LEVEL")
      ->capture_default_str();
  parser
      .add_option("--drain-seconds", flags->drain_seconds,
                  "Time given to requests in flight at the end")
      ->check(CLI::Range(0, 3600))
      ->type_name("S")
      ->capture_default_str();

  constexpr const char* kNetwork = "Network";
  parser.add_option("--address", flags->server.address, "Address to listen on; 0.0.0.0: all")
      ->type_name("IP")
      ->group(kNetwork)
      ->capture_default_str();
  parser.add_option("--http-port", flags->server.http_port, "HTTP port; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT")
      ->group(kNetwork)
      ->capture_default_str();
  parser.add_option("--metrics-port", flags->server.metrics_port, "Port of /metrics; -1: none")
      ->check(CLI::Range(-1, 65535))
      ->type_name("PORT")
      ->group(kNetwork)
      ->capture_default_str();
  parser
      .add_option("--io-threads", flags->server.io_threads,
                  "Threads that read requests; more for much JSON from many clients")
      ->check(CLI::Range(1, 64))
      ->type_name("NUMBER")
      ->group(kNetwork)
      ->capture_default_str();

  constexpr const char* kCompute = "Compute";
  parser
      .add_flag(
          "!--no-timing", flags->engine.time_cells,
          "Do not time the batches of recurrent models and encoders when they are first loaded\n"
          "(a second or two, kept in the cache folder), which chooses their batch sizes")
      ->group(kCompute);
  parser.add_option("--workers", flags->engine.workers, "Compute threads; 0: one for each core")
      ->check(CLI::Range(0, 256))
      ->type_name("NUMBER")
      ->group(kCompute)
      ->capture_default_str();
  parser.add_option("--cores", flags->engine.cores, "Cores to pin the workers to, as 0,1,2")
      ->delimiter(',')
      ->group(kCompute)
      ->type_name("LIST");
  parser
      .add_option("--max-requests", flags->engine.max_requests,
                  "Requests accepted at once over all models; one more: 503")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("NUMBER")
      ->group(kCompute)
      ->capture_default_str();
  AddLimitFlags(parser, &flags->server.limits);
  return [flags] { return Serve(*flags); };
}

}  // namespace chairlift
