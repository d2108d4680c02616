// Strings inside If, Loop and Scan: results own their strings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <vector>

#include "chairlift/text.h"
#include "graph/model_builder.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using testing::GraphProtoBuilder;
using testing::kBool;
using testing::kInt64;
using testing::ModelBuilder;

constexpr int kText = onnx::TensorProto::STRING;
// Too long to be stored inside a std::string.
const std::string kLong = "a text that is far too long for a short string";

std::vector<Tensor> RunModel(const ModelBuilder& m, std::vector<Tensor> inputs) {
  auto imported = m.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  auto executable = Executable::Create(std::move(imported->graph), {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  if (!executable.ok()) return {};
  SoloTeam team;
  std::vector<Tensor> results;
  {
    Arena arena;
    auto out = (*executable)->Run(inputs, team, 0, arena);
    EXPECT_TRUE(out.ok()) << out.status();
    if (out.ok()) results = *std::move(out);
  }
  inputs.clear();  // what the results refer to must be their own
  return results;
}

std::vector<std::string> Words(const Tensor& t) { return {TextsOf(t).begin(), TextsOf(t).end()}; }

Tensor Flag(bool value) {
  Tensor t = Tensor::Allocate(DType::kBool, {});
  t.data<bool>()[0] = value;
  return t;
}

TEST(TextBodiesTest, BranchesReadAndGiveStrings) {
  ModelBuilder m(20);
  m.Input("c", kBool, {}).Input("t", kText, {"n"}).Output("y");
  auto node = m.Node("If", {"c"}, {"y"});
  GraphProtoBuilder(node.Body("then_branch")).Output("a", kText).Node("Identity", {"t"}, {"a"});
  GraphProtoBuilder(node.Body("else_branch"))
      .Output("b", kText)
      .Node("StringConcat", {"t", "t"}, {"b"});
  EXPECT_THAT(Words(RunModel(m, {Flag(true), TextTensor({2}, {kLong, ""})})[0]),
              ElementsAre(kLong, ""));
  EXPECT_THAT(Words(RunModel(m, {Flag(false), TextTensor({2}, {kLong, "x"})})[0]),
              ElementsAre(kLong + kLong, "xx"));
}

TEST(TextBodiesTest, LoopsCarryAndCollectStrings) {
  ModelBuilder m(20);
  m.Input("n", kInt64, {}).Input("t", kText, {1}).Output("last").Output("all");
  auto node = m.Node("Loop", {"n", "", "t"}, {"last", "all"});
  GraphProtoBuilder body(node.Body("body"));
  body.Input("i", kInt64, {}).Input("on", kBool, {}).Input("state", kText, {1});
  body.Output("go", kBool).Output("next", kText).Output("each", kText);
  body.Node("Identity", {"on"}, {"go"});
  body.Node("StringConcat", {"state", "t"}, {"next"});
  body.Node("Identity", {"next"}, {"each"});
  const auto run = [&](int64_t n) {
    return RunModel(m, {Tensor::Scalar<int64_t>(n), TextTensor({1}, {kLong})});
  };
  std::vector<Tensor> results = run(3);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(Words(results[0]), ElementsAre(kLong + kLong + kLong + kLong));
  EXPECT_EQ(results[1].shape(), (Shape{3, 1}));
  EXPECT_THAT(Words(results[1]),
              ElementsAre(kLong + kLong, kLong + kLong + kLong, kLong + kLong + kLong + kLong));
  results = run(0);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_THAT(Words(results[0]), ElementsAre(kLong));
  EXPECT_EQ(results[1].size(), 0);
}

// As skl2onnx writes it with `keep_empty_string`.
TEST(TextBodiesTest, ScansNormaliseEachString) {
  ModelBuilder m(17);
  m.Input("t", kText, {"n", 1}).Output("y");
  auto node = m.Node("Scan", {"t"}, {"y"});
  node.Int("num_scan_inputs", 1);
  GraphProtoBuilder body(node.Body("body"));
  body.Input("in", kText, {1}).Output("out", kText);
  auto normalizer = body.Node("StringNormalizer", {"in"}, {"out"});
  normalizer.String("case_change_action", "UPPER");
  normalizer.Attribute("stopwords", onnx::AttributeProto::STRINGS)->add_strings("the");
  const std::vector<Tensor> results = RunModel(m, {TextTensor({3, 1}, {"a", "the", kLong})});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].shape(), (Shape{3, 1}));
  std::string upper = kLong;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_THAT(Words(results[0]), ElementsAre("A", "", upper));
}

}  // namespace
}  // namespace chairlift
