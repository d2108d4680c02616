// What profiles say that a node reads and writes.
#include "runtime/node_timer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "graph/graph_builder.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

using testing::GraphBuilder;

class Bytes final : public NodeTimer {
 public:
  void Report(const PlannedNode& planned, TimePoint /*start*/, TimePoint /*end*/) override {
    of_[planned.node.def->name] = planned.Bytes();
  }
  double of(const std::string& op) const { return of_.at(op); }

 private:
  std::map<std::string, double> of_;
};

Tensor Zeros(const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::fill_n(t.data<float>(), t.size(), 0.0f);
  return t;
}

double BytesOf(const std::string& op, const std::vector<Tensor>& inputs, Attributes attributes) {
  GraphBuilder builder;
  std::vector<ValueId> ids;
  for (const Tensor& input : inputs) {
    ids.push_back(builder.Input("x" + std::to_string(ids.size()), input.dtype(),
                                SymbolicShape(input.shape())));
  }
  builder.Output(builder.Op(op, ids, std::move(attributes), "chairlift"));
  auto executable = Executable::Create(std::move(builder).Build(), {});
  EXPECT_TRUE(executable.ok()) << executable.status();
  SoloTeam team;
  Arena arena;
  Bytes bytes;
  const auto ran = (*executable)->Run(inputs, team, 0, arena, nullptr, &bytes);
  EXPECT_TRUE(ran.ok()) << ran.status();
  return bytes.of(op);
}

TEST(NodeTimerTest, AttentionOverBlocksReadsTheBlocksTokensThatItsSequencesHave) {
  constexpr int64_t kHeads = 2, kColumns = 4, kBlocks = 1000, kBlock = 16;
  constexpr double kToken = 2 * kHeads * kColumns * sizeof(float);  // its key and its value
  const auto bytes = [&](int64_t first, int64_t second) {
    const Tensor rows = Zeros({3, kHeads, kColumns});
    const Tensor keys = Zeros({kBlocks, kHeads, kColumns, kBlock});
    const Tensor values = Zeros({kBlocks, kHeads, kBlock, kColumns});
    return BytesOf("PagedAttention",
                   {rows, rows, rows, Tensor::Of<int64_t>({3}, {0, 1, 3}),
                    Tensor::Of<int64_t>({2}, {first, second}),
                    Tensor::Of<int64_t>({2, 3}, {5, 6, 7, 8, 9, 10}), keys, values},
                   {});
  };
  const double little = bytes(0, 0);
  EXPECT_LT(little, 1000) << "both caches have " << kBlocks * kBlock * kToken;
  EXPECT_EQ(bytes(40, 21), little + 61 * kToken);
}

TEST(NodeTimerTest, AttentionOverSourcesReadsThose) {
  constexpr int64_t kHeads = 2, kColumns = 4, kBlocks = 1000, kBlock = 16;
  constexpr double kToken = 2 * kHeads * kColumns * sizeof(float);
  const auto bytes = [&](int64_t first, int64_t second) {
    const Tensor keys = Zeros({kBlocks, kHeads, kColumns, kBlock});
    const Tensor values = Zeros({kBlocks, kHeads, kBlock, kColumns});
    Attributes attributes;
    attributes.Set("value_size", kColumns);
    return BytesOf("SourceAttention",
                   {Zeros({3, kHeads, kColumns}), Tensor::Of<int64_t>({3}, {0, 1, 3}),
                    Tensor::Of<int64_t>({2}, {first, second}),
                    Tensor::Of<int64_t>({2, 3}, {5, 6, 7, 8, 9, 10}), keys, values},
                   std::move(attributes));
  };
  const double little = bytes(1, 1);
  EXPECT_LT(little, 1000);
  EXPECT_EQ(bytes(40, 21), little + 59 * kToken);
}

}  // namespace
}  // namespace chairlift
