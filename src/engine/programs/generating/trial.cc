#include "engine/programs/generating/trial.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cpu/team.h"
#include "graph/full_precision.h"
#include "graph/ragged/evaluate_values.h"

namespace chairlift {
namespace {

// Relative to the largest logit. With dynamic scales, sums in another order may end in the next of
// 256 steps.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOfSteps = 3e-2;
// Relative to the effect of the model's own rounding.
constexpr double kRoundings = 2;

const Value& InputOf(const Graph& graph, int i) {
  return graph.values[static_cast<size_t>(graph.inputs[static_cast<size_t>(i)])];
}

// The encoder's output for a source.
StatusOr<Tensor> Encoded(const Graph& encoder, std::span<const int64_t> source,
                         const Tensor& features) {
  std::map<int, Tensor> inputs;
  const auto size = static_cast<int64_t>(source.size());
  for (size_t i = 0; i < encoder.inputs.size(); ++i) {
    const Value& input = InputOf(encoder, static_cast<int>(i));
    Tensor& tensor = inputs[static_cast<int>(i)];
    if (features.present()) {
      tensor = features;
    } else if (input.name == "input_ids") {
      tensor = Tensor::Of<int64_t>({1, size}, source);
    } else {  // the mask
      tensor = Tensor::Allocate(input.dtype, {1, size});
      if (input.dtype == DType::kInt64) std::fill_n(tensor.data<int64_t>(), size, 1);
      if (input.dtype == DType::kInt32) std::fill_n(tensor.data<int32_t>(), size, 1);
    }
  }
  for (const ValueId id : encoder.outputs) {
    if (encoder.values[static_cast<size_t>(id)].name != "last_hidden_state") continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                               ragged::EvaluateValues(encoder, {&id, 1}, inputs, {}));
    const Shape& shape = outputs[0].shape();
    if (shape.rank() != 3 || shape[1] != size) {
      return Unimplemented("'last_hidden_state' has shape {}", shape.ToString());
    }
    return std::move(outputs[0]);
  }
  return Unimplemented("the encoder has no output 'last_hidden_state'");
}

Tensor AnyFeatures(const SourceFeatures& sizes, int seed) {
  Tensor features = Tensor::Allocate(DType::kFloat, {1, sizes.rows, sizes.frames});
  for (int64_t i = 0; i < features.size(); ++i) {
    features.data<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed));
  }
  return features;
}

// The original model on one sequence.
class Original {
 public:
  // `source`: encoded, for a model that has one.
  Original(const Graph& graph, const DecoderPorts& ports, Tensor source)
      : graph_(graph), ports_(ports), source_(std::move(source)) {
    for (const DecoderPorts::Cache& cache : ports.caches) {
      past_.push_back(Tensor::Allocate(DType::kFloat, {1, cache.heads, 0, cache.columns}));
    }
  }

  // The logits of the last token.
  StatusOr<std::vector<float>> Run(std::span<const int64_t> given) {
    std::vector<int64_t> tokens(given.begin(), given.end());
    if (past_.empty()) {  // it takes all of them
      so_far_.insert(so_far_.end(), given.begin(), given.end());
      tokens = so_far_;
    }
    const auto added = static_cast<int64_t>(tokens.size());
    std::map<int, Tensor> inputs;
    inputs[ports_.tokens] = Tensor::Of<int64_t>({1, added}, std::span<const int64_t>(tokens));
    if (ports_.source >= 0) {
      inputs[ports_.source] = source_;
      Fill(inputs, ports_.source_mask, source_.shape()[1], [](int64_t) { return 1; });
    }
    Fill(inputs, ports_.mask, cached_ + added, [](int64_t) { return 1; });
    Fill(inputs, ports_.positions, added, [this](int64_t i) { return cached_ + i; });
    for (size_t i = 0; i < past_.size(); ++i) inputs[ports_.caches[i].input] = past_[i];
    CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs,
                               ragged::EvaluateValues(graph_, graph_.outputs, inputs, {}));
    for (size_t i = 0; i < past_.size(); ++i) {
      past_[i] = outputs[static_cast<size_t>(ports_.caches[i].output)];
    }
    if (!past_.empty()) cached_ += added;
    const Tensor& logits = outputs[static_cast<size_t>(ports_.logits)];
    if (logits.shape().rank() != 3 || logits.shape()[1] != added) {
      return Unimplemented("its logits have shape {}", logits.shape().ToString());
    }
    const auto all = logits.values<float>();
    const auto size = static_cast<size_t>(logits.shape()[2]);
    return std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(size), all.end());
  }

 private:
  const Value& Input(int i) const { return InputOf(graph_, i); }
  template <typename Number>
  void Fill(std::map<int, Tensor>& inputs, int input, int64_t count, Number number) {
    if (input < 0) return;
    Tensor tensor = Tensor::Allocate(Input(input).dtype, {1, count});
    for (int64_t i = 0; i < count; ++i) {
      if (tensor.dtype() == DType::kInt64) tensor.data<int64_t>()[i] = number(i);
      if (tensor.dtype() == DType::kInt32) {
        tensor.data<int32_t>()[i] = static_cast<int32_t>(number(i));
      }
    }
    inputs[input] = std::move(tensor);
  }

  const Graph& graph_;
  const DecoderPorts& ports_;
  const Tensor source_;
  std::vector<int64_t> so_far_;
  std::vector<Tensor> past_;
  int64_t cached_ = 0;
};

// The logits of the original, unchanged and in full precision.
struct Logits {
  std::vector<float> given, full;
};

// The prompt's, and those of one more token.
StatusOr<std::vector<Logits>> LogitsOf(const OriginalDecoder& original,
                                       std::span<const int64_t> prompt,
                                       std::span<const int64_t> next,
                                       std::span<const int64_t> source, const Tensor& features) {
  const auto answers = [&](const Graph& graph,
                           const Graph* encoder) -> StatusOr<std::vector<std::vector<float>>> {
    Tensor encoded;
    if (encoder != nullptr) {
      CHAIRLIFT_ASSIGN_OR_RETURN(encoded, Encoded(*encoder, source, features));
    }
    Original model(graph, original.ports, encoded);
    std::vector<std::vector<float>> logits;
    for (const auto& tokens : {prompt, next}) {
      CHAIRLIFT_ASSIGN_OR_RETURN(logits.emplace_back(), model.Run(tokens));
    }
    return logits;
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(auto given, answers(original.graph, original.encoder));
  auto full = given;
  const std::optional<Graph> graph = InFullPrecision(original.graph);
  const std::optional<Graph> encoder =
      original.encoder == nullptr ? std::nullopt : InFullPrecision(*original.encoder);
  if (graph || encoder) {
    CHAIRLIFT_ASSIGN_OR_RETURN(
        full, answers(graph ? *graph : original.graph, encoder ? &*encoder : original.encoder));
  }
  return std::vector<Logits>{{given[0], full[0]}, {given[1], full[1]}};
}

Status Compare(const Logits& want, const Tensor& logits, double tolerance, const char* of) {
  const float* got = logits.data<float>();
  double most = 0, apart = 0, roundings = 0;
  bool numbers = true;
  for (size_t i = 0; i < want.given.size(); ++i) {
    const double given = want.given[i];
    most = std::max(most, std::abs(given));
    roundings = std::max(roundings, std::abs(given - want.full[i]));
    const double difference = std::abs(given - got[i]);
    numbers &= !std::isnan(difference);
    apart = std::max(apart, difference);
  }
  if (numbers && apart <= tolerance * most + kRoundings * roundings) return absl::OkStatus();
  return Unimplemented("tried beside the original, the logits of {} differ by {} of {}", of, apart,
                       most);
}

}  // namespace

Status TrySteps(const OriginalDecoder& original, PagedStep& step, SourceEncoder* encoder) {
  // Arbitrary tokens.
  std::vector<int64_t> prompt, other;
  const int64_t length = std::min<int64_t>(step.max_length() - 1, 19);
  for (int64_t i = 0; i < length; ++i) prompt.push_back((7 * i + 1) % step.vocabulary());
  for (int64_t i = 0; i < std::min<int64_t>(length, 3); ++i) other.push_back(i % step.vocabulary());
  if (prompt.empty()) return absl::OkStatus();
  std::vector<int64_t> source, other_source;
  Tensor features, other_features;
  if (encoder != nullptr && encoder->features()) {
    source.assign(static_cast<size_t>(encoder->features()->length), 0);
    other_source = source;
    features = AnyFeatures(*encoder->features(), 0);
    other_features = AnyFeatures(*encoder->features(), 1);
  } else if (encoder != nullptr) {
    // Tokens 0 and 1 are in every vocabulary.
    for (int64_t i = 0; i < std::min<int64_t>(step.max_source(), 21); ++i) source.push_back(i % 2);
    for (int64_t i = 0; i < std::min<int64_t>(step.max_source(), 5); ++i) {
      other_source.push_back(i % 3 == 0 ? 1 : 0);
    }
  }
  const std::vector<int64_t> next = {5 % step.vocabulary()};
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Logits> want,
                             LogitsOf(original, prompt, next, source, features));
  WorkerMemory memory;
  SoloTeam team;
  BlockPool::Sequence mine(step.pool()), others(step.pool());
  BlockPool::Sequence sources(step.pool()), other_sources(step.pool());
  const auto size = [](std::span<const int64_t> tokens) {
    return static_cast<int64_t>(tokens.size());
  };
  if (!mine.Grow(length + 1) || !sources.Grow(size(source))) return absl::OkStatus();
  // If there is no room for two, the first is tried alone.
  const bool together = others.Grow(size(other)) && other_sources.Grow(size(other_source));
  if (encoder != nullptr) {
    std::vector<SourceTokens> both = {{source, sources.blocks(), features}};
    if (together) both.insert(both.begin(), {other_source, other_sources.blocks(), other_features});
    CHAIRLIFT_RETURN_IF_ERROR(encoder->Run(both, step, team, 0, memory));
  }
  const auto run = [&](std::span<const int64_t> tokens, int64_t cached, bool beside) {
    std::vector<StepTokens> sequences = {
        {tokens, cached, mine.blocks(), size(source), sources.blocks()}};
    if (beside) {
      sequences.push_back({other, 0, others.blocks(), size(other_source), other_sources.blocks()});
    }
    return step.Run(sequences, team, 0, memory);
  };
  const std::span<const int64_t> all(prompt);
  const size_t half = step.whole_prompts() ? 0 : prompt.size() / 2;
  const double tolerance = step.whole_prompts() ? kToleranceOfSteps : kTolerance;
  if (half > 0) CHAIRLIFT_RETURN_IF_ERROR(run(all.first(half), 0, false).status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor whole, run(all.subspan(half), static_cast<int64_t>(half),
                                                     together && others.tokens() > 0));
  CHAIRLIFT_RETURN_IF_ERROR(Compare(want[0], whole, tolerance, "a prompt"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor stepped, run(next, length, false));
  return Compare(want[1], stepped, tolerance, "a step");
}

}  // namespace chairlift
