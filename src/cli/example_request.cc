#include "cli/example_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "server/http/oip_codec.h"

namespace chairlift {
namespace {

constexpr int64_t kMaxInlineNumbers = 600;
constexpr int64_t kExampleLength = 4;  // for variable dimensions other than the batch

std::string Command(const ModelMetadata& model, const std::string& address, int port) {
  std::string inputs;
  int64_t numbers = 0;
  std::string shapes;
  for (const TensorSpec& input : model.inputs) {
    std::vector<int64_t> shape = input.shape;
    int64_t count = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 0) shape[i] = i == 0 ? 1 : kExampleLength;
      count *= shape[i];
    }
    numbers += count;
    if (numbers > kMaxInlineNumbers) {
      return fmt::format("# {}: input '{}' has shape [{}]; see `chairlift run` for files\n",
                         model.name, input.name, fmt::join(input.shape, ","));
    }
    const std::vector<int> ones(static_cast<size_t>(count), 1);
    inputs += fmt::format("{}{{\"name\":\"{}\",\"datatype\":\"{}\",\"shape\":[{}],\"data\":[{}]}}",
                          inputs.empty() ? "" : ",", input.name, http::WireName(input.dtype),
                          fmt::join(shape, ","), fmt::join(ones, ","));
  }
  return fmt::format("curl -s {}:{}/v2/models/{}/infer -d '{{\"inputs\":[{}]}}'\n", address, port,
                     model.name, inputs);
}

}  // namespace

std::string ExampleRequest(const Engine& engine, const std::string& address, int port) {
  std::vector<std::string> commands;
  for (const ModelIndexEntry& entry : engine.Index()) {
    if (entry.state != ModelState::kReady) continue;
    const auto metadata = engine.Metadata(entry.name, entry.version);
    if (metadata.ok()) commands.push_back(Command(*metadata, address, port));
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
