// Decoders as exporters write them: what is proved of them, and what is refused, by node.
#include "graph/decoders/decoder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "graph/batch_axis.h"
#include "graph/decoders/decoder_models.h"

namespace chairlift {
namespace {

using testing::DecoderForm;
using testing::DecoderSizes;
using testing::FusedAttention;
using testing::Gpt2Model;
using ::testing::HasSubstr;
using testing::LlamaModel;

StatusOr<DecoderModel> Made(const std::string& bytes) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported,
                             ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Graph graph, NormaliseDecoder(imported.graph));
  return MakeDecoder(graph);
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

TEST(DecoderTest, MasksThatAreLookedUpByPlaceAreFollowed) {
  const auto whole = Made(LlamaModel({}, {.looked_up_mask = true}));
  ASSERT_TRUE(whole.ok()) << whole.status();
  CheckPaged(*whole, 2);
  EXPECT_EQ(whole->max_length, 0);
  EXPECT_THAT(Refused(LlamaModel({}, {.sees_later = 1, .looked_up_mask = true})),
              HasSubstr("its mask hides by"));
}

// As torch.export writes it from opset 23 on: whether the mask has a column for each key does not
// follow from shapes.
TEST(DecoderTest, OnnxAttentionOverAJoinedPastIsProved) {
  for (const bool looked_up : {false, true}) {
    const auto model = Made(LlamaModel({}, {.looked_up_mask = looked_up, .onnx_attention = true}));
    ASSERT_TRUE(model.ok()) << model.status();
    CheckPaged(*model, 2);
    EXPECT_THAT(Refused(LlamaModel(
                    {}, {.sees_later = 1, .looked_up_mask = looked_up, .onnx_attention = true})),
                HasSubstr("its mask"));
  }
}

TEST(DecoderTest, AWindowIsABiasByDistance) {
  const auto window = Made(LlamaModel({}, {.looked_up_mask = true, .sliding = 5}));
  ASSERT_TRUE(window.ok()) << window.status();
  CheckPaged(*window, 2);
  EXPECT_EQ(window->max_length, 4096);
  for (const Node& node : window->graph.nodes) {
    if (node.def->name != "PagedAttention") continue;
    const Tensor& bias = window->graph.values[static_cast<size_t>(node.inputs[8])].constant;
    ASSERT_EQ(bias.shape(), (Shape{4, 8191}));
    for (int64_t back = 0; back < 4096; ++back) {
      EXPECT_EQ(bias.data<float>()[4095 - back], back < 5 ? 0.0f : -1e30f) << back;
    }
  }
}

// As torch.export names what it flattens, and its outputs.
TEST(DecoderTest, PortsOfACacheAreKnownByWhatIsComputed) {
  const std::string bytes = LlamaModel({}, {.looked_up_mask = true});
  auto imported = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  Graph& graph = imported->graph;
  for (const auto* ports : {&graph.inputs, &graph.outputs}) {
    for (size_t i = 0; i < ports->size(); ++i) {
      Value& value = graph.values[static_cast<size_t>((*ports)[i])];
      if (ports == &graph.outputs || value.shape.rank() == 4) {
        value.name =
            (ports == &graph.outputs ? "cat_" : "past_key_values_cache_") + std::to_string(i);
      }
    }
  }
  EXPECT_TRUE(IsDecoder(graph));
  const auto normalised = NormaliseDecoder(graph);
  ASSERT_TRUE(normalised.ok()) << normalised.status();
  const auto model = MakeDecoder(*normalised);
  ASSERT_TRUE(model.ok()) << model.status();
  CheckPaged(*model, 2);
}

constexpr FusedAttention kFused[] = {FusedAttention::kGroupQuery, FusedAttention::kGroupQueryPacked,
                                     FusedAttention::kMultiHead,  FusedAttention::kMultiHeadCausal,
                                     FusedAttention::kOnnxCausal, FusedAttention::kOnnxMasked};

DecoderSizes SizesFor(FusedAttention fused) {
  const bool equal =
      fused == FusedAttention::kMultiHead || fused == FusedAttention::kMultiHeadCausal;
  return {.kv_heads = equal ? 4 : 2};
}

TEST(DecoderTest, AttentionWithItsCacheIsProvedAsTheOneWrittenOut) {
  for (const FusedAttention fused : kFused) {
    for (const bool mask : {true, false}) {
      for (const bool positions : {true, false}) {
        SCOPED_TRACE(fmt::format("form {}, {}, {}", static_cast<int>(fused), mask, positions));
        const DecoderSizes sizes = SizesFor(fused);
        const auto model = Made(
            LlamaModel(sizes, {.mask_input = mask, .position_input = positions, .fused = fused}));
        ASSERT_TRUE(model.ok()) << model.status();
        CheckPaged(*model, sizes.kv_heads);
        EXPECT_EQ(model->max_length, fused == FusedAttention::kOnnxMasked ? 0 : 64);
      }
    }
  }
}

TEST(DecoderTest, AttentionWithItsCacheThatSeesOtherTokensIsRefused) {
  for (const bool mask : {true, false}) {
    EXPECT_THAT(
        Refused(LlamaModel(
            {}, {.mask_input = mask, .fused = FusedAttention::kGroupQuery, .wrong_lengths = true})),
        HasSubstr("its lengths are not known"));
  }
  EXPECT_THAT(Refused(LlamaModel({}, {.fused = FusedAttention::kGroupQuery, .window = 5})),
              HasSubstr("its mask"));
  EXPECT_THAT(Refused(LlamaModel({}, {.fused = FusedAttention::kGroupQuery, .window = 0})),
              HasSubstr("'local_window_size' is 0"));
  EXPECT_THAT(
      Refused(LlamaModel(
          SizesFor(FusedAttention::kMultiHeadCausal),
          {.mask_input = false, .fused = FusedAttention::kMultiHeadCausal, .one_sided = -1})),
      HasSubstr("tokens of a prompt would see later ones"));
  for (const FusedAttention fused : {FusedAttention::kMultiHead, FusedAttention::kOnnxMasked}) {
    EXPECT_THAT(Refused(LlamaModel(SizesFor(fused), {.sees_later = 1, .fused = fused})),
                HasSubstr("its mask hides by"));
  }
}

// Real exports (tests/models/export_decoders.py, export_genai_decoders.py, export_ort_decoders.py).
TEST(DecoderTest, WhatExportersWriteIsProved) {
  int count = 0;
  const auto folder = std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "decoders";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto imported = ImportOnnxFile(entry.path());
    ASSERT_TRUE(imported.ok()) << imported.status();
    ASSERT_TRUE(IsDecoder(imported->graph));
    const auto graph = NormaliseDecoder(imported->graph);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto model = MakeDecoder(*graph);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(CountOf(model->graph, "PagedAttention"), 2);
    const std::string name = entry.path().filename().string();
    const bool grouped =
        !name.starts_with("gpt2") && !name.starts_with("bloom_") && !name.starts_with("mpt_");
    EXPECT_EQ(model->layers[0].heads, grouped ? 2 : 4);
    ++count;
  }
  EXPECT_GE(count, 16);
}

// As newer exporters do: then no size of 0 means that of the input.
TEST(DecoderTest, HeadsMayBeMergedWithTheBatchByAllSizes) {
  auto imported = ImportOnnxFile(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "decoders" /
                                 "bloom_hf5_torchscript_eager_14.onnx");
  ASSERT_TRUE(imported.ok()) << imported.status();
  int count = 0;
  for (Node& node : imported->graph.nodes) {
    if (node.def->name != "Reshape") continue;
    const Value& shape = imported->graph.values[static_cast<size_t>(node.inputs[1])];
    const auto sizes =
        shape.is_constant() ? shape.constant.values<int64_t>() : std::span<const int64_t>();
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) continue;
    node.attributes.Set("allowzero", int64_t{1});
    ++count;
  }
  EXPECT_GT(count, 5);
  const auto graph = NormaliseDecoder(imported->graph);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto model = MakeDecoder(*graph);
  EXPECT_TRUE(model.ok()) << model.status();
}

// Why an exporter's file with one change is refused.
std::string RefusedExport(const char* name, void (*change)(Graph&)) {
  auto imported = ImportOnnxFile(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "decoders" /
                                 (std::string(name) + ".onnx"));
  EXPECT_TRUE(imported.ok()) << imported.status();
  change(imported->graph);
  const auto graph = NormaliseDecoder(imported->graph);
  if (!graph.ok()) return std::string(graph.status().message());
  const auto made = MakeDecoder(*graph);
  EXPECT_TRUE(absl::IsUnimplemented(made.status())) << made.status();
  return std::string(made.status().message());
}

Node& ProducerOf(Graph& graph, const std::string& name) {
  return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return graph.values[static_cast<size_t>(node.outputs[0])].name == name;
  });
}

TEST(DecoderTest, APastInOneTensorWhosePartsAreOthersIsRefused) {
  const auto swap_present = [](Graph& graph) {  // values, then keys
    Node& present = ProducerOf(graph, "present_0");
    std::swap(present.inputs[0], present.inputs[1]);
  };
  const auto swap_layers = [](Graph& graph) {
    std::swap(graph.values[static_cast<size_t>(graph.outputs[1])].name,
              graph.values[static_cast<size_t>(graph.outputs[2])].name);
  };
  const auto swap_past = [](Graph& graph) {  // attention reads keys as values
    int count = 0;
    for (Node& node : graph.nodes) {
      if (!graph.values[static_cast<size_t>(node.inputs[0])].name.starts_with("past_")) continue;
      if (node.def->name != "Split") continue;
      std::swap(node.outputs[0], node.outputs[1]);
      ++count;
    }
    EXPECT_EQ(count, 2);
  };
  const auto lose_rank = [](Graph& graph) {
    graph.values[static_cast<size_t>(graph.outputs[1])].shape = SymbolicShape();
  };
  for (const char* name : {"gpt2_ort131_joined_written_out", "gpt2_ort131_joined_fused"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(RefusedExport(name, swap_present), HasSubstr("output 'present.0.key' is not"));
    EXPECT_THAT(RefusedExport(name, swap_layers), HasSubstr("output 'present.0.key' is not"));
    EXPECT_THAT(RefusedExport(name, swap_past), HasSubstr("output 'present.0.key' is not"));
    EXPECT_THAT(RefusedExport(name, lose_rank), HasSubstr("output 'present_0' has shape"));
  }
}

TEST(DecoderTest, AttentionInOneOperatorThatSeesLaterTokensIsRefused) {
  const auto see_all = [](Graph& graph) {
    for (Node& node : graph.nodes) {  // keys ≤ position
      if (node.def->name == "LessOrEqual") std::swap(node.inputs[0], node.inputs[1]);
    }
  };
  EXPECT_THAT(RefusedExport("gpt2_ort131_joined_fused", see_all), HasSubstr("its mask"));
}

TEST(DecoderTest, LengthsOfNoDimensionAreRefused) {
  const std::string bytes =
      LlamaModel({}, {.fused = FusedAttention::kGroupQuery, .one_length = true});
  const auto imported = ImportOnnx(std::as_bytes(std::span(bytes.data(), bytes.size())), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const BatchAxisReport report = AnalyseBatchAxis(imported->graph);
  EXPECT_FALSE(report.batches);
  EXPECT_THAT(report.why, HasSubstr("without dimension 0"));
}

// A step finds in its past what an earlier call gave out, which is to be what that one read.
TEST(DecoderTest, AttentionThatReadsOtherKeysThanAreGivenOutIsRefused) {
  const auto give_others = [](Graph& graph) {  // values in place of keys
    Node other = ProducerOf(graph, "present.0.key");
    other.name = "other";
    other.inputs[1] = ProducerOf(graph, "present.0.value").inputs[1];
    const auto given = std::find(graph.outputs.begin(), graph.outputs.end(), other.outputs[0]);
    const Value value = graph.values[static_cast<size_t>(*given)];
    graph.values[static_cast<size_t>(*given)].name = "read";
    *given = graph.AddValue(value);
    other.outputs = {*given};
    graph.nodes.push_back(other);
  };
  const auto read_others = [](Graph& graph) {  // behind those of another layer
    Node other = ProducerOf(graph, "present.0.key");
    const ValueId own = other.outputs[0];
    other.name = "other";
    other.inputs[0] = ProducerOf(graph, "present.1.key").inputs[0];
    other.outputs = {graph.AddValue({.name = "other", .dtype = DType::kFloat})};
    for (Node& node : graph.nodes) {
      std::replace(node.inputs.begin(), node.inputs.end(), own, other.outputs[0]);
    }
    const auto place = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [&](const Node& node) { return node.outputs[0] == own; });
    graph.nodes.insert(place, other);
  };
  for (const char* name : {"gpt2_hf5_torchscript_sdpa_17", "llama_hf5_torchscript_eager_14"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(RefusedExport(name, give_others), HasSubstr("later tokens would see other keys"));
    EXPECT_THAT(RefusedExport(name, read_others), HasSubstr("later tokens would see other keys"));
  }
}

// Biases by distance (ALiBi).
TEST(DecoderTest, SlopesAreBiasesOfAttention) {
  for (const char* name : {"bloom_hf5_torchscript_eager_14", "mpt_hf5_torchscript_eager_14",
                           "mpt_hf4_torchscript_eager_14"}) {
    SCOPED_TRACE(name);
    const auto imported = ImportOnnxFile(std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." /
                                         "decoders" / (std::string(name) + ".onnx"));
    ASSERT_TRUE(imported.ok()) << imported.status();
    const auto model = MakeDecoder(imported->graph);
    ASSERT_TRUE(model.ok()) << model.status();
    // BLOOM's grow as far as biases do; MPT's are a table of 64 places.
    EXPECT_EQ(model->max_length, name[0] == 'b' ? 4096 : 64);
    int biased = 0;
    for (const Node& node : model->graph.nodes) {
      if (node.def->name != "PagedAttention") continue;
      ASSERT_EQ(node.inputs.size(), 9u);
      const Tensor& bias = model->graph.values[static_cast<size_t>(node.inputs[8])].constant;
      const int64_t columns = bias.shape()[1];
      ASSERT_EQ(bias.shape()[0], 4);
      for (int64_t h = 0; h < 4; ++h) {
        const float* zero = bias.data<float>() + h * columns + columns / 2;
        const auto slope = static_cast<float>(std::pow(0.25, static_cast<double>(h + 1)));
        EXPECT_EQ(zero[0], 0.0f);
        EXPECT_EQ(zero[-1], -slope);
        EXPECT_EQ(zero[-63], -63 * slope);
      }
      ++biased;
    }
    EXPECT_EQ(biased, 2);
  }
}

// What masks add to what they hide.
void HideBy(float number, Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.def->name != "Where") continue;
    for (const size_t i : {1, 2}) {
      Tensor& fill = graph.values[static_cast<size_t>(node.inputs[i])].constant;
      if (fill.present() && fill.size() == 1 && fill.dtype() == DType::kFloat &&
          fill.data<float>()[0] < -1e30f) {
        fill = Tensor::Scalar(number);
      }
    }
  }
}

TEST(DecoderTest, SlopesThatSeeLaterTokensOrAreNoneAreRefused) {
  const auto see_later = [](Graph& graph) {
    for (Node& node : graph.nodes) {  // keys ≤ position
      if (node.def->name == "LessOrEqual") std::swap(node.inputs[0], node.inputs[1]);
    }
  };
  const auto show_all = [](Graph& graph) { HideBy(-900.0f, graph); };  // some less, but not hidden
  const auto steep = [](Graph& graph) {
    HideBy(-1500.0f, graph);
  };                                    // hidden, but not at a distance
  const auto bend = [](Graph& graph) {  // one place of the table
    for (Value& value : graph.values) {
      if (!value.is_constant() || value.constant.shape() != Shape{4, 1, 64}) continue;
      value.constant = value.constant.Clone();
      value.constant.data<float>()[70] += 0.5f;
    }
  };
  const auto by_query = [](Graph& graph) {  // slopes of queries, not of heads
    for (Value& value : graph.values) {
      if (!value.is_constant() || value.constant.shape() != Shape{4, 1, 64}) continue;
      value.constant = value.constant.Reshaped({1, 4, 64});
      value.shape = SymbolicShape(value.constant.shape());
    }
  };
  const char* const bloom = "bloom_hf5_torchscript_eager_14";
  const char* const mpt = "mpt_hf5_torchscript_eager_14";
  for (const char* name : {bloom, mpt}) {
    EXPECT_THAT(RefusedExport(name, see_later), HasSubstr("its mask hides by"));
    RefusedExport(name, show_all);
  }
  EXPECT_THAT(RefusedExport(bloom, steep), HasSubstr("slopes up to"));
  EXPECT_THAT(RefusedExport(mpt, bend), HasSubstr("its mask cannot be followed"));
  RefusedExport(mpt, by_query);
}

TEST(DecoderTest, AMaskWhoseEarlierTokensStandBehindNewOnesIsRefused) {
  const auto turn = [](Graph& graph) {
    int count = 0;
    for (Node& node : graph.nodes) {  // of a mask: zeros of the past, then a triangle
      if (node.def->name != "Concat" || node.inputs.size() != 2 ||
          node.attributes.Int("axis", 0) != -1) {
        continue;
      }
      std::swap(node.inputs[0], node.inputs[1]);
      ++count;
    }
    EXPECT_EQ(count, 1);
  };
  EXPECT_THAT(RefusedExport("mpt_hf4_torchscript_eager_14", turn), HasSubstr("its mask hides by"));
}

// What grows along an axis at several slopes is no bias there.
TEST(DecoderTest, RotaryAnglesOfARowForEachFrequencyAreComputed) {
  const auto model = Made(LlamaModel({}, {.angles_by_rows = true}));
  ASSERT_TRUE(model.ok()) << model.status();
  CheckPaged(*model, 2);
  EXPECT_EQ(model->max_length, 0);
}

// As torch.export writes repeat_interleave() of what follows from the input of positions.
TEST(DecoderTest, ValuesMayBeReshapedByTheSizesOfPositions) {
  for (const bool input : {true, false}) {
    const auto model = Made(LlamaModel({}, {.position_input = input, .repeated_angles = true}));
    ASSERT_TRUE(model.ok()) << model.status();
    CheckPaged(*model, 2);
  }
}

TEST(DecoderTest, APastOfAnotherShapeIsNoDecoders) {
  Graph graph;
  const auto input = [&](const char* name, std::vector<Dim> dims) {
    graph.inputs = {graph.AddValue(
        {.name = name, .dtype = DType::kFloat, .shape = SymbolicShape(std::move(dims))})};
    return HasPast(graph);
  };
  const Dim any = Dim::Symbol("n");
  EXPECT_TRUE(input("past_11", {Dim(2), any, Dim(4), any, Dim(8)}));
  EXPECT_FALSE(input("past_0", {Dim(3), any, Dim(4), any, Dim(8)}));
  EXPECT_FALSE(input("past_0", {Dim(2), any, Dim(8)}));
  EXPECT_FALSE(input("past_steps", {Dim(2), any, Dim(4), any, Dim(8)}));
  EXPECT_FALSE(input("past_", {Dim(2), any, Dim(4), any, Dim(8)}));
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
  EXPECT_GE(count, 7);
}

std::filesystem::path EncoderDecoder(const char* name) {
  return std::filesystem::path(CHAIRLIFT_TEST_MODELS) / ".." / "encoder_decoders" / name;
}

TEST(DecoderTest, AnEncoderDecoderMayHaveACacheOfItsOwnTokens) {
  const auto folder = EncoderDecoder("bart_hf5_dynamo_sdpa");
  const auto decoder = ImportOnnxFile(folder / "decoder_model_cached.onnx");
  const auto encoder = ImportOnnxFile(folder / "encoder_model.onnx");
  ASSERT_TRUE(decoder.ok() && encoder.ok()) << decoder.status() << encoder.status();
  const auto model = MakeDecoder(decoder->graph, &encoder->graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountOf(model->graph, "PagedAttention"), 2);
  EXPECT_EQ(CountOf(model->graph, "SourceAttention"), 2);
  // Keys and values of the source as inputs are not enough.
  Graph given = decoder->graph;
  for (const ValueId id : given.inputs) {
    Value& value = given.values[static_cast<size_t>(id)];
    if (value.name == "past_key_values.1.key") value.name = "past_key_values.1.encoder.key";
  }
  const auto refused = MakeDecoder(given, &encoder->graph);
  EXPECT_TRUE(absl::IsUnimplemented(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("as in decoder_model.onnx"));
}

TEST(DecoderTest, OfAMergedFileTheBranchThatHasNoPastIsTaken) {
  const auto folder = EncoderDecoder("t5_hf5_torchscript_eager_14");
  const auto merged = ImportOnnxFile(folder / "decoder_model_merged.onnx");
  const auto encoder = ImportOnnxFile(folder / "encoder_model.onnx");
  ASSERT_TRUE(merged.ok() && encoder.ok()) << merged.status() << encoder.status();
  const auto picked = NormaliseDecoder(merged->graph);
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_FALSE(HasPast(*picked));
  const auto model = MakeDecoder(*picked, &encoder->graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountOf(model->graph, "SourceAttention"), 2);
}

// With one thing changed in the decoder.
std::string RefusedWith(const char* name, const std::function<void(Graph&)>& change) {
  auto decoder = ImportOnnxFile(EncoderDecoder(name) / "decoder_model.onnx");
  const auto encoder = ImportOnnxFile(EncoderDecoder(name) / "encoder_model.onnx");
  EXPECT_TRUE(decoder.ok() && encoder.ok());
  change(decoder->graph);
  const auto made = MakeDecoder(decoder->graph, &encoder->graph);
  EXPECT_TRUE(absl::IsUnimplemented(made.status())) << made.status();
  return std::string(made.status().message());
}

TEST(DecoderTest, AnEncoderDecoderThatSeesLaterTokensIsRefused) {
  const auto turn = [](Graph& graph) {
    for (Node& node : graph.nodes) {  // of places, not of a place and a number
      const bool compares = node.def->name == "LessOrEqual" || node.def->name == "GreaterOrEqual";
      if (!compares || graph.values[static_cast<size_t>(node.inputs[1])].is_constant()) continue;
      std::swap(node.inputs[0], node.inputs[1]);
      return;
    }
    ADD_FAILURE() << "it compares no places";
  };
  EXPECT_NE(RefusedWith("marian_hf5_torchscript_eager_14", turn).find("its mask hides by"),
            std::string::npos);
  for (const char* t5 : {"t5_hf5_torchscript_eager_14", "t5v11_hf5_torchscript_sdpa_17"}) {
    EXPECT_NE(RefusedWith(t5, turn).find("its mask adds"), std::string::npos);
  }
}

// As optimum-onnx writes masks that are assigned to.
TEST(DecoderTest, AMaskThatIsWrittenAtOtherPlacesIsRefused) {
  const char* bart = "bart_hf4_optimum_sdpa";
  const auto change = [&](const std::function<void(Graph&, Node&)>& places) {
    return RefusedWith(bart, [&](Graph& graph) {
      const auto scatter =
          std::find_if(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node& node) { return node.def->name == "ScatterND"; });
      ASSERT_NE(scatter, graph.nodes.end());
      for (Node& node : graph.nodes) {
        if (node.outputs[0] == scatter->inputs[1]) places(graph, node);
      }
    });
  };
  // Rows and columns exchanged.
  const std::string exchanged =
      change([](Graph&, Node& node) { std::swap(node.inputs[2], node.inputs[3]); });
  EXPECT_NE(exchanged.find("its mask cannot be followed"), std::string::npos) << exchanged;
  // All in the first row.
  const std::string first = change([](Graph&, Node& node) { node.inputs[2] = node.inputs[1]; });
  EXPECT_NE(first.find("its mask cannot be followed"), std::string::npos) << first;
}

TEST(DecoderTest, AttentionThatHidesAPlaceOfItsSourceIsRefused) {
  const auto hide = [](Graph& graph) {  // place 0, where all from 0 on were seen
    const auto seen = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
      return node.def->name == "GreaterOrEqual";
    });
    ASSERT_NE(seen, graph.nodes.end());
    graph.values[static_cast<size_t>(seen->inputs[1])].constant = Tensor::Scalar(int64_t{1});
  };
  for (const char* name : {"marian_hf5_torchscript_eager_14", "t5_hf5_torchscript_eager_14"}) {
    EXPECT_NE(RefusedWith(name, hide).find("its mask hides tokens of a source"), std::string::npos);
  }
}

TEST(DecoderTest, WhatElseReadsTheSourceIsRefused) {
  const std::string why = RefusedWith("bart_hf5_torchscript_sdpa_17", [](Graph& graph) {
    const auto named = [&](const std::vector<ValueId>& ids, const char* name) {
      return *std::find_if(ids.begin(), ids.end(), [&](ValueId id) {
        return graph.values[static_cast<size_t>(id)].name == name;
      });
    };
    const ValueId logits = named(graph.outputs, "logits");
    const ValueId source = named(graph.inputs, "encoder_hidden_states");
    const auto add = [&](const char* op, const char* name, std::vector<ValueId> inputs) {
      Node node;
      node.name = name;
      node.def = OperatorRegistry::Builtin().Find("", op);
      node.inputs = std::move(inputs);
      node.outputs = {graph.AddValue({.name = name, .dtype = DType::kFloat})};
      graph.nodes.push_back(node);
      return node.outputs[0];
    };
    graph.values[static_cast<size_t>(logits)].name = "before";
    const ValueId mean = add("ReduceMean", "mean", {source});
    std::replace(graph.outputs.begin(), graph.outputs.end(), logits,
                 add("Add", "logits", {logits, mean}));
    EXPECT_TRUE(InferShapes(graph).ok());
  });
  EXPECT_NE(why.find("it reads the source"), std::string::npos) << why;
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

TEST(DecoderTest, DynamicScalesSpanTheNewTokensOfASequence) {
  const auto model = Made(testing::LlamaModel({}, {.dynamic = true}));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->whole_prompts);
  // The range of the last product spans all tokens, but only the last ones are multiplied.
  EXPECT_EQ(CountOf(model->graph, "RaggedToken"), 3);
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

TEST(DecoderTest, StaticCachesAreRefusedByName) {
  testing::ModelBuilder m(24);
  m.Input("input_ids", testing::kInt64, {"batch", "new"});
  m.Input("past_key_values.0.key", testing::kFloat, {"batch", 2, 16, 8});
  m.Input("keys", testing::kFloat, {"batch", 2, "new", 8});
  m.Input("write_indices", testing::kInt64, {"batch"});
  m.Node("TensorScatter", {"past_key_values.0.key", "keys", "write_indices"}, {"present.0.key"});
  m.Node("Cast", {"input_ids"}, {"logits"}).Int("to", testing::kFloat);
  m.Output("logits").Output("present.0.key");
  EXPECT_THAT(Refused(m.Bytes()),
              HasSubstr("(TensorScatter) writes into 'past_key_values.0.key', a static cache"));
}

}  // namespace
}  // namespace chairlift
