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

constexpr std::string_view kText = "a text";  // each element of an input of strings

Tensor Filled(DType dtype, const Shape& shape, int with) {
  if (dtype == DType::kBytes) {
    const auto count = static_cast<size_t>(shape.NumElements());
    return TextTensor(shape, std::vector<std::string>(count, std::string(kText)));
  }
  Tensor tensor = Tensor::Allocate(dtype, shape);
  const Status filled = DispatchAll(dtype, [&]<typename T>() {
    std::fill_n(tensor.data<T>(), tensor.size(), static_cast<T>(with));
    return absl::OkStatus();
  });
  return filled.ok() ? tensor : Tensor();
}

// An element in JSON.
std::string Element(DType dtype, int with) {
  return dtype == DType::kBytes ? fmt::format("\"{}\"", kText) : std::to_string(with);
}

// All elements with the same value, nested like the shape without its first dimension, which is 1.
std::string Nested(const Shape& shape, const std::string& with, int axis = 1) {
  if (axis >= shape.rank()) return with;
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
      inputs.push_back(
          fmt::format("\"{}\":{}", input.name, Nested(shape, Element(input.dtype, with))));
      continue;
    }
    const std::vector<std::string> values(static_cast<size_t>(shape.NumElements()),
                                          Element(input.dtype, with));
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
                                  int with, InputShapes start = {}) {
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
  start.length = kExampleLength;
  const auto shapes = FindShapes(model.inputs, start, kLengthsToTry, attempt);
  if (!shapes.ok()) return why.ok() ? shapes.status() : why;
  const bool of_parts = std::exchange(parts, false);
  return fmt::format("curl -s{} {}/v2/models/{}/{} -d '{}'\n", of_parts ? "N" : "", site,
                     model.name, of_parts ? "generate_stream" : "infer",
                     Body(model, *shapes, with, of_parts));
}

// The number of elements of all inputs in the first shapes that are tried.
int64_t ElementsOf(const ModelMetadata& model) {
  InputShapes shapes;
  shapes.length = kExampleLength;
  int64_t elements = 0;
  for (const TensorSpec& input : model.inputs) {
    const auto shape = ResolveShape(input, shapes);
    if (shape.ok()) elements += shape->NumElements();
  }
  return elements;
}

// Used if no command can be pasted because its inputs are large: a Python program with a client of
// Triton.
std::string InPython(const ModelMetadata& model, const std::string& site) {
  InputShapes shapes;
  shapes.length = kExampleLength;
  std::string program = fmt::format(
      "# {}: its inputs are too large to paste; in Python, with `pip install numpy "
      "tritonclient[http]`:\n"
      "import numpy as np, tritonclient.http as http\n",
      model.name);
  std::vector<std::string> inputs;
  for (const TensorSpec& input : model.inputs) {
    const auto shape = ResolveShape(input, shapes);
    if (!shape.ok() || input.dtype == DType::kBytes || input.dtype == DType::kBFloat16) {
      return fmt::format("# {}: its inputs are too large to paste\n", model.name);
    }
    const std::string name = fmt::format("input{}", inputs.size());
    program += fmt::format(
        "{0} = http.InferInput(\"{1}\", [{2}], \"{3}\")\n"
        "{0}.set_data_from_numpy(np.ones([{2}], np.{4}))\n",
        name, input.name, fmt::join(*shape, ", "), DatatypeName(input.dtype),
        input.dtype == DType::kBool ? "bool_" : DTypeName(input.dtype));
    inputs.push_back(name);
  }
  return program + fmt::format(
                       "answer = http.InferenceServerClient(\"{}\").infer(\"{}\", [{}])\n"
                       "print(answer.as_numpy(\"{}\"))\n",
                       site, model.name, fmt::join(inputs, ", "),
                       model.outputs.empty() ? "" : model.outputs[0].name);
}

// A request that the server answers, or why it has no example.
std::string ForModel(Engine& engine, const ModelMetadata& model, const std::string& site) {
  const StatusOr<std::string> command = CurlCommand(engine, model, site, 1);
  if (command.ok()) return *command;
  // A 1 may refer to something that does not exist; with -1, a leaf's child, the input is a valid
  // tree.
  const StatusOr<std::string> other = CurlCommand(engine, model, site, -1);
  if (other.ok()) return *other;
  if (ElementsOf(model) > kMaxInlineNumbers) return InPython(model, site);
  // The shapes of a Python function may not be annotated: a row of two.
  InputShapes rows;
  for (const TensorSpec& input : model.inputs) {
    if (input.shape.empty()) rows.by_name[input.name] = {1, 2};
  }
  const StatusOr<std::string> guessed = CurlCommand(engine, model, site, 1, rows);
  if (guessed.ok()) return *guessed;
  return fmt::format("# {}: it refuses the inputs that were made up for an example: {}\n",
                     model.name, Message(command.status()));
}

// Models that the server added for a tokenizer have separate routes. Empty: it has none.
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
  return "";
}

}  // namespace

std::string ExampleRequest(Engine& engine, const std::string& site) {
  std::vector<std::string> commands;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto metadata = engine.Metadata(entry.name, entry.version);
    if (!metadata.ok()) continue;
    const bool is_part = entry.name.find('/') != std::string::npos;
    commands.push_back(is_part ? WithTexts(entry.name, site) : ForModel(engine, *metadata, site));
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
