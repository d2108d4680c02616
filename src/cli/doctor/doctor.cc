// `chairlift doctor`: checks what this machine offers a server, what limits it, and how a model
// performs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/doctor/findings.h"
#include "cli/flags.h"
#include "cli/model_path.h"
#include "cli/terminal.h"
#include "cli/version_text.h"

namespace chairlift {
namespace {

using doctor::Finding;
using doctor::Level;

struct DoctorFlags {
  std::string model;
  bool json = false;
  bool allow_plugins = false;
};

struct Section {
  std::string name;
  std::vector<Finding> findings;
};

const char* LevelName(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kInfo:
      return "info";
    case Level::kHint:
      return "hint";
    case Level::kProblem:
      break;
  }
  return "problem";
}

void Print(const std::vector<Section>& sections) {
  PrintText("{}\n", VersionText());
  for (const Section& section : sections) {
    PrintText("\n{}\n", section.name);
    for (const Finding& finding : section.findings) {
      PrintText("  {:7} {:12} {}\n", LevelName(finding.level), finding.about, finding.said);
      if (!finding.fix.empty()) PrintText("  {:7} {:12} -> {}\n", "", "", finding.fix);
    }
  }
}

void PrintJson(const std::vector<Section>& sections) {
  nlohmann::ordered_json report = {{"version", VersionText()}};
  for (const Section& section : sections) {
    nlohmann::ordered_json& rows = report[section.name] = nlohmann::ordered_json::array();
    for (const Finding& finding : section.findings) {
      rows.push_back(
          {{"level", LevelName(finding.level)}, {"about", finding.about}, {"said", finding.said}});
      if (!finding.fix.empty()) rows.back()["fix"] = finding.fix;
    }
  }
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  fmt::print("{}\n", report.dump(2, ' ', false, kReplace));
}

Status Examine(const DoctorFlags& flags) {
  // First: the memory that the model takes is that by which this process grows.
  std::vector<Finding> of_model;
  if (!flags.model.empty()) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const ModelPath path, FindModel(flags.model));
    of_model = doctor::OfModel(path, flags.allow_plugins);
  }
  std::vector<Section> sections = {{"machine", doctor::OfMachine()},
                                   {"serving", doctor::OfServing()}};
  if (!flags.model.empty()) sections.push_back({"model", std::move(of_model)});
  flags.json ? PrintJson(sections) : Print(sections);
  for (const Section& section : sections) {
    for (const Finding& finding : section.findings) {
      if (finding.level != Level::kProblem) continue;
      return Unavailable("{}: {}", finding.about, finding.said);
    }
  }
  return absl::OkStatus();
}

}  // namespace

Command AddDoctor(CLI::App& parser) {
  auto flags = std::make_shared<DoctorFlags>();
  parser.footer(R"(Examples:
  chairlift doctor                  the machine, the ports, the cache folder
  chairlift doctor model.onnx       also how the model is served, what would speed it up, its speed
  chairlift doctor --json

Exit code: 1 if there is a problem; hints do not count.)");
  TakesModel(parser.add_option("MODEL", flags->model, "ONNX file or folder of a model"));
  parser.add_flag("--json", flags->json, "Print the findings as JSON");
  AddAllowPlugins(parser, &flags->allow_plugins);
  return [flags] { return Examine(*flags); };
}

}  // namespace chairlift
