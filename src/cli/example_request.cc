#include "cli/example_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "server/http/oip_codec.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

constexpr int64_t kMaxInlineNumbers = 600;
constexpr int64_t kExampleLength = 4;  // for variable dimensions other than the batch

Tensor Filled(DType dtype, const Shape& shape, int with) {
  Tensor tensor = Tensor::Allocate(dtype, shape);
  const Status filled =
      DispatchTypes<float, double, Float16, BFloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                    uint16_t, uint32_t, uint64_t, bool>(dtype, [&]<typename T>() {
        std::fill_n(tensor.data<T>(), tensor.size(), static_cast<T>(with));
        return absl::OkStatus();
      });
  return filled.ok() ? tensor : Tensor();
}

// All elements the same number, nested as the shape without its first dimension, which is 1.
std::string Nested(const Shape& shape, int with, int axis = 1) {
  if (axis >= shape.rank()) return std::to_string(with);
  const std::vector<std::string> inner(static_cast<size_t>(shape[axis]),
                                       Nested(shape, with, axis + 1));
  return fmt::format("[{}]", fmt::join(inner, ","));
}

// A command that the model answers, all of its inputs filled with one number; else a comment. It
// shows the parts of the answer where the model has any.
std::string Command(Engine& engine, const ModelMetadata& model, const std::string& address,
                    int port, int with) {
  std::string inputs;
  std::string generated;  // likewise, for a stream
  std::string signature;
  int64_t numbers = 0;
  InferRequest request;
  request.model = model.name;
  request.version = model.version;
  for (const TensorSpec& input : model.inputs) {
    Shape shape;
    for (size_t i = 0; i < input.shape.size(); ++i) {
      const int64_t open = i == 0 ? 1 : kExampleLength;
      shape.Append(input.shape[i] < 0 ? open : input.shape[i]);
    }
    signature += fmt::format("{}{} [{}]", signature.empty() ? "" : ", ", input.name,
                             fmt::join(input.shape, ","));
    const auto count = shape.Checked(DTypeSize(input.dtype));
    numbers += count.ok() ? *count : kMaxInlineNumbers + 1;
    if (numbers > kMaxInlineNumbers) continue;
    const std::vector<int> values(static_cast<size_t>(*count), with);
    inputs += fmt::format("{}{{\"name\":\"{}\",\"datatype\":\"{}\",\"shape\":[{}],\"data\":[{}]}}",
                          inputs.empty() ? "" : ",", input.name, http::WireName(input.dtype),
                          fmt::join(shape, ","), fmt::join(values, ","));
    generated +=
        fmt::format("{}\"{}\":{}", generated.empty() ? "" : ",", input.name, Nested(shape, with));
    request.inputs.push_back({input.name, Filled(input.dtype, shape, with)});
  }
  bool parts = false;
  request.on_parts = [&parts](std::span<const InferPart> /*told*/) { parts = true; };
  if (numbers > kMaxInlineNumbers || !engine.Infer(std::move(request)).ok()) {
    return fmt::format("# {}: {}; see `chairlift run` for files\n", model.name, signature);
  }
  if (parts) {
    return fmt::format("curl -sN {}:{}/v2/models/{}/generate_stream -d '{{{}}}'\n", address, port,
                       model.name, generated);
  }
  return fmt::format("curl -s {}:{}/v2/models/{}/infer -d '{{\"inputs\":[{}]}}'\n", address, port,
                     model.name, inputs);
}

}  // namespace

std::string ExampleRequest(Engine& engine, const std::string& address, int port) {
  std::vector<std::string> commands;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto metadata = engine.Metadata(entry.name, entry.version);
    if (!metadata.ok()) continue;
    std::string command = Command(engine, *metadata, address, port, 1);
    // A 1 may point at what is not there: where -1 is the child of a leaf, this is a tree.
    if (command[0] == '#') command = Command(engine, *metadata, address, port, -1);
    commands.push_back(std::move(command));
  }
  // The short ones first: those are the ones to paste.
  std::stable_sort(commands.begin(), commands.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::stable_partition(commands.begin(), commands.end(),
                        [](const auto& c) { return c.rfind("curl", 0) == 0; });
  std::string out = "Try it from another terminal:\n\n";
  for (const auto& command : commands) out += command;
  return out;
}

}  // namespace chairlift
