// Python functions, served by an engine of a test's own.
#ifndef CHAIRLIFT_TESTS_ENGINE_PROGRAMS_PROCESS_FUNCTIONS_H_
#define CHAIRLIFT_TESTS_ENGINE_PROGRAMS_PROCESS_FUNCTIONS_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "support/python.h"

namespace chairlift::testing {

class FunctionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string kPython = PythonWithNumpy(CHAIRLIFT_SOURCE);
    if (kPython.empty()) GTEST_SKIP() << "no Python with numpy: CHAIRLIFT_PYTHON names one";
    ASSERT_EQ(setenv("CHAIRLIFT_PYTHON", kPython.c_str(), 1), 0);
    auto engine = Engine::Create({.workers = 2, .allow_plugins = true});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // Serves my.py:predict of this text as "my", with these lines of a model.yaml.
  Status Load(const std::string& python, const std::string& settings = "") {
    WriteFile(folder_ / "my/1/my.py", "import numpy as np\n" + python);
    WriteFile(folder_ / "my/model.yaml", "python: my.py:predict\n" + settings);
    if (Status added = engine_->AddRepository(folder_.string()); !added.ok()) return added;
    return engine_->LoadFromRepository("my");
  }

  static InferRequest Request(const Tensor& x, const std::string& name = "x") {
    InferRequest request;
    request.model = "my";
    request.inputs = {{name, x}};
    return request;
  }
  static Tensor Rows(std::vector<float> values, int64_t rows = 0) {
    const auto size = static_cast<int64_t>(values.size());
    if (rows == 0) rows = size;
    return Tensor::Of<float>({rows, size / rows}, std::span<const float>(values));
  }
  StatusOr<InferResponse> Infer(const Tensor& x) { return engine_->Infer(Request(x)); }

  using Answer = std::future<StatusOr<InferResponse>>;
  Answer Submit(InferRequest request) {
    auto promise = std::make_shared<std::promise<StatusOr<InferResponse>>>();
    Answer answer = promise->get_future();
    engine_->InferAsync(std::move(request), [promise](StatusOr<InferResponse> response) {
      promise->set_value(std::move(response));
    });
    return answer;
  }
  Answer Submit(const Tensor& x) { return Submit(Request(x)); }

  // Whether it comes true within a minute.
  template <typename Condition>
  static bool Soon(Condition condition) {
    for (int i = 0; i < 60'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  static std::vector<float> Values(const StatusOr<InferResponse>& response) {
    if (!response.ok()) {
      ADD_FAILURE() << response.status();
      return {};
    }
    const auto values = response->outputs[0].tensor.values<float>();
    return {values.begin(), values.end()};
  }
  static std::string MessageOf(const Status& status) {
    return std::string(status.message().data(), status.message().size());
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_PROGRAMS_PROCESS_FUNCTIONS_H_
