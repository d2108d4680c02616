#include <map>

#include "ops/linear/reference.h"
#include "ops/operator_harness.h"
#include "ops/thread_team.h"

namespace chairlift::testing {
namespace {

// Sums over every assignment of every letter, by the definition. Ellipses are spelled out as upper
// case letters by the caller.
std::vector<double> ReferenceEinsum(const std::vector<std::string>& operands,
                                    const std::string& result, const std::vector<Tensor>& inputs) {
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t a = 0; a < operands[i].size(); ++a) {
      int64_t& size = sizes.emplace(operands[i][a], 1).first->second;
      size = std::max(size, inputs[i].shape()[static_cast<int>(a)]);
    }
  }
  int64_t out_size = 1, total = 1;
  for (char c : result) out_size *= sizes[c];
  for (const auto& [c, size] : sizes) total *= size;
  std::vector<double> out(out_size, 0.0);
  std::vector<std::vector<double>> values;
  for (const Tensor& t : inputs) values.push_back(AsDoubles(t));
  for (int64_t n = 0; n < total; ++n) {
    std::map<char, int64_t> at;
    int64_t rest = n;
    for (const auto& [c, size] : sizes) {
      at[c] = rest % size;
      rest /= size;
    }
    double product = 1;
    for (size_t i = 0; i < operands.size(); ++i) {
      int64_t index = 0;
      for (size_t a = 0; a < operands[i].size(); ++a) {
        const int64_t dim = inputs[i].shape()[static_cast<int>(a)];
        index = index * dim + (dim == 1 ? 0 : at[operands[i][a]]);
      }
      product *= values[i][index];
    }
    int64_t index = 0;
    for (char c : result) index = index * sizes[c] + at[c];
    out[index] += product;
  }
  return out;
}

struct EinsumCase {
  std::string equation;
  std::vector<std::string> operands;  // ellipses spelled out
  std::string result;
  std::vector<Shape> shapes;
};

TEST(EinsumTest, EqualsTheSumOverAllLabels) {
  const std::vector<EinsumCase> cases = {
      {"ij->ji", {"ij"}, "ji", {{3, 4}}},
      {"ij->i", {"ij"}, "i", {{3, 4}}},
      {"ij->", {"ij"}, "", {{3, 4}}},
      {"ii->i", {"ii"}, "i", {{5, 5}}},
      {"iji", {"iji"}, "j", {{3, 4, 3}}},
      {"...ii->...i", {"ABii"}, "ABi", {{2, 3, 4, 4}}},
      {"ij,jk->ik", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
      {"ij,jk", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}}},
      {"ij , jk -> ki", {"ij", "jk"}, "ki", {{3, 4}, {4, 5}}},
      {"i,i->", {"i", "i"}, "", {{7}, {7}}},
      {"i,j->ij", {"i", "j"}, "ij", {{7}, {3}}},
      {"bhid,bhjd->bhij", {"bhid", "bhjd"}, "bhij", {{2, 3, 9, 8}, {2, 3, 7, 8}}},
      {"bhij,bhjd->bihd", {"bhij", "bhjd"}, "bihd", {{2, 3, 9, 7}, {2, 3, 7, 8}}},
      {"bid,hdk->bhik", {"bid", "hdk"}, "bhik", {{2, 5, 6}, {3, 6, 4}}},
      {"...ij,...jk->...ik", {"ABij", "Bjk"}, "ABik", {{2, 3, 4, 5}, {3, 5, 6}}},
      {"...ij,...jk->...ik", {"ABij", "ABjk"}, "ABik", {{2, 1, 4, 5}, {1, 3, 5, 6}}},
      {"ij,kj,lk->il", {"ij", "kj", "lk"}, "il", {{3, 4}, {5, 4}, {6, 5}}},
      {"abc,cd,de,ea->be", {"abc", "cd", "de", "ea"}, "be", {{2, 3, 4}, {4, 5}, {5, 3}, {3, 2}}},
      {"ijk,jl->i", {"ijk", "jl"}, "i", {{3, 4, 5}, {4, 6}}},
      {"ij,ij->ij", {"ij", "ij"}, "ij", {{3, 4}, {3, 4}}},
      {"aij,jbik->kab", {"aij", "jbik"}, "kab", {{2, 3, 4}, {4, 5, 3, 6}}},
      {",i->i", {"", "i"}, "i", {{}, {4}}},
  };
  uint32_t seed = 1;
  for (const EinsumCase& c : cases) {
    for (DType dtype : {DType::kFloat, DType::kDouble, DType::kInt64}) {
      for (bool constant : {false, true}) {
        OperatorCall call{.name = "Einsum"};
        call.attributes.Set("equation", c.equation);
        for (const Shape& shape : c.shapes) {
          call.inputs.push_back(RandomTensor(dtype, shape, -5, 5, seed++));
        }
        if (constant && c.shapes.size() > 1) call.constants = {1};
        ThreadTeam team(2);
        const auto out = RunOperator(call, &team);
        ASSERT_TRUE(out.ok()) << out.status() << c.equation;
        ExpectNear((*out)[0], ReferenceEinsum(c.operands, c.result, call.inputs), 2e-6, c.equation);
      }
    }
  }
}

TEST(EinsumTest, RefusesEquationsThatDoNotFit) {
  const auto status = [](const std::string& equation, const std::vector<Shape>& shapes) {
    OperatorCall call{.name = "Einsum"};
    call.attributes.Set("equation", equation);
    for (const Shape& shape : shapes) {
      call.inputs.push_back(RandomTensor(DType::kFloat, shape, 0, 1, 1));
    }
    return RunOperator(call).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(status("", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("ij,jk->ik", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("ij", {{2, 2}, {2, 2}}), kInvalid);
  EXPECT_EQ(status("ijk->i", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("i->i", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("ij->k", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("ij->ii", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("i1->i", {{2, 2}}), kInvalid);
  EXPECT_EQ(status("ij,jk->ik", {{2, 3}, {2, 2}}), kInvalid);
  EXPECT_EQ(status("ii->i", {{2, 3}}), kInvalid);
  EXPECT_EQ(status("ij->...", {{2, 3}}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace chairlift::testing
