#include "cli/example_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "cli/inputs.h"
#include "tensor/datatype.h"
#include "tensor/dispatch_all.h"

namespace chairlift {
namespace {

constexpr int64_t kMaxInlineNumbers = 600;
constexpr int64_t kExampleLength = 4;  // for variable dimensions other than the batch

Tensor Filled(DType dtype, const Shape& shape, int with) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  const Status filled = DispatchAll(dtype, [&]<typename T>() {
    std::fill_n(tensor.data<T>(), tensor.size(), static_cast<T>(with));
    return absl::OkStatus();
  });
  return filled.ok() ? tensor : Tensor();
}

// All elements with the same value, nested like the shape without its first dimension, which is 1.
std::string Nested(const Shape& shape, int with, int axis = 1) {
  if (axis >= shape.rank()) return std::to_string(with);
  const std::vector<std::string> inner(static_cast<size_t>(shape[axis]),
                                       Nested(shape, with, axis + 1));
  return fmt::format("[{}]", fmt::join(inner, ","));
}

// The body of a request, or of a stream (`nested`), with all inputs filled with one number. For a
// model that keeps the state of its sequences, the first chunk of one.
std::string Body(const ModelMetadata& model, const InputShapes& shapes, int with, bool nested) {
  std::vector<std::string> inputs;
  for (const TensorSpec& input : model.inputs) {
    const auto resolved = ResolveShape(input, shapes);
    if (!resolved.ok()) continue;  // tried before
    const Shape& shape = *resolved;
    if (nested) {
      inputs.push_back(fmt::format("\"{}\":{}", input.name, Nested(shape, with)));
      continue;
    }
    const std::vector<int> values(static_cast<size_t>(shape.NumElements()), with);
    inputs.push_back(fmt::format(
        "{{\"name\":\"{}\",\"datatype\":\"{}\",\"shape\":[{}],\"data\":[{}]}}", input.name,
        DatatypeName(input.dtype), fmt::join(shape, ","), fmt::join(values, ",")));
  }
  const char* chunk = model.config.sequence_state.empty()
                          ? ""
                          : R"("parameters":{"sequence_id":1,"sequence_start":true},)";
  return fmt::format(fmt::runtime(nested ? "{{{}{}}}" : "{{{}\"inputs\":[{}]}}"), chunk,
                     fmt::join(inputs, ","));
}

// A command that the model answers, with all inputs filled with one number, or why there is none.
// Uses the streaming route if the model sends parts.
StatusOr<std::string> CurlCommand(Engine& engine, ModelMetadata model, const std::string& site,
                                  int with) {
  // Only the prompt is needed; other inputs are optional.
  if (AreOfGeneration(model.inputs)) model.inputs.resize(1);
  const bool chunks = !model.config.sequence_state.empty();
  for (const auto& [output, kept] : model.config.sequence_state) {
    std::erase_if(model.inputs,
                  [&name = kept](const TensorSpec& input) { return input.name == name; });
  }
  bool parts = false;
  Status why;
  const auto attempt = [&](const InputShapes& shapes) -> Status {
    InferRequest request;
    request.model = model.name;
    request.version = model.version;
    if (chunks) request.sequence = "--print-example";
    request.sequence_start = request.sequence_end = chunks;
    request.on_parts = [&parts](std::span<const InferPart> /*streamed*/) { parts = true; };
    int64_t numbers = 0;
    for (const TensorSpec& input : model.inputs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(input, shapes));
      numbers += shape.NumElements();
      if (numbers <= kMaxInlineNumbers) {
        request.inputs.push_back({input.name, Filled(input.dtype, shape, with)});
      }
    }
    Status status = numbers > kMaxInlineNumbers
                        ? InvalidArgument("inputs of {} numbers are too long to paste", numbers)
                        : engine.Infer(std::move(request)).status();
    why.Update(status);
    return status;
  };
  InputShapes start;
  start.length = kExampleLength;
  const auto shapes = FindShapes(model.inputs, start, kLengthsToTry, attempt);
  if (!shapes.ok()) return why.ok() ? shapes.status() : why;
  const bool of_parts = std::exchange(parts, false);
  return fmt::format("curl -s{} {}/v2/models/{}/{} -d '{}'\n", of_parts ? "N" : "", site,
                     model.name, of_parts ? "generate_stream" : "infer",
                     Body(model, *shapes, with, of_parts));
}

// Used if no command can be pasted because its inputs are large.
std::string WithFiles(const ModelMetadata& model) {
  std::string inputs;
  for (const TensorSpec& input : model.inputs) {
    inputs += fmt::format(" --input {0}={0}.npy", input.name);
  }
  return fmt::format("# {}: its inputs are too large to paste; from files: chairlift run MODEL{}\n",
                     model.name, inputs);
}

bool TakesTexts(const ModelMetadata& model) {
  return std::any_of(model.inputs.begin(), model.inputs.end(),
                     [](const TensorSpec& input) { return input.dtype == DType::kBytes; });
}

// Models that the server added for a tokenizer have separate routes.
std::string WithTexts(const std::string& name, const std::string& site) {
  const size_t slash = name.rfind('/');
  const std::string part = slash == std::string::npos ? "" : name.substr(slash + 1);
  const std::string model = name.substr(0, slash);
  if (part == "embed") {
    return fmt::format(R"(curl -s {}/v1/embeddings -d '{{"model":"{}","input":"a text"}}')"
                       "\n",
                       site, model);
  }
  if (part == "rerank") {
    return fmt::format(
        R"(curl -s {}/v1/rerank -d '{{"model":"{}","query":"a text","documents":["one","two"]}}')"
        "\n",
        site, model);
  }
  if (part == "predict") {
    return fmt::format(R"(curl -s {}/predict -d '{{"model":"{}","inputs":"a text"}}')"
                       "\n",
                       site, model);
  }
  if (part == "complete") {
    return fmt::format(R"(curl -s {}/v1/completions -d '{{"model":"{}","prompt":"gondola"}}')"
                       "\n",
                       site, model);
  }
  if (part == "tokenizer" || part == "detokenizer") return "";
  return fmt::format("# {}: it takes texts\n", name);
}

}  // namespace

std::string ExampleRequest(Engine& engine, const std::string& site) {
  std::vector<std::string> commands;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto metadata = engine.Metadata(entry.name, entry.version);
    if (!metadata.ok()) continue;
    if (TakesTexts(*metadata) || entry.name.ends_with("/detokenizer")) {
      commands.push_back(WithTexts(entry.name, site));
      continue;
    }
    const StatusOr<std::string> command = CurlCommand(engine, *metadata, site, 1);
    // A 1 may refer to something that does not exist; with -1, a leaf's child, the input is a valid
    // tree.
    const StatusOr<std::string> other =
        command.ok() ? command : CurlCommand(engine, *metadata, site, -1);
    commands.push_back(other.ok() ? *other : WithFiles(*metadata));
  }
  // Short commands first: they are the easiest to paste.
  std::stable_sort(commands.begin(), commands.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::stable_partition(commands.begin(), commands.end(),
                        [](const auto& c) { return c.rfind("curl", 0) == 0; });
  std::string out = "Try it from another terminal:\n\n";
  for (const auto& command : commands) out += command;
  return out;
}

}  // namespace chairlift
