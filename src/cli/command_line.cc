#include "cli/command_line.h"

#include <string>
#include <utility>

#include "cli/version_text.h"

namespace chairlift {
namespace {

constexpr const char* kAbout =
    "Chairlift serves ONNX models. It batches single steps and tokens, not whole requests: "
    "nothing\n"
    "is padded, no request waits for a batch to fill, and each is answered when it is done.";

constexpr const char* kExamples = R"(Examples:
  chairlift serve model.onnx              serve one model on http://127.0.0.1:8000
  chairlift serve models                  serve every models/<name>/<version>/model.onnx
  chairlift run model.onnx --input x=x.npy --output-dir out
  chairlift inspect model.onnx --passes   what the model is, and what the optimizer did
  chairlift bench model.onnx --rate 200   latency at 200 requests per second
  chairlift doctor model.onnx             what this machine offers, and how the model uses it

Environment:
  CHAIRLIFT_ISA=amx|avx512|avx2|baseline  use a lower instruction set
  CHAIRLIFT_PYTHON=FILE                   the Python that runs tokenizers and Python models

Exit codes: 0 success; 1 failure, the last line says why; 2 wrong command line.)";

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
  add("run", "Run a model once on inputs from .npy files", AddRun);
  add("inspect", "Show inputs, outputs, operators, memory, and how the model is batched",
      AddInspect);
  add("profile", "Measure the time of each batch size, and keep the table", AddProfile);
  add("bench", "Send load to a model or a server and report latency and throughput", AddBench);
  add("simulate", "Compare batching policies in virtual time, with costs from a table",
      AddSimulate);
  add("doctor", "Check this machine, and how it serves a model", AddDoctor);
  return line;
}

}  // namespace chairlift
