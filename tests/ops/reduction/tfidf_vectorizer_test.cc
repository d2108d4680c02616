// TfIdfVectorizer against counting every n-gram at every place.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

using testing::RunOperator;

struct Pool {
  std::vector<std::vector<int64_t>> grams;  // in order of length
  std::vector<int64_t> columns;
  int64_t shortest = 1, longest = 1, skips = 0;

  Attributes ToAttributes(const std::string& mode, const std::vector<float>& weights) const {
    std::vector<int64_t> items, starts;
    for (const auto& gram : grams) {
      while (starts.size() < gram.size()) starts.push_back(static_cast<int64_t>(items.size()));
      items.insert(items.end(), gram.begin(), gram.end());
    }
    Attributes a;
    a.Set("mode", mode);
    a.Set("min_gram_length", shortest);
    a.Set("max_gram_length", longest);
    a.Set("max_skip_count", skips);
    a.Set("ngram_counts", starts);
    a.Set("ngram_indexes", columns);
    a.Set("pool_int64s", items);
    if (!weights.empty()) a.Set("weights", weights);
    return a;
  }

  std::vector<double> Counts(const std::vector<int64_t>& x, int64_t num_columns) const {
    std::vector<double> counts(static_cast<size_t>(num_columns));
    const auto n = static_cast<int64_t>(x.size());
    for (size_t g = 0; g < grams.size(); ++g) {
      const auto length = static_cast<int64_t>(grams[g].size());
      if (length < shortest || length > longest) continue;
      for (int64_t step = 1; step <= (length == 1 ? 1 : skips + 1); ++step) {
        for (int64_t start = 0; start + (length - 1) * step < n; ++start) {
          bool same = true;
          for (int64_t i = 0; i < length; ++i) same = same && x[start + i * step] == grams[g][i];
          counts[static_cast<size_t>(columns[g])] += same ? 1 : 0;
        }
      }
    }
    return counts;
  }
};

TEST(TfIdfVectorizerTest, CountsLikeLookingEverywhere) {
  std::mt19937 random(31);
  for (int round = 0; round < 60; ++round) {
    Pool pool;
    pool.longest = 1 + static_cast<int64_t>(random() % 3);
    pool.shortest = 1 + static_cast<int64_t>(random() % pool.longest);
    pool.skips = static_cast<int64_t>(random() % 4);
    for (int64_t length = 1; length <= pool.longest; ++length) {
      // Different from each other in their first items.
      for (int64_t i = 0; i < (length == 2 ? 4 : static_cast<int64_t>(random() % 4)); ++i) {
        std::vector<int64_t> gram{i};
        while (static_cast<int64_t>(gram.size()) < length) gram.push_back(random() % 4);
        pool.grams.push_back(gram);
        pool.columns.push_back(static_cast<int64_t>(pool.columns.size()));
      }
    }
    if (pool.grams.empty()) continue;
    std::shuffle(pool.columns.begin(), pool.columns.end(), random);
    const auto columns = static_cast<int64_t>(pool.columns.size());
    std::vector<float> weights;
    for (int64_t c = 0; c < columns; ++c) weights.push_back(0.5f * static_cast<float>(c + 1));
    const int64_t rows = static_cast<int64_t>(random() % 3), n = static_cast<int64_t>(random() % 9);
    Tensor x = Tensor::Allocate(DType::kInt64, Shape{rows, n});
    for (int64_t i = 0; i < x.size(); ++i) x.data<int64_t>()[i] = random() % 4;
    for (const std::string mode : {"TF", "IDF", "TFIDF"}) {
      for (bool weighted : {false, true}) {
        auto out = RunOperator({"TfIdfVectorizer",
                                pool.ToAttributes(mode, weighted ? weights : std::vector<float>()),
                                {x}});
        ASSERT_TRUE(out.ok()) << out.status();
        ASSERT_EQ((*out)[0].shape(), (Shape{rows, columns}));
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t* row = x.data<int64_t>() + r * n;
          const std::vector<double> counts = pool.Counts({row, row + n}, columns);
          for (int64_t c = 0; c < columns; ++c) {
            const double count = counts[static_cast<size_t>(c)];
            const double value = mode == "IDF" ? (count > 0 ? 1 : 0) : count;
            const double weight = weighted && mode != "TF" ? weights[static_cast<size_t>(c)] : 1;
            ASSERT_EQ((*out)[0].data<float>()[r * columns + c], value * weight) << mode;
          }
        }
      }
    }
  }
}

TEST(TfIdfVectorizerTest, OneSequenceOfInt32) {
  const Pool pool{{{2}, {5, 6}}, {0, 1}, 1, 2, 0};
  auto out = RunOperator({"TfIdfVectorizer",
                          pool.ToAttributes("TF", {}),
                          {Tensor::Of<int32_t>(Shape{5}, {2, 5, 6, 5, 2})}});
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_EQ((*out)[0].shape(), Shape{2});
  EXPECT_EQ((*out)[0].data<float>()[0], 2);
  EXPECT_EQ((*out)[0].data<float>()[1], 1);
}

TEST(TfIdfVectorizerTest, BadPoolsAreRefused) {
  const Tensor x = Tensor::Of<int64_t>(Shape{3}, {1, 2, 3});
  const auto code = [&](const char* name, AttributeValue value, const std::string& mode = "TF") {
    Attributes a = Pool{{{1}, {2, 3}}, {0, 1}, 1, 2, 0}.ToAttributes(mode, {1, 1});
    a.Set(name, std::move(value));
    return RunOperator({"TfIdfVectorizer", a, {x}}).status().code();
  };
  using Ints = std::vector<int64_t>;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code("unused", int64_t{0}), absl::StatusCode::kOk);
  EXPECT_EQ(code("mode", std::string("BM25")), kInvalid);
  EXPECT_EQ(code("ngram_counts", Ints{0, 2}), kInvalid);   // one item left for pairs
  EXPECT_EQ(code("ngram_counts", Ints{2, 1}), kInvalid);   // backwards
  EXPECT_EQ(code("ngram_counts", Ints{0, 99}), kInvalid);  // past the end
  EXPECT_EQ(code("ngram_indexes", Ints{0}), kInvalid);
  EXPECT_EQ(code("ngram_indexes", Ints{0, 1, 2}), kInvalid);
  EXPECT_EQ(code("ngram_indexes", Ints{0, -1}), kInvalid);
  EXPECT_EQ(code("ngram_indexes", Ints{0, int64_t{1} << 40}), kInvalid);
  EXPECT_EQ(code("max_gram_length", int64_t{1} << 40), kInvalid);
  EXPECT_EQ(code("min_gram_length", int64_t{3}), kInvalid);
  EXPECT_EQ(code("max_skip_count", int64_t{-1}), kInvalid);
  EXPECT_EQ(code("weights", std::vector<float>{1}, "IDF"), kInvalid);
  // Two pools.
  EXPECT_EQ(code("pool_strings", std::vector<std::string>{"a"}), kInvalid);
}

}  // namespace
}  // namespace chairlift
