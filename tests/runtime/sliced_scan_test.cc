// Scan and Loop cut into their steps.
#include "runtime/sliced_models.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::B;
using testing::Check;
using testing::Dims;
using testing::Ints;
using testing::kFeatures;
using testing::kSlicedHidden;
using testing::ModelMaker;
using testing::T;

// A Scan whose body is h' = tanh(x·W + h·R + b), with `b` and W read from outside.
struct ScanCase {
  std::string name;
  bool batch_first = false;
  bool reverse = false;
  bool state_last = false;  // the state is [H, batch]
  bool style = false;       // a lane's value is read as well
  std::string output = "forward";
};
class SlicedScanCaseTest : public ::testing::TestWithParam<ScanCase> {
 protected:
  static Graph Make(const ScanCase& c) {
    ModelMaker m;
    const ValueId x =
        m.Input("x", DType::kFloat,
                c.batch_first ? Dims({B(), T(), kFeatures}) : Dims({T(), B(), kFeatures}));
    const ValueId style =
        c.style ? m.Input("style", DType::kFloat, Dims({B(), kSlicedHidden})) : kNoValue;
    const ValueId batch = m.Size(x, c.batch_first ? 0 : 1);
    const ValueId h = c.state_last ? m.Zeros({m.Numbers({kSlicedHidden}), batch})
                                   : m.Zeros({batch, m.Numbers({kSlicedHidden})});
    const SymbolicShape state =
        c.state_last ? Dims({kSlicedHidden, B()}) : Dims({B(), kSlicedHidden});
    ModelMaker body(5);
    const ValueId before = body.Input("h", DType::kFloat, state);
    const ValueId step = body.Input("x_t", DType::kFloat, Dims({B(), kFeatures}));
    const ValueId w = body.Capture(DType::kFloat, Dims({kFeatures, kSlicedHidden}));
    const ValueId b = body.Capture(DType::kFloat, Dims({kSlicedHidden}));
    ValueId xw = body.Op("Add", {body.Op("MatMul", {step, w}), b});
    if (c.style) {
      xw = body.Op("Add", {xw, body.Capture(DType::kFloat, Dims({B(), kSlicedHidden}))});
    }
    if (c.state_last) xw = body.Transpose(xw, {1, 0});
    const ValueId r = body.Weights({kSlicedHidden, kSlicedHidden});
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
    std::vector<ValueId> inputs = {h, x, m.Weights({kFeatures, kSlicedHidden}),
                                   m.Weights({kSlicedHidden})};
    if (c.style) inputs.push_back(style);
    const std::vector<ValueId> outputs =
        m.Call(*OperatorRegistry::Builtin().Find("", "Scan"), inputs, 3, std::move(attributes));
    for (ValueId id : outputs) m.Output(id);
    if (!c.state_last) m.Output(m.Linear(outputs[1], kSlicedHidden, 3));
    return std::move(m).Done();
  }
};
void PrintTo(const ScanCase& c, std::ostream* out) { *out << c.name; }

TEST_P(SlicedScanCaseTest, RunsStepByStep) {
  const ScanCase& c = GetParam();
  // With a projection of its own, unless there is nothing to project.
  Check(Make(c), c.state_last ? "TR" : "TRT");
}

INSTANTIATE_TEST_SUITE_P(
    All, SlicedScanCaseTest,
    ::testing::Values(ScanCase{.name = "forward"},
                      ScanCase{.name = "reverse", .reverse = true, .output = "reverse"},
                      ScanCase{.name = "batch_first", .batch_first = true},
                      ScanCase{.name = "state_last", .state_last = true},
                      ScanCase{.name = "captures_a_lane", .style = true}),
    [](const auto& info) { return info.param.name; });

// What runs forwards and leaves its outputs backwards is taken whole.
TEST(SlicedScanTest, AScanThatCannotBeCutRunsWhole) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId y = m.Squeeze(m.Recurrent(x, kFeatures, {})[0], 1);
  ModelMaker body(5);
  const ValueId sum =
      body.Op("Add", {body.Input("s", DType::kFloat, Dims({B(), kSlicedHidden})),
                      body.Input("y_t", DType::kFloat, Dims({B(), kSlicedHidden}))});
  body.Output(sum);
  body.Output(sum);
  Attributes attributes = Attrs({{"num_scan_inputs", int64_t{1}},
                                 {"scan_output_directions", Ints{1}},
                                 {"body", std::move(body).BuildShared()}});
  const ValueId zeros = m.Zeros({m.Size(x, 1), m.Numbers({kSlicedHidden})});
  for (ValueId id :
       m.Call(*OperatorRegistry::Builtin().Find("", "Scan"), {zeros, y}, 2, attributes)) {
    m.Output(id);
  }
  Check(std::move(m).Done(), "TRL");
}

TEST(SlicedScanTest, SaysWhichScanCannotBeCutAndWhy) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  ModelMaker body(5);
  const ValueId sum = body.Op("Add", {body.Input("s", DType::kFloat, Dims({B(), kFeatures})),
                                      body.Input("x_t", DType::kFloat, Dims({B(), kFeatures}))});
  body.Output(sum);
  body.Output(sum);
  Attributes attributes = Attrs({{"num_scan_inputs", int64_t{1}},
                                 {"scan_input_directions", Ints{1}},
                                 {"body", std::move(body).BuildShared()}});
  const ValueId zeros = m.Zeros({m.Size(x, 1), m.Numbers({kFeatures})});
  for (ValueId id :
       m.Call(*OperatorRegistry::Builtin().Find("", "Scan"), {zeros, x}, 2, attributes)) {
    m.Output(id);
  }
  const StatusOr<SlicedModel> sliced = SliceIntoCells(std::move(m).Done());
  EXPECT_EQ(sliced.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(Message(sliced.status())
                .find("(Scan): it cannot be cut into steps: some of "
                      "scan_input_directions and scan_output_directions"),
            std::string::npos)
      << sliced.status();
}

// A Loop over the steps of `x`, as a scripted module exports: x[i] inside, the states carried.
std::shared_ptr<const Graph> LoopBody(bool uses_step, bool ends_early) {
  ModelMaker body(5);
  const ValueId step = body.Input("i", DType::kInt64, SymbolicShape::Scalar());
  const ValueId going_on = body.Input("going_on", DType::kBool, SymbolicShape::Scalar());
  const ValueId before = body.Input("h", DType::kFloat, Dims({B(), kSlicedHidden}));
  const ValueId x = body.Capture(DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId w = body.Capture(DType::kFloat, Dims({kFeatures, kSlicedHidden}));
  const ValueId xw = body.Op("MatMul", {body.Gather(x, step, 0), w});
  ValueId sum = body.Op(
      "Add", {xw, body.Op("MatMul", {before, body.Weights({kSlicedHidden, kSlicedHidden})})});
  if (uses_step) {
    sum = body.Op("Add", {sum, body.Op("Cast", {step}, Attrs({{"to", int64_t{1}}}))});
  }
  const ValueId after = body.Op("Tanh", {sum});
  body.Output(ends_early ? body.Op("Less", {step, body.Number(3)})
                         : body.Op("Identity", {going_on}));
  body.Output(after);
  body.Output(after);
  return std::move(body).BuildShared();
}

Graph LoopModel(std::shared_ptr<const Graph> body) {
  ModelMaker m;
  const ValueId x = m.Input("x", DType::kFloat, Dims({T(), B(), kFeatures}));
  const ValueId count = m.Gather(m.Op("Shape", {x}), m.Number(0), 0);
  const ValueId yes = m.Constant(Tensor::Scalar<bool>(true));
  const ValueId zeros = m.Zeros({m.Size(x, 1), m.Numbers({kSlicedHidden})});
  for (ValueId id : m.Call(*OperatorRegistry::Builtin().Find("", "Loop"),
                           {count, yes, zeros, x, m.Weights({kFeatures, kSlicedHidden})}, 2,
                           Attrs({{"body", std::move(body)}}))) {
    m.Output(id);
  }
  return std::move(m).Done();
}

TEST(SlicedLoopTest, ALoopOverASequenceRunsStepByStep) {
  Check(LoopModel(LoopBody(false, false)), "TR");
}

TEST(SlicedLoopTest, OtherLoopsAreRefused) {
  for (const auto& body : {LoopBody(true, false), LoopBody(false, true)}) {
    const StatusOr<SlicedModel> sliced = SliceIntoCells(LoopModel(body));
    EXPECT_EQ(sliced.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(Message(sliced.status()).find("control flow is not followed"), std::string::npos)
        << sliced.status();
  }
}

}  // namespace
}  // namespace chairlift
