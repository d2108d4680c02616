// Models that batch only once scalars and sizes are known: streams of a model that branches on its
// sample rate and keeps its state with the batch along dimension 1.
#include "engine/programs/specialisations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "support/captured_log.h"

namespace chairlift {
namespace specialisations_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GraphProtoBuilder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using ::testing::SizeIs;
using testing::TempFolder;
using testing::WriteFile;

constexpr int64_t kState = 4;
constexpr int64_t kFast = 16000;  // the rate that the model knows; it takes 6 samples
constexpr int64_t kSlow = 8000;   // any other takes 3

// One step for x [N, samples] and state [2, N, 4]; a check of the length, as exporters leave them.
void AppendBranch(onnx::GraphProto* proto, const std::string& p, int64_t samples, unsigned seed) {
  GraphProtoBuilder b(proto);
  testing::RandomWeights(b, p + "w", {samples, kState}, seed);
  b.Tensor(p + "first", kInt64, {})->add_int64_data(0);
  b.Tensor(p + "second", kInt64, {})->add_int64_data(1);
  b.Ints(p + "axis0", {0}).Ints(p + "one", {1});
  b.Node("Shape", {"x"}, {p + "shape"});
  b.Node("Gather", {p + "shape", p + "one"}, {p + "samples"}).Int("axis", 0);
  b.Node("Equal", {p + "samples", p + "one"}, {p + "single"});
  auto check = b.Node("If", {p + "single"}, {p + "checked"});
  GraphProtoBuilder squeezed(check.Body("then_branch"));
  squeezed.Node("Squeeze", {"x", p + "one"}, {p + "squeezed"});
  squeezed.Output(p + "squeezed", kFloat);
  GraphProtoBuilder same(check.Body("else_branch"));
  same.Node("Identity", {"x"}, {p + "same"});
  same.Output(p + "same", kFloat);
  b.Node("Gather", {"state", p + "first"}, {p + "h"}).Int("axis", 0);
  b.Node("Gather", {"state", p + "second"}, {p + "c"}).Int("axis", 0);
  b.Node("MatMul", {p + "checked", p + "w"}, {p + "xw"});
  b.Node("Add", {p + "xw", p + "h"}, {p + "sum"});
  b.Node("Tanh", {p + "sum"}, {p + "h_next"});
  b.Node("Sub", {p + "h_next", p + "c"}, {p + "c_next"});
  b.Node("ReduceMean", {p + "c_next"}, {p + "y"}).Ints("axes", {1}).Int("keepdims", 1);
  b.Node("Unsqueeze", {p + "h_next", p + "axis0"}, {p + "h_row"});
  b.Node("Unsqueeze", {p + "c_next", p + "axis0"}, {p + "c_row"});
  b.Node("Concat", {p + "h_row", p + "c_row"}, {p + "state_next"}).Int("axis", 0);
  b.Output(p + "y", kFloat).Output(p + "state_next", kFloat);
}

ModelBuilder Branching() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"", ""}).Input("state", kFloat, {2, "", kState}).Input("rate", kInt64, {});
  m.Output("y", kFloat).Output("state_next", kFloat);
  m.Tensor("fast", kInt64, {})->add_int64_data(kFast);
  m.Node("Equal", {"rate", "fast"}, {"is_fast"});
  auto node = m.Node("If", {"is_fast"}, {"y", "state_next"});
  AppendBranch(node.Body("then_branch"), "f_", 6, 1);
  AppendBranch(node.Body("else_branch"), "s_", 3, 2);
  return m;
}

// Keeps rows apart at the one rate, and sums over them at others.
ModelBuilder Mixing() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"", ""}).Input("state", kFloat, {2, "", kState}).Input("rate", kInt64, {});
  m.Output("y", kFloat).Output("state_next", kFloat);
  m.Tensor("fast", kInt64, {})->add_int64_data(kFast);
  m.Node("Identity", {"state"}, {"state_next"});
  m.Node("Equal", {"rate", "fast"}, {"is_fast"});
  auto node = m.Node("If", {"is_fast"}, {"y"});
  GraphProtoBuilder apart(node.Body("then_branch"));
  apart.Node("Tanh", {"x"}, {"apart"});
  apart.Output("apart", kFloat);
  GraphProtoBuilder mixed(node.Body("else_branch"));
  mixed.Node("CumSum", {"x", "zero"}, {"mixed"});
  mixed.Output("mixed", kFloat);
  m.Tensor("zero", kInt64, {})->add_int64_data(0);
  return m;
}

Tensor Floats(const Shape& shape, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random);
  return t;
}

Tensor Zeros(const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::fill_n(t.data<float>(), t.size(), 0.0f);
  return t;
}

void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], 1e-5) << i;
  }
}

class StreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = WriteFile(folder_ / "model.onnx", Branching().Bytes());
    shared_ = Load({.sequence_state = {{"state_next", "state"}}});
    alone_ = Load({.policy = "none"});
    ASSERT_NE(shared_, nullptr);
    ASSERT_NE(alone_, nullptr);
  }
  std::unique_ptr<Engine> Load(const ModelConfig& config) {
    EngineOptions options;
    options.workers = 2;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return nullptr;
    const Status loaded = (*engine)->LoadModel("m", file_, config);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return loaded.ok() ? *std::move(engine) : nullptr;
  }

  // One chunk of every stream at once, each against the model that runs whole and alone. Returns
  // the widest batch of each rate.
  struct Stream {
    int64_t rate = 0;
    Tensor state = Zeros({2, 1, kState});
  };
  std::map<int64_t, int> Round(std::vector<Stream>& streams, bool start, std::mt19937& random) {
    std::vector<Tensor> chunks;
    for (const Stream& stream : streams) {
      chunks.push_back(Floats({1, stream.rate == kFast ? 6 : 3}, random));
    }
    std::vector<StatusOr<InferResponse>> answers(streams.size(), absl::UnknownError("none"));
    std::mutex mutex;
    std::condition_variable told;
    size_t left = streams.size();
    for (size_t i = 0; i < streams.size(); ++i) {
      shared_->InferAsync(
          {.model = "m",
           .inputs = {{"x", chunks[i]}, {"rate", Tensor::Scalar<int64_t>(streams[i].rate)}},
           .sequence = std::to_string(i),
           .sequence_start = start},
          [&, i](StatusOr<InferResponse> answer) {
            const std::lock_guard<std::mutex> lock(mutex);
            answers[i] = std::move(answer);
            if (--left == 0) told.notify_one();
          });
    }
    {
      std::unique_lock<std::mutex> lock(mutex);
      told.wait(lock, [&] { return left == 0; });
    }
    std::map<int64_t, int> widest;
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream& stream = streams[i];
      const auto want = alone_->Infer({.model = "m",
                                       .inputs = {{"x", chunks[i]},
                                                  {"state", stream.state},
                                                  {"rate", Tensor::Scalar<int64_t>(stream.rate)}}});
      EXPECT_TRUE(want.ok()) << want.status();
      EXPECT_TRUE(answers[i].ok()) << answers[i].status();
      if (!want.ok() || !answers[i].ok()) return widest;
      EXPECT_EQ(answers[i]->outputs.size(), 1u);
      ExpectClose(answers[i]->outputs[0].tensor, want->outputs[0].tensor);
      stream.state = want->outputs[1].tensor;
      widest[stream.rate] = std::max(widest[stream.rate], answers[i]->batch_rows);
    }
    return widest;
  }

  // Rounds until streams of all these rates have shared a batch.
  void RoundsUntilShared(std::vector<Stream>& streams, const std::vector<int64_t>& rates,
                         std::mt19937& random) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::map<int64_t, int> widest;
    const auto all = [&] {
      return std::all_of(rates.begin(), rates.end(), [&](int64_t r) { return widest[r] > 1; });
    };
    for (bool start = true; !all(); start = false) {
      for (const auto& [rate, rows] : Round(streams, start, random)) {
        widest[rate] = std::max(widest[rate], rows);
      }
      if (HasFailure()) return;
      ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "no batch was shared";
    }
  }

  TempFolder folder_;
  std::string file_;
  std::unique_ptr<Engine> shared_, alone_;
};

TEST_F(StreamsTest, StreamsOfOneRateShareBatchesEachWithItsOwnState) {
  std::mt19937 random(1);
  std::vector<Stream> streams(64);
  for (size_t i = 0; i < streams.size(); ++i) streams[i].rate = i % 3 == 0 ? kSlow : kFast;
  RoundsUntilShared(streams, {kSlow, kFast}, random);
  for (int round = 0; round < 10; ++round) Round(streams, false, random);
}

TEST_F(StreamsTest, ARequestMayBringSeveralRows) {
  std::mt19937 random(2);
  std::vector<Stream> streams(64, Stream{.rate = kFast});
  RoundsUntilShared(streams, {kFast}, random);
  const std::vector<NamedTensor> inputs = {{"x", Floats({3, 6}, random)},
                                           {"state", Floats({2, 3, kState}, random)},
                                           {"rate", Tensor::Scalar<int64_t>(kFast)}};
  const auto got = shared_->Infer({.model = "m", .inputs = inputs});
  const auto want = alone_->Infer({.model = "m", .inputs = inputs});
  ASSERT_TRUE(got.ok() && want.ok()) << got.status() << want.status();
  EXPECT_EQ(got->batch_rows, 3);
  for (int o = 0; o < 2; ++o) ExpectClose(got->outputs[o].tensor, want->outputs[o].tensor);
}

TEST_F(StreamsTest, ValuesWithoutABranchDoWhatTheModelSays) {
  std::mt19937 random(3);
  std::vector<Stream> streams(64, Stream{.rate = kFast});
  RoundsUntilShared(streams, {kFast}, random);
  for (int round = 0; round < 3 * Specialisations::kWorthwhile; ++round) {
    // Six samples at a rate that takes three; then states that do not fit the samples.
    for (const int64_t lanes : {1, 2}) {
      const std::vector<NamedTensor> inputs = {
          {"x", Floats({1, 6}, random)},
          {"state", Floats({2, lanes, kState}, random)},
          {"rate", Tensor::Scalar<int64_t>(lanes == 1 ? 44100 : kFast)}};
      const auto got = shared_->Infer({.model = "m", .inputs = inputs});
      const auto want = alone_->Infer({.model = "m", .inputs = inputs});
      ASSERT_EQ(got.status().code(), want.status().code()) << got.status() << want.status();
      if (got.ok()) ExpectClose(got->outputs[0].tensor, want->outputs[0].tensor);
    }
  }
}

TEST_F(StreamsTest, ManyRatesComeAndGo) {
  std::mt19937 random(4);
  for (int64_t first = 1; first <= 24; first += 8) {
    std::vector<Stream> streams(64);
    for (size_t i = 0; i < streams.size(); ++i) {
      streams[i].rate = first + static_cast<int64_t>(i % 8);
    }
    for (int round = 0; round < 8; ++round) {
      Round(streams, round == 0, random);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Unloaded while it may be being specialised, and with requests of it under way.
TEST_F(StreamsTest, AnUnloadedModelStillAnswersWhoIsWithin) {
  std::mt19937 random(5);
  std::vector<Stream> streams(64, Stream{.rate = kFast});
  Round(streams, true, random);
  std::atomic<int> left = 32;
  std::promise<void> told;
  for (int i = left; i > 0; --i) {
    shared_->InferAsync({.model = "m",
                         .inputs = {{"x", Floats({1, 6}, random)},
                                    {"state", Zeros({2, 1, kState})},
                                    {"rate", Tensor::Scalar<int64_t>(kFast)}}},
                        [&](const StatusOr<InferResponse>& answer) {
                          EXPECT_TRUE(answer.ok()) << answer.status();
                          if (--left == 0) told.set_value();
                        });
  }
  EXPECT_TRUE(shared_->UnloadModel("m").ok());
  told.get_future().wait();
}

TEST(ClassFormsEngineTest, TheDiagnosisNamesClassesThatRunOneByOne) {
  TempFolder folder;
  EngineOptions options;
  options.workers = 1;
  auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const std::string file = WriteFile(folder / "model.onnx", Mixing().Bytes());
  ASSERT_TRUE((*engine)->LoadModel("m", file, {}).ok());
  std::mt19937 random(1);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string diagnosis;
  while (diagnosis.find("run one by one: ") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << diagnosis;
    const auto answer = (*engine)->Infer({.model = "m",
                                          .inputs = {{"x", Floats({1, 3}, random)},
                                                     {"state", Zeros({2, 1, kState})},
                                                     {"rate", Tensor::Scalar<int64_t>(kSlow)}}});
    ASSERT_TRUE(answer.ok()) << answer.status();
    const auto model = (*engine)->Metadata("m");
    ASSERT_TRUE(model.ok());
    diagnosis = model->diagnosis;
  }
  EXPECT_THAT(diagnosis, HasSubstr("'rate' 8000 run one by one"));
  EXPECT_THAT(diagnosis, HasSubstr("CumSum"));
}

TEST_F(StreamsTest, TheDiagnosisSaysSo) {
  const auto model = shared_->Metadata("m");
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE(model->batches);
  EXPECT_THAT(model->diagnosis, HasSubstr("equal in scalars and sizes share batches"));
  EXPECT_EQ(model->config.policy, "window");
}

// Specialisations by themselves: what is made when, and what is kept.
class SpecialisationsTest : public ::testing::Test {
 protected:
  static constexpr int kMaxRows = 8;
  // Each look at it takes a millisecond: so does specialising the model.
  class TickingClock : public Clock {
   public:
    TimePoint Now() const override { return TimePoint(std::chrono::milliseconds(++ticks_)); }

   private:
    mutable std::atomic<int> ticks_{0};
  };

  void Use(const ModelBuilder& model) {
    const auto imported = model.Import();
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_TRUE(Specialisations::MayHelp(imported->graph));
    specialisations_ = std::make_shared<Specialisations>(
        "m version 1", imported->graph, ExecutableOptions{}, kMaxRows, background_, clock_);
  }
  ValidatedRequest Place(int64_t rate, int64_t rows = 1) {
    ValidatedRequest request;
    request.inputs = {Zeros({rows, rate == kFast ? 6 : 3}), Zeros({2, rows, kState}),
                      Tensor::Scalar<int64_t>(rate)};
    specialisations_->Place(request);
    return request;
  }
  // Until what is in the making has been made.
  void Wait() {
    std::promise<void> reached;
    ASSERT_TRUE(background_.Run([&] { reached.set_value(); }));
    reached.get_future().wait();
  }
  // Requests of a class until it is specialised; false where it is refused.
  bool Make(int64_t rate) {
    for (int i = 0; i < 4 * Specialisations::kWorthwhile; ++i) {
      if (Place(rate).axes != nullptr) return true;
      Wait();
    }
    return false;
  }

  TickingClock clock_;
  Background background_{4};
  std::shared_ptr<Specialisations> specialisations_;
};

TEST_F(SpecialisationsTest, OneIsMadeOnceEnoughRequestsHaveCome) {
  Use(Branching());
  for (int i = 0; i < Specialisations::kWorthwhile; ++i) {
    const ValidatedRequest alone = Place(kFast, 1 + i % 3);
    EXPECT_EQ(alone.axes, nullptr);
    EXPECT_EQ(alone.rows, 1);  // what the model says they are
    EXPECT_EQ(alone.load(), kMaxRows);
    if (i + 1 < Specialisations::kWorthwhile) Wait();
  }
  Wait();
  const ValidatedRequest placed = Place(kFast, 3);
  ASSERT_NE(placed.axes, nullptr);
  EXPECT_EQ(placed.rows, 3);
  EXPECT_EQ(placed.load(), 3);
  EXPECT_EQ(placed.axes->inputs, (std::vector<int>{0, 1, -1}));
  EXPECT_EQ(placed.axes->outputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(Place(kFast).key, placed.key);
  EXPECT_NE(Place(kSlow).key, placed.key);
  EXPECT_EQ(Place(kFast, kMaxRows).axes, placed.axes);
  EXPECT_EQ(Place(kFast, kMaxRows + 1).axes, nullptr);
  EXPECT_EQ(Place(kFast, 0).axes, nullptr);
}

TEST_F(SpecialisationsTest, TheMostRecentlyUsedFormsAreKept) {
  Use(Branching());
  for (int64_t rate = 1; rate <= Specialisations::kMaxKept; ++rate) ASSERT_TRUE(Make(rate)) << rate;
  EXPECT_NE(Place(1).axes, nullptr);
  const ValidatedRequest held = Place(2);  // keeps the one that it has
  for (int64_t rate = 3; rate <= Specialisations::kMaxKept; ++rate) Place(rate);
  Place(1);
  ASSERT_TRUE(Make(100));
  EXPECT_EQ(Place(2).axes, nullptr);
  EXPECT_NE(held.axes, nullptr);
  EXPECT_NE(Place(1).axes, nullptr);
  EXPECT_NE(Place(100).axes, nullptr);
  for (int64_t rate = 3; rate <= Specialisations::kMaxKept; ++rate)
    EXPECT_NE(Place(rate).axes, nullptr);
  EXPECT_TRUE(Make(2));  // comes back where it is asked for as often again
}

TEST_F(SpecialisationsTest, ClassesThatSeldomComeAreForgotten) {
  Use(Branching());
  for (int i = 0; i + 1 < Specialisations::kWorthwhile; ++i) Place(kSlow);
  for (size_t i = 0; i < Specialisations::kMaxClasses; ++i) Place(100 + static_cast<int64_t>(i));
  Place(kSlow);
  Wait();
  EXPECT_EQ(Place(kSlow).axes, nullptr);
  EXPECT_TRUE(Make(kSlow));
}

TEST_F(SpecialisationsTest, FormsAreMadeForAPartOfTheTimeOnly) {
  Use(Branching());
  for (int64_t rate = 1; rate <= 2; ++rate) {
    for (int i = 0; i + 1 < Specialisations::kWorthwhile; ++i) Place(rate);
  }
  Place(1);
  Wait();
  ASSERT_NE(Place(1).axes, nullptr);
  int requests = 0;
  while (Place(2).axes == nullptr) {
    Wait();
    ASSERT_LT(++requests, 100);
  }
  EXPECT_EQ(requests, Specialisations::kRest);
}

TEST_F(SpecialisationsTest, WhatMixesRowsHasNoForm) {
  Use(Mixing());
  EXPECT_THAT(specialisations_->Refusals(), IsEmpty());
  const CapturedLog log;
  EXPECT_FALSE(Make(kSlow));
  EXPECT_TRUE(Make(kFast));
  // Told once, with the class and the reason.
  for (int i = 0; i < 4 * Specialisations::kWorthwhile; ++i) Place(kSlow);
  Wait();
  const auto refusal = AllOf(
      HasSubstr("requests with 'x' [rows, 3], 'state' [2, rows, 4], 'rate' 8000 run one by one"),
      HasSubstr("CumSum"));
  EXPECT_THAT(specialisations_->Refusals(), ElementsAre(refusal));
  EXPECT_THAT(log.Lines(), ElementsAre(AllOf(HasSubstr("m version 1: "), refusal)));
}

TEST_F(SpecialisationsTest, OnlyTheLatestRefusalsAreRemembered) {
  Use(Mixing());
  for (int64_t rate = 1; rate <= 12; ++rate) EXPECT_FALSE(Make(rate)) << rate;
  const std::vector<std::string> refusals = specialisations_->Refusals();
  ASSERT_THAT(refusals, SizeIs(Specialisations::kMaxRefusals));
  EXPECT_THAT(refusals.front(), HasSubstr("'rate' 5 "));
  EXPECT_THAT(refusals.back(), HasSubstr("'rate' 12 "));
}

TEST_F(SpecialisationsTest, InputsMustBringRowsOrBeSingleNumbers) {
  const auto may_help = [](const ModelBuilder& model) {
    const auto imported = model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    return imported.ok() && Specialisations::MayHelp(imported->graph);
  };
  const auto with = [](const std::vector<testing::DeclaredDim>& shape) {
    ModelBuilder m(17);
    m.Input("x", kFloat, {"", 3}).Input("more", kFloat, shape).Output("y", kFloat);
    m.Node("Add", {"x", "more"}, {"y"});
    return m;
  };
  EXPECT_TRUE(may_help(with({})));
  EXPECT_TRUE(may_help(with({1})));
  EXPECT_TRUE(may_help(with({"", 3})));
  EXPECT_FALSE(may_help(with({3})));
  EXPECT_FALSE(may_help(testing::FixedModel()));
}

}  // namespace specialisations_test
}  // namespace chairlift
