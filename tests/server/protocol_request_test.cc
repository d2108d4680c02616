// What every wire's requests may say, without a wire; and the protocol's view of models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/status.h"
#include "chairlift/text.h"
#include "server/protocol/absent_extensions.h"
#include "server/protocol/errors.h"
#include "server/protocol/metadata.h"
#include "server/protocol/request.h"
#include "tensor/datatype.h"

namespace chairlift::protocol {
namespace {

using ::testing::HasSubstr;
using std::string_view_literals::operator""sv;

std::string Refusal(const Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return Message(status);
}

TEST(DatatypeTest, NamesGoBothWays) {
  for (int i = 1; i <= static_cast<int>(DType::kBytes); ++i) {
    const auto datatype = static_cast<DType>(i);
    EXPECT_EQ(DatatypeFromName(DatatypeName(datatype)), datatype);
  }
  EXPECT_EQ(DatatypeName(DType::kBFloat16), "BF16");
  for (const char* name : {"", "fp32", "STRING", "FP"}) {
    EXPECT_EQ(DatatypeFromName(name), DType::kUndefined) << name;
  }
}

TEST(ProtocolParameterTest, NumbersOfAnyKindAreWholeWhereTheyAre) {
  for (const Parameter& value : {Parameter(int64_t{5}), Parameter(uint64_t{5}), Parameter(5.0)}) {
    EXPECT_EQ(*Unsigned(value, "n"), 5);
    EXPECT_TRUE(Same(value, Parameter(5.0)));
  }
  EXPECT_EQ(Refusal(Unsigned(Parameter(int64_t{-1}), "n").status()),
            "\"n\" is -1, not a whole number of 0 or more");
  EXPECT_THAT(Refusal(Unsigned(Parameter(1e300), "n").status()), HasSubstr("1e+300"));
  EXPECT_THAT(Refusal(Unsigned(Parameter(0.5), "n").status()), HasSubstr("0.5"));
  EXPECT_THAT(Refusal(Unsigned(Parameter("5"sv), "n").status()), HasSubstr("\"5\""));
  EXPECT_THAT(Refusal(Boolean(Parameter(OtherValue{"null"}), "b").status()), HasSubstr("null"));
  EXPECT_FALSE(Same(Parameter("5"sv), Parameter(5.0)));
  EXPECT_FALSE(Same(Parameter(OtherValue{"null"}), Parameter(OtherValue{"null"})));
}

TEST(ProtocolParameterTest, KnownOnesAreSetAndOthersIgnored) {
  InferRequest request;
  EXPECT_TRUE(*SetParameter("timeout", Parameter(uint64_t{250}), &request));
  EXPECT_TRUE(*SetParameter("sequence_id", Parameter("a"sv), &request));
  EXPECT_TRUE(*SetParameter("sequence_start", Parameter(true), &request));
  EXPECT_FALSE(*SetParameter("priority", Parameter(OtherValue{"an array"}), &request));
  EXPECT_EQ(request.timeout, std::chrono::microseconds(250));
  EXPECT_EQ(request.sequence, "a");
  EXPECT_TRUE(request.sequence_start);
  EXPECT_TRUE(CheckParameters(request).ok());
  request.sequence.clear();
  EXPECT_THAT(Refusal(CheckParameters(request)), HasSubstr("need a \"sequence_id\""));
  for (const Parameter& none : {Parameter(int64_t{0}), Parameter(""sv)}) {
    EXPECT_TRUE(*SetParameter("sequence_id", none, &request));
    EXPECT_THAT(Refusal(CheckParameters(request)), HasSubstr("a whole number above 0"));
  }
  EXPECT_THAT(
      Refusal(SetParameter("sequence_id", Parameter(int64_t{-1}), &request).status()),
      HasSubstr("is -1; it must be a whole number of 0 (no sequence) or more, or a string"));
}

TEST(ProtocolParameterTest, ASeedIsAnyWholeNumber) {
  const auto seed = [](const Parameter& value) {
    InferRequest request;
    EXPECT_TRUE(*SetParameter("seed", value, &request));
    return request.seed.value();
  };
  EXPECT_EQ(seed(Parameter(int64_t{-3})), -3);
  EXPECT_EQ(seed(Parameter(uint64_t{7})), 7);
  EXPECT_EQ(seed(Parameter(-2.0)), -2);
  EXPECT_EQ(seed(Parameter(~uint64_t{0})), -1);
  InferRequest request;
  for (const Parameter& wrong : {Parameter(0.5), Parameter("5"sv), Parameter(true)}) {
    EXPECT_THAT(Refusal(SetParameter("seed", wrong, &request).status()),
                HasSubstr("not a whole number"));
  }
}

TEST(ProtocolInputTest, WhatDoesNotFitIsNamed) {
  const Limits limits = {.max_tensors = 1, .max_rank = 2, .max_tensor_elements = 4};
  InferRequest request;
  EXPECT_EQ(*CheckInput({"x", DType::kFloat, Shape{2, 2}}, request, limits), 4);
  EXPECT_EQ(Refusal(CheckInput({{}, DType::kFloat, Shape{1}}, request, limits).status()),
            "input 0: \"name\" is missing");
  EXPECT_EQ(Refusal(CheckInput({"x", DType::kFloat, {}}, request, limits).status()),
            "input 'x': \"shape\" is missing");
  EXPECT_EQ(Refusal(CheckInput({"x", DType::kFloat, Shape{5}}, request, limits).status()),
            "input 'x': shape [5] has 5 elements; the limit is 4");
  request.inputs.push_back({"x", Tensor::Allocate(DType::kFloat, Shape{1})});
  EXPECT_THAT(Refusal(CheckInput({"y", DType::kFloat, Shape{1}}, request, limits).status()),
              HasSubstr("more than the 1 inputs"));
  Shape shape;
  EXPECT_TRUE(AppendDimension(3, limits, &shape).ok());
  EXPECT_THAT(Refusal(AppendDimension(-1, limits, &shape)), HasSubstr("dimension 1"));
  EXPECT_TRUE(AppendDimension(0, limits, &shape).ok());
  EXPECT_THAT(Refusal(AppendDimension(1, limits, &shape)), HasSubstr("2 dimensions"));
}

TEST(ProtocolInputTest, BytesMakeATensorOrAreRefused) {
  const std::string bytes("\x01\x00\x02", 3);
  EXPECT_EQ(Refusal(TensorFromBytes(DType::kFloat, Shape{2}, bytes, nullptr).status()),
            "the binary data has 3 bytes; FP32 of shape [2] takes 8");
  EXPECT_THAT(Refusal(TensorFromBytes(DType::kBool, Shape{3}, bytes, nullptr).status()),
              HasSubstr("byte 2"));
  const auto tensor = TensorFromBytes(DType::kUInt8, Shape{3}, bytes, nullptr);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->data<uint8_t>()[2], 2);
}

TEST(ProtocolErrorTest, EveryStatusHasAKind) {
  EXPECT_EQ(KindOf(absl::UnimplementedError("")), ErrorKind::kInvalidRequest);
  EXPECT_EQ(KindOf(absl::PermissionDeniedError("")), ErrorKind::kForbidden);
  EXPECT_EQ(KindOf(absl::ResourceExhaustedError("")), ErrorKind::kBusy);
  EXPECT_EQ(KindOf(absl::DeadlineExceededError("")), ErrorKind::kTimeout);
  EXPECT_EQ(KindOf(absl::UnavailableError("")), ErrorKind::kNotReady);
  EXPECT_EQ(KindOf(absl::DataLossError("")), ErrorKind::kInternal);
}

TEST(ProtocolSettingsTest, WhatStaysAsItIsMayBeAskedFor) {
  EXPECT_TRUE(CheckTraceSetting("trace_level", Parameter("OFF"sv)).ok());
  EXPECT_THAT(Refusal(CheckTraceSetting("trace_level", Parameter("TENSORS"sv))),
              HasSubstr("\"trace_level\""));
  EXPECT_THAT(Refusal(CheckLogSetting("nothing", Parameter(true))), HasSubstr("\"nothing\""));
}

}  // namespace
}  // namespace chairlift::protocol
