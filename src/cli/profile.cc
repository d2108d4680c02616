// `chairlift profile`: fills a model's cost table and shows it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/profile_cells.h"
#include "cli/terminal.h"
#include "engine/cell_program.h"
#include "graph/onnx/import.h"
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
  EngineOptions engine;
};

// Median time of one batch, over at least three runs and about `seconds`.
StatusOr<std::chrono::nanoseconds> Measure(Engine& engine, const std::vector<TensorSpec>& inputs,
                                           const InputShapes& shapes, double seconds) {
  std::mt19937_64 random(1);
  InferRequest request;
  request.model = "model";
  CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(inputs, shapes, random));
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

// The points of the grid that `*table` lacks.
Status MeasureMissing(Engine& engine, const ModelMetadata& metadata, const ProfileFlags& flags,
                      CostTable* table) {
  InputShapes shapes;
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &shapes));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(metadata.inputs, shapes));
  const std::vector<int64_t> one = {1};
  const std::vector<int64_t> none = {0};
  const auto& batches = metadata.batches ? flags.batches : one;
  const auto& lengths = VariesInLength(metadata.inputs) ? flags.lengths : none;
  ProgressBar bar("measuring", static_cast<int64_t>(batches.size() * lengths.size()));
  int64_t done = 0;
  for (const int64_t length : lengths) {
    for (const int64_t batch : batches) {
      bar.Set(done++);
      if (table->costs().count({batch, length}) != 0) continue;
      shapes.batch = batch;
      shapes.length = length;
      for (auto& [name, dims] : shapes.by_name) {
        if (metadata.batches && !dims.empty()) dims[0] = batch;
      }
      const auto cost = Measure(engine, metadata.inputs, shapes, flags.seconds_per_point);
      if (!cost.ok()) {
        return Annotate(cost.status(), fmt::format("{} rows of length {}", batch, length));
      }
      table->Set(batch, length, *cost);
    }
  }
  return absl::OkStatus();
}

void Print(const CostTable& table) {
  std::map<int64_t, std::map<int64_t, double>> by_length;
  std::set<int64_t> batches;
  for (const auto& [shape, cost] : table.costs()) {
    by_length[shape.second][shape.first] = static_cast<double>(cost.count()) * 1e-9;
    batches.insert(shape.first);
  }
  std::vector<std::string> head = {"length"};
  for (const int64_t rows : batches) head.push_back(fmt::format("b={}", rows));
  Table text(head);
  for (const auto& [length, costs] : by_length) {
    std::vector<std::string> row = {length == 0 ? "fixed" : std::to_string(length)};
    for (const int64_t rows : batches) {
      const auto cost = costs.find(rows);
      row.push_back(cost == costs.end() ? ""
                                        : fmt::format("{} ({:.0f}/s)", HumanSeconds(cost->second),
                                                      static_cast<double>(rows) / cost->second));
    }
    text.Add(std::move(row));
  }
  fmt::print("time of a batch (rows a second):\n{}", text.ToString());
}

// What was measured before, where it still holds and is wanted; else an empty table.
CostTable Kept(const CostTable::Key& key, const ProfileFlags& flags) {
  if (!flags.again && flags.shapes.empty()) {
    auto kept = CostTable::Load(CostTablePath(key));
    if (kept.ok() && kept->key() == key) return *std::move(kept);
    if (!kept.ok() && kept.status().code() != absl::StatusCode::kNotFound) {
      fmt::print(stderr, "{}: measuring anew\n", Message(kept.status()));
    }
  }
  return CostTable(key);
}

// The cells of a model that has any.
StatusOr<std::optional<CellProgram>> CellsOf(const ModelPath& model) {
  ExecutableOptions options;
  options.disabled_passes = model.config.disabled_passes;
  if (model.cells) {
    CHAIRLIFT_ASSIGN_OR_RETURN(ManifestProgram made,
                               MakeCellProgram(*model.cells, model.path, options));
    return std::move(made.program);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported, ImportOnnxFile(model.path));
  StatusOr<SlicedModel> sliced =
      SliceIntoCells(imported.graph, {.max_embedding_bytes = model.config.max_embedding_bytes});
  if (!sliced.ok()) return std::nullopt;
  CHAIRLIFT_ASSIGN_OR_RETURN(CellProgram program, MakeCellProgram(*std::move(sliced), options));
  return program;
}

Status ProfileWhole(const ModelPath& model, const ProfileFlags& flags, Engine& engine) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const CostTable::Key key, CostTableKey(model.path, engine.workers()));
  // One request at a time: a batch is what it brings.
  CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel("model", model.path, ModelConfig{}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata("model"));
  CostTable table = Kept(key, flags);
  const size_t before = table.costs().size();
  CHAIRLIFT_RETURN_IF_ERROR(MeasureMissing(engine, metadata, flags, &table));
  const std::string path = CostTablePath(key).string();
  if (table.costs().size() > before) CHAIRLIFT_RETURN_IF_ERROR(table.Save(path));
  Print(table);
  fmt::print("kept in {}{}\n", path, before > 0 ? "; --again measures anew" : "");
  return absl::OkStatus();
}

Status Profile(const ProfileFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelPath model, FindModel(flags.model));
  EngineOptions options = flags.engine;
  options.on_load = LoadBar();
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto engine, Engine::Create(options));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::optional<CellProgram> cells, CellsOf(model));
  // What would be a request to a model of the user's own cells, nobody knows.
  if (!model.cells) CHAIRLIFT_RETURN_IF_ERROR(ProfileWhole(model, flags, *engine));
  if (!cells) return absl::OkStatus();
  if (!model.cells) fmt::print("\n");
  return ProfileCells(*cells, {.batches = flags.batches,
                               .per_point = std::chrono::duration<double>(flags.seconds_per_point),
                               .workers = engine->workers(),
                               .again = flags.again});
}

}  // namespace

Command AddProfile(CLI::App& parser) {
  auto flags = std::make_shared<ProfileFlags>();
  parser.footer(
      "The table is kept by model, CPU and build; the next time only what it lacks is measured.\n"
      "Of a model that runs as cells, each cell is timed; serving chooses its batches by that.\n"
      "Example:\n"
      "  chairlift profile model.onnx --batches 1,8,32 --lengths 16,128");
  parser.add_option("MODEL", flags->model, "ONNX file, or a model's folder")
      ->required()
      ->check(CLI::ExistingPath.description("PATH"));
  parser.add_option("--batches", flags->batches, "Rows to measure, where the model batches")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  parser.add_option("--lengths", flags->lengths, "Lengths to measure, where other dimensions vary")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  parser.add_option("--shape", flags->shapes,
                    "NAME=1x3x224x224: shape of an input; dimension 0 follows --batches");
  parser.add_option("--seconds-per-point", flags->seconds_per_point, "Time spent on each entry")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  parser.add_flag("--again", flags->again, "Measure all anew, also what is kept");
  parser.add_option("--workers", flags->engine.workers, "Compute threads; 0: one for each core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  return [flags] { return Profile(*flags); };
}

}  // namespace chairlift
