// `chairlift run`: one inference from .npy files to .npy files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/excerpt.h"
#include "base/status.h"
#include "chairlift/engine.h"
#include "chairlift/text.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "tensor/dispatch_all.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

struct RunFlags {
  std::string model;
  std::vector<std::string> inputs;
  std::string output_dir;
  std::optional<int64_t> seed;
  EngineOptions engine;
};

// An output's name as a file name: characters that are not allowed become '_'.
std::string FileName(const std::string& name) {
  std::string out;
  for (char c : name) out += c == '/' || c == '\0' ? '_' : c;
  return out + ".npy";
}

// The first elements in memory order: "0.12, -3, …".
std::string FirstValues(const Tensor& tensor) {
  constexpr int64_t kMost = 6;
  std::string text;
  const auto add = [&](auto value) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_integral_v<decltype(value)>) {
      text += fmt::format("{}", value);
    } else {
      text += fmt::format("{:.4g}", static_cast<double>(static_cast<float>(value)));
    }
  };
  const int64_t shown = std::min(kMost, tensor.size());
  if (tensor.dtype() == DType::kBytes) {
    constexpr size_t kMostBytes = 24;
    for (const std::string_view value : TextsOf(tensor).first(static_cast<size_t>(shown))) {
      text += fmt::format("{}'{}'", text.empty() ? "" : ", ", Shortened(value, kMostBytes));
    }
    return tensor.size() > shown ? text + ", …" : text;
  }
  const Status known = DispatchAll(tensor.dtype(), [&]<typename T>() {
    for (int64_t i = 0; i < shown; ++i) add(tensor.data<T>()[i]);
    return absl::OkStatus();
  });
  if (!known.ok()) return {};
  return tensor.size() > shown ? text + ", …" : text;
}

// Whether the inputs of a model or of a request include keys and values of earlier tokens, or an
// encoder's output.
template <typename Input>
bool IsDecoder(const std::vector<Input>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Input& input) {
    return input.name.starts_with("past_key_values.") || input.name == "past_0" ||
           input.name == "encoder_hidden_states";
  });
}

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? Unavailable("cannot make the folder {}: {}", folder, error.message())
               : absl::OkStatus();
}

Status Run(const RunFlags& flags) {
  InferRequest request;
  request.model = "model";
  request.seed = flags.seed;
  CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, ReadInputs(flags.inputs));
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
  EngineOptions options = flags.engine;
  options.on_load = LoadBar();
  options.autotune = false;  // one request shares no batch
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  if (!model.cells) {
    model.config.policy = "none";
    model.config.drop_unused = true;
  }
  model.config.max_batch_size = 0;  // all rows of the request in one batch
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", model.path, model.config));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine->Metadata("model"));
  if (IsDecoder(metadata.inputs) && !IsDecoder(request.inputs)) {  // it must generate
    model.config.policy = "continuous";
    CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", model.path, model.config));
  }
  const StatusOr<InferResponse> answered = engine->Infer(std::move(request));
  for (const TensorSpec& input : metadata.inputs) {
    const std::string missing = fmt::format("input '{}' is missing", input.name);
    if (answered.ok() || !Message(answered.status()).starts_with(missing)) continue;
    return InvalidArgument("{}; add --input {}=FILE.npy", Message(answered.status()), input.name);
  }
  CHAIRLIFT_RETURN_IF_ERROR(answered.status());
  const InferResponse& response = *answered;

  const bool kept = !flags.output_dir.empty();
  Table table({"output", "type", "shape", "values", kept ? "file" : ""});
  if (kept) CHAIRLIFT_RETURN_IF_ERROR(MakeFolder(flags.output_dir));
  for (const NamedTensor& output : response.outputs) {
    std::string file;
    if (kept) {
      const auto path = std::filesystem::path(flags.output_dir) / FileName(output.name);
      CHAIRLIFT_RETURN_IF_ERROR(WriteNpy(path, output.tensor));
      file = path.string();
    }
    table.Add({output.name, std::string(DTypeName(output.tensor.dtype())),
               output.tensor.shape().ToString(), FirstValues(output.tensor), file});
  }
  PrintText("{}computed in {}\n", table.ToString(),
            HumanSeconds(static_cast<double>(response.compute_time.count()) * 1e-9));
  return absl::OkStatus();
}

}  // namespace

Command AddRun(CLI::App& parser) {
  auto flags = std::make_shared<RunFlags>();
  parser.footer(R"help(Example:
  python3 -m venv .venv && .venv/bin/pip install numpy   # if no Python here has numpy
  .venv/bin/python -c "import numpy; numpy.save('x.npy', numpy.ones((1, 16), 'float32'))"
  chairlift run model.onnx --input x=x.npy --output-dir out

`chairlift inspect model.onnx` lists the inputs.)help");
  TakesModel(
      parser.add_option("MODEL", flags->model, "ONNX file or folder of a model")->required());
  parser.add_option("--input", flags->inputs, "Values of an input; needed once for each input")
      ->type_name("NAME=FILE.npy");
  TakesOutput(
      parser.add_option(
          "--output-dir", flags->output_dir,
          "Also write each output to <output>.npy in this folder, which is created if missing"),
      "DIR");
  parser
      .add_option("--seed", flags->seed,
                  "Seed of random numbers, if the model uses any. Default: random")
      ->type_name("N");
  AddAllowPlugins(parser, &flags->engine.allow_plugins);
  AddWorkers(parser, &flags->engine.workers);
  AddDevice(parser, &flags->engine.device);
  AddPrecision(parser, &flags->engine.precision);
  return [flags] { return Run(*flags); };
}

}  // namespace chairlift
