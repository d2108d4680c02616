#include "cli/load_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "cli/terminal.h"

namespace chairlift {
namespace {

constexpr int64_t kWhole = 1000;

class Line {
 public:
  void Show(const LoadProgress& progress) {
    if (progress.step != step_) Begin(progress);
    if (bar_) bar_->Set(static_cast<int64_t>(progress.done * kWhole));
  }

 private:
  void Begin(const LoadProgress& progress) {
    bar_.reset();
    step_ = progress.step;
    fmt::print(stderr, "\r\x1b[K");
    if (!step_.empty()) {
      const std::string label = fmt::format("{}: {}", progress.model, step_);
      PrintError("{} ...", label);
      bar_.emplace(label, kWhole);
    }
    std::fflush(stderr);
  }

  std::string step_;
  std::optional<ProgressBar> bar_;
};

}  // namespace

std::function<void(const LoadProgress&)> LoadBar() {
  if (isatty(STDERR_FILENO) == 0) return nullptr;
  return [line = std::make_shared<Line>()](const LoadProgress& progress) { line->Show(progress); };
}

}  // namespace chairlift
