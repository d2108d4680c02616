// `chairlift serve my.py:predict` as a program: its answers, its end, and that nothing outlives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "cli/process.h"
#include "engine/test_models.h"
#include "server/http_client.h"
#include "support/python.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

class ServeFunctionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    python_ = testing::PythonWithNumpy(CHAIRLIFT_SOURCE);
    if (python_.empty()) GTEST_SKIP() << "no Python with numpy: CHAIRLIFT_PYTHON names one";
  }
  void Serve(const std::string& text) {
    const std::string file = testing::WriteFile(folder_ / "my.py", text);
    server_ = std::make_unique<Process>(
        std::vector<std::string>{"serve", file + ":predict", "--http-port", "0", "--metrics-port",
                                 "-1", "--drain-seconds", "0"},
        std::vector<std::string>{"CHAIRLIFT_PYTHON=" + python_});
    ASSERT_TRUE(server_->AwaitOutput(" worker")) << server_->output();
    const std::string& output = server_->output();
    const std::string on = "on http://127.0.0.1:";
    port_ = std::atoi(output.c_str() + output.find(on) + on.size());
  }
  std::string Await(const std::string& file) {
    for (int i = 0; i < 60'000; ++i) {
      std::ifstream in(folder_ / file);
      std::stringstream text;
      text << in.rdbuf();
      if (!text.str().empty()) return text.str();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no " << file;
    return {};
  }
  std::string Path(const std::string& file) const { return (folder_ / file).string(); }

  static constexpr const char* kBody =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]})";
  testing::TempFolder folder_;
  std::string python_;
  std::unique_ptr<Process> server_;
  int port_ = 0;
};

TEST_F(ServeFunctionTest, SigtermLetsABatchEnd) {
  Serve(
      "import os, time\n"
      "def predict(x):\n"
      "  print('computing', flush=True)\n"
      "  while not os.path.exists('" +
      Path("go") +
      "'): time.sleep(0.01)\n"
      "  return x * 2\n");
  HttpAnswer answer;
  std::thread client([&] { answer = HttpClient(port_).Ask(Post("/v2/models/my/infer", kBody)); });
  EXPECT_TRUE(server_->AwaitOutput("computing"));
  server_->Signal(SIGTERM);
  EXPECT_TRUE(server_->AwaitOutput("in flight"));
  testing::WriteFile(folder_ / "go", "");
  client.join();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr("[2,4]"));
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
}

// A thread that has been started while the model was loaded may be the one that takes the signal.
TEST_F(ServeFunctionTest, SigtermIsForTheServerWhicheverThreadTakesIt) {
  Serve("def predict(x): return x\n");
  for (int sent = 0; sent == 0;) {  // to a thread that does not block it
    for (const auto& task : std::filesystem::directory_iterator(server_->Folder() + "/task")) {
      std::ifstream status(task.path() / "status");
      std::string line;
      while (std::getline(status, line) && !line.starts_with("SigBlk:")) {
      }
      const uint64_t blocked = std::stoull(line.substr(line.find('\t')), nullptr, 16);
      if ((blocked >> (SIGTERM - 1) & 1) == 0) sent = std::stoi(task.path().filename().string());
    }
    if (sent > 0) server_->SignalThread(sent, SIGTERM);
  }
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
  EXPECT_THAT(server_->output(), HasSubstr("draining"));
}

// Even one that is in C code that never returns.
TEST_F(ServeFunctionTest, WorkersEndWithAServerThatIsKilled) {
  Serve(
      "import ctypes, os\n"
      "def predict(x):\n"
      "  open('" +
      Path("pid.part") +
      "', 'w').write(str(os.getpid()))\n"
      "  os.rename('" +
      Path("pid.part") + "', '" + Path("pid") +
      "')\n"
      "  ctypes.PyDLL(None).sleep(1000)\n");
  std::thread client([&] { HttpClient(port_).Ask(Post("/v2/models/my/infer", kBody)); });
  const pid_t worker = std::atoi(Await("pid").c_str());
  EXPECT_GT(worker, 0);
  server_->Signal(SIGKILL);
  EXPECT_EQ(server_->Wait(), -SIGKILL);
  client.join();
  int left = 60'000;
  const std::string state = "/proc/" + std::to_string(worker) + "/stat";
  const auto runs = [&] {
    std::ifstream in(state);
    std::string text;
    return std::getline(in, text) && text.find(") Z") == std::string::npos;
  };
  while (runs() && --left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(left, 0);
}

TEST_F(ServeFunctionTest, WhatAFunctionRaisesIsLoggedAsAnError) {
  Serve(
      "def predict(x):\n"
      "  print('printed', flush=True)\n"
      "  raise ValueError('two\\nlines')\n");
  EXPECT_EQ(HttpClient(port_).Ask(Post("/v2/models/my/infer", kBody)).status, 500);
  EXPECT_TRUE(server_->AwaitOutput("lines\n"));
  for (const char* line : {"\\[info\\] .*: printed\n", "\\[error\\] .*:   File ",
                           "\\[error\\] .*: ValueError: two\n", "\\[error\\] .*: lines\n"}) {
    EXPECT_THAT(server_->output(), ::testing::ContainsRegex(line));
  }
}

TEST_F(ServeFunctionTest, SettingsAreGivenByName) {
  const std::string file = testing::WriteFile(folder_ / "my.py", "def predict(x): return x\n");
  const auto serve = [&](const std::string& setting) {
    return std::make_unique<Process>(
        std::vector<std::string>{"serve", "--set", setting, file + ":predict", "--http-port", "0",
                                 "--metrics-port", "-1", "--set", "max_batch_size=7"},
        std::vector<std::string>{"CHAIRLIFT_PYTHON=" + python_});
  };
  const auto server = serve("workers=2");
  EXPECT_TRUE(server->AwaitOutput("up to 7 rows")) << server->output();
  EXPECT_TRUE(server->AwaitOutput("in 2 processes")) << server->output();
  for (const auto& [setting, says] : {std::pair("workers", "write --set workers=VALUE"),
                                      std::pair("worker=2", "no setting 'worker'"),
                                      std::pair("workers=none", "workers is 'none'")}) {
    const auto refused = serve(setting);
    EXPECT_NE(refused->Wait(), 0);
    EXPECT_THAT(refused->output(), HasSubstr(says));
  }
}

TEST_F(ServeFunctionTest, WhatIsNoFunctionIsRefused) {
  const auto refusal = [&](const std::string& name) {
    Process process({"serve", name}, {"CHAIRLIFT_PYTHON=" + python_});
    EXPECT_NE(process.Wait(), 0);
    return process.output();
  };
  const std::string file =
      testing::WriteFile(folder_ / "my.py", "def predict(x): return y\n1 / 0\n");
  EXPECT_THAT(refusal(file), HasSubstr("name its function too"));
  EXPECT_THAT(refusal(file + ":predict"), HasSubstr("ZeroDivisionError"));
  EXPECT_THAT(refusal(Path("my2.py") + ":predict"), HasSubstr("did you mean"));
}

}  // namespace
}  // namespace chairlift
