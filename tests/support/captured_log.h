// What is logged while it lives.
#ifndef CHAIRLIFT_TESTS_SUPPORT_CAPTURED_LOG_H_
#define CHAIRLIFT_TESTS_SUPPORT_CAPTURED_LOG_H_

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace chairlift {

class CapturedLog {
 public:
  CapturedLog() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", sink));
  }
  ~CapturedLog() { spdlog::set_default_logger(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::istringstream in(text_.str());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_TESTS_SUPPORT_CAPTURED_LOG_H_
