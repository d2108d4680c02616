// inspect, run and profile of models made of cells.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command_fixture.h"
#include "engine/cell_models.h"
#include "engine/recurrent_models.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CellsCommandTest : public CommandFixture {
 protected:
  void SetUp() override {
    File("models/chain/model.yaml", R"(
cells: {step: {}, classes: {max_batch_size: 16}}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    lengths: lengths
    states: [{input: h, output: h_next, initial: h0}, {input: c, output: c_next}]
    outputs: [{name: states, output: h_next, at: every_step}]
    head: {cell: classes, inputs: {state: h_next}, outputs: [{output: logits}]}
)");
    File("models/chain/1/step.onnx", testing::EncoderCell().Bytes());
    File("models/chain/1/classes.onnx", testing::ClassesCell().Bytes());
    File("models/chain/2/step.onnx", testing::EncoderCell().Bytes());
    File("models/chain/2/classes.onnx", testing::ClassesCell().Bytes());
    File("models/speaker/model.yaml", R"(
cells: {encoder: {file: e.onnx}, decoder: {}}
)" CHAIRLIFT_SEQ2SEQ_YAML R"(    go: 1
    eos: 2
    extra_length: 10
)");
    File("models/speaker/1/e.onnx", testing::EncoderCell().Bytes());
    File("models/speaker/1/decoder.onnx", testing::DecoderCell().Bytes());
    File("models/tree/model.yaml", R"(
cells: {leaf: {}, internal: {}}
unfold:
  tree:
    leaf: leaf
    internal: internal
    tokens: {input: token, request: tokens}
    states:
      h: {leaf: h, internal: h, left: h_left, right: h_right}
      c: {leaf: c, internal: c, left: c_left, right: c_right}
    outputs: [{name: top, state: h}]
)");
    File("models/tree/1/leaf.onnx", testing::LeafCell().Bytes());
    File("models/tree/1/internal.onnx", testing::InternalCell().Bytes());
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(CellsCommandTest, InspectShowsTheCellsAndWhatFeedsWhat) {
  const std::string dot = Path("cells.dot"), svg = Path("cells.svg");
  const Outcome shown = Run({"inspect", Path("models/chain"), "--dot", dot, "--svg", svg});
  ASSERT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(
      shown.output,
      AllOf(HasSubstr("chain/2: made of 2 cells, unfolded by chain"), HasSubstr("step.onnx"),
            HasSubstr("token int64[]"), HasSubstr("h float32[12]"), HasSubstr("logits float32[3]"),
            HasSubstr("tokens → step: token"), HasSubstr("h0 → step: h"),
            HasSubstr("step → itself: h_next → h, c_next → c"),
            HasSubstr("step → classes: h_next → state"), HasSubstr("classes → logits: logits"),
            HasSubstr("kernels of operators that have several, in cell classes with 16 rows:"),
            HasSubstr("MatMul: packed panels; node '")));
  EXPECT_THAT(shown.output,
              ContainsRegex("cell step: batches of [0-9]+ to [0-9]+ rows.*, .* at 1"));
  EXPECT_THAT(shown.output, ContainsRegex("cell classes: batches of [0-9]+ to 16 rows"));
  EXPECT_THAT(Read(dot), AllOf(HasSubstr("digraph"), HasSubstr("classes"), HasSubstr("dashed")));
  EXPECT_THAT(Read(svg), AllOf(HasSubstr("<svg"), HasSubstr("classes"), HasSubstr("tokens")));
  // One version's folder, and a slash at the end.
  EXPECT_THAT(Run({"inspect", Path("models/chain/1") + "/"}).output,
              HasSubstr("chain/1: made of 2 cells"));
}

TEST_F(CellsCommandTest, InspectKnowsEveryUnfolder) {
  EXPECT_THAT(Run({"inspect", Path("models/speaker")}).output,
              AllOf(HasSubstr("unfolded by seq2seq"), HasSubstr("e.onnx"),
                    HasSubstr("encoder → decoder: h_next → h"),
                    HasSubstr("decoder → itself: next → token, h_next → h, c_next → c"),
                    HasSubstr("decoder → tokens: next"), HasSubstr("decoder → lengths")));
  EXPECT_THAT(Run({"inspect", Path("models/tree")}).output,
              AllOf(HasSubstr("unfolded by tree"), HasSubstr("children → internal"),
                    HasSubstr("leaf → internal: h → h_left, h_right"),
                    HasSubstr("internal → itself: h → h_left, h_right; c → c_left, c_right"),
                    HasSubstr("leaf → top"), HasSubstr("internal → top")));
}

TEST_F(CellsCommandTest, InspectShowsWhatPassesDidToEachCell) {
  const Outcome shown = Run({"inspect", Path("models/tree"), "--passes"});
  EXPECT_THAT(shown.output, AllOf(HasSubstr("cell leaf:"), HasSubstr("cell internal:"),
                                  HasSubstr("fold_constants")));
}

TEST_F(CellsCommandTest, RunAnswersThroughTheUnfolder) {
  ASSERT_TRUE(WriteNpy(Path("s.npy"), Tensor::Of<int64_t>(Shape{2, 3}, {3, 4, 5, 6, 7, 8})).ok());
  const Outcome done = Run({"run", Path("models/speaker"), "--input", "source=" + Path("s.npy"),
                            "--output-dir", Path("out")});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, AllOf(HasSubstr("tokens"), HasSubstr("lengths"), HasSubstr("[2]")));
  const auto lengths = ReadNpy(Path("out/lengths.npy"));
  ASSERT_TRUE(lengths.ok());
  EXPECT_EQ(lengths->shape(), (Shape{2}));
  EXPECT_THAT(Refusal({"run", Path("models/speaker")}, 1), HasSubstr("input 'source' is missing"));
}

TEST_F(CellsCommandTest, ProfileTimesEachCell) {
  const std::vector<std::string> quick = {"profile",
                                          Path("models/chain"),
                                          "--batch-sizes",
                                          "1,3",
                                          "--seconds-per-point",
                                          "0",
                                          "--workers",
                                          "2"};
  const Outcome first = Run(quick);
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(HasSubstr("b=3"), HasSubstr("step"), HasSubstr("classes"),
                                  ContainsRegex("[0-9]+/s")));
  const std::string csv = Path("costs.csv");
  std::vector<std::string> with_csv = quick;
  with_csv.insert(with_csv.end(), {"--csv", csv});
  ASSERT_EQ(Run(with_csv).code, 0);
  EXPECT_THAT(Read(csv), AllOf(ContainsRegex("\nstep,1,0,[0-9.]+\n"), HasSubstr("\nstep,3,0,"),
                               HasSubstr("\nclasses,3,0,")));
  EXPECT_EQ(
      Run({"simulate", "--costs", csv, "--fixed-length", "4", "--rate", "10", "--requests", "50"})
          .code,
      0);
  // What was kept is shown as it was.
  EXPECT_EQ(Run(quick).output, first.output);
}

TEST_F(CellsCommandTest, ProfileOfACutModelTimesItsCellsToo) {
  const std::string tagger = File("tagger.onnx", testing::Tagger().Bytes());
  const Outcome done =
      Run({"profile", tagger, "--batch-sizes", "2", "--lengths", "4", "--seconds-per-point", "0"});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, AllOf(HasSubstr("time of a batch (rows a second)"),
                                 HasSubstr("time of a batch, while all"), HasSubstr("forward")));
}

TEST_F(CellsCommandTest, AFolderOfAnotherKindIsToldFromAModel) {
  EXPECT_THAT(Refusal({"inspect", Path("models")}, 1),
              AllOf(HasSubstr("is a folder of models"), HasSubstr("chain, speaker, tree")));
  EXPECT_THAT(Refusal({"run", Path("models/chain/model.yaml")}, 1),
              HasSubstr("name the folder it is in"));
  EXPECT_THAT(Refusal({"inspect", Path("nothing")}, 2),
              AllOf(HasSubstr("no file or folder"), Not(HasSubstr("did you mean"))));
  File("empty/model.yaml", "policy: none\n");
  EXPECT_THAT(Refusal({"inspect", Path("empty")}, 1),
              AllOf(HasSubstr("has no version"), HasSubstr("model.onnx")));
  File("bare/readme", "nothing");
  EXPECT_THAT(Refusal({"profile", Path("bare")}, 1), HasSubstr("is not a model's folder"));
  File("alone/decoder_with_past_model.onnx", "");
  EXPECT_THAT(Refusal({"inspect", Path("alone")}, 1),
              AllOf(HasSubstr("encoder_model.onnx beside decoder_model.onnx"),
                    HasSubstr("/decoder_with_past_model.onnx")));
  File("wrong/model.yaml", "cell: {}\n");
  EXPECT_THAT(Refusal({"inspect", Path("wrong")}, 1), HasSubstr("no setting 'cell'"));
}

TEST_F(CellsCommandTest, AFolderOfAWholeModelHasItsSettings) {
  File("tagger/model.yaml", "max_batch_size: 5\n");
  File("tagger/3/model.onnx", testing::Tagger().Bytes());
  EXPECT_THAT(Run({"inspect", Path("tagger")}).output,
              AllOf(HasSubstr("tagger/3/model.onnx: opset"), HasSubstr("to 5 rows")));
}

TEST_F(CellsCommandTest, InspectTellsWhatAFoldedEmbeddingTakes) {
  const std::string file = File("tokens.onnx", testing::TokenClassifier().Bytes());
  const std::string note = "1408 bytes in place of 264";
  EXPECT_THAT(Run({"inspect", file}).output, Not(HasSubstr(note)));
  EXPECT_THAT(Run({"inspect", file, "--max-folded-embedding-bytes", "2000"}).output,
              HasSubstr(note));
}

TEST_F(CellsCommandTest, ALoadTellsATerminalWhatItIsAt) {
  const std::string model = File("tagger.onnx", testing::Tagger().Bytes());
  const Outcome seen = Run({"inspect", model}, Process::Output::kTerminal);
  ASSERT_EQ(seen.code, 0) << seen.output;
  EXPECT_THAT(seen.output, HasSubstr("\r\x1b[Ktagger: compiling ..."));
  EXPECT_THAT(seen.output, HasSubstr("\r\x1b[Ktagger: timing batches ..."));
  EXPECT_THAT(seen.output, HasSubstr("\r\x1b[K" + model + ": opset"));  // the line is gone
  std::filesystem::remove_all(folder_ / "cache");
  const Outcome logged = Run({"inspect", model});
  EXPECT_THAT(logged.output, AllOf(HasSubstr("diagnosis:"), Not(HasSubstr("timing batches"))));
  EXPECT_THAT(logged.output, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace chairlift
