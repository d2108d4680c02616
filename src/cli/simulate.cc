// `chairlift simulate`: runs policies in virtual time, on a machine described by a cost table.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/closest.h"
#include "batching/policies/staged.h"
#include "batching/policy.h"
#include "batching/simulator.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/load/schedule.h"
#include "cli/simulate/request_mix.h"
#include "cli/terminal.h"

namespace chairlift {
namespace {

// The fraction of a run's arrivals that is not counted.
constexpr double kWarmUp = 0.2;

struct SimulateFlags {
  std::string application = "lstm";
  std::string lengths;
  std::string uniform;
  std::string trees;
  std::string gaps;
  std::string prompt_lengths, output_lengths;
  std::string costs;
  std::string json;
  int fixed_length = 0;
  int max_length = 0;
  int complete_tree = 0;
  int stages = 4;
  int exit_after = 0;  // a stage; 0: no exit
  int leaving = 50;    // of 100 requests
  double cost_scale = 1;
  std::vector<std::string> policies = {};  // empty: chosen by the application
  std::vector<double> rates;
  std::vector<int64_t> clients;
  std::vector<std::string> cell_max;
  // The operations that policy staged may use in addition to new.
  std::set<std::string> meta_operations = {"split", "stretch"};
  int64_t requests = 20000;
  int workers = 1;
  uint64_t seed = 1;
  PolicyOptions options{.max_batch_size = 512, .adaptive_run_ahead = true};
  int run_ahead = 0;
  int max_tokens = 4096;
  int64_t queue_delay_us = 0;
  int64_t time_slice_us = PolicyOptions().time_slice / std::chrono::microseconds(1);
  int64_t latency_objective_us = 0;
  int64_t join_window_us = 0;
};

// The load of one run: arriving requests, or a fixed number of concurrent ones.
struct OfferedLoad {
  double rate = 0;  // per second
  int64_t clients = 0;
};

struct Figures {
  std::string policy;
  OfferedLoad load;
  double throughput = 0;        // requests per second
  double mean_latency = 0;      // ms
  std::vector<double> latency;  // percentiles 0 to 100, ms
  std::vector<double> queue;
  std::vector<double> compute;
  double rows_per_task = 0;  // in each of its steps
  double steps_per_task = 0;
  double padding = 0;           // share of all rows
  double busy = 0;              // share of all workers' time
  double cells_per_second = 0;  // speed of the simulator
  // For requests that generate:
  double tokens = 0;  // of answers, per second
  int64_t set_back = 0;
  std::vector<double> first;  // time to the first token, in the form of `latency`
  std::vector<double> between;
};

StatusOr<LengthCounts> Lengths(const SimulateFlags& flags) {
  if ((flags.fixed_length > 0) + !flags.uniform.empty() + !flags.lengths.empty() > 1) {
    return Usage(InvalidArgument(
        "--length-histogram, --uniform-lengths and --fixed-length exclude each other; use one"));
  }
  if (flags.fixed_length > 0) return LengthCounts{{flags.fixed_length, 1}};
  if (!flags.uniform.empty()) {
    auto lengths = UniformLengths(flags.uniform);
    if (!lengths.ok()) return Usage(Annotate(lengths.status(), "--uniform-lengths"));
    return lengths;
  }
  if (flags.lengths.empty()) {
    return Usage(InvalidArgument(
        "no lengths are set: use --length-histogram, --uniform-lengths or --fixed-length"));
  }
  return ReadLengths(flags.lengths, flags.max_length);
}

// In the form that a policy supports.
StatusOr<RequestMix> ReadMix(const SimulateFlags& flags, GraphForm form) {
  if (flags.application == "tree") {
    if (flags.complete_tree > 0) return CompleteTreeMix(flags.complete_tree);
    if (flags.trees.empty())
      return Usage(InvalidArgument("--application tree needs --trees or --complete-tree"));
    return TreeMix(flags.trees);
  }
  if (flags.application == "seq2seq") {
    if (flags.lengths.empty())
      return Usage(InvalidArgument("--application seq2seq needs --length-histogram"));
    return Seq2SeqMix(flags.lengths, flags.max_length);
  }
  if (flags.application == "stages") {
    return StagesMix(flags.stages, form == GraphForm::kAny, flags.exit_after,
                     flags.exit_after > 0 ? flags.leaving : 0);
  }
  if (flags.application == "generation") {
    if (flags.prompt_lengths.empty() || flags.output_lengths.empty()) {
      return Usage(InvalidArgument(
          "--application generation needs both --prompt-lengths and --output-lengths"));
    }
    return GenerationMix(flags.prompt_lengths, flags.output_lengths, flags.requests, flags.seed);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const LengthCounts lengths, Lengths(flags));
  if (flags.application == "lstm") return ChainMix(lengths);
  return EncoderMix(lengths, form == GraphForm::kRagged);
}

Status SetCellSizes(const std::vector<std::string>& settings, const std::vector<std::string>& cells,
                    PolicyOptions& options) {
  options.cell_types.resize(cells.size());
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    const auto cell = std::find(cells.begin(), cells.end(), setting.substr(0, equals));
    const int size = equals == std::string::npos ? 0 : std::atoi(setting.c_str() + equals + 1);
    if (equals != std::string::npos && cell == cells.end()) {
      return Usage(InvalidArgument("--cell-max-batch-size {}: there is no cell '{}'{}", setting,
                                   setting.substr(0, equals),
                                   KnownNames(setting.substr(0, equals), cells)));
    }
    if (cell == cells.end() || size < 1) {
      return Usage(
          InvalidArgument("--cell-max-batch-size {}: not CELL=ROWS, as {}=64", setting, cells[0]));
    }
    options.cell_types[static_cast<size_t>(cell - cells.begin())].max_batch_size = size;
  }
  return absl::OkStatus();
}

std::vector<double> Percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> out;
  for (int p = 0; p <= 100; ++p) {
    out.push_back(values.empty() ? 0 : values[(values.size() - 1) * static_cast<size_t>(p) / 100]);
  }
  return out;
}

Figures Summarise(const SimulationResult& result, int workers) {
  const auto ms = [](Duration d) { return static_cast<double>(d.count()) * 1e-6; };
  const Duration last = result.requests.back().arrived;
  const auto from = Duration(static_cast<int64_t>(kWarmUp * static_cast<double>(last.count())));
  std::vector<double> latency;
  std::vector<double> queue;
  std::vector<double> compute;
  std::vector<double> first;
  std::vector<double> between;
  int64_t left = 0;
  for (const SimulatedRequest& request : result.requests) {
    if (request.left > from && request.left <= last) ++left;
    if (request.arrived < from) continue;
    latency.push_back(ms(request.left - request.arrived));
    queue.push_back(ms(request.started - request.arrived));
    compute.push_back(ms(request.left - request.started));
    first.push_back(ms(request.first_token - request.arrived));
  }
  int64_t tokens = 0;
  for (const SimulatedRequest& request : result.requests) {
    tokens += request.first_token > from && request.first_token <= last ? 1 : 0;
  }
  for (const SimulatedToken& token : result.tokens) {
    if (token.at <= from || token.at > last) continue;
    ++tokens;
    between.push_back(ms(token.since));
  }
  Figures figures;
  figures.tokens = static_cast<double>(tokens) / (ms(last - from) * 1e-3);
  figures.set_back = result.set_back;
  figures.first = Percentiles(std::move(first));
  figures.between = Percentiles(std::move(between));
  figures.throughput = static_cast<double>(left) / (ms(last - from) * 1e-3);
  figures.mean_latency = std::accumulate(latency.begin(), latency.end(), 0.0) /
                         static_cast<double>(std::max<size_t>(latency.size(), 1));
  figures.latency = Percentiles(std::move(latency));
  figures.queue = Percentiles(std::move(queue));
  figures.compute = Percentiles(std::move(compute));
  const auto all_rows = static_cast<double>(result.rows + result.padding_rows);
  figures.rows_per_task = all_rows / static_cast<double>(result.steps);
  figures.steps_per_task =
      static_cast<double>(result.steps) / static_cast<double>(std::max<int64_t>(result.tasks, 1));
  figures.padding = static_cast<double>(result.padding_rows) / all_rows;
  figures.busy = ms(result.busy) / (ms(result.end) * workers);
  return figures;
}

// The requests in the form of one policy.
struct Setup {
  RequestMix mix;
  LengthCosts costs;
  PolicyOptions options;
};

// When requests arrive; in a closed loop, only their number counts.
StatusOr<std::vector<Arrival>> ArrivalsOf(const SimulateFlags& flags, const OfferedLoad& load,
                                          const std::vector<double>& gaps) {
  if (load.clients > 0) return std::vector<Arrival>(static_cast<size_t>(flags.requests));
  ScheduleOptions schedule;
  schedule.rate = load.rate;
  schedule.gaps_ms = gaps;
  schedule.seed = flags.seed;
  schedule.seconds = static_cast<double>(flags.requests) / load.rate;
  return MakeSchedule(schedule);
}

StatusOr<std::unique_ptr<Scheduler>> SchedulerOf(const SimulateFlags& flags,
                                                 const std::string& policy,
                                                 const PolicyOptions& options) {
  if (policy != "staged") return MakeScheduler(policy, options);
  return MakeStagedScheduler(options, {.split = flags.meta_operations.contains("split"),
                                       .stretch = flags.meta_operations.contains("stretch"),
                                       .join_window = options.join_window,
                                       .buffer_pairs = options.buffer_pairs});
}

StatusOr<Figures> Run(const SimulateFlags& flags, const std::string& policy,
                      const OfferedLoad& load, const Setup& setup,
                      const std::vector<double>& gaps) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Arrival> arrivals, ArrivalsOf(flags, load, gaps));
  Workload workload;
  workload.clients = load.clients;
  workload.graphs = setup.mix.graphs;
  workload.answers = setup.mix.answers;
  std::mt19937_64 random(flags.seed + 1);
  for (const Arrival& arrival : arrivals) {
    workload.arrivals.push_back({arrival.at, setup.mix.Sample(random)});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto scheduler, SchedulerOf(flags, policy, setup.options));
  const auto begin = std::chrono::steady_clock::now();
  // Other policies bound the number of tasks of a worker themselves.
  const bool any = (*FindPolicy(policy))->takes == GraphForm::kAny;
  const SimulationResult result =
      Simulate(*scheduler, workload, setup.costs, flags.workers, any ? 1 : kTasksAhead);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  Figures figures = Summarise(result, flags.workers);
  figures.policy = policy;
  figures.load = load;
  figures.cells_per_second = static_cast<double>(result.nodes) / took.count();
  return figures;
}

nlohmann::json ToJson(const Figures& figures, bool generates) {
  nlohmann::json json = {{"policy", figures.policy},
                         {"rate", figures.load.rate},
                         {"clients", figures.load.clients},
                         {"throughput", figures.throughput},
                         {"latency_mean_ms", figures.mean_latency},
                         {"latency_ms", figures.latency},
                         {"queue_ms", figures.queue},
                         {"compute_ms", figures.compute},
                         {"rows_per_task", figures.rows_per_task},
                         {"steps_per_task", figures.steps_per_task},
                         {"padding", figures.padding},
                         {"busy", figures.busy},
                         {"cells_per_second", figures.cells_per_second}};
  if (generates) {
    json["output_tokens_per_s"] = figures.tokens;
    json["preemptions"] = figures.set_back;
    json["first_token_ms"] = figures.first;
    json["between_tokens_ms"] = figures.between;
  }
  return json;
}

std::string LoadName(const OfferedLoad& load) {
  return load.clients > 0 ? Counted(load.clients, "client") : HumanNumber(load.rate) + "/s";
}

Table GenerationTable() {
  return Table({"policy", "load", "tokens/s", "TTFT p50 ms", "TTFT p99 ms", "ITL p50 ms",
                "ITL p90 ms", "ITL p99 ms", "mean ms", "tokens/task", "padding %",
                "workers busy %"});
}

void AddGenerationRow(Table& table, const Figures& figures) {
  table.Add({figures.policy, LoadName(figures.load), HumanNumber(std::round(figures.tokens)),
             HumanNumber(figures.first[50]), HumanNumber(figures.first[99]),
             HumanNumber(figures.between[50]), HumanNumber(figures.between[90]),
             HumanNumber(figures.between[99]), HumanNumber(figures.mean_latency),
             fmt::format("{:.1f}", figures.rows_per_task),
             fmt::format("{:.1f}", 100 * figures.padding),
             fmt::format("{:.1f}", 100 * figures.busy)});
}

void AddRow(Table& table, const Figures& figures) {
  table.Add({figures.policy, LoadName(figures.load), HumanNumber(std::round(figures.throughput)),
             HumanNumber(figures.mean_latency), HumanNumber(figures.latency[50]),
             HumanNumber(figures.latency[90]), HumanNumber(figures.latency[99]),
             HumanNumber(figures.queue[99]), fmt::format("{:.1f}", figures.rows_per_task),
             fmt::format("{:.1f}", figures.steps_per_task),
             fmt::format("{:.1f}", 100 * figures.padding),
             fmt::format("{:.1f}", 100 * figures.busy)});
}

StatusOr<Setup> SetUp(const SimulateFlags& flags, const PolicyInfo& policy) {
  const bool whole = flags.application == "encoder";
  if (whole && policy.takes == GraphForm::kCells) {
    return Usage(InvalidArgument(
        "policy '{}' batches cells, not the whole requests of --application encoder", policy.name));
  }
  if (!whole && (policy.takes == GraphForm::kPadded || policy.takes == GraphForm::kRagged)) {
    return Usage(InvalidArgument(
        "policy '{}' batches whole requests; it needs --application encoder", policy.name));
  }
  if (flags.application != "stages" && policy.takes == GraphForm::kStages) {
    return Usage(
        InvalidArgument("policy '{}' runs stages; it needs --application stages", policy.name));
  }
  const bool generates = flags.application == "generation";
  if (generates && policy.takes != GraphForm::kGenerated) {
    return Usage(InvalidArgument(
        "policy '{}' does not serve the requests of --application generation; continuous, "
        "whole_prompts, leave_only and static do",
        policy.name));
  }
  if (!generates && policy.takes == GraphForm::kGenerated) {
    return Usage(InvalidArgument(
        "policy '{}' serves requests that generate; it needs --application generation",
        policy.name));
  }
  Setup setup;
  CHAIRLIFT_ASSIGN_OR_RETURN(setup.mix, ReadMix(flags, policy.takes));
  CHAIRLIFT_ASSIGN_OR_RETURN(setup.costs, ReadCosts(flags.costs, setup.mix.cells));
  setup.costs.Scale(flags.cost_scale);
  setup.options = flags.options;
  CHAIRLIFT_RETURN_IF_ERROR(SetCellSizes(flags.cell_max, setup.mix.cells, setup.options));
  setup.options.workers = flags.workers;
  setup.options.queue_delay = std::chrono::microseconds(flags.queue_delay_us);
  setup.options.time_slice = std::chrono::microseconds(flags.time_slice_us);
  setup.options.latency_objective = std::chrono::microseconds(flags.latency_objective_us);
  setup.options.join_window = std::chrono::microseconds(flags.join_window_us);
  if (flags.exit_after > 0) {
    if (flags.application != "stages" || flags.exit_after >= flags.stages) {
      return Usage(InvalidArgument(
          "--exit-after is {}: it needs --application stages, with more than {} stages",
          flags.exit_after, flags.exit_after));
    }
    for (int stage = 0; stage < flags.stages; ++stage) {
      setup.options.stage_types.push_back(static_cast<CellType>(stage));
    }
  }
  const bool tokens = policy.name == "continuous" || policy.name == "whole_prompts";
  if (policy.takes == GraphForm::kRagged || tokens) {
    setup.options.max_batch_size = flags.max_tokens;
  }
  if (flags.run_ahead > 0) {
    setup.options.max_tasks_to_submit = flags.run_ahead;
    setup.options.adaptive_run_ahead = false;
  }
  return setup;
}

Status Simulate(const SimulateFlags& flags) {
  if (flags.rates.empty() && flags.clients.empty()) {
    return Usage(InvalidArgument("no load is set: use --rate 100,200 or --concurrency 64"));
  }
  if (!flags.gaps.empty() && !flags.clients.empty()) {
    return Usage(InvalidArgument(
        "--request-intervals needs --rate; with --concurrency there are no arrivals"));
  }
  std::vector<double> gaps;
  if (!flags.gaps.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(gaps, ReadGaps(flags.gaps));
  }
  std::vector<std::pair<const PolicyInfo*, Setup>> runs;
  std::vector<std::string> policies = flags.policies;
  if (policies.empty()) {
    policies = {flags.application == "generation" ? "continuous" : "cellular"};
  }
  for (const std::string& name : policies) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const PolicyInfo* policy, FindPolicy(name));
    CHAIRLIFT_ASSIGN_OR_RETURN(Setup setup, SetUp(flags, *policy));
    runs.emplace_back(policy, std::move(setup));
  }
  CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(flags.json));
  const bool generates = flags.application == "generation";
  Table table =
      generates ? GenerationTable()
                : Table({"policy", "load", "requests/s", "mean ms", "p50 ms", "p90 ms", "p99 ms",
                         "queue p99 ms", "rows/task", "steps/task", "padding %", "workers busy %"});
  nlohmann::json rows = nlohmann::json::array();
  std::vector<OfferedLoad> loads;
  for (const double rate : flags.rates) loads.push_back({.rate = rate});
  for (const int64_t clients : flags.clients) loads.push_back({.clients = clients});
  const auto total = static_cast<int64_t>(policies.size() * loads.size());
  {
    ProgressBar bar("simulating", total);
    for (auto& [policy, setup] : runs) {
      // Policies for cells have configured sizes, except for stages; those for lengths use the
      // costs.
      const bool stages = flags.application == "stages" && policy->takes != GraphForm::kAny;
      if (stages || generates || policy->takes == GraphForm::kPadded ||
          policy->takes == GraphForm::kRagged) {
        setup.options.costs = &setup.costs;
      }
      setup.options.step_costs = &setup.costs;
      for (const OfferedLoad& load : loads) {
        CHAIRLIFT_ASSIGN_OR_RETURN(const Figures figures,
                                   Run(flags, std::string(policy->name), load, setup, gaps));
        generates ? AddGenerationRow(table, figures) : AddRow(table, figures);
        rows.push_back(ToJson(figures, generates));
        bar.Set(static_cast<int64_t>(rows.size()));
      }
    }
  }
  const double mean_nodes = runs.front().second.mix.mean_nodes();
  std::string arrivals = flags.rates.empty() ? "" : ", Poisson arrivals";
  if (!flags.gaps.empty()) arrivals = ", intervals from " + flags.gaps;
  PrintText("{}: {} per request on average, {}{}, in virtual time:\n{}", flags.application,
            mean_nodes == 1 ? "one cell" : fmt::format("{:.1f} cells", mean_nodes),
            Counted(flags.workers, "worker"), arrivals, table.ToString());
  if (!flags.json.empty()) {
    const nlohmann::json report = {{"application", flags.application}, {"mean_cells", mean_nodes},
                                   {"workers", flags.workers},         {"seed", flags.seed},
                                   {"cost_scale", flags.cost_scale},   {"rows", rows}};
    std::ofstream file(flags.json);
    file << report.dump(1) << "\n";
    if (!file.flush()) return CannotWrite(flags.json);
  }
  return absl::OkStatus();
}

}  // namespace

Command AddSimulate(CLI::App& parser) {
  auto flags = std::make_shared<SimulateFlags>();
  parser.footer(PolicyHelp() + R"(
A request is a graph of cells, whose names are in the cost table:
  lstm        a chain of `step`
  seq2seq     a chain of `encoder`, then a chain of `decoder`
  tree        `leaf` and `internal`
  encoder     one `sequence`, padded to the longest of its batch; with policy packed, `token`s
  stages      a chain of `stage1`, `stage2`, …; with policies none and window, one `whole`
  generation  one `step` for each token; a length in the table is that of the sequence
The time of a batch is interpolated between the batch sizes of the table. Costs of 0 rows are
fixed costs, which a task of several steps pays once. No model is needed.

Examples (bench/data has tables, lengths and trees):
  chairlift simulate --costs bench/data/costs/v100.csv --fixed-length 24 --rate 5000,20000
  chairlift simulate --costs bench/data/costs/v100.csv --rate 8000 --policy cellular,bucketed \
    --length-histogram bench/data/lengths/europarl_v7_fr-en_head_en.json
  chairlift simulate --application tree --trees bench/data/trees/sst_train_shapes.txt \
    --costs bench/data/costs/v100.csv --max-batch-size 64 --concurrency 256 \
    --policy cellular,graph_merge
  chairlift simulate --application encoder --costs bench/data/costs/bert_rtx2060.csv \
    --uniform-lengths 2-100 --max-batch-size 20 --rate 300 --policy none,naive,length_dp,packed
  chairlift simulate --application stages --stages 4 --costs COSTS.csv --rate 200,700 \
    --max-batch-size 8 --policy none,window,staged,cellular
  chairlift simulate --application generation --costs COSTS.csv --prompt-lengths 32-512 \
    --output-lengths 16-128 --max-batch-tokens 256 --concurrency 16 --max-batch-size 16 \
    --policy static,leave_only,whole_prompts,continuous)");
  parser
      .add_option(
          "--costs", flags->costs,
          "Cost table: CSV of cell,rows,microseconds or cell,rows,length,microseconds, or JSON")
      ->required()
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  CLI::Option* const rate =
      parser.add_option("--rate", flags->rates, "Requests per second; one run for each rate");
  TakesNumber(rate, 0.001, 1e9);
  rate->delimiter(',')->type_name("RATE,RATE");
  parser
      .add_option("--concurrency", flags->clients,
                  "Keep N requests running instead of a rate; one run for each number")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N,N");
  parser.add_option("--application", flags->application, "Kind of requests")
      ->check(CLI::IsMember({"lstm", "seq2seq", "tree", "encoder", "stages", "generation"}))
      ->type_name("KIND")
      ->capture_default_str();
  parser
      .add_option(
          "--length-histogram", flags->lengths,
          "Draw lengths from this JSON histogram, as {\"histogram\": {\"17\": 41, \"18\": 7}};\n"
          "for seq2seq, pairs of lengths, as {\"joint\": {\"17:19\": 41}}")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  parser
      .add_option("--uniform-lengths", flags->uniform,
                  "lstm, encoder: draw lengths from this range, all equally often")
      ->type_name("LOW-HIGH");
  for (const auto& [flag, value, what] :
       {std::tuple("--prompt-lengths", &flags->prompt_lengths, "generation: tokens of a prompt"),
        {"--output-lengths", &flags->output_lengths, "generation: tokens of an answer"}}) {
    parser
        .add_option(flag, *value,
                    fmt::format("{}, as a number, a range, or a JSON histogram", what))
        ->type_name("N|LOW-HIGH|FILE");
  }
  AddNumber(parser, "--kv-cache-tokens", &flags->options.state_capacity, 0, 1e12, "N",
            "generation: tokens that all running requests may hold together; 0: no limit");
  AddNumber(parser, "--fixed-length", &flags->fixed_length, 1, 1 << 20, "N",
            "lstm, encoder: give all requests this length");
  AddNumber(parser, "--max-length", &flags->max_length, 1, 1 << 20, "N",
            "Ignore longer entries of the histogram");
  parser.add_option("--trees", flags->trees, "tree: file with one tree per line, as ((..).)")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  AddNumber(parser, "--complete-tree", &flags->complete_tree, 1, 16, "N",
            "tree: use complete trees of this depth");
  AddNumber(parser, "--stages", &flags->stages, 2, 64, "N", "stages: number of stages");
  AddNumber(parser, "--exit-after", &flags->exit_after, 1, 63, "STAGE",
            "stages: some requests exit early, after this stage");
  AddNumber(parser, "--exit-percent", &flags->leaving, 0, 100, "PERCENT",
            "With --exit-after: percentage of requests that exit early");
  parser
      .add_option("--meta-operations", flags->meta_operations,
                  "staged: what the policy may do to a batch besides forming it")
      ->delimiter(',')
      ->check(CLI::IsMember({"new", "split", "stretch"}))
      ->type_name("NAME,NAME")
      ->default_str("split,stretch");
  AddNumber(parser, "--buffer-pairs", &flags->options.buffer_pairs, 1, 64, "N",
            "staged: 1: one batch at a time; more: a pipeline");
  parser
      .add_option(
          "--request-intervals", flags->gaps,
          "File of intervals between requests in ms, scaled to the rate, instead of Poisson\n"
          "arrivals")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  AddNumber(parser, "--requests", &flags->requests, 1, 10'000'000, "N",
            "Number of requests in a run");
  AddNumber(parser, "--workers", &flags->workers, 1, 1024, "N",
            "Number of workers, each as fast as the table says");
  AddNumber(parser, "--cost-scale", &flags->cost_scale, 1e-6, 1e6, "FACTOR",
            "Multiply every cost by this");
  AddSeed(parser, &flags->seed, "Random seed of arrivals and requests");
  CLI::Option* const policies = parser.add_option(
      "--policy", flags->policies, "Batching policies to compare on the same arrivals");
  TakesPolicy(policies);
  policies->delimiter(',')
      ->type_name("POLICY,POLICY")
      ->default_str("cellular; for generation continuous");
  AddNumber(parser, "--max-batch-size", &flags->options.max_batch_size, 1, 1 << 20, "N",
            "Rows in a task, or requests in a batch if the policy batches whole requests");
  AddNumber(parser, "--max-batch-tokens", &flags->max_tokens, 1, 1 << 20, "N",
            "packed, continuous, whole_prompts: tokens in a batch");
  AddNumber(parser, "--queue-delay-us", &flags->queue_delay_us, 0, 1'000'000'000, "US",
            "window, length_dp, staged: longest wait for more requests");
  AddNumber(
      parser, "--latency-objective-us", &flags->latency_objective_us, 0, 1'000'000'000, "US",
      "length_dp: stop waiting after half of this; staged: no request joins if another would\n"
      "exceed this");
  AddNumber(parser, "--join-window-us", &flags->join_window_us, 0, 1'000'000'000, "US",
            "staged: how long a batch accepts requests; 0: by cost");
  parser
      .add_option("--cell-max-batch-size", flags->cell_max,
                  "cellular: maximum batch size of one cell; may be repeated")
      ->type_name("CELL=ROWS");
  AddNumber(parser, "--run-ahead", &flags->run_ahead, 1, 1000, "N",
            "cellular: submit N tasks ahead (BatchMaker uses 5). Default: adaptive");
  AddNumber(parser, "--time-slice-us", &flags->time_slice_us, 0, 1'000'000, "US",
            "cellular: time that a task may run before new requests can join, if the table has\n"
            "costs of 0 rows");
  AddNumber(parser, "--bucket-width", &flags->options.bucket_width, 1, 1 << 20, "N",
            "bucketed: number of lengths in a bucket");
  TakesOutput(parser.add_option("--json", flags->json,
                                "Also write all results, with all percentiles, to this file"));
  return [flags] { return Simulate(*flags); };
}

}  // namespace chairlift
