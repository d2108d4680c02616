#include "cli/limit_flags.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace chairlift {
namespace {

constexpr const char* kSizes = "Limits in bytes (64KiB or 2GiB will do)";
constexpr const char* kCounts = "Limits in numbers";
constexpr const char* kTimes = "Time limits in ms";

// The largest unit that says it without a fraction.
std::string InUnits(size_t bytes) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; unit < 3 && bytes != 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return std::to_string(bytes) + kUnits[unit];
}

void AddBytes(CLI::App& parser, const char* flag, size_t* value, const char* about) {
  parser.add_option(flag, *value, about)
      ->transform(CLI::AsSizeValue(false))
      ->default_str(InUnits(*value))
      ->type_name("BYTES")
      ->group(kSizes);
}

template <typename T>
void AddCount(CLI::App& parser, const char* flag, T* value, T least, T most, const char* about) {
  parser.add_option(flag, *value, about)
      ->check(CLI::Range(least, most))
      ->type_name("NUMBER")
      ->group(kCounts)
      ->capture_default_str();
}

void AddTime(CLI::App& parser, const char* flag, std::chrono::milliseconds* value,
             const char* about) {
  constexpr int64_t kDay = 86'400'000;
  parser
      .add_option_function<int64_t>(
          flag, [value](int64_t ms) { *value = std::chrono::milliseconds(ms); }, about)
      ->check(CLI::Range(int64_t{1}, kDay))
      ->default_str(std::to_string(value->count()))
      ->type_name("MS")
      ->group(kTimes);
}

}  // namespace

void AddLimitFlags(CLI::App& parser, ServerLimits* limits) {
  AddBytes(parser, "--max-header-bytes", &limits->max_header_bytes,
           "Request line and header fields; beyond: 431");
  AddBytes(parser, "--max-body-bytes", &limits->max_body_bytes,
           "A request body, after decompression; beyond: 413");
  AddBytes(parser, "--max-json-bytes", &limits->max_json_bytes, "JSON in a body; beyond: 413");
  AddBytes(parser, "--max-buffered-bytes", &limits->max_buffered_bytes,
           "Bodies and unread answers over all connections; beyond: 503");
  AddBytes(parser, "--max-name-bytes", &limits->max_name_bytes,
           "Name of a model, version, input, output or request id; beyond: 400");
  AddCount(parser, "--max-connections", &limits->max_connections, 1, 1 << 20,
           "Connections open at once; one more: 503");
  AddCount(parser, "--max-json-depth", &limits->max_json_depth, 4, 1 << 10,
           "Arrays and objects inside one another; beyond: 400");
  AddCount(parser, "--max-tensors", &limits->max_tensors, 1, 1 << 16,
           "Inputs, and outputs, named in a request; beyond: 400");
  AddCount(parser, "--max-rank", &limits->max_rank, 0, 64, "Dimensions of an input; beyond: 400");
  AddCount(parser, "--max-tensor-elements", &limits->max_tensor_elements, int64_t{1},
           int64_t{1} << 40, "Elements of an input; beyond: 400");
  AddCount(parser, "--max-admin-requests", &limits->max_admin_requests, 1, 1 << 16,
           "Loads and unloads waiting; beyond: 503");
  AddTime(parser, "--header-timeout-ms", &limits->header_timeout,
          "First to last byte of a header; beyond: 408");
  AddTime(parser, "--body-timeout-ms", &limits->body_timeout,
          "A body that stops coming: 408; an answer that is not read: closed");
  AddTime(parser, "--idle-timeout-ms", &limits->idle_timeout,
          "Between two requests of a connection; beyond: closed");
}

}  // namespace chairlift
