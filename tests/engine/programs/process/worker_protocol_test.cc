// The server's side of what it and a worker say to each other, against a simple model of it.
#include "engine/programs/process/worker_protocol.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "base/status.h"
#include "chairlift/text.h"
#include "engine/programs/process/function_config.h"
#include "engine/programs/process/restart_policy.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

SymbolicSpec Spec(const char* name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, SymbolicShape(std::move(dims))};
}

WorkerReady TwoOutputs() {
  return {
      .inputs = {{"x", DType::kFloat, SymbolicShape()}},
      .outputs = {Spec("y", DType::kFloat, {Dim(), Dim(4)}), {"z", DType::kInt64, SymbolicShape()}},
      .ragged_inputs = {false},
      .ragged_outputs = {false, false},
      .own_offsets = {false, false}};
}

WorkerResult ResultOf(uint64_t sequence, int64_t rows) {
  WorkerResult result;
  result.sequence = sequence;
  result.outputs.resize(2);
  result.outputs[0].dtype = DType::kFloat;
  for (const int64_t dim : {rows, int64_t{4}}) result.outputs[0].shape.Append(dim);
  result.outputs[1].dtype = DType::kInt64;
  result.outputs[1].shape.Append(rows);
  result.outputs[1].offset = 1024;
  return result;
}

TEST(WorkerMessages, ComeBackAsTheyWere) {
  const WorkerResult result = ResultOf(7, 3);
  const auto parsed = ParseWorkerMessage(Bytes(Encode(WorkerMessage(result))));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(std::get<WorkerResult>(*parsed).sequence, 7u);
  EXPECT_EQ(std::get<WorkerResult>(*parsed).outputs, result.outputs);
  const auto ready = ParseWorkerMessage(Bytes(Encode(WorkerMessage(TwoOutputs()))));
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(std::get<WorkerReady>(*ready).outputs[0].shape.ToString(), "[?,4]");
  EXPECT_FALSE(std::get<WorkerReady>(*ready).outputs[1].shape.has_rank());
}

// Bytes changed, cut off and added: refused, or a message within its bounds.
TEST(WorkerMessages, AnyBytesAreParsedOrRefused) {
  std::mt19937 random(5);
  const std::vector<std::string> good = {Encode(WorkerMessage(TwoOutputs())),
                                         Encode(WorkerMessage(ResultOf(1, 2))),
                                         Encode(WorkerMessage(WorkerNeedsRoom{1, 100})),
                                         Encode(WorkerMessage(WorkerFailed{1, "why"}))};
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good[random() % good.size()];
    for (unsigned changes = random() % 4; changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) text.resize(random() % (text.size() + 8));
    const auto message = ParseWorkerMessage(Bytes(text));
    if (!message.ok()) continue;
    ++parsed;
    if (const auto* result = std::get_if<WorkerResult>(&*message)) {
      ASSERT_LE(result->outputs.size(), 2 * kMaxMessageTensors);
      for (const PlacedTensor& output : result->outputs) {
        ASSERT_LE(output.shape.rank(), kMaxMessageRank);
      }
    }
  }
  EXPECT_GT(parsed, 1000);
  EXPECT_FALSE(ParseWorkerMessage(Bytes(std::string(kMaxMessageBytes + 1, 'x'))).ok());
}

TEST(WorkerProtocol, ASignatureMustTellTensorsApartAndHaveRows) {
  const auto after = [](WorkerReady ready) {
    WorkerProtocol protocol;
    const auto heard = protocol.Receive(Bytes(Encode(WorkerMessage(std::move(ready)))));
    return std::string(heard.status().message());
  };
  EXPECT_EQ(after(TwoOutputs()), "");
  WorkerReady ready = TwoOutputs();
  ready.outputs[1].name = "y";
  EXPECT_THAT(after(ready), HasSubstr("used twice"));
  ready = TwoOutputs();
  ready.ragged_outputs[1] = true;
  EXPECT_THAT(after(ready), HasSubstr("ragged input"));
  ready.ragged_inputs[0] = true;
  EXPECT_EQ(after(ready), "");
  ready = TwoOutputs();
  ready.inputs.clear();
  EXPECT_THAT(after(ready), HasSubstr("the function has no inputs"));
  ready = TwoOutputs();
  ready.outputs[0].shape = SymbolicShape(Shape{2, 4});
  EXPECT_THAT(after(ready), HasSubstr("must be the rows"));
  ready.outputs[0].shape = SymbolicShape::Scalar();
  EXPECT_THAT(after(ready), HasSubstr("must be the rows"));
}

// Texts and rows of lengths of their own come with their offsets, behind the outputs.
TEST(WorkerProtocol, OwnLengthsNeedOffsetsOfEachRow) {
  WorkerReady ready = TwoOutputs();
  ready.outputs[1] = Spec("z", DType::kBytes, {Dim()});
  const auto heard = [](WorkerProtocol& protocol, WorkerMessage message) {
    return std::string(protocol.Receive(Bytes(Encode(message))).status().message());
  };
  {
    WorkerProtocol protocol;
    EXPECT_THAT(heard(protocol, ready), HasSubstr("without offsets"));
  }
  ready.own_offsets = {false, true};
  {
    WorkerReady wrong = ready;
    wrong.outputs[1] = Spec("z", DType::kBytes, {Dim(), Dim()});
    WorkerProtocol protocol;
    EXPECT_THAT(heard(protocol, wrong), HasSubstr("one dimension"));
  }
  WorkerResult good = ResultOf(1, 2);
  good.outputs[1] = {DType::kUInt8, Shape{11}, 1024};
  good.outputs.push_back({DType::kInt64, Shape{3}, 2048});
  const auto after = [&](const WorkerResult& result) {
    WorkerProtocol protocol;
    EXPECT_EQ(heard(protocol, ready), "");
    protocol.Begin({1, 2, 0, 4096});
    return heard(protocol, result);
  };
  EXPECT_EQ(after(good), "");
  WorkerResult bad = good;
  bad.outputs.pop_back();
  EXPECT_THAT(after(bad), HasSubstr("the function has 3"));
  bad = good;
  bad.outputs[2].shape = Shape{2};
  EXPECT_THAT(after(bad), HasSubstr("'offsets'"));
  bad = good;
  bad.outputs[1].dtype = DType::kBytes;
  EXPECT_THAT(after(bad), HasSubstr("must be uint8"));
  bad = good;
  bad.outputs[1].offset = 4090;
  EXPECT_THAT(after(bad), HasSubstr("does not lie"));
}

// Whatever a worker says, in whatever order: accepted exactly where this model of it does.
TEST(WorkerProtocol, AgreesWithASimpleModel) {
  struct InFlight {
    uint64_t sequence;
    int64_t rows;
    uint64_t room;
    bool asked = false;
    bool waits = false;
  };
  std::mt19937 random(17);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int accepted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    WorkerProtocol protocol;
    std::deque<InFlight> model;
    WorkerReady signature = TwoOutputs();
    const bool ragged = below(2) == 0;  // z is of tokens, twice the rows and one
    signature.ragged_inputs[0] = signature.ragged_outputs[1] = ragged;
    bool ready = false, closed = false;
    uint64_t next = 1;
    for (int step = 0; step < 30; ++step) {
      const int what = below(10);
      if (what < 3) {
        if (!ready || closed) continue;
        model.push_back({next, below(4), static_cast<uint64_t>(below(3)) * 1024 + 64});
        protocol.Begin({next++, model.back().rows, 2 * model.back().rows + 1, model.back().room});
        continue;
      }
      if (what == 3) {
        if (model.empty() || !model[0].waits) continue;
        const uint64_t room = below(2) == 0 ? 0 : model[0].room + 4096;
        protocol.Grant(room);
        model[0].waits = false;
        if (room > 0) model[0].room = room;
        continue;
      }
      const uint64_t sequence =
          model.empty() || below(5) == 0 ? static_cast<uint64_t>(below(5)) : model[0].sequence;
      const bool turn =
          !closed && !model.empty() && model[0].sequence == sequence && !model[0].waits;
      WorkerMessage message;
      bool expected = false;
      if (what == 4 && below(3) == 0) {
        message = WorkerLoadFailed{"no"};
        expected = !ready && !closed;
        closed |= expected;
      } else if (what <= 5) {
        message = signature;
        expected = !ready && !closed;
        ready |= expected;
      } else if (what == 6) {
        const uint64_t bytes = static_cast<uint64_t>(below(5000));
        message = WorkerNeedsRoom{sequence, bytes};
        expected = turn && !model[0].asked && bytes > model[0].room;
        if (expected) model[0].asked = model[0].waits = true;
      } else if (what == 7) {
        message = WorkerFailed{sequence, "why"};
        expected = turn;
        if (expected) model.pop_front();
      } else {
        WorkerResult result = ResultOf(sequence, model.empty() ? 1 : model[0].rows);
        if (ragged) result.outputs[1].shape[0] = 2 * result.outputs[1].shape[0] + 1;
        const int wrong = below(12);
        bool sound = true;
        if (wrong == 0) result.outputs.pop_back(), sound = false;
        if (wrong == 1) result.outputs[0].shape[0] += 1, sound = false;
        if (wrong == 2) result.outputs[0].dtype = DType::kInt32, sound = false;
        if (wrong == 3) result.outputs[0].shape[1] = 5, sound = false;
        if (wrong == 4) result.outputs[1].offset = 1028, sound = false;  // not of whole elements
        if (wrong == 5) result.outputs[1].shape.Append(int64_t{1} << 61), sound = false;
        if (wrong == 6) result.outputs[1].offset = ~uint64_t{7}, sound = false;
        if (wrong == 7) result.outputs[1].shape.Append(-1), sound = false;
        if (wrong == 8) result.outputs[1].shape.Erase(0), sound = false;
        message = result;
        if (turn && sound) {
          const uint64_t end0 = 16 * static_cast<uint64_t>(model[0].rows);
          const uint64_t end1 = 1024 + 8 * static_cast<uint64_t>(result.outputs[1].shape[0]);
          sound = end0 <= model[0].room && end1 <= model[0].room;
        }
        expected = turn && sound;
        if (expected) model.pop_front();
      }
      const auto heard = protocol.Receive(Bytes(Encode(message)));
      ASSERT_EQ(heard.ok(), expected) << round << " " << step << " " << what << heard.status();
      ++(expected ? accepted : refused);
      ASSERT_EQ(protocol.ready(), ready);
      ASSERT_EQ(protocol.in_flight().size(), model.size());
    }
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(refused, 3000);
}

TEST(RestartPolicy, BacksOffUntilABatchIsComputed) {
  using std::chrono::milliseconds;
  for (const int workers : {1, 3}) {
    RestartPolicy policy(workers);
    for (int i = 0; i < workers; ++i) {
      EXPECT_EQ(policy.Died(), Duration(0));
      EXPECT_FALSE(policy.looping());
    }
    for (const int expected : {100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000}) {
      EXPECT_EQ(policy.Died(), milliseconds(expected));
      EXPECT_TRUE(policy.looping());
    }
    policy.Computed();
    EXPECT_FALSE(policy.looping());
    EXPECT_EQ(policy.Died(), Duration(0));
  }
}

TEST(FunctionConfig, NamesAFunctionOfAFile) {
  const auto config = ParseFunction("/a:b/my.py:Model.predict");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->file, "/a:b/my.py");
  EXPECT_EQ(config->function, "Model.predict");
  for (const char* none : {"my.py", "my.py:", ".py:f", "model.onnx", "my.py:a/b"}) {
    EXPECT_FALSE(ParseFunction(none)) << none;
  }
}

TEST(FunctionConfig, ReadsItsSettingsAndRefusesOthers) {
  const auto read = [](const std::string& text) -> StatusOr<std::optional<FunctionConfig>> {
    CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(text));
    return ReadFunctionConfig(settings);
  };
  const auto config =
      read("python: my.py:f\nworkers: 3\nretry_alone: false\nbatch_timeout_us: 5000");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ((*config)->workers, 3);
  EXPECT_FALSE((*config)->retry_alone);
  EXPECT_EQ((*config)->batch_timeout_us, 5000);
  ASSERT_TRUE(read("policy: window").ok());
  EXPECT_FALSE((*read("policy: window")).has_value());
  for (const char* bad : {"workers: 2", "python: my.py", "python: ../my.py:f",
                          "python: my.py:f\nworkers: 0", "python: my.py:f\nretry_alone: maybe",
                          "python: [1]", "python: my.py:f\nseparate_hooks: [predict]",
                          "python: my.py:f\nseparate_hooks: preprocess"}) {
    EXPECT_FALSE(read(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace chairlift
