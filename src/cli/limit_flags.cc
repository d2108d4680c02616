#include "cli/limit_flags.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/flags.h"

namespace chairlift {
namespace {

constexpr const char* kSizes = "Limits in bytes (units: 64KiB, 2GiB)";
constexpr const char* kCounts = "Limits in numbers";
constexpr const char* kTimes = "Time limits in ms";

// In the largest unit without a fraction.
std::string InUnits(size_t bytes) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB"};
  int unit = 0;
  for (; unit < 3 && bytes != 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return std::to_string(bytes) + kUnits[unit];
}

void AddBytes(CLI::App& parser, const char* flag, size_t* value, const char* about) {
  CLI::Option* const option = parser.add_option(flag, *value, about);
  TakesBytes(option, 1);
  option->default_str(InUnits(*value))->group(kSizes);
}

template <typename T>
void AddCount(CLI::App& parser, const char* flag, T* value, double least, double most,
              const char* about) {
  AddNumber(parser, flag, value, least, most, "N", about)->group(kCounts);
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
  AddBytes(parser, "--max-admin-body-bytes", &limits->max_admin_body_bytes,
           "A body of anything but inference; beyond: 413");
  AddBytes(parser, "--max-buffered-bytes", &limits->max_buffered_bytes,
           "Bodies and unread answers over all connections; beyond: 503");
  AddBytes(parser, "--max-client-buffered-bytes", &limits->max_client_buffered_bytes,
           "Likewise, of one client address; beyond: 429");
  AddBytes(parser, "--min-transfer-rate", &limits->min_transfer_rate,
           "Least bytes per second of a request body (else 408) and of an answer being read "
           "(else closed)");
  AddBytes(parser, "--max-name-bytes", &limits->max_name_bytes,
           "Name of a model, version, input, output or request id; beyond: 400");
  AddCount(parser, "--max-connections", &limits->max_connections, 1, 1 << 20,
           "Connections open at once; one more: 503");
  AddCount(parser, "--max-client-connections", &limits->max_client_connections, 1, 1 << 20,
           "Connections of one client address; one more: 429");
  AddCount(parser, "--max-client-requests", &limits->max_client_requests, 1, 1 << 20,
           "Requests of one client address in flight; one more: 429");
  AddCount(parser, "--max-json-depth", &limits->max_json_depth, 4, 1 << 10,
           "Nested arrays and objects; beyond: 400");
  AddCount(parser, "--max-tensors", &limits->max_tensors, 1, 1 << 16,
           "Inputs, and outputs, named in a request; beyond: 400");
  AddCount(parser, "--max-rank", &limits->max_rank, 1, 64, "Dimensions of an input; beyond: 400");
  AddCount(parser, "--max-tensor-elements", &limits->max_tensor_elements, 1, 0x1p40,
           "Elements of an input; beyond: 400");
  AddCount(parser, "--max-admin-requests", &limits->max_admin_requests, 1, 1 << 16,
           "Loads and unloads waiting; beyond: 503");
  AddTime(parser, "--header-timeout-ms", &limits->header_timeout,
          "First to last byte of a header; beyond: 408");
  AddTime(parser, "--body-timeout-ms", &limits->body_timeout,
          "No progress of a request body: 408; of an answer being read: closed");
  AddTime(parser, "--idle-timeout-ms", &limits->idle_timeout,
          "Between two requests of a connection; beyond: closed");
  AddTime(parser, "--closed-client-probe-ms", &limits->closed_client_probe,
          "Wait before testing whether a client that stopped sending still reads");
}

}  // namespace chairlift
