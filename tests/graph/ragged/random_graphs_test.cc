// Graphs put together at random: whatever of them is packed answers as before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "graph/batch_axis.h"
#include "graph/batch_axis/propagate.h"
#include "graph/passes/passes.h"
#include "graph/ragged/evaluate_values.h"
#include "graph/ragged/packed_requests.h"
#include "graph/ragged/packer.h"
#include "graph/ragged/small_model.h"
#include "ops/random_tensor.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Attrs;
using testing::ExpectSameAnswers;
using testing::Kept;
using testing::kTable;
using testing::kWidth;
using testing::Model;
using testing::Request;
using testing::Requests;

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  // One output for each node that has a shape.
  Graph Build(int nodes) {
    values_ = {m_.x, m_.ids, m_.mask, m_.r, m_.x, m_.x};
    sizes_ = {m_.SizeOf(m_.x, 0), m_.SizeOf(m_.x, 1), m_.SizeOf(m_.ids, 1)};
    for (int i = 0; i < nodes; ++i) {
      values_.push_back(Add());
      m_.Output(values_.back());
    }
    return std::move(m_).Build();
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  ValueId Any() {
    // Mostly something late, so that nodes follow on each other.
    const auto n = static_cast<uint32_t>(values_.size());
    return values_[Below(3) == 0 ? Below(n) : n - 1 - Below(std::min<uint32_t>(n, 4))];
  }
  ValueId Size() { return sizes_[Below(static_cast<uint32_t>(sizes_.size()))]; }
  int64_t Axis() { return static_cast<int64_t>(Below(5)) - 2; }
  ValueId Floats(ValueId of) { return m_.To(of, 1); }
  template <typename T>
  T OneOf(std::initializer_list<T> list) {
    return *(list.begin() + Below(static_cast<uint32_t>(list.size())));
  }
  ValueId Wanted() {  // a shape
    std::vector<ValueId> parts;
    const uint32_t rank = 1 + Below(4);
    for (uint32_t i = 0; i < rank; ++i) {
      parts.push_back(Below(2) == 0 ? Size() : m_.Ints({OneOf<int64_t>({-1, 0, 1, 2, 3, 6})}));
    }
    return m_.Op("Concat", parts, Attrs({{"axis", int64_t{0}}}));
  }

  ValueId Add() {
    switch (Below(30)) {
      case 0:
        return m_.Op(OneOf({"Relu", "Neg", "Abs"}), {Any()});
      case 1:
      case 2:
        return m_.Op(OneOf({"Add", "Mul", "Sub", "Max"}), {Floats(Any()), Floats(Any())});
      case 3:
        return m_.Transpose(Any(), OneOf<std::vector<int64_t>>(
                                       {{1, 0, 2}, {0, 2, 1}, {0, 2, 1, 3}, {1, 0}, {0, 1, 3, 2}}));
      case 4:
        return m_.Op("Reshape", {Any(), Wanted()});
      case 5:
        return m_.Op(
            "Reshape",
            {Any(), m_.Ints(OneOf<std::vector<int64_t>>(
                        {{0, 0, 3, 2}, {0, -1, 6}, {-1, 6}, {0, 0, 6}, {0, -1}, {-1, 3, 2}}))});
      case 6:
        return m_.Op("Unsqueeze", {Any(), m_.Ints({Axis()})});
      case 7:
        return m_.Op("Squeeze", {Any(), m_.Ints({Axis()})});
      case 8:
        return m_.Op("Expand", {Any(), Wanted()});
      case 9:
      case 10:
        return m_.Reduce(OneOf({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}),
                         Floats(Any()), {OneOf<int64_t>({1, 1, -1, 2, 0})}, Below(2) == 0);
      case 11:
        return m_.Along("Softmax", Floats(Any()), Axis());
      case 12:
        return m_.Slice(Any(), OneOf<int64_t>({0, 0, 1, -1}),
                        Below(2) == 0 ? Size() : m_.Ints({OneOf<int64_t>({1, 2, -1, 1 << 30})}),
                        Axis(), OneOf<int64_t>({1, 1, 2}));
      case 13:
        return m_.Op("Gather", {Any(), m_.Int(OneOf<int64_t>({0, 0, 1, -1}))},
                     Attrs({{"axis", OneOf<int64_t>({1, 1, 0, -1})}}));
      case 14:
        return m_.Op("Concat", {Any(), Any()}, Attrs({{"axis", Axis()}}));
      case 15:
        return m_.Op("CumSum", {Floats(Any()), m_.Int(OneOf<int64_t>({1, 1, 0, -1}))},
                     Attrs({{"reverse", static_cast<int64_t>(Below(2))}}));
      case 16:
        if (Below(3) == 0) {
          return m_.Op("MatMul", {m_.Floats({OneOf<int64_t>({1, 1, 2}), 2, OneOf<int64_t>({6, 1})}),
                                  Floats(Any())});
        }
        return m_.Op("MatMul", {Floats(Any()), m_.Floats({OneOf<int64_t>({6, 6, 2}), 6})});
      case 17:
        return m_.Op("LayerNormalization", {Floats(Any()), m_.Number(1)},
                     Attrs({{"axis", Axis()}}));
      case 18:
        return m_.Range(Size());
      case 19:
        return m_.Op("Gather", {m_.Floats({kTable, kWidth}), OneOf({m_.ids, m_.mask})});
      case 20:
        sizes_.push_back(m_.Op(OneOf({"Mul", "Sub", "Div"}), {Size(), Size()}));
        return m_.Op("Add", {Any(), m_.Slice(m_.Floats({kTable, kWidth}), 0, Size(), 0)});
      case 21:
        return m_.Op("Flatten", {Any()}, Attrs({{"axis", static_cast<int64_t>(Below(4))}}));
      case 22:
        return m_.Op("Tile", {Any(), OneOf({m_.Ints({1, 1, 2}), m_.Ints({1, 2}),
                                            m_.Op("Concat", {Size(), m_.Ints({1, 1})},
                                                  Attrs({{"axis", int64_t{0}}}))})});
      case 23:
        return m_.Op("Add", {Floats(Any()), m_.To(m_.Op("ConstantOfShape", {Wanted()}), 1)});
      case 24: {
        if (Below(2) == 0) {
          const ValueId wanted = m_.Op("Concat", {m_.SizeOf(m_.ids, 0), m_.Ints({kTable})},
                                       Attrs({{"axis", int64_t{0}}}));
          const ValueId table = m_.Op("Expand", {m_.Floats({1, kTable}), wanted});
          return m_.Op("GatherElements", {table, m_.ids}, Attrs({{"axis", int64_t{1}}}));
        }
        const ValueId from = Any();
        return m_.Op("GatherElements", {from, OneOf({m_.ids, from})}, Attrs({{"axis", Axis()}}));
      }
      case 25: {
        // The batch, by its long way.
        const ValueId size = m_.Op("Reshape", {m_.Op("Size", {m_.r}), m_.Ints({1})});
        sizes_.push_back(m_.Op("Div", {size, m_.Ints({kWidth})}));
        return m_.Op("Expand", {m_.Op("Identity", {Any()}), sizes_.back()});
      }
      case 26:
        sizes_.push_back(m_.Op("Where", {m_.Op("Equal", {Size(), m_.Ints({-1})}), Size(),
                                         m_.Op("Identity", {Size()})}));
        return m_.Op("Range", {m_.Int(0), m_.Scalar(Size()), m_.Int(1)});
      case 27:
        return m_.Op("ArgMax", {m_.To(OneOf({Any(), m_.ids, m_.x}), OneOf<int64_t>({6, 7, 7, 1}))},
                     Attrs({{"axis", OneOf<int64_t>({1, 1, -1, 0, 2})},
                            {"keepdims", static_cast<int64_t>(Below(2))},
                            {"select_last_index", static_cast<int64_t>(Below(2))}}));
      case 28: {
        const ValueId numbers = m_.Range(Below(3) == 0 ? Size() : m_.SizeOf(m_.x, 0));
        const ValueId last = m_.Op("Sub", {m_.Reduce("ReduceSum", m_.mask, {1}, false), m_.Int(1)});
        const ValueId column = m_.Op("Unsqueeze", {last, m_.Ints({-1})});
        if (Below(3) == 0) {
          return m_.Op("GatherND", {Any(), column},
                       Attrs({{"batch_dims", static_cast<int64_t>(Below(2))}}));
        }
        const ValueId at = m_.Op("Concat", {m_.Op("Unsqueeze", {numbers, m_.Ints({-1})}), column},
                                 Attrs({{"axis", int64_t{1}}}));
        return m_.Op("GatherND", {OneOf({Any(), m_.x, m_.ids}), at});
      }
      default: {
        const ValueId apart =
            m_.Op("Sub", {m_.Op("Unsqueeze", {m_.Range(m_.SizeOf(m_.x, 1)), m_.Ints({1})}),
                          m_.Range(m_.SizeOf(m_.x, 1))});
        const ValueId before = m_.Op("LessOrEqual", {apart, m_.Int(OneOf<int64_t>({0, 4, 4000}))});
        const ValueId counts =
            OneOf({m_.MaskOfKeys(), before, m_.Op("And", {m_.MaskOfKeys(), before})});
        return m_.Attention(m_.x, Below(4) == 0 ? kNoValue : m_.Added(counts));
      }
    }
  }

  std::mt19937 random_;
  Model m_;
  std::vector<ValueId> values_, sizes_;
};

// Rules of which no graph was packed (shared a batch).
std::string Unseen(const auto& rules, const std::set<std::string>& seen) {
  std::string names;
  for (const auto& [name, rule] : rules) {
    if (!seen.contains(name)) names += " " + name;
  }
  return names;
}

void AddNames(const Graph& graph, std::set<std::string>& names) {
  for (const Node& node : graph.nodes) names.insert(node.def->name);
}

// The entry along axis 0 of each.
std::vector<Tensor> RowOf(const std::vector<Tensor>& tensors, int64_t row) {
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) {
    Shape shape = t.shape();
    const size_t bytes = t.byte_size() / static_cast<size_t>(shape[0]);
    shape[0] = 1;
    rows.push_back(Tensor::Allocate(t.dtype(), shape));
    std::memcpy(rows.back().raw(),
                static_cast<const std::byte*>(t.raw()) + static_cast<size_t>(row) * bytes, bytes);
  }
  return rows;
}

std::map<int, Tensor> ByPlace(const std::vector<Tensor>& inputs) {
  std::map<int, Tensor> by_place;
  for (size_t i = 0; i < inputs.size(); ++i) by_place[static_cast<int>(i)] = inputs[i];
  return by_place;
}

TEST(RaggedRandomTest, WhatIsPackedAnswersAsBefore) {
  int packed = 0, refused = 0;
  std::set<std::string> seen;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    Graph whole = RandomGraph(seed).Build(14);
    std::vector<ValueId> outputs = std::move(whole.outputs);
    for (const ValueId output : outputs) {
      Graph graph = whole;
      graph.outputs = {output};
      std::vector<std::string> notes;
      for (const Pass& pass : AllPasses()) {
        if (std::string(pass.name) == "remove_dead_nodes") {
          ASSERT_TRUE(pass.run(graph, notes).ok());
        }
      }
      if (!InferShapes(graph).ok()) continue;
      const auto model = MakeRagged(graph);
      if (!model.ok()) {
        ASSERT_EQ(Message(model.status()).find("packed it"), std::string::npos)
            << "seed " << seed << ": " << model.status();
        ++refused;
        continue;
      }
      std::vector<Request> requests;
      for (Request& request : Requests(model->min_length)) {
        if (model->max_length > 0 && request.length > model->max_length) continue;
        if (ragged::EvaluateValues(graph, graph.outputs, ByPlace(request.inputs), {}).ok()) {
          requests.push_back(std::move(request));
        }
      }
      if (!model->all_marks.empty()) {  // others run alone
        for (Request& request : requests) {
          Tensor& mask = request.inputs[static_cast<size_t>(model->all_marks[0])];
          std::fill_n(mask.data<int64_t>(), mask.size(), int64_t{1});
        }
      }
      if (requests.empty()) continue;
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", output " << output);
      ExpectSameAnswers(graph, *model, requests, Kept::kAll, 3);
      if (model->rows_ignore_trailing) {
        ExpectSameAnswers(graph, *model, requests, Kept::kUpToLastCounted);
      }
      if (model->rows_ignore_masked) ExpectSameAnswers(graph, *model, requests, Kept::kCounted);
      if (HasFatalFailure() || HasNonfatalFailure()) return;
      ++packed;
      AddNames(graph, seen);
    }
  }
  EXPECT_EQ(Unseen(ragged::PackingRules(), seen), "");
  EXPECT_GT(packed, 800);
  EXPECT_GT(refused, 1000);
}

TEST(RandomGraphTest, WhatSharesABatchAnswersRowByRow) {
  int shared = 0, refused = 0;
  std::set<std::string> seen;
  for (uint32_t seed = 1000; seed < 1600; ++seed) {
    Graph whole = RandomGraph(seed).Build(10);
    std::vector<ValueId> outputs = std::move(whole.outputs);
    for (const ValueId output : outputs) {
      Graph graph = whole;
      graph.outputs = {output};
      std::vector<std::string> notes;
      ASSERT_TRUE(RemoveDeadNodes().run(graph, notes).ok());
      if (!InferShapes(graph).ok()) continue;
      if (!AnalyseBatchAxis(graph).batches) {
        ++refused;
        continue;
      }
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", output " << output);
      for (const Request& request : Requests(1)) {
        const auto together =
            ragged::EvaluateValues(graph, graph.outputs, ByPlace(request.inputs), {});
        if (!together.ok()) continue;
        for (int64_t row = 0; row < request.batch; ++row) {
          const auto alone =
              ragged::EvaluateValues(graph, graph.outputs, ByPlace(RowOf(request.inputs, row)), {});
          ASSERT_TRUE(alone.ok()) << alone.status();
          const Tensor want = RowOf(*together, row)[0];
          ASSERT_TRUE((*alone)[0].shape() == want.shape()) << "row " << row;
          const std::vector<double> a = AsDoubles((*alone)[0]), b = AsDoubles(want);
          for (size_t i = 0; i < a.size(); ++i) {
            if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
            ASSERT_NEAR(a[i], b[i], 1e-4 * std::max(1.0, std::abs(b[i]))) << "row " << row;
          }
        }
      }
      ++shared;
      AddNames(graph, seen);
    }
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(refused, 1000);
  // Those of images are compared in tests/ops alone.
  seen.insert({"AffineGrid", "Resize"});
  EXPECT_EQ(Unseen(batch_axis::BatchRules(), seen), "");
}

}  // namespace
}  // namespace chairlift
