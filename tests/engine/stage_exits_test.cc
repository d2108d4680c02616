// Requests that leave a model in stages early, or skip some: each gets the answer that its exit
// says, whatever becomes of the others of its batch.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "base/clock.h"
#include "chairlift/engine.h"
#include "engine/programs/stage_plugin.h"
#include "engine/programs/staged_request.h"
#include "engine/test_models.h"

namespace chairlift {
namespace stage_exits_test {

using ::testing::AllOf;
using testing::ExitModel;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

StatusOr<std::unique_ptr<Engine>> LoadExits(const ModelBuilder& model, const TempFolder& folder,
                                            const ModelConfig& config, int workers = 1) {
  auto engine = Engine::Create({.workers = workers, .autotune = false, .allow_plugins = true});
  if (!engine.ok()) return engine;
  const std::string file = WriteFile(folder / "m/1/model.onnx", model.Bytes());
  const Status loaded = (*engine)->LoadModel("m", file, config);
  if (!loaded.ok()) return loaded;
  return engine;
}

std::string ExitRefusal(const ModelConfig& config) {
  const TempFolder folder;
  return std::string(LoadExits(ExitModel(), folder, config).status().message());
}

InferRequest AskForImages(int64_t rows, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor image = Tensor::Allocate(DType::kFloat, {rows, 3, 16, 16});
  const float scale = 0.2f + static_cast<float>(random() % 8);  // some are sure, some are not
  for (int64_t i = 0; i < image.size(); ++i) image.data<float>()[i] = scale * normal(random);
  return {.model = "m", .inputs = {{"image", image}}};
}

// The least of the rows' largest numbers.
float Sureness(const Tensor& probabilities) {
  float least = 1;
  for (int64_t row = 0; row < probabilities.shape()[0]; ++row) {
    const std::span<const float> own =
        probabilities.values<float>().subspan(static_cast<size_t>(row) * 7, 7);
    least = std::min(least, *std::max_element(own.begin(), own.end()));
  }
  return least;
}

struct Asked {
  InferRequest request;
  Tensor early, scores;   // of the whole model
  Tensor without_middle;  // scores
};

// Requests whose early heads are not within rounding of `threshold`, the median of all.
struct Questions {
  std::vector<Asked> asked;
  float threshold = 0;
};

Questions AskQuestions(int count) {
  const TempFolder folder, other;
  Questions questions;
  std::mt19937 random(7);
  auto whole = LoadExits(ExitModel(), folder, {.policy = "none"});
  auto shorter = LoadExits(ExitModel(/*middle=*/false), other, {.policy = "none"});
  EXPECT_TRUE(whole.ok() && shorter.ok());
  std::vector<float> sureness;
  for (int i = 0; i < count; ++i) {
    Asked& a = questions.asked.emplace_back();
    a.request = AskForImages(1 + static_cast<int64_t>(random() % 3), random);
    const auto answer = (*whole)->Infer(a.request), skipped = (*shorter)->Infer(a.request);
    EXPECT_TRUE(answer.ok() && skipped.ok()) << answer.status();
    a.early = answer->outputs[0].tensor;
    a.scores = answer->outputs[1].tensor;
    a.without_middle = skipped->outputs[1].tensor;
    sureness.push_back(Sureness(a.early));
  }
  std::nth_element(sureness.begin(), sureness.begin() + count / 2, sureness.end());
  questions.threshold = sureness[static_cast<size_t>(count) / 2];
  std::erase_if(questions.asked, [&](const Asked& a) {
    return std::abs(Sureness(a.early) - questions.threshold) < 1e-4f;
  });
  return questions;
}

void ExpectNear(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], 1e-5f) << "at " << i;
  }
}

// Answers, in order, to requests that come at once.
std::vector<StatusOr<InferResponse>> AskAtOnce(Engine& engine, std::vector<InferRequest> requests) {
  std::vector<std::promise<StatusOr<InferResponse>>> promises(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine.InferAsync(std::move(requests[i]), [&promises, i](StatusOr<InferResponse> answer) {
      promises[i].set_value(std::move(answer));
    });
  }
  std::vector<StatusOr<InferResponse>> answers;
  for (auto& promise : promises) answers.push_back(promise.get_future().get());
  return answers;
}

// Asks from several threads, some with a timeout. `takes`: whether a request takes the exit;
// `then`: its scores.
void CheckExit(const Questions& questions, Engine& engine,
               const std::function<bool(const Asked&)>& takes,
               const std::function<const Tensor&(const Asked&)>& then) {
  constexpr int kThreads = 3;
  constexpr int kBursts = 20;
  constexpr int kBurst = 6;
  std::mutex mutex;
  int took = 0, shared = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 own(static_cast<unsigned>(t));
      for (int burst = 0; burst < kBursts; ++burst) {
        std::vector<const Asked*> asked;
        std::vector<InferRequest> requests;
        for (int i = 0; i < kBurst; ++i) {
          asked.push_back(&questions.asked[own() % questions.asked.size()]);
          requests.push_back(asked.back()->request);
          if (own() % 10 == 0) requests.back().timeout = std::chrono::microseconds(own() % 300);
        }
        const std::vector<InferRequest> sent = requests;
        const auto answers = AskAtOnce(engine, std::move(requests));
        const std::lock_guard<std::mutex> lock(mutex);
        for (size_t i = 0; i < answers.size(); ++i) {
          const StatusOr<InferResponse>& got = answers[i];
          const Asked& a = *asked[i];
          const bool late = absl::IsDeadlineExceeded(got.status()) ||
                            absl::IsResourceExhausted(got.status());  // at once
          if (sent[i].timeout && late) continue;
          ASSERT_TRUE(got.ok()) << got.status();
          ASSERT_EQ(got->outputs.size(), 2u);
          ExpectNear(got->outputs[0].tensor, a.early);
          ExpectNear(got->outputs[1].tensor, takes(a) ? then(a) : a.scores);
          took += takes(a) ? 1 : 0;
          shared += got->batch_rows > a.request.inputs[0].tensor.shape()[0] ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(took, 20);
  EXPECT_LT(took, kThreads * kBursts * kBurst - 20);
  EXPECT_GT(shared, 0) << "no request had company";
}

StageExit EarlyExit(double at_least) {
  return {.output = "early", .at_least = at_least, .instead = {{"scores", "early"}}};
}

TEST(StageExitsTest, WhoIsSureLeavesWithTheExitsAnswer) {
  const Questions questions = AskQuestions(40);
  const auto sure = [&](const Asked& a) { return Sureness(a.early) >= questions.threshold; };
  const auto early = [](const Asked& a) -> const Tensor& { return a.early; };
  for (const char* policy : {"staged", "cellular"}) {
    for (const int workers : {1, 2}) {
      SCOPED_TRACE(policy);
      const TempFolder folder;
      auto engine = LoadExits(ExitModel(), folder,
                              {.policy = policy,
                               .max_batch_size = 8,
                               .stages = workers == 1 ? 0 : 3,
                               .exits = {EarlyExit(questions.threshold)}},
                              workers);
      ASSERT_TRUE(engine.ok()) << engine.status();
      CheckExit(questions, **engine, sure, early);
      const auto metadata = (*engine)->Metadata("m");
      ASSERT_TRUE(metadata.ok());
      EXPECT_THAT(metadata->diagnosis, AllOf(HasSubstr("requests may exit after 'early'"),
                                             HasSubstr("requests left after 'early'")));
    }
  }
}

TEST(StageExitsTest, WhoIsSureMaySkipStages) {
  const Questions questions = AskQuestions(40);
  const auto sure = [&](const Asked& a) { return Sureness(a.early) >= questions.threshold; };
  const auto shorter = [](const Asked& a) -> const Tensor& { return a.without_middle; };
  for (const char* policy : {"staged", "cellular"}) {
    SCOPED_TRACE(policy);
    const TempFolder folder;
    auto engine = LoadExits(ExitModel(), folder,
                            {.policy = policy,
                             .max_batch_size = 8,
                             .exits = {{.output = "early",
                                        .at_least = questions.threshold,
                                        .skip_to = "b",
                                        .instead = {{"b", "a"}}}}});
    ASSERT_TRUE(engine.ok()) << engine.status();
    CheckExit(questions, **engine, sure, shorter);
  }
}

// x → t0 → … → t5 → scores, with heads after t1 and t4: whatever takes "late" may have skipped t2.
ModelBuilder TwoExitModel() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8});
  m.Output("early", kFloat).Output("late", kFloat).Output("scores", kFloat);
  std::string last = "x";
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    testing::RandomWeights(m, "w" + n, {8, 8}, static_cast<unsigned>(i));
    m.Node("MatMul", {last, "w" + n}, {"a" + n});
    last = "t" + n;
    m.Node("Tanh", {"a" + n}, {last});
    if (i == 1) m.Node("Softmax", {last}, {"early"}).Int("axis", -1);
    if (i == 4) m.Node("Softmax", {last}, {"late"}).Int("axis", -1);
  }
  m.Node("Softmax", {last}, {"scores"}).Int("axis", -1);
  return m;
}

// Passes make one tensor of "early" and "probabilities", of "scores" and "same", and of "x" and
// "asked".
TEST(StageExitsTest, OutputsThatPassesMergedMayBeNamed) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 8});
  for (const char* output : {"early", "also_early", "scores", "same", "asked"}) {
    m.Output(output, kFloat);
  }
  testing::RandomWeights(m, "w0", {8, 8}, 1);
  testing::RandomWeights(m, "w1", {8, 8}, 2);
  m.Node("MatMul", {"x", "w0"}, {"a"});
  m.Node("Softmax", {"a"}, {"probabilities"}).Int("axis", -1);
  m.Node("Identity", {"probabilities"}, {"early"});
  m.Node("Identity", {"probabilities"}, {"also_early"});
  m.Node("Tanh", {"a"}, {"t"});
  m.Node("MatMul", {"t", "w1"}, {"b"});
  m.Node("Softmax", {"b"}, {"scores"}).Int("axis", -1);
  m.Node("Identity", {"scores"}, {"same"});
  m.Node("Identity", {"x"}, {"asked"});
  const TempFolder folder;
  const auto load = [&](const std::string& exit, std::map<std::string, std::string> instead) {
    return LoadExits(m, folder,
                     {.exits = {{.output = exit, .at_least = 0, .instead = std::move(instead)}}});
  };
  Tensor x = Tensor::Allocate(DType::kFloat, {2, 8});
  std::iota(x.data<float>(), x.data<float>() + x.size(), 1.0f);
  for (const char* exit : {"early", "also_early"}) {
    for (const std::map<std::string, std::string>& instead :
         {std::map<std::string, std::string>{{"scores", "early"}},
          {{"same", "also_early"}},
          {{"scores", "probabilities"}, {"same", "early"}},
          {{"scores", "asked"}}}) {
      auto engine = load(exit, instead);
      ASSERT_TRUE(engine.ok()) << engine.status();
      const auto got = (*engine)->Infer({.model = "m", .inputs = {{"x", x}}});
      ASSERT_TRUE(got.ok()) << got.status();
      const size_t source = instead.begin()->second == "asked" ? 4 : 0;
      ExpectNear(got->outputs[2].tensor, got->outputs[source].tensor);
      ExpectNear(got->outputs[3].tensor, got->outputs[source].tensor);
    }
  }
  EXPECT_THAT(std::string(load("early", {{"scores", "x"}, {"same", "early"}}).status().message()),
              HasSubstr("which then has two substitutes, 'early' and 'x'"));
}

// What stands for something at an exit must be there for requests that skipped stages before it.
TEST(StageExitsTest, AnExitNeedsWhatItsInsteadNames) {
  const TempFolder folder;
  const auto config = [](StageExit early, StageExit late) {
    return ModelConfig{.policy = "staged", .stages_after = {"t2"}, .exits = {early, late}};
  };
  const StageExit leaves{.output = "late", .at_least = 0, .instead = {{"scores", "t2"}}};
  const StageExit skips{
      .output = "late", .at_least = 0, .skip_to = "t5", .instead = {{"t5", "t2"}}};
  for (const StageExit& late : {leaves, skips}) {
    SCOPED_TRACE(late.skip_to);
    StageExit early{.output = "early", .at_least = 0, .skip_to = "t3", .instead = {{"t3", "t1"}}};
    EXPECT_THAT(
        std::string(LoadExits(TwoExitModel(), folder, config(early, late)).status().message()),
        HasSubstr("have no 't2', which the exit after 'late' names in its 'instead'"));
    early.instead["t2"] = "t1";
    auto engine = LoadExits(TwoExitModel(), folder, config(early, late));
    ASSERT_TRUE(engine.ok()) << engine.status();
    Tensor x = Tensor::Allocate(DType::kFloat, {2, 8});
    std::fill_n(x.data<float>(), x.size(), 0.5f);
    const auto got = (*engine)->Infer({.model = "m", .inputs = {{"x", x}}});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->outputs.size(), 3u);
    for (const NamedTensor& output : got->outputs) {
      EXPECT_EQ(output.tensor.shape(), (Shape{2, 8})) << output.name;
    }
  }
}

TEST(StageExitsTest, APredicateDecidesByWhatItLikes) {
  const Questions questions = AskQuestions(40);
  std::vector<float> firsts;
  for (const Asked& a : questions.asked) firsts.push_back(a.early.data<float>()[0]);
  std::sort(firsts.begin(), firsts.end());
  const size_t half = firsts.size() / 2;
  const float middle = (firsts[half - 1] + firsts[half]) / 2;
  const auto first = [middle](const Tensor& early) { return early.data<float>()[0] < middle; };
  const TempFolder folder;
  StageExit exit{.output = "early", .instead = {{"scores", "early"}}};
  exit.predicate = first;
  auto engine = LoadExits(ExitModel(), folder, {.exits = {exit}});
  ASSERT_TRUE(engine.ok()) << engine.status();
  CheckExit(
      questions, **engine, [&](const Asked& a) { return first(a.early); },
      [](const Asked& a) -> const Tensor& { return a.early; });
}

TEST(StageExitsTest, WhatAPredicateThrowsFailsItsRequestAlone) {
  const TempFolder folder;
  std::mt19937 random(3);
  StageExit exit{.output = "early", .instead = {{"scores", "early"}}};
  exit.predicate = [](const Tensor& early) -> bool {
    if (early.shape()[0] == 2) throw std::runtime_error("it threw on purpose");
    return true;
  };
  auto engine = LoadExits(ExitModel(), folder, {.exits = {exit}});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Status failed = (*engine)->Infer(AskForImages(2, random)).status();
  EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("it threw on purpose"));
  EXPECT_TRUE((*engine)->Infer(AskForImages(1, random)).ok());
}

// The receiver of an answer may write to it.
TEST(StageExitsTest, OutputsThatStandForOthersAreApart) {
  const TempFolder folder;
  std::mt19937 random(3);
  auto engine = LoadExits(ExitModel(), folder, {.exits = {EarlyExit(0)}});
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto got = (*engine)->Infer(AskForImages(1, random));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NE(got->outputs[0].tensor.raw(), got->outputs[1].tensor.raw());
}

TEST(StageExitsTest, WhatIsWrongIsRefusedByName) {
  const auto refusal = [](StageExit exit) { return ExitRefusal({.exits = {std::move(exit)}}); };
  EXPECT_THAT(refusal({.output = "nose", .at_least = 1}), HasSubstr("'nose' is not an output"));
  EXPECT_THAT(refusal({.output = "early"}), HasSubstr("neither at_least nor a predicate"));
  EXPECT_THAT(
      refusal({.output = "early", .at_least = 1}),
      HasSubstr("requests that take the exit have no 'scores', which the model answers with"));
  EXPECT_THAT(refusal({.output = "early", .at_least = NAN}), HasSubstr("at_least is nan"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .skip_to = "b"}),
              HasSubstr("have no 'b', which a later stage reads"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .skip_to = "a"}),
              HasSubstr("nothing would be skipped"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .instead = {{"scores", "a"}}}),
              HasSubstr("'a' cannot replace 'scores': its rows are"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .instead = {{"scores", "scores"}}}),
              HasSubstr("it is computed later"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .instead = {{"early", "scores"}}}),
              HasSubstr("'early' needs no substitute"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .instead = {{"scores", "ear"}}}),
              HasSubstr("no tensor 'ear' is kept between stages"));
  EXPECT_THAT(refusal({.output = "early", .at_least = 1, .skip_to = "nose"}),
              HasSubstr("exits: skip_to: there is no node or tensor 'nose'"));
  EXPECT_THAT(ExitRefusal({.exits = {EarlyExit(0.5), EarlyExit(0.5)}}),
              HasSubstr("there are two after 'early', and the second is never taken"));
  EXPECT_THAT(ExitRefusal({.policy = "ideal", .exits = {EarlyExit(1)}}),
              HasSubstr("has no early exits; 'staged' and 'cellular' have"));
  EXPECT_THAT(ExitRefusal({.policy = "window", .exits = {EarlyExit(1)}}),
              HasSubstr("policy 'window' does not use"));
}

TEST(StageExitsTest, APolicyOfAUsersOwnServesTheModel) {
  class OneByOne : public StagePolicy {
    void Schedule(const StageBatch& batch, MetaOperations& operations) override {
      if (batch.stage == 0) operations.New(1);
    }
  };
  const Questions questions = AskQuestions(10);
  const TempFolder folder;
  auto engine =
      LoadExits(ExitModel(), folder,
                {.stages = 3, .stage_policy = [] { return std::make_unique<OneByOne>(); }}, 2);
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const Asked& a : questions.asked) {
    const auto got = (*engine)->Infer(a.request);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(got->outputs[1].tensor, a.scores);
    EXPECT_EQ(got->batch_rows, a.request.inputs[0].tensor.shape()[0]);
  }
  EXPECT_THAT(ExitRefusal({.policy = "cellular",
                           .stage_policy = [] { return std::make_unique<OneByOne>(); }}),
              HasSubstr("policy 'cellular' does not use"));
}

// Nothing but the time that it names has it asked again.
TEST(StageExitsTest, APolicyThatLetsALoneRequestWaitIsAskedAgain) {
  class Patient : public StagePolicy {
   public:
    explicit Patient(std::atomic<int>& calls) : calls_(calls) {}
    void Schedule(const StageBatch& batch, MetaOperations& operations) override {
      if (batch.stage > 0) return;
      if (++calls_ % 3 != 0) return operations.WakeAfter(std::chrono::microseconds(50));
      operations.New(1);
    }

   private:
    std::atomic<int>& calls_;
  };
  std::mt19937 random(3);
  for (const int workers : {1, 2}) {
    std::atomic<int> calls = 0;
    const TempFolder folder;
    auto engine = LoadExits(
        ExitModel(), folder,
        {.stages = 3, .stage_policy = [&calls] { return std::make_unique<Patient>(calls); }},
        workers);
    ASSERT_TRUE(engine.ok()) << engine.status();
    constexpr int kRequests = 20;
    for (int i = 0; i < kRequests; ++i) {
      std::promise<StatusOr<InferResponse>> promise;
      (*engine)->InferAsync(AskForImages(1, random), [&](StatusOr<InferResponse> answer) {
        promise.set_value(std::move(answer));
      });
      auto answer = promise.get_future();
      const bool came = answer.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
      if (!came) engine->reset();  // which answers what waits
      ASSERT_TRUE(came) << "request " << i << " waits for ever";
      ASSERT_TRUE(answer.get().ok());
    }
    EXPECT_GE(calls.load(), 3 * kRequests);
  }
}

TEST(StageExitsTest, APolicyThatThrowsIsNotCalledAgain) {
  class Throws : public StagePolicy {
    void Schedule(const StageBatch& batch, MetaOperations& /*operations*/) override {
      throw std::runtime_error(std::to_string(batch.stage));
    }
  };
  const TempFolder folder;
  std::mt19937 random(3);
  auto engine = LoadExits(ExitModel(), folder,
                          {.stages = 3, .stage_policy = [] { return std::make_unique<Throws>(); }});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE((*engine)->Infer(AskForImages(2, random)).ok());
  EXPECT_THAT((*engine)->Metadata("m")->diagnosis, HasSubstr("threw an exception"));
}

// Says yes to everything, and counts new batches.
class Agrees final : public MetaOperations {
 public:
  bool New(int /*queries*/) override {
    ++batches;
    return true;
  }
  bool Stretch(int /*queries*/) override { return true; }
  bool Split(std::span<const int> /*sizes*/) override { return true; }
  void WakeAfter(std::chrono::nanoseconds /*delay*/) override {}
  const StageBatch* latest() const override { return nullptr; }
  int max_batch_size() const override { return 8; }
  std::chrono::nanoseconds Cost(int /*stage*/, int /*rows*/) const override { return {}; }

  int batches = 0;
};

TEST(StageExitsTest, APolicyThatIsSlowAgainAndAgainIsNotCalledAnyMore) {
  struct Slow : StagePolicy {
    Slow(FakeClock& c, int& n) : clock(c), calls(n) {}
    void Schedule(const StageBatch& /*batch*/, MetaOperations& /*operations*/) override {
      // Every 16th is quick, at first.
      clock.Advance(++calls % 16 == 0 && calls < 33 ? Duration(0) : std::chrono::milliseconds(2));
    }
    FakeClock& clock;
    int& calls;
  };
  FakeClock clock;
  int calls = 0;
  GuardedStagePolicy policy("m", std::make_unique<Slow>(clock, calls), clock);
  const std::array<int32_t, 2> rows = {1, 1};
  Agrees operations;
  for (int call = 0; call < 47; ++call) policy.Schedule({.rows = rows}, operations);
  EXPECT_EQ(policy.failed(), nullptr);
  EXPECT_EQ(operations.batches, 0);
  policy.Schedule({.rows = rows}, operations);
  EXPECT_THAT(RemarksOn(&policy),
              ::testing::ElementsAre(HasSubstr("took more than 1 ms 16 times in a row")));
  policy.Schedule({.rows = rows}, operations);
  EXPECT_EQ(calls, 48);
  EXPECT_EQ(operations.batches, 1) << "what waits makes a batch";
}

TEST(StagePluginTest, TheExamplesPolicyAndExitServe) {
  const Questions questions = AskQuestions(40);
  const TempFolder folder;
  WriteFile(folder / "m/1/model.onnx", ExitModel().Bytes());
  std::filesystem::copy_file(CHAIRLIFT_EARLY_PLUGIN, folder / "m/libearly.so");
  std::filesystem::copy_file(CHAIRLIFT_EXAMPLES "/stage_plugin/model.yaml",
                             folder / "m/model.yaml");
  auto engine = Engine::Create({.workers = 2, .autotune = false, .allow_plugins = true});
  ASSERT_TRUE(engine.ok());
  ASSERT_TRUE((*engine)->AddRepository(folder.string()).ok());
  const Status loaded = (*engine)->LoadFromRepository("m");
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto sure = [](const Asked& a) {
    for (int64_t row = 0; row < a.early.shape()[0]; ++row) {
      std::array<float, 7> own;
      std::copy_n(a.early.data<float>() + row * 7, 7, own.begin());
      std::sort(own.begin(), own.end());
      if (own[6] - own[5] < 0.2f) return false;
    }
    return true;
  };
  CheckExit(questions, **engine, sure, [](const Asked& a) -> const Tensor& { return a.early; });
}

TEST(StagePluginTest, PluginsThatAreWrongAreRefused) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "m");
  std::filesystem::copy_file(CHAIRLIFT_EARLY_PLUGIN, folder / "m/early.so");
  std::filesystem::copy_file(CHAIRLIFT_FOREIGN_STAGE_PLUGIN, folder / "m/foreign.so");
  const auto refusal = [&](StagePluginFile plugin, std::vector<StageExit> exits = {}) {
    const ModelConfig config{.stages = 3, .exits = std::move(exits), .stage_plugin = plugin};
    return std::string(LoadExits(ExitModel(), folder, config).status().message());
  };
  EXPECT_THAT(refusal({"foreign.so"}), HasSubstr("built for version 2 of the interface"));
  EXPECT_THAT(refusal({"../early.so"}), HasSubstr("not the name of a file"));
  EXPECT_THAT(refusal({"gone.so"}), HasSubstr("no file 'gone.so'"));
  EXPECT_THAT(refusal({"early.so", {{"rows", "few"}}}), HasSubstr("option 'rows' is 'few'"));
  EXPECT_THAT(refusal({"early.so", {{"margin", "-1"}}},
                      {{.output = "early", .instead = {{"scores", "early"}}}}),
              HasSubstr("option 'margin' is '-1'"));
  auto engine = Engine::Create({.workers = 1, .autotune = false});
  const Status refused = (*engine)->LoadModel("m", (folder / "m/1/model.onnx").string(),
                                              {.stages = 3, .stage_plugin = {"early.so"}});
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--allow-plugins"));
}

// Two requests ran stage 0 as one batch: what they left lies in one piece of memory.
TEST(StageMemoryTest, ItIsCountedUntilNobodyOfTheBatchNeedsIt) {
  StageLayout layout;
  layout.stages = {{{0}, {1}, {0}}, {{1}, {2}, {1}}};
  layout.outputs = {2};
  layout.previous = {-1, 0};
  layout.exits.resize(2);
  layout.units.resize(3);
  layout.row_bytes = 100;
  Signature signature;
  signature.outputs = {{"y", DType::kFloat, {}}};
  WorkerMemory memory;
  memory.partial_answers = std::make_shared<ByteBudget>(1000);
  const auto request = [&](int64_t rows) {
    ValidatedRequest valid;
    valid.inputs = {Tensor::Allocate(DType::kFloat, {rows, 1})};
    valid.outputs = {0};
    valid.rows = static_cast<int32_t>(rows);
    return std::make_unique<StagedRequest>(layout, signature, std::move(valid));
  };
  auto first = request(1), second = request(2);
  ASSERT_TRUE(first->Begin(0, memory).ok() && second->Begin(0, memory).ok());
  EXPECT_EQ(memory.partial_answers->held(), 300);
  const Tensor left = Tensor::Allocate(DType::kFloat, {3, 25});
  auto both = std::make_shared<const std::vector<std::shared_ptr<StageMemory>>>(
      std::vector<std::shared_ptr<StageMemory>>{first->memory(), second->memory()});
  ASSERT_TRUE(first->Complete(0, {&left, 1}, {.row = 0}, both).ok());
  ASSERT_TRUE(second->Complete(0, {&left, 1}, {.row = 1}, both).ok());
  both.reset();
  first.reset();
  EXPECT_EQ(memory.partial_answers->held(), 300) << "the second one's rows keep the first one's";
  const Tensor answer = Tensor::Allocate(DType::kFloat, {2, 1});
  ASSERT_TRUE(second->Complete(1, {&answer, 1}, {}, nullptr).ok());
  EXPECT_EQ(memory.partial_answers->held(), 200);
  EXPECT_TRUE(second->done());
  second.reset();
  EXPECT_EQ(memory.partial_answers->held(), 0);
}

}  // namespace stage_exits_test
}  // namespace chairlift
