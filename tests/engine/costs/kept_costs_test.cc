// What batches cost is timed when a model is first loaded, learnt while it serves, and there at the
// next load.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "chairlift/engine.h"
#include "engine/test_models.h"
#include "runtime/cost_table.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

using Costs = std::map<std::pair<int64_t, int64_t>, std::chrono::nanoseconds>;

const ModelConfig kTrusting = {.policy = "length_dp", .padding_mask = "attention_mask"};

class KeptCostsTest : public ::testing::Test {
 protected:
  KeptCostsTest() {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    testing::ModelBuilder m(17);
    m.Input("ids", testing::kInt64, {"batch", "length"});
    m.Input("attention_mask", testing::kInt64, {"batch", "length"});
    m.Output("y", testing::kFloat, {"batch"});
    m.Node("Mul", {"ids", "attention_mask"}, {"counted"});
    m.Node("Cast", {"counted"}, {"numbers"}).Int("to", 1);
    m.Node("ReduceL1", {"numbers"}, {"y"}).Ints("axes", {1}).Int("keepdims", 0);
    file_ = testing::WriteFile(folder_ / "model.onnx", m.Bytes());
  }
  ~KeptCostsTest() override {
    before_ ? setenv("XDG_CACHE_HOME", before_->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
  }

  // On one worker: what several take together is not learnt.
  std::unique_ptr<Engine> Load() {
    auto engine = Engine::Create({.workers = 1});
    EXPECT_TRUE(engine.ok()) << engine.status();
    const Status loaded = (*engine)->LoadModel("model", file_, kTrusting);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return *std::move(engine);
  }
  static void Ask(Engine& engine) {
    const std::vector<int64_t> ones(20, 1);
    const auto answer =
        engine.Infer({.model = "model",
                      .inputs = {{"ids", Tensor::Of<int64_t>({1, 20}, ones)},
                                 {"attention_mask", Tensor::Of<int64_t>({1, 20}, ones)}}});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->outputs[0].tensor.data<float>()[0], 20.0f);
  }
  // Where they are kept; there is one model.
  fs::path Table() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/chairlift")) {
      if (entry.path().extension() == ".costs") return entry.path();
    }
    return {};
  }
  Costs Kept() const {
    const auto table = CostTable::Load(Table());
    EXPECT_TRUE(table.ok()) << table.status();
    return table.ok() ? table->costs() : Costs();
  }

  testing::TempFolder folder_;
  std::optional<std::string> before_;
  std::string file_;
};

TEST_F(KeptCostsTest, WhatIsLearntIsKeptWhenTheEngineStops) {
  std::unique_ptr<Engine> engine = Load();
  const Costs measured = Kept();
  EXPECT_FALSE(measured.empty());
  for (int i = 0; i < 20; ++i) Ask(*engine);
  EXPECT_EQ(Kept(), measured);
  engine.reset();
  const Costs learnt = Kept();
  EXPECT_NE(learnt, measured);
  engine = Load();
  engine.reset();
  EXPECT_EQ(Kept(), learnt) << "nothing new was learnt, nor was it measured again";
}

TEST_F(KeptCostsTest, WhatIsLearntIsKeptWhenTheModelIsUnloaded) {
  const std::unique_ptr<Engine> engine = Load();
  const Costs measured = Kept();
  for (int i = 0; i < 20; ++i) Ask(*engine);
  ASSERT_TRUE(engine->UnloadModel("model", "").ok());
  // Its last job may still hold it.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Kept() == measured && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_NE(Kept(), measured);
}

TEST_F(KeptCostsTest, ADamagedTableIsMeasuredAnew) {
  Load();
  EXPECT_FALSE(Kept().empty());
  fs::resize_file(Table(), fs::file_size(Table()) / 2);
  EXPECT_FALSE(CostTable::Load(Table()).ok());
  Load();
  EXPECT_FALSE(Kept().empty());  // how many sizes there was time for may differ
}

TEST_F(KeptCostsTest, WhateverLiesInPlaceOfATableItServesAllTheSame) {
  Load();
  const fs::path table = Table();
  const std::string content = [&] {
    std::ifstream file(table);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  }();
  const std::map<const char*, std::function<void()>> others = {
      {"a pipe", [&] { ASSERT_EQ(::mkfifo(table.c_str(), 0600), 0); }},
      {"a folder", [&] { fs::create_directory(table); }},
      {"a huge file",
       [&] {
         std::ofstream(table) << content;
         fs::resize_file(table, uintmax_t{1} << 40);
       }},
      {"a link", [&] { fs::create_symlink("/dev/zero", table); }},
      {"costs of more sizes than are measured",
       [&] {
         CostTable many(CostTable::Load(table)->key());
         for (int i = 1; i <= 1000; ++i) many.Set(i, i, std::chrono::nanoseconds(i));
         ASSERT_TRUE(many.Save(table).ok());
       }},
  };
  for (const auto& [what, put] : others) {
    SCOPED_TRACE(what);
    if (std::string(what).find("costs") == std::string::npos) fs::remove(table);
    put();
    const std::unique_ptr<Engine> engine = Load();
    Ask(*engine);
    if (fs::is_directory(table)) {
      fs::remove(table);
      testing::WriteFile(table, content);
    }
    EXPECT_LT(CostTable::Load(table)->costs().size(), 1000U);
  }
}

TEST_F(KeptCostsTest, WhereNothingCanBeWrittenItServesAllTheSame) {
  testing::WriteFile(folder_ / "cache", "no folder");
  const std::unique_ptr<Engine> engine = Load();
  Ask(*engine);
  EXPECT_TRUE(engine->UnloadModel("model", "").ok());
}

TEST_F(KeptCostsTest, TokensAreTimedAlsoWhereTheTableOfPositionsIsShortAndLearnt) {
  auto engine = Engine::Create({.workers = 1});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const fs::path encoder = fs::path(CHAIRLIFT_ENCODERS) / "bert_hf4_torchscript_eager_11.onnx";
  ASSERT_TRUE((*engine)->LoadModel("encoder", encoder.string(), {}).ok());
  const Costs measured = Kept();
  EXPECT_GT(measured.size(), 2u);

  std::vector<NamedTensor> inputs;
  const std::vector<int64_t> ones(20, 1);
  const auto metadata = (*engine)->Metadata("encoder", "");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  for (const TensorSpec& input : metadata->inputs) {
    inputs.push_back({input.name, Tensor::Of<int64_t>({1, 20}, ones)});
  }
  for (int i = 0; i < 5; ++i) {
    const auto answer = (*engine)->Infer({.model = "encoder", .inputs = inputs});
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  engine->reset();
  EXPECT_NE(Kept(), measured) << "what tokens cost is learnt, too";
}

TEST_F(KeptCostsTest, GuessesAreNotKept) {
  auto engine = Engine::Create({.workers = 1, .autotune = false});
  ASSERT_TRUE(engine.ok()) << engine.status();
  ASSERT_TRUE((*engine)->LoadModel("model", file_, kTrusting).ok());
  for (int i = 0; i < 20; ++i) Ask(**engine);
  engine->reset();
  EXPECT_FALSE(fs::exists(folder_ / "cache/chairlift"));
}

}  // namespace
}  // namespace chairlift
