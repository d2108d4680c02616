// Old names: each flag still works and warns, and no document has one.
#include "cli/renamed_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/renamed.h"
#include "cli/command_fixture.h"
#include "cli/command_line.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

// What a command needs beside the flag, and a value that the flag takes.
std::vector<std::string> With(const Renamed& renamed, const std::string& file) {
  static const std::map<std::string, std::string> kValues = {
      {"--no-autotune", ""},        {"--force", ""},
      {"--length-histogram", file}, {"--request-intervals", file},
      {"--uniform-lengths", "2-9"}, {"--cell-max-batch-size", "step=3"},
      {"--exit-percent", "30"},     {"--max-queue-wait-us", "20"},
  };
  const std::string command = renamed.command;
  std::vector<std::string> arguments = {command};
  if (command == "simulate") {
    arguments.insert(arguments.end(), {"--costs", file});
  } else {
    arguments.push_back(file);
  }
  const std::string to = renamed.to;
  if (command == "profile" && to == "--batch-size") arguments.emplace_back("--operators");
  if (command == "bench" && to == "--concurrency") {
    arguments.insert(arguments.end(), {"--prompt-lengths", "4", "--output-lengths", "4"});
  }
  arguments.emplace_back(renamed.from);
  const auto value = kValues.find(to);
  const std::string taken = value == kValues.end() ? "4" : value->second;
  if (!taken.empty()) arguments.push_back(taken);
  return arguments;
}

CLI::App& Find(CommandLine& line, const std::string& command) {
  return *line.app.get_subcommand(command);
}

class RenamedFlagsTest : public CommandFixture {};

TEST_F(RenamedFlagsTest, EachOldFlagIsReadAsTheNewOneAndWarns) {
  const std::string file = File("model.onnx", "x");
  for (const Renamed& renamed : RenamedFlags()) {
    std::vector<std::string> arguments = With(renamed, file);
    EXPECT_THAT(RenameFlags(&arguments),
                ElementsAre(AllOf(HasSubstr(std::string("chairlift ") + renamed.command),
                                  HasSubstr(renamed.from), HasSubstr(renamed.to))));
    const auto line = MakeCommandLine();
    CLI::App& command = Find(*line, renamed.command);
    EXPECT_EQ(command.get_option_no_throw(renamed.from), nullptr) << renamed.from;
    std::reverse(arguments.begin(), arguments.end());
    ASSERT_NO_THROW(line->app.parse(arguments)) << renamed.from;
    EXPECT_EQ(command.count(renamed.to), 1u) << renamed.to;
  }
}

TEST_F(RenamedFlagsTest, ValuesAreGivenInTheNewUnit) {
  std::vector<std::string> apart = {"serve", "m", "--max-queue-wait", "20"};
  std::vector<std::string> joined = {"serve", "m", "--max-queue-wait=30000"};
  std::vector<std::string> wrong = {"serve", "m", "--max-queue-wait", "soon"};
  EXPECT_THAT(RenameFlags(&apart), ElementsAre(HasSubstr("times 1000")));
  RenameFlags(&joined);
  RenameFlags(&wrong);
  EXPECT_THAT(apart, ElementsAre("serve", "m", "--max-queue-wait-us", "20000"));
  EXPECT_THAT(joined, ElementsAre("serve", "m", "--max-queue-wait-us=30000000"));
  EXPECT_THAT(wrong, ElementsAre("serve", "m", "--max-queue-wait-us", "soon"));
}

TEST_F(RenamedFlagsTest, OtherCommandsKeepTheirFlags) {
  std::vector<std::string> profile = {"profile", "m", "--lengths", "4"};
  std::vector<std::string> none;
  EXPECT_THAT(RenameFlags(&profile), IsEmpty());
  EXPECT_THAT(RenameFlags(&none), IsEmpty());
  EXPECT_THAT(profile, ElementsAre("profile", "m", "--lengths", "4"));
}

TEST_F(RenamedFlagsTest, TheProgramWarnsAndGoesOn) {
  const Outcome outcome = Run({"simulate", "--costs", File("c.csv", "step,1,100\nstep,8,200\n"),
                               "--fixed-length", "4", "--requests", "50", "--clients", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("chairlift simulate: warning: `--clients` is now `--concurrency`; the old "
                        "name works until version 0.3\n"));
}

TEST_F(RenamedFlagsTest, AnOldPolicyIsReadAsTheNewOneAndWarns) {
  const std::string costs = File("c.csv", "sequence,1,1,100\nsequence,8,8,200\ntoken,1,100\n");
  const Outcome outcome =
      Run({"simulate", "--application", "encoder", "--costs", costs, "--uniform-lengths", "2-8",
           "--requests", "50", "--rate", "10", "--policy", "none,tokens"});
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("--policy: `tokens` is now `packed`; the old name "
                                              "works until version 0.3\n"),
                                    HasSubstr("\npacked ")));
}

// Commands of documents, with the lines that a backslash continues.
std::vector<std::pair<std::string, std::string>> DocumentLines() {
  std::vector<fs::path> files = {fs::path(CHAIRLIFT_SOURCE) / "README.md"};
  for (const char* folder : {"docs", "examples", "deploy", "packaging", "bench"}) {
    const fs::path below = fs::path(CHAIRLIFT_SOURCE) / folder;
    if (!fs::exists(below)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(below)) {
      const std::set<std::string> kinds = {".md", ".yaml", ".yml", ".json", ".service", ".py"};
      if (kinds.contains(entry.path().extension().string())) files.push_back(entry.path());
    }
  }
  std::vector<std::pair<std::string, std::string>> lines;
  for (const fs::path& file : files) {
    std::ifstream in(file);
    bool continued = false;
    for (std::string line; std::getline(in, line);) {
      const bool more = line.ends_with('\\');
      if (continued) {
        lines.back().second += " " + line;
      } else {
        lines.emplace_back(file.string(), line);
      }
      continued = more;
    }
  }
  return lines;
}

TEST(RenamedNamesTest, NoDocumentHasAnOldName) {
  std::vector<std::regex> old;
  const auto line = MakeCommandLine();
  for (const Renamed& renamed : RenamedFlags()) {
    bool current = false;  // of another command
    for (const auto& [command, run] : line->commands) {
      current |= command->get_option_no_throw(renamed.from) != nullptr;
    }
    const std::string flag = std::string(renamed.from) + "(?![-\\w])";
    old.emplace_back(current ? "chairlift " + std::string(renamed.command) + ".* " + flag
                             : "(chairlift|`|^\\| `)[^|]*" + flag);
  }
  for (const Renamed& renamed : RenamedSettings()) {
    old.emplace_back("^    " + std::string(renamed.from) + ":");
    old.emplace_back("`" + std::string(renamed.from) + "[`:]");
  }
  for (const Renamed& renamed : RenamedPolicies()) {
    old.emplace_back("policy[:=]? *`?" + std::string(renamed.from) + "(?![-\\w])");
  }
  for (const Renamed& renamed : RenamedMetrics()) {
    old.emplace_back(std::string(renamed.from) + "(?!\\w)");
  }
  for (const Renamed& renamed : RenamedFields()) {
    old.emplace_back("generation\\.?" + std::string(renamed.from) + "(?!\\w)");
  }
  const auto lines = DocumentLines();
  EXPECT_GT(lines.size(), 1000u);
  for (const auto& [file, text] : lines) {
    for (const std::regex& name : old) {
      EXPECT_FALSE(std::regex_search(text, name)) << file << ": " << text;
    }
  }
}

// A chain of renamings would give two warnings, and a new name that is an old one none.
TEST(RenamedNamesTest, NewNamesAreNotOldOnes) {
  for (const auto names :
       {RenamedFlags(), RenamedSettings(), RenamedPolicies(), RenamedMetrics(), RenamedFields()}) {
    for (const Renamed& renamed : names) {
      for (const Renamed& other : names) {
        EXPECT_FALSE(std::string(renamed.to) == other.from &&
                     std::string(renamed.command) == other.command)
            << renamed.to;
      }
    }
  }
}

}  // namespace
}  // namespace chairlift
