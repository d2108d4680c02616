// Encoders as PyTorch's exporters write them: packed, they answer as each request alone.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "graph/onnx/import.h"
#include "graph/ragged/packed_requests.h"
#include "graph/stages/stages.h"

namespace chairlift {
namespace {

using testing::ExpectSameAnswers;
using testing::Kept;
using testing::Request;

Graph Import(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  auto imported = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? imported->graph : Graph();
}

enum class Masked { kNot, kRight, kLeft, kAnywhere };

class EncoderTest : public ::testing::TestWithParam<std::string> {
 protected:
  Request MakeRequest(const Graph& graph, int64_t batch, int64_t length, Masked masked) {
    Request request{.batch = batch, .length = length, .inputs = {}};
    const Shape shape{batch, length};
    for (const ValueId id : graph.inputs) {
      const std::string& name = graph.values[static_cast<size_t>(id)].name;
      Tensor t = Tensor::Allocate(DType::kInt64, shape);
      for (int64_t i = 0; i < t.size(); ++i) {
        const int64_t place = i % length;
        // Each sequence has another number of tokens that count.
        const int64_t counted = 1 + (i / length * 5 + 3) % length;
        const bool hidden = masked == Masked::kRight      ? place >= counted
                            : masked == Masked::kLeft     ? place < length - counted
                            : masked == Masked::kAnywhere ? random_() % 3 == 0
                                                          : false;
        t.data<int64_t>()[i] = name == "attention_mask"   ? !hidden
                               : name == "token_type_ids" ? static_cast<int64_t>(random_() % 2)
                               : hidden && random_() % 2 == 0
                                   ? 1
                                   : static_cast<int64_t>(random_() % 24);
      }
      request.inputs.push_back(t);
    }
    return request;
  }

  std::mt19937 random_{5};
};

TEST_P(EncoderTest, PackedItAnswersAsEachRequestAlone) {
  const Graph graph = Import(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / GetParam());
  const auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  // RoBERTa and MPNet leave out those of the 40 places up to the padding's.
  const bool behind = GetParam().starts_with("roberta") || GetParam().starts_with("mpnet");
  EXPECT_EQ(model->max_length, behind ? 38 : 40);
  std::vector<Request> requests;
  for (const Masked masked : {Masked::kNot, Masked::kRight, Masked::kLeft, Masked::kAnywhere}) {
    for (const int64_t length : {1, 2, 9, 17, 38}) {
      requests.push_back(MakeRequest(graph, 1, length, masked));
    }
    requests.push_back(MakeRequest(graph, 3, 7, masked));
  }
  std::shuffle(requests.begin(), requests.end(), random_);
  ExpectSameAnswers(graph, *model, requests);
  ExpectSameAnswers(graph, *model, requests, Kept::kAll, 5);
  ExpectSameAnswers(graph, *model, {requests[0]});
}

TEST_P(EncoderTest, HiddenTokensNeedNotBePackedWhereItSaysSo) {
  const Graph graph = Import(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / GetParam());
  const auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  const bool sentence = GetParam().starts_with("minilm");
  const bool any_rows = std::find(model->output_is_tokens.begin(), model->output_is_tokens.end(),
                                  false) != model->output_is_tokens.end();
  ASSERT_GE(model->mask, 0);
  EXPECT_EQ(graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(model->mask)])].name,
            "attention_mask");
  EXPECT_TRUE(model->rows_ignore_trailing);
  // ONNX Runtime's optimiser takes the number of tokens that count for where they end.
  const bool by_length = GetParam().find("optimised") != std::string::npos;
  // Without a token in between, others would come closer.
  const bool by_distance = GetParam().starts_with("mpnet");
  EXPECT_EQ(model->rows_ignore_masked, (sentence || !any_rows) && !by_length && !by_distance);
  std::vector<Request> requests;
  for (const Masked masked : {Masked::kNot, Masked::kRight, Masked::kLeft, Masked::kAnywhere}) {
    for (const int64_t length : {1, 9, 38}) {
      requests.push_back(MakeRequest(graph, 2, length, masked));
    }
  }
  ExpectSameAnswers(graph, *model, requests, Kept::kUpToLastCounted, 3);
  if (model->rows_ignore_masked) ExpectSameAnswers(graph, *model, requests, Kept::kCounted, 3);
}

TEST_P(EncoderTest, ItTellsWhatBecameOfTheMasks) {
  const Graph graph = Import(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / GetParam());
  const auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  int masks = 0;
  for (const std::string& note : model->notes) {
    if (!note.starts_with("masks of 2 attentions: ")) continue;
    ++masks;
    const bool followed = note.ends_with(": followed token by token");
    const bool proved = note.ends_with("hide the keys where 'attention_mask' is 0");
    EXPECT_TRUE(followed || proved) << note;
  }
  EXPECT_EQ(masks, 1);
  EXPECT_EQ(model->notes.back(), "tried on examples, it answers as the model does");
}

int Count(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.def->name == op; }));
}

TEST_P(EncoderTest, AllOfItFusesPackedAndPadded) {
  const Graph graph = Import(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / GetParam());
  auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  Graph padded = graph;
  for (Graph* fused : {&padded, &model->graph}) {
    const auto reports = RunPasses(*fused, {});
    ASSERT_TRUE(reports.ok()) << reports.status();
    EXPECT_EQ(Count(*fused, "EmbeddingLayerNorm"), 1);
    EXPECT_EQ(Count(*fused, "Attention") + Count(*fused, "RaggedAttention"), 2);
    EXPECT_EQ(Count(*fused, "ParallelMatMul"), 2);
    // In a padded one, shapes do not show that two operands of a sum have one length.
    if (fused == &padded) continue;
    for (const PassReport& report : *reports) {
      EXPECT_TRUE(report.notes.empty()) << report.name << ": " << report.notes[0];
    }
    EXPECT_EQ(Count(*fused, "SkipLayerNorm"), 4);  // two in each of two layers
    EXPECT_EQ(Count(*fused, "LayerNormalization"), 0);
    const auto bare = std::count_if(fused->nodes.begin(), fused->nodes.end(), [](const Node& n) {
      return n.def->name == "MatMul" || n.def->name == "Gelu" || n.def->name == "Silu";
    });
    EXPECT_EQ(bare, 0);
  }
  // What is fused answers as what is not.
  std::vector<Request> requests;
  for (const int64_t length : {1, 9, 38}) {
    requests.push_back(MakeRequest(graph, 2, length, Masked::kRight));
  }
  ExpectSameAnswers(graph, *model, requests, Kept::kAll, 3);
  for (const Request& request : requests) {
    testing::ExpectClose(testing::Evaluate(graph, request.inputs),
                         testing::Evaluate(padded, request.inputs));
  }
}

// Between two layers nothing is left but what a layer gives for each token, and marks.
TEST_P(EncoderTest, PackedItIsCutBetweenItsLayers) {
  const Graph graph = Import(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / GetParam());
  auto model = MakeRagged(graph);
  ASSERT_TRUE(model.ok() && RunPasses(model->graph, {}).ok()) << model.status();
  std::vector<double> costs;
  for (const Node& node : model->graph.nodes) {
    costs.push_back(node.def->name.find("MatMul") == std::string::npos ? 0.1 : 1);
  }
  const auto staged = CutIntoStages(model->graph, {}, costs, {.stages = 2, .packed = true});
  ASSERT_TRUE(staged.ok()) << staged.status();
  ASSERT_EQ(staged->stages.size(), 2u);
  const Graph& behind = staged->stages[1].graph;
  int wide = 0;  // values that cross with several numbers for each token
  for (size_t i = 0; i < behind.inputs.size(); ++i) {
    if (static_cast<size_t>(staged->stages[1].inputs[i]) < model->inputs.size()) continue;
    const SymbolicShape& shape = behind.values[behind.inputs[i]].shape;
    EXPECT_NE(PackedUnitOf(shape), PackedUnit::kNone) << shape.ToString();
    const Dim& last = shape[shape.rank() - 1];
    if (last.known() && last.value() > 1) ++wide;
  }
  EXPECT_EQ(wide, 1);
}

TEST(PackedUnitTest, FollowsFromTheShape) {
  const Dim tokens = Dim::Symbol(kTokensSymbol), sequences = Dim::Symbol(kSequencesSymbol);
  const auto unit = [](std::initializer_list<Dim> dims) {
    return PackedUnitOf(SymbolicShape(std::vector<Dim>(dims)));
  };
  EXPECT_EQ(unit({tokens, Dim(8)}), PackedUnit::kToken);
  EXPECT_EQ(unit({Dim(1), Dim(1), tokens}), PackedUnit::kToken);
  EXPECT_EQ(unit({sequences, Dim(8), Dim(2)}), PackedUnit::kSequence);
  EXPECT_EQ(unit({Dim(2), tokens}), PackedUnit::kNone);  // entries do not lie one after the other
  EXPECT_EQ(unit({tokens, tokens}), PackedUnit::kNone);
  EXPECT_EQ(unit({tokens, sequences}), PackedUnit::kNone);
  EXPECT_EQ(unit({Dim::Symbol("sequences+1")}), PackedUnit::kNone);
  EXPECT_EQ(unit({Dim(1), Dim(4)}), PackedUnit::kNone);
  EXPECT_EQ(unit({}), PackedUnit::kNone);
  EXPECT_EQ(PackedUnitOf(SymbolicShape()), PackedUnit::kNone);
}

std::vector<std::string> Encoders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CHAIRLIFT_TEST_MODELS)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, EncoderTest, ::testing::ValuesIn(Encoders()), [](const auto& info) {
  return info.param.substr(0, info.param.find('.'));
});

}  // namespace
}  // namespace chairlift
