// Functions that take and give texts, and results of lengths that no input has; alone and as steps
// of pipelines.
#include <gmock/gmock.h>

#include <random>

#include "chairlift/text.h"
#include "engine/programs/process/functions.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::FunctionTest;
using ::testing::HasSubstr;
using testing::WriteFile;

class TextsTest : public FunctionTest {
 protected:
  static InferRequest Texts(std::vector<std::string> texts, const std::string& model = "my") {
    InferRequest request;
    request.model = model;
    const auto rows = static_cast<int64_t>(texts.size());
    request.inputs = {{"text", TextTensor({rows}, std::move(texts))}};
    return request;
  }
  static std::vector<std::string> TextsOf(const StatusOr<InferResponse>& response) {
    if (!response.ok()) {
      ADD_FAILURE() << response.status();
      return {};
    }
    const auto texts = response->outputs[0].tensor.values<std::string_view>();
    return {texts.begin(), texts.end()};
  }
};

TEST_F(TextsTest, TextsGoToTexts) {
  ASSERT_TRUE(Load("def predict(text: list[str], n: list[bytes]) -> list[str]:\n"
                   "  return [t.upper() * len(b) for t, b in zip(text, n)]\n")
                  .ok());
  InferRequest request = Texts({"é", "", "abc"});
  request.inputs.push_back({"n", TextTensor({3}, {std::string("\xff\0", 2), "1", ""})});
  EXPECT_THAT(TextsOf(engine_->Infer(request)), ElementsAre("ÉÉ", "", ""));
  request.inputs[0].tensor = TextTensor({3}, {"a", "\xff", "b"});
  const Status refused = engine_->Infer(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(MessageOf(refused), HasSubstr("input 'text' is not UTF-8"));
  request.inputs[0].tensor = Tensor::Of<float>({3}, {1, 2, 3});
  EXPECT_THAT(MessageOf(engine_->Infer(request).status()), HasSubstr("BYTES"));
}

// Requests of all lengths, and of several rows, together: each answer as of the text alone.
TEST_F(TextsTest, BatchesOfTextsAnswerAsAlone) {
  ASSERT_TRUE(Load("from typing import Annotated\n"
                   "from chairlift import Ragged\n"
                   "def predict(text: list[bytes]) -> tuple[Annotated[Ragged, np.int64, 'codes'], "
                   "list[bytes], Annotated[np.ndarray, np.int64, 'count']]:\n"
                   "  ends = np.cumsum([0] + [len(t) for t in text])\n"
                   "  codes = np.frombuffer(b''.join(text), np.uint8).astype(np.int64) + 1\n"
                   "  return Ragged(codes, ends), [t[::-1] for t in text], np.diff(ends)\n",
                   "max_batch_size: 8\n")
                  .ok());
  EXPECT_EQ(engine_->Metadata("my")->outputs[0].name, "codes");
  std::mt19937 random(3);
  std::vector<Answer> answers;
  std::vector<std::vector<std::string>> asked;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> texts(1 + random() % 3, std::string(random() % 40, ' '));
    for (std::string& text : texts) {
      for (char& c : text) c = static_cast<char>(random());
    }
    asked.push_back(texts);
    answers.push_back(Submit(Texts(texts)));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto response = answers[i].get();
    ASSERT_TRUE(response.ok()) << response.status();
    const auto rows = static_cast<int64_t>(asked[i].size());
    const auto length = static_cast<int64_t>(asked[i][0].size());
    ASSERT_EQ(response->outputs[0].tensor.shape(), (Shape{rows, length}));
    const auto codes = response->outputs[0].tensor.values<int64_t>();
    const auto reversed = response->outputs[1].tensor.values<std::string_view>();
    for (int64_t row = 0; row < rows; ++row) {
      const std::string& text = asked[i][static_cast<size_t>(row)];
      EXPECT_EQ(response->outputs[2].tensor.values<int64_t>()[static_cast<size_t>(row)], length);
      EXPECT_EQ(reversed[static_cast<size_t>(row)], std::string(text.rbegin(), text.rend()));
      for (int64_t c = 0; c < length; ++c) {
        ASSERT_EQ(codes[static_cast<size_t>(row * length + c)],
                  static_cast<uint8_t>(text[static_cast<size_t>(c)]) + 1);
      }
    }
  }
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"a", "bb"})).status()),
              HasSubstr("different lengths in output 'codes' (1 and 2)"));
}

TEST_F(TextsTest, WhatAFunctionRefusesIsTheClientsMistake) {
  ASSERT_TRUE(Load("from chairlift import InvalidArgument\n"
                   "def predict(text: list[str]) -> list[str]:\n"
                   "  if 'bad' in text: raise InvalidArgument('bad is no text')\n"
                   "  return text\n",
                   "max_batch_size: 2\nqueue_delay_us: 1000000\n")
                  .ok());
  Answer bad = Submit(Texts({"bad"})), good = Submit(Texts({"good"}));  // one batch
  const Status refused = bad.get().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(MessageOf(refused), "bad is no text");
  EXPECT_THAT(TextsOf(good.get()), ElementsAre("good"));
}

TEST_F(TextsTest, WrongTextsAndOffsetsFailTheRequest) {
  ASSERT_TRUE(Load("from chairlift import Ragged\n"
                   "def predict(text: list[str]) -> tuple[list[str], Ragged]:\n"
                   "  ends = eval(text[0])\n"
                   "  return text if ends[-1] < 3 else text * 2, "
                   "Ragged(np.zeros(2, 'float32'), np.array(ends))\n")
                  .ok());
  EXPECT_EQ(TextsOf(engine_->Infer(Texts({"[0, 2]"}))).size(), 1u);
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"[0, 3]"})).status()), HasSubstr("2 rows"));
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"[0, 1]"})).status()), HasSubstr("do not divide"));
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"[1, 2]"})).status()), HasSubstr("do not divide"));
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"[0, 1, 2]"})).status()), HasSubstr("2 rows"));
}

// Each row goes through the steps by itself, with others of all requests.
TEST_F(TextsTest, PipelinesTakeRowsOfDifferentLengths) {
  ASSERT_TRUE(Load("from chairlift import Ragged\n"
                   "from typing import Annotated\n"
                   "def predict(text: list[str]) -> Annotated[Ragged, np.float32, 'codes']:\n"
                   "  if 'fail' in text: raise ValueError('no')\n"
                   "  ends = np.cumsum([0] + [len(t) for t in text])\n"
                   "  return Ragged(np.array([ord(c) for c in ''.join(text)], 'float32'), ends)\n")
                  .ok());
  WriteFile(folder_ / "sum/1/sum.py",
            "import numpy as np\n"
            "from chairlift import Ragged\n"
            "def predict(codes: Ragged) -> np.ndarray:\n"
            "  parts = np.split(codes.values, codes.offsets[1:-1])\n"
            "  return np.array([[p.sum(), len(codes.offsets) - 1] for p in parts], 'float32')\n");
  WriteFile(folder_ / "sum/model.yaml", "python: sum.py:predict\nqueue_delay_us: 20000\n");
  WriteFile(folder_ / "both/model.yaml", "steps: [{model: my}, {model: sum}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("both").ok());
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.emplace_back(static_cast<size_t>(i % 17), 'a');
  const auto response = engine_->Infer(Texts(texts, "both"));
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->outputs[0].tensor.shape(), (Shape{200, 2}));
  float most = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const float* const row = response->outputs[0].tensor.data<float>() + 2 * i;
    EXPECT_EQ(row[0], 97.0F * static_cast<float>(texts[i].size()));
    most = std::max(most, row[1]);
  }
  EXPECT_GT(most, 1);  // rows shared batches
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"a", "fail", "b"}, "both")).status()),
              HasSubstr("row 1: step 1 (my): ValueError: no"));
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({}, "both")).status()), HasSubstr("0 rows"));
  // What goes out must be one tensor.
  WriteFile(folder_ / "codes/model.yaml", "steps: [{model: my}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("codes").ok());
  EXPECT_EQ(engine_->Infer(Texts({"abc"}, "codes"))->outputs[0].tensor.shape(), (Shape{1, 3}));
  EXPECT_THAT(MessageOf(engine_->Infer(Texts({"a", "b"}, "codes")).status()),
              HasSubstr("requests of one row each"));
}

TEST_F(TextsTest, ARequestThatLeavesTakesItsRowsAlong) {
  const std::string gate = (folder_ / "gate").string();
  ASSERT_TRUE(
      Load("import os, time\n"
           "from chairlift import Ragged\n"
           "def predict(text: list[str]) -> Ragged:\n"
           "  while not os.path.exists('" +
               gate +
               "'): time.sleep(0.001)\n"
               "  return Ragged(np.zeros(len(text), 'float32'), np.arange(len(text) + 1))\n",
           "max_batch_size: 1\n")
          .ok());
  WriteFile(folder_ / "sum/1/sum.py",
            "import numpy as np\ndef predict(output): return output.sum(1, keepdims=True)\n");
  WriteFile(folder_ / "sum/model.yaml", "python: sum.py:predict\n");
  WriteFile(folder_ / "both/model.yaml", "steps: [{model: my}, {model: sum}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("both").ok());
  InferRequest request = Texts(std::vector<std::string>(1000, "x"), "both");
  request.timeout = std::chrono::milliseconds(50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(engine_->Infer(request).status()));
  EXPECT_TRUE(Soon([&] { return (*engine_->Statistics("my"))[0].waiting == 0; }));
  WriteFile(gate, "");
  EXPECT_TRUE(Soon([&] { return (*engine_->Statistics("my"))[0].running == 0; }));
  EXPECT_LT((*engine_->Statistics("my"))[0].inference_count, 10u);  // those that had begun
}

// Whatever a text costs here: the bound is some of it, and far below what a long request brings.
// Each text's answer is the number of the batch that it was in.
TEST_F(TextsTest, ARequestOfManyTextsNeitherKeepsOthersOutNorDelaysThem) {
  const std::string gate = (folder_ / "gate").string();
  ASSERT_TRUE(Load("import os, time\n"
                   "from chairlift import Ragged\n"
                   "batches = 0\n"
                   "def predict(text: list[str]) -> Ragged:\n"
                   "  global batches\n"
                   "  batches += 1\n"
                   "  while batches > 3 and not os.path.exists('" +
                       gate +
                       "'): time.sleep(0.001)\n"
                       "  ones = np.full(len(text), batches, 'float32')\n"
                       "  return Ragged(ones, np.arange(len(text) + 1))\n",
                   "max_batch_size: 4\n")
                  .ok());
  WriteFile(folder_ / "sum/1/sum.py",
            "import numpy as np\ndef predict(output): return output.sum(1, keepdims=True)\n");
  WriteFile(folder_ / "sum/model.yaml", "python: sum.py:predict\n");
  WriteFile(folder_ / "both/model.yaml", "steps: [{model: my}, {model: sum}]\n");
  ASSERT_TRUE(engine_->LoadFromRepository("both").ok());
  // Batches 1 to 3: what a request to each step costs is known with the second one.
  ASSERT_TRUE(engine_->Infer(Texts({"a", "b", "c", "d"})).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(engine_->Infer(Texts({"a"}, "both")).ok());
  uint64_t batch_ns = 0;
  for (const char* step : {"my", "sum"}) {
    const ModelStatistics learnt = (*engine_->Statistics(step))[0];
    batch_ns += learnt.compute_input.ns + learnt.compute_infer.ns + learnt.compute_output.ns;
  }
  const uint64_t limit_us = 20 * batch_ns / 1000 + 1;
  WriteFile(folder_ / "both/model.yaml", "steps: [{model: my}, {model: sum}]\nmax_queue_wait_us: " +
                                             std::to_string(limit_us) + "\n");
  ASSERT_TRUE(engine_->LoadFromRepository("both").ok());
  const auto texts_of = [&](int64_t rows, uint64_t group) {
    InferRequest request = Texts(std::vector<std::string>(static_cast<size_t>(rows), "x"), "both");
    request.caller = {.group = group, .member = 0};
    return request;
  };
  // 500 batches: several times the bound, which is that of some 100 where both steps cost the same.
  Answer large = Submit(texts_of(2000, 1));
  ASSERT_TRUE(Soon([&] { return (*engine_->Statistics("my"))[0].running > 0; }));
  std::vector<Answer> others;
  for (int i = 0; i < 5; ++i) {
    others.push_back(Submit(texts_of(1, 2)));
    // A refusal comes at once.
    ASSERT_EQ(others.back().wait_for(std::chrono::seconds(0)), std::future_status::timeout)
        << others.back().get().status();
  }
  WriteFile(gate, "");
  for (Answer& other : others) {
    const std::vector<float> batch = Values(other.get());
    ASSERT_EQ(batch.size(), 1u);
    EXPECT_LT(batch[0], 250) << "of 500 batches: it does not wait for all that came before";
  }
  EXPECT_EQ(Values(large.get()).size(), 2000u);
}

}  // namespace
}  // namespace chairlift
