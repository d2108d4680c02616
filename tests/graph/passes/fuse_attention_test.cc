// fuse_attention: what exporters write as attention, and what only looks like it.
#include <gtest/gtest.h>

#include <limits>

#include "graph/passes/pass_harness.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::Evaluate;
using testing::ExpectClose;
using testing::GraphBuilder;
using testing::PassResult;
using testing::RandomFloats;
using testing::RunPass;

constexpr int64_t kHeads = 3, kColumns = 4;
const Dim kBatch = Dim::Symbol("batch"), kLength = Dim::Symbol("length");

enum class Scale { kNone, kAfter, kBefore, kOnBoth, kOfValues };
enum class Masked {
  kNot,
  kAdd,
  kAddFirst,
  kFillTrue,
  kFillFalse,
  kFillThenAdd,
  kAddThenFill,
  kTwiceThenFill,
  kExpanded,
  kSlightly,
  kTwice
};
enum class Keys { kTransposedOnce, kTransposedTwice, kThroughRank3 };

struct Options {
  Scale scale = Scale::kAfter;
  Masked mask = Masked::kAdd;
  Keys keys = Keys::kTransposedOnce;
  bool guard = false;  // Where(IsNaN(weights), 0, weights)
  bool back = true;    // transposed back behind it
  bool weights_are_read = false;
  bool scores_are_read = false;
  float softcap = 0;
  bool scaled_behind_softcap = false;
  bool columns_last = true;  // else queries and values are made with columns before tokens
  int64_t axis = -1;
};

class AttentionGraph {
 public:
  explicit AttentionGraph(const Options& options) : o_(options) {}

  Graph Build() {
    const ValueId x =
        b_.Input("x", DType::kFloat, SymbolicShape({kBatch, kLength, Dim(kHeads * kColumns)}));
    seen_ = b_.Input("seen", DType::kFloat, SymbolicShape({kBatch, Dim(1), Dim(1), kLength}));
    const auto heads = [&](ValueId from) {
      return b_.Op("Reshape", {from, Integers({0, 0, kHeads, kColumns})});
    };
    const auto transpose = [&](ValueId from, std::vector<int64_t> perm) {
      return b_.Op("Transpose", {from}, Attrs({{"perm", std::move(perm)}}));
    };
    ValueId q = transpose(heads(x), {0, 2, 1, 3});
    ValueId v = transpose(heads(b_.Op("Exp", {x})), {0, 2, 1, 3});
    if (!o_.columns_last) {
      const auto behind = [&](ValueId from) {
        const ValueId flat =
            b_.Op("Reshape", {transpose(from, {0, 2, 1}), Integers({0, kHeads, kColumns, -1})});
        return transpose(flat, {0, 1, 3, 2});
      };
      q = behind(x);
      v = behind(b_.Op("Exp", {x}));
    }
    ValueId k = heads(b_.Op("Neg", {x}));
    if (o_.keys == Keys::kTransposedOnce) {
      k = transpose(k, {0, 2, 3, 1});
    } else if (o_.keys == Keys::kTransposedTwice) {
      k = transpose(transpose(k, {0, 2, 1, 3}), {0, 1, 3, 2});
    } else {
      k = transpose(k, {0, 2, 1, 3});
      const ValueId shape = b_.Op("Shape", {k});
      const auto part = [&](int64_t first, int64_t last) {
        return b_.Op("Slice", {shape, Integers({first}), Integers({last})});
      };
      const ValueId flat = b_.Op("Concat", {Integers({-1}), part(2, 3), part(3, 4)}, Axis(0));
      k = transpose(b_.Op("Reshape", {k, flat}), {0, 2, 1});
      k = b_.Op("Reshape", {k, b_.Op("Concat", {part(0, 2), part(3, 4), part(2, 3)}, Axis(0))});
    }
    if (o_.scale == Scale::kBefore) q = b_.Op("Div", {q, Number(2)});
    if (o_.scale == Scale::kOnBoth) q = b_.Op("Mul", {q, Number(0.7f)});
    if (o_.scale == Scale::kOnBoth) k = b_.Op("Mul", {Number(0.7f), k});
    if (o_.scale == Scale::kOfValues) v = b_.Op("Mul", {v, Number(0.7f)});
    ValueId scores = b_.Op("MatMul", {q, k});
    if (o_.scores_are_read) b_.Output(b_.Op("Abs", {scores}));
    if (o_.mask == Masked::kAddFirst) scores = b_.Op("Add", {scores, seen_});
    if (o_.scale == Scale::kAfter) scores = b_.Op("Div", {scores, Number(2)});
    if (o_.softcap > 0) {
      const ValueId limited = b_.Op("Tanh", {b_.Op("Div", {scores, Number(o_.softcap)})});
      scores = b_.Op("Mul", {limited, Number(o_.softcap)});
      if (o_.scaled_behind_softcap) scores = b_.Op("Mul", {scores, Number(2)});
    }
    scores = Mask(scores);
    ValueId weights = b_.Op("Softmax", {scores}, Axis(o_.axis));
    if (o_.weights_are_read) b_.Output(b_.Op("Abs", {weights}));
    if (o_.guard) weights = b_.Op("Where", {b_.Op("IsNaN", {weights}), Number(0), weights});
    ValueId y = b_.Op("MatMul", {weights, v});
    if (o_.back) y = transpose(y, {0, 2, 1, 3});
    b_.Output(y);
    return std::move(b_).Build();
  }

 private:
  ValueId Number(float v) { return b_.Constant(Tensor::Scalar(v)); }
  ValueId Integers(const std::vector<int64_t>& v) {
    Tensor t = Tensor::Allocate(DType::kInt64, Shape{static_cast<int64_t>(v.size())});
    std::copy(v.begin(), v.end(), t.data<int64_t>());
    return b_.Constant(t);
  }
  static Attributes Axis(int64_t axis) { return Attrs({{"axis", axis}}); }

  ValueId Mask(ValueId scores) {
    const float never = std::numeric_limits<float>::lowest();
    const ValueId hidden = b_.Op("Less", {seen_, Number(0)});
    switch (o_.mask) {
      case Masked::kNot:
      case Masked::kAddFirst:
        return scores;
      case Masked::kTwice:
        scores = b_.Op("Add", {scores, seen_});
        [[fallthrough]];
      case Masked::kAdd:
        return b_.Op("Add", {scores, seen_});
      case Masked::kFillTrue:
        return b_.Op("Where", {hidden, Number(never), scores});
      case Masked::kFillFalse:
        return b_.Op("Where", {b_.Op("Not", {hidden}), scores, Number(never)});
      case Masked::kFillThenAdd:
        return b_.Op("Add", {b_.Op("Where", {hidden, Number(never), scores}), seen_});
      case Masked::kTwiceThenFill:
        scores = b_.Op("Add", {scores, seen_});
        [[fallthrough]];
      case Masked::kAddThenFill:
        return b_.Op("Where", {hidden, Number(never), b_.Op("Add", {scores, seen_})});
      case Masked::kExpanded:
        return b_.Op("Where",
                     {b_.Op("Expand", {hidden, b_.Op("Shape", {scores})}), Number(never), scores});
      case Masked::kSlightly:
        return b_.Op("Where", {hidden, Number(-100), scores});
    }
    return scores;
  }

  const Options o_;
  GraphBuilder b_;
  ValueId seen_ = kNoValue;
};

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// Negative where a key is hidden. If asked for, all keys of the first sequence have `none`.
std::vector<Tensor> Inputs(bool none_seen, float none) {
  std::mt19937 random(4);
  Tensor seen = RandomFloats(random, Shape{2, 1, 1, 7});
  if (none_seen) {
    for (int i = 0; i < 7; ++i) {
      seen.data<float>()[i] = none;
    }
  }
  return {RandomFloats(random, Shape{2, 7, kHeads * kColumns}), seen};
}

void ExpectFused(const Options& options, bool none_seen = false, float none = -kInfinite) {
  const Graph graph = AttentionGraph(options).Build();
  PassResult r = RunPass("fuse_attention", graph);
  r.graph = RunPass("remove_dead_nodes", std::move(r.graph)).graph;
  EXPECT_EQ(r.rewrites, 1);
  const std::string operators = r.Operators();
  EXPECT_NE(operators.find("Attention"), std::string::npos) << operators;
  for (const char* gone : {"Softmax", "MatMul", "Transpose", "IsNaN", "Expand"}) {
    EXPECT_EQ(operators.find(gone), std::string::npos) << operators;
  }
  const std::vector<Tensor> inputs = Inputs(none_seen, none);
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs));
}

// Nothing is fused, and why is noted.
void ExpectLeft(const Options& options, const std::string& why) {
  const PassResult r = RunPass("fuse_attention", AttentionGraph(options).Build());
  EXPECT_EQ(r.rewrites, 0) << r.Operators();
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_NE(r.notes[0].find(why), std::string::npos) << r.notes[0];
}

TEST(FuseAttentionTest, WhereverTheScaleStands) {
  for (const Scale scale : {Scale::kNone, Scale::kAfter, Scale::kBefore, Scale::kOnBoth}) {
    SCOPED_TRACE(static_cast<int>(scale));
    ExpectFused({.scale = scale});
  }
}

TEST(FuseAttentionTest, WithASoftcapBeforeTheMask) {
  for (const Masked mask : {Masked::kNot, Masked::kAdd, Masked::kFillTrue}) {
    for (const Scale scale : {Scale::kNone, Scale::kAfter, Scale::kBefore}) {
      ExpectFused({.scale = scale, .mask = mask, .softcap = 0.8f});
    }
  }
  ExpectLeft({.softcap = 0.8f, .scaled_behind_softcap = true}, "no product of queries and keys");
  ExpectLeft({.mask = Masked::kAddFirst, .softcap = 0.8f}, "no product of queries and keys");
}

TEST(FuseAttentionTest, OperandsWhoseColumnsStandBeforeTokensAreTransposedFirst) {
  const Graph graph = AttentionGraph({.columns_last = false}).Build();
  const PassResult r = RunPass("fuse_attention", graph);
  EXPECT_EQ(r.rewrites, 1);
  const std::vector<Tensor> inputs = Inputs(false, -kInfinite);
  ExpectClose(Evaluate(graph, inputs), Evaluate(r.graph, inputs));
}

TEST(FuseAttentionTest, HoweverTheMaskIsWritten) {
  for (const Masked mask :
       {Masked::kNot, Masked::kAdd, Masked::kFillTrue, Masked::kFillFalse, Masked::kFillThenAdd,
        Masked::kAddThenFill, Masked::kExpanded, Masked::kTwice}) {
    SCOPED_TRACE(static_cast<int>(mask));
    ExpectFused({.mask = mask});
  }
  ExpectFused({.scale = Scale::kBefore, .mask = Masked::kAddFirst});
}

TEST(FuseAttentionTest, HoweverTheKeysAreTransposed) {
  for (const Keys keys : {Keys::kTransposedOnce, Keys::kTransposedTwice, Keys::kThroughRank3}) {
    SCOPED_TRACE(static_cast<int>(keys));
    ExpectFused({.scale = Scale::kOnBoth, .keys = keys});
  }
}

TEST(FuseAttentionTest, QueriesThatSeeNothingGetZerosWhereTheyDid) {
  ExpectFused({.guard = true}, false);
  ExpectFused({.guard = true}, true);
  ExpectFused({.guard = true}, true, kInfinite);  // scores that overflow
}

TEST(FuseAttentionTest, NotTransposedBack) { ExpectFused({.back = false}); }

TEST(FuseAttentionTest, WhatElseIsReadStays) {
  ExpectLeft({.weights_are_read = true}, "not one product with values alone reads its weights");
  ExpectLeft({.scores_are_read = true}, "no product of queries and keys, scaled and masked");
}

TEST(FuseAttentionTest, OtherArithmeticStays) {
  ExpectLeft({.axis = 2}, "it runs along axis 2");
  ExpectLeft({.mask = Masked::kSlightly}, "no product of queries and keys, scaled and masked");
  ExpectLeft({.mask = Masked::kTwiceThenFill}, "no product of queries and keys, scaled and masked");
  // Scaled after it was masked.
  ExpectLeft({.mask = Masked::kAddFirst}, "no product of queries and keys, scaled and masked");
  ExpectLeft({.scale = Scale::kOfValues}, "the values are scaled");
}

// ONNX's own Attention, of 3 heads of 4 columns that share one of keys.
Graph OnnxAttention(bool joined, bool causal, DType mask, const SymbolicShape& mask_shape) {
  GraphBuilder b;
  const auto operand = [&](const char* name, int64_t heads) {
    return b.Input(name, DType::kFloat,
                   joined ? SymbolicShape({kBatch, kLength, Dim(heads * kColumns)})
                          : SymbolicShape({kBatch, Dim(heads), kLength, Dim(kColumns)}));
  };
  std::vector<ValueId> inputs = {operand("q", kHeads), operand("k", 1), operand("v", 1)};
  if (mask != DType::kUndefined) inputs.push_back(b.Input("mask", mask, mask_shape));
  b.Output(b.Op("Attention", inputs,
                Attrs({{"q_num_heads", kHeads},
                       {"kv_num_heads", int64_t{1}},
                       {"is_causal", int64_t{causal}}})));
  return std::move(b).Build();
}

TEST(FuseAttentionTest, OnnxAttentionBecomesTheSame) {
  std::mt19937 random(4);
  const SymbolicShape mask_shape({kBatch, Dim(1), Dim(1), kLength});
  for (const bool joined : {false, true}) {
    for (const bool causal : {false, true}) {
      for (const DType mask : {DType::kUndefined, DType::kFloat, DType::kBool}) {
        const Graph graph = OnnxAttention(joined, causal, mask, mask_shape);
        const auto operand = [&](int64_t heads) {
          return RandomFloats(
              random, joined ? Shape{2, 5, heads * kColumns} : Shape{2, heads, 5, kColumns});
        };
        std::vector<Tensor> inputs = {operand(kHeads), operand(1), operand(1)};
        if (mask == DType::kFloat) inputs.push_back(RandomFloats(random, {2, 1, 1, 5}));
        if (mask == DType::kBool) {
          inputs.push_back(Tensor::Allocate(DType::kBool, {2, 1, 1, 5}));
          for (int i = 0; i < 10; ++i) inputs.back().data<bool>()[i] = i % 3 != 0 && i > 4;
        }
        const PassResult result = RunPass("fuse_attention", graph);
        EXPECT_EQ(result.rewrites, 1);
        EXPECT_EQ(result.Operators().find("Attention") == std::string::npos, false);
        ExpectClose(Evaluate(graph, inputs), Evaluate(result.graph, inputs));
      }
    }
  }
}

TEST(FuseAttentionTest, OnnxAttentionWhoseMaskMayBeShorterStays) {
  const PassResult result =
      RunPass("fuse_attention",
              OnnxAttention(true, false, DType::kFloat, SymbolicShape({Dim(1), Dim::Symbol("m")})));
  EXPECT_EQ(result.rewrites, 0);
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_NE(result.notes[0].find("its mask"), std::string::npos) << result.notes[0];
}

}  // namespace
}  // namespace chairlift
