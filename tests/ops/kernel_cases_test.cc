// Every kernel of the hot path against float64.
#include "ops/kernel_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/cpu/isa.h"
#include "ops/attention/attention_shapes.h"
#include "ops/kernel_references.h"
#include "ops/linear/convolution.h"
#include "ops/linear/product.h"
#include "ops/random_tensor.h"
#include "ops/recurrent/recurrent.h"

namespace chairlift::testing {
namespace {

std::string Refusals(const KernelChoice& choice) {
  std::string text;
  for (const auto& [name, why] : choice.refused) text += fmt::format("{}: {}; ", name, why);
  return text;
}

// Computed once for cases that differ only in their implementation.
class References {
 public:
  const StatusOr<std::vector<Tensor>>& Of(const KernelCase& c, const OperatorCall& call) {
    const auto [at, is_new] =
        known_.try_emplace({c.name, call.inputs[0].dtype(), call.blocked.outputs});
    if (is_new) at->second = ReferenceOf(call);
    return at->second;
  }

 private:
  std::map<std::tuple<std::string, DType, uint32_t>, StatusOr<std::vector<Tensor>>> known_;
};

void ExpectAgreement(const KernelCase& c, References& references) {
  SCOPED_TRACE(c.name + " by " + c.implementation);
  const OperatorCall call = c.MakeCall();
  KernelChoice choice{.only = c.implementation};
  const auto compiled = CompiledCall::Make(call, 1, &choice);
  if (!compiled.ok() && ActiveCpuIsa() < CpuIsa::kAvx512 && !choice.refused.empty()) return;
  ASSERT_TRUE(compiled.ok()) << compiled.status() << Refusals(choice);
  SoloTeam team;
  ASSERT_TRUE((*compiled)->Run(team).ok());
  EXPECT_TRUE(c.implementation.empty() || choice.taken == c.implementation) << choice.taken;
  const std::vector<Tensor> got = (*compiled)->Results();
  const auto& want = references.Of(c, call);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got.size(), want->size());
  for (size_t o = 0; o < got.size(); ++o) {
    const std::vector<double> a = AsDoubles(got[o]), b = AsDoubles((*want)[o]);
    ASSERT_EQ(a.size(), b.size());
    // What is rounded to bytes may lie at a tie.
    const double tie = DTypeSize(got[o].dtype()) == 1 ? 1 : 0;
    double range = 1e-6;
    for (const double x : b) range = std::max(range, std::abs(x));
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_LE(std::abs(a[i] - b[i]), 2e-5 * range + tie) << "output " << o << ", element " << i;
    }
  }
}

TEST(KernelCasesTest, AgreeWithFloat64) {
  References references;
  for (const KernelCase& c : KernelCases()) ExpectAgreement(c, references);
}

// But for oneDNN's own activations: what its convolutions end with takes some NaN for 0.
TEST(KernelCasesTest, NaNComesThroughTheActivationsOfProductsAndConvolutions) {
  for (const KernelCase& c : KernelCases()) {
    OperatorCall call = c.MakeCall();
    const bool convolves = call.name == "Conv" || call.name == "ConvTranspose";
    if (!convolves && call.name != "MatMul") continue;
    if (c.flops > 1.6e8 || c.implementation == "onednn") continue;
    call.name = "Fused" + call.name;
    call.domain = "chairlift";
    SprinkleNaN(call.inputs[0], 1, 1);
    for (const char* activation : {"Relu", "Clip", "HardSigmoid"}) {
      SCOPED_TRACE(c.name + " by " + c.implementation + " " + activation);
      call.attributes.Set("activation", std::string(activation));
      call.attributes.Set("activation_alpha", 0.2f);
      call.attributes.Set("activation_beta", 0.5f);
      KernelChoice choice{.only = c.implementation};
      const auto compiled = CompiledCall::Make(call, 1, &choice);
      if (!compiled.ok() && !choice.refused.empty()) continue;
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      SoloTeam team;
      ASSERT_TRUE((*compiled)->Run(team).ok());
      const std::vector<double> y = AsDoubles((*compiled)->Results()[0]);
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](double v) { return std::isnan(v); }));
    }
  }
}

TEST(KernelCasesTest, RecurrentCellsOfSmallSizesAgreeWithFloat64) {
  References references;
  int cases = 0;
  for (const KernelCase& c : RecurrentCases()) {
    if (c.flops > 3e7) continue;  // the reference takes a second for ten times as many
    ExpectAgreement(c, references);
    ++cases;
  }
  EXPECT_GT(cases, 60);
}

TEST(KernelCasesTest, EveryImplementationHasACase) {
  std::map<std::string, std::set<std::string>> named;  // by family
  for (const KernelCase& c : KernelCases()) {
    KernelChoice choice{.only = c.implementation};
    const bool compiles = CompiledCall::Make(c.MakeCall(), 1, &choice).ok();
    named[c.name.substr(0, c.name.find('/'))].insert(compiles ? choice.taken : c.implementation);
  }
  const auto all_named = [&](const char* family, const auto& table) {
    for (const auto& way : table) {
      EXPECT_TRUE(named[family].contains(way.name)) << family << ": " << way.name;
    }
  };
  all_named("attention", AttentionImplementations());
  all_named("convolution", ConvolutionImplementations());
  all_named("product", ProductImplementations());
  all_named("recurrent", RecurrentImplementations());
  all_named("recurrent step", RecurrentStepImplementations());
}

TEST(KernelChoiceTest, SaysWhatWasTakenAndWhyOthersWereNot) {
  OperatorCall call{.name = "Conv"};
  call.inputs = {RandomTensor(DType::kDouble, {1, 2, 5, 5}, -1, 1, 1),
                 RandomTensor(DType::kDouble, {3, 2, 5, 5}, -1, 1, 2)};
  KernelChoice choice;
  ASSERT_TRUE(CompiledCall::Make(call, 1, &choice).ok());
  EXPECT_EQ(choice.taken, "plain loops");
  std::map<std::string, std::string> refused;
  for (const auto& [name, why] : choice.refused) refused[name] = why;
  const std::map<std::string, std::string> expected = {
      {"winograd", "it is for 3x3 convolutions of stride 1 in one group"},
      {"few outputs", "it is for less than half a block of outputs, of blocked channels"},
      {"dilated", "it is for dilations of stride 1, on blocked channels"},
      {"grouped", "it is for groups of constant filters, on blocked channels"},
      {"pointwise", "it is for one tap without padding, on blocked channels"},
      {"upsampling", "it is for upsampling by a constant factor of whole blocks of channels"},
      {"col2im", "it is for transposed convolutions of row-major float32, by constants"},
      {"onednn", "it convolves float32 over one to three spatial axes"},
      {"depthwise", "it needs one constant filter per channel and blocked channels"}};
  EXPECT_EQ(refused, expected);
  std::vector<std::string> order;
  for (const auto& refusal : choice.refused) order.push_back(refusal.name);
  const bool onednn_first = ActiveCpuIsa() == CpuIsa::kAvx2;
  std::vector<std::string> table = {"winograd", "few outputs", "dilated", "grouped"};
  if (!onednn_first) table.emplace_back("pointwise");
  for (const char* name : {"upsampling", "col2im", "onednn"}) table.emplace_back(name);
  if (onednn_first) table.emplace_back("pointwise");
  table.emplace_back("depthwise");
  EXPECT_EQ(order, table);
}

// With vectors of eight, oneDNN's kernel for one tap comes before ours.
TEST(KernelChoiceTest, OneTapIsWhoseKernelIsFasterWithTheseVectors) {
  const auto table = ConvolutionImplementations();
  const auto place = [&](std::string_view name) {
    return std::find_if(table.begin(), table.end(),
                        [&](const auto& way) { return way.name == name; });
  };
  EXPECT_EQ(place("onednn") < place("pointwise"), ActiveCpuIsa() == CpuIsa::kAvx2);
  EXPECT_LT(place("onednn"), place("depthwise"));
}

TEST(KernelChoiceTest, AnLstmOfOtherFunctionsTakesTheWayOfAnyGates) {
  OperatorCall call{.name = "LSTM", .attributes = Attrs({{"clip", 1.0f}}), .num_outputs = 3};
  for (const Shape& shape : {Shape{2, 1, 3}, Shape{1, 16, 3}, Shape{1, 16, 4}}) {
    call.inputs.push_back(RandomTensor(DType::kFloat, shape, -1, 1, 1));
  }
  KernelChoice choice;
  ASSERT_TRUE(CompiledCall::Make(call, 1, &choice).ok());
  EXPECT_EQ(choice.taken, "packed panels, any gates");
  EXPECT_EQ(Refusals(choice),
            "packed panels, usual gates: it is for sigmoid and tanh without clip and "
            "input_forget; ");
}

TEST(KernelChoiceTest, AttentionWhoseScoresAreAskedForIsComputedByTheFormula) {
  OperatorCall call{.name = "Attention", .num_outputs = 4};
  call.inputs.assign(3, RandomTensor(DType::kFloat, {1, 2, 5, 4}, -1, 1, 1));
  KernelChoice choice;
  ASSERT_TRUE(CompiledCall::Make(call, 1, &choice).ok());
  EXPECT_EQ(choice.taken, "formula");
  EXPECT_EQ(Refusals(choice), "blocks of keys: it keeps no scores for qk_matmul_output; ");
}

TEST(KernelChoiceTest, OnlyTheOneAskedForIsTaken) {
  OperatorCall call{.name = "Conv"};
  call.inputs = {RandomTensor(DType::kFloat, {1, 2, 5, 5}, -1, 1, 1),
                 RandomTensor(DType::kFloat, {3, 2, 3, 3}, -1, 1, 2)};
  KernelChoice loops{.only = "plain loops"};
  ASSERT_TRUE(CompiledCall::Make(call, 1, &loops).ok());
  EXPECT_EQ(loops.taken, "plain loops");
  KernelChoice upsampling{.only = "upsampling"};
  EXPECT_FALSE(CompiledCall::Make(call, 1, &upsampling).ok());
}

}  // namespace
}  // namespace chairlift::testing
