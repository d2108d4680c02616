// Embeddings picked, added and normalised at once, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;

constexpr float kEpsilon = 1e-3f;
constexpr double kTolerance = 2e-5;  // of 1 + |y|: sums of some 10 are divided by as little as 0.03

Tensor RandomIndex(DType dtype, const Shape& shape, int64_t bound, uint32_t seed) {
  std::mt19937 random(seed);
  Tensor t = Tensor::Allocate(dtype, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t v = static_cast<int64_t>(random() % static_cast<uint32_t>(2 * bound)) - bound;
    if (dtype == DType::kInt64) t.data<int64_t>()[i] = v;
    if (dtype == DType::kInt32) t.data<int32_t>()[i] = static_cast<int32_t>(v);
  }
  return t;
}

struct Term {
  Tensor values;
  Tensor index;  // may be absent

  Shape leading() const {
    return index.present() ? index.shape()
                           : Shape(values.shape().dims().first(values.shape().dims().size() - 1));
  }
  // Element `column` of the row for entry `at`, of `out`.
  double At(const Shape& out, const std::vector<int64_t>& at, int64_t column) const {
    const Shape own = leading();
    int64_t row = 0;
    for (int i = 0; i < own.rank(); ++i) {
      const int64_t k = at[static_cast<size_t>(out.rank() - own.rank() + i)];
      row = row * own[i] + (own[i] == 1 ? 0 : k);
    }
    if (index.present()) {
      row = static_cast<int64_t>(AsDoubles(index)[static_cast<size_t>(row)]);
      if (row < 0) row += values.shape()[0];
    }
    return values.data<float>()[row * values.shape()[values.shape().rank() - 1] + column];
  }
};

struct Case {
  int64_t n;
  Shape out;  // of the result, without n
  // For each term: its leading dimensions, and the rows of its table, or none for a tensor at hand.
  std::vector<std::pair<Shape, std::optional<int64_t>>> terms;
};

OperatorCall CallOf(const Case& c, std::vector<Term>& terms, bool with_shift, int num_outputs) {
  OperatorCall call{.name = "EmbeddingLayerNorm",
                    .num_outputs = num_outputs,
                    .domain = "chairlift",
                    .constants = {}};
  call.attributes.Set("epsilon", kEpsilon);
  call.inputs = {RandomTensor(DType::kFloat, {c.n}, 0.5, 2, 1),
                 with_shift ? RandomTensor(DType::kFloat, {c.n}, -1, 1, 2) : Tensor()};
  uint32_t seed = 10;
  for (const auto& [leading, rows] : c.terms) {
    Term term;
    Shape shape = rows ? Shape{*rows} : leading;
    shape.Append(c.n);
    term.values = RandomTensor(DType::kFloat, shape, -2, 3, ++seed);
    ++seed;
    if (rows) {
      const DType type = seed % 4 == 0 ? DType::kInt64 : DType::kInt32;
      term.index = RandomIndex(type, leading, *rows, seed);
    }
    call.inputs.push_back(term.values);
    call.inputs.push_back(term.index);
    terms.push_back(std::move(term));
  }
  return call;
}

void Check(const Case& c, bool with_shift, bool with_sum) {
  std::vector<Term> terms;
  const OperatorCall call = CallOf(c, terms, with_shift, with_sum ? 2 : 1);
  const auto got = RunOperator(call);
  ASSERT_TRUE(got.ok()) << got.status();
  Shape shape = c.out;
  shape.Append(c.n);
  ASSERT_EQ((*got)[0].shape(), shape);
  const std::vector<double> scale = AsDoubles(call.inputs[0]), shift = AsDoubles(call.inputs[1]);
  const auto columns = static_cast<size_t>(c.n);
  for (int64_t row = 0; row < c.out.NumElements(); ++row) {
    std::vector<int64_t> at(static_cast<size_t>(c.out.rank()));
    for (int64_t rest = row, d = c.out.rank() - 1; d >= 0; --d) {
      at[static_cast<size_t>(d)] = rest % c.out[static_cast<int>(d)];
      rest /= c.out[static_cast<int>(d)];
    }
    std::vector<double> s(columns, 0);
    double mean = 0, variance = 0;
    for (size_t i = 0; i < columns; ++i) {
      for (const Term& term : terms) s[i] += term.At(c.out, at, static_cast<int64_t>(i));
      mean += s[i] / static_cast<double>(c.n);
    }
    for (size_t i = 0; i < columns; ++i) {
      variance += (s[i] - mean) * (s[i] - mean) / static_cast<double>(c.n);
    }
    for (size_t i = 0; i < columns; ++i) {
      const double y =
          (s[i] - mean) / std::sqrt(variance + kEpsilon) * scale[i] + (with_shift ? shift[i] : 0);
      const int64_t e = row * c.n + static_cast<int64_t>(i);
      ASSERT_NEAR((*got)[0].data<float>()[e], y, kTolerance * (1 + std::abs(y))) << e;
      if (!with_sum) continue;
      ASSERT_NEAR((*got)[1].data<float>()[e], s[i], 1e-6 * (1 + std::abs(s[i])));
    }
  }
}

TEST(EmbeddingLayerNormTest, MatchesTheFormulaWhateverBroadcasts) {
  const std::optional<int64_t> at_hand;
  for (const int64_t n : {1, 3, 16, 37, 384}) {
    const Case cases[] = {
        {n, {2, 5}, {{{2, 5}, 11}, {{1, 5}, 7}, {{2, 5}, 2}}},
        {n, {1, 9}, {{{1, 9}, 30}, {{9}, 12}, {{1, 9}, 1}}},  // packed
        {n, {3, 4}, {{{3, 4}, 6}, {{4}, at_hand}, {{}, 3}}},  // a slice, and one for all
        {n, {3, 4}, {{{}, at_hand}, {{3, 4}, at_hand}, {{3, 1}, 5}}},
        {n, {2, 1, 3}, {{{2, 1, 1}, 6}, {{3}, 4}}},
        {n, {4, 3, 2}, {{{3, 1}, 6}, {{4, 1, 2}, at_hand}}},
        {n, {}, {{{}, 5}, {{}, 4}}},
        {n, {7}, {{{7}, 5}}},
        {n, {1, 1}, {{{1, 1}, 1}, {{1, 1}, 1}}},
        {n, {0, 3}, {{{0, 3}, 5}, {{1, 3}, 4}}},
        {n, {2, 0}, {{{2, 0}, 1}, {{1, 0}, at_hand}}},
    };
    for (const Case& c : cases) {
      for (const bool with_shift : {false, true}) {
        for (const bool with_sum : {false, true}) {
          SCOPED_TRACE(::testing::Message() << c.out.ToString() << " of " << n);
          Check(c, with_shift, with_sum);
        }
      }
    }
  }
}

TEST(EmbeddingLayerNormTest, RandomShapes) {
  std::mt19937 random(31);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int trial = 0; trial < 60; ++trial) {
    Case c{.n = 1 + below(70), .out = {}, .terms = {}};
    for (int64_t rank = below(4); rank > 0; --rank) c.out.Append(1 + below(5));
    const int64_t count = 1 + below(3);
    for (int64_t t = 0; t < count; ++t) {
      // The first has all dimensions, so that the result is no smaller.
      Shape leading;
      for (int64_t d = t == 0 ? 0 : below(static_cast<uint32_t>(c.out.rank()) + 1);
           d < c.out.rank(); ++d) {
        leading.Append(t > 0 && below(3) == 0 ? 1 : c.out[static_cast<int>(d)]);
      }
      c.terms.emplace_back(leading, below(4) == 0 ? std::nullopt : std::optional(1 + below(9)));
    }
    SCOPED_TRACE(trial);
    Check(c, below(2) == 0, below(2) == 0);
  }
}

TEST(EmbeddingLayerNormTest, ATeamGivesWhatOneGives) {
  const Case c{96, {3, 211}, {{{3, 211}, 50}, {{1, 211}, 211}, {{3, 211}, 2}}};
  std::vector<Term> terms;
  const OperatorCall call = CallOf(c, terms, true, 2);
  testing::ThreadTeam team(3);
  const auto alone = RunOperator(call), shared = RunOperator(call, &team);
  ASSERT_TRUE(alone.ok() && shared.ok()) << alone.status() << shared.status();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(AsDoubles((*alone)[i]), AsDoubles((*shared)[i]));
}

TEST(EmbeddingLayerNormTest, AnIndexOutsideItsTableIsRefusedByNameAndPlace) {
  const Tensor row = RandomTensor(DType::kFloat, {4}, 1, 2, 1);
  const Tensor table = RandomTensor(DType::kFloat, {5, 4}, 1, 2, 1);
  const Tensor good = Tensor::Of<int64_t>(Shape{3}, {4, -5, 0});
  for (const int64_t wrong : {int64_t{5}, int64_t{-6}, INT64_MAX, INT64_MIN}) {
    OperatorCall call{.name = "EmbeddingLayerNorm", .domain = "chairlift", .constants = {}};
    call.attributes.Set("gathers", std::vector<std::string>{"node 'words' (Gather)", "", ""});
    call.inputs = {row, row, table, Tensor::Of<int64_t>(Shape{3}, {0, wrong, 1}), table, good};
    const std::string text = "index " + std::to_string(wrong) + " at position 1 is outside [-5, 5)";
    EXPECT_EQ(Message(RunOperator(call).status()), "node 'words' (Gather): " + text);
    std::swap(call.inputs[3], call.inputs[5]);
    EXPECT_EQ(Message(RunOperator(call).status()), text);
  }
  OperatorCall call{.name = "EmbeddingLayerNorm", .domain = "chairlift", .constants = {}};
  call.inputs = {row, row, RandomTensor(DType::kFloat, {0, 4}, 1, 2, 1), good};
  EXPECT_EQ(RunOperator(call).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EmbeddingLayerNormTest, ShapesThatDoNotFitAreRefused) {
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, 1, 2, 1);
  };
  const Tensor index = Tensor::Of<int64_t>(Shape{3}, {0, 1, 2});
  const Tensor none;
  const std::vector<Tensor> cases[] = {
      {floats({4}), none, floats({5, 3}), index},                  // another width
      {floats({4}), none, floats({5, 4, 4}), index},               // no rows
      {floats({4}), none, floats({4}), index},                     // nor these
      {floats({4}), none, floats({})},                             // no columns
      {floats({4, 1}), none, floats({5, 4}), index},               // scale
      {floats({4}), floats({3}), floats({5, 4}), index},           // shift
      {floats({4}), none, floats({5, 4}), index, floats({2, 4})},  // 3 against 2
      {floats({4}), none, floats({5, 4}), index, none, index},     // an index of nothing
      {none, none, floats({5, 4}), index},
      {floats({4}), none, none, index},
  };
  for (const std::vector<Tensor>& inputs : cases) {
    OperatorCall call{.name = "EmbeddingLayerNorm", .domain = "chairlift", .constants = {}};
    call.inputs = inputs;
    EXPECT_EQ(RunOperator(call).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace chairlift
