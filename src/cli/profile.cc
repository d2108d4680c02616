// `chairlift profile`: fills a model's cost table and shows it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/terminal.h"
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

// Whether dimensions other than the first vary, so that length matters.
bool VariesInLength(const std::vector<TensorSpec>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const TensorSpec& spec) {
    return std::any_of(spec.shape.begin() + (spec.shape.empty() ? 0 : 1), spec.shape.end(),
                       [](int64_t d) { return d < 0; });
  });
}

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

StatusOr<CostTable> MeasureAll(Engine& engine, const ModelMetadata& metadata,
                               const ProfileFlags& flags, CostTable::Key key) {
  InputShapes shapes;
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &shapes));
  const std::vector<int64_t> one = {1};
  const std::vector<int64_t> none = {0};
  const auto& batches = metadata.batches ? flags.batches : one;
  const auto& lengths = VariesInLength(metadata.inputs) ? flags.lengths : none;
  CostTable table(std::move(key));
  ProgressBar bar("measuring", static_cast<int64_t>(batches.size() * lengths.size()));
  int64_t done = 0;
  for (const int64_t length : lengths) {
    for (const int64_t batch : batches) {
      shapes.batch = batch;
      shapes.length = length;
      CHAIRLIFT_ASSIGN_OR_RETURN(const auto cost,
                                 Measure(engine, metadata.inputs, shapes, flags.seconds_per_point));
      table.Set(batch, length, cost);
      bar.Set(++done);
    }
  }
  return table;
}

void Print(const CostTable& table) {
  std::map<int64_t, std::map<int64_t, double>> by_length;
  std::vector<std::string> head = {"length"};
  for (const auto& [shape, cost] : table.costs()) {
    by_length[shape.second][shape.first] = static_cast<double>(cost.count()) * 1e-9;
  }
  for (const auto& [rows, cost] : by_length.begin()->second)
    head.push_back(fmt::format("b={}", rows));
  Table text(head);
  for (const auto& [length, costs] : by_length) {
    std::vector<std::string> row = {length == 0 ? "fixed" : std::to_string(length)};
    for (const auto& [rows, cost] : costs) {
      row.push_back(
          fmt::format("{} ({:.0f}/s)", HumanSeconds(cost), static_cast<double>(rows) / cost));
    }
    text.Add(std::move(row));
  }
  fmt::print("time of a batch (rows a second):\n{}", text.ToString());
}

Status Profile(const ProfileFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto engine, Engine::Create(flags.engine));
  CHAIRLIFT_ASSIGN_OR_RETURN(CostTable::Key key, CostTableKey(flags.model, engine->workers()));
  const auto path = CostTablePath(key);
  if (!flags.again) {
    const auto kept = CostTable::Load(path);
    if (kept.ok() && kept->key() == key && !kept->costs().empty()) {
      Print(*kept);
      fmt::print("kept in {}; --again measures anew\n", path.string());
      return absl::OkStatus();
    }
    if (!kept.ok() && kept.status().code() != absl::StatusCode::kNotFound) {
      fmt::print(stderr, "{}\n", Message(kept.status()));
    }
  }
  ModelConfig config;
  config.policy = "none";
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", flags.model, config));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine->Metadata("model"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const CostTable table, MeasureAll(*engine, metadata, flags, key));
  CHAIRLIFT_RETURN_IF_ERROR(table.Save(path));
  Print(table);
  fmt::print("kept in {}\n", path.string());
  return absl::OkStatus();
}

}  // namespace

Command AddProfile(CLI::App& parser) {
  auto flags = std::make_shared<ProfileFlags>();
  parser.footer(
      "The table is kept by model, CPU and build, and shown from there the next time.\n"
      "Example:\n"
      "  chairlift profile model.onnx --batches 1,8,32 --lengths 16,128");
  parser.add_option("MODEL", flags->model, "ONNX file")->required()->check(CLI::ExistingFile);
  parser.add_option("--batches", flags->batches, "Rows to measure, where the model batches")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  parser.add_option("--lengths", flags->lengths, "Lengths to measure, where other dimensions vary")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  parser.add_option("--shape", flags->shapes, "NAME=1x3x224x224: fixes the shape of an input");
  parser.add_option("--seconds-per-point", flags->seconds_per_point, "Time spent on each entry")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  parser.add_flag("--again", flags->again, "Measure even where a table is kept");
  parser.add_option("--workers", flags->engine.workers, "Compute threads; 0: one for each core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  return [flags] { return Profile(*flags); };
}

}  // namespace chairlift
