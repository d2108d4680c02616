#include "server/http/access_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string_view>

#include "base/excerpt.h"
#include "server/http/json_log.h"
#include "server/http/json_writer.h"

namespace chairlift::http {
namespace {

// As in JSON: on one line, whatever the client wrote.
std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 256;
  std::string quoted;
  AppendJsonString(Shortened(text, kMost), &quoted);
  return quoted;
}

}  // namespace

bool Access::Wanted() { return spdlog::should_log(spdlog::level::debug); }

void LogAccess(const RequestHead& request, const Access& access, const std::string& client,
               const char* end) {
  const std::chrono::duration<double, std::milli> took = Clock::Steady().Now() - access.begin;
  std::string line = fmt::format(
      "{} {} {} from {}: {} bytes, {:.3f} ms", request.method.empty() ? "-" : request.method,
      Quoted(request.target), access.status, client, access.bytes, took.count());
  if (!access.model.empty()) line += ", model " + Quoted(access.model);
  if (!access.id.empty()) line += ", id " + Quoted(access.id);
  if (!request.trace_id.empty()) line += ", trace " + request.trace_id;
  line += end;
  std::string fields;
  if (LogsAsJson()) {
    fields = fmt::format(
        R"(,"method":{},"path":{},"status":{},"client":{},"bytes":{},"ms":{:.3f},"complete":{})",
        Quoted(request.method), Quoted(request.target), access.status, Quoted(client), access.bytes,
        took.count(), *end == '\0');
    if (!access.model.empty()) fields += R"(,"model":)" + Quoted(access.model);
    if (!access.id.empty()) fields += R"(,"id":)" + Quoted(access.id);
    if (!request.trace_id.empty()) fields += R"(,"trace_id":)" + Quoted(request.trace_id);
  }
  DebugWithFields(line, fields);
}

}  // namespace chairlift::http
