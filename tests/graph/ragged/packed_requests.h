// Runs a packed model on requests and compares its answers with the original's for each alone.
#ifndef CHAIRLIFT_TESTS_GRAPH_RAGGED_PACKED_REQUESTS_H_
#define CHAIRLIFT_TESTS_GRAPH_RAGGED_PACKED_REQUESTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "graph/passes/pass_harness.h"
#include "graph/ragged/ragged.h"

namespace chairlift::testing {

// By input of the original graph; [batch, length, ...] or [batch, ...].
struct Request {
  int64_t batch = 1, length = 1;
  std::vector<Tensor> inputs;
};

enum class Kept { kAll, kUpToLastCounted, kCounted };

// The tokens of one sequence that are packed: places.
inline std::vector<int64_t> KeptTokens(const RaggedModel& model, const Request& request, int64_t b,
                                       Kept kept) {
  std::vector<int64_t> all(static_cast<size_t>(request.length)), counted;
  std::iota(all.begin(), all.end(), int64_t{0});
  if (kept == Kept::kAll) return all;
  const std::vector<double> mask = [&] {
    const Tensor& t = request.inputs[static_cast<size_t>(model.mask)];
    std::vector<double> values;
    for (int64_t i = 0; i < t.size(); ++i) {
      values.push_back(t.dtype() == DType::kInt64  ? static_cast<double>(t.data<int64_t>()[i])
                       : t.dtype() == DType::kBool ? (t.data<bool>()[i] ? 1.0 : 0.0)
                                                   : t.data<float>()[i]);
    }
    return values;
  }();
  for (const int64_t l : all) {
    if (mask[static_cast<size_t>(b * request.length + l)] != 0) counted.push_back(l);
  }
  if (counted.empty()) return all;
  if (kept == Kept::kCounted) return counted;
  all.resize(static_cast<size_t>(counted.back() + 1));
  return all;
}

struct PackedBatch {
  std::vector<Tensor> inputs;            // of the packed graph
  std::vector<int64_t> first_row;        // by request
  std::vector<std::vector<int64_t>> at;  // by row: the places of its tokens
  std::vector<int64_t> offsets = {0};
};

// All requests, then `spare` tokens and empty sequences without a request.
inline PackedBatch Pack(const RaggedModel& model, const std::vector<Request>& requests, Kept kept,
                        int64_t spare) {
  PackedBatch batch;
  std::vector<std::pair<const Request*, int64_t>> rows;
  for (const Request& request : requests) {
    batch.first_row.push_back(static_cast<int64_t>(rows.size()));
    for (int64_t b = 0; b < request.batch; ++b) {
      rows.emplace_back(&request, b);
      batch.at.push_back(KeptTokens(model, request, b, kept));
      batch.offsets.push_back(batch.offsets.back() + static_cast<int64_t>(batch.at.back().size()));
    }
  }
  const int64_t tokens = batch.offsets.back() + spare;
  for (int64_t i = 0; i < spare; ++i) batch.offsets.push_back(batch.offsets.back());
  const auto empty = static_cast<size_t>(spare);
  for (const RaggedInput& input : model.inputs) {
    if (input.role == RaggedRole::kOffsets) {
      batch.inputs.push_back(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(batch.offsets.size())},
                                                 std::span<const int64_t>(batch.offsets)));
      continue;
    }
    if (input.role == RaggedRole::kRequests) {
      std::vector<int64_t> firsts = batch.first_row;
      firsts.resize(batch.offsets.size(), static_cast<int64_t>(rows.size()));
      batch.inputs.push_back(Tensor::Of<int64_t>(Shape{static_cast<int64_t>(firsts.size())},
                                                 std::span<const int64_t>(firsts)));
      continue;
    }
    if (input.role == RaggedRole::kPositions) {
      std::vector<int64_t> positions;
      for (const auto& at : batch.at) positions.insert(positions.end(), at.begin(), at.end());
      positions.resize(static_cast<size_t>(tokens), 0);
      batch.inputs.push_back(
          Tensor::Of<int64_t>(Shape{tokens}, std::span<const int64_t>(positions)));
      continue;
    }
    const bool of_tokens = input.role == RaggedRole::kTokens;
    const Tensor& any = requests[0].inputs[static_cast<size_t>(input.source)];
    Shape shape = any.shape();
    if (of_tokens) shape.Erase(0);
    shape[0] = of_tokens ? tokens : static_cast<int64_t>(rows.size() + empty);
    Tensor packed = Tensor::Allocate(any.dtype(), shape);
    std::memset(packed.raw(), 0, packed.byte_size());
    const size_t bytes =
        static_cast<size_t>(shape.NumElements(1, shape.rank())) * DTypeSize(any.dtype());
    auto* to = static_cast<std::byte*>(packed.raw());
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto& [request, b] = rows[r];
      const Tensor& from = request->inputs[static_cast<size_t>(input.source)];
      const auto* data = static_cast<const std::byte*>(from.raw());
      if (!of_tokens) {
        std::memcpy(to, data + static_cast<size_t>(b) * bytes, bytes);
        to += bytes;
        continue;
      }
      for (const int64_t l : batch.at[r]) {
        std::memcpy(to, data + static_cast<size_t>(b * request->length + l) * bytes, bytes);
        to += bytes;
      }
    }
    batch.inputs.push_back(packed);
  }
  return batch;
}

// Answers agree within `tolerance` of the largest.
inline void ExpectSameAnswers(const Graph& original, const RaggedModel& model,
                              const std::vector<Request>& requests, Kept kept = Kept::kAll,
                              int64_t spare = 0, double tolerance = 1e-4) {
  const PackedBatch batch = Pack(model, requests, kept, spare);
  const std::vector<Tensor> packed = Evaluate(model.graph, batch.inputs);
  ASSERT_EQ(packed.size(), original.outputs.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    const std::vector<Tensor> alone = Evaluate(original, request.inputs);
    ASSERT_EQ(alone.size(), original.outputs.size());
    for (size_t o = 0; o < alone.size(); ++o) {
      const bool of_tokens = model.output_is_tokens[o];
      if (of_tokens && kept != Kept::kAll) continue;
      ASSERT_EQ(packed[o].dtype(), alone[o].dtype());
      const int first = of_tokens ? 2 : 1;
      const int64_t columns = alone[o].shape().NumElements(first, alone[o].shape().rank());
      ASSERT_EQ(packed[o].shape().NumElements(1, packed[o].shape().rank()), columns);
      ASSERT_EQ(alone[o].shape()[0], request.batch);
      const auto value = [](const Tensor& t, int64_t at) {
        switch (t.dtype()) {
          case DType::kFloat:
            return static_cast<double>(t.data<float>()[at]);
          case DType::kInt32:
            return static_cast<double>(t.data<int32_t>()[at]);
          case DType::kBool:
            return t.data<bool>()[at] ? 1.0 : 0.0;
          default:
            return static_cast<double>(t.data<int64_t>()[at]);
        }
      };
      double range = 1e-6;
      for (int64_t k = 0; k < alone[o].size(); ++k) {
        if (std::isfinite(value(alone[o], k)))
          range = std::max(range, std::abs(value(alone[o], k)));
      }
      const int64_t rows = of_tokens ? request.batch * request.length : request.batch;
      const int64_t begin =
          of_tokens ? batch.offsets[static_cast<size_t>(batch.first_row[i])] : batch.first_row[i];
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const double want = value(alone[o], r * columns + c);
          const double got = value(packed[o], (begin + r) * columns + c);
          if (want == got || (std::isnan(want) && std::isnan(got))) continue;
          ASSERT_NEAR(got, want, tolerance * range)
              << "request " << i << ", output " << o << ", row " << r << ", column " << c;
        }
      }
    }
  }
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_RAGGED_PACKED_REQUESTS_H_
