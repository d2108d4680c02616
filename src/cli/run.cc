// `chairlift run`: one inference from .npy files to .npy files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

struct RunFlags {
  std::string model;
  std::vector<std::string> inputs;
  std::string output_dir;
  EngineOptions engine;
};

// An output's name as a file name: what a folder could not hold becomes '_'.
std::string FileName(const std::string& name) {
  std::string out;
  for (char c : name) out += c == '/' || c == '\0' ? '_' : c;
  return out + ".npy";
}

Status Run(const RunFlags& flags) {
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
  EngineOptions options = flags.engine;
  options.on_load = LoadBar();
  options.time_cells = false;  // one request has nobody to share a batch with
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  if (!model.cells) model.config.policy = "none";
  model.config.max_batch_size = 0;  // all rows of the request at once
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", model.path, model.config));
  InferRequest request;
  request.model = "model";
  CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, ReadInputs(flags.inputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(const InferResponse response, engine->Infer(std::move(request)));

  Table table({"output", "type", "shape", "file"});
  if (!flags.output_dir.empty()) std::filesystem::create_directories(flags.output_dir);
  for (const NamedTensor& output : response.outputs) {
    std::string file;
    if (!flags.output_dir.empty()) {
      const auto path = std::filesystem::path(flags.output_dir) / FileName(output.name);
      CHAIRLIFT_RETURN_IF_ERROR(WriteNpy(path, output.tensor));
      file = path.string();
    }
    table.Add({output.name, std::string(DTypeName(output.tensor.dtype())),
               output.tensor.shape().ToString(), file});
  }
  fmt::print("{}computed in {}\n", table.ToString(),
             HumanSeconds(static_cast<double>(response.compute_time.count()) * 1e-9));
  return absl::OkStatus();
}

}  // namespace

Command AddRun(CLI::App& parser) {
  auto flags = std::make_shared<RunFlags>();
  parser.footer(
      "Example:\n"
      "  python3 -c \"import numpy; numpy.save('x.npy', numpy.ones((1, 16), 'float32'))\"\n"
      "  chairlift run model.onnx --input x=x.npy --output-dir out\n"
      "`chairlift inspect model.onnx` lists the inputs.");
  parser.add_option("MODEL", flags->model, "ONNX file, or a model's folder")
      ->required()
      ->check(CLI::ExistingPath.description("PATH"));
  parser.add_option("--input", flags->inputs, "NAME=FILE.npy, one for each input of the model");
  parser.add_option("--output-dir", flags->output_dir, "Folder for <output>.npy; made if missing");
  parser.add_option("--workers", flags->engine.workers, "Compute threads; 0: one for each core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  return [flags] { return Run(*flags); };
}

}  // namespace chairlift
