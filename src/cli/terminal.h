// Output for people: text without what a terminal would obey, aligned tables, a progress bar.
#ifndef CHAIRLIFT_CLI_TERMINAL_H_
#define CHAIRLIFT_CLI_TERMINAL_H_

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chairlift {

// `text` with control characters, but for line breaks, and what is no UTF-8 written as \x1b: names
// and messages from files may hold any bytes, and a terminal obeys some.
std::string Printable(std::string_view text);

// With four spaces before every line but the first: a name with a line break in it cannot pass for
// a line of its own.
std::string Indented(std::string_view text);

// fmt::print() of what is printable, to standard output and to standard error.
template <typename... Args>
void PrintText(fmt::format_string<Args...> form, Args&&... args) {
  fmt::print("{}", Printable(fmt::format(form, std::forward<Args>(args)...)));
}
template <typename... Args>
void PrintError(fmt::format_string<Args...> form, Args&&... args) {
  fmt::print(stderr, "{}", Printable(fmt::format(form, std::forward<Args>(args)...)));
}
// Likewise what is logged from now on, lines behind the first indented.
void LogWhatIsPrintable();

// Columns as wide as their widest cell; those whose cells are all numbers are aligned right. Cells
// are made printable, line breaks too.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Add(std::vector<std::string> row);
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// On standard error, where that is a terminal and the work has taken over half a second; else
// silent.
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

// The current step of a command, on standard error where that is a terminal: one line, replaced by
// the next and cleared at the end. Clear it before anything else is printed.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { Clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  void Show(std::string_view text);  // "reading model.onnx"
  void Clear();

 private:
  bool terminal_;
  bool drawn_ = false;
};

std::string HumanBytes(double bytes);                        // "1.5 MiB"
std::string HumanSeconds(double seconds);                    // "1.24 ms"
std::string HumanNumber(double number);                      // "1,234,568", "1,234.5", "12.34"
std::string Counted(int64_t number, std::string_view noun);  // "1 model", "1,200 models"

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_TERMINAL_H_
