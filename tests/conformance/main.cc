// Runs the ONNX project's backend test data through import, executable and run.
//
//   conformance [FILTER] [--data DIR] [--not-run FILE] [--list-failures] [--verbose]
//
// not_run.txt (for the cases of tools/onnx_node_cases.py: not_run_onnx.txt) names every case that
// is out of scope, and why. The program fails where a case that is not in the table fails, and
// where one in the table passes or does not exist.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <string>

#include "conformance/case.h"

namespace chairlift::conformance {
namespace {

struct Options {
  std::string filter;
  std::string data = CHAIRLIFT_CONFORMANCE_DATA;
  std::string table = CHAIRLIFT_CONFORMANCE_TABLE;
  bool list_failures = false;
  bool verbose = false;
};

// Lines of "case name <tab> reason"; '#' begins a comment.
StatusOr<std::map<std::string, std::string>> ReadTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot read '{}'", path);
  std::map<std::string, std::string> table;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab + 1 == line.size()) {
      return InvalidArgument("'{}': '{}' gives no reason", path, line);
    }
    if (!table.emplace(line.substr(0, tab), line.substr(tab + 1)).second) {
      return InvalidArgument("'{}': '{}' is listed twice", path, line.substr(0, tab));
    }
  }
  return table;
}

int Run(const Options& options) {
  auto table = ReadTable(options.table);
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", Message(table.status()));
    return 2;
  }
  const std::vector<Case> cases = FindCases(options.data);
  if (cases.empty()) {
    fmt::print(stderr, "no cases in '{}' (Debian: libonnx-testdata)\n", options.data);
    return 2;
  }
  int passed = 0;
  int failed = 0;
  int skipped = 0;
  for (const Case& test : cases) {
    const auto listed = table->find(test.name);
    const bool in_table = listed != table->end();
    const std::string reason = in_table ? listed->second : "";
    if (in_table) table->erase(listed);
    if (test.name.find(options.filter) == std::string::npos) continue;
    const Status status = RunCase(test);
    std::string failure;
    if (in_table && status.ok()) {
      failure = fmt::format("passes, but is listed as not run: {}", reason);
    } else if (!in_table && !status.ok()) {
      failure = Message(status);
    }
    if (!failure.empty()) {
      ++failed;
      if (options.list_failures || options.verbose) {
        fmt::print("FAILED {}: {}\n", test.name, failure);
      } else {
        fmt::print("FAILED {}\n", test.name);
      }
    } else if (in_table) {
      ++skipped;
      if (options.verbose) {
        fmt::print("skipped {}: {} ({})\n", test.name, reason, Message(status));
      }
    } else {
      ++passed;
      if (options.verbose) fmt::print("passed {}\n", test.name);
    }
  }
  for (const auto& [name, reason] : *table) {
    ++failed;
    fmt::print("FAILED {}: listed as not run, but there is no such case\n", name);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace chairlift::conformance

int main(int argc, char** argv) {
  chairlift::conformance::Options options;
  CLI::App app{"Runs the ONNX backend test data and compares every output."};
  app.add_option("filter", options.filter, "Only cases whose name contains this");
  app.add_option("--data", options.data, "Folder of the test data")->capture_default_str();
  app.add_option("--not-run", options.table, "Table of cases that are not run, and why");
  app.add_flag("--list-failures", options.list_failures, "Say what went wrong in each failure");
  app.add_flag("--verbose", options.verbose, "One line a case");
  CLI11_PARSE(app, argc, argv);
  return chairlift::conformance::Run(options);
}
