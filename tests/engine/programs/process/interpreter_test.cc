// Which Python is taken, and which are not looked at.
#include "engine/programs/process/interpreter.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/test_models.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class InterpreterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"CHAIRLIFT_PYTHON", "VIRTUAL_ENV"}) {
      const char* const value = getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      unsetenv(name);
    }
    function_.trusted = true;
    function_.packages = {"numpy", "tokenizers"};
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }
  // A virtual environment whose interpreter answers so; its interpreter.
  std::string Environment(const std::string& name, const std::string& answer) {
    const fs::path python = folder_ / (name + "/bin/python3");
    testing::WriteFile(folder_ / (name + "/pyvenv.cfg"), "");
    testing::WriteFile(python, "#!/bin/sh\nprintf '" + answer + "'\n");
    fs::permissions(python, fs::perms::owner_all);
    return python.string();
  }
  std::vector<std::string> Places(bool runs_their_code) {
    std::vector<std::string> places;
    for (const InterpreterPlace& place :
         InterpreterPlaces(function_, folder_ / "worker/_tokenizer.py", runs_their_code)) {
      places.push_back(place.python);
    }
    return places;
  }
  std::string Found(bool runs_their_code = true) {
    const auto found =
        FindInterpreter(function_, folder_ / "worker/_tokenizer.py", runs_their_code);
    return found.ok() ? *found : found.status().ToString();
  }

  testing::TempFolder folder_;
  FunctionConfig function_;
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(InterpreterTest, AnEnvironmentInAModelsFolderIsCode) {
  const std::string python = Environment("models/enc/.venv", "missing:\\nend\\n");
  function_.data_folders = {folder_ / "models/enc"};
  EXPECT_THAT(Places(false), Not(Contains(python)));
  EXPECT_THAT(Places(true), Contains(python));
  // However the folder is reached.
  fs::create_directory_symlink(folder_ / "models", folder_ / "link");
  function_.data_folders = {folder_ / "link/enc"};
  EXPECT_THAT(Places(false), Not(Contains(HasSubstr("enc/.venv"))));
}

TEST_F(InterpreterTest, TheWorkingDirectoryOfAModelIsNoExemption) {
  const std::string python = Environment("models/.venv", "missing:\\nend\\n");
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "models");
  function_.data_folders = {folder_ / "elsewhere"};
  EXPECT_THAT(Places(false), Contains(python));
  function_.data_folders = {folder_ / "models"};
  EXPECT_THAT(Places(false), Not(Contains(python)));
  fs::current_path(before);
}

TEST_F(InterpreterTest, AnEnvironmentThatOthersMayWriteToIsNotTaken) {
  const std::string python = Environment("models/.venv", "missing:\\nend\\n");
  function_.data_folders = {folder_ / "models"};
  EXPECT_THAT(Places(true), Contains(python));
  for (const char* part : {"models/.venv", "models/.venv/bin", "models/.venv/pyvenv.cfg"}) {
    fs::permissions(folder_ / part, fs::perms::others_write, fs::perm_options::add);
    EXPECT_THAT(Places(true), Not(Contains(python))) << part;
    fs::permissions(folder_ / part, fs::perms::others_write, fs::perm_options::remove);
  }
  EXPECT_THAT(Places(true), Contains(python));
  fs::remove(folder_ / "models/.venv/pyvenv.cfg");
  EXPECT_THAT(Places(true), Not(Contains(python)));
}

TEST_F(InterpreterTest, ThatWithThePackagesIsTaken) {
  const std::string active = Environment("active", "missing:\\nend\\n");
  setenv("VIRTUAL_ENV", (folder_ / "active").c_str(), 1);
  EXPECT_EQ(Found(), active);
  // One that lacks some, one that does not finish its answer, one that says something else.
  for (const char* answer :
       {"missing:\\ntokenizers\\nx\\ny\\nz\\nend\\n", "missing:\\n", "hello\\n"}) {
    Environment("active", answer);
    const std::string whole = Environment("models/venv", "missing:\\nend\\n");
    function_.data_folders = {folder_ / "models"};
    function_.packages = {"numpy", "tokenizers", "a_package_that_nobody_has"};
    EXPECT_EQ(Found(), whole) << answer;
  }
}

TEST_F(InterpreterTest, WhatIsNamedIsTaken) {
  Environment("active", "missing:\\nend\\n");
  setenv("VIRTUAL_ENV", (folder_ / "active").c_str(), 1);
  setenv("CHAIRLIFT_PYTHON", "/a/python", 1);
  EXPECT_EQ(Found(), "/a/python");
  function_.python_executable = "/b/python";
  EXPECT_EQ(Found(), "/b/python");
}

}  // namespace
}  // namespace chairlift
