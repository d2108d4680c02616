#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace chairlift {
namespace {

bool IsNumber(const std::string& cell) {
  return !cell.empty() && (cell[0] == '-' || (cell[0] >= '0' && cell[0] <= '9'));
}

}  // namespace

std::string Table::ToString() const {
  std::vector<size_t> width(rows_[0].size(), 0);
  std::vector<bool> right(rows_[0].size(), rows_.size() > 1);
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      width[c] = std::max(width[c], rows_[r][c].size());
      if (r > 0 && !rows_[r][c].empty() && !IsNumber(rows_[r][c])) right[c] = false;
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      if (c > 0) line += "  ";
      line += right[c] ? fmt::format("{:>{}}", row[c], width[c])
                       : fmt::format("{:<{}}", row[c], width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

ProgressBar::ProgressBar(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      terminal_(isatty(STDERR_FILENO) != 0),
      begin_(std::chrono::steady_clock::now()),
      last_(begin_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::Set(int64_t done) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - begin_ < std::chrono::seconds(1) || now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  drawn_ = true;
  constexpr int64_t kWidth = 30;
  const int64_t filled = std::clamp<int64_t>(kWidth * done / total_, 0, kWidth);
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double left =
      done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : 0;
  fmt::print(stderr, "\r\x1b[K{} [{:#<{}}{:.<{}}] {:3d}%  {:.0f} s left", label_, "", filled, "",
             kWidth - filled, 100 * done / total_, left);
  std::fflush(stderr);
}

std::string HumanBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 3) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

}  // namespace chairlift
