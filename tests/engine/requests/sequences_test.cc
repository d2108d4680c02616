// State that stays with the engine between the chunks of a sequence.
#include "engine/requests/sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "engine/recurrent_models.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

// y = x + s, and s' = y: the sum of all chunks so far.
ModelBuilder Accumulator() {
  ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 2}).Input("s", testing::kFloat, {"batch", 2});
  m.Output("y", testing::kFloat, {"batch", 2}).Output("s_next", testing::kFloat, {"batch", 2});
  m.Node("Add", {"x", "s"}, {"y"});
  m.Node("Identity", {"y"}, {"s_next"});
  return m;
}

class SequencesTest : public ::testing::Test {
 protected:
  Status Load(const ModelBuilder& model, const ModelConfig& config, int workers = 2) {
    EngineOptions options;
    options.workers = workers;
    options.autotune = false;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    return engine_->LoadModel("model", WriteFile(folder_ / "m.onnx", model.Bytes()), config);
  }
  static ModelConfig Sums() { return {.sequence_state = {{"s_next", "s"}}}; }

  static InferRequest Chunk(const std::string& sequence, float value, bool start = false,
                            bool end = false) {
    InferRequest request;
    request.model = "model";
    request.inputs = {{"x", Tensor::Of<float>(Shape{1, 2}, {value, 2 * value})}};
    request.sequence = sequence;
    request.sequence_start = start;
    request.sequence_end = end;
    return request;
  }
  void ExpectSum(InferRequest request, float sum) {
    const auto answer = engine_->Infer(std::move(request));
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_EQ(answer->outputs.size(), 1);  // the state stays
    EXPECT_EQ(answer->outputs[0].name, "y");
    EXPECT_FLOAT_EQ(answer->outputs[0].tensor.data<float>()[0], sum);
    EXPECT_FLOAT_EQ(answer->outputs[0].tensor.data<float>()[1], 2 * sum);
  }
  void ExpectRefused(InferRequest request, const std::string& why) {
    const auto answer = engine_->Infer(std::move(request));
    EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(why));
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(SequencesTest, ARequestWithoutStateIsToldHowToGetIt) {
  ASSERT_TRUE(Load(Accumulator(), Sums()).ok());
  ExpectRefused(Chunk("", 1), "input 's' is missing: the server keeps it for requests with");
}

TEST_F(SequencesTest, GoesOnWhereTheLastChunkEnded) {
  ASSERT_TRUE(Load(Accumulator(), Sums()).ok());
  ExpectSum(Chunk("a", 1, true), 1);
  ExpectSum(Chunk("b", 10, true), 10);
  ExpectSum(Chunk("a", 2), 3);
  ExpectSum(Chunk("b", 20), 30);
  ExpectSum(Chunk("a", 3, false, true), 6);
  ExpectRefused(Chunk("a", 4), "sequence 'a' is not known");
  ExpectSum(Chunk("b", 5, true), 5);  // again
  ExpectSum(Chunk("a", 7, true, true), 7);
  ExpectRefused(Chunk("a", 4), "sequence_start");
}

TEST_F(SequencesTest, ChunksAreNotAnsweredFromTheResponseCache) {
  ModelConfig config = Sums();
  config.response_cache_bytes = 1 << 20;
  ASSERT_TRUE(Load(Accumulator(), config).ok());
  for (const char* sequence : {"a", "b"}) {
    ExpectSum(Chunk(sequence, 1, true), 1);
    ExpectSum(Chunk(sequence, 1, false, true), 2);
  }
  const ModelStatistics statistics = (*engine_->Statistics("model"))[0];
  EXPECT_EQ(statistics.execution_count, 4u);
  EXPECT_EQ(statistics.cache_hit.count + statistics.cache_miss.count, 0u);
}

TEST_F(SequencesTest, KeepsItsStateWhereAChunkFails) {
  ASSERT_TRUE(Load(Accumulator(), Sums()).ok());
  ExpectSum(Chunk("a", 1, true), 1);
  InferRequest wrong = Chunk("a", 1);
  wrong.inputs[0].tensor = Tensor::Of<float>(Shape{1, 3}, {1, 2, 3});
  ExpectRefused(std::move(wrong), "'x'");
  InferRequest own = Chunk("a", 1);
  own.inputs.push_back({"s", Tensor::Of<float>(Shape{1, 2}, {1, 2})});
  ExpectRefused(std::move(own), "the server keeps it");
  ExpectSum(Chunk("a", 1), 2);
}

TEST_F(SequencesTest, GivesTheStateToWhomAsksByName) {
  ASSERT_TRUE(Load(Accumulator(), Sums()).ok());
  InferRequest request = Chunk("a", 1, true);
  request.outputs = {"s_next"};
  const auto answer = engine_->Infer(std::move(request));
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->outputs.size(), 1);
  EXPECT_EQ(answer->outputs[0].name, "s_next");
  ExpectSum(Chunk("a", 2), 3);
}

TEST_F(SequencesTest, RefusesWhatTheModelDoesNotHave) {
  EXPECT_THAT(std::string(Load(Accumulator(), {.sequence_state = {{"t", "s"}}}).message()),
              HasSubstr("no output 't' (there are: 'y', 's_next')"));
  EXPECT_THAT(std::string(Load(Accumulator(), {.sequence_state = {{"y", "t"}}}).message()),
              HasSubstr("no input 't'"));
  EXPECT_THAT(
      std::string(Load(Accumulator(), {.sequence_state = {{"y", "s"}, {"s_next", "s"}}}).message()),
      HasSubstr("takes two outputs"));
  ASSERT_TRUE(Load(Accumulator(), {}).ok());
  ExpectRefused(Chunk("a", 1, true), "keeps no state");
}

TEST_F(SequencesTest, HoldsOnlySoMany) {
  ModelConfig config = Sums();
  config.max_sequences = 2;
  ASSERT_TRUE(Load(Accumulator(), config).ok());
  ExpectSum(Chunk("a", 1, true), 1);
  ExpectSum(Chunk("b", 1, true), 1);
  const auto refused = engine_->Infer(Chunk("c", 1, true));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  ExpectSum(Chunk("a", 1, false, true), 2);
  ExpectSum(Chunk("c", 1, true), 1);
}

// Chunks sent without waiting for answers run in order; sequences do not get in each other's way.
TEST_F(SequencesTest, ManyAtOnce) {
  ModelConfig config = Sums();
  config.queue_delay_us = 50;
  ASSERT_TRUE(Load(Accumulator(), config).ok());
  constexpr int kSequences = 40;
  constexpr int kChunks = 20;
  std::mutex mutex;
  std::condition_variable told;
  int answered = 0;
  for (int c = 0; c < kChunks; ++c) {
    for (int s = 0; s < kSequences; ++s) {
      const auto value = static_cast<float>(s + 1);
      engine_->InferAsync(Chunk(fmt::format("{}", s), value, c == 0, c == kChunks - 1),
                          [&, c, value](const StatusOr<InferResponse>& answer) {
                            const std::lock_guard<std::mutex> lock(mutex);
                            EXPECT_TRUE(answer.ok()) << answer.status();
                            if (answer.ok()) {
                              EXPECT_FLOAT_EQ(answer->outputs[0].tensor.data<float>()[0],
                                              value * static_cast<float>(c + 1));
                            }
                            ++answered;
                            told.notify_one();
                          });
    }
  }
  std::unique_lock<std::mutex> lock(mutex);
  told.wait(lock, [&] { return answered == kSequences * kChunks; });
}

// A chunked LSTM gives what the whole sequence gives, its state being an input of the model.
TEST_F(SequencesTest, ARecurrentModelInChunks) {
  ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"time", "batch", 6}).Input("h0", testing::kFloat, {1, "batch", 9});
  m.Output("y", testing::kFloat).Output("h", testing::kFloat, {1, "batch", 9});
  testing::RecurrentWeights(m, "a", 1, 1, 6, 9, 1);
  m.Node("RNN", {"x", "aw", "ar", "ab", "", "h0"}, {"y", "h"}).Int("hidden_size", 9);
  ASSERT_TRUE(Load(m, {.sequence_state = {{"h", "h0"}}}).ok());
  constexpr int64_t kSteps = 12;
  Tensor x = Tensor::Allocate(DType::kFloat, {kSteps, 1, 6});
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = normal(random);
  InferRequest whole;
  whole.model = "model";
  whole.inputs = {{"x", x}, {"h0", Tensor::Of<float>(Shape{1, 1, 9}, std::vector<float>(9, 0.0f))}};
  const auto want = engine_->Infer(whole);
  ASSERT_TRUE(want.ok()) << want.status();
  int64_t first = 0;
  for (const int64_t steps : {3, 1, 8}) {
    InferRequest chunk;
    chunk.model = "model";
    chunk.sequence = "s";
    chunk.sequence_start = first == 0;
    chunk.inputs = {{"x", x.Rows(first, steps)}};
    const auto got = engine_->Infer(chunk);
    ASSERT_TRUE(got.ok()) << got.status();
    const Tensor rows = want->outputs[0].tensor.Rows(first, steps);
    for (int64_t i = 0; i < rows.size(); ++i) {
      EXPECT_NEAR(got->outputs[0].tensor.data<float>()[i], rows.data<float>()[i], 1e-6);
    }
    first += steps;
  }
}

class SequencesClockTest : public ::testing::Test {
 protected:
  void Create(int64_t idle_us) {
    const SymbolicShape shape{Shape{1, 2}};
    signature_.inputs = {{"x", DType::kFloat, shape}, {"s", DType::kFloat, shape}};
    signature_.outputs = {{"y", DType::kFloat, shape}, {"s_next", DType::kFloat, shape}};
    clock_.Advance(std::chrono::hours(1));
    config_ = {.sequence_state = {{"s_next", "s"}}, .max_sequence_idle_us = idle_us};
    auto sequences = Sequences::Create(config_, signature_, clock_);
    ASSERT_TRUE(sequences.ok());
    sequences_ = *std::move(sequences);
  }
  Status Ask(const std::string& name, bool start) {
    const auto run = [](const InferRequest&, const Sequences::MissingState&,
                        const InferCallback& told) -> RequestId {
      InferResponse response;
      response.outputs = {{"s_next", Tensor::Of<float>(Shape{1, 2}, {1, 1})}};
      told(std::move(response));
      return 1;
    };
    InferRequest request;
    request.sequence = name;
    request.sequence_start = start;
    Status status;
    sequences_->Submit(
        request, [&](const auto& answer) { status = answer.status(); }, run);
    return status;
  }

  Signature signature_;
  ModelConfig config_;
  FakeClock clock_;
  std::shared_ptr<Sequences> sequences_;
};

TEST_F(SequencesClockTest, ForgetsIdleSequences) {
  Create(1000);
  EXPECT_TRUE(Ask("a", true).ok());
  clock_.Advance(std::chrono::microseconds(600));
  EXPECT_TRUE(Ask("b", true).ok());
  clock_.Advance(std::chrono::microseconds(600));
  EXPECT_EQ(sequences_->size(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(Ask("a", false)));
  EXPECT_TRUE(Ask("b", false).ok());
}

TEST_F(SequencesClockTest, KeepsSequencesForAnyTime) {
  Create(std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(Ask("a", true).ok());
  clock_.Advance(std::chrono::hours(1));
  EXPECT_TRUE(Ask("a", false).ok());
}

// What is made for a chunk, not what its inputs or kept states have: the caller's thread may make
// little.
TEST(SequencesStateTest, SaysHowManyBytesItMakes) {
  const SymbolicShape samples({Dim::Symbol("batch"), Dim::Symbol("samples")});
  const SymbolicShape shape({Dim::Symbol("batch"), 5});
  Signature signature;
  signature.inputs = {{"x", DType::kFloat, samples}, {"s", DType::kFloat, shape}};
  signature.outputs = {{"s_next", DType::kFloat, shape}};
  const auto sequences = Sequences::Create({.sequence_state = {{"s_next", "s"}}}, signature);
  ASSERT_TRUE(sequences.ok()) << sequences.status();
  const auto made = [&](int64_t batch, bool start) {
    InferRequest request;
    request.sequence = "a";
    request.sequence_start = start;
    request.inputs = {{"x", Tensor::Allocate(DType::kFloat, Shape{batch, 1000})}};
    int64_t bytes = -1;
    (*sequences)
        ->Submit(
            request, [](const auto& answer) { EXPECT_TRUE(answer.ok()) << answer.status(); },
            [&](InferRequest chunk, const Sequences::MissingState& missing,
                const InferCallback& told) -> RequestId {
              bytes = missing.new_bytes;
              EXPECT_TRUE(missing.add(chunk).ok());
              told(InferResponse{.outputs = {{"s_next", chunk.inputs.back().tensor}}});
              return 1;
            });
    return bytes;
  };
  EXPECT_EQ(made(3, true), 3 * 5 * 4);
  EXPECT_EQ(made(3, false), 0);
}

// Random chunks of a few sequences, which succeed or fail, against a model that knows only the
// rule: a chunk that fails changes nothing.
class RandomSequences {
 public:
  explicit RandomSequences(unsigned seed) : random_(seed) {
    const SymbolicShape shape{Shape{1, 2}};
    Signature signature;
    signature.inputs = {{"x", DType::kFloat, shape}, {"s", DType::kFloat, shape}};
    signature.outputs = {{"y", DType::kFloat, shape}, {"s_next", DType::kFloat, shape}};
    sequences_ = *Sequences::Create({.sequence_state = {{"s_next", "s"}}}, signature, clock_);
  }

  void Run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      const std::string name(1, static_cast<char>('a' + Pick(0, 2)));
      if (Pick(0, 1) == 0) {
        Send(name);
      } else {
        Finish(name);
      }
      int live = 0;
      for (const auto& [key, known] : known_) live += known.live || !known.chunks.empty() ? 1 : 0;
      EXPECT_EQ(sequences_->size(), live);
    }
    EXPECT_GT(answered_, events / 8);
    EXPECT_GT(refused_late_, 0);
  }

 private:
  struct Chunk {
    int number = 0;
    bool start = false, end = false, fails = false;
    float value = 0;
  };
  struct Known {
    bool live = false;
    float sum = 0;
    std::deque<Chunk> chunks;  // the first one runs
  };
  struct Running {
    float state = 0;
    float value = 0;
    InferCallback callback;
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void Send(const std::string& name) {
    Known& known = known_[name];
    if (known.chunks.size() > 6) return;
    const Chunk chunk{next_++, Pick(0, 3) == 0, Pick(0, 3) == 0, Pick(0, 2) == 0,
                      static_cast<float>(Pick(1, 9))};
    InferRequest request;
    request.sequence = name;
    request.sequence_start = chunk.start;
    request.sequence_end = chunk.end;
    request.inputs = {{"x", Tensor::Of<float>(Shape{1, 2}, {chunk.value, 0})}};
    const bool taken =
        chunk.start || (known.chunks.empty() ? known.live : !known.chunks.back().end);
    if (taken) known.chunks.push_back(chunk);
    sequences_->Submit(
        std::move(request),
        [this, number = chunk.number](const StatusOr<InferResponse>& answer) {
          const auto sum = [&] { return answer->outputs.at(0).tensor.data<float>()[0]; };
          answers_[number] = answer.ok() ? StatusOr<float>(sum()) : answer.status();
        },
        [this](InferRequest request, const Sequences::MissingState& missing,
               InferCallback callback) {
          EXPECT_TRUE(missing.add(request).ok());
          const std::string name = request.sequence;
          EXPECT_FALSE(running_.contains(name)) << "two chunks of one sequence run";
          running_[name] = {request.inputs[1].tensor.data<float>()[0],
                            request.inputs[0].tensor.data<float>()[0], std::move(callback)};
          return RequestId{1};
        });
    if (!taken) ExpectRefused(chunk.number);
    CheckRunning(name);
  }

  void Finish(const std::string& name) {
    Known& known = known_[name];
    if (known.chunks.empty()) return;
    const Chunk chunk = known.chunks.front();
    known.chunks.pop_front();
    Running running = std::move(running_.at(name));
    running_.erase(name);
    const float sum = running.state + running.value;
    if (chunk.fails) {
      running.callback(Internal("it fails"));
    } else {
      known.live = !chunk.end;
      known.sum = sum;
      InferResponse response;
      response.outputs = {{"y", Tensor::Of<float>(Shape{1, 2}, {sum, 0})},
                          {"s_next", Tensor::Of<float>(Shape{1, 2}, {sum, 0})}};
      running.callback(std::move(response));
    }
    ASSERT_TRUE(answers_.contains(chunk.number));
    EXPECT_EQ(answers_[chunk.number].ok(), !chunk.fails);
    if (!chunk.fails) {
      EXPECT_EQ(*answers_[chunk.number], sum);
    }
    ++answered_;
    while (!known.chunks.empty() && !known.live && !known.chunks.front().start) {
      ExpectRefused(known.chunks.front().number);
      known.chunks.pop_front();
      ++refused_late_;
    }
    CheckRunning(name);
  }

  void ExpectRefused(int number) {
    ASSERT_TRUE(answers_.contains(number));
    EXPECT_TRUE(absl::IsInvalidArgument(answers_.at(number).status()));
  }
  // The first chunk runs, from the state of those before it that succeeded.
  void CheckRunning(const std::string& name) {
    const Known& known = known_[name];
    ASSERT_EQ(running_.contains(name), !known.chunks.empty());
    if (known.chunks.empty()) return;
    const Chunk& chunk = known.chunks.front();
    EXPECT_EQ(running_[name].value, chunk.value);
    EXPECT_EQ(running_[name].state, chunk.start ? 0 : known.sum);
    EXPECT_FALSE(answers_.contains(chunk.number));
  }

  std::mt19937 random_;
  FakeClock clock_;
  std::shared_ptr<Sequences> sequences_;
  std::map<std::string, Known> known_;
  std::map<std::string, Running> running_;
  std::map<int, StatusOr<float>> answers_;  // by chunk
  int next_ = 1;
  int answered_ = 0;
  int refused_late_ = 0;
};

TEST(RandomSequencesTest, AChunkThatFailsChangesNothing) {
  for (const unsigned seed : {1u, 2u, 3u}) RandomSequences(seed).Run(5000);
}

TEST_F(SequencesTest, ARefusedLastOrFirstChunkMayBeSentAgain) {
  ASSERT_TRUE(Load(Accumulator(), Sums()).ok());
  ExpectSum(Chunk("a", 1, true), 1);
  InferRequest wrong = Chunk("a", 1, false, true);
  wrong.inputs[0].tensor = Tensor::Of<float>(Shape{1, 3}, {1, 2, 3});
  ExpectRefused(wrong, "'x'");
  wrong.sequence_start = true;
  ExpectRefused(wrong, "'x'");
  ExpectSum(Chunk("a", 2), 3);
  ExpectSum(Chunk("a", 1, false, true), 4);
  wrong.sequence = "b";
  wrong.sequence_end = false;
  ExpectRefused(std::move(wrong), "'x'");
  ExpectRefused(Chunk("b", 1), "sequence 'b' is not known");
}

}  // namespace
}  // namespace chairlift
