// Several products of one A in one kernel, against each computed by itself in double.
#include <random>

#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

std::vector<double> ReferenceRows(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t k = b.shape()[0], n = b.shape()[1];
  const std::vector<double> av = AsDoubles(a), bv = AsDoubles(b);
  const std::vector<double> add =
      bias.present() ? AsDoubles(bias) : std::vector<double>(static_cast<size_t>(n));
  const int64_t rows = a.shape().NumElements(0, a.shape().rank() - 1);
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      double sum = add[static_cast<size_t>(c)];
      for (int64_t i = 0; i < k; ++i) {
        sum += av[static_cast<size_t>(r * k + i)] * bv[static_cast<size_t>(i * n + c)];
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST(ParallelMatMulTest, EqualsEachProductByItselfOnOneToThreeThreads) {
  struct Case {
    Shape a;
    std::vector<int64_t> columns;
  };
  const std::vector<Case> cases = {
      {{1, 1}, {1, 1}},
      {{16, 64}, {64, 64, 64}},
      {{2, 5, 48}, {31, 1, 65, 32}},
      {{3, 33, 100}, {40, 7}},
      {{400, 9}, {5, 50}},
      {{1, 1024}, {96, 96, 96}},
      {{64}, {32, 32}},
      {{0, 8}, {4, 4}},
      {{2, 3, 0}, {4, 5}},
      {{7, 8}, {4, 0, 9}},
      {{170, 300}, {100, 200, 30}},
      {{20, 1024}, {70, 70}},
  };
  uint32_t seed = 1;
  for (const Case& c : cases) {
    const int64_t k = c.a[c.a.rank() - 1];
    for (int width : {1, 2, 3}) {
      OperatorCall call{.name = "ParallelMatMul",
                        .inputs = {RandomTensor(DType::kFloat, c.a, -1, 1, seed++)},
                        .num_outputs = static_cast<int>(c.columns.size()),
                        .domain = "chairlift"};
      for (size_t i = 0; i < c.columns.size(); ++i) {
        if (seed % 4 != 0) call.constants.push_back(static_cast<int>(call.inputs.size()));
        call.inputs.push_back(RandomTensor(DType::kFloat, {k, c.columns[i]}, -1, 1, seed++));
        const bool bias = (i + static_cast<size_t>(width)) % 2 == 0;
        call.inputs.push_back(bias ? RandomTensor(DType::kFloat, Shape{c.columns[i]}, -1, 1, seed++)
                                   : Tensor());
      }
      ThreadTeam team(width);
      const auto out = RunOperator(call, &team);
      ASSERT_TRUE(out.ok()) << out.status();
      for (size_t i = 0; i < c.columns.size(); ++i) {
        Shape shape = c.a;
        shape[shape.rank() - 1] = c.columns[i];
        EXPECT_EQ((*out)[i].shape(), shape);
        ExpectNear((*out)[i],
                   ReferenceRows(call.inputs[0], call.inputs[1 + 2 * i], call.inputs[2 + 2 * i]),
                   2e-6, fmt::format("{} product {} width {}", c.a.ToString(), i, width));
      }
    }
  }
}

TEST(ParallelMatMulTest, RefusesWhatDoesNotFit) {
  const auto refused = [](std::vector<Tensor> inputs, int outputs) {
    const auto out = RunOperator({.name = "ParallelMatMul",
                                  .inputs = std::move(inputs),
                                  .num_outputs = outputs,
                                  .domain = "chairlift"});
    EXPECT_FALSE(out.ok());
    return Message(out.status());
  };
  const auto floats = [](const Shape& shape) {
    return RandomTensor(DType::kFloat, shape, 0, 1, 1);
  };
  const Tensor none;
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused({floats({2, 3}), floats({4, 5}), none}, 1), "inner dimensions differ");
  has(refused({floats({2, 3}), floats({3, 5}), floats({4})}, 1), "one value a column");
  has(refused({floats({2, 3}), floats({3, 5}), floats({1, 5})}, 1), "one value a column");
  has(refused({floats({2, 3}), floats({3}), none}, 1), "not a matrix");
  has(refused({floats({2, 3}), floats({3, 5}), none}, 2), "3 inputs make no products for 2");
  has(refused({floats({2, 3}), floats({3, 5})}, 1), "2 inputs make no products");
  has(refused({floats({}), floats({3, 5}), none}, 1), "scalar");
}

}  // namespace
}  // namespace chairlift::testing
