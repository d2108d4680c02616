// Parts of answers: told as their cells have run, in order, and together equal to the answer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "chairlift/engine.h"
#include "engine/cell_models.h"
#include "engine/recurrent_models.h"
#include "engine/requests/answer_parts.h"
#include "engine/requests/reply.h"

namespace chairlift {
namespace {

using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

using Inputs = std::vector<NamedTensor>;

int64_t Draw(std::mt19937& random, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}

Tensor RandomFloats(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

Tensor Ints(const Shape& shape, int64_t first, int64_t last, std::mt19937& random) {
  Tensor t = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<int64_t>()[i] = Draw(random, first, last);
  return t;
}

// The entry of an answer at one row and time step, an element at a time.
std::vector<std::byte> Entry(const Tensor& answer, const AnswerAxes& axes, int64_t row,
                             int64_t step) {
  const size_t bytes = DTypeSize(answer.dtype());
  std::vector<std::byte> entry;
  for (int64_t i = 0; i < answer.size(); ++i) {
    int64_t rest = i;
    std::vector<int64_t> at(static_cast<size_t>(answer.shape().rank()));
    for (int axis = answer.shape().rank() - 1; axis >= 0; --axis) {
      at[axis] = rest % answer.shape()[axis];
      rest /= answer.shape()[axis];
    }
    if (at[axes.batch] != row || at[axes.time] != step) continue;
    const auto* element = static_cast<const std::byte*>(answer.raw()) + i * bytes;
    entry.insert(entry.end(), element, element + bytes);
  }
  return entry;
}

TEST(AnswerPartsTest, EntriesAreThoseOfTheAnswerWhereverItsAxesAre) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    Shape shape;
    const auto rank = static_cast<int>(Draw(random, 2, 5));
    for (int axis = 0; axis < rank; ++axis) shape.Append(Draw(random, 1, 4));
    AnswerAxes axes;
    axes.batch = static_cast<int>(Draw(random, 0, rank - 1));
    axes.time = static_cast<int>((axes.batch + Draw(random, 1, rank - 1)) % rank);
    const Tensor answer = RandomFloats(shape, random);
    AnswerPart part{.row = Draw(random, 0, shape[axes.batch] - 1)};
    part.first = Draw(random, 0, shape[axes.time] - 1);
    part.count = Draw(random, 1, shape[axes.time] - part.first);
    const Tensor entries = ReadyPart{part, answer, axes}.Entries();
    ASSERT_EQ(entries.shape()[0], part.count);
    const auto* got = static_cast<const std::byte*>(entries.raw());
    for (int64_t step = 0; step < part.count; ++step) {
      const auto want = Entry(answer, axes, part.row, part.first + step);
      ASSERT_EQ(std::memcmp(got, want.data(), want.size()), 0) << shape.ToString();
      got += want.size();
    }
  }
}

TEST(AnswerPartsTest, WhatIsBehindAGapWaits) {
  const Tensor answer = Tensor::Allocate(DType::kFloat, {2, 5});
  const AnswerAxes axes{.batch = 0, .time = 1};
  AnswerParts parts({true, false});
  EXPECT_FALSE(parts.wants(1));
  EXPECT_FALSE(parts.wants(2));
  parts.Complete({.row = 1, .first = 3, .count = 2}, answer, axes);
  parts.Complete({.row = 1, .first = 1}, answer, axes);
  EXPECT_TRUE(parts.Take().empty());
  parts.Complete({.row = 0, .first = 0}, answer, axes);
  parts.Complete({.row = 1, .first = 0}, answer, axes);
  std::vector<ReadyPart> ready = parts.Take();
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready[0].part.row, 0);
  EXPECT_EQ(ready[1].part.row, 1);
  EXPECT_EQ(ready[1].part.first, 0);
  EXPECT_EQ(ready[1].part.count, 2);
  parts.Complete({.row = 1, .first = 2}, answer, axes);
  ready = parts.Take();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].part.first, 2);
  EXPECT_EQ(ready[0].part.count, 3);
  EXPECT_TRUE(parts.Take().empty());
}

TEST(AnswerPartsTest, OutputsOfAStepAreTogetherWhereNoneOvertakesItself) {
  const std::vector<std::string> names = {"state", "logits"};
  const auto part = [](int output, int64_t first, int64_t count) {
    const Tensor entries = Tensor::Allocate(DType::kFloat, {count, 1});
    return ReadyPart{{.output = output, .first = first, .count = count}, entries, {}};
  };
  // Logits of step 1 may not go to the state of step 1: those of step 0 come only after it.
  const std::vector<ReadyPart> ready = {part(0, 1, 1), part(1, 0, 1), part(1, 1, 1), part(0, 2, 1),
                                        part(1, 2, 1)};
  std::vector<std::string> told;
  for (const InferPart& group : Grouped(ready, names)) {
    std::string text = std::to_string(group.first) + ":";
    for (const NamedTensor& output : group.outputs) text += " " + output.name;
    told.push_back(text);
  }
  EXPECT_EQ(told,
            (std::vector<std::string>{"1: state", "0: logits", "1: logits", "2: state logits"}));
}

// What a client hears of one request, and in which order.
class Listener {
 public:
  struct Told {
    std::vector<std::byte> bytes;
    int64_t steps = 0;
    int parts = 0;
  };

  PartsCallback on_parts() {
    return [this](std::span<const InferPart> parts) {
      EXPECT_FALSE(ended_.load());
      EXPECT_FALSE(inside_.exchange(true)) << "one call at a time";
      EXPECT_FALSE(parts.empty());
      for (const InferPart& part : parts) {
        EXPECT_FALSE(part.outputs.empty());
        for (const NamedTensor& output : part.outputs) Append(part, output);
      }
      inside_ = false;
    };
  }
  InferCallback on_answer() {
    return [this](StatusOr<InferResponse> answer) {
      EXPECT_FALSE(inside_.load());
      ended_ = true;
      answer_.set_value(std::move(answer));
    };
  }
  StatusOr<InferResponse> Await() { return answer_.get_future().get(); }
  // By output and row; once the answer is there.
  const std::map<std::pair<std::string, int64_t>, Told>& told() const { return told_; }

 private:
  void Append(const InferPart& part, const NamedTensor& output) {
    Told& told = told_[{output.name, part.row}];
    EXPECT_EQ(part.first, told.steps) << output.name;
    const auto* bytes = static_cast<const std::byte*>(output.tensor.raw());
    told.bytes.insert(told.bytes.end(), bytes, bytes + output.tensor.byte_size());
    told.steps += output.tensor.shape()[0];
    ++told.parts;
  }

  std::map<std::pair<std::string, int64_t>, Told> told_;
  std::atomic<bool> inside_{false};
  std::atomic<bool> ended_{false};
  std::promise<StatusOr<InferResponse>> answer_;
};

using Axes = std::map<std::string, AnswerAxes>;
// How many steps of a row an answer has: the others are padding.
using Steps = std::function<int64_t(const Inputs&, const InferResponse&, int64_t row)>;

int64_t AllSteps(const Inputs& /*inputs*/, const InferResponse& /*answer*/, int64_t /*row*/) {
  return -1;
}

class PartsTest : public ::testing::Test {
 protected:
  void LoadFile(const ModelBuilder& model, int workers = 2) {
    MakeEngine(workers);
    const std::string file = WriteFile(folder_ / "model.onnx", model.Bytes());
    const Status loaded = engine_->LoadModel("m", file, {.max_batch_size = 7});
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  void LoadCells(const std::map<std::string, std::string>& cells, const std::string& yaml,
                 int workers = 2) {
    MakeEngine(workers);
    for (const auto& [name, cell] : cells) {
      WriteFile(folder_ / ("m/1/" + name + ".onnx"), cell);
    }
    WriteFile(folder_ / "m/model.yaml", yaml);
    ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok());
    const Status loaded = engine_->LoadFromRepository("m");
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  void MakeEngine(int workers) {
    EngineOptions options;
    options.workers = workers;
    auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // Many requests at once, some of them cancelled: the parts together equal each answer.
  void Check(const std::function<Inputs(std::mt19937&)>& make, const Axes& axes,
             const Steps& steps) {
    std::mt19937 random(5);
    std::vector<Inputs> asked;
    std::vector<std::unique_ptr<Listener>> listeners;
    for (int i = 0; i < 40; ++i) {
      asked.push_back(make(random));
      listeners.push_back(std::make_unique<Listener>());
      const RequestId id = engine_->InferAsync(
          {.model = "m", .inputs = asked.back(), .on_parts = listeners.back()->on_parts()},
          listeners.back()->on_answer());
      if (i % 5 == 3) engine_->Cancel(id);
    }
    int answered = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const StatusOr<InferResponse> answer = listeners[i]->Await();
      if (!answer.ok()) {
        EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
        continue;
      }
      ++answered;
      CheckTold(asked[i], *answer, axes, steps, *listeners[i]);
    }
    EXPECT_GE(answered, 32);
  }

  void CheckTold(const Inputs& asked, const InferResponse& answer, const Axes& axes,
                 const Steps& steps, const Listener& listener) {
    size_t expected = 0;
    for (const NamedTensor& output : answer.outputs) {
      const auto at = axes.find(output.name);
      if (at == axes.end()) continue;
      const Shape& shape = output.tensor.shape();
      for (int64_t row = 0; row < shape[at->second.batch]; ++row) {
        const int64_t own = steps(asked, answer, row);
        const int64_t count = own < 0 ? shape[at->second.time] : own;
        if (count == 0) continue;
        ++expected;
        const auto told = listener.told().find({output.name, row});
        ASSERT_NE(told, listener.told().end()) << output.name << " row " << row;
        ASSERT_EQ(told->second.steps, count) << output.name << " row " << row;
        std::vector<std::byte> whole;
        for (int64_t step = 0; step < count; ++step) {
          const auto entry = Entry(output.tensor, at->second, row, step);
          whole.insert(whole.end(), entry.begin(), entry.end());
        }
        ASSERT_EQ(told->second.bytes, whole) << output.name << " row " << row;
      }
    }
    EXPECT_EQ(listener.told().size(), expected);
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

constexpr char kChain[] = R"(
cells: {step: {}, classes: {}}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    lengths: lengths
    states: [{input: h, output: h_next}, {input: c, output: c_next}]
    outputs:
      - {name: states, output: h_next, at: every_step}
      - {name: memory, output: c_next}
    head:
      cell: classes
      at: every_step
      inputs: {state: h_next}
      outputs: [{output: logits}]
)";

constexpr char kSeq2Seq[] = R"(
cells: {encoder: {}, decoder: {}}
)" CHAIRLIFT_SEQ2SEQ_YAML R"(    go: 0
    eos: EOS
    extra_length: 3
)";

std::string Seq2Seq(int64_t eos) {
  std::string yaml = kSeq2Seq;
  yaml.replace(yaml.find("EOS"), 3, std::to_string(eos));
  return yaml;
}

TEST_F(PartsTest, OfAChainAreItsStepsAndItsHeads) {
  LoadCells({{"step", testing::EncoderCell().Bytes()}, {"classes", testing::ClassesCell().Bytes()}},
            kChain);
  const auto make = [](std::mt19937& random) {
    const int64_t batch = Draw(random, 1, 3), longest = Draw(random, 1, 20);
    return Inputs{{"tokens", Ints({batch, longest}, 0, testing::kVocabulary - 1, random)},
                  {"lengths", Ints({batch}, 1, longest, random)}};
  };
  const AnswerAxes axes{.batch = 0, .time = 1};
  Check(make, {{"states", axes}, {"logits", axes}},
        [](const Inputs& inputs, const InferResponse& /*answer*/, int64_t row) {
          return inputs[1].tensor.data<int64_t>()[row];
        });
}

TEST_F(PartsTest, OfATranslatorAreItsTokens) {
  LoadCells(
      {{"encoder", testing::EncoderCell().Bytes()}, {"decoder", testing::DecoderCell().Bytes()}},
      Seq2Seq(4));
  const auto make = [](std::mt19937& random) {
    const Shape shape{Draw(random, 1, 3), Draw(random, 1, 15)};
    return Inputs{{"source", Ints(shape, 0, testing::kVocabulary - 1, random)}};
  };
  Check(make, {{"tokens", {.batch = 0, .time = 1}}},
        [](const Inputs& /*inputs*/, const InferResponse& answer, int64_t row) {
          return answer.outputs[1].tensor.data<int64_t>()[row];
        });
}

TEST_F(PartsTest, OfASlicedModelComeInOrderWhateverTheDirection) {
  LoadFile(testing::Tagger());
  const auto make = [](std::mt19937& random) {
    const Shape shape{Draw(random, 1, 3), Draw(random, 1, 40), testing::kRecurrentFeatures};
    return Inputs{{"x", RandomFloats(shape, random)}};
  };
  Check(make, {{"y", {.batch = 0, .time = 1}}}, AllSteps);
}

TEST_F(PartsTest, OfASlicedModelWithTimeAhead) {
  LoadFile(testing::MeanOverTime());
  const auto make = [](std::mt19937& random) {
    const int64_t lanes = Draw(random, 1, 3);
    return Inputs{
        {"x", RandomFloats({Draw(random, 1, 20), lanes, testing::kRecurrentFeatures}, random)},
        {"h0", RandomFloats({1, lanes, 9}, random)}};
  };
  // [time, directions, batch, …]
  Check(make, {{"all", {.batch = 2, .time = 0}}}, AllSteps);
}

TEST_F(PartsTest, ComeOneByOneWhileTheRequestRuns) {
  LoadCells({{"step", testing::EncoderCell().Bytes()}, {"classes", testing::ClassesCell().Bytes()}},
            kChain, 1);
  std::mt19937 random(1);
  Listener listener;
  engine_->InferAsync(
      {.model = "m",
       .inputs = {{"tokens", Ints({1, 12}, 0, 8, random)}, {"lengths", Ints({1}, 12, 12, random)}},
       .outputs = {"states", "memory"},
       .on_parts = listener.on_parts()},
      listener.on_answer());
  ASSERT_TRUE(listener.Await().ok());
  ASSERT_EQ(listener.told().size(), 1u);  // not the logits, which the request did not ask for
  EXPECT_EQ(listener.told().begin()->first.first, "states");
  EXPECT_EQ(listener.told().begin()->second.parts, 12);
}

TEST_F(PartsTest, ARequestCancelledOnItsWayLeavesAtTheNextCell) {
  LoadCells(
      {{"encoder", testing::EncoderCell().Bytes()}, {"decoder", testing::DecoderCell().Bytes()}},
      Seq2Seq(1000), 1);  // no token ends it
  std::mt19937 random(1);
  std::promise<RequestId> id;
  std::shared_future<RequestId> known = id.get_future().share();
  std::promise<Status> ended;
  int heard = 0;
  id.set_value(engine_->InferAsync(
      {.model = "m",
       .inputs = {{"source", Ints({1, 200}, 0, 8, random)}},
       .on_parts =
           [&](std::span<const InferPart> parts) {
             heard += static_cast<int>(parts.size());
             if (heard == 3) engine_->Cancel(known.get());
           }},
      [&](const StatusOr<InferResponse>& answer) { ended.set_value(answer.status()); }));
  EXPECT_TRUE(absl::IsCancelled(ended.get_future().get()));
  EXPECT_EQ(heard, 3);
}

TEST_F(PartsTest, OfASequenceDoNotTellItsState) {
  ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"time", "batch", testing::kRecurrentFeatures})
      .Input("before", testing::kFloat, {"time", 1, "batch", 9})
      .Output("all", testing::kFloat)
      .Output("sum", testing::kFloat);
  testing::RecurrentWeights(m, "a", 1, 1, testing::kRecurrentFeatures, 9, 1);
  m.Node("RNN", {"x", "aw", "ar", "ab"}, {"all", ""}).Int("hidden_size", 9);
  m.Node("Add", {"all", "before"}, {"sum"});
  MakeEngine(2);
  const std::string file = WriteFile(folder_ / "model.onnx", m.Bytes());
  const Status loaded = engine_->LoadModel("m", file, {.sequence_state = {{"sum", "before"}}});
  ASSERT_TRUE(loaded.ok()) << loaded;
  std::mt19937 random(1);
  const auto outputs_told = [&](std::vector<std::string> wanted) {
    Listener listener;
    engine_->InferAsync(
        {.model = "m",
         .inputs = {{"x", RandomFloats({5, 1, testing::kRecurrentFeatures}, random)}},
         .outputs = std::move(wanted),
         .sequence = "s",
         .sequence_start = true,
         .on_parts = listener.on_parts()},
        listener.on_answer());
    const StatusOr<InferResponse> answer = listener.Await();
    EXPECT_TRUE(answer.ok()) << answer.status();
    std::set<std::string> names;
    for (const auto& [place, told] : listener.told()) names.insert(place.first);
    return names;
  };
  EXPECT_EQ(outputs_told({}), std::set<std::string>({"all"}));
  EXPECT_EQ(outputs_told({"sum"}), std::set<std::string>({"sum"}));
}

TEST_F(PartsTest, AModelThatRunsWholeHasNone) {
  LoadFile(testing::MlpModel());
  std::mt19937 random(1);
  Listener listener;
  const StatusOr<ModelMetadata> model = engine_->Metadata("m");
  ASSERT_TRUE(model.ok());
  Shape shape;
  for (int64_t dim : model->inputs[0].shape) shape.Append(dim < 0 ? 2 : dim);
  engine_->InferAsync({.model = "m",
                       .inputs = {{model->inputs[0].name, RandomFloats(shape, random)}},
                       .on_parts = listener.on_parts()},
                      listener.on_answer());
  const StatusOr<InferResponse> answer = listener.Await();
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(listener.told().empty());
}

}  // namespace
}  // namespace chairlift
