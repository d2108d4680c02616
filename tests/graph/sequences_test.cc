// Sequences inside a model: what they become, and which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "graph/model_builder.h"
#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFloat;
using testing::kInt64;
using testing::ModelBuilder;

// Numbers from 0 on.
Tensor Counted(const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::iota(t.data<float>(), t.data<float>() + t.size(), 0.0f);
  return t;
}

std::vector<double> Numbers(const Tensor& t) {
  if (t.dtype() == DType::kInt64) return {t.values<int64_t>().begin(), t.values<int64_t>().end()};
  return {t.values<float>().begin(), t.values<float>().end()};
}

std::vector<Tensor> RunModel(const ModelBuilder& model, const std::vector<Tensor>& inputs) {
  const StatusOr<ImportedModel> imported = model.Import();
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  const Status verified = Verify(imported->graph);
  EXPECT_TRUE(verified.ok()) << verified;
  return testing::Evaluate(imported->graph, inputs);
}

std::string ErrorOf(const ModelBuilder& model) {
  return std::string(model.Import().status().message());
}

void Scalar(ModelBuilder& m, const std::string& name, int64_t value) {
  m.Tensor(name, kInt64, {})->add_int64_data(value);
}

// As older exporters of PyTorch write x.split(2, dim=1).
TEST(SequencesTest, SplitsAndTakesElements) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"batch", 5}).Output("first").Output("last");
  Scalar(m, "size", 2);
  Scalar(m, "zero", 0);
  Scalar(m, "end", -1);
  m.Node("SplitToSequence", {"x", "size"}, {"parts"}).Int("axis", 1);
  m.Node("SequenceAt", {"parts", "zero"}, {"first"});
  m.Node("SequenceAt", {"parts", "end"}, {"last"});
  const std::vector<Tensor> y = RunModel(m, {Counted({2, 5})});
  EXPECT_EQ(y[0].shape(), (Shape{2, 2}));
  EXPECT_THAT(Numbers(y[0]), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(Numbers(y[1]), ElementsAre(4, 9));
}

TEST(SequencesTest, SplitsIntoGivenSizes) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"batch", "width"}).Output("y").Output("length");
  m.Ints("sizes", {1, 0, 3});
  Scalar(m, "two", 2);
  m.Node("SplitToSequence", {"x", "sizes"}, {"parts"}).Int("axis", -1).Int("keepdims", 0);
  m.Node("SequenceAt", {"parts", "two"}, {"y"});
  m.Node("SequenceLength", {"parts"}, {"length"});
  const std::vector<Tensor> y = RunModel(m, {Counted({2, 4})});
  EXPECT_THAT(Numbers(y[0]), ElementsAre(1, 2, 3, 5, 6, 7));
  EXPECT_THAT(Numbers(y[1]), ElementsAre(3));
}

// As x.unbind(1): the number of entries need not be known, nor the position.
TEST(SequencesTest, TakesEntriesOfAnOpenAxis) {
  for (const int64_t keepdims : {0, 1}) {
    ModelBuilder m(13);
    m.Input("x", kFloat, {"batch", "time", 2}).Input("i", kInt64, {});
    m.Output("last").Output("any").Output("length").Output("again");
    Scalar(m, "end", -1);
    m.Node("SplitToSequence", {"x"}, {"parts"}).Int("axis", 1).Int("keepdims", keepdims);
    m.Node("SequenceAt", {"parts", "end"}, {"last"});
    m.Node("SequenceAt", {"parts", "i"}, {"any"});
    m.Node("SequenceLength", {"parts"}, {"length"});
    m.Node("ConcatFromSequence", {"parts"}, {"again"}).Int("axis", 1).Int("new_axis", 1 - keepdims);
    const Tensor x = Counted({2, 3, 2});
    const std::vector<Tensor> y = RunModel(m, {x, Tensor::Scalar<int64_t>(1)});
    EXPECT_EQ(y[0].shape(), keepdims == 1 ? (Shape{2, 1, 2}) : (Shape{2, 2}));
    EXPECT_THAT(Numbers(y[0]), ElementsAre(4, 5, 10, 11));
    EXPECT_THAT(Numbers(y[1]), ElementsAre(2, 3, 8, 9));
    EXPECT_THAT(Numbers(y[2]), ElementsAre(3));
    EXPECT_EQ(Numbers(y[3]), Numbers(x));
    EXPECT_EQ(y[3].shape(), x.shape());
  }
}

TEST(SequencesTest, StacksEntriesAlongAnotherAxis) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {"batch", "time", 2}).Output("stacked").Output("joined");
  m.Node("SplitToSequence", {"x"}, {"parts"}).Int("axis", 1).Int("keepdims", 0);
  m.Node("ConcatFromSequence", {"parts"}, {"stacked"}).Int("axis", -1).Int("new_axis", 1);
  m.Input("w", kFloat, {2, 3});
  m.Node("SplitToSequence", {"w"}, {"columns"}).Int("axis", 1);
  m.Node("ConcatFromSequence", {"columns"}, {"joined"}).Int("axis", 0);
  const std::vector<Tensor> y = RunModel(m, {Counted({2, 3, 2}), Counted({2, 3})});
  EXPECT_EQ(y[0].shape(), (Shape{2, 2, 3}));
  EXPECT_THAT(Numbers(y[0]), ElementsAre(0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11));
  EXPECT_EQ(y[1].shape(), (Shape{6, 1}));
  EXPECT_THAT(Numbers(y[1]), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(SequencesTest, ConstructsInsertsErasesAndJoins) {
  ModelBuilder m(13);
  for (const char* name : {"a", "b", "c"}) m.Input(name, kFloat, {"batch", 1});
  m.Output("y").Output("stacked").Output("length");
  Scalar(m, "one", 1);
  Scalar(m, "before_last", -1);
  m.Node("SequenceConstruct", {"a", "b"}, {"ab"});
  m.Node("SequenceInsert", {"ab", "c", "before_last"}, {"acb"});
  m.Node("SequenceInsert", {"acb", "a"}, {"acba"});
  m.Node("Identity", {"acba"}, {"same"});
  m.Node("ConcatFromSequence", {"same"}, {"y"}).Int("axis", 1);
  m.Node("SequenceErase", {"acba", "one"}, {"aba"});
  m.Node("SequenceErase", {"aba"}, {"only"});
  m.Node("ConcatFromSequence", {"only"}, {"stacked"}).Int("axis", 0).Int("new_axis", 1);
  m.Node("SequenceLength", {"only"}, {"length"});
  const auto value = [](float v) { return Tensor::Of<float>({1, 1}, {v}); };
  const std::vector<Tensor> y = RunModel(m, {value(1), value(2), value(3)});
  EXPECT_THAT(Numbers(y[0]), ElementsAre(1, 3, 2, 1));
  EXPECT_EQ(y[1].shape(), (Shape{2, 1, 1}));
  EXPECT_THAT(Numbers(y[1]), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(y[2]), ElementsAre(2));
}

TEST(SequencesTest, StartsEmpty) {
  ModelBuilder m(13);
  m.Input("a", kFloat, {2}).Output("y");
  Scalar(m, "zero", 0);
  m.Node("SequenceEmpty", {}, {"none"}).Int("dtype", 1);
  m.Node("SequenceInsert", {"none", "a", "zero"}, {"one"});
  m.Node("SequenceInsert", {"one", "a"}, {"two"});
  m.Node("ConcatFromSequence", {"two"}, {"y"}).Int("axis", 0);
  EXPECT_THAT(Numbers(RunModel(m, {Counted({2})})[0]), ElementsAre(0, 1, 0, 1));
}

TEST(SequencesTest, PassThroughFunctionsAndIntoBranches) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2, 2}).Input("which", testing::kBool, {}).Output("y").Output("row");
  auto* import = m.model().add_opset_import();
  import->set_domain("own");
  import->set_version(1);
  onnx::FunctionProto* f = m.model().add_functions();
  f->set_name("Rows");
  f->set_domain("own");
  f->add_opset_import()->set_version(13);
  f->add_input("a");
  f->add_output("rows");
  onnx::NodeProto* node = f->add_node();
  node->set_op_type("SplitToSequence");
  node->add_input("a");
  node->add_output("rows");
  onnx::FunctionProto* g = m.model().add_functions();
  g->set_name("Join");
  g->set_domain("own");
  g->add_opset_import()->set_version(13);
  g->add_input("rows");
  g->add_output("joined");
  node = g->add_node();
  node->set_op_type("ConcatFromSequence");
  node->add_input("rows");
  node->add_output("joined");
  auto* axis = node->add_attribute();
  axis->set_name("axis");
  axis->set_type(onnx::AttributeProto::INT);
  axis->set_i(1);
  m.Node("Rows", {"x"}, {"rows"}).Domain("own");
  m.Node("Join", {"rows"}, {"y"}).Domain("own");
  Scalar(m, "one", 1);
  auto choice = m.Node("If", {"which"}, {"row"});
  testing::GraphProtoBuilder yes(choice.Body("then_branch")), no(choice.Body("else_branch"));
  yes.Node("SequenceAt", {"rows", "one"}, {"second"});
  yes.Output("second");
  no.Node("Identity", {"x"}, {"same"});
  no.Output("same");
  const StatusOr<ImportedModel> imported = m.Import();
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(Verify(imported->graph).ok());
}

TEST(SequencesTest, ShapesThatFilesDeclareForThemAreSkipped) {
  ModelBuilder m(13);
  m.Input("x", kFloat, {2, 2}).Output("y");
  Scalar(m, "one", 1);
  m.Node("SplitToSequence", {"x"}, {"rows"});
  m.Node("SequenceAt", {"rows", "one"}, {"y"});
  auto* info = m.proto().add_value_info();
  info->set_name("rows");
  info->mutable_type()
      ->mutable_sequence_type()
      ->mutable_elem_type()
      ->mutable_tensor_type()
      ->set_elem_type(1);
  EXPECT_THAT(Numbers(RunModel(m, {Counted({2, 2})})[0]), ElementsAre(2, 3));
}

TEST(SequencesTest, RefusesWhatIsNotKnownAtLoad) {
  const auto error = [](const std::function<void(ModelBuilder&)>& add) {
    ModelBuilder m(13);
    m.Input("x", kFloat, {"batch", "time"}).Input("i", kInt64, {}).Output("y");
    Scalar(m, "one", 1);
    Scalar(m, "two", 2);
    Scalar(m, "nine", 9);
    add(m);
    return ErrorOf(m);
  };
  EXPECT_THAT(error([](auto& m) {
                m.Node("SplitToSequence", {"x", "two"}, {"s"});
                m.Node("SequenceAt", {"s", "one"}, {"y"});
              }),
              HasSubstr("dimension 0 of its input must be known"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SplitToSequence", {"x", "i"}, {"s"});
                m.Node("SequenceAt", {"s", "one"}, {"y"});
              }),
              HasSubstr("must be constants"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SequenceConstruct", {"x", "x"}, {"s"});
                m.Node("SequenceAt", {"s", "i"}, {"y"});
              }),
              HasSubstr("position is not a constant"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SequenceConstruct", {"x", "x"}, {"s"});
                m.Node("SequenceAt", {"s", "nine"}, {"y"});
              }),
              HasSubstr("the sequence has 2 places"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SplitToSequence", {"x"}, {"s"});
                m.Node("SequenceErase", {"s"}, {"t"});
                m.Node("SequenceAt", {"t", "one"}, {"y"});
              }),
              HasSubstr("number of elements of its sequence must be known"));
  EXPECT_THAT(error([](auto& m) { m.Node("SequenceConstruct", {"x"}, {"y"}); }),
              HasSubstr("output 'y' is a sequence"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SequenceConstruct", {"x"}, {"s"});
                m.Node("Relu", {"s"}, {"y"});
              }),
              HasSubstr("reads the sequence 's'"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SequenceAt", {"x", "one"}, {"y"});
              }),
              HasSubstr("input 0 must be a sequence"));
  EXPECT_THAT(error([](auto& m) {
                m.Node("SequenceEmpty", {}, {"s"});
                m.Node("ConcatFromSequence", {"s"}, {"y"}).Int("axis", 0);
              }),
              HasSubstr("sequence is empty"));
}

// Each operator copies its sequence: a small file must not become a large graph.
TEST(SequencesTest, BoundsTheirSize) {
  ModelBuilder nodes(13);
  nodes.Input("x", kFloat, {4096, 1}).Output("y");
  Scalar(nodes, "zero", 0);
  nodes.Node("SplitToSequence", {"x"}, {"s"}).Int("keepdims", 0);
  for (int i = 0; i < 13; ++i) nodes.Node("SequenceErase", {"s"}, {"s" + std::to_string(i)});
  nodes.Node("SequenceAt", {"s12", "zero"}, {"y"});
  EXPECT_THAT(ErrorOf(nodes), HasSubstr("take more than 50000 nodes"));

  ModelBuilder copies(13);
  copies.Input("x", kFloat, {8192, 1}).Output("y");
  Scalar(copies, "zero", 0);
  Scalar(copies, "two", 2);
  copies.Node("SplitToSequence", {"x", "two"}, {"s"});
  for (int i = 0; i < 250; ++i) copies.Node("Identity", {"s"}, {"s" + std::to_string(i)});
  copies.Node("SequenceAt", {"s249", "zero"}, {"y"});
  EXPECT_THAT(ErrorOf(copies), HasSubstr("more than 1000000 elements together"));

  ModelBuilder huge(13);
  huge.Input("x", kFloat, {int64_t{1} << 30}).Output("y");
  Scalar(huge, "two", 2);
  Scalar(huge, "zero", 0);
  huge.Node("SplitToSequence", {"x", "two"}, {"s"});
  huge.Node("SequenceAt", {"s", "zero"}, {"y"});
  EXPECT_THAT(ErrorOf(huge), HasSubstr("more than the limit of 4096"));
}

}  // namespace
}  // namespace chairlift
