// Small graphs over tokens, and requests for them.
#ifndef CHAIRLIFT_TESTS_GRAPH_RAGGED_SMALL_MODEL_H_
#define CHAIRLIFT_TESTS_GRAPH_RAGGED_SMALL_MODEL_H_

#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/ragged/packed_requests.h"

namespace chairlift::testing {

inline const Dim kBatch = Dim::Symbol("batch"), kLength = Dim::Symbol("length");
inline constexpr int64_t kWidth = 6, kTable = 12;

// A graph over x [batch, length, 6], ids and mask [batch, length], r [batch, 6].
class Model : public GraphBuilder {
 public:
  Model() {
    x = Input("x", DType::kFloat, SymbolicShape({kBatch, kLength, Dim(kWidth)}));
    ids = Input("ids", DType::kInt64, SymbolicShape({kBatch, kLength}));
    mask = Input("mask", DType::kInt64, SymbolicShape({kBatch, kLength}));
    r = Input("r", DType::kFloat, SymbolicShape({kBatch, Dim(kWidth)}));
  }
  ValueId Ints(const std::vector<int64_t>& values) {
    return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                        std::span<const int64_t>(values)));
  }
  ValueId Int(int64_t value) { return Constant(Tensor::Scalar(value)); }
  ValueId Number(float value) { return Constant(Tensor::Scalar(value)); }
  ValueId Floats(const Shape& shape) { return Constant(RandomFloats(random_, shape)); }
  ValueId To(ValueId from, int64_t type) { return Op("Cast", {from}, Attrs({{"to", type}})); }
  // [1].
  ValueId SizeOf(ValueId from, int64_t axis) {
    return Op("Shape", {from}, Attrs({{"start", axis}, {"end", axis + 1}}));
  }
  ValueId SizesOf(ValueId from, std::vector<int64_t> more = {}) {
    std::vector<ValueId> parts = {SizeOf(from, 0), SizeOf(from, 1)};
    if (!more.empty()) parts.push_back(Ints(more));
    return Op("Concat", parts, Attrs({{"axis", int64_t{0}}}));
  }
  ValueId Scalar(ValueId from) { return Op("Squeeze", {from, Ints({0})}); }
  ValueId Along(const char* op, ValueId from, int64_t axis) {
    return Op(op, {from}, Attrs({{"axis", axis}}));
  }
  ValueId Along2(const char* op, ValueId a, ValueId b, int64_t axis) {
    return Op(op, {a, b}, Attrs({{"axis", axis}}));
  }
  ValueId Reduce(const char* op, ValueId from, std::vector<int64_t> axes, bool keep) {
    return Op(op, {from, Ints(axes)}, Attrs({{"keepdims", int64_t{keep}}}));
  }
  ValueId Range(ValueId limit) { return Op("Range", {Int(0), Scalar(limit), Int(1)}); }
  ValueId Slice(ValueId from, int64_t start, ValueId end, int64_t axis, int64_t step = 1) {
    return Op("Slice", {from, Ints({start}), end, Ints({axis}), Ints({step})});
  }
  ValueId Transpose(ValueId from, std::vector<int64_t> perm) {
    return Op("Transpose", {from}, Attrs({{"perm", std::move(perm)}}));
  }
  // Three heads of two columns, [batch, 3, length, 2].
  ValueId Heads(ValueId from) {
    return Transpose(Op("Reshape", {from, SizesOf(from, {3, 2})}), {0, 2, 1, 3});
  }
  // With what is to be added to [batch, 3, length, length]; kNoValue: nothing.
  ValueId Attention(ValueId from, ValueId added) {
    const ValueId keys = Transpose(Heads(Op("Sin", {from})), {0, 1, 3, 2});
    ValueId scores = Op("MatMul", {Heads(from), keys});
    if (added != kNoValue) scores = Op("Add", {scores, added});
    const ValueId y = Op("MatMul", {Along("Softmax", scores, -1), Heads(Op("Cos", {from}))});
    return Op("Reshape", {Transpose(y, {0, 2, 1, 3}), SizesOf(from, {kWidth})});
  }
  // 0 where `counts` holds, −∞ elsewhere.
  ValueId Added(ValueId counts) {
    return Op("Where", {counts, Number(0), Number(-std::numeric_limits<float>::infinity())});
  }
  ValueId MaskOfKeys() {  // [batch, 1, 1, length]
    return Op("Unsqueeze", {To(mask, 9), Ints({1, 2})});
  }

  ValueId x, ids, mask, r;

 private:
  std::mt19937 random_{9};
};

// Requests of at least `shortest` tokens, some of which the mask hides; never the first.
inline std::vector<Request> Requests(int64_t shortest) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (const auto& [batch, length] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 5}, {1, 12}, {3, 1}, {1, 2}, {4, 3}}) {
    if (length < shortest) continue;
    Tensor ids = Tensor::Allocate(DType::kInt64, Shape{batch, length});
    Tensor mask = Tensor::Allocate(DType::kInt64, Shape{batch, length});
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids.data<int64_t>()[i] = static_cast<int64_t>(random() % kTable);
      mask.data<int64_t>()[i] = i % length == 0 || random() % 3 != 0;
    }
    requests.push_back({.batch = batch,
                        .length = length,
                        .inputs = {RandomFloats(random, {batch, length, kWidth}), ids, mask,
                                   RandomFloats(random, {batch, kWidth})}});
  }
  return requests;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_RAGGED_SMALL_MODEL_H_
