// A model cut into cells gives what the whole gives, whatever the rows' company.
#include <gmock/gmock.h>

#include "runtime/sliced_models.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::B;
using testing::Check;
using testing::Dims;
using ::testing::HasSubstr;
using testing::Ints;
using testing::kFeatures;
using testing::kSlicedHidden;
using testing::ModelMaker;
using testing::T;

TEST(SlicedModelTest, EmbeddingLstmAndAHeadForEachToken) {
  ModelMaker m;
  const ValueId ids = m.Input("ids", DType::kInt64, Dims({B(), T()}));
  const ValueId x = m.Gather(m.Weights({9, kFeatures}), ids, 0);
  const ValueId y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {})[0];
  const ValueId rows = m.Transpose(m.Squeeze(y, 1), {1, 0, 2});
  m.Output(m.Linear(rows, kSlicedHidden, 3));
  Check(std::move(m).Done(), "TRT");
}

TEST(SlicedModelTest, AHeadOnTheLastState) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId h = m.Recurrent(x, kFeatures, {})[1];
  m.Output(m.Linear(m.Squeeze(h, 0), kSlicedHidden, 3));
  Check(std::move(m).Done(), "TRL");
}

TEST(SlicedModelTest, AMeanOverTime) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {})[0];
  const ValueId mean =
      m.Op("ReduceMean", {m.Squeeze(y, 1), m.Numbers({0})}, Attrs({{"keepdims", int64_t{0}}}));
  m.Output(m.Linear(mean, kSlicedHidden, 3));
  Check(std::move(m).Done(), "TRL");
}

TEST(SlicedModelTest, RawOutputsOfTheOperator) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  for (ValueId id : m.Recurrent(x, kFeatures, {})) m.Output(id);
  Check(std::move(m).Done(), "TR");
}

// [batch, time, features] as one list of rows, and back.
TEST(SlicedModelTest, RowsOfABatchAndItsTimeInOneDimension) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId flat = m.Reshape(x, {-1, kFeatures});
  const ValueId hidden = m.Op("Relu", {m.Op("Gemm", {flat, m.Weights({kFeatures, 6})})});
  const ValueId back =
      m.Op("Reshape", {hidden, m.Concat({m.Size(x, 0), m.Size(x, 1), m.Numbers({6})}, 0)});
  const ValueId y = m.Recurrent(m.Transpose(back, {1, 0, 2}), 6, {})[0];
  const ValueId rows = m.Reshape(m.Transpose(m.Squeeze(y, 1), {1, 0, 2}), {-1, kSlicedHidden});
  const ValueId logits = m.Op("Gemm", {rows, m.Weights({kSlicedHidden, 3})});
  m.Output(m.Op("Reshape", {logits, m.Concat({m.Size(x, 0), m.Size(x, 1), m.Numbers({3})}, 0)}));
  Check(std::move(m).Done(), "TRT");
}

// Steps and directions, or steps and features, in one dimension of an output.
TEST(SlicedModelTest, AnOutputThatHasTimeInOneDimensionWithSomethingElse) {
  for (const Ints& order : {Ints{3, 2, 1, 0}, Ints{2, 0, 3, 1}, Ints{2, 3, 0, 1}}) {
    for (const bool read_on : {false, true}) {
      ModelMaker m;
      const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
      const ValueId y =
          m.Recurrent(x, kFeatures, {.direction = "bidirectional", .attributes = {}})[0];
      const ValueId flat = m.Reshape(m.Transpose(y, order), {0, 0, -1});
      m.Output(flat);
      if (read_on) m.Output(m.Op("Tanh", {flat}));
      Check(std::move(m).Done());
    }
  }
}

// A convolution over time makes another sequence, whose length only it tells.
TEST(SlicedModelTest, AConvolutionBeforeTheLayer) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), kFeatures, T()}));
  const ValueId conv =
      m.Op("Conv", {x, m.Weights({6, kFeatures, 3})},
           Attrs({{"strides", Ints{2}}, {"pads", Ints{2, 2}}, {"kernel_shape", Ints{3}}}));
  const ValueId rows = m.Transpose(m.Op("Relu", {conv}), {2, 0, 1});
  const ValueId y = m.Recurrent(rows, 6, {.direction = "bidirectional", .attributes = {}})[0];
  const ValueId joined = m.Reshape(m.Transpose(y, {0, 2, 1, 3}), {0, 0, -1});
  m.Output(
      m.Op("Softmax", {m.Linear(joined, 2 * kSlicedHidden, 3)}, Attrs({{"axis", int64_t{-1}}})));
  Check(std::move(m).Done());
}

TEST(SlicedModelTest, AttentionOverTheStepsAndAResidual) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kSlicedHidden}));
  const ValueId y = m.Transpose(
      m.Squeeze(m.Recurrent(m.Transpose(x, {1, 0, 2}), kSlicedHidden, {})[0], 1), {1, 0, 2});
  const ValueId scores = m.Op("MatMul", {y, m.Transpose(y, {0, 2, 1})});
  const ValueId mixed =
      m.Op("MatMul", {m.Op("Softmax", {scores}, Attrs({{"axis", int64_t{-1}}})), y});
  m.Output(m.Linear(m.Op("Add", {mixed, x}), kSlicedHidden, 3));
  Check(std::move(m).Done());
}

// A second layer that starts from what the first left.
TEST(SlicedModelTest, AnEncoderAndADecoder) {
  ModelMaker m;
  const ValueId source = m.Input("source", DType::kInt64, Dims({B(), Dim::Symbol("source_time")}));
  const ValueId target = m.Input("target", DType::kInt64, Dims({B(), T()}));
  const ValueId table = m.Weights({9, kFeatures});
  const auto embed = [&](ValueId ids) { return m.Transpose(m.Gather(table, ids, 0), {1, 0, 2}); };
  const std::vector<ValueId> encoded = m.Recurrent(embed(source), kFeatures, {});
  const ValueId y = m.Recurrent(embed(target), kFeatures,
                                {.h = encoded[1], .c = encoded[2], .attributes = {}})[0];
  m.Output(m.Op("ArgMax", {m.Linear(m.Squeeze(y, 1), kSlicedHidden, 7)},
                Attrs({{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}})));
  Check(std::move(m).Done(), "TTRRT");
}

// A lane's value beside every token.
TEST(SlicedModelTest, AValueOfTheLaneAtEveryStep) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId style = m.Input("style", DType::kFloat, Dims({B(), kFeatures}));
  const ValueId shape = m.Op("Shape", {x});
  const ValueId repeated = m.Op("Expand", {m.Unsqueeze(style, 0), shape});
  const ValueId both =
      m.Op("Add", {m.Concat({x, repeated}, 2), m.Concat({repeated, m.Op("Tanh", {x})}, 2)});
  m.Output(m.Recurrent(both, 2 * kFeatures, {})[0]);
  Check(std::move(m).Done(), "TR");
}

TEST(SlicedModelTest, InitialStatesThatAreExpandedOrComputed) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId batch = m.Size(x, 1);
  const ValueId h =
      m.Op("Expand", {m.Weights({1, 1, kSlicedHidden}),
                      m.Concat({m.Numbers({1}), batch, m.Numbers({kSlicedHidden})}, 0)});
  const ValueId c = m.Unsqueeze(
      m.Linear(m.Op("ReduceMax", {x, m.Numbers({0})}, Attrs({{"keepdims", int64_t{0}}})), kFeatures,
               kSlicedHidden),
      0);
  for (ValueId id : m.Recurrent(x, kFeatures, {.h = h, .c = c, .attributes = {}})) m.Output(id);
  Check(std::move(m).Done());
}

TEST(SlicedModelTest, PositionsByStep) {
  ModelMaker m;
  const ValueId ids = m.Input("ids", DType::kInt64, Dims({B(), T()}));
  const ValueId x = m.Gather(m.Weights({9, kFeatures}), ids, 0);
  const ValueId steps =
      m.Op("Range", {m.Number(0), m.Gather(m.Op("Shape", {ids}), m.Number(1), 0), m.Number(1)});
  const ValueId positions = m.Gather(m.Weights({16, kFeatures}), steps, 0);
  const ValueId y =
      m.Recurrent(m.Transpose(m.Op("Add", {x, positions}), {1, 0, 2}), kFeatures, {})[0];
  m.Output(m.Squeeze(y, 1));
  Check(std::move(m).Done());
}

// The mean by hand: a sum over the number of steps.
TEST(SlicedModelTest, ANumberOfStepsThatIsComputedWith) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId y = m.Squeeze(
      m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {.op = "GRU", .attributes = {}})[0], 1);
  const ValueId sum = m.Op("ReduceSum", {y, m.Numbers({0})}, Attrs({{"keepdims", int64_t{0}}}));
  const ValueId count =
      m.Op("Cast", {m.Gather(m.Op("Shape", {x}), m.Number(1), 0)}, Attrs({{"to", int64_t{1}}}));
  m.Output(m.Op("Div", {sum, count}));
  m.Output(m.Op("Div", {y, count}));
  Check(std::move(m).Done());
}

TEST(SlicedModelTest, LengthsAsInt64) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId lengths = m.Input("lengths", DType::kInt64, Dims({B()}));
  const ValueId narrow = m.Op("Cast", {lengths}, Attrs({{"to", int64_t{6}}}));
  m.Output(m.Squeeze(m.Recurrent(x, kFeatures, {.lengths = narrow, .attributes = {}})[1], 0));
  Check(std::move(m).Done());
}

TEST(SlicedModelTest, AFixedNumberOfSteps) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), 4, kFeatures}));
  const ValueId y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {})[0];
  m.Output(m.Linear(m.Transpose(m.Squeeze(y, 1), {1, 0, 2}), kSlicedHidden, 3));
  Check(std::move(m).Done());
}

// A streaming model: the state goes in and comes out, stacked by layer.
TEST(SlicedModelTest, StatesOfAStreamGoInAndOut) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId state = m.Input("state", DType::kFloat, Dims({2, B(), kSlicedHidden}));
  const std::vector<ValueId> y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures,
                                             {.h = m.Unsqueeze(m.Gather(state, m.Number(0), 0), 0),
                                              .c = m.Unsqueeze(m.Gather(state, m.Number(1), 0), 0),
                                              .attributes = {}});
  m.Output(m.Op("Sigmoid", {m.Linear(m.Squeeze(y[1], 0), kSlicedHidden, 1)}));
  m.Output(m.Concat({y[1], y[2]}, 0));
  Check(std::move(m).Done());
}

Graph Embedded(const std::string& direction, bool read_twice) {
  ModelMaker m;
  const ValueId ids = m.Input("ids", DType::kInt64, Dims({B(), T()}));
  const ValueId x = m.Gather(m.Weights({9, kFeatures}), ids, 0);
  m.Output(m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures,
                       {.direction = direction, .attributes = {}})[0]);
  if (read_twice) m.Output(x);
  return std::move(m).Done();
}

TEST(SlicedModelTest, AnEmbeddingIsFoldedIntoTheProjectionWhereThereIsRoom) {
  const auto multiplies = [](const SlicedModel& model) {
    int count = 0;
    for (const Node& node : model.cells.at(0).graph->nodes) count += node.def->name == "MatMul";
    return count;
  };
  for (const char* direction : {"forward", "bidirectional"}) {
    const Graph graph = Embedded(direction, false);
    const int directions = direction[0] == 'f' ? 1 : 2;
    // [9, 4·H] of floats a direction.
    const int64_t bytes = directions * 9 * 4 * kSlicedHidden * 4;
    Check(graph, "", {.max_folded_embedding_bytes = bytes});
    const StatusOr<SlicedModel> folded =
        SliceIntoCells(graph, {.max_folded_embedding_bytes = bytes});
    ASSERT_TRUE(folded.ok()) << folded.status();
    EXPECT_EQ(multiplies(*folded), 0);
    ASSERT_EQ(folded->notes.size(), 1u);
    EXPECT_THAT(folded->notes[0], HasSubstr(std::to_string(bytes) + " bytes in place of " +
                                            std::to_string(9 * kFeatures * 4)));
    const StatusOr<SlicedModel> stays =
        SliceIntoCells(graph, {.max_folded_embedding_bytes = bytes - 1});
    ASSERT_TRUE(stays.ok()) << stays.status();
    EXPECT_EQ(multiplies(*stays), directions);
    EXPECT_THAT(stays->notes.at(0), HasSubstr("stays"));
  }
  const StatusOr<SlicedModel> twice =
      SliceIntoCells(Embedded("forward", true), {.max_folded_embedding_bytes = 1 << 20});
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_EQ(multiplies(*twice), 1);
}

// Only a request tells that the dimension is 1: its row is squeezed in a cell, where others fail.
TEST(SlicedModelTest, ADroppedDimensionThatIsNotKnownToBeOneIsNoView) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId h = m.Input("h", DType::kFloat, Dims({Dim::Symbol("layers"), B(), kSlicedHidden}));
  m.Output(m.Recurrent(x, kFeatures, {.h = m.Unsqueeze(m.Squeeze(h, 0), 0), .attributes = {}})[1]);
  const StatusOr<SlicedModel> sliced = SliceIntoCells(std::move(m).Done());
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  EXPECT_EQ(testing::Kinds(*sliced), "LTR");
}

TEST(SlicedModelTest, SaysWhyAModelCannotBeSliced) {
  const auto why = [](ModelMaker m) {
    const StatusOr<SlicedModel> sliced = SliceIntoCells(std::move(m).Done());
    EXPECT_EQ(sliced.status().code(), absl::StatusCode::kUnimplemented);
    return Message(sliced.status());
  };
  {
    ModelMaker m;
    m.Output(m.Op("Relu", {m.Input("x", DType::kFloat, Dims({B(), kFeatures}))}));
    EXPECT_THAT(why(std::move(m)), HasSubstr("no recurrence"));
  }
  {
    ModelMaker m;
    const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
    const ValueId y = m.Recurrent(x, kFeatures, {})[1];
    m.Output(m.Op("Softmax", {y}, Attrs({{"axis", int64_t{1}}})));
    EXPECT_THAT(why(std::move(m)), HasSubstr("works along the batch"));
  }
  {
    ModelMaker m;
    const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
    const ValueId zeros = m.Zeros({m.Size(x, 0), m.Size(x, 1), m.Numbers({kFeatures})});
    m.Output(m.Op(
        "Add",
        {m.Squeeze(m.Recurrent(zeros, kFeatures, {.hidden = kFeatures, .attributes = {}})[0], 1),
         x}));
    EXPECT_THAT(why(std::move(m)), HasSubstr("its steps cannot be followed"));
  }
  {
    ModelMaker m;
    const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
    const ValueId h = m.Input("h", DType::kFloat, Dims({B(), Dim::Symbol("any")}));
    m.Output(m.Recurrent(x, kFeatures, {.h = m.Unsqueeze(h, 0), .attributes = {}})[1]);
    EXPECT_THAT(why(std::move(m)), HasSubstr("its steps cannot be followed"));
  }
  {
    ModelMaker m;
    const ValueId x = m.Input("x", DType::kFloat, Dims({T(), 1, kFeatures}));
    m.Output(m.Recurrent(x, kFeatures, {})[1]);
    EXPECT_THAT(why(std::move(m)), HasSubstr("works along the batch"));
  }
  {
    ModelMaker m;
    const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
    const ValueId scale = m.Input("scale", DType::kFloat, Dims({1}));
    m.Output(m.Op("Mul", {m.Recurrent(x, kFeatures, {})[1], scale}));
    EXPECT_THAT(why(std::move(m)), HasSubstr("not one dimension of every input: 'scale'"));
  }
}

class LayerTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
 protected:
  std::string op() const { return std::get<0>(GetParam()); }
  std::string direction() const { return std::get<1>(GetParam()); }
  bool batch_first() const { return std::get<2>(GetParam()); }
  int64_t directions() const { return direction() == "bidirectional" ? 2 : 1; }
  bool lstm() const { return op() == "LSTM"; }
  ModelMaker::Options Layer() const {
    return {.op = op(), .direction = direction(), .batch_first = batch_first(), .attributes = {}};
  }
  SymbolicShape X() const {
    return batch_first() ? Dims({B(), T(), kFeatures}) : Dims({T(), B(), kFeatures});
  }
  SymbolicShape State() const {
    return batch_first() ? Dims({B(), directions(), kSlicedHidden})
                         : Dims({directions(), B(), kSlicedHidden});
  }
};

TEST_P(LayerTest, GivesAllItsOutputs) {
  ModelMaker m;
  for (ValueId id : m.Recurrent(m.Input("x", DType::kFloat, X()), kFeatures, Layer())) m.Output(id);
  Check(std::move(m).Done());
}

TEST_P(LayerTest, TakesInitialStatesAndLengths) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, X());
  ModelMaker::Options o = Layer();
  o.lengths = m.Input("lengths", DType::kInt32, Dims({B()}));
  o.h = m.Input("h", DType::kFloat, State());
  if (lstm()) o.c = m.Input("c", DType::kFloat, State());
  for (ValueId id : m.Recurrent(x, kFeatures, o)) m.Output(id);
  Check(std::move(m).Done());
}

TEST_P(LayerTest, TakesAttributes) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, X());
  ModelMaker::Options o = Layer();
  o.peepholes = lstm();
  o.attributes.Set("clip", 0.7f);
  if (lstm()) o.attributes.Set("input_forget", int64_t{1});
  if (op() == "GRU") o.attributes.Set("linear_before_reset", int64_t{1});
  std::vector<std::string> names =
      lstm()          ? std::vector<std::string>{"HardSigmoid", "Tanh", "Affine"}
      : op() == "GRU" ? std::vector<std::string>{"Sigmoid", "LeakyRelu"}
                      : std::vector<std::string>{"Affine"};
  std::vector<float> alphas = lstm() ? std::vector<float>{0.3f, 0.8f} : std::vector<float>{0.25f};
  std::vector<float> betas = lstm()          ? std::vector<float>{0.4f, 0.1f}
                             : op() == "GRU" ? std::vector<float>{}
                                             : std::vector<float>{0.2f};
  if (directions() == 2) {
    const auto again = names;
    names.insert(names.end(), again.begin(), again.end());
    std::vector<float> other = alphas;
    for (float& v : other) v *= 0.5f;
    alphas.insert(alphas.end(), other.begin(), other.end());
    other = betas;
    for (float& v : other) v *= 0.5f;
    betas.insert(betas.end(), other.begin(), other.end());
  }
  o.attributes.Set("activations", names);
  o.attributes.Set("activation_alpha", alphas);
  if (!betas.empty()) o.attributes.Set("activation_beta", betas);
  for (ValueId id : m.Recurrent(x, kFeatures, o)) m.Output(id);
  Check(std::move(m).Done());
}

// As PyTorch's exporter writes a module of several layers: time first inside, zeros of the batch's
// size as the initial state, directions joined by Transpose and Reshape.
TEST_P(LayerTest, StacksAsPyTorchExports) {
  ModelMaker m;
  const ValueId input = m.Input("x", DType::kFloat, X());
  constexpr int kLayers = 3;
  const ValueId zeros = m.Zeros({m.Numbers({kLayers * directions()}),
                                 m.Size(input, batch_first() ? 0 : 1), m.Numbers({kSlicedHidden})});
  ValueId x = batch_first() ? m.Transpose(input, {1, 0, 2}) : input;
  int64_t features = kFeatures;
  std::vector<ValueId> states;
  for (int layer = 0; layer < kLayers; ++layer) {
    ModelMaker::Options o = Layer();
    o.batch_first = false;  // the exporter knows layout 0 alone
    o.h = m.Op("Slice", {zeros, m.Numbers({layer * directions()}),
                         m.Numbers({(layer + 1) * directions()}), m.Numbers({0})});
    if (lstm()) o.c = o.h;
    const std::vector<ValueId> y = m.Recurrent(x, features, o);
    states.push_back(y[1]);
    features = directions() * kSlicedHidden;
    x = directions() == 1 ? m.Squeeze(y[0], 1)
                          : m.Reshape(m.Transpose(y[0], {0, 2, 1, 3}), {0, 0, -1});
  }
  const ValueId y = m.Linear(x, features, 3);
  m.Output(batch_first() ? m.Transpose(y, {1, 0, 2}) : y);
  m.Output(m.Concat(states, 0));
  Check(std::move(m).Done());
}

INSTANTIATE_TEST_SUITE_P(
    All, LayerTest,
    ::testing::Combine(::testing::Values("LSTM", "GRU", "RNN"),
                       ::testing::Values("forward", "reverse", "bidirectional"), ::testing::Bool()),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param) +
             (std::get<2>(info.param) ? "_batch_first" : "");
    });

}  // namespace
}  // namespace chairlift
