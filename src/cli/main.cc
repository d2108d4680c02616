// The command line: finds the subcommand, runs it, turns its Status into an exit code.
// 0: done. 1: it failed, and the last line on standard error says why. 2: the command line is
// wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
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
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "cli/version_text.h"

namespace {

using chairlift::DidYouMean;
using chairlift::PrintError;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr const char* kAbout =
    "Chairlift serves ONNX models and batches below the request: nobody is padded, nobody waits\n"
    "for a batch to fill, nobody leaves later than their own last cell.";

constexpr const char* kExamples =
    "Examples:\n"
    "  chairlift serve model.onnx                     answer at "
    "http://127.0.0.1:8000/v2/models/model/infer\n"
    "  chairlift serve models                         serve every "
    "models/<name>/<version>/model.onnx\n"
    "  chairlift run model.onnx --input x=x.npy --output-dir out\n"
    "  chairlift inspect model.onnx --passes          what it is, and what was done to it\n"
    "  chairlift bench model.onnx --rate 200          latency under a load of 200 requests a "
    "second\n"
    "  chairlift simulate --help                      policies in virtual time, on any machine\n"
    "\n"
    "Environment: CHAIRLIFT_ISA=avx512|avx2|baseline lowers the instruction set used.\n"
    "Exit codes: 0 done; 1 it failed, the last line says why; 2 the command line is wrong.";

// Help texts: the kind of value beside the flag; choices and default after the description. The
// rest of CLI11's type names is for its error messages.
class HelpText final : public CLI::Formatter {
 public:
  HelpText() { column_width(32); }

 private:
  // Flags that switch something off carry "{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_option_name(option, is_positional),
                                         "{false}", "");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    std::string text = " " + type.substr(0, type.find(':'));
    if (option->get_expected_max() > 1) text += " ...";
    return text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string type = option->get_type_name();
    if (const size_t set = type.find('{'); set != std::string::npos)
      text += ": " + type.substr(set);
    const std::string value = option->get_default_str();
    if (option->get_type_size() != 0 && !value.empty()) {
      text += value[0] == '[' ? " " + value : " [" + value + "]";
    }
    if (option->get_required()) text += " (required)";
    return text;
  }
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return CLI::detail::find_and_replace(CLI::Formatter::make_help(app, std::move(name), mode),
                                         "\n\n\n", "\n\n");
  }
};

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

// "; did you mean '--http-port'?" of --port too, which is the end of it.
std::string DidYouMeanFlag(const std::string& flag, const std::vector<std::string>& flags) {
  std::string text = DidYouMean(flag, flags);
  for (const std::string& other : flags) {
    if (text.empty() && other.ends_with(flag.substr(1))) {
      text = fmt::format("; did you mean '{}'?", other);
    }
  }
  return text;
}

// A misspelt command or flag is reported first, whatever error followed from it.
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
      text = fmt::format("there is no flag {}{}", flag, DidYouMeanFlag(flag, FlagsOf(*command)));
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

}  // namespace

int main(int argc, char** argv) {
  chairlift::LogWhatIsPrintable();
  CLI::App app{kAbout, "chairlift"};
  app.formatter(std::make_shared<HelpText>());  // the subcommands' too
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", [] { return chairlift::VersionText(); });
  app.failure_message(Explain);

  std::vector<std::pair<CLI::App*, chairlift::Command>> commands;
  const auto add = [&](const char* name, const char* about, auto&& make) {
    CLI::App* parser = app.add_subcommand(name, about);
    commands.emplace_back(parser, make(*parser));
  };
  add("serve", "Serve models over HTTP (Open Inference Protocol v2)", chairlift::AddServe);
  add("run", "Run a model once on .npy files", chairlift::AddRun);
  add("inspect", "Say what a model is: signature, operators, passes, memory, diagnosis",
      chairlift::AddInspect);
  add("profile", "Measure what batches of a model cost, and keep the table", chairlift::AddProfile);
  add("bench", "Load a model or a server at a chosen rate and report latencies",
      chairlift::AddBench);
  add("simulate", "Run batching policies in virtual time, on a machine of known cost",
      chairlift::AddSimulate);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    // Help for an unknown command: report the command.
    const std::vector<std::string> left = app.remaining();
    if (!app.get_subcommands().empty() || left.empty() || left[0][0] == '-') return app.exit(help);
    PrintError("{}", Explain(&app, help));
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  for (const auto& [parser, run] : commands) {
    if (!parser->parsed()) continue;
    const chairlift::Status status = Caught(run);
    if (status.ok()) return 0;
    const std::string name = "chairlift " + parser->get_name();
    const std::string text = chairlift::Message(status);
    if (chairlift::IsUsage(status)) {
      PrintError("{}", Complaint(name, text));
      return kExitUsage;
    }
    PrintError("{}: {}\n", name, text);
    return kExitFailed;
  }
  return kExitUsage;
}
