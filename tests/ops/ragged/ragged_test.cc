// The ragged operators but attention, against loops over each sequence in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/operator_harness.h"
#include "ops/ragged/packed_sequences.h"
#include "ops/random_tensor.h"
#include "ops/thread_team.h"

namespace chairlift {
namespace {

using testing::AsDoubles;
using testing::Offsets;
using testing::OperatorCall;
using testing::Packing;
using testing::Packings;
using testing::RandomTensor;
using testing::RunOperator;
using testing::ThreadTeam;

const Shape kRests[] = {{}, {1}, {5}, {3, 4}, {67}, {0}, {130}};

Shape With(int64_t first, const Shape& rest) {
  Shape shape{first};
  for (const int64_t dim : rest) shape.Append(dim);
  return shape;
}

// What y[s * columns + c] or, with a token, y[token * columns + c] should be.
template <typename Body>
void ForSequences(const Packing& packing, int64_t columns, const Body& body) {
  int64_t begin = 0;
  for (size_t s = 0; s < packing.lengths.size(); ++s) {
    for (int64_t c = 0; c < columns; ++c) {
      body(static_cast<int64_t>(s), begin, packing.lengths[s], c);
    }
    begin += packing.lengths[s];
  }
}

std::vector<double> Results(const OperatorCall& call, const Shape& shape, int width = 1) {
  ThreadTeam team(width);
  const auto got = RunOperator(call, &team);
  EXPECT_TRUE(got.ok()) << got.status();
  if (!got.ok()) return {};
  EXPECT_EQ((*got)[0].shape(), shape);
  EXPECT_EQ((*got)[0].dtype(), call.inputs[0].dtype());
  return AsDoubles((*got)[0]);
}

double Folded(const std::string& op, const std::vector<double>& values) {
  if (values.empty()) return 0;
  if (op == "max") return *std::max_element(values.begin(), values.end());
  if (op == "min") return *std::min_element(values.begin(), values.end());
  double sum = 0;
  for (const double v : values) sum += v;
  return op == "sum" ? sum : sum / static_cast<double>(values.size());
}

TEST(RaggedReduceTest, FoldsEachSequence) {
  for (const Packing& packing : Packings()) {
    for (const Shape& rest : kRests) {
      for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kInt64, DType::kFloat16}) {
        for (const char* op : {"sum", "mean", "max", "min"}) {
          const Tensor x = RandomTensor(dtype, With(packing.tokens(), rest), -9, 9, 7);
          OperatorCall call{.name = "RaggedReduce",
                            .inputs = {x, Offsets(packing.lengths)},
                            .domain = "chairlift"};
          call.attributes.Set("op", std::string(op));
          const auto rows = static_cast<int64_t>(packing.lengths.size());
          const std::vector<double> got = Results(call, With(rows, rest));
          const std::vector<double> values = AsDoubles(x);
          const int64_t columns = rest.NumElements();
          ForSequences(packing, columns, [&](int64_t s, int64_t begin, int64_t length, int64_t c) {
            std::vector<double> column;
            for (int64_t t = begin; t < begin + length; ++t) {
              column.push_back(values[static_cast<size_t>(t * columns + c)]);
            }
            double want = Folded(op, column);
            if (dtype == DType::kInt64) want = std::trunc(want);
            const double tolerance = dtype == DType::kFloat16 ? 0.3 : 1e-4;
            ASSERT_NEAR(got[static_cast<size_t>(s * columns + c)], want, tolerance)
                << op << " of " << DTypeName(dtype) << " in sequence " << s;
          });
        }
      }
    }
  }
}

TEST(RaggedReduceTest, AnExtremumIsNaNWhereATokenIs) {
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    Tensor x = RandomTensor(dtype, {7, 67}, -9, 9, 7);
    testing::SprinkleNaN(x, 15, 7);
    const std::vector<double> values = AsDoubles(x);
    for (const char* op : {"max", "min"}) {
      OperatorCall call{
          .name = "RaggedReduce", .inputs = {x, Offsets({4, 3})}, .domain = "chairlift"};
      call.attributes.Set("op", std::string(op));
      const std::vector<double> got = Results(call, {2, 67});
      for (int64_t i = 0; i < 2 * 67; ++i) {
        bool nan = false;
        for (int64_t t = i < 67 ? 0 : 4; t < (i < 67 ? 4 : 7); ++t) {
          nan = nan || std::isnan(values[static_cast<size_t>(t * 67 + i % 67)]);
        }
        ASSERT_EQ(std::isnan(got[static_cast<size_t>(i)]), nan) << op << " " << i;
      }
    }
  }
}

TEST(RaggedReduceTest, WorkersShareSequencesAndColumns) {
  const Packing packing{{700, 1, 0, 333}, 5};
  const Tensor x = RandomTensor(DType::kFloat, {packing.tokens(), 200}, -1, 1, 7);
  OperatorCall call{
      .name = "RaggedReduce", .inputs = {x, Offsets(packing.lengths)}, .domain = "chairlift"};
  call.attributes.Set("op", std::string("sum"));
  EXPECT_EQ(Results(call, {4, 200}, 3), Results(call, {4, 200}, 1));
}

TEST(RaggedTokenTest, PicksFromEitherEnd) {
  for (const Shape& rest : kRests) {
    for (const DType dtype : {DType::kFloat, DType::kInt64, DType::kBool, DType::kFloat16}) {
      for (const int64_t index : {0, 1, -1, -2}) {
        const Packing packing{{3, 0, 7, 2, 0}, 4};
        const Tensor x = RandomTensor(dtype, With(packing.tokens(), rest), -9, 9, 7);
        OperatorCall call{
            .name = "RaggedToken", .inputs = {x, Offsets(packing.lengths)}, .domain = "chairlift"};
        call.attributes.Set("index", index);
        const std::vector<double> got = Results(call, With(5, rest));
        const std::vector<double> values = AsDoubles(x);
        const int64_t columns = rest.NumElements();
        ForSequences(packing, columns, [&](int64_t s, int64_t begin, int64_t length, int64_t c) {
          const int64_t token = index < 0 ? begin + length + index : begin + index;
          ASSERT_EQ(got[static_cast<size_t>(s * columns + c)],
                    length == 0 ? 0 : values[static_cast<size_t>(token * columns + c)]);
        });
      }
    }
  }
}

TEST(RaggedTokenTest, PicksWhatEachSequenceSays) {
  const Packing packing{{3, 0, 7, 2, 0}, 4};
  const std::vector<int64_t> indices = {-1, 9, 5, 0, -9};  // of empty sequences any
  const Tensor x = RandomTensor(DType::kFloat, {packing.tokens(), 3}, -9, 9, 7);
  const Tensor given = Tensor::Of<int64_t>({5}, std::span<const int64_t>(indices));
  const OperatorCall call{
      .name = "RaggedToken", .inputs = {x, Offsets(packing.lengths), given}, .domain = "chairlift"};
  const std::vector<double> got = Results(call, {5, 3});
  const std::vector<double> values = AsDoubles(x);
  ForSequences(packing, 3, [&](int64_t s, int64_t begin, int64_t length, int64_t c) {
    const int64_t index = indices[static_cast<size_t>(s)];
    const int64_t token = index < 0 ? begin + length + index : begin + index;
    ASSERT_EQ(got[static_cast<size_t>(s * 3 + c)],
              length == 0 ? 0 : values[static_cast<size_t>(token * 3 + c)]);
  });
  for (const int64_t beyond : {3, -4}) {
    const Tensor wrong = Tensor::Of<int64_t>({2}, {0, beyond});
    const OperatorCall bad{
        .name = "RaggedToken", .inputs = {x, Offsets({4, 3}), wrong}, .domain = "chairlift"};
    EXPECT_EQ(RunOperator(bad).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RaggedTokenTest, ASequenceThatIsTooShortIsAnError) {
  const Tensor x = RandomTensor(DType::kFloat, {5}, 0, 1, 1);
  for (const int64_t index : {2, -3}) {
    OperatorCall call{.name = "RaggedToken", .inputs = {x, Offsets({3, 2})}, .domain = "chairlift"};
    call.attributes.Set("index", index);
    EXPECT_EQ(RunOperator(call).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RaggedSpreadTest, GivesEachTokenTheRowOfItsSequence) {
  for (const Packing& packing : Packings()) {
    for (const Shape& rest : kRests) {
      const auto rows = static_cast<int64_t>(packing.lengths.size());
      const Tensor x = RandomTensor(DType::kFloat, With(rows, rest), -9, 9, 7);
      const Tensor like = RandomTensor(DType::kInt64, {packing.tokens()}, 0, 9, 7);
      const std::vector<double> got = Results({.name = "RaggedSpread",
                                               .inputs = {x, Offsets(packing.lengths), like},
                                               .domain = "chairlift"},
                                              With(packing.tokens(), rest));
      const std::vector<double> values = AsDoubles(x);
      const int64_t columns = rest.NumElements();
      std::vector<double> want(static_cast<size_t>(packing.tokens() * columns), 0);
      ForSequences(packing, columns, [&](int64_t s, int64_t begin, int64_t length, int64_t c) {
        for (int64_t t = begin; t < begin + length; ++t) {
          want[static_cast<size_t>(t * columns + c)] = values[static_cast<size_t>(s * columns + c)];
        }
      });
      ASSERT_EQ(got, want);
    }
  }
}

TEST(RaggedCumSumTest, RunsAlongEachSequence) {
  for (const Packing& packing : Packings()) {
    for (const Shape& rest : {Shape{}, Shape{3}}) {
      for (const DType dtype : {DType::kFloat, DType::kInt64, DType::kInt32}) {
        for (int variant = 0; variant < 4; ++variant) {
          const bool exclusive = variant % 2 != 0, reverse = variant / 2 != 0;
          const Tensor x = RandomTensor(dtype, With(packing.tokens(), rest), -9, 9, 7);
          OperatorCall call{.name = "RaggedCumSum",
                            .inputs = {x, Offsets(packing.lengths)},
                            .domain = "chairlift"};
          call.attributes.Set("exclusive", int64_t{exclusive});
          call.attributes.Set("reverse", int64_t{reverse});
          const std::vector<double> got = Results(call, x.shape());
          const std::vector<double> values = AsDoubles(x);
          const int64_t columns = rest.NumElements();
          std::vector<double> want(values.size(), 0);
          ForSequences(packing, columns, [&](int64_t, int64_t begin, int64_t length, int64_t c) {
            for (int64_t t = begin; t < begin + length; ++t) {
              for (int64_t u = begin; u < begin + length; ++u) {
                if ((u == t && exclusive) || (reverse ? u < t : u > t)) continue;
                want[static_cast<size_t>(t * columns + c)] +=
                    values[static_cast<size_t>(u * columns + c)];
              }
            }
          });
          for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-3) << i;
        }
      }
    }
  }
}

TEST(RaggedOperatorsTest, WrongOffsetsAreRefused) {
  const Tensor x = RandomTensor(DType::kFloat, {5}, 0, 1, 1);
  const Tensor rows = RandomTensor(DType::kFloat, {2}, 0, 1, 1);
  for (const char* name : {"RaggedReduce", "RaggedToken", "RaggedSpread", "RaggedCumSum"}) {
    const auto run = [&](const Tensor& offsets) {
      OperatorCall call{.name = name, .inputs = {x, offsets}, .domain = "chairlift"};
      if (call.name == "RaggedReduce") call.attributes.Set("op", std::string("sum"));
      if (call.name == "RaggedSpread") call.inputs = {rows, offsets, x};
      return RunOperator(call).status();
    };
    EXPECT_TRUE(run(Tensor::Of<int64_t>({3}, {0, 2, 5})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({3}, {0, 2, 6})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({3}, {0, 3, 2})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({3}, {1, 3, 4})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({3}, {0, -3, 4})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({0}, {})).ok()) << name;
    EXPECT_FALSE(run(Tensor::Of<int64_t>({1, 3}, {0, 2, 5})).ok()) << name;
  }
  const auto unknown =
      RunOperator({.name = "RaggedReduce", .inputs = {x, Offsets({5})}, .domain = "chairlift"});
  EXPECT_FALSE(unknown.ok());
}

}  // namespace
}  // namespace chairlift
