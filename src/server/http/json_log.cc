#include "server/http/json_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "server/http/json_writer.h"

namespace chairlift::http {
namespace {

std::atomic<bool> logs_as_json{false};
// More fields of the line that this thread logs. Sinks format a line before the call returns.
thread_local const std::string* fields_of_line = nullptr;

class JsonMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    std::string text;
    AppendJsonString({message.payload.data(), message.payload.size()}, &text);
    if (fields_of_line != nullptr) text += *fields_of_line;
    to.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<JsonMessage>();
  }
};

}  // namespace

void LogAsJson() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<JsonMessage>('*').set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","message":%*})");
  spdlog::set_formatter(std::move(formatter));
  logs_as_json = true;
}

bool LogsAsJson() { return logs_as_json; }

void DebugWithFields(const std::string& message, const std::string& fields) {
  fields_of_line = &fields;
  spdlog::debug("{}", message);  // it catches what its sinks throw
  fields_of_line = nullptr;
}

}  // namespace chairlift::http
