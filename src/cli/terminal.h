// What people look at: aligned tables on standard output, a progress bar on a terminal.
#ifndef CHAIRLIFT_CLI_TERMINAL_H_
#define CHAIRLIFT_CLI_TERMINAL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace chairlift {

// Columns as wide as their widest cell; those whose cells are all numbers are aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// On standard error, where that is a terminal and the work has taken over a second; else silent.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void Set(int64_t done);

 private:
  std::string label_;
  int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_;
};

std::string HumanBytes(double bytes);      // "1.5 MiB"
std::string HumanSeconds(double seconds);  // "1.24 ms"

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_TERMINAL_H_
