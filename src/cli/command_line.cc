#include "cli/command_line.h"

#include <string>
#include <utility>

#include "cli/version_text.h"

namespace chairlift {
namespace {

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

// Help texts: the value type after the flag; choices and default after the description. The rest of
// CLI11's type names is used in its error messages.
class HelpText final : public CLI::Formatter {
 public:
  HelpText() { column_width(32); }

 private:
  // Flags that switch something off have "{false}" in their name.
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

}  // namespace

std::unique_ptr<CommandLine> MakeCommandLine() {
  auto line = std::make_unique<CommandLine>();
  CLI::App& app = line->app;
  app.description(kAbout);
  app.formatter(std::make_shared<HelpText>());  // also for subcommands
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", [] { return VersionText(); });

  const auto add = [&](const char* name, const char* about, auto&& make) {
    CLI::App* parser = app.add_subcommand(name, about);
    line->commands.emplace_back(parser, make(*parser));
  };
  add("serve", "Serve models over HTTP (Open Inference Protocol v2)", AddServe);
  add("run", "Run a model once on .npy files", AddRun);
  add("inspect", "Say what a model is: signature, operators, passes, memory, diagnosis",
      AddInspect);
  add("profile", "Measure what batches of a model cost, and keep the table", AddProfile);
  add("bench", "Load a model or a server at a chosen rate and report latencies", AddBench);
  add("simulate", "Run batching policies in virtual time, on a machine of known cost", AddSimulate);
  add("doctor", "Examine this machine, and how it serves a model", AddDoctor);
  return line;
}

}  // namespace chairlift
