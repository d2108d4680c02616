// LinearAttention against its recurrence in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "ops/operator_harness.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace linear_attention_test {

using testing::AsDoubles;
using ::testing::HasSubstr;
using testing::OperatorCall;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

struct Case {
  std::string rule = "gated_delta";
  int64_t batch = 2, length = 5, heads = 4, kv_heads = 2;
  int64_t d_k = 8, d_v = 6;
  bool past = false;
  bool decay_by_head = false, one_beta = false;
  float scale = 0;
  DType dtype = DType::kFloat;
  DType state_dtype = DType::kUndefined;  // that of the rest
  int num_outputs = 2;
  double tolerance = 1e-5;
  int width = 1;

  bool gated() const { return rule.starts_with("gated"); }
  bool delta() const { return rule.ends_with("delta"); }
};

OperatorCall CallOf(const Case& c, uint32_t seed) {
  const auto random = [&](int64_t columns, double low, double high) {
    return RandomTensor(c.dtype, {c.batch, c.length, columns}, low, high, ++seed);
  };
  OperatorCall call{.name = "LinearAttention", .num_outputs = c.num_outputs};
  call.attributes.Set("update_rule", c.rule);
  call.attributes.Set("q_num_heads", c.heads);
  call.attributes.Set("kv_num_heads", c.kv_heads);
  call.attributes.Set("scale", c.scale);
  // Keys of about length 1 at most: longer ones make the delta rules diverge.
  const double key = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(c.d_k, 1)));
  call.inputs = {random(c.heads * c.d_k, -1, 1), random(c.kv_heads * c.d_k, -key, key),
                 random(c.kv_heads * c.d_v, -1, 1)};
  call.inputs.resize(6);
  if (c.past) {
    const DType dtype = c.state_dtype == DType::kUndefined ? c.dtype : c.state_dtype;
    call.inputs[3] = RandomTensor(dtype, {c.batch, c.kv_heads, c.d_k, c.d_v}, -1, 1, ++seed);
  }
  if (c.gated()) call.inputs[4] = random(c.kv_heads * (c.decay_by_head ? 1 : c.d_k), -1, 0);
  if (c.delta()) call.inputs[5] = random(c.one_beta ? 1 : c.kv_heads, 0, 1);
  return call;
}

void Check(const Case& c, uint32_t seed = 0) {
  const OperatorCall call = CallOf(c, seed);
  ThreadTeam team(c.width);
  const auto got = RunOperator(call, &team);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ((*got)[0].shape(), (Shape{c.batch, c.length, c.heads * c.d_v}));
  ASSERT_EQ((*got)[0].dtype(), c.dtype);
  const auto q = AsDoubles(call.inputs[0]), k = AsDoubles(call.inputs[1]),
             v = AsDoubles(call.inputs[2]), y = AsDoubles((*got)[0]);
  std::vector<double> past, decay, beta, present;
  if (c.past) past = AsDoubles(call.inputs[3]);
  if (c.gated()) decay = AsDoubles(call.inputs[4]);
  if (c.delta()) beta = AsDoubles(call.inputs[5]);
  if (c.num_outputs > 1) {
    ASSERT_EQ((*got)[1].shape(), (Shape{c.batch, c.kv_heads, c.d_k, c.d_v}));
    ASSERT_EQ((*got)[1].dtype(), c.past ? call.inputs[3].dtype() : c.dtype);
    present = AsDoubles((*got)[1]);
  }
  const double scale =
      c.scale != 0 ? static_cast<double>(c.scale) : 1 / std::sqrt(static_cast<double>(c.d_k));
  const auto at = [](const std::vector<double>& values, int64_t i) {
    return values[static_cast<size_t>(i)];
  };
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.kv_heads; ++h) {
      for (int64_t m = 0; m < c.d_v; ++m) {  // columns of the state are apart
        std::vector<double> s(static_cast<size_t>(c.d_k), 0.0);
        const auto element = [&](int64_t i) {
          return ((b * c.kv_heads + h) * c.d_k + i) * c.d_v + m;
        };
        for (int64_t i = 0; c.past && i < c.d_k; ++i) {
          s[static_cast<size_t>(i)] = at(past, element(i));
        }
        for (int64_t t = 0; t < c.length; ++t) {
          const int64_t token = b * c.length + t, head = token * c.kv_heads + h;
          double retrieved = 0;
          for (int64_t i = 0; i < c.d_k; ++i) {
            double& value = s[static_cast<size_t>(i)];
            if (c.gated()) {
              value *= std::exp(at(decay, c.decay_by_head ? head : head * c.d_k + i));
            }
            retrieved += value * at(k, head * c.d_k + i);
          }
          double written = at(v, head * c.d_v + m);
          if (c.delta()) written = at(beta, c.one_beta ? token : head) * (written - retrieved);
          for (int64_t i = 0; i < c.d_k; ++i) {
            s[static_cast<size_t>(i)] += at(k, head * c.d_k + i) * written;
          }
          const int64_t group = c.heads / c.kv_heads;
          for (int64_t g = h * group; g < (h + 1) * group; ++g) {
            double want = 0;
            for (int64_t i = 0; i < c.d_k; ++i) {
              want += scale * s[static_cast<size_t>(i)] * at(q, (token * c.heads + g) * c.d_k + i);
            }
            ASSERT_NEAR(at(y, (token * c.heads + g) * c.d_v + m), want, c.tolerance)
                << b << ' ' << g << ' ' << t << ' ' << m;
          }
        }
        for (int64_t i = 0; c.num_outputs > 1 && i < c.d_k; ++i) {
          ASSERT_NEAR(at(present, element(i)), s[static_cast<size_t>(i)], c.tolerance);
        }
      }
    }
  }
}

constexpr const char* kRules[] = {"linear", "gated", "delta", "gated_delta"};

TEST(LinearAttentionTest, FollowsEachRule) {
  for (const char* rule : kRules) {
    for (const bool past : {false, true}) {
      SCOPED_TRACE(rule);
      Check({.rule = rule, .past = past});
      Check({.rule = rule, .length = 1, .past = past});
      Check({.rule = rule, .past = past, .scale = 0.3f});
      Check({.rule = rule, .past = past, .num_outputs = 1});
      Check({.rule = rule, .past = past, .decay_by_head = true, .one_beta = true});
    }
  }
}

TEST(LinearAttentionTest, HeadsOfKeysAreShared) {
  for (const int64_t kv_heads : {1, 2, 4}) Check({.kv_heads = kv_heads});
}

TEST(LinearAttentionTest, SizesIncludeNothingAndOne) {
  Check({.batch = 0});
  Check({.d_v = 0});
  for (const bool past : {false, true}) Check({.length = 0, .past = past});
  Check({.batch = 1, .length = 1, .heads = 1, .kv_heads = 1, .d_k = 1, .d_v = 1});
  // Without columns of keys there is nothing to read, whatever a scale of 1/√0 would make of it.
  const auto none = RunOperator(CallOf({.d_k = 0}, 0));
  ASSERT_TRUE(none.ok()) << none.status();
  for (const double y : AsDoubles((*none)[0])) EXPECT_EQ(y, 0);
}

TEST(LinearAttentionTest, HeadsAreSharedAmongATeam) {
  for (const char* rule : kRules) {
    Check({.rule = rule,
           .batch = 3,
           .length = 70,
           .kv_heads = 4,
           .d_k = 33,
           .d_v = 17,
           .past = true,
           .width = 3});
  }
}

TEST(LinearAttentionTest, Halves) {
  for (const char* rule : kRules) {
    Check({.rule = rule, .past = true, .dtype = DType::kFloat16, .tolerance = 5e-3});
    Check({.rule = rule, .past = true, .dtype = DType::kBFloat16, .tolerance = 4e-2});
    Check({.rule = rule,
           .past = true,
           .dtype = DType::kFloat16,
           .state_dtype = DType::kFloat,
           .tolerance = 5e-3});
    Check({.rule = rule, .dtype = DType::kFloat16, .tolerance = 5e-3});
  }
}

TEST(LinearAttentionTest, RandomCases) {
  std::mt19937 random(5);
  const auto pick = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
  for (uint32_t i = 0; i < 60; ++i) {
    const int64_t kv_heads = 1 + pick(3);
    const Case c{.rule = kRules[pick(3)],
                 .batch = pick(3),
                 .length = pick(20),
                 .heads = kv_heads * (1 + pick(2)),
                 .kv_heads = kv_heads,
                 .d_k = 1 + pick(33),
                 .d_v = 1 + pick(33),
                 .past = pick(1) == 0,
                 .decay_by_head = pick(1) == 0,
                 .one_beta = pick(1) == 0,
                 .scale = pick(1) == 0 ? 0.0f : 0.7f};
    Check(c, 100 * i);
    if (::testing::Test::HasFatalFailure()) FAIL() << "case " << i;
  }
}

TEST(LinearAttentionTest, RefusesWhatDoesNotFit) {
  const auto refusal = [](const OperatorCall& call) {
    const auto got = RunOperator(call);
    return got.ok() ? std::string("accepted") : std::string(Message(got.status()));
  };
  const auto with = [](const Case& c, size_t input, const Shape& shape) {
    OperatorCall call = CallOf(c, 1);
    call.inputs[input] = shape.rank() == 0 ? Tensor() : RandomTensor(c.dtype, shape, -1, 1, 1);
    return call;
  };
  OperatorCall unknown = CallOf({}, 1);
  unknown.attributes.Set("update_rule", std::string("gates"));
  EXPECT_THAT(refusal(unknown), HasSubstr("update_rule 'gates'"));
  EXPECT_THAT(refusal(CallOf({.heads = 3}, 1)), HasSubstr("q_num_heads is 3"));
  EXPECT_THAT(refusal(CallOf({.kv_heads = 0}, 1)), HasSubstr("kv_num_heads, 0"));
  EXPECT_THAT(refusal(with({}, 4, {})), HasSubstr("'gated_delta' needs the input decay"));
  EXPECT_THAT(refusal(with({}, 5, {})), HasSubstr("'gated_delta' needs the input beta"));
  EXPECT_THAT(refusal(with({.rule = "linear"}, 4, {2, 5, 2})),
              HasSubstr("'linear' does not take the input decay"));
  EXPECT_THAT(refusal(with({}, 0, {2, 5, 31})), HasSubstr("4 heads do not divide the 31 columns"));
  EXPECT_THAT(refusal(with({}, 1, {2, 5, 18})), HasSubstr("input 1 is [2,5,18]"));
  EXPECT_THAT(refusal(with({}, 2, {2, 4, 12})), HasSubstr("input 2 is [2,4,12]"));
  EXPECT_THAT(refusal(with({}, 3, {2, 2, 6, 8})), HasSubstr("input 3 is [2,2,6,8]"));
  EXPECT_THAT(refusal(with({}, 3, {2, 8, 6})), HasSubstr("input 3 has rank 3, not 4"));
  EXPECT_THAT(refusal(with({}, 4, {2, 5, 3})), HasSubstr("input 4 is [2,5,3]"));
  EXPECT_THAT(refusal(with({}, 5, {2, 5, 3})), HasSubstr("input 5 is [2,5,3]"));
  OperatorCall mixed = CallOf({}, 1);
  mixed.inputs[1] = RandomTensor(DType::kFloat16, mixed.inputs[1].shape(), -1, 1, 1);
  EXPECT_THAT(refusal(mixed), HasSubstr("input 1 is float16"));
}

}  // namespace linear_attention_test
}  // namespace chairlift
