// Memory runs out at every point of requests: each is answered once, rightly or with
// kResourceExhausted, and what comes after is answered as ever.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/recurrent_models.h"
#include "out_of_memory/engine_fixture.h"

namespace chairlift {
namespace {

using testing::Answers;
using testing::ExpectSame;
using testing::FailingAllocator;
using testing::SmallEngine;
using testing::TempFolder;
using testing::WriteFile;

class RequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FailingAllocator::Available()) GTEST_SKIP();
    Load("whole", testing::DoublingModel());
    Load("cells", testing::TokenClassifier());
  }
  void Load(const std::string& name, const testing::ModelBuilder& model) {
    const Status loaded =
        engine_->LoadModel(name, WriteFile(folder_ / (name + ".onnx"), model.Bytes()), {});
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  static InferRequest Whole(int64_t rows) {
    Tensor x = Tensor::Allocate(DType::kFloat, {rows, 4});
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = static_cast<float>(i % 7);
    return {.model = "whole", .inputs = {{"x", x}}};
  }
  InferRequest Cells(int64_t steps) const {
    InferRequest request{.model = "cells", .inputs = {}};
    const ModelMetadata metadata = *engine_->Metadata("cells");
    for (const TensorSpec& input : metadata.inputs) {
      Tensor t = Tensor::Allocate(input.dtype, {1, steps});
      for (int64_t i = 0; i < steps; ++i) t.data<int64_t>()[i] = i % 5;
      request.inputs.push_back({input.name, t});
    }
    return request;
  }

  // Each attempt of what `make` asks for fails once, `stride` apart.
  void FailEach(const std::function<std::vector<InferRequest>()>& make, int64_t stride) {
    std::vector<InferResponse> want;
    for (InferRequest& request : make()) {
      auto answer = engine_->Infer(std::move(request));
      ASSERT_TRUE(answer.ok()) << answer.status();
      want.push_back(*std::move(answer));
    }
    int refused = 0;
    for (int64_t n = 1;; n += stride) {
      Answers answers(*engine_, make());
      FailingAllocator::FailNth(n);
      answers.Send();
      const bool all = answers.Wait();
      const int64_t attempts = FailingAllocator::Stop();
      ASSERT_TRUE(all) << n;
      for (size_t i = 0; i < answers.size(); ++i) {
        ASSERT_EQ(answers.calls(i), 1) << n;
        if (answers[i].ok()) {
          ASSERT_NO_FATAL_FAILURE(ExpectSame(*answers[i], want[i])) << n;
        } else {
          ASSERT_TRUE(absl::IsResourceExhausted(answers[i].status())) << answers[i].status();
          ++refused;
        }
      }
      if (attempts < n) break;
    }
    EXPECT_GT(refused, 0);
    for (InferRequest& request : make()) {
      const auto answer = engine_->Infer(std::move(request));
      ASSERT_TRUE(answer.ok()) << answer.status();
    }
    for (const char* model : {"whole", "cells"}) {
      EXPECT_EQ((*engine_->Statistics(model))[0].waiting, 0);
      EXPECT_EQ((*engine_->Statistics(model))[0].running, 0);
    }
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_ = SmallEngine(2);
};

TEST_F(RequestTest, AnyAllocationOfRequestsThatRunWholeMayFail) {
  FailEach([] { return std::vector<InferRequest>{Whole(2), Whole(3)}; }, 1);
}

TEST_F(RequestTest, AnyAllocationOfRequestsInPartsMayFail) {
  FailEach([] { return std::vector<InferRequest>{Whole(200), Whole(1)}; }, 1);
}

TEST_F(RequestTest, AnyAllocationOfRequestsOfCellsMayFail) {
  FailEach([this] { return std::vector<InferRequest>{Cells(9), Cells(4)}; }, 1);
}

// y = x + s, and s' = y.
TEST_F(RequestTest, AnyAllocationOfASequencesChunksMayFail) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 2}).Input("s", testing::kFloat, {"batch", 2});
  m.Output("y", testing::kFloat, {"batch", 2}).Output("s_next", testing::kFloat, {"batch", 2});
  m.Node("Add", {"x", "s"}, {"y"});
  m.Node("Identity", {"y"}, {"s_next"});
  const std::string file = WriteFile(folder_ / "sums.onnx", m.Bytes());
  ASSERT_TRUE(engine_->LoadModel("sums", file, {.sequence_state = {{"s_next", "s"}}}).ok());
  // Three chunks sent together; the state is among what is asked for, so that it is copied.
  const auto chunks = [](bool end) {
    std::vector<InferRequest> requests;
    for (int i = 0; i < 3; ++i) {
      InferRequest& request = requests.emplace_back();
      request.model = "sums";
      request.inputs = {{"x", Tensor::Of<float>(Shape{1, 2}, {1, 2})}};
      request.outputs = {"y", "s_next"};
      request.sequence = "one";
      request.sequence_start = i == 0;
      request.sequence_end = end && i == 2;
    }
    return requests;
  };
  for (int64_t n = 1;; ++n) {
    Answers answers(*engine_, chunks(false));
    FailingAllocator::FailNth(n);
    answers.Send();
    const bool all = answers.Wait();
    const int64_t attempts = FailingAllocator::Stop();
    ASSERT_TRUE(all) << n;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(answers.calls(i), 1) << n;
      // A chunk behind one that did not start its sequence has none to go on with.
      ASSERT_TRUE(answers[i].ok() || absl::IsResourceExhausted(answers[i].status()) ||
                  absl::IsInvalidArgument(answers[i].status()))
          << answers[i].status();
    }
    if (attempts < n) break;
    Answers after(*engine_, chunks(true));
    after.Send();
    ASSERT_TRUE(after.Wait()) << n;
    for (size_t i = 0; i < after.size(); ++i) {
      ASSERT_TRUE(after[i].ok()) << after[i].status() << " after " << n;
      EXPECT_FLOAT_EQ(after[i]->outputs[0].tensor.data<float>()[0], static_cast<float>(i + 1));
    }
  }
}

}  // namespace
}  // namespace chairlift
