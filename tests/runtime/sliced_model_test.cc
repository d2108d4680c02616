// A model cut into cells gives what the whole gives, whatever the rows' company.
#include "graph/cells/sliced_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/graph_builder.h"
#include "runtime/cell_interpreter.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::CellInterpreter;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

constexpr int64_t kFeatures = 5;
constexpr int64_t kHidden = 4;

Dim B() { return Dim::Symbol("batch"); }
Dim T() { return Dim::Symbol("time"); }
SymbolicShape Dims(std::vector<Dim> dims) { return SymbolicShape(std::move(dims)); }

// Builds models as exporters write them.
class ModelMaker : public GraphBuilder {
 public:
  explicit ModelMaker(uint32_t seed = 1) : random_(seed) {}

  ValueId Weights(const Shape& shape, float scale = 0.5f) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random_);
    return Constant(std::move(t));
  }
  ValueId Numbers(const Ints& values) {
    return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                        std::span<const int64_t>(values)));
  }
  ValueId Number(int64_t value) { return Constant(Tensor::Scalar<int64_t>(value)); }
  ValueId Transpose(ValueId x, Ints perm) {
    return Op("Transpose", {x}, Attrs({{"perm", std::move(perm)}}));
  }
  ValueId Reshape(ValueId x, const Ints& dims) { return Op("Reshape", {x, Numbers(dims)}); }
  ValueId Squeeze(ValueId x, int64_t axis) { return Op("Squeeze", {x, Numbers({axis})}); }
  ValueId Unsqueeze(ValueId x, int64_t axis) { return Op("Unsqueeze", {x, Numbers({axis})}); }
  ValueId Gather(ValueId x, ValueId indices, int64_t axis) {
    return Op("Gather", {x, indices}, Attrs({{"axis", axis}}));
  }
  ValueId Concat(std::vector<ValueId> parts, int64_t axis) {
    return Op("Concat", std::move(parts), Attrs({{"axis", axis}}));
  }
  ValueId Size(ValueId x, int64_t axis) {  // of one dimension, [1]
    return Unsqueeze(Gather(Op("Shape", {x}), Number(axis), 0), 0);
  }
  ValueId Zeros(std::vector<ValueId> dims) {
    return Op("ConstantOfShape", {Concat(std::move(dims), 0)},
              Attrs({{"value", Tensor::Of<float>(Shape{1}, {0.0f})}}));
  }
  ValueId Linear(ValueId x, int64_t in, int64_t out) {
    return Op("Add", {Op("MatMul", {x, Weights({in, out})}), Weights({out})});
  }

  struct Options {
    std::string op = "LSTM";
    std::string direction = "forward";
    bool batch_first = false;  // layout 1
    bool bias = true;
    bool peepholes = false;
    ValueId lengths = kNoValue;
    ValueId h = kNoValue;
    ValueId c = kNoValue;
    int64_t hidden = kHidden;
    Attributes attributes;
  };
  // Y, Y_h and, of LSTM, Y_c.
  std::vector<ValueId> Recurrent(ValueId x, int64_t features, Options o) {
    const int64_t directions = o.direction == "bidirectional" ? 2 : 1;
    const int64_t gates = o.op == "LSTM" ? 4 : o.op == "GRU" ? 3 : 1;
    std::vector<ValueId> inputs = {x,
                                   Weights({directions, gates * o.hidden, features}),
                                   Weights({directions, gates * o.hidden, o.hidden}),
                                   o.bias ? Weights({directions, 2 * gates * o.hidden}) : kNoValue,
                                   o.lengths,
                                   o.h};
    if (o.op == "LSTM") inputs.push_back(o.c);
    if (o.peepholes) inputs.push_back(Weights({directions, 3 * o.hidden}));
    o.attributes.Set("hidden_size", o.hidden);
    o.attributes.Set("direction", o.direction);
    if (o.batch_first) o.attributes.Set("layout", int64_t{1});
    return Call(*OperatorRegistry::Builtin().Find("", o.op), std::move(inputs),
                o.op == "LSTM" ? 3 : 2, std::move(o.attributes));
  }

  Graph Done() && {
    Graph graph = std::move(*this).Build();
    const Status verified = Verify(graph);
    EXPECT_TRUE(verified.ok()) << verified;
    const Status inferred = InferShapes(graph);
    EXPECT_TRUE(inferred.ok()) << inferred;
    return graph;
  }

 private:
  std::mt19937 random_;
};

std::string Describe(const SlicedModel& model) {
  std::string text;
  for (const SlicedCell& cell : model.cells) {
    text += cell.kind == SlicedCell::Kind::kLanes    ? "lanes "
            : cell.kind == SlicedCell::Kind::kTokens ? "tokens "
                                                     : "step ";
    text += cell.name + ":";
    for (int v : cell.inputs) text += " " + (v < 0 ? "state" : model.values[v].name);
    text += " ->";
    for (int v : cell.outputs) text += " " + (v < 0 ? "state" : model.values[v].name);
    text += "\n";
    for (const Node& node : cell.graph->nodes) text += "    " + node.def->name + "\n";
  }
  return text;
}

std::string Kinds(const SlicedModel& model) {
  std::string kinds;
  for (const SlicedCell& cell : model.cells) {
    kinds += cell.kind == SlicedCell::Kind::kLanes    ? 'L'
             : cell.kind == SlicedCell::Kind::kTokens ? 'T'
                                                      : 'R';
  }
  return kinds;
}

// Random inputs of one request. Integers are below `classes`, or, named "lengths", lengths.
std::vector<Tensor> RandomRequest(const Graph& graph, std::mt19937& random, int64_t classes) {
  std::map<std::string, int64_t> symbols;
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) {
    const Value& value = graph.values[id];
    Shape shape;
    for (const Dim& dim : value.shape.dims()) {
      if (!dim.known() && !symbols.contains(dim.symbol())) {
        const int64_t most = dim.symbol() == "batch" ? 3 : 7;
        symbols[dim.symbol()] = std::uniform_int_distribution<int64_t>(1, most)(random);
      }
      shape.Append(dim.known() ? dim.value() : symbols[dim.symbol()]);
    }
    Tensor t = Tensor::Allocate(value.dtype, shape);
    const int64_t low = value.name == "lengths" ? 1 : 0;
    const int64_t high = value.name == "lengths" ? symbols["time"] : classes - 1;
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t n = std::uniform_int_distribution<int64_t>(low, high)(random);
      if (value.dtype == DType::kInt64) t.data<int64_t>()[i] = n;
      if (value.dtype == DType::kInt32) t.data<int32_t>()[i] = static_cast<int32_t>(n);
      if (value.dtype == DType::kFloat) {
        t.data<float>()[i] = std::normal_distribution<float>(0.0f, 1.0f)(random);
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  if (got.dtype() == DType::kInt64) {
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got.data<int64_t>()[i], want.data<int64_t>()[i]) << "at " << i;
    }
    return;
  }
  ASSERT_EQ(got.dtype(), DType::kFloat);
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i],
                1e-5f * (1 + std::abs(want.data<float>()[i])))
        << "at " << i;
  }
}

// Slices, runs several requests together, and compares each with the whole model on its own.
void Check(Graph graph, const std::string& kinds = "") {
  const StatusOr<SlicedModel> sliced = SliceIntoCells(graph);
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  SCOPED_TRACE(Describe(*sliced));
  if (!kinds.empty()) {
    EXPECT_EQ(Kinds(*sliced), kinds);
  }
  auto cells = CellInterpreter::Create(*sliced);
  ASSERT_TRUE(cells.ok()) << cells.status();
  auto whole = Executable::Create(graph, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::mt19937 random(7);
  SoloTeam team;
  Arena arena;
  std::vector<std::vector<Tensor>> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(RandomRequest(graph, random, 9));
  const auto got = cells->Run(requests, random);
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto want = (*whole)->Run(requests[r], team, 0, arena);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_EQ((*got)[r].size(), want->size());
    for (size_t o = 0; o < want->size(); ++o) {
      SCOPED_TRACE("request " + std::to_string(r) + " output " + std::to_string(o));
      ExpectClose((*got)[r][o], (*want)[o]);
    }
  }
}

TEST(SlicedModelTest, EmbeddingLstmAndAHeadForEachToken) {
  ModelMaker m;
  const ValueId ids = m.Input("ids", DType::kInt64, Dims({B(), T()}));
  const ValueId x = m.Gather(m.Weights({9, kFeatures}), ids, 0);
  const ValueId y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {})[0];
  const ValueId rows = m.Transpose(m.Squeeze(y, 1), {1, 0, 2});
  m.Output(m.Linear(rows, kHidden, 3));
  Check(std::move(m).Done(), "TRT");
}

TEST(SlicedModelTest, AHeadOnTheLastState) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId h = m.Recurrent(x, kFeatures, {})[1];
  m.Output(m.Linear(m.Squeeze(h, 0), kHidden, 3));
  Check(std::move(m).Done(), "TRL");
}

TEST(SlicedModelTest, AMeanOverTime) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures, {})[0];
  const ValueId mean =
      m.Op("ReduceMean", {m.Squeeze(y, 1), m.Numbers({0})}, Attrs({{"keepdims", int64_t{0}}}));
  m.Output(m.Linear(mean, kHidden, 3));
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
  const ValueId rows = m.Reshape(m.Transpose(m.Squeeze(y, 1), {1, 0, 2}), {-1, kHidden});
  const ValueId logits = m.Op("Gemm", {rows, m.Weights({kHidden, 3})});
  m.Output(m.Op("Reshape", {logits, m.Concat({m.Size(x, 0), m.Size(x, 1), m.Numbers({3})}, 0)}));
  Check(std::move(m).Done(), "TRT");
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
  m.Output(m.Op("Softmax", {m.Linear(joined, 2 * kHidden, 3)}, Attrs({{"axis", int64_t{-1}}})));
  Check(std::move(m).Done());
}

TEST(SlicedModelTest, AttentionOverTheStepsAndAResidual) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kHidden}));
  const ValueId y =
      m.Transpose(m.Squeeze(m.Recurrent(m.Transpose(x, {1, 0, 2}), kHidden, {})[0], 1), {1, 0, 2});
  const ValueId scores = m.Op("MatMul", {y, m.Transpose(y, {0, 2, 1})});
  const ValueId mixed =
      m.Op("MatMul", {m.Op("Softmax", {scores}, Attrs({{"axis", int64_t{-1}}})), y});
  m.Output(m.Linear(m.Op("Add", {mixed, x}), kHidden, 3));
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
  m.Output(m.Op("ArgMax", {m.Linear(m.Squeeze(y, 1), kHidden, 7)},
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
  const ValueId h = m.Op("Expand", {m.Weights({1, 1, kHidden}),
                                    m.Concat({m.Numbers({1}), batch, m.Numbers({kHidden})}, 0)});
  const ValueId c = m.Unsqueeze(
      m.Linear(m.Op("ReduceMax", {x, m.Numbers({0})}, Attrs({{"keepdims", int64_t{0}}})), kFeatures,
               kHidden),
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
  m.Output(m.Linear(m.Transpose(m.Squeeze(y, 1), {1, 0, 2}), kHidden, 3));
  Check(std::move(m).Done());
}

// A streaming model: the state goes in and comes out, stacked by layer.
TEST(SlicedModelTest, StatesOfAStreamGoInAndOut) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({B(), T(), kFeatures}));
  const ValueId state = m.Input("state", DType::kFloat, Dims({2, B(), kHidden}));
  const std::vector<ValueId> y = m.Recurrent(m.Transpose(x, {1, 0, 2}), kFeatures,
                                             {.h = m.Unsqueeze(m.Gather(state, m.Number(0), 0), 0),
                                              .c = m.Unsqueeze(m.Gather(state, m.Number(1), 0), 0),
                                              .attributes = {}});
  m.Output(m.Op("Sigmoid", {m.Linear(m.Squeeze(y[1], 0), kHidden, 1)}));
  m.Output(m.Concat({y[1], y[2]}, 0));
  Check(std::move(m).Done());
}

// A Scan whose body is h' = tanh(x·W + h·R + b), with `b` and W read from outside.
struct ScanCase {
  std::string name;
  bool batch_first = false;
  bool reverse = false;
  bool state_last = false;  // the state is [H, batch]
  bool style = false;       // a lane's value is read as well
  std::string output = "forward";
};
class ScanTest : public ::testing::TestWithParam<ScanCase> {
 protected:
  static Graph Make(const ScanCase& c) {
    ModelMaker m;
    const ValueId x =
        m.Input("x", DType::kFloat,
                c.batch_first ? Dims({B(), T(), kFeatures}) : Dims({T(), B(), kFeatures}));
    const ValueId style =
        c.style ? m.Input("style", DType::kFloat, Dims({B(), kHidden})) : kNoValue;
    const ValueId batch = m.Size(x, c.batch_first ? 0 : 1);
    const ValueId h = c.state_last ? m.Zeros({m.Numbers({kHidden}), batch})
                                   : m.Zeros({batch, m.Numbers({kHidden})});
    const SymbolicShape state = c.state_last ? Dims({kHidden, B()}) : Dims({B(), kHidden});
    ModelMaker body(5);
    const ValueId before = body.Input("h", DType::kFloat, state);
    const ValueId step = body.Input("x_t", DType::kFloat, Dims({B(), kFeatures}));
    const ValueId w = body.Capture(DType::kFloat, Dims({kFeatures, kHidden}));
    const ValueId b = body.Capture(DType::kFloat, Dims({kHidden}));
    ValueId xw = body.Op("Add", {body.Op("MatMul", {step, w}), b});
    if (c.style) {
      xw = body.Op("Add", {xw, body.Capture(DType::kFloat, Dims({B(), kHidden}))});
    }
    if (c.state_last) xw = body.Transpose(xw, {1, 0});
    const ValueId r = body.Weights({kHidden, kHidden});
    const ValueId hr =
        c.state_last ? body.Op("MatMul", {r, before}) : body.Op("MatMul", {before, r});
    const ValueId after = body.Op("Tanh", {body.Op("Add", {xw, hr})});
    body.Output(after);
    body.Output(after);
    body.Output(body.Op("Neg", {step}));
    Attributes attributes = Attrs({{"num_scan_inputs", int64_t{1}}});
    attributes.Set("body", std::move(body).BuildShared());
    if (c.batch_first) {
      attributes.Set("scan_input_axes", Ints{1});
      attributes.Set("scan_output_axes", Ints{-2, 1});
    }
    if (c.reverse) attributes.Set("scan_input_directions", Ints{1});
    if (c.output == "reverse") attributes.Set("scan_output_directions", Ints{1, 1});
    std::vector<ValueId> inputs = {h, x, m.Weights({kFeatures, kHidden}), m.Weights({kHidden})};
    if (c.style) inputs.push_back(style);
    const std::vector<ValueId> outputs =
        m.Call(*OperatorRegistry::Builtin().Find("", "Scan"), inputs, 3, std::move(attributes));
    for (ValueId id : outputs) m.Output(id);
    if (!c.state_last) m.Output(m.Linear(outputs[1], kHidden, 3));
    return std::move(m).Done();
  }
};
void PrintTo(const ScanCase& c, std::ostream* out) { *out << c.name; }

TEST_P(ScanTest, RunsStepByStep) {
  const ScanCase& c = GetParam();
  // With a projection of its own, unless there is nothing to project.
  Check(Make(c), c.state_last ? "TR" : "TRT");
}

INSTANTIATE_TEST_SUITE_P(
    All, ScanTest,
    ::testing::Values(ScanCase{.name = "forward"},
                      ScanCase{.name = "reverse", .reverse = true, .output = "reverse"},
                      ScanCase{.name = "batch_first", .batch_first = true},
                      ScanCase{.name = "state_last", .state_last = true},
                      ScanCase{.name = "captures_a_lane", .style = true}),
    [](const auto& info) { return info.param.name; });

// What runs forwards and leaves its outputs backwards is taken whole.
TEST(SlicedModelTest, AScanThatCannotBeCutRunsWhole) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId y = m.Squeeze(m.Recurrent(x, kFeatures, {})[0], 1);
  ModelMaker body(5);
  const ValueId sum = body.Op("Add", {body.Input("s", DType::kFloat, Dims({B(), kHidden})),
                                      body.Input("y_t", DType::kFloat, Dims({B(), kHidden}))});
  body.Output(sum);
  body.Output(sum);
  Attributes attributes = Attrs({{"num_scan_inputs", int64_t{1}},
                                 {"scan_output_directions", Ints{1}},
                                 {"body", std::move(body).BuildShared()}});
  const ValueId zeros = m.Zeros({m.Size(x, 1), m.Numbers({kHidden})});
  for (ValueId id :
       m.Call(*OperatorRegistry::Builtin().Find("", "Scan"), {zeros, y}, 2, attributes)) {
    m.Output(id);
  }
  Check(std::move(m).Done(), "TRL");
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
    return batch_first() ? Dims({B(), directions(), kHidden}) : Dims({directions(), B(), kHidden});
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
                                 m.Size(input, batch_first() ? 0 : 1), m.Numbers({kHidden})});
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
    features = directions() * kHidden;
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
