// fuse_embedding_layer_norm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace fuse_embedding_layer_norm_test {

using testing::Attrs;
using ::testing::ElementsAre;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

constexpr char kPass[] = "fuse_embedding_layer_norm";
constexpr int64_t kWidth = 6;

// Inputs: ids and types [batch, length], then places [length].
struct Model : GraphBuilder {
  std::mt19937 random{3};
  ValueId ids, types, places;

  explicit Model(DType index = DType::kInt64) {
    const Dim batch = Dim::Symbol("batch"), length = Dim::Symbol("length");
    ids = Input("ids", index, SymbolicShape({batch, length}));
    types = Input("types", DType::kInt64, SymbolicShape({batch, length}));
    places = Input("places", DType::kInt64, SymbolicShape({length}));
  }
  ValueId Weights(const Shape& shape) { return Constant(RandomFloats(random, shape)); }
  ValueId Rows(ValueId index, int64_t rows = 9, Attributes attributes = {}) {
    return Op("Gather", {Weights(Shape{rows, kWidth}), index}, std::move(attributes));
  }
  ValueId Add(ValueId a, ValueId b) { return Op("Add", {a, b}); }
  ValueId Norm(ValueId x, Attributes attributes = Attrs({{"epsilon", 1e-3f}})) {
    return Op("LayerNormalization", {x, Weights(Shape{kWidth}), Weights(Shape{kWidth})},
              std::move(attributes));
  }
};

std::vector<Tensor> Inputs(DType ids_type = DType::kInt64) {
  const auto ids = ids_type == DType::kInt64
                       ? Tensor::Of<int64_t>(Shape{2, 3}, {1, 8, -9, 0, 3, 5})
                       : Tensor::Of<int32_t>(Shape{2, 3}, {1, 8, -9, 0, 3, 5});
  return {ids, Tensor::Of<int64_t>(Shape{2, 3}, {1, 0, 1, 0, 0, 0}),
          Tensor::Of<int64_t>(Shape{3}, {0, 1, 2})};
}

PassResult ExpectFused(Model model, const std::string& operators, DType ids_type = DType::kInt64) {
  Graph graph = std::move(model).Build();
  EXPECT_TRUE(InferShapes(graph).ok());
  PassResult r = RunPass(kPass, graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  EXPECT_EQ(r.Operators(), operators);
  EXPECT_EQ(r.rewrites, 1);
  EXPECT_THAT(r.notes, ElementsAre());
  const std::vector<Tensor> inputs = Inputs(ids_type);
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs), 1e-5f);
  return r;
}

// Why it was left.
std::string ExpectLeft(Model model) {
  Graph graph = std::move(model).Build();
  EXPECT_TRUE(InferShapes(graph).ok());
  const PassResult r = RunPass(kPass, graph);
  EXPECT_EQ(r.rewrites, 0);
  return r.notes.size() == 1 ? r.notes[0] : "no note, or several";
}

TEST(FuseEmbeddingLayerNormTest, WordTypeAndPlaceInAnyOrder) {
  std::vector<int> order = {0, 1, 2};
  do {
    for (const bool nested_left : {true, false}) {
      Model m;
      std::vector<ValueId> terms;
      for (const int i : order) {
        terms.push_back(m.Rows(i == 0 ? m.ids : i == 1 ? m.types : m.places));
      }
      const ValueId inner = m.Add(terms[0], terms[1]);
      m.Output(m.Norm(nested_left ? m.Add(inner, terms[2]) : m.Add(terms[2], inner)));
      ExpectFused(std::move(m), "EmbeddingLayerNorm");
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(FuseEmbeddingLayerNormTest, TwoTermsOrOne) {
  Model two(DType::kInt32);
  two.Output(two.Norm(two.Add(two.Rows(two.places), two.Rows(two.ids))));
  ExpectFused(std::move(two), "EmbeddingLayerNorm", DType::kInt32);
  Model one;
  one.Output(one.Norm(one.Rows(one.ids, 9, Attrs({{"axis", int64_t{-2}}}))));
  ExpectFused(std::move(one), "EmbeddingLayerNorm");
}

TEST(FuseEmbeddingLayerNormTest, ATermMayBeAtHand) {
  // Places as a slice of their table, and one type for all.
  Model m;
  const ValueId places =
      m.Op("Slice", {m.Weights(Shape{9, kWidth}), m.Constant(Tensor::Of<int64_t>(Shape{1}, {0})),
                     m.Op("Shape", {m.places})});
  m.Output(m.Norm(m.Add(m.Add(m.Rows(m.ids), m.Weights(Shape{kWidth})), places)));
  ExpectFused(std::move(m), "Shape Slice EmbeddingLayerNorm");
}

TEST(FuseEmbeddingLayerNormTest, AFourthTermIsAddedBefore) {
  Model m;
  const ValueId first = m.Add(m.Rows(m.ids), m.Rows(m.types));
  m.Output(m.Norm(m.Add(m.Add(first, m.Rows(m.places)), m.Rows(m.ids))));
  ExpectFused(std::move(m), "Gather Gather Add EmbeddingLayerNorm");
}

TEST(FuseEmbeddingLayerNormTest, TheSumIsGivenOutWhereOthersReadIt) {
  Model m;
  const ValueId sum = m.Add(m.Rows(m.ids), m.Rows(m.places));
  m.Output(m.Op("Neg", {sum}));
  m.Output(m.Norm(sum));
  ExpectFused(std::move(m), "EmbeddingLayerNorm Neg");
  // If two normalise one sum, one computes it.
  Model twice;
  const ValueId shared = twice.Add(twice.Rows(twice.ids), twice.Rows(twice.places));
  twice.Output(twice.Norm(shared));
  twice.Output(twice.Norm(shared));
  Graph graph = std::move(twice).Build();
  const PassResult r = RunPass(kPass, graph);
  EXPECT_EQ(r.Operators(), "EmbeddingLayerNorm LayerNormalization");
  ASSERT_TRUE(InferShapes(graph).ok());
  ExpectClose(Evaluate(graph, Inputs()), Evaluate(r.graph, Inputs()), 1e-5f);
}

TEST(FuseEmbeddingLayerNormTest, AnInnerSumOrRowsThatOthersReadAreTakenAsTheyAre) {
  Model m;
  const ValueId inner = m.Add(m.Rows(m.ids), m.Rows(m.places));
  m.Output(m.Norm(m.Add(inner, m.Rows(m.types))));
  m.Output(inner);
  ExpectFused(std::move(m), "Gather Gather Add EmbeddingLayerNorm");
  Model rows;
  const ValueId words = rows.Rows(rows.ids);
  rows.Output(rows.Norm(rows.Add(words, rows.Rows(rows.places))));
  rows.Output(words);
  ExpectFused(std::move(rows), "Gather EmbeddingLayerNorm");
}

TEST(FuseEmbeddingLayerNormTest, AnIndexOutsideItsTableNamesWhatPickedIt) {
  Model m;
  const ValueId words = m.Rows(m.ids, 9);
  m.Output(m.Norm(m.Add(words, m.Rows(m.places, 2))));
  const PassResult wrong = RunPass(kPass, std::move(m).Build());
  ASSERT_EQ(wrong.rewrites, 1);
  WeightCache weights;
  SoloTeam team;
  std::vector<Tensor> arguments;
  const Node& node = wrong.graph.nodes[0];
  const std::vector<Tensor> inputs = Inputs();
  for (const ValueId id : node.inputs) {
    const auto input = std::find(wrong.graph.inputs.begin(), wrong.graph.inputs.end(), id);
    arguments.push_back(input != wrong.graph.inputs.end()
                            ? inputs[static_cast<size_t>(input - wrong.graph.inputs.begin())]
                            : wrong.graph.values[static_cast<size_t>(id)].constant);
  }
  EXPECT_THAT(Message(EvaluateNode(node, arguments, weights, team, 0).status()),
              HasSubstr("node 'Gather1' (Gather): index 2 at position 2 is outside [-2, 2)"));
}

TEST(FuseEmbeddingLayerNormTest, WhatItCannotDoIsLeftWithItsReason) {
  Model unnormalised;
  unnormalised.Output(
      unnormalised.Op("Neg", {unnormalised.Add(unnormalised.Rows(unnormalised.ids),
                                               unnormalised.Rows(unnormalised.places))}));
  EXPECT_THAT(ExpectLeft(std::move(unnormalised)), HasSubstr("no layer normalisation follows"));
  Model axis;
  axis.Output(axis.Op(
      "LayerNormalization",
      {axis.Add(axis.Rows(axis.ids), axis.Rows(axis.places)), axis.Weights(Shape{3, kWidth})},
      Attrs({{"axis", int64_t{1}}})));
  EXPECT_THAT(ExpectLeft(std::move(axis)), HasSubstr("not the last axis alone"));
  Model scaled;
  const ValueId scale = scaled.Op("Neg", {scaled.Weights(Shape{kWidth})});
  scaled.Output(
      scaled.Op("LayerNormalization",
                {scaled.Add(scaled.Rows(scaled.ids), scaled.Rows(scaled.places)), scale}));
  EXPECT_THAT(ExpectLeft(std::move(scaled)), HasSubstr("are not constants"));
  Model read;
  const ValueId words = read.Rows(read.ids);
  read.Output(words);
  read.Output(read.Norm(words));
  EXPECT_THAT(ExpectLeft(std::move(read)), HasSubstr("others read the embeddings"));
  Model narrow;
  narrow.Output(narrow.Norm(narrow.Add(narrow.Rows(narrow.ids), narrow.Weights(Shape{1}))));
  EXPECT_THAT(ExpectLeft(std::move(narrow)), HasSubstr("a term is not one row"));
}

TEST(FuseEmbeddingLayerNormTest, TheShiftMayBeAbsent) {
  Model m;
  const ValueId rows = m.Add(m.Rows(m.ids), m.Rows(m.places));
  m.Output(m.Op("LayerNormalization", {rows, m.Weights(Shape{kWidth})}));
  ExpectFused(std::move(m), "EmbeddingLayerNorm");
}

TEST(FuseEmbeddingLayerNormTest, WhatIsNoEmbeddingStaysWithoutANote) {
  // Columns of a table.
  Model m;
  m.Output(m.Norm(
      m.Op("Gather", {m.Weights(Shape{kWidth, 9}), m.places}, Attrs({{"axis", int64_t{1}}}))));
  Graph columns = std::move(m).Build();
  const PassResult r = RunPass(kPass, columns);
  EXPECT_EQ(r.rewrites, 0);
  EXPECT_THAT(r.notes, ElementsAre());
}

}  // namespace fuse_embedding_layer_norm_test
}  // namespace chairlift
