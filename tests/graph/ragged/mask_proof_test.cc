// What a mask is proved to hide is what it hides, at any size and of any marks.
#include "graph/ragged/mask_proof.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "graph/infer.h"
#include "graph/ragged/evaluate_values.h"
#include "graph/ragged/form.h"
#include "graph/ragged/small_model.h"

namespace chairlift {
namespace {

using ragged::MaskRule;
using testing::Attrs;
using testing::Model;

constexpr int kMask = 2;  // the place of the marks among the inputs

// As Prepare() leaves it; without outputs where it cannot be.
Graph Named(Graph graph) {
  for (const ValueId id : graph.inputs) {
    SymbolicShape& shape = graph.values[static_cast<size_t>(id)].shape;
    shape[0] = Dim::Symbol(ragged::kBatchSymbol);
    if (!shape[1].known()) shape[1] = Dim::Symbol(ragged::kLengthSymbol);
  }
  if (!InferShapes(graph).ok()) graph.outputs.clear();
  return graph;
}

StatusOr<MaskRule> Prove(const Graph& graph) {
  const std::vector<batch_axis::State> states(graph.values.size());
  StatusOr<MaskRule> rule = ragged::MaskProof(graph, states).RuleOf(graph.outputs[0]);
  if (rule.ok() && (rule->causal || !rule->by_distance.empty())) {
    return Unimplemented("hides by something else than the key's own mark");
  }
  return rule;
}

// Every element of the mask for random marks at several sizes.
void ExpectRule(const Graph& graph, const MaskRule& rule, std::mt19937& random) {
  for (const auto& [batch, length] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 4}, {3, 1}, {2, 5}, {4, 3}, {3, 3}, {1, 70}}) {
    std::map<int, Tensor> inputs;
    inputs[0] = Tensor::Allocate(DType::kFloat, {batch, length, testing::kWidth});
    inputs[1] = Tensor::Allocate(DType::kInt64, {batch, length});
    inputs[kMask] = Tensor::Allocate(DType::kInt64, {batch, length});
    for (int64_t i = 0; i < batch * length; ++i) {
      inputs[1].data<int64_t>()[i] = static_cast<int64_t>(random() % 9);
      inputs[kMask].data<int64_t>()[i] = static_cast<int64_t>(random() % 2);
    }
    const auto added = ragged::EvaluateValues(graph, {graph.outputs.data(), 1}, inputs, {});
    if (!added.ok()) continue;  // the model does not run so
    const Tensor& mask = (*added)[0];
    const int rank = mask.shape().rank();
    ASSERT_LE(rank, 4);
    for (int64_t i = 0; i < mask.size(); ++i) {
      int64_t at = i, key = 0, sequence = 0;
      for (int axis = rank - 1; axis >= 0; --axis) {
        if (axis == rank - 1) key = at % mask.shape()[axis];
        if (axis == rank - 4) sequence = at % mask.shape()[axis];
        at /= mask.shape()[axis];
      }
      const bool counts =
          rule.input < 0 || inputs[rule.input].data<int64_t>()[sequence * length + key] == 1;
      ASSERT_EQ(mask.data<float>()[i], counts ? 0.0f : rule.hidden)
          << "element " << i << " of " << mask.shape().ToString();
    }
  }
}

using Build = std::function<ValueId(Model&)>;

Graph Built(const Build& build) {
  Model m;
  m.Output(m.Added(build(m)));
  return Named(std::move(m).Build());
}

void Proves(const Build& build, int input = kMask) {
  const Graph graph = Built(build);
  ASSERT_FALSE(graph.outputs.empty());
  const auto rule = Prove(graph);
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ(rule->input, input);
  std::mt19937 random(3);
  ExpectRule(graph, *rule, random);
}

void Refuses(const Build& build) {
  const Graph graph = Built(build);
  ASSERT_FALSE(graph.outputs.empty());
  EXPECT_FALSE(Prove(graph).ok()) << "should be refused";
}

// [batch, 1, 1, 1] and [1, 1, 1, length] places.
ValueId Sequences(Model& m) {
  return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 0)), m.Ints({1, 2, 3})});
}
ValueId Keys(Model& m) { return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 1)), m.Ints({0, 1, 2})}); }
ValueId Queries(Model& m) {
  return m.Op("Unsqueeze", {m.Range(m.SizeOf(m.x, 1)), m.Ints({0, 1, 3})});
}
// Marks read at b·length + key.
ValueId Flat(Model& m, ValueId sequences, ValueId keys) {
  const ValueId flat = m.Op("Flatten", {m.To(m.mask, 9)}, Attrs({{"axis", int64_t{2}}}));
  const ValueId at = m.Op("Add", {m.Op("Mul", {sequences, m.SizeOf(m.mask, 1)}), keys});
  const ValueId read = m.Op("Reshape", {m.Op("Gather", {flat, at}), m.Ints({-1})});
  return m.Op("Reshape", {read, m.Op("Shape", {at})});
}
ValueId ByPlace(Model& m, ValueId sequences, ValueId keys) {
  const ValueId shape = m.Op("Shape", {m.Op("Max", {sequences, keys})});
  const auto column = [&](ValueId place) {
    return m.Op("Unsqueeze", {m.Op("Expand", {place, shape}), m.Ints({-1})});
  };
  const ValueId at =
      m.Op("Concat", {column(sequences), column(keys)}, Attrs({{"axis", int64_t{-1}}}));
  return m.Op("GatherND", {m.To(m.mask, 9), at});
}

TEST(MaskProofTest, FollowsMarksToTheirKeys) {
  Proves([](Model& m) { return m.MaskOfKeys(); });
  Proves([](Model& m) { return Flat(m, Sequences(m), Keys(m)); });
  Proves([](Model& m) { return ByPlace(m, Sequences(m), Keys(m)); });
  Proves([](Model& m) {
    const ValueId always = m.Op("GreaterOrEqual", {Queries(m), m.Int(0)});
    return m.Op("And", {always, Flat(m, Sequences(m), Keys(m))});
  });
  Proves([](Model& m) {  // every place is before the end
    return m.Op("And", {m.Op("Less", {Queries(m), m.SizeOf(m.x, 1)}), m.MaskOfKeys()});
  });
  Proves([](Model& m) { return m.Op("GreaterOrEqual", {Queries(m), m.Int(0)}); }, -1);
  Proves([](Model& m) { return m.Op("Equal", {m.MaskOfKeys(), m.MaskOfKeys()}); }, -1);
}

// Without a token that counts, a key that is lowered by less than another one counts.
TEST(MaskProofTest, RefusesKeysHiddenByDifferentNumbers) {
  const auto mask = [](float of_later) {
    Model m;
    const ValueId later = m.Op("Greater", {Keys(m), Queries(m)});
    const ValueId hidden = m.Op("Where", {later, m.Number(of_later), m.Number(-1e9f)});
    m.Output(m.Op("Where", {m.MaskOfKeys(), m.Number(0), hidden}));
    return Prove(Named(std::move(m).Build()));
  };
  EXPECT_TRUE(mask(-1e9f).ok()) << mask(-1e9f).status();
  EXPECT_FALSE(mask(-3e38f).ok());
}

TEST(MaskProofTest, RefusesMarksOfOtherTokens) {
  Refuses([](Model& m) { return Flat(m, Sequences(m), Queries(m)); });
  Refuses([](Model& m) { return ByPlace(m, Sequences(m), Queries(m)); });
  Refuses([](Model& m) {  // sequences and tokens change places
    return ByPlace(m, Keys(m), Sequences(m));
  });
  Refuses([](Model& m) {  // the key before
    return Flat(m, Sequences(m), m.Op("Sub", {Keys(m), m.Int(1)}));
  });
  Refuses([](Model& m) {  // the first sequence's
    return Flat(m, m.Op("Mul", {Sequences(m), m.Int(0)}), Keys(m));
  });
  Refuses([](Model& m) {  // the first sequence's, sliced
    const ValueId first = m.Op("Slice", {m.To(m.mask, 9), m.Ints({0}), m.Ints({1}), m.Ints({0})});
    return m.Op("Unsqueeze", {first, m.Ints({1})});
  });
  Refuses([](Model& m) { return m.Op("LessOrEqual", {Keys(m), Queries(m)}); });
  Refuses([](Model& m) { return m.Op("Less", {Keys(m), m.Int(40)}); });
  Refuses([](Model& m) { return m.Op("Not", {m.MaskOfKeys()}); });
  Refuses([](Model& m) { return m.Op("Unsqueeze", {m.To(m.mask, 9), m.Ints({1, 3})}); });
  Refuses([](Model& m) {
    return m.Op("Equal", {m.MaskOfKeys(), m.Op("Unsqueeze", {m.To(m.ids, 9), m.Ints({1, 2})})});
  });
  Refuses([](Model& m) {  // as many as there are tokens, in another order
    const ValueId turned = m.Op("Concat", {m.SizeOf(m.x, 1), m.Ints({1, 1}), m.SizeOf(m.x, 0)},
                                Attrs({{"axis", int64_t{0}}}));
    return m.Op("Reshape", {m.To(m.mask, 9), turned});
  });
}

// Puts masks together at random: whatever is proved holds.
class RandomMask {
 public:
  explicit RandomMask(uint32_t seed) : random_(seed) {}

  Graph Build() {
    places_ = {Sequences(m_), Keys(m_), Queries(m_), m_.Int(0), m_.Int(1), m_.SizeOf(m_.x, 1)};
    bools_ = {m_.MaskOfKeys(), m_.MaskOfKeys()};
    const int nodes = 2 + static_cast<int>(Below(7));
    for (int i = 0; i < nodes; ++i) Add();
    m_.Output(m_.Added(bools_.back()));
    return Named(std::move(m_).Build());
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  ValueId Any(const std::vector<ValueId>& of) {
    return of[Below(static_cast<uint32_t>(of.size()))];
  }
  // Mostly the places that marks have.
  ValueId Sequence() { return Below(4) == 0 ? Any(places_) : places_[0]; }
  ValueId Key() { return Below(4) == 0 ? Any(places_) : places_[1]; }

  void Add() {
    switch (Below(9)) {
      case 0:
        places_.push_back(m_.Op(std::vector<std::string>{"Add", "Sub", "Mul", "Max"}[Below(4)],
                                {Any(places_), Any(places_)}));
        break;
      case 1:
      case 2:
        bools_.push_back(m_.Op(std::vector<std::string>{"Less", "LessOrEqual", "Greater",
                                                        "GreaterOrEqual", "Equal"}[Below(5)],
                               {Any(places_), Any(places_)}));
        [[fallthrough]];
      case 3:
        bools_.push_back(m_.Op(Below(4) == 0 ? "Or" : "And", {Any(bools_), Any(bools_)}));
        break;
      case 4:
        bools_.push_back(Flat(m_, Sequence(), Key()));
        break;
      case 5:
        bools_.push_back(ByPlace(m_, Sequence(), Key()));
        break;
      case 6:
        if (Below(3) == 0) bools_.push_back(m_.Op("Not", {Any(bools_)}));
        break;
      case 7:
        bools_.push_back(m_.Op("Where", {Any(bools_), Any(bools_), Any(bools_)}));
        break;
      default: {
        const ValueId sizes = m_.Op(
            "Concat", {m_.SizeOf(m_.x, 0), m_.Ints({1}), m_.SizeOf(m_.x, 1), m_.SizeOf(m_.x, 1)},
            Attrs({{"axis", int64_t{0}}}));
        bools_.push_back(m_.Op(Below(2) == 0 ? "Expand" : "Reshape", {Any(bools_), sizes}));
      }
    }
  }

  std::mt19937 random_;
  Model m_;
  std::vector<ValueId> places_, bools_;
};

TEST(MaskProofTest, WhatIsProvedAtRandomHolds) {
  std::mt19937 random(7);
  int proved = 0, refused = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    const Graph graph = RandomMask(seed).Build();
    if (graph.outputs.empty()) continue;
    const auto rule = Prove(graph);
    ++(rule.ok() ? proved : refused);
    if (!rule.ok()) continue;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ExpectRule(graph, *rule, random);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
  EXPECT_GT(proved, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace chairlift
