#include <random>

#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

// Element (batch..., r, c) of an operand as a function of the output's batch index, for operands of
// rank ≥ 2.
struct Matrices {
  Shape shape;
  std::vector<double> values;
  bool transposed = false;

  double At(const Shape& out_batch, int64_t batch, int64_t r, int64_t c) const {
    if (transposed) std::swap(r, c);
    const int rank = shape.rank();
    int64_t offset = 0, stride = shape[rank - 1] * shape[rank - 2];
    for (int i = 0; i < out_batch.rank(); ++i) {
      const int out_axis = out_batch.rank() - 1 - i;
      const int64_t index = batch % out_batch[out_axis];
      batch /= out_batch[out_axis];
      const int axis = rank - 3 - i;
      if (axis < 0) continue;
      if (shape[axis] != 1) offset += index * stride;
      stride *= shape[axis];
    }
    return values[offset + r * shape[rank - 1] + c];
  }
};

std::vector<double> ReferenceProduct(const Matrices& a, const Matrices& b, const Shape& batch,
                                     int64_t m, int64_t n, int64_t k) {
  std::vector<double> out;
  for (int64_t i = 0; i < batch.NumElements(); ++i) {
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j) sum += a.At(batch, i, r, j) * b.At(batch, i, j, c);
        out.push_back(sum);
      }
    }
  }
  return out;
}

Matrices Read(const Tensor& t, bool transposed = false) {
  return {t.shape(), AsDoubles(t), transposed};
}

TEST(MatMulTest, EqualsReferenceForAllShapesConstantOrNotOnOneOrTwoThreads) {
  const std::vector<std::array<int64_t, 3>> sizes = {
      {1, 1, 1},   {1, 32, 16},   {2, 33, 5},     {3, 31, 64},   {4, 64, 100}, {5, 7, 1025},
      {14, 96, 3}, {15, 64, 40},  {33, 100, 65},  {170, 40, 30}, {0, 5, 3},    {3, 0, 4},
      {3, 4, 0},   {1, 300, 700}, {29, 129, 513}, {400, 1, 9}};
  uint32_t seed = 1;
  for (const auto& [m, n, k] : sizes) {
    for (bool constant : {false, true}) {
      for (int width : {1, 2, 3}) {
        const Tensor a = RandomTensor(DType::kFloat, {m, k}, -1, 1, seed++);
        const Tensor b = RandomTensor(DType::kFloat, {k, n}, -1, 1, seed++);
        ThreadTeam team(width);
        OperatorCall call{.name = "MatMul", .inputs = {a, b}};
        if (constant) call.constants = {1};
        const auto out = RunOperator(call, &team);
        ASSERT_TRUE(out.ok()) << out.status();
        EXPECT_EQ((*out)[0].shape(), (Shape{m, n}));
        ExpectNear((*out)[0], ReferenceProduct(Read(a), Read(b), Shape{}, m, n, k), 2e-6,
                   fmt::format("{}x{}x{} constant {} width {}", m, n, k, constant, width));
      }
    }
  }
}

TEST(MatMulTest, BroadcastsBatchesAndTakesVectors) {
  struct Case {
    Shape a, b, batch, out;
  };
  const std::vector<Case> cases = {
      {{3, 4, 5}, {3, 5, 6}, {3}, {3, 4, 6}},
      {{2, 3, 4, 5}, {5, 6}, {2, 3}, {2, 3, 4, 6}},
      {{4, 5}, {2, 3, 5, 6}, {2, 3}, {2, 3, 4, 6}},
      {{2, 1, 4, 5}, {3, 5, 6}, {2, 3}, {2, 3, 4, 6}},
      {{1, 3, 4, 5}, {2, 1, 5, 6}, {2, 3}, {2, 3, 4, 6}},
      {{0, 4, 5}, {5, 6}, {0}, {0, 4, 6}},
      {{12, 40, 16}, {12, 16, 50}, {12}, {12, 40, 50}},
  };
  uint32_t seed = 100;
  for (const Case& c : cases) {
    for (bool constant : {false, true}) {
      for (int width : {1, 2}) {
        for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt32, DType::kUInt64}) {
          const double low = dtype == DType::kUInt64 ? 0 : -9;
          const Tensor a = RandomTensor(dtype, c.a, low, 9, seed++);
          const Tensor b = RandomTensor(dtype, c.b, low, 9, seed++);
          ThreadTeam team(width);
          OperatorCall call{.name = "MatMul", .inputs = {a, b}};
          if (constant) call.constants = {1};
          const auto out = RunOperator(call, &team);
          ASSERT_TRUE(out.ok()) << out.status();
          EXPECT_EQ((*out)[0].shape(), c.out);
          ExpectNear((*out)[0],
                     ReferenceProduct(Read(a), Read(b), c.batch, c.a[c.a.rank() - 2],
                                      c.b[c.b.rank() - 1], c.a[c.a.rank() - 1]),
                     2e-6, c.a.ToString() + c.b.ToString());
        }
      }
    }
  }
  const Tensor matrix = RandomTensor(DType::kFloat, {2, 3, 4}, -1, 1, 7);
  const Tensor vector = RandomTensor(DType::kFloat, {4}, -1, 1, 8);
  auto out = RunOperator({.name = "MatMul", .inputs = {matrix, vector}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{2, 3}));
  ExpectNear((*out)[0], ReferenceProduct(Read(matrix), Read(vector.Reshaped({4, 1})), {2}, 3, 1, 4),
             2e-6, "matrix by vector");
  const Tensor row = RandomTensor(DType::kFloat, {3}, -1, 1, 9);
  out = RunOperator({.name = "MatMul", .inputs = {row, matrix}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{2, 4}));
  ExpectNear((*out)[0], ReferenceProduct(Read(row.Reshaped({1, 3})), Read(matrix), {2}, 1, 4, 3),
             2e-6, "vector by matrix");
  out = RunOperator({.name = "MatMul", .inputs = {vector, vector}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{}));
}

TEST(MatMulTest, EmptyMatricesCostNothingHoweverManyTheyAre) {
  const Shape shape{int64_t{1} << 34, 0, 3};
  const auto out = RunOperator({.name = "MatMul",
                                .inputs = {Tensor::Allocate(DType::kFloat, shape),
                                           RandomTensor(DType::kFloat, {3, 2}, -1, 1, 1)}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), (Shape{int64_t{1} << 34, 0, 2}));
}

TEST(MatMulTest, RefusesShapesAndTypesThatDoNotFit) {
  const auto status = [](const Tensor& a, const Tensor& b) {
    return RunOperator({.name = "MatMul", .inputs = {a, b}}).status().code();
  };
  const auto t = [](const Shape& shape, DType dtype = DType::kFloat) {
    return Tensor::Allocate(dtype, shape);
  };
  EXPECT_EQ(status(t({2, 3}), t({4, 2})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(t({2, 2, 3}), t({3, 3, 2})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(t({}), t({3})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status(t({2, 3}), t({3, 2}, DType::kDouble)), absl::StatusCode::kInvalidArgument);
}

TEST(MatMulTest, KeepsSymbolsInItsShape) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", "MatMul");
  const std::vector<ValueInfo> inputs = {
      {DType::kFloat, SymbolicShape({Dim::Symbol("batch"), Dim::Symbol("length"), Dim(8)}), nullptr,
       std::nullopt},
      {DType::kFloat, SymbolicShape({Dim(8), Dim(4)}), nullptr, std::nullopt}};
  const Attributes attributes;
  InferContext context(attributes, inputs, 1);
  ASSERT_TRUE(def->infer(context).ok());
  EXPECT_EQ(context.outputs()[0].shape.ToString(), "[batch,length,4]");
}

TEST(FusedMatMulTest, AppliesTransposesScaleBiasResidualAndEveryActivation) {
  const std::vector<std::string> activations = {"",        "Relu", "LeakyRelu",   "Clip",
                                                "Sigmoid", "Tanh", "HardSigmoid", "HardSwish",
                                                "Silu",    "Elu",  "Gelu",        "GeluTanh"};
  std::mt19937 random(5);
  for (int round = 0; round < 120; ++round) {
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t m = pick(1, 40), n = pick(1, 90), k = pick(1, 70), batch = pick(1, 3);
    const bool ta = pick(0, 1) != 0, tb = pick(0, 1) != 0, bias = pick(0, 1) != 0;
    const bool residual = pick(0, 1) != 0, shared_b = pick(0, 1) != 0;
    const float alpha = pick(0, 1) != 0 ? 0.25f : 1.0f;
    const std::string activation = activations[round % activations.size()];
    const DType dtype = pick(0, 4) == 0 ? DType::kDouble : DType::kFloat;
    const auto random_tensor = [&](const Shape& shape) {
      return RandomTensor(dtype, shape, -1, 1, static_cast<uint32_t>(random()));
    };
    const Tensor a = random_tensor(ta ? Shape{batch, k, m} : Shape{batch, m, k});
    Shape b_shape = tb ? Shape{n, k} : Shape{k, n};
    if (!shared_b) b_shape.Insert(0, batch);
    const Tensor b = random_tensor(b_shape);
    OperatorCall call{.name = "FusedMatMul", .inputs = {a, b}, .domain = "chairlift"};
    call.inputs.push_back(bias ? random_tensor({n}) : Tensor());
    call.inputs.push_back(residual ? random_tensor({batch, m, n}) : Tensor());
    call.attributes.Set("transpose_a", int64_t{ta});
    call.attributes.Set("transpose_b", int64_t{tb});
    call.attributes.Set("alpha", alpha);
    call.attributes.Set("activation", activation);
    const float act_alpha = activation == "Clip" ? -0.5f : 0.2f, act_beta = 0.6f;
    call.attributes.Set("activation_alpha", act_alpha);
    call.attributes.Set("activation_beta", act_beta);
    if (pick(0, 1) != 0) call.constants = {1, 2};
    ThreadTeam team(static_cast<int>(pick(1, 2)));
    const auto out = RunOperator(call, &team);
    ASSERT_TRUE(out.ok()) << out.status();
    std::vector<double> want = ReferenceProduct(Read(a, ta), Read(b, tb), Shape{batch}, m, n, k);
    const std::vector<double> bias_values =
        bias ? AsDoubles(call.inputs[2]) : std::vector<double>();
    const std::vector<double> residual_values =
        residual ? AsDoubles(call.inputs[3]) : std::vector<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] =
          alpha * want[i] + (bias ? bias_values[i % n] : 0) + (residual ? residual_values[i] : 0);
      want[i] = ReferenceActivation(activation, act_alpha, act_beta, want[i]);
    }
    ExpectNear((*out)[0], want, 3e-6,
               fmt::format("round {} {} {}x{}x{}", round, activation, m, n, k));
  }
}

TEST(GemmTest, EqualsReferenceForAllOfItsForms) {
  std::mt19937 random(6);
  for (int round = 0; round < 150; ++round) {
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const int64_t m = pick(0, 20), n = pick(1, 70), k = pick(0, 50);
    const bool ta = pick(0, 1) != 0, tb = pick(0, 1) != 0;
    const DType types[] = {DType::kFloat, DType::kFloat, DType::kDouble, DType::kInt32};
    const DType dtype = types[pick(0, 3)];
    const bool integer = dtype == DType::kInt32;
    const float alpha = integer || pick(0, 1) != 0 ? 1.0f : 0.5f;
    const float betas[] = {1.0f, 0.25f, 0.0f};
    const float beta = integer ? 1.0f : betas[pick(0, 2)];
    const auto random_tensor = [&](const Shape& shape) {
      return RandomTensor(dtype, shape, -4, 4, static_cast<uint32_t>(random()));
    };
    const Tensor a = random_tensor(ta ? Shape{k, m} : Shape{m, k});
    const Tensor b = random_tensor(tb ? Shape{n, k} : Shape{k, n});
    const Shape c_shapes[] = {{}, {1}, {n}, {1, n}, {m, 1}, {m, n}, {1, 1}};
    const int64_t which = pick(0, 7);
    OperatorCall call{.name = "Gemm", .inputs = {a, b}};
    if (which < 7) call.inputs.push_back(random_tensor(c_shapes[which]));
    call.attributes.Set("transA", int64_t{ta});
    call.attributes.Set("transB", int64_t{tb});
    call.attributes.Set("alpha", alpha);
    call.attributes.Set("beta", beta);
    if (pick(0, 1) != 0) call.constants = {1};
    ThreadTeam team(static_cast<int>(pick(1, 2)));
    const auto out = RunOperator(call, &team);
    ASSERT_TRUE(out.ok()) << out.status();
    std::vector<double> want = ReferenceProduct(Read(a, ta), Read(b, tb), Shape{}, m, n, k);
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        double& w = want[r * n + c];
        w *= alpha;
        if (which >= 7) continue;
        const Shape& s = c_shapes[which];
        const int64_t columns = s.rank() > 0 ? s[s.rank() - 1] : 1;
        const int64_t rows = s.rank() > 1 ? s[0] : 1;
        w += beta *
             AsDoubles(call.inputs[2])[(rows == 1 ? 0 : r) * columns + (columns == 1 ? 0 : c)];
      }
    }
    ExpectNear((*out)[0], want, 3e-6, fmt::format("round {}", round));
  }
}

}  // namespace
}  // namespace chairlift::testing
