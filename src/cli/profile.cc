// `chairlift profile`: fills a model's cost table and shows it, or times its operators.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/csv.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/profile_cells.h"
#include "cli/profile_operators.h"
#include "cli/terminal.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/loading_model.h"
#include "graph/onnx/import.h"
#include "graph/widen.h"
#include "runtime/cost_table.h"

namespace chairlift {
namespace {

struct ProfileFlags {
  std::string model;
  std::vector<int64_t> batches = {1, 2, 4, 8, 16, 32};
  std::vector<int64_t> lengths = {16, 32, 64, 128, 256};
  std::vector<std::string> shapes;
  double seconds_per_point = 0.3;
  bool again = false;
  bool operators = false;
  int64_t batch = 1;  // for --operators
  int64_t length = 16;
  double seconds = 1;
  int top = 15;
  std::string json, csv, svg;
  EngineOptions engine;
};

StatusOr<InferRequest> MakeRequest(const std::string& name, const std::vector<TensorSpec>& inputs,
                                   const InputShapes& shapes) {
  std::mt19937_64 random(1);
  InferRequest request;
  request.model = name;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(inputs, shapes, random));
  return request;
}

// Median time of one batch, over at least three runs and about `seconds`.
StatusOr<std::chrono::nanoseconds> Measure(Engine& engine, const InferRequest& request,
                                           double seconds) {
  CHAIRLIFT_RETURN_IF_ERROR(engine.Infer(request).status());  // makes the plan
  std::vector<std::chrono::nanoseconds> times;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (times.size() < 3 || (std::chrono::steady_clock::now() < end && times.size() < 1000)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const InferResponse response, engine.Infer(request));
    times.push_back(response.compute_time);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// `shapes` with this number of rows, including shapes given by name.
InputShapes WithRows(InputShapes shapes, int64_t rows, bool batches) {
  shapes.batch = rows;
  for (auto& [name, dims] : shapes.by_name) {
    if (batches && !dims.empty()) dims[0] = rows;
  }
  return shapes;
}

// Measures the points of the grid that `*table` lacks. A length that the model refuses is omitted
// with a note; an error if all are refused.
Status MeasureMissing(Engine& engine, const ModelMetadata& metadata, const ProfileFlags& flags,
                      InputShapes named, CostTable* table) {
  const std::vector<int64_t> one = {1};
  const std::vector<int64_t> none = {0};
  const auto& batches = metadata.batches ? flags.batches : one;
  std::vector<TensorSpec> unnamed = metadata.inputs;
  std::erase_if(unnamed, [&](const auto& input) { return named.by_name.contains(input.name); });
  const auto& lengths = VariesInLength(unnamed) ? flags.lengths : none;
  const auto attempt = [&](const InputShapes& shapes) -> Status {
    CHAIRLIFT_ASSIGN_OR_RETURN(InferRequest request,
                               MakeRequest(metadata.name, metadata.inputs, shapes));
    return engine.Infer(std::move(request)).status();
  };
  std::map<int64_t, Status> refused;
  ProgressBar bar("measuring", static_cast<int64_t>(batches.size() * lengths.size()));
  int64_t done = 0;
  for (const int64_t length : lengths) {
    named.length = length;
    std::optional<InputShapes> fitting;
    for (const int64_t batch : batches) {
      bar.Set(done++);
      if (table->costs().count({batch, length}) != 0 || refused.contains(length)) continue;
      const InputShapes rows = WithRows(fitting.value_or(named), batch, metadata.batches);
      if (!fitting) {
        StatusOr<InputShapes> found = FindShapes(metadata.inputs, rows, {}, attempt);
        if (!found.ok()) {
          refused[length] = found.status();
          continue;
        }
        fitting = *std::move(found);
      }
      InputShapes shapes = rows;
      shapes.fixed_first_is_state = fitting->fixed_first_is_state;
      CHAIRLIFT_ASSIGN_OR_RETURN(const InferRequest request,
                                 MakeRequest(metadata.name, metadata.inputs, shapes));
      const auto cost = Measure(engine, request, flags.seconds_per_point);
      if (!cost.ok()) {
        return Annotate(cost.status(), fmt::format("{} rows of length {}", batch, length));
      }
      table->Set(batch, length, *cost);
    }
  }
  if (!refused.empty() && refused.size() == lengths.size()) return refused.begin()->second;
  for (const auto& [length, why] : refused) {
    PrintError("length {} is left out: {}\n", length, Message(why));
  }
  return absl::OkStatus();
}

std::map<int64_t, CostsByRows> ByLength(const CostTable& table) {
  std::map<int64_t, CostsByRows> by_length;
  for (const auto& [shape, cost] : table.costs()) by_length[shape.second][shape.first] = cost;
  return by_length;
}

// `fixed`: the label of the row without a variable length.
void Print(const CostTable& table, const std::string& fixed) {
  std::vector<std::pair<std::string, CostsByRows>> lines;
  for (auto& [length, costs] : ByLength(table)) {
    lines.emplace_back(length == 0 ? fixed : std::to_string(length), costs);
  }
  PrintText("time of a batch (rows a second):\n{}", CostsTable("length", lines));
}

// The tokens of a row: `length` of its inputs and, if the model generates, those of its answer.
struct RowTokens {
  bool counted = false;  // whether a length is a number of tokens
  int64_t answer = 0;

  std::string About() const {
    if (answer == 0) return "a row is `length` tokens";
    return fmt::format("a request is a prompt of `length` tokens and an answer of {}",
                       Counted(answer, "token"));
  }
};

StatusOr<RowTokens> TokensOf(const ModelMetadata& metadata) {
  const std::string& kind = metadata.programs.back().kind;
  if (kind != "decoder") return RowTokens{.counted = kind == "packed" || kind == "padded"};
  CHAIRLIFT_ASSIGN_OR_RETURN(const InferRequest request,
                             MakeRequest(metadata.name, metadata.inputs, {}));
  const auto answer = std::find_if(request.inputs.begin(), request.inputs.end(),
                                   [](const auto& input) { return input.name == "max_tokens"; });
  return RowTokens{.counted = true, .answer = *answer->tensor.data<int32_t>()};
}

// A column for each batch size; for models that generate, one for each kind of token.
void PrintTokens(const CostTable& table, const RowTokens& tokens) {
  const std::map<int64_t, CostsByRows> by_length = ByLength(table);
  std::set<int64_t> sizes;
  for (const auto& [length, costs] : by_length) {
    for (const auto& [rows, cost] : costs) sizes.insert(rows);
  }
  std::vector<std::string> heads = {"length"};
  if (tokens.answer > 0) heads.insert(heads.end(), {"input tokens/s", "output tokens/s"});
  for (const int64_t rows : sizes) {
    if (tokens.answer == 0) heads.push_back(fmt::format("b={}", rows));
  }
  Table shown(std::move(heads));
  for (const auto& [length, costs] : by_length) {
    std::vector<std::string> line = {std::to_string(length)};
    for (const int64_t rows : sizes) {
      const auto cost = costs.find(rows);
      const bool measured = cost != costs.end();
      const auto rate = [&](int64_t count) {
        if (!measured) return std::string();
        const double seconds = std::chrono::duration<double>(cost->second).count();
        return HumanNumber(std::round(static_cast<double>(rows * count) / seconds));
      };
      line.push_back(rate(length));
      if (tokens.answer > 0) line.push_back(rate(tokens.answer));
    }
    shown.Add(std::move(line));
  }
  PrintText("\ntokens a second; {}:\n{}", tokens.About(), shown.ToString());
}

// `simulate --application encoder` reads costs by length as those of a `sequence`, and those of
// whole requests as those of a `whole`.
std::string TableLines(const CostTable& table, const RowTokens& tokens) {
  std::string lines;
  if (tokens.counted) lines = CsvComment(tokens.About());
  for (const auto& [length, costs] : ByLength(table)) {
    lines += CostLines(length == 0 ? "whole" : "sequence", length, costs);
  }
  return lines;
}

// Saved measurements if they are still valid and wanted; otherwise an empty table.
CostTable Kept(const CostTable::Key& key, const ProfileFlags& flags) {
  if (!flags.again && flags.shapes.empty()) {
    auto kept = CostTable::Load(CostTablePath(key));
    if (kept.ok() && kept->key() == key) return *std::move(kept);
    if (!kept.ok() && kept.status().code() != absl::StatusCode::kNotFound) {
      PrintError("{}: measuring again\n", Message(kept.status()));
    }
  }
  return CostTable(key);
}

// The cells of a model, if it has any.
StatusOr<std::optional<CellProgram>> CellsOf(const ModelPath& model, const EngineOptions& engine) {
  ExecutableOptions options;
  options.disabled_passes = model.config.disabled_passes;
  const std::string& precision = model.config.precision;
  options.round_products_to = RoundedProducts(precision.empty() ? engine.precision : precision);
  if (model.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        ManifestProgram made,
        MakeCellProgram(*model.cells, model.path, options, engine.allow_plugins));
    return std::move(made.program);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel imported, ImportOnnxFile(model.path));
  CHAIRLIFT_RETURN_IF_ERROR(WidenInside(imported.graph));  // as it is served
  StatusOr<SlicedModel> sliced = SliceIntoCells(
      imported.graph, {.max_folded_embedding_bytes = model.config.max_folded_embedding_bytes});
  if (!sliced.ok()) return std::nullopt;
  CHAIRLIFT_ASSIGN_OR_RETURN(CellProgram program, MakeCellProgram(*std::move(sliced), options));
  return program;
}

// Adds what it measured to `*csv`.
Status ProfileWhole(const ModelPath& model, const ProfileFlags& flags, Engine& engine,
                    std::string* csv) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const CostTable::Key key, CostTableKey(model.path, engine.workers()));
  // One request at a time, so that each is a batch.
  CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel(model.name, model.path, ModelConfig{}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata(model.name));
  InputShapes named;
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &named));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(metadata.inputs, named));
  CostTable table = Kept(key, flags);
  const size_t before = table.costs().size();
  CHAIRLIFT_RETURN_IF_ERROR(MeasureMissing(engine, metadata, flags, named, &table));
  CHAIRLIFT_ASSIGN_OR_RETURN(const RowTokens tokens, TokensOf(metadata));
  *csv += TableLines(table, tokens);
  if (!named.by_name.empty()) {
    std::vector<std::string> shapes;
    for (const auto& shape : named.by_name)
      shapes.push_back(fmt::format("{}", fmt::join(shape.second, "x")));
    Print(table, fmt::format("shape {}", fmt::join(shapes, ", ")));
    PrintText(
        "not kept: --shape is set, and the table is for shapes from --batch-sizes and --lengths\n");
    return absl::OkStatus();
  }
  Print(table, "fixed");
  if (tokens.counted) PrintTokens(table, tokens);
  const std::string path = CostTablePath(key).string();
  if (table.costs().size() > before) {
    CHAIRLIFT_RETURN_IF_ERROR(Annotate(table.Save(path), "not kept"));
  }
  PrintText("kept in {}{}\n", path, before > 0 ? "; --force measures everything again" : "");
  return absl::OkStatus();
}

Status ProfileNodes(const ModelPath& model, const ProfileFlags& flags, Engine& engine) {
  CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel(model.name, model.path, model.config));
  ProfileOperatorsOptions options{.shapes = {},
                                  .seconds = flags.seconds,
                                  .top = flags.top,
                                  .json = flags.json,
                                  .csv = flags.csv,
                                  .svg = flags.svg};
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &options.shapes));
  options.shapes.batch = flags.batch;
  options.shapes.length = flags.length;
  return ProfileOperators(engine, model.name, options);
}

Status Profile(const ProfileFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelPath model, FindModel(flags.model));
  if (model.function) {
    return Usage(
        InvalidArgument("a Python model has no operators to profile; `chairlift bench` times it"));
  }
  std::map<std::string, const char*> writers;
  for (const auto& [flag, file] : {std::pair("--json", flags.json), std::pair("--csv", flags.csv),
                                   std::pair("--svg", flags.svg)}) {
    if (file.empty()) continue;
    const auto [other, added] = writers.emplace(file, flag);
    if (!added) {
      return Usage(InvalidArgument("{} and {} would both write {}; name two files", other->second,
                                   flag, file));
    }
    CHAIRLIFT_RETURN_IF_ERROR(CheckWritable(file));
  }
  EngineOptions options = flags.engine;
  options.on_load = LoadBar();
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto engine, Engine::Create(options));
  if (flags.operators) return ProfileNodes(model, flags, *engine);
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::optional<CellProgram> cells, CellsOf(model, flags.engine));
  // Requests to a model of user-defined cells cannot be generated.
  std::string csv = CsvComment(fmt::format("{}, {}: microseconds of a batch", model.name,
                                           Counted(engine->workers(), "worker"))) +
                    "cell,rows,length,microseconds\n";
  if (!model.cells) CHAIRLIFT_RETURN_IF_ERROR(ProfileWhole(model, flags, *engine, &csv));
  if (cells) {
    if (!model.cells) PrintText("\n");
    CHAIRLIFT_RETURN_IF_ERROR(
        ProfileCells(*cells,
                     {.batches = flags.batches,
                      .per_point = std::chrono::duration<double>(flags.seconds_per_point),
                      .workers = engine->workers(),
                      .again = flags.again},
                     &csv));
  }
  return WriteCsv(flags.csv, csv);
}

}  // namespace

Command AddProfile(CLI::App& parser) {
  auto flags = std::make_shared<ProfileFlags>();
  parser.footer(
      R"(The table is kept for each model, CPU and build. A later call measures only entries that are
missing. If the model runs as cells, each cell is timed, and `serve` chooses batch sizes by these
times. For encoders and models that generate, it also shows tokens a second. --operators shows the
time of each operator and node of one request, the kernel that computes it, and how close it is to
the limit of the machine.

Examples:
  chairlift profile model.onnx --batch-sizes 1,8,32 --lengths 16,128 --csv costs.csv
  chairlift profile model.onnx --operators --shape image=1x3x640x640 --workers 1)");
  TakesModel(
      parser.add_option("MODEL", flags->model, "ONNX file or folder of a model")->required());
  AddPrecision(parser, &flags->engine.precision);
  auto* operators =
      parser.add_flag("--operators", flags->operators,
                      "Time every operator and node of one request instead of batches");
  parser.add_option("--batch-sizes", flags->batches, "Batch sizes to measure")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->excludes(operators)
      ->type_name("N,N")
      ->capture_default_str();
  parser
      .add_option("--lengths", flags->lengths,
                  "Lengths to measure, for open dimensions other than the batch")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->excludes(operators)
      ->type_name("N,N")
      ->capture_default_str();
  parser
      .add_option("--shape", flags->shapes,
                  "Shape of an input, as image=1x3x224x224; --batch-sizes replaces dimension 0")
      ->type_name("NAME=SHAPE");
  AddNumber(parser, "--seconds-per-point", &flags->seconds_per_point, 0, 60, "S",
            "Time for each entry of the table")
      ->excludes(operators);
  parser.add_flag("--force", flags->again, "Measure entries again that are in the table")
      ->excludes(operators);
  const auto only_operators = [&](CLI::Option* option) { option->needs(operators); };
  only_operators(AddNumber(parser, "--batch-size", &flags->batch, 1, 4096, "N",
                           "With --operators: dimension 0, if the model leaves it open"));
  only_operators(AddNumber(parser, "--length", &flags->length, 1, 1 << 20, "N",
                           "With --operators: other open dimensions"));
  only_operators(AddNumber(parser, "--seconds", &flags->seconds, 0, 600, "S",
                           "With --operators: time for all requests"));
  only_operators(AddNumber(parser, "--top", &flags->top, 1, 100000, "N",
                           "With --operators: number of nodes to list"));
  const auto writes = [&](CLI::Option* option) {
    only_operators(option);
    TakesOutput(option);
  };
  writes(parser.add_option("--json", flags->json,
                           "With --operators: write the time of every node to this file"));
  TakesOutput(parser.add_option("--csv", flags->csv,
                                "Write the table to this file, as `simulate --costs` reads it; "
                                "with --operators: the time of every node"));
  writes(parser.add_option("--svg", flags->svg, "With --operators: draw the operators as bars"));
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddWorkers(parser, &flags->engine.workers);
  return [flags] { return Profile(*flags); };
}

}  // namespace chairlift
