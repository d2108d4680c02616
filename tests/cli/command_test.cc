// Every subcommand but serve, run as a program on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "batching/policy.h"
#include "cli/command_fixture.h"
#include "engine/recurrent_models.h"
#include "engine/test_models.h"
#include "graph/decoders/decoder_models.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CommandTest : public CommandFixture {
 protected:
  json Json(const std::string& name) { return json::parse(std::ifstream(folder_ / name)); }

  const std::string doubling_ = File("doubling.onnx", testing::DoublingModel().Bytes());
  const std::string images_ = File("images.onnx", testing::ConvModel().Bytes());
};

TEST_F(CommandTest, HelpAndVersionSucceed) {
  EXPECT_THAT(Run({"--help"}).output, AllOf(HasSubstr("serve"), HasSubstr("Examples:")));
  EXPECT_THAT(Run({"--version"}).output,
              AllOf(StartsWith("chairlift 0."), HasSubstr("compiler: "),
                    HasSubstr("instruction sets: "), HasSubstr("libraries: oneDNN ")));
  EXPECT_EQ(Run({"-V"}).output, Run({"--version"}).output);
  for (const char* command : {"serve", "run", "inspect", "profile", "bench"}) {
    const Outcome help = Run({command, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_THAT(help.output, HasSubstr("MODEL"));
  }
  const std::string serve = Run({"serve", "--help"}).output;
  for (const char* limit :
       {"--max-header-bytes BYTES", "--max-body-bytes", "--max-json-bytes", "--max-buffered-bytes",
        "--max-name-bytes", "--max-connections", "--max-json-depth", "--max-tensors", "--max-rank",
        "--max-tensor-elements", "--max-admin-requests", "--header-timeout-ms", "--body-timeout-ms",
        "--idle-timeout-ms", "--io-threads", "[256MiB]", "[30000]"}) {
    EXPECT_THAT(serve, HasSubstr(limit));
  }
}

// FILE, N or MS, not TEXT or INT; and every policy that there is.
TEST_F(CommandTest, HelpSaysWhatFlagsTake) {
  for (const char* command :
       {"serve", "run", "inspect", "profile", "bench", "simulate", "doctor"}) {
    const std::string help = Run({command, "--help"}).output;
    for (const char* type : {" TEXT", " INT", " UINT", " FLOAT", " BOOLEAN"}) {
      EXPECT_THAT(help, Not(HasSubstr(type))) << command;
    }
  }
  for (const char* command : {"bench", "simulate"}) {
    const std::string help = Run({command, "--help"}).output;
    for (const PolicyInfo& policy : KnownPolicies()) {
      EXPECT_THAT(help, HasSubstr("  " + std::string(policy.name) + " ")) << command;
    }
  }
}

TEST_F(CommandTest, WrongFlagsEndWithTwoAndAreNamed) {
  EXPECT_THAT(Refusal({}, 2), HasSubstr("chairlift --help"));
  EXPECT_THAT(Refusal({"srve"}, 2), HasSubstr("no command 'srve'; did you mean 'serve'?"));
  EXPECT_THAT(Refusal({"train"}, 2), AllOf(HasSubstr("'train'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(Refusal({"bench", doubling_, "--rats", "5"}, 2),
              AllOf(HasSubstr("no flag --rats; did you mean '--rate'?"),
                    HasSubstr("chairlift bench --help")));
  EXPECT_THAT(Refusal({"serve", doubling_, "--http_port=80"}, 2),
              HasSubstr("no flag --http_port; did you mean '--http-port'?"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--rate", "0"}, 2), HasSubstr("--rate"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--rate", "fast"}, 2), HasSubstr("fast"));
  for (const char* seed : {"-1", "1.5", "", "99999999999999999999"}) {
    EXPECT_THAT(Refusal({"bench", doubling_, "--seed", seed}, 2), HasSubstr("--seed")) << seed;
  }
  EXPECT_THAT(Refusal({"bench", doubling_, "--request-intervals", "/nowhere"}, 2),
              HasSubstr("/nowhere"));
  EXPECT_THAT(Refusal({"run"}, 2), HasSubstr("MODEL is missing"));
  EXPECT_THAT(Refusal({"run", "/nowhere"}, 2), HasSubstr("/nowhere"));
  const std::string misspelt = (folder_ / "dubling.onnx").string();
  for (const char* command : {"serve", "run", "inspect", "profile", "bench"}) {
    EXPECT_THAT(Refusal({command, misspelt}, 2), HasSubstr("did you mean '" + doubling_ + "'?"));
  }
  EXPECT_THAT(Refusal({"profile", doubling_, "--batch-sizes", "0"}, 2), HasSubstr("1 to 4096"));
  EXPECT_THAT(Refusal({"profile", doubling_, "--operators", "--json", "out", "--svg", "out"}, 2),
              HasSubstr("--json and --svg would both write out"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--max-rank", "99"}, 2), HasSubstr("1 to 64"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--max-body-bytes", "5XB"}, 2),
              HasSubstr("--max-body-bytes: '5XB' is not a number of bytes from 1, as"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--max-body-bytes", "0"}, 2), HasSubstr("from 1, as"));
  EXPECT_THAT(Refusal({"inspect", doubling_, "--max-folded-embedding-bytes", "4GX"}, 2),
              HasSubstr("'4GX' is not a number of bytes from 0"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--batch-size", "foo"}, 2),
              HasSubstr("--batch-size: 'foo' is not a number from 1 to 4096"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--cores", "a"}, 2),
              HasSubstr("--cores: 'a' is not a number"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--http-port"}, 2),
              HasSubstr("--http-port needs a value"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--port", "80"}, 2),
              HasSubstr("no flag --port; did you mean '--http-port'?"));
  EXPECT_THAT(Refusal({"inspect", doubling_, images_}, 2),
              HasSubstr("'" + images_ + "' is one argument too many"));
  EXPECT_THAT(Refusal({"serv", "--help"}, 2), HasSubstr("did you mean 'serve'?"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--connections", "2"}, 2),
              HasSubstr("--connections needs --url"));
  EXPECT_THAT(Refusal({"bench", "doubling", "--url", "http://x:1", "--policy", "none"}, 2),
              HasSubstr("--policy has no effect with --url, where the server decides"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--url", "http://x:1"}, 2), HasSubstr("try 'doubling'"));
  EXPECT_THAT(Refusal({"serve", doubling_, "--log-level", "loud"}, 2), HasSubstr("warning"));
}

TEST_F(CommandTest, ADecoderGeneratesUnlessItIsGivenItsPast) {
  const std::string decoder = File("decoder.onnx", testing::LlamaModel());
  const std::string ids = (folder_ / "ids.npy").string();
  ASSERT_TRUE(WriteNpy(ids, Tensor::Of<int64_t>({1, 3}, {5, 6, 7})).ok());
  const Outcome run = Run({"run", decoder, "--input", "input_ids=" + ids});
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output, ContainsRegex("output_ids +int64 +\\[1,16\\]"));
  const std::string past = (folder_ / "past.npy").string();
  ASSERT_TRUE(WriteNpy(past, Tensor::Allocate(DType::kFloat, {1, 2, 0, 8})).ok());
  std::vector<std::string> arguments = {"run", decoder, "--input", "input_ids=" + ids};
  const std::string ones = (folder_ / "ones.npy").string();
  ASSERT_TRUE(WriteNpy(ones, Tensor::Of<int64_t>({1, 3}, {1, 1, 1})).ok());
  for (const std::string& input :
       {"attention_mask=" + ones, "past_key_values.0.key=" + past,
        "past_key_values.0.value=" + past, "past_key_values.1.key=" + past,
        "past_key_values.1.value=" + past}) {
    arguments.insert(arguments.end(), {"--input", input});
  }
  EXPECT_THAT(Run(arguments).output, ContainsRegex("logits +float32 +\\[1,3,61\\]"));
  const std::string inspected = Run({"inspect", decoder}).output;
  EXPECT_THAT(inspected, AllOf(HasSubstr("decoder: used"), HasSubstr("a step of 16 requests"),
                               HasSubstr("each proved to see the tokens up to its own")));
}

// Other policies can be tried on a model whose model.yaml is for `staged`, and `run` runs it.
TEST_F(CommandTest, SettingsThatAnotherPolicyDoesNotUseAreDropped) {
  File("exits/1/model.onnx", testing::ExitModel().Bytes());
  File("exits/model.yaml",
       "policy: staged\nstages: 3\njoin_window_us: 5\n"
       "exits: [{output: early, at_least: 0.5, instead: {scores: early}}]\n");
  const std::string model = (folder_ / "exits").string();
  for (const char* policy : {"none", "window", "cellular"}) {
    const Outcome bench = Run({"bench", model, "--policy", policy, "--rate", "50", "--seconds",
                               "0.2", "--warmup-seconds", "0"});
    EXPECT_EQ(bench.code, 0) << policy << ": " << bench.output;
  }
  Tensor image = Tensor::Allocate(DType::kFloat, {1, 3, 16, 16});
  std::fill_n(image.data<float>(), image.size(), 0.5f);
  ASSERT_TRUE(WriteNpy(folder_ / "image.npy", image).ok());
  const Outcome run = Run({"run", model, "--input", "image=" + (folder_ / "image.npy").string()});
  EXPECT_EQ(run.code, 0) << run.output;
}

TEST_F(CommandTest, RunWritesTheOutputs) {
  Tensor x = Tensor::Allocate(DType::kFloat, {2, 4});
  for (int i = 0; i < 8; ++i) x.data<float>()[i] = static_cast<float>(i - 2);
  ASSERT_TRUE(WriteNpy(folder_ / "x.npy", x).ok());
  const std::string file = (folder_ / "x.npy").string();
  const std::string out = (folder_ / "made/out").string();
  const Outcome run = Run({"run", doubling_, "--input", "x=" + file, "--output-dir", out});
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("y"), HasSubstr("[2,4]"), HasSubstr("computed in")));
  // What came out is shown, whether or not it is kept.
  const Outcome shown = Run({"run", doubling_, "--input", "x=" + file});
  ASSERT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(shown.output, ContainsRegex("y +float32 +\\[2,4\\] +0, 0, 0, 2, 4, 6, …\n"));
  const auto y = ReadNpy(out + "/y.npy");
  ASSERT_TRUE(y.ok()) << y.status();
  ASSERT_EQ(y->size(), 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y->data<float>()[i], std::max(0, 2 * (i - 2)));

  EXPECT_THAT(Refusal({"run", doubling_}, 1),
              AllOf(HasSubstr("input 'x' is missing"), HasSubstr("; add --input x=FILE.npy")));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "z=" + file}, 1), HasSubstr("'x'"));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "x"}, 2), HasSubstr("NAME=FILE.npy"));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "x=" + file, "--output-dir", file}, 1),
              HasSubstr("cannot make the folder " + file));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "x=" + doubling_}, 1), HasSubstr(".npy"));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "x=" + folder_.string()}, 1),
              HasSubstr("--input x: " + folder_.string() + ": that is a folder; name a .npy file"));
  EXPECT_THAT(Refusal({"run", doubling_, "--input", "x=none.npy"}, 1),
              HasSubstr("none.npy: No such file or directory"));
  EXPECT_THAT(Refusal({"run", file}, 1), HasSubstr("not an ONNX model"));
}

TEST_F(CommandTest, InspectTellsSignaturePassesMemoryAndDiagnosis) {
  const Outcome plain = Run({"inspect", images_});
  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(
      plain.output,
      AllOf(HasSubstr("[batch,3,height,width]"), HasSubstr("Conv"), HasSubstr("memory"),
            HasSubstr("kernels of operators that have several (--kernels: why not others):"),
            Not(HasSubstr("(winograd: it ")), HasSubstr("diagnosis:"),
            HasSubstr("whole: used: requests of equal shape share batches\n"),
            Not(HasSubstr("fuse_conv"))));
  EXPECT_THAT(
      Run({"inspect", images_, "--kernels"}).output,
      AllOf(HasSubstr("kernels of operators that have several:"), HasSubstr("(winograd: it ")));
  const Outcome passes = Run({"inspect", images_, "--passes", "--shape", "image=2x3x32x16"});
  EXPECT_THAT(passes.output, AllOf(ContainsRegex("fuse_conv +2 "), HasSubstr("[2,3,32,16]")));
  EXPECT_THAT(Run({"inspect", images_, "--passes", "--disable-pass", "fuse_conv"}).output,
              ContainsRegex("fuse_conv +off "));
  EXPECT_THAT(Refusal({"inspect", images_, "--disable-pass", "fuse_conf"}, 2),
              HasSubstr("'fuse_conf'; did you mean 'fuse_conv'?"));
  // Nothing of a report that is not going to be whole.
  EXPECT_THAT(
      Refusal({"inspect", images_, "--shape", "picture=1x3x8x8"}, 1),
      AllOf(HasSubstr("'picture'"), HasSubstr("'image'"), Not(HasSubstr("operators, after"))));
  EXPECT_THAT(Refusal({"inspect", images_, "--shape", "image=1y3"}, 2), HasSubstr("1x3x224x224"));
  EXPECT_THAT(Refusal({"inspect", images_, "--svg", "/nowhere/x.svg"}, 1),
              AllOf(HasSubstr("/nowhere/x.svg"), Not(HasSubstr("operators, after"))));
}

// Each inner loop ends, and the outer one does not: only the time limit of the trial run ends it.
TEST_F(CommandTest, InspectStopsATrialRunThatDoesNotEnd) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 2}).Output("y", testing::kFloat);
  m.Tensor("trips", testing::kInt64, {})->add_int64_data(int64_t{1} << 62);
  m.Tensor("inner_trips", testing::kInt64, {})->add_int64_data(1000);
  const auto loop = [](testing::NodeBuilder node) {
    testing::GraphProtoBuilder body(node.Body("body"));
    body.Input("i", testing::kInt64, {}).Input("c", testing::kBool, {});
    body.Input("s", testing::kFloat, {"batch", 2});
    body.Output("c", testing::kBool).Output("t", testing::kFloat);
    return body;
  };
  auto outer = loop(m.Node("Loop", {"trips", "", "x"}, {"y"}));
  loop(outer.Node("Loop", {"inner_trips", "", "s"}, {"t"})).Node("Neg", {"s"}, {"t"});
  const Outcome inspected = Run({"inspect", File("endless.onnx", m.Bytes())});
  EXPECT_EQ(inspected.code, 0) << inspected.output;
  EXPECT_THAT(
      inspected.output,
      HasSubstr("not tried: it is not known whether the model accepts these shapes, because "
                "the trial run failed: stopped after 10 s"));
}

// Planning does not run loops, so only the trial run meets the bounds within them.
TEST_F(CommandTest, InspectSaysWhyATrialRunFailed) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 2}).Output("y", testing::kFloat);
  m.Tensor("trips", testing::kInt64, {})->add_int64_data(2);
  auto loop = m.Node("Loop", {"trips", "", "x"}, {"last", "y"});
  testing::GraphProtoBuilder body(loop.Body("body"));
  body.Input("i", testing::kInt64, {}).Input("c", testing::kBool, {});
  body.Input("s", testing::kFloat, {"rows", 2});
  body.Output("c", testing::kBool).Output("t", testing::kFloat).Output("u", testing::kFloat);
  body.Node("Concat", {"s", "s"}, {"t"}).Int("axis", 0);
  body.Node("Neg", {"t"}, {"u"});
  const Outcome inspected = Run({"inspect", File("widening.onnx", m.Bytes())});
  EXPECT_EQ(inspected.code, 0) << inspected.output;
  EXPECT_THAT(inspected.output,
              AllOf(HasSubstr("not tried: it is not known whether the model accepts"),
                    HasSubstr("a scan output's shape changes between iterations")));
}

// Its seeds are an input of the graph that no request sends.
TEST_F(CommandTest, AModelThatDrawsRandomNumbersTakesASeed) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {"batch", 3}).Output("y");
  m.Node("RandomNormalLike", {"x"}, {"noise"});
  m.Node("Add", {"x", "noise"}, {"y"});
  const std::string model = File("noisy.onnx", m.Bytes());
  const Outcome inspected = Run({"inspect", model});
  EXPECT_EQ(inspected.code, 0) << inspected.output;
  EXPECT_THAT(inspected.output,
              AllOf(HasSubstr("every operator keeps rows apart"), Not(HasSubstr("seeds")),
                    Not(HasSubstr("memory: not known"))));
  const std::string x = (folder_ / "x.npy").string();
  ASSERT_TRUE(WriteNpy(x, Tensor::Of<float>({1, 3}, {1, 2, 3})).ok());
  // The line of the answer, without the time that it took.
  const auto answer = [&](const std::string& seed) {
    const std::string all = Run({"run", model, "--input", "x=" + x, "--seed", seed}).output;
    return all.substr(0, all.find("computed in"));
  };
  EXPECT_THAT(answer("7"), HasSubstr("[1,3]"));
  EXPECT_EQ(answer("7"), answer("7"));
  EXPECT_NE(answer("7"), answer("-8"));
}

TEST_F(CommandTest, InspectSaysAtATerminalWhatItIsAt) {
  const Outcome shown = Run({"inspect", images_}, Process::Output::kTerminal);
  ASSERT_EQ(shown.code, 0) << shown.output;
  const size_t reading = shown.output.find("reading " + images_ + " ...");
  EXPECT_LT(reading, shown.output.find("trying a request ..."));
  EXPECT_LT(reading, shown.output.find("opset"));
}

TEST_F(CommandTest, ProfileKeepsItsTableAndMeasuresWhatItLacks) {
  const std::vector<std::string> quick = {"profile", images_, "--seconds-per-point", "0"};
  const auto with = [&quick](std::vector<std::string> more) {
    more.insert(more.begin(), quick.begin(), quick.end());
    return more;
  };
  const Outcome first = Run(with({"--batch-sizes", "1,4", "--lengths", "16"}));
  ASSERT_EQ(first.code, 0) << first.output;
  EXPECT_THAT(first.output, AllOf(ContainsRegex("length +b=1 +b=4\n"), ContainsRegex("\n +16 "),
                                  HasSubstr("kept in " + (folder_ / "cache").string())));
  const Outcome again = Run(with({"--batch-sizes", "1,4", "--lengths", "16"}));
  EXPECT_EQ(again.output.substr(0, again.output.find("kept")),
            first.output.substr(0, first.output.find("kept")));
  const Outcome more = Run(with({"--batch-sizes", "8", "--lengths", "32"}));
  EXPECT_THAT(more.output,
              AllOf(ContainsRegex("length +b=1 +b=4 +b=8\n"), ContainsRegex("\n +32 ")));
  const Outcome anew = Run(with({"--batch-sizes", "2", "--lengths", "16", "--force"}));
  EXPECT_THAT(anew.output, ContainsRegex("length +b=2\n"));
  EXPECT_THAT(Refusal(with({"--shape", "x=1x2"}), 1), HasSubstr("'image'"));
  const Outcome shape = Run(with({"--batch-sizes", "1,2", "--shape", "image=1x3x8x8"}));
  EXPECT_EQ(shape.code, 0) << shape.output;
  EXPECT_THAT(shape.output, AllOf(ContainsRegex("length +b=1 +b=2\n *-* *\n? *shape 1x3x8x8 "),
                                  HasSubstr("not kept"), Not(HasSubstr("kept in"))));
  EXPECT_THAT(Run(with({"--batch-sizes", "2", "--lengths", "16"})).output,
              HasSubstr("--force measures everything again"));
  EXPECT_THAT(Refusal(with({"--lengths", "1"}), 1), HasSubstr("image float32 [1,3,1,1]"));
}

TEST_F(CommandTest, ProfilePrintsATableItCannotKeep) {
  File("cache", "a file where the folder should be");
  const Outcome outcome =
      Run({"profile", doubling_, "--batch-sizes", "1", "--seconds-per-point", "0"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("time of a batch"), HasSubstr("not kept: cannot make "
                                                                            "the folder")));
}

TEST_F(CommandTest, BenchWritesWhatItPrints) {
  const std::string out = (folder_ / "out.json").string();
  const Outcome bench = Run({"bench", doubling_, "--rate", "400", "--seconds", "0.5",
                             "--warmup-seconds", "0.05", "--json", out});
  ASSERT_EQ(bench.code, 0) << bench.output;
  EXPECT_THAT(bench.output, AllOf(HasSubstr("p99 ms"), HasSubstr("VALID"),
                                  HasSubstr("in 0.5 s, Poisson arrivals at 400/s\n"),
                                  HasSubstr("x float32 [1,4], made up\n")));
  const json figures = Json("out.json");
  EXPECT_GT(figures["requests"], 100);
  EXPECT_EQ(figures["succeeded"], figures["requests"]);
  EXPECT_EQ(figures["arrivals"], "poisson");
  EXPECT_LE(figures["latency_ms"]["p50"], figures["latency_ms"]["p99"]);
  EXPECT_EQ(figures["valid"].get<bool>(), bench.output.find("INVALID") == std::string::npos);
}

TEST_F(CommandTest, InspectDrawsStepAndCacheOfModelsThatGenerate) {
  const std::string dot = (folder_ / "decoder.dot").string();
  const Outcome done = Run({"inspect", File("decoder.onnx", testing::Gpt2Model()), "--dot", dot});
  ASSERT_EQ(done.code, 0) << done.output;
  std::ifstream file(dot);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, AllOf(HasSubstr("step"), HasSubstr("keys and values"),
                          HasSubstr("of 16 tokens"), HasSubstr("output_ids")));
}

TEST_F(CommandTest, BenchTimesTokensOfModelsThatGenerate) {
  const std::string model = File("decoder.onnx", testing::Gpt2Model());
  const std::string out = (folder_ / "out.json").string();
  const Outcome closed =
      Run({"bench", model, "--prompt-lengths", "2-9", "--output-lengths", "5", "--concurrency", "3",
           "--seconds", "0.3", "--warmup-seconds", "0.1", "--json", out});
  ASSERT_EQ(closed.code, 0) << closed.output;
  EXPECT_THAT(closed.output, AllOf(HasSubstr("3 requests at a time"), HasSubstr("first token"),
                                   HasSubstr("between tokens"), HasSubstr("output tokens/s")));
  const json load = Json("out.json")["loads"][0];
  EXPECT_EQ(load["load"], "3 clients");
  EXPECT_GT(load["output_tokens_per_s"], 0);
  EXPECT_GT(load["prompt_tokens_per_s"], 0);
  EXPECT_TRUE(load["failures"].empty()) << load;
  EXPECT_LE(load["first_token_ms"]["p50"], load["first_token_ms"]["p99"]);
  EXPECT_LE(load["between_tokens_ms"]["mean"], load["latency_ms"]["mean"]);
  const Outcome open =
      Run({"bench", model, "--prompt-lengths", "4", "--output-lengths", "3", "--rate", "50,100",
           "--seconds", "0.3", "--warmup-seconds", "0.05", "--json", out});
  ASSERT_EQ(open.code, 0) << open.output;
  EXPECT_THAT(open.output, HasSubstr("Poisson arrivals at 50/s, 100/s"));
  EXPECT_EQ(Json("out.json")["loads"].size(), 2u);
  const Outcome beams =
      Run({"bench", model, "--prompt-lengths", "4", "--output-lengths", "3", "--num-beams", "2",
           "--concurrency", "2", "--seconds", "0.2", "--warmup-seconds", "0.05", "--json", out});
  ASSERT_EQ(beams.code, 0) << beams.output;
  EXPECT_THAT(beams.output, HasSubstr("; 2 beams"));
  EXPECT_EQ(Json("out.json")["num_beams"], 2);
  // An answer comes in one piece.
  EXPECT_EQ(Json("out.json")["loads"][0]["between_tokens_ms"]["max"], 0);
  // Longer than the model's tables: no request succeeds.
  EXPECT_THAT(Refusal({"bench", model, "--prompt-lengths", "4", "--output-lengths", "5000"}, 1),
              HasSubstr("max_tokens"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--prompt-lengths", "4", "--output-lengths", "5"}, 1),
              HasSubstr("not served as one that generates"));
  EXPECT_THAT(Refusal({"bench", model, "--prompt-lengths", "4"}, 2), HasSubstr("--output-lengths"));
  EXPECT_THAT(Refusal({"bench", model, "--concurrency", "4"}, 2), HasSubstr("--prompt-lengths"));
}

// The latest version, as its model.yaml says.
TEST_F(CommandTest, BenchTakesAModelsFolder) {
  const std::string bytes = testing::TokenClassifier().Bytes();
  std::filesystem::create_directories(folder_ / "named/1");
  std::filesystem::create_directories(folder_ / "named/2");
  File("named/1/model.onnx", "no model");
  File("named/2/model.onnx", bytes);
  File("named/model.yaml", "policy: bucketed\n");
  const std::vector<std::string> rest = {
      "--rate",           "100",  "--seconds", "0.2",
      "--warmup-seconds", "0.05", "--json",    (folder_ / "out.json").string()};
  for (const char* name : {"named", "named/", "named/2"}) {
    std::vector<std::string> all = {"bench", (folder_ / name).string()};
    all.insert(all.end(), rest.begin(), rest.end());
    const Outcome bench = Run(all);
    ASSERT_EQ(bench.code, 0) << bench.output;
    EXPECT_THAT(bench.output, HasSubstr("named in process"));
  }
}

TEST_F(CommandTest, BenchWritesATimeline) {
  const std::string model = File("lstm.onnx", testing::TokenClassifier().Bytes());
  const std::string tokens = (folder_ / "tokens.npy").string();
  ASSERT_TRUE(WriteNpy(tokens, Tensor::Of<int64_t>({1, 4}, {3, 1, 4, 1})).ok());
  const std::string out = (folder_ / "out.json").string();
  const std::string trace = (folder_ / "trace.json").string();
  const Outcome bench =
      Run({"bench", model, "--rate", "400", "--seconds", "0.3", "--warmup-seconds", "0.05",
           "--input", "x=" + tokens, "--workers", "2", "--json", out, "--trace", trace});
  ASSERT_EQ(bench.code, 0) << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("ui.perfetto.dev"));
  std::set<int64_t> requests;
  std::set<std::string> tracks, models;
  const json events = Json("trace.json")["traceEvents"];
  for (const json& event : events) {
    if (event["name"] == "thread_name") tracks.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    models.insert(event["args"]["model"]);
    for (const json& request : event["args"]["requests"]) requests.insert(request.get<int64_t>());
  }
  EXPECT_EQ(tracks, (std::set<std::string>{"worker 0", "worker 1"}));
  EXPECT_EQ(models, std::set<std::string>{"lstm"});
  // Those of the warm-up are no part of it.
  EXPECT_EQ(static_cast<int64_t>(requests.size()), Json("out.json")["requests"]);

  EXPECT_THAT(Refusal({"bench", doubling_, "--trace", "/nowhere/t.json"}, 1),
              AllOf(HasSubstr("/nowhere/t.json"), Not(HasSubstr("p50"))));
  EXPECT_THAT(Refusal({"bench", "m", "--url", "http://127.0.0.1:1", "--trace", trace}, 2),
              HasSubstr("--trace"));
}

TEST_F(CommandTest, BenchDrawsNodesWhereAsked) {
  const std::string trace = (folder_ / "trace.json").string();
  const auto categories = [&](std::vector<std::string> flags) {
    std::vector<std::string> all = {"bench", doubling_, "--rate", "100", "--seconds", "0.2"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome bench = Run(all);
    EXPECT_EQ(bench.code, 0) << bench.output;
    std::set<std::string> found;
    const json events = Json("trace.json")["traceEvents"];
    for (const json& event : events) {
      if (event["ph"] == "X") found.insert(event["cat"]);
    }
    return found;
  };
  EXPECT_EQ(categories({"--trace", trace}), (std::set<std::string>{"model"}));
  EXPECT_EQ(categories({"--trace", trace, "--trace-nodes"}),
            (std::set<std::string>{"model", "node"}));
  EXPECT_THAT(Refusal({"bench", doubling_, "--trace-nodes"}, 2), HasSubstr("--trace"));
}

TEST_F(CommandTest, BenchSaysInvalidAndWhy) {
  const std::string out = (folder_ / "out.json").string();
  const Outcome few = Run({"bench", doubling_, "--rate", "100", "--seconds", "0.2",
                           "--warmup-seconds", "0", "--json", out});
  EXPECT_EQ(few.code, 0);
  EXPECT_THAT(few.output, AllOf(HasSubstr("INVALID"), HasSubstr("percentiles need at least 100")));
  EXPECT_EQ(Json("out.json")["valid"], false);
  EXPECT_THAT(Json("out.json")["invalid"][0].get<std::string>(),
              HasSubstr("percentiles need at least 100"));
}

TEST_F(CommandTest, BenchPutsOneLoadAfterTheOther) {
  const std::string out = (folder_ / "out.json").string();
  const Outcome bench = Run({"bench", doubling_, "--rate", "100,400", "--seconds", "0.3",
                             "--warmup-seconds", "0.05", "--json", out});
  ASSERT_EQ(bench.code, 0) << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("in 0.3 s each, Poisson arrivals at 100/s, 400/s\n"));
  const json loads = Json("out.json")["loads"];
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_LT(loads[0]["requests"], loads[1]["requests"]);
}

TEST_F(CommandTest, BenchFindsThePeak) {
  const std::string out = (folder_ / "out.json").string();
  const Outcome peak = Run(
      {"bench", doubling_, "--peak", "--seconds", "0.05", "--objective-ms", "1000", "--json", out});
  ASSERT_EQ(peak.code, 0) << peak.output;
  EXPECT_THAT(peak.output, ContainsRegex("peak: .* requests per second with p99 within 1000 ms"));
  EXPECT_GT(Json("out.json")["peak"], 0);
  EXPECT_GT(Json("out.json")["tried"].size(), 1u);
  EXPECT_THAT(Refusal({"bench", doubling_, "--peak", "--rate", "5"}, 2),
              HasSubstr("leave out --rate"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--tune-delay"}, 2), HasSubstr("--policy"));
}

TEST_F(CommandTest, BenchReadsGapsAndLengths) {
  const std::string gaps = File("gaps", "# ms\n1\n3\n");
  const std::string lengths = File("lengths.json", R"({"histogram": {"8": 1, "24": 2}})");
  const std::string out = (folder_ / "out.json").string();
  const std::vector<std::string> common = {"bench",
                                           images_,
                                           "--request-intervals",
                                           gaps,
                                           "--length-histogram",
                                           lengths,
                                           "--seconds",
                                           "0.4001",
                                           "--warmup-seconds",
                                           "0",
                                           "--json",
                                           out};
  Outcome bench = Run(common);
  ASSERT_EQ(bench.code, 0) << bench.output;
  EXPECT_EQ(Json("out.json")["requests"], 200);  // as the gaps are
  EXPECT_EQ(Json("out.json")["arrivals"], gaps);
  EXPECT_EQ(Json("out.json")["lengths"], lengths);
  std::vector<std::string> scaled = common;
  scaled.insert(scaled.end(), {"--rate", "50"});
  bench = Run(scaled);
  ASSERT_EQ(bench.code, 0) << bench.output;
  EXPECT_EQ(Json("out.json")["requests"], 20);

  EXPECT_THAT(Refusal({"bench", images_, "--request-intervals", File("words", "one\n")}, 1),
              HasSubstr("line 1: 'one'"));
  EXPECT_THAT(Refusal({"bench", images_, "--length-histogram", gaps}, 1), HasSubstr("{\"17\": 41"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--length-histogram", lengths}, 1),
              HasSubstr("varies in length"));
}

// What the model refuses is not what is measured.
TEST_F(CommandTest, BenchMakesUpWhatTheModelTakes) {
  testing::ModelBuilder frames(17);  // of 32 samples
  frames.Input("x", testing::kFloat, {"batch", "samples"}).Output("y", testing::kFloat);
  frames.Ints("shape", {-1, 32}).Node("Reshape", {"x", "shape"}, {"y"});
  testing::ModelBuilder stateful(17);  // the state's rows lie second
  stateful.Input("x", testing::kFloat, {"batch", "samples"}).Output("y", testing::kFloat);
  stateful.Input("state", testing::kFloat, {2, "batch", 3}).Output("next", testing::kFloat);
  stateful.Node("Relu", {"x"}, {"y"});
  stateful.Node("Relu", {"state"}, {"next"});
  const std::vector<std::string> rest = {"--rate",           "400", "--seconds", "0.3",
                                         "--warmup-seconds", "0"};
  const auto bench = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return Run(arguments);
  };
  const std::string of_frames = File("frames.onnx", frames.Bytes());
  const Outcome longer = bench({of_frames});
  EXPECT_EQ(longer.code, 0) << longer.output;
  EXPECT_THAT(longer.output, AllOf(HasSubstr("x float32 [1,32], made up"), HasSubstr("p99 ms")));
  const Outcome state = bench({File("stateful.onnx", stateful.Bytes())});
  EXPECT_EQ(state.code, 0) << state.output;
  EXPECT_THAT(state.output, HasSubstr("x float32 [1,16], state float32 [2,1,3], made up"));
  // A length that was asked for is the only one tried.
  const Outcome refused = bench({of_frames, "--length", "16"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("x float32 [1,16]"),
                                    HasSubstr("--shape x=BATCHxLENGTH"), Not(HasSubstr("p99"))));
}

TEST_F(CommandTest, ProfileLeavesOutLengthsThatTheModelRefuses) {
  testing::ModelBuilder frames(17);
  frames.Input("x", testing::kFloat, {"batch", "samples"}).Output("y", testing::kFloat);
  frames.Ints("shape", {-1, 32}).Node("Reshape", {"x", "shape"}, {"y"});
  const Outcome profile = Run({"profile", File("frames.onnx", frames.Bytes()), "--lengths", "16,64",
                               "--seconds-per-point", "0"});
  EXPECT_EQ(profile.code, 0) << profile.output;
  EXPECT_THAT(profile.output, AllOf(HasSubstr("length 16 is left out"), ContainsRegex("\n +64 "),
                                    Not(ContainsRegex("\n +16 "))));
}

TEST_F(CommandTest, BenchRefusesBeforeItLoads) {
  EXPECT_THAT(Refusal({"bench", "minilm"}, 2), HasSubstr("--url"));
  EXPECT_THAT(Refusal({"bench", "minilm", "--url", "ftp://x"}, 2), HasSubstr("http://HOST:PORT"));
  EXPECT_THAT(Refusal({"bench", "minilm", "--url", "http://127.0.0.1:1"}, 1),
              HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--policy", "widow"}, 2),
              HasSubstr("did you mean 'window'?"));
  EXPECT_THAT(Refusal({"bench", doubling_, "--json", "/nowhere/out.json"}, 1),
              AllOf(HasSubstr("/nowhere/out.json"), Not(HasSubstr("p50"))));
  EXPECT_THAT(Refusal({"bench", doubling_, "--shape", "q=1x4"}, 1), HasSubstr("'x'"));
}

TEST_F(CommandTest, SimulateComparesPoliciesOnTheSameArrivals) {
  const std::string costs = File("costs.csv", "step,1,100\nstep,64,100\n");
  const std::string report = (folder_ / "simulated.json").string();
  const Outcome done = Run({"simulate", "--costs", costs, "--fixed-length", "10", "--rate", "100",
                            "--requests", "500", "--policy", "cellular,none", "--json", report});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output,
              AllOf(HasSubstr("cellular"), HasSubstr("mean ms"), HasSubstr("queue p99")));
  const json rows = Json("simulated.json")["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[0]["throughput"].get<double>(), 100, 15);
  // One alone takes ten steps of 100 µs; no request waits for another's end.
  EXPECT_NEAR(rows[0]["latency_ms"][50].get<double>(), 1.0, 0.01);
  EXPECT_NEAR(rows[0]["latency_mean_ms"].get<double>(), 1.0, 0.1);
  EXPECT_LT(rows[0]["latency_ms"][99].get<double>(), rows[1]["latency_ms"][99].get<double>());
}

// Four requests of ten steps always share each step of 100 µs: 4,000 of them a second.
TEST_F(CommandTest, SimulateKeepsSoManyRequestsUnderWay) {
  const std::string costs = File("costs.csv", "step,1,100\nstep,64,100\n");
  const std::string report = (folder_ / "simulated.json").string();
  const Outcome done = Run({"simulate", "--costs", costs, "--fixed-length", "10", "--concurrency",
                            "4", "--requests", "400", "--json", report});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("4 clients"));
  const json row = Json("simulated.json")["rows"][0];
  EXPECT_NEAR(row["throughput"].get<double>(), 4000, 100);
  EXPECT_NEAR(row["latency_ms"][50].get<double>(), 1.0, 0.01);
}

// 50 of the 100 µs are a task's fixed cost: ten steps alone are two tasks of five, or ten.
TEST_F(CommandTest, SimulateRunsSeveralStepsInATaskWhereThatSavesTime) {
  const std::string costs = File("costs.csv", "step,0,50\nstep,1,100\nstep,64,100\n");
  const std::string report = (folder_ / "simulated.json").string();
  for (const auto& [slice, ms, steps] : {std::tuple("200", 0.6, 5.0), std::tuple("0", 1.0, 1.0)}) {
    const Outcome done = Run({"simulate", "--costs", costs, "--fixed-length", "10", "--rate", "1",
                              "--requests", "100", "--time-slice-us", slice, "--json", report});
    ASSERT_EQ(done.code, 0) << done.output;
    const json row = Json("simulated.json")["rows"][0];
    EXPECT_NEAR(row["latency_ms"][50].get<double>(), ms, 0.01);
    EXPECT_NEAR(row["steps_per_task"].get<double>(), steps, 0.01);
    EXPECT_NEAR(row["rows_per_task"].get<double>(), 1, 0.01);
  }
}

TEST_F(CommandTest, SimulateHasRequestsThatGenerate) {
  // 1 ms, and 10 µs for each token besides.
  const std::string costs = File("costs.csv", "step,1,1000\nstep,1001,11000\n");
  const std::string report = (folder_ / "simulated.json").string();
  const Outcome done =
      Run({"simulate", "--application", "generation", "--costs", costs, "--prompt-lengths", "200",
           "--output-lengths", "10-30", "--concurrency", "8", "--max-batch-size", "8", "--requests",
           "400", "--policy", "static,leave_only,whole_prompts,continuous", "--json", report});
  ASSERT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, AllOf(HasSubstr("tokens/s"), HasSubstr("ITL p50 ms")));
  const json rows = Json("simulated.json")["rows"];
  ASSERT_EQ(rows.size(), 4u);
  const auto tokens = [&](size_t i) { return rows[i]["output_tokens_per_s"].get<double>(); };
  EXPECT_GT(tokens(1), tokens(0));
  const auto between = [&](size_t i) { return rows[i]["between_tokens_ms"][99].get<double>(); };
  EXPECT_LE(between(3), 2.2);  // where several prompts wait, twice a step of eight tokens
  EXPECT_GE(between(2), 3.0);
  const Outcome unnamed =
      Run({"simulate", "--application", "generation", "--costs", costs, "--prompt-lengths", "20",
           "--output-lengths", "10", "--concurrency", "8", "--requests", "40"});
  EXPECT_EQ(unnamed.code, 0) << unnamed.output;
  EXPECT_THAT(unnamed.output, HasSubstr("continuous"));
  EXPECT_THAT(
      Refusal({"simulate", "--application", "generation", "--costs", costs, "--prompt-lengths",
               "20", "--output-lengths", "10", "--concurrency", "8", "--policy", "cellular"},
              2),
      HasSubstr("continuous, whole_prompts, leave_only and static do"));
  EXPECT_THAT(Refusal({"simulate", "--application", "generation", "--costs", costs, "--rate", "1",
                       "--policy", "continuous"},
                      2),
              HasSubstr("--prompt-lengths and --output-lengths"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--fixed-length", "1",
                       "--policy", "continuous"},
                      2),
              HasSubstr("--application generation"));
}

// The order that TurboTransformers §6.3 finds, with costs fitted to what it prints (µs): 2.7 ms and
// 30 µs for each place of a batch; with tensor cores, 2.9 ms and 21 µs.
TEST_F(CommandTest, SimulateShowsWhenPaddingPays) {
  const auto throughputs = [&](const std::string& costs, const std::string& lengths) {
    const std::string report = (folder_ / "simulated.json").string();
    const Outcome done = Run({"simulate", "--application", "encoder", "--costs",
                              File("costs.csv", costs), "--uniform-lengths", lengths, "--rate",
                              "1000", "--requests", "4000", "--max-batch-size", "20", "--policy",
                              "none,naive,length_dp,packed", "--json", report});
    EXPECT_EQ(done.code, 0) << done.output;
    std::vector<double> figures;
    const json rows = Json("simulated.json")["rows"];
    for (const json& row : rows) figures.push_back(row["throughput"]);
    return figures;
  };
  const std::vector<double> little = throughputs(
      "sequence,1,1,2730\nsequence,20,1,3300\nsequence,1,500,17700\nsequence,20,500,302700\n"
      "token,1,2730\ntoken,10000,302700\n",
      "2-100");
  EXPECT_NEAR(little[0], 237, 10);        // published: 237
  EXPECT_NEAR(little[1], 323, 20);        // 323
  EXPECT_GT(little[2], 1.2 * little[1]);  // 402, at a load that it only just bears
  EXPECT_GT(little[3], little[2]);
  const std::vector<double> much = throughputs(
      "sequence,1,1,2921\nsequence,20,1,3320\nsequence,1,500,13400\nsequence,20,500,212900\n"
      "token,1,2921\ntoken,10000,212900\n",
      "5-500");
  EXPECT_LT(much[1], 0.9 * much[0]);  // 98, 120
  EXPECT_GT(much[2], 1.1 * much[0]);  // 144
  EXPECT_GT(much[3], much[2]);
}

// A first stage that costs the same for eight, and others in which company saves nothing.
TEST_F(CommandTest, SimulateShowsWhatStagesGain) {
  std::string costs = "whole,1,1750\nwhole,8,7000\nstage1,1,1000\nstage1,8,1000\n";
  for (const char* stage : {"stage2", "stage3", "stage4"}) {
    costs += fmt::format("{0},1,250\n{0},8,2000\n", stage);
  }
  const std::string report = (folder_ / "simulated.json").string();
  const Outcome done =
      Run({"simulate", "--application", "stages", "--costs", File("costs.csv", costs), "--rate",
           "700", "--requests", "4000", "--max-batch-size", "8", "--policy",
           "none,window,staged,cellular", "--json", report});
  EXPECT_EQ(done.code, 0) << done.output;
  std::map<std::string, double> mean;
  const json rows = Json("simulated.json")["rows"];
  for (const json& row : rows) mean[row["policy"]] = row["latency_mean_ms"];
  EXPECT_LT(mean["staged"], mean["window"]);
  EXPECT_LT(mean["window"], mean["none"]);  // which cannot bear the load
}

TEST_F(CommandTest, SimulateSaysWhatIsMissing) {
  const std::string costs = File("costs.csv", "step,1,100\n");
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--fixed-length", "2"}, 2),
              HasSubstr("--concurrency"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1"}, 2),
              HasSubstr("--length-histogram"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--complete-tree", "2",
                       "--application", "tree"},
                      1),
              HasSubstr("cell 'leaf'"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--fixed-length", "2",
                       "--cell-max-batch-size", "stop=3"},
                      2),
              HasSubstr("there is no cell 'stop'; did you mean 'step'? (there are: 'step')"));
  Refusal({"simulate", "--rate", "1"}, 2);
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--fixed-length", "2",
                       "--policy", "none,packed"},
                      2),
              HasSubstr("policy 'packed' batches whole requests"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--fixed-length", "2",
                       "--policy", "staged"},
                      2),
              HasSubstr("policy 'staged' runs stages; it needs --application stages"));
  EXPECT_THAT(Refusal({"simulate", "--application", "encoder", "--costs", costs, "--rate", "1",
                       "--uniform-lengths", "1-9", "--policy", "cellular"},
                      2),
              HasSubstr("policy 'cellular' batches cells"));
  EXPECT_THAT(Refusal({"simulate", "--costs", costs, "--rate", "1", "--fixed-length", "2",
                       "--policy", "sellular"},
                      2),
              HasSubstr("no batching policy 'sellular'; did you mean 'cellular'?"));
}

TEST_F(CommandTest, InspectTimesOperatorsOnce) {
  const std::string svg = (folder_ / "operators.svg").string();
  EXPECT_THAT(Run({"inspect", images_}).output, Not(HasSubstr("what batching can gain")));
  const Outcome timed = Run({"inspect", images_, "--operators", "--svg", svg});
  ASSERT_EQ(timed.code, 0) << timed.output;
  EXPECT_THAT(timed.output, AllOf(HasSubstr("preferred batch"), ContainsRegex("b=1 .*b=64"),
                                  HasSubstr("inputs: sizes differ: 'image' varies in dimension 2"),
                                  HasSubstr("operators: "), HasSubstr("policy: window")));
  std::ifstream drawn(svg);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(drawn), {}),
              AllOf(HasSubstr("images"), HasSubstr("batch 64<"), HasSubstr("</svg>")));
  EXPECT_THAT(Run({"inspect", images_}).output, HasSubstr("what batching can gain, by the costs"));
  EXPECT_THAT(Refusal({"inspect", images_, "--operators", "--dot", svg}, 2), HasSubstr("--dot"));
}

TEST_F(CommandTest, InspectShowsTheCells) {
  const std::string tagger = File("tagger.onnx", testing::Tagger().Bytes());
  const std::string dot = (folder_ / "cells.dot").string();
  const std::string svg = (folder_ / "cells.svg").string();
  const Outcome shown = Run({"inspect", tagger, "--dot", dot, "--svg", svg});
  EXPECT_EQ(shown.code, 0) << shown.output;
  EXPECT_THAT(shown.output, AllOf(ContainsRegex("GRU[^ ]*forward +steps +time"),
                                  ContainsRegex("GRU[^ ]*reverse +steps +time, backwards"),
                                  ContainsRegex("y.head +tokens +time"), HasSubstr("x[6]*")));
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_THAT(read(dot),
              AllOf(HasSubstr("digraph"), HasSubstr("forward"), HasSubstr("label=\"states")));
  EXPECT_THAT(read(svg), AllOf(HasSubstr("<svg"), HasSubstr("backwards"), HasSubstr("</svg>")));

  EXPECT_THAT(Run({"inspect", doubling_}).output,
              AllOf(HasSubstr("cells: not used: the model has no"), HasSubstr("packed: not used: "),
                    HasSubstr("whole: used: ")));
  const Outcome whole = Run({"inspect", doubling_, "--passes", "--svg", svg});
  EXPECT_EQ(whole.code, 0) << whole.output;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("no recurrence"), HasSubstr("diagnosis:")));
  EXPECT_THAT(read(svg),
              AllOf(HasSubstr("doubling"), HasSubstr("2 operators"), HasSubstr("</svg>")));
}

}  // namespace
}  // namespace chairlift
