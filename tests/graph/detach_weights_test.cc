#include "graph/onnx/detach_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "base/status.h"
#include "fuzz/import_both_ways.h"
#include "graph/model_builder.h"

namespace chairlift {
namespace {

using ::testing::HasSubstr;

// What is left of `bytes`, or "-" where they are to be parsed as they are.
std::string Rest(const std::string& bytes, int64_t min_bytes, DetachedWeights* weights) {
  const auto read = [&bytes](int64_t offset, int64_t count, void* destination) {
    EXPECT_LE(offset + count, std::ssize(bytes));
    std::memcpy(destination, bytes.data() + offset, static_cast<size_t>(count));
    return absl::OkStatus();
  };
  const auto rest = DetachWeights(std::ssize(bytes), min_bytes, read, weights);
  EXPECT_TRUE(rest.ok()) << rest.status();
  return rest->value_or("-");
}

std::string Random(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(bytes, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// A message or string as field `number`.
std::string Field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t left = bytes.size();
  for (; left >= 0x80; left >>= 7) out += static_cast<char>(left | 0x80);
  return out + static_cast<char>(left) + bytes;
}

// y = x + a + b, a of 1000 floats and b of one.
testing::ModelBuilder Sum() {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {1000}).Output("y", testing::kFloat);
  m.Tensor("a", testing::kFloat, {1000})->set_raw_data(Random(4000, 1));
  m.Tensor("b", testing::kFloat, {1})->set_raw_data(Random(4, 2));
  m.Node("Add", {"x", "a"}, {"s"});
  m.Node("Add", {"s", "b"}, {"y"});
  return m;
}

TEST(DetachWeightsTest, LargeWeightsStayInTheFileAndTheRestIsUnchanged) {
  const testing::ModelBuilder m = Sum();
  const std::string bytes = m.Bytes();
  DetachedWeights weights;
  onnx::ModelProto rest;
  ASSERT_TRUE(rest.ParseFromString(Rest(bytes, 100, &weights)));
  ASSERT_EQ(weights.ranges.size(), 1u);
  const DetachedWeights::Range range = weights.ranges.at(0);
  EXPECT_EQ(bytes.substr(range.offset, range.bytes), Random(4000, 1));
  EXPECT_FALSE(rest.graph().initializer(0).has_raw_data());
  rest.mutable_graph()->mutable_initializer(0)->set_raw_data(Random(4000, 1));
  EXPECT_EQ(rest.SerializeAsString(), bytes);

  EXPECT_EQ(Rest(bytes, 4001, &weights), bytes);
  EXPECT_TRUE(weights.ranges.empty());
}

TEST(DetachWeightsTest, LargerThanTheWindowOfTheWalk) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {1}).Output("y", testing::kFloat);
  for (int i = 0; i < 40; ++i) {
    m.Tensor(fmt::format("w{}", i), testing::kFloat, {5000})->set_raw_data(Random(20'000, i));
  }
  m.proto().set_doc_string(Random(300'000, 7));
  m.Node("Identity", {"x"}, {"y"});
  for (const int64_t min_bytes : {int64_t{1}, int64_t{20'000}, INT64_MAX}) {
    const std::string bytes = m.Bytes();
    const auto model =
        ImportOnnx(std::as_bytes(std::span(bytes)), {.detach_from_bytes = min_bytes});
    ASSERT_TRUE(model.ok()) << model.status();
    for (int i = 0; i < 40; ++i) {
      const Value* value = testing::FindValue(model->graph, fmt::format("w{}", i));
      ASSERT_NE(value, nullptr);
      EXPECT_EQ(std::memcmp(value->constant.raw(), Random(20'000, i).data(), 20'000), 0);
    }
  }
}

TEST(DetachWeightsTest, MessagesInPiecesMeanTheSame) {
  const std::string bytes = Sum().Bytes();
  testing::ModelBuilder second(17);
  second.model().clear_opset_import();
  second.Tensor("c", testing::kFloat, {500})->set_raw_data(Random(2000, 3));
  // The second message's graph adds to the first one's: its initialiser is the third.
  const std::string both = bytes + second.Bytes();
  EXPECT_TRUE(fuzz::ImportBothWays(std::as_bytes(std::span(both))).ok());
  DetachedWeights weights;
  Rest(both, 100, &weights);
  EXPECT_TRUE(weights.ranges.contains(2));

  // A tensor's raw data twice: the last counts, whichever of the two is large.
  const auto twice = [](const std::string& first, const std::string& last, int64_t elements) {
    onnx::TensorProto tensor, more;
    tensor.set_name("a");
    tensor.set_data_type(testing::kFloat);
    tensor.add_dims(elements);
    tensor.set_raw_data(first);
    more.set_raw_data(last);
    testing::ModelBuilder m(17);
    m.Input("x", testing::kFloat, {1}).Output("y", testing::kFloat);
    m.Node("Add", {"x", "a"}, {"y"});
    const std::string graph =
        m.proto().SerializeAsString() +
        Field(/*initializer*/ 5, tensor.SerializeAsString() + more.SerializeAsString());
    m.model().clear_graph();
    return m.Bytes() + Field(/*graph*/ 7, graph);
  };
  for (const std::string& out :
       {twice(Random(4000, 1), Random(4, 2), 1), twice(Random(4, 1), Random(4000, 2), 1000),
        twice(Random(4000, 1), Random(4000, 2), 1000)}) {
    EXPECT_TRUE(fuzz::ImportBothWays(std::as_bytes(std::span(out))).ok());
    for (const int64_t min_bytes : {1, 100, 100'000}) {
      const auto model =
          ImportOnnx(std::as_bytes(std::span(out)), {.detach_from_bytes = min_bytes});
      ASSERT_TRUE(model.ok()) << model.status();
      const Tensor& a = testing::FindValue(model->graph, "a")->constant;
      EXPECT_EQ(std::memcmp(a.raw(), Random(a.byte_size(), 2).data(), a.byte_size()), 0);
    }
  }
}

TEST(DetachWeightsTest, CutOrChangedFilesFareAsWhenParsedWhole) {
  const std::string bytes = Sum().Bytes();
  for (size_t size = 0; size < bytes.size(); size += size < 100 ? 1 : 37) {
    (void)fuzz::ImportBothWays(
        std::as_bytes(std::span(bytes.data(), size)));  // aborts on a difference
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = bytes;
    // The tags and lengths are at the front and the end.
    const size_t at = random() % 2 == 0 ? random() % 60 : changed.size() - 1 - random() % 80;
    changed[at] = static_cast<char>(random());
    (void)fuzz::ImportBothWays(std::as_bytes(std::span(changed)));
  }
}

TEST(DetachWeightsTest, AGroupIsLeftToProtobuf) {
  DetachedWeights weights;
  const std::string group = Sum().Bytes() + "\xa3\x06\xa4\x06";  // field 100, opened and closed
  EXPECT_EQ(Rest(group, 1, &weights), "-");
  EXPECT_TRUE(weights.ranges.empty());
  EXPECT_TRUE(fuzz::ImportBothWays(std::as_bytes(std::span(group))).ok());
}

TEST(DetachWeightsTest, AFileThatCannotBeReadIsAnError) {
  DetachedWeights weights;
  const auto fail = [](int64_t, int64_t, void*) -> Status { return Unavailable("gone"); };
  EXPECT_THAT(Message(DetachWeights(100, 1, fail, &weights).status()), HasSubstr("gone"));
}

TEST(DetachWeightsTest, AWeightOfTheWrongSizeIsRefused) {
  testing::ModelBuilder m = Sum();
  m.proto().mutable_initializer(0)->set_raw_data(Random(3000, 1));
  const std::string bytes = m.Bytes();
  EXPECT_THAT(Message(fuzz::ImportBothWays(std::as_bytes(std::span(bytes))).status()),
              HasSubstr("takes 4000 bytes, but the file holds 3000"));
}

}  // namespace
}  // namespace chairlift
