// Unfold functions out of shared libraries: the example, and libraries that are wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "chairlift/engine.h"
#include "chairlift/unfold.h"
#include "engine/cell_models.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

// tanh(left · w + right): left and right [batch, 4].
testing::ModelBuilder PairCell() {
  testing::ModelBuilder m(17);
  m.Input("left", testing::kFloat, {"batch", 4})
      .Input("right", testing::kFloat, {"batch", 4})
      .Output("both", testing::kFloat, {"batch", 4});
  testing::RandomWeights(m, "w", {4, 4}, 3);
  m.Node("MatMul", {"left", "w"}, {"turned"});
  m.Node("Add", {"turned", "right"}, {"sum"});
  m.Node("Tanh", {"sum"}, {"both"});
  return m;
}

std::string Yaml(const std::string& plugin, const std::string& more = "") {
  return "cells: {pair: {}}\nunfold:\n  plugin: " + plugin +
         "\n  inputs: {x: {type: float32, shape: [length, 4]}}\n"
         "  outputs: {y: {type: float32, shape: [1, 4]}}\n" +
         more;
}

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(folder_ / "m/1/pair.onnx", PairCell().Bytes());
    auto engine = Engine::Create({.workers = 2, .autotune = false, .allow_plugins = true});
    ASSERT_TRUE(engine.ok());
    engine_ = *std::move(engine);
  }
  Status Load(const std::string& yaml) {
    WriteFile(folder_ / "m/model.yaml", yaml);
    return engine_->LoadModel("m", folder_ / "m/1", {});
  }
  std::string Refusal(const std::string& yaml) {
    const Status status = Load(yaml);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }
  StatusOr<InferResponse> Ask(const Tensor& x) {
    return engine_->Infer({.model = "m", .inputs = {{"x", x}}});
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(PluginTest, TheExampleFoldsInPairs) {
  fs::copy_file(CHAIRLIFT_PAIRWISE_PLUGIN, folder_ / "m/libpairwise.so");
  const fs::path example = CHAIRLIFT_EXAMPLES "/plugin/model.yaml";
  fs::copy_file(example, folder_ / "m/model.yaml");
  const Status loaded = engine_->LoadModel("m", folder_ / "m/1", {});
  ASSERT_TRUE(loaded.ok()) << loaded;
  testing::PlainCell pair(PairCell());
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int64_t length : {2, 3, 5, 8, 21}) {
    Tensor x = Tensor::Allocate(DType::kFloat, {length, 4});
    for (int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] = normal(random);
    std::vector<Tensor> rows;
    for (int64_t row = 0; row < length; ++row) rows.push_back(x.Rows(row, 1).Clone());
    while (rows.size() > 1) {
      std::vector<Tensor> folded;
      for (size_t i = 0; i < rows.size(); i += 2) {
        folded.push_back(i + 1 < rows.size() ? pair({rows[i], rows[i + 1]})[0] : rows[i]);
      }
      rows = folded;
    }
    const auto answer = Ask(x);
    ASSERT_TRUE(answer.ok()) << answer.status();
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(answer->outputs[0].tensor.data<float>()[i], rows[0].data<float>()[i], 1e-6);
    }
  }
  const Status alone = Ask(Tensor::Allocate(DType::kFloat, {1, 4})).status();
  EXPECT_THAT(std::string(alone.message()), HasSubstr("at least two rows"));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(Tensor::Allocate(DType::kFloat, {2, 5})).status()));
}

// Runs the cell once, on the first row and the last.
class FirstAndLast : public Unfolder {
 public:
  Status Unfold(std::span<const Tensor> inputs, CellGraphBuilder& graph) override {
    const int x = graph.AddTensor(inputs[0]);
    const RowSource sources[] = {RowSource::OfTensor(x),
                                 RowSource::OfTensor(x, inputs[0].shape()[0] - 1)};
    const NodeId pair = graph.AddNode(0, sources);
    const int answer = graph.AddBuffer(DType::kFloat, {1, 4});
    graph.Deliver(pair, 0, 0, 1, {.tensor = answer});
    graph.SetAnswer(0, answer);
    return absl::OkStatus();
  }
};

TEST_F(PluginTest, AFunctionOfTheProgramTakesThePlaceOfALibrary) {
  engine_ = *Engine::Create({.workers = 1, .autotune = false});  // no plugins are allowed
  WriteFile(folder_ / "m/model.yaml", Yaml("no_library"));
  ModelConfig config;
  config.unfold = [](const UnfoldPlugin::Model& model) -> StatusOr<UnfolderFactory> {
    EXPECT_EQ(model.cells[0], "pair");
    EXPECT_EQ(model.outputs[0], "y");
    const UnfoldPlugin::CellPorts& ports = model.ports[0];
    EXPECT_EQ(ports.inputs[1].name, "right");
    EXPECT_EQ(ports.outputs[0].dtype, DType::kFloat);
    EXPECT_EQ(ports.outputs[0].row, std::vector<int64_t>{4});
    return [] { return std::make_unique<FirstAndLast>(); };
  };
  const Status loaded = engine_->LoadModel("m", folder_ / "m/1", config);
  ASSERT_TRUE(loaded.ok()) << loaded;
  testing::PlainCell pair(PairCell());
  const Tensor x = Tensor::Of<float>({3, 4}, {1, 2, 3, 4, 9, 9, 9, 9, -1, 0, 1, 2});
  const auto answer = Ask(x);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const Tensor expected = pair({x.Rows(0, 1).Clone(), x.Rows(2, 1).Clone()})[0];
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(answer->outputs[0].tensor.data<float>()[i], expected.data<float>()[i], 1e-6);
  }
}

TEST_F(PluginTest, ALibraryOutsideOfTheModelsFolderIsRefused) {
  EXPECT_THAT(Refusal(Yaml(CHAIRLIFT_PAIRWISE_PLUGIN)), HasSubstr("not the name of a file"));
  fs::copy_file(CHAIRLIFT_PAIRWISE_PLUGIN, folder_ / "outside.so");
  EXPECT_THAT(Refusal(Yaml("../outside.so")), HasSubstr("not the name of a file"));
  fs::create_symlink(folder_ / "outside.so", folder_ / "m/link.so");
  EXPECT_THAT(Refusal(Yaml("link.so")), HasSubstr("leads out of the model's folder"));
  fs::create_directory_symlink(folder_.string(), folder_ / "m/up");
  EXPECT_THAT(Refusal(Yaml("up/outside.so")), HasSubstr("leads out of the model's folder"));
  EXPECT_THAT(Refusal(Yaml("gone.so")), HasSubstr("no file 'gone.so'"));
}

TEST_F(PluginTest, WithoutLeaveNothingOfAPluginIsOpened) {
  engine_ = *Engine::Create({.workers = 1, .autotune = false});
  WriteFile(folder_ / "m/text.so", "opening this would say that it cannot be loaded");
  EXPECT_THAT(Refusal(Yaml("text.so")),
              AllOf(HasSubstr("'text.so'"), HasSubstr("--allow-plugins")));
}

TEST_F(PluginTest, LibrariesThatAreNoPluginsAreRefused) {
  WriteFile(folder_ / "m/text.so", "this is no library");
  EXPECT_THAT(Refusal(Yaml("text.so")), AllOf(HasSubstr("text.so"), HasSubstr("cannot be loaded")));
  fs::copy_file(CHAIRLIFT_NO_PLUGIN, folder_ / "m/none.so");
  EXPECT_THAT(Refusal(Yaml("none.so")),
              HasSubstr("it is not a plugin of this kind (CHAIRLIFT_UNFOLD_PLUGIN)"));
  fs::copy_file(CHAIRLIFT_OTHER_PLUGIN, folder_ / "m/other.so");
  EXPECT_THAT(
      Refusal(Yaml("other.so")),
      HasSubstr(fmt::format("built for version {} of the interface", UnfoldPlugin::kAbi + 1)));
}

TEST_F(PluginTest, WhatAPluginThrowsFailsItsRequestAlone) {
  fs::copy_file(CHAIRLIFT_THROWING_PLUGIN, folder_ / "m/throwing.so");
  EXPECT_THAT(Refusal(Yaml("throwing.so", "  options: {refuse: \"yes\"}\n")),
              HasSubstr("it refused on purpose"));
  const Status loaded = Load(Yaml("throwing.so"));
  ASSERT_TRUE(loaded.ok()) << loaded;
  for (int i = 0; i < 2; ++i) {
    const Status status = Ask(Tensor::Allocate(DType::kFloat, {3, 4})).status();
    EXPECT_TRUE(absl::IsInternal(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("it threw on purpose"));
  }
}

}  // namespace
}  // namespace chairlift
