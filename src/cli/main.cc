// The command line: finds the subcommand, runs it, and converts its Status to an exit code. 0:
// done. 1: failed, with the reason in the last line on standard error. 2: the command line is
// wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <regex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/closest.h"
#include "cli/command_line.h"
#include "cli/flag_sources.h"
#include "cli/flags.h"
#include "cli/model_path.h"
#include "cli/renamed_flags.h"
#include "cli/terminal.h"
#include "engine/repository/model_config.h"

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
  if (std::regex_match(text, part, std::regex("(--[\\w-]+): Directory is actually a file: (.*)"))) {
    return fmt::format("{}: '{}' is a file; name a folder of models, or serve the file alone",
                       part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+): File is actually a directory: (.*)"))) {
    return fmt::format("{}: '{}' is a folder; name a file", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("Could not convert: (\\S+) = (.*)"))) {
    return fmt::format("{}: '{}' is not a number{}", part.str(1), part.str(2),
                       std::regex_match(part.str(2), std::regex("\\d+-\\d+"))
                           ? "; write all of them, as 0,1,2"
                       : part.str(1) == "--cores" ? "; write a list, as 0,1,2"
                                                  : "");
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+) excludes (--[\\w-]+)"))) {
    return fmt::format("{} has no effect with {}; leave one of them out", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+): .* required .* missing"))) {
    return part.str(1) + " needs a value";
  }
  if (std::regex_match(text, part,
                       std::regex("The following arguments? w\\w+ not expected: (.*)"))) {
    return fmt::format("'{}' is one argument too many; leave it out", part.str(1));
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+) requires (--[\\w-]+)"))) {
    return fmt::format("{} has an effect only with {}; add it, or leave {} out", part.str(1),
                       part.str(2), part.str(1));
  }
  if (text == "MODEL is required") return "MODEL is missing; name a model's file or folder";
  if (std::regex_match(text, part, std::regex("(--[\\w-]+) is required"))) {
    return part.str(1) + " is missing, and it is required";
  }
  if (std::regex_match(text, part, std::regex("(--[\\w-]+): (.*) not in \\{(.*)\\}"))) {
    const std::vector<std::string> choices = absl::StrSplit(part.str(3), ',');
    return fmt::format("{}: '{}' is not one of {}{}", part.str(1), part.str(2),
                       fmt::join(choices, ", "), DidYouMean(part.str(2), choices));
  }
  if (std::regex_match(text, part,
                       std::regex("(--[\\w-]+): At Most 1 required but received (\\d+)"))) {
    return fmt::format("{} is given {} times; give it once", part.str(1), part.str(2));
  }
  if (std::regex_match(text, part,
                       std::regex("(--[\\w-]+): (?:Directory|File) does not exist: (.*)"))) {
    return fmt::format("{}: {}", part.str(1), chairlift::WhyNoPath(part.str(2)));
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

// Flags of other servers and short forms, and what works instead.
struct OtherFlag {
  const char* flag;
  const char* instead;
};
constexpr OtherFlag kOtherFlags[] = {
    {"-p", "use --http-port"},
    {"--host", "use --address"},
    {"--hostname", "use --address"},
    {"--bind", "use --address"},
    {"--listen", "use --address"},
    {"--http-address", "use --address"},
    {"--rest-port", "use --http-port"},
    {"--rest_port", "use --http-port"},
    {"--grpc-port", "the server speaks HTTP only, not gRPC: use --http-port"},
    {"--allow-grpc", "the server speaks HTTP only, not gRPC"},
    {"--model", "use --model-repository, or name the model without a flag"},
    {"--model-id", "name the model's file or folder without a flag"},
    {"--model-path", "use --model-repository, or name the model without a flag"},
    {"--model-store", "use --model-repository"},
    {"--model-dir", "use --model-repository"},
    {"--model-name", "use --name"},
    {"--served-model-name", "use --name"},
    {"--config", "write a model.yaml beside the model (docs/reference/repositories.md)"},
    {"--config-path", "write a model.yaml beside the model (docs/reference/repositories.md)"},
    {"--model-config", "write a model.yaml beside the model (docs/reference/repositories.md)"},
    {"--api-key", "put a proxy that checks keys in front of the server (docs/deploy/security.md)"},
    {"--auth", "put a proxy that checks keys in front of the server (docs/deploy/security.md)"},
    {"--ssl-certfile", "put a proxy with TLS in front of the server (docs/deploy/security.md)"},
    {"--ssl-keyfile", "put a proxy with TLS in front of the server (docs/deploy/security.md)"},
    {"--log-verbose", "use --log-level debug"},
    {"--verbose", "use --log-level debug"},
    {"-v", "use --log-level debug"},
    {"--debug", "use --log-level debug"},
    {"--quiet", "use --log-level warning"},
    {"-q", "use --log-level warning"},
    {"--threads", "use --workers"},
    {"--num-threads", "use --workers"},
    {"-t", "use --workers"},
    {"-j", "use --workers"},
    {"--gpu", "use --device cuda"},
    {"--gpus", "use --device cuda"},
    {"--cuda", "use --device cuda"},
    {"--reload",
     "load a changed model again with POST /v2/repository/models/NAME/load "
     "(docs/reference/http.md)"},
    {"--watch",
     "load a changed model again with POST /v2/repository/models/NAME/load "
     "(docs/reference/http.md)"},
    {"--timeout", "set default_timeout_us of the model, as --set default_timeout_us=1000000"},
    {"--max-batch-delay", "set queue_delay_us of the model, as --set queue_delay_us=1000"},
    {"--cors", "use --cors-allow-origin"},
    {"--duration", "use --seconds"},
    {"--time", "use --seconds"},
    {"--measurement-interval", "use --seconds"},
    {"--requests", "use --seconds, which bounds the measurement by time"},
    {"--qps", "use --rate"},
    {"--rps", "use --rate"},
    {"--request-rate", "use --rate"},
    {"--clients", "use --concurrency"},
    {"--connections", "use --concurrency"},
    {"-c", "use --concurrency"},
    {"--concurrency-range", "use --concurrency"},
    {"-n", "use --seconds, which bounds the measurement by time"},
};

bool HasFlag(const CLI::App& command, std::string_view flag) {
  const std::vector<std::string> flags = FlagsOf(command);
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

// What works in place of a flag that a command does not have.
std::string Instead(const std::string& flag, const CLI::App& command) {
  for (const OtherFlag& other : kOtherFlags) {
    if (flag != other.flag) continue;
    const std::string_view instead = other.instead;
    const size_t named = instead.find("use --");
    if (named == std::string_view::npos) return fmt::format("; {}", instead);
    const std::string_view own =
        instead.substr(named + 4, instead.find_first_of(" ,", named + 4) - named - 4);
    if (HasFlag(command, own)) return fmt::format("; {}", instead);
  }
  std::string setting = flag.substr(std::min<size_t>(2, flag.size()));
  std::replace(setting.begin(), setting.end(), '-', '_');
  const std::vector<std::string> settings = chairlift::SettingNames();
  if (HasFlag(command, "--set") &&
      std::find(settings.begin(), settings.end(), setting) != settings.end()) {
    return fmt::format("; it is a setting of models: use --set {}=VALUE, or a model.yaml", setting);
  }
  return DidYouMeanFlag(flag, FlagsOf(command));
}

// What works in place of a word that is not a command.
std::string InsteadOfCommand(const std::string& word, const CLI::App& app) {
  const std::vector<std::string> commands = CommandsOf(app);
  std::error_code error;
  if (std::filesystem::exists(word, error) || chairlift::ParseFunction(word)) {
    return fmt::format("; to serve this model: `chairlift serve {}`", word);
  }
  return chairlift::KnownNames(word, commands);
}

// A misspelt command or flag is reported first, whatever error it caused.
std::string Explain(const CLI::App* app, const CLI::Error& error,
                    const chairlift::FlagSources& sources) {
  std::string text = Plainly(error.what());
  const CLI::App* command = app;
  if (app->get_subcommands().empty()) {
    text = fmt::format("name a command: {}", fmt::join(CommandsOf(*app), ", "));
  }
  for (const CLI::App* parsed : app->get_subcommands()) command = parsed;
  for (const std::string& left : app->remaining(true)) {
    if (command == app && left[0] != '-') {
      text = fmt::format("there is no command '{}'{}", left, InsteadOfCommand(left, *app));
      break;
    }
    if (left.size() > 1 && left[0] == '-') {
      const std::string flag = left.substr(0, left.find('='));
      text = fmt::format("there is no flag {}{}", flag, Instead(flag, *command));
      break;
    }
  }
  // In `--set NAME VALUE`, the value was taken for a model.
  if (const CLI::Option* set = command->get_option_no_throw("--set"); set != nullptr) {
    for (const std::string& setting : set->results()) {
      if (setting.find('=') == std::string::npos) text = chairlift::NoValueOf(setting);
    }
  }
  const std::string name = command == app ? "chairlift" : "chairlift " + command->get_name();
  return Complaint(name, text + sources.NamedIn(text));
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

// Tells the program that started this one (--parent-fd) why it ends.
void TellParent(int argc, char** argv, const std::string& why) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) != "--parent-fd") continue;
    const std::string text = "error " + why;
    (void)::send(static_cast<int>(std::strtol(argv[i + 1], nullptr, 10)), text.data(), text.size(),
                 MSG_NOSIGNAL);
  }
}

// Opens standard files that are closed. Otherwise the next socket would get the number of one, and
// its client would receive the log.
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
  app.name("chairlift");

  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (const std::string& warning : chairlift::RenameFlags(&arguments)) {
    PrintError("{}\n", warning);
  }
  chairlift::StatusOr<chairlift::FlagSources> found = chairlift::AddFlagsFromOutside(
      *app.get_subcommand("serve"), chairlift::OwnEnvironment(), &arguments);
  if (!found.ok()) {
    const std::string why = Complaint("chairlift serve", chairlift::Message(found.status()));
    PrintError("{}", why);
    TellParent(argc, argv, why);
    return kExitUsage;
  }
  const chairlift::FlagSources sources = *std::move(found);
  for (const std::string& warning : sources.warnings) {
    PrintError("chairlift serve: warning: {}\n", warning);
  }
  app.failure_message([&sources](const CLI::App* parsed, const CLI::Error& error) {
    return Explain(parsed, error, sources);
  });
  std::reverse(arguments.begin(), arguments.end());  // as the parser takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp& help) {
    // For help on an unknown command: report the command.
    const std::vector<std::string> left = app.remaining();
    if (!app.get_subcommands().empty() || left.empty() || left[0][0] == '-') return app.exit(help);
    PrintError("{}", Explain(&app, help, sources));
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) == 0) return 0;
    TellParent(argc, argv, Explain(&app, error, sources));
    return kExitUsage;
  }
  for (const auto& [parser, run] : line->commands) {
    if (!parser->parsed()) continue;
    chairlift::Status status = Caught(run);
    // A server does not fail because its log cannot be written.
    if (status.ok() && parser->get_name() != "serve" && std::fflush(stdout) != 0) {
      status = chairlift::Unavailable("cannot write the output: {}", std::strerror(errno));
    }
    if (status.ok()) return 0;
    const std::string name = "chairlift " + parser->get_name();
    const std::string message = chairlift::Message(status);
    const std::string text = chairlift::Indented(message + sources.NamedIn(message));
    TellParent(argc, argv, fmt::format("{}: {}", name, text));
    if (chairlift::IsUsage(status)) {
      PrintError("{}", Complaint(name, text));
      return kExitUsage;
    }
    PrintError("{}: {}\n", name, text);
    return kExitFailed;
  }
  return kExitUsage;
}
