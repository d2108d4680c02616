// Models that a config.pbtxt describes: what clients bring and get is what it says.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <map>

#include "chairlift/engine.h"
#include "chairlift/text.h"
#include "engine/test_models.h"

namespace chairlift {
namespace triton_serving_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;
using testing::TempFolder;
using testing::WriteFile;

constexpr int kInt32 = onnx::TensorProto::INT32;

Tensor Floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::Of<float>(shape, std::span(values));
}
Tensor Ones(const Shape& shape) {
  return Floats(shape, std::vector<float>(static_cast<size_t>(shape.NumElements()), 1.0f));
}

// y = 2 x, of the shapes that are given.
ModelBuilder TwiceModel(const std::vector<testing::DeclaredDim>& shape) {
  ModelBuilder m(17);
  m.Input("x", kFloat, shape).Output("y", kFloat, shape);
  m.Node("Add", {"x", "x"}, {"y"});
  return m;
}

class TritonServingTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(engine_->AddRepository(folder_.string()).ok()); }

  Status Load(const ModelBuilder& model, const std::string& config, const std::string& name = "m") {
    WriteFile(folder_ / (name + "/1/model.onnx"), model.Bytes());
    WriteFile(folder_ / (name + "/config.pbtxt"), config);
    return engine_->LoadFromRepository(name);
  }
  void MustLoad(const ModelBuilder& model, const std::string& config,
                const std::string& name = "m") {
    const Status loaded = Load(model, config, name);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  std::string Refusal(const ModelBuilder& model, const std::string& config) {
    const Status status = Load(model, config);
    EXPECT_FALSE(status.ok()) << config;
    return std::string(status.message());
  }
  // Its only output, or an empty tensor.
  Tensor Ask(InferRequest request) {
    if (request.model.empty()) request.model = "m";
    const auto answer = engine_->Infer(std::move(request));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() && answer->outputs.size() == 1 ? answer->outputs[0].tensor : Tensor();
  }
  Tensor Ask(const Tensor& x) { return Ask({.inputs = {{"x", x}}}); }
  std::string Error(InferRequest request) {
    if (request.model.empty()) request.model = "m";
    const Status status = engine_->Infer(std::move(request)).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }
  std::string Error(const Tensor& x) { return Error(InferRequest{.inputs = {{"x", x}}}); }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_ =
      *Engine::Create({.workers = 1, .autotune = false, .model_config_name = "fast"});
};

void ExpectFloats(const Tensor& tensor, const Shape& shape, const std::vector<float>& values) {
  ASSERT_EQ(tensor.dtype(), DType::kFloat);
  EXPECT_EQ(tensor.shape(), shape) << tensor.shape().ToString();
  const auto own = tensor.values<float>();
  EXPECT_EQ(std::vector<float>(own.begin(), own.end()), values);
}

// --- The batch -----------------------------------------------------------------------------------

TEST_F(TritonServingTest, TheFirstDimensionIsTheBatchWhateverTheFileCallsIt) {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"a.0", 4}).Input("b", kFloat, {"b.0", 4}).Output("s", kFloat, {"s.0", 4});
  m.Node("Add", {"a", "b"}, {"s"});
  MustLoad(m, R"(max_batch_size: 8
    input [ { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }, { name: "b" data_type: TYPE_FP32 dims: [ 4 ] } ]
    output [ { name: "s" data_type: TYPE_FP32 dims: [ 4 ] } ])");
  const auto metadata = *engine_->Metadata("m");
  EXPECT_TRUE(metadata.batches);
  EXPECT_EQ(metadata.max_rows, 8);
  const auto ask = [&](int64_t a, int64_t b) {
    return engine_->Infer({.model = "m", .inputs = {{"a", Ones({a, 4})}, {"b", Ones({b, 4})}}});
  };
  EXPECT_TRUE(absl::IsInvalidArgument(ask(3, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ask(9, 9).status()));
  const auto answer = ask(3, 3);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->outputs[0].tensor.shape(), (Shape{3, 4}));
}

// Nothing is said of inputs and outputs but that there is a batch.
TEST_F(TritonServingTest, TheBatchHoldsForInputsThatAreNotListed) {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"a.0", 4}).Input("b", kFloat, {"b.0", 4}).Output("s", kFloat);
  m.Node("Add", {"a", "b"}, {"s"});
  MustLoad(m, "max_batch_size: 8");
  EXPECT_TRUE(engine_->Metadata("m")->batches);
  EXPECT_FALSE(
      engine_->Infer({.model = "m", .inputs = {{"a", Ones({2, 4})}, {"b", Ones({1, 4})}}}).ok());
}

TEST_F(TritonServingTest, InputsThatAreListedAreAllThatThereAre) {
  ModelBuilder m(17);
  m.Input("a", kFloat, {"n", 4}).Input("b", kFloat, {"n", 4}).Output("s", kFloat);
  m.Node("Add", {"a", "b"}, {"s"});
  EXPECT_THAT(Refusal(m, "max_batch_size: 8 input [ { name: \"a\" dims: [ 4 ] } ]"),
              AllOf(HasSubstr("input 'b' of the model is not listed"), HasSubstr("or none")));
}

TEST_F(TritonServingTest, OutputsThatAreNotListedAreNotGiven) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"n", 2}).Output("y", kFloat, {"n", 2}).Output("z", kFloat, {"n", 2});
  m.Node("Neg", {"x"}, {"y"});
  m.Node("Abs", {"x"}, {"z"});
  MustLoad(m, "max_batch_size: 4 output [ { name: \"z\" dims: [ 2 ] } ]");
  const auto metadata = *engine_->Metadata("m");
  ASSERT_EQ(metadata.outputs.size(), 1u);
  EXPECT_EQ(metadata.outputs[0].name, "z");
  const auto answer = engine_->Infer({.model = "m", .inputs = {{"x", Floats({1, 2}, {-1, 2})}}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->outputs.size(), 1u);
  ExpectFloats(answer->outputs[0].tensor, {1, 2}, {1, 2});
  EXPECT_THAT(Error({.model = "m", .inputs = {{"x", Ones({1, 2})}}, .outputs = {"y"}}),
              HasSubstr("no output 'y'"));
}

TEST_F(TritonServingTest, RowsAreBoundedWhereRequestsCannotShareBatches) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"n", 4}).Output("y", kFloat, {"n", 4});
  m.Node("ReduceMean", {"x"}, {"mean"}).Ints("axes", {0});
  m.Node("Sub", {"x", "mean"}, {"y"});
  MustLoad(m, "max_batch_size: 8");
  const auto metadata = *engine_->Metadata("m");
  EXPECT_FALSE(metadata.batches);
  EXPECT_TRUE(metadata.has_batch());
  EXPECT_THAT(Error(Ones({9, 4})), HasSubstr("max_batch_size of the model is 8"));
  EXPECT_EQ(Ask(Ones({8, 4})).shape(), (Shape{8, 4}));
}

TEST_F(TritonServingTest, MaxBatchSizeOf0MeansThatThereIsNoBatchDimension) {
  MustLoad(TwiceModel({"n"}), R"(max_batch_size: 0
    input [ { name: "x" dims: [ -1 ] } ] output [ { name: "y" dims: [ -1 ] } ])");
  EXPECT_EQ(engine_->Metadata("m")->max_rows, 0);
  EXPECT_FALSE(engine_->Metadata("m")->has_batch());
  ExpectFloats(Ask(Floats({3}, {1, 2, 3})), {3}, {2, 4, 6});
  // Nothing said of both inputs and outputs: chosen from the model.
  MustLoad(TwiceModel({"n"}), "input [ { name: \"x\" dims: [ -1 ] } ]");
  EXPECT_TRUE(engine_->Metadata("m")->has_batch());
}

// --- Dims ----------------------------------------------------------------------------------------

TEST_F(TritonServingTest, WhatContradictsTheModelRefusesIt) {
  const ModelBuilder m = TwiceModel({"n", 4});
  const auto io = [](const std::string& x, const std::string& y, int most = 8) {
    return fmt::format(
        "max_batch_size: {} input [ {{ name: \"x\" {} }} ] output [ {{ name: \"y\" {} }} ]", most,
        x, y);
  };
  EXPECT_THAT(Refusal(m, io("dims: [ 7 ]", "")), AllOf(HasSubstr("'x'"), HasSubstr("[n,4]")));
  EXPECT_THAT(Refusal(m, io("dims: [ -1 ]", "")), HasSubstr("'x'"));
  EXPECT_THAT(Refusal(m, io("dims: [ 4, 1 ]", "")), HasSubstr("'x'"));
  EXPECT_THAT(Refusal(m, io("dims: [ 4 ]", "dims: [ 5 ]")), HasSubstr("'y'"));
  EXPECT_THAT(Refusal(m, io("dims: [ 4 ]", "dims: [ 4, 4 ]")), HasSubstr("'y'"));
  EXPECT_THAT(Refusal(m, io("dims: [ 4 ]", "", 0)), HasSubstr("'x'"));
  EXPECT_THAT(Refusal(m, io("dims: [ 0 ]", "")), HasSubstr("dimension 0"));
  EXPECT_THAT(Refusal(m, io("dims: [ -2 ]", "")), HasSubstr("-2"));
  EXPECT_THAT(Refusal(testing::FixedModel(), "max_batch_size: 4"),
              AllOf(HasSubstr("[1,2]"), HasSubstr("max_batch_size: 0")));
  MustLoad(m, io("dims: [ 4 ]", "dims: [ -1 ]"));
  MustLoad(m, io("dims: [ -1, 4 ]", "dims: [ -1, 4 ]", 0));
}

TEST_F(TritonServingTest, DimsNarrowWhatTheModelLeavesOpen) {
  MustLoad(TwiceModel({"n", "m"}), R"(max_batch_size: 8 input [ { name: "x" dims: [ 4 ] } ])");
  EXPECT_THAT(engine_->Metadata("m")->inputs[0].shape, ElementsAre(-1, 4));
  EXPECT_THAT(Error(Ones({2, 3})), HasSubstr("'x'"));
  EXPECT_EQ(Ask(Ones({2, 4})).shape(), (Shape{2, 4}));
}

// The model leaves the output's size open, and the file does not.
TEST_F(TritonServingTest, AnswersThatAreNotAsDeclaredAreErrors) {
  MustLoad(TwiceModel({"n", "m"}), R"(max_batch_size: 8 output [ { name: "y" dims: [ 7 ] } ])");
  EXPECT_THAT(engine_->Metadata("m")->outputs[0].shape, ElementsAre(-1, 7));
  EXPECT_EQ(Ask(Ones({2, 7})).shape(), (Shape{2, 7}));
  EXPECT_THAT(Error(Ones({2, 5})), AllOf(HasSubstr("'y'"), HasSubstr("[7]")));
}

// --- Reshape -------------------------------------------------------------------------------------

TEST_F(TritonServingTest, ReshapesWhatClientsBringAndGet) {
  MustLoad(TwiceModel({1, 3, 2}), R"(max_batch_size: 0
    input [ { name: "x" dims: [ 3, 2 ] reshape { shape: [ 1, 3, 2 ] } } ]
    output [ { name: "y" dims: [ 6 ] reshape { shape: [ 1, 3, 2 ] } } ])");
  EXPECT_THAT(engine_->Metadata("m")->inputs[0].shape, ElementsAre(3, 2));
  EXPECT_THAT(engine_->Metadata("m")->outputs[0].shape, ElementsAre(6));
  ExpectFloats(Ask(Floats({3, 2}, {1, 2, 3, 4, 5, 6})), {6}, {2, 4, 6, 8, 10, 12});
  EXPECT_THAT(Error(Ones({1, 3, 2})), HasSubstr("'x'"));
}

TEST_F(TritonServingTest, AnEmptyReshapeTakesADimensionAway) {
  MustLoad(TwiceModel({"n"}), R"(max_batch_size: 8
    input [ { name: "x" dims: [ 1 ] reshape: { shape: [ ] } } ]
    output [ { name: "y" dims: [ 1 ] reshape: { shape: [ ] } } ])");
  EXPECT_TRUE(engine_->Metadata("m")->batches);
  ExpectFloats(Ask(Floats({2, 1}, {1, 2})), {2, 1}, {2, 4});
  EXPECT_THAT(Error(Ones({2})), HasSubstr("'x'"));
  MustLoad(TwiceModel({}), R"(input [ { name: "x" dims: [ 1 ] reshape { shape: [ ] } } ]
    output [ { name: "y" dims: [ 1, 1 ] reshape { shape: [ ] } } ])");
  ExpectFloats(Ask(Floats({1}, {3})), {1, 1}, {6});
}

TEST_F(TritonServingTest, ReshapesAroundOpenDimensions) {
  MustLoad(TwiceModel({"n", "l", 4}), R"(max_batch_size: 8
    input [ { name: "x" dims: [ -1, 2, 2 ] reshape { shape: [ -1, 4 ] } } ]
    output [ { name: "y" dims: [ 1, -1, 4 ] reshape { shape: [ -1, 4 ] } } ])");
  EXPECT_EQ(Ask(Ones({2, 3, 2, 2})).shape(), (Shape{2, 1, 3, 4}));
  const auto refused = [&](const std::string& dims, const std::string& shape) {
    return Refusal(TwiceModel({"n", "l", "k", 4}),
                   fmt::format("max_batch_size: 8 input [ {{ name: \"x\" dims: [ {} ] reshape {{ "
                               "shape: [ {} ] }} }} ]",
                               dims, shape));
  };
  EXPECT_THAT(refused("-1, -1, 5", "-1, -1, 4"), HasSubstr("as many elements"));
  EXPECT_THAT(refused("-1, 4", "-1, -1, 4"), HasSubstr("as many elements"));
  EXPECT_THAT(refused("4, -1", "-1, 4"), HasSubstr("as many elements"));
  EXPECT_THAT(refused("1, -1, -1, 4", "-1, -1, 4"), HasSubstr("not supported"));
}

// --- Ragged batches ------------------------------------------------------------------------------

TEST_F(TritonServingTest, ComputesBatchInputsForEachRequest) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"all"}).Output("y", kFloat);
  m.Node("Add", {"x", "x"}, {"y"});
  std::string config =
      "max_batch_size: 4 input [ { name: \"x\" data_type: TYPE_FP32 dims: [ -1, 2 ] "
      "allow_ragged_batch: true } ] output [ { name: \"y\" dims: [ -1, 2 ] } ] "
      "batch_output { target_name: \"y\" source_input: \"x\" }";
  const std::map<std::string, std::string> kinds = {
      {"count", "BATCH_ELEMENT_COUNT"},
      {"sum", "BATCH_ACCUMULATED_ELEMENT_COUNT"},
      {"from", "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"},
      {"most", "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE"},
      {"shapes", "BATCH_ITEM_SHAPE"},
      {"flat", "BATCH_ITEM_SHAPE_FLATTEN"}};
  for (const auto& [name, kind] : kinds) {
    if (name == "shapes") {
      m.Input(name, kFloat, {"r", "c"});
    } else {
      m.Input(name, kFloat, {name + ".0"});
    }
    m.Output(name + "_out", kFloat);
    m.Node("Identity", {name}, {name + "_out"});
    config += fmt::format(
        " batch_input {{ kind: {0} target_name: \"{1}\" data_type: TYPE_FP32 source_input: \"x\" }}"
        " output {{ name: \"{1}_out\" }}",
        kind, name);
  }
  MustLoad(m, config);
  const auto metadata = *engine_->Metadata("m");
  ASSERT_EQ(metadata.inputs.size(), 1);
  EXPECT_THAT(metadata.inputs[0].shape, ElementsAre(-1, -1, 2));
  const auto answer = engine_->Infer({.model = "m", .inputs = {{"x", Ones({2, 3, 2})}}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  std::map<std::string, Tensor> outputs;
  for (const NamedTensor& output : answer->outputs) outputs[output.name] = output.tensor;
  EXPECT_EQ(outputs["y"].shape(), (Shape{2, 3, 2}));
  ExpectFloats(outputs["count_out"], {1}, {12});
  ExpectFloats(outputs["sum_out"], {1}, {12});
  ExpectFloats(outputs["from_out"], {2}, {0, 12});
  EXPECT_EQ(outputs["most_out"].shape(), (Shape{12}));
  ExpectFloats(outputs["shapes_out"], {2, 2}, {3, 2, 3, 2});
  ExpectFloats(outputs["flat_out"], {4}, {3, 2, 3, 2});
  EXPECT_THAT(Refusal(TwiceModel({"n", 4}),
                      "max_batch_size: 4 input [ { name: \"x\" dims: [ 4 ] "
                      "allow_ragged_batch: true } ]"),
              HasSubstr("allow_ragged_batch"));
}

// --- Classes -------------------------------------------------------------------------------------

TEST_F(TritonServingTest, ClassesHaveTheirLabels) {
  WriteFile(folder_ / "m/labels.txt", "CAT\r\nDOG\nBIRD");
  MustLoad(TwiceModel({"n", 4}), R"(max_batch_size: 8
    output [ { name: "y" dims: [ 4 ] label_filename: "labels.txt" } ])");
  const Tensor x = Floats({2, 4}, {0.25f, 0.5f, -1, 0, 1, 1, 3, 2});
  const Tensor classes = Ask({.inputs = {{"x", x}}, .classes = {{"y", 2}}});
  ASSERT_EQ(classes.dtype(), DType::kBytes);
  EXPECT_EQ(classes.shape(), (Shape{2, 2}));
  EXPECT_THAT(TextsOf(classes),
              ElementsAre("1.000000:1:DOG", "0.500000:0:CAT", "6.000000:2:BIRD", "4.000000:3"));
  EXPECT_EQ(Ask({.inputs = {{"x", x}}, .classes = {{"y", 99}}}).shape(), (Shape{2, 4}));
  EXPECT_THAT(Refusal(TwiceModel({"n", 4}),
                      "output [ { name: \"y\" label_filename: \"../config.pbtxt\" } ]"),
              HasSubstr("label_filename"));
  EXPECT_THAT(Refusal(TwiceModel({"n", 4}), "output [ { name: \"y\" label_filename: \"no\" } ]"),
              HasSubstr("label_filename"));
}

TEST_F(TritonServingTest, ClassesThatAreNoNumbersComeLastAndAnAnswerHasABound) {
  MustLoad(TwiceModel({"n", 4}), "max_batch_size: 4");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(
      TextsOf(Ask({.inputs = {{"x", Floats({1, 4}, {nan, -1, 2, 2})}}, .classes = {{"y", 4}}})),
      ElementsAre("4.000000:2", "4.000000:3", "-2.000000:1", HasSubstr("nan:0")));
  EXPECT_EQ(Ask({.inputs = {{"x", Ones({0, 4})}}, .classes = {{"y", 3}}}).shape(), (Shape{0, 3}));
  MustLoad(TwiceModel({"n"}),
           "input [ { name: \"x\" dims: [ -1 ] } ] output [ { name: \"y\" dims: "
           "[ -1 ] } ]");
  EXPECT_THAT(Error({.inputs = {{"x", Ones({2'000'000})}}, .classes = {{"y", 2'000'000}}}),
              HasSubstr("classes"));
}

TEST_F(TritonServingTest, ClassesOfWholeNumbersWithoutABatch) {
  ModelBuilder m(17);
  m.Input("x", kInt64, {3}).Output("y", kInt64);
  m.Node("Identity", {"x"}, {"y"});
  MustLoad(m, R"(input [ { name: "x" dims: [ 3 ] } ] output [ { name: "y" dims: [ 3 ] } ])");
  const Tensor classes = Ask({.inputs = {{"x", Tensor::Of<int64_t>({3}, {5, 9007199254740993, 7})}},
                              .classes = {{"y", 1}}});
  EXPECT_EQ(classes.shape(), (Shape{1}));
  EXPECT_THAT(TextsOf(classes), ElementsAre("9007199254740993:1"));
}

// --- Timeouts ------------------------------------------------------------------------------------

TEST_F(TritonServingTest, DelayAnswersLateRequests) {
  const auto policy = [](const std::string& text) {
    return "max_batch_size: 8 dynamic_batching { default_queue_policy { " + text + " } }";
  };
  const ModelBuilder m = TwiceModel({"n", 4});
  const auto late = std::chrono::microseconds(0);
  const auto ask = [&] {
    return engine_->Infer({.model = "m", .inputs = {{"x", Ones({1, 4})}}, .timeout = late})
        .status();
  };
  MustLoad(m, policy("timeout_action: DELAY default_timeout_microseconds: 1"));
  EXPECT_TRUE(ask().ok());
  // A request's own timeout holds where it may have one.
  MustLoad(m, policy("timeout_action: REJECT"));
  EXPECT_TRUE(ask().ok());
  MustLoad(m, policy("timeout_action: REJECT allow_timeout_override: true"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(ask())) << ask();
  MustLoad(m, "max_batch_size: 8");
  EXPECT_TRUE(absl::IsDeadlineExceeded(ask())) << ask();
}

// --- Sequences -----------------------------------------------------------------------------------

class TritonSequenceTest : public TritonServingTest {
 protected:
  // y = x + state, which is the next state.
  static ModelBuilder Accumulator() {
    ModelBuilder m(17);
    m.Input("x", kFloat, {"n", 2}).Input("s", kFloat, {"b", "k"});
    m.Output("y", kFloat).Output("next", kFloat);
    m.Node("Add", {"x", "s"}, {"y"});
    m.Node("Identity", {"y"}, {"next"});
    return m;
  }
  static std::string Config(const std::string& initial) {
    return "max_batch_size: 8 input [ { name: \"x\" dims: [ 2 ] } ] output [ { name: \"y\" dims: [ "
           "2 "
           "] } ] sequence_batching { state [ { input_name: \"s\" output_name: \"next\" data_type: "
           "TYPE_FP32 dims: [ 2 ] " +
           initial + " } ] }";
  }
  Tensor Chunk(const Tensor& x, bool start, bool end = false) {
    return Ask(
        {.inputs = {{"x", x}}, .sequence = "7", .sequence_start = start, .sequence_end = end});
  }
};

TEST_F(TritonSequenceTest, ASequenceStartsWithItsInitialState) {
  const float bytes[] = {100, 200};
  WriteFile(folder_ / "m/initial_state/hundreds",
            std::string(reinterpret_cast<const char*>(bytes), sizeof(bytes)));
  MustLoad(Accumulator(), Config("initial_state: { name: \"i\" data_type: TYPE_FP32 dims: [ 2 ] "
                                 "data_file: \"hundreds\" }"));
  ExpectFloats(Chunk(Ones({1, 2}), true), {1, 2}, {101, 201});
  ExpectFloats(Chunk(Ones({1, 2}), false), {1, 2}, {102, 202});
  ExpectFloats(Chunk(Ones({2, 2}), true), {2, 2}, {101, 201, 101, 201});  // each row
  MustLoad(Accumulator(), Config("initial_state [ { data_type: TYPE_FP32 dims: [ 2 ] zero_data: "
                                 "true } ]"));
  ExpectFloats(Chunk(Ones({1, 2}), true), {1, 2}, {1, 1});
  for (const char* wrong :
       {"data_type: TYPE_FP32 dims: [ 3 ] zero_data: true", "data_type: TYPE_FP32 dims: [ 2 ]",
        "data_type: TYPE_INT32 dims: [ 2 ] zero_data: true",
        "data_type: TYPE_FP32 dims: [ 2 ] data_file: \"../config.pbtxt\"",
        "data_type: TYPE_FP32 dims: [ 2 ] data_file: \"none\""}) {
    EXPECT_THAT(Refusal(Accumulator(), Config(fmt::format("initial_state {{ {} }}", wrong))),
                HasSubstr("initial_state"))
        << wrong;
  }
}

TEST_F(TritonSequenceTest, RequestsOfNoSequenceAreRefused) {
  MustLoad(Accumulator(), Config(""));
  EXPECT_THAT(Error(Ones({1, 2})), HasSubstr("sequence_id"));
}

TEST_F(TritonSequenceTest, FillsControlInputs) {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"n", 1});
  m.Output("y", kFloat, {"m", 4});
  m.Input("START", kInt32, {"s", 1}).Input("END", kFloat, {"e", 1});
  m.Input("READY", testing::kBool, {"r", 1}).Input("CORRID", kInt64, {"c", 1});
  m.Node("Cast", {"START"}, {"start"}).Int("to", kFloat);
  m.Node("Cast", {"READY"}, {"ready"}).Int("to", kFloat);
  m.Node("Cast", {"CORRID"}, {"id"}).Int("to", kFloat);
  m.Node("Concat", {"start", "END", "ready", "id"}, {"all"}).Int("axis", 1);
  m.Node("Add", {"all", "x"}, {"y"});
  const auto config = [](const std::string& strategy, const std::string& start) {
    return "max_batch_size: 8 input [ { name: \"x\" dims: [ 1 ] } ] output [ { name: \"y\" dims: [ "
           "4 ] "
           "} ] sequence_batching { " +
           strategy +
           " control_input [ { name: \"START\" control [ { kind: CONTROL_SEQUENCE_START " + start +
           " } ] }, { name: \"END\" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 3 "
           "] "
           "} ] }, { name: \"READY\" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ "
           "false, true ] } ] }, { name: \"CORRID\" control [ { kind: CONTROL_SEQUENCE_CORRID "
           "data_type: TYPE_INT64 } ] } ] }";
  };
  for (const char* strategy : {"direct { }", "oldest { max_candidate_sequences: 4 }", ""}) {
    MustLoad(m, config(strategy, "int32_false_true: [ -1, 2 ]"));
    EXPECT_EQ(engine_->Metadata("m")->inputs.size(), 1);
    const Tensor zero = Floats({1, 1}, {0});
    ExpectFloats(Chunk(zero, true), {1, 4}, {2, 0, 1, 7});
    ExpectFloats(Chunk(Floats({2, 1}, {0, 1}), false), {2, 4}, {-1, 0, 1, 7, 0, 1, 2, 8});
    ExpectFloats(Chunk(zero, false, true), {1, 4}, {-1, 3, 1, 7});
    EXPECT_THAT(Error({.inputs = {{"x", zero}}, .sequence = "7"}), HasSubstr("not known"));
    EXPECT_THAT(Error(zero), HasSubstr("sequence_id"));
    EXPECT_THAT(Error({.inputs = {{"x", zero}}, .sequence = "seven", .sequence_start = true}),
                HasSubstr("'seven'"));
    EXPECT_THAT(
        Error({.inputs = {{"x", zero}, {"END", zero}}, .sequence = "8", .sequence_start = true}),
        HasSubstr("'END'"));
  }
  EXPECT_THAT(Refusal(m, config("", "fp32_false_true: [ 0, 1 ]")), HasSubstr("'START'"));
  EXPECT_THAT(Refusal(m, config("", "int32_false_true: [ 0 ]")), HasSubstr("'START'"));
  EXPECT_THAT(Refusal(m, config("iterative_sequence: true", "int32_false_true: [ 0, 1 ]")),
              HasSubstr("iterative_sequence"));
}

TEST_F(TritonSequenceTest, StatesThatAreOutputsTooAreGiven) {
  std::string config = Config("");
  config.insert(0, "output [ { name: \"next\" dims: [ 2 ] } ] ");
  MustLoad(Accumulator(), config);
  const auto answer = engine_->Infer(
      {.model = "m", .inputs = {{"x", Ones({1, 2})}}, .sequence = "7", .sequence_start = true});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->outputs.size(), 2);
  EXPECT_THAT(engine_->Metadata("m")->shown_states, ElementsAre("next"));
}

TEST_F(TritonSequenceTest, WarmUpRequestsAreSequences) {
  MustLoad(Accumulator(), Config("") + R"( model_warmup { name: "s" batch_size: 1 inputs { key: "x"
    value { data_type: TYPE_FP32 dims: [ 2 ] random_data: true } } })");
  EXPECT_EQ((*engine_->Statistics("m"))[0].success.count, 1);
}

// --- Ensembles -----------------------------------------------------------------------------------

TEST_F(TritonServingTest, AnEnsembleIsAPipeline) {
  ModelBuilder sum(17);
  sum.Input("a", kFloat, {"n", 2}).Input("b", kFloat, {"m", 2});
  sum.Output("s", kFloat).Output("unused", kFloat);
  sum.Node("Add", {"a", "b"}, {"s"});
  sum.Node("Neg", {"s"}, {"unused"});
  MustLoad(sum, "max_batch_size: 4", "sum");
  MustLoad(TwiceModel({"n", 2}), "max_batch_size: 4", "twice");
  const auto config = [](const std::string& steps, const std::string& dims = "2") {
    return "platform: \"ensemble\" max_batch_size: 4 input [ { name: \"IN\" data_type: TYPE_FP32 "
           "dims: [ " +
           dims +
           " ] } ] output [ { name: \"OUT\" data_type: TYPE_FP32 dims: [ 2 ] } ] "
           "ensemble_scheduling { step [ " +
           steps + " ] }";
  };
  // The last step comes first in the file.
  const std::string last =
      "{ model_name: \"sum\" model_version: -1 input_map { key: \"a\" value: \"t\" } input_map { "
      "key: "
      "\"b\" value: \"IN\" } output_map { key: \"s\" value: \"OUT\" } }";
  const std::string first =
      "{ model_name: \"twice\" model_version: 1 input_map { key: \"x\" value: \"IN\" } output_map "
      "{ "
      "key: \"y\" value: \"t\" } }";
  const auto load = [&](const std::string& text) {
    WriteFile(folder_ / "e/config.pbtxt", text);
    return engine_->LoadFromRepository("e");
  };
  const Status loaded = load(config(last + ", " + first));
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(engine_->Metadata("e")->max_rows, 4);
  ExpectFloats(Ask({.model = "e", .inputs = {{"IN", Floats({1, 2}, {1, 2})}}}), {1, 2}, {3, 6});
  EXPECT_THAT(Error({.model = "e", .inputs = {{"IN", Ones({5, 2})}}}), HasSubstr("max_batch_size"));

  const auto refusal = [&](const std::string& text) {
    const Status status = load(text);
    EXPECT_FALSE(status.ok()) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(config(last)), HasSubstr("tensor 't' is neither an output of a step"));
  EXPECT_THAT(refusal(config(last + ", " + first + ", " + first)), HasSubstr("given twice"));
  EXPECT_THAT(
      refusal(config(first + ", { model_name: \"sum\" input_map { key: \"a\" value: \"t\" } "
                             "output_map { key: \"s\" value: \"OUT\" } }")),
      HasSubstr("input_map does not name input 'b'"));
  EXPECT_THAT(refusal(config("{ model_name: \"twice\" input_map { key: \"x\" value: \"OUT\" } "
                             "output_map { key: \"y\" value: \"OUT\" } }")),
              HasSubstr("depends on itself"));
  EXPECT_THAT(refusal(config(last + ", " + first, "3")), HasSubstr("'IN'"));
  MustLoad(TwiceModel({"n", 2}), "max_batch_size: 3", "twice");
  EXPECT_THAT(refusal(config(last + ", " + first)),
              AllOf(HasSubstr("(twice)"), HasSubstr("set max_batch_size to 3 or less")));
  MustLoad(TwiceModel({"n", 2}), "max_batch_size: 4", "twice");
  EXPECT_THAT(refusal("platform: \"ensemble\""), HasSubstr("ensemble_scheduling"));
  EXPECT_THAT(
      refusal(config(last + ", { model_name: \"twice\" model_version: 3 input_map { key: "
                            "\"x\" value: \"IN\" } output_map { key: \"y\" value: \"t\" } }")),
      HasSubstr("twice"));
}

// A step that no output needs is not run, and does not refuse the ensemble.
TEST_F(TritonServingTest, AnEnsembleLeavesOutStepsThatNothingNeeds) {
  MustLoad(TwiceModel({"n", 2}), "max_batch_size: 4", "twice");
  const auto step = [](const char* to) {
    return fmt::format(
        "{{ model_name: \"twice\" model_version: -1 input_map {{ key: \"x\" value: \"IN\" }} "
        "output_map {{ key: \"y\" value: \"{}\" }} }}",
        to);
  };
  WriteFile(folder_ / "e/config.pbtxt",
            "platform: \"ensemble\" input [ { name: \"IN\" dims: [ -1, 2 ] } ] output [ { name: "
            "\"OUT\" dims: [ -1, 2 ] } ] ensemble_scheduling { step [ " +
                step("OUT") + ", " + step("nobody") + " ] }");
  const Status loaded = engine_->LoadFromRepository("e");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_FALSE(engine_->Metadata("e")->has_batch());
  ExpectFloats(Ask({.model = "e", .inputs = {{"IN", Ones({1, 2})}}}), {1, 2}, {2, 2});
}

// --- Other configurations ------------------------------------------------------------------------

TEST_F(TritonServingTest, AConfigurationOfAName) {
  MustLoad(TwiceModel({"n", 4}), "max_batch_size: 8", "plain");
  WriteFile(folder_ / "m/configs/fast.pbtxt", "max_batch_size: 2");
  MustLoad(TwiceModel({"n", 4}), "max_batch_size: 8");
  EXPECT_EQ(engine_->Metadata("plain")->max_rows, 8);
  EXPECT_EQ(engine_->Metadata("m")->max_rows, 2);
}

TEST_F(TritonServingTest, AConfigurationThatAClientBrings) {
  MustLoad(TwiceModel({"n", 4}), "max_batch_size: 8");
  const auto load = [&](const std::string& json) { return engine_->LoadFromRepository("m", json); };
  const Status loaded = load(
      R"({"max_batch_size": 2, "platform": "onnxruntime_onnx",
          "input": [{"name": "x", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": ["2", 2],
                     "reshape": {"shape": [4]}, "is_shape_tensor": false}],
          "parameters": {"policy": {"string_value": "none"}, "diagnosis": {"string_value": ""}},
          "dynamicBatching": {"preferredBatchSize": [2]}, "cc_model_filenames": {},
          "metric_tags": {"a": "b"}, "model_transaction_policy": {"decoupled": false}})");
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(engine_->Metadata("m")->max_rows, 2);
  EXPECT_EQ(engine_->Metadata("m")->config.policy, "none");
  EXPECT_EQ(Ask(Ones({2, 2, 2})).shape(), (Shape{2, 4}));
  const auto refusal = [&](const std::string& json) {
    const Status status = load(json);
    EXPECT_FALSE(status.ok()) << json;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(R"({"no_such_field": 1})"), HasSubstr("no_such_field"));
  EXPECT_THAT(refusal(R"({"max_batch_size": "many"})"), HasSubstr("max_batch_size"));
  EXPECT_THAT(refusal(R"({"model_transaction_policy": {"decoupled": true}})"),
              HasSubstr("decoupled"));
  EXPECT_THAT(refusal("max_batch_size: 8"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("config"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(100'000, '[')), HasSubstr("config"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
              HasSubstr("nests deeper"));
  // What was served before is served still, and the folder's own comes back.
  EXPECT_EQ(engine_->Metadata("m")->max_rows, 2);
  ASSERT_TRUE(engine_->LoadFromRepository("m").ok());
  EXPECT_EQ(engine_->Metadata("m")->max_rows, 8);
}

// What is shown of a model loads it as it was.
TEST_F(TritonServingTest, TheConfigurationIsKeptAsTritonsJson) {
  MustLoad(TwiceModel({"n", 4}), R"(max_batch_size: 8
    input [ { name: "x" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } } ]
    dynamic_batching { max_queue_delay_microseconds: 100 }
    version_policy { specific { versions: [ 1 ] } }
    metric_tags { key: "k" value: "v" } parameters { key: "policy" value { string_value: "none" } })");
  const std::string shown = engine_->Metadata("m")->triton_config;
  for (const char* part :
       {R"("metric_tags":{"k":"v"})", R"("parameters":{"policy":{"string_value":"none"}})",
        R"("dims":[2,2])", R"("reshape":{"shape":[4]})", R"("versions":[1])",
        R"("max_queue_delay_microseconds":100)", R"("data_type":"TYPE_FP32")"}) {
    EXPECT_THAT(shown, HasSubstr(part));
  }
}

TEST_F(TritonSequenceTest, TheConfigurationThatIsShownLoadsTheModelAgain) {
  MustLoad(Accumulator(),
           Config("initial_state { data_type: TYPE_FP32 dims: [ 2 ] zero_data: true }"));
  const std::string shown = engine_->Metadata("m")->triton_config;
  const Status loaded = engine_->LoadFromRepository("m", shown);
  ASSERT_TRUE(loaded.ok()) << loaded << shown;
  EXPECT_EQ(engine_->Metadata("m")->triton_config, shown);
  ExpectFloats(Chunk(Ones({1, 2}), true), {1, 2}, {1, 1});
}

// A model that is named by its folder is as its file says, too.
TEST_F(TritonServingTest, AModelsFolderThatIsLoadedByItself) {
  MustLoad(TwiceModel({1, 4}), "input [ { name: \"x\" dims: [ 4 ] reshape { shape: [ 1, 4 ] } } ]");
  const Status loaded = engine_->LoadModel("own", (folder_ / "m/1/model.onnx").string(),
                                           {.config_file = (folder_ / "m/config.pbtxt").string()});
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(Ask({.model = "own", .inputs = {{"x", Ones({4})}}}).shape(), (Shape{1, 4}));
}

}  // namespace triton_serving_test
}  // namespace chairlift
