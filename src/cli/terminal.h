// Terminal output: text without control sequences, aligned tables, a progress bar.
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

// `text` with control characters, except line breaks, and invalid UTF-8 written as \x1b: names and
// messages from files may have any bytes, and a terminal interprets some.
std::string Printable(std::string_view text);

// With four spaces before every line but the first: a name with a line break cannot imitate a
// separate line.
std::string Indented(std::string_view text);

// fmt::print() with printable text, to standard output and to standard error.
template <typename... Args>
void PrintText(fmt::format_string<Args...> form, Args&&... args) {
  fmt::print("{}", Printable(fmt::format(form, std::forward<Args>(args)...)));
}
template <typename... Args>
void PrintError(fmt::format_string<Args...> form, Args&&... args) {
  fmt::print(stderr, "{}", Printable(fmt::format(form, std::forward<Args>(args)...)));
}
// Makes all later log output printable, with lines after the first indented.
void LogWhatIsPrintable();

// Columns are as wide as their widest cell; columns of numbers are aligned right. Cells are made
// printable, including line breaks.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void Add(std::vector<std::string> row);
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Drawn on standard error if that is a terminal and the work has taken over half a second.
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

// The current step of a command, on standard error if that is a terminal: one line, replaced by the
// next and cleared at the end. Clear it before other output.
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
