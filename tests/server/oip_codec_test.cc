#include "server/http/oip_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/http/json_writer.h"
#include "server/protocol/request.h"

namespace chairlift::http {
namespace oip_codec_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Decodes `json` followed by `binary`, from a buffer with no more than the promised padding.
StatusOr<DecodedInfer> Decode(std::string_view json, std::string_view binary = {},
                              const ServerLimits& limits = {}) {
  const size_t bytes = json.size() + binary.size();
  const std::unique_ptr<char[]> buffer(new char[bytes + kBodyPadding]);
  std::memcpy(buffer.get(), json.data(), json.size());
  if (!binary.empty()) std::memcpy(buffer.get() + json.size(), binary.data(), binary.size());
  std::memset(buffer.get() + bytes, ']', kBodyPadding);
  InferDecoder decoder(limits);
  return decoder.Decode({buffer.get(), bytes}, json.size(), nullptr);
}

std::string DecodeError(std::string_view json, std::string_view binary = {},
                        const ServerLimits& limits = {}) {
  const auto decoded = Decode(json, binary, limits);
  EXPECT_FALSE(decoded.ok()) << json;
  if (decoded.ok()) return "";
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(decoded.status());
}

std::string Input(std::string_view datatype, std::string_view shape, std::string_view data) {
  return fmt::format(R"({{"inputs":[{{"name":"x","datatype":"{}","shape":{},"data":{}}}]}})",
                     datatype, shape, data);
}

template <typename T>
std::vector<T> Values(const StatusOr<DecodedInfer>& decoded) {
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  if (!decoded.ok()) return {};
  const auto values = decoded->request.inputs[0].tensor.values<T>();
  return {values.begin(), values.end()};
}

TEST(OipDecodeTest, FieldsMayComeInAnyOrder) {
  const auto decoded = Decode(
      R"({"inputs":[{"data":[1,2.5],"parameters":{},"shape":[2],"datatype":"FP32","name":"x"}],)"
      R"("id":"a\"b","outputs":[{"name":"y"}],"unknown":{"deep":[1]}})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.id, "a\"b");
  EXPECT_THAT(decoded->request.outputs, ElementsAre("y"));
  EXPECT_THAT(Values<float>(decoded), ElementsAre(1.0f, 2.5f));
}

TEST(OipDecodeTest, EveryDatatypeIsRead) {
  EXPECT_THAT(Values<float>(Decode(Input("FP32", "[2]", "[-1,1e-3]"))), ElementsAre(-1, 1e-3f));
  EXPECT_THAT(Values<double>(Decode(Input("FP64", "[1]", "[0.1]"))), ElementsAre(0.1));
  EXPECT_THAT(Values<int8_t>(Decode(Input("INT8", "[2]", "[-128,127]"))), ElementsAre(-128, 127));
  EXPECT_THAT(Values<int16_t>(Decode(Input("INT16", "[1]", "[-32768]"))), ElementsAre(-32768));
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[1]", "[3.0]"))), ElementsAre(3));
  EXPECT_THAT(Values<int64_t>(Decode(Input("INT64", "[1]", "[-9223372036854775808]"))),
              ElementsAre(std::numeric_limits<int64_t>::min()));
  EXPECT_THAT(Values<uint8_t>(Decode(Input("UINT8", "[1]", "[255]"))), ElementsAre(255));
  EXPECT_THAT(Values<uint16_t>(Decode(Input("UINT16", "[1]", "[65535]"))), ElementsAre(65535));
  EXPECT_THAT(Values<uint32_t>(Decode(Input("UINT32", "[1]", "[4294967295]"))),
              ElementsAre(4294967295u));
  EXPECT_THAT(Values<uint64_t>(Decode(Input("UINT64", "[1]", "[18446744073709551615]"))),
              ElementsAre(std::numeric_limits<uint64_t>::max()));
  EXPECT_THAT(Values<bool>(Decode(Input("BOOL", "[4]", "[true,false,1,0]"))),
              ElementsAre(true, false, true, false));
  EXPECT_EQ(Values<Float16>(Decode(Input("FP16", "[1]", "[1.5]")))[0].bits, 0x3e00);
  EXPECT_EQ(Values<BFloat16>(Decode(Input("BF16", "[1]", "[1]")))[0].bits, 0x3f80);
}

// As Triton has them: in JSON, or each behind its size.
TEST(OipDecodeTest, TextsAreRead) {
  EXPECT_THAT(Values<std::string_view>(Decode(Input("BYTES", "[2]", R"(["a\"","é"])"))),
              ElementsAre("a\"", "é"));
  EXPECT_THAT(Values<std::string_view>(Decode(Input("BYTES", "[2,1]", R"([["a"],[""]])"))),
              ElementsAre("a", ""));
  EXPECT_THAT(DecodeError(Input("BYTES", "[2]", R"(["a"])")), HasSubstr("1 element"));
  EXPECT_THAT(DecodeError(Input("BYTES", "[1]", "[1]")), HasSubstr("not a value of BYTES"));
  EXPECT_THAT(DecodeError(Input("BYTES", "[70000]", "[]")), HasSubstr("the limit is 65536"));
  const auto binary = [](size_t size) {
    return fmt::format(R"({{"inputs":[{{"name":"x","datatype":"BYTES","shape":[2],)"
                       R"("parameters":{{"binary_data_size":{}}}}}]}})",
                       size);
  };
  const std::string good("\2\0\0\0a\0\0\0\0\0", 10);
  EXPECT_THAT(Values<std::string_view>(Decode(binary(10), good)),
              ElementsAre(std::string_view("a\0", 2), ""));
  EXPECT_THAT(DecodeError(binary(9), good.substr(0, 9)), HasSubstr("ends within string 1 of 2"));
  EXPECT_THAT(DecodeError(binary(11), good + "x"), HasSubstr("1 bytes of the binary data follow"));
  EXPECT_THAT(DecodeError(binary(4), std::string(4, '\xff')), HasSubstr("too few"));
  EXPECT_THAT(DecodeError(binary(8), std::string(8, '\xff')), HasSubstr("ends within string 0"));
}

TEST(OipDecodeTest, DataIsFlatOrNestedAsTheShape) {
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[2,2]", "[1,2,3,4]"))),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[2,1,2]", "[[[1,2]],[[3,4]]]"))),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[]", "[7]"))), ElementsAre(7));
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[0,3]", "[]"))), ElementsAre());
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[2,0]", "[[],[]]"))), ElementsAre());
  for (const char* data : {"[[1,2],[3]]", "[[1,2,3],[4]]", "[[1,2]]", "[[1,2],[3,4],[5,6]]",
                           "[[1],[2],[3],[4]]", "[[1,2],3]", "[[[1,2]],[[3,4]]]"}) {
    EXPECT_NE(DecodeError(Input("INT32", "[2,2]", data)), "") << data;
  }
  EXPECT_THAT(DecodeError(Input("INT32", "[]", "[[7]]")), HasSubstr("nesting"));
  EXPECT_THAT(DecodeError(Input("INT32", "[0,5]", "[[1,2,3,4,5]]")), HasSubstr("nesting"));
  EXPECT_THAT(DecodeError(Input("INT32", "[2]", "[1,2,3]")), HasSubstr("more than 2"));
  EXPECT_THAT(DecodeError(Input("INT32", "[3]", "[1,2]")), HasSubstr("has 2 elements"));
  EXPECT_THAT(DecodeError(Input("INT32", "[100000]", "[1]")),
              HasSubstr("has 1 element, but shape"));
}

TEST(OipDecodeTest, ValuesOutsideTheTypeAreNamed) {
  const struct {
    const char* datatype;
    const char* value;
  } kCases[] = {
      {"INT8", "128"},      {"INT8", "-129"},   {"UINT8", "-1"},
      {"UINT8", "256"},     {"INT32", "1.5"},   {"INT32", "2147483648"},
      {"INT64", "1e300"},   {"UINT64", "-1"},   {"FP32", "1e39"},
      {"FP32", "\"1\""},    {"FP32", "true"},   {"FP32", "null"},
      {"FP16", "65520"},    {"BF16", "3.4e38"}, {"BOOL", "2"},
      {"BOOL", "\"true\""}, {"INT64", "false"}, {"FP64", "[1]"},
      {"INT32", "{}"},      {"BOOL", "1.0"},    {"INT64", "9223372036854775808"},
  };
  for (const auto& test : kCases) {
    const std::string error =
        DecodeError(Input(test.datatype, "[2]", fmt::format("[0,{}]", test.value)));
    EXPECT_THAT(error, HasSubstr("input 'x'")) << test.value;
    EXPECT_THAT(error, HasSubstr("element 1")) << test.value;
    EXPECT_THAT(error, HasSubstr(test.datatype)) << test.value;
  }
}

TEST(OipDecodeTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(DecodeError(Input("FP8", "[1]", "[1]")), HasSubstr("'FP8' is not one of"));
  EXPECT_THAT(DecodeError(Input("fp32", "[1]", "[1]")), HasSubstr("'fp32' is not one of"));
  EXPECT_THAT(DecodeError(R"({"inputs":[],"outputs":[{"name":"y","parameters":)"
                          R"({"classification":-3}}]})"),
              HasSubstr("classification"));
  EXPECT_THAT(DecodeError(R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":)"
                          R"({"shared_memory_region":"r"}}]})"),
              HasSubstr("shared memory"));
}

TEST(OipDecodeTest, TheLargestClassesOfAnOutput) {
  const auto decoded = Decode(R"({"inputs":[],"outputs":[{"name":"a"},{"name":"b","parameters":)"
                              R"({"classification":3}},{"name":"c","parameters":)"
                              R"({"classification":99999999999}}]})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(decoded->request.outputs, ElementsAre("a", "b", "c"));
  EXPECT_THAT(decoded->request.classes,
              ElementsAre(Pair("b", 3), Pair("c", std::numeric_limits<int>::max())));
}

TEST(OipDecodeTest, NeutralParametersOfClientsPass) {
  const auto decoded =
      Decode(R"({"inputs":[],"parameters":{"sequence_id":0,"sequence_end":false,"priority":3,)"
             R"("timeout":1500,"binary_data_output":true,"mine":"x"},)"
             R"("outputs":[{"name":"a","parameters":{"binary_data":false,"classification":0}},)"
             R"({"name":"b"}]})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.timeout, std::chrono::microseconds(1500));
  EXPECT_TRUE(decoded->request.classes.empty());
  EXPECT_FALSE(decoded->format.Binary("a"));
  EXPECT_TRUE(decoded->format.Binary("b"));
}

TEST(OipDecodeTest, MalformedRequestsAreRefused) {
  const struct {
    const char* json;
    const char* error;
  } kCases[] = {
      {"{", "not valid JSON"},
      {"{\"inputs\":[]}x", "not valid JSON"},
      {"{\"inputs\":[nul]}", "not valid JSON"},
      {"{\"a\":\"\xff\"}", "not valid JSON"},
      {"[]", "not a JSON object"},
      {"7", "not a JSON object"},
      {"{}", "\"inputs\" is missing"},
      {R"({"inputs":{}})", "not an array; send [{"},
      {R"({"inputs":{"x":[1]}})", "or this object itself to …/generate"},
      {R"({"x":[1]})", "or plain JSON as here to …/generate"},
      {R"({"inputs":[3]})", "not an object"},
      {R"({"inputs":[{}]})", "\"name\" is missing"},
      {R"({"inputs":[{"name":3}]})", "not a string"},
      {R"({"inputs":[{"name":"x"}]})", "\"datatype\" is missing"},
      {R"({"inputs":[{"name":"x","datatype":"FP32"}]})", "\"shape\" is missing"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1]}]})", "neither \"data\" nor"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[-1],"data":[1]}]})", "dimension 0"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":["1"],"data":[1]}]})", "dimension 0"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":1}]})", "not an array"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[0],"data":[]},)"
       R"({"name":"x","datatype":"FP32","shape":[0],"data":[]}]})",
       "given twice"},
      {R"({"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]})", "output 'y' is given twice"},
      {R"({"inputs":[],"outputs":[{}]})", "\"name\" is missing"},
      {R"({"inputs":[],"outputs":3})", "not an array"},
      {R"({"inputs":[],"id":7})", "not a string"},
      {R"({"inputs":[],"parameters":[]})", "not an object"},
      {R"({"inputs":[],"parameters":{"timeout":-1}})", "\"timeout\""},
      {R"({"inputs":[],"parameters":{"binary_data_output":1}})", "not true or false"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(DecodeError(test.json), HasSubstr(test.error)) << test.json;
  }
}

TEST(OipDecodeTest, AFieldGivenTwiceIsRefusedByName) {
  const struct {
    const char* json;
    const char* error;
  } kCases[] = {
      {R"({"inputs":[],"inputs":[]})", "\"inputs\" is given twice"},
      {R"({"inputs":[],"outputs":[],"outputs":[]})", "\"outputs\" is given twice"},
      {R"({"inputs":[],"id":"a","id":"b"})", "\"id\" is given twice"},
      {R"({"inputs":[],"parameters":{"timeout":1,"timeout":2}})",
       "\"timeout\" is given twice in parameters"},
      {R"({"inputs":[],"parameters":{"binary_data_output":true,"binary_data_output":true}})",
       "\"binary_data_output\" is given twice in parameters"},
      {R"({"inputs":[{"name":"x","shape":[1],"shape":[2]}]})",
       "\"shape\" is given twice in inputs[0]"},
      {R"({"inputs":[{"parameters":{"binary_data_size":1,"binary_data_size":2}}]})",
       "\"binary_data_size\" is given twice in inputs[0].parameters"},
      {R"({"inputs":[],"outputs":[{"name":"y","name":"z"}]})",
       "\"name\" is given twice in outputs[0]"},
      {R"({"inputs":[],"outputs":[{"parameters":{"binary_data":true,"binary_data":false}}]})",
       "\"binary_data\" is given twice in outputs[0].parameters"},
      {R"({"inputs":[],"mine":1,"mine":2})", "\"mine\" is given twice"},
      {R"({"inputs":[],"mine":[1,[{"a":{}},{"a":{"b":1,"b":1}}]]})",
       "\"b\" is given twice in mine[1][1].a"},
      {R"({"inputs":[],"id":"{{","mine":{"a":"}}"},"b":[[1],[2,{"c":1,"c":2}]]})",
       "\"c\" is given twice in b[1][1]"},
  };
  for (const auto& test : kCases) EXPECT_EQ(DecodeError(test.json), test.error) << test.json;
  // Also of an object of many fields.
  std::string json = R"({"inputs":[])";
  for (int i = 0; i < 1000; ++i) json += fmt::format(R"(,"f{}":0)", i);
  EXPECT_TRUE(Decode(json + "}").ok());
  EXPECT_EQ(DecodeError(json + R"(,"f\u0031":0})"), "\"f1\" is given twice");
}

TEST(OipDecodeTest, ZerosKeepTheirSign) {
  const auto signs = [](const auto& values) {
    std::vector<bool> negative;
    for (const auto value : values) negative.push_back(std::signbit(static_cast<float>(value)));
    return negative;
  };
  constexpr char kZeros[] = "[-0,-0.0,-0e3,0,0.0,-0]";
  const auto expected = ElementsAre(true, true, true, false, false, true);
  EXPECT_THAT(signs(Values<float>(Decode(Input("FP32", "[6]", kZeros)))), expected);
  EXPECT_THAT(signs(Values<double>(Decode(Input("FP64", "[6]", kZeros)))), expected);
  EXPECT_THAT(signs(Values<Float16>(Decode(Input("FP16", "[6]", kZeros)))), expected);
  EXPECT_THAT(signs(Values<BFloat16>(Decode(Input("BF16", "[6]", kZeros)))), expected);
  for (const char* end : {" ", "\n", "\t", "\r", ""}) {
    EXPECT_THAT(signs(Values<float>(Decode(Input("FP32", "[1]", fmt::format("[-0{}]", end))))),
                ElementsAre(true));
  }
  EXPECT_THAT(Values<int32_t>(Decode(Input("INT32", "[2]", "[-0,-1]"))), ElementsAre(0, -1));
  // Not in texts.
  const auto decoded = Decode(R"({"id":"-0,\"-0]","inputs":[]})");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->request.id, "-0,\"-0]");
}

TEST(OipDecodeTest, MinusZeroIsFoundAtEveryPlace) {
  for (size_t spaces = 0; spaces < 80; ++spaces) {
    const auto read =
        Values<float>(Decode(Input("FP32", "[1]", "[" + std::string(spaces, ' ') + "-0]")));
    ASSERT_EQ(read.size(), 1u);
    EXPECT_TRUE(std::signbit(read[0])) << spaces;
  }
}

TEST(OipDecodeTest, IntegersOfAnyLengthAreNumbers) {
  EXPECT_THAT(Values<double>(Decode(Input("FP64", "[3]",
                                          "[100000000000000000000,-1e3,"
                                          "-9300000000000000000]"))),
              ElementsAre(1e20, -1000, -9.3e18));
  EXPECT_THAT(DecodeError(Input("INT64", "[1]", "[100000000000000000000]")),
              HasSubstr("not a value of INT64"));
}

TEST(OipDecodeTest, AByteOrderMarkIsNoError) {
  EXPECT_TRUE(Decode("\xef\xbb\xbf{\"inputs\":[]}").ok());
}

TEST(OipDecodeTest, WhatIsNotJsonSaysWhatToSend) {
  for (const char* word : {"NaN", "-Infinity", "Infinity", "nan", "inf"}) {
    for (const char* data : {"[{}]", "[1,-2,{}]", "[[0],[{}]]"}) {
      const std::string json = Input("FP32", "[1]", fmt::format(fmt::runtime(data), word));
      EXPECT_EQ(DecodeError(json),
                fmt::format("the request is not valid JSON at byte {}: JSON has no {}; a tensor "
                            "that holds it is sent as binary data (docs/reference/http.md)",
                            json.find(word), word));
    }
  }
  EXPECT_THAT(DecodeError(R"({"inputs":[],"parameters":{"NaN":"NaN","a":{"b":[NaN]}}})"),
              HasSubstr("at byte 49: JSON has no NaN"));
  std::string late = "[" + std::string(1 << 20, ' ') + "NaN]";
  EXPECT_THAT(DecodeError(Input("FP32", "[1]", late)), HasSubstr("JSON has no NaN"));
  EXPECT_THAT(DecodeError("{'inputs':[]}"), HasSubstr("strings stand in double quotes"));
  EXPECT_THAT(DecodeError(R"({"a":True})"), HasSubstr("'True' is neither"));
  EXPECT_THAT(DecodeError(" \n"), HasSubstr("has no body"));
  EXPECT_THAT(DecodeError("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\x1"),
              HasSubstr("it is a multipart form; send a JSON object, or the bytes"));
  EXPECT_THAT(DecodeError("text=a+b&top_k=3"), HasSubstr("it is a form, name=value"));
  EXPECT_THAT(DecodeError("\x89PNG\r\n\x1a\n"), HasSubstr("Inference-Header-Content-Length: 0"));
  EXPECT_THAT(DecodeError("\x1f\x8b\b"), HasSubstr("Content-Encoding: gzip"));
}

TEST(OipDecodeTest, ExcerptsEndWithACharacter) {
  std::string umlauts;
  for (int i = 0; i < 40; ++i) umlauts += "ä";
  for (const char* before : {"", "a"}) {
    const std::string error =
        DecodeError(Input("FP32", "[1]", fmt::format("[\"{}{}\"]", before, umlauts)));
    std::string json;
    AppendJsonString(error, &json);
    EXPECT_THAT(json, HasSubstr("ä...")) << error;
    EXPECT_THAT(json, ::testing::Not(HasSubstr("?")));
  }
}

TEST(OipDecodeTest, JsonThatIsNoneSaysWhere) {
  EXPECT_THAT(DecodeError("{"), HasSubstr("JSON at byte 1: it ends too early"));
  EXPECT_THAT(DecodeError("{\"inputs\":[]}x"), HasSubstr("JSON at byte 13:"));
  EXPECT_THAT(DecodeError("{\"inputs\":[nul]}"), HasSubstr("JSON at byte 11:"));
  EXPECT_THAT(DecodeError("{\"a\":\"\xff\"}"), HasSubstr("JSON at byte 6:"));
  EXPECT_THAT(DecodeError("{\"a\":1e999}"), HasSubstr("JSON at byte 9:"));
  std::string late(1 << 20, ' ');
  late.append("{]");
  EXPECT_THAT(DecodeError(late), HasSubstr("JSON behind byte 1048576:"));
  EXPECT_THAT(DecodeError(Input("FP32", "[2,2]", "[[1,2],[3]]")), HasSubstr("at element 3"));
}

ModelMetadata OneInput(DType dtype, std::vector<int64_t> shape, bool batches) {
  ModelMetadata model;
  model.name = "m";
  model.inputs = {{"x", dtype, std::move(shape)}};
  model.batches = batches;
  return model;
}

TEST(OipDecodeTest, RawBytesFillTheOneDimensionThatVaries) {
  const std::string bytes(24, '\x01');
  const auto shape = [&](const ModelMetadata& model) {
    const auto decoded = DecodeRaw(bytes, model, {}, nullptr);
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return decoded.ok() ? decoded->request.inputs[0].tensor.shape().ToString() : "";
  };
  EXPECT_EQ(shape(OneInput(DType::kFloat, {6}, false)), "[6]");
  EXPECT_EQ(shape(OneInput(DType::kFloat, {-1, 3}, false)), "[2,3]");
  EXPECT_EQ(shape(OneInput(DType::kInt8, {-1, 2, -1, 3}, true)), "[1,2,4,3]");
  EXPECT_EQ(shape(OneInput(DType::kBool, {-1, 24}, true)), "[1,24]");
  EXPECT_TRUE(DecodeRaw(bytes, OneInput(DType::kFloat, {6}, false), {}, nullptr)
                  ->format.Binary("any output"));
}

TEST(OipDecodeTest, RawBytesThatFitNoShapeAreRefused) {
  ServerLimits limits;
  limits.max_tensor_elements = 10;
  const auto error = [&](const ModelMetadata& model, size_t bytes, char value = 0) {
    const auto decoded = DecodeRaw(std::string(bytes, value), model, limits, nullptr);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(decoded.status());
  };
  EXPECT_THAT(error(OneInput(DType::kFloat, {-1, -1}, false), 8),
              HasSubstr("input 'x': more than one dimension of its shape [-1,-1] varies"));
  EXPECT_THAT(error(OneInput(DType::kFloat, {-1, 3}, false), 13), HasSubstr("13 bytes"));
  EXPECT_THAT(error(OneInput(DType::kFloat, {-1, 0}, false), 4), HasSubstr("4 bytes"));
  EXPECT_THAT(error(OneInput(DType::kFloat, {3}, false), 24), HasSubstr("shape [3]"));
  EXPECT_THAT(error(OneInput(DType::kInt8, {-1}, false), 11), HasSubstr("the limit is 10"));
  EXPECT_THAT(error(OneInput(DType::kBool, {-1}, false), 1, 2), HasSubstr("BOOL takes 0 or 1"));
  EXPECT_NE(error(OneInput(DType::kInt64, {int64_t{1} << 40, int64_t{1} << 40}, false), 8), "");
  ModelMetadata two = OneInput(DType::kFloat, {1}, false);
  two.inputs.push_back({"z", DType::kFloat, {1}});
  EXPECT_THAT(error(two, 8), HasSubstr("model 'm' has 2"));
}

TEST(OipDecodeTest, EveryLimitHasItsError) {
  ServerLimits limits;
  limits.max_json_depth = 8;
  limits.max_tensors = 2;
  limits.max_rank = 3;
  limits.max_tensor_elements = 10;
  limits.max_name_bytes = 5;
  EXPECT_THAT(DecodeError(R"({"x":[[[[[[[[[]]]]]]]]]})", {}, limits), HasSubstr("deeper than"));
  EXPECT_THAT(DecodeError(R"({"inputs":[{"name":"toolong"}]})", {}, limits),
              HasSubstr("7 bytes long; the limit is 5"));
  EXPECT_THAT(DecodeError(R"({"inputs":[],"id":"toolong"})", {}, limits), HasSubstr("limit is 5"));
  EXPECT_THAT(DecodeError(Input("INT8", "[1,1,1,1]", "[1]"), {}, limits),
              HasSubstr("more than the 3 dimensions"));
  EXPECT_THAT(DecodeError(Input("INT8", "[11]", "[1,2,3,4,5,6,7,8,9,10,11]"), {}, limits),
              HasSubstr("11 elements; the limit is 10"));
  const std::string input = R"({"name":"%","datatype":"INT8","shape":[0],"data":[]})";
  std::string three = R"({"inputs":[)";
  for (const char* name : {"a", "b", "c"}) {
    three += std::string(input).replace(input.find('%'), 1, name) + (name[0] == 'c' ? "]}" : ",");
  }
  EXPECT_THAT(DecodeError(three, {}, limits), HasSubstr("more than the 2 inputs"));
  EXPECT_THAT(DecodeError(R"({"inputs":[],"outputs":[{"name":"a"},{"name":"b"},{"name":"c"}]})", {},
                          limits),
              HasSubstr("more than the 2 outputs"));
}

TEST(OipDecodeTest, HugeShapesAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_THAT(DecodeError(Input("FP64", "[9223372036854775807,9223372036854775807]", "[1]")),
              HasSubstr("larger than the limit"));
  EXPECT_THAT(DecodeError(Input("FP32", "[100000000]", "[1]")),
              HasSubstr("has 1 element, but shape"));
  EXPECT_THAT(DecodeError(R"({"inputs":[{"name":"x","datatype":"INT8","shape":[200000000],)"
                          R"("parameters":{"binary_data_size":200000000}}]})",
                          "abc"),
              HasSubstr("only 3 bytes follow"));
}

std::string BinaryInput(std::string_view name, std::string_view datatype, std::string_view shape,
                        size_t bytes) {
  return fmt::format(
      R"({{"name":"{}","datatype":"{}","shape":{},"parameters":{{"binary_data_size":{}}}}})", name,
      datatype, shape, bytes);
}

TEST(OipDecodeTest, BinaryTensorsFollowInOrderOfTheInputs) {
  const std::string json = R"({"inputs":[)" + BinaryInput("a", "INT16", "[2]", 4) + "," +
                           R"({"name":"b","datatype":"INT8","shape":[1],"data":[9]},)" +
                           BinaryInput("c", "UINT8", "[3]", 3) + "]}";
  const auto decoded = Decode(json, std::string_view("\x01\x00\xff\xff\x07\x08\x09", 7));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_THAT(decoded->request.inputs[0].tensor.values<int16_t>(), ElementsAre(1, -1));
  EXPECT_THAT(decoded->request.inputs[1].tensor.values<int8_t>(), ElementsAre(9));
  EXPECT_THAT(decoded->request.inputs[2].tensor.values<uint8_t>(), ElementsAre(7, 8, 9));
}

TEST(OipDecodeTest, BinarySizesMustAgree) {
  const auto one = [](std::string_view datatype, std::string_view shape, size_t bytes) {
    return R"({"inputs":[)" + BinaryInput("x", datatype, shape, bytes) + "]}";
  };
  EXPECT_THAT(DecodeError(one("FP32", "[2]", 4), "1234"), HasSubstr("of shape [2] takes 8"));
  EXPECT_THAT(DecodeError(one("FP32", "[2]", 8), "1234"), HasSubstr("only 4 bytes follow"));
  EXPECT_THAT(DecodeError(one("FP32", "[1]", 4), "12345"),
              HasSubstr("leave the other 1 bytes out"));
  EXPECT_THAT(DecodeError(one("BOOL", "[1]", 1), "\x02"), HasSubstr("BOOL takes 0 or 1"));
  EXPECT_THAT(DecodeError(R"({"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1],)"
                          R"("parameters":{"binary_data_size":1}}]})",
                          "1"),
              HasSubstr("both"));
  InferDecoder decoder{ServerLimits()};
  const std::string body(200, ' ');
  EXPECT_FALSE(decoder.Decode(body.substr(0, 3), 4, nullptr).ok());
  EXPECT_FALSE(decoder.Decode(body.substr(0, 3), 0, nullptr).ok());
}

TEST(OipDecodeTest, LargeAlignedTensorsBorrowTheBody) {
  constexpr size_t kBytes = 8192;
  std::string json = R"({"inputs":[)" + BinaryInput("x", "UINT8", "[8192]", kBytes) + "]}";
  json.resize((json.size() + 63) / 64 * 64, ' ');
  const std::shared_ptr<char> body(static_cast<char*>(::operator new (
                                       json.size() + kBytes + kBodyPadding, std::align_val_t{64})),
                                   [](char* p) { ::operator delete (p, std::align_val_t{64}); });
  std::memcpy(body.get(), json.data(), json.size());
  std::memset(body.get() + json.size(), 5, kBytes);
  InferDecoder decoder{ServerLimits()};
  const std::string_view view(body.get(), json.size() + kBytes);
  const auto borrowed = decoder.Decode(view, json.size(), body);
  ASSERT_TRUE(borrowed.ok()) << borrowed.status();
  EXPECT_EQ(borrowed->request.inputs[0].tensor.raw(), body.get() + json.size());
  EXPECT_EQ(body.use_count(), 2);
  const auto copied = decoder.Decode(view, json.size(), nullptr);
  ASSERT_TRUE(copied.ok());
  EXPECT_NE(copied->request.inputs[0].tensor.raw(), body.get() + json.size());
  EXPECT_EQ(copied->request.inputs[0].tensor.values<uint8_t>()[kBytes - 1], 5);
}

InferResponse Response(std::vector<NamedTensor> outputs) {
  InferResponse response;
  response.model = "m\"1";
  response.version = "3";
  response.outputs = std::move(outputs);
  return response;
}

TEST(OipEncodeTest, JsonAndBinaryOutputsAreWrittenAsAsked) {
  InferResponse response = Response({{"a", Tensor::Of<float>({1, 2}, {0.1f, -2.0f})},
                                     {"b", Tensor::Of<int64_t>({2}, {1, 2})},
                                     {"c", Tensor::Of<bool>({2}, {true, false})}});
  response.id = "7";
  OutputFormat format;
  format.binary = {{"b", true}};
  std::string json;
  std::vector<int> binary;
  ASSERT_TRUE(EncodeInfer(response, format, &json, &binary).ok());
  EXPECT_EQ(json,
            R"({"id":"7","model_name":"m\"1","model_version":"3","outputs":[)"
            R"({"name":"a","datatype":"FP32","shape":[1,2],"data":[0.1,-2]},)"
            R"({"name":"b","datatype":"INT64","shape":[2],"parameters":{"binary_data_size":16}},)"
            R"({"name":"c","datatype":"BOOL","shape":[2],"data":[true,false]}]})");
  EXPECT_THAT(binary, ElementsAre(1));
  EXPECT_EQ(JsonElements(response, format), 4);
}

TEST(OipEncodeTest, EveryTypeIsWrittenToItsLimits) {
  const auto data = [](const Tensor& tensor) {
    std::string json;
    std::vector<int> binary;
    EXPECT_TRUE(EncodeInfer(Response({{"a", tensor}}), {}, &json, &binary).ok());
    const size_t begin = json.find("\"data\":[") + 8;
    return json.substr(begin, json.rfind("]}]}") - begin);
  };
  EXPECT_EQ(data(Tensor::Of<int8_t>({2}, {-128, 127})), "-128,127");
  EXPECT_EQ(data(Tensor::Of<uint8_t>({2}, {0, 255})), "0,255");
  EXPECT_EQ(data(Tensor::Of<int64_t>({1}, {std::numeric_limits<int64_t>::min()})),
            "-9223372036854775808");
  EXPECT_EQ(data(Tensor::Of<uint64_t>({1}, {std::numeric_limits<uint64_t>::max()})),
            "18446744073709551615");
  EXPECT_EQ(data(Tensor::Of<float>({4}, {-0.0f, 1e20f, 1e-45f, 3.4028235e38f})),
            "-0.0,1e+20,1e-45,3.4028235e+38");
  EXPECT_EQ(data(Tensor::Of<double>({2}, {0.1, -2.2250738585072014e-308})),
            "0.1,-2.2250738585072014e-308");
  EXPECT_EQ(data(Tensor::Of<Float16>({1}, {Float16(0.1f)})), "0.099975586");
  EXPECT_EQ(data(Tensor::Of<float>({0}, {})), "");
  EXPECT_EQ(data(Tensor::Of<float>({2}, {-0.0f, 0.0f})), "-0.0,0");
  EXPECT_EQ(data(Tensor::Of<double>({1}, {-0.0})), "-0.0");
  EXPECT_EQ(data(Tensor::Of<Float16>({1}, {Float16(-0.0f)})), "-0.0");
  EXPECT_EQ(data(Tensor::Of<BFloat16>({1}, {BFloat16(-0.0f)})), "-0.0");
}

TEST(OipEncodeTest, TextsAreWritten) {
  const Tensor texts = TextTensor({2}, {"a\"", "bc"});
  std::string json;
  std::vector<int> binary;
  ASSERT_TRUE(EncodeInfer(Response({{"t", texts}}), {}, &json, &binary).ok());
  EXPECT_THAT(json, HasSubstr(R"("datatype":"BYTES","shape":[2],"data":["a\"","bc"])"));
  OutputFormat format;
  format.binary_by_default = true;
  json.clear();
  ASSERT_TRUE(EncodeInfer(Response({{"t", texts}}), format, &json, &binary).ok());
  EXPECT_THAT(json, HasSubstr(R"("binary_data_size":12)"));
  const Tensor bytes = protocol::BytesFromTexts(texts);
  EXPECT_EQ(std::string_view(static_cast<const char*>(bytes.raw()), bytes.byte_size()),
            std::string_view("\2\0\0\0a\"\2\0\0\0bc", 12));
}

TEST(OipEncodeTest, ValuesWithoutJsonAskForBinary) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const InferResponse response = Response({{"a", Tensor::Of<float>({2}, {0, bad})}});
    std::string json;
    std::vector<int> binary;
    const Status status = EncodeInfer(response, {}, &json, &binary);
    EXPECT_THAT(Message(status), HasSubstr("'a' is NaN or infinite at element 1"));
    EXPECT_THAT(Message(status), HasSubstr("binary_data"));
    OutputFormat format;
    format.binary_by_default = true;
    EXPECT_TRUE(EncodeInfer(response, format, &json, &binary).ok());
  }
}

TEST(OipCodecTest, RandomFloatsSurviveTheRoundTripBitForBit) {
  std::mt19937 random(7);
  std::vector<float> values(3000);
  for (float& value : values) {
    do {
      const auto bits = static_cast<uint32_t>(random());
      std::memcpy(&value, &bits, sizeof(value));
    } while (!std::isfinite(value));
  }
  const Tensor tensor = Tensor::Of<float>({3000}, std::span<const float>(values));
  std::string json;
  std::vector<int> binary;
  ASSERT_TRUE(EncodeInfer(Response({{"x", tensor}}), {}, &json, &binary).ok());
  const size_t data = json.find("\"data\":") + 7;
  const auto decoded = Decode(Input("FP32", "[3000]", json.substr(data, json.rfind("}]}") - data)));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(std::memcmp(decoded->request.inputs[0].tensor.raw(), tensor.raw(), tensor.byte_size()),
            0);
}

TEST(JsonWriterTest, StringsAreEscapedAndMadeUtf8) {
  const auto quoted = [](std::string_view text) {
    std::string out;
    AppendJsonString(text, &out);
    return out;
  };
  EXPECT_EQ(quoted("plain"), "\"plain\"");
  EXPECT_EQ(quoted(""), "\"\"");
  EXPECT_EQ(quoted("a\"b\\c\nd\x01"), R"("a\"b\\c\nd\u0001")");
  EXPECT_EQ(quoted("é"), "\"é\"");
  EXPECT_EQ(quoted("a\xff"
                   "b"),
            "\"a?b\"");
  // One byte that is wrong leaves the others as they are.
  EXPECT_EQ(quoted("€\xff\xe2\x82é\xf0\x9f\x8e\x88\xc3"), "\"€???é🎈?\"");
}

TEST(JsonWriterTest, WhatEndsALineSomewhereIsEscaped) {
  std::string out;
  AppendJsonString(
      "a\xC2\x85"
      "b\xE2\x80\xA8\xE2\x80\xA9\v\f\x1c\xE2\x80\xA7\xC2\x86",
      &out);
  EXPECT_EQ(out, "\"a\\u0085b\\u2028\\u2029\\u000b\\u000c\\u001c\xE2\x80\xA7\xC2\x86\"");
}

}  // namespace oip_codec_test
}  // namespace chairlift::http
