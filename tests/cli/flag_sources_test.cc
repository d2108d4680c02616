// Flags of `serve` from environment variables and from a file.
#include "cli/flag_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_fixture.h"
#include "cli/command_line.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class FlagSourcesTest : public CommandFixture {
 protected:
  const CLI::App& Serve() const { return *line_->app.get_subcommand("serve"); }
  // The arguments with what was added.
  std::vector<std::string> Added(std::vector<std::string> arguments, const Environment& variables) {
    const StatusOr<FlagSources> sources = AddFlagsFromOutside(Serve(), variables, &arguments);
    EXPECT_TRUE(sources.ok()) << sources.status();
    if (sources.ok()) sources_ = *sources;
    return arguments;
  }
  std::string Error(std::vector<std::string> arguments, const Environment& variables) {
    return std::string(AddFlagsFromOutside(Serve(), variables, &arguments).status().message());
  }

  const std::unique_ptr<CommandLine> line_ = MakeCommandLine();
  FlagSources sources_;
};

TEST_F(FlagSourcesTest, AVariableIsAFlagThatTheCommandLineWinsOver) {
  const Environment variables = {
      {"CHAIRLIFT_HTTP_PORT", "8080"},  {"CHAIRLIFT_EXIT_ON_ERROR", "TRUE"},
      {"CHAIRLIFT_PRINT_EXAMPLE", "0"}, {"CHAIRLIFT_LOG_LEVEL", ""},
      {"CHAIRLIFT_PARENT_FD", "7"},     {"CHAIRLIFT_PYTHON", "/usr/bin/python3"},
      {"OTHER_HTTP_PORT", "1"}};
  EXPECT_THAT(Added({"serve", "m.onnx"}, variables),
              ElementsAre("serve", "m.onnx", "--exit-on-error", "--http-port=8080"));
  EXPECT_EQ(sources_.of["--http-port"], "CHAIRLIFT_HTTP_PORT");
  EXPECT_THAT(Added({"serve", "m.onnx", "--http-port", "9", "--exit-on-error"}, variables),
              ElementsAre("serve", "m.onnx", "--http-port", "9", "--exit-on-error"));
  EXPECT_THAT(Added({"serve", "--http-port=9", "--", "m.onnx"}, variables),
              ElementsAre("serve", "--http-port=9", "--exit-on-error", "--", "m.onnx"));
}

TEST_F(FlagSourcesTest, OnlyServeTakesThem) {
  const Environment variables = {{"CHAIRLIFT_WORKERS", "2"}, {"CHAIRLIFT_CONFIG", "none.yaml"}};
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {}, {"--version"}, {"bench", "m.onnx"}, {"serve", "--help"}, {"serve", "m", "-h"}}) {
    EXPECT_THAT(Added(arguments, variables), ElementsAreArray(arguments));
  }
}

TEST_F(FlagSourcesTest, AVariableWinsOverTheFile) {
  const std::string file = File("server.yaml",
                                "http-port: 8081\nworkers: 3\nload_model: [a, b]\n"
                                "exit-on-error: true\nhttp-metrics: false\n");
  EXPECT_THAT(Added({"serve", "m", "--config", file}, {{"CHAIRLIFT_WORKERS", "2"}}),
              ElementsAre("serve", "m", "--config", file, "--workers=2", "--http-port=8081",
                          "--load-model=a", "--load-model=b", "--exit-on-error"));
  EXPECT_EQ(sources_.of["--http-port"], file);
  EXPECT_EQ(sources_.NamedIn("--http-port: '9' is not"), " (--http-port is from " + file + ")");
  EXPECT_EQ(sources_.NamedIn("--http-ports: no"), "");
  EXPECT_THAT(Added({"serve", "m"}, {{"CHAIRLIFT_CONFIG", File("one.yaml", "workers: 1")}}),
              ElementsAre("serve", "m", HasSubstr("--config="), "--workers=1"));
  EXPECT_THAT(Added({"serve", "--config=" + File("empty.yaml", "# nothing\n")}, {}),
              ElementsAre("serve", HasSubstr("--config=")));
}

TEST_F(FlagSourcesTest, WrongFilesAndVariablesAreRefused) {
  const auto refused = [&](const std::string& text) {
    return Error({"serve", "--config", File("wrong.yaml", text)}, {});
  };
  EXPECT_THAT(refused("http-prt: 1\n"),
              AllOf(HasSubstr("wrong.yaml: "), HasSubstr("'http-prt'"), HasSubstr("http-port")));
  EXPECT_THAT(refused("max_batch_size: 8\n"),
              AllOf(HasSubstr("a setting of models"), HasSubstr("`set: [max_batch_size=VALUE]`")));
  EXPECT_THAT(refused("config: other.yaml\n"), HasSubstr("there is no setting 'config'"));
  EXPECT_THAT(refused("parent-fd: 3\n"), HasSubstr("there is no setting 'parent-fd'"));
  EXPECT_THAT(refused("- http-port\n"), HasSubstr("must be a map of settings"));
  EXPECT_THAT(refused("workers: {a: 1}\n"), HasSubstr("a value, or a list of values"));
  EXPECT_THAT(refused("exit-on-error: maybe\n"), HasSubstr("true or false"));
  EXPECT_THAT(refused("a: [\n"), HasSubstr("it is not YAML"));
  EXPECT_THAT(Error({"serve", "--config", (folder_ / "none.yaml").string()}, {}),
              AllOf(HasSubstr("none.yaml"), HasSubstr("cannot be read")));
  EXPECT_THAT(Error({"serve", "--config=/dev/zero"}, {}), HasSubstr("bytes, the limit"));
  EXPECT_THAT(Error({"serve", "--config", (folder_ / ".").string()}, {}),
              HasSubstr("cannot be read"));
  EXPECT_THAT(Error({"serve"}, {{"CHAIRLIFT_EXIT_ON_ERROR", "maybe"}}),
              AllOf(HasSubstr("CHAIRLIFT_EXIT_ON_ERROR"), HasSubstr("true or false")));
}

TEST_F(FlagSourcesTest, ServiceLinksOfKubernetesAreIgnored) {
  const std::vector<std::string> arguments = {"serve", "m"};
  EXPECT_THAT(Added(arguments, {{"CHAIRLIFT_HTTP_PORT", "tcp://10.0.0.7:80"}}),
              ElementsAreArray(arguments));
  EXPECT_THAT(sources_.warnings, ElementsAre(HasSubstr("enableServiceLinks")));
}

// Every flag of the help can come from outside, except those for one start.
TEST_F(FlagSourcesTest, EveryFlagHasAVariable) {
  for (const CLI::Option* option : Serve().get_options()) {
    for (const std::string& name : option->get_lnames()) {
      std::string variable = "CHAIRLIFT_" + name;
      std::replace(variable.begin(), variable.end(), '-', '_');
      for (char& c : variable) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      const bool takes_value = option->get_items_expected_min() > 0;
      const std::string value = name == "config" ? File("none.yaml", "") : "1";
      const std::vector<std::string> added =
          Added({"serve"}, {{variable, takes_value ? value : "true"}});
      if (name == "help" || name == "parent-fd") {
        EXPECT_THAT(added, ElementsAre("serve")) << name;
      } else {
        EXPECT_THAT(added,
                    ElementsAre("serve", takes_value ? "--" + name + "=" + value : "--" + name));
      }
    }
  }
}

TEST_F(FlagSourcesTest, TheProgramSaysWhereAWrongFlagIsFrom) {
  const std::string model = File("m.onnx", "x");
  const std::string file = File("server.yaml", "http-port: 99999\n");
  EXPECT_THAT(Refusal({"serve", model, "--config", file}, 2),
              AllOf(HasSubstr("--http-port: '99999' is not a number from 0 to 65535"),
                    HasSubstr("(--http-port is from " + file + ")")));
  EXPECT_THAT(Refusal({"serve", model, "--config", File("s.yaml", "memory-budget: 5\n")}, 2),
              HasSubstr("(--memory-budget is from "));
  EXPECT_THAT(Refusal({"serve", model, "--config", File("t.yaml", "ports: 5\n")}, 2),
              HasSubstr("there is no setting 'ports'"));
}

}  // namespace
}  // namespace chairlift
