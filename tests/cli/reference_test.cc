// What is generated from the command line's definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "cli/command_line.h"
#include "cli/reference/entries.h"
#include "cli/reference/pages.h"

namespace chairlift::reference {
namespace {

using ::testing::HasSubstr;

TEST(ReferenceTest, ThePageInDocsIsTheProgramsOwn) {
  std::ifstream file(CHAIRLIFT_SOURCE "/docs/reference/command-line.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), Markdown(MakeCommandLine()->app)) << "`make reference` writes it";
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
