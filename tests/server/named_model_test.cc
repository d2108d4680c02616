#include "server/http/named_model.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace chairlift::http {
namespace {

TEST(NamedModelTest, TheFieldOfTheOutermostObjectCounts) {
  EXPECT_EQ(NamedModel(R"({"model": "a", "input": "x"})"), "a");
  EXPECT_EQ(NamedModel("{\n\t\"input\" : [\"x\", \"y\"] ,\"model\"\r\n:\"b/c\"}"), "b/c");
  EXPECT_EQ(NamedModel(R"({"input": {"model": "no"}, "model": "yes"})"), "yes");
  EXPECT_EQ(NamedModel(R"({"input": "\"model\": \"no\"", "model": "yes"})"), "yes");
  EXPECT_EQ(NamedModel(R"({"input": ["model", "no"], "model": "yes"})"), "yes");
  EXPECT_EQ(NamedModel(R"({"input": "model", "model": "yes"})"), "yes");
  EXPECT_EQ(NamedModel(R"({"input": "\\", "model": "yes"})"), "yes");
}

TEST(NamedModelTest, WithoutAPlainNameThereIsNone) {
  for (const char* body : {"",
                           "{",
                           "{}",
                           "[]",
                           "\"model\"",
                           R"({"model)",
                           R"({"model")",
                           R"({"model":)",
                           R"({"model":")",
                           R"({"model":"a)",
                           R"({"model":"a\)",
                           R"({"model": 3})",
                           R"({"model": "a\u0062"})",
                           R"({"input": "x"})",
                           R"([{"model": "a"}])",
                           R"({"input": "x"} {"model": "a"})",
                           R"({"input": "x)",
                           "}",
                           "{]",
                           R"({"model" "a"})"}) {
    EXPECT_EQ(NamedModel(body), "") << body;
    EXPECT_EQ(NamedModelAtEnds(body), "") << body;
  }
}

TEST(NamedModelTest, OnlyTheEndsOfALargeBodyAreRead) {
  const std::string large(100'000, 'x');
  const auto body = [&](const std::string& first, const std::string& last) {
    return "{" + first + "\"input\": [\"" + large + "\"]" + last + "}";
  };
  EXPECT_EQ(NamedModelAtEnds(body(R"("model": "a", )", "")), "a");
  EXPECT_EQ(NamedModelAtEnds(body("", R"(, "model": "b")")), "b");
  EXPECT_EQ(NamedModelAtEnds(body("", R"(, "model": "b", "encoding_format": "float", "n": [{}])")),
            "b");
  EXPECT_EQ(NamedModelAtEnds(body("", R"(, "parameters": {"model": "b"})")), "");
  EXPECT_EQ(NamedModelAtEnds(body("", R"(, "user": "\"model\": \"b\"")")), "");
  const std::string middle = body("", ", \"model\": \"c\", \"user\": \"" + large + "\"");
  EXPECT_EQ(NamedModelAtEnds(middle), "");
  EXPECT_EQ(NamedModel(middle), "c");
}

// Nothing outside the body is read (AddressSanitizer says so), whatever it has.
TEST(NamedModelTest, AnyBytesAreTaken) {
  std::mt19937 random(1);
  const std::string pieces[] = {"{", "}", "[", "]", "\"", "\\", ":", ",", " ", "\"model\"", "a"};
  for (int i = 0; i < 20'000; ++i) {
    std::string body = random() % 2 == 0 ? "{" : "";
    if (random() % 8 == 0) body += "\"" + std::string(5000, 'x') + "\"";
    for (uint32_t n = random() % 24; n > 0; --n) body += pieces[random() % std::size(pieces)];
    const std::string copy(body.begin(), body.end());
    const std::string name(NamedModel(copy));
    EXPECT_TRUE(name.empty() || body.find('"' + name + '"') != std::string::npos) << body;
    const std::string at_ends(NamedModelAtEnds(copy));
    EXPECT_TRUE(at_ends.empty() || body.find('"' + at_ends + '"') != std::string::npos) << body;
  }
}

}  // namespace
}  // namespace chairlift::http
