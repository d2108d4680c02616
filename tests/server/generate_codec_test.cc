#include "server/http/generate_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/oip_codec.h"

namespace chairlift::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelMetadata Model() {
  ModelMetadata model;
  model.name = "m";
  model.version = "3";
  model.inputs = {{"tokens", DType::kInt64, {-1, -1}},
                  {"scale", DType::kFloat, {}},
                  {"fixed", DType::kFloat, {4, 2}},
                  {"on", DType::kBool, {-1}}};
  return model;
}

StatusOr<DecodedGenerate> Decode(std::string_view json, const ServerLimits& limits = {},
                                 const ModelMetadata& model = Model()) {
  const std::unique_ptr<char[]> buffer(new char[json.size() + kBodyPadding]);
  std::memcpy(buffer.get(), json.data(), json.size());
  std::memset(buffer.get() + json.size(), ']', kBodyPadding);
  GenerateDecoder decoder(limits);
  return decoder.Decode({buffer.get(), json.size()}, model);
}

std::string DecodeError(std::string_view json, const ServerLimits& limits = {}) {
  const auto decoded = Decode(json, limits);
  EXPECT_FALSE(decoded.ok()) << json;
  if (decoded.ok()) return "";
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << decoded.status();
  return Message(decoded.status());
}

TEST(GenerateDecodeTest, TextsAreTextsOrListsOfThem) {
  ModelMetadata model;
  model.inputs = {{"a", DType::kBytes, {-1}}, {"b", DType::kBytes, {-1}}};
  const auto decoded = Decode(R"({"a":"x","b":["y","zé"]})", {}, model);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.inputs[0].tensor.shape(), Shape({1}));
  EXPECT_THAT(TextsOf(decoded->request.inputs[0].tensor), ElementsAre("x"));
  EXPECT_THAT(TextsOf(decoded->request.inputs[1].tensor), ElementsAre("y", "zé"));
  EXPECT_FALSE(Decode(R"({"a":["x",1],"b":"y"})", {}, model).ok());
  EXPECT_FALSE(Decode(R"({"a":7,"b":"y"})", {}, model).ok());
}

TEST(GenerateDecodeTest, ASeedIsAParameterUnlessTheModelHasSuchAnInput) {
  for (const char* json : {R"({"scale":1,"seed":-7})", R"({"parameters":{"seed":-7}})"}) {
    const auto decoded = Decode(json);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->request.seed, -7);
  }
  EXPECT_THAT(DecodeError(R"({"parameters":{"seed":0.5}})"), HasSubstr("\"seed\" is 0.5"));
  ModelMetadata model;
  model.inputs = {{"seed", DType::kFloat, {1}}};
  for (const char* json : {R"({"seed":0.5})", R"({"parameters":{"seed":0.5}})"}) {
    const auto decoded = Decode(json, {}, model);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    ASSERT_EQ(decoded->request.inputs.size(), 1u);
    EXPECT_EQ(decoded->request.inputs[0].tensor.data<float>()[0], 0.5f);
    EXPECT_FALSE(decoded->request.seed.has_value());
  }
}

TEST(GenerateDecodeTest, ListsOfTokensMayDifferInLength) {
  ModelMetadata model = Model();
  model.inputs = {{"stop_sequences", DType::kInt64, {-1, -1}}, {"ids", DType::kInt64, {-1, -1}}};
  const auto decoded = Decode(R"({"stop_sequences":[[1,2,3],[4],[]]})", {}, model);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.inputs[0].tensor.shape(), Shape({3, 3}));
  EXPECT_THAT(decoded->request.inputs[0].tensor.values<int64_t>(),
              ElementsAre(1, 2, 3, 4, -1, -1, -1, -1, -1));
  EXPECT_EQ(Decode(R"({"stop_sequences":[]})", {}, model)->request.inputs[0].tensor.size(), 0);
  EXPECT_EQ(Decode(R"({"stop_sequences":[1,2]})", {}, model)->request.inputs[0].tensor.shape(),
            Shape({1, 2}));
  EXPECT_FALSE(Decode(R"({"stop_sequences":[[1],[2.5]]})", {}, model).ok());
  EXPECT_FALSE(Decode(R"({"ids":[[1,2],[3]]})", {}, model).ok());
}

TEST(GenerateDecodeTest, TypesAreTheModelsAndShapesTheNesting) {
  const auto decoded =
      Decode(R"({"tokens":[[1,2,3],[4,5,6]],"id":"a","scale":2.5,"on":[true,false],)"
             R"("parameters":{"timeout":70,"sequence_id":9,"sequence_end":true}})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const InferRequest& request = decoded->request;
  ASSERT_EQ(request.inputs.size(), 3u);
  EXPECT_EQ(request.inputs[0].name, "tokens");
  EXPECT_EQ(request.inputs[0].tensor.shape(), Shape({2, 3}));
  EXPECT_THAT(request.inputs[0].tensor.values<int64_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(request.inputs[1].tensor.shape(), Shape({}));
  EXPECT_EQ(request.inputs[1].tensor.data<float>()[0], 2.5f);
  EXPECT_EQ(request.inputs[2].tensor.dtype(), DType::kBool);
  EXPECT_EQ(request.id, "a");
  EXPECT_EQ(request.timeout, std::chrono::microseconds(70));
  EXPECT_EQ(request.sequence, "9");
  EXPECT_TRUE(request.sequence_end);
  EXPECT_EQ(decoded->omitted, 0);
}

TEST(GenerateDecodeTest, LeadingDimensionsMayBeLeftOut) {
  const auto row = Decode(R"({"tokens":[1,2,3],"on":true})");
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->request.inputs[0].tensor.shape(), Shape({1, 3}));
  EXPECT_EQ(row->request.inputs[1].tensor.shape(), Shape({1}));
  EXPECT_EQ(row->omitted, 1);
  const auto one = Decode(R"({"tokens":7})");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->request.inputs[0].tensor.shape(), Shape({1, 1}));
  EXPECT_EQ(one->omitted, 2);
  const auto mixed = Decode(R"({"tokens":[1,2,3],"on":[true]})");
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(mixed->omitted, 0);
  EXPECT_THAT(DecodeError(R"({"fixed":[1,2]})"), HasSubstr("dimension 0 must be 4"));
  ModelMetadata batches = Model();
  batches.batches = true;
  EXPECT_TRUE(Decode(R"({"fixed":[1,2]})", {}, batches).ok());
}

// Such as a Python function's whose shapes are not annotated: a row would only be guessed.
TEST(GenerateDecodeTest, InputsThatCountNoRowsLeaveTheAnswerAsItIs) {
  ModelMetadata model;
  model.inputs = {{"x", DType::kFloat, {}}};
  for (const char* body : {R"({"x":[[1,2]]})", R"({"x":[[1,2],[3,4]]})", R"({"x":5})", "{}"}) {
    const auto decoded = Decode(body, {}, model);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->omitted, 0) << body;
  }
}

TEST(GenerateDecodeTest, RowsOfUnequalLengthsAreNamed) {
  EXPECT_THAT(DecodeError(R"({"tokens":[[1,2],[3]]})"),
              HasSubstr("input 'tokens': row 1 has 1 element, row 0 has 2"));
  EXPECT_THAT(DecodeError(R"({"tokens":[[1],[2],[3,4,5]]})"),
              HasSubstr("row 2 has 3 elements, row 0 has 1"));
  EXPECT_THAT(DecodeError(R"({"tokens":[[1,"a"]]})"), HasSubstr("element 1 is \"a\""));
}

// As models that generate have them.
TEST(GenerateDecodeTest, BesideInputsOfOneRowAListIsNoRow) {
  ModelMetadata model;
  model.inputs = {{"input_ids", DType::kInt64, {1, -1}},
                  {"stop_token_ids", DType::kInt64, {-1}},
                  {"stop_sequences", DType::kInt64, {-1, -1}}};
  const auto row = Decode(
      R"({"input_ids":[1,2],"stop_token_ids":[3,4],"stop_sequences":[[5,-1],[6,7]]})", {}, model);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->omitted, 1);
  EXPECT_EQ(row->request.inputs[1].tensor.shape(), Shape({2}));
  const auto one = Decode(R"({"input_ids":[1,2],"stop_sequences":[5,6]})", {}, model);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->request.inputs[1].tensor.shape(), Shape({1, 2}));
  const auto batch = Decode(R"({"input_ids":[[1,2]],"stop_token_ids":[3]})", {}, model);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->omitted, 0);
}

// The first input that counts rows distinguishes rows without their batch dimension from a batch.
TEST(GenerateDecodeTest, AFirstInputOfAnyRowsCountsThemWhateverIsBesideIt) {
  ModelMetadata model;
  model.inputs = {{"x", DType::kFloat, {-1, 4}}, {"scale", DType::kFloat, {1}}};
  const auto batch = Decode(R"({"x":[[1,2,3,4]],"scale":2})", {}, model);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->omitted, 0);
  const auto row = Decode(R"({"x":[1,2,3,4],"scale":2})", {}, model);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->omitted, 1);
}

TEST(GenerateDecodeTest, InputsMayStandAmongTheParameters) {
  const auto decoded = Decode(R"({"tokens":[4,5],"parameters":{"scale":2.5,"timeout":9,"x":1}})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->request.inputs.size(), 2u);
  EXPECT_EQ(decoded->request.inputs[1].name, "scale");
  EXPECT_EQ(decoded->request.inputs[1].tensor.data<float>()[0], 2.5f);
  EXPECT_EQ(decoded->request.timeout, std::chrono::microseconds(9));
  EXPECT_THAT(DecodeError(R"({"scale":1,"parameters":{"scale":2}})"),
              HasSubstr("input 'scale' is given twice"));
  EXPECT_THAT(DecodeError(R"({"parameters":{"scale":"x"}})"), HasSubstr("input 'scale'"));
}

// As Triton has it.
TEST(GenerateDecodeTest, FieldsThatAreNoInputsAreParameters) {
  const auto decoded = Decode(
      R"({"tokens":[4,5],"verbose":true,"level":3,"mode":"fast","none":null,"timeout":9,
          "sequence_id":7,"sequence_start":true,"binary_data_output":false})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.inputs.size(), 1u);
  EXPECT_EQ(decoded->request.timeout, std::chrono::microseconds(9));
  EXPECT_TRUE(decoded->request.sequence_start);
  EXPECT_THAT(DecodeError(R"({"tokens":[4],"timeout":-1})"), HasSubstr("\"timeout\" is -1"));
  EXPECT_THAT(DecodeError(R"({"tokens":[4],"sequence_start":true})"), HasSubstr("sequence_id"));
  EXPECT_THAT(DecodeError(R"({"tokens":[4],"binary_data_output":true})"), HasSubstr("/infer"));
  EXPECT_EQ(DecodeError(R"({"mode":1,"tokens":[1],"mode":2})"), "\"mode\" is given twice");
}

TEST(GenerateDecodeTest, PromptsCountRowsAndListsBesideThemDoNot) {
  ModelMetadata model;
  model.inputs = {{"text_input", DType::kBytes, {-1}}, {"stop", DType::kBytes, {-1}}};
  EXPECT_EQ(Decode(R"({"text_input":"a","stop":["b","c"]})", {}, model)->omitted, 1);
  EXPECT_EQ(Decode(R"({"text_input":["a"],"stop":"b"})", {}, model)->omitted, 0);
}

TEST(GenerateDecodeTest, EmptyArraysAreEmptyTensors) {
  const auto decoded = Decode(R"({"tokens":[[],[]]})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.inputs[0].tensor.shape(), Shape({2, 0}));
  EXPECT_EQ(Decode(R"({"tokens":[]})")->request.inputs[0].tensor.shape(), Shape({1, 0}));
}

TEST(GenerateDecodeTest, WhatIsWrongIsNamed) {
  EXPECT_THAT(DecodeError(R"({"token":1})"), HasSubstr("no input 'token'; did you mean 'tokens'?"));
  EXPECT_THAT(DecodeError(R"({"text":[1]})"), HasSubstr("no input 'text' (there are: 'tokens',"));
  EXPECT_THAT(DecodeError(R"({"text":{}})"), HasSubstr("no input 'text' (there are: 'tokens',"));
  EXPECT_THAT(DecodeError(R"({"tokens":[1],"tokens":[2]})"),
              HasSubstr("\"tokens\" is given twice"));
  EXPECT_EQ(DecodeError(R"({"id":"a","tokens":[1],"id":"b"})"), "\"id\" is given twice");
  EXPECT_THAT(DecodeError(R"({"tokens":"hello"})"), HasSubstr("is text; the model takes INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":["hello"]})"), HasSubstr("not a value of INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":1.5})"), HasSubstr("1.5 is not a value of INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":null})"), HasSubstr("null is not a value of INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":{"a":1}})"), HasSubstr("not a value of INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":[[1,2],3]})"), HasSubstr("nesting"));
  EXPECT_THAT(DecodeError(R"({"tokens":[1,[2]]})"), HasSubstr("INT64"));
  EXPECT_THAT(DecodeError(R"({"tokens":[[1,2,3,4,5,6,7,8],1,1,1,1,1,1,1]})"), HasSubstr("input"));
  EXPECT_THAT(DecodeError(R"([1])"), HasSubstr("not a JSON object"));
  EXPECT_THAT(DecodeError(R"({"tokens":[1)"), HasSubstr("not valid JSON"));
  EXPECT_THAT(DecodeError(R"({"parameters":3})"), HasSubstr("parameters"));
  EXPECT_THAT(DecodeError(R"({"parameters":{"binary_data_output":true}})"), HasSubstr("/infer"));
}

TEST(GenerateDecodeTest, DepthAndRankAreLimited) {
  ServerLimits limits;
  limits.max_json_depth = 6;
  EXPECT_THAT(DecodeError(R"({"tokens":[[[[[[[[1]]]]]]]]})", limits), HasSubstr("deeper than"));
  limits = {};
  limits.max_rank = 3;
  EXPECT_THAT(DecodeError(R"({"tokens":[[[[1]]]]})", limits), HasSubstr("3 dimensions"));
  limits = {};
  limits.max_tensor_elements = 2;
  EXPECT_THAT(DecodeError(R"({"tokens":[1,2,3]})", limits),
              HasSubstr("more elements than the limit"));
}

TEST(GenerateEncodeTest, ValuesAreNestedAsTheirShape) {
  InferResponse response;
  response.model = "m";
  response.version = "3";
  response.outputs = {{"a", Tensor::Of<int64_t>({1, 2}, {5, 6})},
                      {"b", Tensor::Of<float>({1, 2, 1}, {0.5f, 1})},
                      {"c", Tensor::Scalar<bool>(true)},
                      {"d", Tensor::Allocate(DType::kFloat, {2, 0})}};
  std::string json;
  EXPECT_TRUE(*EncodeGenerated(response, {}, {}, &json));
  EXPECT_EQ(json, R"({"model_name":"m","model_version":"3","a":[[5,6]],"b":[[[0.5],[1]]],)"
                  R"("c":true,"d":[[],[]]})");
  json.clear();
  EXPECT_TRUE(*EncodeGenerated(response, {"b"}, {{"a", 1}, {"d", 1}}, &json));
  EXPECT_EQ(json, R"({"model_name":"m","model_version":"3","a":[5,6],"c":true,"d":[[],[]]})");
  json.clear();
  EXPECT_FALSE(*EncodeGenerated(response, {"a", "b", "c", "d"}, {{"a", 1}}, &json));
  response.outputs[1].tensor.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Message(EncodeGenerated(response, {}, {}, &json).status()), HasSubstr("'b'"));
}

// A value without the dimensions of its row gets an answer without them, if they are always 1.
TEST(GenerateEncodeTest, DimensionsThatARequestOmitsTheAnswerOmits) {
  const std::vector<TensorSpec> outputs = {{"text", DType::kBytes, {-1, 1}},
                                           {"list", DType::kInt64, {-1, -1}},
                                           {"deep", DType::kFloat, {-1, 1, 1, 2}}};
  EXPECT_EQ(OmittedIn(outputs, 0), (OmittedDims{{"text", 0}, {"list", 0}, {"deep", 0}}));
  EXPECT_EQ(OmittedIn(outputs, 1), (OmittedDims{{"text", 1}, {"list", 1}, {"deep", 1}}));
  EXPECT_EQ(OmittedIn(outputs, 2), (OmittedDims{{"text", 2}, {"list", 1}, {"deep", 2}}));
  EXPECT_EQ(OmittedIn(outputs, 9), (OmittedDims{{"text", 2}, {"list", 1}, {"deep", 3}}));
  InferResponse response;
  response.model = "m";
  response.version = "1";
  response.outputs = {{"text", TextTensor({1, 1}, {"a"})},
                      {"list", Tensor::Of<int64_t>({1, 1}, {5})},
                      {"deep", Tensor::Of<float>({2, 1, 1, 2}, {1, 2, 3, 4})}};
  std::string json;
  EXPECT_TRUE(*EncodeGenerated(response, {}, OmittedIn(outputs, 2), &json));
  EXPECT_EQ(json, R"({"model_name":"m","model_version":"1","text":"a","list":[5],)"
                  R"("deep":[[[[1,2]]],[[[3,4]]]]})");
}

TEST(GenerateEncodeTest, APartSaysWhereItBelongs) {
  std::string json;
  const InferPart part{.row = 2, .first = 7, .outputs = {{"y", Tensor::Of<int32_t>({2}, {3, 4})}}};
  EXPECT_TRUE(EncodeGeneratedPart({"m", "3", "i\"d"}, part, &json).ok());
  EXPECT_EQ(json, R"({"id":"i\"d","model_name":"m","model_version":"3",)"
                  R"("parameters":{"row":2,"first":7},"y":[3,4]})");
}

}  // namespace
}  // namespace chairlift::http
