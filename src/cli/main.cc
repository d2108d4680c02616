// The command line: finds the subcommand, runs it, and converts its Status to an exit code. 0:
// done. 1: failed, with the reason in the last line on standard error. 2: the command line is
// wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "base/closest.h"
#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/renamed_flags.h"
#include "cli/terminal.h"

namespace {

using chairlift::DidYouMean;
using chairlift::PrintError;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string Complaint(const std::string& name, const std::string& text) {
  return fmt::format("{}: {}\n`{} --help` lists what there is.\n", name, text, name);
}

// CLI11's messages about values, reworded.
std::string Plainly(const std::string& text) {
  const auto number = [](const std::string& digits) {
    return fmt::format("{:.15g}", std::strtod(digits.c_str(), nullptr));
  };
  std::smatch part;
  if (std::regex_match(text, part,
                       std::regex("(--[\\w-]+): Value (.*) not in range (\\S+) to (\\S+)"))) {
    return fmt::format("{}: '{}' is not a number from {} to {}", part.str(1), part.str(2),
                       number(part.str(3)), number(part.str(4)));
  }
  if (std::regex_match(text, part, std::regex("Could not convert: (\\S+) = (.*)"))) {
    return fmt::format("{}: '{}' is not a number", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+) excludes (--[\\w-]+)"))) {
    return fmt::format("{} has no effect with {}; leave one of them out", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+): .* required .* missing"))) {
    return part.str(1) + " needs a value";
  }
  if (std::regex_match(text, part,
                       std::regex("The following arguments? w\\w+ not expected: (.*)"))) {
    return fmt::format("'{}' is more than it takes", part.str(1));
  }
  return text;
}

// "; did you mean '--http-port'?", also for --port, which is its end.
std::string DidYouMeanFlag(const std::string& flag, const std::vector<std::string>& flags) {
  std::string text = DidYouMean(flag, flags);
  for (const std::string& other : flags) {
    if (text.empty() && other.ends_with(flag.substr(1))) {
      text = fmt::format("; did you mean '{}'?", other);
    }
  }
  return text;
}

// Flags of other servers and short forms, with their equivalents here.
struct OtherFlag {
  const char* flag;
  const char* here;
};
constexpr OtherFlag kOtherFlags[] = {
    {"-p", "--http-port"},
    {"--host", "--address"},
    {"--bind", "--address"},
    {"--listen", "--address"},
    {"--http-address", "--address"},
    {"--model", "--model-repository, or name the model without a flag"},
    {"--model-path", "--model-repository, or name the model without a flag"},
    {"--model-store", "--model-repository"},
    {"--model-name", "--name"},
    {"--config", "a model.yaml beside the model (docs/reference/repositories.md)"},
    {"--config-path", "a model.yaml beside the model (docs/reference/repositories.md)"},
    {"--grpc-port", "nothing: there is no gRPC, only HTTP"},
    {"--rest-port", "--http-port"},
    {"--rest_port", "--http-port"},
    {"--api-key", "a proxy in front of the server (docs/deploy/security.md)"},
    {"--log-verbose", "--log-level debug"},
};

std::string OtherThan(const std::string& flag) {
  for (const OtherFlag& other : kOtherFlags) {
    if (flag == other.flag) return fmt::format("; here it is {}", other.here);
  }
  return {};
}

// A misspelt command or flag is reported first, whatever error it caused.
std::string Explain(const CLI::App* app, const CLI::Error& error) {
  std::string text = Plainly(error.what());
  const CLI::App* command = app;
  if (app->get_subcommands().empty()) {
    text = fmt::format("name a command: {}", fmt::join(CommandsOf(*app), ", "));
  }
  for (const CLI::App* parsed : app->get_subcommands()) command = parsed;
  for (const std::string& left : app->remaining(true)) {
    if (command == app && left[0] != '-') {
      text = fmt::format("there is no command '{}'{}", left, DidYouMean(left, CommandsOf(*app)));
      break;
    }
    if (left.size() > 1 && left[0] == '-') {
      const std::string flag = left.substr(0, left.find('='));
      const std::string here = OtherThan(flag);
      text = fmt::format("there is no flag {}{}", flag,
                         here.empty() ? DidYouMeanFlag(flag, FlagsOf(*command)) : here);
      break;
    }
  }
  const std::string name = command == app ? "chairlift" : "chairlift " + command->get_name();
  return Complaint(name, text);
}

// The library returns a Status; libraries below it may throw.
chairlift::Status Caught(const chairlift::Command& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return chairlift::ResourceExhausted("out of memory");
  } catch (const std::exception& error) {
    return chairlift::Internal("{}", error.what());
  }
}

// If a standard file were closed, the next socket could get its number, and a client would receive
// the log.
void OpenStandardFiles() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // the lowest number is free
  }
}

}  // namespace

int main(int argc, char** argv) {
  OpenStandardFiles();
  chairlift::LogWhatIsPrintable();
  const std::unique_ptr<chairlift::CommandLine> line = chairlift::MakeCommandLine();
  CLI::App& app = line->app;
  app.failure_message(Explain);
  app.name("chairlift");

  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (const std::string& warning : chairlift::RenameFlags(&arguments)) {
    PrintError("{}\n", warning);
  }
  std::reverse(arguments.begin(), arguments.end());  // as the parser takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp& help) {
    // For help on an unknown command: report the command.
    const std::vector<std::string> left = app.remaining();
    if (!app.get_subcommands().empty() || left.empty() || left[0][0] == '-') return app.exit(help);
    PrintError("{}", Explain(&app, help));
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  for (const auto& [parser, run] : line->commands) {
    if (!parser->parsed()) continue;
    const chairlift::Status status = Caught(run);
    if (status.ok()) return 0;
    const std::string name = "chairlift " + parser->get_name();
    const std::string text = chairlift::Indented(chairlift::Message(status));
    if (chairlift::IsUsage(status)) {
      PrintError("{}", Complaint(name, text));
      return kExitUsage;
    }
    PrintError("{}: {}\n", name, text);
    return kExitFailed;
  }
  return kExitUsage;
}
