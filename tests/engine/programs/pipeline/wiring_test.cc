// Which step reads what, and what is refused.
#include "engine/programs/pipeline/wiring.h"

#include <gmock/gmock.h>

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

SymbolicSpec Spec(const std::string& name, DType dtype, std::vector<Dim> dims) {
  return {name, dtype, SymbolicShape(std::move(dims))};
}
Dim Batch() { return Dim::Symbol("batch"); }

// x, y: FLOAT [batch, 4].
Signature Rows(const std::string& x, const std::string& y) {
  return {.inputs = {Spec(x, DType::kFloat, {Batch(), 4})},
          .outputs = {Spec(y, DType::kFloat, {Batch(), 4})},
          .batches = true};
}

StatusOr<PipelineConfig> Config(const std::string& yaml) {
  const StatusOr<YamlValue> settings = YamlValue::Parse(yaml);
  if (!settings.ok()) return settings.status();
  StatusOr<std::optional<PipelineConfig>> config = ReadPipelineConfig(*settings);
  if (!config.ok()) return config.status();
  if (!*config) return absl::NotFoundError("no steps");
  return **std::move(config);
}

StatusOr<PipelineWiring> Wire(const std::string& yaml, const std::vector<Signature>& models) {
  const StatusOr<PipelineConfig> config = Config(yaml);
  if (!config.ok()) return config.status();
  std::vector<const Signature*> signatures;
  for (const Signature& model : models) signatures.push_back(&model);
  return WirePipeline(*config, signatures);
}

std::string Why(const Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}
std::string WhyNot(const std::string& yaml, const std::vector<Signature>& models) {
  return Why(Wire(yaml, models).status());
}

std::vector<std::string> Names(const std::vector<SymbolicSpec>& specs) {
  std::vector<std::string> names;
  for (const SymbolicSpec& spec : specs) names.push_back(spec.name);
  return names;
}

TEST(WiringTest, EqualNamesNeedNoMap) {
  const auto wired = Wire("steps: [{model: a}, {model: b}]", {Rows("x", "h"), Rows("h", "y")});
  ASSERT_TRUE(wired.ok()) << wired.status();
  EXPECT_THAT(Names(wired->signature.inputs), ElementsAre("x"));
  EXPECT_THAT(Names(wired->signature.outputs), ElementsAre("y"));
  EXPECT_THAT(wired->steps[0].reads, ElementsAre(Pair("x", 0)));
  EXPECT_THAT(wired->steps[1].reads, ElementsAre(Pair("h", 1)));
  EXPECT_THAT(wired->outputs, ElementsAre(2));
  EXPECT_TRUE(wired->counts_rows);
}

TEST(WiringTest, MapsNameWhatIsReadAndGiven) {
  const auto wired = Wire(
      "steps:\n"
      "- {model: a, inputs: {x: image}, outputs: {y: left}}\n"
      "- {model: a, inputs: {x: image}, outputs: {y: right}}\n"
      "- {model: b, inputs: {p: left, q: right}}\n"
      "outputs: [sum, left]",
      {Rows("x", "y"),
       Rows("x", "y"),
       {.inputs = {Spec("p", DType::kFloat, {Batch(), 4}), Spec("q", DType::kFloat, {Batch(), 4})},
        .outputs = {Spec("sum", DType::kFloat, {Batch()})},
        .batches = true}});
  ASSERT_TRUE(wired.ok()) << wired.status();
  EXPECT_THAT(Names(wired->signature.inputs), ElementsAre("image"));
  EXPECT_THAT(Names(wired->signature.outputs), ElementsAre("sum", "left"));
  EXPECT_THAT(wired->steps[2].reads, ElementsAre(Pair("p", 1), Pair("q", 2)));
  EXPECT_THAT(wired->outputs, ElementsAre(3, 1));
}

TEST(WiringTest, ANameThatIsGivenAgainMeansTheLastBeforeItsReader) {
  const auto wired =
      Wire("steps: [{model: a}, {model: b}, {model: c, outputs: {x: y}}]\noutputs: [x, y]",
           {Rows("x", "x"), Rows("x", "x"), Rows("x", "x")});
  ASSERT_TRUE(wired.ok()) << wired.status();
  EXPECT_THAT(wired->steps[1].reads, ElementsAre(Pair("x", 1)));
  EXPECT_THAT(wired->steps[2].reads, ElementsAre(Pair("x", 2)));
  EXPECT_THAT(wired->outputs, ElementsAre(2, 3));
}

TEST(WiringTest, AnInputOfSeveralStepsTakesWhatAllOfThemTake) {
  const Signature any = {.inputs = {Spec("x", DType::kFloat, {Batch(), Dim::Symbol("width")})},
                         .outputs = {Spec("p", DType::kFloat, {Batch()})}};
  const auto wired =
      Wire("steps: [{model: a}, {model: b}]\noutputs: [p, y]", {any, Rows("x", "y")});
  ASSERT_TRUE(wired.ok()) << wired.status();
  EXPECT_EQ(wired->signature.inputs[0].shape[1].value(), 4);
  EXPECT_FALSE(wired->counts_rows) << "rows of 'a' are not apart";
}

// "batch" of one model is not "batch" of another.
TEST(WiringTest, DimensionsOfDifferentModelsNeedNotAgree) {
  const auto wired =
      Wire("steps: [{model: a}, {model: b}]\noutputs: [p, q]", {Rows("x", "p"), Rows("y", "q")});
  ASSERT_TRUE(wired.ok()) << wired.status();
  EXPECT_FALSE(wired->signature.inputs[0].shape[0].Same(wired->signature.inputs[1].shape[0]));
}

TEST(WiringTest, WhatNobodyReadsHasNoPlace) {
  const Signature two = {
      .inputs = {Spec("x", DType::kFloat, {Batch(), 4})},
      .outputs = {Spec("p", DType::kFloat, {Batch(), 4}), Spec("q", DType::kFloat, {Batch()})}};
  const auto wired = Wire("steps: [{model: a}, {model: b}]", {two, Rows("p", "y")});
  ASSERT_TRUE(wired.ok()) << wired.status();
  ASSERT_EQ(wired->steps[0].gives.size(), 1u);
  EXPECT_EQ(wired->steps[0].gives[0].output, "p");
  EXPECT_THAT(WhyNot("steps: [{model: a}, {model: b}]", {Rows("x", "p"), Rows("x", "y")}),
              AllOf(HasSubstr("step 1 (a): no later step and no output reads what it gives, 'p'"),
                    HasSubstr("the steps read 'x' from the request")));
  EXPECT_THAT(WhyNot("steps: [{model: a, outputs: {y: Y}}, {model: b, inputs: {x: X}}]",
                     {Rows("x", "y"), Rows("x", "z")}),
              AllOf(HasSubstr("step 1 (a)"), HasSubstr("what it gives, 'Y'"),
                    HasSubstr("the steps read 'X'")));
}

TEST(WiringTest, RefusesTensorsThatDoNotFit) {
  const std::string steps = "steps: [{model: a}, {model: b}]";
  const auto taking = [](DType dtype, std::vector<Dim> dims) -> Signature {
    return {.inputs = {Spec("h", dtype, std::move(dims))},
            .outputs = {Spec("y", DType::kFloat, {Batch()})}};
  };
  EXPECT_THAT(WhyNot(steps, {Rows("x", "h"), taking(DType::kInt64, {Batch(), 4})}),
              AllOf(HasSubstr("step 2 (b): its input 'h' is INT64 [batch,4]"),
                    HasSubstr("output 'h' of step 1 (a) is FP32")));
  EXPECT_THAT(WhyNot(steps, {Rows("x", "h"), taking(DType::kFloat, {Batch(), 5})}),
              HasSubstr("its input 'h' is FP32 [batch,5]"));
  EXPECT_THAT(WhyNot(steps, {Rows("x", "h"), taking(DType::kFloat, {Batch(), 4, 1})}),
              HasSubstr("step 2 (b)"));
  EXPECT_TRUE(Wire(steps, {Rows("x", "h"), taking(DType::kFloat, {Dim::Unknown(), 4})}).ok());
  EXPECT_TRUE(Wire(steps, {Rows("x", "h"),
                           {.inputs = {{"h", DType::kFloat, SymbolicShape()}},
                            .outputs = {Spec("y", DType::kFloat, {Batch()})}}})
                  .ok());
}

TEST(WiringTest, RefusesStepsThatReadWhatComesLater) {
  EXPECT_THAT(
      WhyNot("steps: [{model: a}, {model: b}]\noutputs: [h, y]", {Rows("y", "h"), Rows("h", "y")}),
      AllOf(HasSubstr("step 1 (a): its input 'y' reads 'y', which only step 2 (b) gives"),
            HasSubstr("name 'y' in `inputs`")));
  EXPECT_TRUE(Wire("steps: [{model: a}, {model: b}]\ninputs: [y]\noutputs: [h, y]",
                   {Rows("y", "h"), Rows("h", "y")})
                  .ok());
}

TEST(WiringTest, NamedInputsAreAllThereAre) {
  const std::vector<Signature> models = {Rows("x", "h"), Rows("h", "y")};
  EXPECT_THAT(
      WhyNot("steps: [{model: a}, {model: b, inputs: {h: hh}}]\ninputs: [x]\noutputs: [h, y]",
             models),
      AllOf(HasSubstr("step 2 (b): its input 'h' reads 'hh'"), HasSubstr("'h'")));
  EXPECT_THAT(WhyNot("steps: [{model: a}, {model: b}]\ninputs: [x, z]", models),
              HasSubstr("'z' is read by no step"));
}

TEST(WiringTest, RefusesNamesThatAreNot) {
  const std::vector<Signature> models = {Rows("x", "h"), Rows("h", "y")};
  EXPECT_THAT(WhyNot("steps: [{model: a, inputs: {xx: image}}, {model: b}]", models),
              HasSubstr("step 1 (a): the model has no input 'xx'"));
  EXPECT_THAT(WhyNot("steps: [{model: a}, {model: b, outputs: {z: image}}]", models),
              HasSubstr("step 2 (b): the model has no output 'z'"));
  EXPECT_THAT(WhyNot("steps: [{model: a}, {model: b}]\noutputs: [yy]", models),
              AllOf(HasSubstr("no step gives 'yy'"), HasSubstr("'y'")));
  EXPECT_THAT(WhyNot("steps: [{model: a}, {model: b}]\noutputs: [x]", models),
              HasSubstr("no step gives 'x'"));
  const Signature two = {
      .inputs = {Spec("x", DType::kFloat, {Batch(), 4})},
      .outputs = {Spec("p", DType::kFloat, {Batch()}), Spec("q", DType::kFloat, {Batch()})}};
  EXPECT_THAT(WhyNot("steps: [{model: a, outputs: {p: q}}]", {two}),
              HasSubstr("'p' and 'q' are both named 'q'"));
}

TEST(PipelineConfigTest, SaysWhatIsWrongWithTheSettings) {
  EXPECT_EQ(Config("max_batch_size: 1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Why(Config("outputs: [x]").status()), HasSubstr("`steps`"));
  EXPECT_THAT(Why(Config("steps: [{model: a}]\nqueue_delay_us: 1").status()),
              AllOf(HasSubstr("queue_delay_us is not for pipelines"), HasSubstr("max_queue_size")));
  EXPECT_THAT(Why(Config("steps: []").status()), HasSubstr("steps"));
  EXPECT_THAT(Why(Config("steps: [{modell: a}]").status()), HasSubstr("modell"));
  EXPECT_THAT(Why(Config("steps: [{model: a}]\noutputs: [x, x]").status()), HasSubstr("twice"));
  std::string many = "steps:\n";
  for (int i = 0; i < kMaxPipelineSteps; ++i) many += "- model: a\n";
  EXPECT_TRUE(Config(many).ok());
  EXPECT_THAT(Why(Config(many + "- model: a\n").status()), HasSubstr("at most 64 steps"));
  EXPECT_TRUE(Config("steps: [{model: a}]\nmax_queue_size: 3\nresponse_cache_bytes: 9").ok());
}

}  // namespace
}  // namespace chairlift
