// The command line: finds the subcommand, runs it, turns its Status into an exit code.
// 0: done. 1: it failed, and the last line on standard error says why. 2: the flags are wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr const char* kAbout =
    "Chairlift serves ONNX models and batches below the request: nobody is padded, nobody waits\n"
    "for a batch to fill, nobody leaves later than their own last cell.";

constexpr const char* kExamples =
    "Examples:\n"
    "  chairlift serve model.onnx                     answer at "
    "http://127.0.0.1:8000/v2/models/model/infer\n"
    "  chairlift serve --model-repository models      serve every "
    "models/<name>/<version>/model.onnx\n"
    "  chairlift run model.onnx --input x=x.npy --output-dir out\n"
    "  chairlift inspect model.onnx --passes          what it is, and what was done to it\n"
    "  chairlift bench model.onnx --rate 200          open-loop load: latency at a rate you "
    "choose\n"
    "  chairlift simulate --help                      policies in virtual time, on any machine\n"
    "\n"
    "Environment: CHAIRLIFT_ISA=avx512|avx2|baseline lowers the instruction set used.";

// Help for people: the kind of value beside the flag; what may be chosen, and what it is when left
// out, behind the words. The rest of CLI11's type names is for its own error messages.
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

// A misspelt command or flag is what is wrong, whatever else its value was then taken for.
std::string Explain(const CLI::App* app, const CLI::Error& error) {
  std::string text = error.what();
  const CLI::App* command = app;
  for (const CLI::App* parsed : app->get_subcommands()) command = parsed;
  for (const std::string& left : app->remaining(true)) {
    if (command == app && left[0] != '-') {
      text = fmt::format("there is no command '{}'", left);
      break;
    }
    if (left.size() > 1 && left[0] == '-') {
      text = fmt::format("there is no flag {}", left);
      break;
    }
  }
  const std::string name = command == app ? "chairlift" : "chairlift " + command->get_name();
  return fmt::format("{}: {}\n`{} --help` lists what there is.\n", name, text, name);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{kAbout, "chairlift"};
  app.formatter(std::make_shared<HelpText>());  // the subcommands' too
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", "chairlift " CHAIRLIFT_VERSION);
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
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  for (const auto& [parser, run] : commands) {
    if (!parser->parsed()) continue;
    const chairlift::Status status = run();
    if (status.ok()) return 0;
    fmt::print(stderr, "chairlift {}: {}\n", parser->get_name(), chairlift::Message(status));
    return kExitFailed;
  }
  return kExitUsage;
}
