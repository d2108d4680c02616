#include "cli/limit_flags.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/flags.h"

namespace chairlift {
namespace {

constexpr const char* kSizes = "Limits in bytes (as 65536, 64KiB or 2GiB)";
constexpr const char* kCounts = "Limits in counts";
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
           "Request line and headers; more: 431");
  AddBytes(parser, "--max-body-bytes", &limits->max_body_bytes,
           "Request body after decompression; more: 413");
  AddBytes(parser, "--max-json-bytes", &limits->max_json_bytes,
           "JSON in a request body; more: 413");
  AddBytes(parser, "--max-admin-body-bytes", &limits->max_admin_body_bytes,
           "Body of a request other than inference; more: 413");
  AddBytes(parser, "--max-buffered-bytes", &limits->max_buffered_bytes,
           "Request bodies and unread answers of all connections; more: 503");
  AddBytes(parser, "--max-client-buffered-bytes", &limits->max_client_buffered_bytes,
           "Request bodies and unread answers of one client address; more: 429");
  AddBytes(
      parser, "--min-transfer-rate", &limits->min_transfer_rate,
      "Minimum bytes per second of a request body (slower: 408) and of a client that reads an\n"
      "answer (slower: closed)");
  AddBytes(parser, "--max-name-bytes", &limits->max_name_bytes,
           "Name of a model, version, input or output, or a request id; more: 400");
  AddCount(parser, "--max-connections", &limits->max_connections, 1, 1 << 20,
           "Open connections; more: 503");
  AddCount(parser, "--max-client-connections", &limits->max_client_connections, 1, 1 << 20,
           "Open connections of one client address; more: 429");
  AddCount(parser, "--max-client-requests", &limits->max_client_requests, 1, 1 << 20,
           "Requests in flight of one client address; more: 429");
  AddCount(parser, "--max-json-depth", &limits->max_json_depth, 4, 1 << 10,
           "Nesting depth of JSON; more: 400");
  AddCount(parser, "--max-tensors", &limits->max_tensors, 1, 1 << 16,
           "Inputs of a request, and outputs that it names; more: 400");
  AddCount(parser, "--max-rank", &limits->max_rank, 1, 64, "Dimensions of an input; more: 400");
  AddCount(parser, "--max-tensor-elements", &limits->max_tensor_elements, 1, 0x1p40,
           "Elements of an input; more: 400");
  AddCount(parser, "--max-admin-requests", &limits->max_admin_requests, 1, 1 << 16,
           "Loads and unloads that wait; more: 503");
  AddTime(parser, "--header-timeout-ms", &limits->header_timeout,
          "Time to receive the headers; longer: 408");
  AddTime(parser, "--body-timeout-ms", &limits->body_timeout,
          "Time without progress of a request body (408) or of an answer (closed)");
  AddTime(parser, "--idle-timeout-ms", &limits->idle_timeout,
          "Time between two requests of a connection; longer: closed");
  AddTime(parser, "--closed-client-probe-ms", &limits->closed_client_probe,
          "Wait before a test whether a client that closed its side still reads");
}

}  // namespace chairlift
