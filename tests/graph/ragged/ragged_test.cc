// What may be packed and what may not, rule by rule, on small graphs.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "graph/graph_builder.h"
#include "graph/ragged/packed_requests.h"
#include "graph/ragged/small_model.h"

namespace chairlift {
namespace {

using testing::Attrs;
using testing::ExpectSameAnswers;
using testing::GraphBuilder;
using testing::Kept;
using testing::Request;

using testing::kBatch;
using testing::kLength;
using testing::kTable;
using testing::kWidth;
using testing::Model;
using testing::Requests;

using Build = std::function<ValueId(Model&)>;

StatusOr<RaggedModel> Pack(const Build& build, Graph& graph) {
  Model model;
  model.Output(build(model));
  graph = std::move(model).Build();
  const Status status = InferShapes(graph);
  EXPECT_TRUE(status.ok()) << status;
  return MakeRagged(graph);
}

// It is packed, and answers as before. Returns what it became.
RaggedModel Packs(const Build& build) {
  Graph graph;
  auto model = Pack(build, graph);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const std::vector<Request> requests = Requests(model->min_length);
  ExpectSameAnswers(graph, *model, requests);
  ExpectSameAnswers(graph, *model, requests, Kept::kAll, 4);
  if (model->rows_ignore_trailing) {
    ExpectSameAnswers(graph, *model, requests, Kept::kUpToLastCounted, 2);
  }
  if (model->rows_ignore_masked) ExpectSameAnswers(graph, *model, requests, Kept::kCounted, 2);
  return *std::move(model);
}

// It is not, and the message has `what` in it.
void Refuses(const std::string& what, const Build& build) {
  Graph graph;
  const auto model = Pack(build, graph);
  ASSERT_FALSE(model.ok()) << "should be refused for " << what;
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(Message(model.status()).find(what), std::string::npos) << model.status();
}

int Count(const RaggedModel& model, std::string_view op) {
  return static_cast<int>(std::count_if(model.graph.nodes.begin(), model.graph.nodes.end(),
                                        [&](const Node& node) { return node.def->name == op; }));
}

TEST(RaggedTest, ElementsOneByOne) {
  Packs([](Model& m) { return m.Op("Relu", {m.Op("Add", {m.x, m.Floats({kWidth})})}); });
  Packs([](Model& m) { return m.Op("Mul", {m.Floats({1, 1, 1}), m.x}); });
  Packs([](Model& m) { return m.Op("Add", {m.ids, m.mask}); });
  Packs([](Model& m) { return m.Op("Add", {m.r, m.Floats({kWidth})}); });
  Packs([](Model& m) {
    const ValueId counts = m.Op("Unsqueeze", {m.To(m.mask, 9), m.Ints({2})});
    return m.Op("Where", {counts, m.x, m.Number(3)});
  });
  Refuses("(Add)", [](Model& m) { return m.Op("Add", {m.x, m.Floats({5, kWidth})}); });
  Refuses("(Add)", [](Model& m) { return m.Op("Add", {m.x, m.Floats({2, 1, kWidth})}); });
  Refuses("(Add)", [](Model& m) { return m.Op("Add", {m.x, m.r}); });
  Refuses("(Mul)", [](Model& m) {
    return m.Op("Mul", {m.x, m.Transpose(m.Op("Unsqueeze", {m.x, m.Ints({0})}), {1, 0, 2, 3})});
  });
}

// ONNX Runtime's optimizer leaves the lookup of words behind for the sizes of a mask, beside one
// operator that looks them up again.
TEST(RaggedTest, ALookupMayBeReadForItsSizeAlone) {
  Packs([](Model& m) {
    const ValueId words = m.Op("Gather", {m.Floats({kTable, 2}), m.ids});
    const ValueId size = m.Op("Size", {m.Slice(m.Op("Shape", {words}), 2, m.Ints({3}), 0)});
    return m.Op("Mul", {m.x, m.To(size, 1)});
  });
}

// What is read for its size alone is not computed packed, so a request that only it refuses would
// be answered.
TEST(RaggedTest, WhatIsReadForItsSizeAloneMustNotRefuse) {
  const auto refuses = [](const Build& build) {
    Refuses("is read for its sizes alone", [&](Model& m) {
      const ValueId size = m.Op("Size", {m.Slice(m.Op("Shape", {build(m)}), 0, m.Ints({1}), 0)});
      return m.Op("Mul", {m.x, m.To(size, 1)});
    });
  };
  refuses([](Model& m) {  // lengths other than 3 and 1 do not broadcast
    const ValueId places = m.Op("Range", {m.Int(0), m.Scalar(m.SizeOf(m.x, 1)), m.Int(3)});
    return m.Op("Add", {places, m.Ints({1, 2, 3})});
  });
  refuses([](Model& m) { return m.Along2("GatherElements", m.x, m.To(m.x, 7), 2); });
  refuses([](Model& m) {
    return m.Op("GatherND", {m.Floats({kTable, 2}), m.Op("Unsqueeze", {m.ids, m.Ints({2})})});
  });
  refuses([](Model& m) { return m.Op("Expand", {m.x, m.Ints({1, 3, 1})}); });
  refuses([](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, 3, 6})}); });
  refuses([](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, 0, 4})}); });
  refuses([](Model& m) { return m.Op("Squeeze", {m.x, m.Ints({1})}); });
  refuses([](Model& m) {
    return m.Op("Concat", {m.x, m.Op("Unsqueeze", {m.r, m.Ints({1})})},
                Attrs({{"axis", int64_t{2}}}));
  });
  refuses([](Model& m) { return m.Op("MatMul", {m.x, m.Op("Unsqueeze", {m.r, m.Ints({0})})}); });
  refuses([](Model& m) {
    return m.Op("Split", {m.x, m.Ints({2, 4})}, Attrs({{"axis", int64_t{1}}}));
  });
  refuses([](Model& m) {
    return m.Op("SpaceToDepth", {m.Op("Unsqueeze", {m.x, m.Ints({1})})},
                Attrs({{"blocksize", int64_t{2}}}));
  });
  refuses([](Model& m) {
    return m.Op("ScatterElements", {m.x, m.To(m.x, 7), m.x}, Attrs({{"axis", int64_t{1}}}));
  });
  refuses([](Model& m) {
    return m.Op("TopK", {m.x, m.SizeOf(m.ids, 1)}, Attrs({{"axis", int64_t{2}}}));
  });
  refuses([](Model& m) { return m.Op("OneHot", {m.ids, m.SizeOf(m.ids, 1), m.Floats({2})}); });
}

// The same values, if they are read for their elements too or if they cannot refuse.
TEST(RaggedTest, WhatIsReadForItsSizeToo) {
  const auto packs = [](const Build& build) {
    Packs([&](Model& m) {
      const ValueId size = m.Op("Size", {m.Slice(m.Op("Shape", {build(m)}), 0, m.Ints({1}), 0)});
      return m.Op("Mul", {m.x, m.To(size, 1)});
    });
  };
  packs([](Model& m) { return m.Op("Relu", {m.x}); });
  packs([](Model& m) { return m.Transpose(m.Op("Mul", {m.x, m.x}), {1, 2, 0}); });
  packs([](Model& m) { return m.Op("Unsqueeze", {m.To(m.ids, 1), m.Ints({1})}); });
  packs([](Model& m) { return m.Op("ConstantOfShape", {m.SizesOf(m.ids)}); });
  Packs([](Model& m) {
    const ValueId rows = m.Op("Gather", {m.Floats({kTable, kWidth}), m.ids});
    const ValueId size = m.Op("Size", {m.Op("Shape", {rows})});
    return m.Op("Mul", {rows, m.To(size, 1)});
  });
}

TEST(RaggedTest, RowsAreSpreadOverTheirTokens) {
  const RaggedModel model = Packs([](Model& m) {
    return m.Op("Sub", {m.x, m.Op("Unsqueeze", {m.r, m.Ints({1})})});
  });
  EXPECT_EQ(Count(model, "RaggedSpread"), 1);
  Packs([](Model& m) { return m.Op("Sub", {m.x, m.Reduce("ReduceMean", m.x, {1}, true)}); });
  Packs([](Model& m) {
    return m.Op("Expand", {m.Op("Unsqueeze", {m.r, m.Ints({1})}), m.SizesOf(m.ids, {kWidth})});
  });
}

TEST(RaggedTest, TokensStayWholeInOtherShapes) {
  Packs([](Model& m) {  // as one axis, and back
    const ValueId flat = m.Op("Reshape", {m.x, m.Ints({-1, kWidth})});
    const ValueId y = m.Op("Gemm", {flat, m.Floats({kWidth, 4}), m.Floats({4})});
    return m.Op("Reshape", {y, m.SizesOf(m.x, {2, 2})});
  });
  Packs([](Model& m) { return m.Transpose(m.Heads(m.x), {0, 2, 3, 1}); });
  Packs([](Model& m) {
    const ValueId y = m.Along("Softmax", m.Heads(m.x), 1);
    return m.Transpose(m.Reduce("ReduceSum", y, {-1}, false), {0, 2, 1});
  });
  Packs([](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, -1, 3, 2})}); });
  Packs([](Model& m) {
    const ValueId y = m.Op("Unsqueeze", {m.x, m.Ints({1, 3})});
    return m.Op("Squeeze", {y, m.Ints({3, 1})});
  });
  Packs([](Model& m) {
    return m.Op("Concat", {m.x, m.Op("Neg", {m.x})}, Attrs({{"axis", int64_t{2}}}));
  });
  Packs([](Model& m) { return m.Slice(m.x, 1, m.Ints({5}), 2, 2); });
  Packs([](Model& m) { return m.Slice(m.x, 0, m.SizeOf(m.ids, 1), 1); });
  Packs([](Model& m) { return m.Slice(m.x, 0, m.Ints({std::numeric_limits<int64_t>::max()}), 1); });
  Packs([](Model& m) { return m.Op("LayerNormalization", {m.x, m.Floats({kWidth})}); });
  Packs([](Model& m) { return m.Op("Tile", {m.x, m.Ints({1, 1, 2})}); });
  Refuses("(Reshape)", [](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, -1})}); });
  Refuses("(Reshape)", [](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, -1, 3})}); });
  Refuses("(Reshape)", [](Model& m) { return m.Op("Reshape", {m.x, m.Ints({0, kWidth, -1})}); });
  Refuses("(Reshape)", [](Model& m) { return m.Op("Reshape", {m.x, m.Ints({2, 3, -1})}); });
  Refuses("(Reshape)", [](Model& m) {  // tokens come to lie in another order
    return m.Op("Reshape", {m.Transpose(m.x, {0, 2, 1}), m.SizesOf(m.x, {kWidth})});
  });
  Refuses("(Reshape)", [](Model& m) {  // sequences and tokens change places
    const ValueId turned = m.Op("Concat", {m.SizeOf(m.x, 1), m.SizeOf(m.x, 0), m.Ints({kWidth})},
                                Attrs({{"axis", int64_t{0}}}));
    return m.Op("Reshape", {m.x, turned});
  });
  Refuses("(Squeeze)", [](Model& m) { return m.Op("Squeeze", {m.x}); });
  Refuses("(Squeeze)", [](Model& m) { return m.Op("Squeeze", {m.x, m.Ints({1})}); });
  Refuses("(Concat)", [](Model& m) {
    return m.Op("Concat", {m.x, m.x}, Attrs({{"axis", int64_t{1}}}));
  });
  Refuses("(Concat)", [](Model& m) {  // a token in front of all
    const ValueId first = m.Op("Unsqueeze", {m.r, m.Ints({1})});
    return m.Op("Concat", {first, m.x}, Attrs({{"axis", int64_t{1}}}));
  });
  Refuses("(Slice)", [](Model& m) { return m.Slice(m.x, 1, m.Ints({1 << 30}), 1); });
  Refuses("(Slice)", [](Model& m) { return m.Slice(m.x, 0, m.Ints({-1}), 1); });
  Refuses("(Slice)", [](Model& m) { return m.Slice(m.x, 0, m.SizeOf(m.x, 1), 1, 2); });
  Refuses("(Slice)", [](Model& m) { return m.Slice(m.x, 0, m.Ints({1}), 0); });
  Refuses("(Slice)", [](Model& m) { return m.Slice(m.x, 0, m.SizeOf(m.x, 1), 2); });
  Refuses("(Tile)", [](Model& m) { return m.Op("Tile", {m.x, m.Ints({1, 2, 1})}); });
  Refuses("output", [](Model& m) { return m.Transpose(m.x, {1, 0, 2}); });
  Refuses("output", [](Model& m) { return m.Transpose(m.x, {0, 2, 1}); });
  Refuses("output", [](Model& m) { return m.Op("Reshape", {m.x, m.Ints({-1, kWidth})}); });
}

TEST(RaggedTest, ConvolutionsOfOneTapWorkTokenByToken) {
  for (const int64_t group : {1, 2}) {
    Packs([&](Model& m) {
      const ValueId y = m.Op(
          "Conv", {m.Transpose(m.x, {0, 2, 1}), m.Floats({4, kWidth / group, 1}), m.Floats({4})},
          Attrs({{"group", group}}));
      return m.Transpose(y, {0, 2, 1});
    });
  }
}

TEST(RaggedTest, PlacesOfTokens) {
  const auto embedded = [](Model& m, ValueId places) {  // [1, length], [length] or [batch, length]
    return m.Op("Add", {m.x, m.Op("Gather", {m.Floats({kTable, kWidth}), places})});
  };
  RaggedModel model = Packs([&](Model& m) {
    return embedded(
        m, m.Slice(m.Ints({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), 0, m.SizeOf(m.ids, 1), 0));
  });
  EXPECT_EQ(model.max_length, 12);
  Packs([&](Model& m) {  // turned by angles that grow with the place
    const ValueId places = m.Op("Unsqueeze", {m.To(m.Range(m.SizeOf(m.x, 1)), 1), m.Ints({0, 1})});
    const ValueId angles = m.Op("MatMul", {m.Floats({1, kWidth, 1}), places});
    return m.Op("Mul", {m.x, m.Op("Cos", {m.Transpose(angles, {0, 2, 1})})});
  });
  model = Packs([&](Model& m) { return embedded(m, m.Range(m.SizeOf(m.x, 1))); });
  EXPECT_EQ(model.max_length, 12);
  Graph graph;
  const auto counted = Pack(
      [&](Model& m) {  // 3 + how many count up to here
        const ValueId counts = m.To(m.To(m.mask, 9), 7);
        const ValueId sums = m.Op("Mul", {m.Op("CumSum", {counts, m.Int(1)}), counts});
        return embedded(m, m.Op("Add", {sums, m.Int(3)}));
      },
      graph);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->max_length, 8);
  Packs([&](Model& m) {
    const ValueId both = m.Op("Expand", {m.Range(m.SizeOf(m.x, 1)), m.SizesOf(m.x)});
    return embedded(m, both);
  });
  Packs([&](Model& m) {
    const ValueId table = m.Slice(m.Floats({1, kTable, kWidth}), 0, m.SizeOf(m.x, 1), 1);
    return m.Op("Mul", {m.x, table});
  });
  Packs([&](Model& m) {  // every other row of the table, by tokens and places
    const ValueId table =
        m.Op("Expand",
             {m.Constant(Tensor::Of<int64_t>({1, 12}, {3, 1, 2, 9, 8, 7, 6, 5, 4, 0, 1, 2})),
              m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({12})}, Attrs({{"axis", int64_t{0}}}))});
    return m.Along2("GatherElements", table, m.ids, 1);
  });
  Packs([&](Model& m) {  // all ones
    return m.Op("Add", {m.Op("ConstantOfShape", {m.SizesOf(m.x)}), m.To(m.ids, 1)});
  });
  Refuses("(Sub)", [&](Model& m) {  // counted from the end
    const ValueId length = m.Scalar(m.SizeOf(m.x, 1));
    return embedded(m, m.Op("Sub", {m.Op("Sub", {length, m.Int(1)}), m.Range(m.SizeOf(m.x, 1))}));
  });
  Refuses("(Slice)", [&](Model& m) {
    return m.Op("Mul", {m.x, m.Slice(m.Floats({kTable, kWidth}), 1, m.SizeOf(m.x, 1), 0)});
  });
  Refuses("(Slice)", [&](Model& m) {  // places of sequences
    return m.Op("Mul", {m.r, m.Slice(m.Floats({kTable, kWidth}), 0, m.SizeOf(m.x, 0), 0)});
  });
  Refuses("(Range)", [&](Model& m) {
    return m.Op("Add", {m.r, m.Op("Unsqueeze", {m.To(m.Range(m.SizeOf(m.x, 0)), 1), m.Ints({1})})});
  });
}

TEST(RaggedTest, SizesAreNoData) {
  Refuses("computes with", [](Model& m) {
    return m.Op("Mul", {m.x, m.To(m.Scalar(m.SizeOf(m.x, 1)), 1)});
  });
  Refuses("computes with", [](Model& m) {  // a mean with the length by hand
    return m.Op("Div",
                {m.Reduce("ReduceSum", m.x, {1}, false), m.To(m.Scalar(m.SizeOf(m.x, 1)), 1)});
  });
  Refuses("computes with", [](Model& m) { return m.Op("Add", {m.ids, m.Op("Size", {m.ids})}); });
  // A product over a shape, taken once more.
  Refuses("computes with", [](Model& m) {
    const ValueId product = m.Reduce("ReduceProd", m.SizesOf(m.ids), {0}, true);
    return m.Op("Add", {m.ids, m.Reduce("ReduceProd", product, {0}, true)});
  });
}

TEST(RaggedTest, PoolingBySequence) {
  for (const bool keep : {false, true}) {
    for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}) {
      const RaggedModel model = Packs([&](Model& m) { return m.Reduce(op, m.x, {1}, keep); });
      EXPECT_EQ(Count(model, "RaggedReduce"), 1);
      EXPECT_FALSE(model.rows_ignore_trailing) << op;
    }
  }
  Packs([](Model& m) { return m.Reduce("ReduceSum", m.ids, {-1}, false); });
  Packs([](Model& m) {  // and what follows
    const ValueId rows = m.Reduce("ReduceMean", m.x, {1}, false);
    const ValueId y = m.Op("Gemm", {rows, m.Floats({kWidth, 5}), m.Floats({5})});
    return m.Along("Softmax", m.Op("Tanh", {y}), -1);
  });
  Packs([](Model& m) {
    const ValueId rows = m.Reduce("ReduceMax", m.x, {1}, false);
    const ValueId norm = m.Reduce("ReduceL2", rows, {1}, true);
    return m.Op("Div", {rows, m.Op("Expand", {norm, m.Op("Shape", {rows})})});
  });
  Packs([](Model& m) { return m.Op("Gather", {m.x, m.Int(0)}, Attrs({{"axis", int64_t{1}}})); });
  Packs([](Model& m) { return m.Slice(m.x, 0, m.Ints({1}), 1); });
  RaggedModel model = Packs([](Model& m) { return m.Slice(m.x, -1, m.Ints({1 << 30}), 1); });
  EXPECT_EQ(model.min_length, 1);
  model = Packs([](Model& m) {
    return m.Op("Gather", {m.x, m.Ints({-2})}, Attrs({{"axis", int64_t{1}}}));
  });
  EXPECT_EQ(model.min_length, 2);
  for (const int64_t exclusive : {0, 1}) {
    for (const int64_t reverse : {0, 1}) {
      Packs([&](Model& m) {
        return m.Op("CumSum", {m.x, m.Int(1)},
                    Attrs({{"exclusive", exclusive}, {"reverse", reverse}}));
      });
    }
  }
}

// [batch]: the numbers of the sequences.
ValueId Numbers(Model& m) { return m.Range(m.SizeOf(m.x, 0)); }
ValueId Column(Model& m, ValueId rows) { return m.Op("Unsqueeze", {rows, m.Ints({-1})}); }
// x[numbers, index].
ValueId PickedAt(Model& m, ValueId from, ValueId numbers, ValueId index) {
  const ValueId at =
      m.Op("Concat", {Column(m, numbers), Column(m, index)}, Attrs({{"axis", int64_t{-1}}}));
  return m.Op("GatherND", {from, at});
}
ValueId LastCounted(Model& m) {
  return m.Op("Sub", {m.Reduce("ReduceSum", m.mask, {1}, false), m.Int(1)});
}

TEST(RaggedTest, OneTokenOfEachSequenceByData) {
  const auto attended = [](Model& m) { return m.Attention(m.x, m.Added(m.MaskOfKeys())); };
  RaggedModel model =
      Packs([&](Model& m) { return PickedAt(m, attended(m), Numbers(m), LastCounted(m)); });
  EXPECT_EQ(Count(model, "RaggedToken"), 1);
  EXPECT_TRUE(model.rows_ignore_trailing && !model.rows_ignore_masked);
  model = Packs([&](Model& m) {  // counted from the end of all tokens
    const ValueId index = m.Op("Sub", {m.Int(0), m.Reduce("ReduceSum", m.mask, {1}, false)});
    return PickedAt(m, attended(m), Numbers(m), index);
  });
  EXPECT_FALSE(model.rows_ignore_trailing);
  Packs([&](Model& m) {
    return m.Op("GatherND", {m.x, Column(m, LastCounted(m))}, Attrs({{"batch_dims", int64_t{1}}}));
  });
  for (const int64_t width : {kWidth, int64_t{1}}) {
    Packs([&](Model& m) {
      const ValueId one = m.Op("Unsqueeze", {LastCounted(m), m.Ints({1, 2})});
      const ValueId from = width == 1 ? m.Reduce("ReduceMax", m.x, {2}, true) : m.x;
      const ValueId spread = m.Op("Expand", {one, m.Ints({1, 1, width})});
      return m.Op("GatherElements", {from, spread}, Attrs({{"axis", int64_t{1}}}));
    });
  }
  for (const int64_t last : {0, 1}) {
    for (const int64_t type : {6, 7}) {  // int32, int64
      Packs([&](Model& m) {              // the first, or last, of the largest ids
        const ValueId best = m.Op(
            "ArgMax", {m.To(m.ids, type)},
            Attrs({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"select_last_index", last}}));
        return PickedAt(m, m.x, Numbers(m), best);
      });
      Packs([&](Model& m) {  // where the mask is 1 or the id is 3, and none is
        const ValueId three = m.To(m.Op("Equal", {m.ids, m.Int(3)}), type);
        return m.Op(
            "ArgMax", {three},
            Attrs({{"axis", int64_t{-1}}, {"keepdims", int64_t{1}}, {"select_last_index", last}}));
      });
      Packs([&](Model& m) {
        return m.Op("ArgMax", {m.To(m.Op("Mul", {m.x, m.Number(3)}), type)},
                    Attrs({{"axis", int64_t{1}}, {"keepdims", last}, {"select_last_index", last}}));
      });
    }
  }
}

TEST(RaggedTest, TokensOfOtherSequencesAreRefused) {
  const auto refuses = [](const std::string& what, const auto& numbers) {
    Refuses(what, [&](Model& m) { return PickedAt(m, m.x, numbers(m), LastCounted(m)); });
  };
  refuses("", [](Model& m) { return m.Op("Mul", {Numbers(m), m.Int(0)}); });
  refuses("", [](Model& m) {  // in reverse
    const ValueId end = m.Op("Sub", {m.Scalar(m.SizeOf(m.x, 0)), m.Int(1)});
    return m.Op("Sub", {end, Numbers(m)});
  });
  refuses("(GatherND)", [](Model& m) { return LastCounted(m); });
  refuses("", [](Model& m) {  // as many as tokens
    return m.Range(m.SizeOf(m.x, 1));
  });
  Refuses("", [](Model& m) {  // the wrong way round
    const ValueId at = m.Op("Concat", {Column(m, LastCounted(m)), Column(m, Numbers(m))},
                            Attrs({{"axis", int64_t{-1}}}));
    return m.Op("GatherND", {m.x, at});
  });
  Refuses("", [](Model& m) {  // one column of the token that its sequence's number says
    const ValueId one = m.Op("Unsqueeze", {Numbers(m), m.Ints({1, 2})});
    const ValueId spread = m.Op("Expand", {one, m.Ints({1, 1, kWidth})});
    return m.Op("GatherElements", {m.x, spread}, Attrs({{"axis", int64_t{1}}}));
  });
  Refuses("(ArgMax", [](Model& m) { return m.Along("ArgMax", m.x, 1); });  // NaN is not followed
}

TEST(RaggedTest, OtherWaysAlongTheLengthOrTheBatch) {
  for (const int64_t axis : {0, 1}) {
    for (const char* op : {"Softmax", "LogSoftmax", "ArgMax"}) {
      Refuses(std::string("(") + op, [&](Model& m) { return m.Along(op, m.x, axis); });
    }
    Refuses("(LayerNormalization", [&](Model& m) {
      return m.Op("LayerNormalization", {m.x, m.Number(1)}, Attrs({{"axis", axis}}));
    });
    Refuses("(Split", [&](Model& m) {
      return m.Call(*OperatorRegistry::Builtin().Find("", "Split"), {m.x, m.Ints({1, 1})}, 2,
                    Attrs({{"axis", axis}}))[0];
    });
    Refuses("(TopK", [&](Model& m) {
      return m.Call(*OperatorRegistry::Builtin().Find("", "TopK"), {m.x, m.Ints({1})}, 2,
                    Attrs({{"axis", axis}}))[0];
    });
  }
  Refuses("(ReduceSum", [](Model& m) { return m.Reduce("ReduceSum", m.x, {0}, true); });
  Refuses("(ReduceSum", [](Model& m) { return m.Reduce("ReduceSum", m.x, {1, 2}, true); });
  Refuses("(ReduceL2", [](Model& m) { return m.Reduce("ReduceL2", m.x, {1}, false); });
  Refuses("(ReduceMax", [](Model& m) { return m.Op("ReduceMax", {m.x}); });
  Refuses("(CumSum", [](Model& m) { return m.Op("CumSum", {m.x, m.Int(0)}); });
  Refuses("(MatMul", [](Model& m) { return m.Op("MatMul", {m.Floats({3, 4}), m.x}); });
  Refuses("(MatMul", [](Model& m) {
    return m.Op("MatMul", {m.Floats({2, 4, kWidth}), m.Transpose(m.x, {0, 2, 1})});
  });
  Refuses("(MatMul", [](Model& m) { return m.Op("MatMul", {m.x, m.Transpose(m.x, {0, 2, 1})}); });
  Refuses("(Gather", [](Model& m) {
    return m.Op("Gather", {m.x, m.Ints({0, 1})}, Attrs({{"axis", int64_t{1}}}));
  });
  Refuses("(Gather", [](Model& m) { return m.Op("Gather", {m.x, m.Int(0)}); });
  Refuses("(Gather", [](Model& m) {  // by what the tokens say
    return m.Op("Gather", {m.x, m.Reduce("ReduceMin", m.ids, {1}, false)},
                Attrs({{"axis", int64_t{1}}}));
  });
  Refuses("(GatherElements", [](Model& m) { return m.Along2("GatherElements", m.ids, m.ids, 1); });
  Refuses("(Pad", [](Model& m) { return m.Op("Pad", {m.x, m.Ints({0, 1, 0, 0, 0, 0})}); });
  const auto with = [](const char* name, const std::vector<int64_t>& sizes) {
    Refuses("(Conv", [&](Model& m) {
      return m.Op("Conv", {m.Transpose(m.x, {0, 2, 1}), m.Floats({2, kWidth, 1})},
                  Attrs({{name, sizes}}));
    });
  };
  with("strides", {2});
  with("pads", {1, 0});
  Refuses("(Conv", [&](Model& m) {
    return m.Op("Conv", {m.Transpose(m.x, {0, 2, 1}), m.Floats({2, kWidth, 3})},
                Attrs({{"pads", std::vector<int64_t>{1, 1}}}));
  });
  Refuses("(NonZero", [](Model& m) { return m.Op("NonZero", {m.x}); });
}

// DynamicQuantizeLinear, MatMulInteger and what makes its sums float32 again, as ONNX Runtime's
// quantiser writes them.
ValueId DynamicProduct(Model& m, ValueId x, int64_t k, int64_t n, const Shape& w_scales) {
  const auto quantized =
      m.Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {x}, 3);
  Tensor w = Tensor::Allocate(DType::kInt8, {k, n});
  for (int64_t i = 0; i < w.size(); ++i) w.data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 251);
  Tensor zeros = Tensor::Allocate(DType::kInt8, w_scales);
  for (int64_t i = 0; i < zeros.size(); ++i) zeros.data<int8_t>()[i] = static_cast<int8_t>(i);
  const ValueId sums =
      m.Op("MatMulInteger", {quantized[0], m.Constant(w), quantized[2], m.Constant(zeros)});
  const ValueId scale = m.Op("Mul", {quantized[1], m.Op("Abs", {m.Floats(w_scales)})});
  return m.Op("Add", {m.Op("Mul", {m.To(sums, 1), scale}), m.Floats({n})});
}

// Packed, and bit-equal to each request alone: its scale spans its own rows.
RaggedModel PacksExactly(const Build& build) {
  Graph graph;
  auto model = Pack(build, graph);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  ExpectSameAnswers(graph, *model, Requests(model->min_length), Kept::kAll, 0, 0);
  ExpectSameAnswers(graph, *model, Requests(model->min_length), Kept::kAll, 4, 0);
  return *std::move(model);
}

TEST(RaggedTest, DynamicScalesSpanTheRowsOfARequest) {
  for (const Shape& scales : {Shape{}, Shape{1}, Shape{5}}) {
    const RaggedModel model =
        PacksExactly([&](Model& m) { return DynamicProduct(m, m.x, kWidth, 5, scales); });
    EXPECT_EQ(Count(model, "RaggedQuantize"), 1);
    EXPECT_EQ(Count(model, "DynamicQuantizeLinear"), 0);
    PacksExactly([&](Model& m) {  // as one axis, and back
      const ValueId flat = m.Op("Reshape", {m.x, m.Ints({-1, kWidth})});
      return m.Op("Reshape", {DynamicProduct(m, flat, kWidth, 5, scales), m.SizesOf(m.x, {5})});
    });
    PacksExactly([&](Model& m) {  // one product after the other
      return DynamicProduct(m, DynamicProduct(m, m.x, kWidth, 5, scales), 5, 3, {3});
    });
    PacksExactly([&](Model& m) {  // of heads
      const ValueId heads = m.Op("Reshape", {m.x, m.SizesOf(m.x, {3, 2})});
      return DynamicProduct(m, heads, 2, 5, scales);
    });
  }
  PacksExactly([](Model& m) {  // one factor after the other, and two products of one value
    const auto quantized =
        m.Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {m.x}, 3);
    const auto product = [&] {
      const ValueId sums =
          m.Op("MatMulInteger", {quantized[0], m.To(m.Floats({kWidth, 4}), 3), quantized[2]});
      return m.Op("Mul", {m.Op("Mul", {m.Number(3), m.Op("Mul", {m.To(sums, 1), quantized[1]})}),
                          m.Floats({4})});
    };
    return m.Op("Add", {product(), product()});
  });
  PacksExactly([](Model& m) {  // dequantised by hand
    const auto quantized =
        m.Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {m.x}, 3);
    return m.Op("Mul", {quantized[1], m.Op("Sub", {m.To(quantized[0], 1), m.To(quantized[2], 1)})});
  });
  // After attention, whose sums round differently: one step.
  Graph graph;
  const auto model = Pack(
      [](Model& m) {
        const ValueId y = DynamicProduct(m, m.Attention(m.x, kNoValue), kWidth, kWidth, {});
        return m.Attention(y, m.Added(m.MaskOfKeys()));
      },
      graph);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectSameAnswers(graph, *model, Requests(1), Kept::kAll, 4, 1e-2);
}

// If there is one row for each sequence, a scale spans the rows of a request.
TEST(RaggedTest, DynamicScalesOfSequences) {
  PacksExactly([](Model& m) { return DynamicProduct(m, m.r, kWidth, 5, {}); });
  const RaggedModel model = PacksExactly([](Model& m) {
    const ValueId first = m.Slice(m.Op("Identity", {m.x}), 0, m.Ints({1}), 1);
    return DynamicProduct(m, m.Op("Squeeze", {first, m.Ints({1})}), kWidth, 5, {5});
  });
  EXPECT_EQ(Count(model, "RaggedQuantize"), 1);
}

// Alone, hidden tokens are part of the range. So they are packed, unless no range includes them.
TEST(RaggedTest, HiddenTokensCountInDynamicScales) {
  const auto first = [](Model& m, ValueId x) {
    return m.Op("Squeeze", {m.Slice(x, 0, m.Ints({1}), 1), m.Ints({1})});
  };
  const auto attention = [](Model& m, ValueId x) {
    return m.Attention(x, m.Added(m.MaskOfKeys()));
  };
  RaggedModel model = Packs([&](Model& m) { return first(m, attention(m, m.x)); });
  EXPECT_TRUE(model.rows_ignore_trailing);
  model = Packs(
      [&](Model& m) { return first(m, attention(m, DynamicProduct(m, m.x, kWidth, kWidth, {}))); });
  EXPECT_FALSE(model.rows_ignore_trailing);
  EXPECT_FALSE(model.rows_ignore_masked);
  model = Packs(
      [&](Model& m) { return DynamicProduct(m, first(m, attention(m, m.x)), kWidth, 4, {}); });
  EXPECT_TRUE(model.rows_ignore_trailing);
}

// x, quantised and dequantised with one scale.
ValueId Stepped(Model& m, ValueId x, float scale, int8_t zero) {
  const ValueId by = m.Number(scale), point = m.Constant(Tensor::Scalar(zero));
  return m.Op("DequantizeLinear", {m.Op("QuantizeLinear", {x, by, point}), by, point});
}

// Attention as quantisers of both operands of a product write it. `masked`: a mask is added.
ValueId SteppedAttention(Model& m, bool masked, bool steps_behind_mask, bool guarded) {
  const ValueId q = Stepped(m, m.Heads(m.Op("Sin", {m.x})), 0.01f, 3);
  const ValueId k =
      Stepped(m, m.Op("Mul", {m.Transpose(m.Heads(m.x), {0, 1, 3, 2}), m.Number(0.5f)}), 0.02f, -5);
  ValueId scores = Stepped(m, m.Op("MatMul", {q, k}), 0.03f, 0);
  if (masked) scores = m.Op("Add", {scores, m.Added(m.MaskOfKeys())});
  if (steps_behind_mask) scores = Stepped(m, scores, 0.05f, 100);
  ValueId weights = m.Along("Softmax", scores, -1);
  if (guarded) weights = m.Op("Where", {m.Op("IsNaN", {weights}), m.Number(0), weights});
  weights = Stepped(m, weights, 1.0f / 127, 0);
  const ValueId v = Stepped(m, m.Heads(m.Op("Cos", {m.x})), 0.01f, 0);
  const ValueId y = Stepped(m, m.Op("MatMul", {weights, v}), 0.01f, 0);
  return m.Op("Reshape", {m.Transpose(y, {0, 2, 1, 3}), m.SizesOf(m.x, {kWidth})});
}

TEST(RaggedTest, AttentionBetweenQuantizationStepsIsPacked) {
  for (const bool masked : {false, true}) {
    for (const bool guarded : {false, true}) {
      Graph graph;
      const auto model =
          Pack([&](Model& m) { return SteppedAttention(m, masked, !masked && guarded, guarded); },
               graph);
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_EQ(Count(*model, "RaggedAttention"), 1);
      // Sums in another order may end in the next step.
      ExpectSameAnswers(graph, *model, Requests(1), Kept::kAll, 4, 2e-2);
      if (masked) {
        EXPECT_EQ(model->mask, 2);
        EXPECT_TRUE(model->tokens_ignore_trailing);
        ExpectSameAnswers(graph, *model, Requests(1), Kept::kUpToLastCounted, 0, 2e-2);
      }
    }
  }
}

TEST(RaggedTest, ScoresThatAreQuantizedBehindAMaskAreRefused) {
  Refuses("length along different dimensions",
          [](Model& m) { return SteppedAttention(m, true, true, false); });
}

// The same in operators on integers.
TEST(RaggedTest, AttentionOfIntegersIsPacked) {
  Graph graph;
  const auto model = Pack(
      [](Model& m) {
        const auto number = [&](float scale) { return m.Number(scale); };
        const auto zero = [&](uint8_t point) { return m.Constant(Tensor::Scalar(point)); };
        const auto quantized = [&](ValueId x, float scale, uint8_t point) {
          return m.Op("QuantizeLinear", {x, number(scale), zero(point)});
        };
        const ValueId q = quantized(m.Heads(m.Op("Sin", {m.x})), 0.01f, 120);
        const ValueId k = m.Transpose(quantized(m.Heads(m.x), 0.02f, 130), {0, 1, 3, 2});
        const ValueId scores = m.Op("QLinearMatMul", {q, number(0.01f), zero(120), k, number(0.02f),
                                                      zero(130), number(0.03f), zero(128)});
        const ValueId weights = quantized(
            m.Along("Softmax", m.Op("DequantizeLinear", {scores, number(0.03f), zero(128)}), -1),
            1.0f / 255, 0);
        const ValueId v = quantized(m.Heads(m.Op("Cos", {m.x})), 0.01f, 128);
        const ValueId y =
            m.Op("QLinearMatMul", {weights, number(1.0f / 255), zero(0), v, number(0.01f),
                                   zero(128), number(0.01f), zero(128)});
        const ValueId real = m.Op("DequantizeLinear", {y, number(0.01f), zero(128)});
        return m.Op("Reshape", {m.Transpose(real, {0, 2, 1, 3}), m.SizesOf(m.x, {kWidth})});
      },
      graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Count(*model, "RaggedAttention"), 1);
  EXPECT_EQ(Count(*model, "QLinearMatMul"), 0);
  ExpectSameAnswers(graph, *model, Requests(1), Kept::kAll, 4, 2e-2);
}

TEST(RaggedTest, DynamicScalesThatCannotBeFollowedAreRefused) {
  const auto quantized = [](Model& m, ValueId x) {
    return m.Call(*OperatorRegistry::Builtin().Find("", "DynamicQuantizeLinear"), {x}, 3);
  };
  Refuses("(DynamicQuantizeLinear): its scale", [&](Model& m) {
    return m.Op("Mul", {m.x, quantized(m, m.x)[1]});
  });
  Refuses("(DynamicQuantizeLinear): its scale", [&](Model& m) {  // of another value
    const auto a = quantized(m, m.x), b = quantized(m, m.Op("Sin", {m.x}));
    return m.Op("MatMulInteger", {a[0], m.To(m.Floats({kWidth, 4}), 3), b[2]});
  });
  Refuses("(DynamicQuantizeLinear): its scale", [&](Model& m) {  // as the right matrix's
    const auto a = quantized(m, m.x);
    return m.Op("MatMulInteger", {a[0], m.To(m.Floats({kWidth, 4}), 2), a[2], a[2]});
  });
  Refuses("(DynamicQuantizeLinear): its scale", [&](Model& m) {
    const auto a = quantized(m, m.x);
    return m.Op("Mul", {m.To(a[0], 1), m.Op("Reshape", {a[1], m.Ints({1, 1, 1})})});
  });
  Refuses("its scale does not span", [&](Model& m) {  // tokens by tokens
    const auto a = quantized(m, m.Heads(m.x));
    const ValueId keys = m.Transpose(a[0], {0, 1, 3, 2});
    const ValueId y = m.Along("Softmax", m.To(m.Op("MatMulInteger", {a[0], keys}), 1), -1);
    return m.Reduce("ReduceSum", m.Transpose(y, {0, 2, 1, 3}), {2, 3}, false);
  });
}

// ONNX broadcasts heads; the packed operator shares those of keys among those of queries.
TEST(RaggedTest, HeadsThatAreNotProvedEqualRefuse) {
  constexpr int64_t kHeads = 3;
  // [batch, heads, length, 2], of one head or of three.
  const auto one = [](Model& m, const char* op) {
    const ValueId some = m.Slice(m.Op(op, {m.x}), 0, m.Ints({2}), 2);
    return m.Op("Unsqueeze", {some, m.Ints({1})});
  };
  const auto several = [](Model& m, const char* op) { return m.Heads(m.Op(op, {m.x})); };
  const auto attend = [&](Model& m, ValueId q, ValueId k, ValueId v, ValueId mask = kNoValue) {
    ValueId scores = m.Op("MatMul", {q, m.Transpose(k, {0, 1, 3, 2})});
    if (mask != kNoValue) scores = m.Op("Add", {scores, mask});
    const ValueId y = m.Op("MatMul", {m.Along("Softmax", scores, -1), v});
    return m.Op("Reshape", {m.Transpose(y, {0, 2, 1, 3}), m.SizesOf(m.x, {kWidth})});
  };
  Packs(
      [&](Model& m) { return attend(m, several(m, "Sin"), several(m, "Cos"), several(m, "Sin")); });
  Packs([&](Model& m) { return attend(m, several(m, "Sin"), one(m, "Cos"), one(m, "Sin")); });
  Refuses("heads",
          [&](Model& m) { return attend(m, several(m, "Sin"), one(m, "Cos"), several(m, "Sin")); });
  Refuses("heads",
          [&](Model& m) { return attend(m, one(m, "Sin"), several(m, "Cos"), several(m, "Sin")); });
  Refuses("heads",
          [&](Model& m) { return attend(m, one(m, "Sin"), one(m, "Cos"), several(m, "Sin")); });
  Refuses("heads", [&](Model& m) {  // of the mask
    const ValueId sizes =
        m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({kHeads}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
             Attrs({{"axis", int64_t{0}}}));
    const ValueId mask = m.Added(m.Op("Expand", {m.MaskOfKeys(), sizes}));
    return attend(m, one(m, "Sin"), one(m, "Cos"), one(m, "Sin"), mask);
  });
}

TEST(RaggedTest, MasksOfKeys) {
  RaggedModel model = Packs([](Model& m) { return m.Attention(m.x, kNoValue); });
  EXPECT_EQ(Count(model, "RaggedAttention"), 1);
  EXPECT_EQ(model.mask, -1);
  EXPECT_EQ(model.max_length, 0);
  model = Packs([](Model& m) {  // followed
    const ValueId hidden = m.Op("Sub", {m.Number(1), m.To(m.MaskOfKeys(), 1)});
    return m.Attention(m.x, m.Op("Mul", {hidden, m.Number(-10000)}));
  });
  EXPECT_EQ(model.mask, 2);
  EXPECT_EQ(model.max_length, 0);
  EXPECT_TRUE(model.marks.empty());
  model = Packs([](Model& m) {  // proved: spread over the queries
    const ValueId sizes =
        m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({1}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
             Attrs({{"axis", int64_t{0}}}));
    return m.Attention(m.x, m.Added(m.Op("Expand", {m.MaskOfKeys(), sizes})));
  });
  EXPECT_EQ(model.mask, 2);
  EXPECT_EQ(model.max_length, 0);
  EXPECT_EQ(model.marks, std::vector<int>{2});
  Packs([](Model& m) {  // by place, whatever the query
    const ValueId slope = m.Op("Mul", {m.To(m.Range(m.SizeOf(m.x, 1)), 1), m.Number(-0.5f)});
    return m.Attention(m.x, slope);
  });
}

ValueId RowOfQueries(Model& m) {
  return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 1)), m.Ints({1})});
}
ValueId BeforeQuery(Model& m) {
  return m.Op("LessOrEqual", {m.Range(m.SizeOf(m.x, 1)), RowOfQueries(m)});
}
ValueId WithinWindow(Model& m, int64_t size) {
  const ValueId apart = m.Op("Abs", {m.Op("Sub", {m.Range(m.SizeOf(m.x, 1)), RowOfQueries(m)})});
  return m.Op("Less", {apart, m.Int(size)});
}
// As torch.export writes attention_mask[arange(batch), arange(length)].
ValueId LookedUpMask(Model& m) {
  const auto places = [&](int64_t axis, std::vector<int64_t> others) {
    return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.mask, axis)), m.Ints(others)});
  };
  const ValueId rows = places(0, {1, 2, 3}), keys = places(1, {0, 1, 2});
  const ValueId shape = m.Op("Shape", {m.Op("Max", {rows, keys})});
  const auto column = [&](ValueId place) {
    return m.Op("Unsqueeze", {m.Op("Expand", {place, shape}), m.Ints({-1})});
  };
  return m.Op("GatherND", {m.To(m.mask, 9), m.Along2("Concat", column(rows), column(keys), -1)});
}

TEST(RaggedTest, MasksOfLaterKeys) {
  RaggedModel model = Packs([](Model& m) { return m.Attention(m.x, m.Added(BeforeQuery(m))); });
  EXPECT_EQ(model.max_length, 0);
  EXPECT_TRUE(model.marks.empty());
  for (const bool looked_up : {true, false}) {
    for (const bool first : {true, false}) {
      model = Packs([&](Model& m) {
        const ValueId marks = looked_up ? LookedUpMask(m) : m.MaskOfKeys();
        const ValueId before = BeforeQuery(m);
        return m.Attention(m.x, m.Added(first ? m.Op("And", {marks, before})
                                              : m.Op("Where", {before, marks, before})));
      });
      EXPECT_EQ(model.marks, std::vector<int>{2});
      EXPECT_EQ(model.first_marks, std::vector<int>{2});
      EXPECT_EQ(model.max_length, 0);
    }
  }
  Refuses("(Attention)", [](Model& m) {  // the query's own key is hidden
    return m.Attention(m.x, m.Added(m.Op("Less", {m.Range(m.SizeOf(m.x, 1)), RowOfQueries(m)})));
  });
}

// The mask hides nothing if the ids are 0 and 1. Requests with other ids run alone.
// As transformers tells sequences apart that share a row: places that do not follow on each other.
TEST(RaggedTest, MasksOfSequencesInOneRow) {
  for (const int64_t step : {1, 2}) {
    const Build build = [&](Model& m) {
      const ValueId length = m.SizeOf(m.x, 1);
      const ValueId places =
          m.Op("Expand", {m.Op("Unsqueeze", {m.Range(length), m.Ints({0})}), m.SizesOf(m.x)});
      const ValueId before = m.Op("Sub", {m.Slice(places, 0, m.Ints({1}), 1), m.Int(step)});
      const ValueId all = m.Op("Concat", {before, places}, Attrs({{"axis", int64_t{-1}}}));
      const ValueId steps = m.Op("Sub", {m.Slice(all, 1, m.Op("Add", {length, m.Ints({1})}), 1),
                                         m.Slice(all, 0, length, 1)});
      const ValueId begins = m.To(m.Op("Not", {m.Op("Equal", {steps, m.Int(1)})}), 7);
      const ValueId number = m.Op("CumSum", {begins, m.Int(1)});
      const ValueId same = m.Op("Equal", {m.Op("Unsqueeze", {number, m.Ints({1, 3})}),
                                          m.Op("Unsqueeze", {number, m.Ints({1, 2})})});
      return m.Attention(m.x, m.Added(m.Op("And", {same, BeforeQuery(m)})));
    };
    if (step == 1) {
      Packs(build);
    } else {
      Refuses("(Attention)", build);  // the first place differs; all are one sequence all the same
    }
  }
}

TEST(RaggedTest, TablesThatArePickedFromLimitTheLength) {
  const RaggedModel model = Packs([](Model& m) {
    const ValueId places = m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 1)), m.Ints({0, 2})});
    const ValueId at = m.Op("Expand", {places, m.SizesOf(m.x, {1})});
    return m.Op("Add", {m.x, m.Op("GatherND", {m.Floats({kTable, kWidth}), at})});
  });
  EXPECT_EQ(model.max_length, kTable);
}

TEST(RaggedTest, InputsThatAMaskIsReadFromAreMarks) {
  for (const bool causal : {false, true}) {
    const RaggedModel model = Packs([&](Model& m) {
      const ValueId sizes =
          m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({1}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
               Attrs({{"axis", int64_t{0}}}));
      const ValueId small = m.Op("Unsqueeze", {m.Op("Less", {m.ids, m.Int(100)}), m.Ints({1, 2})});
      const ValueId spread = m.Op("Expand", {small, sizes});
      return m.Attention(m.x, m.Added(causal ? m.Op("And", {spread, BeforeQuery(m)}) : spread));
    });
    EXPECT_EQ(model.marks, std::vector<int>{1});
  }
}

TEST(RaggedTest, MasksOfWindows) {
  for (const int64_t size : {1, 3, 2000}) {
    const RaggedModel model =
        Packs([&](Model& m) { return m.Attention(m.x, m.Added(WithinWindow(m, size))); });
    EXPECT_EQ(model.max_length, 4096);
  }
  Packs([](Model& m) {
    return m.Attention(m.x, m.Added(m.Op("And", {BeforeQuery(m), WithinWindow(m, 3)})));
  });
  Graph graph;
  const auto model = Pack(
      [](Model& m) {
        const ValueId near = m.Op("And", {WithinWindow(m, 2), LookedUpMask(m)});
        return m.Attention(m.x, m.Added(near));
      },
      graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->all_marks, std::vector<int>{2});
  std::vector<Request> requests = Requests(1);
  for (Request& request : requests) {
    std::fill_n(request.inputs[2].data<int64_t>(), request.inputs[2].size(), int64_t{1});
  }
  ExpectSameAnswers(graph, *model, requests, Kept::kAll, 4);
}

// Key − query, [length, length].
ValueId Apart(Model& m) { return m.Op("Sub", {m.Range(m.SizeOf(m.x, 1)), RowOfQueries(m)}); }

// A number for each head, picked by distance as T5 and MPNet do: one bucket for each small
// distance, wider ones beyond, as many ahead as behind. [1, 3, length, length].
ValueId BucketBias(Model& m) {
  const ValueId apart = Apart(m), away = m.Op("Abs", {apart});
  const ValueId ahead = m.Op("Mul", {m.To(m.Op("Greater", {apart, m.Int(0)}), 7), m.Int(4)});
  const ValueId times = m.Op("Log", {m.Op("Div", {m.To(away, 1), m.Number(2)})});
  const ValueId wide =
      m.To(m.Op("Mul", {m.Op("Div", {times, m.Number(std::log(4.0f))}), m.Number(2)}), 7);
  const ValueId most = m.Op("ConstantOfShape", {m.Op("Shape", {wide})},
                            Attrs({{"value", Tensor::Of<int64_t>({1}, {3})}}));
  const ValueId beyond = m.Op("Min", {m.Op("Add", {wide, m.Int(2)}), most});
  const ValueId near = m.Op("Where", {m.Op("Less", {away, m.Int(2)}), away, beyond});
  const ValueId picked = m.Op("Gather", {m.Floats({8, 3}), m.Op("Add", {near, ahead})});
  return m.Op("Unsqueeze", {m.Transpose(picked, {2, 0, 1}), m.Ints({0})});
}

// A slope for each head times the distance (Press et al. 2022), on both sides.
ValueId SlopesBias(Model& m) {
  const ValueId away = m.To(m.Op("Unsqueeze", {m.Op("Abs", {Apart(m)}), m.Ints({0})}), 1);
  const ValueId slopes = m.Constant(Tensor::Of<float>({3, 1, 1}, {-0.5f, -0.25f, -0.0625f}));
  return m.Op("Unsqueeze", {m.Op("Mul", {slopes, away}), m.Ints({0})});
}

TEST(RaggedTest, BiasesByDistance) {
  const auto hidden = [](Model& m, float by) {
    return m.Op("Mul", {m.Op("Sub", {m.Number(1), m.To(m.MaskOfKeys(), 1)}), m.Number(by)});
  };
  for (const auto& bias : {BucketBias, SlopesBias}) {
    RaggedModel model = Packs([&](Model& m) { return m.Attention(m.x, bias(m)); });
    EXPECT_EQ(model.max_length, 4096);
    EXPECT_EQ(model.mask, -1);
    for (const float by : {-10000.0f, std::numeric_limits<float>::lowest()}) {
      model = Packs([&](Model& m) {  // with the mask, in each order
        return m.Attention(m.x, m.Op("Add", {bias(m), hidden(m, by)}));
      });
      EXPECT_EQ(model.marks, std::vector<int>{2});
      EXPECT_TRUE(model.all_marks.empty());
      EXPECT_EQ(model.mask, 2);
      model = Packs([&](Model& m) {
        return m.Attention(m.Attention(m.x, m.Op("Add", {hidden(m, by), bias(m)})),
                           m.Op("Add", {bias(m), hidden(m, by)}));
      });
      EXPECT_EQ(Count(model, "RaggedAttention"), 2);
    }
    Packs([&](Model& m) {  // spread over the batch, and hidden by Where
      const ValueId sizes =
          m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({3}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
               Attrs({{"axis", int64_t{0}}}));
      const ValueId all = m.Op("Expand", {bias(m), sizes});
      const ValueId never = m.Number(std::numeric_limits<float>::lowest());
      return m.Attention(m.x, m.Op("Where", {LookedUpMask(m), all, never}));
    });
    // The mask is read between places of later keys, too.
    model = Packs([&](Model& m) {
      const ValueId seen = m.Op("And", {BeforeQuery(m), m.MaskOfKeys()});
      return m.Attention(m.x, m.Op("Add", {bias(m), m.Added(seen)}));
    });
    EXPECT_EQ(model.first_marks, std::vector<int>{2});
  }
}

// Without tokens in between, those that are left would come closer.
TEST(RaggedTest, ABiasByDistanceKeepsTokensInBetween) {
  for (const bool biased : {false, true}) {
    const RaggedModel model = Packs([&](Model& m) {
      const ValueId mask = m.Added(m.MaskOfKeys());
      const ValueId y = m.Attention(m.x, biased ? m.Op("Add", {BucketBias(m), mask}) : mask);
      const ValueId marks = m.To(m.Op("Unsqueeze", {m.mask, m.Ints({2})}), 1);
      return m.Reduce("ReduceSum", m.Op("Mul", {y, marks}), {1}, false);
    });
    EXPECT_TRUE(model.rows_ignore_trailing);
    EXPECT_EQ(model.rows_ignore_masked, !biased);
  }
}

// What lies far may be lowered by more than what a mark hides: then all tokens must count.
TEST(RaggedTest, ABiasByDistanceThatIsAsLargeAsWhatHides) {
  Graph graph;
  const auto model = Pack(
      [](Model& m) {
        const ValueId steep = m.Op("Mul", {SlopesBias(m), m.Number(100)});
        const ValueId mask =
            m.Op("Mul", {m.Op("Sub", {m.Number(1), m.To(m.MaskOfKeys(), 1)}), m.Number(-10000)});
        return m.Attention(m.x, m.Op("Add", {steep, mask}));
      },
      graph);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->all_marks, std::vector<int>{2});
}

TEST(RaggedTest, BiasesByMoreThanTheDistanceAreRefused) {
  const auto by = [](Model& m, ValueId at) {
    const ValueId picked = m.Op("Gather", {m.Floats({64, 3}), at});
    return m.Op("Unsqueeze", {m.Transpose(picked, {2, 0, 1}), m.Ints({0})});
  };
  Refuses("(Attention)", [&](Model& m) {  // the places' sum
    return m.Attention(m.x, by(m, m.Op("Add", {m.Range(m.SizeOf(m.x, 1)), RowOfQueries(m)})));
  });
  Refuses("(Attention)", [&](Model& m) {  // the distance from the end
    const ValueId from_end = m.Op("Sub", {m.SizeOf(m.x, 1), m.Range(m.SizeOf(m.x, 1))});
    return m.Attention(m.x, by(m, m.Op("Abs", {m.Op("Sub", {from_end, RowOfQueries(m)})})));
  });
  Refuses("(Attention)", [&](Model& m) {  // the tokens
    const ValueId apart = m.Op(
        "Sub", {m.Op("Unsqueeze", {m.ids, m.Ints({1})}), m.Op("Unsqueeze", {m.ids, m.Ints({2})})});
    const ValueId picked = m.Op("Gather", {m.Floats({64, 3}), m.Op("Abs", {apart})});
    return m.Attention(m.x, m.Transpose(picked, {0, 3, 1, 2}));
  });
  Refuses("(Attention)", [&](Model& m) {  // the query's own mark
    const ValueId own = m.Added(m.Op("Unsqueeze", {m.To(m.mask, 9), m.Ints({1, 3})}));
    return m.Attention(m.x, m.Op("Add", {BucketBias(m), own}));
  });
  Refuses("(Attention)", [&](Model& m) {  // a table that a request brings
    const ValueId row = m.Op("Unsqueeze", {m.Slice(m.r, 0, m.Ints({3}), 1), m.Ints({2, 3})});
    return m.Attention(m.x, m.Op("Add", {BucketBias(m), row}));
  });
  Refuses("(Attention)", [&](Model& m) {  // heads along the axis of queries
    return m.Attention(m.x, m.Op("Transpose", {BucketBias(m)},
                                 Attrs({{"perm", std::vector<int64_t>{0, 2, 1, 3}}})));
  });
}

TEST(RaggedTest, OtherMasks) {
  const auto queries = [](Model& m) {
    return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 1)), m.Ints({1})});
  };
  Refuses("(Attention)", [&](Model& m) {  // by distance
    const ValueId apart = m.Op("Sub", {m.Range(m.SizeOf(m.x, 1)), queries(m)});
    return m.Attention(m.x, m.To(apart, 1));
  });
  Refuses("(Attention)", [&](Model& m) {  // of the query rather than the key
    return m.Attention(m.x, m.Added(m.Op("Unsqueeze", {m.To(m.mask, 9), m.Ints({1, 3})})));
  });
  Refuses("(Attention)", [&](Model& m) {  // by head
    return m.Attention(m.x, m.Op("Mul", {m.To(m.MaskOfKeys(), 1), m.Floats({1, 3, 1, 1})}));
  });
  Refuses("(Attention)", [&](Model& m) {  // of the sequence before
    const ValueId sizes =
        m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({1}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
             Attrs({{"axis", int64_t{0}}}));
    const ValueId first = m.Slice(m.MaskOfKeys(), 0, m.Ints({1}), 0);
    return m.Attention(m.x, m.Added(m.Op("Expand", {first, sizes})));
  });
  Refuses("(Attention)", [&](Model& m) {  // of two inputs
    const ValueId sizes =
        m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({1}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
             Attrs({{"axis", int64_t{0}}}));
    const ValueId shown = m.Op("Unsqueeze", {m.Op("Equal", {m.ids, m.Int(7)}), m.Ints({1, 2})});
    return m.Attention(m.x, m.Added(m.Op("Expand", {m.Op("And", {m.MaskOfKeys(), shown}), sizes})));
  });
  Refuses("(Attention)", [&](Model& m) {  // does not hide
    const ValueId sizes =
        m.Op("Concat", {m.SizeOf(m.x, 0), m.Ints({1}), m.SizeOf(m.x, 1), m.SizeOf(m.x, 1)},
             Attrs({{"axis", int64_t{0}}}));
    return m.Attention(m.x, m.To(m.Op("Expand", {m.MaskOfKeys(), sizes}), 1));
  });
}

// What answers depend on of the tokens that a mask hides.
TEST(RaggedTest, HiddenTokens) {
  const auto attended = [](Model& m) { return m.Attention(m.x, m.Added(m.MaskOfKeys())); };
  const auto weights = [](Model& m) { return m.Op("Unsqueeze", {m.To(m.mask, 1), m.Ints({2})}); };
  const auto mean = [&](Model& m, ValueId of) {
    const ValueId sum = m.Reduce("ReduceSum", m.Op("Mul", {of, weights(m)}), {1}, false);
    return m.Op("Div", {sum, m.Reduce("ReduceSum", weights(m), {1}, false)});
  };
  RaggedModel model = Packs([&](Model& m) { return mean(m, attended(m)); });
  EXPECT_EQ(model.mask, 2);
  EXPECT_TRUE(model.rows_ignore_masked && model.rows_ignore_trailing);
  model = Packs([&](Model& m) {  // 8-bit weights work on tokens one by one
    Tensor codes = Tensor::Allocate(DType::kUInt8, {kWidth, 1, 16});
    for (int64_t i = 0; i < codes.size(); ++i) codes.data<uint8_t>()[i] = uint8_t(7 * i);
    const Attributes attributes =
        Attrs({{"K", kWidth}, {"N", kWidth}, {"bits", int64_t{8}}, {"block_size", int64_t{16}}});
    return mean(m, m.Op("MatMulNBits",
                        {attended(m), m.Constant(std::move(codes)), kNoValue, kNoValue,
                         m.Floats(Shape{kWidth, 1})},
                        attributes, "chairlift"));
  });
  EXPECT_TRUE(model.rows_ignore_masked && model.rows_ignore_trailing);
  model = Packs([&](Model& m) {
    return m.Op("Gather", {attended(m), m.Int(0)}, Attrs({{"axis", int64_t{1}}}));
  });
  EXPECT_TRUE(!model.rows_ignore_masked && model.rows_ignore_trailing);
  model = Packs([&](Model& m) {  // running sums of what hidden tokens bring
    return mean(m, m.Op("Add", {attended(m), m.Op("CumSum", {m.x, m.Int(1)})}));
  });
  EXPECT_TRUE(!model.rows_ignore_masked && model.rows_ignore_trailing);
  model = Packs([&](Model& m) {
    const ValueId sums = m.Op("CumSum", {m.x, m.Int(1)}, Attrs({{"reverse", int64_t{1}}}));
    return mean(m, m.Op("Add", {attended(m), sums}));
  });
  EXPECT_FALSE(model.rows_ignore_masked || model.rows_ignore_trailing);
  model = Packs([&](Model& m) {  // attention that sees all
    return mean(m, m.Attention(m.x, kNoValue));
  });
  EXPECT_FALSE(model.rows_ignore_masked || model.rows_ignore_trailing);
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceSum"}) {
    model = Packs([&](Model& m) { return m.Reduce(op, attended(m), {1}, false); });
    EXPECT_FALSE(model.rows_ignore_masked || model.rows_ignore_trailing) << op;
  }
  model = Packs([&](Model& m) { return m.Slice(attended(m), -1, m.Ints({1 << 30}), 1); });
  EXPECT_FALSE(model.rows_ignore_masked || model.rows_ignore_trailing);
}

TEST(RaggedTest, InputsThatAreNotOfSequences) {
  const auto status = [](std::vector<SymbolicShape> shapes) {
    GraphBuilder b;
    std::vector<ValueId> all;
    for (size_t i = 0; i < shapes.size(); ++i) {
      all.push_back(b.Input("in" + std::to_string(i), DType::kFloat, shapes[i]));
    }
    for (const ValueId id : all) b.Output(b.Op("Neg", {id}));
    Graph graph = std::move(b).Build();
    EXPECT_TRUE(InferShapes(graph).ok());
    return MakeRagged(graph).status();
  };
  const SymbolicShape tokens({kBatch, kLength});
  EXPECT_TRUE(status({tokens}).ok());
  EXPECT_TRUE(status({tokens, SymbolicShape({kBatch, Dim(3)})}).ok());
  EXPECT_TRUE(status({tokens, SymbolicShape({kBatch})}).ok());
  EXPECT_TRUE(status({SymbolicShape({Dim::Unknown(), Dim::Unknown()})}).ok());
  for (const std::vector<SymbolicShape>& shapes : std::vector<std::vector<SymbolicShape>>{
           {SymbolicShape({kBatch, Dim(8)})},
           {SymbolicShape({Dim(1), kLength})},
           {tokens, SymbolicShape({kBatch, Dim::Symbol("other")})},
           {tokens, SymbolicShape({Dim::Symbol("other"), kLength})},
           {tokens, SymbolicShape({Dim::Unknown(), Dim::Unknown()})},
           {SymbolicShape({kLength, kLength})},
           {SymbolicShape({kBatch, kLength, Dim::Symbol("features")})},
           {SymbolicShape({kBatch, kLength, kLength})},
           {SymbolicShape::Scalar()},
           {tokens, SymbolicShape()},
           {}}) {
    EXPECT_EQ(status(shapes).code(), absl::StatusCode::kUnimplemented);
  }
}

// Files say what they like of the shapes inside.
TEST(RaggedTest, DeclaredShapesAreNotBelieved) {
  Model m;
  const ValueId y = m.Op("Reshape", {m.x, m.Ints({2, 3, -1})});
  m.value(y).shape = SymbolicShape({kBatch, kLength, Dim(kWidth)});
  m.Output(y);
  EXPECT_FALSE(MakeRagged(std::move(m).Build()).ok());
}

// ONNX's own Attention over x [batch, length, 6], as three heads.
ValueId OnnxAttention(Model& m, int64_t kv_heads, bool causal, ValueId mask) {
  const auto joined = [&](const char* op, int64_t heads) {
    return m.Op("MatMul", {m.Op(op, {m.x}), m.Floats({kWidth, 2 * heads})});
  };
  std::vector<ValueId> inputs = {joined("Sin", 3), joined("Cos", kv_heads),
                                 joined("Tanh", kv_heads)};
  if (mask != kNoValue) inputs.push_back(mask);
  return m.Op("Attention", inputs,
              Attrs({{"q_num_heads", int64_t{3}},
                     {"kv_num_heads", kv_heads},
                     {"is_causal", int64_t{causal}},
                     {"softcap", causal ? 1.5f : 0.0f}}));
}

TEST(RaggedTest, OnnxAttentionStopsAtTheEndsOfSequences) {
  for (const int64_t kv_heads : {1, 3}) {
    for (const bool causal : {false, true}) {
      RaggedModel model =
          Packs([&](Model& m) { return OnnxAttention(m, kv_heads, causal, kNoValue); });
      EXPECT_EQ(Count(model, "RaggedAttention"), 1);
      Packs([&](Model& m) {
        return m.Reduce("ReduceMax", OnnxAttention(m, kv_heads, causal, m.MaskOfKeys()), {2},
                        false);
      });
      // One token stands for the sequence: which hidden ones it depends on is known.
      model = Packs([&](Model& m) {
        const ValueId y = OnnxAttention(m, kv_heads, causal, m.Added(m.MaskOfKeys()));
        return m.Op("Gather", {y, m.Int(0)}, Attrs({{"axis", int64_t{1}}}));
      });
      EXPECT_GE(model.mask, 0);
      for (const auto& bias : {BucketBias, SlopesBias}) {
        Packs([&](Model& m) {
          const ValueId added = m.Op("Add", {bias(m), m.Added(m.MaskOfKeys())});
          return OnnxAttention(m, kv_heads, causal, added);
        });
      }
    }
  }
  Refuses("(Attention)", [](Model& m) {
    const ValueId heads = m.Heads(m.x);
    return m.Op("Attention", {heads, heads, heads}, Attrs({{"left_window_size", int64_t{1}}}));
  });
}

TEST(RaggedTest, TokensAreTurnedByTheirPlaces) {
  for (const bool joined : {false, true}) {
    Packs([&](Model& m) {
      const auto gathered = [&] { return m.Op("Gather", {m.Floats({kTable, 1}), m.ids}); };
      const ValueId turned =
          m.Op("RotaryEmbedding", {joined ? m.x : m.Heads(m.x), gathered(), gathered()},
               Attrs({{"num_heads", int64_t{3}}}));
      const ValueId back =
          joined ? turned
                 : m.Op("Reshape", {m.Transpose(turned, {0, 2, 1, 3}), m.SizesOf(m.x, {kWidth})});
      return m.Op("RMSNormalization", {back, m.Floats({kWidth})});
    });
  }
}

}  // namespace
}  // namespace chairlift
