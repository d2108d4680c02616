// A model.yaml that names cells: what it may say, and what is refused, by name.
#include "engine/programs/cells/cell_manifest.h"

#include <gmock/gmock.h>

#include "base/status.h"
#include "chairlift/engine.h"
#include "engine/cell_models.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

constexpr const char* kChain = R"(
cells:
  step: {file: step.onnx}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    states:
      - {input: h, output: h_next}
      - {input: c, output: c_next}
    outputs: [{output: h_next}]
)";

std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

StatusOr<std::optional<CellManifest>> Parse(const std::string& yaml) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(yaml));
  return ReadCellManifest(settings);
}

std::string Refusal(const std::string& yaml) {
  const Status status = Parse(yaml).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << yaml;
  return std::string(status.message());
}

TEST(CellManifestTest, ReadsAChain) {
  const auto manifest = Parse(kChain);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(manifest->has_value());
  const auto* chain = std::get_if<ChainUnfold>(&(*manifest)->unfold);
  ASSERT_NE(chain, nullptr);
  EXPECT_EQ(chain->steps.cell, "step");
  EXPECT_EQ(chain->steps.tokens.request, "tokens");
  ASSERT_EQ(chain->steps.states.size(), 2u);
  EXPECT_EQ(chain->outputs[0].name, "h_next");
  EXPECT_FALSE(chain->outputs[0].all);
}

TEST(CellManifestTest, AFileWithoutCellsHasNone) {
  for (const char* yaml : {"", "policy: window\n", "- 1\n"}) {
    const auto manifest = Parse(yaml);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_FALSE(manifest->has_value());
  }
}

TEST(CellManifestTest, WhatIsWrongIsRefusedByName) {
  EXPECT_THAT(Refusal("cells: {a: {}}"), HasSubstr("both `cells` and `unfold`"));
  EXPECT_THAT(Refusal("unfold: {chain: {}}"), HasSubstr("both `cells` and `unfold`"));
  EXPECT_THAT(Refusal("cells: [a]\nunfold: {chain: {}}"), HasSubstr("cells must be a map"));
  EXPECT_THAT(Refusal("cells: {a: {}}\nunfold: chain"), HasSubstr("unfold must be a map"));
  EXPECT_THAT(Refusal("cells: {a: {}}\nunfold: {}"), HasSubstr("one of chain, seq2seq, tree"));
  EXPECT_THAT(Refusal("cells: {a: {}}\nunfold: {list: {}}"),
              HasSubstr("no setting 'list' in unfold"));
  EXPECT_THAT(Refusal("cells: {a: {}, a: {}}\nunfold: {chain: {}}"),
              HasSubstr("cells.a is given twice"));
  EXPECT_THAT(Refusal("cells: {a: {}}\nunfold: {chain: {}}"),
              HasSubstr("unfold.chain.cell is missing"));
  EXPECT_THAT(
      Refusal(With(kChain, "input: h,", "inptu: h,")),
      AllOf(HasSubstr("line 9: there is no setting 'inptu' in unfold.chain.states[0]; did you mean "
                      "'input'?"),
            HasSubstr("initial")));
  EXPECT_THAT(Refusal(With(kChain, "[{output: h_next}]", "[{output: h_next, at: first}]")),
              HasSubstr("outputs[0].at is 'first'; it must be 'last_step' or 'every_step'"));
  EXPECT_THAT(Refusal(With(kChain, "[{output: h_next}]", "[]")), HasSubstr("must be a list"));
  EXPECT_THAT(Refusal(With(kChain, "cell: step", "cell: [step]")),
              HasSubstr("unfold.chain.cell must be a name"));
  EXPECT_THAT(
      Refusal(With(kChain, "step.onnx}", "step.onnx, max_batch_size: 0}")),
      HasSubstr("cells.step.max_batch_size is '0'; it must be a number of rows, 1 to 65536"));
  EXPECT_THAT(Refusal(With(kChain, "step.onnx}", "step.onnx, priority: high}")),
              HasSubstr("cells.step.priority is 'high'; it must be a whole number"));
}

// The same, of cells that exist.
class CellManifestLoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(folder_ / "m/1/step.onnx", testing::EncoderCell().Bytes());
    WriteFile(folder_ / "m/1/classes.onnx", testing::ClassesCell().Bytes());
    WriteFile(folder_ / "m/1/mixing.onnx", testing::MixingCell().Bytes());
    WriteFile(folder_ / "outside.onnx", testing::EncoderCell().Bytes());
    EngineOptions options;
    options.workers = 1;
    options.autotune = false;
    auto engine = Engine::Create(options);
    ASSERT_TRUE(engine.ok());
    engine_ = *std::move(engine);
  }
  Status Load(const std::string& yaml) {
    WriteFile(folder_ / "m/model.yaml", yaml);
    return engine_->LoadModel("m", folder_ / "m/1", {});
  }
  std::string LoadRefusal(const std::string& yaml) {
    const Status status = Load(yaml);
    EXPECT_FALSE(status.ok()) << yaml;
    return std::string(status.message());
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(CellManifestLoadTest, AVersionsFolderLoadsByItself) {
  const Status loaded = Load(kChain);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto answer = engine_->Infer(
      {.model = "m", .inputs = {{"tokens", Tensor::Of<int64_t>(Shape{1, 2}, {1, 2})}}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->outputs[0].tensor.shape(), (Shape{1, testing::kHidden}));
}

TEST_F(CellManifestLoadTest, NamesThatTheCellsDoNotHave) {
  EXPECT_THAT(LoadRefusal(With(kChain, "cell: step", "cell: stop")),
              AllOf(HasSubstr("no cell 'stop'"), HasSubstr("'step'")));
  EXPECT_THAT(LoadRefusal(With(kChain, "input: token", "input: word")),
              AllOf(HasSubstr("cell 'step' has no input 'word'"), HasSubstr("'token'")));
  EXPECT_THAT(LoadRefusal(With(kChain, "output: c_next", "output: c_last")),
              AllOf(HasSubstr("no output 'c_last'"), HasSubstr("'c_next'")));
  EXPECT_THAT(LoadRefusal(With(kChain, "      - {input: c, output: c_next}\n", "")),
              HasSubstr("nothing feeds input 'c' of cell 'step'"));
  EXPECT_THAT(LoadRefusal(With(kChain, "{input: c,", "{input: h,")),
              HasSubstr("'h' of cell 'step' is fed twice"));
  EXPECT_THAT(LoadRefusal(With(kChain, "{input: h, output: h_next}",
                               "{input: h, output: h_next, initial: tokens}")),
              HasSubstr("two inputs 'tokens'"));
  EXPECT_THAT(
      LoadRefusal(With(kChain, "[{output: h_next}]", "[{output: h_next}, {output: h_next}]")),
      HasSubstr("two outputs 'h_next'"));
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx}", "step.onnx}\n  classes: {}")),
              HasSubstr("cell 'classes' is not used"));
  EXPECT_THAT(LoadRefusal(With(kChain, "input: h, output: h_next", "input: token, output: h_next")),
              HasSubstr("fed twice"));
  const std::string with_head = With(kChain, "step.onnx}", "step.onnx}\n  classes: {}") +
                                "    head: {cell: classes, inputs: {state: c_next}, "
                                "outputs: [{output: logits}]}\n";
  EXPECT_TRUE(Load(with_head).ok());
  EXPECT_THAT(LoadRefusal(With(with_head, "state: c_next", "state: logits")),
              HasSubstr("cell 'step' has no output 'logits'"));
  const Status whole = engine_->LoadModel("m", folder_ / "m/1", {.policy = "window"});
  EXPECT_THAT(std::string(whole.message()),
              HasSubstr("policy 'window' cannot serve a model made of cells"));
}

TEST_F(CellManifestLoadTest, ACellThatMixesRowsIsRefusedWithTheReason) {
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx", "mixing.onnx")),
              AllOf(HasSubstr("cell 'step' (mixing.onnx)"), HasSubstr("cannot share a batch")));
}

TEST_F(CellManifestLoadTest, ACellsFileMayBeALinkIntoACache) {
  std::filesystem::rename(folder_ / "m/1/step.onnx", folder_ / "blob");
  std::filesystem::create_symlink(folder_ / "blob", folder_ / "m/1/link.onnx");
  const Status loaded = Load(With(kChain, "step.onnx", "link.onnx"));
  EXPECT_TRUE(loaded.ok()) << loaded;
}

TEST_F(CellManifestLoadTest, FilesOutsideOfTheVersionsFolderAreRefused) {
  std::filesystem::create_directory_symlink(folder_.string(), folder_ / "m/1/up");
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx", "up/outside.onnx")), HasSubstr("leads out of"));
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx", "../../outside.onnx")),
              HasSubstr("not the name of a file in the model's folder"));
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx", (folder_ / "outside.onnx").string())),
              HasSubstr("not the name of a file in the model's folder"));
  EXPECT_THAT(LoadRefusal(With(kChain, "step.onnx", "gone.onnx")),
              AllOf(HasSubstr("cell 'step'"), HasSubstr("no file 'gone.onnx'")));
}

TEST_F(CellManifestLoadTest, AFolderWithoutAManifestIsRefused) {
  WriteFile(folder_ / "m/model.yaml", "policy: none\n");
  const Status status = engine_->LoadModel("m", folder_ / "m/1", {});
  EXPECT_THAT(std::string(status.message()), HasSubstr("without a model.yaml that names cells"));
}

}  // namespace
}  // namespace chairlift
