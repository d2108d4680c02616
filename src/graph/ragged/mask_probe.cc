#include "graph/ragged/mask_probe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "graph/passes/rewrite.h"
#include "graph/ragged/form.h"

namespace chairlift::ragged {
namespace {

// What a hidden key's score is lowered by, at least: its weight is 0 then in float32.
constexpr float kHidden = -1000.0f;

struct Sizes {
  int64_t batch, length;
};

// A mask as it was given and what came out for it.
struct Trial {
  Sizes sizes;
  std::vector<int64_t> mask;  // [batch, length]
  Tensor added;               // broadcasts to [batch, heads, length, length]
};

Tensor MaskTensor(DType dtype, const Sizes& sizes, const std::vector<int64_t>& mask) {
  Tensor t = Tensor::Allocate(dtype, Shape{sizes.batch, sizes.length});
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t v = mask[static_cast<size_t>(i)];
    if (dtype == DType::kInt64) t.data<int64_t>()[i] = v;
    if (dtype == DType::kInt32) t.data<int32_t>()[i] = static_cast<int32_t>(v);
    if (dtype == DType::kBool) t.data<bool>()[i] = v != 0;
  }
  return t;
}

// What a rule says of a mask's value.
float Added(const MaskRule& rule, int64_t v) {
  return (rule.counts_if_one ? v == 1 : v != 0) ? 0.0f : rule.hidden;
}

// The element of what is added for (batch, query, key), whose heads are all one.
class Grid {
 public:
  static StatusOr<Grid> Of(const Trial& trial) {
    const Shape& shape = trial.added.shape();
    const int64_t want[] = {trial.sizes.batch, 1, trial.sizes.length, trial.sizes.length};
    Grid grid;
    if (trial.added.dtype() != DType::kFloat || shape.rank() > 4) {
      return Unimplemented("is no float32 of rank 4");
    }
    int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      const int place = 4 - shape.rank() + i;
      if (shape[i] != 1 && shape[i] != want[place]) {
        if (place == 1) return Unimplemented("differs between heads");
        return Unimplemented("has the shape {}", shape.ToString());
      }
      grid.strides_[place] = shape[i] == 1 ? 0 : stride;
      stride *= shape[i];
    }
    grid.data_ = trial.added.data<float>();
    return grid;
  }
  float At(int64_t b, int64_t q, int64_t k) const {
    return data_[b * strides_[0] + q * strides_[2] + k * strides_[3]];
  }

 private:
  const float* data_ = nullptr;
  int64_t strides_[4] = {};
};

// Whether every (batch, query, key) of the trial is as the rule says; else why not.
Status Check(const Trial& trial, const MaskRule& rule) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Grid grid, Grid::Of(trial));
  for (int64_t b = 0; b < trial.sizes.batch; ++b) {
    for (int64_t q = 0; q < trial.sizes.length; ++q) {
      for (int64_t k = 0; k < trial.sizes.length; ++k) {
        const int64_t v =
            rule.input < 0 ? 1 : trial.mask[static_cast<size_t>(b * trial.sizes.length + k)];
        const float want = Added(rule, v), got = grid.At(b, q, k);
        if (got == want) continue;
        return Unimplemented(
            "adds {} for query {} and key {} of {} where the key's mask is {}, not {}", got, q, k,
            trial.sizes.length, v, want);
      }
    }
  }
  return absl::OkStatus();
}

// The numbers that the mask's own part of the graph compares with may decide: these and their
// neighbours are tried.
std::vector<int64_t> Interesting(const Graph& graph) {
  std::set<int64_t> values = {0, 1, 2, 3, 100, 30'000};
  for (const Value& value : graph.values) {
    if (!value.is_constant() || value.constant.size() != 1) continue;
    std::optional<double> v = ScalarValue(value.constant);
    if (value.dtype == DType::kInt64) v = static_cast<double>(*value.constant.data<int64_t>());
    if (value.dtype == DType::kInt32) v = *value.constant.data<int32_t>();
    if (!v || !(*v >= 0 && *v < 1e9)) continue;
    for (int64_t by = -1; by <= 1; ++by) {
      if (const int64_t near = std::llround(*v) + by; near >= 0) values.insert(near);
    }
  }
  return {values.begin(), values.end()};
}

class Prober {
 public:
  Prober(const Graph& graph, int input, int64_t longest)
      : graph_(graph), input_(input), longest_(longest) {}

  // The rule that the target follows.
  StatusOr<MaskRule> Probe(ValueId target) {
    MaskRule rule{.input = input_};
    // One key: what its value gives.
    if (input_ >= 0) {
      const DType dtype =
          graph_.values[static_cast<size_t>(graph_.inputs[static_cast<size_t>(input_)])].dtype;
      if (dtype != DType::kInt64 && dtype != DType::kInt32 && dtype != DType::kBool) {
        return Unimplemented("reads an input of {}", DTypeName(dtype));
      }
      CHAIRLIFT_RETURN_IF_ERROR(Learn(target, dtype, rule));
    }
    std::vector<Trial> trials;
    for (const Sizes& sizes :
         {Sizes{1, 1}, Sizes{2, 1}, Sizes{1, 2}, Sizes{3, 5}, Sizes{2, 9}, Sizes{5, 3},
          Sizes{2, std::min<int64_t>(longest_, 67)}, Sizes{1, longest_}}) {
      if (sizes.length > longest_) continue;
      // Random, all counting, padded on the left, and none counting.
      for (int pattern = 0; pattern < 4; ++pattern) {
        if (pattern > 0 && (input_ < 0 || (sizes.length == longest_ && longest_ > 67))) continue;
        std::vector<int64_t> mask(static_cast<size_t>(sizes.batch * sizes.length));
        for (size_t i = 0; i < mask.size(); ++i) {
          const auto key = static_cast<int64_t>(i) % sizes.length;
          mask[i] = pattern == 0   ? static_cast<int64_t>(random_() % 2)
                    : pattern == 1 ? 1
                    : pattern == 2 ? static_cast<int64_t>(key >= sizes.length / 2)
                                   : 0;
        }
        CHAIRLIFT_ASSIGN_OR_RETURN(const Trial trial, Try(target, sizes, std::move(mask)));
        CHAIRLIFT_RETURN_IF_ERROR(Check(trial, rule));
      }
    }
    if (rule.hidden == 0.0f) rule.input = -1;
    return rule;
  }

 private:
  StatusOr<Trial> Try(ValueId target, Sizes sizes, std::vector<int64_t> mask) const {
    std::map<int, Tensor> inputs;
    if (input_ >= 0) {
      const Value& value =
          graph_.values[static_cast<size_t>(graph_.inputs[static_cast<size_t>(input_)])];
      inputs[input_] = MaskTensor(value.dtype, sizes, mask);
    }
    CHAIRLIFT_ASSIGN_OR_RETURN(
        std::vector<Tensor> added,
        EvaluateValues(graph_, {&target, 1}, inputs,
                       {{kBatchSymbol, sizes.batch}, {kLengthSymbol, sizes.length}}));
    return Trial{sizes, std::move(mask), std::move(added[0])};
  }

  // Which values count, and what is added for the others.
  Status Learn(ValueId target, DType dtype, MaskRule& rule) const {
    std::map<int64_t, float> added;
    for (const int64_t v :
         dtype == DType::kBool ? std::vector<int64_t>{0, 1} : Interesting(graph_)) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Trial trial, Try(target, {1, 1}, {v}));
      CHAIRLIFT_ASSIGN_OR_RETURN(const Grid grid, Grid::Of(trial));
      added[v] = grid.At(0, 0, 0);
    }
    rule.hidden = added[0];
    if (!(rule.hidden == 0.0f || rule.hidden <= kHidden)) {
      return Unimplemented("adds {} where the mask is 0, which does not hide", rule.hidden);
    }
    for (const bool counts_if_one : {false, true}) {
      rule.counts_if_one = counts_if_one;
      if (std::all_of(added.begin(), added.end(),
                      [&](const auto& a) { return Added(rule, a.first) == a.second; })) {
        return absl::OkStatus();
      }
    }
    return Unimplemented("does not tell tokens that count from those that do not");
  }

  const Graph& graph_;
  const int input_;
  const int64_t longest_;
  mutable std::mt19937 random_{11};
};

}  // namespace

StatusOr<MaskRule> ProbeMask(const Graph& graph, ValueId mask, int64_t longest) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<int> inputs, ReadInputs(graph, mask));
  if (inputs.size() > 1) {
    return Unimplemented("follows from inputs '{}' and '{}'",
                         graph.values[static_cast<size_t>(graph.inputs[inputs[0]])].name,
                         graph.values[static_cast<size_t>(graph.inputs[inputs[1]])].name);
  }
  const int input = inputs.empty() ? -1 : inputs[0];
  if (input >= 0) {
    const Value& value = graph.values[static_cast<size_t>(graph.inputs[inputs[0]])];
    if (value.shape.rank() != 2 || !value.shape[1].Same(Dim::Symbol(kLengthSymbol))) {
      return Unimplemented("reads input '{}', which is not [batch, length]", value.name);
    }
  }
  return Prober(graph, input, longest).Probe(mask);
}

}  // namespace chairlift::ragged
