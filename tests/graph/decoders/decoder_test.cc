// Decoders as exporters write them: what is proved of them, and what is refused, by node.
#include "graph/decoders/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "graph/decoders/decoder_models.h"

namespace chairlift {
namespace {

using testing::DecoderForm;
using testing::DecoderSizes;
using testing::Gpt2Model;
using testing::LlamaModel;

StatusOr<DecoderModel> Made(const std::string& bytes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported,
                             ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {}));
  return MakeDecoder(imported.graph);
}

std::string Refused(const std::string& bytes) {
  const auto made = Made(bytes);
  EXPECT_FALSE(made.ok());
  EXPECT_TRUE(absl::IsUnimplemented(made.status())) << made.status();
  return std::string(made.status().message());
}

int CountOf(const Graph& graph, const std::string& op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const Node& node) { return node.def->name == op; }));
}

void CheckPaged(const DecoderModel& model, int64_t kv_heads) {
  EXPECT_EQ(CountOf(model.graph, "PagedAttention"), 2);
  EXPECT_EQ(CountOf(model.graph, "Attention"), 0);
  EXPECT_EQ(CountOf(model.graph, "RaggedToken"), 1);
  ASSERT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(model.layers[1].heads, kv_heads);
  EXPECT_EQ(model.layers[1].key_size, 8);
  EXPECT_EQ(model.layers[1].value_size, 8);
  EXPECT_EQ(model.vocabulary, 61);
  EXPECT_EQ(model.inputs.size(), model.graph.inputs.size());
}

TEST(DecoderTest, Gpt2IsProvedToBeCausalAndItsStepsPaged) {
  for (const bool mask : {true, false}) {
    for (const bool positions : {true, false}) {
      const auto model = Made(Gpt2Model({}, {.mask_input = mask, .position_input = positions}));
      ASSERT_TRUE(model.ok()) << model.status();
      CheckPaged(*model, 4);
      EXPECT_EQ(model->max_length, 64);
    }
  }
}

TEST(DecoderTest, LlamaIsProvedToBeCausalAndKeepsItsOwnHeadsOfKeysOnly) {
  for (const bool mask : {true, false}) {
    for (const bool positions : {true, false}) {
      const auto model = Made(LlamaModel({}, {.mask_input = mask, .position_input = positions}));
      ASSERT_TRUE(model.ok()) << model.status();
      CheckPaged(*model, 2);
      EXPECT_EQ(model->max_length, 0);
    }
  }
  const auto equal = Made(LlamaModel({.kv_heads = 4}));
  ASSERT_TRUE(equal.ok()) << equal.status();
  CheckPaged(*equal, 4);
}

// Real exports (tests/models/export_decoders.py).
TEST(DecoderTest, WhatPyTorchsExporterWritesIsProved) {
  int count = 0;
  const auto folder = std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto imported = ImportOnnxFile(entry.path());
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto model = MakeDecoder(imported->graph);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CountOf(model->graph, "PagedAttention"), 2);
    const bool gpt2 = entry.path().filename().string().starts_with("gpt2");
    EXPECT_EQ(model->layers[0].heads, gpt2 ? 4 : 2);
    ++count;
  }
  EXPECT_GE(count, 6);
}

// Real exports (tests/models/export_encoder_decoders.py).
TEST(DecoderTest, EncoderDecodersAreProvedFromTheTwoFilesThatNeedNoPast) {
  int count = 0;
  const auto folder = std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "encoder_decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto decoder = ImportOnnxFile(entry.path() / "decoder_model.onnx");
    const auto encoder = ImportOnnxFile(entry.path() / "encoder_model.onnx");
    ASSERT_TRUE(decoder.ok() && encoder.ok()) << decoder.status() << encoder.status();
    const auto model = MakeDecoder(decoder->graph, &encoder->graph);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CountOf(model->graph, "PagedAttention"), 2);
    EXPECT_EQ(CountOf(model->graph, "SourceAttention"), 2);
    ASSERT_TRUE(model->source.has_value());
    EXPECT_EQ(model->source->graph.outputs.size(), 4u);
    EXPECT_TRUE(model->source->packed) << model->source->not_packed;
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(DecoderTest, LogitsAreComputedOfTheLastTokensOnly) {
  const auto model = Made(LlamaModel());
  ASSERT_TRUE(model.ok()) << model.status();
  const Graph& graph = model->graph;
  const auto place = [&](auto is) {
    return std::find_if(graph.nodes.begin(), graph.nodes.end(), is) - graph.nodes.begin();
  };
  const auto token = place([](const Node& n) { return n.def->name == "RaggedToken"; });
  const auto head = place([&](const Node& n) {
    return n.def->name == "MatMul" &&
           graph.values[static_cast<size_t>(n.inputs[1])].name == "lm_head";
  });
  EXPECT_LT(token, head);
}

TEST(DecoderTest, AMaskThatShowsLaterTokensIsRefused) {
  EXPECT_NE(Refused(Gpt2Model({}, {.sees_later = 1})).find("its mask hides by"), std::string::npos);
  EXPECT_NE(Refused(LlamaModel({}, {.sees_later = 1})).find("its mask hides by"),
            std::string::npos);
}

TEST(DecoderTest, PositionsThatTakeNoNoticeOfThePastAreRefused) {
  EXPECT_NE(Refused(Gpt2Model({}, {.wrong_position = true})).find("position is past + index"),
            std::string::npos);
  EXPECT_NE(Refused(Gpt2Model({}, {.first_positions = true}))
                .find("depends on the number of tokens in a call"),
            std::string::npos);
  Refused(LlamaModel({}, {.wrong_position = true}));
}

TEST(DecoderTest, WhatElseReadsThePastIsRefused) {
  EXPECT_NE(Refused(Gpt2Model({}, {.reads_cache = true})).find("it reads keys or values"),
            std::string::npos);
  EXPECT_NE(Refused(LlamaModel({}, {.reads_cache = true})).find("it reads keys or values"),
            std::string::npos);
}

}  // namespace
}  // namespace chairlift
