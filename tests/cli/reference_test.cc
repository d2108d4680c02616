// What is generated from the program's definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "cli/command_line.h"
#include "cli/reference/entries.h"
#include "cli/reference/pages.h"
#include "engine/programs/process/function_config.h"
#include "engine/repository/model_config.h"

namespace chairlift::reference {
namespace {

using ::testing::HasSubstr;

std::string PageInDocs(const std::string& name) {
  std::ifstream file(CHAIRLIFT_SOURCE "/docs/reference/" + name);
  std::stringstream page;
  page << file.rdbuf();
  return page.str();
}

TEST(ReferenceTest, ThePagesInDocsAreTheProgramsOwn) {
  EXPECT_EQ(PageInDocs("command-line.md"), Markdown(MakeCommandLine()->app))
      << "`make reference` writes it";
  EXPECT_EQ(PageInDocs("model-yaml.md"), SettingsPage()) << "`make reference` writes it";
  EXPECT_EQ(PageInDocs("operators.md"), OperatorsPage(CHAIRLIFT_SOURCE))
      << "`make reference` writes it";
}

TEST(ReferenceTest, EverySettingThatIsReadIsOnItsPage) {
  const std::string page = SettingsPage();
  for (const std::string& name : SettingNames()) EXPECT_THAT(page, HasSubstr("| `" + name + "` |"));
  for (const std::string& name : FunctionSettingNames()) {
    EXPECT_THAT(page, HasSubstr("| `" + name + "` |"));
  }
  EXPECT_THAT(page, HasSubstr("| `max_queue_size` | a number of requests, 1 to 2147483647 | "
                              "`1024` |"));
}

TEST(ReferenceTest, OperatorsHaveTheirKernels) {
  const std::string page = OperatorsPage(CHAIRLIFT_SOURCE);
  EXPECT_THAT(page, HasSubstr("| `FusedMatMul` | float | CPU, CUDA |"));
  EXPECT_THAT(page, HasSubstr("| `If` |"));
  EXPECT_THAT(page, HasSubstr("| `MatMulNBits` |"));
  EXPECT_THAT(page, HasSubstr("| `TreeEnsembleClassifier` |"));
}

TEST(ReferenceTest, EveryFlagOfEveryCommandIsInManPagesAndCompletions) {
  const auto line = MakeCommandLine();
  const std::string bash = BashCompletion(line->app);
  const std::string zsh = ZshCompletion(line->app);
  const std::string fish = FishCompletion(line->app);
  int flags = 0;
  for (const auto& [command, run] : line->commands) {
    const std::string page = ManPage(line->app, command);
    EXPECT_THAT(page, HasSubstr(".SH SYNOPSIS"));
    for (const Group& group : GroupsOf(*command)) {
      for (const Entry& entry : group.entries) {
        if (entry.positional) continue;
        const std::string& name = entry.names.back();
        ++flags;
        EXPECT_THAT(bash, HasSubstr(name));
        EXPECT_THAT(zsh, HasSubstr("'" + std::string(entry.several ? "*" : "") + name + "["));
        EXPECT_THAT(fish, HasSubstr(" -l " + name.substr(2)));
      }
    }
  }
  EXPECT_GT(flags, 50);
}

TEST(ReferenceTest, AnEntryHasItsChoicesAndItsDefault) {
  CLI::App app;
  std::string level = "info";
  app.add_option("--log-level", level, "What to log")
      ->check(CLI::IsMember({"debug", "info"}))
      ->type_name("LEVEL")
      ->capture_default_str();
  for (const Group& group : GroupsOf(app)) {
    for (const Entry& entry : group.entries) {
      if (entry.names.back() != "--log-level") continue;
      EXPECT_EQ(Heading(entry), "--log-level LEVEL");
      EXPECT_EQ(Paragraph(entry), "What to log. One of: debug, info. Default: info.");
      return;
    }
  }
  FAIL() << "no such entry";
}

}  // namespace
}  // namespace chairlift::reference
