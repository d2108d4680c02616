// Recurrent models as exporters write them, and the check that their cells give what the whole
// does.
#ifndef CHAIRLIFT_TESTS_RUNTIME_SLICED_MODELS_H_
#define CHAIRLIFT_TESTS_RUNTIME_SLICED_MODELS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/cells/sliced_model.h"
#include "graph/graph_builder.h"
#include "runtime/cell_interpreter.h"
#include "runtime/executable.h"

namespace chairlift::testing {

using Ints = std::vector<int64_t>;

inline constexpr int64_t kFeatures = 5;
inline constexpr int64_t kSlicedHidden = 4;

inline Dim B() { return Dim::Symbol("batch"); }
inline Dim T() { return Dim::Symbol("time"); }
inline SymbolicShape Dims(std::vector<Dim> dims) { return SymbolicShape(std::move(dims)); }

// Builds models as exporters write them.
class ModelMaker : public GraphBuilder {
 public:
  explicit ModelMaker(uint32_t seed = 1) : random_(seed) {}

  ValueId Weights(const Shape& shape, float scale = 0.5f) {
    Tensor t = Tensor::Allocate(DType::kFloat, shape);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = normal(random_);
    return Constant(std::move(t));
  }
  ValueId Numbers(const Ints& values) {
    return Constant(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                        std::span<const int64_t>(values)));
  }
  ValueId Number(int64_t value) { return Constant(Tensor::Scalar<int64_t>(value)); }
  ValueId Transpose(ValueId x, Ints perm) {
    return Op("Transpose", {x}, Attrs({{"perm", std::move(perm)}}));
  }
  ValueId Reshape(ValueId x, const Ints& dims) { return Op("Reshape", {x, Numbers(dims)}); }
  ValueId Squeeze(ValueId x, int64_t axis) { return Op("Squeeze", {x, Numbers({axis})}); }
  ValueId Unsqueeze(ValueId x, int64_t axis) { return Op("Unsqueeze", {x, Numbers({axis})}); }
  ValueId Gather(ValueId x, ValueId indices, int64_t axis) {
    return Op("Gather", {x, indices}, Attrs({{"axis", axis}}));
  }
  ValueId Concat(std::vector<ValueId> parts, int64_t axis) {
    return Op("Concat", std::move(parts), Attrs({{"axis", axis}}));
  }
  ValueId Size(ValueId x, int64_t axis) {  // of one dimension, [1]
    return Unsqueeze(Gather(Op("Shape", {x}), Number(axis), 0), 0);
  }
  ValueId Zeros(std::vector<ValueId> dims) {
    return Op("ConstantOfShape", {Concat(std::move(dims), 0)},
              Attrs({{"value", Tensor::Of<float>(Shape{1}, {0.0f})}}));
  }
  ValueId Linear(ValueId x, int64_t in, int64_t out) {
    return Op("Add", {Op("MatMul", {x, Weights({in, out})}), Weights({out})});
  }

  struct Options {
    std::string op = "LSTM";
    std::string direction = "forward";
    bool batch_first = false;  // layout 1
    bool bias = true;
    bool peepholes = false;
    ValueId lengths = kNoValue;
    ValueId h = kNoValue;
    ValueId c = kNoValue;
    int64_t hidden = kSlicedHidden;
    Attributes attributes;
  };
  // Y, Y_h and, of LSTM, Y_c.
  std::vector<ValueId> Recurrent(ValueId x, int64_t features, Options o) {
    const int64_t directions = o.direction == "bidirectional" ? 2 : 1;
    const int64_t gates = o.op == "LSTM" ? 4 : o.op == "GRU" ? 3 : 1;
    std::vector<ValueId> inputs = {x,
                                   Weights({directions, gates * o.hidden, features}),
                                   Weights({directions, gates * o.hidden, o.hidden}),
                                   o.bias ? Weights({directions, 2 * gates * o.hidden}) : kNoValue,
                                   o.lengths,
                                   o.h};
    if (o.op == "LSTM") inputs.push_back(o.c);
    if (o.peepholes) inputs.push_back(Weights({directions, 3 * o.hidden}));
    o.attributes.Set("hidden_size", o.hidden);
    o.attributes.Set("direction", o.direction);
    if (o.batch_first) o.attributes.Set("layout", int64_t{1});
    return Call(*OperatorRegistry::Builtin().Find("", o.op), std::move(inputs),
                o.op == "LSTM" ? 3 : 2, std::move(o.attributes));
  }

  Graph Done() && {
    Graph graph = std::move(*this).Build();
    const Status verified = Verify(graph);
    EXPECT_TRUE(verified.ok()) << verified;
    const Status inferred = InferShapes(graph);
    EXPECT_TRUE(inferred.ok()) << inferred;
    return graph;
  }

 private:
  std::mt19937 random_;
};

inline std::string Describe(const SlicedModel& model) {
  std::string text;
  for (const SlicedCell& cell : model.cells) {
    text += cell.kind == SlicedCell::Kind::kLanes    ? "lanes "
            : cell.kind == SlicedCell::Kind::kTokens ? "tokens "
                                                     : "step ";
    text += cell.name + ":";
    for (int v : cell.inputs) text += " " + (v < 0 ? "state" : model.values[v].name);
    text += " ->";
    for (int v : cell.outputs) text += " " + (v < 0 ? "state" : model.values[v].name);
    text += "\n";
    for (const Node& node : cell.graph->nodes) text += "    " + node.def->name + "\n";
  }
  return text;
}

inline std::string Kinds(const SlicedModel& model) {
  std::string kinds;
  for (const SlicedCell& cell : model.cells) {
    kinds += cell.kind == SlicedCell::Kind::kLanes    ? 'L'
             : cell.kind == SlicedCell::Kind::kTokens ? 'T'
                                                      : 'R';
  }
  return kinds;
}

// Random inputs of one request. Integers are below `classes`, or, named "lengths", lengths.
inline std::vector<Tensor> RandomRequest(const Graph& graph, std::mt19937& random,
                                         int64_t classes) {
  std::map<std::string, int64_t> symbols;
  std::vector<Tensor> inputs;
  for (ValueId id : graph.inputs) {
    const Value& value = graph.values[id];
    Shape shape;
    for (const Dim& dim : value.shape.dims()) {
      if (!dim.known() && !symbols.contains(dim.symbol())) {
        const int64_t most = dim.symbol() == "batch" ? 3 : 7;
        symbols[dim.symbol()] = std::uniform_int_distribution<int64_t>(1, most)(random);
      }
      shape.Append(dim.known() ? dim.value() : symbols[dim.symbol()]);
    }
    Tensor t = Tensor::Allocate(value.dtype, shape);
    const int64_t low = value.name == "lengths" ? 1 : 0;
    const int64_t high = value.name != "lengths"    ? classes - 1
                         : symbols.contains("time") ? symbols["time"]
                                                    : 1;
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t n = std::uniform_int_distribution<int64_t>(low, high)(random);
      if (value.dtype == DType::kInt64) t.data<int64_t>()[i] = n;
      if (value.dtype == DType::kInt32) t.data<int32_t>()[i] = static_cast<int32_t>(n);
      if (value.dtype == DType::kFloat) {
        t.data<float>()[i] = std::normal_distribution<float>(0.0f, 1.0f)(random);
      }
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

inline void ExpectClose(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  if (got.dtype() == DType::kInt64) {
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got.data<int64_t>()[i], want.data<int64_t>()[i]) << "at " << i;
    }
    return;
  }
  ASSERT_EQ(got.dtype(), DType::kFloat);
  for (int64_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i],
                1e-5f * (1 + std::abs(want.data<float>()[i])))
        << "at " << i;
  }
}

// Slices, runs several requests together, and compares each with the whole model on its own.
inline void Check(Graph graph, const std::string& kinds = "", const SliceOptions& options = {}) {
  const StatusOr<SlicedModel> sliced = SliceIntoCells(graph, options);
  ASSERT_TRUE(sliced.ok()) << sliced.status();
  SCOPED_TRACE(Describe(*sliced));
  if (!kinds.empty()) {
    EXPECT_EQ(Kinds(*sliced), kinds);
  }
  auto cells = CellInterpreter::Create(*sliced);
  ASSERT_TRUE(cells.ok()) << cells.status();
  auto whole = Executable::Create(graph, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::mt19937 random(7);
  SoloTeam team;
  Arena arena;
  std::vector<std::vector<Tensor>> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(RandomRequest(graph, random, 9));
  const auto got = cells->Run(requests, random);
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto want = (*whole)->Run(requests[r], team, 0, arena);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_EQ((*got)[r].size(), want->size());
    for (size_t o = 0; o < want->size(); ++o) {
      SCOPED_TRACE("request " + std::to_string(r) + " output " + std::to_string(o));
      ExpectClose((*got)[r][o], (*want)[o]);
    }
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_RUNTIME_SLICED_MODELS_H_
